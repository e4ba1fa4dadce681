/* `sptrain eval`, and sp_infer, which eval and predict share: a network from a
 * checkpoint. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "train/sp_evaluate.h"
#include "train/sp_infer.h"
#include "train/sp_train.h"
#include "train/sp_trainer.h"

/* Rank 0: the file of run.checkpoint, else best.h5, else the newest checkpoint. */
static sp_status find_checkpoint(const sp_session *s, char *path)
{
    const sp_config *config = s->config;
    char dir[PATH_MAX - 64];

    snprintf(path, PATH_MAX, "%s", config->run.checkpoint);
    if (path[0])
        return sp_checkpoint_verify_weights(path);
    snprintf(dir, sizeof dir, "%s/checkpoints", config->run.dir);
    snprintf(path, PATH_MAX, "%s/best.h5", dir);
    if (access(path, R_OK) == 0) {
        if (sp_checkpoint_verify(path) == SP_OK)
            return SP_OK;
        sp_log_warn0("damaged checkpoint skipped: %s", sp_error_last()->message);
    }
    SP_TRY(sp_checkpoint_find(dir, NULL, path, NULL));
    if (!path[0])
        return SP_FAIL(SP_EUSAGE, "%s: no checkpoint; name one by run.checkpoint=FILE",
                       dir);
    return SP_OK;
}

/* Rank 0: makes a config with the keys that describe the network from the checkpoint's
 * deck, unless the command line sets them, and all other keys from the user's. A family
 * on the command line replaces the checkpoint's layers as it replaces a deck's. */
static sp_status take_network(sp_infer *infer)
{
    static const char *const taken[] = {
        "net.layers",      "net.family",    "net.width",       "net.stem_kernel",
        "net.kernel_down", "data.features", "data.voxel_size", "train.label_smoothing"};
    const sp_config *user = infer->session.config;
    sp_config old;
    sp_status rc;

    SP_TRY(sp_checkpoint_config(&old, &infer->state, infer->path));
    rc = sp_config_copy(&infer->config, user);
    for (size_t i = sp_config_is_overridden(user, "net.family");
         rc == SP_OK && i < sizeof taken / sizeof *taken; i++)
        sp_config_take(&infer->config, &old, taken[i]);
    sp_config_destroy(&old);
    return rc;
}

/* Rank 0: reads config and feature statistics from the checkpoint. */
static sp_status read_head(sp_infer *infer)
{
    sp_session *s = &infer->session;

    SP_TRY(find_checkpoint(s, infer->path));
    SP_TRY(sp_checkpoint_read_state(infer->path, &infer->state, &s->norm));
    infer->is_checkpoint = infer->state.deck != NULL;
    return infer->is_checkpoint ? take_network(infer) : SP_OK;
}

/* Gives all ranks the head of the checkpoint. Collective, agreed. */
static sp_status share_head(sp_infer *infer)
{
    sp_session *s = &infer->session;
    sp_status rc = s->comm->rank == 0 ? read_head(infer) : SP_OK;

    SP_TRY(sp_session_agree(s, rc));
    SP_TRY(
        sp_comm_bcast(s->comm, &infer->is_checkpoint, sizeof infer->is_checkpoint, 0));
    if (infer->is_checkpoint) {
        SP_TRY(sp_config_bcast(&infer->config, s->comm, SP_OK));
        s->config = &infer->config;
    }
    SP_TRY(sp_normalization_bcast(&s->norm, s->comm));
    return sp_comm_bcast(s->comm, infer->path, sizeof infer->path, 0);
}

/* Opens the network with the class weights of the training, so that the loss is
 * comparable. */
static sp_status open_net(sp_session *s)
{
    float *weights;
    sp_status rc = sp_session_kept_class_weights(
        s, sp_config_is_overridden(s->config, "train.class_weights"), &weights);

    rc = sp_session_agree(s, rc);
    if (rc == SP_OK)
        rc = sp_session_open_net(s, weights);
    free(weights);
    return rc;
}

/* Checks columns and classes against the model, since a different order would mix them
 * up. Columns named on the command line are the user's responsibility. */
static sp_status match_data(sp_infer *infer)
{
    sp_session *s = &infer->session;

    if (!sp_config_is_overridden(s->config, "data.features"))
        SP_TRY(sp_session_match_columns(s, &s->val, &s->norm, infer->path, SP_EDATA));
    return sp_session_take_classes(s, &s->val, infer->path);
}

/* Settles the feature statistics. Those of the checkpoint are used, or none if it has
 * none, and the command line may switch them off. A file of weights alone does not say;
 * then the data's own are used, as in training. */
static sp_status settle_norm(sp_infer *infer)
{
    sp_session *s = &infer->session;
    sp_normalization *norm = &s->norm;

    if (!infer->is_checkpoint)
        return sp_session_agree(s, sp_session_normalize(s, &s->val));
    if (!s->config->data.normalize &&
        sp_config_is_overridden(s->config, "data.normalize")) {
        free(norm->mean);
        free(norm->std);
        norm->mean = norm->std = NULL;
    }
    if (norm->mean && norm->n_columns != s->n_columns)
        return SP_FAIL(SP_EDATA,
                       "%s: statistics of %d feature columns, data.val has %d",
                       infer->path, norm->n_columns, s->n_columns);
    sp_session_warn_far(s, &s->val);
    return SP_OK;
}

/* Writes the status of this task; the training's status.json is not touched. */
static sp_status say(sp_session *s, const char *state)
{
    sp_status rc = SP_OK;

    if (s->comm->rank == 0)
        rc = sp_run_status(&s->run, state, SP_OK, s->epoch, s->step, "");
    return sp_session_agree(s, rc);
}

sp_status sp_infer_open(sp_infer *infer, const sp_command *command)
{
    sp_session *s = &infer->session;

    memset(infer, 0, sizeof *infer);
    SP_TRY(sp_session_open(s, command, true));
    SP_TRY(say(s, "running"));
    SP_TRY(sp_session_open_device(s));
    SP_TRY(share_head(infer));
    SP_TRY(sp_session_open_data(s, false, true));
    SP_TRY(match_data(infer));
    SP_TRY(settle_norm(infer));
    SP_TRY(open_net(s));
    SP_TRY(sp_session_load(s, infer->path, NULL, NULL));
    SP_TRY(sp_comm_bcast(s->comm, &infer->state.step, sizeof infer->state.step, 0));
    SP_TRY(sp_comm_bcast(s->comm, &infer->state.at, sizeof infer->state.at, 0));
    s->epoch = infer->state.at.epoch;
    s->step = infer->state.step;
    SP_TRY(sp_session_agree(
        s, sp_evaluate_open(s, &s->val, &infer->sampler, &infer->loader)));
    return sp_session_cut(s, NULL, &infer->sampler);
}

sp_status sp_infer_close(sp_infer *infer, sp_status rc)
{
    if (!infer->session.is_alone) {
        sp_loader_destroy(infer->loader);
        sp_sampler_close(&infer->sampler);
        sp_checkpoint_state_destroy(&infer->state);
    }
    /* A table that was not printed is a failure, since it may be the only
     * result used. */
    if (rc == SP_OK)
        rc = sp_session_agree(&infer->session, sp_log_written());
    if (rc == SP_OK)
        rc = say(&infer->session, "done");
    rc = sp_session_close(&infer->session, rc);
    sp_config_destroy(&infer->config);
    return rc;
}

static sp_status evaluate(sp_infer *infer, sp_metrics *metrics)
{
    sp_session *s = &infer->session;

    if (!s->val.has_labels)
        return SP_FAIL(SP_EDATA,
                       "%s: /labels: expected for evaluation, found none "
                       "(sptrain predict needs none)",
                       s->val.shard[0].path);
    SP_TRY(sp_session_agree(
        s, sp_metrics_create(metrics, s->n_classes, s->val.has_points)));
    SP_TRY(sp_evaluate_pass(s, infer->loader, metrics));
    SP_TRY(sp_report_evaluation(s, metrics, infer->path));
    sp_report_table(s, metrics);
    return SP_OK;
}

sp_status sp_eval(const sp_command *command)
{
    sp_infer infer;
    sp_metrics metrics = {0};
    sp_status rc = sp_infer_open(&infer, command);

    if (rc == SP_OK) {
        sp_log_info("evaluating %s (step %lld) on %d rank%s: %s", infer.path,
                    (long long)infer.state.step, command->comm->size,
                    command->comm->size == 1 ? "" : "s", infer.session.device);
        rc = evaluate(&infer, &metrics);
    }
    sp_metrics_destroy(&metrics);
    return sp_infer_close(&infer, rc);
}
