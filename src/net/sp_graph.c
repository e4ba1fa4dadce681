#include "net/sp_graph_internal.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

sp_status sp_graph_refuse(sp_status rc, const sp_graph_builder *b, const char *file,
                          int line, const char *func, const char *format, ...)
{
    char text[SP_ERROR_MESSAGE];
    va_list args;

    assert(rc != SP_OK);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!b->layer->file)
        return sp_error_set(rc, file, line, func, "net.family = \"%s\": layer %s: %s",
                            sp_family_word[b->family], b->layer->name, text);
    if (b->layer->line == 0)
        return sp_error_set(rc, file, line, func, "%s: layer %s: %s", b->layer->file,
                            b->layer->name, text);
    return sp_error_set(rc, file, line, func, "%s:%d: layer %s: %s", b->layer->file,
                        b->layer->line, b->layer->name, text);
}

/* ---- one layer: name, inputs ---- */

static sp_status find_input(sp_graph_builder *b, int n_before, const char *name,
                            int *input)
{
    const char *best = "input";

    *input = SP_INPUT_NODE;
    if (!strcmp(name, "input"))
        return SP_OK;
    for (*input = 0; *input < n_before; ++*input)
        if (!strcmp(b->graph->node[*input].name, name))
            return SP_OK;
    for (int i = 0; i < n_before; i++)
        if (sp_word_distance(b->graph->node[i].name, name) <
            sp_word_distance(best, name))
            best = b->graph->node[i].name;
    return SP_REFUSE(b,
                     "from \"%s\": no layer before it has this name; nearest is \"%s\"",
                     name, best);
}

static sp_status set_inputs(sp_graph_builder *b, sp_node *node, int index,
                            const sp_op_row *row)
{
    const sp_strings *from = &b->layer->from;
    int n = from->n ? from->n : 1;

    if (n > row->max_inputs || (n < 2 && row->max_inputs > 1))
        return SP_REFUSE(b, "%s takes %s%d layers in from, found %d", row->word.name,
                         row->max_inputs > 1 ? "2 to " : "", row->max_inputs, n);
    node->n_in = n;
    node->in[0] = index - 1; /* SP_INPUT_NODE for the first layer */
    for (int i = 0; i < from->n; i++)
        SP_TRY(find_input(b, index, from->at[i], &node->in[i]));
    for (int i = 0; i < n; i++)
        if (node->in[i] >= 0)
            b->graph->node[node->in[i]].n_uses++;
    return SP_OK;
}

static sp_status set_name(sp_graph_builder *b, sp_node *node, int index)
{
    if (!strcmp(b->layer->name, "input"))
        return SP_REFUSE(
            b, "the name \"input\" is reserved for the features of the voxels");
    for (int i = 0; i < index; i++)
        if (!strcmp(b->graph->node[i].name, b->layer->name))
            return SP_REFUSE(b, "a layer before it has the same name");
    snprintf(node->name, sizeof node->name, "%s", b->layer->name);
    return SP_OK;
}

/* ---- shapes and kernel maps ---- */

int sp_graph_level_of(const sp_graph_builder *b, int input)
{
    assert(input < b->graph->n_nodes);
    return input < 0 ? 0 : b->graph->node[input].level;
}

int sp_graph_channels_of(const sp_graph_builder *b, int input)
{
    assert(input < b->graph->n_nodes);
    return input < 0 ? b->graph->c_in : b->graph->node[input].c_out;
}

/* Sets level, channels, kernel and stride of a node: its first input's, except as the
 * operation's rule says. */
static sp_status set_shape(sp_graph_builder *b, sp_node *node, int index)
{
    node->op = node->row->op;
    node->level = sp_graph_level_of(b, node->in[0]);
    node->c_in = node->c_out = sp_graph_channels_of(b, node->in[0]);
    node->slope = 1;
    node->kernel = node->stride = 1;
    node->weight = node->bias = -1;
    node->running_mean = node->running_var = -1;
    if (node->in[0] >= 0)
        b->pooled_level[index] = b->pooled_level[node->in[0]];
    return node->row->set_shape ? node->row->set_shape(b, node) : SP_OK;
}

static sp_status share_map(sp_graph_builder *b, int in, int out, int kernel,
                           bool is_swapped, int *map)
{
    sp_plan_spec *spec = &b->graph->spec;
    sp_map_key key = {(uint8_t)in, (uint8_t)out, (uint8_t)kernel, is_swapped};

    for (*map = 0; *map < spec->n_maps; ++*map)
        if (!memcmp(&spec->map[*map], &key, sizeof key))
            return SP_OK;
    if (spec->n_maps == SP_MAX_MAPS)
        return SP_REFUSE(b, "the network needs more than %d kernel maps", SP_MAX_MAPS);
    spec->map[spec->n_maps++] = key;
    return SP_OK;
}

static sp_status set_maps(sp_graph_builder *b, sp_node *node)
{
    int in = sp_graph_level_of(b, node->in[0]), out = node->level, k = node->kernel;
    bool is_conv = node->op == SP_OP_CONV, is_flat = in == out;
    bool is_up = node->row->is_transposed;
    bool has_grad = node->in[0] >= 0 && b->graph->node[node->in[0]].needs_grad;

    node->map = node->grad_map = -1;
    if (!node->row->has_map || (is_flat && k == 1))
        return SP_OK;
    if (node->op == SP_OP_INTERPOLATE)
        return share_map(b, in, in, k, false, &node->map);
    /* a transposed convolution of stride 1 uses the convolution's map with in and out
     * swapped */
    SP_TRY(share_map(b, in, out, k, is_flat && is_up, &node->map));
    if (!is_conv || !has_grad)
        return SP_OK;
    node->is_mirrored = is_flat && k % 2;
    node->grad_map = node->map;
    if (!node->is_mirrored)
        SP_TRY(share_map(b, out, in, k, is_flat && !is_up, &node->grad_map));
    return SP_OK;
}

/* ---- the whole graph ---- */

/* Sizes are computed in 64 bits. Networks that no machine can hold are refused here, so
 * that no such sum overflows: a kernel has at most 343 * 2^40 floats. */
static sp_status check_size(const sp_graph_builder *b)
{
    const int64_t most = (int64_t)1 << 40;

    if (b->graph->n_floats > most)
        return SP_REFUSE(b, "with it the network has %lld parameters, above %lld",
                         (long long)b->graph->n_floats, (long long)most);
    return SP_OK;
}

static sp_status add_node(sp_graph_builder *b, int index)
{
    sp_graph *g = b->graph;
    sp_node *node = &g->node[index];

    SP_TRY(set_name(b, node, index));
    SP_TRY(sp_graph_find_op(b, &node->row));
    SP_TRY(sp_graph_check_fields(b, node->row));
    SP_TRY(set_inputs(b, node, index, node->row));
    SP_TRY(set_shape(b, node, index));
    SP_TRY(set_maps(b, node));
    if (node->row->add_params)
        node->row->add_params(b, node);
    SP_TRY(check_size(b));
    node->is_frozen = sp_graph_is_named(b->freeze, node->name);
    node->needs_grad = node->weight >= 0 && !node->is_frozen;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] >= 0 && g->node[node->in[i]].needs_grad)
            node->needs_grad = true;
    if (node->level >= 0)
        b->has_level[node->level] = true;
    if (node->level >= g->spec.n_levels)
        g->spec.n_levels = node->level + 1;
    g->n_nodes++;
    return SP_OK;
}

static sp_status graph_check_end(sp_graph_builder *b, const sp_layer *layers)
{
    const sp_graph *g = b->graph;
    const sp_node *last = &g->node[g->n_nodes - 1];

    for (int i = 0; i < g->n_nodes - 1; i++) {
        b->layer = &layers[i];
        if (g->node[i].n_uses == 0)
            return SP_REFUSE(b, "no layer reads it");
    }
    b->layer = &layers[g->n_nodes - 1];
    if (last->level != 0)
        return SP_REFUSE(b, "the last layer has to be on the voxels, at stride 1");
    if (last->c_out != g->n_classes)
        return sp_graph_refuse(SP_EDATA, b, __FILE__, __LINE__, __func__,
                               "the last layer has %d channels, the data %d classes",
                               last->c_out, g->n_classes);
    if (g->n_params == 0)
        return SP_REFUSE(b, "the network has no parameters");
    return SP_OK;
}

static sp_status graph_build(sp_graph_builder *b, const sp_layer *layers, int n)
{
    sp_graph *g = b->graph;

    SP_TRY(SP_NEW(&g->node, n, "the layers of the network"));
    SP_TRY(SP_NEW(&g->param, 2 * (size_t)n, "the layers of the network"));
    SP_TRY(SP_NEW(&g->buffer, 2 * (size_t)n, "the layers of the network"));
    SP_TRY(SP_NEW(&b->pooled_level, n, "the layers of the network"));
    b->has_level[0] = true;
    g->spec.n_levels = 1;
    for (int i = 0; i < b->grid->n; i++)
        g->spec.grid[i] = (int32_t)b->grid->at[i];
    for (int i = 0; i < n; i++) {
        b->layer = &layers[i];
        SP_TRY(add_node(b, i));
    }
    for (int i = 0; i < g->n_params; i++)
        g->n_weights += g->param[i].count;
    SP_TRY(graph_check_end(b, layers));
    return SP_OK;
}

sp_status sp_graph_build(sp_graph *graph, const sp_config *config, int c_in,
                         int n_classes)
{
    sp_graph_builder b = {.graph = graph,
                          .family = config->net.family,
                          .bn_eps = config->net.bn_eps,
                          .bn_momentum = config->net.bn_momentum,
                          .grid = &config->net.grid,
                          .freeze = &config->train.freeze};
    sp_layer *made = NULL;
    const sp_layer *layers = config->net.layers;
    int n = config->net.n_layers;
    sp_status rc = SP_OK;

    assert(graph && c_in >= 0 && n_classes >= 1);
    *graph = (sp_graph){.c_in = c_in, .n_classes = n_classes};
    if (c_in < 1 || n_classes < 1)
        return SP_FAIL(SP_EUSAGE, "network of %d input channels and %d classes", c_in,
                       n_classes);
    if (n == 0) {
        rc = sp_graph_family(config, n_classes, &made, &n);
        layers = made;
    }
    if (rc == SP_OK)
        rc = graph_build(&b, layers, n);
    free(b.pooled_level);
    if (made)
        sp_layers_destroy(made, n);
    SP_TRY(rc);
    return SP_OK;
}

int64_t sp_graph_stride(const sp_graph *graph)
{
    assert(graph->spec.n_levels >= 1);
    return (int64_t)1 << (graph->spec.n_levels - 1);
}

void sp_graph_destroy(sp_graph *graph)
{
    free(graph->node);
    free(graph->param);
    free(graph->buffer);
    *graph = (sp_graph){0};
}
