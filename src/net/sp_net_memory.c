/* The places of sp_buffer_plan, as tensors in the net's arenas. */
#include "net/sp_net_impl.h"

#include <assert.h>
#include <string.h>

#include "base/sp_machine.h"
#include "base/sp_number.h"

enum { LEAST_RELEASE = 4 << 20 };

sp_status sp_net_reach(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const size_t matrices = impl->mem.matrices.end, vectors = impl->mem.vectors.end;
    void *more;

    if (matrices > impl->matrices.used)
        SP_TRY(sp_arena_alloc(&impl->matrices, matrices - impl->matrices.used, &more));
    if (vectors > impl->vectors.used)
        SP_TRY(sp_arena_alloc(&impl->vectors, vectors - impl->vectors.used, &more));
    return SP_OK;
}

/* Zeroes those floats of [at, end) of the gradient that no convolution will write. */
static void net_zero_others(const sp_net *net, float *grad, int64_t at, int64_t end)
{
    const sp_graph *g = net->graph;

    for (int p = 0; p < g->n_params; p++) {
        const sp_node *node = &g->node[g->param[p].node];
        const int64_t next = p + 1 < g->n_params ? g->param[p + 1].offset : g->n_floats;
        int64_t from = g->param[p].offset;

        if (node->op == SP_OP_CONV && node->weight == p && !node->is_frozen)
            from += g->param[p].count;
        from = sp_most(from, at);
        if (from < sp_least(next, end))
            memset(grad + from, 0, (size_t)(sp_least(next, end) - from) * sizeof *grad);
    }
}

void sp_net_begin_loans(sp_net *net, const sp_buckets *buckets)
{
    struct sp_net_impl *impl = net->impl;

    impl->released_from = impl->mem.matrices.end;
    impl->to_release = 0;
    impl->written_from = net->graph->n_floats;
    impl->lent_to = (char *)(buckets->grad + impl->written_from);
    impl->n_loans = 0;
}

/* Lends the last free pages within [from, to) of the matrices to the gradient, as many as
 * are to be released, or returns those that it has no room for to the system. */
static void net_lend_pages(sp_net *net, float *grad, size_t from, size_t to)
{
    struct sp_net_impl *impl = net->impl;
    const uintptr_t first = sp_multiple((uintptr_t)grad, SP_LARGE_PAGE);
    uintptr_t end = (uintptr_t)(grad + impl->written_from);
    net_loan *loan = &impl->loan[impl->n_loans];
    size_t bytes = sp_multiple(impl->to_release, SP_LARGE_PAGE);

    if (!sp_arena_whole_pages(&impl->matrices, &from, &to))
        return;
    end = end < (uintptr_t)impl->lent_to ? end : (uintptr_t)impl->lent_to;
    end = end / SP_LARGE_PAGE * SP_LARGE_PAGE;
    bytes = bytes < to - from ? bytes : to - from;
    from = to - bytes;
    impl->released_from = from;
    impl->to_release -= bytes < impl->to_release ? bytes : impl->to_release;
    bytes = end < first ? 0 : end - first < bytes ? end - first : bytes;
    *loan = (net_loan){impl->matrices.base + to - bytes, (char *)end - bytes, bytes};
    if (bytes == 0 || !sp_machine_move_pages(loan->from, loan->to, bytes)) {
        sp_arena_release(&impl->matrices, from, to);
        return;
    }
    sp_arena_release(&impl->matrices, from, to - bytes);
    net_zero_others(net, grad, (float *)(void *)loan->to - grad,
                    (float *)(void *)end - grad);
    impl->lent_to = loan->to;
    impl->n_loans++;
}

void sp_net_regain(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;

    for (int i = 0; i < impl->n_loans; i++)
        sp_machine_move_pages(impl->loan[i].to, impl->loan[i].from,
                              impl->loan[i].bytes);
    impl->n_loans = 0;
}

void sp_net_release(sp_net *net, const sp_buckets *buckets, size_t bytes)
{
    struct sp_net_impl *impl = net->impl;
    const sp_ranges *ranges = &impl->mem.matrices;
    const sp_range *r;

    impl->to_release += bytes;
    if (impl->to_release < LEAST_RELEASE)
        return;
    for (int i = ranges->last; i >= 0 && impl->to_release > 0; i = r->prev) {
        r = &ranges->range[i];
        if (r->n_holders == 0 && r->at < impl->released_from)
            net_lend_pages(net, buckets->grad, r->at,
                           r->at + r->bytes < impl->released_from
                               ? r->at + r->bytes
                               : impl->released_from);
    }
}

const int32_t *sp_net_sample_row(const sp_net *net, int level)
{
    assert(level == SP_LEVEL_SAMPLE ||
           (0 <= level && level < net->graph->spec.n_levels));
    return level == SP_LEVEL_SAMPLE ? net->impl->sample_rows
                                    : net->impl->batch->plan.level[level].sample_row;
}

static sp_tensor tensor_of(const sp_net *net, int value, const sp_buffer_place *place,
                           sp_elem elem)
{
    const sp_lower_value *v = &net->impl->low.value[value];

    return (sp_tensor){(float *)(void *)(net->impl->matrices.base + place->at),
                       sp_graph_rows(&net->impl->mem.counts, v->level), v->c, place->ld,
                       elem};
}

/* The features (value 0) are read where the batch has them, unless sp_buffer_plan gave
 * them a place: then that has a copy, in another type or with padded rows. */
sp_tensor sp_net_act(const sp_net *net, int value)
{
    const struct sp_net_impl *impl = net->impl;
    const sp_lower_value *v = &impl->low.value[value];
    const sp_buffer_place *place = &impl->mem.value[value].act;

    assert(0 <= value && value < impl->low.n_values);
    if (value == 0 && place->range < 0)
        return (sp_tensor){(float *)impl->batch->features, impl->batch->n, v->c, v->c,
                           SP_ELEM_F32};
    return tensor_of(net, value, place, v->elem);
}

sp_tensor sp_net_grad(const sp_net *net, int value)
{
    assert(0 <= value && value < net->impl->low.n_values);
    assert(net->impl->mem.value[value].grad.range >= 0);
    return tensor_of(net, value, &net->impl->mem.value[value].grad,
                     net->impl->low.value[value].elem);
}

sp_tensor sp_net_last(const sp_net *net, const sp_buffer_place *place)
{
    return tensor_of(net, net->impl->low.n_values - 1, place, SP_ELEM_F32);
}

char *sp_net_vector(const sp_net *net, int range)
{
    assert(range >= 0);
    return net->impl->vectors.base + net->impl->mem.vectors.range[range].at;
}

double *sp_net_sums(const sp_net *net, int value)
{
    assert(net->impl->mem.value[value].sums >= 0);
    return (double *)(void *)sp_net_vector(net, net->impl->mem.value[value].sums);
}

int32_t *sp_net_argmax(const sp_net *net, int step)
{
    const int range = net->impl->mem.argmax[step];

    assert(0 <= step && step < net->impl->low.n_steps);
    return range < 0 ? NULL : (int32_t *)(void *)sp_net_vector(net, range);
}

sp_status sp_net_begin(sp_net *net, const sp_batch *batch, bool is_training)
{
    struct sp_net_impl *impl = net->impl;
    const sp_tensor x = {(float *)batch->features, batch->n, impl->low.value[0].c,
                         impl->low.value[0].c, SP_ELEM_F32};
    const sp_plan_counts counts = sp_plan_count(&batch->plan);
    int32_t *sample_rows;

    assert(batch->n_samples == counts.n_samples);
    assert(batch->plan.n_levels == net->graph->spec.n_levels);
    impl->batch = batch;
    impl->is_training = is_training;
    sp_arena_reset(&impl->matrices);
    sp_arena_reset(&impl->vectors);
    sp_arena_reset(&impl->host);
    impl->fetched = NULL;
    SP_TRY(SP_ALLOC(&impl->host, batch->n_samples + 1, &sample_rows));
    for (int b = 0; b <= batch->n_samples; b++)
        sample_rows[b] = b;
    impl->sample_rows = sample_rows;
    sp_buffer_plan_begin(&impl->mem, &counts, is_training);
    SP_TRY(sp_net_reach(net));
    if (impl->mem.value[0].act.range < 0)
        return SP_OK;
    return net->backend->ops->copy(net->backend, x, sp_net_act(net, 0), false);
}
