/* Tensors, and the arenas that their memory comes from.
 *
 * An arena is one reserved range of addresses, handed out from the front and reset as a
 * whole. Reserving costs nothing; pages become memory when they are first touched and
 * stay, so that a step allocates nothing once the largest batch was seen.
 *
 *     base                used          touched            reserved
 *     | tensor | tensor | |   ...       |    ...           |
 *
 * Memory of a device does not appear by touching it: there the backend's `commit` adds
 * memory when the front passes `committed`.
 */
#ifndef SP_TENSOR_H
#define SP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/sp_error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sp_arena {
    char *base;
    size_t used, high, reserved; /* bytes */
    const char *name;            /* for messages; borrowed */
    /* NULL for host memory. For addresses that the host must not touch: gives memory to
     * at least the first `bytes` of them and raises `committed`. */
    sp_status (*commit)(struct sp_arena *arena, size_t bytes);
    size_t committed; /* bytes with memory; device only */
    void *impl;       /* private to the backend */
    /* Another arena, borrowed, or NULL. Code that fills this arena takes from it the
     * memory that is needed only while it works. Arenas that one thread fills in turn
     * share one scratch. */
    struct sp_arena *scratch;
} sp_arena;

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

/* Host arena of at most `reserve` bytes (0: as much memory as this process may use).
 * Less is reserved if the address space is limited (arena->reserved says how much).
 * SP_EMEM. */
sp_status sp_arena_create(sp_arena *arena, size_t reserve, const char *name);
void sp_arena_destroy(sp_arena *arena);
/* An arena without memory, which only counts the bytes taken: every take succeeds and
 * yields NULL. It needs no destroying. */
sp_arena sp_arena_counter(void);
/* Hands out `bytes` at an address that is a multiple of 128, their content undefined; 0
 * bytes give a valid address too. SP_EMEM when the reserved range is used up. */
sp_status sp_arena_alloc(sp_arena *arena, size_t bytes, void **out);
/* Forgets all that was handed out. With SP_DEBUG the bytes are filled with NaN. */
void sp_arena_reset(sp_arena *arena);
/* Goes back to an earlier value of arena->used, so that all handed out since is
 * forgotten. */
void sp_arena_rewind(sp_arena *arena, size_t used);

/* Returns the whole pages within [from, to), which are not read again, to the system
 * until they are touched. Returns the offset of the first of these pages; `to` if no
 * page is returned, as in arenas of devices. */
size_t sp_arena_release(sp_arena *arena, size_t from, size_t to);

#define SP_ALLOC(arena, count, pointer)                                                \
    sp_arena_alloc((arena), (size_t)(count) * sizeof **(pointer), (void **)(pointer))

#ifdef __cplusplus
}
#endif
#endif
