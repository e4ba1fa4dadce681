/* Random networks of layers train as the dense network in double does, in two steps of
 * other samples with an update between, and evaluate as it does: the loss, all
 * gradients, the logits. With little memory, as ranks on the CPU train, with
 * recomputation, and with all of it the bits are the same, in fp32 and in bf16. RUNS
 * networks of SEED, from FIRST on (make check-nets). */
#include "torture/random/random.h"
#include "reference/net_case.h"

#include "net/sp_optim.h"

enum { MOST = 4, STEPS = 2 };

/* A network and how it is trained, drawn from seed and index alone. */
typedef struct drawn {
    rnd_case draws;
    char layers[DECK_SIZE], freeze[512];
    sp_net_options options;
    case_sample samples[STEPS][MOST];
    int n_samples[STEPS];
} drawn;

static const float weights[CASE_CLASSES] = {0.5, 1, 2};
static int n_compared; /* steps with the dense ones */

static void draw_samples(drawn *d, int step)
{
    static const int sizes[] = {12, 1, 2, 3, 0, 40, 25};

    d->n_samples[step] = 1 + rnd_pick(&d->draws, MOST, "samples%d", step);
    for (int b = 0; b < d->n_samples[step]; b++)
        d->samples[step][b] =
            (case_sample){1 + b + MOST * step + 10 * d->draws.index,
                          sizes[rnd_pick(&d->draws, 7, "voxels%d.%d", step, b)],
                          rnd_chance(&d->draws, 10, "blank%d.%d", step, b)};
}

static void draw(drawn *d, int64_t index)
{
    rnd_case *c = &d->draws;
    memset(d, 0, sizeof *d);
    rnd_net_draw(c, strtoull(rnd_environment("SEED", "3"), NULL, 10), index,
                 CASE_FEATURES, CASE_CLASSES, d->layers, sizeof d->layers);
    strcpy(d->freeze, "[");
    for (int i = 0; i < 20 && rnd_chance(c, 20, "freeze"); i++)
        if (rnd_chance(c, 30, "freeze.l%d", i))
            rnd_append(d->freeze, sizeof d->freeze, "%s\"l%d\"",
                       d->freeze[1] ? ", " : "", i);
    strcat(d->freeze, "]");
    d->options = (sp_net_options){
        .bn_scope = SP_SCOPE_WORLD, .seed = 17, .is_exact = rnd_chance(c, 25, "exact")};
    if (rnd_chance(c, 30, "weights"))
        d->options.class_weight = weights;
    if (rnd_chance(c, 30, "smoothing"))
        d->options.loss.smoothing = 0.1f;
    for (int step = 0; step < STEPS; step++)
        draw_samples(d, step);
}

/* A case that is trained. */
typedef struct side {
    net_case c;
    sp_optim optim;
} side;

static void open_side(side *s, const drawn *d, sp_precision precision,
                      bool is_low_memory, bool is_recomputed)
{
    sp_net_options options = d->options;

    options.is_low_memory = is_low_memory;
    options.is_recomputed = is_recomputed;
    case_open_as(&s->c, sp_backend_find("cpu"), alone(), d->layers, d->freeze, &options,
                 precision);
    OK(sp_optim_create(&s->optim, &s->c.graph, &s->c.config, &s->c.backend));
}

static void close_side(side *s)
{
    sp_optim_destroy(&s->optim);
    case_close(&s->c);
}

static void step(side *s, const drawn *d, int number)
{
    OK(sp_buckets_begin(&s->c.buckets));
    case_batch(&s->c, d->samples[number], d->n_samples[number]);
    case_step(&s->c, true);
    OK(sp_bucket_wait(&s->c.buckets, NULL));
}

static void update(side *s)
{
    OK(sp_optim_update(&s->optim, &s->c.net, &s->c.buckets, (sp_rates){.lr = 0.01, .momentum = 0.9},
                       NULL));
}

static void differ(const drawn *d, const char *what, const char *name, double found,
                   double expected, double most)
{
    if (fabs(found - expected) <= most)
        return;
    print_message("network %lld of seed %llu: %s %s: %.9g, expected %.9g +- %.2g\n",
                  (long long)d->draws.index, (unsigned long long)d->draws.seed, what,
                  name, found, expected, most);
    fail_msg("freeze %s, layers\n%s", d->freeze, d->layers);
}

static void same_bits(const drawn *d, const net_case *a, const net_case *b,
                      const char *what)
{
    differ(d, what, "loss", a->loss.loss_sum, b->loss.loss_sum, 0);
    for (int i = 0; i < a->graph.n_params; i++) {
        const sp_param *p = &a->graph.param[i];

        for (int64_t j = p->offset; j < p->offset + p->count; j++)
            differ(d, what, p->name, (double)a->buckets.grad[j],
                   (double)b->buckets.grad[j], 0);
    }
}

/* Compares the gradient of a parameter to a hundredth of its largest element, and to
 * what rounding is of the network's and of the loss: norms over few voxels magnify it,
 * and gradients may cancel out before a norm. */
static void same_gradient(const drawn *d, const net_case *c, const sp_param *p,
                          const double *grad, double rounding)
{
    double own = 0;

    for (int64_t j = p->offset; j < p->offset + p->count; j++)
        own = fmax(own, fabs(grad[j]));
    for (int64_t j = p->offset; j < p->offset + p->count; j++)
        differ(d, "gradient of", p->name, (double)c->buckets.grad[j], grad[j],
               1e-2 * own + rounding);
}

/* Compares a step with the dense one where rounding cannot have passed a kink. With
 * bf16 it may have passed many, and only the loss is near. */
static void follows_dense(const drawn *d, const net_case *c)
{
    const bool is_bf16 = c->backend.precision == SP_BF16;
    FREED double *param = case_params(c), *grad = case_params(c);
    double most = 0, loss;
    dense *of_case = dense_open(c);

    loss = dense_loss(of_case, param, c->net.running, true, NULL);
    if (dense_kink(of_case) > (is_bf16 ? 1e-3 : 1e-5)) {
        n_compared++;
        differ(d, "loss", is_bf16 ? "in bf16" : "", c->loss.loss_sum, loss,
               (is_bf16 ? 0.1 : 1e-3) * (1 + loss));
        dense_gradient(of_case, param, c->net.running, grad);
        for (int64_t i = 0; i < c->graph.n_floats; i++)
            most = fmax(most, fabs(grad[i]));
        for (int i = 0; !is_bf16 && i < c->graph.n_params; i++)
            same_gradient(d, c, &c->graph.param[i], grad,
                          1e-4 * most + 2e-5 * (1 + loss));
    }
    dense_close(of_case);
}

/* Compares the logits of an evaluation, which keeps activations no longer than it reads
 * them: with those of little memory, and with dense ones as far as rounding lets. */
static void evaluate(const drawn *d, net_case *full, net_case *low)
{
    FREED double *param = case_params(full);
    double most = 1;
    dense *of_case = dense_open(full);
    const double *logits;

    case_infer(full);
    case_infer(low);
    dense_loss(of_case, param, full->net.running, false, &logits);
    for (int i = 0; i < full->batch.n * CASE_CLASSES; i++)
        most = fmax(most, fabs(logits[i]));
    for (int i = 0; i < full->batch.n * CASE_CLASSES; i++) {
        differ(d, "evaluated with little memory", "", (double)low->logits.data[i],
               (double)full->logits.data[i], 0);
        differ(d, "evaluated", "", (double)full->logits.data[i], logits[i],
               (full->backend.precision == SP_BF16 ? 0.1 : 1e-4) * most);
    }
    dense_close(of_case);
}

static void check(int64_t index, sp_precision precision)
{
    FREED drawn *d = malloc(sizeof *d);
    CLOSED_BY(close_side) side full, low, again;

    draw(d, index);
    open_side(&full, d, precision, false, false);
    open_side(&low, d, precision, true, false);
    open_side(&again, d, precision, index & 1, true);
    for (int i = 0; i < STEPS; i++) {
        step(&full, d, i);
        step(&low, d, i);
        step(&again, d, i);
        same_bits(d, &low.c, &full.c, "with little memory");
        same_bits(d, &again.c, &full.c, "with recomputation");
        follows_dense(d, &full.c);
        evaluate(d, &full.c, &low.c);
        update(&full);
        update(&low);
        update(&again);
    }
}

TEST(random_networks_train_as_the_dense_ones)
{
    const int64_t runs = strtoll(rnd_environment("RUNS", "200"), NULL, 10);
    const int64_t first = strtoll(rnd_environment("FIRST", "0"), NULL, 10);

    for (int64_t i = first; i < first + runs; i++) {
        check(i, SP_FP32);
        check(i, SP_BF16);
    }
    print_message("%d of %d steps were compared with the dense ones\n", n_compared,
                  (int)runs * 2 * STEPS);
    assert_true(runs < 50 || n_compared > (int)runs * STEPS);
}
