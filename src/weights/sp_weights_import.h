/* Weights of a file into a network, with a report of the matches.
 *
 *     file, naming --> sp_import_open   which tensor is which parameter? Number of
 *                                       columns and classes; the graph
 *                  --> sp_import_fill   shapes, layouts, numbers
 *                  --> sp_import_print  matched, missing, other shapes, left over
 *
 * All functions are local.
 */
#ifndef SP_WEIGHTS_IMPORT_H
#define SP_WEIGHTS_IMPORT_H

#include "weights/sp_naming.h"

typedef enum sp_import_state {
    SP_IMPORT_MATCHED,
    SP_IMPORT_MISSING, /* the file has no tensor of the name */
    SP_IMPORT_UNNAMED, /* the naming has no name for it */
    SP_IMPORT_OTHER_SHAPE,
    SP_IMPORT_OTHER_OPERATION /* same shape, other meaning (sp_layout_difference) */
} sp_import_state;

/* A parameter or statistic of the network, and its tensor. */
typedef struct sp_import_item {
    const sp_param *param;
    char *key;                    /* its name in the file, with prefix */
    const sp_tensor_view *tensor; /* NULL if not in the file */
    sp_import_state state;
} sp_import_item;

typedef struct sp_import {
    const sp_tensors *file;  /* borrowed */
    const sp_naming *naming; /* borrowed */
    sp_graph graph;
    char prefix[SP_TENSOR_NAME], other_prefix[SP_TENSOR_NAME];
    int n; /* n_params + n_buffers of the graph, parameters first */
    sp_import_item *item;
    char **mapped; /* [file->n] names after the map file's rules; NULL: nothing */
    bool *is_used; /* [file->n] */
    float *param,
        *running; /* flat buffers of the graph, initial values where missing */
    int n_matched;
} sp_import;

/* Matches the tensors of a file to the network of config. Columns and classes come from
 * the file's first and last layers, if it has them, else 1. prefix NULL: it is searched
 * for. SP_EUSAGE, SP_EDATA: the network; SP_EMEM. Close in any case. */
sp_status sp_import_open(sp_import *import, const sp_tensors *file,
                         const sp_naming *naming, const sp_config *config,
                         const char *prefix);
/* Copies the numbers of the matches. SP_EDATA names a tensor that cannot be read. */
sp_status sp_import_fill(sp_import *import);
/* Prints the report. */
void sp_import_print(const sp_import *import, FILE *to);
/* has [n]: the matches, for sp_checkpoint_write_weights. */
void sp_import_list(const sp_import *import, bool *has);
void sp_import_close(sp_import *import);

#endif
