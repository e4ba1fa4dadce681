/* The table of GEMM kernels that make check-code writes (tests/tools/cuda_code.py), such as
 * tests/results/code-sm_90.txt. */
#ifndef BENCH_ROOFLINE_CODE_H
#define BENCH_ROOFLINE_CODE_H

#include "base/sp_error.h"

enum { BENCH_CODE_KERNELS = 64 };

typedef struct bench_code_kernel {
    char name[40];
    double loop, outside; /* instructions of a warp: for a k-tile; in the other code */
    int threads, blocks;  /* blocks of an SM */
} bench_code_kernel;

typedef struct bench_code {
    int n;
    bench_code_kernel kernel[BENCH_CODE_KERNELS];
} bench_code;

/* Reads a table. SP_EIO; SP_EDATA. */
sp_status bench_code_read(const char *path, bench_code *code);
/* *found points into the table. SP_EDATA: it has no such kernel. */
sp_status bench_code_find(const bench_code *code, const char *name,
                          const bench_code_kernel **found);

#endif
