/* The lines and warnings that a training prints before its first step. */
#include "train/sp_output.h"

#include <assert.h>
#include <stdio.h>

#include "base/sp_log.h"
#include "config.h"
#include "train/sp_init.h"
#include "train/sp_session.h"

/* Warns of vectors that do not tilt because their z is not a column. */
static void print_untilted(const sp_resources *r)
{
    char *const *name = r->train.feature_name;

    for (int k = 0; k < r->vectors.n; k++) {
        const sp_vector *v = &r->vectors.at[k];

        if (v->z < 0)
            sp_log_warn0(
                "columns %s and %s are not tilted with the sample (augment.tilt), "
                "because the z that belongs to them is no column",
                name[r->columns[v->x]], name[r->columns[v->y]]);
    }
}

/* Warns of keys of the deck that the data cannot fulfil. */
static void print_notes(const sp_trainer *trainer)
{
    const sp_resources *r = &trainer->resources;
    const sp_config *config = r->config;

    if (config->data.normalize && !r->norm.mean)
        sp_log_warn0("the shards have no feature_mean and feature_std, so features are "
                     "used as they are");
    if (!(config->train.schedule == SP_ONECYCLE && config->train.pct_start > 0) &&
        (double)config->train.warmup_steps * trainer->step_samples * 2 >
            (double)trainer->total_samples)
        sp_log_warn0("train.warmup_steps = %lld of about %lld steps: the learning rate "
                     "rises for most of the training",
                     (long long)config->train.warmup_steps,
                     (long long)sp_trainer_steps(trainer));
    if (!r->train.has_subvoxel && sp_augment_merges(config))
        sp_log_info("the shards carry no /subvoxel: augmentation rotates by multiples "
                    "of 90 degrees about z, and leaves scaling and other moves out");
    if (r->train.has_subvoxel && config->augment.tilt > 0)
        print_untilted(r);
    if (r->val.n_shards && config->run.eval_every > 0)
        sp_resources_warn_far(r, &r->val);
    for (int i = 0; config->run.eval_every > 0 && i < r->n_val_sets; i++)
        sp_resources_warn_far(r, &r->val_set[i].data);
}

void sp_output_machine(const sp_resources *r)
{
    const sp_comm *comm = r->comm;
    const sp_bf16_sums sums = r->resolved.bf16_sums;

    assert(r->backend.ops);
    sp_log_info(
        PACKAGE_STRING ": %d rank%s on %d node%s, device %s, %s%s%s%s, all-reduce by "
                       "%s",
        comm->size, sp_plural(comm->size), comm->n_nodes, sp_plural(comm->n_nodes),
        r->device, sp_precision_word[r->config->train.precision],
        r->backend.is_wgmma && !r->backend.ops->is_host ? " by wgmma" : "",
        sums ? " summed in " : "", sums ? sp_bf16_sums_word[sums] : "",
        r->transport.words);
    if (comm->is_oversubscribed)
        sp_log_info("more ranks than cores on a node: waiting ranks sleep");
    if (r->cores[0])
        sp_log_info("rank %d has cores %s", comm->rank, r->cores);
}

/* Writes the schedule of the learning rate in words; "" if it is constant. */
static void word_schedule(const sp_config *config, double lr, char *text, size_t room)
{
    const char *word = sp_schedule_word[config->train.schedule];
    const sp_doubles *at = &config->train.milestones;
    const double start = lr / config->train.div_factor;
    size_t used;

    *text = 0;
    switch (config->train.schedule) {
    case SP_STEP:
        used =
            (size_t)snprintf(text, room, ", %s times %g at", word, config->train.gamma);
        for (int i = 0; i < at->n && used < room; i++)
            used += (size_t)snprintf(text + used, room - used, " %g", at->at[i]);
        break;
    case SP_POLY:
        snprintf(text, room, ", %s of power %g", word, config->train.poly_power);
        break;
    case SP_COSINE:
        snprintf(text, room, ", %s down to %g", word, lr * config->train.cosine_floor);
        break;
    case SP_ONECYCLE:
        used = (size_t)snprintf(text, room, ", %s from %g to %g", word, start,
                                start / config->train.final_div_factor);
        if (sp_optim_cycles_momentum(config))
            snprintf(text + used, room - used, ", momentum %g to %g and back",
                     config->train.cycle_momentum.at[1],
                     config->train.cycle_momentum.at[0]);
        break;
    default:
        break;
    }
}

void sp_output_data(const sp_resources *r, const sp_sampler *sampler)
{
    const sp_comm *comm = r->comm;
    const int64_t steps = sp_sampler_steps_per_epoch(sampler);
    const double world = sampler->effective;
    const double lr = sp_optim_base_lr(r->config, sampler->effective);
    char schedule[256];

    sp_log_info("data: %lld training sample%s (%lld voxels), %lld validation sample%s "
                "(%lld voxels), %d classes, %d feature column%s%s",
                (long long)r->train.n_samples, sp_plural(r->train.n_samples),
                (long long)r->train.n_voxels, (long long)r->val.n_samples,
                sp_plural(r->val.n_samples), (long long)r->val.n_voxels, r->n_classes,
                r->n_columns, sp_plural(r->n_columns),
                r->norm.mean ? ", normalized" : "");
    for (int i = 0; i < r->n_val_sets; i++)
        sp_log_info("data: validation set %s: %lld sample%s (%lld voxels)",
                    r->val_set[i].name, (long long)r->val_set[i].data.n_samples,
                    sp_plural(r->val_set[i].data.n_samples),
                    (long long)r->val_set[i].data.n_voxels);
    word_schedule(r->config, lr, schedule, sizeof schedule);
    sp_log_info("batch: %g sample%s a step in the world, %.6g a node, %.6g a rank; "
                "%lld step%s an epoch; effective learning rate %g%s",
                world, sp_plural(world), world / comm->n_nodes, world / comm->size,
                (long long)steps, sp_plural(steps), lr, schedule);
}

void sp_output_header(const sp_trainer *trainer)
{
    const sp_resources *r = &trainer->resources;

    sp_output_data(r, &r->sampler);
    sp_log_info("network: %s, %lld parameters; run folder %s",
                r->config->net.n_layers ? "from net.layers"
                                        : sp_family_word[r->config->net.family],
                (long long)r->graph.n_weights, r->session->run.dir);
    sp_init_report(r);
    print_notes(trainer);
}
