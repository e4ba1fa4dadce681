#include "api/sp_learner.h"

#include <assert.h>
#include <stdlib.h>

#include "api/sp_labels.h"
#include "base/sp_scope.h"
#include "data/sp_color.h"
#include "data/sp_mix.h"

void sp_learner_begin(sp_learner *l, const sp_config *config, const sp_dataset *set,
                      sp_network *network, sp_budgets *budgets)
{
    *l = (sp_learner){
        .config = config, .set = set, .network = network, .budgets = budgets};
}

/* ---- checks ---- */

static sp_status learner_check_loss(const sp_config *config, int n_ranks)
{
    if (!sp_net_loss_rule(config).is_joint ||
        (n_ranks == 1 && config->batch.accumulate == 1))
        return SP_OK;
    return SP_FAIL(SP_EUSAGE,
                   "%strain.lovasz_per = \"step\" sorts all voxels of a step: found %d "
                   "rank%s and batch.accumulate = %d, expected one rank and 1; take "
                   "train.lovasz_per = \"sample\"",
                   sp_config_where(config, "train.lovasz_per"), n_ranks,
                   sp_plural(n_ranks), config->batch.accumulate);
}

sp_status sp_learner_check_deck(const sp_config *config, const sp_comm *comm)
{
    SP_TRY(learner_check_loss(config, comm->size));
    if (config->train.ema > 0 && config->train.average_tail > 0)
        return SP_FAIL(SP_EUSAGE,
                       "%strain.average_tail = %g and train.ema = %g: expected one of "
                       "the two averages",
                       sp_config_where(config, "train.average_tail"),
                       config->train.average_tail, config->train.ema);
    if (config->run.weights == SP_WEIGHTS_EMA &&
        !sp_optim_states[SP_OPTIM_STATE_EMA].is_kept(config))
        return SP_FAIL(SP_EUSAGE,
                       "%srun.weights = \"ema\" needs averages of the weights, and "
                       "train.ema is 0, expected a share such as 0.999 (or "
                       "train.average_tail)",
                       sp_config_where(config, "run.weights"));
    return SP_OK;
}

/* A library's deck without data.voxel_size has the data's own. */
static sp_status learner_check_elastic(const sp_config *config)
{
    const sp_doubles *elastic = &config->augment.elastic;

    for (int i = 0; i < elastic->n; i += 2)
        if (elastic->at[i] < config->data.voxel_size)
            return SP_FAIL(SP_EUSAGE,
                           "%saugment.elastic: granularity %g, expected at least "
                           "data.voxel_size = %g",
                           sp_config_where(config, "augment.elastic"), elastic->at[i],
                           config->data.voxel_size);
    return SP_OK;
}

sp_status sp_learner_open_mixing(sp_learner *l)
{
    const int n_columns = l->network->n_columns, *columns = l->network->columns;
    bool *is_pasted;
    sp_colors colors;
    sp_status rc = sp_mix_classes(l->config, l->set, &is_pasted);

    free(is_pasted);
    SP_TRY(rc);
    SP_TRY(learner_check_elastic(l->config));
    SP_TRY(sp_bank_open(l->config, l->set, columns, n_columns, &l->bank));
    return sp_colors_find(l->config, l->set, columns, n_columns, &colors);
}

/* ---- opening ---- */

/* Opens the network, with the class weights that the deck asks for. */
static sp_status learner_open_network(sp_learner *l, sp_device *device,
                                      const sp_data_sets *data)
{
    sp_network *network = l->network;
    SP_FREED float *class_weight = NULL;

    SP_TRY(sp_learner_check_deck(l->config, device->comm));
    SP_TRY(sp_labels_weights(l->config, device->comm, l->set, network, &class_weight));
    SP_TRY(sp_network_open(network, l->config, device, data, class_weight, false));
    return sp_graph_check_tuning(&network->graph, l->config);
}

static sp_status learner_open_loader(sp_learner *l, sp_comm *comm, int n_slots)
{
    sp_loader_options options = sp_network_loader(l->network, l->config, l->set);

    SP_TRY(sp_sampler_open(&l->sampler, l->set, comm, l->config, true));
    options.sampler = &l->sampler;
    options.bank = l->bank;
    options.is_training = true;
    options.range = &l->config->eval.range;
    options.n_slots = n_slots;
    options.is_filled_by_caller = options.backend->ops->is_host && comm->cores == 1;
    return sp_loader_create(&l->loader, &options);
}

static sp_status learner_open_update(sp_learner *l, sp_device *device, int n_slots)
{
    const sp_config *config = l->config;
    const sp_graph *graph = &l->network->graph;
    sp_comm *comm = device->comm;
    sp_status rc;

    assert(!l->buckets.impl && !l->optim.impl);
    rc = sp_buckets_create(&l->buckets, graph, comm,
                           config->train.deterministic == SP_DET_WORLD,
                           (size_t)(config->run.bucket_mb * (1 << 20)));
    l->buckets.is_overlapped = config->run.overlap;
    if (rc == SP_OK)
        rc = sp_buckets_attach(&l->buckets, &device->transport);
    if (rc == SP_OK)
        rc = sp_optim_create(&l->optim, graph, config, &device->backend);
    if (rc == SP_OK)
        rc = learner_open_loader(l, comm, n_slots);
    return sp_comm_agree(comm, rc);
}

sp_status sp_learner_open(sp_learner *l, sp_device *device, const sp_data_sets *data,
                          int n_slots)
{
    sp_comm *comm = device->comm;

    assert(l->network->columns && device->transport.ops);
    if (!l->is_free_loss || l->set->n_samples == 0)
        SP_TRY(sp_labels_check(l->config, comm, l->set));
    SP_TRY(sp_comm_agree(comm, sp_learner_open_mixing(l)));
    SP_TRY(sp_comm_agree(comm, sp_network_normalize(l->network, l->config, l->set)));
    SP_TRY(learner_open_network(l, device, data));
    return learner_open_update(l, device, n_slots);
}

/* ---- averages ---- */

static void exchange_pointers(float **a, float **b)
{
    float *was = *a;

    *a = *b;
    *b = was;
}

void sp_learner_exchange_average(sp_learner *l)
{
    float **state = l->optim.state;
    sp_net *net = &l->network->net;

    assert(state[SP_OPTIM_STATE_EMA] && state[SP_OPTIM_STATE_EMA_BUFFERS]);
    exchange_pointers(&net->param, &state[SP_OPTIM_STATE_EMA]);
    exchange_pointers(&net->running, &state[SP_OPTIM_STATE_EMA_BUFFERS]);
    sp_net_updated(net);
}

/* ---- end ---- */

void sp_learner_close_loader(sp_learner *l)
{
    sp_loader_destroy(l->loader);
    l->loader = NULL;
    sp_sampler_close(&l->sampler);
}

void sp_learner_close(sp_learner *l)
{
    sp_learner_close_loader(l);
    sp_optim_destroy(&l->optim);
    sp_buckets_destroy(&l->buckets);
    sp_bank_close(l->bank);
    l->bank = NULL;
}
