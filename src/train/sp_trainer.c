#include "train/sp_trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "api/sp_memory.h"
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
    sp_evaluator *e = &t->evaluator;
    const bool is_averaged = sp_optim_states[SP_OPTIM_STATE_EMA].is_kept(e->config);
    const int n_classes = t->network.n_classes;
    sp_status rc;

    t->is_evaluated =
        t->data.val.n_shards && t->data.val.has_labels && e->config->run.eval_every > 0;
    if (!t->is_evaluated)
        return SP_OK;
    SP_TRY(sp_evaluator_open(e, &t->data));
    rc = sp_metrics_create(&t->metrics, n_classes, sp_evaluate_parts(e, &e->val));
    if (rc == SP_OK && is_averaged)
        rc = sp_metrics_create(&t->averaged, n_classes, sp_evaluate_parts(e, &e->val));
    SP_TRY(sp_comm_agree(e->comm, rc));
    if (t->data.n_val_sets > 0)
        SP_TRY(sp_evaluator_open_sets(e, &t->data));
    return sp_evaluate_open_sets(e, &t->sets);
}

/* Opens device, data, network, optimizer and loaders, and finds the first step. */
static sp_status trainer_open_parts(sp_trainer *t)
{
    const sp_config *config = t->session.config;
    sp_comm *comm = t->session.comm;
    sp_device *device = &t->device;
    sp_data_sets *data = &t->data;
    sp_network *network = &t->network;
    sp_learner *learner = &t->learner;

    sp_learner_begin(learner, config, &data->train, network, &t->budgets);
    sp_evaluator_begin(&t->evaluator, config, comm, network, &t->budgets);
    t->evaluator.buckets = &learner->buckets;
    sp_evaluate_watch(&t->evaluator, &t->session);
    SP_TRY(sp_session_open_device(&t->session, device));
    SP_TRY(sp_device_open_transport(device));
    sp_output_machine(device);
    SP_TRY(sp_session_open_data(&t->session, data, network, true, true));
    SP_TRY(sp_comm_agree(comm, sp_test_check(config, &data->test)));
    SP_TRY(sp_learner_open(learner, device, data, sp_loader_slots(config)));
    SP_TRY(trainer_open_evaluation(t));
    SP_TRY(sp_resume_begin(t));
    t->total_samples = sp_step_total_samples(learner, &t->state);
    return sp_resume_is_complete(t) && !t->state.eval_due
               ? SP_OK
               : sp_memory_bound(&t->budgets, device, data, learner, &t->evaluator);
}

sp_status sp_trainer_open(sp_trainer *t, const sp_command *command)
{
    *t = (sp_trainer){.begin_s = sp_now_s(), .score = NAN, .memory_bytes = NAN};
    SP_TRY(sp_session_open(&t->session, command, true));
    return trainer_open_parts(t);
}

sp_status sp_trainer_begin(sp_trainer *t)
{
    assert(t->network.net.impl && t->learner.loader);
    t->first_epoch = t->state.at.epoch;
    sp_h5_keep_child(false); /* all files are open */
    SP_TRY(sp_loader_seek(t->learner.loader, t->state.at));
    SP_TRY(sp_output_start(t));
    sp_output_header(t);
    SP_TRY(sp_output_notes(&t->learner, t->session.comm, &t->data));
    sp_budgets_print(&t->budgets, t->device.memory.total);
    SP_TRY(sp_trainer_check_replicas(t)); /* compares the weights as loaded */
    sp_resume_prepare(t);
    return SP_OK;
}

int64_t sp_trainer_steps(const sp_trainer *t)
{
    const sp_config *config = t->session.config;
    int64_t steps;

    if (config->train.steps > 0)
        return config->train.steps;
    if (__builtin_mul_overflow(sp_sampler_steps_per_epoch(&t->learner.sampler),
                               (int64_t)config->train.epochs, &steps))
        return INT64_MAX;
    return steps;
}

/* The evaluations that are still to come: the whole training's less those made before
 * this start and in it. */
static double evals_left(const sp_trainer *t)
{
    const double every = t->session.config->run.eval_every;
    const double epochs =
        ceil((double)t->total_samples / (double)t->data.train.n_samples);

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

    if (t->session.comm->size == 1)
        return SP_OK;
    sp_liveness_read(&before);
    rc = sp_network_check_replicas(&t->network, t->state.step);
    sp_liveness_read(&after);
    t->replica_s += sp_now_s() - begin - (after.waited_s - before.waited_s);
    return rc;
}

sp_status sp_trainer_close(sp_trainer *t, sp_status rc)
{
    sp_saver_destroy(t->saver);
    sp_metrics_destroy(&t->metrics);
    sp_metrics_destroy(&t->averaged);
    sp_evaluate_close_sets(t->sets, t->data.n_val_sets);
    sp_checkpoint_state_destroy(&t->state);
    sp_learner_close_loader(&t->learner);
    sp_evaluator_close(&t->evaluator);
    sp_learner_close(&t->learner);
    return sp_session_end(&t->session, rc, &t->network, &t->data, &t->device);
}
