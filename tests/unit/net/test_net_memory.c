/* After the first steps of a size a step allocates nothing, and what is kept of one
 * changes no other. */
#include "fixtures/allocations.h"
#include "reference/net_case.h"

#include "cpu/cpu.h"
#include "net/sp_net_impl.h"
#include "net/sp_optim.h"

static const case_sample small[] = {{1, 10, false}, {2, 0, false}};
static const case_sample large[] = {{3, 40, false}, {4, 60, false}, {5, 1, false}};

static void train_step(net_case *c, sp_optim *optim)
{
    sp_buckets_begin(&c->buckets);
    case_step(c, true);
    OK(sp_bucket_wait(&c->buckets, NULL));
    OK(sp_optim_update(optim, &c->net, &c->buckets,
                       (sp_rates){.lr = 0.1, .momentum = 0.9}, NULL));
    OK(sp_net_forward(&c->net, &c->batch, false, NULL));
    OK(sp_net_loss(&c->net, &c->batch, &c->loss, NULL, NULL));
}

static void check_steps(const char *layers, bool is_exact)
{
    sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .is_exact = is_exact, .seed = 17};
    CLOSED_BY(case_close) net_case c;
    CLOSED_BY(sp_optim_destroy) sp_optim optim;
    long before;

    case_open(&c, sp_backend_find("cpu"), alone(), layers, &options);
    OK(sp_optim_create(&optim, &c.graph, &c.config, &c.backend));
    case_batch(&c, large, 3);
    train_step(&c, &optim);
    case_batch(&c, small, 2);
    for (int i = 0; i < 3; i++) {
        before = n_allocations;
        train_step(&c, &optim);
        assert_int_equal(n_allocations - before, 0);
    }
}

TEST(a_step_allocates_nothing)
{
    long before = n_allocations;

    for (int i = 0; case_nets[i]; i++) {
        check_steps(case_nets[i], false);
        check_steps(case_nets[i], true);
    }
    assert_true(n_allocations > before); /* creation does: the count is alive */
}

/* After an update the weights are packed anew. */
TEST(updated_weights_are_used)
{
    for (int k = 0; case_nets[k]; k++) {
        CLOSED_BY(case_close) net_case used, fresh;

        case_new(&used, case_nets[k], large, 3);
        case_new(&fresh, case_nets[k], large, 3);
        case_step(&used, true);
        sp_buckets_begin(&used.buckets);
        for (int64_t i = 0; i < used.graph.n_floats; i++)
            fresh.net.param[i] = used.net.param[i] *= 1.5f;
        sp_net_updated(&used.net);
        case_step(&used, true);
        case_step(&fresh, true);
        assert_memory_equal(used.logits.data, fresh.logits.data,
                            101 * CASE_CLASSES * sizeof(float));
        assert_memory_equal(used.buckets.grad, fresh.buckets.grad,
                            (size_t)used.graph.n_floats * sizeof(float));
    }
}

static int n_packed; /* weights */

static sp_status count_packs(sp_backend *be, const sp_pack_args *args, int n)
{
    n_packed += n;
    return sp_cpu_ops.conv_pack(be, args, n);
}

/* Weights that did not change are not packed again if there is no backward pass. Nor
 * are they in the evaluations of a training as far as the gradients' memory holds them,
 * which is too small for some of these narrow networks; then it trains as before. */
TEST(evaluations_pack_weights_once)
{
    sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .seed = 17, .is_low_memory = true};
    sp_backend_ops ops = sp_cpu_ops;
    int n_again[2] = {0, 0}, n_first[2] = {0, 0};

    ops.conv_pack = count_packs;
    for (int k = 0; case_nets[k]; k++) {
        CLOSED_BY(case_close) net_case trained, plain, inferred;
        net_case *const each[] = {&inferred, &trained};

        options.is_inference = true;
        case_open(&inferred, &sp_cpu_ops, alone(), case_nets[k], &options);
        options.is_inference = false;
        case_open(&trained, &sp_cpu_ops, alone(), case_nets[k], &options);
        case_open(&plain, &sp_cpu_ops, alone(), case_nets[k], &options);
        case_batch(&plain, large, 3);
        sp_net_lend(&trained.net, &trained.buckets);
        for (int i = 0; i < 2; i++) {
            each[i]->backend.ops = &ops;
            case_batch(each[i], large, 3);
            n_packed = 0;
            OK(sp_net_forward(&each[i]->net, &each[i]->batch, false, NULL));
            n_first[i] += n_packed;
            n_packed = 0;
            OK(sp_net_forward(&each[i]->net, &each[i]->batch, false, NULL));
            n_again[i] += n_packed;
        }
        sp_net_lend(&trained.net, NULL);
        sp_buckets_begin(&trained.buckets);
        case_step(&trained, true);
        case_step(&plain, true);
        assert_memory_equal(trained.buckets.grad, plain.buckets.grad,
                            (size_t)plain.graph.n_floats * sizeof(float));
    }
    assert_true(n_first[0] > 0 && n_again[0] == 0);
    assert_true(n_first[1] > 0 && n_again[1] < n_first[1]);
}

/* An evaluation after a training uses the statistics that this has moved, though one
 * before had other coefficients of norms. */
TEST(moved_statistics_are_used)
{
    for (int k = 0; case_nets[k]; k++) {
        CLOSED_BY(case_close) net_case used, fresh;
        sp_tensor got, want;

        case_new(&used, case_nets[k], large, 3);
        case_new(&fresh, case_nets[k], large, 3);
        for (int i = 0; i < 2; i++)
            OK(sp_net_forward(&used.net, &used.batch, false, NULL));
        case_step(&used, true);
        memcpy(fresh.net.running, used.net.running,
               (size_t)used.graph.n_buffer_floats * sizeof(float));
        for (int i = 0; i < 2; i++)
            OK(sp_net_forward(&used.net, &used.batch, false, &got));
        OK(sp_net_forward(&fresh.net, &fresh.batch, false, &want));
        assert_memory_equal(got.data, want.data, 101 * CASE_CLASSES * sizeof(float));
    }
}

#define NORMED(name, what)                                                             \
    "{ name = \"" name "\"; op = \"conv\"; " what " },"                                \
    "{ name = \"" name "n\"; op = \"batchnorm\"; },"
#define ACTIVE(name, what)                                                             \
    NORMED(name, what) "{ name = \"" name "r\"; op = \"relu\"; },"

/* With little memory and many voxels it keeps neither its first convolution nor the
 * shortcut of its block on the coarser level. */
static const char light_net[] = ACTIVE("c", "out = 16; kernel = 3;") ACTIVE(
    "down", "out = 16; kernel = 2; stride = 2;") ACTIVE("a", "out = 48; kernel = 3;")
    NORMED("b", "out = 48; kernel = 3;") NORMED("short",
                                                "from = [\"downr\"]; out = 48; kernel "
                                                "= 1;") "{ name = \"sum\"; op = "
                                                        "\"add\"; from = [\"bn\", "
                                                        "\"shortn\"]; },"
                                                        "{ name = \"sumr\"; op = "
                                                        "\"relu\"; },"
                                                        "{ name = \"up\"; op = "
                                                        "\"conv_transpose\"; out = 48; "
                                                        "kernel = 2; stride = 2; },"
                                                        "{ name = \"upn\"; op = "
                                                        "\"batchnorm\"; }, { name = "
                                                        "\"upr\"; op = \"relu\"; },"
                                                        "{ name = \"cat\"; op = "
                                                        "\"concat\"; from = [\"upr\", "
                                                        "\"cr\"]; }," ACTIVE(
                                                            "d", "out = 64; kernel = "
                                                                 "3;") "{ name = "
                                                                       "\"f\"; op = "
                                                                       "\"linear\"; "
                                                                       "out = 3; }";

/* Values that were dropped and computed again are the same. */
static void check_low_memory(const char *layers, const case_sample *many, int n_many,
                             int n_light)
{
    const sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .seed = 17, .is_low_memory = true};
    CLOSED_BY(case_close) net_case low, full;

    case_new(&full, layers, many, n_many);
    case_open(&low, sp_backend_find("cpu"), alone(), layers, &options);
    for (int step = 0; step < 2; step++) {
        case_batch(&low, step ? small : many, step ? 2 : n_many);
        case_batch(&full, step ? small : many, step ? 2 : n_many);
        case_step(&low, true);
        case_step(&full, true);
        assert_true(n_light == 0 || low.net.impl->mem.drops_light == (step == 0));
        assert_memory_equal(low.buckets.grad, full.buckets.grad,
                            (size_t)full.graph.n_floats * sizeof(float));
    }
    assert_true(low.net.impl->fixed_arena.used < full.net.impl->fixed_arena.used);
    assert_true(low.net.impl->matrices.high <= full.net.impl->matrices.high);
    for (int v = 0; v < low.net.impl->low.n_values; v++)
        n_light -= low.net.impl->low.value[v].is_light;
    assert_true(n_light <= 0);
}

TEST(low_memory_changes_no_gradient)
{
    enum { SAMPLES = 16 };
    case_sample many[SAMPLES];

    for (int i = 0; i < SAMPLES; i++)
        many[i] = (case_sample){i, 180, false};
    for (int k = 0; case_nets[k]; k++)
        check_low_memory(case_nets[k], large, 3, 0);
    check_low_memory(light_net, many, SAMPLES, 2);
}

#define WIDE(name)                                                                     \
    "{ name = \"" name "\"; op = \"conv\"; out = 192; kernel = 3; },"                  \
    "{ name = \"" name "n\"; op = \"batchnorm\"; },"

/* The gradient lies in pages of activations that are free, which hold NaN here, and the
 * next step gets them back. A layer that keeps its weights has no gradient there. */
TEST(lent_pages_change_no_gradient)
{
    enum { SAMPLES = 16 };
    const sp_net_options options = {
        .bn_scope = SP_SCOPE_WORLD, .seed = 17, .is_low_memory = true};
    const sp_net_options plain = {.bn_scope = SP_SCOPE_WORLD, .seed = 17};
    const char *layers = WIDE("a") WIDE("b") WIDE("c") WIDE("d")
        WIDE("e") "{ name = \"f\"; op = \"conv\"; out = 3; kernel = 1; bias = true; }";
    CLOSED_BY(case_close) net_case low, full;
    case_sample samples[SAMPLES];

    for (int i = 0; i < SAMPLES; i++)
        samples[i] = (case_sample){i, 180, false};
    case_open_as(&full, sp_backend_find("cpu"), alone(), layers, "[\"c\"]", &plain,
                 SP_FP32);
    case_open_as(&low, sp_backend_find("cpu"), alone(), layers, "[\"c\"]", &options,
                 SP_FP32);
    for (int step = 0; step < 3; step++) {
        sp_net_regain(&low.net);
        assert_int_equal(low.net.impl->n_loans, 0);
        sp_buckets_begin(&low.buckets);
        sp_buckets_begin(&full.buckets);
        case_batch(&low, samples, step == 1 ? 1 : SAMPLES);
        case_batch(&full, samples, step == 1 ? 1 : SAMPLES);
        case_step(&low, true);
        case_step(&full, true);
        assert_memory_equal(low.buckets.grad, full.buckets.grad,
                            (size_t)full.graph.n_floats * sizeof(float));
        assert_true(step == 1 || low.net.impl->n_loans > 1);
    }
}

/* So are activations that the backward pass computes again; running statistics move
 * once. A network in which something is dropped needs less memory. */
static void check_recomputed(const char *layers, sp_net_options options,
                             sp_precision precision, const char *freeze, int *n_less)
{
    CLOSED_BY(case_close) net_case again, full;

    case_open_as(&full, sp_backend_find("cpu"), alone(), layers, freeze, &options,
                 precision);
    options.is_recomputed = true;
    case_open_as(&again, sp_backend_find("cpu"), alone(), layers, freeze, &options,
                 precision);
    for (int step = 0; step < 3; step++) {
        net_case *const each[] = {&full, &again};

        for (int i = 0; i < 2; i++) {
            case_batch(each[i], step == 1 ? small : large, step == 1 ? 2 : 3);
            case_step(each[i], true);
        }
        assert_memory_equal(again.buckets.grad, full.buckets.grad,
                            (size_t)full.graph.n_floats * sizeof(float));
        assert_memory_equal(again.net.running, full.net.running,
                            (size_t)full.graph.n_buffer_floats * sizeof(float));
    }
    *n_less += again.net.impl->matrices.high < full.net.impl->matrices.high;
}

TEST(recomputation_changes_no_gradient)
{
    for (int kind = 0; kind < 8; kind++) {
        const sp_net_options options = {.bn_scope = SP_SCOPE_WORLD,
                                        .seed = 17,
                                        .is_low_memory = kind & 1,
                                        .is_exact = kind & 2};
        const sp_precision precision = kind & 4 ? SP_BF16 : SP_FP32;
        int n_less = 0;

        for (int k = 0; case_nets[k]; k++)
            check_recomputed(case_nets[k], options, precision, "[]", &n_less);
        check_recomputed(case_smooth_net, options, precision, "[]", &n_less);
        assert_true(n_less > 0);
    }
}

/* The confusion matrix and the predictions come with the loss; ignored voxels do not
 * count. */
TEST(evaluation_counts_every_labelled_voxel)
{
    int64_t confusion[CASE_CLASSES * CASE_CLASSES] = {0}, sum = 0, labelled = 0;
    int32_t prediction[101];
    CLOSED_BY(case_close) net_case c;

    case_new(&c, case_nets[0], large, 3);
    OK(sp_net_forward(&c.net, &c.batch, false, &c.logits));
    OK(sp_net_loss(&c.net, &c.batch, &c.loss, confusion, prediction));
    for (int i = 0; i < CASE_CLASSES * CASE_CLASSES; i++)
        sum += confusion[i];
    for (int i = 0; i < c.batch.n; i++) {
        int32_t label = c.batch.labels[i];

        labelled += label != SP_IGNORE;
        if (label != SP_IGNORE)
            confusion[label * CASE_CLASSES + prediction[i]]--;
    }
    assert_int_equal(sum, labelled);
    assert_true(c.loss.weight_sum == (double)labelled);
    for (int i = 0; i < CASE_CLASSES * CASE_CLASSES; i++)
        assert_int_equal(confusion[i], 0);
}
