/* The table of operations of a device. Each backend (src/cpu, cuda) is one constant
 * table with every slot filled; this file is the only place that says what an operation
 * means.
 *
 * Pointers in arguments are in the backend's memory space unless marked host. Tensors
 * are row matrices with a pitch (sp_tensor.ld), so a concatenation is a view. Empty
 * tensors (n == 0) are legal everywhere. Operations of the compute stream run in call
 * order; the host waits only in sp_backend_ops.wait and download.
 *
 * Determinism: the value of an output row depends on its own inputs and the weights
 * alone, never on its place in the batch; sums over rows have a fixed order, whatever
 * the number of threads, and those per sample depend on that sample alone.
 */
#ifndef SP_BACKEND_H
#define SP_BACKEND_H

#include "compute/sp_plan.h"
#include "base/sp_rng.h"
#include "compute/sp_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SP_IGNORE = -1 }; /* label of a voxel that counts in neither loss nor metric */

typedef struct sp_backend sp_backend;

/* Sums over rows, two for each channel: those of the parts added up in a fixed order.
 * A part is a sample, a piece of the rows, or all of them. */
typedef struct sp_sums {
    const double *part; /* [n_parts][2][c] */
    int n_parts;
    double n_rows; /* in all of them; < 0: stands behind the last part */
} sp_sums;

/* y[o] = bias + sum_k W[k]^T x[i] over the pairs (i, o) of offset k.  W
 * [K][c_in][c_out]. map NULL: kernel 1 on one level, K = 1, every row its own pair. */
typedef struct sp_conv_args {
    const sp_map *map;
    sp_tensor x;           /* forward: [n_in, c_in] */
    sp_tensor y;           /* forward: [n_out, c_out], written */
    const float *w;        /* [K][c_in][c_out] */
    const float *w_packed; /* what conv_pack made of w for this direction */
    const float *bias;     /* [c_out] or NULL */
    /* grad_input only: the map exchanges in and out of the forward map; is_mirrored
     * says that it is the forward map itself (odd kernel, stride 1), whose offset K-1-k
     * is its swap. is_added: dx += instead of dx =. */
    bool is_mirrored, is_added;
    /* Forward only: NULL, or the sums of y and y^2, taken while a tile of y is at hand.
     * Written: [n_samples][2][c_out], as norm_sums has them to the bit; of a table with
     * sum_rows [ceil(n_out / sum_rows)][2][c_out], of pieces of so many rows. */
    double *sums;
    const int32_t *sample_row; /* [n_samples + 1] host: rows of y of each sample */
    int n_samples;
    /* Input gradient of a table with sum_rows only: NULL, or a norm before, of whose
     * output the columns of y from norm_column on become the whole gradient. Its pass 1
     * is done on the way: they become g, and norm->sums [ceil(n_in / sum_rows)][2][c]
     * the sums of pieces. */
    const struct sp_norm_grad_args *norm;
    int norm_column;
    /* With norm: NULL, or a norm without activation of as many channels, of whose output
     * g is the whole gradient too, as its output was added to the other's. Its sums are
     * taken likewise. */
    const struct sp_norm_grad_args *beside;
} sp_conv_args;

/* Weights of a convolution in the order that one of its directions reads. */
typedef struct sp_pack_args {
    const float *w; /* [K][c_in][c_out] */
    int K, c_in, c_out;
    bool is_grad_input, is_mirrored;
    float *packed; /* conv_pack_floats of them, written */
} sp_pack_args;

typedef struct sp_conv_wgrad_args {
    const sp_map *map;         /* of the forward pass; NULL as there */
    sp_tensor x, dy;           /* [n_in, c_in], [n_out, c_out] */
    const int32_t *sample_row; /* [n_samples + 1] host: rows of dy of each sample */
    int sample0, sample1;      /* sums over samples sample0 .. sample1 - 1, in order */
    float *dw;                 /* [K][c_in][c_out], added to */
    float *dbias;              /* [c_out] or NULL, added to */
    /* May run beside the operations that follow, until join: until then what it reads
     * stays, and nobody touches what it adds to. */
    bool is_aside;
} sp_conv_wgrad_args;

/* y = act(x * scale + shift [+ res]), per channel; act(v) = v > 0 ? v : slope * v with
 * slope 1 for none, 0 for ReLU. y may be x or res. */
typedef struct sp_norm_args {
    sp_tensor x, y;
    const float *scale, *shift; /* [c] */
    sp_tensor res;              /* data NULL: none */
    float slope;
} sp_norm_args;

/* Batch norm backward. Pass 1 (sums): g = dy * act'(y), stored into dy; per sample b
 * sums[b][0][c] = sum g, sums[b][1][c] = sum g * xhat, xhat = (x - mean) * inv_std.
 * Pass 2 (apply): dx = a * g + b * x + c per channel, written, or added with is_added;
 * dx may be dy. slope must not be negative: the sign of y tells which side of 0 it came
 * from. */
typedef struct sp_norm_grad_args {
    sp_tensor x, y, dy; /* y: output of the activation; not read when slope is 1 */
    float slope;
    const float *mean, *inv_std; /* [c] */
    const int32_t *sample_row;   /* [n_samples + 1] host */
    int n_samples;
    double *sums; /* [n_samples][2][c] */
    const float *a, *b, *c;
    sp_tensor dx;
    bool is_added;
    /* [c] where y = act(x * scale + shift), so that y need not be read; else NULL */
    const float *scale, *shift;
} sp_norm_grad_args;

/* Statistics from sums (arithmetic in sp_norm.h), or from the running ones: part NULL.
 */
typedef struct sp_norm_finish_args {
    int c;
    sp_sums sums;                          /* over the scope: sum x, sum x^2 */
    const float *gamma, *beta;             /* [c] */
    float *running_mean, *running_var;     /* [c] moved towards the sums' */
    float *scale, *shift, *mean, *inv_std; /* [c] written */
} sp_norm_finish_args;

/* Coefficients of dx, and this rank's share of the parameters' gradient. */
typedef struct sp_norm_grad_finish_args {
    int c;
    sp_sums all; /* over the scope: sum g, sum g xhat */
    sp_sums own; /* over this rank: as all, or one part; part NULL: no dgamma, dbeta */
    const float *gamma, *mean, *inv_std; /* [c] */
    float *abc;                          /* [3][c] written */
    float *dgamma, *dbeta;               /* [c] added to */
} sp_norm_grad_finish_args;

typedef struct sp_pool_args {
    const sp_map *map;
    bool is_max;
    sp_tensor x, y;   /* forward: y written; outputs without any pair are 0 */
    int32_t *argmax;  /* [n_out, c] input row, -1 none; max only */
    sp_tensor dx, dy; /* backward: dx added to */
} sp_pool_args;

/* Softmax cross-entropy with its gradient. With smoothing e and C classes the target is
 * (1 - e) at the label and e / C everywhere; voxel weight w = class_weight[label]. */
typedef struct sp_loss_args {
    sp_tensor logits;          /* [n, C] */
    const int32_t *label;      /* [n] 0..C-1 or SP_IGNORE; NULL: none labelled */
    const float *class_weight; /* [C] or NULL */
    float smoothing;
    const int32_t *sample_row; /* [n_samples + 1] host */
    int n_samples;
    double *sums;        /* [n_samples][2]: sum w * l, sum w */
    sp_tensor dlogits;   /* data NULL: none; gradient of sum w * l, written */
    int64_t *confusion;  /* [C][C] truth, prediction; added to; NULL: none */
    int32_t *prediction; /* [n] argmax, ties to the lowest class; NULL: none */
} sp_loss_args;

typedef struct sp_optim_args {
    int64_t n;
    float *w;       /* [n] */
    const float *g; /* [n] gradient sum */
    float *m, *v;   /* [n] momentum; second moment (AdamW) */
    double g_scale; /* the gradient is g * g_scale (1 / sum of weights, clipping) */
    double lr, momentum, weight_decay, beta1, beta2, eps;
    bool nesterov;
    int64_t t; /* updates before this one: 0 is the first. Both start from m = v = 0 */
    /* [n over SP_SPARED_RUN, rounded up] not 0: that run of elements has no weight
     * decay. NULL: all have it. */
    const uint8_t *spared;
} sp_optim_args;

enum { SP_SPARED_RUN = 16 };

typedef enum sp_pass {
    SP_FILL_BEGIN, /* planner: what comes now overwrites what was used */
    SP_FILL_END,   /* planner: that was all */
    SP_USE_BEGIN,  /* compute: operations from here on may use what was filled in */
    SP_USE_END     /* compute: those that used it have all been called */
} sp_pass;

/* What a machine does at best; how much work that is to count. */
typedef enum sp_peak {
    SP_PEAK_PRODUCTS, /* multiply-adds in registers, as be->precision forms them: flops */
    SP_PEAK_STREAM,   /* x read, y written: bytes moved */
    SP_PEAK_LAUNCH,   /* kernels that do nothing: launches */
    SP_PEAK_GATHER    /* rows of x in a random order: bytes read */
} sp_peak;

typedef struct sp_peak_args {
    sp_peak what;
    double amount; /* work wanted, about; not of the stream, which is all of x and y */
    float *x, *y;  /* [n] of the backend's memory, y written; 4 MiB each at least */
    int64_t n;
    int row_bytes; /* of a gather: 64, 128, 256 or 512 */
} sp_peak_args;

typedef struct sp_backend_ops {
    const char *name;
    bool is_host; /* its memory is the host's: pointers can be used as they are */
    /* conv_forward takes sums (sp_conv_args) of each sample: 0; of pieces of so many
     * rows, whatever their samples. */
    int sum_rows;

    /* Prepare the device of this rank. threads: host threads for the CPU backend. */
    sp_status (*open)(sp_backend *be, int device, int threads);
    void (*close)(sp_backend *be);

    /* ---- memory ---- */
    sp_status (*arena_create)(sp_arena *arena, size_t reserve, const char *name);
    void (*arena_destroy)(sp_arena *arena);
    /* Has read from_host when it returns. */
    sp_status (*upload)(sp_backend *be, void *to, const void *from_host, size_t bytes);
    sp_status (*download)(sp_backend *be, void *to_host, const void *from,
                          size_t bytes);
    sp_status (*fill)(sp_backend *be, void *data, int byte, size_t bytes);
    sp_status (*wait)(sp_backend *be); /* until the compute stream is idle */
    /* An arena that a planner thread fills, by plan_build and upload, and the compute
     * thread's operations use goes from hand to hand; where a backend has streams they
     * wait for each other, the host never does. The caller sees to it that passes of
     * one arena follow each other. */
    sp_status (*arena_pass)(sp_backend *be, sp_arena *arena, sp_pass pass);

    /* ---- sums over ranks (sp_transport.h) ----
     * What can move this memory, best first, ended by NULL; NULL: MPI, where it
     * lies. */
    const struct sp_transport_ops *const *transports;

    /* ---- plan (planner thread) ----
     * coords host [n][3], sample b has rows sample_row[b] .. sample_row[b+1]-1.
     * Everything of the plan lies in `arena` until it is reset. SP_EDATA for a
     * duplicate coordinate within a sample (message names sample and coordinate). */
    sp_status (*plan_build)(sp_backend *be, const sp_plan_spec *spec,
                            const int32_t *coords, const int32_t *sample_row,
                            int n_samples, sp_arena *arena, sp_plan *plan);

    /* Most bytes that a plan takes of its arena, building included, given the voxels of
     * each level and the pairs of each map. Pure: for `sptrain check`, without open. */
    int64_t (*plan_bytes)(const sp_plan_spec *spec, int n_samples,
                          const int64_t *voxels, const int64_t *pairs);

    /* ---- convolution ---- */
    /* Floats that conv_pack writes for one direction; 0: packing is not used. They
     * depend on be->precision. */
    size_t (*conv_pack_floats)(const sp_backend *be, int K, int c_in, int c_out,
                               bool is_grad_input);
    sp_status (*conv_pack)(sp_backend *be, const sp_pack_args *args, int n_args);
    sp_status (*conv_forward)(sp_backend *be, const sp_conv_args *args);
    /* Here args->x is dy [n_out, c_out] and args->y is dx [n_in, c_in]; args->w as
     * forward. */
    sp_status (*conv_grad_input)(sp_backend *be, const sp_conv_args *args);
    sp_status (*conv_grad_weight)(sp_backend *be, const sp_conv_wgrad_args *args);
    /* Operations from here on come behind what was begun aside. */
    sp_status (*join)(sp_backend *be);
    /* Bytes that conv_grad_weight takes for itself; pure, as plan_bytes. The most of
     * any operation. Depends on be->precision. */
    int64_t (*conv_grad_weight_bytes)(const sp_backend *be, int K, int c_in, int c_out,
                                      int n_samples, int64_t pairs);

    /* ---- batch norm ---- */
    /* sums[b][0][c] = sum x, sums[b][1][c] = sum x^2 of sample b, in double. */
    sp_status (*norm_sums)(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, double *sums);
    sp_status (*norm_finish)(sp_backend *be, const sp_norm_finish_args *args);
    sp_status (*norm_apply)(sp_backend *be, const sp_norm_args *args);
    sp_status (*norm_grad_sums)(sp_backend *be, const sp_norm_grad_args *args);
    sp_status (*norm_grad_finish)(sp_backend *be, const sp_norm_grad_finish_args *args);
    sp_status (*norm_grad_apply)(sp_backend *be, const sp_norm_grad_args *args);
    /* out[j] = sum over b of sums[b][j], j < m, in a fixed order; out[m] = n_rows.
     * is_added: to what is there. For norms and the loss. */
    sp_status (*add_samples)(sp_backend *be, const double *sums, int n_samples, int m,
                             double n_rows, double *out, bool is_added);

    /* ---- elementwise ---- */
    /* y = act(x); dx (+)= dy * act'(y). y may be x, dx may be dy. */
    sp_status (*relu)(sp_backend *be, sp_tensor x, float slope, sp_tensor y);
    sp_status (*relu_grad)(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                           sp_tensor dx, bool is_added);
    /* y = x, or y += x. Serves add, concat and their gradients. */
    sp_status (*copy)(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added);
    /* Inverted dropout: y = keep ? x / (1 - p) : 0; the same call serves the gradient.
     * y may be x. Row r of a sample, channel c is kept where sp_rng_to_unit of word c &
     * 3 of block sp_dropout_block(layer, r, c) of the stream (seed, SP_RNG_DROPOUT,
     * epoch, sample id) is >= p. */
    sp_status (*dropout)(sp_backend *be, sp_tensor x, float p, uint64_t seed,
                         uint64_t epoch, int layer, const int64_t *sample_id,
                         const int32_t *sample_row, int n_samples, sp_tensor y);

    /* ---- pooling ---- */
    sp_status (*pool)(sp_backend *be, const sp_pool_args *args);
    sp_status (*pool_grad)(sp_backend *be, const sp_pool_args *args);
    /* One row a sample; an empty sample gives zeros. argmax [n_samples, c]: row of x of
     * each maximum, -1 none, written; NULL: the mean. The gradient is added to dx. */
    sp_status (*global_pool)(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                             int n_samples, int32_t *argmax, sp_tensor y);
    sp_status (*global_pool_grad)(sp_backend *be, sp_tensor dy,
                                  const int32_t *sample_row, int n_samples,
                                  const int32_t *argmax, sp_tensor dx);
    /* Row of the sample to each of its voxels; the gradient (added) sums them in order.
     */
    sp_status (*broadcast)(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, sp_tensor y);
    sp_status (*broadcast_grad)(sp_backend *be, sp_tensor dy, const int32_t *sample_row,
                                int n_samples, sp_tensor dx);

    /* ---- loss and update ---- */
    sp_status (*loss)(sp_backend *be, const sp_loss_args *args);
    sp_status (*sgd)(sp_backend *be, const sp_optim_args *args);
    sp_status (*adamw)(sp_backend *be, const sp_optim_args *args);
    /* *sum = sum g^2 in a fixed order, in double. */
    sp_status (*sum_squares)(sp_backend *be, const float *g, int64_t n, double *sum);

    /* ---- measuring (spbench) ----
     * Seconds of what the compute thread called between the two: of a device by events
     * of the compute stream, of the CPU by the thread's own time where it is the only
     * one, else by the clock on the wall. clock_end waits. */
    sp_status (*clock_begin)(sp_backend *be);
    sp_status (*clock_end)(sp_backend *be, double *seconds);
    /* Does what args ask for and tells how much work it was; 0: the backend has no such
     * limit. */
    sp_status (*peak)(sp_backend *be, const sp_peak_args *args, double *work);
    /* Bytes of the device in use, by whomever; on the CPU the most that this process has
     * had in memory; 0: not known. */
    sp_status (*memory_used)(sp_backend *be, int64_t *bytes);
} sp_backend_ops;

static inline SP_HOST_DEVICE uint64_t sp_dropout_block(int layer, int64_t row, int c)
{
    return (uint64_t)layer << 46 | (uint64_t)row << 12 | (uint64_t)c >> 2;
}

/* How products are formed: fp32 exactly; tf32 from operands rounded to 10 bits of
 * mantissa; bf16 from activations stored as bf16. Sums, parameters, statistics, loss
 * and weight gradients are fp32 or better in all of them. */
typedef enum sp_precision { SP_FP32, SP_TF32, SP_BF16 } sp_precision;

struct sp_backend {
    const sp_backend_ops *ops;
    int device, threads;
    sp_precision precision; /* set before open; the CPU has fp32 alone */
    bool is_wgmma;          /* in bf16 wide convolutions by wgmma; set before open */
    bool is_in_line;        /* nothing runs aside, so that each can be timed */
    double begun_s;         /* clock_begin of the CPU */
    void *impl;             /* the backend's own */
};

/* "cpu" or "cuda"; NULL if this build lacks it. The only list of backends. */
const sp_backend_ops *sp_backend_find(const char *name);
/* CUDA devices this process sees; 0 without a driver or without CUDA in the build. */
int sp_backend_visible_devices(void);
/* Why there are none. */
void sp_backend_why_none(char *text, size_t size);
/* What a device is called. */
typedef struct sp_device {
    char name[64];
    char uuid[48]; /* "GPU-8ad5..." as nvidia-smi prints it */
    char pci[16];  /* "0000:1b:00.0" */
    int64_t memory_bytes;
    int capability; /* 10 major + minor */
} sp_device;

/* CUDA device i of those this process sees. SP_EDEVICE. */
sp_status sp_backend_device(int i, sp_device *device);
/* Version of the CUDA toolkit of this build as CUDA counts it, 12080 is 12.8; 0: built
 * without. */
int sp_backend_cuda_version(void);
/* The CPU backend with plain loops throughout: the oracle of the tests. */
const sp_backend_ops *sp_backend_reference(void);

#ifdef __cplusplus
}
#endif
#endif
