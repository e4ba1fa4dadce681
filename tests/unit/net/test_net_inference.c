/* An evaluation gives the bits of the plain operations, one after the other, each with
 * an output in memory of its own: running convolutions with norms and using memory
 * again changes none. */
#include "reference/net_case.h"

#include "net/sp_net_impl.h"

/* Norms with and without a convolution to themselves; a residual that is computed
 * between the convolution and its norm; outputs that can stand over inputs, and some
 * that cannot, since the input is read later, twice or stands in a concat. */
static const char mixed_net[] =
    "{ name = \"c0\"; op = \"conv\"; out = 4; kernel = 3; bias = true; },"
    "{ name = \"r0\"; op = \"leaky_relu\"; slope = -0.5; },"
    "{ name = \"d0\"; op = \"dropout\"; },"
    "{ name = \"c1\"; op = \"conv\"; out = 5; kernel = 3; },"
    "{ name = \"c2\"; op = \"conv\"; out = 5; kernel = 1; from = [\"d0\"]; },"
    "{ name = \"n2\"; op = \"batchnorm\"; },"
    "{ name = \"c3\"; op = \"conv\"; out = 5; kernel = 3; },"
    "{ name = \"n1\"; op = \"batchnorm\"; from = [\"c1\"]; },"
    "{ name = \"a1\"; op = \"add\"; from = [\"n1\", \"c3\"]; },"
    "{ name = \"r1\"; op = \"leaky_relu\"; slope = 0.3; },"
    "{ name = \"a2\"; op = \"add\"; from = [\"r1\", \"n2\", \"c3\"]; },"
    "{ name = \"a3\"; op = \"add\"; from = [\"a2\", \"a2\"]; },"
    "{ name = \"n3\"; op = \"batchnorm\"; },"
    "{ name = \"n4\"; op = \"batchnorm\"; },"
    "{ name = \"r4\"; op = \"relu\"; },"
    "{ name = \"c5\"; op = \"conv\"; out = 4; kernel = 2; stride = 2; },"
    "{ name = \"n5\"; op = \"batchnorm\"; },"
    "{ name = \"r5\"; op = \"relu\"; },"
    "{ name = \"u6\"; op = \"conv_transpose\"; out = 4; kernel = 2; stride = 2; },"
    "{ name = \"n6\"; op = \"batchnorm\"; },"
    "{ name = \"r6\"; op = \"relu\"; },"
    "{ name = \"k\"; op = \"concat\"; from = [\"r6\", \"r4\"]; },"
    "{ name = \"r7\"; op = \"relu\"; },"
    "{ name = \"d7\"; op = \"dropout\"; from = [\"r4\"]; },"
    "{ name = \"k2\"; op = \"concat\"; from = [\"r7\", \"d7\"]; },"
    "{ name = \"c8\"; op = \"conv\"; out = 3; kernel = 1; },"
    "{ name = \"n8\"; op = \"batchnorm\"; }";

/* ---- the plain operations ---- */

typedef struct walk {
    net_case *c;
    const sp_lowered *low;
    sp_tensor *value; /* [n_values] memory of its own each */
    int32_t *sample_rows;
} walk;

static const int32_t *rows_of(const walk *w, int level)
{
    return level == SP_LEVEL_SAMPLE ? w->sample_rows
                                    : w->c->batch.plan.level[level].sample_row;
}

static void open_walk(walk *w, net_case *c)
{
    const sp_batch *batch = &c->batch;

    *w = (walk){.c = c, .low = &c->net.impl->low};
    w->value = test_alloc((size_t)w->low->n_values * sizeof *w->value);
    w->sample_rows =
        test_alloc(((size_t)batch->n_samples + 1) * sizeof *w->sample_rows);
    for (int b = 0; b <= batch->n_samples; b++)
        w->sample_rows[b] = b;
    for (int v = 0; v < w->low->n_values; v++) {
        const sp_lower_value *from = &w->low->value[v];
        const int64_t n = from->level == SP_LEVEL_SAMPLE
                              ? batch->n_samples
                              : batch->plan.level[from->level].n;
        const size_t size = (size_t)n * (size_t)from->c + 1;

        w->value[v] = (sp_tensor){.n = n, .c = from->c, .ld = from->c};
        w->value[v].data = test_alloc(size * sizeof(float));
        memset(w->value[v].data, 0xff, size * sizeof(float)); /* NaN */
    }
    memcpy(w->value[0].data, batch->features,
           (size_t)batch->n * CASE_FEATURES * sizeof(float));
}

static void walk_conv(const walk *w, const sp_lower_step *step)
{
    net_case *c = w->c;
    const sp_backend_ops *ops = c->backend.ops;
    const sp_node *node = &c->graph.node[step->layer];
    const sp_param *param = c->graph.param;
    const int K = node->kernel * node->kernel * node->kernel;
    const size_t n =
        ops->conv_pack_floats(&c->backend, K, node->c_in, node->c_out, false);
    sp_pack_args pack = {.w = c->net.param + param[node->weight].offset,
                         .K = K,
                         .c_in = node->c_in,
                         .c_out = node->c_out,
                         .packed = aligned_alloc(64, n * sizeof(float) / 64 * 64 + 64)};

    if (n)
        OK(ops->conv_pack(&c->backend, &pack, 1));
    OK(ops->conv_forward(
        &c->backend,
        &(sp_conv_args){
            .map = node->map < 0 ? NULL : &c->batch.plan.map[node->map],
            .x = w->value[step->in[0]],
            .y = w->value[step->out],
            .w = pack.w,
            .w_packed = pack.packed,
            .bias = node->bias < 0 ? NULL : c->net.param + param[node->bias].offset}));
    free(pack.packed);
}

static void walk_norm(const walk *w, const sp_lower_step *step)
{
    enum { MOST = 16 };
    net_case *c = w->c;
    const sp_node *node = &c->graph.node[step->layer];
    const sp_param *param = c->graph.param;
    float scale[MOST], shift[MOST], mean[MOST], inv_std[MOST];
    sp_norm_args args = {.x = w->value[step->in[0]],
                         .y = w->value[step->out],
                         .scale = scale,
                         .shift = shift,
                         .slope = step->slope};

    assert_true(node->c_out <= MOST);
    OK(c->backend.ops->norm_finish(
        &c->backend,
        &(sp_norm_finish_args){.c = node->c_out,
                               .eps = node->eps,
                               .momentum = node->momentum,
                               .gamma = c->net.param + param[node->weight].offset,
                               .beta = c->net.param + param[node->bias].offset,
                               .running_mean = c->net.running + node->running_mean,
                               .running_var = c->net.running + node->running_var,
                               .scale = scale,
                               .shift = shift,
                               .mean = mean,
                               .inv_std = inv_std}));
    if (step->n_in > 1)
        args.res = w->value[step->in[1]];
    OK(c->backend.ops->norm_apply(&c->backend, &args));
}

static void walk_pool(const walk *w, const sp_lower_step *step)
{
    sp_backend *be = &w->c->backend;
    const sp_node *node = &w->c->graph.node[step->layer];
    const sp_tensor x = w->value[step->in[0]], y = w->value[step->out];
    FREED int32_t *argmax = calloc((size_t)y.n * (size_t)y.c + 1, sizeof *argmax);

    if (node->map >= 0)
        OK(be->ops->pool(be, &(sp_pool_args){.map = &w->c->batch.plan.map[node->map],
                                             .is_max = step->row->has_argmax,
                                             .x = x,
                                             .y = y,
                                             .argmax = argmax}));
    else
        OK(be->ops->global_pool(be, x, rows_of(w, w->low->value[step->in[0]].level),
                                w->c->batch.n_samples,
                                step->row->has_argmax ? argmax : NULL, y));
}

static void walk_interpolate(const walk *w, const sp_lower_step *step)
{
    sp_backend *be = &w->c->backend;
    const sp_plan *plan = &w->c->batch.plan;
    const int fine = w->low->value[step->out].level;

    OK(be->ops->interpolate(
        be, &(sp_interpolate_args){.map = &plan->map[w->c->graph.node[step->layer].map],
                                   .level = &plan->level[fine],
                                   .steps = w->low->value[step->in[0]].level - fine,
                                   .x = w->value[step->in[0]],
                                   .y = w->value[step->out]}));
}

static void walk_concat(const walk *w, const sp_lower_step *step)
{
    int column = 0;

    for (int k = 0; k < step->n_in; k++) {
        const sp_tensor x = w->value[step->in[k]];

        OK(w->c->backend.ops->copy(&w->c->backend, x,
                                   sp_tensor_columns(w->value[step->out], column, x.c),
                                   false));
        column += x.c;
    }
}

static void walk_step(const walk *w, const sp_lower_step *step)
{
    sp_backend *be = &w->c->backend;
    const sp_tensor x = w->value[step->in[0]], y = w->value[step->out];

    switch (step->op) {
    case SP_OP_CONV:
        walk_conv(w, step);
        break;
    case SP_OP_BATCHNORM:
        walk_norm(w, step);
        break;
    case SP_OP_RELU:
        OK(be->ops->relu(be, x, step->slope, y));
        break;
    case SP_OP_ADD:
        for (int k = 0; k < step->n_in; k++)
            OK(be->ops->copy(be, w->value[step->in[k]], y, k > 0));
        break;
    case SP_OP_CONCAT:
        walk_concat(w, step);
        break;
    case SP_OP_DROPOUT:
        OK(be->ops->copy(be, x, y, false));
        break;
    case SP_OP_INTERPOLATE:
        walk_interpolate(w, step);
        break;
    case SP_OP_BROADCAST:
        OK(be->ops->broadcast(be, x, rows_of(w, w->low->value[step->out].level),
                              w->c->batch.n_samples, y));
        break;
    default:
        walk_pool(w, step);
    }
}

/* ---- the comparison ---- */

/* Has the running statistics differ from those of a new network. */
static void move_running(net_case *c)
{
    sp_rng r = sp_rng_open(19, SP_RNG_INIT, 0, 0);

    for (int64_t i = 0; i < c->graph.n_buffer_floats; i++)
        c->net.running[i] += (float)sp_rng_uniform(&r, -0.3, 0.6);
}

static void same_bits(net_case *c, const char *layers)
{
    const size_t mark = test_mark();
    sp_tensor want;
    walk w;

    open_walk(&w, c);
    for (int s = 0; s < w.low->n_steps; s++)
        walk_step(&w, &w.low->step[s]);
    want = w.value[w.low->n_values - 1];
    OK(sp_net_forward(&c->net, &c->batch, false, &c->logits));
    assert_int_equal(c->logits.n, want.n);
    assert_int_equal(c->logits.ld, want.ld);
    if (memcmp(c->logits.data, want.data, (size_t)(want.n * want.ld) * sizeof(float)))
        fail_msg("%d rows, %d samples: logits differ: %s", (int)want.n,
                 c->batch.n_samples, layers);
    test_release(mark);
}

static void check_net(const sp_backend_ops *ops, const char *layers, bool is_low_memory)
{
    static const case_sample some[] = {{1, 60, false}, {2, 0, false}, {3, 1, false}};
    const sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .seed = 17, .is_low_memory = is_low_memory};
    CLOSED_BY(case_close) net_case c;

    case_open(&c, ops, alone(), layers, &options);
    move_running(&c);
    for (int n = 3; n >= 0; n--) { /* 3, 2, 1 samples, and none */
        case_batch(&c, some, n);
        same_bits(&c, layers);
    }
    case_batch(&c, &some[2], 1);
    same_bits(&c, layers);
    for (int n = 3; n >= 2; n--) { /* what training left in the memory does not show */
        case_batch(&c, some, n);
        case_step(&c, true);
        case_batch(&c, some, 3);
        same_bits(&c, layers);
    }
}

TEST(an_evaluation_is_the_plain_operations)
{
    const sp_backend_ops *const ops[] = {sp_backend_find("cpu"),
                                         sp_backend_reference()};

    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; case_nets[i]; i++)
            check_net(ops[kind & 1], case_nets[i], kind & 2);
        check_net(ops[kind & 1], case_smooth_net, kind & 2);
        check_net(ops[kind & 1], mixed_net, kind & 2);
    }
}

/* Norms run within their convolutions: else the comparison above would say nothing. */
TEST(norms_run_with_their_convolutions)
{
    int n = 0;
    CLOSED_BY(case_close) net_case c;

    case_new(&c, mixed_net, NULL, 0);
    for (int s = 0; s < c.net.impl->low.n_steps; s++) {
        const sp_lower_step *step = &c.net.impl->low.step[s];

        n += !sp_lowered_has_turn(step, false);
        assert_true(sp_lowered_has_turn(step, true));
        if (step->runs_with >= 0)
            assert_int_equal(c.net.impl->low.step[step->runs_with].runs_with, s);
    }
    assert_int_equal(n, 5); /* c1, c2, c5, u6, c8 */
}
