/* Weights and checkpoints of a training. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "h5/sp_h5.h"

int64_t sp_training_n_weights(const sp_training *t)
{
    return t ? t->network.graph.n_floats : 0;
}

static sp_status download(sp_training *t, float *to, const float *from, int64_t n)
{
    sp_backend *backend = &t->device.backend;

    if (!n || !from)
        return SP_OK;
    return backend->ops->download(backend, to, from, (size_t)n * sizeof *to);
}

int sp_training_weights(sp_training *t, float *weights)
{
    API_NEED(t, "training");
    API_NEED(weights, "weights");
    return download(t, weights, t->network.net.param, sp_training_n_weights(t));
}

/* ---- saving ---- */

/* The arrays of a checkpoint in host memory, from one allocation. */
static sp_status fetch_arrays(sp_training *t, float *host, sp_optim *optim,
                              sp_checkpoint_arrays *arrays)
{
    const sp_graph *graph = &t->network.graph;
    const sp_net *net = &t->network.net;
    const int64_t n = graph->n_floats, n_running = graph->n_buffer_floats;
    float *at = host + n + n_running;

    *optim = t->learner.optim;
    SP_TRY(download(t, host, net->param, n));
    SP_TRY(download(t, host + n, net->running, n_running));
    for (int i = 0; i < SP_N_OPTIM_STATES; i++) {
        if (!optim->state[i])
            continue;
        SP_TRY(download(t, at, optim->state[i], sp_optim_state_floats(graph, i)));
        optim->state[i] = at;
        at += sp_optim_state_floats(graph, i);
    }
    *arrays =
        (sp_checkpoint_arrays){.param = host, .running = host + n, .optim = optim};
    return SP_OK;
}

static sp_status write_checkpoint(sp_training *t, const char *path)
{
    const sp_graph *graph = &t->network.graph;
    const sp_config resolved = sp_device_resolved(&t->device);
    const size_t n = (size_t)(graph->n_floats + graph->n_buffer_floats +
                              sp_optim_state_total(&t->config, graph));
    sp_checkpoint_state state = t->state;
    float *host = malloc((n + 1) * sizeof *host);
    sp_checkpoint_arrays arrays;
    sp_optim optim;
    sp_status rc = host ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a checkpoint");

    state.deck = NULL;
    state.data_hash = t->data.train.hash;
    state.groups = sp_learner_groups(&t->learner);
    state.val_hash = 0;
    if (rc == SP_OK)
        rc = sp_config_to_text(&resolved, &state.deck);
    if (rc == SP_OK)
        rc = fetch_arrays(t, host, &optim, &arrays);
    if (rc == SP_OK)
        rc = sp_checkpoint_write(path, graph, &state, &t->network.norm, &arrays);
    free(state.deck);
    free(host);
    return rc;
}

int sp_training_save(sp_training *t, const char *path)
{
    const sp_log_route *before;
    sp_comm *comm;
    sp_status rc = SP_OK;

    API_NEED(t, "training");
    before = api_enter(t);
    comm = t->options.comm;
    if (!path)
        rc = SP_FAIL(SP_EUSAGE, "sp_training_save: path is NULL");
    else if (comm->rank == 0)
        rc = write_checkpoint(t, path);
    return api_leave(before, sp_comm_agree(comm, rc));
}

/* ---- loading ---- */

/* Rank 0: refuses the checkpoint of another training. */
static sp_status check_checkpoint(const sp_training *t, const char *path)
{
    sp_checkpoint_state state = {0};
    sp_normalization norm = {0};
    sp_config old = {0};
    sp_h5 *file;
    sp_status rc;

    SP_TRY(sp_checkpoint_open_weights(&file, path, SP_FINITE));
    rc = sp_checkpoint_read_open_state(file, &state, &norm);
    sp_h5_close(file);
    if (rc == SP_OK)
        rc = sp_learner_check_continued(&t->learner, t->options.comm, &state, &norm,
                                        path, &old);
    sp_config_destroy(&old);
    sp_checkpoint_state_destroy(&state);
    sp_normalization_destroy(&norm);
    return rc;
}

static sp_status training_load(sp_training *t, const char *path,
                               sp_checkpoint_state *state)
{
    sp_comm *comm = t->options.comm;
    sp_status rc = SP_OK;

    if (!path)
        rc = SP_FAIL(SP_EUSAGE, "the path of the file to load is NULL");
    else if (state && comm->rank == 0)
        rc = check_checkpoint(t, path);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK)
        rc = sp_network_load(
            &t->network, &t->config,
            &(sp_weights_source){.path = path,
                                 .state = state,
                                 .optim = state ? &t->learner.optim : NULL,
                                 .is_all_or_nothing = true});
    return rc;
}

int sp_training_load_weights(sp_training *t, const char *path)
{
    const sp_log_route *before;
    sp_status rc;

    API_NEED(t, "training");
    before = api_enter(t);
    rc = training_load(t, path, NULL);
    return api_leave(before, rc);
}

int sp_training_load(sp_training *t, const char *path)
{
    const sp_log_route *before;
    sp_checkpoint_state state = {0};
    sp_status rc;

    API_NEED(t, "training");
    before = api_enter(t);
    rc = training_load(t, path, &state);
    if (rc == SP_OK) {
        sp_checkpoint_state_destroy(&t->state);
        t->state = state;
        state.deck = NULL;
        t->total_samples = sp_step_total_samples(&t->learner, &t->state);
        rc = sp_comm_agree(t->options.comm,
                           sp_loader_seek(t->learner.loader, t->state.at));
    }
    sp_checkpoint_state_destroy(&state);
    t->network.step = t->state.step;
    return api_leave(before, rc);
}
