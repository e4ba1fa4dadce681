/* Inside sp_net: the lowered network with its memory.
 *
 *     sp_lower    which passes run           sp_buffer_plan   where their matrices are
 *     sp_fixed    parameters, packed weights            --> sp_net_act, sp_net_grad
 *
 * The net asks sp_buffer_plan before each pass, grows its two arenas to the assigned
 * size (sp_net_reach), and computes between the assigned places.
 */
#ifndef SP_NET_IMPL_H
#define SP_NET_IMPL_H

#include "net/sp_buffer_plan.h"
#include "net/sp_fixed.h"
#include "net/sp_net.h"

/* The state of a step that outlives a batch. */
typedef struct net_step {
    /* With little memory, of a convolution with room of its own: the value of weights_at
     * when each direction's weights were packed. 0: they are not packed there. */
    uint64_t packed_at[SP_PACK_DIRECTIONS];
    double seen; /* Batch norm: rows of this rank since the last sp_net_sync_running. */
} net_step;

/* A weight gradient that may run until the backend's join, and the memory that it reads
 * until then. */
typedef struct net_fork {
    bool is_open;
    int step; /* the convolution */
    sp_tensor x, dy;
} net_fork;

/* Large pages of the matrices that back a part of the gradient. */
typedef struct net_loan {
    char *from, *to; /* their place among the matrices, and in the gradient */
    size_t bytes;
} net_loan;

struct sp_net_impl {
    sp_net_options options;
    sp_transport own;   /* The transport if the options name no transport. */
    sp_lowered low;     /* The passes, in the order of the forward pass. */
    sp_buffer_plan mem; /* The place of every matrix and vector of the micro-batch. */
    sp_fixed fixed;     /* Memory that does not depend on the batch. */
    net_step *step;     /* [low.n_steps] */

    sp_arena fixed_arena; /* Backend memory of `fixed`. */
    sp_arena matrices;    /* Backend memory of activations and gradients. */
    sp_arena vectors;     /* Backend memory of sums and arg max. */
    sp_arena losses;      /* Backend memory: loss sums of each sample of the step. */
    sp_arena loss_ids;    /* Host memory: the sample id that each of them belongs to. */
    sp_arena host;        /* Host scratch, which each of its users rewinds. */

    /* With little memory, the backward pass of one rank lends free pages of the matrices,
     * from the end, to the gradient, also from the end. They are lent or returned to the
     * system from offset `released_from` on, and `to_release` bytes more should be. The
     * gradient has pages from `lent_to` on, and is written from float `written_from` on.
     */
    size_t released_from, to_release;
    char *lent_to;
    int64_t written_from;
    net_loan *loan; /* [large pages of the gradient] what sp_net_regain takes back */
    int n_loans;
    uint64_t weights_at; /* The number of times that the weights have changed. */
    /* Without little memory: its value when the weights of all convolutions were packed
     * for each direction; 0: they have never been packed. */
    uint64_t packed_at[SP_PACK_DIRECTIONS];
    /* [pack_end[1]] The packings of a direction follow those of the directions before
     * it. With little memory the list is not used. */
    sp_pack_args *pack;
    int pack_end[SP_PACK_DIRECTIONS];
    /* Its value when evaluation computed the coefficients of all norms from their running
     * statistics; 0: a training has overwritten them since. */
    uint64_t normed_at;
    float *fetched; /* Host copy made by sp_net_fetch_running. NULL: not fetched. */

    /* The rest belongs to the current micro-batch. */
    const sp_batch *batch;
    bool is_training;
    net_fork fork;
    sp_tensor logits;           /* The last value's activation in fp32. */
    const int32_t *sample_rows; /* [n_samples + 1] 0, 1, 2, ...: of the sample level */
};

/* ---- sp_net_own_loss.c ---- */
/* Copies a matrix of the backend to *out [n][c] in host memory of `arena`. Waits for
 * the device. SP_EMEM. */
sp_status sp_net_fetch_matrix(sp_net *net, sp_tensor x, sp_arena *arena, float **out);

/* ---- sp_net_memory.c ---- */
/* Begins a micro-batch and forgets the last one. SP_EMEM. */
sp_status sp_net_begin(sp_net *net, const sp_batch *batch, bool is_training);
/* Grows the arenas to the assigned size, so that the next pass may write. SP_EMEM. */
sp_status sp_net_reach(sp_net *net);
/* The first row of each sample on a level, [n_samples + 1], host memory. */
const int32_t *sp_net_sample_row(const sp_net *net, int level);
/* The dropout of a step in training, of activations or of their gradient; y may be
 * x. */
sp_status sp_net_dropout(sp_net *net, const sp_lower_step *step, sp_tensor x,
                         sp_tensor y);
/* The activation of a value, its gradient, and the sums over its rows. */
sp_tensor sp_net_act(const sp_net *net, int value);
sp_tensor sp_net_grad(const sp_net *net, int value);
double *sp_net_sums(const sp_net *net, int value);
/* The arg max of a pooling step; NULL if it has no arg max. */
int32_t *sp_net_argmax(const sp_net *net, int step);
/* Runs a pool, an interpolation or a broadcast, from x to y; backward it adds to the
 * gradient x what that of y gives. */
sp_status sp_net_resample(sp_net *net, int step, sp_tensor x, sp_tensor y,
                          bool is_backward);
/* The address of a range of sp_buffer_plan.vectors. */
char *sp_net_vector(const sp_net *net, int range);
/* A matrix of the last value's shape, in fp32, at a place. */
sp_tensor sp_net_last(const sp_net *net, const sp_buffer_place *place);
/* Begins a backward pass that lends memory. */
void sp_net_begin_loans(sp_net *net, const sp_buckets *buckets);
/* Lends free pages of the matrices to the gradient once several MiB have come together.
 * The caller calls it before the backward pass of a convolution with `bytes` of weights.
 * The part of the gradient that gets pages is zero where no convolution writes it. */
void sp_net_release(sp_net *net, const sp_buckets *buckets, size_t bytes);

/* ---- sp_net_norm.c ---- */
/* Writes the arguments that compute scale and shift: in training from the sums of the
 * batch, which are formed here if no convolution has formed them, and which move the
 * running statistics; in evaluation, and if the norm is frozen, from the running
 * statistics. Collective over bn_scope in training. */
sp_status sp_net_norm_sums(sp_net *net, int s, sp_norm_finish_args *finish);
/* The arguments that apply scale and shift to the step's inputs and write its output.
 */
sp_norm_args sp_net_norm_args(const sp_net *net, int s);
/* The arguments of pass 1 of the norm's backward; dy: the gradient of its output. */
sp_norm_grad_args sp_net_norm_grad_args(const sp_net *net, int s, sp_tensor dy);
sp_status sp_net_norm_backward(sp_net *net, int s, const sp_grad_route *route,
                               sp_buckets *buckets);

/* ---- sp_net_own_loss.c ---- */
/* Has the calling program compute its loss and the gradient, instead of ops->loss. */
sp_status sp_net_run_own_loss(sp_net *net, const sp_loss_args *args);

/* ---- sp_net_forward.c ---- */
/* Packs the weights of a convolution for a direction, if they are stale, as they are at
 * each use if all steps share the room. Without little memory those of all steps are
 * packed in one call. */
sp_status sp_net_pack(sp_net *net, int s, int direction);
/* Runs step s of the forward pass between the places that sp_buffer_plan has assigned.
 */
sp_status sp_net_run_step(sp_net *net, int s);

#endif
