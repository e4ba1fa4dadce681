/* A model from a checkpoint or a file with only weights. */
#include "weights/sp_weights_model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "h5/sp_h5.h"

static sp_status read_model_config(sp_weights_model *m, const char *deck)
{
    if (m->state.deck)
        return sp_checkpoint_config(&m->config, &m->state, m->path);
    if (deck)
        return sp_config_read(&m->config, deck, 0, NULL);
    return SP_FAIL(SP_EUSAGE, "%s holds only weights: give the network by --deck DECK",
                   m->path);
}

/* A dimension of a parameter's dataset, counted from the end; 0 if missing. */
static sp_status dim_from_end(sp_h5 *file, const sp_param *p, int place, int *n)
{
    char name[SP_NAME + 32];
    sp_h5_shape shape;

    *n = 0;
    snprintf(name, sizeof name, "/params/%s", p->name);
    if (!sp_h5_has(file, name))
        return SP_OK;
    SP_TRY(sp_h5_shape_of(file, name, &shape));
    if (shape.rank >= place && shape.dim[shape.rank - place] <= 1 << 16)
        *n = (int)shape.dim[shape.rank - place];
    return SP_OK;
}

/* Columns and classes of a model that does not name them, by its first and last
 * kernel. */
static sp_status count_channels(const sp_weights_model *m, sp_h5 *file, int *n_columns,
                                int *n_classes)
{
    const int draft_classes = m->config.net.n_layers
                                  ? m->config.net.layers[m->config.net.n_layers - 1].out
                                  : 1;
    SP_CLOSED_BY(sp_graph_destroy) sp_graph draft = {0};

    *n_columns = *n_classes = 0;
    SP_TRY(
        sp_graph_build(&draft, &m->config, 1, draft_classes > 0 ? draft_classes : 1));
    for (int i = 0; i < draft.n_params; i++) {
        const sp_param *p = &draft.param[i];

        if (p->fan_out > 0 && *n_columns == 0)
            SP_TRY(dim_from_end(file, p, 2, n_columns));
        if (p->fan_out > 0)
            SP_TRY(dim_from_end(file, p, 1, n_classes));
    }
    return *n_columns && *n_classes
               ? SP_OK
               : SP_FAIL(SP_EDATA,
                         "%s: lacks the first or the last layer of the "
                         "deck's network",
                         m->path);
}

static sp_status build_model_graph(sp_weights_model *m, sp_h5 *file)
{
    int n_columns = m->norm.n_columns, n_classes = m->norm.n_classes;

    if (!m->norm.name || !m->norm.class_name)
        SP_TRY(count_channels(m, file, &n_columns, &n_classes));
    return sp_graph_build(&m->graph, &m->config, n_columns, n_classes);
}

static sp_status read_model(sp_weights_model *m, sp_h5 *file, const char *deck)
{
    char fault[SP_CHECKPOINT_FAULT];
    sp_weights_use use;

    SP_TRY(sp_checkpoint_read_open_state(file, &m->state, &m->norm));
    SP_TRY(read_model_config(m, deck));
    /* predict uses these too; a file with only weights has no averages. */
    use = m->state.deck ? m->config.run.weights : SP_WEIGHTS_PLAIN;
    SP_TRY(build_model_graph(m, file));
    SP_TRY(SP_NEW(&m->param, m->graph.n_floats, m->path));
    SP_TRY(SP_NEW(&m->running, m->graph.n_buffer_floats, m->path));
    SP_TRY(sp_checkpoint_read_model(file, &m->graph, use, m->param, m->running));
    sp_checkpoint_find_fault(&m->graph, m->param, m->running, fault);
    return fault[0]
               ? SP_FAIL(SP_EDATA, "%s:%s, expected a finite number", m->path, fault)
               : SP_OK;
}

sp_status sp_weights_model_open(sp_weights_model *m, const char *path, const char *deck)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;

    assert(path);
    memset(m, 0, sizeof *m);
    SP_TRY(sp_checkpoint_open_model(&file, path, SP_FINITE, m->path));
    return read_model(m, file, deck);
}
