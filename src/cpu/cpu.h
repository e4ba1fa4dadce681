/* Declarations that the files of the two CPU backends share.
 *
 *     src/backends/ref_*.c  plain loops: they define each operation, and are the oracle
 *                           of the tests (sp_ref_ops)
 *     src/cpu/cpu_*.c       the fast backend (sp_cpu_ops)
 *
 * A call of the fast backend goes through three layers:
 *
 *     cpu_conv.c, cpu_norm.c, ...   threads: OpenMP gives each tiles, spans of rows or
 *       |                           panels of weights; partial sums are added in order
 *       |  sp_cpu_isa (cpu_isa.h)   the kernels of the instruction set chosen at open
 *       v
 *     cpu_vec_*.c                   vectors: one tile or range of rows, one thread
 *
 * Both backends build plans with sp_cpu_plan_build (cpu_plan.h draws it). Host memory
 * is the device's memory, and each operation is complete when it returns, so streams
 * and passes of an arena cost nothing. Results do not depend on the number of threads.
 */
#ifndef SP_CPU_H
#define SP_CPU_H

#include "compute/sp_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const sp_backend_ops sp_cpu_ops; /* the fast backend */
extern const sp_backend_ops sp_ref_ops; /* plain loops */

/* ---- shared by both; meanings in sp_backend.h ---- */
sp_status sp_cpu_arena_create(sp_arena *arena, size_t reserve, const char *name);
void sp_cpu_arena_destroy(sp_arena *arena);
sp_status sp_cpu_move(sp_backend *be, void *to, const void *from, size_t bytes);
sp_status sp_cpu_fill(sp_backend *be, void *data, int byte, size_t bytes);
sp_status sp_cpu_wait(sp_backend *be);
sp_status sp_cpu_clock_begin(sp_backend *be);
sp_status sp_cpu_clock_end(sp_backend *be, double *seconds);
sp_status sp_cpu_peak(sp_backend *be, const sp_peak_args *args, double *work);
sp_status sp_cpu_memory_used(sp_backend *be, int64_t *bytes);
sp_status sp_cpu_arena_pass(sp_backend *be, sp_arena *arena, sp_pass pass);
sp_parts sp_cpu_fused_parts(int64_t n_rows, int n_samples);
sp_status sp_cpu_plan_build(sp_backend *be, const sp_plan_spec *spec,
                            const int32_t *coords, const int32_t *sample_row,
                            int n_samples, sp_arena *arena, sp_plan *plan);
/* sp_cpu_plan_build without vector instructions: the oracle of the tests. */
sp_status sp_cpu_plan_build_portable(sp_backend *be, const sp_plan_spec *spec,
                                     const int32_t *coords, const int32_t *sample_row,
                                     int n_samples, sp_arena *arena, sp_plan *plan);

int64_t sp_cpu_plan_bytes(const sp_plan_spec *spec, int n_samples,
                          const int64_t *voxels, const int64_t *pairs);
int64_t sp_cpu_plan_scratch_bytes(const sp_plan_spec *spec, const int64_t *voxels,
                                  int64_t above, const int64_t *pairs);
int64_t sp_cpu_conv_grad_weight_bytes(const sp_backend *be, int K, int c_in, int c_out,
                                      int n_samples, int64_t pairs);
/* Finds the least and largest coordinates of c [n][3], n > 0. SP_EDATA: a coordinate is
 * out of range; the message names sample and axis. */
sp_status sp_cpu_plan_range(const int32_t *c, int32_t n, int sample, int32_t lo[3],
                            int32_t hi[3]);

/* The first row of a sample among the output rows of a map, or by sample_row where map
 * is NULL. sample may be n_samples: the end of the last sample. */
static inline int32_t sp_cpu_first_row(const sp_map *map, const int32_t *sample_row,
                                       int sample)
{
    return map ? map->tile_row[map->sample_tile[sample]] : sample_row[sample];
}

static inline float *sp_row(sp_tensor t, int64_t i)
{
    return t.data + i * t.ld;
}

/* ---- plain loops (src/backends); meanings in sp_backend.h ---- */
size_t sp_ref_conv_pack_floats(const sp_backend *be, int K, int c_in, int c_out,
                               bool is_grad_input);
sp_status sp_ref_conv_pack(sp_backend *be, const sp_pack_args *args, int n_args);
sp_status sp_ref_conv_forward(sp_backend *be, const sp_conv_args *args);
sp_status sp_ref_conv_grad_input(sp_backend *be, const sp_conv_args *args);
sp_status sp_ref_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *args);
sp_status sp_ref_join(sp_backend *be);
sp_status sp_ref_conv_forward_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                        const int32_t *sample_row, int n_samples,
                                        double *sums);
/* Composed of the plain operations of be->ops, so the fast backend uses it as well. */
sp_status sp_ref_conv_grad_input_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                           const sp_norm_grad_args *norm,
                                           const sp_norm_grad_args *residual);

sp_status sp_ref_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, double *sums);
sp_status sp_ref_norm_apply(sp_backend *be, const sp_norm_args *args);
sp_status sp_ref_norm_grad_sums(sp_backend *be, const sp_norm_grad_args *args);
sp_status sp_ref_norm_grad_apply(sp_backend *be, const sp_norm_grad_args *args);
/* The fast backend uses these three as well: they are too short to gain from vectors.
 */
sp_status sp_ref_norm_finish(sp_backend *be, const sp_norm_finish_args *args);
sp_status sp_ref_norm_grad_finish(sp_backend *be, const sp_norm_grad_finish_args *args);
sp_status sp_ref_add_samples(sp_backend *be, const double *sums, int n_samples, int m,
                             double n_rows, double *out, bool is_added);

sp_status sp_ref_relu(sp_backend *be, sp_tensor x, float slope, sp_tensor y);
sp_status sp_ref_relu_grad(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                           sp_tensor dx, bool is_added);
sp_status sp_ref_copy(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added);
sp_status sp_ref_dropout(sp_backend *be, sp_tensor x, float p, uint64_t seed,
                         uint64_t epoch, int layer, const int64_t *sample_id,
                         const int32_t *sample_row, int n_samples, sp_tensor y);

sp_status sp_ref_pool(sp_backend *be, const sp_pool_args *args);
sp_status sp_ref_pool_grad(sp_backend *be, const sp_pool_args *args);
sp_status sp_ref_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                             int n_samples, int32_t *argmax, sp_tensor y);
sp_status sp_ref_global_pool_grad(sp_backend *be, sp_tensor dy,
                                  const int32_t *sample_row, int n_samples,
                                  const int32_t *argmax, sp_tensor dx);
sp_status sp_ref_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, sp_tensor y);
sp_status sp_ref_broadcast_grad(sp_backend *be, sp_tensor dy, const int32_t *sample_row,
                                int n_samples, sp_tensor dx);

sp_status sp_ref_loss(sp_backend *be, const sp_loss_args *args);
sp_status sp_ref_sgd(sp_backend *be, const sp_optim_args *args);
sp_status sp_ref_adamw(sp_backend *be, const sp_optim_args *args);
sp_status sp_ref_sum_squares(sp_backend *be, const float *g, int64_t n, double *sum);

/* ---- the fast backend; meanings in sp_backend.h ---- */
size_t sp_cpu_conv_pack_floats(const sp_backend *be, int K, int c_in, int c_out,
                               bool is_grad_input);
sp_status sp_cpu_conv_pack(sp_backend *be, const sp_pack_args *args, int n_args);
sp_status sp_cpu_conv_forward(sp_backend *be, const sp_conv_args *args);
sp_status sp_cpu_conv_forward_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                        const int32_t *sample_row, int n_samples,
                                        double *sums);
sp_status sp_cpu_conv_grad_input(sp_backend *be, const sp_conv_args *args);
sp_status sp_cpu_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *args);

sp_status sp_cpu_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, double *sums);
sp_status sp_cpu_norm_apply(sp_backend *be, const sp_norm_args *args);
sp_status sp_cpu_norm_grad_sums(sp_backend *be, const sp_norm_grad_args *args);
sp_status sp_cpu_norm_grad_apply(sp_backend *be, const sp_norm_grad_args *args);

sp_status sp_cpu_relu(sp_backend *be, sp_tensor x, float slope, sp_tensor y);
sp_status sp_cpu_relu_grad(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                           sp_tensor dx, bool is_added);
sp_status sp_cpu_copy(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added);
sp_status sp_cpu_dropout(sp_backend *be, sp_tensor x, float p, uint64_t seed,
                         uint64_t epoch, int layer, const int64_t *sample_id,
                         const int32_t *sample_row, int n_samples, sp_tensor y);

sp_status sp_cpu_pool(sp_backend *be, const sp_pool_args *args);
sp_status sp_cpu_pool_grad(sp_backend *be, const sp_pool_args *args);
sp_status sp_cpu_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                             int n_samples, int32_t *argmax, sp_tensor y);
sp_status sp_cpu_global_pool_grad(sp_backend *be, sp_tensor dy,
                                  const int32_t *sample_row, int n_samples,
                                  const int32_t *argmax, sp_tensor dx);
sp_status sp_cpu_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, sp_tensor y);
sp_status sp_cpu_broadcast_grad(sp_backend *be, sp_tensor dy, const int32_t *sample_row,
                                int n_samples, sp_tensor dx);

sp_status sp_cpu_loss(sp_backend *be, const sp_loss_args *args);
sp_status sp_cpu_sgd(sp_backend *be, const sp_optim_args *args);
sp_status sp_cpu_adamw(sp_backend *be, const sp_optim_args *args);
sp_status sp_cpu_sum_squares(sp_backend *be, const float *g, int64_t n, double *sum);

#ifdef __cplusplus
}
#endif
#endif
