#include "train/sp_init.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sp_log.h"
#include "base/sp_text.h"

enum { LIST = 300 /* the bytes of a list of names in a message */ };

static const char *last_layer(const sp_resources *r)
{
    return r->graph.node[r->graph.n_nodes - 1].name;
}

/* ---- classes and columns ---- */

/* Compares the classes. With other names the last layer relearns them, which is a
 * warning; the same names in another order would be mixed up silently, which is an
 * error. A newly initialized last layer fits any classes. */
static sp_status compare_classes(const sp_resources *r, const sp_normalization *norm,
                                 const char *path)
{
    const sp_strings *skip = &r->config->run.init_skip;

    if (sp_graph_is_named(skip, last_layer(r)))
        return SP_OK;
    switch (sp_resources_compare_classes(r, norm)) {
    case SP_OTHER_ORDER:
        return sp_resources_refuse_classes(r, norm, path, SP_EDATA);
    case SP_OTHER_NAMES:
        sp_log_warn0("%s was trained on other classes than %s has: the last layer "
                     "begins with the weights of other classes (add \"%s\" to "
                     "run.init_skip, and it begins at random)",
                     path, r->train.shard[0].path, last_layer(r));
        break;
    case SP_EQUAL:
        break;
    }
    return SP_OK;
}

static void warn_of_columns(const sp_resources *r, const sp_normalization *norm,
                            const char *path)
{
    char theirs[LIST], ours[LIST];

    if (!norm->name ||
        sp_dataset_compare_names(norm->n_columns, norm->name, r->norm.n_columns,
                                 r->norm.name) == SP_EQUAL)
        return;
    sp_dataset_print_names(theirs, sizeof theirs, norm->n_columns, norm->name, NULL);
    sp_dataset_print_names(ours, sizeof ours, r->norm.n_columns, r->norm.name, NULL);
    sp_log_warn0("%s was trained on the feature columns %s, but data.train has %s: the "
                 "first layer takes one for the other",
                 path, theirs, ours);
}

/* ---- what moved ---- */

static void say_classes(const sp_resources *r, const sp_normalization *norm,
                        const char *path)
{
    char theirs[LIST], ours[LIST];

    if (!norm->class_name || sp_resources_compare_classes(r, norm) == SP_EQUAL)
        return;
    sp_dataset_print_names(theirs, sizeof theirs, norm->n_classes, norm->class_name,
                           NULL);
    sp_dataset_print_names(ours, sizeof ours, r->n_classes, r->class_name, NULL);
    sp_log_info("classes: %s of %s, now %s", theirs, path, ours);
}

static void say_moved(const sp_resources *r, const sp_checkpoint_state *state,
                      const char *path)
{
    const sp_strings *skip = &r->config->run.init_skip;
    const sp_graph *g = &r->graph;
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
static sp_status init_compare(const sp_resources *r, const char *path)
{
    sp_checkpoint_state state = {0};
    sp_normalization norm = {0};
    sp_status rc = sp_checkpoint_read_state(path, &state, &norm);

    if (rc == SP_OK)
        rc = compare_classes(r, &norm, path);
    if (rc == SP_OK)
        rc = sp_dataset_match_recipe(&r->train, norm.recipe, path);
    if (rc == SP_OK) {
        warn_of_columns(r, &norm, path);
        say_moved(r, &state, path);
        say_classes(r, &norm, path);
    }
    sp_checkpoint_state_destroy(&state);
    sp_normalization_destroy(&norm);
    return rc;
}

sp_status sp_init_weights(sp_resources *r)
{
    const char *path = r->config->run.init_from;
    sp_status rc = SP_OK;

    assert(r->net.impl);
    assert(path[0] && r->norm.name);
    SP_TRY(sp_session_load(r, &(sp_weights_source){.path = path}));
    if (r->fault[0])
        return SP_FAIL(SP_EDATA,
                       "%s:%s, expected a finite number: its training had diverged",
                       path, r->fault);
    if (r->comm->rank == 0)
        rc = init_compare(r, path);
    SP_TRY(sp_comm_agree(r->comm, rc));
    return sp_init_norm_of(r, path);
}

sp_status sp_init_check(sp_resources *r)
{
    const char *path = r->config->run.init_from;
    const sp_graph *g = &r->graph;
    sp_status rc = SP_OK;

    if (!path[0])
        return SP_OK;
    SP_TRY(sp_comm_agree(r->comm, sp_resources_normalize(r, &r->train)));
    if (r->comm->rank == 0) {
        float *param =
            malloc((size_t)(g->n_floats + g->n_buffer_floats) * sizeof *param);

        rc = !param ? SP_FAIL(SP_EMEM, "out of memory")
                    : sp_checkpoint_read_init(path, g, &r->norm,
                                              &r->config->run.init_skip, param,
                                              param + g->n_floats);
        free(param);
        if (rc == SP_OK)
            rc = init_compare(r, path);
    }
    SP_TRY(sp_comm_agree(r->comm, rc));
    return sp_init_norm_of(r, path);
}

/* ---- keys ---- */

sp_status sp_init_check_keys(const sp_resources *r)
{
    const sp_config *config = r->config;

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
static sp_status fill_norm(sp_resources *r, const sp_normalization *source,
                           const char *path)
{
    sp_normalization *norm = &r->norm;

    for (int i = 0; i < norm->n_columns; i++) {
        const int at =
            source->name ? sp_text_find(source->n_columns, source->name, norm->name[i])
                         : -1;

        if (at < 0)
            return SP_FAIL(SP_EDATA,
                           "%s: has no statistics of feature column %s, which "
                           "run.init_norm = \"source\" asks for",
                           path, norm->name[i]);
        norm->mean[i] = source->mean ? source->mean[at] : 0;
        norm->std[i] = source->mean ? source->std[at] : 1;
    }
    return SP_OK;
}

sp_status sp_init_norm_of(sp_resources *r, const char *path)
{
    const size_t bytes = (size_t)r->norm.n_columns * sizeof(double);
    sp_checkpoint_state state = {0};
    sp_normalization source = {0};
    sp_status rc = SP_OK;

    assert(path);
    if (r->config->run.init_norm != SP_INIT_NORM_SOURCE || !r->norm.mean)
        return SP_OK;
    if (r->comm->rank == 0) {
        rc = sp_checkpoint_read_state(path, &state, &source);
        if (rc == SP_OK)
            rc = fill_norm(r, &source, path);
    }
    sp_checkpoint_state_destroy(&state);
    sp_normalization_destroy(&source);
    SP_TRY(sp_comm_agree(r->comm, rc));
    SP_TRY(sp_comm_bcast(r->comm, r->norm.mean, bytes, 0));
    return sp_comm_bcast(r->comm, r->norm.std, bytes, 0);
}

/* ---- report ---- */

/* Counts the layers that an entry of train.lr_layers counts for. */
static int count_layers(const sp_resources *r, int entry)
{
    const sp_graph *g = &r->graph;
    int n = 0;

    for (int i = 0; i < g->n_nodes; i++)
        n += g->node[i].weight >= 0 && !g->node[i].is_frozen &&
             sp_graph_lr_entry(r->config, g->node[i].name) == entry;
    return n;
}

void sp_init_report(const sp_resources *r)
{
    const sp_strings *factors = &r->config->train.lr_layers;
    const sp_graph *g = &r->graph;
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
                    count_layers(r, i), sp_plural(count_layers(r, i)));
}
