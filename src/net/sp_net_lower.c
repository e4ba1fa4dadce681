/* The graph's nodes as steps: fused batch norms, concats as views, lifetimes, ready
 * offsets. */
#include "net/sp_net_impl.h"

#include <stdlib.h>
#include <string.h>

/* What lowering remembers per node. */
typedef struct plan_node {
    bool is_absorbed; /* inside a chain, no step of its own */
    int norm;         /* batch norm whose chain ends here; -1 */
    int residual;     /* value added in the chain; -1 */
    float slope;
} plan_node;

/* The node that alone reads `node`, and once; -1 for several, none, or the output. */
static int only_reader(const sp_graph *g, int node)
{
    int i, k, n = 0, reader = -1;

    for (i = node + 1; i < g->n_nodes; i++)
        for (k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] == node) {
                n++;
                reader = i;
            }
    return n == 1 ? reader : -1;
}

/* The chain norm [+ add] [+ activation] that begins at `norm`: each link but the last
 * has one reader. An add takes one norm into its pass, the other input is read as
 * residual. */
static void plan_chain(const sp_graph *g, plan_node *plan, int norm)
{
    int end = norm, residual = -1, next = only_reader(g, norm);
    float slope = 1;

    if (next >= 0 && g->node[next].op == SP_OP_ADD && g->node[next].n_in == 2 &&
        plan[next].norm < 0) {
        residual = g->node[next].in[g->node[next].in[0] == norm] + 1;
        plan[end].is_absorbed = true;
        plan[next].norm = norm; /* claimed, also against the other input's norm */
        end = next;
        next = only_reader(g, end);
    }
    /* The gradient tells the side of 0 from the output: no negative slopes. */
    if (next >= 0 && g->node[next].op == SP_OP_RELU && g->node[next].slope >= 0) {
        slope = g->node[next].slope;
        plan[end].is_absorbed = true;
        end = next;
    }
    plan[end].norm = norm;
    plan[end].residual = residual;
    plan[end].slope = slope;
}

static void emit(const sp_graph *g, const plan_node *plan, int i, net_step *step)
{
    const sp_node *node = &g->node[i];
    int k;

    step->layer = i;
    step->slope = node->op == SP_OP_RELU ? node->slope : 1;
    if (plan[i].norm >= 0) {
        node = &g->node[plan[i].norm];
        step->layer = plan[i].norm;
        step->slope = plan[i].slope;
    }
    step->op = node->op;
    step->out = i + 1;
    step->n_in = node->n_in;
    for (k = 0; k < node->n_in; k++)
        step->in[k] = node->in[k] + 1;
    if (plan[i].norm >= 0 && plan[i].residual >= 0)
        step->in[step->n_in++] = plan[i].residual;
}

static sp_status make_steps(sp_net *net)
{
    const sp_graph *g = net->graph;
    struct sp_net_impl *impl = net->impl;
    plan_node *plan = calloc((size_t)g->n_nodes + 1, sizeof *plan);
    int i;

    impl->step = calloc((size_t)g->n_nodes + 1, sizeof *impl->step);
    if (!plan || !impl->step) {
        free(plan);
        return SP_FAIL(SP_EMEM, "network: out of memory");
    }
    for (i = 0; i < g->n_nodes; i++)
        plan[i].norm = -1;
    for (i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == SP_OP_BATCHNORM)
            plan_chain(g, plan, i);
    for (i = 0; i < g->n_nodes; i++)
        if (!plan[i].is_absorbed)
            emit(g, plan, i, &impl->step[impl->n_steps++]);
    free(plan);
    return SP_OK;
}

static sp_status make_values(sp_net *net)
{
    const sp_graph *g = net->graph;
    struct sp_net_impl *impl = net->impl;
    int v;

    impl->n_values = g->n_nodes + 1;
    impl->value = calloc((size_t)impl->n_values, sizeof *impl->value);
    if (!impl->value)
        return SP_FAIL(SP_EMEM, "network: out of memory");
    for (v = 0; v < impl->n_values; v++) {
        impl->value[v].level = v ? g->node[v - 1].level : 0;
        impl->value[v].c = v ? g->node[v - 1].c_out : g->c_in;
        impl->value[v].needs_grad = v && g->node[v - 1].needs_grad;
        impl->value[v].home = v;
        impl->value[v].range = impl->value[v].grad_range = -1;
    }
    return SP_OK;
}

/* From the last concat to the first, so that a concat inside another one moves with all
 * it holds. A value lives in one place: its second use in a concat is a copy. */
static void place_concats(struct sp_net_impl *impl)
{
    int s, k;

    for (s = impl->n_steps - 1; s >= 0; s--) {
        const net_step *step = &impl->step[s];
        int column = 0;

        for (k = 0; step->op == SP_OP_CONCAT && k < step->n_in; k++) {
            net_value *value = &impl->value[step->in[k]];

            if (step->in[k] != 0 && value->home == step->in[k]) {
                value->home = step->out;
                value->column = column;
            }
            column += value->c;
        }
    }
}

int sp_net_home(const sp_net *net, int value)
{
    while (net->impl->value[value].home != value)
        value = net->impl->value[value].home;
    return value;
}

/* A norm, or a concat that copies nothing. */
static bool is_cheap(const sp_net *net, const net_step *step)
{
    bool is_concat = step->op == SP_OP_CONCAT;
    int k, column = 0;

    for (k = 0; is_concat && k < step->n_in; k++) {
        const net_value *value = &net->impl->value[step->in[k]];

        is_concat = value->home == step->out && value->column == column;
        column += value->c;
    }
    return step->op == SP_OP_BATCHNORM || is_concat;
}

static void use_until(const sp_net *net, int value, int s)
{
    net_value *home = &net->impl->value[sp_net_home(net, value)];

    if (home->until < 0)
        home->until = s;
}

/* What the backward of step s reads, and what writing its output again would. */
static void find_use(const sp_net *net, int s)
{
    struct sp_net_impl *impl = net->impl;
    const net_step *step = &impl->step[s];
    int k;

    if (step->op == SP_OP_BATCHNORM && step->slope != 1) {
        use_until(net, step->out, s);
        impl->value[sp_net_home(net, step->out)].is_passed = false;
    }
    if (step->op != SP_OP_CONV && step->op != SP_OP_BATCHNORM && step->op != SP_OP_RELU)
        return;
    for (k = 0; k < step->n_in; k++)
        use_until(net, step->in[k], s);
    impl->value[sp_net_home(net, step->in[0])].is_passed = false;
}

static void find_lifetimes(const sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    net_value *logits = &impl->value[sp_net_home(net, impl->n_values - 1)];
    int s, k, v;

    for (v = 0; v < impl->n_values; v++) {
        impl->value[v].first = impl->value[v].last = impl->value[v].until = -1;
        impl->value[v].is_cheap = true;
        impl->value[v].is_passed = impl->value[v].home == v;
    }
    for (s = 0; s < impl->n_steps; s++) {
        const net_step *step = &impl->step[s];
        net_value *home = &impl->value[sp_net_home(net, step->out)];

        home->last = s;
        home->first = home->first < 0 ? s : home->first;
        home->is_cheap = home->is_cheap && is_cheap(net, step);
        for (k = 0; k < step->n_in; k++)
            impl->value[sp_net_home(net, step->in[k])].last = s;
        find_use(net, s);
    }
    logits->last = impl->n_steps; /* they stay */
    logits->until = -1;
    impl->value[0].last = -1; /* the batch owns them */
}

/* How often steps before `end` read the value. */
static int count_reads(const struct sp_net_impl *impl, int value, int end)
{
    int s, k, n = 0;

    for (s = 0; s < end; s++)
        for (k = 0; k < impl->step[s].n_in; k++)
            n += impl->step[s].in[k] == value;
    return n;
}

/* A norm all of whose output's gradient is in that of `value`: that is its output, or
 * the concat that alone reads it. -1: there is none; *column: where it stands. */
static int find_norm_of(const struct sp_net_impl *impl, int value, int *column)
{
    int s, norm = -1;

    for (s = 0; s < impl->n_steps; s++) {
        const net_value *out = &impl->value[impl->step[s].out];

        if (impl->step[s].op != SP_OP_BATCHNORM)
            continue;
        if (impl->step[s].out == value) {
            *column = 0;
            return s;
        }
        if (out->home == value &&
            count_reads(impl, impl->step[s].out, impl->n_steps) == 1) {
            *column = out->column;
            norm = s;
        }
    }
    return norm;
}

/* A norm without activation whose output `step` alone reads, as what it adds; -1. */
static int find_norm_beside(const struct sp_net_impl *impl, const net_step *step)
{
    int s;

    if (step->op != SP_OP_BATCHNORM || step->n_in < 2 ||
        count_reads(impl, step->in[1], impl->n_steps) > 1)
        return -1;
    for (s = 0; s < impl->n_steps; s++) {
        const net_step *norm = &impl->step[s];

        if (norm->out == step->in[1] && norm->op == SP_OP_BATCHNORM &&
            norm->n_in == 1 && norm->slope == 1)
            return s;
    }
    return -1;
}

/* Backward, the first reader of a value comes last: then its gradient is whole. */
static void find_norms_before(struct sp_net_impl *impl)
{
    int s;

    for (s = 0; s < impl->n_steps; s++) {
        net_step *step = &impl->step[s];

        step->norm_before = -1;
        if (step->op == SP_OP_CONV && count_reads(impl, step->in[0], s) == 0)
            step->norm_before = find_norm_of(impl, step->in[0], &step->norm_column);
        step->norm_beside = find_norm_beside(impl, step);
    }
}

static int64_t end_of(const sp_graph *g, int param)
{
    return param < 0 ? 0 : g->param[param].offset + g->param[param].count;
}

/* Backward runs the steps from the last: behind step s all gradients are final that lie
 * after the parameters of the steps before s. */
static void find_ready(const sp_graph *g, struct sp_net_impl *impl)
{
    int64_t end = 0;
    int s;

    for (s = 0; s < impl->n_steps; s++) {
        net_step *step = &impl->step[s];
        const sp_node *node = &g->node[step->layer];

        step->ready = end;
        if (end_of(g, node->weight) > end)
            end = end_of(g, node->weight);
        if (end_of(g, node->bias) > end)
            end = end_of(g, node->bias);
    }
}

/* bf16 throughout, but a convolution yields logits as it sums them. */
static void choose_elements(const sp_net *net)
{
    struct sp_net_impl *impl = net->impl;
    int v;

    for (v = 0; v < impl->n_values; v++)
        impl->value[v].elem =
            net->backend->precision == SP_BF16 ? SP_ELEM_BF16 : SP_ELEM_F32;
    if (impl->step[impl->n_steps - 1].op == SP_OP_CONV)
        impl->value[impl->n_values - 1].elem = SP_ELEM_F32;
}

static sp_status make_norms(const sp_graph *g, struct sp_net_impl *impl)
{
    int s;

    impl->norm = calloc((size_t)impl->n_steps + 1, sizeof *impl->norm);
    if (!impl->norm)
        return SP_FAIL(SP_EMEM, "network: out of memory");
    for (s = 0; s < impl->n_steps; s++)
        if (impl->step[s].op == SP_OP_BATCHNORM) {
            impl->step[s].norm = &impl->norm[impl->n_norms++];
            impl->step[s].norm->c = g->node[impl->step[s].layer].c_out;
            impl->value[impl->step[s].in[0]].feeds_norm = true;
        }
    return SP_OK;
}

sp_status sp_net_lower(sp_net *net)
{
    struct sp_net_impl *impl = net->impl;

    SP_TRY(make_steps(net));
    SP_TRY(make_values(net));
    SP_TRY(make_norms(net->graph, impl));
    choose_elements(net);
    place_concats(impl);
    find_lifetimes(net);
    find_norms_before(impl);
    find_ready(net->graph, impl);
    /* Per micro-batch and step at most: argmax, three sums. */
    impl->max_blocks = 4 * impl->n_values + 16;
    impl->block = calloc((size_t)impl->max_blocks, sizeof *impl->block);
    if (!impl->block)
        return SP_FAIL(SP_EMEM, "network: out of memory");
    return SP_OK;
}
