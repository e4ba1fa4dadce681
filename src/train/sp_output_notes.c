/* Warnings that a colleague would give before a training, once each. */
#include "train/sp_output.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/sp_labels.h"
#include "base/sp_list.h"
#include "base/sp_log.h"

/* ---- the batch ---- */

/* Warns if some ranks get no sample in a full step. */
static void print_idle_ranks(int ranks, const sp_sampler *sampler)
{
    const int n = (sampler->effective - 1) / sampler->accumulate + 1;

    assert(sampler->effective >= 1 && sampler->accumulate >= 1);
    if (sampler->set->n_samples > 0 && n < ranks)
        sp_log_warn0("%d of the %d ranks %s nothing to do in a %s of %d sample%s: "
                     "raise batch.size or take fewer ranks",
                     ranks - n, ranks, ranks - n == 1 ? "has" : "have",
                     sampler->accumulate > 1 ? "micro-batch" : "step", n, sp_plural(n));
}

static void print_large_batch(const sp_sampler *sampler)
{
    /* Batches of up to so many samples are used with data of any size. */
    enum { USUAL = 32 };
    const long long all = sampler->set->n_samples, step = sampler->effective;
    const long long asked = (long long)sampler->size * sampler->n_groups;

    if (asked > all)
        sp_log_warn0("a step of %lld samples is asked for (batch.size, batch.per), and "
                     "data.train has %lld: each step has %lld sample%s, and "
                     "train.lr_scale and warm-up count these",
                     asked, all, step, sp_plural((double)step));
    else if (step > USUAL && 10 * step > all)
        sp_log_warn0("a step has %lld of the %lld samples of data.train, more than a "
                     "tenth: an epoch has few updates, and models of such large "
                     "batches often generalize worse",
                     step, all);
}

/* Warns if the learning rate may not be meant for this batch. A deck that names
 * train.lr_scale has decided. */
static void print_rate(const sp_config *config, const sp_sampler *sampler)
{
    const double grown = (double)sampler->effective / sampler->size;
    const bool is_warm =
        config->train.warmup_steps > 0 || config->train.schedule == SP_ONECYCLE;

    if (grown > 1 && config->train.lr_scale == SP_LR_NONE &&
        !sp_config_is_set(config, "train.lr_scale"))
        sp_log_warn0("a step has %d samples, %g times batch.size, but train.lr = %g is "
                     "not scaled: set train.lr_scale = \"linear\" or \"sqrt\" if it is "
                     "meant for batch.size samples, or \"none\" if it is meant for all",
                     sampler->effective, grown, config->train.lr);
    if (grown > 1 && config->train.lr_scale == SP_LR_LINEAR && !is_warm)
        sp_log_warn0("train.lr_scale = \"linear\" makes the learning rate %g times "
                     "train.lr from the first step on: linear scaling needs a warm-up "
                     "(train.warmup_steps)",
                     grown);
}

/* A deck that names sgd, but no momentum, may come from a program without any. */
static void print_momentum(const sp_config *config)
{
    if (config->train.optimizer == SP_SGD &&
        sp_config_is_set(config, "train.optimizer") &&
        !sp_config_is_set(config, "train.momentum") &&
        !sp_config_is_set(config, "train.nesterov"))
        sp_log_warn0("train.optimizer = \"sgd\" without train.momentum and "
                     "train.nesterov: they are %g and %s, while PyTorch's SGD has 0 "
                     "and false unless told otherwise",
                     config->train.momentum, config->train.nesterov ? "true" : "false");
}

/* ---- the validation data ---- */

/* Number of files of `val` that are files of `train` too, under any path. */
static int count_shared(const sp_dataset *train, const sp_dataset *val)
{
    struct stat *known = calloc((size_t)train->n_shards + 1, sizeof *known), one;
    int i, n = 0;

    for (i = 0; known && i < train->n_shards; i++)
        if (stat(train->shard[i].path, &known[i]) != 0)
            known[i].st_ino = 0;
    for (int j = 0; known && j < val->n_shards; j++) {
        if (stat(val->shard[j].path, &one) != 0)
            continue;
        for (i = 0; i < train->n_shards; i++)
            if (known[i].st_ino == one.st_ino && known[i].st_dev == one.st_dev)
                break;
        n += i < train->n_shards;
    }
    free(known);
    return n;
}

/* name: of the set in data.val_sets, or "". */
static void print_shared(const sp_dataset *train, const sp_dataset *set,
                         const char *name)
{
    const int n = count_shared(train, set);

    if (n > 0)
        sp_log_warn0("files of data.val%s%s that are in data.train too: %d of %d; the "
                     "evaluation is in part of what was trained on",
                     *name ? "_sets " : "", name, n, set->n_shards);
}

/* Rank 0: names the classes that only the validation data have. */
static void print_unlearned(const sp_network *network, const int64_t *train,
                            const int64_t *val)
{
    enum { TOLD = 8 };
    char text[512] = "";
    size_t used = 0;
    int n = 0;

    for (int c = 0; c < network->n_classes; c++)
        if (val[c] > 0 && train[c] == 0 && n++ < TOLD && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%s%.40s (%lld voxels)", n > 1 ? ", " : "",
                                     network->class_name[c], (long long)val[c]);
    if (n > 0)
        sp_log_warn0("%d class%s of data.val without a voxel in data.train: %s%s; "
                     "nothing can learn %s, and %s IoU counts in the mean as 0",
                     n, n > 1 ? "es" : "", text, n > TOLD ? ", ..." : "",
                     n > 1 ? "them" : "it", n > 1 ? "their" : "its");
}

static sp_status output_classes(const sp_network *network, sp_comm *comm,
                                const sp_data_sets *data)
{
    const int n = network->n_classes;
    SP_FREED int64_t *count = NULL;
    bool is_known = false;

    SP_TRY(sp_comm_agree(comm, SP_NEW(&count, 2 * n, "the labels")));
    SP_TRY(sp_labels_count(comm, &data->train, n, count, &is_known));
    if (is_known)
        SP_TRY(sp_labels_count(comm, &data->val, n, count + n, &is_known));
    if (is_known)
        print_unlearned(network, count, count + n);
    return SP_OK;
}

/* Warns if an average keeps much of its first weights to the end: it has train.ema to
 * the power of the steps of them. */
static void print_average(const sp_config *config, const sp_sampler *sampler)
{
    const double epoch = (double)sp_sampler_steps_per_epoch(sampler);
    const double steps = config->train.steps > 0 ? (double)config->train.steps
                                                 : epoch * config->train.epochs;
    const double first = pow(config->train.ema, fmax(1, steps) - 1);

    if (config->train.ema > 0 && steps >= 20 && first > 0.05)
        sp_log_warn0(
            "train.ema = %g averages over about %.0f steps, and the training has "
            "%.0f: %.0f %% of its average are the weights after the first step; "
            "%.3g is for the last tenth of the training",
            config->train.ema, 1 / (1 - config->train.ema), steps, 100 * first,
            1 - 10 / steps);
}

sp_status sp_output_notes(const sp_learner *l, sp_comm *comm, const sp_data_sets *data)
{
    const sp_config *config = l->config;
    const sp_sampler *sampler = &l->sampler;
    const sp_dataset *train = &data->train, *val = &data->val;

    assert(sampler->set == train);
    print_idle_ranks(comm->size, sampler);
    print_large_batch(sampler);
    print_rate(config, sampler);
    print_momentum(config);
    print_average(config, sampler);
    if (!val->n_shards || config->run.eval_every <= 0)
        return SP_OK;
    if (!val->has_labels)
        sp_log_warn0("data.val has no /labels, so nothing is evaluated");
    if (comm->rank == 0)
        print_shared(train, val, "");
    for (int i = 0; comm->rank == 0 && i < data->n_val_sets; i++)
        print_shared(train, &data->val_set[i].data, data->val_set[i].name);
    return val->has_labels && train->has_labels ? output_classes(l->network, comm, data)
                                                : SP_OK;
}
