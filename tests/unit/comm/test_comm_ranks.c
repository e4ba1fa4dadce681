/* sp_comm behaves the same on any number of ranks, on nodes of 3 and 1
 * (test_comm_nodes), without memory that a node shares (test_comm_pieces), and without
 * MPI (test_comm_self), as tests of later modules use it. */
#include "fixtures/test.h"
#include "base/sp_program.h"

#include <sys/resource.h>
#include <time.h>

#include "comm/sp_comm.h"
#include "fixtures/wrapped.h"

static sp_comm comm;

/* Each rank sleeps for another time, so that ranks never arrive together. */
static void dawdle(int turn)
{
    struct timespec nap = {0, 100000L * ((comm.rank * 7 + turn * 3) % 5)};

    nanosleep(&nap, NULL);
}

TEST(ranks_and_nodes_are_consistent)
{
    int on_my_node = 0, before_me = 0;

    assert_in_range(comm.rank, 0, comm.size - 1);
    assert_true(comm.cores >= 1 && comm.node_cores >= comm.cores);
    assert_true(strlen(comm.host) > 0);
    assert_true(comm.is_sleeping == (comm.is_oversubscribed || getenv("SP_WAIT")));
    for (int r = 0; r < comm.size; r++) {
        on_my_node += comm.node_of_rank[r] == comm.node;
        before_me += comm.node_of_rank[r] == comm.node && r < comm.rank;
        assert_in_range(comm.node_of_rank[r], 0, comm.n_nodes - 1);
    }
    assert_int_equal(comm.node_of_rank[0], 0);
    assert_int_equal(comm.node_of_rank[comm.rank], comm.node);
    assert_int_equal(comm.local_size, on_my_node);
    assert_int_equal(comm.local_rank, before_me);
}

/* The sum, the maximum and the minimum of first + step * r over the ranks in scope. */
static double expected(sp_scope scope, sp_reduce_op op, double first, double step)
{
    double sum = 0, most = -HUGE_VAL, least = HUGE_VAL;

    for (int r = 0; r < comm.size; r++) {
        double x = first + step * r;

        if ((scope == SP_SCOPE_RANK && r != comm.rank) ||
            (scope == SP_SCOPE_NODE && comm.node_of_rank[r] != comm.node))
            continue;
        sum += x;
        most = fmax(most, x);
        least = fmin(least, x);
    }
    return op == SP_SUM ? sum : op == SP_MAX ? most : least;
}

enum { COUNT = 1000 };

static void reduce_all_types(sp_scope scope, sp_reduce_op op)
{
    static float f32[COUNT];
    static double f64[COUNT];
    static int64_t i64[COUNT];
    static uint8_t u8[COUNT];

    for (int i = 0; i < COUNT; i++) {
        f32[i] = (float)(i + comm.rank);
        f64[i] = 0.5 * i - 2 * comm.rank;
        i64[i] = ((int64_t)i << 40) - comm.rank;
        u8[i] = (uint8_t)(i % 20 + comm.rank);
    }
    OK(sp_comm_allreduce(&comm, scope, f32, COUNT, SP_F32, op));
    OK(sp_comm_allreduce(&comm, scope, f64, COUNT, SP_F64, op));
    OK(sp_comm_allreduce(&comm, scope, i64, COUNT, SP_I64, op));
    OK(sp_comm_allreduce(&comm, scope, u8, COUNT, SP_U8, op));
    for (int i = 0; i < COUNT; i++) {
        assert_true(f32[i] == (float)expected(scope, op, i, 1));
        assert_true(f64[i] == expected(scope, op, 0.5 * i, -2));
        assert_true(i64[i] == (int64_t)expected(scope, op, i * 0x1p40, -1));
        assert_true(u8[i] == (uint8_t)expected(scope, op, i % 20, 1));
    }
}

TEST(allreduce_over_every_scope)
{
    for (sp_scope scope = SP_SCOPE_RANK; scope <= SP_SCOPE_LANE; scope++)
        for (sp_reduce_op op = SP_SUM; op <= SP_MIN; op++)
            reduce_all_types(scope, op);
    OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, NULL, 0, SP_F32, SP_SUM));
}

/* MPI's own MPI_MAX gives different ranks different results here. */
TEST(nan_of_any_rank_reaches_all_ranks)
{
    enum { LONG = 1 << 17 }; /* beyond what a node's memory takes */
    FREED double *f64 = malloc(LONG * sizeof *f64);
    FREED float *f32 = malloc(LONG * sizeof *f32);

    for (int sick = 0; sick < comm.size; sick++)
        for (sp_reduce_op op = SP_SUM; op <= SP_MIN; op++)
            for (int n = 3; n <= LONG; n += LONG - 3) {
                for (int i = 0; i < n; i++)
                    f64[i] = f32[i] = comm.rank == sick && i != 1 ? NAN : 1;
                OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, f64, (size_t)n, SP_F64,
                                     op));
                OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, f32, (size_t)n, SP_F32,
                                     op));
                for (int i = 0; i < n; i++)
                    assert_true(isnan(f64[i]) == (i != 1) && isnan(f32[i]) == (i != 1));
            }
}

TEST(infinities_are_numbers)
{
    double most = comm.rank ? -INFINITY : INFINITY, least = -most;

    OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, &most, 1, SP_F64, SP_MAX));
    OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, &least, 1, SP_F64, SP_MIN));
    assert_true(most == INFINITY && least == -INFINITY);
}

TEST(many_requests_are_under_way_at_once)
{
    enum { N_REQUESTS = 50 };
    sp_request requests[N_REQUESTS] = {{NULL}};
    double x[N_REQUESTS][3];
    int n_done = 0;

    dawdle(0);
    for (int i = 0; i < N_REQUESTS; i++) {
        for (int j = 0; j < 3; j++)
            x[i][j] = i + j + comm.rank;
        OK(sp_comm_iallreduce(&comm, SP_SCOPE_WORLD, x[i], 3, SP_F64, SP_SUM,
                              &requests[i]));
    }
    for (int i = N_REQUESTS - 1; i >= N_REQUESTS / 2; i--)
        OK(sp_comm_wait(&comm, &requests[i]));
    while (n_done < N_REQUESTS / 2) {
        bool is_done;

        OK(sp_comm_test(&comm, &requests[n_done], &is_done));
        n_done += is_done;
    }
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_null(requests[i].handle);
        for (int j = 0; j < 3; j++)
            assert_true(x[i][j] == expected(SP_SCOPE_WORLD, SP_SUM, i + j, 1));
    }
}

/* The numbers are such that another order of the sum rounds differently. */
TEST(float_sums_repeat_bit_for_bit)
{
    enum { LONG = 30000 };
    FREED float *first = malloc(LONG * sizeof *first),
                *again = malloc(LONG * sizeof *again);

    for (int turn = 0; turn < 4; turn++) {
        float *x = turn ? again : first;
        bool is_same;

        for (int i = 0; i < LONG; i++)
            x[i] = sinf((float)(i * 31 + comm.rank * 17)) * powf(10, (float)(i % 7));
        dawdle(turn);
        OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, x, LONG, SP_F32, SP_SUM));
        OK(sp_comm_is_same(&comm, x, LONG * sizeof *x, &is_same));
        assert_true(is_same);
        if (turn)
            assert_memory_equal(first, again, LONG * sizeof *x);
    }
}

TEST(lowest_failing_rank_speaks_for_all)
{
    int last = comm.size - 1;
    sp_status mine = SP_OK;

    OK(sp_comm_agree(&comm, SP_OK));
    assert_int_equal(comm.failed_rank, 0);
    if (comm.rank == last || comm.rank == last / 2)
        mine = SP_FAIL(SP_EDATA, "file of rank %d", comm.rank);
    assert_int_equal(sp_comm_agree(&comm, mine), SP_EDATA);
    assert_int_equal(comm.failed_rank, last / 2);
    assert_int_equal(sp_error_last()->code, SP_EDATA);
    assert_int_equal(atoi(sp_error_last()->message + strlen("file of rank ")),
                     last / 2);
    assert_non_null(strstr(sp_error_last()->trace, "lowest_failing_rank"));
}

TEST(a_status_without_a_record_gets_one)
{
    SP_FAIL(SP_EIO, "of long ago");
    assert_int_equal(sp_comm_agree(&comm, comm.rank == 0 ? SP_EMEM : SP_OK), SP_EMEM);
    assert_int_equal(comm.failed_rank, 0);
    assert_string_equal(sp_error_last()->message, sp_status_text(SP_EMEM));
}

TEST(bcast_reaches_all_from_any_root)
{
    enum { BYTES = 300000 };
    FREED unsigned char *x = malloc(BYTES);

    for (int root = 0; root < comm.size; root++) {
        for (int i = 0; i < BYTES; i++)
            x[i] = (unsigned char)(comm.rank == root ? i * 7 + root : 0);
        dawdle(root);
        OK(sp_comm_bcast(&comm, x, BYTES, root));
        for (int i = 0; i < BYTES; i++)
            assert_int_equal(x[i], (unsigned char)(i * 7 + root));
    }
    OK(sp_comm_bcast(&comm, NULL, 0, 0));
}

/* An absent array and an empty one arrive as two different things. */
TEST(absent_arrays_stay_absent)
{
    const bool is_root = comm.rank == comm.size - 1;
    const int root = comm.size - 1;
    void *none = NULL, *empty = is_root ? malloc(1) : NULL;
    FREED double *row = is_root ? malloc(3 * sizeof *row) : NULL;

    for (int i = 0; is_root && i < 3; i++)
        row[i] = i + 0.5;
    OK(sp_comm_bcast_array(&comm, &none, 24, root));
    OK(sp_comm_bcast_array(&comm, &empty, 0, root));
    OK(sp_comm_bcast_array(&comm, (void **)&row, 3 * sizeof *row, root));
    assert_true(!none && empty && row);
    for (int i = 0; i < 3; i++)
        assert_true(row[i] == i + 0.5);
    free(empty);
}

/* Rank r gives nothing if it is even, else 1000 r bytes of value r. */
TEST(gather_takes_unequal_sizes)
{
    size_t bytes = comm.rank % 2 ? 1000 * (size_t)comm.rank : 0;
    FREED unsigned char *mine = malloc(bytes + 1);
    FREED void *all = &bytes;
    size_t n_all, at = 0;

    memset(mine, comm.rank, bytes + 1);
    OK(sp_comm_gather(&comm, mine, bytes, &all, &n_all));
    assert_true((all != NULL) == (comm.rank == 0));
    for (int r = 1; all && r < comm.size; r += 2)
        for (int i = 0; i < 1000 * r; i++)
            assert_int_equal(((unsigned char *)all)[at++], r);
    assert_int_equal(n_all, at);
    free(all);
    OK(sp_comm_gather(&comm, NULL, 0, &all, NULL));
    assert_true((all != NULL) == (comm.rank == 0));
}

TEST(is_same_notices_one_differing_byte)
{
    char text[40] = "the same deck on every rank";
    bool is_same = false;

    OK(sp_comm_is_same(&comm, text, sizeof text, &is_same));
    assert_true(is_same);
    OK(sp_comm_is_same(&comm, NULL, 0, &is_same));
    assert_true(is_same);
    text[30] = comm.rank == comm.size - 1;
    OK(sp_comm_is_same(&comm, text, sizeof text, &is_same));
    assert_int_equal(is_same, comm.size == 1);
    OK(sp_comm_is_same(&comm, text, comm.rank ? 30 : 29, &is_same)); /* its size */
    assert_int_equal(is_same, comm.size == 1);
}

/* Every other rank posts its requests in the opposite order. */
TEST(the_lane_has_an_order_of_its_own)
{
    sp_request request[2] = {{NULL}, {NULL}};
    double sum[2];

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2; i++) {
            int k = (i + comm.rank + round) % 2;

            sum[k] = k + comm.rank;
            OK(sp_comm_iallreduce(&comm, k ? SP_SCOPE_LANE : SP_SCOPE_WORLD, &sum[k], 1,
                                  SP_F64, SP_SUM, &request[k]));
        }
        for (int k = 0; k < 2; k++) {
            OK(sp_comm_wait(&comm, &request[k]));
            assert_true(sum[k] == expected(SP_SCOPE_WORLD, SP_SUM, k, 1));
        }
    }
}

static sp_status count_down(void *arg, bool *is_done)
{
    int *left = arg;

    if (*left < 0)
        return SP_FAIL(SP_EDEVICE, "below 0");
    *is_done = --*left == 0;
    return SP_OK;
}

TEST(other_waits_end_when_they_say_so)
{
    int left = 100;

    OK(sp_comm_wait_for(&comm, true, count_down, &left));
    assert_int_equal(left, 0);
    left = -1;
    assert_int_equal(sp_comm_wait_for(&comm, false, count_down, &left), SP_EDEVICE);
}

/* ---- memory of sp_comm_alloc ---- */

enum { N_LONG = 70001 };

static float value_of(int rank, int i)
{
    return sinf((float)(i * 13 + rank * 71)) * powf(10, (float)(i % 9));
}

/* Long vectors lie in one piece of memory at odd offsets, with short ones between them.
 * Some ranks come late, and some go on to MPI before they wait for their sums. */
TEST(sums_in_place_mix_with_all_else)
{
    float *x = NULL, *again = malloc(N_LONG * sizeof *x);
    sp_request part[3], brief;

    OK(sp_comm_alloc(&comm, N_LONG * sizeof *x, (void **)&x));
    assert_true(x[0] == 0 && x[N_LONG - 1] == 0);
    for (int turn = 0; turn < 6; turn++) {
        const int cut[4] = {0, 33, 40003, N_LONG};
        double sum = comm.rank;
        bool is_same, is_done;

        for (int i = 0; i < N_LONG; i++)
            x[i] = value_of(comm.rank, i);
        dawdle(turn);
        memset(part, 0, sizeof part);
        memset(&brief, 0, sizeof brief);
        for (int p = 2; p >= 0; p--)
            OK(sp_comm_iallreduce(&comm, turn < 3 ? SP_SCOPE_WORLD : SP_SCOPE_LANE,
                                  x + cut[p], (size_t)(cut[p + 1] - cut[p]), SP_F32,
                                  SP_SUM, &part[p]));
        OK(sp_comm_iallreduce(&comm, SP_SCOPE_WORLD, &sum, 1, SP_F64, SP_SUM, &brief));
        OK(sp_comm_test(&comm, &part[turn % 3], &is_done));
        if (turn % 2)
            OK(sp_comm_barrier(&comm));
        OK(sp_comm_wait(&comm, &brief));
        assert_true(sum == expected(SP_SCOPE_WORLD, SP_SUM, 0, 1));
        for (int p = 0; p < 3; p++)
            OK(sp_comm_wait(&comm, &part[(p + turn) % 3]));
        OK(sp_comm_is_same(&comm, x, N_LONG * sizeof *x, &is_same));
        assert_true(is_same);
        if (turn)
            assert_memory_equal(x, again, N_LONG * sizeof *x);
        memcpy(again, x, N_LONG * sizeof *x);
    }
    for (int i = 0; i < N_LONG; i++) {
        double sum = 0, size = 0;

        for (int r = 0; r < comm.size; r++) {
            sum += (double)value_of(r, i);
            size += fabs((double)value_of(r, i));
        }
        assert_true(fabs((double)x[i] - sum) <= 1e-6 * size);
    }
    sp_comm_free(&comm, x);
    sp_comm_free(&comm, NULL);
    free(again);
}

/* True if this process has mapped memory that a node's ranks share. */
static bool has_shared_memory(const void *at)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long long from, to, x = (uintptr_t)at;
    char line[512];
    bool is_found = false;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        is_found |= sscanf(line, "%llx-%llx", &from, &to) == 2 &&
                    strstr(line, "memfd:sptrain-") && (!at || (from <= x && x < to));
    fclose(maps);
    return is_found;
}

/* NOLINTBEGIN: names given by the linker */
static bool has_no_memory;

WRAPPED(void *, calloc, size_t n, size_t size)
{
    return has_no_memory ? NULL : __real_calloc(n, size);
}
/* NOLINTEND */

TEST(memory_that_one_rank_cannot_share_is_nobodys)
{
    struct rlimit before, none;
    float *x = NULL;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    if (comm.rank == comm.size - 1)
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    OK(sp_comm_alloc(&comm, N_LONG * sizeof *x, (void **)&x));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    ALL_AGREE(&comm, comm.size == 1 || comm.n_nodes > 1 || !has_shared_memory(x));
    sp_comm_free(&comm, x);
    has_no_memory = comm.rank == comm.size - 1;
    OK(sp_comm_alloc(&comm, N_LONG * sizeof *x, (void **)&x));
    has_no_memory = false;
    ALL_AGREE(&comm, comm.size == 1 || comm.n_nodes > 1 || !has_shared_memory(x));
    sp_comm_free(&comm, x);
}

/* Two pieces are alive at once and freed in either order; integers are summed too, by
 * every operation. */
TEST(memory_holds_any_type)
{
    int64_t *a = NULL;
    double *b = NULL;

    OK(sp_comm_alloc(&comm, N_LONG * sizeof *a, (void **)&a));
    OK(sp_comm_alloc(&comm, N_LONG * sizeof *b, (void **)&b));
    for (sp_reduce_op op = SP_SUM; op <= SP_MIN; op++) {
        for (int i = 0; i < N_LONG; i++) {
            a[i] = ((int64_t)i << 32) - comm.rank;
            b[i] = i + 0.5 * comm.rank;
        }
        OK(sp_comm_allreduce(&comm, SP_SCOPE_NODE, a, N_LONG, SP_I64, op));
        OK(sp_comm_allreduce(&comm, SP_SCOPE_WORLD, b, N_LONG, SP_F64, op));
        for (int i = 0; i < N_LONG; i++) {
            assert_true((double)a[i] == expected(SP_SCOPE_NODE, op, i * 0x1p32, -1));
            assert_true(b[i] == expected(SP_SCOPE_WORLD, op, i, 0.5));
        }
    }
    sp_comm_free(&comm, a);
    sp_comm_free(&comm, b);
}

int main(int argc, char **argv)
{
    const bool has_nodes = strstr(argv[0], "test_comm_nodes") != NULL;
    int n_failed;

    sp_program_begin("sptrain");
    if (has_nodes)
        setenv("SP_RANKS_PER_NODE", "3", 1);
    if (strstr(argv[0], "test_comm_pieces"))
        setenv("SP_NODE_MEMORY", "0", 1);
    if (strstr(argv[0], "_np1"))
        setenv("SP_WAIT", "sleep", 1);
    open_ranks(&comm, argc, argv, "_self");
    if (strstr(argv[0], "test_comm_pieces") && has_shared_memory(NULL))
        return 1;
    if (has_nodes && (comm.n_nodes != 2 || comm.local_size != (comm.rank < 3 ? 3 : 1)))
        return 1;
    n_failed = run_all_tests();
    sp_comm_close(&comm);
    return n_failed;
}
