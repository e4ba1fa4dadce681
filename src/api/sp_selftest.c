#include "api/sp_selftest.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "net/sp_optim.h"

enum { N_SAMPLES = 3, EDGE = 9, FEATURES = 3, CLASSES = 5, N_MOST = 2 * EDGE * EDGE };

/* A network with every operation that the networks' trunks use: strides both ways, a
 * residual, a concatenation. */
static const char deck[] =
    "train : { warmup_steps = 0; };"
    "net : { layers = ("
    "{ name = \"c1\"; op = \"conv\"; out = 16; kernel = 3; },"
    "{ name = \"n1\"; op = \"batchnorm\"; }, { name = \"r1\"; op = \"relu\"; },"
    "{ name = \"c2\"; op = \"conv\"; out = 24; kernel = 2; stride = 2; },"
    "{ name = \"n2\"; op = \"batchnorm\"; }, { name = \"r2\"; op = \"relu\"; },"
    "{ name = \"c3\"; op = \"conv\"; out = 24; kernel = 3; },"
    "{ name = \"n3\"; op = \"batchnorm\"; },"
    "{ name = \"a\"; op = \"add\"; from = [\"n3\", \"r2\"]; },"
    "{ name = \"r3\"; op = \"relu\"; },"
    "{ name = \"u\"; op = \"conv_transpose\"; out = 16; kernel = 2; stride = 2; },"
    "{ name = \"j\"; op = \"concat\"; from = [\"u\", \"r1\"]; },"
    "{ name = \"c4\"; op = \"conv\"; out = 5; kernel = 1; bias = true; } ); };";

/* Largest tolerated deviations: of the losses, relative; of the gradient, relative to
 * its norm. They are several times the measured ones of the emulated device (2e-9 and
 * 4e-7; 4e-5 and 0.02). In bf16 the CPU rounds likewise, so that only the order of sums
 * in fp32 differs, which now and then changes the rounding of an activation. */
static const struct {
    double loss, gradient;
} tolerance[] = {
    [SP_FP32] = {1e-5, 1e-3}, [SP_TF32] = {1e-3, 0.1}, [SP_BF16] = {1e-3, 0.05}};

/* The data: a bumpy surface, a smaller one, and between them a sample without
 * voxels. */
typedef struct problem {
    sp_config config;
    sp_graph graph;
    sp_comm comm; /* one rank */
    int32_t coords[N_MOST][3], row[N_SAMPLES + 1], labels[N_MOST];
    float features[N_MOST][FEATURES];
    float *start; /* [n_floats + n_buffer_floats] initial parameters and statistics */
} problem;

/* One backend's run of the problem. Sides are compared by their results. */
typedef struct side {
    sp_backend *backend;
    sp_net net;
    sp_buckets buckets;
    sp_optim optim;
    sp_arena arena;
    sp_batch batch;
    double loss, eval_loss; /* in the step; with the updated weights */
    float *gradient;        /* [n_floats] host */
} side;

static void draw_surface(problem *p, int *at, int edge)
{
    for (int x = 0; x < edge; x++)
        for (int y = 0; y < edge; y++, ++*at) {
            sp_rng r = sp_rng_open(1, SP_RNG_INIT, (uint64_t)*at, 0);

            p->coords[*at][0] = x;
            p->coords[*at][1] = y;
            p->coords[*at][2] = (x * x + 3 * y) / 8;
            p->labels[*at] = (x + y) % (CLASSES + 1) - 1; /* SP_IGNORE occurs too */
            for (int j = 0; j < FEATURES; j++)
                p->features[*at][j] = (float)sp_rng_uniform(&r, -1, 1);
        }
}

static sp_status open_problem(problem *p)
{
    int n = 0;

    sp_comm_open_self(&p->comm);
    draw_surface(p, &n, EDGE);
    p->row[1] = p->row[2] = n;
    draw_surface(p, &n, EDGE - 3);
    p->row[3] = n;
    SP_TRY(sp_config_parse(&p->config, deck, "self-test", 0, NULL));
    SP_TRY(sp_graph_build(&p->graph, &p->config, FEATURES, CLASSES));
    SP_TRY(SP_NEW(&p->start, p->graph.n_floats + p->graph.n_buffer_floats,
                  "the self-test"));
    sp_graph_init_params(&p->graph, 1, p->start);
    sp_graph_init_buffers(&p->graph, p->start + p->graph.n_floats);
    return SP_OK;
}

/* Builds the plan and uploads features and labels in its order. */
static sp_status selftest_upload_batch(side *s, const problem *p)
{
    static const int64_t ids[N_SAMPLES] = {0, 1, 2};
    const sp_backend_ops *ops = s->backend->ops;
    const size_t n = (size_t)p->row[N_SAMPLES];
    float features[N_MOST][FEATURES], *to_features;
    int32_t labels[N_MOST], *to_labels;

    s->batch = (sp_batch){
        .n_micro = 1, .n_samples = N_SAMPLES, .sample_id = ids, .n = p->row[N_SAMPLES]};
    SP_TRY(ops->plan_build(s->backend, &p->graph.spec, p->coords[0], p->row, N_SAMPLES,
                           &s->arena, &s->batch.plan));
    for (size_t i = 0; i < n; i++) {
        const int32_t from = s->batch.plan.order[i];
        memcpy(features[i], p->features[from], sizeof features[i]);
        labels[i] = p->labels[from];
    }
    SP_TRY(SP_ALLOC(&s->arena, n * FEATURES, &to_features));
    SP_TRY(SP_ALLOC(&s->arena, n, &to_labels));
    s->batch.features = to_features;
    s->batch.labels = to_labels;
    SP_TRY(ops->upload(s->backend, to_features, features, n * sizeof *features));
    return ops->upload(s->backend, to_labels, labels, n * sizeof *labels);
}

static sp_status selftest_open_side(side *s, problem *p)
{
    const sp_backend_ops *ops = s->backend->ops;
    const sp_net_options options = {.bn_scope = SP_SCOPE_RANK, .seed = 1};
    const size_t n = (size_t)p->graph.n_floats;
    const size_t n_running = (size_t)p->graph.n_buffer_floats;

    SP_TRY(SP_NEW(&s->gradient, n, "the self-test"));
    SP_TRY(ops->arena_create(&s->arena, 16 << 20, "self-test"));
    SP_TRY(sp_net_create(&s->net, &p->graph, s->backend, &p->comm, &options));
    SP_TRY(sp_buckets_create(&s->buckets, &p->graph, &p->comm, false, 0));
    SP_TRY(sp_buckets_attach(&s->buckets, s->net.transport));
    SP_TRY(sp_optim_create(&s->optim, &p->graph, &p->config, s->backend));
    SP_TRY(ops->upload(s->backend, s->net.param, p->start, n * sizeof *p->start));
    SP_TRY(ops->upload(s->backend, s->net.running, p->start + n,
                       n_running * sizeof *p->start));
    sp_net_updated(&s->net);
    return selftest_upload_batch(s, p);
}

static void close_side(side *s)
{
    sp_optim_destroy(&s->optim);
    sp_buckets_destroy(&s->buckets);
    sp_net_destroy(&s->net);
    s->backend->ops->arena_destroy(&s->arena);
    free(s->gradient);
}

static sp_status run_side(side *s, problem *p)
{
    const size_t bytes = (size_t)p->graph.n_floats * sizeof(float);
    sp_net_loss_out eval = {0};

    SP_TRY(selftest_open_side(s, p));
    SP_TRY(sp_buckets_begin(&s->buckets));
    SP_TRY(sp_net_forward(&s->net, &s->batch, true, NULL));
    SP_TRY(sp_net_train_loss(&s->net, &s->batch, &s->buckets));
    SP_TRY(sp_net_backward(&s->net, &s->batch, &s->buckets, true));
    SP_TRY(sp_bucket_wait(&s->buckets, NULL));
    s->loss = s->buckets.tail.loss_sum;
    SP_TRY(s->backend->ops->download(s->backend, s->gradient, s->buckets.grad, bytes));
    SP_TRY(sp_optim_update(&s->optim, &s->net, &s->buckets,
                           (sp_rates){.lr = 0.1, .momentum = 0.9}, NULL));
    SP_TRY(sp_net_forward(&s->net, &s->batch, false, NULL));
    SP_TRY(sp_net_loss(&s->net, &s->batch, &eval, NULL, NULL));
    s->eval_loss = eval.loss_sum;
    return SP_OK;
}

/* Written as "<=", not "not >", so that NaN fails. */
static sp_status api_selftest_judge(const char *what, double deviation, double most)
{
    if (deviation <= most)
        return SP_OK;
    return SP_FAIL(
        SP_EDEVICE,
        "self-test: %s of a small network deviates by %.3g from the CPU's, at "
        "most %.3g expected: the device or its driver is not to be trusted",
        what, deviation, most);
}

static sp_status api_selftest_compare(const side *device, const side *cpu,
                                      int64_t n_floats, sp_precision precision)
{
    double error = 0, length = 0;

    for (int64_t i = 0; i < n_floats; i++) {
        const double d = (double)device->gradient[i] - (double)cpu->gradient[i];
        error += d * d;
        length += (double)cpu->gradient[i] * (double)cpu->gradient[i];
    }
    SP_TRY(api_selftest_judge("the loss", fabs(device->loss / cpu->loss - 1),
                              tolerance[precision].loss));
    SP_TRY(api_selftest_judge("the gradient", sqrt(error / length),
                              tolerance[precision].gradient));
    return api_selftest_judge("the loss after an update",
                              fabs(device->eval_loss / cpu->eval_loss - 1),
                              tolerance[precision].loss);
}

sp_status sp_selftest_device(sp_backend *device)
{
    /* In bf16, which the CPU has too, both sides round alike, but for sums in another
     * order. It has no tf32: there the comparison is with fp32. */
    sp_backend cpu = {.ops = sp_backend_find("cpu"),
                      .precision = device->precision == SP_BF16 ? SP_BF16 : SP_FP32};
    problem *p;
    side a = {.backend = device}, b = {.backend = &cpu};
    sp_status rc;

    assert(device->ops && !device->ops->is_host);
    SP_TRY(SP_NEW(&p, 1, "the self-test"));
    rc = cpu.ops->open(&cpu, 0, 1);
    if (rc == SP_OK)
        rc = open_problem(p);
    if (rc == SP_OK)
        rc = run_side(&b, p);
    if (rc == SP_OK)
        rc = run_side(&a, p);
    if (rc == SP_OK)
        rc = api_selftest_compare(&a, &b, p->graph.n_floats, device->precision);
    /* the estimated memory of a run does not include the test's */
    if (rc == SP_OK && device->ops->scratch_drop)
        rc = device->ops->scratch_drop(device);
    close_side(&a);
    close_side(&b);
    sp_graph_destroy(&p->graph);
    sp_config_destroy(&p->config);
    free(p->start);
    free(p);
    cpu.ops->close(&cpu);
    return rc;
}
