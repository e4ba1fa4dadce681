/* The kernels that this processor computes with, chosen when the backend opens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "config.h"
#include "cpu/cpu_isa.h"

/* The instruction sets of this build, best first. */
static const sp_cpu_isa *const all_isas[] = {
#ifdef SP_HAVE_SIMD_X86
    &sp_avx512_isa,
    &sp_avx2_isa,
#endif
    &sp_portable_isa,
};
enum { N_ISAS = sizeof all_isas / sizeof *all_isas };

bool sp_cpu_has_avx512(void)
{
#ifdef SP_HAVE_SIMD_X86
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
#else
    return false;
#endif
}

static bool has_isa(const sp_cpu_isa *isa)
{
#ifdef SP_HAVE_SIMD_X86
    if (isa == &sp_avx512_isa)
        return sp_cpu_has_avx512();
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
    return sp_cpu_has_avx512() && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* Has this processor the tiles of AMX_BF16, does the system grant them, and has this
 * build kernels of them? */
static bool has_amx(void)
{
#ifdef SP_HAVE_AMX
    return sp_cpu_has_avx512() && sp_amx_permit();
#else
    return false;
#endif
}

/* ---- SP_CPU_ISA ---- */

static const char avx512bf16[] = "avx512bf16", amx[] = "amx";

/* The value of SP_CPU_ISA; NULL where it is not set, or empty. */
static const char *wanted(void)
{
    const char *name = getenv("SP_CPU_ISA");

    return name && *name ? name : NULL;
}

static bool is_wanted(const char *name)
{
    return wanted() && strcmp(wanted(), name) == 0;
}

static sp_status refuse(const char *name)
{
    return SP_FAIL(SP_EUSAGE,
                   "SP_CPU_ISA=%s: this processor, or this build, does not have it; "
                   "unset the variable",
                   name);
}

/* Chooses the version for fp32, and for the other operations of bf16: the best one that
 * this processor has, or the one that is named. */
static sp_status choose_isa(const sp_cpu_isa **isa)
{
    const bool is_free = !wanted() || is_wanted(avx512bf16) || is_wanted(amx);

    for (int i = 0; i < N_ISAS; i++)
        if (is_free ? has_isa(all_isas[i]) : is_wanted(all_isas[i]->name)) {
            *isa = all_isas[i];
            return has_isa(*isa) ? SP_OK : refuse(wanted());
        }
    return SP_FAIL(
        SP_EUSAGE,
        "SP_CPU_ISA=%s: expected amx, avx512, avx512bf16, avx2 or portable%s", wanted(),
        N_ISAS == 1 ? "; this build has portable only" : "");
}

/* ---- products in bf16 ---- */

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

/* Sums in pairs: AVX512_BF16 where SP_CPU_ISA names it, or names no other version and
 * the processor has it and is fast at it; else the version that fp32 has. */
static const sp_cpu_isa *choose_pairs(const sp_cpu_isa *isa, bool is_used)
{
#ifdef SP_HAVE_AVX512BF16
    const bool is_free = !wanted() || is_wanted(amx);

    if (is_wanted(avx512bf16) || (is_used && is_free && has_bf16() && is_bf16_fast()))
        return &sp_avx512bf16_isa;
#endif
    (void)is_used;
    return isa->bf16;
}

/* Sums in tiles: AMX, or portable C where SP_CPU_ISA names another version. */
static const sp_cpu_isa *choose_tiles(void)
{
#ifdef SP_HAVE_AMX
    if ((!wanted() || is_wanted(amx)) && has_amx())
        return &sp_amx_isa;
#endif
    return &sp_tiles_isa;
}

sp_bf16_sums sp_cpu_order(void)
{
    return (!wanted() || is_wanted(amx)) && has_amx() ? SP_SUMS_TILES : SP_SUMS_PAIRS;
}

sp_status sp_cpu_choose(sp_backend *be, sp_cpu *cpu)
{
    const bool is_bf16 = be->precision == SP_BF16;

    if (is_wanted(avx512bf16) && !has_bf16())
        return refuse(avx512bf16);
    if (is_wanted(amx) && !has_amx())
        return refuse(amx);
    SP_TRY(choose_isa(&cpu->isa));
    if (is_bf16 && be->sums == SP_SUMS_AUTO)
        be->sums = sp_cpu_order();
    cpu->bf16 =
        be->sums == SP_SUMS_TILES ? choose_tiles() : choose_pairs(cpu->isa, is_bf16);
    return SP_OK;
}
