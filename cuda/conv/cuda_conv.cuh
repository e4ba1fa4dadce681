/* How weights are packed (cuda_conv_pack.cu) and which tile is taken (cuda_tiles.cu):
 * between the files of the convolution. */
#ifndef CUDA_CONV_CUH
#define CUDA_CONV_CUH

#include "cuda/plan/cuda_map.h"
#include "cuda/conv/cuda_mma.cuh"
#include "cuda/device/cuda_rows.cuh"

/* The inner dimension of a convolution with K offsets of c channels, in units of
 * CUDA_UNIT_BYTES. Few channels: offsets 2 i and 2 i + 1 share unit i, a chunk each. */
typedef struct cuda_units {
    bool is_shared;
    unsigned per_offset; /* 1 where shared */
    size_t n;
} cuda_units;

static inline cuda_units cuda_conv_units(sp_precision precision, int K, int c)
{
    const int chunk = CUDA_CHUNK_BYTES / (precision == SP_BF16 ? 2 : 4);
    cuda_units u = {c <= chunk, 1, ((size_t)K + 1) / 2};

    if (!u.is_shared) {
        u.per_offset = (unsigned)((c + 2 * chunk - 1) / (2 * chunk));
        u.n = (size_t)K * u.per_offset;
    }
    return u;
}

/* What the tensor cores read under the backend's precision: fp32 rows are copied to
 * bf16 in the scratch where it is bf16; others stay. */
sp_status cuda_as_operand(sp_backend *be, sp_tensor *x);

/* Tiles of the tensor cores by columns, of 4 warps or of 8 (cuda_conv.cu). First those
 * that the formula takes. 96 columns do not divide among the threads of 8 warps. */
enum {
    CUDA_TILE_32,
    CUDA_TILE_64,
    CUDA_TILE_96,
    CUDA_TILE_128,
    CUDA_TILE_64_8,
    CUDA_TILE_128_8,
    CUDA_TILES
};

/* Which of them a result of n rows and c channels takes. */
int cuda_tile_of(sp_backend *be, int64_t n, int c);

/* The formula: which of `columns`, rising, has the fewest in all for c channels, with
 * 64 more for each time that rows are gathered. */
int cuda_fewest_columns(int c, const int *columns, int n);

#endif
