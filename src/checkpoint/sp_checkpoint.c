/* Layout (input/SCHEMA):
 *   /params/<layer>/<weight|bias>               float32
 *   /buffers/<layer>/<running_mean|running_var> float32
 *   /optim/<...>/<layer>/<weight|bias>          float32: the groups of sp_optim_states
 *   /ema/<layer>/<...>, /ema_buffers/<...>      float32: averages, with train.ema
 *   /normalization/mean, std                    float64, if features are normalized
 *   /loss/class_weights                         float64, if classes are weighted
 *   /recipe                                     attributes (data/sp_recipe.h)
 *   /calibration                                float64 (checkpoint/sp_calibration.h)
 *   root attributes of sp_checkpoint_state
 * Every dataset carries crc32c over its bytes; the root's is over the other attributes,
 * in alphabetical order, each its name and its bytes.
 */
#include "base/sp_list.h"
#include "checkpoint/sp_calibration.h"
#include "checkpoint/sp_checkpoint_internal.h"
#include "data/sp_recipe.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "h5/sp_h5.h"

enum { MAX_PATH = 256 };

/* ---- arrays ---- */

bool sp_checkpoint_has_shape(const sp_h5_shape *shape, const sp_param *p)
{
    int i = 0, j = 0;

    assert(p->n_dims > 0);
    if (shape->rank < 0 || shape->rank > SP_H5_RANK)
        return false;
    for (;; i++, j++) {
        while (i < shape->rank && shape->dim[i] == 1)
            i++;
        while (j < p->n_dims && p->dim[j] == 1)
            j++;
        if (i == shape->rank || j == p->n_dims)
            return i == shape->rank && j == p->n_dims;
        if (shape->dim[i] != p->dim[j])
            return false;
    }
}

sp_status sp_checkpoint_check_numbers(sp_h5 *file, const char *name, const float *x,
                                      int64_t n, int64_t first)
{
    const int64_t bad = sp_checkpoint_find_bad(name, x, n);

    if (bad < 0)
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s:%s: element %lld is %g, expected a finite number%s",
                   sp_h5_path(file), name, (long long)(first + bad), (double)x[bad],
                   sp_checkpoint_is_variance(name) ? ", not negative" : "");
}

/* Weights written by another program have no checksum, so their numbers are checked
 * before the first use. */
static sp_status read_foreign(sp_h5 *file, const char *name, const sp_param *p,
                              float *to)
{
    sp_h5_shape shape;

    SP_TRY(sp_h5_shape_of(file, name, &shape));
    if (sp_checkpoint_has_shape(&shape, p))
        SP_TRY(sp_h5_read(file, name, SP_H5_F32, shape.rank, shape.dim, to));
    else /* fails, with the message about shapes */
        SP_TRY(sp_h5_read(file, name, SP_H5_F32, p->n_dims, p->dim, to));
    return sp_checkpoint_check_numbers(file, name, to, p->count, 0);
}

sp_status sp_checkpoint_write_array(sp_h5 *file, const char *name, sp_h5_type type,
                                    int rank, const int64_t *dim, const void *data,
                                    size_t bytes)
{
    uint32_t crc = sp_crc32c(0, data, bytes);

    assert(data || bytes == 0);
    assert(0 <= rank && rank <= SP_H5_RANK);
    SP_TRY(sp_h5_write(file, name, type, rank, dim, data));
    return sp_h5_attr_write(file, name, "crc32c", SP_H5_U32, -1, &crc);
}

static sp_status write_group(sp_h5 *file, const char *group, const sp_param *params,
                             int n, const float *flat)
{
    char name[MAX_PATH];

    for (int i = 0; i < n; i++) {
        const sp_param *p = &params[i];
        snprintf(name, sizeof name, "%s/%s", group, p->name);
        SP_TRY(sp_checkpoint_write_array(file, name, SP_H5_F32, p->n_dims, p->dim,
                                         flat + p->offset,
                                         (size_t)p->count * sizeof *flat));
    }
    return SP_OK;
}

sp_status sp_checkpoint_check_crc(sp_h5 *file, const char *name, uint32_t crc)
{
    uint32_t want;

    if (!sp_h5_attr_has(file, name, "crc32c") && !sp_h5_attr_has(file, "/", "format"))
        return SP_OK;
    SP_TRY(sp_h5_attr_read(file, name, "crc32c", SP_H5_U32, 1, &want));
    if (crc != want)
        return SP_FAIL(SP_EDATA,
                       "%s:%s: crc32c %08x, expected %08x: the file is damaged",
                       sp_h5_path(file), name, crc, want);
    return SP_OK;
}

sp_status sp_checkpoint_read_group(sp_h5 *file, const char *group,
                                   const sp_param *params, int n,
                                   const sp_strings *skip, float *flat)
{
    const bool is_foreign = !sp_h5_attr_has(file, "/", "format");
    char name[MAX_PATH];

    assert(file && group && params && n >= 0 && skip && flat);
    for (int i = 0; i < n; i++) {
        const sp_param *p = &params[i];
        if (sp_graph_is_named(skip, p->name))
            continue;
        snprintf(name, sizeof name, "%s/%s", group, p->name);
        if (!sp_h5_has(file, name))
            return SP_FAIL(SP_EDATA, "%s: %s is missing", sp_h5_path(file), name);
        if (is_foreign)
            SP_TRY(read_foreign(file, name, p, flat + p->offset));
        else
            SP_TRY(
                sp_h5_read(file, name, SP_H5_F32, p->n_dims, p->dim, flat + p->offset));
        SP_TRY(sp_checkpoint_check_crc(
            file, name,
            sp_crc32c(0, flat + p->offset, (size_t)p->count * sizeof *flat)));
    }
    return SP_OK;
}

static sp_status read_group(sp_h5 *file, const char *group, const sp_param *params,
                            int n, float *flat)
{
    const sp_strings none = {0};

    return sp_checkpoint_read_group(file, group, params, n, &none, flat);
}

/* ---- writing ---- */

/* The datasets of kept value i. */
static const sp_param *kept_params(const sp_graph *graph, int i)
{
    return sp_optim_states[i].is_of_buffers ? graph->buffer : graph->param;
}

static int kept_count(const sp_graph *graph, int i)
{
    return sp_optim_states[i].is_of_buffers ? graph->n_buffers : graph->n_params;
}

static sp_status checkpoint_write_arrays(sp_h5 *file, const sp_graph *graph,
                                         const sp_checkpoint_arrays *a)
{
    const sp_optim *optim = a->optim;

    SP_TRY(write_group(file, "/params", graph->param, graph->n_params, a->param));
    SP_TRY(write_group(file, "/buffers", graph->buffer, graph->n_buffers, a->running));
    for (int i = 0; optim && i < SP_N_OPTIM_STATES; i++)
        if (optim->state[i])
            SP_TRY(write_group(file, sp_optim_states[i].group, kept_params(graph, i),
                               kept_count(graph, i), optim->state[i]));
    if (a->on_written)
        a->on_written(a->arg);
    return SP_OK;
}

static sp_status checkpoint_write_all(sp_h5 *file, const sp_graph *graph,
                                      const sp_checkpoint_state *state,
                                      const sp_normalization *normalization,
                                      const sp_checkpoint_arrays *arrays)
{
    SP_TRY(sp_checkpoint_write_root(file, state, normalization));
    sp_fault_at("saving", state->step);
    SP_TRY(checkpoint_write_arrays(file, graph, arrays));
    return sp_checkpoint_write_rows(file, normalization);
}

/* Creates the file under a temporary name, temporary [PATH_MAX]. */
static sp_status checkpoint_create(sp_h5 **file, char *temporary, const char *path)
{
    if (snprintf(temporary, PATH_MAX, "%s" SP_FILE_UNFINISHED, path) >= PATH_MAX)
        return SP_FAIL(SP_EIO, "%s: the path is too long", path);
    return sp_h5_create(file, temporary);
}

/* Closes the file that was written with this status, reads it back if it has checksums,
 * and gives it its name; removes it after a failure. */
static sp_status checkpoint_finish(sp_h5 *file, const char *temporary, const char *path,
                                   bool has_sums, int64_t step, sp_status rc)
{
    const sp_status end = sp_h5_close(file);

    rc = rc == SP_OK ? end : rc;
    if (rc == SP_OK && has_sums)
        rc = sp_checkpoint_verify_written(temporary);
    sp_fault_at("verified", step);
    if (rc == SP_OK)
        rc = sp_file_rename(temporary, path);
    if (rc != SP_OK)
        unlink(temporary);
    sp_fault_at("renamed", step);
    return rc;
}

sp_status sp_checkpoint_write(const char *path, const sp_graph *graph,
                              const sp_checkpoint_state *state,
                              const sp_normalization *normalization,
                              const sp_checkpoint_arrays *arrays)
{
    char temporary[PATH_MAX];
    sp_h5 *file;

    assert(path && state->deck && arrays);
    assert(state->step >= 0 && state->at.epoch >= 0 && state->at.position >= 0);
    SP_TRY(checkpoint_create(&file, temporary, path));
    return checkpoint_finish(
        file, temporary, path, true, state->step,
        checkpoint_write_all(file, graph, state, normalization, arrays));
}

static sp_status copy_array(sp_h5 *from, const char *name, sp_h5 *to)
{
    SP_FREED char *data = NULL;
    sp_h5_shape shape;
    size_t bytes;

    SP_TRY(sp_h5_shape_of(from, name, &shape));
    bytes = (size_t)shape.type.size;
    for (int i = 0; i < shape.rank; i++)
        bytes *= (size_t)shape.dim[i];
    SP_TRY(SP_NEW(&data, bytes, name));
    SP_TRY(sp_h5_read_rows(from, name, 0, shape.dim[0], data));
    return sp_checkpoint_write_array(to, name, shape.type, shape.rank, shape.dim, data,
                                     bytes);
}

/* Copies the datasets of a checkpoint, all but the calibration. */
static sp_status copy_arrays(sp_h5 *from, sp_h5 *to)
{
    char **name;
    int n;
    sp_status rc = SP_OK;

    SP_TRY(sp_h5_list(from, &name, &n));
    for (int i = 0; rc == SP_OK && i < n; i++)
        if (strncmp(name[i], "/calibration/", 13) != 0)
            rc = copy_array(from, name[i], to);
    sp_h5_list_free(name, n);
    return rc;
}

static sp_status copy_all(sp_h5 *from, sp_h5 *to, const sp_calibration *calibration)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization norm = {0};

    SP_TRY(sp_checkpoint_read_open_state(from, &state, &norm));
    SP_TRY(sp_checkpoint_write_root(to, &state, &norm));
    SP_TRY(copy_arrays(from, to));
    SP_TRY(sp_recipe_write(to, norm.recipe));
    return sp_calibration_write(to, calibration);
}

sp_status sp_checkpoint_write_calibration(const char *path,
                                          const sp_calibration *calibration)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *from = NULL;
    char temporary[PATH_MAX];
    sp_h5 *to;

    assert(path && calibration);
    SP_TRY(sp_checkpoint_open(&from, path, SP_INTACT));
    SP_TRY(checkpoint_create(&to, temporary, path));
    return checkpoint_finish(to, temporary, path, true, 0,
                             copy_all(from, to, calibration));
}

static sp_status write_foreign(sp_h5 *file, const sp_graph *graph, const float *param,
                               const float *running, const bool *has)
{
    for (int i = 0; i < graph->n_params + graph->n_buffers; i++) {
        const bool is_param = i < graph->n_params;

        if (!has || has[i])
            SP_TRY(write_group(file, is_param ? "/params" : "/buffers",
                               is_param ? &graph->param[i]
                                        : &graph->buffer[i - graph->n_params],
                               1, is_param ? param : running));
    }
    return SP_OK;
}

sp_status sp_checkpoint_write_weights(const char *path, const sp_graph *graph,
                                      const float *param, const float *running,
                                      const bool *has)
{
    char temporary[PATH_MAX];
    sp_h5 *file;

    assert(path && graph && param);
    SP_TRY(checkpoint_create(&file, temporary, path));
    return checkpoint_finish(file, temporary, path, false, 0,
                             write_foreign(file, graph, param, running, has));
}

/* ---- reading ---- */

sp_status sp_checkpoint_read_state(const char *path, sp_checkpoint_state *state,
                                   sp_normalization *normalization)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;

    assert(path && state);
    SP_TRY(sp_h5_open(&file, path));
    return sp_checkpoint_read_open_state(file, state, normalization);
}

sp_status sp_checkpoint_read_open_state(sp_h5 *file, sp_checkpoint_state *state,
                                        sp_normalization *normalization)
{
    sp_normalization norm = {0};
    sp_status rc = sp_checkpoint_read_root(file, state, &norm);

    if (rc == SP_OK && normalization)
        rc = sp_checkpoint_read_rows(file, &norm);
    if (normalization)
        *normalization = norm;
    else
        sp_normalization_destroy(&norm);
    return rc;
}

/* Reads the optimizer's state from a file that has it. If another optimizer wrote the
 * file, this one begins with zeros: a sum of gradients is not a mean, and a second
 * moment of zeros after many steps would make its first updates far too large.
 */
static sp_status read_optim(sp_h5 *file, const sp_graph *graph, sp_optim *optim)
{
    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        if (!sp_optim_states[i].is_average &&
            sp_h5_has(file, sp_optim_states[i].group) != (optim->state[i] != NULL)) {
            sp_log_warn0("%s has no state of this optimizer: it starts from zero",
                         sp_h5_path(file));
            return SP_OK;
        }
    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        if (optim->state[i] && !sp_optim_states[i].is_average)
            SP_TRY(read_group(file, sp_optim_states[i].group, graph->param,
                              graph->n_params, optim->state[i]));
    return sp_h5_attr_read_int(file, "/", "updates", &optim->t);
}

/* Reads the averages; in a file without them they begin as its weights. */
static sp_status read_averages(sp_h5 *file, const sp_graph *graph, const float *param,
                               const float *running, sp_optim *optim)
{
    int64_t updates = 1;

    if (optim->state[SP_OPTIM_STATE_EMA] &&
        !sp_h5_has(file, sp_optim_states[SP_OPTIM_STATE_EMA].group))
        sp_log_info("%s has no averaged weights: the average begins here",
                    sp_h5_path(file));
    else
        SP_TRY(sp_h5_attr_read_int(file, "/", "updates", &updates));
    optim->is_averaging = updates > 0;
    for (int i = 0; i < SP_N_OPTIM_STATES; i++) {
        if (!optim->state[i] || !sp_optim_states[i].is_average)
            continue;
        if (sp_h5_has(file, sp_optim_states[SP_OPTIM_STATE_EMA].group))
            SP_TRY(read_group(file, sp_optim_states[i].group, kept_params(graph, i),
                              kept_count(graph, i), optim->state[i]));
        else
            memcpy(optim->state[i], sp_optim_states[i].is_of_buffers ? running : param,
                   (size_t)sp_optim_state_floats(graph, i) * sizeof(float));
    }
    return SP_OK;
}

/* The parameter that gives the model's number of classes: the network's last layer has
 * one channel a class, and all shapes that its last parameter may have end in its
 * channels. NULL: the last layer has no parameter. */
static const sp_param *class_param(const sp_graph *graph)
{
    const sp_param *last = graph->param + graph->n_params - 1;

    return graph->n_params > 0 && last->node == graph->n_nodes - 1 ? last : NULL;
}

sp_status sp_checkpoint_find_classes(sp_h5 *file, const sp_graph *graph, int64_t *n)
{
    const sp_param *last = class_param(graph);
    char name[MAX_PATH];
    sp_h5_shape shape;

    *n = 0;
    if (!last)
        return SP_OK;
    snprintf(name, sizeof name, "/params/%s", last->name);
    if (!sp_h5_has(file, name))
        return SP_OK; /* a missing parameter is named when it is read */
    SP_TRY(sp_h5_shape_of(file, name, &shape));
    if (shape.rank >= 1 && shape.rank <= SP_H5_RANK)
        *n = shape.dim[shape.rank - 1];
    return SP_OK;
}

static sp_status check_classes(sp_h5 *file, const sp_graph *graph)
{
    int64_t n;

    SP_TRY(sp_checkpoint_find_classes(file, graph, &n));
    if (n == 0 || n == graph->n_classes)
        return SP_OK;
    return SP_FAIL(
        SP_EDATA,
        "%s: the model has %lld classes, the data %d; convert the scans with "
        "the --map of its training",
        sp_h5_path(file), (long long)n, graph->n_classes);
}

sp_status sp_checkpoint_groups(sp_h5 *file, sp_weights_use use, const char **params,
                               const char **buffers)
{
    const bool is_average = use == SP_WEIGHTS_EMA;

    *params = is_average ? sp_optim_states[SP_OPTIM_STATE_EMA].group : "/params";
    *buffers =
        is_average ? sp_optim_states[SP_OPTIM_STATE_EMA_BUFFERS].group : "/buffers";
    if (!is_average || sp_h5_has(file, *params))
        return SP_OK;
    return SP_FAIL(SP_EDATA,
                   "%s: no averaged weights (/ema), which run.weights = \"ema\" asks "
                   "for: its training had no train.ema; take run.weights=plain",
                   sp_h5_path(file));
}

sp_status sp_checkpoint_read_model(sp_h5 *file, const sp_graph *graph,
                                   sp_weights_use use, float *param, float *running)
{
    const char *params, *buffers;

    assert(file && graph && param);
    SP_TRY(check_classes(file, graph));
    SP_TRY(sp_checkpoint_groups(file, use, &params, &buffers));
    SP_TRY(read_group(file, params, graph->param, graph->n_params, param));
    return read_group(file, buffers, graph->buffer, graph->n_buffers, running);
}

static sp_status read_training(sp_h5 *file, const sp_graph *graph, float *param,
                               float *running, sp_optim *optim)
{
    SP_TRY(sp_checkpoint_read_model(file, graph, SP_WEIGHTS_PLAIN, param, running));
    if (!optim)
        return SP_OK;
    SP_TRY(read_optim(file, graph, optim));
    return read_averages(file, graph, param, running, optim);
}

sp_status sp_checkpoint_read(const char *path, const sp_graph *graph, float *param,
                             float *running, sp_optim *optim,
                             sp_checkpoint_state *state)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;

    assert(path && graph && param);
    SP_TRY(sp_h5_open(&file, path));
    SP_TRY(read_training(file, graph, param, running, optim));
    return state ? sp_checkpoint_read_open_state(file, state, NULL) : SP_OK;
}
