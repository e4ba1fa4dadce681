/* Declarations that the files of the two CPU backends share.
 *
 *     src/backends/ref_*.c  plain loops in fp32: they define each operation, and are
 *                           the oracle of the tests (sp_ref_ops)
 *     src/cpu/cpu_*.c       the fast backend (sp_cpu_ops)
 *
 * A call of the fast backend goes through three layers:
 *
 *     cpu_conv.c, cpu_norm.c, ...   threads: OpenMP gives each tiles, spans of rows or
 *       |                           panels of weights; partial sums are added in order
 *       |  sp_cpu_isa (cpu_isa.h)   the kernels of the instruction set chosen at open
 *       v
 *     cpu_vec_*.c, src/bf16         vectors: one tile or range of rows, one thread
 *
 * Both backends build plans with sp_cpu_plan_build (cpu_plan.h draws it). Host memory
 * is the device's memory, and each operation is complete when it returns, so streams
 * and passes of an arena cost nothing. Results do not depend on the number of threads.
 */
#ifndef SP_CPU_H
#define SP_CPU_H

#include "compute/sp_contract.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const sp_backend_ops sp_cpu_ops; /* the fast backend */
extern const sp_backend_ops sp_ref_ops; /* plain loops */

/* ---- functions for both tables ---- */
SP_OP(arena_create) sp_cpu_arena_create;
SP_OP(arena_destroy) sp_cpu_arena_destroy;
SP_OP(upload) sp_cpu_move; /* and download */
SP_OP(fill) sp_cpu_fill;
SP_OP(wait) sp_cpu_wait;
SP_OP(arena_pass) sp_cpu_arena_pass;
SP_OP(plan_build) sp_cpu_plan_build;
SP_OP(plan_bytes) sp_cpu_plan_bytes;
SP_OP(plan_scratch_bytes) sp_cpu_plan_scratch_bytes;
SP_OP(join) sp_ref_join;
SP_OP(conv_grad_weight_bytes) sp_cpu_conv_grad_weight_bytes;
SP_OP(fused_parts) sp_cpu_fused_parts;
/* These three are too short to gain from vectors. */
SP_OP(norm_finish) sp_ref_norm_finish;
SP_OP(norm_grad_finish) sp_ref_norm_grad_finish;
SP_OP(add_samples) sp_ref_add_samples;
SP_OP(clock_begin) sp_cpu_clock_begin;
SP_OP(clock_end) sp_cpu_clock_end;
SP_OP(peak) sp_cpu_peak;
SP_OP(memory_used) sp_cpu_memory_used;
/* Their places in a table. */
#define SP_CPU_SHARED_OPS                                                              \
    .is_host = true, .arena_create = sp_cpu_arena_create,                              \
    .arena_destroy = sp_cpu_arena_destroy, .upload = sp_cpu_move,                      \
    .download = sp_cpu_move, .fill = sp_cpu_fill, .wait = sp_cpu_wait,                 \
    .arena_pass = sp_cpu_arena_pass, .plan_build = sp_cpu_plan_build,                  \
    .plan_bytes = sp_cpu_plan_bytes, .plan_scratch_bytes = sp_cpu_plan_scratch_bytes,  \
    .join = sp_ref_join, .conv_grad_weight_bytes = sp_cpu_conv_grad_weight_bytes,      \
    .norm_finish = sp_ref_norm_finish, .norm_grad_finish = sp_ref_norm_grad_finish,    \
    .fused_parts = sp_cpu_fused_parts, .add_samples = sp_ref_add_samples,              \
    .clock_begin = sp_cpu_clock_begin, .clock_end = sp_cpu_clock_end,                  \
    .peak = sp_cpu_peak, .memory_used = sp_cpu_memory_used

/* ---- functions of one table: plain loops (src/backends), the fast backend ---- */
SP_OP(conv_pack_floats) sp_ref_conv_pack_floats, sp_cpu_conv_pack_floats;
#define SP_CPU_DECLARE(slot) SP_OP(slot) sp_ref_##slot, sp_cpu_##slot;
SP_OPERATIONS(SP_CPU_DECLARE)
#undef SP_CPU_DECLARE

/* ---- used by both, outside the tables ---- */
/* The order of sums of products in bf16 that this processor is fast at, which open
 * takes where be->sums is SP_SUMS_AUTO. SP_CPU_ISA counts. Local. */
sp_bf16_sums sp_cpu_sums(void);
/* Bytes of the scratch for an operand that products in bf16 round. */
static inline size_t sp_cpu_rounded_bytes(int64_t n, int c)
{
    return (size_t)n * (size_t)c * sizeof(uint16_t);
}
/* sp_cpu_plan_build without vector instructions: the oracle of the tests. */
SP_OP(plan_build) sp_cpu_plan_build_portable;
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

/* The same of a tensor of bf16. */
static inline uint16_t *sp_row_bf16(sp_tensor t, int64_t i)
{
    return (uint16_t *)t.data + i * t.ld;
}

/* One element of a tensor of either type. Where the type does not change, compilers
 * move the test out of a loop. */
static inline float sp_get(sp_tensor t, int64_t i, int j)
{
    return t.elem == SP_ELEM_BF16 ? sp_bf16_to_float(sp_row_bf16(t, i)[j])
                                  : sp_row(t, i)[j];
}

static inline void sp_put(sp_tensor t, int64_t i, int j, float v)
{
    if (t.elem == SP_ELEM_BF16)
        sp_row_bf16(t, i)[j] = sp_bf16_of(v);
    else
        sp_row(t, i)[j] = v;
}

static inline char *sp_row_bytes(sp_tensor t, int64_t i)
{
    return (char *)t.data + i * t.ld * (int64_t)sp_elem_bytes(t.elem);
}

#ifdef __cplusplus
}
#endif
#endif
