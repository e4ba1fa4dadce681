/* The memory that a graph foresees is what its network takes. */
#include "fixtures/net_case.h"

#include "comm/sp_comm.h"
#include "net/sp_net_impl.h"

static sp_comm comm;

static void check(const char *layers, bool is_training, bool is_frugal)
{
    static const case_sample samples[] = {{1, 100, false}, {2, 80, false}};
    sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .seed = 3, .is_frugal = is_frugal};
    int64_t voxels[SP_MAX_LEVELS] = {0}, foreseen, taken;
    net_case c;

    case_open(&c, sp_backend_find("cpu"), &comm, layers, &options);
    case_batch(&c, samples, 2);
    for (int i = 0; i < c.batch.plan.n_levels; i++)
        voxels[i] = c.batch.plan.level[i].n;
    if (is_training)
        case_step(&c, true);
    else
        OK(sp_net_forward(&c.net, &c.batch, false, NULL));
    foreseen = sp_graph_memory_bytes(&c.graph, voxels, is_training, is_frugal, 4, 4);
    taken = (int64_t)(c.net.impl->arena.high + c.net.impl->vectors.high);
    /* The rest are sums of a batch norm or of the loss, and rows of samples. */
    if (foreseen > taken || taken - foreseen > 1024)
        fail_msg("%s, %s: %lld bytes foreseen, %lld taken", layers,
                 is_training ? "training" : "evaluation", (long long)foreseen,
                 (long long)taken);
    case_close(&c);
}

static void foreseen_is_taken(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; case_nets[i]; i++)
            check(case_nets[i], kind < 2, kind % 2);
        check(case_smooth_net, kind < 2, kind % 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(foreseen_is_taken)};

    sp_comm_open_self(&comm);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
