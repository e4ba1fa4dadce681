#include "sp_optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Consecutive parameters that share one weight decay. */
typedef struct span {
    int64_t at, n; /* floats */
    bool has_decay;
} span;

struct sp_optim_impl {
    sp_arena arena; /* m and v */
    int n_spans;
    span *spans;
};

/* Padding between parameters belongs to the span before it: it is 0 and stays 0. */
static void find_spans(const sp_graph *graph, bool decay_norm,
                       struct sp_optim_impl *impl)
{
    span *last = NULL;
    int p;

    for (p = 0; p < graph->n_params; p++) {
        bool has_decay = decay_norm || !graph->param[p].is_norm;

        if (!last || last->has_decay != has_decay) {
            last = &impl->spans[impl->n_spans++];
            last->at = graph->param[p].offset;
            last->has_decay = has_decay;
        }
        last->n =
            (p + 1 < graph->n_params ? graph->param[p + 1].offset : graph->n_floats) -
            last->at;
    }
}

static sp_status take_zero(sp_optim *optim, float **out)
{
    size_t bytes = (size_t)optim->graph->n_floats * sizeof **out;

    SP_TRY(sp_arena_take(&optim->impl->arena, bytes, (void **)out));
    return optim->backend->ops->fill(optim->backend, *out, 0, bytes);
}

sp_status sp_optim_create(sp_optim *optim, const sp_graph *graph,
                          const sp_config *config, sp_backend *backend)
{
    bool is_adamw = config->train.optimizer == SP_ADAMW;
    size_t bytes = (size_t)graph->n_floats * sizeof(float) + 256;

    memset(optim, 0, sizeof *optim);
    optim->graph = graph;
    optim->config = config;
    optim->backend = backend;
    optim->impl = calloc(1, sizeof *optim->impl);
    if (!optim->impl)
        return SP_FAIL(SP_EMEM, "optimizer: out of memory");
    optim->impl->spans =
        calloc((size_t)graph->n_params + 1, sizeof *optim->impl->spans);
    if (!optim->impl->spans)
        return SP_FAIL(SP_EMEM, "optimizer: out of memory");
    find_spans(graph, config->train.decay_norm, optim->impl);
    SP_TRY(backend->ops->arena_create(&optim->impl->arena, bytes * (is_adamw ? 2 : 1),
                                      "optimizer state"));
    SP_TRY(take_zero(optim, &optim->m));
    if (is_adamw)
        SP_TRY(take_zero(optim, &optim->v));
    return SP_OK;
}

void sp_optim_destroy(sp_optim *optim)
{
    if (optim->impl) {
        if (optim->impl->arena.base)
            optim->backend->ops->arena_destroy(&optim->impl->arena);
        free(optim->impl->spans);
    }
    free(optim->impl);
    memset(optim, 0, sizeof *optim);
}

/* From a at t = 0 to b at t = 1 along half a cosine. */
static double arc(double a, double b, double t)
{
    return b + (a - b) * 0.5 * (1 + cos(M_PI * t));
}

static double one_cycle(double p, double rise)
{
    const double start = 1.0 / 25, end = start / 1e4;

    if (p < rise)
        return arc(start, 1, p / rise);
    return rise < 1 ? arc(1, end, (p - rise) / (1 - rise)) : 1;
}

static double decay(sp_schedule schedule, double p)
{
    switch (schedule) {
    case SP_STEP:
        return p < 0.5 ? 1 : p < 0.75 ? 0.1 : 0.01;
    case SP_POLY:
        return pow(1 - p, 0.9);
    case SP_COSINE:
        return 0.5 * (1 + cos(M_PI * p));
    default:
        return 1;
    }
}

double sp_optim_lr(const sp_config *config, int64_t samples_seen, int64_t total_samples,
                   int64_t effective)
{
    double batch = (double)effective, seen = (double)samples_seen;
    double total = fmax(1, (double)total_samples), p = fmin(1, seen / total);
    double warm = (double)config->train.warmup_steps * batch, ratio, lr;
    sp_schedule schedule = (sp_schedule)config->train.schedule;

    lr = config->train.lr;
    ratio = batch / (double)config->batch.size;
    if (config->train.lr_scale != SP_LR_NONE)
        lr *= config->train.lr_scale == SP_LR_LINEAR ? ratio : sqrt(ratio);
    if (schedule == SP_ONECYCLE)
        return lr * one_cycle(p, warm > 0 ? fmin(1, warm / total) : 0.3);
    if (warm > 0)
        lr *= fmin(1, (seen + batch) / warm);
    return lr * decay(schedule, p);
}

static sp_status update(sp_optim *o, const sp_optim_args *whole)
{
    const sp_backend_ops *ops = o->backend->ops;
    int i;

    for (i = 0; i < o->impl->n_spans; i++) {
        const span *s = &o->impl->spans[i];
        sp_optim_args a = *whole;

        a.n = s->n;
        a.w += s->at;
        a.g += s->at;
        a.m += s->at;
        a.v = o->v ? o->v + s->at : NULL;
        if (!s->has_decay)
            a.weight_decay = 0;
        SP_TRY((o->v ? ops->adamw : ops->sgd)(o->backend, &a));
    }
    return SP_OK;
}

sp_status sp_optim_step(sp_optim *optim, float *param, const float *grad,
                        double squares, double weight_sum, double lr, double *grad_norm)
{
    const sp_config *c = optim->config;
    double norm, clip = 1;

    if (grad_norm)
        *grad_norm = 0;
    if (weight_sum == 0)
        return SP_OK;
    norm = sqrt(squares) / weight_sum;
    if (grad_norm)
        *grad_norm = norm;
    if (!isfinite(norm))
        return SP_OK;
    if (c->train.grad_clip > 0)
        clip = fmin(1, c->train.grad_clip / (norm + 1e-6));
    SP_TRY(update(optim, &(sp_optim_args){.w = param,
                                          .g = grad,
                                          .m = optim->m,
                                          .g_scale = clip / weight_sum,
                                          .lr = lr,
                                          .momentum = c->train.momentum,
                                          .weight_decay = c->train.weight_decay,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-8,
                                          .nesterov = c->train.nesterov,
                                          .t = optim->t}));
    optim->t++;
    return SP_OK;
}
