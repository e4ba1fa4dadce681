/* The memory that the steps of a run take: each memory of the loader at its largest
 * batch. */
#include <string.h>

#include "api/memory/sp_budget_internal.h"

static void budget_add_sample(sp_budget *b, int64_t sample, int64_t sum[SP_PARTS])
{
    for (int p = 0; p < SP_PARTS; p++)
        sum[p] += (int64_t)(b->excess * (double)sp_budget_estimate(b, sample)[p]);
}

/* Raises `costliest` by a micro-batch of this rank in an epoch; *memory is the greatest
 * batch that the loader's memory has held so far, with a part of the slots that wait. */
static void hold_deal(sp_budget *b, const sp_assignment *assigned, int64_t epoch,
                      int64_t *memory)
{
    int64_t sum[SP_PARTS] = {0}, partner;

    for (int i = 0; i < assigned->n_samples; i++) {
        budget_add_sample(b, assigned->sample[i], sum);
        partner = sp_sampler_partner(b->sampler, epoch, assigned->sample[i]);
        if (partner >= 0)
            budget_add_sample(b, partner, sum);
    }
    *memory = sp_most(*memory, sum[SP_BATCHES] / b->estimator.n_memories);
    b->costliest[0] = sp_most(b->costliest[0], sum[0]);
    b->costliest[SP_SCRATCH] = sp_most(b->costliest[SP_SCRATCH], sum[SP_SCRATCH]);
}

/* Sets `costliest` to the greatest need of this rank in the first n_steps steps, each
 * memory of the loader at its own largest batch. */
static void budget_follow(sp_budget *b, int64_t n_steps)
{
    enum { MOST_SAMPLES = 1 << 20 }; /* a bound on the time: about a second */
    const int n_batches = sp_budget_views(b), n_memories = b->estimator.n_memories;
    int64_t memory[SP_LOADER_MOST_SLOTS] = {0}, n_held = 0, n_done = 0;
    sp_position at = {0, 0};

    memset(b->costliest, 0, sizeof b->costliest);
    for (int64_t step = 0; step < n_steps && n_done < MOST_SAMPLES; step++) {
        int n_micro, n = sp_sampler_step(b->sampler, at, &n_micro);
        sp_assignment assigned;

        if (n == 0) {
            at = (sp_position){at.epoch + 1, 0};
            n = sp_sampler_step(b->sampler, at, &n_micro);
        }
        for (int micro = 0; micro < n_micro; micro++) {
            sp_sampler_assign(b->sampler, at, micro, &assigned);
            for (int i = 0; i < n_batches; i++, n_held++)
                hold_deal(b, &assigned, at.epoch, &memory[n_held % n_memories]);
        }
        at.position += n;
        n_done += n;
    }
    for (int i = 0; i < n_memories; i++)
        b->costliest[SP_BATCHES] += memory[i];
}

/* A training has the steps that the deck asks for, and its loader is some steps ahead.
 */
sp_status sp_budget_simulate(sp_budget *b, sp_comm *comm)
{
    const sp_config *config = b->estimator.what.config;
    int64_t n;

    if (!b->sampler || b->set->n_samples == 0)
        return SP_OK;
    n = sp_sampler_steps_per_epoch(b->sampler);
    if (b->estimator.is_training)
        n = (config->train.steps > 0 ? config->train.steps : config->train.epochs * n) +
            sp_loader_slots(config) - 1;
    budget_follow(b, n);
    return sp_comm_allreduce(comm, SP_SCOPE_WORLD, b->costliest, SP_PARTS, SP_I64,
                             SP_MAX);
}
