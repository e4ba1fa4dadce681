/* Which activations a backward pass computes again (Chen et al. 2016, "Training deep
 * nets with sublinear memory cost"). The marks need no rows: they follow from the
 * graph. */
#include <stdlib.h>

#include "base/sp_list.h"
#include "net/sp_lower.h"

/* Convolutions without a kernel map, or to a finer level, have few products. They may
 * follow one another up to this number. */
enum { MOST_SMALL = 4 };
/* As many convolutions over a map within a level may follow one another: on the finest
 * level, whose few tensors are as large as all others together, and on coarser ones. */
enum { MOST_FINEST = 1, MOST_COARSER = 3 };

/* What is known of the convolution at the end of the block that writes a value: the
 * block comes last in its row, or the one after it drops or keeps its own. */
typedef enum redo_end { END_IS_LAST, END_IS_KEPT, END_IS_DROPPED } redo_end;

/* What has to be computed again for a value before the value itself. */
typedef struct redo_tree {
    int n_convs;
    int n_maps;   /* of n_convs, those in a row over a map within a level */
    bool is_kept; /* the value is kept in any case (redo_keep_inputs) */
    redo_end end;
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

static bool is_conv_of_block(const sp_lowered *low, const sp_lower_step *norm)
{
    const int x = norm->in[0];

    return norm->op == SP_OP_BATCHNORM && norm->n_in > 1 && low->value[x].step >= 0 &&
           low->step[low->value[x].step].op == SP_OP_CONV;
}

/* Keeps the convolutions at the end of residual blocks. Of blocks in a row on a coarser
 * level it keeps every second: beginning with the last, unless the output of that one is
 * kept. */
static void redo_keep_ends(const sp_lowered *low, redo_tree *tree)
{
    for (int s = low->n_steps - 1; s >= 0; s--) {
        const sp_lower_step *norm = &low->step[s];
        const redo_tree *out = &tree[norm->out];
        bool is_kept;

        if (!is_conv_of_block(low, norm))
            continue;
        is_kept = low->value[norm->out].level == 0 || out->end == END_IS_KEPT ||
                  (out->end == END_IS_LAST && !out->is_kept);
        tree[norm->in[0]].is_kept |= is_kept;
        tree[norm->in[1]].end = is_kept ? END_IS_DROPPED : END_IS_KEPT;
    }
}

/* Keeps what convolutions to finer levels and the last step read, and ends of blocks. */
static void redo_keep_inputs(const sp_lowered *low, redo_tree *tree)
{
    for (int s = 0; s < low->n_steps; s++) {
        const int x = low->step[s].in[0];

        if ((leads_to_finer(low, &low->step[s]) || s == low->n_steps - 1) &&
            low->value[x].storage == x)
            tree[x].is_kept = true;
    }
    redo_keep_ends(low, tree);
}

/* True if a convolution is computed again; *tree is the tree of its input, and becomes
 * the tree of its output. */
static bool redo_conv(const sp_lowered *low, const sp_lower_step *step,
                      const redo_tree *input, redo_tree *tree)
{
    const bool has_map = low->graph->node[step->layer].map >= 0;
    const int most = low->value[step->out].level == 0 ? MOST_FINEST : MOST_COARSER;

    if (step->in[0] == 0 || step->out == low->n_values - 1 ||
        leads_to_coarser(low, step))
        return false;
    if (leads_to_finer(low, step) ? !input->is_kept
        : has_map                 ? tree->n_maps >= most
                                  : tree->n_convs >= MOST_SMALL)
        return false;
    tree->n_convs++;
    tree->n_maps += has_map && !leads_to_finer(low, step);
    return true;
}

/* The tree of a step's inputs. What a block adds on a coarser level does not count: its
 * convolutions stay once they were computed again (sp_buffer_plan_restore). */
static redo_tree redo_inputs(const sp_lowered *low, const sp_lower_step *step,
                             const redo_tree *trees)
{
    redo_tree tree = {.is_kept = trees[step->out].is_kept};
    const int n = low->value[step->out].level == 0 ? step->n_in : 1;

    for (int k = 0; k < n; k++) {
        tree.n_convs += trees[step->in[k]].n_convs;
        if (trees[step->in[k]].n_maps > tree.n_maps)
            tree.n_maps = trees[step->in[k]].n_maps;
    }
    return tree;
}

static bool redo_step(const sp_lowered *low, const sp_lower_step *step,
                      const redo_tree *trees, redo_tree *tree)
{
    if (tree->is_kept)
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
        low->value[v].is_recomputed = low->value[v].storage == v && v > 0;
    for (int s = 0; s < low->n_steps; s++) {
        const sp_lower_step *step = &low->step[s];
        redo_tree tree = redo_inputs(low, step, trees);

        if (redo_step(low, step, trees, &tree))
            trees[step->out] = tree;
        else
            low->value[sp_lowered_storage(low, step->out)].is_recomputed = false;
    }
    free(trees);
    return SP_OK;
}

/* The least ratio of the weights of all convolutions of a level to one that is light. */
enum { LIGHT_SHARE = 64 };

static int64_t conv_weights(const sp_lowered *low, int s)
{
    const sp_graph *g = low->graph;

    return low->step[s].op == SP_OP_CONV
               ? g->param[g->node[low->step[s].layer].weight].count
               : 0;
}

/* Marks the output of step s if that is a convolution with few weights for its level. */
static void mark_if_light(const sp_lowered *low, int s)
{
    const int out = low->step[s].out;
    int64_t all = 0;

    for (int i = 0; i < low->n_steps; i++)
        if (low->value[low->step[i].out].level == low->value[out].level)
            all += conv_weights(low, i);
    low->value[out].is_light = low->step[s].op == SP_OP_CONV &&
                               low->value[out].storage == out &&
                               all >= LIGHT_SHARE * conv_weights(low, s);
}

void sp_lower_mark_light(sp_lowered *low)
{
    for (int s = 0; s < low->n_steps; s++) {
        const int norm = low->step[s].residual_norm;
        const int x = norm < 0 ? -1 : low->step[norm].in[0];

        if (low->step[s].in[0] == 0)
            mark_if_light(low, s);
        if (x > 0 && low->value[x].level > 0 && low->value[x].step >= 0 &&
            low->graph->node[low->step[low->value[x].step].layer].map < 0)
            mark_if_light(low, low->value[x].step);
    }
}
