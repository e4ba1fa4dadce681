/* A run as read from its folder. Nothing is taken for granted: files may be missing, a
 * line may be damaged or of another version, the run may have just begun.
 *
 *     metrics.jsonl       steps, evaluations, starts and ends    sp_history.c
 *     evaluations.jsonl   evaluations by sptrain eval            (sp_history_line.c reads
 *     status.json         state                                   a line)
 *     deck.resolved       keys (else the deck of best.h5)        sp_history_folder.c
 *     heartbeat.bin       ranks and their hosts
 *     checkpoints/        names and sizes
 *     pictures/           pictures.json, PNG files
 *
 * Local; everything belongs to the history. */
#ifndef SP_HISTORY_H
#define SP_HISTORY_H

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

typedef struct sp_history_step {
    double at[SP_STEP_VALUE_COUNT];
} sp_history_step;

/* One evaluation. Numbers that the line has not are NAN. */
typedef struct sp_history_eval {
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
    struct sp_history_eval *set;
    int n_sets;
    char *name; /* NULL: not of such a set */
} sp_history_eval;

/* A start or a resume. A text that the line has not is "". */
typedef struct sp_history_start {
    bool is_resume;
    double step, ranks, nodes, parameters;
    char *version, *mpi, *hdf5, *processor, *device, *precision, *transport, *deck_hash,
        *data_hash;
} sp_history_start;

/* The end of a start: its seconds. */
typedef struct sp_history_end {
    double total_s, train_s, eval_s, save_s;
} sp_history_end;

typedef struct sp_history_file {
    char *name;
    int64_t bytes;
} sp_history_file;

/* A picture of a sample of data.val. */
typedef struct sp_history_sample {
    char *which; /* "best", "median", "worst" */
    char *name;  /* "val.h5: sample 3 (tile.las[0,1])" */
    double miou, voxels, step;
} sp_history_sample;

typedef struct sp_history {
    char *dir;
    const char *name; /* the end of dir, or all of it, that identifies the run */
    sp_history_step *step;
    int n_steps;
    sp_history_eval *eval; /* of the training */
    int n_evals;
    sp_history_eval *later; /* by sptrain eval */
    int n_later;
    sp_history_start *start;
    int n_starts;
    sp_history_end *end;
    int n_ends;
    bool has_state;
    sp_run_state state;
    char *deck;        /* text of deck.resolved; NULL if it is missing */
    char **deck_value; /* [sp_config_n_keys()]; NULL: there is no deck */
    sp_heartbeat *rank;
    int n_ranks;
    sp_history_file *checkpoint;
    int n_checkpoints;
    sp_history_sample *sample;
    int n_samples;
    /* Sentences about skipped or missing parts. */
    char **note;
    int n_notes;
} sp_history;

/* Reads a run folder. SP_EIO if it is no folder or has neither metrics.jsonl,
 * evaluations.jsonl nor status.json; SP_EMEM. Damage is a note. Destroy after a failure
 * too. */
sp_status sp_history_read(sp_history *history, const char *dir);
void sp_history_destroy(sp_history *history);

/* The evaluation with the best score (point mIoU if there are points, else mIoU), the
 * first of several; NULL without evaluations. */
const sp_history_eval *sp_history_best(const sp_history *history);
/* The latest evaluation: of the training, or by sptrain eval if the training has no
 * evaluation; NULL if both are missing. */
const sp_history_eval *sp_history_last(const sp_history *history);
/* mIoU over points if there are points, else over voxels. */
double sp_history_score(const sp_history_eval *eval);
/* The same of merged predictions; NAN without them. */
double sp_history_merged_score(const sp_history_eval *eval);

/* ---- between the files of this module ---- */

/* Adds a note, in the manner of printf. */
void sp_history_note(sp_history *history, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds one line; *fault (static text) says why it is invalid, or is NULL. is_later: a
 * line of evaluations.jsonl. SP_EMEM. */
sp_status sp_history_take_line(sp_history *history, const char *line, size_t n,
                               bool is_later, const char **fault);
/* Reads pictures.json; a folder without one has no pictures. */
sp_status sp_history_take_pictures(sp_history *history, const char *text);
/* Reads everything but the lines. */
sp_status sp_history_read_folder(sp_history *history);
/* Makes room for another element of an array of n; SP_EMEM. */
sp_status sp_history_grow(void **array, int n, size_t size);

#endif
