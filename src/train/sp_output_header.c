/* The lines and warnings that a training prints before its first step. */
#include "train/sp_output.h"

#include <assert.h>
#include <stdio.h>

#include "base/sp_log.h"
#include "config.h"
#include "train/sp_init.h"
#include "train/sp_session.h"

/* Warns of vectors that do not tilt because their z is not a column. */
static void print_untilted(const sp_network *n, const sp_dataset *train)
{
    char *const *name = train->feature_name;

    for (int k = 0; k < n->vectors.n; k++) {
        const sp_vector *v = &n->vectors.at[k];

        if (v->z < 0)
            sp_log_warn0(
                "columns %s and %s are not tilted with the sample (augment.tilt), "
                "because the z that belongs to them is no column",
                name[n->columns[v->x]], name[n->columns[v->y]]);
    }
}

/* Warns of keys of the deck that the data cannot fulfil. */
static void print_notes(const sp_trainer *trainer)
{
    const sp_network *network = &trainer->network;
    const sp_data_sets *data = &trainer->data;
    const sp_config *config = trainer->session.config;

    if (config->data.normalize && !network->norm.mean)
        sp_log_warn0("the shards have no feature_mean and feature_std, so features are "
                     "used as they are");
    if (!(config->train.schedule == SP_ONECYCLE && config->train.pct_start > 0) &&
        (double)config->train.warmup_steps * trainer->learner.sampler.effective * 2 >
            (double)trainer->total_samples)
        sp_log_warn0("train.warmup_steps = %lld of about %lld steps: the learning rate "
                     "rises for most of the training",
                     (long long)config->train.warmup_steps,
                     (long long)sp_trainer_steps(trainer));
    if (!data->train.has_subvoxel && sp_augment_merges(config))
        sp_log_info("the shards carry no /subvoxel: augmentation rotates by multiples "
                    "of 90 degrees about z, and leaves scaling and other moves out");
    if (data->train.has_subvoxel && config->augment.tilt > 0)
        print_untilted(network, &data->train);
    if (data->val.n_shards && config->run.eval_every > 0)
        sp_network_warn_far(network, &data->val);
    for (int i = 0; config->run.eval_every > 0 && i < data->n_val_sets; i++)
        sp_network_warn_far(network, &data->val_set[i].data);
}

void sp_output_machine(const sp_device *d)
{
    const sp_comm *comm = d->comm;
    const sp_bf16_sums sums = d->sums;

    assert(d->backend.ops);
    sp_log_info(
        PACKAGE_STRING ": %d rank%s on %d node%s, device %s, %s%s%s%s, all-reduce by "
                       "%s",
        comm->size, sp_plural(comm->size), comm->n_nodes, sp_plural(comm->n_nodes),
        d->text, sp_precision_word[d->config->train.precision],
        d->backend.is_wgmma && !d->backend.ops->is_host ? " by wgmma" : "",
        sums ? " summed in " : "", sums ? sp_bf16_sums_word[sums] : "",
        d->transport.words);
    if (comm->is_oversubscribed)
        sp_log_info("more ranks than cores on a node: waiting ranks sleep");
    if (d->cores[0])
        sp_log_info("rank %d has cores %s", comm->rank, d->cores);
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

void sp_output_data(const sp_learner *l, const sp_comm *comm, const sp_data_sets *data)
{
    const sp_sampler *sampler = &l->sampler;
    const sp_network *network = l->network;
    const int64_t steps = sp_sampler_steps_per_epoch(sampler);
    const double world = sampler->effective;
    const double lr = sp_optim_base_lr(l->config, sampler->effective);
    char schedule[256];

    sp_log_info("data: %lld training sample%s (%lld voxels), %lld validation sample%s "
                "(%lld voxels), %d classes, %d feature column%s%s",
                (long long)data->train.n_samples, sp_plural(data->train.n_samples),
                (long long)data->train.n_voxels, (long long)data->val.n_samples,
                sp_plural(data->val.n_samples), (long long)data->val.n_voxels,
                network->n_classes, network->n_columns, sp_plural(network->n_columns),
                network->norm.mean ? ", normalized" : "");
    for (int i = 0; i < data->n_val_sets; i++)
        sp_log_info("data: validation set %s: %lld sample%s (%lld voxels)",
                    data->val_set[i].name, (long long)data->val_set[i].data.n_samples,
                    sp_plural(data->val_set[i].data.n_samples),
                    (long long)data->val_set[i].data.n_voxels);
    word_schedule(l->config, lr, schedule, sizeof schedule);
    sp_log_info("batch: %g sample%s a step in the world, %.6g a node, %.6g a rank; "
                "%lld step%s an epoch; effective learning rate %g%s",
                world, sp_plural(world), world / comm->n_nodes, world / comm->size,
                (long long)steps, sp_plural(steps), lr, schedule);
}

void sp_output_header(const sp_trainer *trainer)
{
    const sp_config *config = trainer->session.config;
    const sp_graph *graph = &trainer->network.graph;

    sp_output_data(&trainer->learner, trainer->session.comm, &trainer->data);
    sp_log_info("network: %s, %lld parameters; run folder %s",
                config->net.n_layers ? "from net.layers"
                                     : sp_family_word[config->net.family],
                (long long)graph->n_weights, trainer->session.run.dir);
    sp_init_report(config, graph);
    print_notes(trainer);
}
