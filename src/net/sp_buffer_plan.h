/* The memory of one micro-batch: the place of each activation, gradient and vector of
 * sums of a lowered network, and its lifetime. The module handles only offsets and
 * sizes. sp_net asks it before every pass for the places to use; sp_buffer_plan_measure
 * makes the same calls without computing. So the need of a step is known before it
 * runs, and by the same code.
 *
 *     sp_buffer_plan_begin --> _forward, _forward_end of each step --> _logits --> _loss
 *           --> _backward, _backward_end of each step, from the last
 *
 * Matrices (activations and gradients) are ranges of one span of memory, vectors (sums
 * of norms, arg max of pools) are ranges of another. In training an activation is held
 * until the last backward pass that reads it, and a gradient until it was used. In
 * inference an activation is held until the last step that reads it; a step that may
 * overwrite its input then takes over the memory. Under low-memory rules training drops
 * the outputs of norms too, which are about half of all activations, and of light
 * convolutions (sp_lower_mark_light) if much is kept, and computes them a second time when
 * the backward pass reads them; and the gradient of an activation overwrites it once it is
 * read no more. So the backward pass adds only the activations of a few layers to the
 * kept ones.
 * Recomputation drops more, as sp_lower.h states. What is computed again stays until its
 * last use. It is dropped before, and computed once more, only if another matrix finds no
 * room in the span: so the span does not grow for it.
 */
#ifndef SP_BUFFER_PLAN_H
#define SP_BUFFER_PLAN_H

#include "compute/sp_backend.h"
#include "net/sp_lower.h"
#include "net/sp_ranges.h"

typedef struct sp_buffer_rules {
    /* Outputs of norms are computed again in the backward pass, and gradients are
     * written over activations that are read no more. */
    bool is_low_memory;
    /* Training computes again what the lowered network marks, convolutions too
     * (sp_lower_mark_recomputed). */
    bool is_recomputed;
    bool is_exact; /* sums are formed for each sample, never for parts of rows */
    int row_bytes; /* rows begin at multiples of this; 1: without padding */
    sp_parts (*fused_parts)(int64_t n_rows, int n_samples); /* the backend's own */
} sp_buffer_rules;

/* The place of a matrix. */
typedef struct sp_buffer_place {
    int range; /* the range of sp_buffer_plan.matrices; -1: the matrix has no memory */
    size_t at; /* offset of the matrix in the matrices' span, in bytes */
    int ld;    /* elements from one row to the next */
} sp_buffer_place;

/* The memory that a value has at present. */
typedef struct sp_value_buffers {
    sp_buffer_place act, grad;
    /* The backward pass computed the activation again, and may do so once more. */
    bool is_restored;
    int n_pins; /* uses for which a restored activation stays */
    /* The range of sp_buffer_plan.vectors that holds the sums over the value's rows, in
     * the backward pass over its gradient's rows; -1: no sums. */
    int sums;
    int n_sums; /* the parts of the sums */
    /* An operation fused with a convolution writes the sums; else the norm forms them
     * itself, sample by sample. */
    bool is_fused;
} sp_value_buffers;

enum { SP_BUFFER_MOST_NEEDS = 4 }; /* values that a step of the backward pass reads */

typedef struct sp_buffer_plan {
    const sp_lowered *low; /* borrowed */
    sp_buffer_rules rules;
    sp_ranges matrices, vectors;
    sp_value_buffers *value; /* [low->n_values] */
    int *argmax; /* [low->n_steps] range of vectors with the arg max of a pool; -1 */
    /* [low->n_steps] bytes of the activations that the forward pass has kept for the
     * backward pass after each step */
    size_t *kept;
    /* The micro-batch that sp_buffer_plan_begin named. */
    sp_plan_counts counts;
    bool is_training;
    bool drops_light;       /* light convolutions are computed again */
    sp_buffer_place logits; /* the output of the network in fp32 */
    /* Storages that the step of the backward pass at hand has pinned. */
    int pinned[SP_BUFFER_MOST_NEEDS], n_pinned;
} sp_buffer_plan;

/* How the gradient of a step's input comes about. */
typedef enum sp_grad_route {
    SP_GRAD_NONE, /* no gradient: no parameter before the input is trained */
    /* It is written: into memory of its own, or over the activation if the step is its
     * last reader. */
    SP_GRAD_NEW,
    SP_GRAD_ADDED, /* it is added to the gradient from another reader of the input */
    SP_GRAD_TAKEN, /* it is written over the gradient of the step's output */
    SP_GRAD_VIEW   /* it is columns of the gradient of the output, which is a concat */
} sp_grad_route;

/* The rules for a backend. On a device rows begin at multiples of 16 bytes, which one
 * instruction of it moves. */
static inline sp_buffer_rules sp_buffer_rules_of(const sp_backend *be,
                                                 bool is_low_memory, bool is_recomputed,
                                                 bool is_exact)
{
    sp_buffer_rules rules;

    rules.is_low_memory = is_low_memory;
    rules.is_recomputed = is_recomputed;
    rules.is_exact = is_exact;
    rules.row_bytes = be->ops->is_host ? 1 : 16;
    rules.fused_parts = be->ops->fused_parts;
    return rules;
}

/* Elements from one row to the next in a matrix of c columns, at least 1. */
static inline int sp_buffer_pitch(const sp_buffer_rules *rules, int c, sp_elem elem)
{
    const int each = rules->row_bytes / (int)sp_elem_bytes(elem);

    return each > 1 ? (c + each - 1) / each * each : c;
}

/* Makes the tables for a lowered network, which is borrowed. Local. SP_EMEM; destroy
 * after a failure too. */
sp_status sp_buffer_plan_create(sp_buffer_plan *buffers, const sp_lowered *low,
                                const sp_buffer_rules *rules);
void sp_buffer_plan_destroy(sp_buffer_plan *buffers);

/* Begins a micro-batch whose plan has these numbers, and forgets the one before. The
 * features get a place only if the network wants them in another form than [n][c]
 * fp32. */
void sp_buffer_plan_begin(sp_buffer_plan *buffers, const sp_plan_counts *counts,
                          bool is_training);
/* Finds memory for the output of step s of the forward pass, for its sums and for its
 * arg max. After the step ran, sp_buffer_plan_forward_end frees what no later step
 * reads. Steps without a turn in this kind of pass (sp_lowered_has_turn) are left out.
 */
void sp_buffer_plan_forward(sp_buffer_plan *buffers, int s);
void sp_buffer_plan_forward_end(sp_buffer_plan *buffers, int s);
/* Sets the place of the logits in fp32: the last value's, or memory of its own.
 */
void sp_buffer_plan_logits(sp_buffer_plan *buffers);
/* The results of an evaluation's loss for the host, one after the other in one range of
 * vectors: sums [n_samples][2] double, then confusion [C][C] int64 and prediction [n]
 * int32 if they are asked for. The caller drops the range. */
typedef struct sp_loss_place {
    int range;
    size_t confusion_at, prediction_at, bytes; /* from the range's beginning */
} sp_loss_place;
sp_loss_place sp_buffer_plan_results(sp_buffer_plan *buffers, bool has_confusion,
                                     bool has_prediction);
/* Training: finds memory for the gradient of the last value. *fp32 is the place where
 * the loss writes it in fp32: the same memory or, if the value is bf16, a range of its
 * own. sp_buffer_plan_loss_end frees that range after the conversion, under low-memory
 * rules with the logits. */
void sp_buffer_plan_loss(sp_buffer_plan *buffers, sp_buffer_place *fp32);
void sp_buffer_plan_loss_end(sp_buffer_plan *buffers, const sp_buffer_place *fp32);

/* True if the backward pass of step s has anything to do: not if nothing before the
 * step is trained, or no gradient reached its output. */
bool sp_buffer_plan_is_used(const sp_buffer_plan *buffers, int s);
/* Gives memory back to the values that the backward pass of step s reads and that were
 * dropped; `apply` then writes the output of each step there. With apply NULL
 * nothing is written and nothing fails. */
sp_status sp_buffer_plan_restore(sp_buffer_plan *buffers, int s,
                                 sp_status (*apply)(void *arg, int step), void *arg);
/* Finds memory for the gradients of the inputs of step s, each by its route, and for
 * sums. After the step ran, sp_buffer_plan_backward_end frees the gradient of its
 * output and the activations that no later backward pass reads. */
void sp_buffer_plan_backward(sp_buffer_plan *buffers, int s,
                             sp_grad_route route[SP_MAX_INPUTS]);
void sp_buffer_plan_backward_end(sp_buffer_plan *buffers, int s);

/* True if the input gradient of a convolution is fused with pass 1 of the backward pass
 * of the norm before it, and of that norm's residual norm. */
bool sp_buffer_plan_fuses_norm(const sp_buffer_plan *buffers,
                               const sp_lower_step *step);
/* The greatest extent of both spans, in bytes. */
typedef struct sp_buffer_bytes {
    size_t matrices, vectors;
} sp_buffer_bytes;

/* Measures a micro-batch and forgets the one before. Cost: about 0.1 ms for a hundred
 * layers. */
sp_buffer_bytes sp_buffer_plan_measure(sp_buffer_plan *buffers,
                                       const sp_plan_counts *counts, bool is_training);

#endif
