/* The most products in bf16 that one core can form: the ceiling of spbench.
 * Also the table of a version; AVX512_BF16 shares all but products with AVX-512. */
#include "cpu/bf16/bf16.h"

/* Independent chains, as in cpu_vec_peak.c. */
enum { CHAINS = 12 };

/* Runs chains of the operation that touch no memory. Returns the number of operations.
 */
double PRODUCTS(multiply_add)(int64_t rounds)
{
    static volatile float sink;
    const uint32_t words[2] = {0x3f7f3f7f, 0x3a833a83};
    const vec a = word_at(&words[0]), b = word_at(&words[1]);
    const unsigned before = flush_begin();
    vec sum[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        sum[i] = set1((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL
        for (int s = 0; s < STEPS; s++) {
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                UNROLL
                for (int i = 0; i < CHAINS; i++)
                    sum[i] = add_products(sum[i], half_of(a, h), half_of(b, h));
            }
        }
    }
    for (int i = 1; i < CHAINS; i++)
        sum[0] += sum[i];
    sink = ((const float *)&sum[0])[0];
    (void)sink;
    flush_end(before);
    return 4.0 * LANES * CHAINS * STEPS * (double)rounds;
}

/* ---- the table ---- */

#define ENTRY(slot) .slot = PRODUCTS(slot),
const sp_cpu_isa PRODUCTS(isa) = {.name = PRODUCTS_NAME,
                                  .is_here = PRODUCTS_HERE,
                                  .lanes = LANES,
                                  .chunk = 2,
                                  .n_panels = ISA(n_panels),
                                  .pack = BF16(pack),
                                  .unpack = ISA(unpack),
                                  .convert = BF16(convert),
                                  SP_CPU_PRODUCTS(ENTRY) SP_CPU_ROWS(BF16_ENTRY)};
