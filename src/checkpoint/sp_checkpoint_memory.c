/* The parts of a checkpoint in memory. The library for prediction has them without HDF5
 * and MPI, so that nothing here refers to either. */
#include <assert.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_serial.h"
#include "checkpoint/sp_calibration.h"
#include "checkpoint/sp_checkpoint_internal.h"
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
    sp_calibration_destroy(normalization->calibration);
    memset(normalization, 0, sizeof *normalization);
}

void sp_normalization_serialize(sp_serial *serial, sp_normalization *n)
{
    sp_serial_bytes(serial, &n->n_columns, sizeof n->n_columns);
    sp_serial_bytes(serial, &n->n_classes, sizeof n->n_classes);
    sp_serial_texts(serial, &n->name, n->n_columns);
    sp_serial_texts(serial, &n->class_name, n->n_classes);
    sp_serial_texts(serial, &n->class_code, n->n_classes);
    sp_serial_array(serial, (void **)&n->mean, n->n_columns, sizeof *n->mean);
    sp_serial_array(serial, (void **)&n->std, n->n_columns, sizeof *n->std);
    sp_serial_array(serial, (void **)&n->class_weight, n->n_classes,
                    sizeof *n->class_weight);
    sp_recipe_serialize(serial, &n->recipe);
}

/* ---- state ---- */

void sp_checkpoint_state_destroy(sp_checkpoint_state *state)
{
    free(state->deck);
    memset(state, 0, sizeof *state);
}

sp_status sp_checkpoint_config(sp_config *config, const sp_checkpoint_state *state,
                               const char *path)
{
    sp_status rc = sp_config_parse(config, state->deck, path, 0, NULL);

    assert(config && state->deck && path);
    if (rc == SP_EUSAGE)
        return SP_FAIL(SP_EDATA, "attribute deck: %s", sp_error_last()->message);
    return rc;
}

/* ---- numbers ---- */

bool sp_checkpoint_is_variance(const char *name)
{
    const size_t end = strlen(name), var = strlen("/running_var");

    return end > var && strcmp(name + end - var, "/running_var") == 0;
}

int64_t sp_checkpoint_find_bad(const char *name, const float *x, int64_t n)
{
    const float least = sp_checkpoint_is_variance(name) ? 0 : -FLT_MAX;

    for (int64_t i = 0; i < n; i++)
        if (!(x[i] >= least && x[i] <= FLT_MAX))
            return i;
    return -1;
}

static void find_fault(const char *group, const sp_param *params, int n,
                       const float *flat, char fault[SP_CHECKPOINT_FAULT])
{
    char name[SP_NAME + 32];

    for (int i = 0; i < n && !fault[0]; i++) {
        const float *x = flat + params[i].offset;
        int64_t bad;

        snprintf(name, sizeof name, "%s/%s", group, params[i].name);
        bad = sp_checkpoint_find_bad(name, x, params[i].count);
        if (bad >= 0)
            snprintf(fault, SP_CHECKPOINT_FAULT, "%s: element %lld is %g", name,
                     (long long)bad, (double)x[bad]);
    }
}

void sp_checkpoint_find_fault(const sp_graph *graph, const float *param,
                              const float *running, char fault[SP_CHECKPOINT_FAULT])
{
    fault[0] = 0;
    find_fault("/params", graph->param, graph->n_params, param, fault);
    find_fault("/buffers", graph->buffer, graph->n_buffers, running, fault);
}
