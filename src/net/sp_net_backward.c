#include "net/sp_net_impl.h"

#include <assert.h>

#include "base/sp_exact.h"
#include "process/sp_pulse.h"

static size_t count_of(const sp_net *net, int param)
{
    return param < 0 ? 0 : (size_t)net->graph->param[param].count;
}

/* Gradients of samples first .. end - 1, each `stride` floats behind the one before. */
static sp_status exact_group(sp_net *net, sp_conv_wgrad_args *args, int first, int end,
                             size_t stride, size_t n_w)
{
    const sp_backend_ops *ops = net->backend->ops;
    const bool has_bias = args->dbias;
    float *at = net->impl->wgrad;

    SP_TRY(ops->fill(net->backend, at, 0, (size_t)(end - first) * stride * sizeof *at));
    for (int b = first; b < end; b++, at += stride) {
        args->sample0 = b;
        args->sample1 = b + 1;
        args->dw = at;
        args->dbias = has_bias ? at + n_w : NULL;
        if (args->sample_row[b] < args->sample_row[b + 1])
            SP_TRY(ops->conv_grad_weight(net->backend, args));
    }
    return SP_OK;
}

/* Each sample's gradient by itself, each rounded on its own, so that their sum depends
 * on neither order nor grouping. As many at a time as there is room for. */
static sp_status conv_exact(sp_net *net, const sp_node *node, sp_conv_wgrad_args *args,
                            int64_t *exact)
{
    enum { ALIGN = 32 }; /* floats, as arenas */
    const sp_backend_ops *ops = net->backend->ops;
    const sp_param *param = net->graph->param;
    const size_t n_w = count_of(net, node->weight), n_b = count_of(net, node->bias);
    const size_t padded = (n_w + n_b + ALIGN - 1) / ALIGN * ALIGN;
    const int n = net->impl->batch->n_samples;
    const size_t room = net->impl->n_wgrad / padded;
    const int group = room < 1 ? 1 : room < (size_t)n ? (int)room : n;
    const size_t stride = group > 1 ? padded : n_w + n_b;
    sp_arena *host = &net->impl->host;
    const size_t mark = host->used;
    float *sum;

    args->dbias = n_b ? net->impl->wgrad + n_w : NULL;
    SP_TRY(SP_TAKE(host, (size_t)group * stride, &sum));
    for (int first = 0; first < n; first += group) {
        const int end = n - first < group ? n : first + group;

        SP_TRY(exact_group(net, args, first, end, stride, n_w));
        SP_TRY(ops->download(net->backend, sum, net->impl->wgrad,
                             (size_t)(end - first) * stride * sizeof *sum));
        for (int b = first; b < end; b++) {
            const float *own = sum + (size_t)(b - first) * stride;

            if (args->sample_row[b] == args->sample_row[b + 1])
                continue;
            sp_exact_add_f32(exact + param[node->weight].offset * SP_EXACT_LIMBS, own,
                             n_w);
            if (n_b)
                sp_exact_add_f32(exact + param[node->bias].offset * SP_EXACT_LIMBS,
                                 own + n_w, n_b);
        }
    }
    sp_arena_rewind(host, mark);
    return SP_OK;
}

static sp_status conv_weight(sp_net *net, const net_step *step, sp_tensor dy,
                             sp_buckets *buckets, bool is_aside)
{
    struct sp_net_impl *impl = net->impl;
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;
    sp_conv_wgrad_args args = {
        .map = node->map < 0 ? NULL : &impl->batch->plan.map[node->map],
        .x = impl->value[step->in[0]].act,
        .dy = dy,
        .sample_row = sp_net_sample_row(net, impl->value[step->out].level),
        .sample1 = impl->batch->n_samples,
        .is_aside = is_aside};

    if (buckets->exact)
        return conv_exact(net, node, &args, buckets->exact);
    args.dw = buckets->grad + param[node->weight].offset;
    if (node->bias >= 0)
        args.dbias = buckets->grad + param[node->bias].offset;
    return net->backend->ops->conv_grad_weight(net->backend, &args);
}

/* Room for the sums of a norm's backward. */
static sp_status take_sums(sp_net *net, const net_step *step, sp_norm_grad_args *norm)
{
    struct sp_net_impl *impl = net->impl;
    net_value *out = &impl->value[step->out];
    const int rows = net->backend->ops->sum_rows;

    *norm = sp_net_norm_grad_args(net, step);
    out->n_sums = (int)((norm->x.n + rows - 1) / rows);
    SP_TRY(sp_net_take_block(
        net, 2 * (size_t)out->c * (size_t)out->n_sums * sizeof *norm->sums,
        &out->sums_block));
    norm->sums = impl->block[out->sums_block].data;
    return SP_OK;
}

/* The norm before, and one beside it, are told their sums where the convolution can take
 * them on its way. A frugal net may have what is read for them no more. */
static sp_status take_norms(sp_net *net, const net_step *step,
                            sp_norm_grad_args norm[2], sp_conv_args *args)
{
    const struct sp_net_impl *impl = net->impl;
    const net_step *before;

    if (step->norm_before < 0 || !net->backend->ops->sum_rows ||
        impl->options.is_exact || impl->options.is_frugal)
        return SP_OK;
    before = &impl->step[step->norm_before];
    SP_TRY(take_sums(net, before, &norm[0]));
    args->norm = &norm[0];
    args->norm_column = step->norm_column;
    if (before->norm_beside < 0)
        return SP_OK;
    SP_TRY(take_sums(net, &impl->step[before->norm_beside], &norm[1]));
    args->beside = &norm[1];
    return SP_OK;
}

static sp_status conv(sp_net *net, net_step *step, sp_tensor dy, sp_buckets *buckets)
{
    struct sp_net_impl *impl = net->impl;
    const sp_node *node = &net->graph->node[step->layer];
    sp_conv_args args = {
        .map = node->grad_map < 0 ? NULL : &impl->batch->plan.map[node->grad_map],
        .x = dy,
        .w = net->param + net->graph->param[node->weight].offset,
        .is_mirrored = node->is_mirrored};
    bool has_input_grad = impl->value[step->in[0]].needs_grad;
    sp_norm_grad_args norm[2];

    SP_TRY(conv_weight(net, step, dy, buckets, has_input_grad && !buckets->exact));
    SP_TRY(sp_bucket_poll(buckets));
    if (!has_input_grad)
        return SP_OK;
    SP_TRY(sp_net_pack(net, step, NET_GRAD_INPUT));
    args.w_packed = step->packed[NET_GRAD_INPUT];
    SP_TRY(sp_net_grad(net, step->in[0], &args.y, &args.is_added));
    SP_TRY(take_norms(net, step, norm, &args));
    SP_TRY(net->backend->ops->conv_grad_input(net->backend, &args));
    return net->backend->ops->join(net->backend); /* dy and x go after this */
}

/* dy goes to x, which adds it to what it has or takes the buffer over. */
static sp_status pass_on(sp_net *net, const net_step *step, int x)
{
    const net_value *to = &net->impl->value[x];

    if (!to->needs_grad)
        return SP_OK;
    if (to->grad_range >= 0)
        return net->backend->ops->copy(net->backend, net->impl->value[step->out].grad,
                                       to->grad, true);
    sp_net_move_grad(net, step->out, x);
    return SP_OK;
}

/* The side of 0 is read from the input: from the output it cannot be told where the
 * slope is negative. */
static sp_status relu(sp_net *net, const net_step *step, sp_tensor dy)
{
    const net_value *x = &net->impl->value[step->in[0]];
    bool is_added = x->grad_range >= 0;

    SP_TRY(net->backend->ops->relu_grad(net->backend, x->act, step->slope, dy,
                                        is_added ? x->grad : dy, is_added));
    if (!is_added)
        sp_net_move_grad(net, step->out, step->in[0]);
    return SP_OK;
}

/* Copies for all but the last, which may take the buffer over. */
static sp_status add(sp_net *net, const net_step *step, sp_tensor dy)
{
    sp_tensor dx;
    bool is_added;
    int k;

    for (k = 0; k < step->n_in - 1; k++)
        if (net->impl->value[step->in[k]].needs_grad) {
            SP_TRY(sp_net_grad(net, step->in[k], &dx, &is_added));
            SP_TRY(net->backend->ops->copy(net->backend, dy, dx, is_added));
        }
    return pass_on(net, step, step->in[k]);
}

/* An input without a gradient gets its columns of dy as such and holds the block. */
static sp_status concat(sp_net *net, const net_step *step, sp_tensor dy)
{
    struct sp_net_impl *impl = net->impl;
    int k, column = 0;

    for (k = 0; k < step->n_in; k++) {
        net_value *x = &impl->value[step->in[k]];
        sp_tensor part = sp_tensor_columns(dy, column, x->c);

        column += x->c;
        if (!x->needs_grad)
            continue;
        if (x->grad_range >= 0) {
            SP_TRY(net->backend->ops->copy(net->backend, part, x->grad, true));
            continue;
        }
        x->grad = part;
        x->grad_range = impl->value[step->out].grad_range;
        sp_ranges_hold(&impl->ranges, x->grad_range);
    }
    return SP_OK;
}

static sp_status dropout(sp_net *net, const net_step *step, sp_tensor dy)
{
    const sp_batch *batch = net->impl->batch;

    SP_TRY(net->backend->ops->dropout(
        net->backend, dy, net->graph->node[step->layer].p, net->impl->options.seed,
        (uint64_t)batch->epoch, step->layer, batch->sample_id,
        sp_net_sample_row(net, net->impl->value[step->out].level), batch->n_samples,
        dy));
    return pass_on(net, step, step->in[0]);
}

static sp_status pool(sp_net *net, const net_step *step, sp_tensor dy)
{
    const sp_node *node = &net->graph->node[step->layer];
    sp_pool_args args = {.map = &net->impl->batch->plan.map[node->map],
                         .is_max = step->op == SP_OP_MAX_POOL,
                         .argmax = step->argmax,
                         .dy = dy};

    SP_TRY(sp_net_grad_sum(net, step->in[0], &args.dx));
    return net->backend->ops->pool_grad(net->backend, &args);
}

static sp_status global_pool(sp_net *net, const net_step *step, sp_tensor dy)
{
    int level = net->impl->value[step->in[0]].level;
    sp_tensor dx;

    SP_TRY(sp_net_grad_sum(net, step->in[0], &dx));
    return net->backend->ops->global_pool_grad(
        net->backend, dy, sp_net_sample_row(net, level), net->impl->batch->n_samples,
        step->argmax, dx);
}

static sp_status broadcast(sp_net *net, const net_step *step, sp_tensor dy)
{
    int level = net->impl->value[step->out].level;
    sp_tensor dx;

    SP_TRY(sp_net_grad_sum(net, step->in[0], &dx));
    return net->backend->ops->broadcast_grad(net->backend, dy,
                                             sp_net_sample_row(net, level),
                                             net->impl->batch->n_samples, dx);
}

static sp_status restore_inputs(sp_net *net, int s, int until);

/* The value as the forward pass left it, as far as steps up to `until` wrote it: what
 * later ones wrote into other columns of its concat was used already. */
static sp_status restore(sp_net *net, int value, int until)
{
    struct sp_net_impl *impl = net->impl;
    int home = sp_net_home(net, value), s;

    if (impl->value[home].range >= 0 || !impl->value[home].is_cheap || home == 0)
        return SP_OK;
    for (s = impl->value[home].first; s <= until; s++) {
        const net_step *step = &impl->step[s];

        if (sp_net_home(net, step->out) != home)
            continue;
        SP_TRY(sp_net_hold(net, step->out));
        if (step->op != SP_OP_BATCHNORM)
            continue;
        SP_TRY(restore_inputs(net, s, until));
        SP_TRY(sp_net_norm_apply(net, step));
        sp_net_drop_passed(net, step);
    }
    return SP_OK;
}

static sp_status restore_inputs(sp_net *net, int s, int until)
{
    const net_step *step = &net->impl->step[s];
    int k;

    for (k = 0; k < step->n_in; k++)
        SP_TRY(restore(net, step->in[k], until));
    return SP_OK;
}

/* What the backward of step s reads. */
static sp_status restore_for(sp_net *net, int s)
{
    const net_step *step = &net->impl->step[s];

    if (step->op == SP_OP_CONV || step->op == SP_OP_BATCHNORM || step->op == SP_OP_RELU)
        SP_TRY(restore(net, step->in[0], s));
    if (step->op == SP_OP_BATCHNORM && step->slope != 1)
        SP_TRY(restore(net, step->out, s));
    return SP_OK;
}

static sp_status run_step(sp_net *net, net_step *step, sp_buckets *buckets)
{
    sp_tensor dy = net->impl->value[step->out].grad;

    switch (step->op) {
    case SP_OP_CONV:
        return conv(net, step, dy, buckets);
    case SP_OP_BATCHNORM:
        return sp_net_norm_backward(net, step, buckets);
    case SP_OP_RELU:
        return relu(net, step, dy);
    case SP_OP_ADD:
        return add(net, step, dy);
    case SP_OP_CONCAT:
        return concat(net, step, dy);
    case SP_OP_DROPOUT:
        return dropout(net, step, dy);
    case SP_OP_MAX_POOL:
    case SP_OP_AVG_POOL:
        return pool(net, step, dy);
    case SP_OP_GLOBAL_AVG_POOL:
    case SP_OP_GLOBAL_MAX_POOL:
        return global_pool(net, step, dy);
    case SP_OP_BROADCAST:
        return broadcast(net, step, dy);
    }
    return SP_OK;
}

static size_t weight_bytes(const sp_net *net, const net_step *step)
{
    return count_of(net, net->graph->node[step->layer].weight) * sizeof(float);
}

sp_status sp_net_backward(sp_net *net, const sp_batch *batch, sp_buckets *buckets,
                          bool is_last)
{
    struct sp_net_impl *impl = net->impl;
    bool is_releasing;
    int s;

    assert(impl->batch == batch && impl->is_training);
    assert(impl->options.is_exact == (buckets->exact != NULL));
    assert(impl->value[impl->n_values - 1].grad_range >= 0 &&
           "sp_net_loss comes first");
    /* Gradients that other ranks reach are there all the time. */
    is_releasing = impl->options.is_frugal && batch->micro == 0 && net->comm->size == 1;
    impl->kept = impl->ranges.end;
    impl->owed = 0;
    for (s = impl->n_steps - 1; s >= 0; s--) {
        net_step *step = &impl->step[s];
        const net_value *out = &impl->value[step->out];

        sp_pulse_beat();
        net->layer = step->layer;
        /* Nothing that ends in the loss reads it, or nothing before it learns: true of
         * the graph, so of all ranks. */
        if (out->needs_grad && out->grad_range >= 0) {
            SP_TRY(restore_for(net, s));
            SP_TRY(run_step(net, step, buckets));
        }
        sp_net_drop_grad(net, step->out);
        sp_net_drop_used(net, s);
        if (is_releasing && step->op == SP_OP_CONV)
            sp_net_release(net, weight_bytes(net, step));
        if (is_last)
            SP_TRY(sp_bucket_ready(buckets, step->ready));
        SP_TRY(sp_bucket_poll(buckets));
    }
    net->layer = -1;
    return SP_OK;
}
