/* Tensors: matrices in memory of a backend, which comes from arenas. */
#ifndef SP_TENSOR_H
#define SP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_arena.h"
#include "base/sp_elem.h"

#ifdef __cplusplus
extern "C" {
#endif

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
