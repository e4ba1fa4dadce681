/* The model of `sptrain label`: how its scans became samples, and which codes its
 * classes have. Both come from the model, which got them from its shards
 * (data/sp_recipe.h), or from the command line if the model does not say. */
#ifndef LABEL_MODEL_H
#define LABEL_MODEL_H

#include "label/label_options.h"
#include "train/sp_members.h"

typedef enum label_field_kind {
    LABEL_CONFIDENCE,
    LABEL_ENTROPY,
    LABEL_MARGIN,
    LABEL_AGREEMENT, /* the share of the models with this class */
    LABEL_CLASS,     /* the code of the class */
    LABEL_PROBABILITY
} label_field_kind;

typedef struct label_model {
    sp_infer infer;     /* the first or only model */
    sp_members members; /* the others of A+B+C */
    vox_options *vox;   /* how a scan becomes samples; the options' */
    int n_classes;
    int32_t *code; /* [n_classes] the code to write for a class */
    char **column; /* [n_columns] names of the model's columns, for messages */
    int n_added;   /* fields that outputs get */
    sp_scan_added added[LABEL_ADDED];
    label_field_kind kind[LABEL_ADDED];
    bool has_class_field;            /* one of them is LABEL_CLASS */
    int class_of_field[LABEL_ADDED]; /* of a LABEL_PROBABILITY */
    /* Probabilities become p^(1/T); 1 if the model was not calibrated, or is several,
     * whose logits were divided already (train/sp_members.h). */
    double temperature;
    double most_distance; /* of --doubtful-features; 0: distances are not wanted */
    uint32_t crc;         /* of the files of the models */
    char *words;          /* the paths of A+B+C, cut apart */
} label_model;

/* Reads the head of the model and determines all of the above; the samples' part of
 * options->vox is completed. Collective, agreed. SP_EUSAGE: neither the model nor the
 * options say, or they contradict each other; SP_EDATA: the model. Close in any
 * case. */
sp_status label_model_open(label_model *model, const sp_command *command,
                           label_options *options);
/* Reports rc, frees all and returns the status to exit with. Collective. */
sp_status label_model_close(label_model *model, sp_status rc);
/* The sums of a voxel or point: a sum of probabilities for each class of each model;
 * then, if distances are wanted, the sum of distances in units of sp_calibration.h.
 * Pure. */
static inline int label_model_sums(const label_model *model)
{
    return model->n_classes * (model->members.n + 1) + (model->most_distance > 0);
}
/* Checks that the model can label a scan; `path` will be its output. SP_EDATA: it has
 * another format or unit, or no point; lacks an attribute, or codes to keep; or cannot
 * hold the codes or fields. Local. */
sp_status label_model_check(const label_model *model, const label_options *options,
                            sp_scan *scan, const char *path);

#endif
