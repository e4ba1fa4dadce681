#include "net/sp_optim.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

/* Parameters that follow one another and have the same factor of the learning rate. */
typedef struct optim_stretch {
    int64_t first, end; /* floats in the flat buffers */
    double factor;
} optim_stretch;

struct sp_optim_impl {
    sp_arena arena;    /* memory of the kept values and of no_decay */
    uint8_t *no_decay; /* marks of sp_optim_args; NULL: no marks */
    /* The parameters that are updated; padding between two of a stretch is 0. */
    int n_stretches;
    optim_stretch *stretch; /* [n_stretches] by rising first */
    sp_packs packs;         /* what the running step keeps packed */
};

/* Parameters begin at multiples of a run; their padding is 0 and stays 0. */
static sp_status optim_upload_no_decay(sp_optim *optim)
{
    const sp_graph *graph = optim->graph;
    const sp_backend_ops *ops = optim->backend->ops;
    const size_t n = (size_t)(graph->n_floats + SP_NO_DECAY_RUN - 1) / SP_NO_DECAY_RUN;
    SP_FREED uint8_t *host = NULL;

    SP_TRY(SP_NEW(&host, n, "the optimizer"));
    for (int p = 0; p < graph->n_params; p++) {
        const sp_param *param = &graph->param[p];

        assert(param->offset % SP_NO_DECAY_RUN == 0);
        for (int64_t i = 0; param->is_norm && i < param->count; i += SP_NO_DECAY_RUN)
            host[(param->offset + i) / SP_NO_DECAY_RUN] = 1;
    }
    SP_TRY(SP_ALLOC(&optim->impl->arena, n, &optim->impl->no_decay));
    SP_TRY(ops->upload(optim->backend, optim->impl->no_decay, host, n));
    return ops->wait(optim->backend);
}

/* Lists the parameters that are trained. Without train.freeze and train.lr_layers they
 * are one stretch: the whole buffer. */
static sp_status list_stretches(sp_optim *optim)
{
    const sp_graph *graph = optim->graph;
    struct sp_optim_impl *impl = optim->impl;
    optim_stretch *last = NULL;

    SP_TRY(SP_NEW(&impl->stretch, graph->n_params, "the optimizer"));
    for (int p = 0; p < graph->n_params; p++) {
        const sp_param *param = &graph->param[p];
        const sp_node *node = &graph->node[param->node];
        const double factor = sp_graph_lr_factor(optim->config, node->name);
        const int64_t next =
            p + 1 < graph->n_params ? param[1].offset : graph->n_floats;

        assert(param->offset % SP_NO_DECAY_RUN == 0);
        if (node->is_frozen) {
            last = NULL;
            continue;
        }
        if (!last || last->factor != factor) {
            last = &impl->stretch[impl->n_stretches++];
            *last = (optim_stretch){param->offset, next, factor};
        }
        last->end = next;
    }
    return SP_OK;
}

sp_status sp_optim_create(sp_optim *optim, const sp_graph *graph,
                          const sp_config *config, sp_backend *backend)
{
    const size_t n = (size_t)graph->n_floats;
    const size_t bytes = (size_t)sp_optim_state_total(config, graph) * sizeof(float) +
                         (config->train.decay_norm ? 0 : n / SP_NO_DECAY_RUN) +
                         SP_N_OPTIM_STATES * 256;

    assert(backend->ops && graph->n_params >= 0);
    memset(optim, 0, sizeof *optim);
    optim->graph = graph;
    optim->config = config;
    optim->backend = backend;
    SP_TRY(SP_NEW(&optim->impl, 1, "the optimizer"));
    SP_TRY(list_stretches(optim));
    SP_TRY(backend->ops->arena_create(&optim->impl->arena, bytes, "optimizer state"));
    for (int i = 0; i < SP_N_OPTIM_STATES; i++) {
        const size_t n_kept = (size_t)sp_optim_state_floats(graph, i);

        if (!sp_optim_states[i].is_kept(config))
            continue;
        SP_TRY(SP_ALLOC(&optim->impl->arena, n_kept, &optim->state[i]));
        SP_TRY(backend->ops->fill(backend, optim->state[i], 0, n_kept * sizeof(float)));
    }
    return config->train.decay_norm ? SP_OK : optim_upload_no_decay(optim);
}

void sp_optim_destroy(sp_optim *optim)
{
    if (optim->impl) {
        optim->backend->ops->arena_destroy(&optim->impl->arena);
        free(optim->impl->stretch);
    }
    free(optim->impl);
    memset(optim, 0, sizeof *optim);
}

/* From a at t = 0 to b at t = 1 along half a cosine. */
static double arc(double a, double b, double t)
{
    return b + (a - b) * 0.5 * (1 + cos(M_PI * t));
}

/* A cycle over the progress p: from `start` at 0 to `top` at p = rise, and on to `end`
 * at p = last. The top may be before the first step, at p < 0. */
typedef struct lr_cycle {
    double rise, last;
} lr_cycle;

static double cycle_value(const lr_cycle *c, double p, double start, double top,
                          double end)
{
    if (p < c->rise)
        return arc(start, top, p / c->rise);
    return c->rise < c->last
               ? arc(top, end, fmin(1, (p - c->rise) / (c->last - c->rise)))
               : top;
}

/* 1 / (1/gamma)^n, which gives 0.01 for the square of 0.1; gamma^2 does not. */
static double step_factor(const sp_config *config, double p)
{
    const sp_doubles *milestones = &config->train.milestones;
    double divisor = 1;

    for (int i = 0; i < milestones->n && milestones->at[i] <= p; i++)
        divisor *= 1 / config->train.gamma;
    return 1 / divisor;
}

static double decay(const sp_config *config, double p)
{
    const double floor = config->train.cosine_floor;

    switch (config->train.schedule) {
    case SP_STEP:
        return step_factor(config, p);
    case SP_POLY:
        return pow(1 - p, config->train.poly_power);
    case SP_COSINE:
        return floor + (1 - floor) * (0.5 * (1 + cos(M_PI * p)));
    default:
        return 1;
    }
}

double sp_optim_base_lr(const sp_config *config, int64_t effective)
{
    const double ratio = (double)effective / (double)config->batch.size;

    assert(effective > 0 && config->batch.size > 0);
    switch (config->train.lr_scale) {
    case SP_LR_LINEAR:
        return config->train.lr * ratio;
    case SP_LR_SQRT:
        return config->train.lr * sqrt(ratio);
    default:
        return config->train.lr;
    }
}

/* The factor of warm-up, from train.warmup_factor in the first of `steps` steps to 1 in
 * the last one. `batch` are the samples of a step. */
static double warm_up(const sp_config *config, double seen, double batch)
{
    const double steps = (double)config->train.warmup_steps;
    const double first = config->train.warmup_factor, warm = steps * batch;

    if (steps == 0)
        return 1;
    if (first == 0)
        return fmin(1, (seen + batch) / warm);
    return seen < warm - batch ? first + (1 - first) * seen / (warm - batch) : 1;
}

/* The last step before the share s of the training has the top, and the last step of
 * all has the end, as PyTorch numbers them: a step begins its samples `batch` earlier.
 */
static lr_cycle find_cycle(const sp_config *config, double total, double batch)
{
    const double warm = (double)config->train.warmup_steps * batch;
    double share = 0.3;

    if (config->train.pct_start > 0)
        share = config->train.pct_start;
    else if (warm > 0)
        share = fmin(1, warm / total);
    return (lr_cycle){share - batch / total, fmax(0, 1 - batch / total)};
}

bool sp_optim_cycles_momentum(const sp_config *config)
{
    return config->train.schedule == SP_ONECYCLE && config->train.cycle_momentum.n > 0;
}

/* The share that averages keep in a step of `batch` samples after `seen` of `total`. */
static double average_keep(const sp_config *config, double seen, double total,
                           double batch)
{
    const double into = seen - (1 - config->train.average_tail) * total;

    if (config->train.average_tail == 0)
        return config->train.ema;
    /* the place may be rounded to just after the step that begins there */
    return into < 1e-6 * batch ? 0 : into / (into + batch);
}

sp_rates sp_optim_rates(const sp_config *config, int64_t samples_seen,
                        int64_t total_samples, int64_t effective)
{
    const double batch = (double)effective, seen = (double)samples_seen;
    const double total = fmax(1, (double)total_samples), p = fmin(1, seen / total);
    const lr_cycle c = find_cycle(config, total, batch);
    const double start = 1 / config->train.div_factor;
    const double *bound = config->train.cycle_momentum.at;
    sp_rates rates = {sp_optim_base_lr(config, effective), config->train.momentum,
                      average_keep(config, seen, total, batch)};

    assert(samples_seen >= 0 && effective > 0);
    if (config->train.optimizer == SP_ADAMW)
        rates.momentum = config->train.betas.at[0];
    if (sp_optim_cycles_momentum(config))
        rates.momentum = cycle_value(&c, p, bound[1], bound[0], bound[1]);
    if (config->train.schedule == SP_ONECYCLE)
        rates.lr *=
            cycle_value(&c, p, start, 1, start / config->train.final_div_factor);
    else
        rates.lr *= warm_up(config, seen, batch);
    rates.lr *= decay(config, p);
    return rates;
}

static float *at(float *flat, int64_t first)
{
    return flat ? flat + first : NULL;
}

static sp_status net_optim_update(const sp_optim *optim, const optim_stretch *s,
                                  float *param, const float *grad, double g_scale,
                                  sp_rates rates)
{
    const sp_config *c = optim->config;
    const sp_backend_ops *ops = optim->backend->ops;
    const uint8_t *no_decay = optim->impl->no_decay;
    const sp_optim_args args = {
        .n = s->end - s->first,
        .w = param + s->first,
        .g = grad + s->first,
        .m = at(optim->state[SP_OPTIM_STATE_M], s->first),
        .v = at(optim->state[SP_OPTIM_STATE_V], s->first),
        .g_scale = g_scale,
        .lr = rates.lr * s->factor,
        .momentum = rates.momentum,
        .dampening = c->train.optimizer == SP_SGD ? c->train.dampening : 0,
        .weight_decay = c->train.weight_decay,
        .beta1 = rates.momentum,
        .beta2 = c->train.betas.at[1],
        .eps = c->train.adamw_eps,
        .nesterov = c->train.nesterov,
        .t = optim->t,
        .no_decay = no_decay ? no_decay + s->first / SP_NO_DECAY_RUN : NULL,
        .packs = optim->impl->packs};

    return (c->train.optimizer == SP_ADAMW ? ops->adamw : ops->sgd)(optim->backend,
                                                                    &args);
}

sp_status sp_optim_step(sp_optim *optim, float *param, const float *grad,
                        double squares, double weight_sum, sp_rates rates,
                        double *grad_norm)
{
    const sp_config *c = optim->config;
    double norm, clip = 1;

    assert(optim->impl && param && grad && rates.lr >= 0);
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
    for (int i = 0; i < optim->impl->n_stretches; i++)
        SP_TRY(net_optim_update(optim, &optim->impl->stretch[i], param, grad,
                                clip / weight_sum, rates));
    optim->t++;
    return SP_OK;
}

sp_status sp_optim_update(sp_optim *optim, sp_net *net, const sp_buckets *buckets,
                          sp_rates rates, double *grad_norm)
{
    const int64_t before = optim->t;
    const sp_packs packs = sp_net_packs(net);

    optim->impl->packs = packs;
    SP_TRY(sp_optim_step(optim, net->param, buckets->grad, buckets->squares,
                         buckets->tail.weight_sum, rates, grad_norm));
    optim->impl->packs = (sp_packs){0};
    if (optim->t > before && packs.n == 0)
        sp_net_updated(net);
    return SP_OK;
}

/* ---- averages ---- */

/* n floats as a tensor. Parameters and buffers are padded to multiples of a run. */
static sp_tensor flat_tensor(const float *data, int64_t n)
{
    const int c = n % SP_NO_DECAY_RUN ? 1 : SP_NO_DECAY_RUN;

    return (sp_tensor){.data = (float *)(uintptr_t)data, .n = n / c, .c = c, .ld = c};
}

/* The update rule of SGD with decay 1 and the negative value as gradient:
 * average -= (1 - keep) (average - value). */
static sp_status move_average(const sp_optim *optim, int i, const float *value,
                              double keep)
{
    const sp_optim_args args = {.n = sp_optim_state_floats(optim->graph, i),
                                .w = optim->state[i],
                                .g = value,
                                .g_scale = -1,
                                .lr = 1 - keep,
                                .weight_decay = 1,
                                .t = 1};

    return optim->backend->ops->sgd(optim->backend, &args);
}

sp_status sp_optim_begin_average(sp_optim *optim, const float *param,
                                 const float *running)
{
    optim->is_averaging = false;
    for (int i = 0; i < SP_N_OPTIM_STATES; i++) {
        const float *value = sp_optim_states[i].is_of_buffers ? running : param;
        const int64_t n = sp_optim_state_floats(optim->graph, i);

        if (sp_optim_states[i].is_average && optim->state[i] && n)
            SP_TRY(optim->backend->ops->copy(optim->backend, flat_tensor(value, n),
                                             flat_tensor(optim->state[i], n), false));
    }
    return SP_OK;
}

sp_status sp_optim_average(sp_optim *optim, const float *param, const float *running,
                           double keep)
{
    if (!optim->is_averaging || keep <= 0)
        SP_TRY(sp_optim_begin_average(optim, param, running));
    else
        for (int i = 0; i < SP_N_OPTIM_STATES; i++)
            if (sp_optim_states[i].is_average && optim->state[i])
                SP_TRY(move_average(optim, i,
                                    sp_optim_states[i].is_of_buffers ? running : param,
                                    keep));
    optim->is_averaging = true;
    return SP_OK;
}
