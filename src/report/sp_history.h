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

typedef struct sp_history_file {
    char *name;
    int64_t bytes;
} sp_history_file;

typedef struct sp_history {
    char *dir;
    const char *name; /* the end of dir, or all of it, that identifies the run */
    sp_history_step *step;
    int n_steps;
    sp_history_eval *eval; /* of the training */
    int n_evals;
    sp_history_eval *later; /* by sptrain eval */
    int n_later;
    /* Arrays of JSON objects as they were read (sp_history_number, sp_history_text):
     * starts and resumes, their ends, and the samples of data.val that have pictures.
     * NULL: empty. */
    struct json_t *starts, *ends, *samples;
    bool has_state;
    sp_run_state state;
    char *deck;        /* text of deck.resolved; NULL if it is missing */
    char **deck_value; /* [sp_config_n_keys()]; NULL: there is no deck */
    sp_heartbeat *rank;
    int n_ranks;
    sp_history_file *checkpoint;
    int n_checkpoints;
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
/* The number of objects of an array, and object i, which is the array's; NULL if it has
 * no such object. */
int sp_history_count(const struct json_t *objects);
const struct json_t *sp_history_get(const struct json_t *objects, int i);
/* What a JSON object has under this key; NAN and "" if it has no number or text. */
double sp_history_number(const struct json_t *object, const char *key);
const char *sp_history_text(const struct json_t *object, const char *key);
/* The sum of the finite numbers under this key in an array of objects. */
double sp_history_sum(const struct json_t *objects, const char *key);
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
sp_status sp_history_parse_line(sp_history *history, const char *line, size_t n,
                                bool is_later, const char **fault);
/* Reads pictures.json; a folder without one has no pictures. */
void sp_history_parse_pictures(sp_history *history, const char *text);
/* Reads everything but the lines. */
sp_status sp_history_read_folder(sp_history *history);
/* Gives an array back; NULL does nothing. */
void sp_history_drop(struct json_t *objects);
/* Makes room for another element of an array of n; SP_EMEM. */
sp_status sp_history_grow(void **array, int n, size_t size);

#endif
