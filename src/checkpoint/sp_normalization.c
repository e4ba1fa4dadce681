/* The normalization in memory. It has a file of its own, since the library for
 * prediction has it without HDF5 and MPI. */
#include <stdlib.h>
#include <string.h>

#include "base/sp_wire.h"
#include "checkpoint/sp_checkpoint.h"
#include "data/sp_recipe.h"

static void free_texts(char **text, int n)
{
    for (int i = 0; text && i < n; i++)
        free(text[i]);
    free(text);
}

void sp_normalization_destroy(sp_normalization *normalization)
{
    free_texts(normalization->name, normalization->n_columns);
    free_texts(normalization->class_name, normalization->n_classes);
    free_texts(normalization->class_code, normalization->n_classes);
    free(normalization->mean);
    free(normalization->std);
    free(normalization->class_weight);
    sp_recipe_destroy(normalization->recipe);
    memset(normalization, 0, sizeof *normalization);
}

void sp_normalization_wire(sp_wire *wire, sp_normalization *n)
{
    sp_wire_bytes(wire, &n->n_columns, sizeof n->n_columns);
    sp_wire_bytes(wire, &n->n_classes, sizeof n->n_classes);
    sp_wire_texts(wire, &n->name, n->n_columns);
    sp_wire_texts(wire, &n->class_name, n->n_classes);
    sp_wire_texts(wire, &n->class_code, n->n_classes);
    sp_wire_array(wire, (void **)&n->mean, n->n_columns, sizeof *n->mean);
    sp_wire_array(wire, (void **)&n->std, n->n_columns, sizeof *n->std);
    sp_wire_array(wire, (void **)&n->class_weight, n->n_classes,
                  sizeof *n->class_weight);
    sp_recipe_wire(wire, &n->recipe);
}
