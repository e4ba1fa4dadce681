/* The command line of `sptrain label`. */
#ifndef LABEL_OPTIONS_H
#define LABEL_OPTIONS_H

#include "scan/sp_scan.h"
#include "vox/vox_options.h"

enum {
    LABEL_ADDED = 5 + VOX_MAX_CLASSES, /* most fields that are added */
    LABEL_NOT_GIVEN = -1
};

typedef struct label_options {
    /* The options of spvox convert that say how a scan becomes samples; options not
     * given are LABEL_NOT_GIVEN (voxel_size, block, overlap), NULL or 0. The inputs are
     * the scans; the bounds are --window. */
    vox_options vox;
    const char *model, *out;
    bool confidence, entropy, any_format, overwrite;
    int is_float;              /* of added fields: 0: uint8; 1: float32 */
    const char *probabilities; /* "ground,building", or NULL */
    double min_confidence;     /* 0: all points get a class */
    int64_t doubtful;          /* code of points below; LABEL_NOT_GIVEN: no class */
    double doubtful_features;  /* share of the validation set; 0: not wanted */
    bool *keep;                /* [VOX_MAX_CODE + 1] codes that stay, or NULL */
    double raster;             /* edge of a cell of the maps; 0: they are not written */
    double buffer;             /* metre; 0: scans are labelled one by one */
    const char *summary;       /* PREFIX of the tables; NULL: they are not written */
    const char *index;         /* NULL: extents are not kept */
    const char *class_field;   /* the field for classes; NULL: the format's own */
    bool margin, no_agreement;
    int task, n_tasks; /* this process labels the scans task, task + n_tasks, ... */
    int64_t views;     /* 0: as eval.views */
    int n_overrides;
    char **overrides; /* [n_overrides] "section.key=value" */
} label_options;

/* Reads the command line (argv[0] is "label"). Points into argv, which it reorders.
 * Local. SP_EUSAGE; SP_EMEM. Free after failure too. */
sp_status label_options_read(label_options *options, int argc, char **argv);
/* Frees what reading has allocated; the texts stay argv's. Local. */
void label_options_free(label_options *options);

#endif
