#include "net/sp_buffer_plan_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

sp_status sp_buffer_plan_create(sp_buffer_plan *a, const sp_lowered *low,
                                const sp_buffer_rules *rules)
{
    assert(low->n_values > 0 && low->n_steps > 0);
    assert(rules->row_bytes > 0 && rules->fused_parts);
    *a = (sp_buffer_plan){.low = low, .rules = *rules};
    SP_TRY(SP_NEW(&a->value, low->n_values, "the tables of the network"));
    SP_TRY(SP_NEW(&a->argmax, low->n_steps, "the tables of the network"));
    SP_TRY(SP_NEW(&a->kept, low->n_steps, "the tables of the network"));
    SP_TRY(sp_ranges_create(&a->matrices, 2 * low->n_values + 3));
    return sp_ranges_create(&a->vectors, 2 * low->n_values + 3);
}

void sp_buffer_plan_destroy(sp_buffer_plan *a)
{
    free(a->value);
    free(a->argmax);
    free(a->kept);
    sp_ranges_destroy(&a->matrices);
    sp_ranges_destroy(&a->vectors);
    *a = (sp_buffer_plan){0};
}

/* ---- ranges ---- */

/* The bytes of a matrix of the shape of value v with elements of type elem. */
static size_t buffer_bytes_of(const sp_buffer_plan *a, int v, sp_elem elem)
{
    const sp_lower_value *value = &a->low->value[v];

    return (size_t)sp_graph_rows(&a->counts, value->level) *
           (size_t)sp_buffer_pitch(&a->rules, value->c, elem) * sp_elem_bytes(elem);
}

static const sp_buffer_side LOW = {false, 0}, HIGH = {true, 0};

static void buffer_drop(sp_buffer_plan *a, sp_buffer_place *place)
{
    if (place->range >= 0)
        sp_ranges_drop(&a->matrices, place->range);
    *place = SP_BUFFER_NOWHERE;
}

/* The columns of a concat go with it. */
static void forget_columns(sp_buffer_plan *a, int v)
{
    const sp_lowered *low = a->low;
    const sp_lower_step *step;

    if (low->value[v].step < 0)
        return;
    step = &low->step[low->value[v].step];
    for (int k = 0; step->op == SP_OP_CONCAT && k < step->n_in; k++) {
        const int x = step->in[k];

        if (low->value[x].storage != v)
            continue;
        a->value[x].act = SP_BUFFER_NOWHERE;
        forget_columns(a, x);
    }
}

void sp_buffer_plan_drop_act(sp_buffer_plan *a, int storage)
{
    assert(a->low->value[storage].storage == storage);
    buffer_drop(a, &a->value[storage].act);
    a->value[storage].is_restored = false;
    forget_columns(a, storage);
}

/* Drops the restored activation that the backward pass needs last. False: it needs all. */
static bool drop_restored(sp_buffer_plan *a)
{
    for (int v = 1; a->rules.is_recomputed && v < a->low->n_values; v++)
        if (a->value[v].is_restored && a->value[v].n_pins == 0) {
            sp_buffer_plan_drop_act(a, v);
            return true;
        }
    return false;
}

/* Takes memory for such a matrix. With recomputation restored activations go before the
 * span grows. */
static sp_buffer_place buffer_alloc(sp_buffer_plan *a, int v, sp_elem elem,
                                    sp_buffer_side from)
{
    const size_t bytes = buffer_bytes_of(a, v, elem);
    int range;

    while (!sp_ranges_has_room(&a->matrices, bytes, from.least) && drop_restored(a))
        ;
    range = from.is_high ? sp_ranges_alloc_above(&a->matrices, bytes, from.least)
                         : sp_ranges_alloc(&a->matrices, bytes);
    return (sp_buffer_place){range, a->matrices.range[range].at,
                             sp_buffer_pitch(&a->rules, a->low->value[v].c, elem)};
}

static void drop_vector(sp_buffer_plan *a, int *range)
{
    if (*range >= 0)
        sp_ranges_drop(&a->vectors, *range);
    *range = -1;
}

/* ---- forward ---- */

/* With little memory the outputs of norms are computed again. */
static bool drops_norms(const sp_buffer_plan *a, int storage)
{
    return a->rules.is_low_memory && a->low->value[storage].is_from_norms;
}

bool sp_buffer_plan_keeps(const sp_buffer_plan *a, int storage)
{
    const sp_lower_value *value = &a->low->value[storage];

    if (!a->is_training || value->is_unwritten)
        return false;
    if (a->rules.is_recomputed)
        return !value->is_recomputed;
    return !drops_norms(a, storage) && !(a->drops_light && value->is_light);
}

/* Sums up the bytes that the forward pass keeps, up to each step, and returns all. */
static size_t count_kept(sp_buffer_plan *a)
{
    const int n = a->low->n_steps;
    size_t bytes = 0;

    memset(a->kept, 0, (size_t)n * sizeof *a->kept);
    for (int v = 1; v < a->low->n_values; v++)
        if (a->low->value[v].storage == v && a->low->value[v].first >= 0 &&
            sp_buffer_plan_keeps(a, v))
            a->kept[a->low->value[v].first] +=
                sp_ranges_aligned(buffer_bytes_of(a, v, a->low->value[v].elem));
    for (int s = 0; s < n; s++)
        bytes = a->kept[s] += bytes;
    return bytes;
}

/* If little is kept, a step's memory peaks when most of the gradient was written. What
 * comes back on the way there adds to it, so light convolutions are then kept, too. */
enum { GRADIENTS_KEPT = 2 };

/* Reserves the low side of the span for activations that stay until the backward pass,
 * one after the other. Memory that is freed within the forward pass comes from the high
 * side (high_side), so it leaves no gaps between them. */
static void reserve_kept(sp_buffer_plan *a)
{
    size_t bytes;

    a->drops_light = false;
    bytes = count_kept(a);
    a->drops_light =
        a->rules.is_low_memory && !a->rules.is_recomputed &&
        bytes > GRADIENTS_KEPT * (size_t)a->low->graph->n_floats * sizeof(float);
    if (a->drops_light)
        bytes = count_kept(a);
    sp_ranges_reserve(&a->matrices, bytes);
}

/* The side for a value that is freed within the forward pass: it may lie where
 * activations will be kept, as long as it is freed before these come. */
static sp_buffer_side high_side(const sp_buffer_plan *a, int storage)
{
    const int last =
        a->low->value[storage].last[a->is_training ? SP_TRAINING : SP_INFERENCE];
    sp_buffer_side from = HIGH;

    if (last >= 0)
        from.least = a->kept[last < a->low->n_steps ? last : a->low->n_steps - 1];
    return from;
}

void sp_buffer_plan_begin(sp_buffer_plan *a, const sp_plan_counts *counts,
                          bool is_training)
{
    const sp_lower_value *x = &a->low->value[0];

    assert(counts->n_samples >= 0);
    a->counts = *counts;
    a->is_training = is_training;
    a->logits = SP_BUFFER_NOWHERE;
    a->n_pinned = 0;
    sp_ranges_reset(&a->matrices);
    sp_ranges_reset(&a->vectors);
    for (int v = 0; v < a->low->n_values; v++)
        a->value[v] = (sp_value_buffers){
            .act = SP_BUFFER_NOWHERE, .grad = SP_BUFFER_NOWHERE, .sums = -1};
    for (int s = 0; s < a->low->n_steps; s++)
        a->argmax[s] = -1;
    if (x->elem != SP_ELEM_F32 || sp_buffer_pitch(&a->rules, x->c, x->elem) != x->c)
        a->value[0].act = buffer_alloc(a, 0, x->elem, LOW);
    reserve_kept(a);
}

void sp_buffer_plan_hold(sp_buffer_plan *a, int v, sp_buffer_side from)
{
    const sp_lower_value *value = a->low->value;
    size_t column = 0;
    int storage = v;

    for (; value[storage].storage != storage; storage = value[storage].storage)
        column += (size_t)value[storage].column;
    if (a->value[storage].act.range < 0)
        a->value[storage].act = buffer_alloc(a, storage, value[storage].elem, from);
    a->value[v].act = a->value[storage].act;
    a->value[v].act.at += column * sp_elem_bytes(value[v].elem);
}

bool sp_buffer_plan_has_room(const sp_buffer_plan *a, int v)
{
    const int storage = sp_lowered_storage(a->low, v);

    return sp_ranges_has_room(
        &a->matrices, buffer_bytes_of(a, storage, a->low->value[storage].elem), 0);
}

/* True if the output of step s can use the memory of its first input: nothing reads the
 * input after the step, both have memory of their own, and the same shape. */
static bool can_overwrite(const sp_buffer_plan *a, int s)
{
    const sp_lower_step *step = &a->low->step[s];
    const sp_lower_value *x = &a->low->value[step->in[0]];
    const sp_lower_value *y = &a->low->value[step->out];

    if (a->is_training || !step->row->may_overwrite || step->runs_with >= 0)
        return false;
    for (int k = 1; k < step->n_in; k++)
        if (step->in[k] == step->in[0])
            return false;
    return x->storage == step->in[0] && y->storage == step->out &&
           x->last[SP_INFERENCE] == s && x->level == y->level && x->c == y->c &&
           x->elem == y->elem;
}

/* Takes memory for the sums of value v: in the parts of a fused operation, or of each
 * sample. */
static void plan_place_sums(sp_buffer_plan *a, int v, bool is_fused)
{
    const sp_lower_value *value = &a->low->value[v];
    const int64_t n = sp_graph_rows(&a->counts, value->level);
    sp_value_buffers *at = &a->value[v];

    at->is_fused = is_fused;
    at->n_sums =
        is_fused ? a->rules.fused_parts(n, a->counts.n_samples).n : a->counts.n_samples;
    at->sums = sp_ranges_alloc(&a->vectors, 2 * (size_t)value->c * (size_t)at->n_sums *
                                                sizeof(double));
}

/* Exact sums are of samples. */
static bool may_fuse(const sp_buffer_plan *a)
{
    return !a->rules.is_exact || a->rules.fused_parts(0, 0).rows == 0;
}

void sp_buffer_plan_forward(sp_buffer_plan *a, int s)
{
    const sp_lower_step *step = &a->low->step[s];
    const sp_lower_value *out = &a->low->value[step->out];
    const int storage = sp_lowered_storage(a->low, step->out);

    assert(0 <= s && s < a->low->n_steps && sp_lowered_has_turn(step, a->is_training));
    if (can_overwrite(a, s)) {
        assert(a->value[step->out].act.range < 0);
        a->value[step->out].act = a->value[step->in[0]].act;
        sp_ranges_hold(&a->matrices, a->value[step->out].act.range);
    } else if (!a->is_training || !out->is_unwritten) {
        sp_buffer_plan_hold(a, step->out,
                            sp_buffer_plan_keeps(a, storage) ? LOW
                                                             : high_side(a, storage));
    }
    if (step->row->has_argmax)
        a->argmax[s] =
            sp_ranges_alloc(&a->vectors, (size_t)sp_graph_rows(&a->counts, out->level) *
                                             (size_t)out->c * sizeof(int32_t));
    if (!a->is_training)
        return;
    if (step->op == SP_OP_CONV && out->feeds_norm && may_fuse(a))
        plan_place_sums(a, step->out, true);
    if (step->op == SP_OP_BATCHNORM && !step->is_frozen &&
        a->value[step->in[0]].sums < 0)
        plan_place_sums(a, step->in[0], false);
}

/* The backward pass begins with what the last step has read. */
static bool begins_backward(const sp_buffer_plan *a, int s, int storage)
{
    return a->is_training && s == a->low->n_steps - 1 &&
           a->low->value[storage].last_backward >= 0;
}

void sp_buffer_plan_forward_end(sp_buffer_plan *a, int s)
{
    const sp_lower_step *step = &a->low->step[s];
    const sp_forward kind = a->is_training ? SP_TRAINING : SP_INFERENCE;

    assert(s >= 0 && s < a->low->n_steps);
    /* a second norm of the same value forms the sums again */
    if (step->op == SP_OP_BATCHNORM)
        drop_vector(a, &a->value[step->in[0]].sums);
    if (!a->is_training)
        drop_vector(a, &a->argmax[s]);
    for (int v = step->read_last[kind]; v >= 0; v = a->low->value[v].next_read[kind])
        if (!sp_buffer_plan_keeps(a, v) && !begins_backward(a, s, v))
            sp_buffer_plan_drop_act(a, v);
}

void sp_buffer_plan_logits(sp_buffer_plan *a)
{
    const int last = a->low->n_values - 1;

    a->logits = a->value[last].act;
    if (a->low->value[last].elem != SP_ELEM_F32)
        a->logits = buffer_alloc(a, last, SP_ELEM_F32, LOW);
}

sp_loss_place sp_buffer_plan_results(sp_buffer_plan *a, bool has_confusion,
                                     bool has_prediction)
{
    const sp_lower_value *last = &a->low->value[a->low->n_values - 1];
    const size_t C = (size_t)last->c,
                 n = (size_t)sp_graph_rows(&a->counts, last->level);
    sp_loss_place r;

    r.confusion_at = 2 * (size_t)a->counts.n_samples * sizeof(double);
    r.prediction_at = r.confusion_at + (has_confusion ? C * C * sizeof(int64_t) : 0);
    r.bytes = r.prediction_at + (has_prediction ? n * sizeof(int32_t) : 0);
    r.range = sp_ranges_alloc(&a->vectors, r.bytes);
    return r;
}

void sp_buffer_plan_loss(sp_buffer_plan *a, sp_buffer_place *fp32)
{
    const int last = a->low->n_values - 1;

    assert(a->is_training);
    a->value[last].grad = buffer_alloc(a, last, a->low->value[last].elem, HIGH);
    *fp32 = a->value[last].grad;
    if (a->low->value[last].elem != SP_ELEM_F32)
        *fp32 = buffer_alloc(a, last, SP_ELEM_F32, HIGH);
}

void sp_buffer_plan_loss_end(sp_buffer_plan *a, const sp_buffer_place *fp32)
{
    const int last = a->low->n_values - 1;

    if (fp32->range != a->value[last].grad.range)
        sp_ranges_drop(&a->matrices, fp32->range);
    if (!a->rules.is_low_memory)
        return;
    if (a->logits.range != a->value[last].act.range)
        buffer_drop(a, &a->logits);
    /* A concat has values in its columns that steps before it may read too. */
    if (a->low->value[last].last_backward < 0)
        sp_buffer_plan_drop_act(a, last);
    a->logits = SP_BUFFER_NOWHERE;
}

/* ---- backward ---- */

bool sp_buffer_plan_is_used(const sp_buffer_plan *a, int s)
{
    const int out = a->low->step[s].out;

    assert(0 <= s && s < a->low->n_steps);
    return a->low->value[out].needs_grad && a->value[out].grad.range >= 0;
}

/* True if the gradient of value x may be written over its activation: with little
 * memory or recomputation, if step s is the last that reads the activation. Both hold
 * the range until the step ends. */
static bool can_replace(const sp_buffer_plan *a, int s, int x)
{
    const sp_lower_value *value = &a->low->value[x];

    return (a->rules.is_low_memory || a->rules.is_recomputed) && value->storage == x &&
           value->last_backward == s && a->value[x].act.range >= 0;
}

/* Makes the gradient of `to` columns of the gradient of `from`. Both hold the range
 * until the step ends; then the gradient of the output is freed. */
static void share_grad(sp_buffer_plan *a, int from, int to, int column)
{
    sp_buffer_place *place = &a->value[to].grad;

    assert(place->range < 0 && a->low->value[from].level == a->low->value[to].level);
    *place = a->value[from].grad;
    place->at += (size_t)column * sp_elem_bytes(a->low->value[to].elem);
    sp_ranges_hold(&a->matrices, place->range);
}

/* Memory that a gradient may be written to besides memory of its own. */
typedef enum grad_over {
    OVER_NOTHING,
    OVER_GRAD, /* the gradient of the output, which is used no more */
    OVER_INPUT /* the activation, once nothing reads it any more */
} grad_over;

static sp_grad_route route_of(sp_buffer_plan *a, int s, int to, grad_over over)
{
    if (!a->low->value[to].needs_grad)
        return SP_GRAD_NONE;
    if (a->value[to].grad.range >= 0)
        return SP_GRAD_ADDED;
    if (over == OVER_GRAD) {
        share_grad(a, a->low->step[s].out, to, 0);
        return SP_GRAD_TAKEN;
    }
    if (over == OVER_INPUT && can_replace(a, s, to)) {
        a->value[to].grad = a->value[to].act;
        sp_ranges_hold(&a->matrices, a->value[to].grad.range);
        return SP_GRAD_NEW;
    }
    a->value[to].grad = buffer_alloc(a, to, a->low->value[to].elem, LOW);
    return SP_GRAD_NEW;
}

/* True if the gradient of value x may be written over its activation, and that lies
 * lower than the gradient of the output. */
static bool is_lower(const sp_buffer_plan *a, int s, int x)
{
    return can_replace(a, s, x) &&
           a->value[x].act.at < a->value[a->low->step[s].out].grad.at;
}

/* The gradient of the residual equals the output's, so the residual takes over its
 * memory. If it does not, x takes that or its own activation's, whichever is lower: so
 * free memory gathers at the end of the span. If x and the residual are one value, the
 * residual's gradient is a copy. */
static void route_norm(sp_buffer_plan *a, int s, sp_grad_route *route)
{
    const sp_lower_step *step = &a->low->step[s];
    const bool is_one = step->n_in > 1 && step->in[1] == step->in[0];
    grad_over x = is_lower(a, s, step->in[0]) ? OVER_INPUT : OVER_GRAD;

    if (step->n_in > 1) {
        route[1] = route_of(a, s, step->in[1], is_one ? OVER_NOTHING : OVER_GRAD);
        if (route[1] == SP_GRAD_TAKEN)
            x = OVER_INPUT;
    }
    route[0] = route_of(a, s, step->in[0], x);
}

/* With recomputation an input whose own backward pass does not come next gets a copy of
 * its gradient: as columns it would hold those of the other inputs until then. */
static void route_concat(sp_buffer_plan *a, int s, sp_grad_route *route)
{
    const sp_lower_step *step = &a->low->step[s];
    int column = 0;

    for (int k = 0; k < step->n_in; k++) {
        const sp_lower_value *x = &a->low->value[step->in[k]];

        if (a->rules.is_recomputed && x->step != s - 1) {
            route[k] = route_of(a, s, step->in[k], OVER_NOTHING);
        } else if (!x->needs_grad || a->value[step->in[k]].grad.range >= 0) {
            route[k] = x->needs_grad ? SP_GRAD_ADDED : SP_GRAD_NONE;
        } else {
            share_grad(a, step->out, step->in[k], column);
            route[k] = SP_GRAD_VIEW;
        }
        column += x->c;
    }
}

/* Under low-memory rules the norm's input, which the sums need, may have been dropped.
 * With recomputation it comes back (sp_buffer_plan_restore), so that the sums are the
 * same.
 */
static bool has_input(const sp_buffer_plan *a, int norm)
{
    return norm < 0 ||
           !drops_norms(a, sp_lowered_storage(a->low, a->low->step[norm].in[0]));
}

bool sp_buffer_plan_fuses_norm(const sp_buffer_plan *a, const sp_lower_step *step)
{
    return step->norm_before >= 0 && may_fuse(a) && has_input(a, step->norm_before) &&
           has_input(a, a->low->step[step->norm_before].residual_norm);
}

static void plan_place_fused_sums(sp_buffer_plan *a, const sp_lower_step *step)
{
    const sp_lower_step *norm;

    if (!sp_buffer_plan_fuses_norm(a, step))
        return;
    norm = &a->low->step[step->norm_before];
    plan_place_sums(a, norm->out, true);
    if (norm->residual_norm >= 0)
        plan_place_sums(a, a->low->step[norm->residual_norm].out, true);
}

/* A convolution forms the gradient of its weights, which reads the input, before the
 * input's gradient. */
static grad_over over_what(const sp_lower_step *step, int k)
{
    if (step->op == SP_OP_CONV)
        return OVER_INPUT;
    return step->row->passes_grad && k == step->n_in - 1 ? OVER_GRAD : OVER_NOTHING;
}

void sp_buffer_plan_backward(sp_buffer_plan *a, int s,
                             sp_grad_route route[SP_MAX_INPUTS])
{
    const sp_lower_step *step = &a->low->step[s];

    assert(a->is_training && sp_buffer_plan_is_used(a, s));
    if (step->op == SP_OP_BATCHNORM) {
        if (a->value[step->out].sums < 0)
            plan_place_sums(a, step->out, false);
        route_norm(a, s, route);
        return;
    }
    if (step->op == SP_OP_CONCAT) {
        route_concat(a, s, route);
        return;
    }
    for (int k = 0; k < step->n_in; k++)
        route[k] = route_of(a, s, step->in[k], over_what(step, k));
    plan_place_fused_sums(a, step);
}

void sp_buffer_plan_backward_end(sp_buffer_plan *a, int s)
{
    const sp_lower_step *step = &a->low->step[s];

    assert(a->is_training && 0 <= s && s < a->low->n_steps);
    if (step->op == SP_OP_BATCHNORM)
        drop_vector(a, &a->value[step->out].sums);
    buffer_drop(a, &a->value[step->out].grad);
    while (a->n_pinned > 0)
        a->value[a->pinned[--a->n_pinned]].n_pins--;
    for (int v = step->used_last; v >= 0; v = a->low->value[v].next_used)
        sp_buffer_plan_drop_act(a, v);
    /* The columns of a concat are needed again by the layers before its inputs. */
    if (a->rules.is_recomputed && step->op == SP_OP_CONCAT &&
        !sp_buffer_plan_keeps(a, sp_lowered_storage(a->low, step->out)))
        sp_buffer_plan_drop_act(a, sp_lowered_storage(a->low, step->out));
}

/* ---- measuring ---- */

static void walk_back(sp_buffer_plan *a)
{
    sp_grad_route route[SP_MAX_INPUTS];
    sp_buffer_place fp32;

    sp_buffer_plan_loss(a, &fp32);
    sp_buffer_plan_loss_end(a, &fp32);
    for (int s = a->low->n_steps - 1; s >= 0; s--) {
        if (sp_buffer_plan_is_used(a, s)) {
            sp_buffer_plan_restore(a, s, NULL, NULL); /* without apply nothing fails */
            sp_buffer_plan_backward(a, s, route);
        }
        sp_buffer_plan_backward_end(a, s);
    }
}

sp_buffer_bytes sp_buffer_plan_measure(sp_buffer_plan *a, const sp_plan_counts *counts,
                                       bool is_training)
{
    sp_buffer_plan_begin(a, counts, is_training);
    for (int s = 0; s < a->low->n_steps; s++) {
        if (!sp_lowered_has_turn(&a->low->step[s], is_training))
            continue;
        sp_buffer_plan_forward(a, s);
        sp_buffer_plan_forward_end(a, s);
    }
    sp_buffer_plan_logits(a);
    if (is_training)
        walk_back(a);
    else
        sp_buffer_plan_results(a, true, true);
    return (sp_buffer_bytes){a->matrices.end, a->vectors.end};
}
