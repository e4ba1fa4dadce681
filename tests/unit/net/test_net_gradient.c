/* The whole network in float on the backend agrees with the same in double by look-ups
 * (logits, loss, statistics), and its gradients agree with finite differences of the
 * double loss. */
#include "reference/net_case.h"

static const case_sample samples[] = {
    {1, 40, false}, {2, 0, false}, {3, 25, false}, {4, 3, true}, {5, 1, false}};
enum { N_SAMPLES = sizeof samples / sizeof samples[0] };

static void assert_near(double found, double expected, double tolerance,
                        const char *what, int64_t at)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%s %lld: %.9g, expected %.9g +- %.2g", what, (long long)at, found,
                 expected, tolerance);
}

static void check_logits(const net_case *c, const double *expected)
{
    assert_int_equal(c->logits.n, c->batch.n);
    for (int64_t i = 0; i < c->logits.n; i++)
        for (int j = 0; j < CASE_CLASSES; j++)
            assert_near((double)c->logits.data[i * c->logits.ld + j],
                        expected[i * CASE_CLASSES + j], 2e-4, "logit", i);
}

static void check_running(const net_case *c, const dense *d)
{
    const double *mean, *var;

    for (int i = 0; i < c->graph.n_nodes; i++) {
        const sp_node *node = &c->graph.node[i];
        const double share = node->momentum;
        double n = (double)dense_stats(d, i, &mean, &var);

        if (node->op != SP_OP_BATCHNORM || node->is_frozen)
            continue;
        for (int j = 0; j < node->c_out; j++) {
            assert_near((double)c->net.running[node->running_mean + j], share * mean[j],
                        1e-5, "running mean", j);
            assert_near((double)c->net.running[node->running_var + j],
                        n < 2 ? 1 : 1 - share + share * var[j] * n / (n - 1),
                        1e-5 * (1 + var[j]), "running variance", j);
        }
    }
}

/* Tests at most 12 elements of each parameter. A step of 1e-7 hardly ever crosses a
 * kink. */
static void check_gradient(const net_case *c, dense *d, double *param)
{
    const double h = 1e-7;

    for (int i = 0; i < c->graph.n_params; i++) {
        const sp_param *p = &c->graph.param[i];
        int64_t step = p->count / 12 + 1;

        if (c->graph.node[p->node].is_frozen) {
            for (int64_t j = p->offset; j < p->offset + p->count; j++)
                assert_true(c->buckets.grad[j] == 0);
            continue;
        }
        for (int64_t j = p->offset; j < p->offset + p->count; j += step) {
            double at = param[j], up, down, found = (double)c->buckets.grad[j];

            param[j] = at + h;
            up = dense_loss(d, param, c->net.running, true, NULL);
            param[j] = at - h;
            down = dense_loss(d, param, c->net.running, true, NULL);
            param[j] = at;
            assert_near(found, (up - down) / (2 * h), 2e-3 + 2e-4 * fabs(found),
                        p->name, j - p->offset);
        }
    }
}

/* Runs and checks a step; returns the network in double, which the caller closes. */
static dense *check_step(net_case *c, double *param, const char *what)
{
    dense *d = dense_open(c);
    const double *logits;
    double loss;

    case_step(c, true);
    loss = dense_loss(d, param, c->net.running, true, &logits);
    check_logits(c, logits);
    assert_near(c->loss.loss_sum, loss, 1e-4 * (1 + loss), what, 0);
    check_running(c, d);
    check_gradient(c, d, param);
    return d;
}

static void check_net(const sp_backend_ops *ops, const char *layers,
                      const case_sample *some, int n_samples)
{
    const float weights[CASE_CLASSES] = {0.5, 1, 2};
    sp_net_options options = {.bn_scope = SP_SCOPE_WORLD,
                              .seed = 17,
                              .class_weight = weights,
                              .loss = {.smoothing = 0.1f}};
    const double *logits;
    CLOSED_BY(case_close) net_case c;
    FREED double *param;
    dense *d;

    case_open(&c, ops, alone(), layers, &options);
    case_batch(&c, some, n_samples);
    param = case_params(&c);
    d = check_step(&c, param, "loss");
    case_infer(&c);
    dense_loss(d, param, c.net.running, false, &logits);
    check_logits(&c, logits);
    dense_close(d);
}

static void on_each_net(const sp_backend_ops *ops, const case_sample *some,
                        int n_samples)
{
    for (int i = 0; case_nets[i]; i++)
        check_net(ops, case_nets[i], some, n_samples);
    check_net(ops, case_smooth_net, some, n_samples);
}

TEST(gradients_are_those_of_the_loss)
{
    on_each_net(sp_backend_find("cpu"), samples, N_SAMPLES);
}

TEST(reference_backend_too)
{
    on_each_net(sp_backend_reference(), samples, N_SAMPLES);
}

/* One voxel has no variance: its running variance stays, and its gradient passes no
 * norm. */
TEST(few_voxels_and_none_are_legal)
{
    const sp_backend_ops *ops = sp_backend_find("cpu");

    on_each_net(ops, &(case_sample){9, 1, false}, 1);
    on_each_net(ops, (case_sample[]){{9, 1, false}, {8, 0, false}, {7, 2, false}}, 3);
}

/* ---- layers that keep their weights ---- */

/* Writes a list for train.freeze: all layers with parameters but the last, where `mask`
 * has their bit. False: the mask has none of them. */
static bool list_frozen(const char *layers, uint64_t mask, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    CLOSED_BY(case_close) net_case c;
    int last, n = 0, n_frozen = 0;

    case_new(&c, layers, NULL, 0);
    last = c.graph.param[c.graph.n_params - 1].node;
    for (int i = 0; i < last; i++) {
        if (c.graph.node[i].weight < 0 || !(mask >> n++ & 1))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\"",
                                 n_frozen++ ? ", " : "", c.graph.node[i].name);
    }
    snprintf(text + used, size - used, "]");
    return n_frozen > 0;
}

static void check_frozen(const sp_backend_ops *ops, const char *layers,
                         const char *freeze, bool is_low_memory)
{
    sp_net_options options = {.bn_scope = SP_SCOPE_WORLD,
                              .seed = 17,
                              .is_low_memory = is_low_memory,
                              .is_recomputed = is_low_memory,
                              .loss = {.smoothing = 0.1f}};
    FREED float *before;
    FREED double *param;
    CLOSED_BY(case_close) net_case c;
    dense *d;

    case_open_as(&c, ops, alone(), layers, freeze, &options, SP_FP32);
    case_batch(&c, samples, N_SAMPLES);
    param = case_params(&c);
    before = malloc((size_t)c.graph.n_buffer_floats * sizeof *before + 1);
    memcpy(before, c.net.running, (size_t)c.graph.n_buffer_floats * sizeof *before);
    d = check_step(&c, param, freeze);
    for (int i = 0; i < c.graph.n_buffers; i++) {
        const sp_param *p = &c.graph.buffer[i];

        if (c.graph.node[p->node].is_frozen)
            assert_memory_equal(before + p->offset, c.net.running + p->offset,
                                (size_t)p->count * sizeof *before);
    }
    dense_close(d);
}

/* All layers but the last are frozen; the first ones; every second one; others. The
 * gradients of those that are trained are those of the loss in which norms that are
 * frozen have their running statistics. */
TEST(frozen_layers_have_no_gradient_and_pass_it_on)
{
    static const uint64_t masks[] = {~0ull, 3, 0x5555, 0xaaaa, 0x9249, 0x0f0f, 0x6};
    char freeze[1024];

    for (int i = 0; case_nets[i]; i++)
        for (size_t k = 0; k < sizeof masks / sizeof *masks; k++)
            if (list_frozen(case_nets[i], masks[k], freeze, sizeof freeze)) {
                check_frozen(sp_backend_find("cpu"), case_nets[i], freeze, k & 1);
                if (k < 3)
                    check_frozen(sp_backend_reference(), case_nets[i], freeze, false);
            }
}

static void check_nothing_changes(const case_sample *some, int n_samples)
{
    for (int k = 0; case_nets[k]; k++) {
        CLOSED_BY(case_close) net_case c;

        case_new(&c, case_nets[k], some, n_samples);
        case_step(&c, true);
        for (int64_t i = 0; i < c.graph.n_floats; i++)
            assert_true(isfinite(c.buckets.grad[i]));
        for (int64_t i = 0; i < c.graph.n_nodes; i++) {
            const sp_node *node = &c.graph.node[i];

            /* Samples without voxels are rows of the sample level all the same. */
            if (node->op == SP_OP_BATCHNORM && (node->level >= 0 || n_samples == 0)) {
                assert_true(c.net.running[node->running_mean] == 0);
                assert_true(c.net.running[node->running_var] == 1);
            }
        }
        assert_true(c.loss.weight_sum == 0 && c.loss.loss_sum == 0);
    }
}

TEST(no_voxels_change_nothing)
{
    check_nothing_changes(&(case_sample){9, 0, false}, 1);
    check_nothing_changes(NULL, 0);
}

TEST(numbers_that_are_not_finite_stay_out_of_the_running_statistics)
{
    CLOSED_BY(case_close) net_case c;

    case_new(&c, case_nets[0], samples, 3);
    ((float *)c.batch.features)[5] = NAN;
    OK(sp_net_forward(&c.net, &c.batch, true, &c.logits));
    assert_true(isnan(c.logits.data[0]));
    for (int64_t i = 0; i < c.graph.n_buffer_floats; i++)
        assert_true(isfinite(c.net.running[i]));
}

/* A second micro-batch adds; a class weight multiplies. */
TEST(micro_batches_add_up)
{
    const float weights[CASE_CLASSES] = {2, 2, 2};
    const sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .seed = 17, .class_weight = weights};
    CLOSED_BY(case_close) net_case a, b;

    case_new(&a, case_nets[1], samples, 3);
    case_open(&b, sp_backend_find("cpu"), alone(), case_nets[1], &options);
    case_batch(&b, samples, 3);
    case_step(&a, false);
    case_step(&a, true);
    case_step(&b, true);
    assert_near(b.loss.weight_sum, 2 * a.loss.weight_sum, 0, "weight", 0);
    for (int64_t i = 0; i < a.graph.n_floats; i++)
        assert_near((double)a.buckets.grad[i], (double)b.buckets.grad[i],
                    1e-5 + 1e-5 * fabs((double)a.buckets.grad[i]), "gradient", i);
}
