#include "net/sp_net_impl.h"

#include <assert.h>
#include <string.h>

#include "base/sp_exact.h"
#include "base/sp_liveness.h"
#include "base/sp_number.h"

static size_t net_count_of(const sp_net *net, int param)
{
    return param < 0 ? 0 : (size_t)net->graph->param[param].count;
}

/* Computes the gradients of samples first .. end - 1, `stride` floats apart. */
static sp_status exact_group(sp_net *net, sp_conv_wgrad_args *args, int first, int end,
                             size_t stride, size_t n_w)
{
    const sp_backend_ops *ops = net->backend->ops;
    const bool has_bias = args->dbias;
    float *at = net->impl->fixed.wgrad;

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

/* Adds the gradient of each sample to the exact sum. Each sample's is rounded on its
 * own, so that the sum depends on neither order nor grouping of samples. As many are
 * computed at a time as there is room for. */
static sp_status conv_exact(sp_net *net, const sp_node *node, sp_conv_wgrad_args *args,
                            int64_t *exact)
{
    enum { ALIGN = 32 }; /* floats: arenas align to 128 bytes */
    const sp_backend_ops *ops = net->backend->ops;
    const sp_param *param = net->graph->param;
    const size_t n_w = net_count_of(net, node->weight),
                 n_b = net_count_of(net, node->bias);
    const size_t padded = sp_multiple(n_w + n_b, ALIGN);
    const int n = net->impl->batch->n_samples;
    const size_t room = net->impl->fixed.n_wgrad / padded;
    const int group = room < 1 ? 1 : room < (size_t)n ? (int)room : n;
    const size_t stride = group > 1 ? padded : n_w + n_b;
    sp_arena *host = &net->impl->host;
    const size_t mark = host->used;
    float *sum;

    args->dbias = n_b ? net->impl->fixed.wgrad + n_w : NULL;
    SP_TRY(SP_ALLOC(host, (size_t)group * stride, &sum));
    for (int first = 0; first < n; first += group) {
        const int end = n - first < group ? n : first + group;

        SP_TRY(exact_group(net, args, first, end, stride, n_w));
        SP_TRY(ops->download(net->backend, sum, net->impl->fixed.wgrad,
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

/* ---- concurrent weight gradients ----
 * The weight gradient of a convolution may run at the same time as the operations that
 * follow it. It is joined after the next step of the backward pass has been queued.
 * That step is most often a norm, which is limited by memory, while the weight gradient
 * is limited by its products. If the next step writes to memory that the weight
 * gradient still reads (its operands were freed with the convolution), the join comes
 * before that step. The join always comes before the next convolution, and before the
 * bucket with the weight gradient is posted. Buckets are posted at the same point on
 * all ranks, wherever the join came. */

static sp_status net_join(sp_net *net)
{
    net_fork *fork = &net->impl->fork;

    if (!fork->is_open)
        return SP_OK;
    *fork = (net_fork){0};
    return net->backend->ops->join(net->backend);
}

static bool overlap(sp_tensor a, sp_tensor b)
{
    const char *const at[] = {(const char *)a.data, (const char *)b.data};
    const size_t a_bytes = (size_t)a.n * (size_t)a.ld * sp_elem_bytes(a.elem);
    const size_t b_bytes = (size_t)b.n * (size_t)b.ld * sp_elem_bytes(b.elem);

    return at[0] < at[1] + b_bytes && at[1] < at[0] + a_bytes;
}

/* Joins if y, which will be written, lies over an operand of the open weight gradient.
 */
static sp_status join_before(sp_net *net, sp_tensor y)
{
    const net_fork *fork = &net->impl->fork;

    if (!fork->is_open || !(overlap(y, fork->x) || overlap(y, fork->dy)))
        return SP_OK;
    return net_join(net);
}

/* Joins if step s writes a gradient over an operand of the open weight gradient. */
static sp_status join_ahead_of(sp_net *net, const sp_lower_step *step,
                               const sp_grad_route *route)
{
    for (int k = 0; net->impl->fork.is_open && k < step->n_in; k++)
        if (route[k] == SP_GRAD_NEW)
            SP_TRY(join_before(net, sp_net_grad(net, step->in[k])));
    return SP_OK;
}

static sp_status conv_weight(sp_net *net, const sp_lower_step *step, sp_tensor dy,
                             sp_buckets *buckets, bool is_concurrent)
{
    struct sp_net_impl *impl = net->impl;
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;
    sp_conv_wgrad_args args = {
        .map = node->map < 0 ? NULL : &impl->batch->plan.map[node->map],
        .x = sp_net_act(net, step->in[0]),
        .dy = dy,
        .sample_row = sp_net_sample_row(net, impl->low.value[step->out].level),
        .sample1 = impl->batch->n_samples,
        .is_added = buckets->is_begun && !buckets->exact,
        .is_concurrent = is_concurrent};

    if (buckets->exact)
        return conv_exact(net, node, &args, buckets->exact);
    args.dw = buckets->grad + param[node->weight].offset;
    if (node->bias >= 0)
        args.dbias = buckets->grad + param[node->bias].offset;
    return net->backend->ops->conv_grad_weight(net->backend, &args);
}

/* The gradient of the norm's output is the convolution's input gradient, or columns of
 * it if a concat lies between them. The residual norm has the same gradient. */
static sp_status net_grad_input(sp_net *net, const sp_lower_step *step,
                                const sp_conv_args *args)
{
    const sp_backend_ops *ops = net->backend->ops;
    const sp_lowered *low = &net->impl->low;
    sp_norm_grad_args norm, residual;
    const sp_lower_step *before;
    int column;

    if (!sp_buffer_plan_fuses_norm(&net->impl->mem, step))
        return ops->conv_grad_input(net->backend, args);
    before = &low->step[step->norm_before];
    column = before->out == step->in[0] ? 0 : low->value[before->out].column;
    norm = sp_net_norm_grad_args(
        net, step->norm_before,
        sp_tensor_columns(args->y, column, low->value[before->out].c));
    if (before->residual_norm >= 0)
        residual = sp_net_norm_grad_args(net, before->residual_norm, norm.dy);
    return ops->conv_grad_input_norm_sums(net->backend, args, &norm,
                                          before->residual_norm < 0 ? NULL : &residual);
}

static sp_status net_backward_conv(sp_net *net, int s, sp_grad_route route,
                                   sp_buckets *buckets)
{
    struct sp_net_impl *impl = net->impl;
    const sp_lower_step *step = &impl->low.step[s];
    const sp_node *node = &net->graph->node[step->layer];
    const sp_tensor dy = sp_net_grad(net, step->out);
    sp_conv_args args = {
        .map = node->grad_map < 0 ? NULL : &impl->batch->plan.map[node->grad_map],
        .x = dy,
        .w = net->param + net->graph->param[node->weight].offset,
        .w_packed = impl->fixed.packed[s][SP_PACK_GRAD_INPUT],
        .is_mirrored = node->is_mirrored,
        .is_added = route == SP_GRAD_ADDED};
    const bool has_input_grad = route != SP_GRAD_NONE;
    /* the gradient of the input may be written over the input */
    const bool is_concurrent =
        has_input_grad && !buckets->exact && !impl->options.is_low_memory &&
        !overlap(sp_net_act(net, step->in[0]), sp_net_grad(net, step->in[0]));

    SP_TRY(net_join(net));
    if (!step->is_frozen)
        SP_TRY(conv_weight(net, step, dy, buckets, is_concurrent));
    if (!step->is_frozen && is_concurrent)
        impl->fork = (net_fork){true, s, sp_net_act(net, step->in[0]), dy};
    SP_TRY(sp_bucket_poll(buckets));
    if (!has_input_grad)
        return SP_OK;
    SP_TRY(sp_net_pack(net, s, SP_PACK_GRAD_INPUT));
    args.y = sp_net_grad(net, step->in[0]);
    return net_grad_input(net, step, &args);
}

/* Copies dy, or adds it, to the gradient of x if its route asks for a copy. */
static sp_status pass_on(sp_net *net, sp_tensor dy, int x, sp_grad_route route)
{
    if (route != SP_GRAD_NEW && route != SP_GRAD_ADDED)
        return SP_OK;
    return net->backend->ops->copy(net->backend, dy, sp_net_grad(net, x),
                                   route == SP_GRAD_ADDED);
}

static sp_status net_backward_add(sp_net *net, const sp_lower_step *step,
                                  const sp_grad_route *route, sp_tensor dy)
{
    for (int k = 0; k < step->n_in; k++)
        SP_TRY(pass_on(net, dy, step->in[k], route[k]));
    return SP_OK;
}

static sp_status net_backward_concat(sp_net *net, const sp_lower_step *step,
                                     const sp_grad_route *route, sp_tensor dy)
{
    int column = 0;

    for (int k = 0; k < step->n_in; k++) {
        const int c = net->impl->low.value[step->in[k]].c;

        SP_TRY(pass_on(net, sp_tensor_columns(dy, column, c), step->in[k], route[k]));
        column += c;
    }
    return SP_OK;
}

/* Prepares the gradient of an input for operations that add to it: a new one is zero.
 */
static sp_status begin_sum(sp_net *net, const sp_lower_step *step, sp_grad_route route,
                           sp_tensor *dx)
{
    *dx = sp_net_grad(net, step->in[0]);
    if (route == SP_GRAD_ADDED)
        return SP_OK;
    return net->backend->ops->fill(net->backend, dx->data, 0,
                                   (size_t)dx->n * (size_t)dx->ld *
                                       sp_elem_bytes(dx->elem));
}

/* The backward pass of pools and broadcasts, which adds to the input's gradient. */
static sp_status add_up(sp_net *net, int s, sp_grad_route route, sp_tensor dy)
{
    sp_tensor dx;

    SP_TRY(begin_sum(net, &net->impl->low.step[s], route, &dx));
    return sp_net_resample(net, s, dx, dy, true);
}

/* Writes the output of a step again, for sp_buffer_plan_restore: a norm's with the
 * coefficients of the forward pass, so that its running statistics move once. */
static sp_status compute_again(void *arg, int s)
{
    sp_net *net = arg;
    const sp_lower_step *step = &net->impl->low.step[s];
    sp_norm_args args;

    SP_TRY(sp_net_reach(net));
    if (step->op == SP_OP_CONV)
        SP_TRY(net_join(net));
    else
        SP_TRY(join_before(net, sp_net_act(net, step->out)));
    if (step->op != SP_OP_BATCHNORM)
        return sp_net_run_step(net, s);
    args = sp_net_norm_args(net, s);
    return net->backend->ops->norm_apply(net->backend, &args);
}

static sp_status net_backward_run_step(sp_net *net, int s, const sp_grad_route *route,
                                       sp_buckets *buckets)
{
    const sp_lower_step *step = &net->impl->low.step[s];
    const sp_tensor dy = sp_net_grad(net, step->out);

    switch (step->op) {
    case SP_OP_CONV:
        return net_backward_conv(net, s, route[0], buckets);
    case SP_OP_BATCHNORM:
        return sp_net_norm_backward(net, s, route, buckets);
    case SP_OP_RELU:
        /* The input has the sign of each element. The output may not, if the slope is
         * negative. */
        return net->backend->ops->relu_grad(
            net->backend, sp_net_act(net, step->in[0]), step->slope, dy,
            sp_net_grad(net, step->in[0]), route[0] == SP_GRAD_ADDED);
    case SP_OP_ADD:
        return net_backward_add(net, step, route, dy);
    case SP_OP_CONCAT:
        return net_backward_concat(net, step, route, dy);
    case SP_OP_DROPOUT:
        SP_TRY(sp_net_dropout(net, step, dy, dy));
        return pass_on(net, dy, step->in[0], route[0]);
    default:
        return add_up(net, s, route[0], dy);
    }
}

static sp_status backward_step(sp_net *net, int s, sp_buckets *buckets)
{
    sp_buffer_plan *mem = &net->impl->mem;
    sp_grad_route route[SP_MAX_INPUTS];
    sp_status rc;

    SP_TRY(sp_buffer_plan_restore(mem, s, compute_again, net));
    sp_buffer_plan_backward(mem, s, route);
    SP_TRY(sp_net_reach(net));
    SP_TRY(join_ahead_of(net, &net->impl->low.step[s], route));
    sp_range_begin(net->backend, net->graph->node[net->impl->low.step[s].layer].name);
    rc = net_backward_run_step(net, s, route, buckets);
    sp_range_end(net->backend);
    return rc;
}

/* Has free memory back the gradient before step s writes a part of it. */
static void backward_lend(sp_net *net, int s, const sp_buckets *buckets)
{
    struct sp_net_impl *impl = net->impl;
    const sp_lower_step *step = &impl->low.step[s];
    const sp_node *node = &net->graph->node[step->layer];
    const size_t n = net_count_of(net, node->weight);

    if (step->is_frozen || node->weight < 0)
        return;
    if (step->op == SP_OP_CONV)
        sp_net_release(net, buckets, n * sizeof(float));
    if (!sp_buffer_plan_is_used(&impl->mem, s))
        memset(buckets->grad + net->graph->param[node->weight].offset, 0,
               n * sizeof *buckets->grad);
    impl->written_from =
        sp_least(impl->written_from, net->graph->param[node->weight].offset);
    if (node->bias >= 0)
        impl->written_from =
            sp_least(impl->written_from, net->graph->param[node->bias].offset);
}

sp_status sp_net_backward(sp_net *net, const sp_batch *batch, sp_buckets *buckets,
                          bool is_last)
{
    struct sp_net_impl *impl = net->impl;
    bool is_releasing;

    assert(impl->batch == batch && impl->is_training);
    assert(impl->options.is_exact == (buckets->exact != NULL));
    assert(impl->mem.value[impl->low.n_values - 1].grad.range >= 0 &&
           "sp_net_loss comes first");
    /* Freed activations make room for gradients of weights, by their pages: new ones
     * would have to be zeroed (4 % of a step on a virtual machine). Gradients that other
     * ranks access always have pages. */
    is_releasing =
        impl->options.is_low_memory && batch->micro == 0 && net->comm->size == 1;
    if (is_releasing)
        sp_net_begin_loans(net, buckets);
    for (int s = impl->low.n_steps - 1; s >= 0; s--) {
        const sp_lower_step *step = &impl->low.step[s];

        sp_liveness_count();
        net->layer = step->layer;
        if (is_releasing)
            backward_lend(net, s, buckets);
        if (sp_buffer_plan_is_used(&impl->mem, s)) /* the same on all ranks */
            SP_TRY(backward_step(net, s, buckets));
        sp_buffer_plan_backward_end(&impl->mem, s);
        if (impl->fork.step != s)
            SP_TRY(net_join(net));
        if (is_last && !impl->fork.is_open)
            SP_TRY(sp_bucket_ready(buckets, step->ready));
        SP_TRY(sp_bucket_poll(buckets));
    }
    assert(!impl->fork.is_open && "the first step has no gradient of its input");
    buckets->is_begun = true;
    net->layer = -1;
    return SP_OK;
}
