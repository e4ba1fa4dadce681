/* Batch norm over the scope: statistics, running statistics, gradient.
 *
 * Sums are formed per sample by the backend, added over this rank's samples in order,
 * then over the ranks of the scope; in exact mode both additions are in fixed point.
 * With g the gradient behind the activation, r = 1 / sqrt(var + eps), N the voxels of
 * the scope:
 *
 *     xhat = (x - mean) r     y = act(scale x + shift [+ residual])
 *     dx = A g + B x + C      A = gamma r, B = -gamma r^2 sum(g xhat) / N,
 *                             C = -A sum(g) / N - B mean
 * The sums in dx are those of the scope; dgamma and dbeta are this rank's own share,
 * which the buckets sum with the other gradients.
 */
#include "sp_net_impl.h"

#include <math.h>
#include <string.h>

#include "sp_exact.h"

static const double EPS = 1e-5, MOMENTUM = 0.1;

typedef struct norm_sums {
    double *sample; /* [n_samples][2][c] host */
    double *own;    /* [2][c] over this rank's samples */
    double *all;    /* [2][c] over the scope */
    double count;   /* rows of the scope */
} norm_sums;

/* Host scratch of a norm's sums; the caller rewinds impl->host. */
static sp_status take_sums(sp_net *net, int c, norm_sums *sums)
{
    sp_arena *host = &net->impl->host;

    SP_TRY(SP_TAKE(host, 2 * (size_t)c * (size_t)net->impl->batch->n_samples + 1,
                   &sums->sample));
    SP_TRY(SP_TAKE(host, 2 * c, &sums->own));
    return SP_TAKE(host, 2 * c + 1, &sums->all); /* the count travels behind them */
}

static sp_status reduce(sp_net *net, void *data, size_t n, sp_type type)
{
    sp_scope scope = net->impl->options.bn_scope;

    if (sp_comm_scope_size(net->comm, scope) == 1)
        return SP_OK;
    return sp_comm_allreduce(net->comm, scope, data, n, type, SP_SUM);
}

static sp_status combine_exact(sp_net *net, int m, int64_t n_rows, norm_sums *sums)
{
    size_t n = (size_t)m * SP_EXACT_LIMBS;
    int64_t *limbs;
    int b;

    SP_TRY(SP_TAKE(&net->impl->host, n + 1, &limbs));
    memset(limbs, 0, n * sizeof *limbs);
    for (b = 0; b < net->impl->batch->n_samples; b++)
        sp_exact_add_f64(limbs, sums->sample + (size_t)b * (size_t)m, (size_t)m);
    limbs[n] = n_rows;
    SP_TRY(reduce(net, limbs, n + 1, SP_I64));
    sp_exact_get_f64(limbs, sums->all, (size_t)m);
    sums->count = (double)limbs[n];
    return SP_OK;
}

/* Collective over the scope, with nothing to add too. n_rows: of this rank. */
static sp_status combine(sp_net *net, int c, int64_t n_rows, norm_sums *sums)
{
    int b, j, m = 2 * c;

    memset(sums->own, 0, (size_t)m * sizeof *sums->own);
    for (b = 0; b < net->impl->batch->n_samples; b++)
        for (j = 0; j < m; j++)
            sums->own[j] += sums->sample[(size_t)b * (size_t)m + (size_t)j];
    if (net->impl->options.is_exact)
        return combine_exact(net, m, n_rows, sums);
    memcpy(sums->all, sums->own, (size_t)m * sizeof *sums->own);
    sums->all[m] = (double)n_rows;
    SP_TRY(reduce(net, sums->all, (size_t)m + 1, SP_F64));
    sums->count = sums->all[m];
    return SP_OK;
}

/* A batch that is not finite is kept out: its step is not taken, and one such number
 * would stay in the running statistics for good. */
static void move_running(float *mean, float *var, double batch_mean, double batch_var,
                         double count)
{
    if (!isfinite(batch_mean) || !isfinite(batch_var))
        return;
    *mean = (float)((1 - MOMENTUM) * (double)*mean + MOMENTUM * batch_mean);
    if (count > 1)
        *var = (float)((1 - MOMENTUM) * (double)*var +
                       MOMENTUM * batch_var * count / (count - 1));
}

/* Host copies of what one norm needs, [c] each. */
typedef struct norm_host {
    float *gamma, *beta, *scale, *shift, *mean, *inv_std;
} norm_host;

static sp_status take_host(sp_net *net, const net_step *step, norm_host *h)
{
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;
    const sp_backend_ops *ops = net->backend->ops;
    size_t c = (size_t)step->norm->c;
    float *all;

    SP_TRY(SP_TAKE(&net->impl->host, 6 * c, &all));
    h->gamma = all;
    h->beta = all + c;
    h->scale = all + 2 * c;
    h->shift = all + 3 * c;
    h->mean = all + 4 * c;
    h->inv_std = all + 5 * c;
    SP_TRY(ops->download(net->backend, h->gamma,
                         net->param + param[node->weight].offset, c * sizeof(float)));
    return ops->download(net->backend, h->beta, net->param + param[node->bias].offset,
                         c * sizeof(float));
}

static void set_affine(norm_host *h, int j, double mean, double var)
{
    double r = 1 / sqrt(var + EPS), scale = (double)h->gamma[j] * r;

    h->mean[j] = (float)mean;
    h->inv_std[j] = (float)r;
    h->scale[j] = (float)scale;
    h->shift[j] = (float)((double)h->beta[j] - mean * scale);
}

static sp_status upload(sp_net *net, const net_norm *norm, const norm_host *h)
{
    const sp_backend_ops *ops = net->backend->ops;
    size_t bytes = (size_t)norm->c * sizeof(float);

    SP_TRY(ops->upload(net->backend, norm->scale, h->scale, bytes));
    SP_TRY(ops->upload(net->backend, norm->shift, h->shift, bytes));
    SP_TRY(ops->upload(net->backend, norm->mean, h->mean, bytes));
    return ops->upload(net->backend, norm->inv_std, h->inv_std, bytes);
}

static sp_status batch_sums(sp_net *net, const net_step *step, norm_sums *sums)
{
    net_value *x = &net->impl->value[step->in[0]];
    const sp_backend_ops *ops = net->backend->ops;
    int n_samples = net->impl->batch->n_samples, c = step->norm->c;
    int block = x->sums_block;
    size_t bytes = 2 * (size_t)c * (size_t)n_samples * sizeof(double);
    double *data;

    x->sums_block = -1; /* a second norm of the same value sums for itself */
    SP_TRY(take_sums(net, c, sums));
    if (block < 0) {
        SP_TRY(sp_net_take_block(net, bytes, &block));
        SP_TRY(ops->norm_sums(net->backend, x->act, sp_net_sample_row(net, x->level),
                              n_samples, net->impl->block[block].data));
    }
    data = net->impl->block[block].data;
    SP_TRY(ops->download(net->backend, sums->sample, data, bytes));
    sp_net_drop_block(net, block);
    return combine(net, c, x->act.n, sums);
}

/* Batch statistics into h and the running ones. Variance from E[x^2] - E[x]^2 in double
 * keeps 1e-9 of its value while |mean| < 1e3 standard deviations. */
static sp_status use_batch(sp_net *net, const net_step *step, norm_host *h)
{
    const sp_node *node = &net->graph->node[step->layer];
    net_norm *norm = step->norm;
    norm_sums sums;
    int j, c = norm->c;

    SP_TRY(batch_sums(net, step, &sums));
    norm->count = sums.count;
    norm->seen += (double)net->impl->value[step->in[0]].act.n;
    for (j = 0; j < c; j++) {
        double n = sums.count > 0 ? sums.count : 1, mean = sums.all[j] / n;
        double var = sums.all[c + j] / n - mean * mean;

        if (var < 0)
            var = 0; /* rounding; NaN stays */
        set_affine(h, j, mean, var);
        if (sums.count > 0)
            move_running(&net->running[node->running_mean + j],
                         &net->running[node->running_var + j], mean, var, sums.count);
    }
    return SP_OK;
}

static void use_running(const sp_net *net, const net_step *step, norm_host *h)
{
    const sp_node *node = &net->graph->node[step->layer];
    int j;

    for (j = 0; j < step->norm->c; j++)
        set_affine(h, j, (double)net->running[node->running_mean + j],
                   (double)net->running[node->running_var + j]);
}

sp_status sp_net_norm_forward(sp_net *net, net_step *step)
{
    struct sp_net_impl *impl = net->impl;
    size_t mark = impl->host.used;
    sp_norm_args args = {.x = impl->value[step->in[0]].act,
                         .y = impl->value[step->out].act,
                         .scale = step->norm->scale,
                         .shift = step->norm->shift,
                         .slope = step->slope};
    norm_host h;

    if (step->n_in > 1)
        args.res = impl->value[step->in[1]].act;
    SP_TRY(take_host(net, step, &h));
    if (impl->is_training)
        SP_TRY(use_batch(net, step, &h));
    else
        use_running(net, step, &h);
    SP_TRY(upload(net, step->norm, &h));
    sp_arena_rewind(&impl->host, mark);
    return net->backend->ops->norm_apply(net->backend, &args);
}

/* This rank's share of dgamma and dbeta. */
static void add_grads(sp_net *net, const net_step *step, const norm_sums *sums,
                      sp_buckets *buckets)
{
    const sp_node *node = &net->graph->node[step->layer];
    int64_t gamma = net->graph->param[node->weight].offset;
    int64_t beta = net->graph->param[node->bias].offset;
    int b, j, c = step->norm->c;

    for (b = 0; buckets->exact && b < net->impl->batch->n_samples; b++) {
        const double *sample = sums->sample + 2 * (size_t)b * (size_t)c;

        sp_exact_add_f64(buckets->exact + beta * SP_EXACT_LIMBS, sample, (size_t)c);
        sp_exact_add_f64(buckets->exact + gamma * SP_EXACT_LIMBS, sample + c,
                         (size_t)c);
    }
    for (j = 0; !buckets->exact && j < c; j++) {
        buckets->grad[beta + j] += (float)sums->own[j];
        buckets->grad[gamma + j] += (float)sums->own[c + j];
    }
}

/* A, B, C of dx into impl->coefficients. */
static sp_status set_coefficients(sp_net *net, const net_step *step,
                                  const norm_sums *sums)
{
    const sp_backend_ops *ops = net->backend->ops;
    int j, c = step->norm->c;
    double n = step->norm->count > 0 ? step->norm->count : 1;
    norm_host h;
    float *abc;

    SP_TRY(take_host(net, step, &h));
    SP_TRY(ops->download(net->backend, h.mean, step->norm->mean,
                         (size_t)c * sizeof(float)));
    SP_TRY(ops->download(net->backend, h.inv_std, step->norm->inv_std,
                         (size_t)c * sizeof(float)));
    SP_TRY(SP_TAKE(&net->impl->host, 3 * c, &abc));
    for (j = 0; j < c; j++) {
        double r = (double)h.inv_std[j], A = (double)h.gamma[j] * r;
        double B = -A * r * sums->all[c + j] / n;

        abc[j] = (float)A;
        abc[c + j] = (float)B;
        abc[2 * c + j] = (float)(-A * sums->all[j] / n - B * (double)h.mean[j]);
    }
    return ops->upload(net->backend, net->impl->coefficients, abc,
                       3 * (size_t)c * sizeof(float));
}

/* dx, and the residual's gradient g. The buffer of g goes on to whoever has no gradient
 * yet: dx in place, where the residual does not take it. */
static sp_status hand_on(sp_net *net, const net_step *step, sp_norm_grad_args *args)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    int x = step->in[0], res = step->n_in > 1 ? step->in[1] : 0;
    bool has_res = impl->value[res].needs_grad, is_added;
    bool takes_g = has_res && impl->value[res].grad_block < 0;
    sp_tensor dres;

    if (has_res && !takes_g) {
        SP_TRY(sp_net_grad(net, res, &dres, &is_added));
        SP_TRY(ops->copy(net->backend, args->dy, dres, is_added));
    }
    if (impl->value[x].needs_grad && !takes_g && impl->value[x].grad_block < 0) {
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

sp_status sp_net_norm_backward(sp_net *net, net_step *step, sp_buckets *buckets)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    const net_value *out = &impl->value[step->out];
    int n_samples = impl->batch->n_samples, c = step->norm->c, block;
    size_t mark = impl->host.used;
    size_t bytes = 2 * (size_t)c * (size_t)n_samples * sizeof(double);
    sp_norm_grad_args args = {.x = impl->value[step->in[0]].act,
                              .y = out->act,
                              .dy = out->grad,
                              .slope = step->slope,
                              .mean = step->norm->mean,
                              .inv_std = step->norm->inv_std,
                              .sample_row = sp_net_sample_row(net, out->level),
                              .n_samples = n_samples,
                              .a = impl->coefficients,
                              .b = impl->coefficients + c,
                              .c = impl->coefficients + 2 * c};
    norm_sums sums;

    SP_TRY(take_sums(net, c, &sums));
    SP_TRY(sp_net_take_block(net, bytes, &block));
    args.sums = impl->block[block].data;
    SP_TRY(ops->norm_grad_sums(net->backend, &args));
    SP_TRY(ops->download(net->backend, sums.sample, args.sums, bytes));
    sp_net_drop_block(net, block);
    SP_TRY(combine(net, c, args.x.n, &sums));
    add_grads(net, step, &sums, buckets);
    SP_TRY(set_coefficients(net, step, &sums));
    sp_arena_rewind(&impl->host, mark);
    return hand_on(net, step, &args);
}
