/* The most that one core can do with this instruction set: the ceilings that spbench
 * divides by. */
#include "cpu/cpu_vec.h"

/* Independent chains of dependent operations: latency times units is 8 to 10, and 12
 * chains fit 16 registers. */
enum { CHAINS = 12 };

/* Runs chains of multiply-adds that touch no memory. Returns the number of operations.
 */
double ISA(multiply_add)(int64_t rounds)
{
    static volatile float sink;
    const vec a = set1(0.999f), b = set1(1e-3f);
    vec sum[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        sum[i] = set1((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            UNROLL
            for (int i = 0; i < CHAINS; i++)
                sum[i] = fma_v(sum[i], a, b);
        }
    }
    for (int i = 1; i < CHAINS; i++)
        sum[0] = fma_v(sum[i], a, sum[0]);
    sink = ((const float *)&sum[0])[0];
    (void)sink;
    return 2.0 * LANES * CHAINS * STEPS * (double)rounds;
}

/* y = y / 2 + x. Returns the bytes read and written. The loop is left to the compiler,
 * which chooses the vector width it prefers: if that is half of the widest, as with
 * AVX-512 on Zen 4, it is a quarter faster than the widest (measured). */
double ISA(stream)(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fma_f(y[i], 0.5f, x[i]);
    return 12.0 * (double)n;
}

/* x = x / 2 + 1, and y likewise. Reads equal writes here, which caches and memory move
 * fastest where each direction has its own wires. An optimizer, which writes most of
 * the vectors that it reads, is faster than `stream` for that reason. */
double ISA(update)(float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = fma_f(x[i], 0.5f, 1);
        y[i] = fma_f(y[i], 0.5f, 1);
    }
    return 16.0 * (double)n;
}

/* Sums x and y in independent chains. A tail shorter than the chains is left out. */
double ISA(read)(const float *x, const float *y, int64_t n)
{
    enum { STEP = 4 };
    static volatile float sink;
    vec sum[2 * STEP];
    int64_t i = 0;

    UNROLL
    for (int k = 0; k < 2 * STEP; k++)
        sum[k] = set1(0);
    for (; i + STEP * LANES <= n; i += STEP * LANES) {
        UNROLL
        for (int k = 0; k < STEP; k++) {
            sum[k] += load(x + i + k * LANES);
            sum[STEP + k] += load(y + i + k * LANES);
        }
    }
    for (int k = 1; k < 2 * STEP; k++)
        sum[0] += sum[k];
    sink = ((const float *)&sum[0])[0];
    (void)sink;
    return 8.0 * (double)i;
}
