/* Each transport gives sums that are known: vectors in the compute stream, posted
 * buckets of several types and pieces, in order with the device's work, with the same
 * bits every time. The device is emulated, its NCCL is tests/emulator/nccl_double. */
#include "fixtures/test.h"

#include <stdint.h>
#include <unistd.h>

#include "compute/sp_transport.h"
#include "gpu/kernel_tests.h"

enum {
    LATE = 1000,
    MANY = 3 << 20
}; /* number of floats: three pieces of the staged transport */

static sp_comm comm;

typedef struct stand {
    sp_backend be;
    sp_arena arena;
    sp_transport t;
    float *bulk;    /* [MANY] taken from the transport */
    double *small;  /* [64] */
    int64_t *whole; /* [64] */
    float *late;    /* [LATE] comes into bulk behind the rest */
} stand;

/* want: HOST for the memory of the CPU, or a sp_transport_kind for that of a device. */
enum { HOST = -1, N_WANTS = 3 };
static const int wants[N_WANTS] = {HOST, SP_TRANSPORT_MPI, SP_TRANSPORT_NCCL};

static void set_up(stand *s, int want, sp_scope scope, bool is_bf16)
{
    const bool is_host = want == HOST;
    const sp_transport_options options = {.want = is_host ? SP_TRANSPORT_AUTO
                                                          : (sp_transport_kind)want,
                                          .scope = scope,
                                          .is_bf16 = is_bf16,
                                          .is_repeatable = true,
                                          .limit_s = 30};

    memset(s, 0, sizeof *s);
    s->be.ops = sp_backend_find(is_host ? "cpu" : "cuda");
    assert_non_null(s->be.ops);
    OK(s->be.ops->open(&s->be, is_host ? 0 : comm.rank, 1));
    OK(sp_transport_choose(&s->t, &comm, &s->be, &options));
    assert_string_equal(s->t.ops->name, is_host                     ? "mpi"
                                        : want == SP_TRANSPORT_NCCL ? "nccl"
                                                                    : "mpi-staged");
    OK(s->be.ops->arena_create(&s->arena, 1 << 20, "test"));
    OK(SP_ALLOC(&s->arena, 64, &s->small));
    OK(SP_ALLOC(&s->arena, 64, &s->whole));
    OK(SP_ALLOC(&s->arena, LATE, &s->late));
    OK(sp_transport_alloc(&s->t, MANY * sizeof *s->bulk, (void **)&s->bulk));
}

static void tear_down(stand *s)
{
    s->be.ops->arena_destroy(&s->arena);
    sp_transport_close(&s->t);
    s->be.ops->close(&s->be);
}

/* Returns the sum of (r + 1) over the ranks of the scope. */
static double weight(sp_scope scope)
{
    double sum = 0;

    for (int r = 0; r < comm.size; r++)
        if (scope == SP_SCOPE_WORLD || comm.node_of_rank[r] == comm.node)
            sum += r + 1;
    return sum;
}

static float value(int64_t i, int round)
{
    return (float)((i * 7 + round) % 1001);
}

static void put(stand *s, float *host, int64_t n, int round)
{
    double small[64];
    int64_t whole[64];

    for (int64_t i = 0; i < n; i++)
        host[i] = (float)(comm.rank + 1) * value(i, round);
    for (int i = 0; i < 64; i++) {
        small[i] = (comm.rank + 1) * (0.5 * i + round);
        whole[i] = (comm.rank + 1) * ((int64_t)i << 40);
    }
    OK(s->be.ops->upload(&s->be, n > LATE ? s->bulk : s->late, host,
                         (size_t)n * sizeof *host));
    OK(s->be.ops->upload(&s->be, s->small, small, sizeof small));
    OK(s->be.ops->upload(&s->be, s->whole, whole, sizeof whole));
    if (n <= LATE) /* a kernel, which a lazy stream has not begun at the post */
        OK(s->be.ops->copy(
            &s->be, (sp_tensor){.data = s->late, .n = n, .c = 1, .ld = 1},
            (sp_tensor){.data = s->bulk, .n = n, .c = 1, .ld = 1}, false));
}

static void check_small(stand *s, sp_scope scope, int round)
{
    double small[64];
    int64_t whole[64];

    OK(s->be.ops->download(&s->be, small, s->small, sizeof small));
    OK(s->be.ops->download(&s->be, whole, s->whole, sizeof whole));
    for (int i = 0; i < 64; i++) {
        assert_true(small[i] == weight(scope) * (0.5 * i + round));
        assert_true(whole[i] == (int64_t)weight(scope) * ((int64_t)i << 40));
    }
}

static void check_bulk(stand *s, float *host, int64_t n, int round)
{
    OK(s->be.ops->download(&s->be, host, s->bulk, (size_t)n * sizeof *host));
    for (int64_t i = 0; i < n; i++)
        if (host[i] != (float)weight(SP_SCOPE_WORLD) * value(i, round))
            fail_msg("bulk[%lld]: %g, expected %g", (long long)i, (double)host[i],
                     weight(SP_SCOPE_WORLD) * (double)value(i, round));
}

/* Sums two buckets and the values that travel with the second, and small sums between
 * the posts. */
static void sum_posted(stand *s, float *host, int64_t n, int round)
{
    const int64_t half = n / 2;
    const sp_part late = {s->bulk + half, (size_t)(n - half), SP_F32};
    const sp_part early[3] = {{s->bulk, (size_t)half, SP_F32},
                              {s->small, 64, SP_F64},
                              {s->whole, 64, SP_I64}};
    sp_sum sum[2];
    double *vector, one[2] = {1, 0};
    bool is_done;

    OK(SP_ALLOC(&s->arena, 2, &vector));
    put(s, host, n, round);
    OK(sp_transport_post(&s->t, &late, 1, &sum[0]));
    /* Ranks reach the next sum at different times. */
    for (int i = 0; i < 10 * comm.rank; i++)
        OK(sp_transport_test(&s->t, &sum[0], &is_done));
    OK(s->be.ops->upload(&s->be, vector, one, sizeof one));
    OK(sp_transport_allreduce(&s->t, SP_SCOPE_WORLD, vector, vector, 2, SP_F64));
    OK(sp_transport_test(&s->t, &sum[0], &is_done));
    OK(sp_transport_post(&s->t, early, 3, &sum[1]));
    OK(sp_transport_join(&s->t, &sum[0]));
    OK(sp_transport_join(&s->t, &sum[1]));
    OK(s->be.ops->download(&s->be, one, vector, sizeof one));
    assert_true(one[0] == comm.size && one[1] == 0);
    check_bulk(s, host, n, round); /* the compute stream waits for it */
    check_small(s, SP_SCOPE_WORLD, round);
    OK(sp_transport_wait(&s->t, &sum[0]));
    OK(sp_transport_wait(&s->t, &sum[1]));
    sp_arena_rewind(&s->arena, s->arena.used - 128);
}

static void posts_are_summed(int want)
{
    float *host = test_alloc(MANY * sizeof *host);

    for (int is_lazy = 0; is_lazy < 2; is_lazy++) {
        CLOSED_BY(tear_down) stand s;

        hc_set_order(3 + (uint64_t)comm.rank, is_lazy);
        set_up(&s, want, SP_SCOPE_WORLD, false);
        for (int round = 0; round < 3; round++)
            sum_posted(&s, host, round ? 1000 : MANY, round);
    }
    hc_set_order(1, false);
}

TEST(on_the_host)
{
    posts_are_summed(HOST);
}

TEST(staged)
{
    posts_are_summed(SP_TRANSPORT_MPI);
}

TEST(by_nccl)
{
    posts_are_summed(SP_TRANSPORT_NCCL);
}

TEST(small_sums_over_every_scope)
{
    float host[1];

    for (int w = 0; w < N_WANTS; w++)
        for (sp_scope scope = SP_SCOPE_NODE; scope <= SP_SCOPE_WORLD; scope++) {
            CLOSED_BY(tear_down) stand s;

            set_up(&s, wants[w], scope, false);
            for (int round = 0; round < 3; round++) {
                put(&s, host, 0, round);
                OK(sp_transport_allreduce(&s.t, scope, s.small, s.small, 64, SP_F64));
                OK(sp_transport_allreduce(&s.t, scope, s.whole, s.whole, 64, SP_I64));
                OK(sp_transport_allreduce(&s.t, SP_SCOPE_RANK, s.small, s.small, 64,
                                          SP_F64));
                OK(sp_transport_allreduce(&s.t, scope, s.small, s.small, 0, SP_F64));
                check_small(&s, scope, round);
            }
        }
}

/* The values do not add up exactly; two sums of them are the same on every rank. */
TEST(bits_repeat)
{
    enum { N = 5000 };
    float host[2][N];
    bool is_same;

    for (int w = 0; w < N_WANTS; w++) {
        for (int run = 0; run < 2; run++) {
            CLOSED_BY(tear_down) stand s;
            sp_part own = {NULL, N, SP_F32};
            sp_sum sum;

            set_up(&s, wants[w], SP_SCOPE_RANK, false);
            own.data = s.bulk;
            for (int i = 0; i < N; i++)
                host[run][i] = 1.0F / (float)(i + 3 + 11 * comm.rank);
            OK(s.be.ops->upload(&s.be, s.bulk, host[run], sizeof host[run]));
            OK(sp_transport_post(&s.t, &own, 1, &sum));
            OK(sp_transport_wait(&s.t, &sum));
            OK(s.be.ops->download(&s.be, host[run], s.bulk, sizeof host[run]));
        }
        assert_memory_equal(host[0], host[1], sizeof host[0]);
        OK(sp_comm_is_same(&comm, host[0], sizeof host[0], &is_same));
        assert_true(is_same);
    }
}

/* Floats travel rounded to 8 bits and come close, the same on all ranks; doubles, and
 * memory that is not the transport's, stay exact. */
TEST(bf16_travels)
{
    float host[1000];
    bool is_same;
    CLOSED_BY(tear_down) stand s;
    sp_sum sum;

    set_up(&s, SP_TRANSPORT_NCCL, SP_SCOPE_RANK, true);
    put(&s, host, 1000, 2);
    const sp_part part[2] = {{s.bulk, 1000, SP_F32}, {s.small, 64, SP_F64}};
    OK(sp_transport_post(&s.t, part, 2, &sum));
    OK(sp_transport_wait(&s.t, &sum));
    OK(sp_transport_allreduce(&s.t, SP_SCOPE_WORLD, s.whole, s.whole, 64, SP_I64));
    OK(s.be.ops->download(&s.be, host, s.bulk, sizeof host));
    check_small(&s, SP_SCOPE_WORLD, 2);
    int n_rounded = 0;
    for (int i = 0; i < 1000; i++) {
        const double exact = weight(SP_SCOPE_WORLD) * (double)value(i, 2);

        assert_true(fabs((double)host[i] - exact) <= exact * comm.size / 256.0);
        n_rounded += (double)host[i] != exact;
    }
    assert_true(n_rounded > 500);
    OK(sp_comm_is_same(&comm, host, sizeof host, &is_same));
    assert_true(is_same);
}

static void refusal(sp_transport_kind want, const char *objection, const char *text)
{
    const sp_transport_options options = {
        .want = want, .objection = objection, .scope = SP_SCOPE_WORLD, .limit_s = 30};
    sp_backend be = {.ops = sp_backend_find("cuda")};
    sp_transport t;
    sp_status rc;

    OK(be.ops->open(&be, comm.rank, 1));
    rc = sp_transport_choose(&t, &comm, &be, &options);
    if (want == SP_TRANSPORT_NCCL) {
        assert_int_not_equal(rc, SP_OK);
        SAYS(text);
    } else {
        OK(rc);
        assert_string_equal(t.ops->name, "mpi-staged");
        assert_non_null(strstr(t.words, text));
    }
    sp_transport_close(&t);
    be.ops->close(&be);
}

TEST(auto_falls_back_and_says_why)
{
    refusal(SP_TRANSPORT_AUTO, "two ranks share a device", "two ranks share a device");
    refusal(SP_TRANSPORT_NCCL, "two ranks share a device", "two ranks share a device");
}

KERNEL_TEST(test_transport)
{
    setenv("SP_RANKS_PER_NODE", "2", 0);
    return kernel_rank_tests(&comm, argc, argv, own_tests, n_own_tests);
}
