/* Batch norm over the scope: sums, then what follows from them.
 *
 *     one rank      sums of parts -------------------------------------------> finish
 *     several       sums of parts --> of this rank --> over the scope's ranks -->'
 *     exact mode    sums of samples --> host: all of them in fixed point ------->'
 *
 * All of it stays in the backend's memory and nobody waits, but for sums over ranks and
 * in exact mode. The arithmetic is in sp_norm.h.
 */
#include "net/sp_net_impl.h"

#include <string.h>

#include "base/sp_exact.h"

typedef struct norm_sums {
    sp_sums own; /* over this rank; without parts in exact mode */
    sp_sums all; /* over the scope */
} norm_sums;

/* dbeta and dgamma of each sample, rounded on its own. */
static void add_exact_grads(sp_net *net, const net_step *step, const double *sample,
                            sp_buckets *buckets)
{
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;
    int64_t *gamma = buckets->exact + param[node->weight].offset * SP_EXACT_LIMBS;
    int64_t *beta = buckets->exact + param[node->bias].offset * SP_EXACT_LIMBS;
    size_t c = (size_t)step->norm->c;
    int b;

    for (b = 0; b < net->impl->batch->n_samples; b++, sample += 2 * c) {
        sp_exact_add_f64(beta, sample, c);
        sp_exact_add_f64(gamma, sample + c, c);
    }
}

/* Through the host. buckets: where the gradients of a backward pass go; NULL. */
static sp_status combine_exact(sp_net *net, const net_step *step, int64_t n_rows,
                               const double *sample, sp_buckets *buckets)
{
    const sp_backend_ops *ops = net->backend->ops;
    sp_arena *host = &net->impl->host;
    sp_scope scope = net->impl->options.bn_scope;
    size_t m = 2 * (size_t)step->norm->c, n = m * SP_EXACT_LIMBS, mark = host->used;
    size_t n_samples = (size_t)net->impl->batch->n_samples;
    double *copy, *all;
    int64_t *limbs;
    size_t b;

    SP_TRY(SP_TAKE(host, m * n_samples + 1, &copy));
    SP_TRY(SP_TAKE(host, m + 1, &all));
    SP_TRY(SP_TAKE(host, n + 1, &limbs));
    SP_TRY(ops->download(net->backend, copy, sample, m * n_samples * sizeof *copy));
    memset(limbs, 0, n * sizeof *limbs);
    for (b = 0; b < n_samples; b++)
        sp_exact_add_f64(limbs, copy + b * m, m);
    limbs[n] = n_rows;
    if (sp_comm_scope_size(net->comm, scope) > 1)
        SP_TRY(sp_comm_allreduce(net->comm, scope, limbs, n + 1, SP_I64, SP_SUM));
    sp_exact_get_f64(limbs, all, m);
    all[m] = (double)limbs[n];
    SP_TRY(ops->upload(net->backend, net->impl->norm_all, all, (m + 1) * sizeof *all));
    if (buckets)
        add_exact_grads(net, step, copy, buckets);
    sp_arena_rewind(host, mark);
    return SP_OK;
}

/* parts: of this rank; of its samples in exact mode. Collective over the scope, with
 * nothing to add too. */
static sp_status combine(sp_net *net, const net_step *step, const sp_sums *parts,
                         sp_buckets *buckets, norm_sums *sums)
{
    const sp_backend_ops *ops = net->backend->ops;
    struct sp_net_impl *impl = net->impl;
    int m = 2 * step->norm->c;

    *sums = (norm_sums){{NULL, 0, 0}, {impl->norm_all, 1, -1}};
    if (impl->options.is_exact)
        return combine_exact(net, step, (int64_t)parts->n_rows, parts->part, buckets);
    if (sp_comm_scope_size(net->comm, impl->options.bn_scope) == 1) {
        *sums = (norm_sums){*parts, *parts};
        return SP_OK;
    }
    sums->own = (sp_sums){impl->norm_own, 1, parts->n_rows};
    SP_TRY(ops->add_samples(net->backend, parts->part, parts->n_parts, m, parts->n_rows,
                            impl->norm_own, false));
    return sp_transport_allreduce(net->transport, impl->options.bn_scope,
                                  impl->norm_own, impl->norm_all, (size_t)m + 1,
                                  SP_F64);
}

static sp_status take_sample_sums(sp_net *net, int c, int *block, double **sample)
{
    size_t n = 2 * (size_t)c * (size_t)net->impl->batch->n_samples;

    SP_TRY(sp_net_take_block(net, n * sizeof **sample, block));
    *sample = net->impl->block[*block].data;
    return SP_OK;
}

/* Of the batch; the convolution may have taken them on its way. */
static sp_status batch_sums(sp_net *net, const net_step *step, norm_sums *sums)
{
    net_value *x = &net->impl->value[step->in[0]];
    int block = x->sums_block, n_samples = net->impl->batch->n_samples;
    sp_sums parts = {NULL, n_samples, (double)x->act.n};
    double *sample = NULL;

    x->sums_block = -1; /* a second norm of the same value sums for itself */
    if (block >= 0) {
        parts.part = net->impl->block[block].data;
        parts.n_parts = x->n_sums;
    } else {
        SP_TRY(take_sample_sums(net, step->norm->c, &block, &sample));
        SP_TRY(net->backend->ops->norm_sums(
            net->backend, x->act, sp_net_sample_row(net, x->level), n_samples, sample));
        parts.part = sample;
    }
    SP_TRY(combine(net, step, &parts, NULL, sums));
    sp_net_drop_block(net, block); /* read by the next operation still */
    step->norm->seen += (double)x->act.n;
    return SP_OK;
}

/* Scale and shift of the batch, which moves the running statistics, or of those. */
static sp_status finish(sp_net *net, const net_step *step)
{
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;
    const net_norm *norm = step->norm;
    norm_sums sums = {0};

    if (net->impl->is_training)
        SP_TRY(batch_sums(net, step, &sums));
    return net->backend->ops->norm_finish(
        net->backend,
        &(sp_norm_finish_args){.c = norm->c,
                               .sums = sums.all,
                               .gamma = net->param + param[node->weight].offset,
                               .beta = net->param + param[node->bias].offset,
                               .running_mean = net->running + node->running_mean,
                               .running_var = net->running + node->running_var,
                               .scale = norm->scale,
                               .shift = norm->shift,
                               .mean = norm->mean,
                               .inv_std = norm->inv_std});
}

sp_status sp_net_norm_apply(sp_net *net, const net_step *step)
{
    const net_value *value = net->impl->value;
    sp_norm_args args = {.x = value[step->in[0]].act,
                         .y = value[step->out].act,
                         .scale = step->norm->scale,
                         .shift = step->norm->shift,
                         .slope = step->slope};

    if (step->n_in > 1)
        args.res = value[step->in[1]].act;
    return net->backend->ops->norm_apply(net->backend, &args);
}

sp_status sp_net_norm_forward(sp_net *net, net_step *step)
{
    SP_TRY(finish(net, step));
    return sp_net_norm_apply(net, step);
}

/* This rank's share of dgamma and dbeta joins the gradient, which the buckets sum. */
static sp_status grad_finish(sp_net *net, const net_step *step, const norm_sums *sums,
                             sp_buckets *buckets)
{
    const sp_node *node = &net->graph->node[step->layer];
    int64_t gamma = net->graph->param[node->weight].offset;
    int64_t beta = net->graph->param[node->bias].offset;

    return net->backend->ops->norm_grad_finish(
        net->backend, &(sp_norm_grad_finish_args){.c = step->norm->c,
                                                  .all = sums->all,
                                                  .own = sums->own,
                                                  .gamma = net->param + gamma,
                                                  .mean = step->norm->mean,
                                                  .inv_std = step->norm->inv_std,
                                                  .abc = net->impl->coefficients,
                                                  .dgamma = buckets->grad + gamma,
                                                  .dbeta = buckets->grad + beta});
}

/* dx, and the residual's gradient g. The buffer of g goes on to whoever has no gradient
 * yet: dx in place, where the residual does not take it. */
static sp_status hand_on(sp_net *net, const net_step *step, sp_norm_grad_args *args)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    int x = step->in[0], res = step->n_in > 1 ? step->in[1] : 0;
    bool has_res = impl->value[res].needs_grad, is_added;
    bool takes_g = has_res && impl->value[res].grad_range < 0;
    sp_tensor dres;

    if (has_res && !takes_g) {
        SP_TRY(sp_net_grad(net, res, &dres, &is_added));
        SP_TRY(ops->copy(net->backend, args->dy, dres, is_added));
    }
    if (impl->value[x].needs_grad && !takes_g && impl->value[x].grad_range < 0) {
        args->dx = args->dy;
        sp_net_move_grad(net, step->out, x);
        return ops->norm_grad_apply(net->backend, args);
    }
    /* x may be the residual too: then g arrives first and dx is added to a second
     * buffer. */
    if (takes_g && res == x) {
        SP_TRY(sp_net_grad(net, res, &dres, &is_added));
        SP_TRY(ops->copy(net->backend, args->dy, dres, is_added));
        takes_g = false;
    }
    if (impl->value[x].needs_grad) {
        SP_TRY(sp_net_grad(net, x, &args->dx, &args->is_added));
        SP_TRY(ops->norm_grad_apply(net->backend, args));
    }
    if (takes_g)
        sp_net_move_grad(net, step->out, res);
    return SP_OK;
}

sp_norm_grad_args sp_net_norm_grad_args(const sp_net *net, const net_step *step)
{
    const struct sp_net_impl *impl = net->impl;
    const net_value *out = &impl->value[step->out];
    const net_norm *norm = step->norm;
    sp_norm_grad_args args = {.x = impl->value[step->in[0]].act,
                              .y = out->act,
                              .dy = out->grad,
                              .slope = step->slope,
                              .mean = norm->mean,
                              .inv_std = norm->inv_std,
                              .sample_row = sp_net_sample_row(net, out->level),
                              .n_samples = impl->batch->n_samples,
                              .a = impl->coefficients,
                              .b = impl->coefficients + norm->c,
                              .c = impl->coefficients + 2 * norm->c};

    if (step->n_in == 1) {
        args.scale = norm->scale;
        args.shift = norm->shift;
    }
    return args;
}

sp_status sp_net_norm_backward(sp_net *net, net_step *step, sp_buckets *buckets)
{
    struct sp_net_impl *impl = net->impl;
    net_value *out = &impl->value[step->out];
    sp_norm_grad_args args = sp_net_norm_grad_args(net, step);
    sp_sums parts = {NULL, out->n_sums, (double)args.x.n};
    int block = out->sums_block;
    norm_sums sums;

    if (block < 0) { /* else pass 1 is done */
        SP_TRY(take_sample_sums(net, step->norm->c, &block, &args.sums));
        SP_TRY(net->backend->ops->norm_grad_sums(net->backend, &args));
        parts.n_parts = args.n_samples;
    }
    out->sums_block = -1;
    parts.part = impl->block[block].data;
    SP_TRY(combine(net, step, &parts, buckets, &sums));
    SP_TRY(grad_finish(net, step, &sums, buckets));
    sp_net_drop_block(net, block);
    return hand_on(net, step, &args);
}
