/* Batch norm over the ranks of a scope: sums over rows, then the coefficients that
 * follow from them.
 *
 *     one rank      sums of parts -------------------------------------------> finish
 *     several       sums of parts --> of this rank --> over the scope's ranks -->'
 *     exact mode    sums of samples --> host: all of them in fixed point ------->'
 *
 * The parts are those of an operation fused with a convolution (sp_backend_ops), which
 * has formed the sums before the norm's turn comes; else they are samples, and the sums
 * are formed here. All of it stays in the backend's memory; the host waits only for
 * sums over ranks and in exact mode. The arithmetic is in sp_norm.h.
 *
 * A frozen norm uses its running statistics in training too, as evaluation does. They
 * do not depend on the batch, so its backward pass has no sums: dx = scale g.
 */
#include "net/sp_net_impl.h"

#include <assert.h>
#include <string.h>

#include "base/sp_exact.h"

typedef struct norm_sums {
    sp_sums own; /* Over this rank. Unused in exact mode: the limbs get them. */
    sp_sums all; /* Over the scope. */
} norm_sums;

/* Adds dbeta and dgamma of each sample, which are its sums, to the exact gradient. */
static void add_exact_grads(sp_net *net, const sp_lower_step *step,
                            const double *sample, sp_buckets *buckets)
{
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;
    int64_t *gamma = buckets->exact + param[node->weight].offset * SP_EXACT_LIMBS;
    int64_t *beta = buckets->exact + param[node->bias].offset * SP_EXACT_LIMBS;
    size_t c = (size_t)net->impl->low.value[step->out].c;

    for (int b = 0; b < net->impl->batch->n_samples; b++, sample += 2 * c) {
        sp_exact_add_f64(beta, sample, c);
        sp_exact_add_f64(gamma, sample + c, c);
    }
}

/* Sums in exact mode, through the host. buckets: those that the gradients of a backward
 * pass are added to; NULL in a forward pass. */
static sp_status combine_exact(sp_net *net, const sp_lower_step *step, int64_t n_rows,
                               const double *sample, sp_buckets *buckets)
{
    const sp_backend_ops *ops = net->backend->ops;
    sp_arena *host = &net->impl->host;
    sp_scope scope = net->impl->options.bn_scope;
    size_t m = 2 * (size_t)net->impl->low.value[step->out].c, n = m * SP_EXACT_LIMBS,
           mark = host->used;
    size_t n_samples = (size_t)net->impl->batch->n_samples;
    double *copy, *all;
    int64_t *limbs;

    SP_TRY(SP_ALLOC(host, m * n_samples + 1, &copy));
    SP_TRY(SP_ALLOC(host, m + 1, &all));
    SP_TRY(SP_ALLOC(host, n + 1, &limbs));
    SP_TRY(ops->download(net->backend, copy, sample, m * n_samples * sizeof *copy));
    memset(limbs, 0, n * sizeof *limbs);
    for (size_t b = 0; b < n_samples; b++)
        sp_exact_add_f64(limbs, copy + b * m, m);
    limbs[n] = n_rows;
    if (sp_comm_scope_size(net->comm, scope) > 1)
        SP_TRY(sp_comm_allreduce(net->comm, scope, limbs, n + 1, SP_I64, SP_SUM));
    sp_exact_get_f64(limbs, all, m);
    all[m] = (double)limbs[n];
    SP_TRY(ops->upload(net->backend, net->impl->fixed.norm_all, all,
                       (m + 1) * sizeof *all));
    if (buckets)
        add_exact_grads(net, step, copy, buckets);
    sp_arena_rewind(host, mark);
    return SP_OK;
}

/* Sums the parts of this rank, which in exact mode are its samples, and of the others.
 * Collective over the scope, also for a rank without rows. */
static sp_status combine(sp_net *net, const sp_lower_step *step, const sp_sums *parts,
                         sp_buckets *buckets, norm_sums *sums)
{
    const sp_backend_ops *ops = net->backend->ops;
    struct sp_net_impl *impl = net->impl;
    int m = 2 * impl->low.value[step->out].c;

    *sums = (norm_sums){{NULL, 0, 0}, {impl->fixed.norm_all, 1, -1}};
    if (impl->options.is_exact)
        return combine_exact(net, step, (int64_t)parts->n_rows, parts->part, buckets);
    if (sp_comm_scope_size(net->comm, impl->options.bn_scope) == 1) {
        *sums = (norm_sums){*parts, *parts};
        return SP_OK;
    }
    sums->own = (sp_sums){impl->fixed.norm_own, 1, parts->n_rows};
    SP_TRY(ops->add_samples(net->backend, parts->part, parts->n_parts, m, parts->n_rows,
                            impl->fixed.norm_own, false));
    return sp_transport_allreduce(net->transport, impl->options.bn_scope,
                                  impl->fixed.norm_own, impl->fixed.norm_all,
                                  (size_t)m + 1, SP_F64);
}

/* The sums of the batch, which the convolution before has formed, or which are formed
 * here. */
static sp_status batch_sums(sp_net *net, int s, norm_sums *sums)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_lower_step *step = &impl->low.step[s];
    const int x = step->in[0], level = impl->low.value[x].level;
    const sp_tensor t = sp_net_act(net, x);
    const sp_sums parts = {sp_net_sums(net, x), impl->mem.value[x].n_sums, (double)t.n};

    if (!impl->mem.value[x].is_fused)
        SP_TRY(
            net->backend->ops->norm_sums(net->backend, t, sp_net_sample_row(net, level),
                                         impl->batch->n_samples, sp_net_sums(net, x)));
    SP_TRY(combine(net, step, &parts, NULL, sums));
    impl->step[s].seen += (double)t.n;
    return SP_OK;
}

sp_status sp_net_norm_sums(sp_net *net, int s, sp_norm_finish_args *finish)
{
    const sp_lower_step *step = &net->impl->low.step[s];
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;
    const sp_fixed_norm *norm = &net->impl->fixed.norm[s];
    norm_sums sums = {0};

    assert(0 <= s && s < net->impl->low.n_steps);
    if (net->impl->is_training && !step->is_frozen)
        SP_TRY(batch_sums(net, s, &sums));
    *finish = (sp_norm_finish_args){.c = node->c_out,
                                    .eps = node->eps,
                                    .momentum = node->momentum,
                                    .sums = sums.all,
                                    .gamma = net->param + param[node->weight].offset,
                                    .beta = net->param + param[node->bias].offset,
                                    .running_mean = net->running + node->running_mean,
                                    .running_var = net->running + node->running_var,
                                    .scale = norm->scale,
                                    .shift = norm->shift,
                                    .mean = norm->mean,
                                    .inv_std = norm->inv_std};
    return SP_OK;
}

sp_norm_args sp_net_norm_args(const sp_net *net, int s)
{
    const sp_lower_step *step = &net->impl->low.step[s];
    sp_norm_args args = {.x = sp_net_act(net, step->in[0]),
                         .y = sp_net_act(net, step->out),
                         .scale = net->impl->fixed.norm[s].scale,
                         .shift = net->impl->fixed.norm[s].shift,
                         .slope = step->slope};

    assert(0 <= s && s < net->impl->low.n_steps);
    if (step->n_in > 1)
        args.res = sp_net_act(net, step->in[1]);
    if (net->impl->is_training && step->residual_norm >= 0) {
        args.res = sp_net_act(net, sp_lowered_read(&net->impl->low, step, 1));
        args.res_scale = net->impl->fixed.norm[step->residual_norm].scale;
        args.res_shift = net->impl->fixed.norm[step->residual_norm].shift;
    }
    return args;
}

/* The arguments that compute the coefficients of pass 2 and write this rank's share of
 * dgamma and dbeta to the gradient, which the buckets sum over the ranks. */
static sp_norm_grad_finish_args grad_finish_args(const sp_net *net, int s,
                                                 const norm_sums *sums,
                                                 const sp_buckets *buckets)
{
    const sp_lower_step *step = &net->impl->low.step[s];
    const sp_fixed_norm *norm = &net->impl->fixed.norm[s];
    const sp_node *node = &net->graph->node[step->layer];
    const int64_t gamma = net->graph->param[node->weight].offset;
    const int64_t beta = net->graph->param[node->bias].offset;

    return (sp_norm_grad_finish_args){.c = node->c_out,
                                      .all = sums->all,
                                      .own = sums->own,
                                      .gamma = net->param + gamma,
                                      .mean = norm->mean,
                                      .inv_std = norm->inv_std,
                                      .abc = net->impl->fixed.coefficients,
                                      .dgamma = buckets->grad + gamma,
                                      .dbeta = buckets->grad + beta,
                                      .is_added = buckets->is_begun};
}

/* Writes the gradient g of the residual, then dx (pass 2) with its coefficients, by
 * their routes. If x is the residual too, g is written first and dx is added to it.
 */
static sp_status write_grads(sp_net *net, const sp_lower_step *step,
                             const sp_grad_route *route, sp_norm_grad_args *args)
{
    const sp_backend_ops *ops = net->backend->ops;
    const bool is_copied =
        step->n_in > 1 && (route[1] == SP_GRAD_NEW || route[1] == SP_GRAD_ADDED);

    if (is_copied)
        SP_TRY(ops->copy(net->backend, args->dy, sp_net_grad(net, step->in[1]),
                         route[1] == SP_GRAD_ADDED));
    if (route[0] == SP_GRAD_NONE)
        return ops->norm_grad_finish(net->backend, args->finish);
    args->dx = sp_net_grad(net, step->in[0]);
    args->is_added = route[0] == SP_GRAD_ADDED;
    return ops->norm_grad_apply(net->backend, args);
}

sp_norm_grad_args sp_net_norm_grad_args(const sp_net *net, int s, sp_tensor dy)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_lower_step *step = &impl->low.step[s];
    const sp_lower_value *out = &impl->low.value[step->out];
    const sp_fixed_norm *norm = &impl->fixed.norm[s];
    sp_norm_grad_args args = {.x = sp_net_act(net, step->in[0]),
                              .y = sp_net_act(net, step->out),
                              .dy = dy,
                              .slope = step->slope,
                              .mean = norm->mean,
                              .inv_std = norm->inv_std,
                              .sample_row = sp_net_sample_row(net, out->level),
                              .n_samples = impl->batch->n_samples,
                              .sums = sp_net_sums(net, step->out),
                              .a = impl->fixed.coefficients,
                              .b = impl->fixed.coefficients + out->c,
                              .c = impl->fixed.coefficients + 2 * (size_t)out->c};

    assert(step->op == SP_OP_BATCHNORM);
    if (step->n_in == 1) {
        args.scale = norm->scale;
        args.shift = norm->shift;
    }
    return args;
}

sp_status sp_net_norm_backward(sp_net *net, int s, const sp_grad_route *route,
                               sp_buckets *buckets)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_lower_step *step = &impl->low.step[s];
    sp_norm_grad_args args = sp_net_norm_grad_args(net, s, sp_net_grad(net, step->out));
    const sp_sums parts = {args.sums, impl->mem.value[step->out].n_sums,
                           (double)args.x.n};
    norm_sums sums = {0};
    sp_norm_grad_finish_args finish;

    assert(impl->is_training && buckets);
    assert(step->op == SP_OP_BATCHNORM);
    if (!impl->mem.value[step->out].is_fused) /* else a convolution did pass 1 */
        SP_TRY(net->backend->ops->norm_grad_sums(net->backend, &args));
    if (!step->is_frozen)
        SP_TRY(combine(net, step, &parts, buckets, &sums));
    finish = grad_finish_args(net, s, &sums, buckets);
    args.finish = &finish;
    return write_grads(net, step, route, &args);
}
