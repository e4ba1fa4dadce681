#include "train/sp_init.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_scope.h"
#include "base/sp_text.h"

enum { LIST = 300 /* the bytes of a list of names in a message */ };

static const char *last_layer(const sp_graph *graph)
{
    return graph->node[graph->n_nodes - 1].name;
}

/* ---- classes and columns ---- */

/* Compares the classes. With other names the last layer relearns them, which is a
 * warning; the same names in another order would be mixed up silently, which is an
 * error. A newly initialized last layer fits any classes. */
static sp_status compare_classes(const sp_network *network, const sp_strings *skip,
                                 const sp_dataset *train, const sp_normalization *norm,
                                 const char *path)
{
    const char *last = last_layer(&network->graph);

    if (sp_graph_is_named(skip, last))
        return SP_OK;
    switch (sp_network_compare_classes(network, norm)) {
    case SP_OTHER_ORDER:
        return sp_network_refuse_classes(network, train, norm, path, SP_EDATA);
    case SP_OTHER_NAMES:
        sp_log_warn0("%s was trained on other classes than %s has: the last layer "
                     "begins with the weights of other classes (add \"%s\" to "
                     "run.init_skip, and it begins at random)",
                     path, train->shard[0].path, last);
        break;
    case SP_EQUAL:
        break;
    }
    return SP_OK;
}

static void warn_of_columns(const sp_normalization *own, const sp_normalization *norm,
                            const char *path)
{
    char theirs[LIST], ours[LIST];

    if (!norm->name || sp_dataset_compare_names(norm->n_columns, norm->name,
                                                own->n_columns, own->name) == SP_EQUAL)
        return;
    sp_dataset_print_names(theirs, sizeof theirs, norm->n_columns, norm->name, NULL);
    sp_dataset_print_names(ours, sizeof ours, own->n_columns, own->name, NULL);
    sp_log_warn0("%s was trained on the feature columns %s, but data.train has %s: the "
                 "first layer takes one for the other",
                 path, theirs, ours);
}

/* ---- what moved ---- */

static void say_classes(const sp_network *network, const sp_normalization *norm,
                        const char *path)
{
    char theirs[LIST], ours[LIST];

    if (!norm->class_name || sp_network_compare_classes(network, norm) == SP_EQUAL)
        return;
    sp_dataset_print_names(theirs, sizeof theirs, norm->n_classes, norm->class_name,
                           NULL);
    sp_dataset_print_names(ours, sizeof ours, network->n_classes, network->class_name,
                           NULL);
    sp_log_info("classes: %s of %s, now %s", theirs, path, ours);
}

static void say_moved(const sp_graph *g, const sp_strings *skip,
                      const sp_checkpoint_state *state, const char *path)
{
    char fresh[LIST] = "";
    int64_t n_weights = 0;
    int n_layers = 0;
    size_t used = 0;

    for (int i = 0; i < g->n_nodes; i++) {
        const sp_node *node = &g->node[i];

        if (node->weight < 0)
            continue;
        n_layers += !sp_graph_is_named(skip, node->name);
        if (sp_graph_is_named(skip, node->name) && used < sizeof fresh)
            used += (size_t)snprintf(fresh + used, sizeof fresh - used, "%s%s",
                                     used ? ", " : "", node->name);
    }
    for (int i = 0; i < g->n_params; i++)
        if (!sp_graph_is_named(skip, g->param[i].name))
            n_weights += g->param[i].count;
    sp_log_info("weights from %s (step %lld): %lld parameters of %d layer%s%s%s", path,
                (long long)state->step, (long long)n_weights, n_layers,
                sp_plural(n_layers), used ? "; afresh begin " : "", fresh);
}

/* Rank 0: compares the source with the data, and logs what was read from it. */
static sp_status init_compare(const sp_network *network, const sp_config *config,
                              const sp_dataset *train)
{
    const char *path = config->run.init_from;
    const sp_strings *skip = &config->run.init_skip;
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization norm = {0};

    SP_TRY(sp_checkpoint_read_state(path, &state, &norm));
    SP_TRY(compare_classes(network, skip, train, &norm, path));
    SP_TRY(sp_dataset_match_recipe(train, norm.recipe, path));
    warn_of_columns(&network->norm, &norm, path);
    say_moved(&network->graph, skip, &state, path);
    say_classes(network, &norm, path);
    return SP_OK;
}

sp_status sp_init_weights(sp_session *s, sp_network *network, const sp_dataset *train)
{
    const char *path = s->config->run.init_from;
    sp_status rc = SP_OK;

    assert(network->net.impl);
    assert(path[0] && network->norm.name);
    SP_TRY(sp_session_load(s, network, &(sp_weights_source){.path = path}));
    if (network->fault[0])
        return SP_FAIL(SP_EDATA,
                       "%s:%s, expected a finite number: its training had diverged",
                       path, network->fault);
    if (s->comm->rank == 0)
        rc = init_compare(network, s->config, train);
    SP_TRY(sp_comm_agree(s->comm, rc));
    return sp_init_norm_of(s, network, path);
}

sp_status sp_init_check(sp_session *s, sp_network *network, const sp_dataset *train)
{
    const char *path = s->config->run.init_from;
    const sp_graph *g = &network->graph;
    sp_status rc = SP_OK;

    if (!path[0])
        return SP_OK;
    SP_TRY(sp_comm_agree(s->comm, sp_network_normalize(network, s->config, train)));
    if (s->comm->rank == 0) {
        SP_FREED float *param = NULL;

        rc = SP_NEW(&param, g->n_floats + g->n_buffer_floats, "the weights");
        if (rc == SP_OK)
            rc = sp_checkpoint_read_init(path, g, &network->norm,
                                         &s->config->run.init_skip, param,
                                         param + g->n_floats);
        if (rc == SP_OK)
            rc = init_compare(network, s->config, train);
    }
    SP_TRY(sp_comm_agree(s->comm, rc));
    return sp_init_norm_of(s, network, path);
}

/* ---- keys ---- */

sp_status sp_init_check_keys(const sp_config *config)
{
    if (config->run.init_norm == SP_INIT_NORM_SOURCE && !config->run.init_from[0])
        return SP_FAIL(SP_EUSAGE,
                       "%srun.init_norm = \"source\": run.init_from names no source",
                       sp_config_where(config, "run.init_norm"));
    if (config->run.init_norm == SP_INIT_NORM_SOURCE && !config->data.normalize)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.init_norm = \"source\": data.normalize is false",
                       sp_config_where(config, "run.init_norm"));
    if (config->run.init_skip.n > 0 && !config->run.init_from[0])
        sp_log_warn0("run.init_skip does nothing without run.init_from");
    return SP_OK;
}

/* ---- statistics of the features ---- */

/* Rank 0: a model that was trained without normalization has mean 0 and deviation 1. */
static sp_status fill_norm(sp_normalization *norm, const char *path)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization source = {0};

    SP_TRY(sp_checkpoint_read_state(path, &state, &source));
    for (int i = 0; i < norm->n_columns; i++) {
        const int at = source.name
                           ? sp_text_find(source.n_columns, source.name, norm->name[i])
                           : -1;

        if (at < 0)
            return SP_FAIL(SP_EDATA,
                           "%s: has no statistics of feature column %s, which "
                           "run.init_norm = \"source\" asks for",
                           path, norm->name[i]);
        norm->mean[i] = source.mean ? source.mean[at] : 0;
        norm->std[i] = source.mean ? source.std[at] : 1;
    }
    return SP_OK;
}

sp_status sp_init_norm_of(const sp_session *s, sp_network *network, const char *path)
{
    sp_normalization *norm = &network->norm;
    const size_t bytes = (size_t)norm->n_columns * sizeof(double);
    sp_status rc = SP_OK;

    assert(path);
    if (s->config->run.init_norm != SP_INIT_NORM_SOURCE || !norm->mean)
        return SP_OK;
    if (s->comm->rank == 0)
        rc = fill_norm(norm, path);
    SP_TRY(sp_comm_agree(s->comm, rc));
    SP_TRY(sp_comm_bcast(s->comm, norm->mean, bytes, 0));
    return sp_comm_bcast(s->comm, norm->std, bytes, 0);
}

/* ---- report ---- */

/* Counts the layers that an entry of train.lr_layers counts for. */
static int count_layers(const sp_config *config, const sp_graph *g, int entry)
{
    int n = 0;

    for (int i = 0; i < g->n_nodes; i++)
        n += g->node[i].weight >= 0 && !g->node[i].is_frozen &&
             sp_graph_lr_entry(config, g->node[i].name) == entry;
    return n;
}

void sp_init_report(const sp_config *config, const sp_graph *g)
{
    const sp_strings *factors = &config->train.lr_layers;
    int64_t n_weights;
    int n_layers;

    sp_graph_count_frozen(g, &n_layers, &n_weights);
    if (n_layers > 0)
        sp_log_info(
            "train.freeze: %lld of %lld parameters, in %d layer%s, stay as they are",
            (long long)n_weights, (long long)g->n_weights, n_layers,
            sp_plural(n_layers));
    for (int i = 0; i < factors->n; i++)
        sp_log_info("train.lr_layers: \"%s\" holds for %d layer%s", factors->at[i],
                    count_layers(config, g, i), sp_plural(count_layers(config, g, i)));
}
