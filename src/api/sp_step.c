#include "api/sp_step.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "api/sp_learner.h"
#include "base/sp_log.h"

/* The status of `call`, which a profiler shows under a name. */
#define in_range(l, name, call)                                                        \
    (sp_range_begin((l)->optim.backend, (name)), end_range((l), (call)))

static sp_status end_range(const sp_learner *l, sp_status rc)
{
    sp_range_end(l->optim.backend);
    return rc;
}

static sp_status step_compute(sp_learner *l, const sp_batch *batch,
                              const sp_step_hooks *hooks)
{
    sp_net *net = &l->network->net;
    const bool is_last = batch->micro == batch->n_micro - 1;

    SP_TRY(hooks->begin(hooks->arg, SP_STEP_FORWARD, batch));
    SP_TRY(in_range(l, "forward", sp_net_forward(net, batch, true, NULL)));
    SP_TRY(hooks->begin(hooks->arg, SP_STEP_LOSS, batch));
    SP_TRY(in_range(l, "loss", sp_net_train_loss(net, batch, &l->buckets)));
    l->buckets.tail.n_voxels += batch->n;
    SP_TRY(hooks->begin(hooks->arg, SP_STEP_BACKWARD, batch));
    SP_TRY(in_range(l, "backward", sp_net_backward(net, batch, &l->buckets, is_last)));
    return hooks->begin(hooks->arg, SP_STEP_RECYCLE, batch);
}

static sp_status micro_step(sp_learner *l, const sp_step_hooks *hooks,
                            sp_step_result *result, bool *is_last)
{
    sp_batch *batch;
    double waited;
    sp_status rc;

    SP_TRY(hooks->begin(hooks->arg, SP_STEP_READ, NULL));
    rc = sp_loader_next(l->loader, &batch, &waited);
    if (rc == SP_OK) {
        assert(batch->micro < batch->n_micro);
        assert(batch->micro == 0 || batch->position == result->at.position);
        *is_last = batch->micro == batch->n_micro - 1;
        result->at = (sp_position){batch->epoch, batch->position};
        result->data_wait_s += waited;
        result->n_samples = batch->step_samples;
        result->n_micro = batch->n_micro;
        result->cost_max += batch->cost_max;
        result->cost_sum += batch->cost_sum;
        rc = step_compute(l, batch, hooks);
    }
    result->batch = batch;
    SP_TRY(rc);
    return sp_loader_recycle(l->loader, batch);
}

static sp_status api_step_update(sp_learner *l, sp_rates rates, sp_step_result *result)
{
    const sp_tail *tail = &l->buckets.tail;

    result->loss = tail->weight_sum > 0 && isfinite(tail->weight_sum)
                       ? tail->loss_sum / tail->weight_sum
                       : NAN;
    if (isnan(result->loss))
        result->loss = NAN; /* without the sign that sums may give it, to be printed */
    result->sum = *tail;
    result->is_stopping = tail->n_stop > 0;
    result->updates = l->optim.t;
    if (tail->weight_sum == 0)
        return SP_OK;
    result->grad_norm = NAN;
    if (isfinite(result->loss))
        SP_TRY(sp_optim_update(&l->optim, &l->network->net, &l->buckets, rates,
                               &result->grad_norm));
    result->is_updated = isfinite(result->loss) && isfinite(result->grad_norm);
    result->is_skipped = !result->is_updated;
    result->updates = l->optim.t;
    return SP_OK;
}

static sp_status step_run_whole(sp_learner *l, sp_rates rates,
                                const sp_step_hooks *hooks, sp_step_result *result)
{
    sp_net *net = &l->network->net;
    bool is_last = false;

    assert(rates.lr >= 0 && hooks && result);
    assert(hooks->begin);
    assert(net->impl && l->loader && l->optim.impl && l->buckets.impl);
    *result = (sp_step_result){0};
    sp_net_regain(net);
    SP_TRY(sp_buckets_begin(&l->buckets));
    while (!is_last)
        SP_TRY(micro_step(l, hooks, result, &is_last));
    l->buckets.tail.n_stop += hooks->is_stop_asked && hooks->is_stop_asked(hooks->arg);
    SP_TRY(hooks->begin(hooks->arg, SP_STEP_REDUCE, NULL));
    SP_TRY(in_range(l, "reduce", sp_bucket_wait(&l->buckets, &result->comm_exposed_s)));
    SP_TRY(hooks->begin(hooks->arg, SP_STEP_UPDATE, NULL));
    SP_TRY(sp_net_fetch_running(net));
    SP_TRY(in_range(l, "update", api_step_update(l, rates, result)));
    /* Running statistics are averaged over the ranks after every step and not only
     * before saving, so that neither a checkpoint nor a stop changes the following
     * steps. With bn_scope = "world" they are equal already. */
    SP_TRY(sp_net_sync_running(net));
    if (result->is_updated)
        SP_TRY(sp_optim_average(&l->optim, net->param, net->running, rates.keep));
    return hooks->begin(hooks->arg, SP_STEP_END, NULL);
}

sp_status sp_step_run(sp_learner *l, sp_rates rates, const sp_step_hooks *hooks,
                      sp_step_result *result)
{
    return in_range(l, "step", step_run_whole(l, rates, hooks, result));
}

sp_status sp_step_explain(const sp_learner *l, sp_status rc,
                          const sp_step_result *result)
{
    if (rc != SP_EMEM || !result->batch)
        return rc;
    return sp_budgets_explain(l->budgets, &l->budgets->train, result->batch->sample_id,
                              result->batch->n_reads);
}

/* Words the sample's feature of largest size, in the network's scale; "" if the sample
 * cannot be read. A batch norm makes the losses of all samples of a batch non-finite;
 * this shows which one is at fault. */
static void word_largest(const sp_learner *l, int64_t id, char *text, size_t room)
{
    const sp_sample_request request = {.columns = l->network->columns,
                                       .n_columns = l->network->n_columns};
    const double *mean = l->network->norm.mean, *std = l->network->norm.std;
    sp_sample sample = {0};
    double largest = -1;

    text[0] = 0;
    if (sp_sample_read(l->set, id, &request, &sample) == SP_OK)
        for (int64_t i = 0; i < sample.n * l->network->n_columns; i++) {
            const int c = (int)(i % l->network->n_columns);
            const double x =
                mean ? (sample.features[i] - mean[c]) / std[c] : sample.features[i];

            if (fabs(x) <= largest)
                continue;
            largest = fabs(x);
            snprintf(text, room, "; its features reach %.3g (%s)", x,
                     l->set->feature_name[l->network->columns[c]]);
        }
    sp_sample_destroy(&sample);
}

/* Names a sample by its number in its file; `what` is its description. */
static void warn_of_sample(const sp_learner *l, int64_t step, const char *what,
                           int64_t id)
{
    const sp_dataset *set = l->set;
    const sp_shard *shard = &set->shard[sp_dataset_shard_of(set, id)];
    char largest[256];

    word_largest(l, id, largest, sizeof largest);
    sp_log_warn("step %lld: %s sample %lld of %s%s%s%s", (long long)step, what,
                (long long)(id - shard->first_sample), shard->path,
                set->has_names ? ": " : "", sp_dataset_name(set, id), largest);
}

sp_status sp_step_name_samples(sp_learner *l, int64_t step, int64_t epoch)
{
    int64_t partner;
    const double(*loss)[2];
    const int64_t *id;
    int n;

    assert(step >= 0);
    SP_TRY(sp_net_sample_losses(&l->network->net, &n, &id, &loss));
    for (int i = 0; i < n; i++)
        if (id[i] >= 0 && !(isfinite(loss[i][0]) && isfinite(loss[i][1]))) {
            warn_of_sample(l, step, "non-finite loss of", id[i]);
            partner = sp_sampler_partner(&l->sampler, epoch, id[i]);
            if (partner >= 0)
                warn_of_sample(l, step, "mixed into it is", partner);
        }
    return SP_OK;
}

/* ---- the place in the training ---- */

bool sp_step_advance(sp_checkpoint_state *state, const sp_step_result *result,
                     int64_t epoch_samples)
{
    bool is_end;

    assert(result->at.epoch == state->at.epoch &&
           result->at.position == state->at.position);
    state->step++;
    state->samples_seen += result->n_samples;
    state->at.position += result->n_samples;
    is_end = state->at.position >= epoch_samples;
    if (is_end)
        state->at = (sp_position){.epoch = state->at.epoch + 1, .position = 0};
    state->updates = result->updates;
    if (result->is_updated)
        state->skipped = 0;
    state->skipped += result->is_skipped;
    return is_end;
}

/* All ranks have counted the same, so they fail together. */
sp_status sp_step_check_numbers(const sp_config *config,
                                const sp_checkpoint_state *state)
{
    const int limit = config->train.nonfinite_limit;

    if (limit <= 0 || state->skipped < limit)
        return SP_OK;
    return SP_FAIL(
        SP_ENUMERIC,
        "step %lld: loss or gradient non-finite %lld steps in a row "
        "(train.nonfinite_limit); checkpoints that were written stay as they "
        "are; try a lower train.lr or train.grad_clip",
        (long long)state->step, (long long)state->skipped);
}

bool sp_step_is_last(const sp_config *config, const sp_checkpoint_state *state)
{
    if (config->train.steps > 0)
        return state->step >= config->train.steps;
    return state->at.epoch >= config->train.epochs;
}

int64_t sp_step_total_samples(const sp_learner *l, const sp_checkpoint_state *state)
{
    const sp_config *config = l->config;
    const int64_t left = config->train.steps - state->step;
    int64_t total = state->samples_seen;
    bool is_long = false;

    if (config->train.steps > 0 && left > 0)
        is_long = __builtin_add_overflow(
            total, sp_sampler_samples(&l->sampler, state->at.position, left), &total);
    else if (config->train.steps <= 0)
        is_long = __builtin_mul_overflow((int64_t)config->train.epochs,
                                         l->set->n_samples, &total);
    return is_long ? INT64_MAX : total;
}
