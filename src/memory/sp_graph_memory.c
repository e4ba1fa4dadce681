/* The memory of a training step, from the graph and the voxels of each level.
 *
 * This walks as sp_net does, forward and backward, with sizes alone and the same
 * ranges: batch norm [+ add] [+ activation] is one pass that stores its end, the inputs
 * of a concat are columns of its range, a gradient is handed on in place where the
 * operation allows it, and a frugal net writes what norms wrote anew where it is
 * wanted.
 */
#include "graph/sp_graph.h"

#include <stdlib.h>
#include <string.h>

#include "compute/sp_ranges.h"

typedef struct node_memory {
    int reader;        /* the only node that reads it, -1: none or several */
    bool is_absorbed;  /* inside a chain */
    int norm;          /* batch norm whose chain ends or passes here, -1 */
    int residual;      /* added in the chain: node, SP_INPUT_NODE - 1: none */
    bool is_rectified; /* the chain ends with an activation */
    int home;          /* concat whose columns hold it; itself */
    int grad_range;    /* -1: no gradient has arrived */
    int64_t bytes;
    /* of homes */
    bool is_cheap;          /* norms alone write it */
    bool is_passed;         /* read backward only to write others anew */
    int first, last, until; /* nodes: first written, last read, last used backward */
    int range;              /* -1: not there */
} node_memory;

enum { NO_RESIDUAL = SP_INPUT_NODE - 1 };

typedef struct memory {
    const sp_graph *graph;
    node_memory *node;
    sp_ranges ranges;
    bool is_training, is_frugal;
    int elem_bytes, channels; /* a row is a multiple of so many channels */
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
        m->node[end].is_rectified = g->node[end].slope != 1;
    }
    m->node[end].norm = norm;
    m->node[end].residual = residual;
}

static int64_t bytes_of(const memory *m, const sp_node *node, const int64_t *voxels)
{
    int64_t rows = node->level < 0 ? 0 : voxels[node->level];

    return rows * ((node->c_out + m->channels - 1) / m->channels * m->channels) *
           m->elem_bytes;
}

static void find_stored(const memory *m, const int64_t *voxels)
{
    const sp_graph *g = m->graph;

    for (int i = 0; i < g->n_nodes; i++) {
        const sp_node *n = &g->node[i];

        m->node[i] = (node_memory){.reader = -1,
                                   .norm = -1,
                                   .residual = NO_RESIDUAL,
                                   .home = i,
                                   .grad_range = -1,
                                   .is_cheap = true,
                                   .is_passed = true,
                                   .first = -1,
                                   .last = -1,
                                   .until = -1,
                                   .range = -1,
                                   .bytes = bytes_of(m, n, voxels)};
        for (int k = 0; k < n->n_in; k++) {
            int in = n->in[k];

            if (in >= 0 && g->node[in].n_uses == 1)
                m->node[in].reader = i;
        }
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == SP_OP_BATCHNORM)
            find_chain(m, i);
}

/* ---- where outputs live, and how long ---- */

static int home_of(const memory *m, int i)
{
    while (i >= 0 && m->node[i].home != i)
        i = m->node[i].home;
    return i;
}

/* Each lies in one concat, the last that reads it. */
static void find_homes(const memory *m)
{
    for (int i = m->graph->n_nodes - 1; i >= 0; i--) {
        const sp_node *n = &m->graph->node[i];

        for (int k = 0; n->op == SP_OP_CONCAT && k < n->n_in; k++)
            if (n->in[k] >= 0 && m->node[n->in[k]].home == n->in[k])
                m->node[n->in[k]].home = i;
    }
}

/* What the pass that ends at node i reads: number of nodes, in `in`. */
static int inputs_of(const memory *m, int i, int *in)
{
    const node_memory *end = &m->node[i];
    const sp_node *n = &m->graph->node[end->norm >= 0 ? end->norm : i];
    int n_in = n->n_in;

    memcpy(in, n->in, (size_t)n_in * sizeof *in);
    if (end->norm >= 0 && end->residual != NO_RESIDUAL)
        in[n_in++] = end->residual;
    return n_in;
}

static bool is_cheap(const memory *m, int i)
{
    const sp_node *n = &m->graph->node[i];
    bool is_concat = n->op == SP_OP_CONCAT;

    for (int k = 0; is_concat && k < n->n_in; k++) {
        is_concat = n->in[k] >= 0 && m->node[n->in[k]].home == i;
        for (int j = 0; j < k; j++) /* what comes twice is copied */
            is_concat = is_concat && n->in[j] != n->in[k];
    }
    return m->node[i].norm >= 0 || is_concat;
}

static bool reads_backward(const memory *m, int i)
{
    sp_op op = m->graph->node[i].op;

    return m->node[i].norm >= 0 || op == SP_OP_CONV || op == SP_OP_RELU;
}

static void use_until(memory *m, int node, int i)
{
    int home = home_of(m, node);

    if (home >= 0 && m->node[home].until < 0)
        m->node[home].until = i;
}

static void find_lifetimes(memory *m)
{
    int last = m->graph->n_nodes - 1, in[SP_MAX_INPUTS + 1];

    for (int i = 0; i <= last; i++) {
        node_memory *home = &m->node[home_of(m, i)];

        if (m->node[i].is_absorbed)
            continue;
        home->last = i;
        home->first = home->first < 0 ? i : home->first;
        home->is_cheap = home->is_cheap && is_cheap(m, i);
        if (m->node[i].norm >= 0 && m->node[i].is_rectified) {
            use_until(m, i, i);
            home->is_passed = false;
        }
        for (int k = 0, n = inputs_of(m, i, in); k < n; k++) {
            if (in[k] >= 0)
                m->node[home_of(m, in[k])].last = i;
            if (reads_backward(m, i))
                use_until(m, in[k], i);
            if (reads_backward(m, i) && k == 0 && in[k] >= 0)
                m->node[home_of(m, in[k])].is_passed = false;
        }
    }
    m->node[home_of(m, last)].last = last + 1;
    m->node[home_of(m, last)].until = -1;
}

/* ---- activations ---- */

/* From the forward pass on, for the backward pass. */
static bool is_kept(const memory *m, const node_memory *home)
{
    return m->is_training && !(m->is_frugal && home->is_cheap);
}

static void hold(memory *m, int i)
{
    node_memory *home = &m->node[home_of(m, i)];

    if (home->range < 0)
        home->range = sp_ranges_take(&m->ranges, (size_t)home->bytes,
                                     is_kept(m, home) ? SP_RANGES_LOW : SP_RANGES_HIGH);
}

static void drop(memory *m, node_memory *home)
{
    if (home->range >= 0)
        sp_ranges_drop(&m->ranges, home->range);
    home->range = -1;
}

static void reserve_kept(memory *m)
{
    size_t bytes = 0;

    for (int i = 0; i < m->graph->n_nodes; i++)
        if (m->node[i].home == i && m->node[i].first >= 0 && is_kept(m, &m->node[i]))
            bytes += sp_ranges_aligned((size_t)m->node[i].bytes);
    sp_ranges_reserve(&m->ranges, bytes);
}

static void walk_forward(memory *m)
{
    reserve_kept(m);
    for (int i = 0; i < m->graph->n_nodes; i++) {
        if (m->node[i].is_absorbed)
            continue;
        hold(m, i);
        for (int j = 0; j < m->graph->n_nodes; j++)
            if (m->node[j].last == i && !is_kept(m, &m->node[j]))
                drop(m, &m->node[j]);
    }
}

static void restore(memory *m, int node, int until)
{
    int home = home_of(m, node), in[SP_MAX_INPUTS + 1];

    if (home < 0 || m->node[home].range >= 0 || !m->node[home].is_cheap)
        return;
    for (int i = m->node[home].first; i <= until; i++) {
        if (m->node[i].is_absorbed || home_of(m, i) != home)
            continue;
        hold(m, i);
        for (int k = 0, n = m->node[i].norm < 0 ? 0 : inputs_of(m, i, in); k < n; k++)
            restore(m, in[k], until);
        for (int k = 0, n = m->node[i].norm < 0 ? 0 : inputs_of(m, i, in); k < n; k++)
            if (in[k] >= 0 && m->node[in[k]].home == in[k] &&
                m->node[in[k]].is_passed && m->node[in[k]].is_cheap)
                drop(m, &m->node[in[k]]);
    }
}

static void restore_for(memory *m, int i)
{
    int in[SP_MAX_INPUTS + 1];

    if (reads_backward(m, i) && inputs_of(m, i, in) > 0)
        restore(m, in[0], i);
    if (m->node[i].norm >= 0 && m->node[i].is_rectified)
        restore(m, i, i);
}

/* ---- the gradients ---- */

static bool wants_grad(const memory *m, int node)
{
    return node >= 0 && m->graph->node[node].needs_grad;
}

static void add_grad(memory *m, int node)
{
    if (wants_grad(m, node) && m->node[node].grad_range < 0)
        m->node[node].grad_range =
            sp_ranges_take(&m->ranges, (size_t)m->node[node].bytes, SP_RANGES_LOW);
}

/* In place: the buffer of `from` becomes that of `to`, if that has none. */
static void hand_on(memory *m, int from, int to)
{
    if (!wants_grad(m, to) || m->node[to].grad_range >= 0)
        return;
    m->node[to].grad_range = m->node[from].grad_range;
    m->node[from].grad_range = -1;
}

static void norm_backward(memory *m, int i)
{
    int x = m->graph->node[m->node[i].norm].in[0], residual = m->node[i].residual;
    bool takes = wants_grad(m, residual) && m->node[residual].grad_range < 0;

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
        if (!wants_grad(m, n->in[k]) || m->node[n->in[k]].grad_range >= 0)
            continue;
        m->node[n->in[k]].grad_range = m->node[i].grad_range;
        sp_ranges_hold(&m->ranges, m->node[i].grad_range);
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
        if (m->node[i].is_absorbed)
            continue;
        if (m->node[i].grad_range >= 0) {
            restore_for(m, i);
            node_backward(m, i);
        }
        if (m->node[i].grad_range >= 0)
            sp_ranges_drop(&m->ranges, m->node[i].grad_range);
        m->node[i].grad_range = -1;
        for (int j = 0; j <= last; j++)
            if (m->node[j].until == i)
                drop(m, &m->node[j]);
    }
}

int64_t sp_graph_memory_bytes(const sp_graph *graph, const int64_t *voxels_of_level,
                              bool is_training, bool is_frugal, int elem_bytes,
                              int row_bytes)
{
    memory m = {.graph = graph,
                .node = calloc((size_t)graph->n_nodes, sizeof *m.node),
                .is_training = is_training,
                .is_frugal = is_frugal,
                .elem_bytes = elem_bytes,
                .channels = row_bytes / elem_bytes};
    int64_t bytes = -1;

    if (m.node && sp_ranges_create(&m.ranges, 2 * graph->n_nodes + 2) == SP_OK) {
        find_stored(&m, voxels_of_level);
        find_homes(&m);
        find_lifetimes(&m);
        walk_forward(&m);
        if (is_training)
            walk_backward(&m);
        bytes = (int64_t)m.ranges.end;
        for (int i = 0; i < graph->n_nodes; i++)
            if (graph->node[i].op == SP_OP_MAX_POOL)
                bytes += m.node[i].bytes; /* which input won */
    }
    free(m.node);
    sp_ranges_destroy(&m.ranges);
    return bytes;
}
