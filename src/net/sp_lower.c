/* Lowers a graph: fuses batch norms, makes concats views, finds lifetimes and the
 * offsets after which gradients are final. */
#include "net/sp_lower.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

/* A node while it is lowered. All indices refer to nodes. */
typedef struct plan_node {
    /* the only node that reads this one, and only once; -1: no such node */
    int reader;
    bool is_absorbed; /* true: it is inside a fused chain and has no step of its own */
    /* the batch norm at the beginning of the chain that ends here; -1: no norm */
    int norm;
    int residual; /* the value that the chain adds; -1: it adds nothing */
    float slope;
} plan_node;

/* Finds the nodes with a single reader. A node that one other node reads twice has no
 * reader. */
static void find_readers(const sp_graph *g, plan_node *plan)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const int in = g->node[i].in[k];

            if (in >= 0 && g->node[in].n_uses == 1)
                plan[in].reader = i;
        }
}

/* Fuses the chain norm [+ add] [+ activation] that begins at `norm`. Every node of it
 * but the last has a single reader. An add belongs to the chain of one of its inputs
 * and reads the other as the residual. */
static void plan_chain(const sp_graph *g, plan_node *plan, int norm)
{
    int end = norm, residual = -1, next = plan[norm].reader;
    float slope = 1;

    if (next >= 0 && g->node[next].op == SP_OP_ADD && g->node[next].n_in == 2 &&
        plan[next].norm < 0) {
        residual = g->node[next].in[g->node[next].in[0] == norm] + 1;
        plan[end].is_absorbed = true;
        /* the add is in use, so a norm at its other input cannot take it */
        plan[next].norm = norm;
        end = next;
        next = plan[end].reader;
    }
    /* The backward pass takes the sign of the input from the output; a negative slope
     * would reverse it. */
    if (next >= 0 && g->node[next].op == SP_OP_RELU && g->node[next].slope >= 0) {
        slope = g->node[next].slope;
        plan[end].is_absorbed = true;
        end = next;
    }
    plan[end].norm = norm;
    plan[end].residual = residual;
    plan[end].slope = slope;
}

static void lower_emit(const sp_graph *g, const plan_node *plan, int i,
                       sp_lower_step *step)
{
    const sp_node *node = &g->node[i];

    step->layer = i;
    step->slope = node->op == SP_OP_RELU ? node->slope : 1;
    if (plan[i].norm >= 0) {
        node = &g->node[plan[i].norm];
        step->layer = plan[i].norm;
        step->slope = plan[i].slope;
    }
    step->op = node->op;
    step->row = node->row;
    step->is_frozen = g->node[step->layer].is_frozen;
    step->out = i + 1;
    step->n_in = node->n_in;
    for (int k = 0; k < node->n_in; k++)
        step->in[k] = node->in[k] + 1;
    if (plan[i].norm >= 0 && plan[i].residual >= 0)
        step->in[step->n_in++] = plan[i].residual;
}

static sp_status make_steps(sp_lowered *low)
{
    const sp_graph *g = low->graph;
    SP_FREED plan_node *plan = NULL;

    SP_TRY(SP_NEW(&plan, g->n_nodes, "the tables of the network"));
    SP_TRY(SP_NEW(&low->step, g->n_nodes, "the tables of the network"));
    for (int i = 0; i < g->n_nodes; i++)
        plan[i] = (plan_node){.reader = -1, .norm = -1};
    find_readers(g, plan);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == SP_OP_BATCHNORM)
            plan_chain(g, plan, i);
    for (int i = 0; i < g->n_nodes; i++)
        if (!plan[i].is_absorbed)
            lower_emit(g, plan, i, &low->step[low->n_steps++]);
    return SP_OK;
}

static sp_status make_values(sp_lowered *low)
{
    const sp_graph *g = low->graph;

    low->n_values = g->n_nodes + 1;
    SP_TRY(SP_NEW(&low->value, low->n_values, "the tables of the network"));
    for (int v = 0; v < low->n_values; v++) {
        low->value[v].level = v ? g->node[v - 1].level : 0;
        low->value[v].c = v ? g->node[v - 1].c_out : g->c_in;
        low->value[v].needs_grad = v && g->node[v - 1].needs_grad;
        low->value[v].storage = v;
        low->value[v].step = -1;
    }
    for (int s = 0; s < low->n_steps; s++)
        low->value[low->step[s].out].step = s;
    return SP_OK;
}

/* Gives the inputs of concats their columns, from the last concat to the first, so that
 * a concat inside another one moves with all it holds. A value has one place only; a
 * second concat that reads it gets a copy. */
static void place_concats(sp_lowered *low)
{
    for (int s = low->n_steps - 1; s >= 0; s--) {
        const sp_lower_step *step = &low->step[s];
        int column = 0;

        for (int k = 0; step->op == SP_OP_CONCAT && k < step->n_in; k++) {
            sp_lower_value *value = &low->value[step->in[k]];

            if (step->in[k] != 0 && value->storage == step->in[k]) {
                value->storage = step->out;
                value->column = column;
            }
            column += value->c;
        }
    }
}

int sp_lowered_storage(const sp_lowered *low, int value)
{
    assert(0 <= value && value < low->n_values);
    while (low->value[value].storage != value)
        value = low->value[value].storage;
    return value;
}

bool sp_lowered_has_turn(const sp_lower_step *step, bool is_training)
{
    return is_training || step->op != SP_OP_CONV || step->runs_with < 0;
}

bool sp_lowered_is_view(const sp_lowered *low, const sp_lower_step *step)
{
    bool is_concat = step->op == SP_OP_CONCAT;
    int column = 0;

    for (int k = 0; is_concat && k < step->n_in; k++) {
        const sp_lower_value *value = &low->value[step->in[k]];

        is_concat = value->storage == step->out && value->column == column;
        column += value->c;
    }
    return is_concat;
}

bool sp_lowered_reads_output(const sp_lower_step *step)
{
    return step->op == SP_OP_BATCHNORM && step->slope != 1 && step->n_in > 1;
}

int sp_lowered_read(const sp_lowered *low, const sp_lower_step *step, int k)
{
    assert(0 <= k && k < step->n_in);
    return k == 1 && step->residual_norm >= 0 ? low->step[step->residual_norm].in[0]
                                              : step->in[k];
}

static void use_until(const sp_lowered *low, int value, int s)
{
    sp_lower_value *storage = &low->value[sp_lowered_storage(low, value)];

    if (storage->last_backward < 0)
        storage->last_backward = s;
}

/* Extends the lifetimes of the values that the backward pass of step s reads: for its
 * gradients, and for computing its output again. */
static void find_use(const sp_lowered *low, int s)
{
    const sp_lower_step *step = &low->step[s];

    if (sp_lowered_reads_output(step)) {
        use_until(low, step->out, s);
        low->value[sp_lowered_storage(low, step->out)].is_for_norms = false;
    }
    if (!step->row->reads_input)
        return;
    for (int k = 0; k < step->n_in; k++)
        use_until(low, step->in[k], s);
    low->value[sp_lowered_storage(low, step->in[0])].is_for_norms = false;
}

/* Has a value live until step s, in both kinds of forward pass; until the step that it
 * runs with, in inference. */
static void live_until(sp_lower_value *storage, const sp_lower_step *step, int s)
{
    const int turn = sp_lowered_has_turn(step, false) ? s : step->runs_with;

    storage->last[SP_TRAINING] = s;
    if (turn > storage->last[SP_INFERENCE])
        storage->last[SP_INFERENCE] = turn;
}

static void find_lifetimes(const sp_lowered *low)
{
    sp_lower_value *logits = &low->value[sp_lowered_storage(low, low->n_values - 1)];

    for (int v = 0; v < low->n_values; v++) {
        low->value[v].first = low->value[v].last_backward = -1;
        low->value[v].last[SP_TRAINING] = low->value[v].last[SP_INFERENCE] = -1;
        low->value[v].is_from_norms = v > 0; /* no step writes the features */
        low->value[v].is_for_norms = low->value[v].storage == v;
    }
    for (int s = 0; s < low->n_steps; s++) {
        const sp_lower_step *step = &low->step[s];
        sp_lower_value *storage = &low->value[sp_lowered_storage(low, step->out)];

        storage->end = s;
        live_until(storage, step, s);
        storage->first = storage->first < 0 ? s : storage->first;
        storage->is_from_norms =
            storage->is_from_norms &&
            (step->op == SP_OP_BATCHNORM || sp_lowered_is_view(low, step));
        for (int k = 0; k < step->n_in; k++) {
            const int x = sp_lowered_read(low, step, k);

            live_until(&low->value[sp_lowered_storage(low, step->in[k])], step, s);
            low->value[sp_lowered_storage(low, x)].last[SP_TRAINING] = s;
        }
        find_use(low, s);
    }
    for (int k = 0; k < SP_FORWARDS; k++) {
        logits->last[k] = low->n_steps; /* the loss reads the logits after all steps */
        low->value[0].last[k] = -1;     /* the features belong to the batch */
    }
}

static void list_ends(const sp_lowered *low)
{
    for (int s = 0; s < low->n_steps; s++) {
        low->step[s].used_last = -1;
        for (int f = 0; f < SP_FORWARDS; f++)
            low->step[s].read_last[f] = -1;
    }
    for (int v = low->n_values - 1; v >= 0; v--) {
        sp_lower_value *value = &low->value[v];

        for (int f = 0; f < SP_FORWARDS; f++) {
            const int last = value->last[f];

            if (last < 0 || last >= low->n_steps)
                continue;
            value->next_read[f] = low->step[last].read_last[f];
            low->step[last].read_last[f] = v;
        }
        if (value->last_backward >= 0) {
            value->next_used = low->step[value->last_backward].used_last;
            low->step[value->last_backward].used_last = v;
        }
    }
}

/* How the steps use a value. */
typedef struct use {
    int n_reads, first_read;
    /* the step of the batch norm that writes it; -1: another operation does */
    int norm;
    int conv; /* the same of a convolution */
    /* the last norm that writes in it an output with a single reader; -1: no norm */
    int inside;
} use;

static use *count_uses(const sp_lowered *low)
{
    use *uses = calloc((size_t)low->n_values, sizeof *uses);

    for (int v = 0; uses && v < low->n_values; v++)
        uses[v] = (use){0, low->n_steps, -1, -1, -1};
    for (int s = low->n_steps - 1; uses && s >= 0; s--)
        for (int k = 0; k < low->step[s].n_in; k++) {
            uses[low->step[s].in[k]].n_reads++;
            uses[low->step[s].in[k]].first_read = s;
        }
    for (int s = 0; uses && s < low->n_steps; s++) {
        const int out = low->step[s].out, storage = low->value[out].storage;

        if (low->step[s].op == SP_OP_CONV)
            uses[out].conv = s;
        if (low->step[s].op != SP_OP_BATCHNORM)
            continue;
        uses[out].norm = s;
        if (storage != out && uses[out].n_reads == 1)
            uses[storage].inside = s;
    }
    return uses;
}

/* True if the output of a norm needs a gradient; in a network without frozen layers the
 * output of each norm after a parameter does. */
static bool has_grad(const sp_lowered *low, int norm)
{
    return norm >= 0 && low->value[low->step[norm].out].needs_grad;
}

/* Finds the norm that writes the convolution's input, or columns of it if the input is
 * a concat: the gradient of the norm's output is complete once the input's gradient is.
 * The backward pass runs from the last step, so the first reader of a value completes
 * its gradient. */
static void find_norm_before(const sp_lowered *low, const use *uses, int s)
{
    sp_lower_step *step = &low->step[s];
    const use *x = &uses[step->in[0]];

    if (step->op == SP_OP_CONV && x->first_read >= s)
        step->norm_before = x->norm >= 0 ? x->norm : x->inside;
    if (!has_grad(low, step->norm_before))
        step->norm_before = -1;
}

/* Finds the norm without activation that only this step reads, as its residual.
 */
static void find_residual_norm(const sp_lowered *low, const use *uses,
                               sp_lower_step *step)
{
    const use *added = &uses[step->in[1]];

    if (step->op != SP_OP_BATCHNORM || step->n_in < 2 || added->n_reads > 1 ||
        added->norm < 0)
        return;
    if (low->step[added->norm].n_in == 1 && low->step[added->norm].slope == 1 &&
        has_grad(low, added->norm)) {
        step->residual_norm = added->norm;
        low->value[step->in[1]].is_unwritten = true;
    }
}

/* Finds the convolution that runs with the norm of step s in inference. */
static void find_conv(const sp_lowered *low, const use *uses, int s)
{
    const use *x = &uses[low->step[s].in[0]];

    if (low->step[s].op != SP_OP_BATCHNORM || x->conv < 0 || x->n_reads > 1)
        return;
    low->step[s].runs_with = x->conv;
    low->step[x->conv].runs_with = s;
}

static sp_status find_norms(const sp_lowered *low)
{
    SP_FREED use *uses = count_uses(low);

    if (!uses)
        return SP_FAIL(SP_EMEM, "no memory for the tables of the network");
    for (int s = 0; s < low->n_steps; s++)
        low->step[s].norm_before = low->step[s].residual_norm = low->step[s].runs_with =
            -1;
    for (int s = 0; s < low->n_steps; s++) {
        find_norm_before(low, uses, s);
        find_residual_norm(low, uses, &low->step[s]);
        find_conv(low, uses, s);
    }
    return SP_OK;
}

static int64_t lower_end_of(const sp_graph *g, int param)
{
    return param < 0 ? 0 : g->param[param].offset + g->param[param].count;
}

/* The backward pass runs the steps from the last. After step s the gradients of those
 * parameters are final that lie after all parameters of the steps before s. */
static void find_ready(const sp_lowered *low)
{
    const sp_graph *g = low->graph;
    int64_t end = 0;

    for (int s = 0; s < low->n_steps; s++) {
        sp_lower_step *step = &low->step[s];
        const sp_node *node = &g->node[step->layer];

        step->ready = end;
        if (lower_end_of(g, node->weight) > end)
            end = lower_end_of(g, node->weight);
        if (lower_end_of(g, node->bias) > end)
            end = lower_end_of(g, node->bias);
    }
}

/* All values are bf16 or fp32 alike, except that the convolution at the end writes its
 * fp32 sums as logits. */
static void choose_elements(const sp_lowered *low, bool is_bf16)
{
    for (int v = 0; v < low->n_values; v++)
        low->value[v].elem = is_bf16 ? SP_ELEM_BF16 : SP_ELEM_F32;
    if (low->step[low->n_steps - 1].op == SP_OP_CONV)
        low->value[low->n_values - 1].elem = SP_ELEM_F32;
}

static void count_norms(sp_lowered *low)
{
    for (int s = 0; s < low->n_steps; s++)
        if (low->step[s].op == SP_OP_BATCHNORM) {
            low->n_norms++;
            low->value[low->step[s].in[0]].feeds_norm |= !low->step[s].is_frozen;
        }
}

sp_status sp_lower(sp_lowered *low, const sp_graph *graph, bool is_bf16)
{
    assert(graph->n_nodes > 0);
    *low = (sp_lowered){.graph = graph};
    SP_TRY(make_steps(low));
    SP_TRY(make_values(low));
    count_norms(low);
    choose_elements(low, is_bf16);
    place_concats(low);
    SP_TRY(find_norms(low));
    find_lifetimes(low);
    list_ends(low);
    find_ready(low);
    sp_lower_mark_light(low);
    return sp_lower_mark_recomputed(low);
}

void sp_lowered_destroy(sp_lowered *low)
{
    free(low->value);
    free(low->step);
    *low = (sp_lowered){0};
}
