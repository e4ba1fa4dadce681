#include "config.h"

#include "base/sp_arena.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sp_machine.h"
#include "base/sp_number.h"

enum { ALIGN = 128 };

#define MIB           ((size_t)1 << 20)
#define LEAST_RESERVE (64 * MIB)

static double arena_mib(size_t bytes)
{
    return (double)bytes / (double)MIB;
}

/* A limited address space is shared by some twenty arenas, threads and libraries: each
 * arena takes a part of the rest that earlier arenas left. */
static size_t default_reserve(void)
{
    size_t memory = sp_machine_memory(), addresses = sp_machine_address_space() / 16;

    return memory < addresses ? memory : addresses;
}

sp_status sp_arena_create(sp_arena *arena, size_t reserve, const char *name)
{
    size_t asked = reserve ? reserve : default_reserve();
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *base;

    assert(arena && name);
    memset(arena, 0, sizeof *arena);
    arena->name = name;
    /* There are addresses enough, but the system would kill a process that wrote to
     * them. */
    if (asked > sp_machine_memory())
        return SP_FAIL(SP_EMEM, "arena %s: %.1f MiB asked, the machine has %.1f", name,
                       arena_mib(asked), arena_mib(sp_machine_memory()));
    asked = sp_multiple(asked, MIB);
    reserve = asked;
    base = mmap(NULL, reserve, PROT_READ | PROT_WRITE, flags, -1, 0);
    while (base == MAP_FAILED && reserve / 2 >= LEAST_RESERVE) {
        reserve = reserve / 2 / MIB * MIB;
        base = mmap(NULL, reserve, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    if (base == MAP_FAILED)
        return SP_FAIL(SP_EMEM, "arena %s: cannot reserve %.1f MiB of addresses: %s",
                       name, arena_mib(asked), strerror(errno));
    /* Gathers touch rows all over the range; large pages avoid most of their TLB
     * misses. An arena of some kilobytes is in small pages: the system zeroes a page
     * when it is touched, and a run has some twenty arenas. */
    if (reserve > SP_LARGE_PAGE)
        madvise((char *)base + SP_LARGE_PAGE, reserve - SP_LARGE_PAGE, MADV_HUGEPAGE);
    arena->base = base;
    arena->reserved = reserve;
    return SP_OK;
}

sp_arena sp_arena_counter(void)
{
    return (sp_arena){.reserved = SIZE_MAX / 2 / ALIGN * ALIGN, .name = "counter"};
}

void sp_arena_destroy(sp_arena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->reserved);
    memset(arena, 0, sizeof *arena);
}

sp_status sp_arena_alloc(sp_arena *arena, size_t bytes, void **out)
{
    size_t room = arena->reserved - arena->used;
    size_t end = arena->used + sp_multiple(bytes, ALIGN);
    void *taken = arena->base ? arena->base + arena->used : NULL;

    assert(arena->used <= arena->reserved);
    /* The reserved range is a whole number of ALIGN, so rounding up cannot leave it. */
    if (bytes > room)
        return SP_FAIL(SP_EMEM, "arena %s: %.1f MiB asked, %.1f of %.1f MiB in use%s",
                       arena->name, arena_mib(bytes), arena_mib(arena->used),
                       arena_mib(arena->reserved),
                       sp_machine_address_space() == SIZE_MAX
                           ? ""
                           : "; ulimit -v or -d bounds the addresses of this process");
    if (arena->commit && end > arena->committed)
        SP_TRY(arena->commit(arena, end));
    arena->used = end;
    if (arena->used > arena->high)
        arena->high = arena->used;
    memcpy(out, &taken, sizeof taken); /* *out is a pointer of the caller's type */
    return SP_OK;
}

void sp_arena_reset(sp_arena *arena)
{
    sp_arena_rewind(arena, 0);
}

void sp_arena_rewind(sp_arena *arena, size_t used)
{
    assert(used <= arena->used);
    if (SP_DEBUG && arena->used > used && arena->base && !arena->commit)
        /* all bits set: NaN as a float, -1 as an integer */
        memset(arena->base + used, 0xff, arena->used - used);
    arena->used = used;
}

bool sp_arena_whole_pages(const sp_arena *arena, size_t *from, size_t *to)
{
    const uintptr_t base = (uintptr_t)arena->base;
    const uintptr_t begin = sp_multiple(base + *from, SP_LARGE_PAGE);
    const uintptr_t end = (base + *to) / SP_LARGE_PAGE * SP_LARGE_PAGE;

    assert(*from <= *to && *to <= arena->reserved);
    if (begin >= end || arena->commit)
        return false;
    *from = begin - base;
    *to = end - base;
    return true;
}

size_t sp_arena_release(sp_arena *arena, size_t from, size_t to)
{
    if (!sp_arena_whole_pages(arena, &from, &to))
        return to;
    madvise(arena->base + from, to - from, MADV_DONTNEED);
    return from;
}
