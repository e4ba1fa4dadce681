/* The CUDA backend as C code sees it. compute/sp_backend.h states the meaning of each
 * operation.
 *
 *     device   cuda_device.cu: open, copies; cuda_memory.cu: arenas; cuda_peak.cu
 *     plan     coordinates --> cuda_plan.cu --> cuda_plan_maps.cu, cuda_plan_lists.cu
 *                                                   |  kernel maps (cuda_map.h)
 *     conv     cuda_conv_pack.cu --> cuda_conv.cu, cuda_conv_wgmma.cu, cuda_wgrad.cu
 *     rows     batch norm, pointwise operations, pools, loss, update rules
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

#include "compute/sp_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const sp_backend_ops sp_cuda_ops;
extern const struct sp_transport_ops *const sp_cuda_transports[];

int sp_cuda_device_count(void); /* 0 without a driver, or with one that is too old */
void sp_cuda_why_none(char *text, size_t size); /* writes why there are none */
int sp_cuda_toolkit(void);                      /* version, 1000 major + 10 minor */
sp_status sp_cuda_device(int i, sp_device *device);

/* ---- cuda_device.cu ---- */
sp_status sp_cuda_open(sp_backend *be, int device, int threads);
void sp_cuda_close(sp_backend *be);
sp_status sp_cuda_upload(sp_backend *be, void *to, const void *from_host, size_t bytes);
sp_status sp_cuda_download(sp_backend *be, void *to_host, const void *from,
                           size_t bytes);
sp_status sp_cuda_fill(sp_backend *be, void *data, int byte, size_t bytes);
sp_status sp_cuda_wait(sp_backend *be);

/* ---- cuda_memory.cu ---- */
sp_status sp_cuda_arena_pass(sp_backend *be, sp_arena *arena, sp_pass pass);
sp_status sp_cuda_arena_create(sp_arena *arena, size_t reserve, const char *name);
void sp_cuda_arena_destroy(sp_arena *arena);
/* The host memory that belongs to a device arena: the part of a plan that the host
 * reads. */
sp_arena *sp_cuda_arena_host(sp_arena *arena);

/* ---- cuda_plan.cu ---- */
sp_status sp_cuda_plan_build(sp_backend *be, const sp_plan_spec *spec,
                             const int32_t *coords, const int32_t *sample_row,
                             int n_samples, sp_arena *arena, sp_plan *plan);
int64_t sp_cuda_plan_bytes(const sp_plan_spec *spec, int n_samples,
                           const int64_t *voxels, const int64_t *pairs);

/* ---- cuda_tiles.cu ---- */
sp_status sp_cuda_tiles_open(sp_backend *be);
/* Chooses the tiles for results of up to `widest` channels by timing them, each
 * `repeats` times; tiles_open calls it on a device. Waits for the device. */
sp_status sp_cuda_tiles_measure(sp_backend *be, int widest, int repeats);

/* ---- cuda_conv.cu, cuda_wgrad.cu ---- */
size_t sp_cuda_conv_pack_floats(const sp_backend *be, int K, int c_in, int c_out,
                                bool is_grad_input);
sp_status sp_cuda_conv_pack(sp_backend *be, const sp_pack_args *args, int n_args);
sp_status sp_cuda_conv_forward(sp_backend *be, const sp_conv_args *args);
sp_status sp_cuda_conv_grad_input(sp_backend *be, const sp_conv_args *args);
sp_parts sp_cuda_fused_parts(int64_t n_rows, int n_samples);
sp_status sp_cuda_conv_forward_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                         const int32_t *sample_row, int n_samples,
                                         double *sums);
sp_status sp_cuda_conv_grad_input_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                            const sp_norm_grad_args *norm,
                                            const sp_norm_grad_args *residual);
sp_status sp_cuda_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *args);
sp_status sp_cuda_join(sp_backend *be);
int64_t sp_cuda_plan_scratch_bytes(const sp_plan_spec *spec, const int64_t *voxels,
                                   int64_t above, const int64_t *pairs);
int64_t sp_cuda_conv_grad_weight_bytes(const sp_backend *be, int K, int c_in, int c_out,
                                       int n_samples, int64_t pairs);

/* ---- cuda_norm.cu ---- */
sp_status sp_cuda_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                            int n_samples, double *sums);
sp_status sp_cuda_norm_finish(sp_backend *be, const sp_norm_finish_args *args);
sp_status sp_cuda_norm_apply(sp_backend *be, const sp_norm_args *args);
sp_status sp_cuda_norm_grad_sums(sp_backend *be, const sp_norm_grad_args *args);
sp_status sp_cuda_norm_grad_finish(sp_backend *be,
                                   const sp_norm_grad_finish_args *args);
sp_status sp_cuda_norm_grad_apply(sp_backend *be, const sp_norm_grad_args *args);

/* ---- cuda_sums.cu ---- */
sp_status sp_cuda_add_samples(sp_backend *be, const double *sums, int n_samples, int m,
                              double n_rows, double *out, bool is_added);

/* ---- cuda_pointwise.cu ---- */
sp_status sp_cuda_relu(sp_backend *be, sp_tensor x, float slope, sp_tensor y);
sp_status sp_cuda_relu_grad(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                            sp_tensor dx, bool is_added);
sp_status sp_cuda_copy(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added);
sp_status sp_cuda_dropout(sp_backend *be, sp_tensor x, float p, uint64_t seed,
                          uint64_t epoch, int layer, const int64_t *sample_id,
                          const int32_t *sample_row, int n_samples, sp_tensor y);

/* ---- cuda_pool.cu ---- */
sp_status sp_cuda_pool(sp_backend *be, const sp_pool_args *args);
sp_status sp_cuda_pool_grad(sp_backend *be, const sp_pool_args *args);
sp_status sp_cuda_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                              int n_samples, int32_t *argmax, sp_tensor y);
sp_status sp_cuda_global_pool_grad(sp_backend *be, sp_tensor dy,
                                   const int32_t *sample_row, int n_samples,
                                   const int32_t *argmax, sp_tensor dx);
sp_status sp_cuda_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                            int n_samples, sp_tensor y);
sp_status sp_cuda_broadcast_grad(sp_backend *be, sp_tensor dy,
                                 const int32_t *sample_row, int n_samples,
                                 sp_tensor dx);

/* ---- cuda_loss.cu, cuda_optim.cu ---- */
sp_status sp_cuda_loss(sp_backend *be, const sp_loss_args *args);
sp_status sp_cuda_sgd(sp_backend *be, const sp_optim_args *args);
sp_status sp_cuda_adamw(sp_backend *be, const sp_optim_args *args);
sp_status sp_cuda_sum_squares(sp_backend *be, const float *g, int64_t n, double *sum);

/* ---- cuda_peak.cu ---- */
sp_status sp_cuda_clock_begin(sp_backend *be);
sp_status sp_cuda_clock_end(sp_backend *be, double *seconds);
sp_status sp_cuda_peak(sp_backend *be, const sp_peak_args *args, double *work);
sp_status sp_cuda_memory_used(sp_backend *be, int64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
