/* Buckets cut the flat gradient from its end, travel when told, and add up over 3
 * ranks. */
#include "fixtures/test.h"

#include "net/sp_bucket.h"

ON_RANKS(comm)
static sp_config config;
static sp_graph graph;

static double sum_of_ranks(int64_t i)
{
    return 6.0 + 3.0 * (double)(i % 7);
}

/* Adds to the host's gradient, which sp_buckets_begin has zeroed. */
static void add(sp_buckets *b)
{
    for (int64_t i = 0; i < graph.n_floats; i++) {
        float x = (float)(comm.rank + 1 + i % 7);

        if (b->exact)
            sp_exact_add_f32(b->exact + i * SP_EXACT_LIMBS, &x, 1);
        else
            b->grad[i] += x;
    }
    b->tail.loss_sum += 0.25 * (comm.rank + 1);
    b->tail.n_voxels += comm.rank;
    if (b->exact)
        sp_exact_add_wide(b->tail_exact, &b->tail.loss_sum, 1);
}

static void fill(sp_buckets *b)
{
    OK(sp_buckets_begin(b));
    add(b);
}

static void announce(sp_buckets *b, int down_to)
{
    for (int i = graph.n_params - 1; i >= down_to; i--) {
        OK(sp_bucket_ready(b, graph.param[i].offset));
        OK(sp_bucket_poll(b));
    }
}

static bool is_summed(const sp_buckets *b)
{
    bool is_right = b->tail.loss_sum == 1.5 && b->tail.n_voxels == 3;

    for (int64_t i = 0; i < graph.n_floats; i++)
        is_right &= (double)b->grad[i] == sum_of_ranks(i);
    return is_right;
}

static int64_t floats_of(const sp_buckets *b, int i)
{
    return b->begin[i] - b->begin[i + 1];
}

static int64_t largest_param(void)
{
    int64_t most = 0;

    for (int p = 0; p < graph.n_params; p++)
        most = graph.param[p].count > most ? graph.param[p].count : most;
    return most;
}

TEST(cuts_are_whole_parameters_from_the_end)
{
    CLOSED_BY(sp_buckets_destroy) sp_buckets b;
    int p;

    OK(sp_buckets_create(&b, &graph, &comm, false, 4096));
    assert_true(b.n_buckets > 2);
    assert_int_equal(b.begin[0], graph.n_floats);
    assert_int_equal(b.begin[b.n_buckets], 0);
    for (int i = 0; i < b.n_buckets; i++) {
        for (p = 0; p < graph.n_params && graph.param[p].offset != b.begin[i + 1]; p++)
            ;
        assert_true(p < graph.n_params);
        /* full, or the next parameter would have been too much */
        assert_true(i + 1 == b.n_buckets || floats_of(&b, i) >= 1024 ||
                    floats_of(&b, i) + graph.param[p - 1].count > 1536);
        assert_true(floats_of(&b, i) <= 1536 || floats_of(&b, i) <= largest_param());
    }
}

/* At 128 KiB a bucket conv1 and bn1 are narrow; at 16 MiB the whole network is. */
TEST(narrow_first_layers_go_with_the_tail)
{
    CLOSED_BY(sp_buckets_destroy) sp_buckets b;

    OK(sp_buckets_create(&b, &graph, &comm, false, 1 << 17));
    assert_int_equal(b.n_buckets, 2);
    assert_string_equal(graph.param[3].name, "conv2/weight");
    assert_int_equal(b.begin[1], graph.param[3].offset);
    sp_buckets_destroy(&b);
    OK(sp_buckets_create(&b, &graph, &comm, false, 0));
    assert_int_equal(b.n_buckets, 1);
}

static void sums_in_every_way_of_posting(bool is_exact)
{
    CLOSED_BY(sp_buckets_destroy) sp_buckets b;

    OK(sp_buckets_create(&b, &graph, &comm, is_exact, 4096));
    for (int way = 0; way < 4; way++) { /* announced early: none, half, all */
        b.is_overlapped = way != 3;
        OK(sp_buckets_begin(&b));
        if (way == 3) /* without effect: nothing travels before the wait */
            announce(&b, 0);
        add(&b);
        if (way == 1 || way == 2)
            announce(&b, way == 1 ? graph.n_params / 2 : 0);
        OK(sp_bucket_wait(&b, NULL));
        assert_int_equal(b.is_overlapped, way != 3);
        ALL_AGREE(&comm, is_summed(&b));
    }
}

TEST(ranks_add_up)
{
    sums_in_every_way_of_posting(false);
}

TEST(limbs_add_up)
{
    sums_in_every_way_of_posting(true);
}

/* The buckets of frozen layers stay at home: what a rank writes there is its own
 * afterwards. All others are the same bits as with nothing frozen. */
static void frozen_layers_do_not_travel(bool is_exact, bool (*is_frozen_layer)(int p))
{
    sp_buckets b;
    int n_idle = 0;

    for (int p = 0; p < graph.n_params; p++)
        graph.node[graph.param[p].node].is_frozen = is_frozen_layer(p);
    OK(sp_buckets_create(&b, &graph, &comm, is_exact, 4096));
    fill(&b);
    announce(&b, 0);
    OK(sp_bucket_wait(&b, NULL));
    ALL_AGREE(&comm, b.tail.loss_sum == 1.5 && b.tail.n_voxels == 3);
    for (int i = 0; i < b.n_buckets; i++) {
        bool is_frozen = i + 1 < b.n_buckets, is_right = true;

        for (int p = 0; p < graph.n_params; p++)
            if (graph.param[p].offset >= b.begin[i + 1] &&
                graph.param[p].offset < b.begin[i])
                is_frozen = is_frozen && graph.node[graph.param[p].node].is_frozen;
        n_idle += is_frozen;
        for (int64_t k = b.begin[i + 1]; k < b.begin[i]; k++)
            is_right = is_right &&
                       (double)b.grad[k] == (is_frozen ? (double)(comm.rank + 1 + k % 7)
                                                       : sum_of_ranks(k));
        ALL_AGREE(&comm, is_right);
    }
    assert_true(n_idle > 0 && n_idle < b.n_buckets);
    sp_buckets_destroy(&b);
    for (int i = 0; i < graph.n_nodes; i++)
        graph.node[i].is_frozen = false;
}

static bool is_in_second_half(int p)
{
    return p >= graph.n_params / 2;
}

/* Norms share buckets with convolutions before and behind them. */
static bool is_no_norm(int p)
{
    return !graph.param[p].is_norm;
}

TEST(frozen_floats_do_not_travel)
{
    frozen_layers_do_not_travel(false, is_in_second_half);
    frozen_layers_do_not_travel(false, is_no_norm);
}

TEST(frozen_limbs_do_not_travel)
{
    frozen_layers_do_not_travel(true, is_in_second_half);
}

/* As if rank 2 had summed something that the others had not. */
TEST(a_rank_out_of_step_is_found)
{
    sp_backend be = {.ops = sp_backend_find("cpu")};
    sp_transport t;
    sp_buckets b;
    sp_status rc;

    OK(be.ops->open(&be, 0, 1));
    OK(sp_transport_open(&t, &comm, &be));
    OK(sp_buckets_create(&b, &graph, &comm, false, 4096));
    OK(sp_buckets_attach(&b, &t));
    fill(&b);
    OK(sp_bucket_wait(&b, NULL));
    fill(&b);
    t.sequence += comm.rank == 2;
    rc = sp_bucket_wait(&b, NULL);
    ALL_AGREE(&comm, rc == SP_EMPI && strstr(sp_error_last()->message,
                                             "asked for other sums over the ranks"));
    sp_buckets_destroy(&b);
    sp_transport_close(&t);
    be.ops->close(&be);
}

BEFORE_ALL(build)
{
    char *overrides[] = {"net.family=dummy", "net.width=0.5"};

    OK(sp_config_parse(&config, "", "bucket", 2, overrides));
    OK(sp_graph_build(&graph, &config, 4, 5));
}
