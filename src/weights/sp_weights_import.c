#include "weights/sp_weights_import.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

enum { MOST_CHANNELS = 1 << 16, SHOWN = 20 };

/* ---- names ---- */

static sp_status map_names(sp_import *m)
{
    char to[SP_TENSOR_NAME];

    SP_TRY(SP_NEW(&m->mapped, m->file->n, m->file->path));
    for (int i = 0; i < m->file->n; i++)
        if (sp_naming_map(m->naming, m->file->at[i].name, to) &&
            !(m->mapped[i] = strdup(to)))
            return SP_FAIL(SP_EMEM, "%s: no memory for its names", m->file->path);
    return SP_OK;
}

/* SP_EDATA if the map file leads several tensors to one parameter. */
static sp_status find_mapped(const sp_import *m, const char *ours,
                             const sp_tensor_view **found)
{
    *found = NULL;
    for (int i = 0; i < m->file->n; i++) {
        if (!m->mapped[i] || strcmp(m->mapped[i], ours) != 0)
            continue;
        if (*found)
            return SP_FAIL(SP_EDATA, "%s: the map file leads %s and %s to %s",
                           m->file->path, (*found)->name, m->file->at[i].name, ours);
        *found = &m->file->at[i];
    }
    return SP_OK;
}

/* Finds the tensor of a parameter; key is its name in the file, or ours if a map file
 * finds no name. */
static sp_status find_tensor(const sp_import *m, const sp_graph *graph,
                             const sp_param *p, char key[SP_TENSOR_NAME],
                             const sp_tensor_view **found, bool *is_named)
{
    char plain[SP_TENSOR_NAME];

    *is_named = true;
    if (m->naming->kind == SP_NAMING_MAP) {
        sp_naming_ours(p, key);
        SP_TRY(find_mapped(m, key, found));
        if (*found)
            snprintf(key, SP_TENSOR_NAME, "%s", (*found)->name);
        return SP_OK;
    }
    *is_named = sp_naming_key(m->naming, graph, p, plain);
    if ((size_t)snprintf(key, SP_TENSOR_NAME, "%s%s", m->prefix, plain) >=
        SP_TENSOR_NAME)
        *is_named = false;
    *found = *is_named ? sp_tensors_find(m->file, key) : NULL;
    return SP_OK;
}

/* ---- the network ---- */

/* Channels of a kernel's tensor; false if its dimensions cannot be a kernel's. */
static bool channels_of(const sp_layout *layout, const sp_tensor_view *t,
                        bool is_linear, int64_t *in, int64_t *out)
{
    const int r = t->rank;

    if (r < 2)
        return false;
    if (is_linear || layout->kind == SP_LAYOUT_SPCONV2) {
        *out = t->dim[0];
        *in = t->dim[r - 1];
    } else {
        *in = t->dim[r - 2];
        *out = t->dim[r - 1];
    }
    return *in >= 1 && *out >= 1 && *in <= MOST_CHANNELS && *out <= MOST_CHANNELS;
}

/* A list of layers states its number of classes; a family asks for it. */
static int classes_of_layers(const sp_config *config)
{
    for (int i = config->net.n_layers - 1; i >= 0; i--)
        if (config->net.layers[i].out > 0)
            return config->net.layers[i].out;
    return 1;
}

/* Reads the numbers of columns and classes from the file. `graph` was built with
 * others, which changes no name. */
static sp_status find_channels(const sp_import *m, const sp_graph *graph,
                               const sp_config *config, int *n_columns, int *n_classes)
{
    bool has_first = false;

    *n_columns = 1;
    *n_classes = classes_of_layers(config);
    for (int i = 0; i < graph->n_params; i++) {
        const sp_param *p = &graph->param[i];
        const sp_node *node = &graph->node[p->node];
        const bool is_first =
            !has_first && node->n_in == 1 && node->in[0] == SP_INPUT_NODE;
        const bool is_last = p->node == graph->n_nodes - 1;
        const sp_tensor_view *t;
        char key[SP_TENSOR_NAME];
        int64_t in, out;
        bool is_named;

        if (!sp_layout_is_kernel(graph, p) || !(is_first || is_last))
            continue;
        SP_TRY(find_tensor(m, graph, p, key, &t, &is_named));
        if (!t ||
            !channels_of(&m->naming->layout, t,
                         sp_naming_is_linear(m->naming, graph, p, key), &in, &out))
            continue;
        if (is_first)
            *n_columns = (int)in;
        if (is_last && config->net.n_layers == 0)
            *n_classes = (int)out;
        has_first = has_first || is_first;
    }
    return SP_OK;
}

static sp_status build_graph(sp_import *m, const sp_config *config, const char *prefix)
{
    SP_CLOSED_BY(sp_graph_destroy) sp_graph draft = {0};
    int n_columns = 1, n_classes = 1;

    SP_TRY(sp_graph_build(&draft, config, 1, classes_of_layers(config)));
    if (prefix)
        snprintf(m->prefix, sizeof m->prefix, "%s", prefix);
    else if (m->naming->kind != SP_NAMING_MAP)
        sp_naming_find_prefix(m->naming, &draft, m->file, m->prefix, m->other_prefix);
    SP_TRY(find_channels(m, &draft, config, &n_columns, &n_classes));
    return sp_graph_build(&m->graph, config, n_columns, n_classes);
}

/* ---- match ---- */

static sp_status match_item(sp_import *m, sp_import_item *item)
{
    const sp_graph *graph = &m->graph;
    const sp_layout *layout = &m->naming->layout;
    int64_t want[SP_TENSOR_RANK];
    char key[SP_TENSOR_NAME];
    bool is_named, is_linear;
    int rank;

    SP_TRY(find_tensor(m, graph, item->param, key, &item->tensor, &is_named));
    item->key = strdup(key);
    if (!item->key)
        return SP_FAIL(SP_EMEM, "%s: out of memory", m->file->path);
    item->state = is_named ? SP_IMPORT_MISSING : SP_IMPORT_UNNAMED;
    if (!item->tensor)
        return SP_OK;
    m->is_used[item->tensor - m->file->at] = true;
    is_linear = sp_naming_is_linear(m->naming, graph, item->param, key);
    rank = sp_layout_shape(layout, graph, item->param, is_linear, want);
    item->state = SP_IMPORT_MATCHED;
    if (!sp_layout_fits(item->tensor->rank, item->tensor->dim, rank, want))
        item->state = SP_IMPORT_OTHER_SHAPE;
    else if (sp_layout_difference(layout, graph, &graph->node[item->param->node]))
        item->state = SP_IMPORT_OTHER_OPERATION;
    m->n_matched += item->state == SP_IMPORT_MATCHED;
    return SP_OK;
}

sp_status sp_import_open(sp_import *m, const sp_tensors *file, const sp_naming *naming,
                         const sp_config *config, const char *prefix)
{
    assert(file && naming && config);
    memset(m, 0, sizeof *m);
    m->file = file;
    m->naming = naming;
    if (naming->kind == SP_NAMING_MAP)
        SP_TRY(map_names(m));
    SP_TRY(build_graph(m, config, prefix));
    m->n = m->graph.n_params + m->graph.n_buffers;
    SP_TRY(SP_NEW(&m->item, m->n, file->path));
    SP_TRY(SP_NEW(&m->is_used, file->n, file->path));
    for (int i = 0; i < m->n; i++) {
        m->item[i].param = i < m->graph.n_params
                               ? &m->graph.param[i]
                               : &m->graph.buffer[i - m->graph.n_params];
        SP_TRY(match_item(m, &m->item[i]));
    }
    return SP_OK;
}

/* ---- numbers ---- */

static bool is_variance(const sp_param *p)
{
    return strcmp(strrchr(p->name, '/'), "/running_var") == 0;
}

static sp_status fill_item(const sp_import *m, const sp_import_item *item, float *flat)
{
    const sp_param *p = item->param;
    SP_FREED float *numbers = NULL;

    SP_TRY(SP_NEW(&numbers, p->count, item->key));
    SP_TRY(sp_tensor_read(m->file, item->tensor, numbers));
    for (int64_t i = 0; is_variance(p) && i < p->count; i++)
        if (numbers[i] < 0)
            return SP_FAIL(SP_EDATA,
                           "%s: tensor %s: element %lld is %g, expected no "
                           "negative variance",
                           m->file->path, item->key, (long long)i, (double)numbers[i]);
    sp_layout_to_ours(&m->naming->layout, &m->graph, p,
                      sp_naming_is_linear(m->naming, &m->graph, p, item->key), numbers,
                      flat + p->offset);
    return SP_OK;
}

sp_status sp_import_fill(sp_import *m)
{
    const sp_graph *graph = &m->graph;

    SP_TRY(SP_NEW(&m->param, graph->n_floats, m->file->path));
    SP_TRY(SP_NEW(&m->running, graph->n_buffer_floats, m->file->path));
    sp_graph_init_buffers(graph, m->running);
    for (int i = 0; i < m->n; i++)
        if (m->item[i].state == SP_IMPORT_MATCHED)
            SP_TRY(
                fill_item(m, &m->item[i], i < graph->n_params ? m->param : m->running));
    return SP_OK;
}

void sp_import_list(const sp_import *m, bool *has)
{
    for (int i = 0; i < m->n; i++)
        has[i] = m->item[i].state == SP_IMPORT_MATCHED;
}

/* ---- report ---- */

static void print_shapes(const sp_import *m, const sp_import_item *item, FILE *to)
{
    const bool is_linear =
        sp_naming_is_linear(m->naming, &m->graph, item->param, item->key);
    char found[SP_TENSOR_SHAPE], expected[SP_TENSOR_SHAPE];
    int64_t want[SP_TENSOR_RANK];
    const int rank =
        sp_layout_shape(&m->naming->layout, &m->graph, item->param, is_linear, want);

    sp_tensor_print_shape(rank, want, expected);
    if (item->tensor)
        fprintf(to, ": %s, expected %s\n",
                sp_tensor_print_shape(item->tensor->rank, item->tensor->dim, found),
                expected);
    else
        fprintf(to, " %s\n", expected);
}

static void print_item(const sp_import *m, const sp_import_item *item, FILE *to)
{
    char ours[SP_TENSOR_NAME];

    sp_naming_ours(item->param, ours);
    switch (item->state) {
    case SP_IMPORT_MATCHED:
        return;
    case SP_IMPORT_MISSING:
        fprintf(to, "  missing in the file: %s", item->key);
        print_shapes(m, item, to);
        return;
    case SP_IMPORT_UNNAMED:
        fprintf(to, "  no name in this naming: %s", ours);
        print_shapes(m, item, to);
        return;
    case SP_IMPORT_OTHER_SHAPE:
        fprintf(to, "  other shape: %s", item->key);
        print_shapes(m, item, to);
        return;
    case SP_IMPORT_OTHER_OPERATION:
        fprintf(to, "  other operation: %s: %s\n", item->key,
                sp_layout_difference(&m->naming->layout, &m->graph,
                                     &m->graph.node[item->param->node]));
        return;
    }
}

/* Optimizers' tensors have no prefix of the network, and batch norms count batches,
 * which nothing needs. */
static bool is_left_over(const sp_import *m, int i)
{
    static const char counter[] = "num_batches_tracked";
    const char *name = m->file->at[i].name;
    const size_t n = strlen(name), end = sizeof counter - 1;

    return !m->is_used[i] && strncmp(name, m->prefix, strlen(m->prefix)) == 0 &&
           !(n >= end && strcmp(name + n - end, counter) == 0);
}

static void print_left_over(const sp_import *m, FILE *to)
{
    char shape[SP_TENSOR_SHAPE];
    int n = 0, n_outside = 0;

    for (int i = 0; i < m->file->n; i++) {
        const sp_tensor_view *t = &m->file->at[i];

        n_outside += strncmp(t->name, m->prefix, strlen(m->prefix)) != 0;
        if (is_left_over(m, i) && n++ < SHOWN)
            fprintf(to, "  left over in the file: %s %s\n", t->name,
                    sp_tensor_print_shape(t->rank, t->dim, shape));
    }
    if (n > SHOWN)
        fprintf(to, "  left over in the file: %d more\n", n - SHOWN);
    if (n_outside)
        fprintf(to, "  %d tensor%s without the prefix: not looked at\n", n_outside,
                sp_plural(n_outside));
}

/* Batch norms of Pointcept's SpUNet add another number than most networks'. */
static void print_norm_advice(const sp_import *m, FILE *to)
{
    const bool is_spunet = m->naming->kind == SP_NAMING_POINTCEPT && m->graph.n_nodes &&
                           strcmp(m->graph.node[0].name, "conv_input.0") == 0;

    for (int i = 0; is_spunet && i < m->graph.n_nodes; i++)
        if (m->graph.node[i].op == SP_OP_BATCHNORM && m->graph.node[i].eps != 1e-3) {
            fprintf(to,
                    "  SpUNet's batch norms have eps 1e-3, the deck's %g: give "
                    "net.bn_eps=1e-3 net.bn_momentum=0.01\n",
                    m->graph.node[i].eps);
            return;
        }
}

void sp_import_print(const sp_import *m, FILE *to)
{
    int n_bad = 0;

    fprintf(to, "%s: %s, %d tensor%s", m->file->path, m->file->container, m->file->n,
            sp_plural(m->file->n));
    if (m->prefix[0])
        fprintf(to, ", prefix %s", m->prefix);
    fprintf(to,
            "\n%d of %d parameters and statistics of the network matched; %d "
            "columns, %d classes\n",
            m->n_matched, m->n, m->graph.c_in, m->graph.n_classes);
    if (m->other_prefix[0])
        fprintf(to, "  the file has as many under another prefix: --prefix %s\n",
                m->other_prefix);
    for (int i = 0; i < m->n; i++)
        if (m->item[i].state != SP_IMPORT_MATCHED && n_bad++ < SHOWN)
            print_item(m, &m->item[i], to);
    if (n_bad > SHOWN)
        fprintf(to, "  %d more of the network did not match\n", n_bad - SHOWN);
    print_left_over(m, to);
    print_norm_advice(m, to);
}

void sp_import_close(sp_import *m)
{
    for (int i = 0; m->item && i < m->n; i++)
        free(m->item[i].key);
    for (int i = 0; m->mapped && i < m->file->n; i++)
        free(m->mapped[i]);
    free(m->mapped);
    free(m->item);
    free(m->is_used);
    free(m->param);
    free(m->running);
    sp_graph_destroy(&m->graph);
    memset(m, 0, sizeof *m);
}
