/* The inner kernels of the CPU backend, compiled once per instruction set from
 * cpu_vec_*.c: AVX-512 (16 lanes), AVX2 (8) and portable C (4, the compiler's vector
 * extension). The version is chosen when the backend opens: the best one that this
 * processor has, or the one named by the environment variable SP_CPU_ISA (avx512, avx2,
 * portable; avx512bf16 and amx choose only among the tables of bf16). Kernels start no
 * threads: a call works on one tile or one range of rows, and the files cpu_*.c
 * distribute the calls over threads.
 *
 * Each version has a second table for tensors of bf16 (src/bf16). A further table of
 * AVX-512 forms the products of bf16 by AVX512_BF16; it is chosen if the processor is
 * fast at them or SP_CPU_ISA is avx512bf16. All of these compute the same bits. Two
 * more tables for bf16 sum in another order (cpu/bf16/tile.h) and agree with each other
 * bit for bit: one uses AMX_BF16 and is chosen if the processor has it, the other is
 * portable C.
 *
 * Packed weights: per offset, panels of nr * lanes output channels follow one another;
 * a panel is [c_in][nr * lanes], padded with zeros. Rows of all channels would be 1 KiB
 * long (256 channels) and map a panel to a quarter of the L1 sets. In bf16 a word holds
 * the weights of two input channels, and a panel is [words][nr * lanes], with c_in
 * filled up to whole chunks. */
#ifndef SP_CPU_ISA_H
#define SP_CPU_ISA_H

#include <assert.h>

#include "base/sp_number.h"
#include "base/sp_rng.h"
#include "cpu/cpu.h"

enum {
    /* Lanes of the widest version: packed buffers are padded to it. */
    SP_CPU_LANES = 16,
    /* Rows of one partial sum; with 256 channels, two tensors' rows fit L2. */
    SP_CPU_ROW_BLOCK = 256,
    SP_CPU_CHUNK = 32, /* the largest sp_cpu_isa.chunk; buffers have room for it */
    SP_CPU_FLAT_BLOCK = 4096 /* elements of one piece of a flat vector */
};

/* The row list of a tile of a convolution without map: 0, 1, 2, ..., since every row is
 * its own pair. */
extern const int32_t sp_cpu_iota[SP_TILE];

/* Rows row .. end - 1, which belong to one sample. */
typedef struct sp_cpu_span {
    int sample;
    int32_t row, end;
} sp_cpu_span;

/* Operands of conv_tile: the forward pass, or the input gradient with x = dy and
 * y = dx. */
typedef struct sp_cpu_conv {
    const sp_map *map; /* NULL: kernel 1 */
    sp_tensor x, y;
    const float *w;          /* as `pack` writes them */
    const float *bias;       /* [c_out] or NULL */
    bool is_added;           /* y += instead of y = */
    const sp_cpu_span *tile; /* tiles if map is NULL; NULL: SP_TILE rows each */
    /* NULL, or the norm that is applied to a tile before it is written, in bf16 before
     * it is rounded. Only scale, shift, res and slope are read. */
    const sp_norm_args *norm;
    /* NULL, or the channels of the rows of x that are not zero (list_channels): only
     * these are multiplied. */
    const uint8_t *list;
} sp_cpu_conv;

/* Lists of channels are of runs of nearly equal length, of which the last one may be
 * shorter. */
static inline int sp_cpu_list_run(int c)
{
    enum { MOST = 96 };
    const int n = (c + MOST - 1) / MOST;

    return (c + n - 1) / n;
}

/* The bytes of the lists of one row, and after them those that list_channels may write
 * to. */
static inline size_t sp_cpu_list_bytes(int c)
{
    const int run = sp_cpu_list_run(c);

    return (size_t)((c + run - 1) / run * (run + 1) + SP_CPU_LANES);
}

/* Operands of wgrad: the output tiles tile0 .. tile1 - 1 of a map, or rows
 * row .. end - 1 without one. */
typedef struct sp_cpu_wgrad {
    const sp_map *map; /* NULL: kernel 1 */
    sp_tensor x, dy;
    int tile0, tile1;
    int32_t row, end;
    bool has_zeros;        /* x has many: their products are left out */
    int k0, k1;            /* only these offsets: k0 .. k1 - 1 */
    float *dw;             /* [k1 - k0] panels laid out as packed weights, added to */
    const uint16_t *owner; /* [K][panels] the thread that adds to each panel */
} sp_cpu_wgrad;

/* The kernels of one instruction set. They work on rows row .. end - 1 of the tensors
 * (elements at .. end - 1 of flat vectors). Sums over rows are in double, row after
 * row. The table for bf16 has the operations up to `convert` and multiply_add. */
typedef struct sp_cpu_isa {
    const char *name;
    bool (*is_here)(void); /* has this processor it? NULL: every processor has */
    int lanes;
    int chunk; /* packed weights are filled up to a multiple of it of input channels */
    int wgrad_least; /* wgrad.has_zeros serves from so many vectors of dy on; 0: never */
    /* The same for tensors of bf16; NULL in such a table. */
    const struct sp_cpu_isa *bf16;
    int (*n_panels)(int c_out);
    /* Packs the weights of one offset. is_transposed: w is [c_out][c_in]. */
    void (*pack)(const float *w, int c_in, int c_out, bool is_transposed,
                 float *packed);
    void (*unpack)(const float *packed, int c_in, int c_out, float *w, bool is_added);
    void (*conv_tile)(const sp_cpu_conv *conv, int tile);
    /* Adds to the panels that `thread` owns. */
    void (*wgrad)(const sp_cpu_wgrad *wgrad, int thread);

    /* Writes sums [2][c]: sum x, sum x^2. */
    void (*norm_sums)(sp_tensor x, int64_t row, int64_t end, double *sums);
    void (*norm_apply)(const sp_norm_args *a, int64_t row, int64_t end);
    /* Turns dy into g = dy * act'(y) and writes sums [2][c]: sum g, and sum
     * g * (x - mean), which the caller multiplies by inv_std. */
    void (*norm_grad_sums)(const sp_norm_grad_args *a, int64_t row, int64_t end,
                           double *sums);
    void (*norm_grad_apply)(const sp_norm_grad_args *a, int64_t row, int64_t end);
    void (*relu)(sp_tensor x, float slope, sp_tensor y, int64_t row, int64_t end);
    void (*relu_grad)(sp_tensor y, float slope, sp_tensor dy, sp_tensor dx,
                      bool is_added, int64_t row, int64_t end);
    /* Drops elements of one row. `block` is the generator's block of channel 0
     * (sp_dropout_block). */
    void (*dropout)(const sp_rng *rng, uint64_t block, float p, const void *x, int c,
                    void *y);
    void (*add)(sp_tensor x, sp_tensor y, int64_t row, int64_t end);
    /* y = x, or y += x, with at least one of them bf16; only in bf16's table. */
    void (*convert)(sp_tensor x, sp_tensor y, bool is_added, int64_t row, int64_t end);
    /* Writes sums [2], sum w * l and sum w, and prediction [n]. a->sums and the
     * confusion matrix are left to the caller, since threads would share them. */
    void (*loss)(const sp_loss_args *a, int32_t *prediction, int64_t row, int64_t end,
                 double *sums);
    void (*sgd)(const sp_optim_args *a, int64_t at, int64_t end);
    void (*adamw)(const sp_optim_args *a, int64_t at, int64_t end);
    double (*sum_squares)(const float *g, int64_t n);
    /* Writes the lists of rows of x, sp_cpu_list_bytes each, that conv_tile reads: for
     * each run of channels the number of those that are not zero, these, rising, and one
     * that is zero until the run is full. NULL in the tables for bf16. */
    void (*list_channels)(sp_tensor x, int64_t row, int64_t end, uint8_t *list);

    /* The ceilings that spbench divides by: multiply-adds in registers; y = y / 2 + x;
     * the same of both vectors in place; a sum of both vectors. The first returns the
     * number of operations, the others the bytes moved. */
    double (*multiply_add)(int64_t rounds);
    double (*stream)(const float *x, float *y, int64_t n);
    double (*update)(float *x, float *y, int64_t n);
    double (*read)(const float *x, const float *y, int64_t n);
} sp_cpu_isa;

/* The functions of a table by name, to make the versions' declarations and tables: for
 * products, packed weights and rows, and functions that only the tables for fp32 have.
 */
#define SP_CPU_PRODUCTS(X) X(conv_tile) X(wgrad) X(multiply_add)
#define SP_CPU_PACKING(X)  X(n_panels) X(pack) X(unpack)
#define SP_CPU_ROWS(X)                                                                 \
    X(norm_sums)                                                                       \
    X(norm_apply)                                                                      \
    X(norm_grad_sums) X(norm_grad_apply) X(relu) X(relu_grad) X(dropout) X(add)
#define SP_CPU_FP32(X)                                                                 \
    X(loss)                                                                            \
    X(sgd) X(adamw) X(sum_squares) X(list_channels) X(stream) X(update) X(read)
/* The type of such a function: SP_CPU_KERNEL(add) add; declares one. */
#define SP_CPU_KERNEL(slot) __typeof__(*((sp_cpu_isa *)0)->slot)

/* A version is in the build if config.h lists it in SP_CPU_ISAS. */
extern const sp_cpu_isa sp_portable_isa, sp_avx2_isa, sp_avx512_isa;
extern const sp_cpu_isa sp_avx512bf16_isa, sp_amx_isa;
extern const sp_cpu_isa sp_tiles_isa; /* in every build */

/* Scratch of one use at a time. */
typedef enum sp_cpu_use {
    SP_CPU_SUMS,    /* partial sums, lists of channels, the distribution of work */
    SP_CPU_ROUNDED, /* the operand of a product in bf16 that is stored in fp32 */
    SP_CPU_USES
} sp_cpu_use;

/* The private part of the CPU backend: be->impl points to it. */
typedef struct sp_cpu {
    const sp_cpu_isa *isa, *bf16; /* for tensors of fp32, of bf16 */
    double left_out;              /* see sp_cpu_reset_left_out */
    struct {
        void *data;
        size_t bytes;
    } scratch[SP_CPU_USES];
} sp_cpu;

static inline const sp_cpu_isa *sp_cpu_isa_of(const sp_backend *be)
{
    return ((const sp_cpu *)be->impl)->isa;
}

/* The kernels for tensors of this type. */
static inline const sp_cpu_isa *sp_cpu_rows_of(const sp_backend *be, sp_elem elem)
{
    const sp_cpu *cpu = (const sp_cpu *)be->impl;

    return elem == SP_ELEM_BF16 ? cpu->bf16 : cpu->isa;
}

/* The kernels of convolutions in be->precision. */
static inline const sp_cpu_isa *sp_cpu_products_of(const sp_backend *be)
{
    return sp_cpu_rows_of(be, be->precision == SP_BF16 ? SP_ELEM_BF16 : SP_ELEM_F32);
}

/* Chooses the tables, and be->sums if it is SP_SUMS_AUTO. SP_EUSAGE: SP_CPU_ISA. */
sp_status sp_cpu_choose(sp_backend *be, sp_cpu *cpu);

/* Least elements for several threads, and multiply-adds that take as long as one. With
 * a second thread an operation takes 8 us more of processor time, and 10 to 40 us until
 * both are done; 64 Ki elements in L2 take a thread 20. */
enum { SP_CPU_LEAST_SHARED = 64 << 10, SP_CPU_PRODUCTS = 16 };

/* The threads for an operation on so many elements: one or all, since OpenMP ends and
 * starts threads if teams of several sizes follow one another. */
static inline int sp_cpu_threads(const sp_backend *be, int64_t elements)
{
    return elements < SP_CPU_LEAST_SHARED ? 1 : be->threads;
}

/* The same for a tensor. */
static inline int sp_cpu_threads_of(const sp_backend *be, sp_tensor x)
{
    return sp_cpu_threads(be, x.n * x.c);
}

/* Lends scratch memory: at least `bytes` bytes, 64-byte aligned, valid until the next
 * call for the same use. The memory is kept and grown, so that a step allocates nothing
 * once the largest layer has run. Training thread only. SP_EMEM. */
sp_status sp_cpu_scratch_for(sp_backend *be, sp_cpu_use use, size_t bytes, void **out);
/* The bytes that are allocated for a request: a quarter more, so that batches of about
 * the same size do not grow it again and again. */
static inline size_t sp_cpu_scratch_size(size_t bytes)
{
    return (bytes + bytes / 4 + 63) / 64 * 64;
}
static inline sp_status sp_cpu_scratch(sp_backend *be, size_t bytes, void **out)
{
    return sp_cpu_scratch_for(be, SP_CPU_SUMS, bytes, out);
}

/* Cuts all samples, in order, into spans of `rows` rows, and returns the number of
 * spans. span NULL: only counts them. Sums are formed over spans of SP_CPU_ROW_BLOCK
 * rows, and tiles of maps are spans of SP_TILE rows: the cut depends only on the
 * sample. */
int sp_cpu_spans(const int32_t *sample_row, int n_samples, int rows, sp_cpu_span *span);

/* ---- a loss that is a sum of terms (cpu_loss_sum.c) ----
 * Adds to cross entropy: a->sums holds its sums when the call begins, predictions and
 * confusion are complete. a->label is not NULL. */
sp_status sp_cpu_loss_sum(sp_backend *be, const sp_loss_args *a);
/* Scratch of cross entropy by itself: sums of n_spans spans, predictions of `rows` rows
 * that the caller does not ask for. */
size_t sp_cpu_loss_rows_bytes(int64_t n_spans, int64_t rows);

/* ---- sums over rows, for each channel (cpu_norm.c) ----
 * They are formed over spans of SP_CPU_ROW_BLOCK rows and added in order. No span
 * straddles a tile, so a convolution can sum each tile while it is in L2, and the
 * result is the same bits. */
enum { SP_CPU_SPANS = (int)SP_TILE / (int)SP_CPU_ROW_BLOCK /* spans of a tile */ };
static_assert((int)SP_TILE % (int)SP_CPU_ROW_BLOCK == 0, "no span straddles a tile");

typedef struct sp_cpu_sums {
    int n, c;                      /* numbers of tiles, of channels */
    sp_cpu_span *tile;             /* [n] */
    double *part;                  /* [n][SP_CPU_SPANS][2][c] one partial sum a span */
    const sp_norm_grad_args *norm; /* sums of its backward pass; NULL: of x and x^2 */
} sp_cpu_sums;

/* Scratch of n_sums sums of c channels over n tiles. */
size_t sp_cpu_sums_bytes(int c, int64_t n, int n_sums);
/* Takes scratch for sums [n_sums] over the rows of all samples. SP_EMEM. */
sp_status sp_cpu_alloc_sums(sp_backend *be, int c, const int32_t *sample_row,
                            int n_samples, sp_cpu_sums *sums, int n_sums);
/* Sums span i of n * SP_CPU_SPANS; one without rows is left out. */
void sp_cpu_sum_span(const sp_cpu_isa *isa, sp_tensor x, const sp_cpu_sums *s, int i);
/* Writes the sums [n_samples][2][c] of the samples. */
void sp_cpu_add_sums(const sp_cpu_sums *s, int n_samples, double *sums);
/* Multiplies the second sums of a norm's backward pass by inv_std: norm_grad_sums of
 * sp_cpu_isa leaves that to its callers. */
void sp_cpu_norm_grad_scale(const sp_norm_grad_args *a);

static inline int64_t sp_cpu_blocks(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

#endif
