#include "api/sp_network.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/sp_memory.h"
#include "base/sp_list.h"
#include "base/sp_scope.h"
#include "checkpoint/sp_replica.h"
#include "h5/sp_h5.h"
#include "weights/sp_packed.h"

/* ---- opening ---- */

static sp_status upload_floats(sp_backend *backend, float *to, const float *host,
                               int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *host;

    return bytes ? backend->ops->upload(backend, to, host, bytes) : SP_OK;
}

/* Makes initial parameters and statistics: in place if the backend computes on the
 * host, which has no memory to spare for a copy, else on the host first. Parameters that
 * the caller loads are zero until then, padding too: drawing 21 million takes 0.4 s.
 * Local. */
static sp_status init_net(sp_net *net, uint64_t seed, bool is_loaded)
{
    const sp_graph *graph = net->graph;
    const int64_t n = graph->n_floats, n_running = graph->n_buffer_floats;
    sp_backend *backend = net->backend;
    float *host = NULL;
    sp_status rc = SP_OK;

    if (backend->ops->is_host) {
        memset(net->param, 0, (size_t)n * sizeof *net->param);
        if (n_running)
            memset(net->running, 0, (size_t)n_running * sizeof *net->running);
        if (!is_loaded)
            sp_graph_init_params(graph, seed, net->param);
        sp_graph_init_buffers(graph, net->running);
    } else {
        SP_TRY(SP_NEW(&host, n + n_running, "the network"));
        if (!is_loaded)
            sp_graph_init_params(graph, seed, host);
        sp_graph_init_buffers(graph, host + n);
        rc = upload_floats(backend, net->param, host, n);
        if (rc == SP_OK)
            rc = upload_floats(backend, net->running, host + n, n_running);
        if (rc == SP_OK)
            rc = backend->ops->wait(backend);
    }
    free(host);
    sp_net_updated(net);
    return rc;
}

sp_status sp_network_open(sp_network *n, const sp_config *config, sp_device *device,
                          const sp_data_sets *data, const float *class_weight,
                          bool is_loaded)
{
    const sp_net_options options = {
        .bn_scope = config->train.bn_scope,
        .transport = device->transport.ops ? &device->transport : NULL,
        .is_exact = config->train.deterministic == SP_DET_WORLD,
        /* A device has enough memory, and is limited by its bandwidth. */
        .is_low_memory = device->backend.ops->is_host,
        .is_inference = sp_estimate_is_inference(config, device->transport.ops),
        .is_recomputed = config->train.recompute,
        .seed = (uint64_t)config->train.seed,
        .class_weight = class_weight,
        .loss = sp_net_loss_rule(config),
    };
    const sp_estimated_run what =
        sp_memory_run(config, device->comm, &device->backend, n, data);
    sp_status rc;

    assert(device->backend.ops && n->columns && !n->net.impl);
    rc = sp_graph_build(&n->graph, config, n->n_columns, n->n_classes);
    if (rc == SP_OK)
        rc =
            sp_estimate_fit(&what, options.transport,
                            (int64_t)(device->memory_mb * (1 << 20)), &n->weight_bytes);
    if (rc == SP_OK)
        rc =
            sp_net_create(&n->net, &n->graph, &device->backend, device->comm, &options);
    if (rc == SP_OK)
        rc = init_net(&n->net, options.seed, is_loaded);
    return sp_comm_agree(device->comm, rc);
}

sp_loader_options sp_network_loader(const sp_network *n, const sp_config *config,
                                    const sp_dataset *set)
{
    return (sp_loader_options){.set = set,
                               .config = config,
                               .spec = &n->graph.spec,
                               .backend = n->net.backend,
                               .columns = n->columns,
                               .n_columns = n->n_columns,
                               .mean = n->norm.mean,
                               .std = n->norm.std,
                               .vectors = n->vectors};
}

/* ---- loading ---- */

/* Copies n floats from rank 0's host memory to the backend memory of every rank, which
 * may be the same memory; with to NULL nothing. Collective. */
static sp_status spread_floats(const sp_net *net, float *host, float *to, int64_t n)
{
    if (!to || !n)
        return SP_OK;
    SP_TRY(sp_comm_bcast(net->comm, host, (size_t)n * sizeof *host, 0));
    return host == to ? SP_OK : upload_floats(net->backend, to, host, n);
}

/* Host memory for the arrays of a checkpoint: the backend's own if it computes on the
 * host and nothing of them is needed after a failure. */
typedef struct host_weights {
    float *param, *running;
    sp_optim at;
} host_weights;

/* Rank 0: reads weights to begin with. Skipped layers get their initial weights again,
 * since the host memory of a device backend does not hold them. */
static sp_status read_init(const sp_network *n, const sp_config *config,
                           const char *path, host_weights *w)
{
    const sp_graph *graph = &n->graph;

    if (config->run.init_skip.n > 0) {
        sp_graph_init_params(graph, (uint64_t)config->train.seed, w->param);
        sp_graph_init_buffers(graph, w->running);
    }
    return sp_checkpoint_read_init(path, graph, &n->norm, &config->run.init_skip,
                                   w->param, w->running);
}

/* Rank 0. A file with a state was verified when it was chosen, as one that is open was.
 */
static sp_status read_source(sp_network *n, const sp_config *config,
                             const sp_weights_source *from, host_weights *w)
{
    const sp_graph *graph = &n->graph;

    if (from->packed) {
        SP_TRY(sp_packed_load(from->packed, graph, w->param, w->running));
    } else if (!from->path) {
        SP_TRY(sp_checkpoint_read_model(from->file, graph, config->run.weights,
                                        w->param, w->running));
    } else if (from->state) {
        SP_TRY(sp_checkpoint_read(from->path, graph, w->param, w->running, &w->at,
                                  from->state));
    } else {
        SP_TRY(sp_checkpoint_verify_weights(from->path, SP_INTACT));
        SP_TRY(read_init(n, config, from->path, w));
    }
    sp_checkpoint_find_fault(graph, w->param, w->running, n->fault);
    return SP_OK;
}

/* Reads the file on rank 0 into w and distributes it to all ranks. Collective. */
static sp_status load_arrays(sp_network *n, const sp_config *config,
                             const sp_weights_source *from, host_weights *w)
{
    sp_net *net = &n->net;
    sp_comm *comm = net->comm;
    sp_optim *optim = from->optim;
    const sp_graph *graph = &n->graph;

    SP_TRY(
        sp_comm_agree(comm, comm->rank == 0 ? read_source(n, config, from, w) : SP_OK));
    SP_TRY(sp_comm_bcast(comm, n->fault, sizeof n->fault, 0));
    if (from->is_all_or_nothing && n->fault[0])
        return SP_FAIL(SP_EDATA, "%s:%s, expected a finite number", from->path,
                       n->fault);
    SP_TRY(spread_floats(net, w->param, net->param, graph->n_floats));
    SP_TRY(spread_floats(net, w->running, net->running, graph->n_buffer_floats));
    if (!from->state)
        return SP_OK;
    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        SP_TRY(spread_floats(net, w->at.state[i], optim->state[i],
                             sp_optim_state_floats(graph, i)));
    SP_TRY(sp_comm_bcast(comm, &w->at.t, sizeof w->at.t, 0));
    SP_TRY(sp_comm_bcast(comm, &w->at.is_averaging, sizeof w->at.is_averaging, 0));
    optim->t = w->at.t;
    optim->is_averaging = w->at.is_averaging;
    return SP_OK;
}

/* *host: to be freed, NULL after a failure. */
static sp_status allocate_host(const sp_graph *graph, host_weights *w, float **host)
{
    const size_t n_running = (size_t)graph->n_buffer_floats,
                 n = graph->n_floats > graph->n_buffer_floats ? (size_t)graph->n_floats
                                                              : n_running;

    SP_TRY(SP_NEW(host, (1 + SP_N_OPTIM_STATES) * n + n_running, "the weights"));
    w->param = *host;
    for (size_t i = 0; i < SP_N_OPTIM_STATES; i++)
        w->at.state[i] = w->at.state[i] ? *host + (1 + i) * n : NULL;
    w->running = *host + (1 + SP_N_OPTIM_STATES) * n;
    return SP_OK;
}

sp_status sp_network_load(sp_network *n, const sp_config *config,
                          const sp_weights_source *from)
{
    sp_net *net = &n->net;
    sp_comm *comm = net->comm;
    sp_backend *backend = net->backend;
    sp_checkpoint_state *state = from->state;
    host_weights w = {net->param, net->running, {0}};
    float *host = NULL;
    sp_status rc = SP_OK;

    assert(net->impl && !state == !from->optim && (!state || from->optim->impl));
    assert(from->path || !(from->file || from->packed) == (comm->rank != 0));
    if (state)
        w.at = *from->optim;
    if (!backend->ops->is_host || from->is_all_or_nothing)
        rc = allocate_host(&n->graph, &w, &host);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        rc = load_arrays(n, config, from, &w);
    if (rc == SP_OK)
        rc = backend->ops->wait(backend);
    free(host);
    SP_TRY(rc);
    if (state) { /* state->deck is a pointer and stays on rank 0 */
        char *deck = state->deck;
        SP_TRY(sp_comm_bcast(comm, state, sizeof *state, 0));
        state->deck = deck;
    }
    sp_net_updated(net);
    return SP_OK;
}

static sp_status download_floats(sp_backend *backend, float *to, const float *from,
                                 int64_t n)
{
    return to && n ? backend->ops->download(backend, to, from, (size_t)n * sizeof *to)
                   : SP_OK;
}

sp_status sp_network_save(const sp_network *n, const sp_optim *optim,
                          const sp_checkpoint_state *state, const char *path)
{
    const sp_graph *graph = &n->graph;
    const sp_net *net = &n->net;
    sp_backend *backend = net->backend;
    host_weights w = {net->param, net->running, *optim};
    SP_FREED float *host = NULL;

    if (!backend->ops->is_host) {
        SP_TRY(allocate_host(graph, &w, &host));
        SP_TRY(download_floats(backend, w.param, net->param, graph->n_floats));
        SP_TRY(
            download_floats(backend, w.running, net->running, graph->n_buffer_floats));
        for (int i = 0; i < SP_N_OPTIM_STATES; i++)
            SP_TRY(download_floats(backend, w.at.state[i], optim->state[i],
                                   sp_optim_state_floats(graph, i)));
    }
    return sp_checkpoint_write(path, graph, state, &n->norm,
                               &(sp_checkpoint_arrays){.param = w.param,
                                                       .running = w.running,
                                                       .optim = &w.at});
}

sp_status sp_network_check_replicas(const sp_network *n, int64_t step)
{
    const sp_net *net = &n->net;
    const int64_t count = n->graph.n_floats;
    SP_FREED float *copy = NULL;
    sp_status rc = SP_OK;

    assert(net->impl);
    if (!net->backend->ops->is_host)
        rc = SP_NEW(&copy, count, "a copy of the weights");
    if (rc == SP_OK)
        rc = download_floats(net->backend, copy, net->param, count);
    SP_TRY(sp_comm_agree(net->comm, rc));
    return sp_replica_check(net->comm, copy ? copy : net->param, count, step);
}

void sp_network_close(sp_network *n)
{
    sp_net_destroy(&n->net);
    sp_graph_destroy(&n->graph);
    free(n->columns);
    sp_normalization_destroy(&n->norm);
}
