#include "api/sp_evaluator.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "net/sp_metrics.h"
#include "predict/sp_merger.h"

void sp_evaluator_begin(sp_evaluator *e, const sp_config *config, sp_comm *comm,
                        sp_network *network, sp_budgets *budgets)
{
    *e = (sp_evaluator){
        .config = config, .comm = comm, .network = network, .budgets = budgets};
}

/* ---- merging ---- */

/* Warns if blocks see a point in different cells of the network's strides, since their
 * predictions of it then differ more than necessary. */
static void look_at_blocks(const sp_evaluator *e, const sp_dataset *set)
{
    const sp_recipe *recipe = set->recipe;
    double factor;
    int64_t need;

    if (!recipe || recipe->block <= 0 ||
        sp_voxel_factor(e->config, set, &factor) != SP_OK)
        return;
    need = sp_graph_stride(&e->network->graph) * (int64_t)factor;
    if (recipe->alignment == 0 || recipe->alignment % need != 0)
        sp_log_info(
            "eval.merge: the blocks of %s begin at multiples of %lld voxels (0: "
            "anywhere), the network's coarsest stride is %lld: their predictions "
            "agree less than after a conversion by this version",
            set->shard[0].path, (long long)recipe->alignment, (long long)need);
}

static sp_status measure_merging_of(sp_evaluator *e, const sp_dataset *set)
{
    sp_scans scans;
    sp_status rc;

    look_at_blocks(e, set);
    rc = sp_scans_create(&scans, set);
    if (rc == SP_OK)
        e->merging_bytes =
            sp_most(e->merging_bytes,
                    sp_merger_bytes(&scans, e->network->n_classes,
                                    e->config->batch.eval_size, e->comm->size));
    sp_scans_destroy(&scans);
    return rc;
}

sp_status sp_evaluator_measure_merging(sp_evaluator *e, const sp_data_sets *data)
{
    e->merging_bytes = 0;
    if (!e->config->eval.merge)
        return SP_OK;
    SP_TRY(measure_merging_of(e, &data->val));
    for (int i = 0; i < data->n_val_sets; i++)
        SP_TRY(measure_merging_of(e, &data->val_set[i].data));
    return SP_OK;
}

/* ---- numbers that are not finite ---- */

enum { CAUSE = SP_CHECKPOINT_FAULT + 32 };

/* Steps until the initial statistics of batch norms have a share of an eighth in the
 * running ones, (1 - momentum)^steps: 20 for a momentum of 0.1. */
static double warm_up_steps(const sp_graph *graph)
{
    double most = 0;

    for (int i = 0; i < graph->n_nodes; i++) {
        const sp_node *node = &graph->node[i];

        if (node->op == SP_OP_BATCHNORM && !node->is_frozen && node->momentum > 0)
            most = fmax(most, ceil(log(0.125) / log1p(-node->momentum)));
    }
    return most;
}

/* Says what made an output that is not finite, as far as that is known. In a deep
 * network, activations can grow from layer to layer if its norms evaluate by their
 * initial statistics. */
static const char *blame(const sp_network *network, char cause[CAUSE])
{
    static const char either[] =
        "the weights, or the features of this sample, are at fault";
    const long long step = network->step; /* 0: the file of the weights has no step */

    if (network->fault[0])
        snprintf(cause, CAUSE, "the checkpoint's %s", network->fault);
    else if (0 < step && (double)step < warm_up_steps(&network->graph))
        snprintf(cause, CAUSE,
                 "%s; after %lld step%s the running statistics of the batch norms are "
                 "still close to their initial values: train longer, or evaluate later "
                 "(run.eval_every)",
                 either, step, sp_plural(step));
    else
        snprintf(cause, CAUSE, "%s", either);
    return cause;
}

sp_status sp_evaluator_check(const sp_network *network, const sp_dataset *set,
                             const sp_batch *batch, const int32_t *prediction)
{
    const sp_graph *graph = &network->graph;
    char text[SP_ERROR_MESSAGE / 2], cause[CAUSE];
    int64_t voxel;
    int b;

    assert(batch->n == 0 || prediction);
    if (sp_metrics_find_unpredicted(batch, prediction, &b, &voxel))
        return SP_FAIL(
            SP_ENUMERIC, "%s: voxel %lld: the output of layer `%s` is not finite: %s",
            sp_dataset_print_sample(set, batch->sample_id[b], text, sizeof text),
            (long long)voxel, graph->node[graph->n_nodes - 1].name,
            blame(network, cause));
    if (!network->fault[0] || batch->n_samples == 0)
        return SP_OK;
    return SP_FAIL(SP_ENUMERIC,
                   "%s: the output of layer `%s` is finite, but not the weights: %s",
                   sp_dataset_print_sample(set, batch->sample_id[0], text, sizeof text),
                   graph->node[graph->n_nodes - 1].name, blame(network, cause));
}

/* ---- passes ---- */

static sp_status evaluator_open_loader(const sp_evaluator *e, sp_evaluation *of)
{
    sp_loader_options options = sp_network_loader(e->network, e->config, of->set);

    options.sampler = &of->sampler;
    options.with_points = of->set->has_points;
    options.with_context = e->config->eval.merge;
    options.view = of->views.at;
    options.n_views = of->views.n;
    options.range = e->is_predicting ? NULL : &e->config->eval.range;
    options.n_slots = sp_loader_slots(e->config);
    /* Other models plan on the calling thread, and a backend plans one batch at a
     * time. */
    options.is_filled_by_caller =
        (options.backend->ops->is_host && e->comm->cores == 1) || e->members;
    return sp_loader_create(&of->loader, &options);
}

/* Ends the loaders of all passes but one. */
static void end_loaders(sp_evaluator *e, const sp_evaluation *but)
{
    for (int i = -1; i < e->n_sets; i++) {
        sp_evaluation *of = i < 0 ? &e->val : &e->set[i];

        if (of == but)
            continue;
        sp_loader_destroy(of->loader);
        of->loader = NULL;
    }
}

sp_status sp_evaluator_turn_to(sp_evaluator *e, sp_evaluation *of)
{
    end_loaders(e, of);
    return of->loader ? SP_OK : sp_comm_agree(e->comm, evaluator_open_loader(e, of));
}

sp_status sp_evaluator_open(sp_evaluator *e, const sp_data_sets *data)
{
    sp_evaluation *val = &e->val;
    sp_status rc;

    assert(e->network->net.impl && !val->loader);
    SP_TRY(sp_comm_agree(e->comm, sp_evaluator_measure_merging(e, data)));
    *val = (sp_evaluation){.set = &data->val,
                           .views = sp_views_choose(e->config, data->val.has_subvoxel,
                                                    e->config->eval.views)};
    rc = sp_sampler_open(&val->sampler, val->set, e->comm, e->config, false);
    return sp_comm_agree(e->comm, rc == SP_OK ? evaluator_open_loader(e, val) : rc);
}

sp_status sp_evaluator_open_sets(sp_evaluator *e, const sp_data_sets *data)
{
    sp_sampler *last = &e->val.sampler;
    sp_status rc =
        SP_NEW(&e->set, data->n_val_sets, "the evaluations of data.val_sets");

    assert(last->set == &data->val && !last->next);
    for (int i = 0; i < data->n_val_sets && rc == SP_OK; i++) {
        const sp_val_set *of = &data->val_set[i];
        sp_evaluation *set = &e->set[e->n_sets++];

        set->name = of->name;
        set->set = &of->data;
        set->views =
            sp_views_make(e->config, of->data.has_subvoxel, e->config->eval.views);
        rc = sp_sampler_open(&set->sampler, set->set, e->comm, e->config, false);
        last->next = &set->sampler;
        last = last->next;
    }
    return sp_comm_agree(e->comm, rc);
}

sp_status sp_evaluator_next(const sp_evaluator *e, const sp_evaluation *of,
                            sp_batch **batch, sp_evaluator_work *work, void *arg)
{
    sp_status rc;

    assert(batch && work);
    if (e->on_part)
        e->on_part(e->arg, true);
    rc = sp_loader_next(of->loader, batch, NULL);
    if (rc == SP_OK && !*batch)
        return SP_OK;
    if (e->on_part)
        e->on_part(e->arg, false);
    if (rc == SP_OK)
        rc = work(arg, *batch);
    if (rc == SP_EMEM)
        rc = sp_budgets_explain(e->budgets, sp_budgets_eval(e->budgets, of->set),
                                (*batch)->sample_id, (*batch)->n_samples);
    return rc;
}

sp_status sp_evaluator_run(const sp_evaluator *e, const sp_evaluation *of,
                           sp_evaluator_work *work, void *arg)
{
    sp_batch *batch;

    SP_TRY(sp_loader_seek(of->loader, (sp_position){0, 0}));
    for (;;) {
        SP_TRY(sp_evaluator_next(e, of, &batch, work, arg));
        if (!batch)
            return SP_OK;
        SP_TRY(sp_loader_recycle(of->loader, batch));
    }
}

void sp_evaluator_close(sp_evaluator *e)
{
    end_loaders(e, NULL); /* first, since their threads read nearly all objects */
    if (e->budgets)
        sp_budgets_close(e->budgets);
    sp_sampler_close(&e->val.sampler);
    for (int i = 0; i < e->n_sets; i++)
        sp_sampler_close(&e->set[i].sampler);
    free(e->set);
    e->set = NULL;
    e->n_sets = 0;
}
