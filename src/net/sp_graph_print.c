/* Prints a graph as a table of layers. */
#include "net/sp_graph.h"

#include <assert.h>
#include <string.h>

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
    const bool is_coarser = node->row->has_map && !node->row->is_transposed;
    char norm[64] = "";

    if (node->level >= 0)
        snprintf(stride, sizeof stride, "%d", 1 << node->level);
    if (node->row->has_map && node->stride > 1)
        snprintf(kernel, sizeof kernel, "%d^3 / %d", node->kernel, node->stride);
    else if (node->row->has_map)
        snprintf(kernel, sizeof kernel, "%d^3", node->kernel);
    write_inputs(g, node, from, sizeof from);
    if (node->op == SP_OP_BATCHNORM)
        snprintf(norm, sizeof norm, "; eps %g, momentum %g", node->eps, node->momentum);
    if (is_coarser && node->stride > 1 && g->spec.is_dilated[node->level])
        snprintf(norm, sizeof norm, "; dilated coordinates");
    fprintf(to, "%-*s %-15s %6s  %-8s %5d %5d %11lld  %s%s%s\n", width, node->name,
            node->row->word.name, stride, kernel, node->c_in, node->c_out,
            (long long)weights_of(g, node), from, norm,
            node->is_frozen && node->weight >= 0 ? "; frozen" : "");
}

void sp_graph_print(const sp_graph *graph, FILE *to)
{
    int width = 5, n_convs = 0;

    assert(graph->n_nodes > 0 && to);
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
            "%d layer%s, %d of them %sconvolution%s; %lld parameters; %d kernel map%s "
            "on %d coordinate level%s\n",
            graph->n_nodes, sp_plural(graph->n_nodes), n_convs,
            n_convs == 1 ? "a " : "", sp_plural(n_convs), (long long)graph->n_weights,
            graph->spec.n_maps, sp_plural(graph->spec.n_maps), graph->spec.n_levels,
            sp_plural(graph->spec.n_levels));
}
