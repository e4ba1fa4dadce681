/* Which activations a backward pass computes again (Chen et al. 2016, "Training deep
 * nets with sublinear memory cost"). The marks need no rows: they follow from the
 * graph. */
#include <stdlib.h>

#include "base/sp_list.h"
#include "net/sp_lower.h"

/* Convolutions without a kernel map, or to another level, have few products. They may
 * follow one another until the convolutions in a row reach this number. */
enum { MOST_SMALL = 10 };
/* As many convolutions over a map within a level may follow one another: on the finest
 * level, whose few tensors are as large as all others together, and on coarser ones. */
enum { MOST_FINEST = 1, MOST_COARSER = 6 };
/* Of residual blocks in a row on a coarser level: if the last one's output is kept, every
 * second convolution at a block's end is, too. Else it is often columns of a concat that
 * are needed several times: then that one's convolution is kept, and outputs so many
 * blocks apart, the second last first. Instead of the convolution of a block without
 * others the one that leads to the level is kept. */
enum { CONVS_APART = 2, OUTPUTS_APART = 3 };

/* What has to be computed again for a value before the value itself. */
typedef struct redo_tree {
    int n_convs;
    int n_maps;   /* of n_convs, those in a row over a map within a level */
    bool is_kept; /* the value is kept in any case (redo_keep_inputs) */
    int n_after;  /* residual blocks in the same row after the one that writes it */
    bool is_before_kept; /* and the output of the last of them is kept */
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

static bool is_within_level(const sp_lowered *low, const sp_lower_step *conv)
{
    return low->graph->node[conv->layer].map >= 0 &&
           low->value[conv->out].level == low->value[conv->in[0]].level;
}

static bool is_conv_of_block(const sp_lowered *low, const sp_lower_step *norm)
{
    const int x = norm->in[0];

    return norm->op == SP_OP_BATCHNORM && norm->n_in > 1 && low->value[x].step >= 0 &&
           low->step[low->value[x].step].op == SP_OP_CONV;
}

/* The output of the convolution to this level that a value comes from without passing a
 * residual block; -1: it passes one, or there is no such convolution. */
static int redo_find_entry(const sp_lowered *low, int v)
{
    for (int s = low->value[v].step; s >= 0 && low->step[s].n_in == 1;
         s = low->value[low->step[s].in[0]].step)
        if (leads_to_coarser(low, &low->step[s]))
            return low->step[s].out;
    return -1;
}

/* Keeps the convolution at the end of a residual block, its output, or neither. */
static void redo_keep_block(const sp_lowered *low, const sp_lower_step *norm,
                            bool is_end_kept, redo_tree *tree)
{
    redo_tree *out = &tree[norm->out], *conv = &tree[norm->in[0]];
    const int entry = redo_find_entry(low, norm->in[1]);

    if (low->value[norm->out].level == 0)
        conv->is_kept = true;
    else if (is_end_kept)
        conv->is_kept |= out->n_after % CONVS_APART == 1;
    else if (out->n_after == 0)
        tree[entry < 0 ? norm->in[0] : entry].is_kept = true;
    else if (low->value[norm->out].storage == norm->out)
        out->is_kept |= out->n_after % OUTPUTS_APART == 1;
}

static void redo_keep_blocks(const sp_lowered *low, redo_tree *tree)
{
    for (int s = low->n_steps - 1; s >= 0; s--) {
        const sp_lower_step *norm = &low->step[s];
        const redo_tree *out = &tree[norm->out];
        const bool is_end_kept = out->n_after > 0 ? out->is_before_kept : out->is_kept;

        if (!is_conv_of_block(low, norm))
            continue;
        tree[norm->in[1]].n_after = out->n_after + 1;
        tree[norm->in[1]].is_before_kept = is_end_kept;
        redo_keep_block(low, norm, is_end_kept, tree);
    }
}

/* Keeps what convolutions to finer levels and the last step read, and of blocks. */
static void redo_keep_inputs(const sp_lowered *low, redo_tree *tree)
{
    for (int s = 0; s < low->n_steps; s++) {
        const int x = low->step[s].in[0];

        if ((leads_to_finer(low, &low->step[s]) || s == low->n_steps - 1) &&
            low->value[x].storage == x)
            tree[x].is_kept = true;
    }
    redo_keep_blocks(low, tree);
}

/* True if a convolution is computed again; *tree is the tree of its input, and becomes
 * the tree of its output. */
static bool redo_conv(const sp_lowered *low, const sp_lower_step *step,
                      const redo_tree *input, redo_tree *tree)
{
    const bool is_within = is_within_level(low, step);
    const int most = low->value[step->out].level == 0 ? MOST_FINEST : MOST_COARSER;

    if (step->in[0] == 0 || step->out == low->n_values - 1)
        return false;
    if (leads_to_finer(low, step) ? !input->is_kept
        : is_within               ? tree->n_maps >= most
                                  : tree->n_convs >= MOST_SMALL)
        return false;
    tree->n_convs++;
    tree->n_maps += is_within;
    return true;
}

/* The tree of a step's inputs. What a block adds on a coarser level does not count: it
 * stays once it was computed again (sp_buffer_plan_restore). */
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

/* The least ratio of the weights of all convolutions of a level to one that is light. In
 * minkunet18 the shortcut 384 -> 256 has 1/103 and takes 1.5 ms a MiB, 128 -> 96 with 1/106
 * 0.6 ms. With few voxels on the finest level a step's memory peaks later, and what comes
 * back adds to it. */
enum { LIGHT_SHARE = 105 };

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
