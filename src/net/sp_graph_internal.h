/* The state of sp_graph_build, which the rules of operations (sp_graph_op.c) change. */
#ifndef SP_GRAPH_INTERNAL_H
#define SP_GRAPH_INTERNAL_H

#include "net/sp_graph.h"

struct sp_graph_builder {
    sp_graph *graph;
    const sp_layer *layer;         /* the layer that is being built */
    sp_family family;              /* of layers that a family made */
    double bn_eps, bn_momentum;    /* of norms without their own field */
    const sp_doubles *grid;        /* of dilated coordinates: three numbers or none */
    const sp_strings *freeze;      /* prefixes of layers that keep their weights */
    bool has_level[SP_MAX_LEVELS]; /* true if some tensor lives on the level */
    /* [n] level that was pooled, for nodes with a row for each sample */
    int *pooled_level;
};
typedef struct sp_graph_builder sp_graph_builder;

/* Fails with SP_EUSAGE and a message about the layer that is being built:
 * "input/a.deck:12: layer conv1: ...". */
#define SP_REFUSE(b, ...)                                                              \
    sp_graph_refuse(SP_EUSAGE, (b), __FILE__, __LINE__, __func__, __VA_ARGS__)
/* The macro's function: records rc with the message and returns rc. */
sp_status sp_graph_refuse(sp_status rc, const sp_graph_builder *b, const char *file,
                          int line, const char *func, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Level and channels of an input: a node, or SP_INPUT_NODE. */
int sp_graph_level_of(const sp_graph_builder *b, int input);
int sp_graph_channels_of(const sp_graph_builder *b, int input);

/* Fails with SP_EUSAGE unless the layer has the fields that its operation needs, and no
 * field that it does not use. */
sp_status sp_graph_check_fields(const sp_graph_builder *b, const sp_op_row *row);
/* Sets *row to the constant row of the layer's operation; SP_EUSAGE names the nearest
 * one. */
sp_status sp_graph_find_op(const sp_graph_builder *b, const sp_op_row **row);

#endif
