/* What people see of a graph: the table of layers, and the memory a step takes. */
#include "sp_graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static int64_t weights_of(const sp_graph *g, const sp_node *node)
{
    return (node->weight < 0 ? 0 : g->param[node->weight].count) +
           (node->bias < 0 ? 0 : g->param[node->bias].count);
}

static void write_inputs(const sp_graph *g, const sp_node *node, char *to, size_t room)
{
    size_t used = 0;

    *to = 0;
    for (int i = 0; i < node->n_in && used < room; i++)
        used += (size_t)snprintf(to + used, room - used, "%s%s", i ? ", " : "",
                                 node->in[i] < 0 ? "input" : g->node[node->in[i]].name);
}

static void print_node(const sp_graph *g, const sp_node *node, int width, FILE *to)
{
    char from[SP_MAX_INPUTS * (SP_NAME + 2)], stride[16] = "sample", kernel[24] = "";
    bool has_kernel = node->op == SP_OP_CONV || node->op == SP_OP_MAX_POOL ||
                      node->op == SP_OP_AVG_POOL;

    if (node->level >= 0)
        snprintf(stride, sizeof stride, "%d", 1 << node->level);
    if (has_kernel && node->stride > 1)
        snprintf(kernel, sizeof kernel, "%d^3 / %d", node->kernel, node->stride);
    else if (has_kernel)
        snprintf(kernel, sizeof kernel, "%d^3", node->kernel);
    write_inputs(g, node, from, sizeof from);
    fprintf(to, "%-*s %-15s %6s  %-8s %5d %5d %11lld  %s\n", width, node->name,
            node->op_name, stride, kernel, node->c_in, node->c_out,
            (long long)weights_of(g, node), from);
}

void sp_graph_print(const sp_graph *graph, FILE *to)
{
    int width = 5, n_convs = 0;

    for (int i = 0; i < graph->n_nodes; i++) {
        int length = (int)strlen(graph->node[i].name);

        width = length > width ? length : width;
        n_convs += graph->node[i].op == SP_OP_CONV;
    }
    fprintf(to, "%-*s %-15s %6s  %-8s %5s %5s %11s  %s\n", width, "layer", "op",
            "stride", "kernel", "in", "out", "parameters", "from");
    for (int i = 0; i < graph->n_nodes; i++)
        print_node(graph, &graph->node[i], width, to);
    fprintf(to,
            "%d layers, %d of them convolutions; %lld parameters; %d kernel maps on %d "
            "coordinate levels\n",
            graph->n_nodes, n_convs, (long long)graph->n_weights, graph->spec.n_maps,
            graph->spec.n_levels);
}

/* ---- memory ----
 * The network keeps every activation until its gradient was taken, except inside the
 * chain batch norm [+ add] [+ activation], which is one pass, and in concatenations,
 * whose inputs are columns of the result. A gradient lives from its first contribution
 * to its use. */

typedef struct node_memory {
    int reader;       /* the only node that reads it, -1: none or several */
    bool is_absorbed; /* inside a chain */
    bool is_claimed;  /* add: some batch norm's chain has it */
    bool is_column;   /* lies in a concatenation */
    bool has_grad;    /* during the walk backwards */
    int64_t bytes;
} node_memory;

static void absorb_chain(const sp_graph *g, node_memory *m, int i)
{
    int next = m[i].reader;

    if (next >= 0 && g->node[next].op == SP_OP_ADD && g->node[next].n_in == 2 &&
        !m[next].is_claimed) {
        m[next].is_claimed = m[i].is_absorbed = true;
        i = next;
        next = m[i].reader;
    }
    if (next >= 0 && g->node[next].op == SP_OP_RELU && g->node[next].slope >= 0)
        m[i].is_absorbed = true;
}

static void find_stored(const sp_graph *g, node_memory *m, const int64_t *voxels)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const sp_node *n = &g->node[i];

        m[i].reader = -1;
        m[i].bytes =
            n->level < 0 ? 0 : voxels[n->level] * n->c_out * (int64_t)sizeof(float);
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] < 0)
                continue;
            m[n->in[k]].reader = g->node[n->in[k]].n_uses == 1 ? i : -1;
            m[n->in[k]].is_column |= n->op == SP_OP_CONCAT;
        }
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == SP_OP_BATCHNORM)
            absorb_chain(g, m, i);
}

/* The greatest sum of gradients alive at a time. Within a chain the gradient is passed
 * on in place, as it is through a column. */
static int64_t peak_gradients(const sp_graph *g, node_memory *m)
{
    int64_t live = m[g->n_nodes - 1].bytes, peak = live;

    m[g->n_nodes - 1].has_grad = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const sp_node *n = &g->node[i];
        bool is_in_place = false;

        for (int k = 0; k < n->n_in; k++) {
            int in = n->in[k];

            if (in < 0 || !g->node[in].needs_grad || m[in].has_grad)
                continue;
            m[in].has_grad = true;
            if (!is_in_place && m[in].is_absorbed)
                is_in_place = true;
            else
                live += m[in].bytes;
        }
        peak = live > peak ? live : peak;
        if (m[i].has_grad && !is_in_place)
            live -= m[i].bytes;
    }
    return peak;
}

int64_t sp_graph_memory_bytes(const sp_graph *graph, const int64_t *voxels_of_level)
{
    node_memory *m = calloc((size_t)graph->n_nodes, sizeof *m);
    int64_t bytes = 0;

    if (!m)
        return 0;
    find_stored(graph, m, voxels_of_level);
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!m[i].is_absorbed && !m[i].is_column)
            bytes += m[i].bytes;
        if (graph->node[i].op == SP_OP_MAX_POOL)
            bytes += m[i].bytes; /* which input won */
    }
    bytes += peak_gradients(graph, m);
    free(m);
    return bytes;
}
