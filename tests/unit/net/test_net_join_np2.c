/* Weight gradients that run beside the steps that follow them, as late as their join
 * allows, have the bits of those that run at once: nothing that they read is written
 * before, and no bucket is posted without them. The backend here is the CPU's, but a
 * concurrent weight gradient waits for the join. */
#include "reference/net_case.h"

#include "comm/sp_comm.h"

ON_RANKS(comm)
static sp_conv_wgrad_args late;
static bool is_pending;
static int n_joined, n_beside; /* joins of a pending one; norms' passes beside it */

static sp_status defer(sp_backend *be, const sp_conv_wgrad_args *args)
{
    assert_false(is_pending); /* the next one comes behind the join */
    if (!args->is_concurrent)
        return sp_backend_find("cpu")->conv_grad_weight(be, args);
    late = *args;
    is_pending = true;
    return SP_OK;
}

static sp_status join(sp_backend *be)
{
    n_joined += is_pending;
    if (is_pending)
        OK(sp_backend_find("cpu")->conv_grad_weight(be, &late));
    is_pending = false;
    return SP_OK;
}

static sp_status apply(sp_backend *be, const sp_norm_grad_args *args)
{
    n_beside += is_pending;
    return sp_backend_find("cpu")->norm_grad_apply(be, args);
}

static void run(const sp_backend_ops *ops, int net, float *grad)
{
    const case_sample samples[][2] = {{{1, 31, false}, {2, 12, false}},
                                      {{3, 7, false}, {4, 0, false}}};
    const sp_net_options options = {.bn_scope = SP_SCOPE_RANK, .seed = 3};
    CLOSED_BY(case_close) net_case c;

    case_open(&c, ops, &comm, case_nets[net], &options);
    case_batch(&c, samples[comm.rank], 2);
    for (int micro = 0; micro < 2; micro++)
        case_step(&c, micro == 1);
    assert_false(is_pending);
    OK(sp_bucket_wait(&c.buckets, NULL));
    memcpy(grad, c.buckets.grad, (size_t)c.graph.n_floats * sizeof *grad);
}

TEST(late_ones_have_the_bits)
{
    enum { MOST = 1 << 16 };
    static float now[MOST], then[MOST];
    sp_backend_ops ops = *sp_backend_find("cpu");

    ops.conv_grad_weight = defer;
    ops.join = join;
    ops.norm_grad_apply = apply;
    for (int i = 0; case_nets[i]; i++) {
        memset(now, 0, sizeof now);
        memset(then, 0, sizeof then);
        run(sp_backend_find("cpu"), i, now);
        n_joined = 0;
        run(&ops, i, then);
        assert_true(n_joined > 0);
        assert_memory_equal(now, then, sizeof now);
    }
    assert_true(n_beside > 0); /* the join is late */
}
