/* Computes dropped activations again for the backward pass.
 *
 *     a step of the backward pass needs v --> restore v: the inputs of v's step first,
 *     then v --> both stay until their last use, or until a matrix finds no room
 */
#include <assert.h>

#include "net/sp_buffer_plan_internal.h"

typedef struct restoring {
    sp_buffer_plan *a;
    sp_status (*apply)(void *arg, int step);
    void *arg;
} restoring;

/* Lists the values that the backward pass of step s reads, those first that others are
 * computed from. The input gradient of a convolution reads the inputs of the norms that
 * it is fused with. */
static int restore_needs(const sp_buffer_plan *a, int s, int v[SP_BUFFER_MOST_NEEDS])
{
    const sp_lower_step *step = &a->low->step[s];
    int n = 0;

    if (step->op == SP_OP_CONV && sp_buffer_plan_fuses_norm(a, step)) {
        const sp_lower_step *norm = &a->low->step[step->norm_before];

        if (norm->residual_norm >= 0)
            v[n++] = a->low->step[norm->residual_norm].in[0];
        v[n++] = norm->in[0];
    }
    if (step->row->reads_input)
        v[n++] = step->in[0];
    if (sp_lowered_reads_output(step))
        v[n++] = step->out;
    assert(n <= SP_BUFFER_MOST_NEEDS);
    return n;
}

static void pin(const restoring *r, int v, int by)
{
    r->a->value[sp_lowered_storage(r->a->low, v)].n_pins += by;
}

/* Frees inputs of a step after its output was recomputed: those that no gradient needs,
 * and the one that the output has overwritten. */
static void drop_passed(const restoring *r, const sp_lower_step *step)
{
    sp_buffer_plan *a = r->a;

    for (int k = 0; k < step->n_in; k++) {
        const int x = sp_lowered_read(a->low, step, k);
        const sp_lower_value *value = &a->low->value[x];

        if (value->storage != x || sp_buffer_plan_keeps(a, x) || a->value[x].n_pins > 0)
            continue;
        if (a->value[x].act.range == a->value[step->out].act.range ||
            value->is_for_norms)
            sp_buffer_plan_drop_act(a, x);
    }
}

static sp_status restore(const restoring *r, int v);

/* True if a norm may overwrite its residual x, which was restored for it. If a gradient
 * needs x too, x is recomputed for that: most of a block's backward pass lies between, and
 * needs the most memory. With recomputation x stays if the output finds other memory. */
static bool may_replace_residual(const sp_buffer_plan *a, int x, int out)
{
    return !sp_buffer_plan_keeps(a, x) && a->low->value[x].storage == x &&
           a->low->value[out].storage == out &&
           !(a->rules.is_recomputed && sp_buffer_plan_has_room(a, out));
}

/* Restores the inputs of a step. */
static sp_status restore_inputs(const restoring *r, const sp_lower_step *step)
{
    sp_buffer_plan *a = r->a;
    const int v = step->out;

    for (int k = 0; k < step->n_in; k++) {
        const int x = sp_lowered_read(a->low, step, k);
        const bool was_there = a->value[x].act.range >= 0;

        SP_TRY(restore(r, x));
        pin(r, x, 1);
        if (step->op != SP_OP_BATCHNORM || k == 0 || was_there || x != step->in[k] ||
            !may_replace_residual(a, x, v))
            continue;
        a->value[v].act = a->value[x].act;
        sp_ranges_hold(&a->matrices, a->value[v].act.range);
    }
    return SP_OK;
}

/* Gives a dropped value the content that the forward pass left in it. Its memory is
 * found after its inputs': what only they needed is gone by then. */
static sp_status restore(const restoring *r, int v)
{
    sp_buffer_plan *a = r->a;
    const sp_lowered *low = a->low;
    const int storage = sp_lowered_storage(low, v), s = low->value[v].step;
    const sp_lower_step *step = &low->step[s];

    if (sp_buffer_plan_keeps(a, storage) ||
        (a->value[v].act.range >= 0 && step->op != SP_OP_CONCAT))
        return SP_OK;
    SP_TRY(restore_inputs(r, step));
    sp_buffer_plan_hold(a, v,
                        (sp_buffer_side){0}); /* high memory is given back first */
    a->value[storage].is_restored = true;
    if (r->apply && step->op != SP_OP_CONCAT)
        SP_TRY(r->apply(r->arg, s));
    for (int k = 0; k < step->n_in; k++)
        pin(r, sp_lowered_read(low, step, k), -1);
    if (step->op != SP_OP_CONCAT)
        drop_passed(r, step);
    return SP_OK;
}

sp_status sp_buffer_plan_restore(sp_buffer_plan *a, int s,
                                 sp_status (*apply)(void *arg, int step), void *arg)
{
    const restoring r = {a, apply, arg};
    int v[SP_BUFFER_MOST_NEEDS], n;

    assert(a->is_training && 0 <= s && s < a->low->n_steps && a->n_pinned == 0);
    n = restore_needs(a, s, v);
    for (int i = 0; i < n; i++) {
        SP_TRY(restore(&r, v[i]));
        pin(&r, v[i], 1); /* until sp_buffer_plan_backward_end */
        a->pinned[a->n_pinned++] = sp_lowered_storage(a->low, v[i]);
    }
    return SP_OK;
}
