/* The CUDA backend as C code sees it. compute/sp_backend.h states the meaning of each
 * operation.
 *
 *     device   cuda_device.cu: open, copies; cuda_memory.cu: arenas; cuda_peak.cu
 *     plan     coordinates --> cuda_plan.cu, cuda_plan_levels.cu
 *                          --> cuda_plan_maps.cu, cuda_plan_lists.cu
 *                                                   |  kernel maps (cuda_map.h)
 *     conv     cuda_conv_pack.cu --> cuda_conv.cu, cuda_conv_wgmma.cu, cuda_wgrad.cu;
 *              cuda_tile.h lists their tiles, cuda_tiles.cu times them and chooses
 *     rows     cuda_norm.cu, cuda_sums.cu, cuda_pointwise.cu, cuda_pool.cu,
 *              cuda_loss.cu, cuda_optim.cu
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
 * what the last blocks of the input gradient leave idle. Operations that read or free
 * its operands wait for it (sp_backend_ops.join). The planner's thread waits on the
 * host for the sizes that it needs; the compute thread waits for neither stream.
 */
#ifndef CUDA_OPS_H
#define CUDA_OPS_H

#include "compute/sp_contract.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const sp_backend_ops sp_cuda_ops;
extern const struct sp_transport_ops *const sp_cuda_transports[];

/* ---- cuda_device.cu ---- */
SP_OP(open) sp_cuda_open;
SP_OP(close) sp_cuda_close;
SP_OP(upload) sp_cuda_upload;
SP_OP(download) sp_cuda_download;
SP_OP(fill) sp_cuda_fill;
SP_OP(wait) sp_cuda_wait;

/* ---- cuda_memory.cu ---- */
SP_OP(arena_pass) sp_cuda_arena_pass;
SP_OP(arena_create) sp_cuda_arena_create;
SP_OP(arena_destroy) sp_cuda_arena_destroy;
/* The host memory that belongs to a device arena: the part of a plan that the host
 * reads. */
sp_arena *sp_cuda_arena_host(sp_arena *arena);

/* ---- cuda_plan.cu, cuda_plan_bytes.c ---- */
SP_OP(plan_build) sp_cuda_plan_build;
SP_OP(plan_bytes) sp_cuda_plan_bytes;
SP_OP(plan_scratch_bytes) sp_cuda_plan_scratch_bytes;

/* ---- cuda_tiles.cu ---- */
sp_status sp_cuda_tiles_open(sp_backend *be);
/* Chooses the tiles for results of up to `widest` channels by timing them, each
 * `repeats` times; sp_cuda_tiles_open calls it on a device. Waits for the device. */
sp_status sp_cuda_tiles_measure(sp_backend *be, int widest, int repeats);

/* ---- cuda_conv.cu, cuda_wgrad.cu ---- */
SP_OP(conv_pack_floats) sp_cuda_conv_pack_floats;
SP_OP(fused_parts) sp_cuda_fused_parts;
SP_OP(join) sp_cuda_join;
SP_OP(conv_grad_weight_bytes) sp_cuda_conv_grad_weight_bytes;

/* ---- cuda_norm.cu ---- */
SP_OP(norm_finish) sp_cuda_norm_finish;
SP_OP(norm_grad_finish) sp_cuda_norm_grad_finish;

/* ---- cuda_sums.cu ---- */
SP_OP(add_samples) sp_cuda_add_samples;

/* ---- cuda/conv and cuda/rows: the operations that all backends have ---- */
#define SP_CUDA_DECLARE(slot) SP_OP(slot) sp_cuda_##slot;
SP_OPERATIONS(SP_CUDA_DECLARE)
#undef SP_CUDA_DECLARE

/* ---- cuda_peak.cu ---- */
SP_OP(clock_begin) sp_cuda_clock_begin;
SP_OP(clock_end) sp_cuda_clock_end;
SP_OP(peak) sp_cuda_peak;
SP_OP(memory_used) sp_cuda_memory_used;
SP_OP(scratch_drop) sp_cuda_scratch_drop;

/* ---- cuda_ranges.c ---- */
SP_OP(range_begin) sp_cuda_range_begin;
SP_OP(range_end) sp_cuda_range_end;

#ifdef __cplusplus
}
#endif
#endif
