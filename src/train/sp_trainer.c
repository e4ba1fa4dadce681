#include "train/sp_trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "h5/sp_h5.h"
#include "run/sp_saver.h"
#include "train/sp_evaluate.h"
#include "train/sp_output.h"
#include "train/sp_resume.h"
#include "train/sp_test.h"

static sp_status trainer_open_evaluation(sp_trainer *t)
{
    sp_resources *r = &t->resources;

    sp_status rc;

    t->is_evaluated =
        r->val.n_shards && r->val.has_labels && t->session->config->run.eval_every > 0;
    if (!t->is_evaluated)
        return SP_OK;
    SP_TRY(sp_resources_open_evaluation(r));
    rc = sp_metrics_create(&t->metrics, r->n_classes,
                           sp_evaluate_parts(r, &r->evaluation));
    if (rc == SP_OK && sp_optim_states[SP_OPTIM_STATE_EMA].is_kept(t->session->config))
        rc = sp_metrics_create(&t->averaged, r->n_classes,
                               sp_evaluate_parts(r, &r->evaluation));
    SP_TRY(sp_comm_agree(t->session->comm, rc));
    if (r->n_val_sets > 0)
        SP_TRY(sp_resources_open_val_sets(r, &r->evaluation.sampler));
    return sp_evaluate_open_sets(r, &t->sets);
}

/* Sets the length of the training from its state on. */
static void set_plan(sp_trainer *t)
{
    t->step_samples = t->resources.sampler.effective;
    t->epoch_samples = t->resources.train.n_samples;
    t->total_samples = sp_step_total_samples(&t->resources, &t->state);
}

sp_status sp_trainer_open(sp_trainer *t, const sp_command *command)
{
    sp_resources *r = &t->resources;
    sp_status rc;

    *t = (sp_trainer){.begin_s = sp_now_s(), .score = NAN, .memory_bytes = NAN};
    rc = sp_resources_open(r, command, true);
    t->session = r->session;
    SP_TRY(rc);
    SP_TRY(sp_resources_open_device(r));
    SP_TRY(sp_resources_open_transport(r));
    sp_output_machine(r);
    SP_TRY(sp_session_open_data(r, true, true));
    SP_TRY(sp_resources_check_labels(r));
    SP_TRY(sp_comm_agree(t->session->comm, sp_resources_check_mixing(r)));
    SP_TRY(sp_comm_agree(t->session->comm, sp_test_check(r)));
    SP_TRY(sp_comm_agree(t->session->comm, sp_resources_normalize(r, &r->train)));
    SP_TRY(sp_resources_open_trained_net(r));
    SP_TRY(sp_resources_open_training(r, sp_loader_slots(r->config)));
    SP_TRY(trainer_open_evaluation(t));
    SP_TRY(sp_resume_begin(t));
    set_plan(t);
    return sp_resume_is_complete(t) && !t->state.eval_due
               ? SP_OK
               : sp_resources_bound_memory(r);
}

sp_status sp_trainer_begin(sp_trainer *t)
{
    sp_resources *r = &t->resources;

    assert(r->net.impl && r->loader);
    t->first_epoch = t->state.at.epoch;
    sp_h5_keep_child(false); /* all files are open */
    SP_TRY(sp_loader_seek(r->loader, t->state.at));
    SP_TRY(sp_output_start(t));
    sp_output_header(t);
    SP_TRY(sp_output_notes(r, &r->sampler));
    sp_budgets_print(&r->budgets, r->memory.total);
    SP_TRY(sp_trainer_check_replicas(t)); /* compares the weights as loaded */
    sp_resume_prepare(t);
    return SP_OK;
}

sp_rates sp_trainer_rates(const sp_trainer *t)
{
    assert(t->step_samples > 0);
    return sp_optim_rates(t->session->config, t->state.samples_seen, t->total_samples,
                          t->step_samples);
}

int64_t sp_trainer_steps(const sp_trainer *t)
{
    const sp_config *config = t->session->config;
    int64_t steps;

    if (config->train.steps > 0)
        return config->train.steps;
    if (__builtin_mul_overflow(sp_sampler_steps_per_epoch(&t->resources.sampler),
                               (int64_t)config->train.epochs, &steps))
        return INT64_MAX;
    return steps;
}

/* The evaluations that are still to come: the whole training's less those made before
 * this start and in it. */
static double evals_left(const sp_trainer *t)
{
    const double every = t->session->config->run.eval_every;
    const double epochs = ceil((double)t->total_samples / (double)t->epoch_samples);

    if (!t->is_evaluated)
        return 0;
    return fmax(0, ceil(epochs / every) - floor((double)t->first_epoch / every) -
                       (double)t->n_evals);
}

double sp_trainer_left_s(const sp_trainer *t)
{
    const double pace = sp_pace_per_second(&t->pace);
    const double samples = (double)(t->total_samples - t->state.samples_seen);

    assert(t->state.samples_seen >= 0);
    if (t->total_samples == INT64_MAX || !(pace > 0))
        return NAN;
    return fmax(0, samples) / pace +
           (t->n_evals ? evals_left(t) * t->eval_s / (double)t->n_evals : 0);
}

sp_status sp_trainer_check_replicas(sp_trainer *t)
{
    const double begin = sp_now_s();
    sp_liveness before, after;
    sp_status rc;

    if (t->session->comm->size == 1)
        return SP_OK;
    sp_liveness_read(&before);
    rc = sp_resources_check_replicas(&t->resources, t->state.step);
    sp_liveness_read(&after);
    t->replica_s += sp_now_s() - begin - (after.waited_s - before.waited_s);
    return rc;
}

sp_status sp_trainer_close(sp_trainer *t, sp_status rc)
{
    sp_saver_destroy(t->saver);
    sp_metrics_destroy(&t->metrics);
    sp_metrics_destroy(&t->averaged);
    sp_evaluate_close_sets(&t->resources, t->sets);
    sp_checkpoint_state_destroy(&t->state);
    return sp_resources_close(&t->resources, rc);
}
