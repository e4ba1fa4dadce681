#include "train/sp_infer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "h5/sp_h5.h"
#include "train/sp_members.h"
#include "weights/sp_packed.h"

/* Rank 0: opens the file that path names, which may be a run folder; else
 * run.checkpoint, else a checkpoint of run.dir. */
static sp_status open_checkpoint(sp_infer *infer)
{
    const sp_config *config = infer->resources.config;
    char folder[PATH_MAX], *path = infer->path;
    struct stat st;

    assert(!infer->file);
    if (path[0] && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(folder, sizeof folder, "%s", path);
        return sp_checkpoint_open_run(&infer->file, folder,
                                      "name a run that has one, or a file", path);
    }
    if (!path[0])
        snprintf(path, PATH_MAX, "%s", config->run.checkpoint);
    if (path[0] && sp_packed_is(path))
        return sp_packed_read(&infer->packed, path);
    if (path[0])
        return sp_checkpoint_open_weights(&infer->file, path, SP_INTACT);
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
    const sp_session *s = infer->resources.session;
    char *old, *now;
    sp_status rc = SP_OK;

    if (!s->command->is_default_deck || sp_config_is_overridden(s->config, "data.val"))
        return SP_OK;
    old = sp_config_value(model, "data.val");
    now = sp_config_value(s->config, "data.val");
    if (old && now && strcmp(old, now) != 0)
        rc = SP_FAIL(SP_EUSAGE,
                     "%s was trained with data.val = %s, %s has %s: name a deck (a "
                     "run's deck is its deck.resolved) or give data.val=FILES",
                     infer->path, old, s->command->deck, now);
    free(old);
    free(now);
    return rc;
}

/* Rank 0: makes a config. The keys that describe the network, and the augmentation that
 * it was trained with (which views it knows), come from the checkpoint's deck unless
 * the command line sets them. All other keys come from the user's deck. A family on the
 * command line replaces the checkpoint's layers as it replaces a deck's. */
static sp_status take_network(sp_infer *infer)
{
    const sp_config *user = infer->resources.config;
    const bool has_family = sp_config_is_overridden(user, "net.family");
    const char *const *key = sp_config_kept_by_model;
    sp_config old;
    sp_status rc;

    SP_TRY(sp_checkpoint_config(&old, &infer->state, infer->path));
    rc = refuse_default_data(infer, &old);
    if (rc == SP_OK)
        rc = infer_name_columns(&old, &infer->resources.norm);
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
static sp_status infer_take_packed(sp_infer *infer)
{
    sp_resources *r = &infer->resources;
    const sp_precision want = infer->packed.config.train.precision;

    infer->state = infer->packed.state;
    r->norm = infer->packed.norm;
    infer->packed.state = (sp_checkpoint_state){0};
    infer->packed.norm = (sp_normalization){0};
    infer->is_checkpoint = true;
    if (want == SP_BF16 && r->backend.ops && r->backend.precision != want)
        return SP_FAIL(SP_EUSAGE,
                       "%s computes in bf16: add train.precision=bf16 to the command",
                       infer->path);
    SP_TRY(take_network(infer));
    if (want == SP_BF16)
        infer->config.train.precision = want;
    return SP_OK;
}

/* Rank 0: reads config and feature statistics from the checkpoint. */
static sp_status infer_read_head(sp_infer *infer)
{
    sp_resources *r = &infer->resources;

    SP_TRY(open_checkpoint(infer));
    if (!infer->file)
        return infer_take_packed(infer);
    SP_TRY(sp_checkpoint_read_open_state(infer->file, &infer->state, &r->norm));
    infer->is_checkpoint = infer->state.deck != NULL;
    return infer->is_checkpoint ? take_network(infer) : SP_OK;
}

/* Gives all ranks the head of the checkpoint. Collective, agreed. */
static sp_status share_head(sp_infer *infer)
{
    sp_resources *r = &infer->resources;
    sp_session *s = r->session;
    sp_status rc = s->comm->rank == 0 ? infer_read_head(infer) : SP_OK;

    SP_TRY(sp_comm_agree(s->comm, rc));
    SP_TRY(
        sp_comm_bcast(s->comm, &infer->is_checkpoint, sizeof infer->is_checkpoint, 0));
    if (infer->is_checkpoint) {
        SP_TRY(sp_config_bcast(&infer->config, s->comm, SP_OK));
        s->config = infer->resources.config = &infer->config;
    }
    SP_TRY(sp_normalization_bcast(&r->norm, s->comm));
    return sp_comm_bcast(s->comm, infer->path, sizeof infer->path, 0);
}

/* Opens the network with the class weights of the training, so that the loss is
 * comparable. */
static sp_status infer_open_net(sp_resources *r)
{
    float *weights;
    sp_status rc = sp_resources_kept_class_weights(
        r, sp_config_is_overridden(r->config, "train.class_weights"), &weights);

    rc = sp_comm_agree(r->comm, rc);
    if (rc == SP_OK)
        rc = sp_resources_open_net(r, weights, true);
    free(weights);
    return rc;
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
        &infer->resources,
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
    sp_resources *r = &infer->resources;

    if (!has_other_names(r->config, &r->norm))
        SP_TRY(sp_resources_match_columns(r, &r->val, &r->norm, infer->path, SP_EDATA));
    SP_TRY(sp_dataset_match_recipe(&r->val, r->norm.recipe, infer->path));
    return sp_resources_take_classes(r, &r->val, infer->path);
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
    sp_resources *r = &infer->resources;
    sp_normalization *norm = &r->norm;

    if (!infer->is_checkpoint)
        return sp_comm_agree(r->comm, sp_resources_normalize(r, &r->val));
    leave_norm(r->session, norm);
    if (norm->mean && norm->n_columns != r->n_columns)
        return SP_FAIL(SP_EDATA,
                       "%s: statistics of %d feature columns, data.val has %d",
                       infer->path, norm->n_columns, r->n_columns);
    sp_resources_warn_far(r, &r->val);
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
    bool is_there = command->comm->rank > 0 || access(from, F_OK) == 0;

    SP_TRY(sp_comm_bcast(command->comm, &is_there, sizeof is_there, 0));
    SP_TRY(sp_resources_open(&infer->resources, command, is_there));
    if (is_there)
        return SP_OK;
    SP_TRY(sp_comm_agree(command->comm,
                         command->comm->rank == 0 ? open_checkpoint(infer) : SP_OK));
    infer_close_file(infer); /* it has come meanwhile */
    return sp_session_open_folder(infer->resources.session);
}

/* Opens the heads of eval.members. The columns' names are the data's. */
static sp_status infer_open_members(sp_infer *infer)
{
    sp_resources *r = &infer->resources;
    const sp_strings *models = &r->config->eval.members;
    char **column = calloc((size_t)r->n_columns + 1, sizeof *column);
    sp_status rc = SP_OK;

    if (models->n > SP_MOST_MEMBERS)
        rc = SP_FAIL(SP_EUSAGE, "%seval.members: %d models, expected at most %d",
                     sp_config_where(r->config, "eval.members"), models->n,
                     SP_MOST_MEMBERS);
    r->members = models->n > 0 ? calloc(1, sizeof *r->members) : NULL;
    if (rc == SP_OK && (!column || (models->n > 0 && !r->members)))
        rc = SP_FAIL(SP_EMEM, "no memory for %d models", models->n);
    rc = sp_comm_agree(r->comm, rc);
    for (int i = 0; rc == SP_OK && i < r->n_columns; i++)
        column[i] = r->val.feature_name[r->columns[i]];
    if (rc == SP_OK && r->members)
        rc = sp_members_open(r->members, infer, column, models->n, models->at);
    free(column);
    return rc;
}

static sp_status infer_open_member_nets(sp_infer *infer)
{
    sp_resources *r = &infer->resources;

    if (!r->members)
        return SP_OK;
    SP_TRY(sp_members_open_nets(r->members, &r->val, &r->evaluation.views));
    for (int k = 0; k < r->members->n; k++)
        sp_log_info("averaging with %s", sp_members_path(r->members, k));
    return SP_OK;
}

sp_status sp_infer_open(sp_infer *infer, const sp_command *command, bool with_sets)
{
    sp_resources *r = &infer->resources;
    sp_session *s;

    memset(infer, 0, sizeof *infer);
    SP_TRY(open_session(infer, command));
    s = r->session;
    SP_TRY(infer_say(s, "running", SP_OK, ""));
    SP_TRY(sp_resources_open_device(r));
    SP_TRY(share_head(infer));
    SP_TRY(sp_session_open_data(r, false, true));
    if (with_sets)
        SP_TRY(sp_resources_open_set_data(r));
    SP_TRY(infer_match_data(infer));
    SP_TRY(choose_norm(infer));
    SP_TRY(infer_open_members(infer));
    SP_TRY(infer_open_net(r));
    SP_TRY(load_weights(infer));
    SP_TRY(sp_comm_bcast(s->comm, &infer->state.step, sizeof infer->state.step, 0));
    SP_TRY(sp_comm_bcast(s->comm, &infer->state.at, sizeof infer->state.at, 0));
    s->epoch = sp_position_epochs(infer->state.at);
    s->step = r->step = infer->state.step;
    SP_TRY(sp_resources_open_evaluation(r));
    if (r->n_val_sets > 0)
        SP_TRY(sp_resources_open_val_sets(r, &r->evaluation.sampler));
    SP_TRY(infer_open_member_nets(infer));
    SP_TRY(sp_resources_bound_memory(r));
    sp_budgets_print(&r->budgets, r->memory.total);
    return SP_OK;
}

sp_status sp_infer_open_model(sp_infer *infer, const sp_command *command,
                              const char *model)
{
    assert(model && model[0]);
    memset(infer, 0, sizeof *infer);
    SP_TRY(sp_resources_open(&infer->resources, command, false));
    snprintf(infer->path, sizeof infer->path, "%s", model);
    SP_TRY(share_head(infer));
    leave_norm(infer->resources.session, &infer->resources.norm);
    return SP_OK;
}

static sp_status infer_refuse_fault(const sp_infer *infer)
{
    const sp_resources *r = &infer->resources;

    return r->fault[0] ? SP_FAIL(SP_ENUMERIC, "%s: its weights are not finite: %s",
                                 infer->path, r->fault)
                       : SP_OK;
}

sp_status sp_infer_open_net(sp_infer *infer)
{
    sp_resources *r = &infer->resources;

    assert(r->columns && r->class_name);
    SP_TRY(infer_say(r->session, "running", SP_OK, ""));
    SP_TRY(sp_resources_open_device(r));
    SP_TRY(infer_open_net(r));
    SP_TRY(load_weights(infer));
    return infer_refuse_fault(infer);
}

sp_status sp_infer_open_single(sp_infer *infer, const sp_dataset *set,
                               const sp_views *views, const sp_doubles *range,
                               sp_single_batch **single)
{
    sp_resources *r = &infer->resources;
    const sp_loader_options options = {.set = set,
                                       .config = r->config,
                                       .spec = &r->graph.spec,
                                       .backend = &r->backend,
                                       .columns = r->columns,
                                       .n_columns = r->n_columns,
                                       .mean = r->norm.mean,
                                       .std = r->norm.std,
                                       .vectors = r->vectors,
                                       .view = views->at,
                                       .n_views = views->n,
                                       .range = range};

    return sp_single_batch_create(single, &options);
}

/* ---- further models ---- */

sp_status sp_infer_open_beside(sp_infer *infer, const sp_infer *first,
                               const char *model)
{
    const sp_command *command = first->resources.session->command;
    sp_resources *r = &infer->resources;
    sp_status rc;

    assert(model && model[0]);
    memset(infer, 0, sizeof *infer);
    sp_resources_begin(r, command->config, command->comm);
    r->session = calloc(1, sizeof *r->session);
    rc = r->session ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a model");
    SP_TRY(sp_comm_agree(command->comm, rc));
    SP_TRY(sp_session_open(r->session, command, false));
    snprintf(infer->path, sizeof infer->path, "%s", model);
    SP_TRY(share_head(infer));
    leave_norm(r->session, &r->norm);
    return SP_OK;
}

sp_status sp_infer_open_net_beside(sp_infer *infer, const sp_infer *first)
{
    sp_resources *r = &infer->resources;
    const sp_backend *backend = &first->resources.backend;

    assert(r->columns && r->class_name && backend->ops);
    if (r->config->train.precision == SP_BF16 && backend->precision != SP_BF16)
        return SP_FAIL(SP_EUSAGE,
                       "%s computes in bf16, but %s does not: add train.precision=bf16 "
                       "to the command",
                       infer->path, first->path);
    r->backend = *backend; /* shared: `first` closes it */
    SP_TRY(infer_open_net(r));
    SP_TRY(load_weights(infer));
    return infer_refuse_fault(infer);
}

void sp_infer_close_beside(sp_infer *infer)
{
    sp_resources *r = &infer->resources;

    infer_close_file(infer);
    sp_checkpoint_state_destroy(&infer->state);
    if (!r->session)
        return;
    sp_resources_end_work(r);
    sp_net_destroy(&r->net);
    r->backend.ops = NULL;
    sp_resources_free(r);
    free(r->session);
    sp_config_destroy(&infer->config);
}

/* ---- end ---- */

sp_status sp_infer_close(sp_infer *infer, sp_status rc)
{
    sp_session *s = infer->resources.session;

    infer_close_file(infer);
    if (infer->resources.members)
        sp_members_close(infer->resources.members);
    free(infer->resources.members);
    infer->resources.members = NULL;
    sp_checkpoint_state_destroy(&infer->state);
    /* A table that was not printed is a failure, since it may be the only
     * result used. */
    if (rc == SP_OK)
        rc = sp_comm_agree(s->comm, sp_log_written());
    if (rc == SP_OK)
        rc = infer_say(s, "done", SP_OK, "");
    if (rc == SP_ELIMIT)
        rc = report_stop(s);
    rc = sp_resources_close(&infer->resources, rc);
    sp_config_destroy(&infer->config);
    return rc;
}
