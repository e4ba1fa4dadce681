#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_number.h"
#include "h5/sp_h5_number.h"

enum { BLOCK = 1024 };

static void h5_swap_bytes(unsigned char *at, int size, int64_t n)
{
    for (; n > 0; n--, at += size)
        for (int i = 0; i < size / 2; i++) {
            unsigned char byte = at[i];

            at[i] = at[size - 1 - i];
            at[size - 1 - i] = byte;
        }
}

void sp_h5_to_native(sp_h5_type type, void *raw, int64_t n)
{
    if (type.is_swapped)
        h5_swap_bytes(raw, type.size, n);
}

/* Runs `body` for each element with `v` its value in the stored C type. Alignment
 * follows from the caller's buffer: whole elements from an aligned start. */
#define FOR_EACH(ctype, body)                                                          \
    for (int64_t i = 0; i < n; i++) {                                                  \
        const ctype v = ((const ctype *)raw)[i];                                       \
        body                                                                           \
    }                                                                                  \
    return -1;

/* Runs the body of the type's kind: `whole` for integers but uint64_t, `u64`, `half`
 * for the bits of a half precision number, `single`, `twice`. Each returns the number
 * of an element that does not fit. */
#define CONVERT(whole, u64, half, single, twice)                                       \
    switch (type.kind << 8 | type.size) {                                              \
    case 'i' << 8 | 1:                                                                 \
        FOR_EACH(int8_t, whole)                                                        \
    case 'i' << 8 | 2:                                                                 \
        FOR_EACH(int16_t, whole)                                                       \
    case 'i' << 8 | 4:                                                                 \
        FOR_EACH(int32_t, whole)                                                       \
    case 'i' << 8 | 8:                                                                 \
        FOR_EACH(int64_t, whole)                                                       \
    case 'u' << 8 | 1:                                                                 \
        FOR_EACH(uint8_t, whole)                                                       \
    case 'u' << 8 | 2:                                                                 \
        FOR_EACH(uint16_t, whole)                                                      \
    case 'u' << 8 | 4:                                                                 \
        FOR_EACH(uint32_t, whole)                                                      \
    case 'u' << 8 | 8:                                                                 \
        FOR_EACH(uint64_t, u64)                                                        \
    case 'f' << 8 | 2:                                                                 \
        FOR_EACH(uint16_t, half)                                                       \
    case 'f' << 8 | 4:                                                                 \
        FOR_EACH(float, single)                                                        \
    case 'f' << 8 | 8:                                                                 \
        FOR_EACH(double, twice)                                                        \
    }                                                                                  \
    return 0;

#define TO_I64 out[i] = (int64_t)v;
#define U64_TO_I64                                                                     \
    if (v > INT64_MAX)                                                                 \
        return i;                                                                      \
    out[i] = (int64_t)v;
#define REAL_TO_I64                                                                    \
    if (!(v >= -9.2e18 && v <= 9.2e18) || (double)(int64_t)v != (double)v)             \
        return i;                                                                      \
    out[i] = (int64_t)v;
#define HALF_TO_I64                                                                    \
    const float h = sp_half_to_float(v);                                               \
    if (!(fabsf(h) <= 65504) || (float)(int64_t)h != h)                                \
        return i;                                                                      \
    out[i] = (int64_t)h;

/* clang-format off */
static int64_t to_i64(sp_h5_type type, const void *raw, int64_t n, int64_t *out)
{
    CONVERT(TO_I64, U64_TO_I64, HALF_TO_I64, REAL_TO_I64, REAL_TO_I64)
}
/* clang-format on */

#define TO_REAL      out[i] = (__typeof__(*out))v;
#define HALF_TO_REAL out[i] = sp_half_to_float(v);
#define DOUBLE_TO_F32                                                                  \
    out[i] = (float)v;                                                                 \
    if (isinf(out[i]) && !isinf(v))                                                    \
        return i;

/* clang-format off */
static int64_t to_f32(sp_h5_type type, const void *raw, int64_t n, float *out)
{
    CONVERT(TO_REAL, TO_REAL, HALF_TO_REAL, TO_REAL, DOUBLE_TO_F32)
}

static int64_t to_f64(sp_h5_type type, const void *raw, int64_t n, double *out)
{
    CONVERT(TO_REAL, TO_REAL, HALF_TO_REAL, TO_REAL, TO_REAL)
} /* clang-format on */

double sp_h5_value(sp_h5_type type, const void *raw, int64_t i)
{
    double value = 0;

    to_f64(type, (const char *)raw + i * type.size, 1, &value);
    return value;
}

/* ---- any into any ---- */

static void put_whole(int64_t value, int size, void *to)
{
    const int32_t four = (int32_t)value;
    const uint8_t one = (uint8_t)value;

    memcpy(to,
           size == 8   ? (const void *)&value
           : size == 4 ? (const void *)&four
                       : &one,
           (size_t)size);
}

static int64_t to_whole(sp_h5_type type, const void *raw, int64_t n, sp_h5_type to,
                        char *out)
{
    const int unused = 64 - 8 * to.size;
    const int64_t most = to.kind == 'i' ? INT64_MAX >> unused
                         : unused > 0   ? (int64_t)(UINT64_MAX >> unused)
                                        : INT64_MAX;
    const int64_t least = to.kind == 'i' ? -most - 1 : 0;
    int64_t block[BLOCK];

    if (type.kind == 'u' && to.kind == 'u' && type.size == 8 && to.size == 8) {
        memcpy(out, raw, (size_t)n * 8);
        return -1;
    }
    for (int64_t done = 0; done < n; done += BLOCK) {
        const int64_t m = n - done < BLOCK ? n - done : BLOCK;
        const int64_t bad =
            to_i64(type, (const char *)raw + done * type.size, m, block);

        for (int64_t i = 0; i < (bad < 0 ? m : bad); i++, out += to.size) {
            if (block[i] < least || block[i] > most)
                return done + i;
            put_whole(block[i], to.size, out);
        }
        if (bad >= 0)
            return done + bad;
    }
    return -1;
}

int64_t sp_h5_convert(sp_h5_type from, void *raw, int64_t n, sp_h5_type to, void *out)
{
    assert(n == 0 || (raw && out));
    assert(to.kind == 'f' || to.kind == 'i' || to.kind == 'u');
    sp_h5_to_native(from, raw, n);
    if (to.kind != 'f')
        return to_whole(from, raw, n, to, out);
    return to.size == 8 ? to_f64(from, raw, n, out) : to_f32(from, raw, n, out);
}
