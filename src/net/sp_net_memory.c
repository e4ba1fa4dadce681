/* The places of sp_buffer_plan, as tensors in the net's arenas. */
#include "net/sp_net_impl.h"

#include <assert.h>

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

void sp_net_release(sp_net *net, size_t bytes)
{
    struct sp_net_impl *impl = net->impl;
    const sp_ranges *ranges = &impl->mem.matrices;
    const sp_range *r;

    impl->to_release += bytes;
    if (impl->to_release < LEAST_RELEASE)
        return;
    for (int i = ranges->last; i >= 0 && impl->to_release > 0; i = r->prev) {
        size_t from, end;

        r = &ranges->range[i];
        end = r->at + r->bytes;
        end = end < impl->released_from ? end : impl->released_from;
        if (r->n_holders > 0 || r->at >= end)
            continue;
        from = end - r->at > impl->to_release ? end - impl->to_release : r->at;
        impl->to_release -= end - from;
        impl->released_from = sp_arena_release(&impl->matrices, from, end);
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
