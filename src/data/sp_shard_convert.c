#include <math.h>
#include <string.h>

#include "data/sp_shard_internal.h"

enum { BLOCK = 1024 };

static void swap_bytes(unsigned char *at, int size, int64_t n)
{
    for (; n > 0; n--, at += size)
        for (int i = 0; i < size / 2; i++) {
            unsigned char byte = at[i];

            at[i] = at[size - 1 - i];
            at[size - 1 - i] = byte;
        }
}

/* IEEE half precision. */
static float half_to_float(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    float value;

    if (exponent == 31)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexpf((float)mantissa, -24);
    else
        value = ldexpf((float)(mantissa + 1024), exponent - 25);
    return half & 0x8000 ? -value : value;
}

/* Runs `body` for each element with `v` its value in the stored C type. Alignment is
 * that of the caller's buffer: whole elements from an aligned start. */
#define FOR_EACH(ctype, body)                                                          \
    for (int64_t i = 0; i < n; i++) {                                                  \
        const ctype v = ((const ctype *)raw)[i];                                       \
        body                                                                           \
    }                                                                                  \
    return -1;

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
    const float h = half_to_float(v);                                                  \
    if (!(fabsf(h) <= 65504) || (float)(int64_t)h != h)                                \
        return i;                                                                      \
    out[i] = (int64_t)h;

static int64_t to_i64(const sp_extent *type, const void *raw, int64_t n, int64_t *out)
{
    switch (type->kind << 8 | type->type_size) {
    case 'i' << 8 | 1:
        FOR_EACH(int8_t, TO_I64)
    case 'i' << 8 | 2:
        FOR_EACH(int16_t, TO_I64)
    case 'i' << 8 | 4:
        FOR_EACH(int32_t, TO_I64)
    case 'i' << 8 | 8:
        FOR_EACH(int64_t, TO_I64)
    case 'u' << 8 | 1:
        FOR_EACH(uint8_t, TO_I64)
    case 'u' << 8 | 2:
        FOR_EACH(uint16_t, TO_I64)
    case 'u' << 8 | 4:
        FOR_EACH(uint32_t, TO_I64)
    case 'u' << 8 | 8:
        FOR_EACH(uint64_t, U64_TO_I64)
    case 'f' << 8 | 2:
        FOR_EACH(uint16_t, HALF_TO_I64)
    case 'f' << 8 | 4:
        FOR_EACH(float, REAL_TO_I64)
    case 'f' << 8 | 8:
        FOR_EACH(double, REAL_TO_I64)
    }
    return 0;
}

int64_t sp_convert_i64(const sp_extent *type, void *raw, int64_t n, int64_t *out)
{
    if (type->is_swapped)
        swap_bytes(raw, type->type_size, n);
    return to_i64(type, raw, n, out);
}

int64_t sp_convert_i32(const sp_extent *type, void *raw, int64_t n, int32_t *out)
{
    int64_t block[BLOCK], bad;

    if (type->is_swapped)
        swap_bytes(raw, type->type_size, n);
    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t m = n - done < BLOCK ? n - done : BLOCK;

        bad = to_i64(type, (char *)raw + done * type->type_size, m, block);
        if (bad >= 0)
            return done + bad;
        for (int64_t i = 0; i < m; i++) {
            if (block[i] < INT32_MIN || block[i] > INT32_MAX)
                return done + i;
            out[done + i] = (int32_t)block[i];
        }
    }
    return -1;
}

/* At most 24 significant bits. */
static bool fits_f32(uint64_t v)
{
    return v == 0 || v >> __builtin_ctzll(v) < 1 << 24;
}

#define SMALL_TO_F32 out[i] = (float)v;
#define HALF_TO_F32  out[i] = half_to_float(v);
#define I64_TO_F32                                                                     \
    if (!fits_f32(v < 0 ? -(uint64_t)v : (uint64_t)v))                                 \
        return i;                                                                      \
    out[i] = (float)v;
#define U64_TO_F32                                                                     \
    if (!fits_f32(v))                                                                  \
        return i;                                                                      \
    out[i] = (float)v;
/* Non-finite values pass: they have their own message. */
#define REAL_TO_F32                                                                    \
    out[i] = (float)v;                                                                 \
    if (isfinite((double)v) && (double)out[i] != (double)v)                            \
        return i;

static int64_t to_f32(const sp_extent *type, const void *raw, int64_t n, float *out)
{
    switch (type->kind << 8 | type->type_size) {
    case 'i' << 8 | 1:
        FOR_EACH(int8_t, SMALL_TO_F32)
    case 'i' << 8 | 2:
        FOR_EACH(int16_t, SMALL_TO_F32)
    case 'u' << 8 | 1:
        FOR_EACH(uint8_t, SMALL_TO_F32)
    case 'u' << 8 | 2:
        FOR_EACH(uint16_t, SMALL_TO_F32)
    case 'i' << 8 | 4:
        FOR_EACH(int32_t, REAL_TO_F32)
    case 'u' << 8 | 4:
        FOR_EACH(uint32_t, REAL_TO_F32)
    case 'i' << 8 | 8:
        FOR_EACH(int64_t, I64_TO_F32)
    case 'u' << 8 | 8:
        FOR_EACH(uint64_t, U64_TO_F32)
    case 'f' << 8 | 2:
        FOR_EACH(uint16_t, HALF_TO_F32)
    case 'f' << 8 | 4:
        FOR_EACH(float, SMALL_TO_F32)
    case 'f' << 8 | 8:
        FOR_EACH(double, REAL_TO_F32)
    }
    return 0;
}

int64_t sp_convert_f32(const sp_extent *type, void *raw, int64_t n, float *out)
{
    if (type->is_swapped)
        swap_bytes(raw, type->type_size, n);
    return to_f32(type, raw, n, out);
}

double sp_convert_value(const sp_extent *type, const void *raw, int64_t i)
{
    const char *at = (const char *)raw + i * type->type_size;
    double real;
    float single;
    uint16_t half;
    int64_t whole;

    if (type->kind == 'f' && type->type_size == 8) {
        memcpy(&real, at, sizeof real);
        return real;
    }
    if (type->kind == 'f' && type->type_size == 4) {
        memcpy(&single, at, sizeof single);
        return single;
    }
    if (type->kind == 'f') {
        memcpy(&half, at, sizeof half);
        return half_to_float(half);
    }
    if (to_i64(type, at, 1, &whole) >= 0) {
        memcpy(&whole, at, sizeof whole);
        return (double)(uint64_t)whole;
    }
    return (double)whole;
}
