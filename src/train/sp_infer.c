#include "train/sp_infer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/sp_labels.h"
#include "api/sp_memory.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_scope.h"
#include "h5/sp_h5.h"
#include "train/sp_evaluate.h"
#include "train/sp_members.h"
#include "weights/sp_packed.h"

/* Rank 0: opens the file or run folder that path names, else run.checkpoint; else a
 * checkpoint of run.dir. */
static sp_status open_checkpoint(sp_infer *infer)
{
    const sp_config *config = infer->session.config;
    char model[PATH_MAX], *path = infer->path;

    assert(!infer->file);
    snprintf(model, sizeof model, "%s", path[0] ? path : config->run.checkpoint);
    if (model[0] && sp_packed_is(model)) {
        snprintf(path, PATH_MAX, "%s", model);
        return sp_packed_read(&infer->packed, path);
    }
    if (model[0])
        return sp_checkpoint_open_model(&infer->file, model, SP_INTACT, path);
    return sp_checkpoint_open_run(&infer->file, config->run.dir,
                                  "name one by run.checkpoint=FILE", path);
}

/* A model's deck that uses all columns (data.features = []) gets their names here:
 * other shards may have more columns, or have them in another order. */
static sp_status infer_name_columns(sp_config *model, const sp_normalization *norm)
{
    sp_strings *names = &model->data.features;
    const int n = names->n == 0 && norm->name ? norm->n_columns : 0;

    for (int i = 0; i < n; i++)
        SP_TRY(sp_strings_add(names, norm->name[i]));
    return SP_OK;
}

/* Refuses the data.val of the default deck if the user named no deck and the model's
 * training had other data: its user hardly means the sample data. */
static sp_status refuse_default_data(const sp_infer *infer, const sp_config *model)
{
    const sp_session *s = &infer->session;
    SP_FREED char *old = NULL, *now = NULL;

    if (!s->command->is_default_deck || sp_config_is_overridden(s->config, "data.val"))
        return SP_OK;
    old = sp_config_value(model, "data.val");
    now = sp_config_value(s->config, "data.val");
    if (old && now && strcmp(old, now) != 0)
        return SP_FAIL(SP_EUSAGE,
                       "%s was trained with data.val = %s, %s has %s: name a deck (a "
                       "run's deck is its deck.resolved) or give data.val=FILES",
                       infer->path, old, s->command->deck, now);
    return SP_OK;
}

/* Rank 0: makes a config. The keys that describe the network, and the augmentation that
 * it was trained with (which views it knows), come from the checkpoint's deck unless
 * the command line sets them. All other keys come from the user's deck. A family on the
 * command line replaces the checkpoint's layers as it replaces a deck's. */
static sp_status infer_apply_network(sp_infer *infer)
{
    const sp_config *user = infer->session.config;
    const bool has_family = sp_config_is_overridden(user, "net.family");
    const char *const *key = sp_config_kept_by_model;
    sp_config old;
    sp_status rc;

    SP_TRY(sp_checkpoint_config(&old, &infer->state, infer->path));
    rc = refuse_default_data(infer, &old);
    if (rc == SP_OK)
        rc = infer_name_columns(&old, &infer->network.norm);
    if (rc == SP_OK)
        rc = sp_config_copy(&infer->config, user);
    for (; rc == SP_OK && *key; key++)
        if (!has_family || strcmp(*key, "net.layers") != 0)
            sp_config_take(&infer->config, &old, *key);
    sp_config_destroy(&old);
    return rc;
}

/* Rank 0: moves the head of a packed model. The backend, if it is open, already
 * computes in the model's precision. */
static sp_status infer_move_packed(sp_infer *infer)
{
    const sp_backend *backend = &infer->device.backend;
    const sp_precision want = infer->packed.config.train.precision;

    infer->state = infer->packed.state;
    infer->network.norm = infer->packed.norm;
    infer->packed.state = (sp_checkpoint_state){0};
    infer->packed.norm = (sp_normalization){0};
    infer->is_checkpoint = true;
    if (want == SP_BF16 && backend->ops && backend->precision != want)
        return SP_FAIL(SP_EUSAGE,
                       "%s computes in bf16: add train.precision=bf16 to the command",
                       infer->path);
    SP_TRY(infer_apply_network(infer));
    if (want == SP_BF16)
        infer->config.train.precision = want;
    return SP_OK;
}

/* Rank 0: reads config and feature statistics from the checkpoint. */
static sp_status infer_read_head(sp_infer *infer)
{
    SP_TRY(open_checkpoint(infer));
    if (!infer->file)
        return infer_move_packed(infer);
    SP_TRY(sp_checkpoint_read_open_state(infer->file, &infer->state,
                                         &infer->network.norm));
    infer->is_checkpoint = infer->state.deck != NULL;
    return infer->is_checkpoint ? infer_apply_network(infer) : SP_OK;
}

/* Gives all ranks the head of the checkpoint. Collective, agreed. */
static sp_status share_head(sp_infer *infer)
{
    sp_session *s = &infer->session;
    sp_status rc = s->comm->rank == 0 ? infer_read_head(infer) : SP_OK;

    SP_TRY(sp_comm_agree(s->comm, rc));
    SP_TRY(
        sp_comm_bcast(s->comm, &infer->is_checkpoint, sizeof infer->is_checkpoint, 0));
    if (infer->is_checkpoint) {
        SP_TRY(sp_config_bcast(&infer->config, s->comm, SP_OK));
        s->config = &infer->config;
    }
    SP_TRY(sp_normalization_bcast(&infer->network.norm, s->comm));
    return sp_comm_bcast(s->comm, infer->path, sizeof infer->path, 0);
}

/* Opens the network with the class weights of the training, so that the loss is
 * comparable. */
static sp_status infer_open_net(sp_infer *infer)
{
    const sp_config *config = infer->session.config;
    sp_comm *comm = infer->session.comm;
    sp_network *network = &infer->network;
    const bool is_named = sp_config_is_overridden(config, "train.class_weights");
    SP_FREED float *weights = NULL;

    SP_TRY(sp_comm_agree(comm,
                         sp_labels_kept_weights(config, network, is_named, &weights)));
    return sp_network_open(network, config, &infer->device, &infer->data, weights,
                           true);
}

static void infer_close_file(sp_infer *infer)
{
    sp_h5_close(infer->file); /* it was read, which leaves nothing to flush */
    infer->file = NULL;
    sp_weights_model_close(&infer->packed);
}

static sp_status load_weights(sp_infer *infer)
{
    const bool is_packed = infer->packed.param != NULL;

    SP_TRY(sp_session_load(
        &infer->session, &infer->network,
        &(sp_weights_source){.file = infer->file,
                             .packed = is_packed ? &infer->packed : NULL}));
    infer_close_file(infer);
    return SP_OK;
}

/* True if the command line names columns that are called otherwise than the model's:
 * which is which is then the user's responsibility. The model's own columns in another
 * order are a mistake. */
static bool has_other_names(const sp_config *config, const sp_normalization *norm)
{
    const sp_strings *given = &config->data.features;

    return sp_config_is_overridden(config, "data.features") && norm->name &&
           sp_dataset_compare_names(given->n, given->at, norm->n_columns, norm->name) ==
               SP_OTHER_NAMES;
}

/* Checks columns and classes against the model, since a different order would mix them
 * up. */
static sp_status infer_match_data(sp_infer *infer)
{
    sp_network *network = &infer->network;
    sp_dataset *val = &infer->data.val;

    if (!has_other_names(infer->session.config, &network->norm))
        SP_TRY(sp_network_match_columns(network, val, &network->norm, infer->path,
                                        SP_EDATA));
    SP_TRY(sp_dataset_match_recipe(val, network->norm.recipe, infer->path));
    return sp_network_match_classes(network, val, infer->path);
}

/* Drops the feature statistics of a checkpoint if the command line says so. */
static void leave_norm(const sp_session *s, sp_normalization *norm)
{
    if (s->config->data.normalize ||
        !sp_config_is_overridden(s->config, "data.normalize"))
        return;
    free(norm->mean);
    free(norm->std);
    norm->mean = norm->std = NULL;
}

/* Chooses the feature statistics. The checkpoint's statistics are used, if it has any,
 * and the command line may switch them off. A file with weights only does not say; then
 * the data's own are used, as in training. */
static sp_status choose_norm(sp_infer *infer)
{
    const sp_session *s = &infer->session;
    sp_network *network = &infer->network;
    sp_normalization *norm = &network->norm;
    const sp_dataset *val = &infer->data.val;

    if (!infer->is_checkpoint)
        return sp_comm_agree(s->comm, sp_network_normalize(network, s->config, val));
    leave_norm(s, norm);
    if (norm->mean && norm->n_columns != network->n_columns)
        return SP_FAIL(SP_EDATA,
                       "%s: statistics of %d feature columns, data.val has %d",
                       infer->path, norm->n_columns, network->n_columns);
    sp_network_warn_far(network, val);
    return SP_OK;
}

/* Writes the status of this task; the training's status.json is not touched. */
static sp_status infer_say(sp_session *s, const char *state, sp_status code,
                           const char *message)
{
    sp_status rc = SP_OK;

    if (s->comm->rank == 0)
        rc = sp_run_status(&s->run, state, code, s->epoch, s->step, message);
    return sp_comm_agree(s->comm, rc);
}

/* Reports that the ranks were asked, and agreed, to stop. */
static sp_status report_stop(sp_session *s)
{
    char message[SP_ERROR_MESSAGE];

    snprintf(message, sizeof message, "%s", sp_error_last()->message);
    sp_log_info("%s", message);
    SP_TRY(infer_say(s, "stopped", SP_ELIMIT, message));
    return SP_ELIMIT;
}

/* Opens the session with its folder, which is not made for a model that is not there:
 * that is found, and said, before. */
static sp_status open_session(sp_infer *infer, const sp_command *command)
{
    const sp_config *config = command->config;
    const char *from =
        config->run.checkpoint[0] ? config->run.checkpoint : config->run.dir;
    bool is_there = command->comm->rank > 0 || !sp_file_is_absent(from);

    SP_TRY(sp_comm_bcast(command->comm, &is_there, sizeof is_there, 0));
    SP_TRY(sp_session_open(&infer->session, command, is_there));
    if (is_there)
        return SP_OK;
    SP_TRY(sp_comm_agree(command->comm,
                         command->comm->rank == 0 ? open_checkpoint(infer) : SP_OK));
    infer_close_file(infer); /* it has come meanwhile */
    return sp_session_open_folder(&infer->session);
}

/* Opens the heads of eval.members. The columns' names are the data's. */
static sp_status infer_open_members(sp_infer *infer)
{
    const sp_network *network = &infer->network;
    const sp_config *config = infer->session.config;
    sp_comm *comm = infer->session.comm;
    const sp_strings *models = &config->eval.members;
    SP_FREED char **column = NULL;
    sp_status rc = SP_NEW(&column, network->n_columns, "the columns");

    if (models->n > SP_MOST_MEMBERS)
        rc = SP_FAIL(SP_EUSAGE, "%seval.members: %d models, expected at most %d",
                     sp_config_where(config, "eval.members"), models->n,
                     SP_MOST_MEMBERS);
    if (rc == SP_OK && models->n > 0)
        rc = SP_NEW(&infer->members, 1, "models");
    SP_TRY(sp_comm_agree(comm, rc));
    for (int i = 0; i < network->n_columns; i++)
        column[i] = infer->data.val.feature_name[network->columns[i]];
    return infer->members
               ? sp_members_open(infer->members, infer, column, models->n, models->at)
               : SP_OK;
}

static sp_status infer_open_member_nets(sp_infer *infer)
{
    sp_members *members = infer->members;

    if (!members)
        return SP_OK;
    SP_TRY(
        sp_members_open_nets(members, &infer->data.val, &infer->evaluator.val.views));
    for (int k = 0; k < members->n; k++)
        sp_log_info("averaging with %s", sp_members_path(members, k));
    return SP_OK;
}

static sp_status infer_open_evaluator(sp_infer *infer)
{
    sp_session *s = &infer->session;
    const sp_data_sets *data = &infer->data;
    sp_evaluator *e = &infer->evaluator;

    sp_evaluator_begin(e, s->config, s->comm, &infer->network, &infer->budgets);
    e->members = infer->members;
    e->is_predicting = strcmp(s->command->name, "predict") == 0;
    sp_evaluate_watch(e, s);
    SP_TRY(sp_evaluator_open(e, data));
    if (data->n_val_sets > 0)
        SP_TRY(sp_evaluator_open_sets(e, data));
    SP_TRY(infer_open_member_nets(infer));
    SP_TRY(sp_memory_bound(&infer->budgets, &infer->device, data, NULL, e));
    sp_budgets_print(&infer->budgets, infer->device.memory.total);
    return SP_OK;
}

sp_status sp_infer_open(sp_infer *infer, const sp_command *command, bool with_sets)
{
    sp_session *s = &infer->session;
    sp_data_sets *data = &infer->data;

    memset(infer, 0, sizeof *infer);
    SP_TRY(open_session(infer, command));
    SP_TRY(infer_say(s, "running", SP_OK, ""));
    SP_TRY(sp_session_open_device(s, &infer->device));
    SP_TRY(share_head(infer));
    SP_TRY(sp_session_open_data(s, data, &infer->network, false, true));
    if (with_sets)
        SP_TRY(sp_data_sets_open_val_sets(data, s->config, s->comm));
    SP_TRY(infer_match_data(infer));
    SP_TRY(choose_norm(infer));
    SP_TRY(infer_open_members(infer));
    SP_TRY(infer_open_net(infer));
    SP_TRY(load_weights(infer));
    SP_TRY(sp_comm_bcast(s->comm, &infer->state.step, sizeof infer->state.step, 0));
    SP_TRY(sp_comm_bcast(s->comm, &infer->state.at, sizeof infer->state.at, 0));
    s->epoch = sp_position_epochs(infer->state.at);
    s->step = infer->network.step = infer->state.step;
    return infer_open_evaluator(infer);
}

sp_status sp_infer_open_model(sp_infer *infer, const sp_command *command,
                              const char *model)
{
    assert(model && model[0]);
    memset(infer, 0, sizeof *infer);
    SP_TRY(sp_session_open(&infer->session, command, false));
    snprintf(infer->path, sizeof infer->path, "%s", model);
    SP_TRY(share_head(infer));
    leave_norm(&infer->session, &infer->network.norm);
    return SP_OK;
}

/* Opens the network, whose device is open, and loads its weights. */
static sp_status infer_open_finite(sp_infer *infer)
{
    const char *fault = infer->network.fault;

    assert(infer->network.columns && infer->network.class_name);
    SP_TRY(infer_open_net(infer));
    SP_TRY(load_weights(infer));
    return fault[0] ? SP_FAIL(SP_ENUMERIC, "%s: its weights are not finite: %s",
                              infer->path, fault)
                    : SP_OK;
}

sp_status sp_infer_open_net(sp_infer *infer)
{
    SP_TRY(infer_say(&infer->session, "running", SP_OK, ""));
    SP_TRY(sp_session_open_device(&infer->session, &infer->device));
    return infer_open_finite(infer);
}

sp_status sp_infer_open_single(sp_infer *infer, const sp_dataset *set,
                               const sp_views *views, const sp_doubles *range,
                               sp_single_batch **single)
{
    sp_loader_options options =
        sp_network_loader(&infer->network, infer->session.config, set);

    options.view = views->at;
    options.n_views = views->n;
    options.range = range;
    return sp_single_batch_create(single, &options);
}

/* ---- further models ---- */

sp_status sp_infer_open_beside(sp_infer *infer, const sp_infer *first,
                               const char *model)
{
    const sp_command *command = first->session.command;

    assert(model && model[0]);
    memset(infer, 0, sizeof *infer);
    infer->session = (sp_session){
        .command = command, .config = command->config, .comm = command->comm};
    snprintf(infer->path, sizeof infer->path, "%s", model);
    SP_TRY(share_head(infer));
    leave_norm(&infer->session, &infer->network.norm);
    return SP_OK;
}

sp_status sp_infer_open_net_beside(sp_infer *infer, const sp_infer *first)
{
    const sp_config *config = infer->session.config;
    const sp_backend *backend = &first->device.backend;

    assert(backend->ops);
    if (config->train.precision == SP_BF16 && backend->precision != SP_BF16)
        return SP_FAIL(SP_EUSAGE,
                       "%s computes in bf16, but %s does not: add train.precision=bf16 "
                       "to the command",
                       infer->path, first->path);
    sp_device_begin(&infer->device, config, infer->session.comm);
    infer->device.backend = *backend; /* shared: `first` closes it */
    return infer_open_finite(infer);
}

void sp_infer_close_beside(sp_infer *infer)
{
    infer_close_file(infer);
    sp_checkpoint_state_destroy(&infer->state);
    sp_network_close(&infer->network);
    sp_config_destroy(&infer->config);
}

/* ---- end ---- */

sp_status sp_infer_close(sp_infer *infer, sp_status rc)
{
    sp_session *s = &infer->session;

    infer_close_file(infer);
    if (infer->members)
        sp_members_close(infer->members);
    free(infer->members);
    sp_checkpoint_state_destroy(&infer->state);
    /* A table that was not printed is a failure, since it may be the only
     * result used. */
    if (rc == SP_OK)
        rc = sp_comm_agree(s->comm, sp_log_written());
    if (rc == SP_OK)
        rc = infer_say(s, "done", SP_OK, "");
    if (rc == SP_ELIMIT)
        rc = report_stop(s);
    sp_evaluator_close(&infer->evaluator);
    sp_session_end(s, rc, &infer->network, &infer->data, &infer->device);
    sp_config_destroy(&infer->config);
    return rc;
}
