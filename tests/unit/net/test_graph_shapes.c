/* Families have the published sizes and names; layers get the right maps and
 * parameters. */
#include "fixtures/test.h"

#include "net/sp_graph.h"

static void build(sp_graph *g, const char *override, const char *deck, int c_in,
                  int classes)
{
    char *o[] = {(char *)(uintptr_t) override};
    CLOSED_BY(sp_config_destroy) sp_config c;

    OK(sp_config_parse(&c, deck ? deck : "", "d", override != NULL, o));
    OK(sp_graph_build(g, &c, c_in, classes));
}

static const sp_node *find(const sp_graph *g, const char *name)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!strcmp(g->node[i].name, name))
            return &g->node[i];
    fail_msg("no layer %s", name);
    return NULL;
}

static const sp_param *parameter(const sp_graph *g, const char *name)
{
    for (int i = 0; i < g->n_params; i++)
        if (!strcmp(g->param[i].name, name))
            return &g->param[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

TEST(families_have_the_published_sizes)
{
    static const struct {
        const char *family;
        int inputs, classes;
        double millions;
    } known[] = {
        {"minkunet14A", 3, 20, 8.0},
        {"minkunet14B", 3, 20, 9.0},
        {"minkunet14C", 3, 20, 11.9},
        {"minkunet14D", 3, 20, 43.3},
        {"minkunet18", 3, 20, 21.7},
        {"minkunet18A", 3, 20, 15.5},
        {"minkunet18B", 3, 20, 17.2},
        {"minkunet18D", 3, 20, 79.9},
        {"minkunet34", 3, 20, 37.9},
        {"minkunet34A", 3, 20, 36.6},
        {"minkunet34B", 3, 20, 36.2},
        {"minkunet34C", 3, 20, 37.9},
        {"minkunet50", 3, 20, 31.8},
        {"minkunet101", 3, 20, 70.8},
        {"spunet", 6, 20, 39.2}, /* ScanNet: colour and normal */
        {"minkunet18w16", 4, 19, 5.44}, /* spvnas's table has 5.5 */
        {"minkunet18w20", 4, 19, 8.8},
        {"minkunet18w32", 4, 19, 21.7},
    };
    char family[64];
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        snprintf(family, sizeof family, "net.family=%s", known[i].family);
        build(&g, family, NULL, known[i].inputs, known[i].classes);
        if (fabs((double)g.n_weights / 1e6 - known[i].millions) > 0.05)
            fail_msg("%s: %lld parameters", family, (long long)g.n_weights);
        sp_graph_destroy(&g);
    }
    build(&g, "net.family=dummy", NULL, 3, 20);
    assert_int_equal(g.n_weights, 27 * 3 * 32 + 2 * 27 * 32 * 64 + 32 * 20 + 20 +
                                      2 * (32 + 64 + 32));
}

/* The table of keys accepts the families that can be built, and no others. */
TEST(every_family_builds)
{
    static const char *const letter[] = {"", "A", "B", "C", "D"};
    static const int depth[] = {14, 18, 34, 50, 101};
    char text[64];
    char *o[] = {text};
    int n = 0;

    for (int i = 0; i < 25; i++) {
        CLOSED_BY(sp_config_destroy) sp_config c;
        sp_graph g;

        snprintf(text, sizeof text, "net.family=minkunet%d%s", depth[i / 5],
                 letter[i % 5]);
        if (sp_config_read(&c, NULL, 1, o) == SP_OK) {
            OK(sp_graph_build(&g, &c, 1, 2));
            sp_graph_destroy(&g);
            n++;
        }
    }
    assert_int_equal(n, 15);
}

TEST(names_are_those_of_minkunet)
{
    static const struct {
        const char *name;
        int n_dims, dim[3];
    } known[] = {
        {"conv0p1s1/weight", 3, {125, 3, 32}},
        {"bn0/weight", 1, {32}},
        {"bn0/bias", 1, {32}},
        {"conv1p1s2/weight", 3, {8, 32, 32}},
        {"block1.0.conv1/weight", 3, {27, 32, 32}},
        {"block1.0.norm1/bias", 1, {32}},
        {"conv2p2s2/weight", 3, {8, 32, 32}},
        {"block2.0.conv1/weight", 3, {27, 32, 64}},
        {"block2.0.downsample.0/weight", 2, {32, 64}},
        {"block2.0.downsample.1/weight", 1, {64}},
        {"conv3p4s2/weight", 3, {8, 64, 64}},
        {"conv4p8s2/weight", 3, {8, 128, 128}},
        {"block4.1.conv2/weight", 3, {27, 256, 256}},
        {"convtr4p16s2/weight", 3, {8, 256, 256}},
        {"bntr4/weight", 1, {256}},
        {"block5.0.conv1/weight", 3, {27, 384, 256}},
        {"convtr5p8s2/weight", 3, {8, 256, 128}},
        {"block6.0.conv1/weight", 3, {27, 192, 128}},
        {"convtr6p4s2/weight", 3, {8, 128, 96}},
        {"block7.0.conv1/weight", 3, {27, 128, 96}},
        {"convtr7p2s2/weight", 3, {8, 96, 96}},
        {"block8.0.conv1/weight", 3, {27, 128, 96}},
        {"block8.0.downsample.0/weight", 2, {128, 96}},
        {"final/weight", 2, {96, 20}},
        {"final/bias", 1, {20}},
    };
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    build(&g, NULL, NULL, 3, 20);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const sp_param *p = parameter(&g, known[i].name);

        assert_int_equal(p->n_dims, known[i].n_dims);
        for (int k = 0; k < p->n_dims; k++)
            assert_int_equal(p->dim[k], known[i].dim[k]);
        assert_int_equal(p->offset % 16, 0);
    }
    assert_string_equal(g.node[find(&g, "cat5")->in[0]].name, "relutr5");
    assert_string_equal(g.node[find(&g, "cat5")->in[1]].name, "block2.1.relu2");
    assert_string_equal(g.node[find(&g, "cat7")->in[1]].name, "relu0");
    assert_int_equal(g.n_buffers, 2 * 48);
    assert_string_equal(g.node[g.n_nodes - 1].name, "final");
}

/* The widths 0.5 and 0.64 of spvnas round channels down: 0.64 * 64 = 40, * 128 = 81. */
TEST(narrow_families_have_the_published_channels)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    build(&g, "net.family=minkunet18w20", NULL, 4, 19);
    assert_int_equal(parameter(&g, "stem.3/weight")->dim[2], 20);
    assert_int_equal(parameter(&g, "stage2.1.net.0/weight")->dim[2], 40);
    assert_int_equal(parameter(&g, "stage3.1.net.0/weight")->dim[2], 81);
    assert_int_equal(parameter(&g, "stage4.2.net.3/weight")->dim[2], 163);
    assert_int_equal(parameter(&g, "up1.0.net.0/weight")->dim[2], 163);
    assert_int_equal(parameter(&g, "up2.1.0.net.0/weight")->dim[1], 81 + 40);
    assert_int_equal(parameter(&g, "classifier.0/weight")->dim[0], 61);
}

/* MinkUNet34v2 is MinkUNet34 with a wider classifier: 256 + 128 + 96 channels. */
TEST(a_head_over_strides_reads_three_of_them)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g, plain, linear;
    const sp_node *cat;

    build(&linear, "net.family=minkunet34v2w32", NULL, 4, 19);
    build(&g, "net.family=minkunet34v2w32", "net : { upsample = \"nearest\"; };", 4,
          19);
    assert_int_equal(linear.n_weights, g.n_weights);
    cat = find(&linear, "head.cat");
    assert_string_equal(linear.node[cat->in[0]].name, "head16.0");
    assert_string_equal(linear.node[cat->in[1]].name, "head4.0");
    assert_int_equal(find(&linear, "head16.0")->op, SP_OP_INTERPOLATE);
    assert_int_equal(find(&linear, "head16.0")->stride, 16);
    build(&plain, "net.family=minkunet34w32", NULL, 4, 19);
    assert_int_equal(g.n_weights - plain.n_weights, (256 + 128) * 19);
    assert_int_equal(parameter(&g, "classifier.0/weight")->dim[0], 256 + 128 + 96);
    cat = find(&g, "head.cat");
    assert_int_equal(cat->level, 0);
    assert_string_equal(g.node[cat->in[0]].name, "head16.3");
    assert_string_equal(g.node[cat->in[1]].name, "head4.1");
    assert_string_equal(g.node[cat->in[2]].name, "up4.1.1.relu");
    assert_string_equal(g.node[find(&g, "head16.0")->in[0]].name, "stage4.6.relu");
    assert_string_equal(g.node[find(&g, "head4.0")->in[0]].name, "up2.1.1.relu");
}

TEST(bottlenecks_widen_four_times)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    build(&g, "net.family=minkunet50", NULL, 3, 20);
    assert_int_equal(parameter(&g, "block1.0.conv1/weight")->dim[1], 32);
    assert_int_equal(parameter(&g, "block1.0.conv3/weight")->dim[1], 128);
    assert_int_equal(parameter(&g, "block1.0.downsample.0/weight")->dim[1], 128);
    assert_int_equal(parameter(&g, "block1.0.conv2/weight")->dim[0], 27);
    assert_int_equal(parameter(&g, "convtr4p16s2/weight")->dim[1], 1024);
    assert_int_equal(parameter(&g, "convtr4p16s2/weight")->dim[2], 256);
    assert_int_equal(parameter(&g, "block5.0.conv1/weight")->dim[0], 256 + 128 * 4);
    assert_int_equal(parameter(&g, "final/weight")->dim[0], 384);
}

TEST(width_scales_every_plane)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    build(&g, "net.width=0.26", NULL, 3, 20);
    assert_int_equal(find(&g, "conv0p1s1")->c_out, 8);       /* 8.32 */
    assert_int_equal(find(&g, "block2.0.conv1")->c_out, 17); /* 16.64 */
    assert_int_equal(find(&g, "block8.1.relu2")->c_out, 25); /* 24.96 */
    assert_int_equal(find(&g, "final")->c_out, 20);
    sp_graph_destroy(&g);
    build(&g, "net.width=0.001", NULL, 3, 20);
    assert_int_equal(find(&g, "block4.0.conv1")->c_out, 1);
}

TEST(equal_maps_are_shared)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    build(&g, NULL, NULL, 3, 20);
    assert_int_equal(g.spec.n_levels, 5);
    assert_int_equal(g.spec.n_maps, 14); /* 5^3 + five 3^3 + four down + four up */
    assert_int_equal(find(&g, "block1.0.conv1")->map, find(&g, "block7.1.conv2")->map);
    assert_int_equal(find(&g, "conv1p1s2")->map, find(&g, "convtr7p2s2")->grad_map);
    assert_int_equal(find(&g, "conv1p1s2")->grad_map, find(&g, "convtr7p2s2")->map);
    assert_int_equal(find(&g, "conv0p1s1")->grad_map, -1);
    assert_int_equal(find(&g, "final")->map, -1);
    assert_true(find(&g, "block1.0.conv1")->is_mirrored);
    assert_false(find(&g, "conv1p1s2")->is_mirrored);
    for (int i = 0; i < g.spec.n_maps; i++)
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(&g.spec.map[i], &g.spec.map[k], sizeof(sp_map_key));
}

static void assert_key(const sp_graph *g, int map, int in, int out, int kernel,
                       int swapped)
{
    const sp_map_key *key = &g->spec.map[map];

    assert_true(map >= 0 && key->level_in == in && key->level_out == out);
    assert_true(key->kernel == kernel && key->is_swapped == swapped);
}

TEST(maps_follow_kernel_and_stride)
{
    static const char deck[] =
        "net : { layers = (\n"
        "{ name = \"a\"; op = \"conv\"; out = 4; kernel = 3; },\n"
        "{ name = \"even\"; op = \"conv\"; out = 4; kernel = 2; },\n"
        "{ name = \"back\"; op = \"conv_transpose\"; out = 4; kernel = 3; },\n"
        "{ name = \"four\"; op = \"conv\"; out = 8; kernel = 3; stride = 4; },\n"
        "{ name = \"point\"; op = \"conv\"; out = 8; kernel = 1; stride = 2; },\n"
        "{ name = \"up\"; op = \"conv_transpose\"; out = 4; kernel = 2; stride = 8; "
        "},\n"
        "{ name = \"pool\"; op = \"max_pool\"; stride = 4; },\n"
        "{ name = \"g\"; op = \"global_avg_pool\"; },\n"
        "{ name = \"l\"; op = \"linear\"; out = 6; bias = true; },\n"
        "{ name = \"all\"; op = \"broadcast\"; },\n"
        "{ name = \"cat\"; op = \"concat\"; from = [\"pool\", \"all\"]; },\n"
        "{ name = \"bn\"; op = \"batchnorm\"; },\n"
        "{ name = \"leaky\"; op = \"leaky_relu\"; },\n"
        "{ name = \"drop\"; op = \"dropout\"; },\n"
        "{ name = \"fin\"; op = \"conv_transpose\"; out = 3; kernel = 2; stride = 4; "
        "bias = true; } ); };";
    CLOSED_BY(sp_graph_destroy) sp_graph g;

    build(&g, NULL, deck, 2, 3);
    assert_key(&g, find(&g, "even")->map, 0, 0, 2, 0);
    assert_key(&g, find(&g, "even")->grad_map, 0, 0, 2, 1);
    assert_key(&g, find(&g, "back")->map, 0, 0, 3, 1);
    assert_true(find(&g, "back")->is_mirrored);
    assert_key(&g, find(&g, "four")->map, 0, 2, 3, 0);
    assert_key(&g, find(&g, "four")->grad_map, 2, 0, 3, 0);
    assert_key(&g, find(&g, "point")->map, 2, 3, 1, 0);
    assert_key(&g, find(&g, "up")->map, 3, 0, 2, 0);
    assert_key(&g, find(&g, "pool")->map, 0, 2, 4, 0);
    assert_int_equal(find(&g, "pool")->grad_map, -1);
    assert_int_equal(find(&g, "g")->level, SP_LEVEL_SAMPLE);
    assert_int_equal(find(&g, "l")->map, -1);
    assert_int_equal(find(&g, "all")->level, 2);
    assert_int_equal(find(&g, "cat")->c_out, 10);
    assert_true(find(&g, "leaky")->slope == 0.01f && find(&g, "drop")->p == 0.5f);
    for (int i = 0; i < g.n_params; i++) /* train.decay_norm = false spares these */
        assert_int_equal(g.param[i].is_norm, !strncmp(g.param[i].name, "bn/", 3));
    assert_int_equal(g.spec.n_levels, 4);
}

/* eps and momentum are the layer's own, else those of the deck, in families too. */
TEST(norms_have_their_numbers)
{
    static const char deck[] =
        "net : { bn_momentum = 0.02; layers = (\n"
        "{ name = \"c\"; op = \"conv\"; out = 4; kernel = 1; },\n"
        "{ name = \"own\"; op = \"batchnorm\"; eps = 1e-3; momentum = 0; },\n"
        "{ name = \"half\"; op = \"batchnorm\"; eps = 1; },\n"
        "{ name = \"none\"; op = \"batchnorm\"; } ); };";
    CLOSED_BY(sp_graph_destroy) sp_graph g, of_family, plain;

    build(&g, NULL, deck, 3, 4);
    assert_true(find(&g, "own")->eps == 1e-3 && find(&g, "own")->momentum == 0);
    assert_true(find(&g, "half")->eps == 1 && find(&g, "half")->momentum == 0.02);
    assert_true(find(&g, "none")->eps == 1e-5 && find(&g, "none")->momentum == 0.02);
    build(&of_family, "net.family=minkunet18",
          "net : { bn_eps = 1e-3; bn_momentum = 0.01; };", 3, 4);
    assert_true(find(&of_family, "bn0")->eps == 1e-3);
    assert_true(find(&of_family, "block8.1.norm2")->momentum == 0.01);
    build(&plain, "net.family=dummy", NULL, 3, 4);
    assert_true(find(&plain, "bn1")->eps == 1e-5 &&
                find(&plain, "bn1")->momentum == 0.1);
}

TEST(layers_of_the_dummy_family_equal_the_written_ones)
{
    static const char deck[] =
        "net : { layers = (\n"
        "{ name = \"conv1\"; op = \"conv\"; out = 32; kernel = 3; },\n"
        "{ name = \"bn1\"; op = \"batchnorm\"; }, { name = \"relu1\"; op = \"relu\"; "
        "},\n"
        "{ name = \"conv2\"; op = \"conv\"; out = 64; kernel = 3; stride = 2; },\n"
        "{ name = \"bn2\"; op = \"batchnorm\"; }, { name = \"relu2\"; op = \"relu\"; "
        "},\n"
        "{ name = \"convtr3\"; op = \"conv_transpose\"; out = 32; kernel = 3; stride = "
        "2; },\n"
        "{ name = \"bn3\"; op = \"batchnorm\"; }, { name = \"relu3\"; op = \"relu\"; "
        "},\n"
        "{ name = \"conv4\"; op = \"conv\"; out = 20; kernel = 1; bias = true; } ); };";
    CLOSED_BY(sp_graph_destroy) sp_graph a, b;

    build(&a, "net.family=dummy", NULL, 3, 20);
    build(&b, NULL, deck, 3, 20);
    assert_int_equal(a.n_nodes, b.n_nodes);
    assert_memory_equal(a.node, b.node, (size_t)a.n_nodes * sizeof *a.node);
    assert_memory_equal(a.param, b.param, (size_t)a.n_params * sizeof *a.param);
}
