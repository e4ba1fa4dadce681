/* The operations of net.layers: one table with all that the graph, the memory of the
 * network and the help text need of each, and the rules of their shapes and parameters.
 * Their arithmetic is called by src/net, which knows an operation only by its sp_op.
 * Rows may share one; such an operation needs only its row in the program, since its
 * kernel map follows from its shape and is_transposed: linear is a convolution of
 * kernel 1. upsample is a mean over the transposed map of a pool: a finer voxel lies in
 * one coarser voxel, so the mean is this voxel's row. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "net/sp_graph_internal.h"

enum { ALIGN = 16, MAX_CHANNELS = 1 << 20 };

/* ---- shapes ---- */

static int graph_index_of(const sp_graph_builder *b, const sp_node *node)
{
    return (int)(node - b->graph->node);
}

static sp_status same_level(const sp_graph_builder *b, const sp_node *node)
{
    for (int i = 1; i < node->n_in; i++) {
        int first = sp_graph_level_of(b, node->in[0]);
        int other = sp_graph_level_of(b, node->in[i]);

        if (first < 0 && other < 0)
            continue;
        if (first < 0 || other < 0)
            return SP_REFUSE(b, "inputs %s and %s: rows of voxels and of samples",
                             b->layer->from.at[0], b->layer->from.at[i]);
        if (first != other)
            return SP_REFUSE(b, "inputs %s and %s have strides %d and %d",
                             b->layer->from.at[0], b->layer->from.at[i], 1 << first,
                             1 << other);
    }
    return SP_OK;
}

static sp_status shape_add(sp_graph_builder *b, sp_node *node)
{
    SP_TRY(same_level(b, node));
    for (int i = 1; i < node->n_in; i++)
        if (sp_graph_channels_of(b, node->in[i]) != node->c_in)
            return SP_REFUSE(b, "inputs %s and %s have %d and %d channels",
                             b->layer->from.at[0], b->layer->from.at[i], node->c_in,
                             sp_graph_channels_of(b, node->in[i]));
    return SP_OK;
}

static sp_status shape_concat(sp_graph_builder *b, sp_node *node)
{
    int64_t c = 0;

    SP_TRY(same_level(b, node));
    for (int i = 0; i < node->n_in; i++)
        c += sp_graph_channels_of(b, node->in[i]);
    if (c > MAX_CHANNELS)
        return SP_REFUSE(b, "%lld channels are above %d", (long long)c, MAX_CHANNELS);
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

/* Sets the level of the node's output from the input's level, which node->level holds
 * before, by stride and direction; checks kernel and stride. */
static sp_status set_level(sp_graph_builder *b, sp_node *node)
{
    const bool is_up = node->row->is_transposed;
    const int in = node->level, steps = log2_of(node->stride);

    if (steps < 0)
        return SP_REFUSE(b, "stride %d is no power of two", node->stride);
    if (node->kernel > SP_MAX_KERNEL)
        return SP_REFUSE(b, "kernel %d%s is above %d", node->kernel,
                         b->layer->kernel > 0 ? "" : " (the stride's, by default)",
                         SP_MAX_KERNEL);
    if (in < 0 && (node->kernel > 1 || node->stride > 1))
        return SP_REFUSE(b, "kernel and stride of rows of samples can only be 1");
    if (node->op != SP_OP_CONV && node->kernel == 1 && node->stride == 1)
        return SP_REFUSE(b, "%s of kernel 1 and stride 1 does nothing",
                         node->row->word.name);
    if (in < 0)
        return SP_OK;
    if (is_up && (steps > in || !b->has_level[in - steps]))
        return SP_REFUSE(b,
                         "stride %d back from stride %d: no layer before it has the "
                         "finer coordinates",
                         node->stride, 1 << in);
    node->level = is_up ? in - steps : in + steps;
    if (node->level >= SP_MAX_LEVELS)
        return SP_REFUSE(b, "tensor stride %d times %d is above %d", 1 << in,
                         node->stride, 1 << (SP_MAX_LEVELS - 1));
    return SP_OK;
}

/* The voxels of a level belong to all layers on it, so the first that leads there from
 * a finer stride decides which they are. Level 0 exists before any layer. */
static sp_status shape_coordinates(sp_graph_builder *b, const sp_node *node, int from)
{
    bool *is_dilated = &b->graph->spec.is_dilated[node->level];
    const bool is_ours = b->layer->coordinates == SP_COORDS_DILATED;

    if (node->level <= from) {
        if (is_ours)
            return SP_REFUSE(b, "only a stride of 2 can have dilated coordinates");
        return SP_OK;
    }
    if (is_ours && (node->kernel != 3 || node->stride != 2))
        return SP_REFUSE(b, "dilated coordinates need kernel 3 and stride 2");
    for (int l = from + 1; l < node->level; l++)
        if (b->graph->spec.is_dilated[l])
            return SP_REFUSE(b,
                             "stride %d passes over stride %d, which has dilated "
                             "coordinates",
                             node->stride, 1 << l);
    for (int l = node->level + 1; is_ours && l < SP_MAX_LEVELS; l++)
        if (b->has_level[l])
            return SP_REFUSE(b,
                             "dilated coordinates come too late: a layer before it has "
                             "stride %d",
                             1 << l);
    if (!b->has_level[node->level])
        *is_dilated = is_ours;
    if (*is_dilated != is_ours)
        return SP_REFUSE(b,
                         "a layer before it has given stride %d its %s coordinates, "
                         "this one asks for %s",
                         1 << node->level, *is_dilated ? "dilated" : "floor",
                         is_ours ? "dilated" : "floor");
    return SP_OK;
}

/* Of convolutions and pools: an absent stride is 1, an absent kernel the stride. */
static sp_status shape_strided(sp_graph_builder *b, sp_node *node)
{
    const int from = node->level;

    if (b->layer->out > 0)
        node->c_out = b->layer->out;
    node->stride = b->layer->stride > 0 ? b->layer->stride : 1;
    node->kernel = b->layer->kernel > 0 ? b->layer->kernel : node->stride;
    SP_TRY(set_level(b, node));
    return from < 0 ? SP_OK : shape_coordinates(b, node, from);
}

/* It reads the neighbours of a coarser voxel, by the 2^3 map of that level. */
static sp_status shape_interpolate(sp_graph_builder *b, sp_node *node)
{
    node->stride = b->layer->stride;
    node->kernel = node->stride > 1 ? 2 : 1;
    return set_level(b, node);
}

static sp_status shape_global_pool(sp_graph_builder *b, sp_node *node)
{
    if (node->level < 0)
        return SP_REFUSE(b, "%s of what is one row a sample already",
                         node->row->word.name);
    b->pooled_level[graph_index_of(b, node)] = node->level;
    node->level = SP_LEVEL_SAMPLE;
    return SP_OK;
}

static sp_status shape_broadcast(sp_graph_builder *b, sp_node *node)
{
    if (node->level >= 0)
        return SP_REFUSE(b, "broadcast needs the rows of samples of a global pool");
    node->level = b->pooled_level[graph_index_of(b, node)];
    return SP_OK;
}

static sp_status shape_batchnorm(sp_graph_builder *b, sp_node *node)
{
    const sp_layer *l = b->layer;

    node->eps = isnan(l->eps) ? b->bn_eps : l->eps;
    node->momentum = isnan(l->momentum) ? b->bn_momentum : l->momentum;
    return SP_OK;
}

static sp_status shape_relu(sp_graph_builder *b, sp_node *node)
{
    (void)b;
    node->slope = 0;
    return SP_OK;
}

static sp_status shape_leaky_relu(sp_graph_builder *b, sp_node *node)
{
    node->slope = isnan(b->layer->slope) ? 0.01f : (float)b->layer->slope;
    return SP_OK;
}

static sp_status shape_dropout(sp_graph_builder *b, sp_node *node)
{
    node->p = isnan(b->layer->p) ? 0.5f : (float)b->layer->p;
    return SP_OK;
}

/* ---- parameters ---- */

/* Appends an entry to a list of parameters or of running statistics; its index. */
static int graph_add_entry(sp_param *list, int *n, int64_t *floats, const sp_node *node,
                           const char *what, sp_param entry)
{
    sp_param *p = &list[*n];

    *p = entry;
    snprintf(p->name, sizeof p->name, "%s/%s", node->name, what);
    p->count = 1;
    for (int i = 0; i < p->n_dims; i++)
        p->count *= p->dim[i];
    p->offset = *floats;
    *floats += (p->count + ALIGN - 1) / ALIGN * ALIGN;
    return (*n)++;
}

static int add_param(sp_graph *g, const sp_node *node, const char *what, sp_param entry)
{
    return graph_add_entry(g->param, &g->n_params, &g->n_floats, node, what, entry);
}

static int64_t add_buffer(sp_graph *g, const sp_node *node, const char *what,
                          sp_param entry)
{
    const int i = graph_add_entry(g->buffer, &g->n_buffers, &g->n_buffer_floats, node,
                                  what, entry);

    return g->buffer[i].offset;
}

static void params_of_conv(sp_graph_builder *b, sp_node *node)
{
    const int K = node->kernel * node->kernel * node->kernel,
              at = graph_index_of(b, node);
    sp_param weight = {.n_dims = 3, .dim = {K, node->c_in, node->c_out}, .node = at};
    sp_param bias = {.n_dims = 1, .dim = {node->c_out}, .node = at};

    if (K == 1)
        weight = (sp_param){.n_dims = 2, .dim = {node->c_in, node->c_out}, .node = at};
    weight.fan_out = K * node->c_out;
    node->weight = add_param(b->graph, node, "weight", weight);
    if (b->layer->bias > 0)
        node->bias = add_param(b->graph, node, "bias", bias);
}

static void params_of_norm(sp_graph_builder *b, sp_node *node)
{
    const sp_param zero = {.n_dims = 1,
                           .dim = {node->c_out},
                           .node = graph_index_of(b, node),
                           .is_norm = true};
    sp_param one = zero;

    one.start = 1;
    node->weight = add_param(b->graph, node, "weight", one);
    node->running_var = add_buffer(b->graph, node, "running_var", one);
    node->running_mean = add_buffer(b->graph, node, "running_mean", zero);
    node->bias = add_param(b->graph, node, "bias", zero);
}

/* ---- the table ---- */

#define CONV                                                                           \
    .op = SP_OP_CONV, .set_shape = shape_strided, .add_params = params_of_conv,        \
    .has_map = true, .reads_input = true
#define RELU                                                                           \
    .op = SP_OP_RELU, .reads_input = true, .passes_grad = true, .may_overwrite = true

/* clang-format off */
static const sp_op_row rows[] = {
{{"conv", "out kernel [stride] [bias] [coordinates]",
  "kernel^3 offsets; stride 1 (default), 2, 4, ...; bias false by default; coordinates "
  "\"dilated\" with kernel 3 and stride 2: every voxel that the kernel reaches"}, 1, CONV},
{{"conv_transpose", "out kernel [stride] [bias]",
  "back to the coordinates of a finer stride that a layer before it has"}, 1, CONV,
 .is_transposed = true},
{{"linear", "out [bias]", "conv of kernel 1"}, 1, CONV},
{{"batchnorm", "[eps] [momentum]",
  "over all voxels of train.bn_scope; net.bn_eps, net.bn_momentum by default"}, 1,
 .op = SP_OP_BATCHNORM, .set_shape = shape_batchnorm, .add_params = params_of_norm,
 .reads_input = true, .may_overwrite = true},
{{"relu", "", ""}, 1, RELU, .set_shape = shape_relu},
{{"leaky_relu", "[slope]", "slope below 0: 0.01 by default"}, 1, RELU,
 .set_shape = shape_leaky_relu},
{{"add", "", "of equal channels and stride"}, SP_MAX_INPUTS, .op = SP_OP_ADD,
 .set_shape = shape_add, .passes_grad = true, .may_overwrite = true},
{{"concat", "", "channels in the order of from"}, SP_MAX_INPUTS, .op = SP_OP_CONCAT,
 .set_shape = shape_concat},
{{"dropout", "[p]", "in training; p = 0.5 by default"}, 1, .op = SP_OP_DROPOUT,
 .set_shape = shape_dropout, .passes_grad = true, .may_overwrite = true},
{{"max_pool", "[kernel] stride [coordinates]", "over the voxels present; kernel = stride by default"},
 1, .op = SP_OP_MAX_POOL, .set_shape = shape_strided, .has_map = true, .has_argmax = true},
{{"avg_pool", "[kernel] stride [coordinates]", "over the voxels present; kernel = stride by default"},
 1, .op = SP_OP_AVG_POOL, .set_shape = shape_strided, .has_map = true},
{{"upsample", "stride", "each voxel's row copied to the finer voxels within it"}, 1,
 .op = SP_OP_AVG_POOL, .set_shape = shape_strided, .has_map = true,
 .is_transposed = true},
{{"interpolate", "stride",
  "trilinear between the coarser voxels that are present, at the finer voxels"}, 1,
 .op = SP_OP_INTERPOLATE, .set_shape = shape_interpolate, .has_map = true,
 .is_transposed = true},
{{"global_avg_pool", "", "one row a sample"}, 1, .op = SP_OP_GLOBAL_AVG_POOL,
 .set_shape = shape_global_pool},
{{"global_max_pool", "", "one row a sample"}, 1, .op = SP_OP_GLOBAL_MAX_POOL,
 .set_shape = shape_global_pool, .has_argmax = true},
{{"broadcast", "", "that row back to the voxels that were pooled"}, 1,
 .op = SP_OP_BROADCAST, .set_shape = shape_broadcast},
};
/* clang-format on */
enum { N_ROWS = sizeof rows / sizeof *rows };

sp_status sp_graph_find_op(const sp_graph_builder *b, const sp_op_row **row)
{
    assert(row);
    *row = sp_word_table_find(SP_WORD_TABLE(rows), b->layer->op);
    if (*row)
        return SP_OK;
    return SP_REFUSE(b, "unknown op \"%s\"; nearest is \"%s\"", b->layer->op,
                     sp_word_table_nearest(SP_WORD_TABLE(rows), b->layer->op)->name);
}

/* ---- fields ---- */

/* True if a field is one of `takes`, separated by blanks. */
static bool lists(const char *takes, const char *field)
{
    const size_t n = strlen(field);

    for (const char *at = takes; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");

        if (length == n && memcmp(at, field, n) == 0)
            return true;
        at += length;
    }
    return false;
}

sp_status sp_graph_check_fields(const sp_graph_builder *b, const sp_op_row *row)
{
    const sp_layer *l = b->layer;
    const struct {
        const char *name, *optional;
        bool is_given;
    } field[] = {{"out", "[out]", l->out >= 0},
                 {"kernel", "[kernel]", l->kernel >= 0},
                 {"stride", "[stride]", l->stride >= 0},
                 {"bias", "[bias]", l->bias >= 0},
                 {"coordinates", "[coordinates]", l->coordinates >= 0},
                 {"p", "[p]", !isnan(l->p)},
                 {"slope", "[slope]", !isnan(l->slope)},
                 {"eps", "[eps]", !isnan(l->eps)},
                 {"momentum", "[momentum]", !isnan(l->momentum)}};

    assert(b->layer && row);
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        const bool must = lists(row->word.takes, field[i].name);
        const bool may = must || lists(row->word.takes, field[i].optional);

        if (field[i].is_given && !may)
            return SP_REFUSE(b, "%s takes no %s", row->word.name, field[i].name);
        if (!field[i].is_given && must)
            return SP_REFUSE(b, "%s needs %s", row->word.name, field[i].name);
    }
    return SP_OK;
}

void sp_graph_print_ops(FILE *to)
{
    fprintf(to, "%-16s %-29s %s\n", "op", "fields", "meaning");
    for (int i = 0; i < N_ROWS; i++) {
        const sp_word_entry *word = &rows[i].word;
        char text[64];

        snprintf(text, sizeof text, "%s", *word->takes ? word->takes : "-");
        if (rows[i].max_inputs > 1)
            snprintf(text, sizeof text, "from of 2 to %d layers", rows[i].max_inputs);
        fprintf(to, "%-16s %-29s %s\n", word->name, text, word->help);
    }
}
