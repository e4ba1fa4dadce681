/* Weights that another training begins with, all or those of some layers. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "run/sp_checkpoint_internal.h"

enum { MAX_PATH = 256 };

/* True if all parameters that are neither skipped nor of the last layer are there, in
 * their shapes. */
static bool others_fit(sp_h5 *file, const sp_graph *graph, const sp_strings *skip)
{
    char name[MAX_PATH];

    for (int i = 0; i < graph->n_params; i++) {
        const sp_param *p = &graph->param[i];
        sp_h5_shape shape;

        if (p->node == graph->n_nodes - 1 || sp_graph_is_named(skip, p->name))
            continue;
        snprintf(name, sizeof name, "/params/%s", p->name);
        if (!sp_h5_has(file, name) || sp_h5_shape_of(file, name, &shape) != SP_OK ||
            !sp_checkpoint_has_shape(&shape, p))
            return false;
    }
    return true;
}

/* Refuses a model of other classes, and names the key that leaves its last layer out.
 * Where other layers do not fit either, the first of them is named as it is read. */
static sp_status check_init_classes(sp_h5 *file, const sp_graph *graph,
                                    const sp_strings *skip)
{
    const sp_node *last = &graph->node[graph->n_nodes - 1];
    char value[512];
    size_t used = 0;
    int64_t n;

    SP_TRY(sp_checkpoint_find_classes(file, graph, &n));
    if (n == 0 || n == graph->n_classes || sp_graph_is_named(skip, last->name) ||
        !others_fit(file, graph, skip))
        return SP_OK;
    for (int i = 0; i < skip->n && used < sizeof value; i++)
        used += (size_t)snprintf(value + used, sizeof value - used, "\"%s\", ",
                                 skip->at[i]);
    value[used < sizeof value ? used : sizeof value - 1] = '\0';
    return SP_FAIL(SP_EDATA,
                   "%s: the model has %lld classes, the data %d; everything else fits: "
                   "add run.init_skip=[%s\"%s\"], and the last layer begins afresh",
                   sp_h5_path(file), (long long)n, graph->n_classes, value, last->name);
}

sp_status sp_checkpoint_read_init(const char *path, const sp_graph *graph,
                                  const sp_strings *skip, float *param, float *running)
{
    sp_h5 *file;
    sp_status rc;

    assert(path && graph && skip && param);
    SP_TRY(sp_h5_open(&file, path));
    rc = check_init_classes(file, graph, skip);
    if (rc == SP_OK)
        rc = sp_checkpoint_read_group(file, "/params", graph->param, graph->n_params,
                                      skip, param);
    if (rc == SP_OK)
        rc = sp_checkpoint_read_group(file, "/buffers", graph->buffer, graph->n_buffers,
                                      skip, running);
    sp_h5_close(file);
    return rc;
}
