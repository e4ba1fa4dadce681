/* The memory of one micro-batch: where every activation, gradient and vector of sums of
 * a lowered network stands, and for how long. Numbers alone. sp_net asks before each
 * pass and computes where it is told; sp_assign_measure goes through the same calls
 * without computing, so what a step takes is known without taking it, by the same code.
 *
 *     begin --> forward, forward_end of each step --> logits --> loss
 *           --> backward, backward_end of each step, from the last
 *
 * Matrices (activations and gradients) are ranges of one span, vectors (sums of norms,
 * arg max of pools) of another. In training an activation is held until its backward
 * pass used it, and a gradient until it was used; in evaluation an activation is held
 * until its last reader ran. Under frugal rules training does so too with what norms
 * wrote, half of all, and writes it once more where the backward pass wants it.
 */
#ifndef SP_ASSIGN_H
#define SP_ASSIGN_H

#include "compute/sp_backend.h"
#include "compute/sp_ranges.h"
#include "memory/sp_lower.h"

typedef struct sp_assign_rules {
    bool is_frugal; /* norms are computed again in the backward pass */
    bool is_exact;  /* sums of each sample, never of pieces */
    int row_bytes;  /* rows begin at multiples of it; 1: they are not padded */
    int sum_rows;   /* of the backend's table */
} sp_assign_rules;

/* A place: where a matrix begins, in bytes of the matrices' span, and elements from row
 * to row. */
typedef struct sp_assign_place {
    int range; /* -1: it has no memory */
    size_t at;
    int ld;
} sp_assign_place;

typedef struct sp_assigned {
    sp_assign_place act, grad;
    /* Range of vectors with sums of the value's rows, then of its gradient's, and of
     * how many parts they are; -1: nobody has taken any. */
    int sums, n_sums;
    bool
        is_summed; /* a convolution writes them on its way; else the norm itself does */
} sp_assigned;

typedef struct sp_assign {
    const sp_lowered *low; /* borrowed */
    sp_assign_rules rules;
    sp_ranges matrices, vectors;
    sp_assigned *value; /* [low->n_values] */
    int *argmax;        /* [low->n_steps] range of vectors; -1 */
    /* of the micro-batch */
    int64_t rows[SP_MAX_LEVELS];
    int n_samples;
    bool is_training;
    sp_assign_place logits; /* of the last value in fp32 */
} sp_assign;

/* How the gradient of a step's input comes about. */
typedef enum sp_grad_route {
    SP_GRAD_NONE,  /* nobody wants it */
    SP_GRAD_NEW,   /* it is written into memory of its own */
    SP_GRAD_ADDED, /* it is added to what is there */
    SP_GRAD_TAKEN, /* it is written over the gradient of the output */
    SP_GRAD_VIEW   /* it is a concat's: columns of the gradient of the output */
} sp_grad_route;

/* Rows of a device begin at multiples of 16 bytes, which its memory moves at once. */
static inline sp_assign_rules sp_assign_rules_of(const sp_backend *be, bool is_frugal,
                                                 bool is_exact)
{
    sp_assign_rules rules;

    rules.is_frugal = is_frugal;
    rules.is_exact = is_exact;
    rules.row_bytes = be->ops->is_host ? 1 : 16;
    rules.sum_rows = be->ops->sum_rows;
    return rules;
}

/* Local. low is borrowed. SP_EMEM; destroy after failure too. */
sp_status sp_assign_create(sp_assign *assign, const sp_lowered *low,
                           const sp_assign_rules *rules);
void sp_assign_destroy(sp_assign *assign);

/* A micro-batch of rows[level] voxels; forgets the last one. The features have a place
 * where the values want them otherwise than [n][c] in fp32. */
void sp_assign_begin(sp_assign *assign, const int64_t *rows, int n_samples,
                     bool is_training);
/* Memory for what step s of the forward pass writes, and for its sums; then, after it
 * ran, what nobody reads any more is free. */
void sp_assign_forward(sp_assign *assign, int s);
void sp_assign_forward_end(sp_assign *assign, int s);
void sp_assign_logits(sp_assign *assign);
/* One vector holds all that the loss tells the host, one after the other: sums
 * [n_samples][2] double, then confusion [C][C] int64 and prediction [n] int32 where
 * they are asked for. Evaluation; the range is to be dropped of assign->vectors. */
typedef struct sp_loss_place {
    int range;
    size_t confusion_at, prediction_at, bytes; /* from the vector's beginning */
} sp_loss_place;
sp_loss_place sp_assign_results(sp_assign *assign, bool has_confusion,
                                bool has_prediction);
/* Training: the gradient of the last value; *fp32 is where the loss writes it in fp32,
 * a range of its own where the value is bf16, which sp_assign_loss_end drops. */
void sp_assign_loss(sp_assign *assign, sp_assign_place *fp32);
void sp_assign_loss_end(sp_assign *assign, const sp_assign_place *fp32);

/* Does any gradient pass through step s? Not where nothing before it learns. */
bool sp_assign_is_used(const sp_assign *assign, int s);
/* Values that the backward pass of step s reads and nobody kept get memory again; apply
 * writes the output of each norm `step` there (NULL: nothing is written). */
sp_status sp_assign_restore(sp_assign *assign, int s,
                            sp_status (*apply)(void *arg, int step), void *arg);
/* Memory for the gradients of the inputs of step s, each with its route, and for sums;
 * after it ran, the gradient of the output and what nobody uses any more are free. */
void sp_assign_backward(sp_assign *assign, int s, sp_grad_route route[SP_MAX_INPUTS]);
void sp_assign_backward_end(sp_assign *assign, int s);

/* Does the convolution take the sums of the norms before it on its way back? */
bool sp_assign_takes_norms(const sp_assign *assign, const sp_lower_step *step);
/* Rows of a level; of SP_LEVEL_SAMPLE the samples. */
int64_t sp_assign_rows(const sp_assign *assign, int level);
/* Elements from row to row of c columns. */
int sp_assign_pitch(const sp_assign *assign, int c, sp_elem elem);

typedef struct sp_assign_bytes {
    size_t matrices, vectors;
} sp_assign_bytes;

/* Measures a micro-batch: bytes of both spans. Forgets the last one. Cost: 0.1 ms for
 * a hundred layers. */
sp_assign_bytes sp_assign_measure(sp_assign *assign, const int64_t *rows, int n_samples,
                                  bool is_training);

#endif
