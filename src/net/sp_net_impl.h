/* Inside sp_net: the lowered network with its memory.
 *
 *     sp_lower    which passes run           sp_assign   where their matrices stand
 *     sp_fixed    parameters, packed weights            --> sp_net_act, sp_net_grad
 *
 * The net asks sp_assign before each pass, has its two arenas grow to what was assigned
 * (sp_net_reach), and computes between the places that it was told.
 */
#ifndef SP_NET_IMPL_H
#define SP_NET_IMPL_H

#include "memory/sp_assign.h"
#include "memory/sp_fixed.h"
#include "net/sp_net.h"

typedef struct net_step {
    /* Convolution: weights_at of its packed weights; 0: none are there. */
    uint64_t packed_at[SP_PACK_DIRECTIONS];
    double seen; /* norm: voxels of this rank since the last sync */
} net_step;

struct sp_net_impl {
    sp_net_options options;
    sp_transport own; /* where the options name none */
    sp_lowered low;
    sp_assign mem;
    sp_fixed fixed;
    net_step *step;       /* [low.n_steps] */
    sp_arena fixed_arena; /* backend: of fixed */
    sp_arena matrices;    /* backend: activations and gradients of the micro-batch */
    sp_arena vectors;     /* backend: sums and arg max of the micro-batch */
    /* While a backward pass runs, free memory of the matrices at or above offset `kept`
     * has been returned to the system; `owed` bytes more should be. */
    size_t kept, owed;
    sp_arena host;       /* host scratch, rewound by its users */
    uint64_t weights_at; /* counts sp_net_updated */
    sp_arena losses;     /* backend: sums of each sample of the step */
    sp_arena loss_ids;   /* host: whose they are */
    float *fetched;      /* host: of sp_net_fetch_running; NULL: not yet */
    /* of the current micro-batch */
    const sp_batch *batch;
    bool is_training;
    sp_tensor logits; /* of the last value, fp32 */
    const int32_t
        *sample_rows; /* [n_samples + 1] 0, 1, 2 ...: rows of the sample level */
};

/* ---- sp_net_memory.c ---- */
/* Forgets the last micro-batch. */
sp_status sp_net_begin(sp_net *net, const sp_batch *batch, bool is_training);
/* Memory for all that has been assigned. Before a pass that writes. */
sp_status sp_net_reach(sp_net *net);
/* [n_samples + 1] host. */
const int32_t *sp_net_sample_row(const sp_net *net, int level);
/* Activation and gradient of a value, its sums, the arg max of a step (NULL: none), and
 * any vector. */
sp_tensor sp_net_act(const sp_net *net, int value);
sp_tensor sp_net_grad(const sp_net *net, int value);
double *sp_net_sums(const sp_net *net, int value);
int32_t *sp_net_argmax(const sp_net *net, int step);
char *sp_net_vector(const sp_net *net, int range);
/* The last value's shape, in fp32 at that place. */
sp_tensor sp_net_last(const sp_net *net, const sp_assign_place *place);
/* Backward, with little memory: gives as much of what is free, from the end, back to the system:
 * the gradient of weights needs so much from now on. */
void sp_net_release(sp_net *net, size_t bytes);

/* ---- sp_net_norm.c ---- */
sp_status sp_net_norm_forward(sp_net *net, int s);
/* Its last part: writes what it wrote before. */
sp_status sp_net_norm_apply(sp_net *net, int s);
/* Pass 1 of its backward, without sums. */
sp_norm_grad_args sp_net_norm_grad_args(const sp_net *net, int s);
sp_status sp_net_norm_backward(sp_net *net, int s, const sp_grad_route *route,
                               sp_buckets *buckets);

/* ---- sp_net_forward.c ---- */
/* Packed weights of a direction, packed again where they are stale: those of all steps
 * at once, with little memory those of this one, at each use. */
sp_status sp_net_pack(sp_net *net, int s, int direction);

#endif
