/* Small sums through the devices' memory (cuda_peer.cu), on emulated devices, have the
 * values and bits of sums in the order of ranks, for every length, scope and order of
 * execution, also where ranks dawdle. Ranks agree where something keeps one from this
 * memory, and a rank that never comes is named. */
#include "fixtures/test.h"

#include <stdbool.h>
#include <unistd.h>

#include "base/sp_liveness.h"
#include "compute/sp_transport.h"
#include "gpu/kernel_tests.h"

enum { MOST = 4096 };

#define LONG_S 1000.0 /* a limit that only a hang reaches */

static sp_comm comm;

typedef struct stand {
    sp_backend be;
    sp_arena arena;
    sp_transport t;
    double *data, *out; /* [MOST + 1] */
} stand;

static void set_up(stand *s, sp_transport_kind want, sp_scope scope,
                   double peer_limit_s)
{
    const sp_transport_options options = {.want = want,
                                          .scope = scope,
                                          .is_repeatable = true,
                                          .limit_s = 30,
                                          .peer_limit_s = peer_limit_s};

    memset(s, 0, sizeof *s);
    s->be.ops = sp_backend_find("cuda");
    assert_non_null(s->be.ops);
    OK(s->be.ops->open(&s->be, getenv("HC_VISIBLE") ? 0 : comm.rank, 1));
    OK(s->be.ops->arena_create(&s->arena, 1 << 20, "test"));
    OK(SP_ALLOC(&s->arena, MOST + 1, &s->data));
    OK(SP_ALLOC(&s->arena, MOST + 1, &s->out));
    OK(sp_transport_choose(&s->t, &comm, &s->be, &options));
}

static void tear_down(stand *s)
{
    sp_transport_close(&s->t);
    s->be.ops->arena_destroy(&s->arena);
    s->be.ops->close(&s->be);
}

static bool is_in(sp_scope scope, int rank)
{
    return scope == SP_SCOPE_WORLD || comm.node_of_rank[rank] == comm.node;
}

/* Gives values of a rank for a sum; they are of any size, and the sum depends on its
 * order. */
static double value(int i, int rank, int round)
{
    return ldexp(1.0 / (3 + i + 7 * rank + round),
                 (i * 5 + rank * 11 + round) % 41 - 20);
}

static double sum_of(sp_scope scope, int i, int round)
{
    double sum = 0;
    bool is_first = true;

    for (int r = 0; r < comm.size; r++)
        if (is_in(scope, r)) {
            sum = is_first ? value(i, r, round) : sum + value(i, r, round);
            is_first = false;
        }
    return sum;
}

/* Sums n values in place; the value behind them stays. */
static void sum_once(stand *s, sp_scope scope, int n, int round)
{
    static double host[MOST + 1];

    for (int i = 0; i < n; i++)
        host[i] = value(i, comm.rank, round);
    host[n] = 77;
    OK(s->be.ops->upload(&s->be, s->data, host, ((size_t)n + 1) * sizeof *host));
    OK(sp_transport_allreduce(&s->t, scope, s->data, s->data, (size_t)n, SP_F64));
    OK(s->be.ops->download(&s->be, host, s->data, ((size_t)n + 1) * sizeof *host));
    for (int i = 0; i < n; i++)
        if (memcmp(&host[i], &(double){sum_of(scope, i, round)}, sizeof *host) != 0)
            fail_msg("sum %d of %d values: [%d] is %.17g, by rank it is %.17g", round,
                     n, i, host[i], sum_of(scope, i, round));
    assert_true(host[n] == 77);
}

/* Long sums leave old words behind, which short ones must not read. */
TEST(sums_have_the_bits_of_their_order)
{
    static const int length[] = {193, 1, 513, 641, 64, MOST, 31, 513};

    for (sp_scope scope = SP_SCOPE_NODE; scope <= SP_SCOPE_WORLD; scope++)
        for (int is_lazy = 0; is_lazy < 2; is_lazy++) {
            CLOSED_BY(tear_down) stand s;

            hc_set_order(5 + (uint64_t)comm.rank, is_lazy);
            set_up(&s, SP_TRANSPORT_AUTO, scope, LONG_S);
            assert_true((s.t.peer != NULL) ==
                        (scope == SP_SCOPE_NODE || comm.n_nodes == 1));
            for (int i = 0; s.t.peer && i < 8; i++)
                sum_once(&s, scope, length[i], i);
        }
    hc_set_order(1, false);
}

/* Only the stream orders the sums: a rank is up to a sum ahead of another. */
TEST(sums_follow_each_other)
{
    enum { N = 40, SUMS = 100 };
    static double host[SUMS][N];
    CLOSED_BY(tear_down) stand s;

    set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, LONG_S);
    for (int k = 0; k < SUMS; k++)
        for (int i = 0; i < N; i++)
            host[k][i] = value(i, comm.rank, k);
    OK(s.be.ops->upload(&s.be, s.data, host, sizeof host));
    for (int k = 0; k < SUMS; k++)
        OK(sp_transport_allreduce(&s.t, SP_SCOPE_NODE, s.data + (ptrdiff_t)k * N,
                                  s.out + (ptrdiff_t)k * N, k % 3 ? N : N - 1, SP_F64));
    OK(s.be.ops->download(&s.be, host, s.out, sizeof host));
    for (int k = 0; k < SUMS; k++)
        for (int i = 0; i < (k % 3 ? N : N - 1); i++)
            if (host[k][i] != sum_of(SP_SCOPE_NODE, i, k))
                fail_msg("sum %d: [%d] is %.17g, not %.17g", k, i, host[k][i],
                         sum_of(SP_SCOPE_NODE, i, k));
}

TEST(whole_numbers_and_long_vectors)
{
    int64_t host[9], *whole;
    double one[2];
    CLOSED_BY(tear_down) stand s;

    set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, LONG_S);
    whole = (int64_t *)s.data;
    for (int i = 0; i < 9; i++)
        host[i] = (comm.local_rank + 1) * (((int64_t)1 << 55) + i) - 1000;
    OK(s.be.ops->upload(&s.be, whole, host, sizeof host));
    OK(sp_transport_allreduce(&s.t, SP_SCOPE_NODE, whole, whole, 9, SP_I64));
    OK(s.be.ops->download(&s.be, host, whole, sizeof host));
    const int64_t n = comm.local_size, weight = n * (n + 1) / 2;
    for (int i = 0; i < 9; i++)
        assert_true(host[i] == weight * (((int64_t)1 << 55) + i) - 1000 * n);
    /* a longer sum goes through the transport */
    OK(s.be.ops->fill(&s.be, s.data, 0, (MOST + 1) * sizeof *s.data));
    OK(sp_transport_allreduce(&s.t, SP_SCOPE_NODE, s.data, s.data, MOST + 1, SP_F64));
    OK(s.be.ops->download(&s.be, one, s.data + MOST - 1, sizeof one));
    assert_true(one[0] == 0 && one[1] == 0);
}

static bool is_taken(const stand *s, sp_scope scope, size_t n, sp_type type)
{
    const sp_small_sum sum = {.scope = scope, .part = {.count = n, .type = type}};

    return s->t.ops->peer->takes(&s->t, &sum);
}

TEST(short_sums_of_the_scope_go_through_the_memory)
{
    CLOSED_BY(tear_down) stand s;

    set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, LONG_S);
    assert_true(is_taken(&s, SP_SCOPE_NODE, MOST, SP_F64));
    assert_true(is_taken(&s, SP_SCOPE_NODE, MOST, SP_I64));
    assert_false(is_taken(&s, SP_SCOPE_NODE, MOST + 1, SP_F64));
    assert_false(is_taken(&s, SP_SCOPE_NODE, 1, SP_F32));
    assert_false(is_taken(&s, SP_SCOPE_WORLD, 1, SP_F64));
}

static int64_t waits(void)
{
    sp_liveness alive;

    sp_liveness_read(&alive);
    return alive.waits;
}

/* While no kernel waits its device reports nothing. */
TEST(the_host_counts_only_waits)
{
    CLOSED_BY(tear_down) stand s;
    bool is_leaving = true;

    set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, LONG_S);
    sum_once(&s, SP_SCOPE_NODE, 9, 0);
    OK(s.t.ops->peer->look(&s.t, &is_leaving));
    assert_false(is_leaving);
    const int64_t before = waits();
    OK(s.t.ops->peer->look(&s.t, &is_leaving));
    assert_int_equal(waits(), before);
}

/* One rank that cannot or must not use peers' memory is a reason for all. */
static void refused(const char *name, const char *how, const char *text, bool is_one)
{
    CLOSED_BY(tear_down) stand s;

    if (!is_one || comm.rank == comm.size - 1)
        setenv(name, how, 1);
    set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, 2);
    unsetenv(name);
    assert_null(s.t.peer);
    if (!strstr(s.t.words, text))
        fail_msg("\"%s\" lacks: %s", s.t.words, text);
    sum_once(&s, SP_SCOPE_NODE, 50, 0);
}

TEST(all_or_none)
{
    stand s;

    refused("SP_PEER_MEMORY", "0", "SP_PEER_MEMORY=0", false);
    refused("SP_PEER_MEMORY", "0", "SP_PEER_MEMORY=0", true);
    refused("HC_NO_PEER", "1", "cannot reach the device of rank", false);
    refused("HC_SKIP", "peer_sum", "did not come", true); /* a dead link */
    refused("HC_WRONG", "1", "a sum of the start is wrong", false);
    set_up(&s, SP_TRANSPORT_MPI, SP_SCOPE_NODE, 30); /* switched off by the user */
    assert_null(s.t.peer);
    tear_down(&s);
    set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, LONG_S);
    assert_non_null(s.t.peer);
    assert_non_null(strstr(s.t.words, "batch statistics through the devices' memory"));
    tear_down(&s);
}

/* Batch systems show each task its own device. The memory of the others is mapped all
 * the same where the driver can; where it cannot, the ranks agree and say why. */
TEST(ranks_that_see_one_device_each)
{
    char own[12];
    stand s;

    snprintf(own, sizeof own, "%d", comm.rank);
    setenv("HC_VISIBLE", own, 1);
    set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, LONG_S);
    if (!s.t.peer)
        fail_msg("not through the devices' memory: %s", s.t.words);
    sum_once(&s, SP_SCOPE_NODE, 193, 3);
    tear_down(&s);
    refused("HC_NO_PEER", "1", "which it does not see (CUDA_VISIBLE_DEVICES)", false);
    unsetenv("HC_VISIBLE");
}

/* Rank 0 does not sum: the others' streams end and report it. Then all leave. This test
 * comes last, since nothing can be closed together after it. */
TEST(who_never_comes_is_named)
{
    double host[3] = {1, 2, 3};
    static stand s; /* static, so that no leak is reported */
    bool is_leaving = true;
    sp_status rc;

    /* They try first whether all come, for which a machine with other work may need
     * longer than they then are to wait. */
    for (double limit_s = 2; limit_s < 100; limit_s *= 3) {
        set_up(&s, SP_TRANSPORT_AUTO, SP_SCOPE_NODE, limit_s);
        if (s.t.peer)
            break;
        tear_down(&s);
    }
    assert_non_null(s.t.peer);
    int64_t before = waits();
    if (comm.rank > 0 && comm.node == 0) {
        OK(s.be.ops->upload(&s.be, s.data, host, sizeof host));
        OK(sp_transport_allreduce(&s.t, SP_SCOPE_NODE, s.data, s.data, 3, SP_F64));
        rc = s.be.ops->download(&s.be, host, s.data, sizeof host);
        FAILS(rc, SP_EMPI, "rank 0 did not come");
        assert_true(waits() > before); /* its device said that it waits */
    }
    s.t.ops->peer->look(&s.t, &is_leaving);
    assert_false(is_leaving);
    before = waits(); /* the same report does not count again */
    s.t.ops->peer->abandon(&s.t);
    s.t.ops->peer->look(&s.t, &is_leaving);
    assert_true(is_leaving && waits() == before);
}

KERNEL_TEST(test_peer_memory)
{
    setenv("HC_DELAY", "1", 0);
    if (strstr(argv[0], "np4"))
        setenv("SP_RANKS_PER_NODE", "2", 0);
    return kernel_rank_tests(&comm, argc, argv, own_tests, n_own_tests);
}
