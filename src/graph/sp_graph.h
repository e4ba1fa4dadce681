/* The network as data: a list of layers with shapes, parameters and kernel maps.
 *
 *     sp_config.net --family--> sp_layer list --sp_graph_build--> nodes,
 *                                                  parameter layout, plan spec
 *
 * Local, a pure function of its arguments; every rank builds the same.
 */
#ifndef SP_GRAPH_H
#define SP_GRAPH_H

#include "deck/sp_deck.h"
#include "compute/sp_plan.h"

enum { SP_MAX_INPUTS = 8, SP_INPUT_NODE = -1, SP_LEVEL_SAMPLE = -1 };

typedef enum sp_op {
    SP_OP_CONV, /* conv, conv_transpose and linear: they differ in their map only */
    SP_OP_BATCHNORM,
    SP_OP_RELU, /* relu and leaky_relu */
    SP_OP_ADD,
    SP_OP_CONCAT,
    SP_OP_DROPOUT,
    SP_OP_MAX_POOL,
    SP_OP_AVG_POOL,
    SP_OP_GLOBAL_AVG_POOL,
    SP_OP_GLOBAL_MAX_POOL,
    SP_OP_BROADCAST
} sp_op;

typedef struct sp_node {
    char name[SP_NAME];
    char op_name[24]; /* as in the deck */
    sp_op op;
    int n_in, in[SP_MAX_INPUTS]; /* nodes; SP_INPUT_NODE is the voxels' features */
    int n_uses;                  /* nodes that read this one */
    int c_in, c_out;
    int level; /* log2 of the output's tensor stride; SP_LEVEL_SAMPLE: one row a sample
                */
    int kernel, stride;
    int map; /* in spec, -1 for a kernel of 1 with stride 1 and for ops without */
    /* of a convolution: the map of its input gradient; == map and is_mirrored for an
     * odd kernel of stride 1; -1 where map is -1, and where no parameter stands before
     * it */
    int grad_map;
    bool is_mirrored;
    bool needs_grad; /* a parameter stands in this layer or before it */
    float slope, p;
    int weight, bias; /* in params, -1: none (batch norm: scale, shift) */
    int64_t running_mean, running_var; /* offsets into the flat buffers, -1: none */
} sp_node;

typedef struct sp_param {
    char name[SP_NAME + 16]; /* "block1.0.conv1/weight": path below /params */
    int n_dims, dim[3]; /* weight [K, c_in, c_out], [c_in, c_out] for K = 1; else [c] */
    int64_t offset, count; /* in the flat buffer; offsets are multiples of 16 */
    int node;
    bool is_norm; /* batch norm's scale or shift */
    int fan_out;  /* K * c_out of a weight; 0: no random start */
    float start;  /* initial value where fan_out is 0 */
} sp_param;

typedef struct sp_graph {
    int c_in, n_classes;
    int n_nodes;
    sp_node *node; /* in order of execution; the last is the output */
    int n_params;
    sp_param *param;   /* in layer order */
    int64_t n_floats;  /* of the flat parameter buffer, padding included */
    int64_t n_weights; /* parameters, padding not included */
    int n_buffers;
    sp_param
        *buffer; /* "bn1/running_mean": path below /buffers, offsets in a flat buffer */
    int64_t n_buffer_floats;
    sp_plan_spec spec;
} sp_graph;

/* c_in feature columns, n_classes outputs. SP_EUSAGE names deck line and layer;
 * SP_EDATA: the network does not fit the data. */
sp_status sp_graph_build(sp_graph *graph, const sp_config *config, int c_in,
                         int n_classes);
void sp_graph_destroy(sp_graph *graph);

/* The table of operations of net.layers with their fields, for people. */
void sp_graph_print_ops(FILE *to);

/* The layer list a family stands for, in a fresh array (caller frees with
 * sp_layers_destroy of sp_deck.h); SP_EUSAGE for an unknown family, with the nearest
 * name. */
sp_status sp_graph_family(const sp_config *config, int n_classes, sp_layer **layers,
                          int *n_layers);

/* Initial weights (Kaiming normal, fan-out, gain sqrt 2) into flat [n_floats]. */
void sp_graph_init_params(const sp_graph *graph, uint64_t seed, float *flat);
/* Running mean 0, variance 1 into flat [n_buffer_floats]. */
void sp_graph_init_buffers(const sp_graph *graph, float *flat);

/* The network layer by layer (stride, channels, parameters) for `sptrain check`. */
void sp_graph_print(const sp_graph *graph, FILE *to);

#endif
