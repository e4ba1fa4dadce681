/* Two ranks that may use the same cores divide them, and their threads inherit the
 * share; ranks that a launcher bound stay where they are. */
#include "fixtures/test.h"

#include <pthread.h>
#include <sched.h>

#include "comm/sp_affinity.h"

ON_RANKS(comm)

static int count(const uint64_t set[SP_CORE_WORDS])
{
    int n = 0;

    for (int w = 0; w < SP_CORE_WORDS; w++)
        n += __builtin_popcountll(set[w]);
    return n;
}

static void bind_to(const uint64_t set[SP_CORE_WORDS])
{
    assert_int_equal(
        sched_setaffinity(0, SP_CORE_WORDS * sizeof *set, (const cpu_set_t *)set), 0);
}

/* The sum of both ranks' sets is their union where they are disjoint. */
static void sum(const uint64_t set[SP_CORE_WORDS], int64_t all[SP_CORE_WORDS])
{
    memcpy(all, set, SP_CORE_WORDS * sizeof *set);
    OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, all, SP_CORE_WORDS, SP_I64, SP_SUM));
}

static void *own_cores(void *set)
{
    sp_machine_cores(set);
    return NULL;
}

TEST(same_cores_are_divided)
{
    uint64_t before[SP_CORE_WORDS], after[SP_CORE_WORDS], thread[SP_CORE_WORDS];
    int64_t all[SP_CORE_WORDS];
    const int cores = sp_machine_cores(before);
    pthread_t id;
    char text[100];

    setenv("SP_BIND", "no", 1);
    OK(sp_affinity_bind(&comm, NULL, text, sizeof text));
    assert_string_equal(text, "");
    assert_int_equal(sp_machine_cores(after), cores);
    unsetenv("SP_BIND");

    OK(sp_affinity_bind(&comm, NULL, text, sizeof text));
    sp_machine_cores(after);
    if (cores < 2) {
        assert_string_equal(text, "");
        assert_memory_equal(before, after, sizeof before);
        return;
    }
    assert_non_null(strstr(text, " of "));
    assert_in_range(count(after), cores / 2, (cores + 1) / 2);
    assert_int_equal(comm.cores, count(after));
    sum(after, all);
    assert_memory_equal(all, before, sizeof before);
    assert_int_equal(pthread_create(&id, NULL, own_cores, thread), 0);
    pthread_join(id, NULL);
    assert_memory_equal(thread, after, sizeof after);
    bind_to(before);
}

TEST(bound_ranks_stay)
{
    uint64_t before[SP_CORE_WORDS], one[SP_CORE_WORDS] = {0}, after[SP_CORE_WORDS];
    const int cores = sp_machine_cores(before);
    char text[100];

    for (int i = 0, n = 0; i < SP_CORE_WORDS * 64; i++)
        if (before[i / 64] >> i % 64 & 1 && n++ == comm.rank % cores)
            one[i / 64] |= (uint64_t)1 << i % 64;
    bind_to(one);
    OK(sp_affinity_bind(&comm, NULL, text, sizeof text));
    sp_machine_cores(after);
    assert_memory_equal(one, after, sizeof one);
    assert_string_equal(text, "");
    bind_to(before);
}
