/* Declarations that the files of the CPU backend share. compute/sp_backend.h says what
 * each operation means; the tests hold this backend to plain loops
 * (tests/reference/ref_backend.h).
 *
 * A call goes through three layers:
 *
 *     cpu_conv.c, cpu_norm.c, ...   threads: OpenMP gives each tiles, spans of rows or
 *       |                           panels of weights; partial sums are added in order
 *       |  sp_cpu_isa (cpu_isa.h)   the kernels of the instruction set chosen at open
 *       v
 *     cpu_vec_*.c, src/bf16         vectors: one tile or range of rows, one thread
 *
 * Plans are built by sp_cpu_plan_build (cpu_plan.h draws it). Host memory is the
 * device's memory, and each operation is complete when it returns, so streams and
 * passes of an arena cost nothing. Results do not depend on the number of threads.
 */
#ifndef SP_CPU_H
#define SP_CPU_H

#include "compute/sp_contract.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const sp_backend_ops sp_cpu_ops;

/* The slots that this backend fills by functions sp_cpu_<slot>, beside SP_OPERATIONS;
 * the functions of the others are in cpu_backend.c. */
#define SP_CPU_SLOTS(X)                                                                \
    X(plan_build)                                                                      \
    X(plan_bytes)                                                                      \
    X(conv_pack_floats)                                                                \
    X(norm_finish)                                                                     \
    X(norm_grad_finish) X(add_samples) X(clock_begin) X(clock_end) X(peak)             \
        X(memory_used) X(conv_bytes) X(loss_bytes)

#define SP_CPU_DECLARE(slot) SP_OP(slot) sp_cpu_##slot;
SP_CPU_SLOTS(SP_CPU_DECLARE)
SP_OPERATIONS(SP_CPU_DECLARE)
#undef SP_CPU_DECLARE

/* ---- outside the table ---- */
/* The order of sums of products in bf16 that this processor is fast at, which open uses
 * if be->sums is SP_SUMS_AUTO. SP_CPU_ISA counts. Local. */
sp_bf16_sums sp_cpu_order(void);
/* The instruction set in which this process would compute: the processor's best one, or
 * the one named by SP_CPU_ISA. Ranks with a lower one sum in another order, so all
 * agree on the lowest (sp_cpu_lower), before the backend opens. Local. */
typedef enum sp_cpu_level { SP_CPU_PORTABLE, SP_CPU_AVX2, SP_CPU_AVX512 } sp_cpu_level;
sp_cpu_level sp_cpu_level_of(void);
/* The value of SP_CPU_ISA for a level. */
const char *sp_cpu_level_name(sp_cpu_level level);
/* Lets this process compute in this lower level from now on. Local. */
void sp_cpu_lower(sp_cpu_level level);
/* Has this processor the instructions of x86-64 that these kernels use? For AMX, which
 * the system must grant: may this process use its tiles? That holds for all threads,
 * also those to come. Local. Only in builds that have such kernels (cpu_x86.c). */
bool sp_cpu_has_avx2(void);
bool sp_cpu_has_avx512(void);
bool sp_cpu_has_avx512bf16(void);
bool sp_cpu_has_amx(void);
/* Returns how many multiply-adds convolutions left out since the last call, since a
 * channel is zero: about, by some rows of each. */
double sp_cpu_reset_left_out(sp_backend *be);
/* sp_cpu_plan_build without vector instructions: the oracle of the tests. */
SP_OP(plan_build) sp_cpu_plan_build_portable;
/* Finds the least and largest coordinates of c [n][3], n > 0. SP_EDATA: a coordinate is
 * out of range; the message names sample and axis. */
sp_status sp_cpu_plan_range(const int32_t *c, int32_t n, int sample, int32_t lo[3],
                            int32_t hi[3]);

/* SP_EDATA: two of the keys [n] of a sample, which rise, are equal; the message names
 * the coordinate and its rows in the sample. The sample begins at row `first` of c
 * [][3]; order [n] is the row of each key. */
sp_status sp_cpu_plan_check(const int32_t *c, int32_t first, int32_t n, int sample,
                            const uint64_t *key, const int32_t *order);

/* The first row of a sample among the output rows of a map, or by sample_row if map is
 * NULL. sample may be n_samples: the end of the last sample. */
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

/* One element of a tensor of either type. If the type does not change, compilers
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
