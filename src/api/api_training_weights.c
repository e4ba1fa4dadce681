/* Weights and checkpoints of a training. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/sp_scope.h"
#include "h5/sp_h5.h"

int64_t sp_training_n_weights(const sp_training *t)
{
    return t ? t->network.graph.n_floats : 0;
}

int sp_training_weights(sp_training *t, float *weights)
{
    sp_backend *backend;

    API_NEED(t, "training");
    API_NEED(weights, "weights");
    backend = &t->device.backend;
    return backend->ops->download(backend, weights, t->network.net.param,
                                  (size_t)sp_training_n_weights(t) * sizeof *weights);
}

/* ---- saving ---- */

static sp_status write_checkpoint(const sp_training *t, const char *path)
{
    const sp_config resolved = sp_device_resolved(&t->device);
    sp_checkpoint_state state = t->state;
    SP_FREED char *deck = NULL;

    SP_TRY(sp_config_to_text(&resolved, &deck));
    state.deck = deck;
    state.data_hash = t->data.train.hash;
    state.groups = sp_learner_groups(&t->learner);
    state.val_hash = 0;
    return sp_network_save(&t->network, &t->learner.optim, &state, path);
}

int sp_training_save(sp_training *t, const char *path)
{
    api_caller before;
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
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization norm = {0};
    SP_CLOSED_BY(sp_config_destroy) sp_config old = {0};
    sp_h5 *file;
    sp_status rc;

    SP_TRY(sp_checkpoint_open_weights(&file, path, SP_FINITE));
    rc = sp_checkpoint_read_open_state(file, &state, &norm);
    sp_h5_close(file);
    SP_TRY(rc);
    return sp_learner_check_continued(&t->learner, t->options.comm, &state, &norm, path,
                                      &old);
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
    api_caller before;
    sp_status rc;

    API_NEED(t, "training");
    before = api_enter(t);
    rc = training_load(t, path, NULL);
    return api_leave(before, rc);
}

int sp_training_load(sp_training *t, const char *path)
{
    api_caller before;
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
