/* The memory that is foreseen of a step is what its network takes. */
#include "reference/net_case.h"

#include "net/sp_net_impl.h"

static sp_buffer_bytes size(const sp_lowered *low, const sp_buffer_rules *rules,
                            const sp_plan_counts *counts, bool is_training)
{
    sp_buffer_bytes bytes;
    CLOSED_BY(sp_buffer_plan_destroy) sp_buffer_plan buffers;

    OK(sp_buffer_plan_create(&buffers, low, rules));
    bytes = sp_buffer_plan_measure(&buffers, counts, is_training);
    return bytes;
}

typedef struct expectation {
    bool is_training, is_low_memory, is_recomputed, is_exact;
} expectation;

static void check(const char *layers, expectation e)
{
    static const case_sample samples[] = {{1, 100, false}, {2, 80, false}};
    sp_net_options options = {.bn_scope = SP_SCOPE_WORLD,
                              .seed = 3,
                              .is_low_memory = e.is_low_memory,
                              .is_recomputed = e.is_recomputed,
                              .is_exact = e.is_exact};
    int64_t confusion[CASE_CLASSES * CASE_CLASSES] = {0};
    int32_t prediction[180];
    sp_plan_counts counts;
    const struct sp_net_impl *impl;
    sp_buffer_rules rules;
    sp_buffer_bytes bytes;
    CLOSED_BY(case_close) net_case c;

    case_open(&c, sp_backend_find("cpu"), alone(), layers, &options);
    case_batch(&c, samples, 2);
    counts = sp_plan_count(&c.batch.plan);
    if (e.is_training) {
        case_step(&c, true);
    } else {
        OK(sp_net_forward(&c.net, &c.batch, false, NULL));
        OK(sp_net_loss(&c.net, &c.batch, &c.loss, confusion, prediction));
    }
    impl = c.net.impl;
    rules =
        sp_buffer_rules_of(&c.backend, e.is_low_memory, e.is_recomputed, e.is_exact);
    bytes = size(&impl->low, &rules, &counts, e.is_training);
    assert_int_equal(bytes.matrices, impl->matrices.high);
    if (!e.is_training) /* else the case asks for the loss of an evaluation too */
        assert_int_equal(bytes.vectors, impl->vectors.high);
    assert_true(bytes.vectors <= impl->vectors.high);
}

TEST(foreseen_is_taken)
{
    for (int kind = 0; kind < 16; kind++) {
        const expectation e = {kind & 1, kind & 2, kind & 4, kind & 8};

        for (int i = 0; case_nets[i]; i++)
            check(case_nets[i], e);
        check(case_smooth_net, e);
    }
}

/* The arg max of a max pool is as wide in bf16 as in fp32; logits and features of a
 * network in bf16 are there in fp32 too. */
TEST(vectors_do_not_shrink_with_the_elements)
{
    static const char layers[] =
        "{ name = \"c\"; op = \"conv\"; out = 8; kernel = 3; },"
        "{ name = \"p\"; op = \"max_pool\"; kernel = 2; stride = 2; },"
        "{ name = \"t\"; op = \"conv_transpose\"; out = 8; kernel = 2; stride = 2; },"
        "{ name = \"f\"; op = \"linear\"; out = 3; },"
        "{ name = \"l\"; op = \"leaky_relu\"; slope = 0.5; }";
    const sp_plan_counts counts = {.n_samples = 1, .voxels = {6400, 1600}};
    const sp_buffer_rules rules = {.row_bytes = 16,
                                   .fused_parts = sp_backend_find("cpu")->fused_parts};
    sp_buffer_bytes narrow, wide;
    sp_lowered low;
    CLOSED_BY(case_close) net_case c;

    case_new(&c, layers, NULL, 0);
    OK(sp_lower(&low, &c.graph, true));
    narrow = size(&low, &rules, &counts, false);
    sp_lowered_destroy(&low);
    OK(sp_lower(&low, &c.graph, false));
    wide = size(&low, &rules, &counts, false);
    sp_lowered_destroy(&low);
    assert_int_equal(narrow.vectors, wide.vectors);
    assert_true(wide.vectors >= 1600 * 8 * sizeof(int32_t));
    /* features [n][8], the last value [n][8] twice, all but the last in bf16 */
    assert_true(narrow.matrices >= 6400 * (16 + 16 + 16));
}

/* The matrices of a sample of n voxels, in training with little memory or in
 * inference. */
static size_t matrices_of(const char *layers, bool is_training, int64_t n)
{
    const sp_plan_counts counts = {.n_samples = 1, .voxels = {n}};
    const sp_buffer_rules rules = {.is_low_memory = is_training,
                                   .row_bytes = 1,
                                   .fused_parts = sp_backend_find("cpu")->fused_parts};
    CLOSED_BY(case_close) net_case c;

    case_new(&c, layers, NULL, 0);
    return size(&c.net.impl->low, &rules, &counts, is_training).matrices;
}

/* Inference holds the input and the output of a convolution, and nothing between it and
 * its norm, its addition or its activation. What comes before the next convolution
 * stands where its input stood. */
TEST(inference_holds_inputs_and_outputs_alone)
{
    static const char layers[] =
        "{ name = \"c\"; op = \"conv\"; out = 32; kernel = 3; },"
        "{ name = \"b\"; op = \"batchnorm\"; },"
        "{ name = \"r\"; op = \"relu\"; },"
        "{ name = \"d\"; op = \"dropout\"; },"
        "{ name = \"l\"; op = \"leaky_relu\"; },"
        "{ name = \"c2\"; op = \"conv\"; out = 32; kernel = 3; },"
        "{ name = \"b2\"; op = \"batchnorm\"; },"
        "{ name = \"a2\"; op = \"add\"; from = [\"b2\", \"l\"]; },"
        "{ name = \"r2\"; op = \"relu\"; },"
        "{ name = \"f\"; op = \"linear\"; out = 3; }";
    assert_int_equal(matrices_of(layers, false, 1000), 2 * 1000 * 32 * sizeof(float));
}

/* Training with little memory keeps the outputs of convolutions. The backward pass adds
 * two values: the output of a block and its gradient, for the gradient of a
 * convolution's output or input is written over it, and a block's residual stands in
 * its output's place. */
TEST(the_backward_pass_adds_two_values)
{
    static const char layers[] =
        "{ name = \"c\"; op = \"conv\"; out = 32; kernel = 3; },"
        "{ name = \"b\"; op = \"batchnorm\"; },"
        "{ name = \"r\"; op = \"relu\"; },"
        "{ name = \"c1\"; op = \"conv\"; out = 32; kernel = 3; },"
        "{ name = \"b1\"; op = \"batchnorm\"; },"
        "{ name = \"r1\"; op = \"relu\"; },"
        "{ name = \"c2\"; op = \"conv\"; out = 32; kernel = 3; },"
        "{ name = \"b2\"; op = \"batchnorm\"; },"
        "{ name = \"d2\"; op = \"conv\"; from = [\"r\"]; out = 32; kernel = 1; },"
        "{ name = \"db\"; op = \"batchnorm\"; },"
        "{ name = \"a2\"; op = \"add\"; from = [\"b2\", \"db\"]; },"
        "{ name = \"r2\"; op = \"relu\"; },"
        "{ name = \"c3\"; op = \"conv\"; out = 32; kernel = 3; },"
        "{ name = \"b3\"; op = \"batchnorm\"; },"
        "{ name = \"r3\"; op = \"relu\"; },"
        "{ name = \"c4\"; op = \"conv\"; out = 32; kernel = 3; },"
        "{ name = \"b4\"; op = \"batchnorm\"; },"
        "{ name = \"a4\"; op = \"add\"; from = [\"b4\", \"r2\"]; },"
        "{ name = \"r4\"; op = \"relu\"; },"
        "{ name = \"f\"; op = \"linear\"; out = 3; }";
    const size_t each = 1024 * 32 * sizeof(float), logits = 1024 * 3 * sizeof(float);

    assert_int_equal(matrices_of(layers, true, 1024), (6 + 2) * each + logits);
}

static const sp_lower_value *light_output_of(const sp_lowered *low, const char *name)
{
    for (int s = 0; s < low->n_steps; s++)
        if (strcmp(low->graph->node[low->step[s].layer].name, name) == 0)
            return &low->value[low->step[s].out];
    fail_msg("no layer %s", name);
    return NULL;
}

/* A step of few voxels keeps them: its memory peaks when the gradient is written. */
static void check_light(const sp_lowered *low)
{
    const sp_backend cpu = {.ops = sp_backend_find("cpu")};
    const sp_buffer_rules rules = sp_buffer_rules_of(&cpu, true, false, false);
    size_t bytes[2];
    CLOSED_BY(sp_buffer_plan_destroy) sp_buffer_plan buffers;

    OK(sp_buffer_plan_create(&buffers, low, &rules));
    for (int is_large = 0; is_large < 2; is_large++) {
        const int64_t n = is_large ? 100000 : 10000;
        const sp_plan_counts counts = {
            .n_samples = 1, .voxels = {n, 7 * n / 10, 4 * n / 10, n / 5, n / 10}};

        bytes[is_large] = sp_buffer_plan_measure(&buffers, &counts, true).matrices;
        assert_true(buffers.drops_light == is_large);
    }
    assert_true(bytes[1] * 100 <= bytes[0] * 10 * 93);
}

/* Few products: one of four channels, and the shortcuts of coarser levels. The finest
 * level's shortcut would come back as memory is needed most. */
TEST(light_convolutions_are_not_kept)
{
    static const char *const light[] = {
        "conv0p1s1", "block2.0.downsample.0", "block4.0.downsample.0",
        "block6.0.downsample.0", "block7.0.downsample.0"};
    char *keys[] = {"net.family=minkunet18", "net.width=1.0", "net.stem_kernel=3"};
    int n = 0;
    sp_config config;
    sp_graph graph;
    sp_lowered low;

    OK(sp_config_read(&config, NULL, 3, keys));
    OK(sp_graph_build(&graph, &config, 4, 20));
    OK(sp_lower(&low, &graph, false));
    for (size_t i = 0; i < sizeof light / sizeof *light; i++)
        assert_true(light_output_of(&low, light[i])->is_light);
    assert_false(light_output_of(&low, "block8.0.downsample.0")->is_light);
    assert_false(light_output_of(&low, "block5.0.downsample.0")->is_light);
    assert_false(light_output_of(&low, "block1.0.conv1")->is_light);
    for (int v = 0; v < low.n_values; v++)
        n += low.value[v].is_light;
    assert_int_equal(n, 6);
    check_light(&low);
    sp_lowered_destroy(&low);
    sp_graph_destroy(&graph);
    sp_config_destroy(&config);
}
