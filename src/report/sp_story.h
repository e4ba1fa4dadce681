/* A run as read from its folder. Nothing is taken for granted: files may be missing, a
 * line may be damaged or of another version, the run may have just begun.
 *
 *     metrics.jsonl       steps, evaluations, starts and ends    sp_story.c
 *     evaluations.jsonl   evaluations by sptrain eval            (sp_story_line.c reads
 *     status.json         state                                   a line)
 *     deck.resolved       keys (else the deck of best.h5)        sp_story_folder.c
 *     heartbeat.bin       ranks and their hosts
 *     checkpoints/        names and sizes
 *     pictures/           pictures.json, PNG files
 *
 * Local; everything belongs to the story. */
#ifndef SP_STORY_H
#define SP_STORY_H

#include "run/sp_run.h"

/* X(name, key): the numbers of a step's line that a page shows. Those that a version
 * does not write are NAN. */
#define SP_STEP_VALUES(X)                                                              \
    X(STEP, "step")                                                                    \
    X(EPOCH, "epoch")                                                                  \
    X(LOSS, "loss")                                                                    \
    X(LR, "lr")                                                                        \
    X(GRAD_NORM, "grad_norm")                                                          \
    X(VOXELS, "voxels")                                                                \
    X(STEP_S, "step_s")                                                                \
    X(DATA_WAIT_S, "data_wait_s")                                                      \
    X(COMM_EXPOSED_S, "comm_exposed_s")                                                \
    X(PLAN_S, "plan_s")                                                                \
    X(FORWARD_S, "forward_s")                                                          \
    X(BACKWARD_S, "backward_s")                                                        \
    X(UPDATE_S, "update_s")                                                            \
    X(IMBALANCE, "imbalance")                                                          \
    X(MEMORY, "memory_bytes")

#define SP_STEP_ENUM(name, key) SP_STEP_AT_##name,
typedef enum sp_step_value {
    SP_STEP_VALUES(SP_STEP_ENUM) SP_STEP_VALUE_COUNT
} sp_step_value;
#undef SP_STEP_ENUM

typedef struct sp_story_step {
    double at[SP_STEP_VALUE_COUNT];
} sp_story_step;

/* One evaluation. Numbers that the line has not are NAN. */
typedef struct sp_story_eval {
    double step, epoch, samples;
    double loss, accuracy, miou, point_accuracy, point_miou;
    int n_classes;
    char **class_name;       /* [n_classes] */
    double *iou, *point_iou; /* [n_classes] NAN: absent; NULL if the line lacks them */
    /* [n_classes][n_classes] truth, prediction; their sum fits too; may be NULL */
    int64_t *confusion;
    int64_t *point_confusion; /* the same of points */
    /* Scores of predictions that were merged over blocks and views (eval.merge). */
    double merged_miou, merged_point_miou;
    double *merged_iou, *merged_point_iou; /* [n_classes] as iou */
    char *time, *checkpoint;               /* by sptrain eval; else NULL */
    /* [n_sets] of data.val_sets: only numbers, and the name as `name`. */
    struct sp_story_eval *set;
    int n_sets;
    char *name; /* NULL: not of such a set */
} sp_story_eval;

/* A start or a resume. A text that the line has not is "". */
typedef struct sp_story_start {
    bool is_resume;
    double step, ranks, nodes, parameters;
    char *version, *mpi, *hdf5, *processor, *device, *precision, *transport, *deck_hash,
        *data_hash;
} sp_story_start;

/* The end of a start: its seconds. */
typedef struct sp_story_end {
    double total_s, train_s, eval_s, save_s;
} sp_story_end;

typedef struct sp_story_file {
    char *name;
    int64_t bytes;
} sp_story_file;

/* A picture of a sample of data.val. */
typedef struct sp_story_sample {
    char *which; /* "best", "median", "worst" */
    char *name;  /* "val.h5: sample 3 (tile.las[0,1])" */
    double miou, voxels, step;
} sp_story_sample;

typedef struct sp_story {
    char *dir;
    const char *name; /* the end of dir, or all of it, that identifies the run */
    sp_story_step *step;
    int n_steps;
    sp_story_eval *eval; /* of the training */
    int n_evals;
    sp_story_eval *later; /* by sptrain eval */
    int n_later;
    sp_story_start *start;
    int n_starts;
    sp_story_end *end;
    int n_ends;
    bool has_state;
    sp_run_state state;
    char *deck;        /* text of deck.resolved; NULL if it is missing */
    char **deck_value; /* [sp_config_n_keys()]; NULL: there is no deck */
    sp_heartbeat *rank;
    int n_ranks;
    sp_story_file *checkpoint;
    int n_checkpoints;
    sp_story_sample *sample;
    int n_samples;
    /* Sentences about skipped or missing parts. */
    char **note;
    int n_notes;
} sp_story;

/* Reads a run folder. SP_EIO if it is no folder or has neither metrics.jsonl,
 * evaluations.jsonl nor status.json; SP_EMEM. Damage is a note. Destroy after a failure
 * too. */
sp_status sp_story_read(sp_story *story, const char *dir);
void sp_story_destroy(sp_story *story);

/* The evaluation with the best score (point mIoU if there are points, else mIoU), the
 * first of several; NULL without evaluations. */
const sp_story_eval *sp_story_best(const sp_story *story);
/* The latest evaluation: of the training, or by sptrain eval if the training has no
 * evaluation; NULL if both are missing. */
const sp_story_eval *sp_story_last(const sp_story *story);
/* mIoU over points if there are points, else over voxels. */
double sp_story_score(const sp_story_eval *eval);
/* The same of merged predictions; NAN without them. */
double sp_story_merged_score(const sp_story_eval *eval);

/* ---- between the files of this module ---- */

/* Adds a note, in the manner of printf. */
void sp_story_note(sp_story *story, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds one line; *fault (static text) says why it is invalid, or is NULL. is_later: a
 * line of evaluations.jsonl. SP_EMEM. */
sp_status sp_story_take_line(sp_story *story, const char *line, size_t n, bool is_later,
                             const char **fault);
/* Reads pictures.json; a folder without one has no pictures. */
sp_status sp_story_take_pictures(sp_story *story, const char *text);
/* Reads everything but the lines. */
sp_status sp_story_read_folder(sp_story *story);
/* Makes room for another element of an array of n; SP_EMEM. */
sp_status sp_story_grow(void **array, int n, size_t size);

#endif
