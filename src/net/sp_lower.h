/* The lowered network: the passes that run for the nodes of a graph, and the uses of
 * each value between them. It is a pure function of the graph and the precision and has
 * no memory of a backend: sp_net executes it, sp_buffer_plan finds room for its values.
 *
 *     node   conv  norm  downsample.norm  add  relu     concat(a, b)
 *     step   conv        norm             norm(x, residual)   no step: a and b were
 *     value  conv        downsample.norm           relu       written into its columns
 *
 * In training downsample.norm's turn computes coefficients only, and the norm that adds
 * its output reads the input of downsample.norm instead: one pass applies both.
 *
 * A step is one pass and writes one value. Value v + 1 is the output of node v; value 0
 * is the features of the voxels. A batch norm, the add after it and the activation
 * after that are fused into one step, so the values between them are never written. A
 * concat copies nothing if its inputs are written into its columns at once: such an
 * input has the concat as its storage. A value in its own memory is its own storage.
 *
 * Inference goes through the same steps. There a norm that has a convolution to itself
 * is one operation with it, so that the convolution's own output is never written.
 */
#ifndef SP_LOWER_H
#define SP_LOWER_H

#include "compute/sp_tensor.h"
#include "net/sp_graph.h"

/* The two kinds of a forward pass. An index by bool is_training is one of them. */
typedef enum sp_forward { SP_INFERENCE, SP_TRAINING, SP_FORWARDS } sp_forward;

typedef struct sp_lower_value {
    /* The level that gives the value its rows (SP_LEVEL_SAMPLE: a row for each sample),
     * and its channels. */
    int level, c;
    sp_elem elem; /* the type of an element of the activation and of its gradient */
    /* The concat that has the value in its columns, and the first of these columns. A
     * value in memory of its own has itself as storage, and column 0. */
    int storage, column;
    /* The lifetime, set only for storages, as indices of steps: the first and the last
     * step that writes it, the last step that reads it in each kind of forward pass,
     * and the step that reads it in the last backward pass to do so (-1: no backward
     * pass). */
    int first, end, last[SP_FORWARDS], last_backward;
    int step;           /* the step that writes it; -1: no step does */
    bool is_from_norms; /* only norms write it, so writing it again costs little */
    /* Of a storage: with recomputation the forward pass drops the activation, and the
     * backward pass computes it again. */
    bool is_recomputed;
    /* Of a storage: with little memory the same, without recomputation. */
    bool is_light;
    /* No gradient needs it: a backward pass reads it only to write other values again.
     */
    bool is_for_norms;
    /* The next value in the lists read_last and used_last of a step; -1: the list ends.
     */
    int next_read[SP_FORWARDS], next_used;
    bool is_unwritten; /* in training: the output of a residual norm (sp_lower_step) */
    bool needs_grad;   /* a trained parameter comes before it */
    bool feeds_norm;   /* a trained batch norm uses its statistics */
} sp_lower_value;

typedef struct sp_lower_step {
    sp_op op; /* SP_OP_BATCHNORM includes the add of in[1] and the activation */
    const sp_op_row *row; /* the table's row of `op` */
    int layer; /* the node with the parameters, the kernel map and dropout's p */
    /* The parameters of the step are not trained. A batch norm then uses its running
     * statistics and leaves them unchanged. */
    bool is_frozen;
    int out;                     /* the value that the step writes */
    int n_in, in[SP_MAX_INPUTS]; /* the values that it reads */
    /* The activation's slope for negative inputs; 1: no activation. */
    float slope;
    /* The step of the norm that writes this convolution's input, or columns of it: the
     * gradient of its output is complete once this convolution has written its input
     * gradient. -1: no such norm, or its output needs no gradient. */
    int norm_before;
    /* The step of a second norm, without activation, that only this norm reads, as its
     * residual. -1: no such norm, or its output needs no gradient. */
    int residual_norm;
    /* Inference runs a convolution that only one norm reads with that norm, in the
     * norm's turn, and writes nothing between them. The other step of the two; -1: the
     * step runs by itself. */
    int runs_with;
    /* The gradients from this offset to the end of the flat gradient are final once the
     * backward pass of this step ran. */
    int64_t ready;
    /* The first storage in the list of those that no later step of the forward pass
     * reads, and of those that no later step of the backward pass reads; -1: the list
     * is empty.
     */
    int read_last[SP_FORWARDS], used_last;
} sp_lower_step;

typedef struct sp_lowered {
    const sp_graph *graph; /* borrowed */
    int n_values, n_steps; /* values include the features; steps are in running order */
    int n_norms;           /* steps that are batch norms */
    sp_lower_value *value; /* [n_values] */
    sp_lower_step *step;   /* [n_steps] */
} sp_lowered;

/* Lowers a graph, which is borrowed. Local. With is_bf16 activations are bf16, but the
 * logits are fp32 if a convolution writes them. SP_EMEM; destroy after a failure too.
 */
sp_status sp_lower(sp_lowered *lowered, const sp_graph *graph, bool is_bf16);
void sp_lowered_destroy(sp_lowered *lowered);
/* Marks the values of recomputation; sp_lower does it. The rule, which halves the memory
 * of activations (sp_buffer_plan.h says how long a value stays that was computed again):
 *
 *     kept        on the finest level the convolution at the end of each residual block;
 *                 of the blocks in a row on a coarser level, every second such convolution
 *                 if the last one's output is kept, else the last convolution and the
 *                 output of every third block from the second last back, or, if the row
 *                 is one block, the convolution that leads to the level; a convolution
 *                 that reads the features; what a convolution to a finer level or the
 *                 last step reads; all but convolutions, norms, activations and concats
 *                 that copy nothing
 *     recomputed  norms, activations, other convolutions. Of convolutions over a map in
 *                 a row every second one is kept on the finest level, on coarser levels
 *                 every seventh.
 * SP_EMEM. */
sp_status sp_lower_mark_recomputed(sp_lowered *lowered);
/* Marks the outputs of convolutions that are computed again at almost no cost: with at
 * most a 105th of the weights of its level the one that reads the features, and on coarser
 * levels the one on the shortcut of a residual block. sp_lower does it. On the finest
 * level a shortcut would come back as memory is needed most. sp_buffer_plan drops what is
 * marked if much more is kept than the gradient has. */
void sp_lower_mark_light(sp_lowered *lowered);
/* True for a concat that copies nothing, since all its inputs are written into its
 * columns. */
bool sp_lowered_is_view(const sp_lowered *lowered, const sp_lower_step *step);
/* The value that owns v's memory: v itself, or the outermost concat around it. */
int sp_lowered_storage(const sp_lowered *lowered, int v);
/* True if a step has a turn of its own in a forward pass: in inference a convolution
 * that runs with a norm has no turn. */
bool sp_lowered_has_turn(const sp_lower_step *step, bool is_training);
/* True if the backward pass of a step reads the step's output: a norm does, with an
 * activation after an addition. Without the addition it computes the output's sign. */
bool sp_lowered_reads_output(const sp_lower_step *step);
/* The value that the forward pass of a step in training reads as its input k. */
int sp_lowered_read(const sp_lowered *lowered, const sp_lower_step *step, int k);

#endif
