#include "sp_net_impl.h"

#include <stdlib.h>
#include <string.h>

static sp_status create(sp_net *net, const sp_net_options *options)
{
    struct sp_net_impl *impl = net->impl;
    const sp_backend_ops *ops = net->backend->ops;
    size_t n_running = (size_t)net->graph->n_buffer_floats;

    impl->options = *options;
    impl->weights_at = 1;
    net->running = calloc(n_running + 1, sizeof *net->running);
    if (!net->running)
        return SP_FAIL(SP_EMEM, "network: out of memory");
    SP_TRY(sp_net_lower(net));
    SP_TRY(sp_net_take_fixed(net));
    SP_TRY(ops->arena_create(&impl->arena, 0, "activations"));
    SP_TRY(sp_arena_create(&impl->host, 0, "network scratch"));
    return SP_OK;
}

sp_status sp_net_create(sp_net *net, const sp_graph *graph, sp_backend *backend,
                        sp_comm *comm, const sp_net_options *options)
{
    memset(net, 0, sizeof *net);
    net->graph = graph;
    net->backend = backend;
    net->comm = comm;
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
        sp_arena_destroy(&impl->host);
        free(impl->value);
        free(impl->step);
        free(impl->norm);
        free(impl->block);
    }
    free(impl);
    free(net->running);
    memset(net, 0, sizeof *net);
}

void sp_net_updated(sp_net *net)
{
    net->impl->weights_at++;
}

/* Averages in double; a value that all ranks share comes back unchanged. */
static sp_status sync_norm(sp_net *net, const net_step *step)
{
    const sp_node *node = &net->graph->node[step->layer];
    net_norm *norm = step->norm;
    float *mean = net->running + node->running_mean;
    float *var = net->running + node->running_var;
    size_t mark = net->impl->host.used;
    double *sum, weight;
    int c, n = norm->c;

    weight = norm->seen;
    SP_TRY(sp_comm_allreduce(net->comm, SP_SCOPE_WORLD, &weight, 1, SP_F64, SP_SUM));
    weight = weight > 0 ? norm->seen / weight : 1.0 / net->comm->size;
    SP_TRY(SP_TAKE(&net->impl->host, 2 * n, &sum));
    for (c = 0; c < n; c++) {
        sum[c] = weight * (double)mean[c];
        sum[n + c] = weight * (double)var[c];
    }
    SP_TRY(sp_comm_allreduce(net->comm, SP_SCOPE_WORLD, sum, 2 * (size_t)n, SP_F64,
                             SP_SUM));
    for (c = 0; c < n; c++) {
        mean[c] = (float)sum[c];
        var[c] = (float)sum[n + c];
    }
    norm->seen = 0;
    sp_arena_rewind(&net->impl->host, mark);
    return SP_OK;
}

sp_status sp_net_sync_running(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    int scope = sp_comm_scope_size(net->comm, impl->options.bn_scope), i;

    if (scope == net->comm->size)
        return SP_OK;
    for (i = 0; i < impl->n_steps; i++)
        if (impl->step[i].norm)
            SP_TRY(sync_norm(net, &impl->step[i]));
    return SP_OK;
}
