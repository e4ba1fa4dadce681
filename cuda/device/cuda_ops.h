/* The CUDA backend as C code sees it. compute/sp_backend.h states the meaning of each
 * operation.
 *
 *     device   cuda_device.cu: open, copies; cuda_memory.cu: arenas; cuda_peak.cu
 *     plan     coordinates --> cuda_plan.cu, cuda_plan_levels.cu
 *                          --> cuda_plan_maps.cu, cuda_plan_lists.cu
 *                                                   |  kernel maps (cuda_map.h)
 *     conv     cuda_conv_pack.cu --> cuda_conv.cu, cuda_conv_wgmma.cu;
 *              cuda_wgrad.cu, cuda_wgrad_wgmma.cu; cuda_tile.h lists their tiles,
 *              cuda_tiles.cu times them and chooses
 *     rows     cuda_norm.cu, cuda_sums.cu, cuda_pointwise.cu, cuda_pool.cu,
 *              cuda_interpolate.cu, cuda_loss.cu, cuda_optim.cu
 *     reduce   sums over ranks: NCCL, MPI through pinned memory, peer memory
 *
 * Every sum has one fixed order; there are no floating-point atomics.
 *
 * Streams. The thread that called open is the compute thread. Its calls are queued in
 * the compute stream and return at once, except download and wait. Uploads and plans of
 * other threads (the loader's planners) are queued in the plan stream, which has the
 * lowest priority, so that they use the parts of the device that the step leaves idle.
 * Two events of each batch arena pass it from one stream to the other
 * (sp_backend_ops.arena_pass), so a plan waits only for the step that last used its
 * arena:
 *
 *     plan      fill 0   fill 1  |wait| fill 0         fill 1 ...
 *                  |filled   \_____  ^used   \________
 *     compute      +-> step 0     +-> step 1         +-> step 0 ...
 *
 * A weight gradient is queued in a side stream, of the lowest priority too, and uses
 * the places left idle by the last blocks of the input gradient. Operations that read
 * or free its operands wait for it (sp_backend_ops.join). The planner's thread waits on
 * the host for the sizes that it needs; the compute thread waits for neither stream.
 */
#ifndef CUDA_OPS_H
#define CUDA_OPS_H

#include "compute/sp_contract.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const sp_backend_ops sp_cuda_ops;
extern const struct sp_transport_ops *const sp_cuda_transports[];

/* The slots that this backend has beside SP_OPERATIONS, by the file of their functions,
 * sp_cuda_<slot>. */
#define SP_CUDA_SLOTS(X)                                                               \
    /* cuda_device.cu */                                                               \
    X(open) X(close) X(upload) X(download) X(fill) X(wait) X(scratch_drop)             \
    /* cuda_memory.cu */                                                               \
    X(arena_pass) X(arena_create) X(arena_destroy)                                     \
    /* cuda_plan.cu */                                                                 \
    X(plan_build) X(plan_bytes)                                                        \
    /* cuda_conv.cu, cuda_conv_pack.cu, cuda_wgrad.cu */                               \
    X(conv_pack_floats) X(fused_parts) X(join) X(conv_bytes)                           \
    /* cuda_norm.cu, cuda_sums.cu, cuda_loss_sum.cu */                                 \
    X(norm_finish) X(norm_grad_finish) X(add_samples) X(loss_bytes)                    \
    /* cuda_peak.cu, cuda_ranges.c */                                                  \
    X(clock_begin) X(clock_end) X(peak) X(memory_used) X(range_begin) X(range_end)

#define SP_CUDA_DECLARE(slot) SP_OP(slot) sp_cuda_##slot;
SP_CUDA_SLOTS(SP_CUDA_DECLARE)
SP_OPERATIONS(SP_CUDA_DECLARE)
#undef SP_CUDA_DECLARE

/* Adds the terms of a loss to cross entropy (cuda_loss_sum.cu): args->sums holds its
 * sums when the call begins, predictions and confusion are complete. args->label is not
 * NULL. */
sp_status sp_cuda_loss_sum(sp_backend *be, const sp_loss_args *args);

/* The host memory that belongs to a device arena: the part of a plan that the host
 * reads. */
sp_arena *sp_cuda_arena_host(sp_arena *arena);

/* ---- cuda_tiles.cu ---- */
sp_status sp_cuda_tiles_open(sp_backend *be);
/* Chooses the tiles for results of up to `widest` channels by timing them, each
 * `repeats` times; sp_cuda_tiles_open calls it on a device. Waits for the device. */
sp_status sp_cuda_tiles_measure(sp_backend *be, int widest, int repeats);

#ifdef __cplusplus
}
#endif
#endif
