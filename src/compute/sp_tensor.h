/* Tensors: matrices in memory of a backend, which comes from arenas. */
#ifndef SP_TENSOR_H
#define SP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/sp_arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The type of a tensor's elements. fp32 is 0, so that a zeroed tensor is fp32. */
typedef enum sp_elem { SP_ELEM_F32, SP_ELEM_BF16 } sp_elem;

/* A matrix [n][c], row i at element i * ld of data. Borrowed memory of the backend's
 * space. The elements between c and ld may belong to another tensor: operations neither
 * read nor write them. Of a tensor of bf16 (the upper half of a float, 2 bytes) data is
 * cast. */
typedef struct sp_tensor {
    float *data;
    int64_t n;
    int c, ld; /* elements */
    sp_elem elem;
} sp_tensor;

static inline size_t sp_elem_bytes(sp_elem elem)
{
    return elem == SP_ELEM_BF16 ? 2 : 4;
}

/* The bf16 nearest to v, ties to even. A NaN stays one, and subnormal numbers are kept.
 */
static inline uint16_t sp_bf16_of(float v)
{
    uint32_t bits, rounded;

    memcpy(&bits, &v, sizeof bits);
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

static inline float sp_bf16_to_float(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Rows row .. row + n - 1, or columns column .. column + c - 1, of t. */
static inline sp_tensor sp_tensor_rows(sp_tensor t, int64_t row, int64_t n)
{
    t.data = (float *)((char *)t.data + row * t.ld * (int64_t)sp_elem_bytes(t.elem));
    t.n = n;
    return t;
}

static inline sp_tensor sp_tensor_columns(sp_tensor t, int column, int c)
{
    t.data = (float *)((char *)t.data + column * (int64_t)sp_elem_bytes(t.elem));
    t.c = c;
    return t;
}

#ifdef __cplusplus
}
#endif
#endif
