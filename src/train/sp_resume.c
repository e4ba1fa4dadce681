#include "train/sp_resume.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_scope.h"
#include "h5/sp_h5.h"
#include "run/sp_saver.h"
#include "train/sp_init.h"
#include "train/sp_session.h"

bool sp_resume_is_complete(const sp_trainer *trainer)
{
    return sp_step_is_last(trainer->session.config, &trainer->state);
}

/* ---- beginning ---- */

/* Logs the other keys that differ; these may change. */
static void log_changes(const sp_config *old, const sp_config *now)
{
    for (int i = 0; i < sp_config_n_keys(); i++) {
        const char *key = sp_config_key(i);
        char *a = sp_config_value(old, key), *b = sp_config_value(now, key);
        if (a && b && strcmp(a, b) != 0)
            sp_log_info("continuing with %s = %s (was %s)", key, b, a);
        free(a);
        free(b);
    }
}

/* The order of sums belongs to the processors, so a run may continue in another. */
static void warn_of_sums(const sp_config *old, const sp_config *now, const char *path)
{
    const sp_bf16_sums a = old->train.bf16_sums, b = now->train.bf16_sums;

    if (a != SP_SUMS_AUTO && b != SP_SUMS_AUTO && a != b)
        sp_log_warn0(
            "%s: the run summed in %s in bf16 and continues in %s: its last bits will "
            "differ from those of one run; train.bf16_sums=%s keeps them",
            path, sp_bf16_sums_word[a], sp_bf16_sums_word[b], sp_bf16_sums_word[a]);
}

/* Rank 0: checks that the checkpoint belongs to this deck and data. */
static sp_status resume_compare(const sp_learner *l, sp_device *device,
                                const sp_checkpoint_state *state,
                                const sp_normalization *norm, const char *path)
{
    SP_CLOSED_BY(sp_config_destroy) sp_config old = {0};
    sp_config now;

    SP_TRY(sp_learner_check_continued(l, device->comm, state, norm, path, &old));
    /* Steps are cut as they were, unless the deck bounds the memory itself. A check has
     * no backend. */
    if (device->memory_mb == 0 && device->backend.ops && !device->backend.ops->is_host)
        device->memory_mb = old.run.memory_mb;
    now = sp_device_resolved(device);
    log_changes(&old, &now);
    warn_of_sums(&old, &now, path);
    return SP_OK;
}

/* The beginning of the run, which rank 0 determines and broadcasts. */
typedef struct beginning {
    char path[PATH_MAX]; /* path of the checkpoint; "": no checkpoint */
    bool is_moving;      /* the folder's content is moved to old-NNN first */
    /* The checkpoint is of another folder: its metrics_bytes does not apply here. */
    bool is_foreign;
} beginning;

/* True if the file lies in the run folder's own checkpoints, or in a folder in there:
 * setting the run's files aside would move it away. Otherwise path [PATH_MAX] becomes
 * the path of the file itself, since a link to it may lie in there. */
static bool is_own(const char *dir, char *path)
{
    char own[PATH_MAX], *where = realpath(path, NULL), *folder;
    bool is_inside;
    size_t n;

    snprintf(own, sizeof own, "%s/checkpoints", dir);
    folder = realpath(own, NULL);
    n = folder ? strlen(folder) : 0;
    is_inside = where && folder && strncmp(where, folder, n) == 0 && where[n] == '/';
    if (where && !is_inside)
        snprintf(path, PATH_MAX, "%s", where);
    free(where);
    free(folder);
    return is_inside;
}

/* Rank 0: finds the checkpoint to continue from and compares it with the deck. */
static sp_status resume_choose(const sp_learner *l, sp_device *device, beginning *from)
{
    const sp_config *config = l->config;
    const sp_resume *resume = &config->run.resume;
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization norm = {0};
    char dir[PATH_MAX], *path = from->path;
    int n_damaged = 0;
    sp_h5 *file;
    sp_status rc;

    from->is_moving = resume->from == SP_RESUME_NEVER;
    if (from->is_moving)
        return SP_OK;
    if (resume->from == SP_RESUME_FILE) {
        snprintf(path, PATH_MAX, "%s", resume->text);
        from->is_foreign = from->is_moving = !is_own(config->run.dir, path);
        /* Verifies all of a whole checkpoint too. */
        SP_TRY(sp_checkpoint_open_weights(&file, path, SP_FINITE));
    } else {
        snprintf(dir, sizeof dir, "%s/checkpoints", config->run.dir);
        SP_TRY(sp_checkpoint_find(&file, dir, l->set, path, &n_damaged));
    }
    if (!file) {
        from->is_moving = n_damaged > 0;
        if (from->is_moving)
            sp_log_warn0("%s: every checkpoint is damaged: the run begins anew", dir);
        return SP_OK;
    }
    rc = sp_checkpoint_read_open_state(file, &state, &norm);
    sp_h5_close(file);
    SP_TRY(rc);
    SP_TRY(resume_compare(l, device, &state, &norm, path));
    /* The run folder would be left without a checkpoint. */
    if (from->is_foreign && sp_step_is_last(config, &state))
        return SP_FAIL(SP_EUSAGE,
                       "%s: step %lld, epoch %lld: nothing is left to train; raise "
                       "train.epochs or train.steps",
                       path, (long long)state.step,
                       (long long)sp_position_epochs(state.at));
    return SP_OK;
}

sp_status sp_resume_check(const sp_learner *learner, sp_device *device)
{
    sp_comm *comm = device->comm;
    beginning from = {0};

    return sp_comm_agree(comm, comm->rank == 0 ? resume_choose(learner, device, &from)
                                               : SP_OK);
}

static sp_status begin_fresh(sp_trainer *t)
{
    const sp_config *config = t->session.config;
    const sp_net *net = &t->network.net;
    sp_status rc = sp_init_check_keys(config);

    SP_TRY(rc);
    if (config->run.init_from[0])
        SP_TRY(sp_init_weights(&t->session, &t->network, &t->data.train));
    SP_TRY(sp_optim_begin_average(&t->learner.optim, net->param, net->running));
    if (t->session.comm->rank == 0)
        rc = sp_run_truncate_metrics(&t->session.run, 0);
    return sp_comm_agree(t->session.comm, rc);
}

/* Rank 0: renames checkpoints of later steps when the run goes back to an earlier one,
 * because the user names it or those after it are damaged. Under their names they would
 * be kept as the newest ones, in the place of those that come.
 * Without a valid best.h5 the next evaluated weights count as the best. */
static sp_status leave_later(sp_trainer *t, bool is_going_back)
{
    char dir[PATH_MAX];
    bool has_best;
    int n = 0;

    snprintf(dir, sizeof dir, "%s/checkpoints", t->session.run.dir);
    if (is_going_back)
        SP_TRY(sp_checkpoint_set_newer_aside(dir, t->state.step, &n));
    if (n > 0)
        sp_log_info("%s: %d checkpoint%s of later steps renamed to *.old", dir, n,
                    sp_plural(n));
    SP_TRY(sp_checkpoint_check_best(dir, t->state.step, &has_best));
    if (!has_best)
        t->state.best = NAN;
    return SP_OK;
}

/* A score on other validation data says nothing about this start's scores. */
static void check_best_data(sp_trainer *t, uint64_t hash)
{
    const uint64_t before = t->state.val_hash;

    if (!t->is_evaluated)
        return;
    if (before && before != hash && !isnan(t->state.best)) {
        sp_log_info("data.val has changed since the best mIoU so far (%.4f): the best "
                    "score begins anew",
                    t->state.best);
        t->state.best = NAN;
    }
    t->state.val_hash = hash;
}

static sp_status begin_from(sp_trainer *t, const beginning *from)
{
    sp_session *s = &t->session;
    sp_network *network = &t->network;
    const char *path = from->path;
    sp_status rc = SP_OK;

    SP_TRY(sp_session_load(s, network,
                           &(sp_weights_source){.path = path,
                                                .state = &t->state,
                                                .optim = &t->learner.optim}));
    if (network->fault[0]) /* no training leads from such weights to finite ones */
        return SP_FAIL(SP_EDATA,
                       "%s:%s, expected a finite number: its training had diverged",
                       path, network->fault);
    SP_TRY(sp_init_norm_of(s, network, path));
    if (s->comm->rank == 0)
        rc = leave_later(t, !from->is_foreign);
    SP_TRY(sp_comm_agree(s->comm, rc));
    SP_TRY(sp_comm_bcast(s->comm, &t->state.best, sizeof t->state.best, 0));
    check_best_data(t, t->data.val.hash);
    if (from->is_foreign) {
        t->state.metrics_bytes = 0;
        sp_log_info("%s is of another run folder: metrics.jsonl begins anew", path);
    }
    t->is_resumed = true;
    t->first_step = t->state.step;
    s->epoch = sp_position_epochs(t->state.at);
    s->step = network->step = t->state.step;
    if (!sp_resume_is_complete(t) || t->state.eval_due)
        sp_log_info("continuing from %s: step %lld, epoch %lld", path,
                    (long long)s->step, (long long)s->epoch);
    return SP_OK;
}

sp_status sp_resume_begin(sp_trainer *trainer)
{
    sp_session *s = &trainer->session;
    sp_device *device = &trainer->device;
    beginning from = {0};
    sp_status rc = SP_OK;

    assert(trainer->network.net.impl && trainer->learner.optim.impl);
    trainer->state.best = NAN;
    trainer->state.seed = s->config->train.seed;
    trainer->state.data_hash = trainer->data.train.hash;
    trainer->state.val_hash = trainer->is_evaluated ? trainer->data.val.hash : 0;
    if (s->comm->rank == 0)
        rc = resume_choose(&trainer->learner, device, &from);
    SP_TRY(sp_comm_agree(s->comm, rc));
    SP_TRY(sp_comm_bcast(s->comm, &from, sizeof from, 0));
    SP_TRY(sp_comm_bcast(s->comm, &device->memory_mb, sizeof device->memory_mb, 0));
    if (from.is_moving) {
        SP_TRY(sp_run_set_aside(&s->run));
        SP_TRY(sp_session_open_log(s)); /* the old log has been moved */
    }
    return from.path[0] ? begin_from(trainer, &from) : begin_fresh(trainer);
}

/* ---- saving ---- */

/* Rank 0: collects the result of the last post, if there is one. The best score counts
 * from then on, if its weights are on disk. */
static sp_status resume_collect(sp_trainer *t, bool is_waiting, sp_saved *saved)
{
    sp_session *s = &t->session;
    char path[PATH_MAX];

    saved->rc = SP_OK;
    if (!t->saver || !sp_saver_collect(t->saver, is_waiting, saved))
        return SP_OK;
    t->write_s += saved->write_s;
    t->write_cpu_s += saved->cpu_s;
    if (!isnan(saved->best))
        t->state.best = saved->best;
    if (saved->rc != SP_OK)
        return sp_error_raise(&saved->error);
    sp_run_after_save(&s->run, s->config->run.after_save, saved->path);
    if (!isnan(saved->best))
        sp_run_after_save(&s->run, s->config->run.after_save,
                          sp_file_in(s->run.dir, "checkpoints/best.h5", path));
    return SP_OK;
}

static void tell_unsaved(int64_t step)
{
    sp_log_error(sp_error_last());
    sp_log_warn0("no checkpoint of step %lld was written; the run goes on, and "
                 "earlier checkpoints are as they were",
                 (long long)step);
}

/* The same, but a failure is only a warning: the run goes on. */
static void settle(sp_trainer *t, bool is_waiting)
{
    sp_saved saved;

    if (resume_collect(t, is_waiting, &saved) != SP_OK)
        tell_unsaved(saved.step);
}

void sp_resume_poll(sp_trainer *trainer)
{
    settle(trainer, false);
}

sp_status sp_resume_agree_best(sp_trainer *trainer)
{
    settle(trainer, true);
    return sp_comm_bcast(trainer->session.comm, &trainer->state.best,
                         sizeof trainer->state.best, 0);
}

void sp_resume_await(sp_trainer *trainer)
{
    if (!trainer->saver || !sp_saver_reads(trainer->saver))
        return;
    sp_session_beat(&trainer->session, SP_PHASE_SAVE);
    sp_saver_await(trainer->saver);
}

/* Rank 0: starts the saver unless it runs. */
static sp_status open_saver(sp_trainer *t)
{
    sp_status rc;

    if (t->saver)
        return SP_OK;
    rc = sp_saver_create(&t->saver, &t->session.run, &t->network.net, &t->learner.optim,
                         &t->network.norm, t->session.config->run.keep);
    if (rc != SP_OK) {
        sp_saver_destroy(t->saver);
        t->saver = NULL;
    }
    return rc;
}

void sp_resume_prepare(sp_trainer *trainer)
{
    if (trainer->session.comm->rank == 0 && open_saver(trainer) != SP_OK)
        sp_log_error(sp_error_last()); /* the next save tries again */
}

/* Rank 0: posts the present state, when the post before it is written. */
static sp_status post(sp_trainer *t, bool is_best)
{
    const sp_config resolved = sp_device_resolved(&t->device);
    sp_checkpoint_state state;
    sp_status rc;

    SP_TRY(open_saver(t));
    settle(t, true);
    /* A checkpoint counts on the lines before it. */
    SP_TRY(sp_run_deliver(&t->session.run));
    state = t->state;
    state.groups = sp_learner_groups(&t->learner);
    if (is_best)
        state.best = t->score;
    SP_TRY(sp_config_to_text(&resolved, &state.deck));
    rc = sp_saver_post(t->saver, &state, is_best);
    free(state.deck);
    return rc;
}

sp_status sp_resume_save(sp_trainer *trainer, bool is_best, bool is_final)
{
    sp_session *s = &trainer->session;
    double begin = sp_now_s();
    sp_status rc = SP_OK;
    sp_saved saved;

    assert(trainer->network.net.impl && trainer->state.step >= 0);
    sp_session_beat(s, SP_PHASE_SAVE);
    if (s->comm->rank == 0)
        rc = post(trainer, is_best);
    if (s->comm->rank == 0 && is_final && rc == SP_OK)
        rc = resume_collect(trainer, true, &saved); /* its failure is the run's */
    if (rc != SP_OK && !is_final)
        tell_unsaved(s->step); /* no memory, or no room: the run goes on */
    rc = is_final ? sp_comm_agree(s->comm, rc) : SP_OK;
    if (is_final)
        trainer->save_last_s = sp_now_s() - begin;
    else
        trainer->save_s += sp_now_s() - begin;
    return rc;
}
