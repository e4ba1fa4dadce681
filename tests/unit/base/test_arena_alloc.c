/* An arena hands out aligned, disjoint memory, gives it back to a mark, and says who
 * asked for how much when it is full. */
#include "config.h"

#include "fixtures/test.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_arena.h"
#include "base/sp_machine.h"
#include "fixtures/wrapped.h"

#define MIB ((size_t)1 << 20)

static int n_opened; /* files, since the start */

/* NOLINTNEXTLINE: a name given by the linker */
WRAPPED_BEHIND(n_opened++, FILE *, fopen, (path, mode), const char *path,
               const char *mode)

TEST(pieces_are_aligned_and_disjoint)
{
    CLOSED_BY(sp_arena_destroy) sp_arena arena;
    char *last = NULL;
    float *f;
    double *d;

    OK(sp_arena_create(&arena, MIB, "test"));
    for (int i = 0; i < 100; i++) {
        OK(SP_ALLOC(&arena, i, &f));
        assert_true((uintptr_t)f % 128 == 0);
        assert_true((char *)f >= last);
        for (int j = 0; j < i; j++)
            f[j] = (float)i;
        last = (char *)(f + i);
    }
    OK(SP_ALLOC(&arena, 5, &d));
    assert_true((char *)d >= last);
    assert_int_equal(arena.used, arena.high);
    sp_arena_destroy(&arena);
    assert_null(arena.base);
}

TEST(more_than_the_machine_has_is_refused)
{
    CLOSED_BY(sp_arena_destroy) sp_arena arena;

    FAILS(sp_arena_create(&arena, sp_machine_memory() + MIB, "test"), SP_EMEM,
          "arena test: ");
}

/* Each evaluation has an arena, and its pass over a small set takes less time than the
 * files of cgroups. */
TEST(a_second_arena_opens_no_file)
{
    CLOSED_BY(sp_arena_destroy) sp_arena first;
    CLOSED_BY(sp_arena_destroy) sp_arena second;

    OK(sp_arena_create(&first, 0, "first"));
    assert_true(n_opened > 0);
    n_opened = 0;
    OK(sp_arena_create(&second, 0, "second"));
    assert_int_equal(n_opened, 0);
    assert_int_equal(second.reserved, first.reserved);
}

TEST(rewind_and_reset_give_the_same_memory_again)
{
    CLOSED_BY(sp_arena_destroy) sp_arena arena;
    int *a, *b, *c;
    size_t mark;

    OK(sp_arena_create(&arena, MIB, "test"));
    OK(SP_ALLOC(&arena, 10, &a));
    mark = arena.used;
    OK(SP_ALLOC(&arena, 1000, &b));
    b[999] = 7;
    sp_arena_rewind(&arena, mark);
    OK(SP_ALLOC(&arena, 20, &c));
    assert_ptr_equal(b, c);
    assert_int_equal(b[999], SP_DEBUG ? -1 : 7);
    sp_arena_reset(&arena);
    OK(SP_ALLOC(&arena, 1, &c));
    assert_ptr_equal(a, c);
    assert_true(arena.high > arena.used);
}

TEST(a_full_arena_says_who_asked_for_what)
{
    CLOSED_BY(sp_arena_destroy) sp_arena arena;
    char *p;

    OK(sp_arena_create(&arena, 2 * MIB, "batch 1"));
    OK(SP_ALLOC(&arena, MIB, &p));
    assert_int_equal(SP_ALLOC(&arena, MIB + 1, &p), SP_EMEM);
    assert_string_equal(sp_error_last()->message,
                        "arena batch 1: 1.0 MiB asked, 1.0 of 2.0 MiB in use");
    assert_int_equal(SP_ALLOC(&arena, -1, &p), SP_EMEM);
    OK(SP_ALLOC(&arena, MIB, &p)); /* the last byte too */
    p[MIB - 1] = 1;
    OK(SP_ALLOC(&arena, 0, &p));
    assert_int_equal(SP_ALLOC(&arena, 1, &p), SP_EMEM);
}

TEST(default_is_what_the_process_may_use)
{
    CLOSED_BY(sp_arena_destroy) sp_arena arena;

    OK(sp_arena_create(&arena, 0, "default"));
    assert_true(arena.reserved >= 64 * MIB);
    assert_true(arena.reserved <= sp_machine_memory() + MIB);
}

/* Unless the system makes every page a large one, that of an arena's first byte is
 * small: a run has some twenty arenas, and a page is zeroed as a whole. */
TEST(a_small_arena_takes_little_memory)
{
    char setting[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    size_t before = 0;
    sp_arena arena[8];
    char *byte;

    if (!file || !fgets(setting, sizeof setting, file) || strstr(setting, "[always]"))
        setting[0] = '\0';
    if (file)
        fclose(file);
    if (!setting[0])
        skip();
    /* The first one also touches the pages of the code and of the sanitizer's own. */
    for (int i = -1; i < 8; i++) {
        const int k = i < 0 ? 0 : i;

        OK(sp_arena_create(&arena[k], 64 * MIB, "small"));
        OK(SP_ALLOC(&arena[k], 1, &byte));
        *byte = 1;
        if (i >= 0)
            continue;
        sp_arena_destroy(&arena[k]);
        before = sp_machine_resident();
    }
    assert_in_range(sp_machine_resident() - before, 0, MIB);
    for (int i = 0; i < 8; i++)
        sp_arena_destroy(&arena[i]);
}

/* The test runs in a child, since the limit cannot be lifted again. A training has some
 * twenty arenas, whose threads and libraries need addresses too. */
static int create_under_limit(void)
{
    struct rlimit limit = {1024 * MIB, 1024 * MIB};
    sp_arena arena;

    if (setrlimit(RLIMIT_AS, &limit) != 0 || sp_machine_address_space() >= 1024 * MIB)
        return 1;
    for (int i = 0; i < 24; i++)
        if (sp_arena_create(&arena, 0, "one of many") || arena.reserved < 8 * MIB)
            return 2;
    if (sp_arena_create(&arena, 4096 * MIB, "large"))
        return 3;
    if (sp_arena_alloc(&arena, arena.reserved + 1, &(void *){NULL}) != SP_EMEM ||
        !strstr(sp_error_last()->message, "ulimit -v"))
        return 4;
    return arena.reserved >= 64 * MIB && arena.reserved < 1024 * MIB ? 0 : 5;
}

TEST(limited_addresses_leave_smaller_arenas)
{
    int status;
    pid_t child;

#ifdef __SANITIZE_ADDRESS__ /* the sanitizer's shadow takes more than any limit */
    return;
#endif
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(create_under_limit());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TEST(cores_are_counted)
{
    uint64_t set[SP_CORE_WORDS];

    assert_in_range(sp_machine_cores(set), 1, sysconf(_SC_NPROCESSORS_CONF));
    assert_true(sp_machine_core_quota() >= 1);
}
