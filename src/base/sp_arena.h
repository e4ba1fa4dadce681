/* An arena is one reserved range of addresses, handed out from the front and reset as a
 * whole. Reserving costs nothing; pages become memory when they are first touched and
 * stay, so that a step allocates nothing once the largest batch was seen.
 *
 *     base                used          touched            reserved
 *     | tensor | tensor | |   ...       |    ...           |
 *
 * Memory of a device does not appear by touching it: there the backend's `commit` adds
 * memory when the front passes `committed`.
 */
#ifndef SP_ARENA_H
#define SP_ARENA_H

#include <stddef.h>

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

/* Narrows [*from, *to) to the whole large pages within it. False: there is no such page, as
 * in arenas of devices. */
bool sp_arena_whole_pages(const sp_arena *arena, size_t *from, size_t *to);
/* Returns these pages, which are not read again, to the system until they are touched.
 * Returns the offset of the first of them; `to` without one. */
size_t sp_arena_release(sp_arena *arena, size_t from, size_t to);

#define SP_ALLOC(arena, count, pointer)                                                \
    sp_arena_alloc((arena), (size_t)(count) * sizeof **(pointer), (void **)(pointer))

#ifdef __cplusplus
}
#endif
#endif
