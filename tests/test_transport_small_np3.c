/* A vector of backend memory becomes its sum over 3 ranks, on the host and staged from
 * the (emulated) device, in order with what the compute stream does. */
#include "test.h"

#include "sp_transport.h"

enum { N = 1000 };

static sp_comm comm;

static void sums_of(const char *name, const char *expected)
{
    sp_backend be = {.ops = sp_backend_find(name)};
    double host[N], *data;
    int64_t whole[3] = {comm.rank, 1, INT64_MAX / 3};
    sp_transport t;
    sp_arena arena;

    if (!be.ops)
        skip();
    OK(be.ops->open(&be, 0, 1));
    OK(be.ops->arena_create(&arena, 1 << 20, "test"));
    sp_transport_open(&t, &comm, &be);
    assert_string_equal(t.name, expected);
    OK(SP_TAKE(&arena, N, &data));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            host[i] = (comm.rank + 1) * (i + round);
        OK(be.ops->upload(&be, data, host, sizeof host));
        OK(sp_transport_allreduce(&t, SP_SCOPE_WORLD, data, N, SP_F64));
        OK(sp_transport_allreduce(&t, SP_SCOPE_RANK, data, N, SP_F64));
        OK(sp_transport_allreduce(&t, SP_SCOPE_WORLD, data, 0, SP_F64));
        OK(be.ops->download(&be, host, data, sizeof host));
        for (int i = 0; i < N; i++)
            assert_true(host[i] == 6.0 * (i + round));
    }
    OK(be.ops->upload(&be, data, whole, sizeof whole));
    OK(sp_transport_allreduce(&t, SP_SCOPE_NODE, data, 3, SP_I64));
    OK(be.ops->download(&be, whole, data, sizeof whole));
    assert_true(whole[0] == 3 && whole[1] == 3 && whole[2] == INT64_MAX / 3 * 3);
    sp_transport_close(&t);
    be.ops->arena_destroy(&arena);
    be.ops->close(&be);
}

static void host_memory_is_summed_in_place(void **state)
{
    (void)state;
    sums_of("cpu", "mpi");
}

static void device_memory_is_summed_through_the_host(void **state)
{
    (void)state;
    sums_of("cuda", "mpi-staged");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_is_summed_in_place),
        cmocka_unit_test(device_memory_is_summed_through_the_host),
    };
    int n_failed;

    OK(sp_comm_open(&comm, &argc, &argv));
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    sp_comm_close(&comm);
    return n_failed;
}
