/* The inner kernels of the CPU backend, compiled once per instruction set from
 * cpu_vec_*.c: AVX-512 (16 lanes), AVX2 (8) and portable C (4, the compiler's vector
 * extension). The one that runs is chosen when the backend opens: the best that this
 * processor has, or the one named by the environment variable SP_CPU_ISA (avx512, avx2,
 * portable). Threads are the callers' affair: a kernel works on a tile or a range of
 * rows alone.
 *
 * Packed weights: per offset, panels of nr * lanes output channels one after the other,
 * a panel [c_in][nr * lanes], padded with zeros. Rows of 1 KiB (256 channels) would map
 * a panel to a quarter of the L1 sets.
 */
#ifndef SP_CPU_ISA_H
#define SP_CPU_ISA_H

#include "cpu/cpu.h"
#include "base/sp_rng.h"

enum {
    SP_CPU_LANES = 16, /* the widest: packed buffers are padded to it */
    SP_CPU_ROW_BLOCK =
        256, /* rows of one partial sum; 256 channels of two tensors fit L2 */
    SP_CPU_FLAT_BLOCK = 4096 /* the same of flat vectors */
};

/* Row i of a tile is its own pair where there is no map. */
extern const int32_t sp_cpu_iota[SP_TILE];

/* Rows of one sample. */
typedef struct sp_cpu_span {
    int sample;
    int32_t row, end;
} sp_cpu_span;

/* Forward, or the input gradient with x = dy and y = dx. */
typedef struct sp_cpu_conv {
    const sp_map *map; /* NULL: kernel 1 */
    sp_tensor x, y;
    const float *w; /* packed */
    const float *bias;
    bool is_added;
    const sp_cpu_span *tile; /* of kernel 1; NULL: SP_TILE rows each */
} sp_cpu_conv;

typedef struct sp_cpu_wgrad {
    const sp_map *map; /* NULL: kernel 1, rows row .. end - 1 */
    sp_tensor x, dy;
    int tile0, tile1;
    int32_t row, end;
    float *dw;             /* [K] panels as packed weights, added to */
    const uint16_t *owner; /* [K][panels] thread that adds each panel */
} sp_cpu_wgrad;

/* Rows row .. end - 1 of the tensors. Sums are in double, row after row. */
typedef struct sp_cpu_isa {
    const char *name;
    int lanes;
    int (*n_panels)(int c_out);
    /* One offset; is_transposed: of w [c_out][c_in]. */
    void (*pack)(const float *w, int c_in, int c_out, bool is_transposed,
                 float *packed);
    void (*unpack_add)(const float *packed, int c_in, int c_out, float *w);
    void (*conv_tile)(const sp_cpu_conv *conv, int tile);
    void (*wgrad)(const sp_cpu_wgrad *wgrad, int thread); /* panels of that owner */

    /* sums [2][c]: written. */
    void (*norm_sums)(sp_tensor x, int64_t row, int64_t end, double *sums);
    void (*norm_apply)(const sp_norm_args *a, int64_t row, int64_t end);
    /* dy is masked; sums of g and of g * (x - mean), not yet times inv_std. */
    void (*norm_grad_sums)(const sp_norm_grad_args *a, int64_t row, int64_t end,
                           double *sums);
    void (*norm_grad_apply)(const sp_norm_grad_args *a, int64_t row, int64_t end);
    void (*relu)(sp_tensor x, float slope, sp_tensor y, int64_t row, int64_t end);
    void (*relu_grad)(sp_tensor y, float slope, sp_tensor dy, sp_tensor dx,
                      bool is_added, int64_t row, int64_t end);
    /* One row: block is that of channel 0 (sp_dropout_block). */
    void (*dropout)(const sp_rng *rng, uint64_t block, float p, const float *x, int c,
                    float *y);
    void (*add)(sp_tensor x, sp_tensor y, int64_t row, int64_t end);
    /* sums [2]: w * l and w, written; prediction [n] too. a->sums is not touched, nor
     * is the confusion. */
    void (*loss)(const sp_loss_args *a, int32_t *prediction, int64_t row, int64_t end,
                 double *sums);
    void (*sgd)(const sp_optim_args *a, int64_t at, int64_t end);
    void (*adamw)(const sp_optim_args *a, int64_t at, int64_t end);
    double (*sum_squares)(const float *g, int64_t n);

    /* Ceilings (spbench): multiply-adds in registers; y = y / 2 + x; the same of both
     * in place; a sum of both. They return the operations done and the bytes moved. */
    double (*multiply_add)(int64_t rounds);
    double (*stream)(const float *x, float *y, int64_t n);
    double (*update)(float *x, float *y, int64_t n);
    double (*read)(const float *x, const float *y, int64_t n);
} sp_cpu_isa;

extern const sp_cpu_isa sp_portable_isa;
extern const sp_cpu_isa sp_avx2_isa, sp_avx512_isa; /* with SP_HAVE_SIMD_X86 */

/* What be->impl points to. */
typedef struct sp_cpu {
    const sp_cpu_isa *isa;
    void *scratch;
    size_t scratch_bytes;
} sp_cpu;

static inline const sp_cpu_isa *sp_cpu_isa_of(const sp_backend *be)
{
    return ((const sp_cpu *)be->impl)->isa;
}

/* At least `bytes` bytes, 64-byte aligned, valid until the next call; kept and grown,
 * so that a step allocates nothing once the largest layer was seen. Training thread
 * only. SP_EMEM. */
sp_status sp_cpu_scratch(sp_backend *be, size_t bytes, void **out);

/* All samples in order, each cut into spans of `rows` rows; span NULL: their number
 * only. Sums are taken over spans of SP_CPU_ROW_BLOCK rows, tiles of maps are those of
 * SP_TILE rows: the cut depends on the sample alone. */
int sp_cpu_spans(const int32_t *sample_row, int n_samples, int rows, sp_cpu_span *span);

static inline int64_t sp_cpu_blocks(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}
static inline int64_t sp_cpu_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
