/* Weights that another training begins with, of all layers or of some. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/sp_checkpoint_internal.h"
#include "data/sp_shard.h"

enum { MAX_PATH = 256 };

/* True if all parameters that are neither skipped nor of this node or of the last layer
 * are there, in their shapes. */
static bool others_fit(sp_h5 *file, const sp_graph *graph, int node,
                       const sp_strings *skip)
{
    char name[MAX_PATH];

    for (int i = 0; i < graph->n_params; i++) {
        const sp_param *p = &graph->param[i];
        sp_h5_shape shape;

        if (p->node == node || p->node == graph->n_nodes - 1 ||
            sp_graph_is_named(skip, p->name))
            continue;
        snprintf(name, sizeof name, "/params/%s", p->name);
        if (!sp_h5_has(file, name) || sp_h5_shape_of(file, name, &shape) != SP_OK ||
            !sp_checkpoint_has_shape(&shape, p))
            return false;
    }
    return true;
}

/* Refuses a model of other classes, and names the key that leaves its last layer out.
 * If other layers do not fit either, the first of them is named when it is read. */
static sp_status check_init_classes(sp_h5 *file, const sp_graph *graph,
                                    const sp_strings *skip)
{
    const sp_node *last = &graph->node[graph->n_nodes - 1];
    char value[512];
    size_t used = 0;
    int64_t n;

    SP_TRY(sp_checkpoint_find_classes(file, graph, &n));
    if (n == 0 || n == graph->n_classes || sp_graph_is_named(skip, last->name) ||
        !others_fit(file, graph, graph->n_nodes - 1, skip))
        return SP_OK;
    for (int i = 0; i < skip->n && used < sizeof value; i++)
        used += (size_t)snprintf(value + used, sizeof value - used, "\"%s\", ",
                                 skip->at[i]);
    value[used < sizeof value ? used : sizeof value - 1] = '\0';
    return SP_FAIL(SP_EDATA,
                   "%s: the model has %lld classes, the data %d; everything else fits: "
                   "add run.init_skip=[%s\"%s\"], and the last layer begins afresh",
                   sp_h5_path(file), (long long)n, graph->n_classes, value, last->name);
}

/* Refuses a model of more or fewer feature columns. If layers after the first do not
 * fit either, one of them is named when it is read. */
static sp_status check_init_columns(sp_h5 *file, const sp_graph *graph,
                                    const sp_strings *skip,
                                    const sp_normalization *data)
{
    const int first = graph->n_params > 0 ? graph->param[0].node : 0;
    const char *name = graph->node[first].name;
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization model = {0};
    char theirs[300], ours[300];

    SP_TRY(sp_checkpoint_read_open_state(file, &state, &model));
    if (!model.name || model.n_columns == data->n_columns ||
        sp_graph_is_named(skip, name) || !others_fit(file, graph, first, skip))
        return SP_OK;
    sp_dataset_print_names(theirs, sizeof theirs, model.n_columns, model.name, NULL);
    sp_dataset_print_names(ours, sizeof ours, data->n_columns, data->name, NULL);
    return SP_FAIL(SP_EDATA,
                   "%s: the model has the feature columns %s, the data %s: name the "
                   "model's by data.features, or add \"%s\" to run.init_skip, and "
                   "this layer begins afresh",
                   sp_h5_path(file), theirs, ours, name);
}

/* The groups of the weights that the deck of the file says. */
static sp_status find_groups(sp_h5 *file, const char *path, const char **params,
                             const char **buffers)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_config_destroy) sp_config config = {0};
    sp_weights_use use = SP_WEIGHTS_PLAIN;

    SP_TRY(sp_checkpoint_read_open_state(file, &state, NULL));
    if (state.deck) {
        SP_TRY(sp_checkpoint_config(&config, &state, path));
        use = config.run.weights;
    }
    return sp_checkpoint_groups(file, use, params, buffers);
}

sp_status sp_checkpoint_read_init(const char *path, const sp_graph *graph,
                                  const sp_normalization *data, const sp_strings *skip,
                                  float *param, float *running)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;
    const char *params, *buffers;

    assert(path && graph && data && skip && param);
    SP_TRY(sp_h5_open(&file, path));
    SP_TRY(check_init_columns(file, graph, skip, data));
    SP_TRY(check_init_classes(file, graph, skip));
    SP_TRY(find_groups(file, path, &params, &buffers));
    SP_TRY(sp_checkpoint_read_group(file, params, graph->param, graph->n_params, skip,
                                    param));
    return sp_checkpoint_read_group(file, buffers, graph->buffer, graph->n_buffers,
                                    skip, running);
}
