#include "net/sp_net_impl.h"

#include <assert.h>
#include <string.h>

#include "base/sp_exact.h"
#include "base/sp_liveness.h"

static sp_pack_args pack_args(const sp_net *net, int s, int direction)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_node *node = &net->graph->node[impl->low.step[s].layer];

    return (sp_pack_args){.w = net->param + net->graph->param[node->weight].offset,
                          .K = node->kernel * node->kernel * node->kernel,
                          .c_in = node->c_in,
                          .c_out = node->c_out,
                          .is_grad_input = direction == SP_PACK_GRAD_INPUT,
                          .is_mirrored =
                              direction == SP_PACK_GRAD_INPUT && node->is_mirrored,
                          .packed = impl->fixed.packed[s][direction]};
}

/* Lists the packings of all steps; sp_learner_exchange_average exchanges the weights.
 */
static void list_packs(const sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    int n = 0;

    for (int d = 0; d < SP_PACK_DIRECTIONS; d++) {
        for (int s = 0; s < impl->low.n_steps; s++)
            if (impl->fixed.packed[s][d])
                impl->pack[n++] = pack_args(net, s, d);
        impl->pack_end[d] = n;
    }
}

sp_packs sp_net_packs(const sp_net *net)
{
    const struct sp_net_impl *impl = net->impl;

    for (int d = 0; d < SP_PACK_DIRECTIONS; d++)
        if (impl->packed_at[d] != impl->weights_at)
            return (sp_packs){0};
    list_packs(net);
    return (sp_packs){impl->pack, impl->pack_end[SP_PACK_DIRECTIONS - 1]};
}

/* Packs all weights for a direction. */
static sp_status pack_all(sp_net *net, int direction)
{
    struct sp_net_impl *impl = net->impl;
    int first;

    list_packs(net);
    first = direction ? impl->pack_end[direction - 1] : 0;
    impl->packed_at[direction] = impl->weights_at;
    return net->backend->ops->conv_pack(net->backend, impl->pack + first,
                                        impl->pack_end[direction] - first);
}

sp_status sp_net_pack(sp_net *net, int s, int direction)
{
    struct sp_net_impl *impl = net->impl;
    const float *packed = impl->fixed.packed[s][direction];
    uint64_t *packed_at = &impl->step[s].packed_at[direction];
    sp_pack_args one;

    assert(0 <= s && s < impl->low.n_steps && (direction == 0 || direction == 1));
    if (!packed)
        return SP_OK;
    if (!impl->options.is_low_memory)
        return impl->packed_at[direction] == impl->weights_at
                   ? SP_OK
                   : pack_all(net, direction);
    if (packed != impl->fixed.shared && *packed_at == impl->weights_at)
        return SP_OK;
    one = pack_args(net, s, direction);
    *packed_at = impl->weights_at;
    return net->backend->ops->conv_pack(net->backend, &one, 1);
}

/* The arguments of the convolution of step s, with output y. */
static sp_conv_args conv_args(const sp_net *net, int s, sp_tensor y)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_lower_step *step = &impl->low.step[s];
    const sp_node *node = &net->graph->node[step->layer];
    const sp_param *param = net->graph->param;

    return (sp_conv_args){
        .map = node->map < 0 ? NULL : &impl->batch->plan.map[node->map],
        .x = sp_net_act(net, step->in[0]),
        .y = y,
        .w = net->param + param[node->weight].offset,
        .w_packed = impl->fixed.packed[s][SP_PACK_FORWARD],
        .bias = node->bias < 0 ? NULL : net->param + param[node->bias].offset};
}

static sp_status net_forward_conv(sp_net *net, int s)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_lower_step *step = &impl->low.step[s];
    const sp_conv_args args = conv_args(net, s, sp_net_act(net, step->out));

    SP_TRY(sp_net_pack(net, s, SP_PACK_FORWARD));
    if (impl->mem.value[step->out].sums < 0) /* no norm needs the sums of y */
        return net->backend->ops->conv_forward(net->backend, &args);
    return net->backend->ops->conv_forward_norm_sums(
        net->backend, &args, sp_net_sample_row(net, impl->low.value[step->out].level),
        impl->batch->n_samples, sp_net_sums(net, step->out));
}

/* Runs a norm with its coefficients; in inference together with the convolution that it
 * has to itself. A residual norm in training is left to the norm that adds it. */
static sp_status norm(sp_net *net, int s)
{
    const sp_lower_step *step = &net->impl->low.step[s];
    const sp_tensor y = sp_net_act(net, step->out);
    sp_conv_args conv;
    sp_norm_finish_args finish;
    sp_norm_args args = sp_net_norm_args(net, s);

    SP_TRY(sp_net_norm_sums(net, s, &finish));
    if (net->impl->is_training && net->impl->low.value[step->out].is_unwritten)
        return net->backend->ops->norm_finish(net->backend, &finish);
    if (net->impl->normed_at != net->impl->weights_at)
        args.finish = &finish;
    if (net->impl->is_training || step->runs_with < 0)
        return net->backend->ops->norm_apply(net->backend, &args);
    SP_TRY(sp_net_pack(net, step->runs_with, SP_PACK_FORWARD));
    conv = conv_args(net, step->runs_with, y);
    args.x = y;
    return net->backend->ops->conv_forward_norm_apply(net->backend, &conv, &args);
}

/* Copies x to y, unless y has taken over its memory. */
static sp_status copy(sp_net *net, sp_tensor x, sp_tensor y)
{
    return x.data == y.data ? SP_OK
                            : net->backend->ops->copy(net->backend, x, y, false);
}

static sp_status net_forward_add(sp_net *net, const sp_lower_step *step, sp_tensor x,
                                 sp_tensor y)
{
    SP_TRY(copy(net, x, y));
    for (int k = 1; k < step->n_in; k++)
        SP_TRY(net->backend->ops->copy(net->backend, sp_net_act(net, step->in[k]), y,
                                       true));
    return SP_OK;
}

/* Copies those inputs that were not written in place. */
static sp_status net_forward_concat(sp_net *net, const sp_lower_step *step, sp_tensor y)
{
    int column = 0;

    for (int k = 0; k < step->n_in; k++) {
        sp_tensor x = sp_net_act(net, step->in[k]);
        sp_tensor part = sp_tensor_columns(y, column, x.c);

        SP_TRY(copy(net, x, part));
        column += x.c;
    }
    return SP_OK;
}

sp_status sp_net_dropout(sp_net *net, const sp_lower_step *step, sp_tensor x,
                         sp_tensor y)
{
    const sp_batch *batch = net->impl->batch;
    const sp_dropout_args args = {
        .x = x,
        .y = y,
        .p = net->graph->node[step->layer].p,
        .seed = net->impl->options.seed,
        .epoch = (uint64_t)batch->epoch,
        .layer = step->layer,
        .sample_id = batch->sample_id,
        .sample_row = sp_net_sample_row(net, net->impl->low.value[step->out].level),
        .n_samples = batch->n_samples};

    assert(step->op == SP_OP_DROPOUT);
    return net->backend->ops->dropout(net->backend, &args);
}

static sp_status net_pool(sp_net *net, int s, sp_tensor x, sp_tensor y,
                          bool is_backward)
{
    const sp_backend_ops *ops = net->backend->ops;
    const sp_lower_step *step = &net->impl->low.step[s];
    const sp_pool_args args = {
        .map = &net->impl->batch->plan.map[net->graph->node[step->layer].map],
        .is_max = step->op == SP_OP_MAX_POOL,
        .x = x,
        .y = y,
        .argmax = sp_net_argmax(net, s),
        .dx = x,
        .dy = y};

    return (is_backward ? ops->pool_grad : ops->pool)(net->backend, &args);
}

static sp_status net_interpolate(sp_net *net, int s, sp_tensor x, sp_tensor y,
                                 bool is_backward)
{
    const sp_backend_ops *ops = net->backend->ops;
    const sp_lowered *low = &net->impl->low;
    const sp_plan *plan = &net->impl->batch->plan;
    const int fine = low->value[low->step[s].out].level;
    const sp_interpolate_args args = {
        .map = &plan->map[net->graph->node[low->step[s].layer].map],
        .level = &plan->level[fine],
        .steps = low->value[low->step[s].in[0]].level - fine,
        .x = x,
        .y = y,
        .dx = x,
        .dy = y};

    return (is_backward ? ops->interpolate_grad : ops->interpolate)(net->backend,
                                                                    &args);
}

/* A global pool has the samples of its input, a broadcast the samples of its output. */
sp_status sp_net_resample(sp_net *net, int s, sp_tensor x, sp_tensor y,
                          bool is_backward)
{
    sp_backend *be = net->backend;
    const sp_lower_step *step = &net->impl->low.step[s];
    const bool is_broadcast = step->op == SP_OP_BROADCAST;
    const int n = net->impl->batch->n_samples;
    const int32_t *row;

    if (step->op == SP_OP_MAX_POOL || step->op == SP_OP_AVG_POOL)
        return net_pool(net, s, x, y, is_backward);
    if (step->op == SP_OP_INTERPOLATE)
        return net_interpolate(net, s, x, y, is_backward);
    row = sp_net_sample_row(
        net, net->impl->low.value[is_broadcast ? step->out : step->in[0]].level);
    if (is_broadcast)
        return is_backward ? be->ops->broadcast_grad(be, y, row, n, x)
                           : be->ops->broadcast(be, x, row, n, y);
    if (is_backward)
        return be->ops->global_pool_grad(be, y, row, n, sp_net_argmax(net, s), x);
    return be->ops->global_pool(be, x, row, n, sp_net_argmax(net, s), y);
}

sp_status sp_net_run_step(sp_net *net, int s)
{
    const sp_backend_ops *ops = net->backend->ops;
    const sp_lower_step *step = &net->impl->low.step[s];
    const sp_tensor x = sp_net_act(net, step->in[0]), y = sp_net_act(net, step->out);

    switch (step->op) {
    case SP_OP_CONV:
        return net_forward_conv(net, s);
    case SP_OP_BATCHNORM:
        return norm(net, s);
    case SP_OP_RELU:
        return ops->relu(net->backend, x, step->slope, y);
    case SP_OP_ADD:
        return net_forward_add(net, step, x, y);
    case SP_OP_CONCAT:
        return net_forward_concat(net, step, y);
    case SP_OP_DROPOUT:
        return net->impl->is_training ? sp_net_dropout(net, step, x, y)
                                      : copy(net, x, y);
    case SP_OP_MAX_POOL:
    case SP_OP_AVG_POOL:
    case SP_OP_INTERPOLATE:
    case SP_OP_GLOBAL_AVG_POOL:
    case SP_OP_GLOBAL_MAX_POOL:
    case SP_OP_BROADCAST:
        return sp_net_resample(net, s, x, y, false);
    }
    return SP_OK;
}

/* The logits in fp32: the last activation itself, or a copy of it. */
static sp_status net_make_logits(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const sp_tensor y = sp_net_act(net, impl->low.n_values - 1);

    sp_buffer_plan_logits(&impl->mem);
    SP_TRY(sp_net_reach(net));
    impl->logits = sp_net_last(net, &impl->mem.logits);
    if (y.elem == SP_ELEM_F32)
        return SP_OK;
    return net->backend->ops->copy(net->backend, y, impl->logits, false);
}

static sp_status forward_step(sp_net *net, int s)
{
    struct sp_net_impl *impl = net->impl;

    sp_buffer_plan_forward(&impl->mem, s);
    SP_TRY(sp_net_reach(net));
    SP_TRY(sp_net_run_step(net, s));
    sp_buffer_plan_forward_end(&impl->mem, s);
    return SP_OK;
}

/* Keeps what step s reads, if it is the last one. */
static sp_status keep_features(sp_net *net, int s)
{
    const struct sp_net_impl *impl = net->impl;
    sp_net_features *f = &net->features;
    sp_tensor x;
    float *data;

    if (!f->arena || s != impl->low.n_steps - 1)
        return SP_OK;
    x = sp_net_act(net, impl->low.step[s].in[0]);
    SP_TRY(sp_net_fetch_matrix(net, x, f->arena, &data));
    f->n = x.n;
    f->c = x.c;
    f->data = data;
    return SP_OK;
}

sp_status sp_net_forward(sp_net *net, const sp_batch *batch, bool is_training,
                         sp_tensor *logits)
{
    struct sp_net_impl *impl = net->impl;
    sp_status rc;

    assert(batch->n >= 0 && batch->n_samples >= 0);
    SP_TRY(sp_net_begin(net, batch, is_training));
    if (is_training)
        impl->normed_at = 0;
    for (int s = 0; s < impl->low.n_steps; s++) {
        if (!sp_lowered_has_turn(&impl->low.step[s], is_training))
            continue;
        sp_liveness_count();
        net->layer = impl->low.step[s].layer;
        sp_range_begin(net->backend, net->graph->node[net->layer].name);
        rc = keep_features(net, s);
        if (rc == SP_OK)
            rc = forward_step(net, s);
        sp_range_end(net->backend);
        SP_TRY(rc);
    }
    net->layer = -1;
    if (!is_training)
        impl->normed_at = impl->weights_at;
    SP_TRY(net_make_logits(net));
    if (logits)
        *logits = impl->logits;
    return SP_OK;
}

/* ---- loss ---- */

static sp_loss_args loss_args(sp_net *net, const sp_batch *batch)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_lower_value *output = &impl->low.value[impl->low.n_values - 1];
    sp_loss_rule rule = impl->options.loss;

    /* Which samples an evaluation has in a batch depends on ranks and memory. */
    rule.is_joint = rule.is_joint && impl->is_training;
    return (sp_loss_args){.logits = impl->logits,
                          .label = batch->labels,
                          .class_weight = impl->fixed.class_weight,
                          .rule = rule,
                          .sample_row = sp_net_sample_row(net, output->level),
                          .n_samples = batch->n_samples};
}

static sp_status run_loss(sp_net *net, sp_loss_args *args)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    sp_tensor grad;
    sp_buffer_place fp32;

    if (!impl->is_training)
        return ops->loss(net->backend, args);
    sp_buffer_plan_loss(&impl->mem, &fp32);
    SP_TRY(sp_net_reach(net));
    args->dlogits = sp_net_last(net, &fp32);
    grad = sp_net_grad(net, impl->low.n_values - 1);
    SP_TRY(net->own_loss.fn ? sp_net_run_own_loss(net, args)
                            : ops->loss(net->backend, args));
    if (grad.elem != SP_ELEM_F32)
        SP_TRY(ops->copy(net->backend, args->dlogits, grad, false));
    sp_buffer_plan_loss_end(&impl->mem, &fp32);
    return SP_OK;
}

static void sum_loss(const double *sums, int n_samples, sp_net_loss_out *out)
{
    out->loss_sum = out->weight_sum = 0;
    for (int b = 0; b < n_samples; b++) {
        out->loss_sum += sums[2 * b];
        out->weight_sum += sums[2 * b + 1];
        if (out->exact)
            sp_exact_add_wide(out->exact, sums + 2 * (size_t)b, 2);
    }
}

sp_status sp_net_loss(sp_net *net, const sp_batch *batch, sp_net_loss_out *out,
                      int64_t *confusion, int32_t *prediction)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    const sp_loss_place r = sp_buffer_plan_results(&impl->mem, confusion, prediction);
    sp_loss_args args = loss_args(net, batch);
    size_t C = (size_t)args.logits.c, mark = impl->host.used;
    char *at, *host;

    assert(impl->batch == batch && "sp_net_forward comes first");
    SP_TRY(sp_net_reach(net));
    SP_TRY(SP_ALLOC(&impl->host, r.bytes + 1, &host));
    at = sp_net_vector(net, r.range);
    args.sums = (double *)(void *)at;
    if (confusion) {
        args.confusion = (int64_t *)(void *)(at + r.confusion_at);
        SP_TRY(ops->fill(net->backend, args.confusion, 0, C * C * sizeof *confusion));
    }
    if (prediction)
        args.prediction = (int32_t *)(void *)(at + r.prediction_at);
    SP_TRY(run_loss(net, &args));
    SP_TRY(ops->download(net->backend, host, at, r.bytes));
    sp_ranges_drop(&impl->mem.vectors, r.range);
    sum_loss((const double *)(const void *)host, batch->n_samples, out);
    for (size_t i = 0; confusion && i < C * C; i++)
        confusion[i] += ((const int64_t *)(const void *)(host + r.confusion_at))[i];
    if (prediction && args.logits.n)
        memcpy(prediction, host + r.prediction_at,
               (size_t)args.logits.n * sizeof *prediction);
    sp_arena_rewind(&impl->host, mark);
    return SP_OK;
}

/* Takes room for the losses of a micro-batch after the losses of the step's earlier
 * micro-batches. Each takes whole multiples of an arena's alignment, so that they
 * follow one another without gaps. */
static sp_status net_alloc_losses(sp_net *net, const sp_batch *batch, double **sums)
{
    enum { GROUP = 16 };
    struct sp_net_impl *impl = net->impl;
    int n = (batch->n_samples + GROUP - 1) / GROUP * GROUP;
    int64_t *id;

    if (batch->micro == 0) {
        sp_arena_reset(&impl->losses);
        sp_arena_reset(&impl->loss_ids);
    }
    SP_TRY(SP_ALLOC(&impl->losses, 2 * n, sums));
    SP_TRY(SP_ALLOC(&impl->loss_ids, n, &id));
    for (int b = 0; b < n; b++)
        id[b] = b < batch->n_samples ? batch->sample_id[b] : -1;
    return SP_OK;
}

/* A loss over all voxels of a step is complete only if this rank has all of them in one
 * batch. */
static sp_status check_joint(const sp_net *net, const sp_batch *batch)
{
    if (!net->impl->options.loss.is_joint ||
        (net->comm->size == 1 && batch->n_micro == 1))
        return SP_OK;
    return SP_FAIL(SP_EUSAGE,
                   "train.lovasz_per = \"step\" sorts all voxels of a step: found %d "
                   "rank%s and %d micro-batch%s, expected one of each; take "
                   "train.lovasz_per = \"sample\", or steps that fit one micro-batch "
                   "(a smaller batch.size, no batch.voxel_budget)",
                   net->comm->size, sp_plural(net->comm->size), batch->n_micro,
                   batch->n_micro == 1 ? "" : "es");
}

sp_status sp_net_train_loss(sp_net *net, const sp_batch *batch, sp_buckets *buckets)
{
    const sp_backend_ops *ops = net->backend->ops;
    sp_loss_args args = loss_args(net, batch);
    sp_net_loss_out out = {.exact = buckets->tail_exact};
    size_t n = 2 * (size_t)batch->n_samples, mark = net->impl->host.used;
    double *host;

    assert(net->impl->batch == batch && net->impl->is_training);
    SP_TRY(check_joint(net, batch));
    SP_TRY(net_alloc_losses(net, batch, &args.sums));
    SP_TRY(run_loss(net, &args));
    if (!buckets->exact)
        return ops->add_samples(net->backend, args.sums, batch->n_samples, 2, batch->n,
                                buckets->loss, true);
    SP_TRY(SP_ALLOC(&net->impl->host, n + 1, &host));
    SP_TRY(ops->download(net->backend, host, args.sums, n * sizeof *host));
    sum_loss(host, batch->n_samples, &out);
    sp_arena_rewind(&net->impl->host, mark);
    return SP_OK;
}

sp_status sp_net_sample_losses(sp_net *net, int *n, const int64_t **id,
                               const double (**loss)[2])
{
    struct sp_net_impl *impl = net->impl;
    double *host;

    assert(n && id && loss);
    assert(impl->losses.used == impl->loss_ids.used * 2);
    SP_TRY(sp_arena_alloc(&impl->host, impl->losses.used + 1, (void **)&host));
    SP_TRY(net->backend->ops->download(net->backend, host, impl->losses.base,
                                       impl->losses.used));
    *n = (int)(impl->loss_ids.used / sizeof **id);
    *id = (const int64_t *)impl->loss_ids.base;
    *loss = (const double(*)[2])host;
    return SP_OK;
}
