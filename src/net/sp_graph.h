/* The network as data: a list of layers with shapes, parameters and kernel maps.
 *
 *     sp_config.net --sp_graph_family--> sp_layer list --sp_graph_build--> sp_graph
 *     family, width     sp_family.c      (or net.layers     sp_graph.c,       |
 *                                         of the deck)      sp_graph_op.c     |
 *       node    layers in order of execution, with level, channels, inputs <--+
 *       param   name, shape and offset of each parameter in the flat buffer <-+
 *       buffer  the same for running statistics of batch norms <--------------+
 *       spec    levels and kernel maps, the source of the plan <--------------+
 *               of each batch (compute/sp_plan.h)
 *
 * A level is log2 of a tensor stride. Kernel maps that are equal in levels, kernel and
 * direction are shared by layers. All functions are local and pure functions of their
 * arguments, so every rank builds the same graph.
 */
#ifndef SP_GRAPH_H
#define SP_GRAPH_H

#include "base/sp_word_table.h"
#include "compute/sp_plan.h"
#include "deck/sp_deck.h"

enum { SP_MAX_INPUTS = 8, SP_INPUT_NODE = -1, SP_LEVEL_SAMPLE = -1 };

typedef enum sp_op {
    SP_OP_CONV, /* conv, conv_transpose and linear, which differ in their map only */
    SP_OP_BATCHNORM,
    SP_OP_RELU, /* relu and leaky_relu */
    SP_OP_ADD,
    SP_OP_CONCAT,
    SP_OP_DROPOUT,
    SP_OP_MAX_POOL,
    SP_OP_AVG_POOL, /* mean over a map; to a finer level: a copy to its voxels */
    SP_OP_INTERPOLATE,
    SP_OP_GLOBAL_AVG_POOL,
    SP_OP_GLOBAL_MAX_POOL,
    SP_OP_BROADCAST
} sp_op;

struct sp_node;
struct sp_graph_builder;

/* One operation of net.layers: a row of the table in sp_graph_op.c. */
typedef struct sp_op_row {
    sp_word_entry
        word;       /* its `takes` lists the fields of layers, optional ones as [x] */
    int max_inputs; /* 1, or the most of an operation that takes at least 2 */
    sp_op op;
    /* Sets the shape of a node, its slope and its p. Before, the node has the shape of
     * its first input, slope 1 and p 0; NULL: it keeps them. SP_EUSAGE: the layer does
     * not fit. */
    sp_status (*set_shape)(struct sp_graph_builder *builder, struct sp_node *node);
    /* Lists the parameters and running statistics of a node, or NULL. */
    void (*add_params)(struct sp_graph_builder *builder, struct sp_node *node);
    bool is_transposed; /* it leads from coarse to fine coordinates */
    /* It runs over a kernel map, which follows from kernel, stride and
     * is_transposed. */
    bool has_map;
    bool has_argmax;  /* it keeps where each maximum came from */
    bool reads_input; /* its backward pass reads the activations of its inputs */
    /* The operation's backward pass may overwrite its output's gradient with the
     * gradient of its last input. */
    bool passes_grad;
    bool may_overwrite; /* it may write its output over its first input */
} sp_op_row;

/* One layer, with its place in the network. */
typedef struct sp_node {
    char name[SP_NAME];
    const sp_op_row *row; /* of its operation, as named in the deck */
    sp_op op;
    int n_in, in[SP_MAX_INPUTS]; /* input nodes; SP_INPUT_NODE: the voxels' features */
    int n_uses;                  /* number of nodes that read this one */
    /* channels of one row of the input and of the output */
    int c_in, c_out;
    /* log2 of the output's tensor stride; SP_LEVEL_SAMPLE: one row for each sample */
    int level;
    int kernel, stride;
    /* map: index of the kernel map in spec; -1 for kernel 1 with stride 1, and for
     * operations without a kernel */
    int map;
    /* The map of a convolution's input gradient. For an odd kernel of stride 1 it is
     * `map` itself and is_mirrored. It is -1 if map is -1, and if no earlier layer has
     * a parameter that is trained, so that no input gradient is needed. */
    int grad_map;
    bool is_mirrored;
    bool is_frozen; /* train.freeze names it: it keeps its weights and statistics */
    /* This layer, or an earlier one that it reads, has a parameter that is trained. */
    bool needs_grad;
    /* slope below 0 of an activation (1: no activation); rate of a dropout */
    float slope, p;
    /* of a batch norm: added to the variance; the share of a batch in the new running
     * statistics (0: they stay) */
    double eps, momentum;
    int weight, bias; /* index in param, or -1 (batch norm: scale, shift) */
    /* offsets in the flat buffer of running statistics, or -1 */
    int64_t running_mean, running_var;
} sp_node;

/* The rows of a level in a plan of these numbers; of SP_LEVEL_SAMPLE its samples. */
static inline int64_t sp_graph_rows(const sp_plan_counts *counts, int level)
{
    return level == SP_LEVEL_SAMPLE ? counts->n_samples : counts->voxels[level];
}

/* The pairs of rows that a convolution multiplies. */
static inline int64_t sp_graph_pairs(const sp_plan_counts *counts, const sp_node *conv)
{
    return conv->map < 0 ? sp_graph_rows(counts, conv->level)
                         : counts->pairs[conv->map];
}

/* One parameter, or one running statistic, in its flat buffer. */
typedef struct sp_param {
    char name[SP_NAME + 16]; /* "block1.0.conv1/weight", the path below /params */
    /* shape: a weight is [K, c_in, c_out], or [c_in, c_out] for K = 1; all others are
     * [c] */
    int n_dims;
    int64_t dim[3];
    int64_t offset, count; /* floats in the flat buffer; offset is a multiple of 16 */
    int node;
    bool is_norm; /* scale or shift of a batch norm */
    int fan_out;  /* K * c_out of a weight; 0: the initial value is `start` */
    float start;  /* initial value if fan_out is 0 */
} sp_param;

typedef struct sp_graph {
    int c_in, n_classes;
    int n_nodes;
    sp_node *node; /* in order of execution; the last is the output */
    int n_params;
    sp_param *param;   /* in layer order */
    int64_t n_floats;  /* floats of the flat parameter buffer, padding included */
    int64_t n_weights; /* number of parameters, padding not included */
    int n_buffers;
    /* [n_buffers] named by the path below /buffers, such as "bn1/running_mean"; offsets
     * in the flat buffer of running statistics */
    sp_param *buffer;
    int64_t n_buffer_floats;
    sp_plan_spec spec;
} sp_graph;

/* Builds the graph of config's network for c_in feature columns and n_classes outputs.
 * SP_EUSAGE with deck line and layer; SP_EDATA if the network does not fit the data;
 * SP_EMEM. The caller destroys the graph after a failure too. */
sp_status sp_graph_build(sp_graph *graph, const sp_config *config, int c_in,
                         int n_classes);
void sp_graph_destroy(sp_graph *graph);
/* The coarsest tensor stride of its layers, in voxels of the network. */
int64_t sp_graph_stride(const sp_graph *graph);

/* ---- fine-tuning (sp_graph_tune.c) ---- */

/* True if the name begins with one of the prefixes. */
bool sp_graph_is_named(const sp_strings *prefixes, const char *name);
/* The entry of train.lr_layers that counts for a layer (the longest prefix, the last of
 * several) or -1. Its factor, or 1. */
int sp_graph_lr_entry(const sp_config *config, const char *name);
double sp_graph_lr_factor(const sp_config *config, const char *name);
/* Checks that each prefix of train.freeze, train.lr_layers and run.init_skip is a
 * prefix of a layer with parameters, and that something is left to train. SP_EUSAGE
 * names the existing layers. */
sp_status sp_graph_check_tuning(const sp_graph *graph, const sp_config *config);
/* Counts layers with parameters that are frozen, and their parameters. */
void sp_graph_count_frozen(const sp_graph *graph, int *n_layers, int64_t *n_weights);

/* Prints the table of operations of net.layers with their fields. */
void sp_graph_print_ops(FILE *to);

/* Writes the layer list of config's family into a fresh array, which the caller frees
 * with sp_layers_destroy (sp_deck.h), after a failure too. SP_EMEM. */
sp_status sp_graph_family(const sp_config *config, int n_classes, sp_layer **layers,
                          int *n_layers);

/* Writes initial weights (Kaiming normal, fan-out, gain sqrt 2) to flat [n_floats]. */
void sp_graph_init_params(const sp_graph *graph, uint64_t seed, float *flat);
/* Writes running means 0 and variances 1 to flat [n_buffer_floats]. */
void sp_graph_init_buffers(const sp_graph *graph, float *flat);

/* Prints the network layer by layer (stride, channels, parameters) for `sptrain check`.
 */
void sp_graph_print(const sp_graph *graph, FILE *to);

#endif
