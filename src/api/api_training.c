#include <math.h>

#include "api/api.h"

int sp_training_is_done(const sp_training *t)
{
    return !t || sp_step_is_last(&t->config, &t->state);
}

/* ---- a step ---- */

static sp_status training_begin_part(void *arg, sp_step_part part,
                                     const sp_batch *batch)
{
    const sp_training *t = arg;

    if (part == SP_STEP_LOSS && t->options.loss && batch->n_micro > 1)
        return SP_FAIL(
            SP_EUSAGE,
            "the step has %d micro-batches on each rank: a loss of the program "
            "needs steps of one; use fewer samples, batch.voxel_budget=0 or "
            "more memory (run.memory_mb)",
            batch->n_micro);
    return SP_OK;
}

static bool training_is_stop_asked(void *arg)
{
    const sp_training *t = arg;

    return t->options.hooks.should_stop &&
           t->options.hooks.should_stop(t->options.hooks.arg);
}

static sp_status training_run_step(sp_training *t, sp_step_info *info)
{
    const sp_step_hooks hooks = {.begin = training_begin_part,
                                 .is_stop_asked = training_is_stop_asked,
                                 .arg = t};
    const sp_rates rates =
        sp_optim_rates(&t->config, t->state.samples_seen, t->total_samples,
                       t->learner.sampler.effective);
    sp_step_result result;
    sp_status rc;

    if (sp_training_is_done(t))
        return SP_FAIL(SP_EUSAGE,
                       "all steps of the deck are done: raise train.epochs or "
                       "train.steps");
    rc = sp_step_run(&t->learner, rates, &hooks, &result);
    SP_TRY(sp_step_explain(&t->learner, rc, &result));
    *info = (sp_step_info){.epoch = t->state.at.epoch,
                           .loss = result.loss,
                           .grad_norm = result.grad_norm,
                           .lr = rates.lr,
                           .is_skipped = result.is_skipped,
                           .is_stopping = result.is_stopping};
    info->is_epoch_end = sp_step_advance(&t->state, &result, t->data.train.n_samples);
    info->step = t->network.step = t->state.step;
    info->samples = t->state.samples_seen;
    return sp_step_check_numbers(&t->config, &t->state);
}

int sp_training_step(sp_training *t, sp_step_info *info)
{
    api_caller before;
    sp_step_info own;
    sp_status rc;

    API_NEED(t, "training");
    before = api_enter(t);
    rc = training_run_step(t, &own);
    if (rc == SP_OK && info)
        *info = own;
    if (rc == SP_OK && t->options.hooks.step_end)
        t->options.hooks.step_end(t->options.hooks.arg, &own);
    return api_leave(before, rc);
}
