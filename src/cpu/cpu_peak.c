/* The CPU's ceilings for spbench, its clock, and the memory that the process uses. */
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "cpu/cpu_isa.h"

/* A single thread measures its own CPU time, which other programs on the core do not
 * change. */
static double clock_s(const sp_backend *be)
{
    return sp_clock_s(be->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

sp_status sp_cpu_clock_begin(sp_backend *be)
{
    be->begun_s = clock_s(be);
    return SP_OK;
}

sp_status sp_cpu_clock_end(sp_backend *be, double *seconds)
{
    *seconds = clock_s(be) - be->begun_s;
    return SP_OK;
}

static double cpu_peak_products(const sp_backend *be, double amount)
{
    const sp_cpu_isa *isa = sp_cpu_products_of(be);
    const int chunks = 2 * be->threads;
    /* A round is 4 steps of 12 vectors, 2 operations a lane, in bf16 4. */
    const double each = be->precision == SP_BF16 ? 192 : 96;
    const int64_t rounds = (int64_t)(amount / chunks / (each * isa->lanes)) + 1;
    double flops = 0;

#pragma omp parallel for num_threads(be->threads) reduction(+ : flops)                 \
    schedule(static, 1)
    for (int i = 0; i < chunks; i++)
        flops += isa->multiply_add(rounds);
    return flops;
}

/* Makes one pass over elements from .. to - 1 of both vectors; returns the bytes moved.
 */
static double peak_pass(const sp_backend *be, const sp_peak_args *a, int64_t from,
                        int64_t to)
{
    const sp_cpu_isa *isa = sp_cpu_isa_of(be);
    const int64_t n = to - from;
    float *x = a->x + from, *y = a->y + from;

    switch (a->what) {
    case SP_PEAK_STREAM:
        return isa->stream(x, y, n);
    case SP_PEAK_UPDATE:
        return isa->update(x, y, n);
    case SP_PEAK_READ:
        return isa->read(x, y, n);
    case SP_PEAK_COPY:
        memcpy(y, x, (size_t)n * sizeof *y);
        return 8.0 * (double)n;
    default:
        return 0;
    }
}

static double passes(const sp_backend *be, const sp_peak_args *a)
{
    const int threads = be->threads;
    double moved = 0;

#pragma omp parallel for num_threads(threads) reduction(+ : moved) schedule(static, 1)
    for (int i = 0; i < threads; i++)
        moved += peak_pass(be, a, a->n * i / threads, a->n * (i + 1) / threads);
    return moved;
}

sp_status sp_cpu_peak(sp_backend *be, const sp_peak_args *args, double *work)
{
    *work = args->what == SP_PEAK_PRODUCTS ? cpu_peak_products(be, args->amount)
                                           : passes(be, args);
    return SP_OK;
}

/* Reads /proc, because the maximum of getrusage includes the time before this program
 * was executed. */
sp_status sp_cpu_memory_used(sp_backend *be, int64_t *bytes)
{
    char kib[128];

    (void)be;
    sp_machine_line("/proc/self/status", "VmHWM:", kib, sizeof kib);
    *bytes = atoll(kib) * 1024;
    return SP_OK;
}
