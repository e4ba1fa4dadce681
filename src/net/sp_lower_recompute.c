/* Which activations a backward pass computes again (Chen et al. 2016, "Training deep
 * nets with sublinear memory cost"). The marks need no rows: they follow from the
 * graph. */
#include <stdlib.h>

#include "base/sp_list.h"
#include "net/sp_lower.h"

/* Convolutions without a kernel map, or to a finer level, have few products. They may
 * follow one another up to this number. */
enum { MOST_SMALL = 4 };

/* What has to be computed again for a value before the value itself. */
typedef struct redo_tree {
    int n_convs;
    bool has_map; /* one of the convolutions runs over a map within a level */
    /* a norm with an addition reads the value, or a convolution to a finer level */
    bool is_kept;
} redo_tree;

static bool leads_to_finer(const sp_lowered *low, const sp_lower_step *step)
{
    return step->op == SP_OP_CONV &&
           low->value[step->out].level < low->value[step->in[0]].level;
}

static bool leads_to_coarser(const sp_lowered *low, const sp_lower_step *step)
{
    return step->op == SP_OP_CONV &&
           low->value[step->out].level > low->value[step->in[0]].level;
}

static void redo_keep_inputs(const sp_lowered *low, redo_tree *tree)
{
    for (int s = 0; s < low->n_steps; s++) {
        const sp_lower_step *step = &low->step[s];
        const int x = step->in[0];

        if ((step->op == SP_OP_BATCHNORM && step->n_in > 1 && low->value[x].step >= 0 &&
             low->step[low->value[x].step].op == SP_OP_CONV) ||
            (leads_to_finer(low, step) && low->value[x].home == x))
            tree[x].is_kept = true;
    }
}

/* True if a convolution is computed again; *tree is the tree of its input, and becomes
 * the tree of its output. */
static bool redo_conv(const sp_lowered *low, const sp_lower_step *step,
                      const redo_tree *input, redo_tree *tree)
{
    const bool has_map = low->graph->node[step->layer].map >= 0;

    if (step->in[0] == 0 || step->out == low->n_values - 1 ||
        leads_to_coarser(low, step))
        return false;
    if (leads_to_finer(low, step) ? !input->is_kept
        : has_map                 ? tree->has_map
                                  : tree->n_convs >= MOST_SMALL)
        return false;
    tree->n_convs++;
    tree->has_map |= has_map && !leads_to_finer(low, step);
    return true;
}

static bool redo_step(const sp_lowered *low, const sp_lower_step *step,
                      const redo_tree *trees, redo_tree *tree)
{
    for (int k = 0; k < step->n_in; k++) {
        tree->n_convs += trees[step->in[k]].n_convs;
        tree->has_map |= trees[step->in[k]].has_map;
    }
    if (trees[step->out].is_kept)
        return false;
    if (step->op == SP_OP_CONV)
        return redo_conv(low, step, &trees[step->in[0]], tree);
    return step->op == SP_OP_BATCHNORM || step->op == SP_OP_RELU ||
           sp_lowered_is_view(low, step);
}

sp_status sp_lower_mark_recomputed(sp_lowered *low)
{
    redo_tree *trees;

    SP_TRY(SP_NEW(&trees, low->n_values, "the tables of the network"));
    redo_keep_inputs(low, trees);
    for (int v = 0; v < low->n_values; v++)
        low->value[v].is_recomputed = low->value[v].home == v && v > 0;
    for (int s = 0; s < low->n_steps; s++) {
        const sp_lower_step *step = &low->step[s];
        redo_tree tree = {.is_kept = trees[step->out].is_kept};

        if (redo_step(low, step, trees, &tree))
            trees[step->out] = tree;
        else
            low->value[sp_lowered_home(low, step->out)].is_recomputed = false;
    }
    free(trees);
    return SP_OK;
}
