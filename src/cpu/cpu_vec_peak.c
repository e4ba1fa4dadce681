/* What one core can do at most with this instruction set: the ceilings that spbench
 * divides by. */
#include "cpu/cpu_vec.h"

/* Independent chains: latency times units is 8 to 10, and all fit 16 registers. */
enum { CHAINS = 12 };

/* Chains of multiply-adds that touch no memory. Returns the operations done. */
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

/* y = y / 2 + x. Returns the bytes read and written. The compiler's own loop, in
 * vectors of the width it prefers: where those are half of the widest, as with AVX-512
 * on Zen 4, it is a quarter faster than one in the widest. */
double ISA(stream)(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fma_f(y[i], 0.5f, x[i]);
    return 12.0 * (double)n;
}
