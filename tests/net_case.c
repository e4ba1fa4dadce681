#include "net_case.h"

#include "sp_rng.h"

/* One layer a line. */
/* clang-format off */
#define LAST(name, op, ...) "{ name = \"" name "\"; op = \"" op "\"; " __VA_ARGS__ " }"
#define LAYER(...) LAST(__VA_ARGS__) ","
#define FINAL(name) LAST(name, "conv", "out = 3; kernel = 1; bias = true;")

/* The stride-2 pair with a bottleneck between. */
#define DUMMY                                                                         \
    LAYER("conv1", "conv", "out = 4; kernel = 3;")                                    \
    LAYER("bn1", "batchnorm")                                                         \
    LAYER("relu1", "relu")                                                            \
    LAYER("conv2", "conv", "out = 6; kernel = 3; stride = 2;")                        \
    LAYER("bn2", "batchnorm")                                                         \
    LAYER("relu2", "relu")                                                            \
    LAYER("convtr3", "conv_transpose", "out = 5; kernel = 3; stride = 2;")            \
    LAYER("bn3", "batchnorm")                                                         \
    LAYER("relu3", "relu")                                                            \
    FINAL("conv4")

/* Residual blocks with and without a norm on the shortcut, sums of three and of twice
 * the same. */
#define RESIDUAL                                                                      \
    LAYER("c0", "conv", "out = 4; kernel = 3;")                                       \
    LAYER("b0", "batchnorm")                                                          \
    LAYER("r0", "relu")                                                               \
    LAYER("c1", "conv", "out = 5; kernel = 3;")                                       \
    LAYER("n1", "batchnorm")                                                          \
    LAYER("r1", "relu")                                                               \
    LAYER("c2", "conv", "out = 5; kernel = 3;")                                       \
    LAYER("n2", "batchnorm")                                                          \
    LAYER("d", "conv", "out = 5; kernel = 1; from = [\"r0\"];")                       \
    LAYER("dn", "batchnorm")                                                          \
    LAYER("a1", "add", "from = [\"n2\", \"dn\"];")                                    \
    LAYER("r2", "relu")                                                               \
    LAYER("c3", "conv", "out = 5; kernel = 2;")                                       \
    LAYER("n3", "batchnorm")                                                          \
    LAYER("a2", "add", "from = [\"r2\", \"n3\"];")                                    \
    LAYER("r3", "leaky_relu")                                                         \
    LAYER("a3", "add", "from = [\"r3\", \"c1\", \"r3\"];")

/* Concats in concats, the same tensor twice, slices with readers of their own. */
#define CONCATS                                                                       \
    LAYER("c0", "conv", "out = 4; kernel = 5;")                                       \
    LAYER("b0", "batchnorm")                                                          \
    LAYER("r0", "relu")                                                               \
    LAYER("c1", "conv", "out = 3; kernel = 2; stride = 2;")                           \
    LAYER("b1", "batchnorm")                                                          \
    LAYER("r1", "relu")                                                               \
    LAYER("c2", "conv", "out = 3; kernel = 3; stride = 2;")                           \
    LAYER("r2", "relu")                                                               \
    LAYER("u1", "conv_transpose", "out = 4; kernel = 2; stride = 2;")                 \
    LAYER("ub1", "batchnorm")                                                         \
    LAYER("ur1", "relu")                                                              \
    LAYER("k1", "concat", "from = [\"r1\", \"ur1\"];")                                \
    LAYER("c3", "conv", "out = 4; kernel = 3;")                                       \
    LAYER("n3", "batchnorm")                                                          \
    LAYER("k2", "concat", "from = [\"n3\", \"k1\", \"n3\"];")                         \
    LAYER("u0", "conv_transpose", "out = 4; kernel = 3; stride = 2;")                 \
    LAYER("k3", "concat", "from = [\"u0\", \"r0\", \"input\"];")                      \
    LAYER("k4", "concat", "from = [\"r0\", \"k3\"];")                                 \
    FINAL("final")

/* Every pool, rows of samples with layers of their own, broadcasts, dropout. */
#define POOLS                                                                         \
    LAYER("c0", "conv", "out = 4; kernel = 3; bias = true;")                          \
    LAYER("m", "max_pool", "kernel = 2; stride = 2;")                                 \
    LAYER("c1", "conv", "out = 4; kernel = 3;")                                       \
    LAYER("b1", "batchnorm")                                                          \
    LAYER("u", "conv_transpose", "out = 4; kernel = 2; stride = 2;")                  \
    LAYER("ga", "global_avg_pool", "from = [\"c0\"];")                                \
    LAYER("l", "linear", "out = 5;")                                                  \
    LAYER("lb", "batchnorm")                                                          \
    LAYER("lr", "relu")                                                               \
    LAYER("w", "broadcast")                                                           \
    LAYER("gm", "global_max_pool", "from = [\"c0\"];")                                \
    LAYER("w2", "broadcast")                                                          \
    LAYER("p", "avg_pool", "kernel = 3; stride = 2; from = [\"c0\"];")                \
    LAYER("u2", "conv_transpose", "out = 4; kernel = 3; stride = 2;")                 \
    LAYER("s", "add", "from = [\"c0\", \"u\", \"u2\", \"w2\"];")                      \
    LAYER("k", "concat", "from = [\"s\", \"w\"];")                                    \
    LAYER("do", "dropout", "p = 0.3;")                                                \
    LAYER("ap", "max_pool", "kernel = 3; stride = 1;")                                \
    FINAL("final")

/* Norms where they are not expected: on the features, without activation, read twice,
 * last, added to their own input. A slope below 0. */
#define ODD                                                                           \
    LAYER("b", "batchnorm")                                                           \
    LAYER("c0", "conv", "out = 4; kernel = 3;")                                       \
    LAYER("c1", "conv", "out = 4; kernel = 3; bias = true;")                          \
    LAYER("r1", "relu")                                                               \
    LAYER("b2", "batchnorm")                                                          \
    LAYER("a2", "add", "from = [\"b2\", \"r1\"];")                                    \
    LAYER("b3", "batchnorm")                                                          \
    LAYER("r3", "relu")                                                               \
    LAYER("c4", "conv", "out = 4; kernel = 1; from = [\"b3\"];")                      \
    LAYER("t", "conv_transpose", "out = 4; kernel = 2; stride = 1;")                  \
    LAYER("a5", "add", "from = [\"t\", \"r3\"];")                                     \
    LAYER("r5", "leaky_relu", "slope = -0.3;")                                        \
    LAYER("b7", "batchnorm")                                                          \
    LAYER("a7", "add", "from = [\"b7\", \"r5\"];")                                    \
    LAYER("c6", "conv", "out = 3; kernel = 3;")                                       \
    LAST("b6", "batchnorm")

const char *const case_smooth_net =
    LAYER("c0", "conv", "out = 4; kernel = 3;")
    LAYER("b0", "batchnorm")
    LAYER("c1", "conv", "out = 5; kernel = 2; stride = 2;")
    LAYER("b1", "batchnorm")
    LAYER("u", "conv_transpose", "out = 4; kernel = 2; stride = 2;")
    LAYER("a", "add", "from = [\"u\", \"b0\"];")
    FINAL("final");
/* clang-format on */

const char *const case_nets[] = {DUMMY, RESIDUAL FINAL("final"), CONCATS, POOLS, ODD,
                                 NULL};

void case_open(net_case *c, const sp_backend_ops *ops, sp_comm *comm,
               const char *layers, const sp_net_options *options)
{
    char text[8192];
    int i;

    memset(c, 0, sizeof *c);
    snprintf(text, sizeof text, "net : { layers = ( %s ); };", layers);
    OK(sp_config_parse(&c->config, text, "case", 0, NULL));
    OK(sp_graph_build(&c->graph, &c->config, CASE_FEATURES, CASE_CLASSES));
    c->backend.ops = ops;
    OK(ops->open(&c->backend, 0, 2));
    c->comm = comm;
    c->smoothing = options->label_smoothing;
    for (i = 0; i < CASE_CLASSES; i++)
        c->class_weight[i] = options->class_weight ? options->class_weight[i] : 1;
    OK(sp_net_create(&c->net, &c->graph, &c->backend, comm, options));
    OK(sp_buckets_create(&c->buckets, &c->graph, comm, options->is_exact, 256));
    OK(sp_buckets_attach(&c->buckets, c->net.transport));
    OK(sp_arena_create(&c->arena, 1 << 26, "case"));
    sp_graph_init_params(&c->graph, 5, c->net.param);
    sp_graph_init_buffers(&c->graph, c->net.running);
    /* Scales, shifts and biases that are not 1 and 0 too. */
    for (i = 0; i < c->graph.n_params; i++) {
        const sp_param *p = &c->graph.param[i];
        sp_rng r = sp_rng_open(7, SP_RNG_INIT, (uint64_t)i, 0);

        for (int64_t j = 0; p->n_dims == 1 && j < p->count; j++)
            c->net.param[p->offset + j] += (float)sp_rng_uniform(&r, -0.4, 0.4);
    }
    sp_net_updated(&c->net);
    sp_buckets_zero(&c->buckets);
}

void case_close(net_case *c)
{
    sp_buckets_destroy(&c->buckets);
    sp_net_destroy(&c->net);
    sp_arena_destroy(&c->arena);
    c->backend.ops->close(&c->backend);
    sp_graph_destroy(&c->graph);
    sp_config_destroy(&c->config);
}

/* Distinct voxels of a small box around the origin, in random order. */
static void draw_coords(const case_sample *s, int32_t *coords)
{
    sp_rng r = sp_rng_open(11, SP_RNG_SCENE, (uint64_t)s->id, 0);
    int n = 0, i;

    while (n < s->n) {
        int32_t *c = coords + 3 * n;

        for (i = 0; i < 3; i++)
            c[i] = (int32_t)(sp_rng_u32(&r) % 6) - 3;
        for (i = 0; i < n && memcmp(coords + 3 * i, c, 3 * sizeof *c); i++)
            ;
        n += i == n;
    }
}

static void draw_values(const case_sample *s, float *features, int32_t *labels)
{
    sp_rng r = sp_rng_open(13, SP_RNG_SCENE, (uint64_t)s->id, 1);
    int i, j;

    for (i = 0; i < s->n; i++) {
        for (j = 0; j < CASE_FEATURES; j++)
            features[i * CASE_FEATURES + j] = (float)sp_rng_uniform(&r, -1, 1.5);
        labels[i] = (int32_t)(sp_rng_u32(&r) % (CASE_CLASSES + 1));
        if (labels[i] == CASE_CLASSES || s->is_blank)
            labels[i] = SP_IGNORE;
    }
}

void case_batch(net_case *c, const case_sample *samples, int n_samples)
{
    int32_t *coords, *labels, *to_labels, *row;
    float *features, *to_features;
    int b, i, n = 0;

    sp_arena_reset(&c->arena);
    OK(SP_TAKE(&c->arena, n_samples + 1, &row));
    OK(SP_TAKE(&c->arena, n_samples + 1, &c->sample_id));
    for (row[0] = b = 0; b < n_samples; b++) {
        n = row[b + 1] = row[b] + samples[b].n;
        c->sample_id[b] = samples[b].id;
    }
    OK(SP_TAKE(&c->arena, 3 * n + 1, &coords));
    OK(SP_TAKE(&c->arena, 3 * n + 1, &c->coords));
    OK(SP_TAKE(&c->arena, n + 1, &labels));
    OK(SP_TAKE(&c->arena, n + 1, &to_labels));
    OK(SP_TAKE(&c->arena, CASE_FEATURES * n + 1, &features));
    OK(SP_TAKE(&c->arena, CASE_FEATURES * n + 1, &to_features));
    for (b = 0; b < n_samples; b++) {
        draw_coords(&samples[b], coords + 3 * row[b]);
        draw_values(&samples[b], features + CASE_FEATURES * row[b], labels + row[b]);
    }
    c->batch = (sp_batch){.epoch = 3, .n_micro = 1, .n_samples = n_samples, .n = n};
    OK(c->backend.ops->plan_build(&c->backend, &c->graph.spec, coords, row, n_samples,
                                  &c->arena, &c->batch.plan));
    for (i = 0; i < n; i++) {
        int from = c->batch.plan.order[i];

        memcpy(c->coords + 3 * i, coords + 3 * from, 3 * sizeof *coords);
        memcpy(to_features + CASE_FEATURES * i, features + CASE_FEATURES * from,
               CASE_FEATURES * sizeof *features);
        to_labels[i] = labels[from];
    }
    c->batch.sample_id = c->sample_id;
    c->batch.features = to_features;
    c->batch.labels = to_labels;
}

void case_step(net_case *c, bool is_last)
{
    c->loss.exact = c->buckets.exact ? c->buckets.tail_exact : NULL;
    OK(sp_net_forward(&c->net, &c->batch, true, &c->logits));
    OK(sp_net_loss(&c->net, &c->batch, &c->loss, NULL, NULL));
    OK(sp_net_backward(&c->net, &c->batch, &c->buckets, is_last));
    c->buckets.tail.loss_sum += c->loss.loss_sum;
    c->buckets.tail.weight_sum += c->loss.weight_sum;
}
