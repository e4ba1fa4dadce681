/* The kernels that this processor computes with, chosen when the backend opens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_env.h"
#include "base/sp_log.h"
#include "config.h"
#include "cpu/cpu_isa.h"

/* The versions of this build, the best one first. */
#define ENTRY(isa) &sp_##isa##_isa,
static const sp_cpu_isa *const versions[] = {SP_CPU_ISAS(ENTRY)};
enum { N_VERSIONS = sizeof versions / sizeof *versions };

static bool is_here(const sp_cpu_isa *isa)
{
    return !isa->is_here || isa->is_here();
}

/* The version of this name; NULL if this build or this processor lacks it. */
static const sp_cpu_isa *choice_find(const char *name)
{
    for (int i = 0; i < N_VERSIONS; i++)
        if (strcmp(versions[i]->name, name) == 0)
            return is_here(versions[i]) ? versions[i] : NULL;
    return NULL;
}

/* ---- SP_CPU_ISA ---- */

static const char avx512bf16[] = "avx512bf16", amx[] = "amx";

/* The version that the ranks have agreed on; NULL: the best one of each. */
static const char *agreed;

/* The name of the agreed version, or the value of SP_CPU_ISA; NULL if it is not set, or
 * empty. */
static const char *wanted(void)
{
    const char *name = agreed ? agreed : sp_env("SP_CPU_ISA");

    return name && *name ? name : NULL;
}

static bool choice_is_wanted(const char *name)
{
    return wanted() && strcmp(wanted(), name) == 0;
}

static sp_status choice_refuse(const char *name)
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
    const bool is_free =
        !wanted() || choice_is_wanted(avx512bf16) || choice_is_wanted(amx);

    for (int i = 0; i < N_VERSIONS; i++)
        if (versions[i]->bf16 &&
            (is_free ? is_here(versions[i]) : choice_is_wanted(versions[i]->name))) {
            *isa = versions[i];
            return is_here(*isa) ? SP_OK : choice_refuse(wanted());
        }
    return SP_FAIL(
        SP_EUSAGE,
        "SP_CPU_ISA=%s: expected amx, avx512, avx512bf16, avx2 or portable%s", wanted(),
        N_VERSIONS == 1 ? "; this build has portable only" : "");
}

/* ---- products in bf16 ---- */

/* The operations a second that one core makes of independent products. The shortest of
 * some runs counts, which no other program has interrupted. */
static double choice_rate_of(const sp_cpu_isa *isa)
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

/* True if the instructions of AVX512_BF16 multiply bf16 fastest here. They form twice
 * as many products as multiply-adds do if both have the same units (AMD's Zen 4), and
 * half as many on 4th-generation Xeons. There multiply-adds are a third faster in whole
 * convolutions too, although they split words first (measured). Both ways have the same
 * bits. */
static bool is_fast(const sp_cpu_isa *instructions, const sp_cpu_isa *multiply_adds)
{
    return choice_rate_of(instructions) > 0.66 * choice_rate_of(multiply_adds);
}

/* Sums in pairs: AVX512_BF16 where SP_CPU_ISA names it, or names no other version and
 * the processor has it and is fast at it; else the version that fp32 has. */
static const sp_cpu_isa *choose_pairs(const sp_cpu_isa *isa, bool is_used)
{
    const bool is_free = is_used && (!wanted() || choice_is_wanted(amx));
    const sp_cpu_isa *instructions = choice_find(avx512bf16);

    if (choice_is_wanted(avx512bf16) ||
        (is_free && instructions && is_fast(instructions, isa->bf16)))
        return instructions;
    return isa->bf16;
}

/* AMX if the processor has it and SP_CPU_ISA names no other version; else NULL. */
static const sp_cpu_isa *amx_of(void)
{
    return !wanted() || choice_is_wanted(amx) ? choice_find(amx) : NULL;
}

sp_bf16_sums sp_cpu_order(void)
{
    return amx_of() ? SP_SUMS_TILES : SP_SUMS_PAIRS;
}

static const char *const level_names[] = {
    [SP_CPU_PORTABLE] = "portable", [SP_CPU_AVX2] = "avx2", [SP_CPU_AVX512] = "avx512"};

sp_cpu_level sp_cpu_level_of(void)
{
    const sp_cpu_isa *isa;

    if (choose_isa(&isa) != SP_OK) /* which is reported when the backend opens */
        return SP_CPU_AVX512;
    for (int i = SP_CPU_PORTABLE; i < SP_CPU_AVX512; i++)
        if (strcmp(isa->name, level_names[i]) == 0)
            return (sp_cpu_level)i;
    return SP_CPU_AVX512;
}

const char *sp_cpu_level_name(sp_cpu_level level)
{
    return level_names[level];
}

void sp_cpu_lower(sp_cpu_level level)
{
    agreed = level_names[level];
}

sp_status sp_cpu_choose(sp_backend *be, sp_cpu *cpu)
{
    const bool is_bf16 = be->precision == SP_BF16;

    if ((choice_is_wanted(avx512bf16) || choice_is_wanted(amx)) &&
        !choice_find(wanted()))
        return choice_refuse(wanted());
    SP_TRY(choose_isa(&cpu->isa));
    if (is_bf16 && be->sums == SP_SUMS_AUTO)
        be->sums = sp_cpu_order();
    if (be->sums == SP_SUMS_TILES)
        cpu->bf16 = amx_of() ? amx_of() : &sp_tiles_isa;
    else
        cpu->bf16 = choose_pairs(cpu->isa, is_bf16);
    return SP_OK;
}
