/* Convolutions on the device: the interface between the files of this folder.
 *
 *     weights --> cuda_conv_pack.cu, and the update of cuda_optim.cu
 *                                           |  packed: [units][n], or for wgmma
 *                                           |  [parts of k-tiles][n]
 *     x, map --> cuda_conv.cu               |  mma.sync (bf16, tf32) or fp32 FMA
 *            \-> cuda_conv_wgmma.cu         |  wgmma: wide bf16 layers on sm_90
 *                  cuda_conv_table.cuh      |  offsets and input rows of a tile
 *                  cuda_conv_load.cuh       |  copies to the stages, main loop
 *                  cuda_mma.cuh             v  stages in shared memory, products
 *                  cuda_conv_out.cuh        epilogue: y and the sums of batch norm
 *     x, dy, pairs --> cuda_wgrad.cu        weight gradient (cuda_wgrad.cuh)
 *                  \-> cuda_wgrad_wgmma.cu   wgmma: wide bf16 layers on sm_90
 *                  cuda_wgrad_block.cuh     items, copies to the stages
 *
 * Four families of tiles, and the place where a tile is added and chosen. On sm_90 bf16
 * calls that gain from it (cuda_wgmma_gains) go to wgmma, all others to mma.sync:
 *     mma.sync           CUDA_TILE_LIST of cuda_tile.h; cuda_tile_of (cuda_tiles.cu):
 *                        timed when the backend is opened, for 32, 64 .. 256 channels
 *                        at three numbers of rows, else by cuda_tile_by_formula
 *     fp32, narrow rows  launch_narrow of cuda_conv.cu; cuda_fewest_columns
 *     wgmma              launch_tiled of cuda_conv_wgmma.cu; cuda_wgmma_choose
 *     weight gradient    launches of cuda_wgrad.cu; cuda_wgrad_square, and with wgmma
 *                        cuda_wgrad_choose
 * tests/tools/cuda_code.py has limits for the machine code of each, and
 * tests/results/code-sm_90.txt shows it. All of them form the sums of batch norm by
 * CUDA_TILE_ROWS rows, so that no bit depends on the tile. The packed weights
 * [units][n], n the channels of the result, depend on precision, offsets, widths and
 * be->is_wgmma, never on the tile; weights with whole k-tiles (cuda_wgmma_tiled) are
 * swizzled for bulk copies in bf16 if wgmma is used.
 *
 * A unit is the slice of the inner dimension that one instruction of the tensor cores
 * multiplies (cuda_mma.cuh).
 */
#ifndef CUDA_CONV_CUH
#define CUDA_CONV_CUH

#include "cuda/conv/cuda_mma.cuh"
#include "cuda/conv/cuda_tile.h"
#include "cuda/device/cuda_rows.cuh"
#include "cuda/plan/cuda_map.h"

/* The inner dimension of a convolution with K offsets of c channels, in units of
 * CUDA_UNIT_BYTES. If c is small, offsets 2 i and 2 i + 1 share unit i and have a chunk
 * of it each. */
typedef struct cuda_units {
    bool is_shared;
    unsigned per_offset; /* units of an offset; 1 where shared */
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

/* Makes x an operand of the backend's precision: if the precision is bf16, fp32 rows
 * are copied to bf16 in the scratch; other tensors are unchanged. SP_EMEM. */
sp_status cuda_as_operand(sp_backend *be, sp_tensor *x);
/* Copies x to bf16 rows in the scratch that are aligned to 16 bytes. SP_EMEM. */
sp_status cuda_copy_operand(sp_backend *be, sp_tensor *x);

/* The properties of a call that the choice of tiles depends on (cuda_tile.h). */
static inline cuda_sms cuda_sms_of(sp_backend *be)
{
    return {cuda_of(be)->n_multiprocessors, cuda_of(be)->block_bytes};
}

/* The tile for a result of n rows and c channels by a kernel of K offsets. */
int cuda_tile_of(sp_backend *be, int64_t n, int c, int K);

#endif
