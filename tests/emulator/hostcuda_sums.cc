/* How tensor cores add, as measured on devices: Fasi, Higham, Mikaitis and Pranesh,
 * "Numerical behavior of NVIDIA tensor cores" (PeerJ CS 330, 2021), and "Accurate
 * Models of NVIDIA Tensor Cores" (arXiv 2512.07004).
 *
 * Some products are added at a time, with the sum so far. They are exact. All are moved
 * to the largest exponent among them, where bits below the last kept one are cut off;
 * what has been added is cut off to fp32. Cutting is towards zero, so a long sum loses
 * half a unit of its last place with each addition, always in one direction.
 *
 *     HC_TENSOR=exact   all products of an instruction in double, rounded once
 *               a100    24 bits after the point, 16 bytes of operands at a time
 *               h100    25 bits, 32 bytes
 */
#include "emulator/hostcuda_internal.h"

struct tensor_model {
    const char *name;
    int bits, block_bytes;
};

static const tensor_model models[] = {
    {"exact", 0, 0}, {"a100", 24, 16}, {"h100", 25, 32}};

static const tensor_model &find_model()
{
    const char *name = getenv("HC_TENSOR");

    for (const tensor_model &m : models)
        if (!name || !*name || !strcmp(name, m.name))
            return m;
    fprintf(stderr, "hostcuda: HC_TENSOR=%s: expected exact, a100 or h100\n", name);
    exit(66);
}

static const tensor_model &model()
{
    static const tensor_model &m = find_model();

    return m;
}

int hc_tensor_block(int operand_bytes)
{
    return model().block_bytes / operand_bytes;
}

/* The exponent of a number as the tensor cores see it: zeros are below all others. */
static int exponent_of(float v)
{
    const int e = (int)(__float_as_uint(v) >> 23 & 255);

    return v == 0 ? INT32_MIN / 4 : (e ? e : 1) - 127;
}

static bool is_finite(float v)
{
    return (__float_as_uint(v) >> 23 & 255) != 255;
}

static float cut_to_float(double v)
{
    const float f =
        (float)v; /* to nearest; the next one towards zero if that is more */

    return fabs((double)f) > fabs(v) ? nextafterf(f, 0.0f) : f;
}

/* Adds one block. */
static float add_block(float c, const float *a, const float *b, int n)
{
    int largest = exponent_of(c);
    int64_t sum;
    double unit;

    for (int k = 0; k < n; k++) {
        const int e = exponent_of(a[k]) + exponent_of(b[k]);
        largest = e > largest ? e : largest;
    }
    if (largest < -1000)
        return c; /* zeros */
    unit = ldexp(1.0, model().bits - largest);
    sum = (int64_t)(c * unit); /* the conversion cuts off */
    for (int k = 0; k < n; k++)
        sum += (int64_t)((double)a[k] * b[k] * unit);
    return cut_to_float((double)sum / unit);
}

float hc_tensor_sum(float c, const float *a, const float *b, int depth, int block)
{
    bool is_all_finite = is_finite(c);
    double exact = 0;

    for (int k = 0; k < depth && is_all_finite; k++)
        is_all_finite = is_finite(a[k]) && is_finite(b[k]);
    if (is_all_finite && block > 0) {
        for (int k = 0; k < depth; k += block)
            c = add_block(c, a + k, b + k, min(block, depth - k));
        return c;
    }
    for (int k = 0; k < depth; k++)
        exact += (double)a[k] * b[k];
    return (float)(c + exact);
}
