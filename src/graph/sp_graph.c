#include "graph/sp_graph.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_names.h"

enum { ALIGN = 16, MAX_INPUT = SP_MAX_INPUTS, MAX_CHANNELS = 1 << 20 };

/* One operation of net.layers. `fields` lists the fields that its layers may have, and
 * must have where the letter is a capital: o out, k kernel, s stride, b bias, p, l
 * slope. */
typedef struct op_entry {
    const char *name;
    sp_op op;
    const char *fields;
    int min_inputs, max_inputs;
    const char *help;
} op_entry;

/* clang-format off */
static const op_entry ops[] = {
    {"conv", SP_OP_CONV, "OKsb", 1, 1,
     "kernel^3 offsets; stride 1 (default), 2, 4, ...; bias false by default"},
    {"conv_transpose", SP_OP_CONV, "OKsb", 1, 1,
     "back to the coordinates of a finer stride that a layer before it has"},
    {"linear", SP_OP_CONV, "Ob", 1, 1, "conv of kernel 1"},
    {"batchnorm", SP_OP_BATCHNORM, "", 1, 1, "over all voxels of train.bn_scope"},
    {"relu", SP_OP_RELU, "", 1, 1, ""},
    {"leaky_relu", SP_OP_RELU, "l", 1, 1, "slope below 0: 0.01 by default"},
    {"add", SP_OP_ADD, "", 2, MAX_INPUT, "of equal channels and stride"},
    {"concat", SP_OP_CONCAT, "", 2, MAX_INPUT, "channels in the order of from"},
    {"dropout", SP_OP_DROPOUT, "p", 1, 1, "in training; p = 0.5 by default"},
    {"max_pool", SP_OP_MAX_POOL, "kS", 1, 1,
     "over the voxels present; kernel = stride by default"},
    {"avg_pool", SP_OP_AVG_POOL, "kS", 1, 1,
     "over the voxels present; kernel = stride by default"},
    {"global_avg_pool", SP_OP_GLOBAL_AVG_POOL, "", 1, 1, "one row a sample"},
    {"global_max_pool", SP_OP_GLOBAL_MAX_POOL, "", 1, 1, "one row a sample"},
    {"broadcast", SP_OP_BROADCAST, "", 1, 1,
     "that row back to the voxels that were pooled"},
};
/* clang-format on */
enum { N_OPS = sizeof ops / sizeof ops[0] };

/* The state of sp_graph_build. */
typedef struct builder {
    sp_graph *graph;
    const sp_layer *layer;         /* the layer that is being built */
    sp_family family;              /* of layers that a family made */
    bool has_level[SP_MAX_LEVELS]; /* true if some tensor lives on the level */
    /* [n] level that was pooled, for nodes with a row for each sample */
    int *pooled_level;
} builder;

#define REFUSE(b, ...) refuse(SP_EUSAGE, (b), __FILE__, __LINE__, __func__, __VA_ARGS__)

static sp_status refuse(sp_status rc, const builder *b, const char *file, int line,
                        const char *func, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Fails with a message about the layer that is being built: "input/a.deck:12: layer
 * conv1: ...". */
static sp_status refuse(sp_status rc, const builder *b, const char *file, int line,
                        const char *func, const char *format, ...)
{
    char text[SP_ERROR_MESSAGE];
    va_list args;

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

/* ---- one layer: op, inputs, fields ---- */

void sp_graph_print_ops(FILE *to)
{
    static const char *const field[128] = {
        ['o'] = "out",  ['k'] = "kernel", ['s'] = "stride",
        ['b'] = "bias", ['p'] = "p",      ['l'] = "slope"};

    fprintf(to, "%-16s %-29s %s\n", "op", "fields", "meaning");
    for (int i = 0; i < N_OPS; i++) {
        char text[64] = "";

        if (ops[i].max_inputs > 1)
            snprintf(text, sizeof text, "from of 2 to %d layers", ops[i].max_inputs);
        for (const char *f = ops[i].fields; *f; f++) {
            size_t used = strlen(text);
            bool must = *f >= 'A' && *f <= 'Z';

            snprintf(text + used, sizeof text - used, must ? "%s%s" : "%s[%s]",
                     used ? " " : "",
                     field[(unsigned char)(must ? *f - 'A' + 'a' : *f)]);
        }
        fprintf(to, "%-16s %-29s %s\n", ops[i].name, *text ? text : "-", ops[i].help);
    }
}

static const op_entry *find_op(const char *name)
{
    for (int i = 0; i < N_OPS; i++)
        if (!strcmp(ops[i].name, name))
            return &ops[i];
    return NULL;
}

static sp_status set_op(builder *b, sp_node *node, const op_entry **entry)
{
    const op_entry *best = &ops[0];

    *entry = find_op(b->layer->op);
    for (int i = 1; !*entry && i < N_OPS; i++)
        if (sp_names_distance(ops[i].name, b->layer->op) <
            sp_names_distance(best->name, b->layer->op))
            best = &ops[i];
    if (!*entry)
        return REFUSE(b, "unknown op \"%s\"; nearest is \"%s\"", b->layer->op,
                      best->name);
    node->op = (*entry)->op;
    snprintf(node->op_name, sizeof node->op_name, "%s", (*entry)->name);
    return SP_OK;
}

static sp_status check_fields(builder *b, const op_entry *entry)
{
    const sp_layer *l = b->layer;
    const struct {
        const char *name, *letters;
        bool is_given;
    } field[] = {{"out", "oO", l->out >= 0},       {"kernel", "kK", l->kernel >= 0},
                 {"stride", "sS", l->stride >= 0}, {"bias", "bB", l->bias >= 0},
                 {"p", "pP", !isnan(l->p)},        {"slope", "lL", !isnan(l->slope)}};

    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++) {
        bool may = strpbrk(entry->fields, field[i].letters);
        bool must = strchr(entry->fields, field[i].letters[1]);

        if (field[i].is_given && !may)
            return REFUSE(b, "%s takes no %s", entry->name, field[i].name);
        if (!field[i].is_given && must)
            return REFUSE(b, "%s needs %s", entry->name, field[i].name);
    }
    return SP_OK;
}

static sp_status find_input(builder *b, int n_before, const char *name, int *input)
{
    const char *best = "input";

    *input = SP_INPUT_NODE;
    if (!strcmp(name, "input"))
        return SP_OK;
    for (*input = 0; *input < n_before; ++*input)
        if (!strcmp(b->graph->node[*input].name, name))
            return SP_OK;
    for (int i = 0; i < n_before; i++)
        if (sp_names_distance(b->graph->node[i].name, name) <
            sp_names_distance(best, name))
            best = b->graph->node[i].name;
    return REFUSE(b, "from \"%s\": no layer before it has this name; nearest is \"%s\"",
                  name, best);
}

static sp_status set_inputs(builder *b, sp_node *node, int index, const op_entry *entry)
{
    const sp_strings *from = &b->layer->from;
    int n = from->n ? from->n : 1;

    if (n < entry->min_inputs || n > entry->max_inputs)
        return REFUSE(b, "%s takes %s%d layers in from, found %d", entry->name,
                      entry->min_inputs < entry->max_inputs ? "2 to " : "",
                      entry->max_inputs, n);
    node->n_in = n;
    node->in[0] = index - 1; /* SP_INPUT_NODE for the first layer */
    for (int i = 0; i < from->n; i++)
        SP_TRY(find_input(b, index, from->at[i], &node->in[i]));
    for (int i = 0; i < n; i++)
        if (node->in[i] >= 0)
            b->graph->node[node->in[i]].n_uses++;
    return SP_OK;
}

static sp_status set_name(builder *b, sp_node *node, int index)
{
    if (!strcmp(b->layer->name, "input"))
        return REFUSE(b, "the name \"input\" stands for the features of the voxels");
    for (int i = 0; i < index; i++)
        if (!strcmp(b->graph->node[i].name, b->layer->name))
            return REFUSE(b, "a layer before it has the same name");
    snprintf(node->name, sizeof node->name, "%s", b->layer->name);
    return SP_OK;
}

/* ---- shapes ---- */

static int level_of(const builder *b, int input)
{
    return input < 0 ? 0 : b->graph->node[input].level;
}

static int channels_of(const builder *b, int input)
{
    return input < 0 ? b->graph->c_in : b->graph->node[input].c_out;
}

static sp_status same_level(builder *b, const sp_node *node)
{
    for (int i = 1; i < node->n_in; i++) {
        int first = level_of(b, node->in[0]), other = level_of(b, node->in[i]);

        if (first < 0 && other < 0)
            continue;
        if (first < 0 || other < 0)
            return REFUSE(b, "inputs %s and %s: rows of voxels and of samples",
                          b->layer->from.at[0], b->layer->from.at[i]);
        if (first != other)
            return REFUSE(b, "inputs %s and %s have strides %d and %d",
                          b->layer->from.at[0], b->layer->from.at[i], 1 << first,
                          1 << other);
    }
    return SP_OK;
}

static sp_status shape_add(builder *b, sp_node *node)
{
    SP_TRY(same_level(b, node));
    for (int i = 1; i < node->n_in; i++)
        if (channels_of(b, node->in[i]) != node->c_in)
            return REFUSE(b, "inputs %s and %s have %d and %d channels",
                          b->layer->from.at[0], b->layer->from.at[i], node->c_in,
                          channels_of(b, node->in[i]));
    return SP_OK;
}

static sp_status shape_concat(builder *b, sp_node *node)
{
    int64_t c = 0;

    SP_TRY(same_level(b, node));
    for (int i = 0; i < node->n_in; i++)
        c += channels_of(b, node->in[i]);
    if (c > MAX_CHANNELS)
        return REFUSE(b, "%lld channels are above %d", (long long)c, MAX_CHANNELS);
    node->c_in = node->c_out = (int)c;
    return SP_OK;
}

/* Returns the number of levels that a stride moves: 1 -> 0, 2 -> 1, 4 -> 2; -1 if it is
 * no power of two. */
static int log2_of(int stride)
{
    int n = 0;

    while (stride > 1 << n && n < 30)
        n++;
    return stride == 1 << n ? n : -1;
}

static sp_status shape_stride(builder *b, sp_node *node)
{
    const sp_layer *l = b->layer;
    bool is_up = !strcmp(node->op_name, "conv_transpose");
    int in = level_of(b, node->in[0]), steps;

    node->stride = l->stride > 0 ? l->stride : 1;
    node->kernel = l->kernel > 0            ? l->kernel
                   : node->op == SP_OP_CONV ? 1
                                            : node->stride;
    steps = log2_of(node->stride);
    if (steps < 0)
        return REFUSE(b, "stride %d is no power of two", node->stride);
    if (node->kernel > SP_MAX_KERNEL)
        return REFUSE(b, "kernel %d is above %d", node->kernel, SP_MAX_KERNEL);
    if (in < 0 && (node->kernel > 1 || node->stride > 1))
        return REFUSE(b, "kernel and stride of rows of samples can only be 1");
    if (node->op != SP_OP_CONV && node->kernel == 1 && node->stride == 1)
        return REFUSE(b, "a pool of kernel 1 and stride 1 does nothing");
    if (in < 0)
        return SP_OK;
    if (is_up && (steps > in || !b->has_level[in - steps]))
        return REFUSE(b,
                      "stride %d back from stride %d: no layer before it has the finer "
                      "coordinates",
                      node->stride, 1 << in);
    node->level = is_up ? in - steps : in + steps;
    if (node->level >= SP_MAX_LEVELS)
        return REFUSE(b, "tensor stride %d times %d is above %d", 1 << in, node->stride,
                      1 << (SP_MAX_LEVELS - 1));
    return SP_OK;
}

static sp_status shape_global(builder *b, sp_node *node, int index)
{
    int in = node->in[0];

    if (node->op == SP_OP_BROADCAST) {
        if (level_of(b, in) >= 0)
            return REFUSE(b, "broadcast needs the rows of samples of a global pool");
        node->level = b->pooled_level[in];
        return SP_OK;
    }
    if (level_of(b, in) < 0)
        return REFUSE(b, "%s of what is one row a sample already", node->op_name);
    b->pooled_level[index] = node->level;
    node->level = SP_LEVEL_SAMPLE;
    return SP_OK;
}

/* Sets level, channels, kernel and stride of a node. */
static sp_status set_shape(builder *b, sp_node *node, int index)
{
    const sp_layer *l = b->layer;

    node->level = level_of(b, node->in[0]);
    node->c_in = node->c_out = channels_of(b, node->in[0]);
    node->slope = node->op != SP_OP_RELU                 ? 1
                  : !isnan(l->slope)                     ? (float)l->slope
                  : !strcmp(node->op_name, "leaky_relu") ? 0.01f
                                                         : 0;
    node->p = node->op == SP_OP_DROPOUT ? isnan(l->p) ? 0.5f : (float)l->p : 0;
    node->kernel = node->stride = 1;
    if (node->in[0] >= 0)
        b->pooled_level[index] = b->pooled_level[node->in[0]];
    switch (node->op) {
    case SP_OP_CONV:
        node->c_out = l->out;
        return shape_stride(b, node);
    case SP_OP_MAX_POOL:
    case SP_OP_AVG_POOL:
        return shape_stride(b, node);
    case SP_OP_ADD:
        return shape_add(b, node);
    case SP_OP_CONCAT:
        return shape_concat(b, node);
    case SP_OP_GLOBAL_AVG_POOL:
    case SP_OP_GLOBAL_MAX_POOL:
    case SP_OP_BROADCAST:
        return shape_global(b, node, index);
    default:
        return SP_OK;
    }
}

/* ---- kernel maps ---- */

static sp_status share_map(builder *b, int in, int out, int kernel, bool is_swapped,
                           int *map)
{
    sp_plan_spec *spec = &b->graph->spec;
    sp_map_key key = {(uint8_t)in, (uint8_t)out, (uint8_t)kernel, is_swapped};

    for (*map = 0; *map < spec->n_maps; ++*map)
        if (!memcmp(&spec->map[*map], &key, sizeof key))
            return SP_OK;
    if (spec->n_maps == SP_MAX_MAPS)
        return REFUSE(b, "the network needs more than %d kernel maps", SP_MAX_MAPS);
    spec->map[spec->n_maps++] = key;
    return SP_OK;
}

static sp_status set_maps(builder *b, sp_node *node)
{
    int in = level_of(b, node->in[0]), out = node->level, k = node->kernel;
    bool is_conv = node->op == SP_OP_CONV, is_flat = in == out;
    bool is_up = !strcmp(node->op_name, "conv_transpose");
    bool has_grad = node->in[0] >= 0 && b->graph->node[node->in[0]].needs_grad;

    node->map = node->grad_map = -1;
    if (!is_conv && node->op != SP_OP_MAX_POOL && node->op != SP_OP_AVG_POOL)
        return SP_OK;
    if (is_flat && k == 1)
        return SP_OK;
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

/* ---- parameters ---- */

static int add_entry(sp_param **list, int *n, int64_t *floats, const sp_node *node,
                     const char *what, sp_param entry)
{
    sp_param *p = &(*list)[*n];

    *p = entry;
    snprintf(p->name, sizeof p->name, "%s/%s", node->name, what);
    p->count = 1;
    for (int i = 0; i < p->n_dims; i++)
        p->count *= p->dim[i];
    p->offset = *floats;
    *floats += (p->count + ALIGN - 1) / ALIGN * ALIGN;
    return (*n)++;
}

static void add_params(sp_graph *g, sp_node *node, int index, bool has_bias)
{
    const bool is_norm = node->op == SP_OP_BATCHNORM;
    int K = node->kernel * node->kernel * node->kernel;
    sp_param weight = {.n_dims = 3, .dim = {K, node->c_in, node->c_out}, .node = index};
    sp_param vector = {
        .n_dims = 1, .dim = {node->c_out}, .node = index, .is_norm = is_norm};
    int mean, var;

    node->weight = node->bias = -1;
    node->running_mean = node->running_var = -1;
    if (node->op == SP_OP_CONV) {
        if (K == 1)
            weight = (sp_param){
                .n_dims = 2, .dim = {node->c_in, node->c_out}, .node = index};
        weight.fan_out = K * node->c_out;
        node->weight =
            add_entry(&g->param, &g->n_params, &g->n_floats, node, "weight", weight);
    } else if (is_norm) {
        vector.start = 1;
        node->weight =
            add_entry(&g->param, &g->n_params, &g->n_floats, node, "weight", vector);
        var = add_entry(&g->buffer, &g->n_buffers, &g->n_buffer_floats, node,
                        "running_var", vector);
        vector.start = 0;
        mean = add_entry(&g->buffer, &g->n_buffers, &g->n_buffer_floats, node,
                         "running_mean", vector);
        node->running_var = g->buffer[var].offset;
        node->running_mean = g->buffer[mean].offset;
    }
    if (is_norm || has_bias)
        node->bias =
            add_entry(&g->param, &g->n_params, &g->n_floats, node, "bias", vector);
}

/* ---- the whole graph ---- */

static sp_status add_node(builder *b, int index)
{
    sp_graph *g = b->graph;
    sp_node *node = &g->node[index];
    const op_entry *entry;

    SP_TRY(set_name(b, node, index));
    SP_TRY(set_op(b, node, &entry));
    SP_TRY(check_fields(b, entry));
    SP_TRY(set_inputs(b, node, index, entry));
    SP_TRY(set_shape(b, node, index));
    SP_TRY(set_maps(b, node));
    add_params(g, node, index, b->layer->bias > 0);
    node->needs_grad = node->weight >= 0;
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

static sp_status check_end(builder *b, const sp_layer *layers)
{
    const sp_graph *g = b->graph;
    const sp_node *last = &g->node[g->n_nodes - 1];

    for (int i = 0; i < g->n_nodes - 1; i++) {
        b->layer = &layers[i];
        if (g->node[i].n_uses == 0)
            return REFUSE(b, "no layer reads it");
    }
    b->layer = &layers[g->n_nodes - 1];
    if (last->level != 0)
        return REFUSE(b, "the last layer has to be on the voxels, at stride 1");
    if (last->c_out != g->n_classes)
        return refuse(SP_EDATA, b, __FILE__, __LINE__, __func__,
                      "the last layer has %d channels, the data %d classes",
                      last->c_out, g->n_classes);
    if (!last->needs_grad)
        return REFUSE(b, "the network has no parameters");
    return SP_OK;
}

static sp_status build(builder *b, const sp_layer *layers, int n)
{
    sp_graph *g = b->graph;

    g->node = calloc((size_t)n, sizeof *g->node);
    g->param = calloc(2 * (size_t)n, sizeof *g->param);
    g->buffer = calloc(2 * (size_t)n, sizeof *g->buffer);
    b->pooled_level = calloc((size_t)n, sizeof *b->pooled_level);
    if (!g->node || !g->param || !g->buffer || !b->pooled_level)
        return SP_FAIL(SP_EMEM, "network of %d layers: out of memory", n);
    b->has_level[0] = true;
    g->spec.n_levels = 1;
    for (int i = 0; i < n; i++) {
        b->layer = &layers[i];
        SP_TRY(add_node(b, i));
    }
    for (int i = 0; i < g->n_params; i++)
        g->n_weights += g->param[i].count;
    SP_TRY(check_end(b, layers));
    return SP_OK;
}

sp_status sp_graph_build(sp_graph *graph, const sp_config *config, int c_in,
                         int n_classes)
{
    builder b = {.graph = graph, .family = config->net.family};
    sp_layer *made = NULL;
    const sp_layer *layers = config->net.layers;
    int n = config->net.n_layers;
    sp_status rc = SP_OK;

    *graph = (sp_graph){.c_in = c_in, .n_classes = n_classes};
    if (c_in < 1 || n_classes < 1)
        return SP_FAIL(SP_EUSAGE, "network of %d input channels and %d classes", c_in,
                       n_classes);
    if (n == 0) {
        rc = sp_graph_family(config, n_classes, &made, &n);
        layers = made;
    }
    if (rc == SP_OK)
        rc = build(&b, layers, n);
    free(b.pooled_level);
    if (made)
        sp_layers_destroy(made, n);
    SP_TRY(rc);
    return SP_OK;
}

void sp_graph_destroy(sp_graph *graph)
{
    free(graph->node);
    free(graph->param);
    free(graph->buffer);
    *graph = (sp_graph){0};
}
