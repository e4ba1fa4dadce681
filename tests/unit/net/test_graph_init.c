/* Initial weights are Kaiming normal by fan-out, a function of seed and name alone. */
#include "fixtures/test.h"

#include "net/sp_graph.h"

static float *start(sp_graph *g, const char *override, uint64_t seed)
{
    char *o[] = {(char *)(uintptr_t) override, "net.width=0.25"};
    sp_config c;
    float *flat;

    OK(sp_config_read(&c, NULL, 2, o));
    OK(sp_graph_build(g, &c, 3, 20));
    sp_config_destroy(&c);
    flat = malloc((size_t)g->n_floats * sizeof *flat);
    assert_non_null(flat);
    sp_graph_init_params(g, seed, flat);
    return flat;
}

TEST(weights_have_the_kaiming_moments)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g;
    FREED float *flat = start(&g, "net.family=minkunet14A", 7);

    for (int i = 0; i < g.n_params; i++) {
        const sp_param *p = &g.param[i];
        double sum = 0, squares = 0, fourth = 0, n = (double)p->count;
        double variance =
            2.0 / (p->n_dims == 3 ? (double)p->dim[0] * p->dim[2] : p->dim[1]);

        for (int64_t k = 0; k < p->count && p->n_dims > 1; k++) {
            double x = (double)flat[p->offset + k] / sqrt(variance);
            sum += x;
            squares += x * x;
            fourth += x * x * x * x;
        }
        if (p->n_dims == 1)
            for (int64_t k = 0; k < p->count; k++)
                assert_true(flat[p->offset + k] ==
                            (strstr(p->name, "/weight") ? 1 : 0));
        else /* five standard deviations of each estimate */
            assert_true(fabs(sum / n) < 5 / sqrt(n) &&
                        fabs(squares / n - 1) < 5 * sqrt(2 / n) &&
                        fabs(fourth / n - 3) < 5 * sqrt(96 / n));
    }
}

/* Those of other layers are other numbers. */
TEST(weights_depend_on_seed_and_name_alone)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g, h;
    FREED float *a = start(&g, "net.family=minkunet14A", 7);
    FREED float *b = start(&h, "net.family=minkunet18A", 7);
    FREED float *c = malloc((size_t)g.n_floats * sizeof *c);
    const sp_param *p = NULL, *q = NULL;

    for (int i = 0; i < g.n_params; i++)
        if (!strcmp(g.param[i].name, "conv3p4s2/weight"))
            p = &g.param[i];
    for (int i = 0; i < h.n_params; i++)
        if (!strcmp(h.param[i].name, "conv3p4s2/weight"))
            q = &h.param[i];
    assert_non_null(p);
    assert_non_null(q);
    assert_non_null(c);
    assert_true(p->offset != q->offset);
    assert_memory_equal(a + p->offset, b + q->offset, (size_t)p->count * sizeof *a);
    for (int i = 0; i < g.n_params; i++)
        assert_true(&g.param[i] == p || g.param[i].n_dims == 1 ||
                    a[g.param[i].offset] / (float)sqrt(2.0 / g.param[i].fan_out) !=
                        a[p->offset] / (float)sqrt(2.0 / p->fan_out));
    sp_graph_init_params(&g, 8, c);
    assert_memory_not_equal(a, c, (size_t)g.n_floats * sizeof *a);
}

TEST(running_statistics_start_at_0_and_1)
{
    CLOSED_BY(sp_graph_destroy) sp_graph g;
    float *flat = start(&g, "net.family=dummy", 1), *running;
    int n = 0;

    running = malloc((size_t)g.n_buffer_floats * sizeof *running);
    assert_non_null(running);
    sp_graph_init_buffers(&g, running);
    for (int i = 0; i < g.n_nodes; i++) {
        const sp_node *node = &g.node[i];

        if (node->op != SP_OP_BATCHNORM)
            continue;
        n++;
        for (int k = 0; k < node->c_out; k++)
            assert_true(running[node->running_mean + k] == 0 &&
                        running[node->running_var + k] == 1);
    }
    assert_int_equal(n, 3);
    free(flat);
    free(running);
}
