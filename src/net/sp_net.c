#include "net/sp_net_impl.h"

#include <stdlib.h>
#include <string.h>

static sp_status create(sp_net *net, const sp_net_options *options)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;

    impl->options = *options;
    net->transport = options->transport;
    if (!net->transport) {
        SP_TRY(sp_transport_open(&impl->own, net->comm, net->backend));
        net->transport = &impl->own;
    }
    impl->weights_at = 1;
    SP_TRY(sp_net_lower(net));
    SP_TRY(sp_net_take_fixed(net));
    SP_TRY(ops->arena_create(&impl->arena, 0, "activations"));
    SP_TRY(ops->arena_create(&impl->vectors, 0, "vectors"));
    SP_TRY(sp_ranges_create(&impl->ranges, 2 * impl->n_values + 3));
    SP_TRY(sp_arena_create(&impl->host, 0, "network scratch"));
    SP_TRY(ops->arena_create(&impl->losses, 0, "losses"));
    SP_TRY(sp_arena_create(&impl->loss_ids, 0, "samples of the losses"));
    return SP_OK;
}

sp_status sp_net_create(sp_net *net, const sp_graph *graph, sp_backend *backend,
                        sp_comm *comm, const sp_net_options *options)
{
    memset(net, 0, sizeof *net);
    net->graph = graph;
    net->backend = backend;
    net->comm = comm;
    net->layer = -1;
    net->impl = calloc(1, sizeof *net->impl);
    if (!net->impl)
        return SP_FAIL(SP_EMEM, "network: out of memory");
    SP_TRY(create(net, options));
    return SP_OK;
}

void sp_net_destroy(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;

    if (impl) {
        if (impl->fixed.base)
            net->backend->ops->arena_destroy(&impl->fixed);
        if (impl->arena.base)
            net->backend->ops->arena_destroy(&impl->arena);
        if (impl->vectors.base)
            net->backend->ops->arena_destroy(&impl->vectors);
        sp_ranges_destroy(&impl->ranges);
        if (impl->losses.base)
            net->backend->ops->arena_destroy(&impl->losses);
        sp_arena_destroy(&impl->loss_ids);
        sp_arena_destroy(&impl->host);
        sp_transport_close(&impl->own);
        free(impl->value);
        free(impl->step);
        free(impl->norm);
        free(impl->block);
    }
    free(impl);
    memset(net, 0, sizeof *net);
}

void sp_net_updated(sp_net *net)
{
    net->impl->weights_at++;
}

/* Adds seen * statistics of each norm, and seen itself behind them, into sum. */
static void weigh_norms(const sp_net *net, const float *running, double *sum)
{
    const struct sp_net_impl *impl = net->impl;
    double *seen = sum + net->graph->n_buffer_floats;
    int s, j, i = 0;

    for (s = 0; s < impl->n_steps; s++) {
        const sp_node *node = &net->graph->node[impl->step[s].layer];
        const net_norm *norm = impl->step[s].norm;

        if (!norm)
            continue;
        seen[i++] = norm->seen;
        for (j = 0; j < norm->c; j++) {
            int64_t mean = node->running_mean + j, var = node->running_var + j;

            sum[mean] = norm->seen * (double)running[mean];
            sum[var] = norm->seen * (double)running[var];
        }
    }
}

/* The weighted means; what no rank has seen since the last sync is equal on all as it
 * is. A quotient of double sums rounds to the float that all ranks share, if they do.
 */
static void use_means(sp_net *net, const double *sum, float *running)
{
    struct sp_net_impl *impl = net->impl;
    const double *seen = sum + net->graph->n_buffer_floats;
    int s, j, i = 0;

    for (s = 0; s < impl->n_steps; s++) {
        const sp_node *node = &net->graph->node[impl->step[s].layer];
        net_norm *norm = impl->step[s].norm;

        if (!norm)
            continue;
        for (j = 0; seen[i] > 0 && j < norm->c; j++) {
            int64_t mean = node->running_mean + j, var = node->running_var + j;

            running[mean] = (float)(sum[mean] / seen[i]);
            running[var] = (float)(sum[var] / seen[i]);
        }
        norm->seen = 0;
        i++;
    }
}

/* A scope of all ranks leaves nothing to do. */
static bool has_own_running(const sp_net *net)
{
    return sp_comm_scope_size(net->comm, net->impl->options.bn_scope) < net->comm->size;
}

sp_status sp_net_fetch_running(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const size_t n = (size_t)net->graph->n_buffer_floats;

    if (!has_own_running(net) || impl->fetched)
        return SP_OK;
    SP_TRY(SP_TAKE(&impl->host, n + 1, &impl->fetched));
    return net->backend->ops->download(net->backend, impl->fetched, net->running,
                                       n * sizeof *impl->fetched);
}

sp_status sp_net_sync_running(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    size_t n_running = (size_t)net->graph->n_buffer_floats;
    size_t n = n_running + (size_t)impl->n_norms, mark;
    float *running;
    double *sum;

    if (!has_own_running(net))
        return SP_OK;
    SP_TRY(sp_net_fetch_running(net));
    running = impl->fetched;
    impl->fetched = NULL;
    mark = impl->host.used;
    SP_TRY(SP_TAKE(&impl->host, n + 1, &sum));
    memset(sum, 0, n * sizeof *sum); /* padding between the buffers */
    weigh_norms(net, running, sum);
    SP_TRY(sp_comm_allreduce(net->comm, SP_SCOPE_WORLD, sum, n, SP_F64, SP_SUM));
    use_means(net, sum, running);
    SP_TRY(
        ops->upload(net->backend, net->running, running, n_running * sizeof *running));
    sp_arena_rewind(&impl->host, mark);
    return SP_OK;
}
