#include "base/sp_exact.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Bits between the weights of two limbs; the weight of limb 0 is 2^-SHIFT. */
enum { BITS = 34, SHIFT = 4, PARALLEL_FROM = 1 << 16 };

#define ULP    0x1p-72
#define HALF   0x1p55  /* 2^22 summands of |limb| <= 2^33 */
#define WINDOW 0x1p-52 /* a summand of 2^36 is 2^-16 in the next window: 56 bits */

/* Adding 1.5 2^52 to a double of magnitude below 2^51 leaves its nearest integer in the
 * low bits of the sum's representation: a conversion that every vector unit has. */
#define MAGIC      0x1.8p52
#define MAGIC_BITS 0x4338000000000000u

/* Limb 1 of k poisoned sums is k 2^57 modulo 2^64. That is at least 2^57 away from 0,
 * while limbs of valid sums stay within 2^55; limb 1 is 0 only if 128 divides k. Limb
 * 2, k 2^50, then shows the poison up to k = 2^14. */
#define POISON_1 ((uint64_t)1 << 57)
#define POISON_2 ((uint64_t)1 << 50)

static inline uint64_t nearest(double x, double *rest)
{
    double moved = x + MAGIC;
    uint64_t bits;

    memcpy(&bits, &moved, sizeof bits);
    *rest = (x - (moved - MAGIC)) * 0x1p34;
    return bits - MAGIC_BITS;
}

/* Limbs are added as unsigned numbers, since sums of poisoned limbs may wrap around. */
static inline void exact_add(uint64_t *sum, double x)
{
    bool is_sound = fabs(x) < SP_EXACT_TOP; /* false for NaN */
    double rest;
    uint64_t limb0 = nearest((is_sound ? x : 0) * 0x1p4, &rest);
    uint64_t limb1 = nearest(rest, &rest);
    uint64_t limb2 = nearest(rest, &rest);

    sum[0] = is_sound ? sum[0] + limb0 : 0;
    sum[1] = is_sound ? sum[1] + limb1 : POISON_1;
    sum[2] = is_sound ? sum[2] + limb2 : POISON_2;
}

static bool is_sound_sum(const int64_t *sum)
{
    return sum[0] >= -((int64_t)1 << 62) && sum[0] <= (int64_t)1 << 62 &&
           fabs((double)sum[1]) <= HALF && fabs((double)sum[2]) <= HALF;
}

/* A sum as whole * unit, rounded to odd if bits had to go: a later rounding to 24 or 53
 * bits is then the rounding of the exact sum. The unit is NAN if the sum is not
 * sound. */
typedef struct joined {
    __int128 whole;
    double unit;
} joined;

static joined exact_join(const int64_t *sum)
{
    if (!is_sound_sum(sum))
        return (joined){0, NAN};

    int64_t carry = sum[1] + (sum[2] >> BITS);
    __int128 high = (__int128)sum[0] + (carry >> BITS);
    int64_t mask = ((int64_t)1 << BITS) - 1;
    __int128 low = ((__int128)(carry & mask) << BITS) | (sum[2] & mask);
    enum { DROP = 16 };

    if (high > -((__int128)1 << 56) && high < (__int128)1 << 56)
        return (joined){high * ((__int128)1 << 2 * BITS) + low, ULP};
    return (joined){(high * ((__int128)1 << (2 * BITS - DROP)) + (low >> DROP)) |
                        ((low & ((1 << DROP) - 1)) != 0),
                    ULP * (1 << DROP)};
}

#define PRAGMA(words) _Pragma(#words)
#define OF_TYPE(NAME, TYPE)                                                            \
    void sp_exact_add_##NAME(int64_t *sum, const TYPE *x, size_t n)                    \
    {                                                                                  \
        uint64_t *limbs = (uint64_t *)sum;                                             \
                                                                                       \
        assert(n == 0 || (sum && x));                                                  \
        PRAGMA(omp parallel for simd schedule(static) if (n >= PARALLEL_FROM))         \
        for (size_t i = 0; i < n; i++)                                                 \
            exact_add(limbs + SP_EXACT_LIMBS * i, x[i]);                               \
    }                                                                                  \
                                                                                       \
    void sp_exact_get_##NAME(const int64_t *sum, TYPE *x, size_t n)                    \
    {                                                                                  \
        assert((sum && x) || n == 0);                                                  \
        PRAGMA(omp parallel for schedule(static) if (n >= PARALLEL_FROM))              \
        for (size_t i = 0; i < n; i++) {                                               \
            const joined one = exact_join(sum + SP_EXACT_LIMBS * i);                   \
                                                                                       \
            x[i] = (TYPE)one.whole * (TYPE)one.unit;                                   \
        }                                                                              \
    }
OF_TYPE(f64, double)
OF_TYPE(f32, float)

void sp_exact_add_wide(int64_t *sum, const double *x, size_t n)
{
    assert(n == 0 || (sum && x));
    for (size_t i = 0; i < n; i++) {
        double scaled = x[i];
        int window = 0;

        while (!(fabs(scaled) < SP_EXACT_TOP) && window < SP_EXACT_WINDOWS - 1) {
            scaled *= WINDOW;
            window++;
        }
        exact_add((uint64_t *)sum + SP_EXACT_WIDE * i + SP_EXACT_LIMBS * window,
                  scaled);
    }
}

void sp_exact_get_wide(const int64_t *sum, double *x, size_t n)
{
    double part[SP_EXACT_WINDOWS];

    assert(n == 0 || (sum && x));
    for (size_t i = 0; i < n; i++) {
        sp_exact_get_f64(sum + SP_EXACT_WIDE * i, part, SP_EXACT_WINDOWS);
        x[i] = part[SP_EXACT_WINDOWS - 1];
        for (int window = SP_EXACT_WINDOWS - 2; window >= 0; window--)
            x[i] = x[i] / WINDOW + part[window];
    }
}
