/* Weights and checkpoints of a training. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "h5/sp_h5.h"

int64_t sp_training_n_weights(const sp_training *t)
{
    return t ? t->resources.graph.n_floats : 0;
}

static sp_status download(sp_training *t, float *to, const float *from, int64_t n)
{
    sp_backend *backend = &t->resources.backend;

    if (!n || !from)
        return SP_OK;
    return backend->ops->download(backend, to, from, (size_t)n * sizeof *to);
}

int sp_training_weights(sp_training *t, float *weights)
{
    API_NEED(t, "training");
    API_NEED(weights, "weights");
    return download(t, weights, t->resources.net.param, sp_training_n_weights(t));
}

/* ---- saving ---- */

/* The arrays of a checkpoint in host memory, from one allocation. */
static sp_status fetch_arrays(sp_training *t, float *host, sp_optim *optim,
                              sp_checkpoint_arrays *arrays)
{
    const sp_resources *r = &t->resources;
    const int64_t n = r->graph.n_floats, n_running = r->graph.n_buffer_floats;
    float *at = host + n + n_running;

    *optim = r->optim;
    SP_TRY(download(t, host, r->net.param, n));
    SP_TRY(download(t, host + n, r->net.running, n_running));
    for (int i = 0; i < SP_N_OPTIM_STATES; i++) {
        if (!r->optim.state[i])
            continue;
        SP_TRY(download(t, at, r->optim.state[i], sp_optim_state_floats(&r->graph, i)));
        optim->state[i] = at;
        at += sp_optim_state_floats(&r->graph, i);
    }
    *arrays =
        (sp_checkpoint_arrays){.param = host, .running = host + n, .optim = optim};
    return SP_OK;
}

static sp_status write_checkpoint(sp_training *t, const char *path)
{
    const sp_resources *r = &t->resources;
    const sp_config resolved = sp_resources_resolved(r);
    const size_t n = (size_t)(r->graph.n_floats + r->graph.n_buffer_floats +
                              sp_optim_state_total(&t->config, &r->graph));
    sp_checkpoint_state state = t->state;
    float *host = malloc((n + 1) * sizeof *host);
    sp_checkpoint_arrays arrays;
    sp_optim optim;
    sp_status rc = host ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a checkpoint");

    state.deck = NULL;
    state.data_hash = r->train.hash;
    state.groups = sp_resources_groups(r);
    state.val_hash = 0;
    if (rc == SP_OK)
        rc = sp_config_to_text(&resolved, &state.deck);
    if (rc == SP_OK)
        rc = fetch_arrays(t, host, &optim, &arrays);
    if (rc == SP_OK)
        rc = sp_checkpoint_write(path, &r->graph, &state, &r->norm, &arrays);
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
    comm = t->resources.comm;
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
        rc = sp_resources_check_continued(&t->resources, &state, &norm, path, &old);
    sp_config_destroy(&old);
    sp_checkpoint_state_destroy(&state);
    sp_normalization_destroy(&norm);
    return rc;
}

static sp_status training_load(sp_training *t, const char *path,
                               sp_checkpoint_state *state)
{
    sp_resources *r = &t->resources;
    sp_status rc = SP_OK;

    if (!path)
        rc = SP_FAIL(SP_EUSAGE, "the path of the file to load is NULL");
    else if (state && r->comm->rank == 0)
        rc = check_checkpoint(t, path);
    rc = sp_comm_agree(r->comm, rc);
    if (rc == SP_OK)
        rc = sp_resources_load(r, &(sp_weights_source){.path = path,
                                                       .state = state,
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
        api_training_plan(t);
        rc = sp_comm_agree(t->resources.comm,
                           sp_loader_seek(t->resources.loader, t->state.at));
    }
    sp_checkpoint_state_destroy(&state);
    t->resources.step = t->state.step;
    return api_leave(before, rc);
}
