/* Samples that are dealt to ranks give the gradients of one rank that holds them all,
 * on any number of ranks; four are two nodes. Ranks compare first and then agree on the
 * result, so that a failure on one does not leave the others in a collective. */
#include "reference/net_case.h"
#include "base/sp_program.h"

#include "comm/sp_comm.h"

static sp_comm comm, self;

/* Some samples are empty, have one voxel, or have no label. */
static const case_sample samples[] = {{1, 40, false}, {2, 0, false}, {3, 25, false},
                                      {4, 3, true},   {5, 1, false}, {6, 60, false}};
enum { N_SAMPLES = sizeof samples / sizeof samples[0] };

/* Takes the samples of the ranks that `has` selects, in rank order, dealt round robin
 * over n_ranks of them: with n_ranks = size - 1 the last rank gets nothing. */
static int deal(int n_ranks, bool (*has)(int rank), case_sample *mine)
{
    int n = 0;

    for (int r = 0; r < n_ranks; r++)
        for (int b = r; has(r) && b < N_SAMPLES; b += n_ranks)
            mine[n++] = samples[b];
    return n;
}

static bool is_me(int rank)
{
    return rank == comm.rank;
}
static bool is_on_my_node(int rank)
{
    return comm.node_of_rank[rank] == comm.node;
}

static void run_in(net_case *c, sp_comm *on, const char *layers,
                   const sp_net_options *options, const case_sample *mine, int n,
                   sp_precision precision)
{
    double exposed_s = -1;

    case_open_as(c, sp_backend_find("cpu"), on, layers, "[]", options, precision);
    case_batch(c, mine, n);
    case_step(c, true);
    c->buckets.tail.n_voxels = n;
    OK(sp_bucket_wait(&c->buckets, &exposed_s));
    assert_true(exposed_s >= 0);
}

static void run(net_case *c, sp_comm *on, const char *layers,
                const sp_net_options *options, const case_sample *mine, int n)
{
    run_in(c, on, layers, options, mine, n, SP_FP32);
}

/* In bf16 a last bit of a statistic may change the rounding of some activations. */
static void check_deal(const char *layers, int n_ranks, bool is_exact,
                       sp_precision precision)
{
    const double most = precision == SP_BF16 ? 1e-2 : 1e-6;
    sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .is_exact = is_exact, .seed = 17};
    case_sample mine[N_SAMPLES];
    CLOSED_BY(case_close) net_case one, part;
    int64_t n, n_running;
    bool is_near, is_equal;

    run_in(&one, &self, layers, &options, samples, N_SAMPLES, precision);
    run_in(&part, &comm, layers, &options, mine, deal(n_ranks, is_me, mine), precision);
    n = one.graph.n_floats;
    n_running = one.graph.n_buffer_floats;
    is_near = case_distance(part.buckets.grad, one.buckets.grad, n) < most &&
              case_distance(part.net.running, one.net.running, n_running) < most &&
              fabs(part.buckets.tail.loss_sum / one.buckets.tail.loss_sum - 1) < most &&
              part.buckets.tail.weight_sum == one.buckets.tail.weight_sum &&
              part.buckets.tail.n_voxels == N_SAMPLES;
    is_equal = !memcmp(part.buckets.grad, one.buckets.grad, (size_t)n * 4) &&
               !memcmp(part.net.running, one.net.running, (size_t)n_running * 4) &&
               part.buckets.tail.loss_sum == one.buckets.tail.loss_sum;
    ALL_AGREE(&comm, is_near);
    ALL_AGREE(&comm, is_equal || !is_exact);
}

static void on_each_net(bool is_exact)
{
    for (int i = 0; case_nets[i]; i++) {
        const int fewer = comm.size > 1 ? comm.size - 1 : 1;

        check_deal(case_nets[i], comm.size, is_exact, SP_FP32);
        check_deal(case_nets[i], fewer, is_exact, SP_FP32);
        check_deal(case_nets[i], fewer, is_exact, SP_BF16);
    }
}

TEST(dealt_samples_give_the_gradient_of_one_rank)
{
    on_each_net(false);
}

TEST(exact_sums_give_its_bits)
{
    on_each_net(true);
}

TEST(overlap_changes_no_bit)
{
    sp_net_options options = {.bn_scope = SP_SCOPE_WORLD, .seed = 17};
    case_sample mine[N_SAMPLES];
    int n = deal(comm.size, is_me, mine);
    CLOSED_BY(case_close) net_case a, b;

    run(&a, &comm, case_nets[2], &options, mine, n);
    case_open(&b, sp_backend_find("cpu"), &comm, case_nets[2], &options);
    b.buckets.is_overlapped = false;
    case_batch(&b, mine, n);
    case_step(&b, true);
    OK(sp_bucket_wait(&b.buckets, NULL));
    ALL_AGREE(&comm, a.buckets.n_buckets > 3);
    ALL_AGREE(&comm,
              !memcmp(a.buckets.grad, b.buckets.grad, (size_t)a.graph.n_floats * 4));
}

TEST(node_statistics_are_those_of_its_samples)
{
    sp_net_options options = {.bn_scope = SP_SCOPE_NODE, .seed = 17};
    case_sample mine[N_SAMPLES], nodes[N_SAMPLES];
    int n_mine = deal(comm.size, is_me, mine);
    int n_nodes = deal(comm.size, is_on_my_node, nodes);
    CLOSED_BY(case_close) net_case part, node;
    bool is_same;

    run(&part, &comm, case_nets[1], &options, mine, n_mine);
    run(&node, &self, case_nets[1], &options, nodes, n_nodes);
    ALL_AGREE(&comm, case_distance(part.net.running, node.net.running,
                                   part.graph.n_buffer_floats) < 1e-6);
    /* Nodes have seen other samples, and go on with the same statistics. */
    OK(sp_net_sync_running(&part.net));
    OK(sp_comm_is_same(&comm, part.net.running,
                       (size_t)part.graph.n_buffer_floats * sizeof(float), &is_same));
    ALL_AGREE(&comm, is_same);
}

/* Runs these samples, then the first of them again. Gives the voxels of both. */
static int64_t two_micro_batches(net_case *c, const case_sample *of, int n)
{
    int64_t voxels = 0;

    for (int micro = 0; micro < 2; micro++) {
        case_batch(c, of, micro ? n > 0 : n);
        case_step(c, false);
        voxels += c->batch.n;
    }
    return voxels;
}

/* Adds what the running statistics of a rank become, alone with its samples, times its
 * voxels. */
static void add_running(int rank, int most, const sp_net_options *options,
                        const float *before, double *mean, int64_t *voxels)
{
    case_sample of[N_SAMPLES];
    CLOSED_BY(case_close) net_case c;
    int64_t n_voxels;
    int n = 0;

    for (int b = rank; b < N_SAMPLES && n < most; b += comm.size)
        of[n++] = samples[b];
    case_open(&c, sp_backend_find("cpu"), &self, case_smooth_net, options);
    memcpy(c.net.running, before, (size_t)c.graph.n_buffer_floats * sizeof *before);
    n_voxels = two_micro_batches(&c, of, n);
    for (int64_t i = 0; i < c.graph.n_buffer_floats; i++)
        mean[i] += (double)c.net.running[i] * (double)n_voxels;
    *voxels += n_voxels;
}

/* Runs a step of at most so many samples a rank. The smooth net's first norm is at
 * stride 1, where voxels of the batch are its count. */
static void check_synced(net_case *c, const sp_net_options *options, int most)
{
    const size_t n_floats = (size_t)c->graph.n_buffer_floats;
    const sp_node *norm = &c->graph.node[1];
    FREED float *before = malloc(n_floats * sizeof *before);
    FREED double *mean = calloc(n_floats, sizeof *mean);
    case_sample mine[N_SAMPLES];
    const int n = deal(comm.size, is_me, mine);
    int64_t voxels = 0;
    bool is_same, is_mean = true;

    memcpy(before, c->net.running, n_floats * sizeof *before);
    /* Statistics fetched before a step, as for a checkpoint, are of that time alone. */
    OK(sp_net_fetch_running(&c->net));
    two_micro_batches(c, mine, n < most ? n : most);
    OK(sp_net_sync_running(&c->net));
    OK(sp_comm_is_same(&comm, c->net.running, n_floats * sizeof(float), &is_same));
    for (int r = 0; r < comm.size; r++)
        add_running(r, most, options, before, mean, &voxels);
    assert_int_equal(norm->op, SP_OP_BATCHNORM);
    for (int64_t j = 0; j < norm->c_out; j++)
        is_mean &= fabs((double)c->net.running[norm->running_mean + j] -
                        mean[norm->running_mean + j] / (double)voxels) < 1e-6 &&
                   fabs((double)c->net.running[norm->running_var + j] -
                        mean[norm->running_var + j] / (double)voxels) < 1e-6;
    ALL_AGREE(&comm, is_same);
    ALL_AGREE(&comm, is_mean);
}

TEST(synced_statistics_are_the_weighted_mean)
{
    const sp_net_options options = {.bn_scope = SP_SCOPE_RANK, .seed = 17};
    FREED float *before;
    size_t bytes;
    CLOSED_BY(case_close) net_case c;

    case_open(&c, sp_backend_find("cpu"), &comm, case_smooth_net, &options);
    check_synced(&c, &options, N_SAMPLES);
    check_synced(&c, &options, 1); /* of this step alone */
    bytes = (size_t)c.graph.n_buffer_floats * sizeof *before;
    before = malloc(bytes);
    memcpy(before, c.net.running, bytes);
    two_micro_batches(&c, NULL, 0);
    OK(sp_net_sync_running(&c.net));
    ALL_AGREE(&comm, !memcmp(before, c.net.running, bytes)); /* no voxel, no change */
}

int main(int argc, char **argv)
{
    int n_failed;

    sp_program_begin("sptrain");
    if (strstr(argv[0], "_np4"))
        setenv("SP_RANKS_PER_NODE", "2", 1);
    OK(sp_comm_open(&comm, &argc, &argv));
    sp_comm_open_self(&self);
    n_failed = run_all_tests();
    sp_comm_close(&comm);
    return n_failed;
}
