/* Inside sp_net: the lowered network and the memory of one micro-batch.
 *
 * Lowering (sp_net_lower.c) turns the graph's nodes into steps. A step writes one
 * value; value v + 1 is what node v yields, value 0 the voxels' features. Values inside
 * a fused chain are never written.
 *
 *     node   conv  norm  downsample.norm  add  relu     concat(a, b)
 *     step   conv        norm             norm(x, residual)   none: a and b were
 *     value  conv        downsample.norm           relu       written into its columns
 *
 * Memory (sp_net_memory.c): activations and gradients are ranges of one arena, vectors
 * (sums, argmax) blocks of another; a block without holders is given to the next taker
 * it is large enough for. Each forward begins anew. In training an activation is held
 * until the backward pass used it, and a gradient until it was used; in evaluation an
 * activation is held until its last reader ran. A frugal net does so in training too
 * with what norms wrote, half of all, and computes it once more where the backward pass
 * wants it: the same bits.
 */
#ifndef SP_NET_IMPL_H
#define SP_NET_IMPL_H

#include "net/sp_net.h"
#include "compute/sp_ranges.h"

typedef struct net_block {
    void *data; /* backend memory of vectors */
    size_t bytes;
    int n_holders;
} net_block;

typedef struct net_value {
    int level, c;
    sp_elem elem; /* of activation and gradient */
    int home,
        column; /* value of the concat whose columns hold it; itself: its own block */
    int first, last; /* homes: steps that write first and read last */
    int until;       /* homes: the backward of this step uses it last; -1: none does */
    bool needs_grad; /* a parameter lies before it */
    bool feeds_norm; /* batch statistics are taken of it */
    bool is_cheap;   /* homes: norms alone write it */
    bool is_passed;  /* homes: the backward pass reads it only to write others anew */
    /* of the current micro-batch */
    int range;     /* homes: -1 before the first write */
    sp_tensor act; /* [n, c] */
    /* -1, or its sums, where the convolution that wrote it took them; then those of its
     * gradient, where the one that completed it did */
    int sums_block;
    int n_sums;     /* parts of them */
    int grad_range; /* -1: no gradient has arrived yet */
    sp_tensor grad; /* [n, c] */
} net_value;

typedef struct net_norm {
    int c;
    float *scale, *shift, *mean, *inv_std; /* [c] backend memory, of the last forward */
    double seen;                           /* voxels of this rank since the last sync */
} net_norm;

enum { NET_FORWARD, NET_GRAD_INPUT, NET_DIRECTIONS };

typedef struct net_step {
    sp_op op;  /* SP_OP_BATCHNORM: [+ in[1]] and activation included */
    int layer; /* node with the parameters, the map, p */
    int out;   /* value */
    int n_in, in[SP_MAX_INPUTS]; /* values */
    float slope;                 /* of the activation; 1: none */
    /* Convolution that completes the gradient of a norm's output: the step of the norm,
     * and where in the input the output stands. Norm: the step of one without activation
     * whose output it alone reads, and adds. Else -1. */
    int norm_before, norm_column, norm_beside;
    int64_t ready;   /* once its backward ran, flat gradients from here on are final */
    float *packed[NET_DIRECTIONS];      /* convolution; frugal: one for all steps */
    uint64_t packed_at[NET_DIRECTIONS]; /* weights_at of the packing; 0: none */
    net_norm *norm;
    int32_t *argmax; /* max pools, of the current micro-batch */
} net_step;

struct sp_net_impl {
    sp_net_options options;
    sp_transport own; /* where the options name none */
    int n_values, n_steps;
    net_value *value; /* [n_values] */
    net_step *step;   /* [n_steps] */
    int n_norms;
    net_norm *norm;   /* [n_norms] */
    sp_arena fixed;   /* backend: parameters, packed weights, statistics */
    sp_arena arena;   /* backend: activations and gradients of the micro-batch */
    sp_ranges ranges; /* of arena */
    /* Of arena, in this backward: from `kept` on, what was free is released; so much is
     * still to be. */
    size_t kept, owed;
    sp_arena vectors; /* backend: blocks of the micro-batch */
    sp_arena host;    /* host scratch, rewound by its users */
    int n_blocks, max_blocks;
    net_block *block;
    uint64_t weights_at;         /* counts sp_net_updated */
    float *class_weight;         /* backend; NULL */
    float *coefficients;         /* [3][widest norm] backend */
    double *norm_own, *norm_all; /* [2 widest norm + 1] backend: sums of a norm */
    sp_arena losses;             /* backend: sums of each sample of the step */
    sp_arena loss_ids;           /* host: whose they are */
    float *fetched;              /* host: of sp_net_fetch_running; NULL: not yet */
    /* Exact mode: weight and bias gradients of one sample, on devices of some. */
    float *wgrad;
    size_t n_wgrad; /* floats */
    /* of the current micro-batch */
    const sp_batch *batch;
    bool is_training;
    sp_tensor logits; /* of the last value, fp32 */
    const int32_t
        *sample_rows; /* [n_samples + 1] 0, 1, 2 ...: rows of the sample level */
};

/* Of a device, at least: one download brings the gradients of several samples. */
enum { SP_NET_WGRAD_FLOATS = 1 << 20 };

/* ---- sp_net_lower.c ---- */
/* Fills value, step, norm. SP_EMEM. */
sp_status sp_net_lower(sp_net *net);

/* ---- sp_net_memory.c ---- */
/* Takes what lives as long as the net, its size known from the lowered network. */
sp_status sp_net_take_fixed(sp_net *net);
/* Forgets the last micro-batch. */
sp_status sp_net_begin(sp_net *net, const sp_batch *batch, bool is_training);
/* n x c in rows that suit the backend. */
sp_status sp_net_take_matrix(sp_net *net, int64_t n, int c, sp_elem elem,
                             sp_ranges_side side, int *range, sp_tensor *t);
/* For vectors. */
sp_status sp_net_take_block(sp_net *net, size_t bytes, int *block);
void sp_net_drop_block(sp_net *net, int block);
int64_t sp_net_rows(const sp_net *net, int level);
/* [n_samples + 1] host. */
const int32_t *sp_net_sample_row(const sp_net *net, int level);
/* Memory for value's activation, or its place in a concat. */
sp_status sp_net_hold(sp_net *net, int value);
/* Where a gradient of the value goes; *is_added: it has one already, add to it. */
sp_status sp_net_grad(sp_net *net, int value, sp_tensor *grad, bool *is_added);
/* The same, ready to be added to in any case. */
sp_status sp_net_grad_sum(sp_net *net, int value, sp_tensor *grad);
/* The value in whose block v lies: itself, or the concat around it. */
int sp_net_home(const sp_net *net, int value);
/* Drops what has no reader after step s of the forward pass, or no use after its
 * backward: activations. */
void sp_net_drop_read(sp_net *net, int s);
void sp_net_drop_used(sp_net *net, int s);
/* Inputs of a norm that was written anew, which nothing else wants. */
void sp_net_drop_passed(sp_net *net, const net_step *step);
/* Backward, frugal: gives as much of what is free, from the end, back to the system:
 * the gradient of weights needs so much from now on. */
void sp_net_release(sp_net *net, size_t bytes);
/* Hands the gradient of `from` over to `to`, which has none. */
void sp_net_move_grad(sp_net *net, int from, int to);
void sp_net_drop_grad(sp_net *net, int value);

/* ---- sp_net_norm.c ---- */
sp_status sp_net_norm_forward(sp_net *net, net_step *step);
/* Its last part: writes what it wrote before. */
sp_status sp_net_norm_apply(sp_net *net, const net_step *step);
/* Pass 1 of its backward, without sums. */
sp_norm_grad_args sp_net_norm_grad_args(const sp_net *net, const net_step *step);
sp_status sp_net_norm_backward(sp_net *net, net_step *step, sp_buckets *buckets);

/* ---- sp_net_forward.c ---- */
/* Packed weights of a direction, packed again where they are stale: those of all steps
 * at once, frugal those of this one, at each use. */
sp_status sp_net_pack(sp_net *net, net_step *step, int direction);

#endif
