/* The table of operations of a device. Each backend (src/cpu, cuda) is one constant
 * table with every slot filled; this file is the only place that states the meaning of
 * an operation.
 *
 *     planner thread    plan_build, upload  --> arena of a batch slot
 *                                                  | arena_pass
 *     compute thread    conv_forward, norm_apply, ..., loss, conv_grad_input, ..., sgd
 *                       each call is queued in the compute stream, in call order
 *
 * Pointers in arguments are in the backend's memory space unless they are marked host.
 * Tensors are row matrices with a pitch (sp_tensor.ld), so a concatenation is a view.
 * Empty tensors (n == 0) are legal everywhere. The compute thread waits for the device
 * only in wait, download, clock_end and scratch_drop, and in upload if the device may
 * read the host's memory later. All calls are local to the rank.
 *
 * A fused operation (conv_forward_norm_sums, conv_forward_norm_apply,
 * conv_grad_input_norm_sums) means the plain operations in its name, called one after
 * the other. Only its sums may be formed in other parts; sp_backend_ops.fused_parts
 * reports them.
 *
 * In bf16 (be->precision SP_BF16) an operation means the same, computed in fp32 or
 * better from the values that tensors hold, and rounded as it is stored. Convolutions
 * round their weights, and an operand that is fp32, to bf16 before they multiply.
 *
 * Determinism: the value of an output row depends only on its own inputs and the
 * weights, never on its place in the batch. Sums over rows have a fixed order, whatever
 * the number of threads, and sums of a sample depend only on that sample.
 */
#ifndef SP_BACKEND_H
#define SP_BACKEND_H

#include "base/sp_rng.h"
#include "compute/sp_plan.h"
#include "compute/sp_tensor.h"
#include "deck/sp_choice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The label of a voxel that counts in neither loss nor metric; also "not predicted". */
enum { SP_IGNORE = -1 };

typedef struct sp_backend sp_backend;

/* Sums over the rows of a tensor are formed in n parts. Each covers up to `rows` rows,
 * whatever sample they belong to; rows 0: part i is sample i. */
typedef struct sp_parts {
    int n, rows;
} sp_parts;

/* Two sums over rows for each channel, formed in parts that are added up in a fixed
 * order. One part covers a sample, some rows, or all rows. */
typedef struct sp_sums {
    const double *part; /* [n_parts][2][c] */
    int n_parts;
    double n_rows; /* rows of all parts; if < 0, the number follows the last part */
} sp_sums;

/* Convolution: y[o] = bias + sum_k W[k]^T x[i] over the pairs (i, o) of offset k, with
 * W of shape [K][c_in][c_out]. map NULL means kernel 1 on one level: K = 1, and every
 * row is paired with itself. */
typedef struct sp_conv_args {
    const sp_map *map;
    sp_tensor x;           /* forward: [n_in, c_in] */
    sp_tensor y;           /* forward: [n_out, c_out], written */
    const float *w;        /* [K][c_in][c_out] */
    const float *w_packed; /* conv_pack's result for w in this direction */
    const float *bias;     /* [c_out] or NULL */
    /* Input gradient only. Its map exchanges in and out of the forward map.
     * is_mirrored: the map is the forward map itself (odd kernel, stride 1); its offset
     * K-1-k has the exchanged pairs of offset k. */
    bool is_mirrored;
    bool is_added; /* y += instead of y = */
} sp_conv_args;

/* Packing: the weights of a convolution in the order that one of its directions
 * (forward or input gradient) reads. */
typedef struct sp_pack_args {
    const float *w; /* [K][c_in][c_out] */
    int K, c_in, c_out;
    bool is_grad_input, is_mirrored;
    float *packed; /* conv_pack_floats of them, written */
} sp_pack_args;

/* Packings that are made together, or kept by an update. */
typedef struct sp_packs {
    const sp_pack_args *at; /* [n] host */
    int n;
} sp_packs;

/* Scratch of a convolution. The two memories are apart, each as large as its largest
 * use so far. */
typedef struct sp_conv_bytes {
    int64_t sums;    /* of its weight gradient or of its norm's sums */
    int64_t rounded; /* of an operand that is stored in fp32 and multiplied in bf16 */
} sp_conv_bytes;

typedef struct sp_conv_wgrad_args {
    const sp_map *map;         /* of the forward pass; NULL as there */
    sp_tensor x, dy;           /* [n_in, c_in], [n_out, c_out] */
    const int32_t *sample_row; /* [n_samples + 1] host: rows of dy of each sample */
    int sample0, sample1;      /* sums over samples sample0 .. sample1 - 1, in order */
    float *dw;                 /* [K][c_in][c_out] written */
    float *dbias;              /* [c_out] written, or NULL */
    bool is_added;             /* dw and dbias += instead of = */
    /* The operation may run concurrently with those that follow it, until join. Until
     * then the caller leaves its operands in place and touches no gradient that it
     * writes. */
    bool is_concurrent;
} sp_conv_wgrad_args;

/* Batch norm with given coefficients: y = act(x * scale + shift [+ res]) per channel,
 * act(v) = v > 0 ? v : slope * v. slope 1 means no activation, 0 ReLU. y may be x or
 * res. */
typedef struct sp_norm_args {
    sp_tensor x, y;
    const float *scale, *shift; /* [c] */
    sp_tensor res;              /* residual to add, unless data is NULL */
    /* [c] not NULL: what is added is the norm res * res_scale + res_shift, rounded to
     * an element as if a pass of its own had written it. Only for norm_apply. */
    const float *res_scale, *res_shift;
    float slope;
    /* NULL, or norm_finish of these arguments, which write scale and shift, comes
     * first. */
    const struct sp_norm_finish_args *finish;
} sp_norm_args;

/* Batch norm backward, in two passes. Pass 1 (norm_grad_sums) forms g = dy * act'(y),
 * stores it into dy, and writes the sums of each part p, which is a sample unless the
 * pass is fused: sums[p][0][c] = sum g, sums[p][1][c] = sum g * xhat with
 * xhat = (x - mean) * inv_std. Pass 2
 * (norm_grad_apply) forms dx = a * g + b * x + c per channel and writes it, or adds it
 * if is_added; dx may be dy or x. slope must not be negative: the sign of y is read as
 * the sign of the activation's argument. */
typedef struct sp_norm_grad_args {
    /* y: output of the activation; not read, and possibly absent, if slope is 1 or
     * scale is given */
    sp_tensor x, y, dy;
    float slope;
    const float *mean, *inv_std; /* [c] */
    const int32_t *sample_row;   /* [n_samples + 1] host */
    int n_samples;
    double *sums; /* [n_parts][2][c] */
    const float *a, *b, *c;
    sp_tensor dx;
    bool is_added;
    /* [c] where y = act(x * scale + shift), so that its sign is computed; else NULL. */
    const float *scale, *shift;
    /* NULL, or norm_grad_apply does norm_grad_finish of these arguments first, which
     * write a, b and c. */
    const struct sp_norm_grad_finish_args *finish;
} sp_norm_grad_args;

/* Coefficients of a batch norm from the sums of its input (arithmetic in sp_norm.h),
 * or, where sums.part is NULL, from the running statistics. */
typedef struct sp_norm_finish_args {
    int c;
    double eps;      /* added to the variance; above 0 */
    double momentum; /* share of the batch in the new running statistics, 0 to 1 */
    sp_sums sums;    /* over bn_scope: sum x, sum x^2 */
    const float *gamma, *beta;             /* [c] */
    float *running_mean, *running_var;     /* [c] moved towards the batch's */
    float *scale, *shift, *mean, *inv_std; /* [c] written */
} sp_norm_finish_args;

/* Coefficients of dx for pass 2 of the backward, and this rank's share of the gradients
 * of gamma and beta. */
typedef struct sp_norm_grad_finish_args {
    int c;
    /* over bn_scope: sum g, sum g xhat; all zero: the statistics are constants, and
     * dx = gamma inv_std g */
    sp_sums all;
    sp_sums own; /* the same over this rank; part NULL: no dgamma, no dbeta */
    const float *gamma, *mean, *inv_std; /* [c] */
    float *abc;                          /* [3][c] written */
    float *dgamma, *dbeta;               /* [c] written */
    bool is_added;                       /* dgamma and dbeta += instead of = */
} sp_norm_grad_finish_args;

/* The map may lead to a coarser level, to the same, or, like a transposed
 * convolution's, to a finer one: a mean pool with kernel = stride then copies each
 * voxel to its children. */
typedef struct sp_pool_args {
    const sp_map *map;
    bool is_max;
    sp_tensor x, y;   /* forward: y written; outputs without any pair are 0 */
    int32_t *argmax;  /* [n_out, c] input row of the maximum, or -1; max pools only */
    sp_tensor dx, dy; /* backward: dx added to */
} sp_pool_args;

/* Trilinear interpolation to the voxels of a finer level; compute/sp_interpolate.h has
 * the weights. */
typedef struct sp_interpolate_args {
    const sp_map *map;     /* of kernel 2 on the coarse level */
    const sp_level *level; /* the plan's finer level; level[steps] is the coarse one */
    int steps;             /* at least 1 */
    sp_tensor x, y;        /* forward: y written */
    sp_tensor dx, dy;      /* backward: dx added to */
} sp_interpolate_args;

/* Inverted dropout: y = keep ? x / (1 - p) : 0; the same call serves the gradient. Row
 * r of a sample, channel c is kept if sp_rng_to_unit of word c & 3 of block
 * sp_dropout_block(layer, r, c) of the stream (seed, SP_RNG_DROPOUT, epoch, sample id)
 * is >= p. */
typedef struct sp_dropout_args {
    sp_tensor x, y; /* y may be x */
    float p;
    uint64_t seed, epoch;
    int layer;
    const int64_t *sample_id;  /* [n_samples] */
    const int32_t *sample_row; /* [n_samples + 1] each sample's first row, and x.n */
    int n_samples;
} sp_dropout_args;

/* The rule from logits to loss: the deck's choice, which a net passes on unchanged
 * (sp_net_options). With smoothing e and C classes the target distribution of cross
 * entropy is (1 - e) at the label plus e / C everywhere. compute/sp_loss.h defines the
 * terms. All zeros: plain cross entropy. */
typedef struct sp_loss_rule {
    float smoothing; /* 0 to 1 */
    /* The loss is a sum of terms with these weights, at least one above 0; the members
     * below are not read otherwise. */
    bool is_sum;
    float weight[SP_N_LOSSES]; /* of each sp_loss_kind, >= 0 */
    float focal_gamma;         /* >= 0 */
    /* The group of rows of Lovasz-softmax: all rows of the call, else each sample. */
    bool is_joint;
} sp_loss_rule;

/* The loss l of each voxel with its gradient. The weight of a voxel is
 * w = class_weight[label]. Terms that are defined on a group of rows (dice of a sample,
 * Lovasz-softmax) count with the sum of their w, as if each voxel had the group's
 * value. */
typedef struct sp_loss_args {
    sp_tensor logits;          /* [n, C] */
    const int32_t *label;      /* [n] 0..C-1 or SP_IGNORE; NULL if all are unlabelled */
    const float *class_weight; /* [C] or NULL */
    sp_loss_rule rule;
    const int32_t *sample_row; /* [n_samples + 1] host */
    int n_samples;
    double *sums;      /* [n_samples][2]: sum w * l, sum w */
    sp_tensor dlogits; /* gradient of sum w * l, written unless data is NULL */
    /* A row with a logit that is not finite has no prediction (SP_IGNORE) and is not
     * counted in confusion; its loss is computed as usual. */
    int64_t *confusion;  /* [C truth][C prediction] added to, or NULL */
    int32_t *prediction; /* [n] argmax, ties to the lowest class, or NULL */
} sp_loss_args;

typedef struct sp_optim_args {
    int64_t n;
    float *w;       /* [n] */
    const float *g; /* [n] sum of the gradients */
    float *m, *v;   /* [n] momentum; second moment (only AdamW) */
    double g_scale; /* the gradient is g * g_scale (1 / sum of weights, clipping) */
    double lr, momentum;
    /* SGD: share of the gradient that is left out of the momentum; the first update
     * begins it with the whole gradient. 0 with nesterov. */
    double dampening;
    double weight_decay, beta1, beta2, eps;
    bool nesterov;
    int64_t t; /* number of updates before this one; the first starts from m = v = 0 */
    /* [n / SP_NO_DECAY_RUN, rounded up] if an entry is not 0, its run of
     * SP_NO_DECAY_RUN elements has no weight decay. NULL: all elements have weight
     * decay. */
    const uint8_t *no_decay;
    /* The packings of weights that lie in w: conv_pack has written them, and with the
     * update they become conv_pack's of the new weights. Others are left alone. */
    sp_packs packs;
} sp_optim_args;

enum { SP_NO_DECAY_RUN = 16 };

typedef enum sp_pass {
    SP_FILL_BEGIN, /* planner: the arena's old content is overwritten from now on */
    SP_FILL_END,   /* planner: the content is complete */
    SP_USE_BEGIN,  /* compute: operations called from now on may read the content */
    SP_USE_END     /* compute: all operations that read the content have been called */
} sp_pass;

/* A limit of the machine that spbench measures, with the unit that its work is counted
 * in. */
typedef enum sp_peak {
    SP_PEAK_PRODUCTS, /* multiply-adds in registers, in be->precision: flops */
    SP_PEAK_STREAM,   /* x is read and y written: bytes moved */
    SP_PEAK_UPDATE,   /* x and y are read and written in place: bytes moved */
    SP_PEAK_READ,     /* x and y are read: bytes moved */
    SP_PEAK_COPY,     /* the system's library copies x to y: bytes moved */
    SP_PEAK_LAUNCH,   /* kernels that do nothing: launches */
    SP_PEAK_GATHER    /* rows of x are read in a random order: bytes read */
} sp_peak;

typedef struct sp_peak_args {
    sp_peak what;
    double amount; /* about how much to do; passes over memory move all of x and y */
    float *x, *y;  /* [n] written; 4 MiB each at least */
    int64_t n;
    int row_bytes; /* a gather's row: 64, 128, 256 or 512 */
} sp_peak_args;

typedef struct sp_backend_ops {
    const char *name;
    bool is_host; /* its memory is the host's: pointers can be used as they are */

    /* Prepares the device of this rank. threads: host threads of the CPU backend.
     * SP_EDEVICE, SP_EMEM. */
    sp_status (*open)(sp_backend *be, int device, int threads);
    void (*close)(sp_backend *be);

    /* ---- memory ---- */
    sp_status (*arena_create)(sp_arena *arena, size_t reserve, const char *name);
    void (*arena_destroy)(sp_arena *arena); /* accepts a zeroed one */
    /* from_host has been read when upload returns. */
    sp_status (*upload)(sp_backend *be, void *to, const void *from_host, size_t bytes);
    sp_status (*download)(sp_backend *be, void *to_host, const void *from,
                          size_t bytes);
    sp_status (*fill)(sp_backend *be, void *data, int byte, size_t bytes);
    sp_status (*wait)(sp_backend *be); /* until the compute stream is idle */
    /* Hands an arena from the planner thread, which fills it by plan_build and upload,
     * to the compute thread, whose operations read it, and back. If a backend has
     * streams, these wait for each other; the host does not. The caller keeps the
     * passes of one arena in the order of sp_pass. */
    sp_status (*arena_pass)(sp_backend *be, sp_arena *arena, sp_pass pass);

    /* ---- sums over ranks (sp_transport.h) ----
     * The transports that can move this memory, best first, ended by NULL. NULL instead
     * of a list: MPI moves it in place. */
    const struct sp_transport_ops *const *transports;

    /* ---- plan (planner thread) ----
     * coords is host [n][3]; sample b has rows sample_row[b] .. sample_row[b+1]-1. The
     * whole plan lies in `arena` until the arena is reset. SP_EDATA for a duplicate
     * coordinate within a sample (the message names sample and coordinate). */
    sp_status (*plan_build)(sp_backend *be, const sp_plan_spec *spec,
                            const int32_t *coords, const int32_t *sample_row,
                            int n_samples, sp_arena *arena, sp_plan *plan);

    /* An upper bound of the bytes that plan_build takes for a plan of these numbers: it
     * makes the same allocations from arenas that only count. A pure function, which
     * `sptrain check` calls without open. */
    sp_plan_bytes (*plan_bytes)(const sp_plan_spec *spec, const sp_plan_counts *counts);

    /* ---- convolution ---- */
    /* Number of floats that conv_pack writes for one direction, which depends on
     * be->precision; 0: this convolution reads w itself. */
    size_t (*conv_pack_floats)(const sp_backend *be, int K, int c_in, int c_out,
                               bool is_grad_input);
    sp_status (*conv_pack)(sp_backend *be, const sp_pack_args *args, int n_args);
    sp_status (*conv_forward)(sp_backend *be, const sp_conv_args *args);
    /* Here args->x is dy [n_out, c_out] and args->y is dx [n_in, c_in]; args->w is the
     * forward pass's. */
    sp_status (*conv_grad_input)(sp_backend *be, const sp_conv_args *args);
    sp_status (*conv_grad_weight)(sp_backend *be, const sp_conv_wgrad_args *args);
    /* Operations called from now on run after all that are is_concurrent. */
    sp_status (*join)(sp_backend *be);
    /* Scratch of a convolution with this many output rows and pairs, in its forward and
     * backward pass, with the sums of a norm of its output. A pure function of these
     * numbers and be->precision. */
    sp_conv_bytes (*conv_bytes)(const sp_backend *be, int K, int c_in, int c_out,
                                int n_samples, int64_t rows, int64_t pairs);

    /* ---- batch norm ---- */
    /* sums[b][0][c] = sum x, sums[b][1][c] = sum x^2 of sample b, in double. */
    sp_status (*norm_sums)(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, double *sums);
    sp_status (*norm_finish)(sp_backend *be, const sp_norm_finish_args *args);
    sp_status (*norm_apply)(sp_backend *be, const sp_norm_args *args);
    sp_status (*norm_grad_sums)(sp_backend *be, const sp_norm_grad_args *args);
    sp_status (*norm_grad_finish)(sp_backend *be, const sp_norm_grad_finish_args *args);
    sp_status (*norm_grad_apply)(sp_backend *be, const sp_norm_grad_args *args);

    /* ---- convolution fused with a batch norm ---- */
    /* The parts of the sums that the two fused operations write over n_rows rows of
     * n_samples samples. A pure function. */
    sp_parts (*fused_parts)(int64_t n_rows, int n_samples);
    /* conv_forward, then norm_sums of y, while a tile of y is in registers or in a
     * cache. sums [n_parts][2][c_out] written. */
    sp_status (*conv_forward_norm_sums)(sp_backend *be, const sp_conv_args *conv,
                                        const int32_t *sample_row, int n_samples,
                                        double *sums);
    /* conv_forward, then norm_apply over its output: norm->x and norm->y are conv->y,
     * norm->res is other memory. Only for evaluation: the convolution's own output is
     * not read by any other operation. In bf16 it need not be rounded in between. */
    sp_status (*conv_forward_norm_apply)(sp_backend *be, const sp_conv_args *conv,
                                         const sp_norm_args *norm);
    /* conv_grad_input, then norm_grad_sums of the batch norm before the convolution:
     * norm->dy is conv->y or columns of it, complete once the convolution ran. Then the
     * residual norm's sums unless residual is NULL: a second norm with the same number
     * of channels, without activation. Its output was added to the first norm's, so g
     * is the gradient of both (residual->dy equals norm->dy). */
    sp_status (*conv_grad_input_norm_sums)(sp_backend *be, const sp_conv_args *conv,
                                           const sp_norm_grad_args *norm,
                                           const sp_norm_grad_args *residual);

    /* ---- sums of parts ---- */
    /* out[j] = sum over b of sums[b][j], j < m, in a fixed order; out[m] = n_rows.
     * is_added: out is added to instead. Used by norms and by the loss. */
    sp_status (*add_samples)(sp_backend *be, const double *sums, int n_samples, int m,
                             double n_rows, double *out, bool is_added);

    /* ---- elementwise ---- */
    /* y = act(x); dx (+)= dy * act'(y). y may be x, dx may be dy. */
    sp_status (*relu)(sp_backend *be, sp_tensor x, float slope, sp_tensor y);
    sp_status (*relu_grad)(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                           sp_tensor dx, bool is_added);
    /* y = x, or y += x: addition, concatenation and their gradients. */
    sp_status (*copy)(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added);
    sp_status (*dropout)(sp_backend *be, const sp_dropout_args *args);

    /* ---- pooling ---- */
    sp_status (*pool)(sp_backend *be, const sp_pool_args *args);
    sp_status (*pool_grad)(sp_backend *be, const sp_pool_args *args);
    sp_status (*interpolate)(sp_backend *be, const sp_interpolate_args *args);
    sp_status (*interpolate_grad)(sp_backend *be, const sp_interpolate_args *args);
    /* y has one row for each sample, zeros for an empty one. argmax [n_samples, c] is
     * written with the row of x that holds each maximum, or -1; argmax NULL means the
     * mean instead of the maximum. The gradient is added to dx. */
    sp_status (*global_pool)(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                             int n_samples, int32_t *argmax, sp_tensor y);
    sp_status (*global_pool_grad)(sp_backend *be, sp_tensor dy,
                                  const int32_t *sample_row, int n_samples,
                                  const int32_t *argmax, sp_tensor dx);
    /* Each voxel gets the row of its sample. The gradient of that row, which is added,
     * sums the voxels' in their order. */
    sp_status (*broadcast)(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, sp_tensor y);
    sp_status (*broadcast_grad)(sp_backend *be, sp_tensor dy, const int32_t *sample_row,
                                int n_samples, sp_tensor dx);

    /* ---- loss and update ---- */
    sp_status (*loss)(sp_backend *be, const sp_loss_args *args);
    /* Bytes of scratch that loss needs, given the rows of the logits, their classes and
     * the samples (one sample may have all rows). A pure function of these numbers and
     * be->threads. */
    int64_t (*loss_bytes)(const sp_backend *be, const sp_loss_rule *rule, int64_t n,
                          int c, int n_samples);
    sp_status (*sgd)(sp_backend *be, const sp_optim_args *args);
    sp_status (*adamw)(sp_backend *be, const sp_optim_args *args);
    /* *sum = sum g^2 in a fixed order, in double. */
    sp_status (*sum_squares)(sp_backend *be, const float *g, int64_t n, double *sum);

    /* ---- measuring (spbench) ---- Seconds taken by the operations that the compute
     * thread called between the two: on a device by events of the compute stream, on
     * the CPU by the thread's own time if it is the only thread, else by the wall
     * clock. clock_end waits. */
    sp_status (*clock_begin)(sp_backend *be);
    sp_status (*clock_end)(sp_backend *be, double *seconds);
    /* Does the work that args ask for and returns its amount in *work; 0: the backend
     * has no such limit. */
    sp_status (*peak)(sp_backend *be, const sp_peak_args *args, double *work);
    /* Bytes of the device in use by all processes; on the CPU the peak resident size of
     * this process; 0: not known. */
    sp_status (*memory_used)(sp_backend *be, int64_t *bytes);
    /* Gives the memory of the backend's own scratch back; operations take it again.
     * Waits. NULL if the backend has no scratch. */
    sp_status (*scratch_drop)(sp_backend *be);
    /* Names what the calling thread does from begin to end, for a profiler that is
     * attached to the program (sp_range_begin). NULL if the backend cannot. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);
} sp_backend_ops;

/* The type of a slot's function. SP_OP(copy) sp_cpu_copy; declares a function for it,
 * so that the table above is the one place for the parameters of an operation. */
#define SP_OP(slot) __typeof__(*((sp_backend_ops *)0)->slot)

/* The operations that every backend computes in a function of its own: sp_cpu_relu and
 * sp_cuda_relu for the slot relu, and sp_ref_relu in the tests. The backends'
 * declarations and tables and the timed table of spbench are made from this list. A new
 * operation is its slot above, its name here, and its functions; the compiler and the
 * linker report missing ones. */
/* clang-format off */
#define SP_OPERATIONS(X)                                                                  \
    X(conv_pack) X(conv_forward) X(conv_grad_input) X(conv_grad_weight)                   \
    X(conv_forward_norm_sums) X(conv_forward_norm_apply) X(conv_grad_input_norm_sums)     \
    X(norm_sums) X(norm_apply) X(norm_grad_sums) X(norm_grad_apply) X(relu) X(relu_grad)  \
    X(copy) X(dropout) X(pool) X(pool_grad) X(interpolate) X(interpolate_grad)            \
    X(global_pool) X(global_pool_grad) X(broadcast) X(broadcast_grad) X(loss) X(sgd)      \
    X(adamw) X(sum_squares)
/* clang-format on */

static inline SP_HOST_DEVICE uint64_t sp_dropout_block(int layer, int64_t row, int c)
{
    return (uint64_t)layer << 46 | (uint64_t)row << 12 | (uint64_t)c >> 2;
}

struct sp_backend {
    const sp_backend_ops *ops;
    int device, threads;
    sp_precision precision; /* set before open; the CPU has no SP_TF32 */
    /* The order of sums of products on the CPU in bf16. Set before open, which turns
     * SP_SUMS_AUTO into that of this processor; ranks agree on it before. */
    sp_bf16_sums sums;
    /* Wide convolutions in bf16 use wgmma. Set before open, which clears it if the
     * device or the build lacks wgmma, or fails if it is not optional. Weights are
     * packed for it, so it does not change between their packing and a convolution. */
    bool is_wgmma, is_wgmma_optional;
    int wgmma_columns; /* 96 to 256: of its tiles, for tests; 0: by the call */
    bool is_in_line;   /* is_concurrent is ignored: each operation can be timed */
    double begun_s;    /* the CPU's clock_begin */
    void *impl;        /* private to the backend */
};

/* A range of the calling thread's work with a name, as a profiler shows it above the
 * operations that are called meanwhile. Ranges of a thread nest. */
static inline void sp_range_begin(const sp_backend *be, const char *name)
{
    if (be->ops->range_begin)
        be->ops->range_begin(name);
}

static inline void sp_range_end(const sp_backend *be)
{
    if (be->ops->range_end)
        be->ops->range_end();
}

/* The backend called "cpu" or "cuda"; NULL if this build lacks it. The list of backends
 * is in src/api/sp_backend.c. */
const sp_backend_ops *sp_backend_find(const char *name);

/* ---- defined in cuda/device, or in src/api/no_cuda.c: no other file is compiled
 * differently in a build without CUDA ---- */

/* The table of the CUDA backend; NULL in a build without CUDA. */
const sp_backend_ops *sp_cuda_table(void);
/* The number of CUDA devices that this process sees; 0 without a driver or without CUDA
 * in the build. */
int sp_backend_visible_devices(void);
/* Writes into text the reason why there is no CUDA device. */
void sp_backend_why_none(char *text, size_t size);
/* Identity and size of a CUDA device. */
typedef struct sp_device_info {
    char name[64];
    char uuid[48]; /* "GPU-8ad5..." as nvidia-smi prints it */
    char pci[16];  /* "0000:1b:00.0" */
    int64_t memory_bytes;
    int capability; /* 10 major + minor */
} sp_device_info;

/* Describes CUDA device i of those that this process sees. Local. SP_EDEVICE. */
sp_status sp_backend_device(int i, sp_device_info *device);
/* Version of the CUDA toolkit of this build as CUDA counts it (12080 is 12.8); 0: the
 * build has no CUDA. */
int sp_backend_cuda_version(void);

#ifdef __cplusplus
}
#endif
#endif
