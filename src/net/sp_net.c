#include "net/sp_net_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_machine.h"

static sp_status net_alloc_fixed(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    const sp_graph *g = net->graph;
    const float *weight = impl->options.class_weight;
    const sp_fixed_rules rules = {.is_low_memory = impl->options.is_low_memory,
                                  .is_inference = impl->options.is_inference,
                                  .is_exact = impl->options.is_exact,
                                  .has_class_weights = weight != NULL};

    SP_TRY(sp_fixed_create(&impl->fixed, &impl->low, net->backend, &rules,
                           &impl->fixed_arena));
    net->param = impl->fixed.param;
    net->running = impl->fixed.running;
    SP_TRY(ops->fill(net->backend, net->param, 0,
                     (size_t)g->n_floats * sizeof *net->param));
    SP_TRY(ops->fill(net->backend, net->running, 0,
                     (size_t)g->n_buffer_floats * sizeof *net->running));
    impl->options.class_weight = NULL; /* it was borrowed and has been copied */
    if (!weight)
        return SP_OK;
    return ops->upload(net->backend, impl->fixed.class_weight, weight,
                       (size_t)g->n_classes * sizeof *weight);
}

static sp_status create(sp_net *net, const sp_net_options *options)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    const sp_buffer_rules buffer_rules =
        sp_buffer_rules_of(net->backend, options->is_low_memory, options->is_recomputed,
                           options->is_exact);

    impl->options = *options;
    net->transport = options->transport;
    if (!net->transport) {
        SP_TRY(sp_transport_open(&impl->own, net->comm, net->backend));
        net->transport = &impl->own;
    }
    impl->weights_at = 1;
    SP_TRY(sp_lower(&impl->low, net->graph, net->backend->precision == SP_BF16));
    SP_TRY(SP_NEW(&impl->step, impl->low.n_steps, "the network"));
    SP_TRY(SP_NEW(&impl->pack, SP_PACK_DIRECTIONS * impl->low.n_steps, "the network"));
    SP_TRY(SP_NEW(&impl->loan,
                  (size_t)net->graph->n_floats * sizeof(float) / SP_LARGE_PAGE,
                  "the network"));
    SP_TRY(net_alloc_fixed(net));
    SP_TRY(sp_buffer_plan_create(&impl->mem, &impl->low, &buffer_rules));
    SP_TRY(ops->arena_create(&impl->matrices, 0, "activations"));
    SP_TRY(ops->arena_create(&impl->vectors, 0, "vectors"));
    SP_TRY(sp_arena_create(&impl->host, 0, "network scratch"));
    SP_TRY(ops->arena_create(&impl->losses, 0, "losses"));
    SP_TRY(sp_arena_create(&impl->loss_ids, 0, "samples of the losses"));
    return SP_OK;
}

sp_loss_rule sp_net_loss_rule(const sp_config *config)
{
    const sp_loss_mix *mix = &config->train.loss;
    sp_loss_rule rule = {.smoothing = (float)config->train.label_smoothing,
                         .is_sum = !sp_loss_mix_is(mix, SP_CROSS_ENTROPY)};

    for (int i = 0; rule.is_sum && i < SP_N_LOSSES; i++)
        rule.weight[i] = (float)mix->weight[i];
    if (rule.weight[SP_FOCAL] > 0)
        rule.focal_gamma = (float)config->train.focal_gamma;
    rule.is_joint =
        rule.weight[SP_LOVASZ] > 0 && config->train.lovasz_per == SP_LOVASZ_PER_STEP;
    return rule;
}

sp_status sp_net_create(sp_net *net, const sp_graph *graph, sp_backend *backend,
                        sp_comm *comm, const sp_net_options *options)
{
    assert(graph->n_nodes > 0 && backend->ops && comm && options);
    memset(net, 0, sizeof *net);
    net->graph = graph;
    net->backend = backend;
    net->comm = comm;
    net->layer = -1;
    SP_TRY(SP_NEW(&net->impl, 1, "the network"));
    return create(net, options);
}

void sp_net_destroy(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;

    if (impl) {
        net->backend->ops->arena_destroy(&impl->fixed_arena);
        net->backend->ops->arena_destroy(&impl->matrices);
        net->backend->ops->arena_destroy(&impl->vectors);
        sp_buffer_plan_destroy(&impl->mem);
        sp_fixed_destroy(&impl->fixed);
        sp_lowered_destroy(&impl->low);
        net->backend->ops->arena_destroy(&impl->losses);
        sp_arena_destroy(&impl->loss_ids);
        sp_arena_destroy(&impl->host);
        sp_transport_close(&impl->own);
        free(impl->step);
        free(impl->pack);
        free(impl->loan);
    }
    free(impl);
    memset(net, 0, sizeof *net);
}

void sp_net_updated(sp_net *net)
{
    assert(net->impl && net->layer < 0);
    net->impl->weights_at++;
}

void sp_net_lend(sp_net *net, const sp_buckets *buckets)
{
    struct sp_net_impl *impl = net->impl;

    assert(impl && net->layer < 0);
    sp_fixed_lend(&impl->fixed, &impl->low, net->backend,
                  buckets ? buckets->grad : NULL, (size_t)net->graph->n_floats);
    for (int s = 0; impl->fixed.shared && s < impl->low.n_steps; s++)
        impl->step[s].packed_at[SP_PACK_FORWARD] = 0;
}

/* Writes seen * statistics of each norm into sum, and `seen` itself after them all. */
static void weigh_norms(const sp_net *net, const float *running, double *sum)
{
    const struct sp_net_impl *impl = net->impl;
    double *seen = sum + net->graph->n_buffer_floats;
    int i = 0;

    for (int s = 0; s < impl->low.n_steps; s++) {
        const sp_node *node = &net->graph->node[impl->low.step[s].layer];
        const net_step *step = &impl->step[s];

        if (impl->low.step[s].op != SP_OP_BATCHNORM)
            continue;
        seen[i++] = step->seen;
        for (int j = 0; j < node->c_out; j++) {
            int64_t mean = node->running_mean + j, var = node->running_var + j;

            sum[mean] = step->seen * (double)running[mean];
            sum[var] = step->seen * (double)running[var];
        }
    }
}

/* Divides the sums by the rows that were seen. A norm that no rank has used since the
 * last sync is equal on all ranks and stays. If all ranks hold the same float, the
 * quotient of the double sums rounds to that float again. */
static void use_means(sp_net *net, const double *sum, float *running)
{
    struct sp_net_impl *impl = net->impl;
    const double *seen = sum + net->graph->n_buffer_floats;
    int i = 0;

    for (int s = 0; s < impl->low.n_steps; s++) {
        const sp_node *node = &net->graph->node[impl->low.step[s].layer];

        if (impl->low.step[s].op != SP_OP_BATCHNORM)
            continue;
        for (int j = 0; seen[i] > 0 && j < node->c_out; j++) {
            int64_t mean = node->running_mean + j, var = node->running_var + j;

            running[mean] = (float)(sum[mean] / seen[i]);
            running[var] = (float)(sum[var] / seen[i]);
        }
        impl->step[s].seen = 0;
        i++;
    }
}

/* True if running statistics may differ between ranks; ranks of one scope have the
 * same. */
static bool has_own_running(const sp_net *net)
{
    return sp_comm_scope_size(net->comm, net->impl->options.bn_scope) < net->comm->size;
}

sp_status sp_net_fetch_running(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const size_t n = (size_t)net->graph->n_buffer_floats;

    assert(net->layer < 0 && "between steps");
    if (!has_own_running(net) || impl->fetched)
        return SP_OK;
    SP_TRY(SP_ALLOC(&impl->host, n + 1, &impl->fetched));
    return net->backend->ops->download(net->backend, impl->fetched, net->running,
                                       n * sizeof *impl->fetched);
}

sp_status sp_net_sync_running(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    size_t n_running = (size_t)net->graph->n_buffer_floats;
    size_t n = n_running + (size_t)impl->low.n_norms, mark;
    float *running;
    double *sum;

    assert(net->layer < 0 && "between steps");
    if (!has_own_running(net))
        return SP_OK;
    SP_TRY(sp_net_fetch_running(net));
    running = impl->fetched;
    impl->fetched = NULL;
    mark = impl->host.used;
    SP_TRY(SP_ALLOC(&impl->host, n + 1, &sum));
    memset(sum, 0, n * sizeof *sum); /* the padding between the buffers too */
    weigh_norms(net, running, sum);
    SP_TRY(sp_comm_allreduce(net->comm, SP_SCOPE_WORLD, sum, n, SP_F64, SP_SUM));
    use_means(net, sum, running);
    SP_TRY(
        ops->upload(net->backend, net->running, running, n_running * sizeof *running));
    sp_arena_rewind(&impl->host, mark);
    return SP_OK;
}
