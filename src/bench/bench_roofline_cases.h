/* The step of spbench roofline by other rates and with work left away: a range, the
 * sensitivity of the prediction, other devices, and what a change is expected to bring
 * before it is built.
 *
 *     for each operation of the step:  bench_cases_add
 *     then once:                       bench_cases_print
 */
#ifndef BENCH_ROOFLINE_CASES_H
#define BENCH_ROOFLINE_CASES_H

#include "bench/bench.h"

enum { BENCH_MOST_CASES = 32 };

/* Rates that programs reach on an H100 SXM, of the first case and of many others. */
#define BENCH_L2       5.5e12 /* bytes a second */
#define BENCH_MEMORY   2.8e12
#define BENCH_LAUNCH_S 1.5e-6 /* from the end of a kernel to the start of the next */
#define BENCH_SMALL_S  3e-6   /* time of a kernel that finishes sums */

/* Seconds of the step so far, by case. */
typedef struct bench_cases {
    double s[BENCH_MOST_CASES];
    double l2_bytes[BENCH_MOST_CASES];
} bench_cases;

/* What an operation needs. Times of the SMs are the counted ones of an H100. */
typedef struct bench_work_of_call {
    const char *op;
    int c_in, c_out;
    double sm_s, gathered, l2_bytes, memory_bytes;
    int more_kernels; /* beside its first */
    bool is_small;    /* its time does not depend on what it reads */
    bool is_wgmma;
} bench_work_of_call;

/* Returns the seconds of the operation in the first case, in which resources overlap
 * perfectly. */
double bench_cases_add(bench_cases *cases, const bench_work_of_call *call);

/* Writes a table, or a JSON line a case. */
sp_status bench_cases_print(bench *b, const bench_cases *cases);

#endif
