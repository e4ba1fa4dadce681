/* The memory of a training step, from the graph and the voxels of each level.
 *
 * sp_net keeps every activation until the next step and a gradient from its first
 * contribution to its use, in blocks that are used again. This walks the same way with
 * sizes alone: batch norm [+ add] [+ activation] is one pass that stores its end,
 * the inputs of a concat are columns of its block, and a gradient is handed on in place
 * where the operation allows it.
 */
#include "sp_graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct node_memory {
    int reader;       /* the only node that reads it, -1: none or several */
    bool is_absorbed; /* inside a chain */
    bool is_column;   /* lies in a concat */
    int norm;         /* batch norm whose chain ends or passes here, -1 */
    int residual;     /* added in the chain: node, SP_INPUT_NODE - 1: none */
    int grad_block;   /* -1: no gradient has arrived */
    int64_t bytes;
} node_memory;

enum { NO_RESIDUAL = SP_INPUT_NODE - 1 };

typedef struct memory {
    const sp_graph *graph;
    node_memory *node;
    int64_t *block; /* bytes of each */
    int *n_holders;
    int n_blocks;
    int64_t bytes; /* all blocks */
} memory;

static void find_chain(const memory *m, int norm)
{
    const sp_graph *g = m->graph;
    int end = norm, residual = NO_RESIDUAL, next = m->node[norm].reader;

    if (next >= 0 && g->node[next].op == SP_OP_ADD && g->node[next].n_in == 2 &&
        m->node[next].norm < 0) {
        residual = g->node[next].in[g->node[next].in[0] == norm];
        m->node[end].is_absorbed = true;
        m->node[next].norm = norm;
        end = next;
        next = m->node[end].reader;
    }
    if (next >= 0 && g->node[next].op == SP_OP_RELU && g->node[next].slope >= 0) {
        m->node[end].is_absorbed = true;
        end = next;
    }
    m->node[end].norm = norm;
    m->node[end].residual = residual;
}

static int64_t bytes_of(const sp_node *node, const int64_t *voxels)
{
    int64_t rows = node->level < 0 ? 0 : voxels[node->level];

    return rows * node->c_out * (int64_t)sizeof(float);
}

static void find_stored(const memory *m, const int64_t *voxels)
{
    const sp_graph *g = m->graph;

    for (int i = 0; i < g->n_nodes; i++) {
        const sp_node *n = &g->node[i];

        m->node[i] = (node_memory){.reader = -1,
                                   .norm = -1,
                                   .residual = NO_RESIDUAL,
                                   .grad_block = -1,
                                   .bytes = bytes_of(n, voxels)};
        for (int k = 0; k < n->n_in; k++) {
            int in = n->in[k];

            if (in >= 0 && g->node[in].n_uses == 1)
                m->node[in].reader = i;
            if (in >= 0 && n->op == SP_OP_CONCAT)
                m->node[in].is_column = true;
        }
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == SP_OP_BATCHNORM)
            find_chain(m, i);
}

/* ---- the gradients ---- */

static int take_block(memory *m, int64_t bytes)
{
    int best = -1;

    for (int i = 0; i < m->n_blocks; i++)
        if (!m->n_holders[i] && m->block[i] >= bytes &&
            (best < 0 || m->block[i] < m->block[best]))
            best = i;
    if (best < 0) {
        best = m->n_blocks++;
        m->block[best] = bytes;
        m->bytes += bytes;
    }
    m->n_holders[best] = 1;
    return best;
}

static bool wants_grad(const memory *m, int node)
{
    return node >= 0 && m->graph->node[node].needs_grad;
}

static void add_grad(memory *m, int node)
{
    if (wants_grad(m, node) && m->node[node].grad_block < 0)
        m->node[node].grad_block = take_block(m, m->node[node].bytes);
}

/* In place: the buffer of `from` becomes that of `to`, if that has none. */
static void hand_on(memory *m, int from, int to)
{
    if (!wants_grad(m, to) || m->node[to].grad_block >= 0)
        return;
    m->node[to].grad_block = m->node[from].grad_block;
    m->node[from].grad_block = -1;
}

static void norm_backward(memory *m, int i)
{
    int x = m->graph->node[m->node[i].norm].in[0], residual = m->node[i].residual;
    bool takes = wants_grad(m, residual) && m->node[residual].grad_block < 0;

    if (!takes) {
        hand_on(m, i, x);
    } else if (residual == x) {
        add_grad(m, x);
    } else {
        add_grad(m, x);
        hand_on(m, i, residual);
    }
}

static void concat_backward(memory *m, int i)
{
    const sp_node *n = &m->graph->node[i];

    for (int k = 0; k < n->n_in; k++) {
        if (!wants_grad(m, n->in[k]) || m->node[n->in[k]].grad_block >= 0)
            continue;
        m->node[n->in[k]].grad_block = m->node[i].grad_block;
        m->n_holders[m->node[i].grad_block]++;
    }
}

static void node_backward(memory *m, int i)
{
    const sp_node *n = &m->graph->node[i];

    if (m->node[i].norm >= 0) {
        norm_backward(m, i);
        return;
    }
    switch (n->op) {
    case SP_OP_RELU:
    case SP_OP_DROPOUT:
        hand_on(m, i, n->in[0]);
        break;
    case SP_OP_CONCAT:
        concat_backward(m, i);
        break;
    case SP_OP_ADD:
        for (int k = 0; k < n->n_in - 1; k++)
            add_grad(m, n->in[k]);
        hand_on(m, i, n->in[n->n_in - 1]);
        break;
    default:
        add_grad(m, n->in[0]);
    }
}

static void walk_backward(memory *m)
{
    int last = m->graph->n_nodes - 1;

    add_grad(m, last);
    for (int i = last; i >= 0; i--) {
        if (m->node[i].is_absorbed || m->node[i].grad_block < 0)
            continue;
        node_backward(m, i);
        if (m->node[i].grad_block >= 0)
            m->n_holders[m->node[i].grad_block]--;
        m->node[i].grad_block = -1;
    }
}

int64_t sp_graph_memory_bytes(const sp_graph *graph, const int64_t *voxels_of_level)
{
    size_t n = (size_t)graph->n_nodes;
    memory m = {.graph = graph,
                .node = calloc(n, sizeof *m.node),
                .block = calloc(n, sizeof *m.block),
                .n_holders = calloc(n, sizeof *m.n_holders)};
    int64_t bytes = -1;

    if (m.node && m.block && m.n_holders) {
        find_stored(&m, voxels_of_level);
        for (int i = 0; i < graph->n_nodes; i++) {
            if (!m.node[i].is_absorbed && !m.node[i].is_column)
                m.bytes += m.node[i].bytes;
            if (graph->node[i].op == SP_OP_MAX_POOL)
                m.bytes += m.node[i].bytes; /* which input won */
        }
        walk_backward(&m);
        bytes = m.bytes;
    }
    free(m.node);
    free(m.block);
    free(m.n_holders);
    return bytes;
}
