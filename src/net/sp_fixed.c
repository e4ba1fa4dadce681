#include "net/sp_fixed.h"
#include "base/sp_list.h"

#include <assert.h>
#include <stdlib.h>

/* The least size of sp_fixed.wgrad on a device, in floats: one download then brings the
 * weight gradients of several samples. */
enum { LEAST_WGRAD = 1 << 20 };

typedef struct layout {
    sp_fixed *to;
    const sp_lowered *low;
    const sp_backend *be;
    const sp_fixed_rules *rules;
    sp_arena *arena;
} layout;

static size_t param_floats(const sp_graph *g, int param)
{
    return param < 0 ? 0 : (size_t)g->param[param].count;
}

static size_t pack_floats(const sp_lowered *low, const sp_backend *be, int s,
                          int direction)
{
    const sp_lower_step *step = &low->step[s];
    const sp_node *node = &low->graph->node[step->layer];
    const bool is_grad = direction == SP_PACK_GRAD_INPUT;

    if (step->op != SP_OP_CONV || (is_grad && !low->value[step->in[0]].needs_grad))
        return 0;
    return be->ops->conv_pack_floats(be, node->kernel * node->kernel * node->kernel,
                                     node->c_in, node->c_out, is_grad);
}

/* The floats of the largest weight with its bias, the channels of the widest norm, and
 * the floats of the largest packed weights. */
typedef struct widths {
    size_t wgrad, norm, packed;
} widths;

static widths find_widths(const layout *t)
{
    const sp_graph *g = t->low->graph;
    widths w = {0, 0, 0};

    for (int s = 0; s < t->low->n_steps; s++) {
        const sp_lower_step *step = &t->low->step[s];
        const sp_node *node = &g->node[step->layer];
        const size_t n = param_floats(g, node->weight) + param_floats(g, node->bias);

        if (step->op == SP_OP_BATCHNORM && (size_t)node->c_out > w.norm)
            w.norm = (size_t)node->c_out;
        if (step->op == SP_OP_CONV && n > w.wgrad)
            w.wgrad = n;
        for (int d = 0; d < SP_PACK_DIRECTIONS; d++)
            if (pack_floats(t->low, t->be, s, d) > w.packed)
                w.packed = pack_floats(t->low, t->be, s, d);
    }
    if (!t->rules->is_exact)
        w.wgrad = 0;
    else if (!t->be->ops->is_host && w.wgrad < LEAST_WGRAD)
        w.wgrad = LEAST_WGRAD;
    return w;
}

static bool has_shared_room(const sp_fixed_rules *rules)
{
    return rules->is_low_memory && !rules->is_inference;
}

static sp_status lay_out_step(const layout *t, int s)
{
    const sp_lower_step *step = &t->low->step[s];
    const size_t c = (size_t)t->low->value[step->out].c;
    sp_fixed_norm *norm = &t->to->norm[s];

    for (int d = 0; d < (t->rules->is_inference ? 1 : SP_PACK_DIRECTIONS); d++) {
        const size_t n = pack_floats(t->low, t->be, s, d);

        if (n && has_shared_room(t->rules))
            t->to->packed[s][d] = t->to->shared;
        else if (n)
            SP_TRY(SP_ALLOC(t->arena, n, &t->to->packed[s][d]));
    }
    if (step->op != SP_OP_BATCHNORM)
        return SP_OK;
    SP_TRY(SP_ALLOC(t->arena, c, &norm->scale));
    SP_TRY(SP_ALLOC(t->arena, c, &norm->shift));
    SP_TRY(SP_ALLOC(t->arena, c, &norm->mean));
    return SP_ALLOC(t->arena, c, &norm->inv_std);
}

static sp_status lay_out(const layout *t)
{
    const sp_graph *g = t->low->graph;
    const widths w = find_widths(t);
    sp_fixed *f = t->to;

    SP_TRY(SP_ALLOC(t->arena, g->n_floats, &f->param));
    f->n_wgrad = w.wgrad;
    SP_TRY(SP_ALLOC(t->arena, w.wgrad, &f->wgrad));
    SP_TRY(SP_ALLOC(t->arena, g->n_buffer_floats, &f->running));
    SP_TRY(SP_ALLOC(t->arena, 3 * w.norm, &f->coefficients));
    SP_TRY(SP_ALLOC(t->arena, 2 * w.norm + 1, &f->norm_own));
    SP_TRY(SP_ALLOC(t->arena, 2 * w.norm + 1, &f->norm_all));
    if (has_shared_room(t->rules))
        SP_TRY(SP_ALLOC(t->arena, w.packed, &f->shared));
    for (int s = 0; s < t->low->n_steps; s++)
        SP_TRY(lay_out_step(t, s));
    if (t->rules->has_class_weights)
        SP_TRY(SP_ALLOC(t->arena, g->n_classes, &f->class_weight));
    return SP_OK;
}

static sp_status make_tables(sp_fixed *f, const sp_lowered *low)
{
    *f = (sp_fixed){0};
    SP_TRY(SP_NEW(&f->packed, low->n_steps, "the tables of the network"));
    return SP_NEW(&f->norm, low->n_steps, "the tables of the network");
}

sp_status sp_fixed_size(const sp_lowered *low, const sp_backend *be,
                        const sp_fixed_rules *rules, int64_t *bytes)
{
    sp_arena counter = sp_arena_counter();
    sp_fixed f;
    const layout t = {&f, low, be, rules, &counter};
    sp_status rc = make_tables(&f, low);

    assert(low->n_steps > 0 && bytes);
    if (rc == SP_OK)
        rc = lay_out(&t);
    *bytes = (int64_t)counter.used;
    sp_fixed_destroy(&f);
    return rc;
}

sp_status sp_fixed_create(sp_fixed *f, const sp_lowered *low, const sp_backend *be,
                          const sp_fixed_rules *rules, sp_arena *arena)
{
    const layout t = {f, low, be, rules, arena};
    int64_t bytes;

    SP_TRY(sp_fixed_size(low, be, rules, &bytes));
    SP_TRY(make_tables(f, low));
    SP_TRY(be->ops->arena_create(arena, (size_t)bytes, "parameters"));
    return lay_out(&t);
}

void sp_fixed_destroy(sp_fixed *f)
{
    free(f->packed);
    free(f->norm);
    *f = (sp_fixed){0};
}

void sp_fixed_lend(sp_fixed *f, const sp_lowered *low, const sp_backend *be,
                   float *memory, size_t n)
{
    size_t used = 0;

    for (int s = 0; f->shared && s < low->n_steps; s++) {
        const size_t need = pack_floats(low, be, s, SP_PACK_FORWARD);
        const bool is_lent = memory && need <= n - used;

        if (need)
            f->packed[s][SP_PACK_FORWARD] = is_lent ? memory + used : f->shared;
        used += is_lent ? need : 0;
    }
}
