#include "net/sp_net_impl.h"

#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 128, LEAST_RELEASE = 4 << 20 };

static size_t padded(size_t n_floats)
{
    return (n_floats * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t param_floats(const sp_graph *g, int param)
{
    return param < 0 ? 0 : (size_t)g->param[param].count;
}

/* K, c_in, c_out of a convolution. */
static int kernel_volume(const sp_node *node)
{
    return node->kernel * node->kernel * node->kernel;
}

static size_t pack_floats(const sp_net *net, const net_step *step, int direction)
{
    const sp_node *node = &net->graph->node[step->layer];

    if (step->op != SP_OP_CONV)
        return 0;
    if (direction == NET_GRAD_INPUT && !net->impl->value[step->in[0]].needs_grad)
        return 0;
    return net->backend->ops->conv_pack_floats(net->backend, kernel_volume(node),
                                               node->c_in, node->c_out,
                                               direction == NET_GRAD_INPUT);
}

/* Floats of the largest weight and bias, and of the widest norm. */
static void widest(const sp_net *net, size_t *wgrad, size_t *norm)
{
    const struct sp_net_impl *impl = net->impl;
    int s;

    *wgrad = *norm = 0;
    for (s = 0; s < impl->n_steps; s++) {
        const sp_node *node = &net->graph->node[impl->step[s].layer];
        size_t n = param_floats(net->graph, node->weight) +
                   param_floats(net->graph, node->bias);

        if (impl->step[s].norm && (size_t)node->c_out > *norm)
            *norm = (size_t)node->c_out;
        if (impl->step[s].op == SP_OP_CONV && n > *wgrad)
            *wgrad = n;
    }
    if (!impl->options.is_exact)
        *wgrad = 0;
    else if (!net->backend->ops->is_host && *wgrad < SP_NET_WGRAD_FLOATS)
        *wgrad = SP_NET_WGRAD_FLOATS;
}

/* Of all steps, frugal: of the largest. */
static size_t packed_bytes(const sp_net *net)
{
    const struct sp_net_impl *impl = net->impl;
    size_t sum = 0, most = 0, bytes;
    int s, d;

    for (s = 0; s < impl->n_steps; s++)
        for (d = 0; d < NET_DIRECTIONS; d++) {
            bytes = padded(pack_floats(net, &impl->step[s], d));
            sum += bytes;
            most = bytes > most ? bytes : most;
        }
    return impl->options.is_frugal ? most : sum;
}

static size_t fixed_bytes(const sp_net *net, size_t wgrad, size_t norm)
{
    const struct sp_net_impl *impl = net->impl;
    size_t bytes = padded((size_t)net->graph->n_floats) + padded(wgrad) +
                   padded(3 * norm) + 2 * padded(2 * (2 * norm + 1)) +
                   padded((size_t)net->graph->n_classes) +
                   padded((size_t)net->graph->n_buffer_floats);
    int s;

    bytes += packed_bytes(net);
    for (s = 0; s < impl->n_norms; s++)
        bytes += 4 * padded((size_t)impl->norm[s].c);
    return bytes + ALIGNMENT * (12 + 4 * (size_t)impl->n_steps);
}

/* shared: room for any step's packed weights; NULL: each gets its own. */
static sp_status take_step(sp_net *net, net_step *step, float *shared)
{
    sp_arena *fixed = &net->impl->fixed;
    net_norm *norm = step->norm;
    int d;

    for (d = 0; d < NET_DIRECTIONS; d++) {
        size_t n = pack_floats(net, step, d);

        if (n && shared)
            step->packed[d] = shared;
        else if (n)
            SP_TRY(SP_TAKE(fixed, n, &step->packed[d]));
    }
    if (norm) {
        SP_TRY(SP_TAKE(fixed, norm->c, &norm->scale));
        SP_TRY(SP_TAKE(fixed, norm->c, &norm->shift));
        SP_TRY(SP_TAKE(fixed, norm->c, &norm->mean));
        SP_TRY(SP_TAKE(fixed, norm->c, &norm->inv_std));
    }
    return SP_OK;
}

sp_status sp_net_take_fixed(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    const float *weight = impl->options.class_weight;
    size_t n = (size_t)net->graph->n_floats, classes = (size_t)net->graph->n_classes;
    size_t n_running = (size_t)net->graph->n_buffer_floats, wgrad, norm;
    float *packed = NULL;
    int s;

    widest(net, &wgrad, &norm);
    SP_TRY(
        ops->arena_create(&impl->fixed, fixed_bytes(net, wgrad, norm), "parameters"));
    SP_TRY(SP_TAKE(&impl->fixed, n, &net->param));
    SP_TRY(ops->fill(net->backend, net->param, 0, n * sizeof *net->param));
    SP_TRY(SP_TAKE(&impl->fixed, wgrad, &impl->wgrad));
    impl->n_wgrad = wgrad;
    SP_TRY(SP_TAKE(&impl->fixed, n_running, &net->running));
    SP_TRY(ops->fill(net->backend, net->running, 0, n_running * sizeof *net->running));
    SP_TRY(SP_TAKE(&impl->fixed, 3 * norm, &impl->coefficients));
    SP_TRY(SP_TAKE(&impl->fixed, 2 * norm + 1, &impl->norm_own));
    SP_TRY(SP_TAKE(&impl->fixed, 2 * norm + 1, &impl->norm_all));
    if (impl->options.is_frugal)
        SP_TRY(SP_TAKE(&impl->fixed, packed_bytes(net) / sizeof *packed, &packed));
    for (s = 0; s < impl->n_steps; s++)
        SP_TRY(take_step(net, &impl->step[s], packed));
    if (weight) {
        SP_TRY(SP_TAKE(&impl->fixed, classes, &impl->class_weight));
        SP_TRY(ops->upload(net->backend, impl->class_weight, weight,
                           classes * sizeof *weight));
    }
    impl->options.class_weight = NULL; /* the caller's */
    return SP_OK;
}

/* The smallest free block that is large enough, else a new one. */
sp_status sp_net_take_block(sp_net *net, size_t bytes, int *block)
{
    struct sp_net_impl *impl = net->impl;
    int i, best = -1;

    for (i = 0; i < impl->n_blocks; i++)
        if (!impl->block[i].n_holders && impl->block[i].bytes >= bytes &&
            (best < 0 || impl->block[i].bytes < impl->block[best].bytes))
            best = i;
    if (best < 0) {
        net_block *new = &impl->block[impl->n_blocks];

        assert(impl->n_blocks < impl->max_blocks);
        SP_TRY(sp_arena_take(&impl->vectors, bytes ? bytes : 1, &new->data));
        new->bytes = bytes;
        best = impl->n_blocks++;
    }
    impl->block[best].n_holders = 1;
    *block = best;
    return SP_OK;
}

void sp_net_drop_block(sp_net *net, int block)
{
    net->impl->block[block].n_holders--;
}

static void drop_value(sp_net *net, net_value *value)
{
    if (value->range >= 0)
        sp_ranges_drop(&net->impl->ranges, value->range);
    value->range = -1;
}

/* From the forward pass on, for the backward pass. */
static bool is_kept(const sp_net *net, const net_value *home)
{
    return net->impl->is_training && !(net->impl->options.is_frugal && home->is_cheap);
}

void sp_net_drop_read(sp_net *net, int s)
{
    struct sp_net_impl *impl = net->impl;
    int v;

    for (v = 0; v < impl->n_values; v++) {
        net_value *value = &impl->value[v];

        if (value->last == s && !is_kept(net, value))
            drop_value(net, value);
    }
}

void sp_net_drop_used(sp_net *net, int s)
{
    struct sp_net_impl *impl = net->impl;
    int v;

    for (v = 0; v < impl->n_values; v++)
        if (impl->value[v].until == s)
            drop_value(net, &impl->value[v]);
}

void sp_net_drop_passed(sp_net *net, const net_step *step)
{
    int k;

    for (k = 0; k < step->n_in; k++) {
        net_value *value = &net->impl->value[step->in[k]];

        if (value->is_passed && value->is_cheap)
            drop_value(net, value);
    }
}

void sp_net_release(sp_net *net, size_t bytes)
{
    struct sp_net_impl *impl = net->impl;
    const sp_range *r;
    int i;

    impl->owed += bytes;
    if (impl->owed < LEAST_RELEASE)
        return;
    for (i = impl->ranges.last; i >= 0 && impl->owed > 0; i = r->prev) {
        size_t from, end;

        r = &impl->ranges.range[i];
        end = r->at + r->bytes < impl->kept ? r->at + r->bytes : impl->kept;
        if (r->n_holders > 0 || r->at >= end)
            continue;
        from = end - r->at > impl->owed ? end - impl->owed : r->at;
        impl->owed -= end - from;
        impl->kept = sp_arena_release(&impl->arena, from, end);
    }
}

int64_t sp_net_rows(const sp_net *net, int level)
{
    const sp_batch *batch = net->impl->batch;

    return level == SP_LEVEL_SAMPLE ? batch->n_samples : batch->plan.level[level].n;
}

const int32_t *sp_net_sample_row(const sp_net *net, int level)
{
    return level == SP_LEVEL_SAMPLE ? net->impl->sample_rows
                                    : net->impl->batch->plan.level[level].sample_row;
}

/* Rows of a device begin at multiples of 16 bytes, which its memory moves at once. */
static int pitch(const sp_net *net, int c, sp_elem elem)
{
    int each = 16 / (int)sp_elem_bytes(elem);

    return net->backend->ops->is_host ? c : (c + each - 1) / each * each;
}

static size_t matrix_bytes(sp_tensor t)
{
    return (size_t)t.n * (size_t)t.ld * sp_elem_bytes(t.elem);
}

sp_status sp_net_take_matrix(sp_net *net, int64_t n, int c, sp_elem elem,
                             sp_ranges_side side, int *range, sp_tensor *t)
{
    struct sp_net_impl *impl = net->impl;
    sp_arena *arena = &impl->arena;
    void *more;

    *t = (sp_tensor){NULL, n, c, pitch(net, c, elem), elem};
    *range = sp_ranges_take(&impl->ranges, matrix_bytes(*t), side);
    if (impl->ranges.end > arena->used)
        SP_TRY(sp_arena_take(arena, impl->ranges.end - arena->used, &more));
    t->data = (float *)(void *)(arena->base + impl->ranges.range[*range].at);
    return SP_OK;
}

static sp_status take_value(sp_net *net, const net_value *value, sp_ranges_side side,
                            int *range, sp_tensor *t)
{
    return sp_net_take_matrix(net, sp_net_rows(net, value->level), value->c,
                              value->elem, side, range, t);
}

/* The low side is for what is kept; what comes and goes meanwhile stands above. */
static void reserve_kept(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    size_t bytes = 0;

    for (int v = 1; v < impl->n_values; v++) {
        const net_value *value = &impl->value[v];
        sp_tensor t = {.n = sp_net_rows(net, value->level),
                       .ld = pitch(net, value->c, value->elem),
                       .elem = value->elem};

        if (value->home == v && value->first >= 0 && is_kept(net, value))
            bytes += sp_ranges_aligned(matrix_bytes(t));
    }
    sp_ranges_reserve(&impl->ranges, bytes);
}

/* The batch's own features where they are as the values want them, else a copy. */
static sp_status take_features(sp_net *net, const sp_batch *batch)
{
    net_value *v = &net->impl->value[0];
    sp_tensor x = {(float *)batch->features, batch->n, v->c, v->c, SP_ELEM_F32};
    int range;

    v->act = x;
    if (v->elem == x.elem && pitch(net, v->c, v->elem) == x.ld)
        return SP_OK;
    SP_TRY(sp_net_take_matrix(net, x.n, x.c, v->elem, SP_RANGES_LOW, &range, &v->act));
    return net->backend->ops->copy(net->backend, x, v->act, false);
}

sp_status sp_net_begin(sp_net *net, const sp_batch *batch, bool is_training)
{
    struct sp_net_impl *impl = net->impl;
    int32_t *rows;
    int v, b;

    impl->batch = batch;
    impl->is_training = is_training;
    impl->n_blocks = 0;
    sp_arena_reset(&impl->arena);
    sp_arena_reset(&impl->vectors);
    sp_ranges_reset(&impl->ranges);
    sp_arena_reset(&impl->host);
    impl->fetched = NULL;
    SP_TRY(SP_TAKE(&impl->host, batch->n_samples + 1, &rows));
    for (b = 0; b <= batch->n_samples; b++)
        rows[b] = b;
    impl->sample_rows = rows;
    for (v = 0; v < impl->n_values; v++)
        impl->value[v].range = impl->value[v].grad_range = impl->value[v].sums_block =
            -1;
    SP_TRY(take_features(net, batch));
    reserve_kept(net);
    return SP_OK;
}

sp_status sp_net_hold(sp_net *net, int value)
{
    net_value *values = net->impl->value, *v = &values[value];
    int column = 0, home = value;

    for (; values[home].home != home; home = values[home].home)
        column += values[home].column;
    if (values[home].range < 0)
        SP_TRY(take_value(net, &values[home],
                          is_kept(net, &values[home]) ? SP_RANGES_LOW : SP_RANGES_HIGH,
                          &values[home].range, &values[home].act));
    v->act = sp_tensor_columns(values[home].act, column, v->c);
    return SP_OK;
}

sp_status sp_net_grad(sp_net *net, int value, sp_tensor *grad, bool *is_added)
{
    net_value *v = &net->impl->value[value];

    *is_added = v->grad_range >= 0;
    if (!*is_added)
        SP_TRY(take_value(net, v, SP_RANGES_LOW, &v->grad_range, &v->grad));
    *grad = v->grad;
    return SP_OK;
}

sp_status sp_net_grad_sum(sp_net *net, int value, sp_tensor *grad)
{
    bool is_added;

    SP_TRY(sp_net_grad(net, value, grad, &is_added));
    if (is_added)
        return SP_OK;
    return net->backend->ops->fill(net->backend, grad->data, 0, matrix_bytes(*grad));
}

void sp_net_move_grad(sp_net *net, int from, int to)
{
    net_value *a = &net->impl->value[from], *b = &net->impl->value[to];

    assert(b->grad_range < 0 && a->c == b->c && a->level == b->level);
    b->grad = a->grad;
    b->grad_range = a->grad_range;
    a->grad_range = -1;
}

void sp_net_drop_grad(sp_net *net, int value)
{
    net_value *v = &net->impl->value[value];

    if (v->grad_range >= 0)
        sp_ranges_drop(&net->impl->ranges, v->grad_range);
    v->grad_range = -1;
}
