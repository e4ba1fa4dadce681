/* The fast CPU backend: table of operations, arenas, start. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "config.h"
#include "cpu/cpu_isa.h"

sp_status sp_cpu_arena_create(sp_arena *arena, size_t reserve, const char *name)
{
    return sp_arena_create(arena, reserve, name);
}

void sp_cpu_arena_destroy(sp_arena *arena)
{
    sp_arena_destroy(arena);
}

sp_status sp_cpu_move(sp_backend *be, void *to, const void *from, size_t bytes)
{
    (void)be;
    if (bytes)
        memcpy(to, from, bytes);
    return SP_OK;
}

sp_status sp_cpu_fill(sp_backend *be, void *data, int byte, size_t bytes)
{
    (void)be;
    if (bytes)
        memset(data, byte, bytes);
    return SP_OK;
}

sp_status sp_cpu_wait(sp_backend *be)
{
    (void)be;
    return SP_OK;
}

/* Operations are complete when they return, so no pass has to wait. */
sp_status sp_cpu_arena_pass(sp_backend *be, sp_arena *arena, sp_pass pass)
{
    (void)be, (void)arena, (void)pass;
    return SP_OK;
}

/* Each part is a sample, so fused sums are those of the plain operations to the bit. */
sp_parts sp_cpu_fused_parts(int64_t n_rows, int n_samples)
{
    (void)n_rows;
    return (sp_parts){.n = n_samples};
}

/* No scratch: sums over samples and rows are formed in dw itself. */
int64_t sp_cpu_conv_grad_weight_bytes(const sp_backend *be, int K, int c_in, int c_out,
                                      int n_samples, int64_t pairs)
{
    (void)be, (void)K, (void)c_in, (void)c_out, (void)n_samples, (void)pairs;
    return 0;
}

sp_status sp_cpu_scratch_for(sp_backend *be, sp_cpu_use use, size_t bytes, void **out)
{
    sp_cpu *cpu = be->impl;

    if (bytes > cpu->scratch[use].bytes) {
        const size_t size = (bytes + bytes / 4 + 63) / 64 * 64;
        free(cpu->scratch[use].data);
        cpu->scratch[use].bytes = 0;
        cpu->scratch[use].data = aligned_alloc(64, size);
        if (!cpu->scratch[use].data)
            return SP_FAIL(
                SP_EMEM, "no memory for %zu bytes of scratch of the CPU backend", size);
        cpu->scratch[use].bytes = size;
    }
    *out = cpu->scratch[use].data;
    return SP_OK;
}

int sp_cpu_spans(const int32_t *sample_row, int n_samples, int rows, sp_cpu_span *span)
{
    int n = 0;

    for (int b = 0; b < n_samples; b++)
        for (int32_t row = sample_row[b], end; row < sample_row[b + 1];
             row = end, n++) {
            end = (int32_t)sp_cpu_least((int64_t)row + rows, sample_row[b + 1]);
            if (span)
                span[n] = (sp_cpu_span){b, row, end};
        }
    return n;
}

/* ---- start ---- */

/* The instruction sets of this build, best first. */
static const sp_cpu_isa *const all_isas[] = {
#ifdef SP_HAVE_SIMD_X86
    &sp_avx512_isa,
    &sp_avx2_isa,
#endif
    &sp_portable_isa,
};
enum { N_ISAS = sizeof all_isas / sizeof *all_isas };

static bool has_isa(const sp_cpu_isa *isa)
{
#ifdef SP_HAVE_SIMD_X86
    __builtin_cpu_init();
    if (isa == &sp_avx512_isa)
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vpopcntdq") &&
               __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (isa == &sp_avx2_isa)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2");
#endif
    return isa == &sp_portable_isa;
}

/* Has this processor the products of AVX512_BF16, and this build kernels of them? */
static bool has_bf16(void)
{
#ifdef SP_HAVE_AVX512BF16
    return has_isa(&sp_avx512_isa) && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* Chooses the best version that this processor has, or the one named by SP_CPU_ISA. */
static sp_status choose_isa(const sp_cpu_isa **isa)
{
    const char *name = getenv("SP_CPU_ISA");

    for (int i = 0; i < N_ISAS; i++)
        if (!name || !*name ? has_isa(all_isas[i]) : !strcmp(name, all_isas[i]->name)) {
            *isa = all_isas[i];
            if (has_isa(*isa))
                return SP_OK;
            return SP_FAIL(
                SP_EUSAGE,
                "SP_CPU_ISA=%s: this processor does not have it; unset the variable",
                name);
        }
    return SP_FAIL(SP_EUSAGE,
                   "SP_CPU_ISA=%s: expected avx512, avx512bf16, avx2 or portable%s",
                   name, N_ISAS == 1 ? "; this build has portable only" : "");
}

#ifdef SP_HAVE_AVX512BF16
/* The operations a second that one core makes of independent products. The shortest of
 * some runs counts, which no other program has interrupted. */
static double rate_of(const sp_cpu_isa *isa)
{
    enum { RUNS = 5, ROUNDS = 1000 };
    double least_s = 1, flops = 0;

    for (int i = 0; i < RUNS; i++) {
        const double begun_s = sp_clock_s(CLOCK_MONOTONIC);
        flops = isa->multiply_add(ROUNDS);
        least_s = fmin(least_s, sp_clock_s(CLOCK_MONOTONIC) - begun_s);
    }
    return flops / fmax(least_s, 1e-9);
}

/* Are the instructions of AVX512_BF16 the fast way to multiply bf16 here? They form
 * twice as many products as multiply-adds do where both have the same units (AMD's
 * Zen 4), and half as many on 4th-generation Xeons. There multiply-adds are a third
 * faster in whole convolutions too, although they split words first (measured). Both
 * ways have the same bits. */
static bool is_bf16_fast(void)
{
    return rate_of(&sp_avx512bf16_isa) > 0.66 * rate_of(sp_avx512_isa.bf16);
}
#endif

/* Chooses both tables. For tensors of bf16 that is AVX512_BF16 where SP_CPU_ISA names
 * it, or names nothing and the processor has it and is fast at it. */
static sp_status choose_kernels(sp_cpu *cpu, sp_precision precision)
{
    static const char bf16[] = "avx512bf16";
    const char *name = getenv("SP_CPU_ISA");
    const bool is_named = name && strcmp(name, bf16) == 0;

    if (is_named && !has_bf16())
        return SP_FAIL(SP_EUSAGE,
                       "SP_CPU_ISA=%s: this processor, or this build, does not have "
                       "it; unset the variable",
                       name);
    (void)precision;
#ifdef SP_HAVE_AVX512BF16
    if (is_named ||
        (precision == SP_BF16 && (!name || !*name) && has_bf16() && is_bf16_fast())) {
        cpu->isa = &sp_avx512_isa;
        cpu->bf16 = &sp_avx512bf16_isa;
        return SP_OK;
    }
#endif
    SP_TRY(choose_isa(&cpu->isa));
    cpu->bf16 = cpu->isa->bf16;
    return SP_OK;
}

static sp_status cpu_open(sp_backend *be, int device, int threads)
{
    sp_cpu *cpu;
    sp_status rc;

    assert(be->precision != SP_TF32);

    be->device = device;
    be->threads = threads > 0 ? threads : 1;
    be->impl = NULL;
    cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return SP_FAIL(SP_EMEM, "no memory for the CPU backend");
    rc = choose_kernels(cpu, be->precision);
    if (rc != SP_OK) {
        free(cpu);
        return rc;
    }
    be->impl = cpu;
    return SP_OK;
}

static void cpu_close(sp_backend *be)
{
    sp_cpu *cpu = be->impl;

    for (int use = 0; cpu && use < SP_CPU_USES; use++)
        free(cpu->scratch[use].data);
    free(cpu);
    be->impl = NULL;
}

const sp_backend_ops sp_cpu_ops = {
    .name = "cpu",
    .is_host = true,
    .open = cpu_open,
    .close = cpu_close,
    .arena_create = sp_cpu_arena_create,
    .arena_destroy = sp_cpu_arena_destroy,
    .upload = sp_cpu_move,
    .download = sp_cpu_move,
    .fill = sp_cpu_fill,
    .wait = sp_cpu_wait,
    .arena_pass = sp_cpu_arena_pass,
    .plan_build = sp_cpu_plan_build,
    .plan_bytes = sp_cpu_plan_bytes,
    .plan_scratch_bytes = sp_cpu_plan_scratch_bytes,
    .conv_pack_floats = sp_cpu_conv_pack_floats,
    .conv_pack = sp_cpu_conv_pack,
    .conv_forward = sp_cpu_conv_forward,
    .conv_grad_input = sp_cpu_conv_grad_input,
    .conv_grad_weight = sp_cpu_conv_grad_weight,
    .join = sp_ref_join,
    .conv_grad_weight_bytes = sp_cpu_conv_grad_weight_bytes,
    .norm_sums = sp_cpu_norm_sums,
    .norm_finish = sp_ref_norm_finish,
    .norm_apply = sp_cpu_norm_apply,
    .norm_grad_sums = sp_cpu_norm_grad_sums,
    .norm_grad_finish = sp_ref_norm_grad_finish,
    .norm_grad_apply = sp_cpu_norm_grad_apply,
    .fused_parts = sp_cpu_fused_parts,
    .conv_forward_norm_sums = sp_cpu_conv_forward_norm_sums,
    .conv_forward_norm_apply = sp_cpu_conv_forward_norm_apply,
    .conv_grad_input_norm_sums = sp_ref_conv_grad_input_norm_sums,
    .add_samples = sp_ref_add_samples,
    .relu = sp_cpu_relu,
    .relu_grad = sp_cpu_relu_grad,
    .copy = sp_cpu_copy,
    .dropout = sp_cpu_dropout,
    .pool = sp_cpu_pool,
    .pool_grad = sp_cpu_pool_grad,
    .global_pool = sp_cpu_global_pool,
    .global_pool_grad = sp_cpu_global_pool_grad,
    .broadcast = sp_cpu_broadcast,
    .broadcast_grad = sp_cpu_broadcast_grad,
    .loss = sp_cpu_loss,
    .sgd = sp_cpu_sgd,
    .adamw = sp_cpu_adamw,
    .sum_squares = sp_cpu_sum_squares,
    .clock_begin = sp_cpu_clock_begin,
    .clock_end = sp_cpu_clock_end,
    .peak = sp_cpu_peak,
    .memory_used = sp_cpu_memory_used,
};
