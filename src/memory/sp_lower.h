/* The lowered network: the graph's nodes as the passes that run, and what each value of
 * them is needed for. A pure function of the graph and the precision, without memory of
 * a backend: sp_net executes it, and sp_assign gives its values their memory.
 *
 *     node   conv  norm  downsample.norm  add  relu     concat(a, b)
 *     step   conv        norm             norm(x, residual)   none: a and b were
 *     value  conv        downsample.norm           relu       written into its columns
 *
 * A step writes one value; value v + 1 is the output of node v, value 0 the features of
 * the voxels. Values inside a fused chain are never written. A value whose home is
 * another one stands in columns of that concat.
 */
#ifndef SP_LOWER_H
#define SP_LOWER_H

#include "graph/sp_graph.h"

typedef struct sp_lower_value {
    int level, c;
    sp_elem elem; /* of activation and gradient */
    /* The concat that holds the value, and the first of its columns there; a value that
     * stands by itself is its own home. */
    int home, column;
    /* These are set of homes alone. Steps that write it first and last, and that read
     * it last; the step whose backward pass uses it last, -1: none does. Cheap: norms
     * alone write it. Passed: a backward pass reads it only to write others anew. */
    int first, end, last, until;
    bool is_cheap, is_passed;
    int next_read, next_used; /* in the lists of a step below; -1: the list ends */
    bool needs_grad;          /* a parameter stands before it */
    bool feeds_norm;          /* batch statistics are taken of it */
} sp_lower_value;

typedef struct sp_lower_step {
    sp_op op;             /* SP_OP_BATCHNORM: [+ in[1]] and activation included */
    const sp_op_row *row; /* of op */
    int layer;            /* node with the parameters, the map, p */
    int out;              /* value */
    int n_in, in[SP_MAX_INPUTS]; /* values */
    float slope;                 /* of the activation; 1: none */
    /* Convolution that completes the gradient of a norm's output: the step of the norm,
     * and where in the input the output stands. Norm: the step of one without
     * activation whose output it alone reads, and adds. Else -1. */
    int norm_before, norm_column, norm_beside;
    int64_t ready; /* once its backward ran, flat gradients from here on are final */
    /* Homes that no later step reads, and that no backward pass after it uses; -1 */
    int read_last, used_last;
} sp_lower_step;

typedef struct sp_lowered {
    const sp_graph *graph; /* borrowed */
    int n_values, n_steps, n_norms;
    sp_lower_value *value; /* [n_values] */
    sp_lower_step *step;   /* [n_steps] */
} sp_lowered;

/* Local. is_bf16: activations are bf16, logits of a convolution fp32. SP_EMEM; destroy
 * after failure too. */
sp_status sp_lower(sp_lowered *lowered, const sp_graph *graph, bool is_bf16);
void sp_lowered_destroy(sp_lowered *lowered);
/* The value in whose memory v stands: itself, or the outermost concat around it. */
int sp_lowered_home(const sp_lowered *lowered, int v);
/* The inputs are written in place: a concat that copies nothing. */
bool sp_lowered_is_view(const sp_lowered *lowered, const sp_lower_step *step);

#endif
