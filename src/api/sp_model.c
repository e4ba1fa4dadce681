/* Prediction (include/sptrain.h): a model and the network that runs it on the CPU.
 *
 *     coords, features --> sample --sp_single_batch_fill--> batch --sp_net_forward--> logits
 *     of the caller        checked                    row_of: rows of the caller's
 *
 * `sptrain predict` runs the same code, so it computes the same bits. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/sp_loops.h"
#include "api/sp_model.h"
#include "base/sp_list.h"
#include "base/sp_machine.h"
#include "base/sp_number.h"
#include "cpu/cpu.h"
#include "data/sp_shard_internal.h"
#include "data/sp_single_batch.h"
#include "net/sp_net.h"
#include "weights/sp_packed.h"

#include <sptrain.h> /* after base/sp_error.h */

enum { MOST_THREADS = 4096 }; /* as run.threads */

struct sp_model {
    sp_weights_model file;
    sp_comm comm; /* of one rank */
    sp_backend backend;
    sp_net net;
    sp_single_batch *single;
    sp_dataset set; /* describes the samples to the single batch */
    sp_shard source;
    int *columns; /* [n_columns] 0, 1, 2, ... */
    pthread_mutex_t lock;
    /* Room for labels and for the search of duplicates, which grows. */
    int32_t *unlabelled;
    uint64_t *keys;
    size_t label_room, key_room; /* bytes */
};

const char *sp_error_text(void)
{
    return sp_error_last()->message;
}

/* ---- open ---- */

static int threads_of_caller(const sp_model_options *options)
{
    uint64_t set[SP_CORE_WORDS];

    if (options && options->threads > 0)
        return options->threads;
    return (int)sp_least(sp_machine_cores(set), sp_machine_core_quota());
}

static sp_status model_open_backend(sp_model *m, const sp_model_options *options)
{
    static const int only_node = 0;

    if (options && (options->threads < 0 || options->threads > MOST_THREADS))
        return SP_FAIL(SP_EUSAGE, "threads is %d, expected 0 (all cores) to %d",
                       options->threads, MOST_THREADS);
    if (options && options->device && strcmp(options->device, "cpu") != 0)
        return SP_FAIL(SP_EUSAGE, "device \"%s\": models run on the \"cpu\"",
                       options->device);
    m->comm.size = m->comm.local_size = m->comm.n_nodes = 1;
    m->comm.node_of_rank = &only_node;
    m->comm.cores = m->comm.node_cores = threads_of_caller(options);
    m->backend.ops = &sp_cpu_ops;
    m->backend.precision = m->file.config.train.precision;
    m->backend.sums = m->file.config.train.bf16_sums;
    return m->backend.ops->open(&m->backend, 0, m->comm.cores);
}

static sp_status model_open_net(sp_model *m)
{
    const sp_net_options options = {
        .bn_scope = SP_SCOPE_RANK, .is_low_memory = true, .is_inference = true};
    const sp_graph *graph = &m->file.graph;

    SP_TRY(sp_net_create(&m->net, graph, &m->backend, &m->comm, &options));
    memcpy(m->net.param, m->file.param, (size_t)graph->n_floats * sizeof *m->net.param);
    if (graph->n_buffer_floats)
        memcpy(m->net.running, m->file.running,
               (size_t)graph->n_buffer_floats * sizeof *m->net.running);
    sp_net_updated(&m->net);
    free(m->file.param);
    free(m->file.running);
    m->file.param = m->file.running = NULL;
    return SP_OK;
}

static sp_status model_open_single(sp_model *m)
{
    const sp_normalization *norm = &m->file.norm;
    const sp_loader_options options = {.set = &m->set,
                                       .config = &m->file.config,
                                       .spec = &m->file.graph.spec,
                                       .backend = &m->backend,
                                       .columns = m->columns,
                                       .n_columns = m->file.graph.c_in,
                                       .mean = norm->mean,
                                       .std = norm->std};

    for (int i = 0; i < m->file.graph.c_in; i++)
        m->columns[i] = i;
    m->source = (sp_shard){.path = m->file.path};
    m->set = (sp_dataset){.n_shards = 1,
                          .shard = &m->source,
                          .voxel_size = m->file.config.data.voxel_size};
    return sp_single_batch_create(&m->single, &options);
}

static sp_status model_open(sp_model *m, const char *path,
                            const sp_model_options *options)
{
    SP_TRY(sp_packed_is(path) ? sp_packed_read(&m->file, path)
                              : sp_model_read_checkpoint(&m->file, path));
    if (!m->file.norm.name || !m->file.norm.class_name)
        return SP_FAIL(
            SP_EDATA,
            "%s: does not name its columns and classes: it holds only weights", path);
    SP_TRY(SP_NEW(&m->columns, m->file.graph.c_in, path));
    SP_TRY(model_open_backend(m, options));
    SP_TRY(model_open_net(m));
    return model_open_single(m);
}

int sp_model_open(sp_model **model, const char *path, const sp_model_options *options)
{
    sp_model *m;
    sp_status rc;
    sp_loops caller;

    if (model)
        *model = NULL;
    if (!model || !path)
        return SP_FAIL(SP_EUSAGE, "sp_model_open: model or path is NULL");
    SP_TRY(SP_NEW(&m, 1, path));
    pthread_mutex_init(&m->lock, NULL);
    caller = sp_loops_begin(m->backend.threads);
    rc = model_open(m, path, options);
    sp_loops_end(caller);
    if (rc != SP_OK) {
        sp_model_close(m);
        return rc;
    }
    *model = m;
    return SP_OK;
}

void sp_model_close(sp_model *m)
{
    if (!m)
        return;
    sp_single_batch_destroy(m->single);
    if (m->net.impl)
        sp_net_destroy(&m->net);
    if (m->backend.impl)
        m->backend.ops->close(&m->backend);
    sp_weights_model_close(&m->file);
    free(m->columns);
    free(m->unlabelled);
    free(m->keys);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

int sp_model_describe(const sp_model *m, sp_model_info *info)
{
    if (!m || !info)
        return SP_FAIL(SP_EUSAGE, "sp_model_describe: model or info is NULL");
    *info =
        (sp_model_info){.n_features = m->file.graph.c_in,
                        .n_classes = m->file.graph.n_classes,
                        .voxel_size = m->file.config.data.voxel_size,
                        .feature_names = (const char *const *)m->file.norm.name,
                        .class_names = (const char *const *)m->file.norm.class_name};
    return SP_OK;
}

/* ---- predict ---- */

static sp_status check_coords(const sp_model *m, int64_t n, const int32_t *coords)
{
    for (int64_t i = 0; i < 3 * n; i++)
        if (coords[i] < -SP_COORD_LIMIT || coords[i] >= SP_COORD_LIMIT)
            return SP_FAIL(SP_EDATA, "%s: coords[%lld][%d] is %d, expected %d to %d",
                           m->file.path, (long long)(i / 3), (int)(i % 3), coords[i],
                           -SP_COORD_LIMIT, SP_COORD_LIMIT - 1);
    return SP_OK;
}

static sp_status model_check_unique(sp_model *m, int64_t n, const int32_t *coords)
{
    const size_t slots = sp_unique_slots(n);
    int64_t again;

    if (sp_unique_by_order(coords, n))
        return SP_OK;
    if (!sp_list_reserve(&m->keys, &m->key_room, slots * sizeof *m->keys))
        return SP_FAIL(SP_EMEM, "no memory for %lld voxels", (long long)n);
    again = sp_unique_find(coords, n, m->keys, slots);
    if (again < 0)
        return SP_OK;
    return SP_FAIL(SP_EDATA,
                   "%s: coords[%lld] is (%d, %d, %d), as an earlier row is: each voxel "
                   "must be given once",
                   m->file.path, (long long)again, coords[3 * again],
                   coords[3 * again + 1], coords[3 * again + 2]);
}

static sp_status model_check_features(const sp_model *m, int64_t n,
                                      const float *features)
{
    const int64_t c = m->file.graph.c_in;

    for (int64_t i = 0; i < n * c; i++)
        if (!isfinite(features[i]))
            return SP_FAIL(SP_EDATA,
                           "%s: features[%lld][%lld] (%s) is %g, expected a "
                           "finite number",
                           m->file.path, (long long)(i / c), (long long)(i % c),
                           m->file.norm.name[i % c], (double)features[i]);
    return SP_OK;
}

static sp_status check_voxels(sp_model *m, int64_t n, const int32_t *coords,
                              const float *features)
{
    SP_TRY(check_coords(m, n, coords));
    SP_TRY(model_check_features(m, n, features));
    return model_check_unique(m, n, coords);
}

/* The first of the greatest logits, as the loss of an evaluation counts. */
static uint16_t class_of_row(const float *logits, int c)
{
    int best = 0;

    for (int k = 1; k < c; k++)
        if (logits[k] > logits[best])
            best = k;
    return (uint16_t)best;
}

/* Copies the rows of the batch to the caller's order. */
static sp_status give_rows(const sp_model *m, sp_tensor from, const int32_t *row_of,
                           int64_t n, float *logits, uint16_t *labels)
{
    const size_t c = (size_t)from.c;

    for (int64_t i = 0; i < n; i++) {
        const float *row = from.data + row_of[i] * from.ld;

        for (size_t k = 0; k < c; k++)
            if (!isfinite(row[k]))
                return SP_FAIL(SP_ENUMERIC, "%s: the output of row %lld is not finite",
                               m->file.path, (long long)i);
        if (logits)
            memcpy(logits + (size_t)i * c, row, c * sizeof *row);
        if (labels)
            labels[i] = class_of_row(row, from.c);
    }
    return SP_OK;
}

static sp_status make_labels(sp_model *m, int64_t n)
{
    const size_t before = m->label_room / sizeof *m->unlabelled;

    if (!sp_list_reserve(&m->unlabelled, &m->label_room,
                         (size_t)n * sizeof *m->unlabelled))
        return SP_FAIL(SP_EMEM, "no memory for %lld voxels", (long long)n);
    for (size_t i = before; i < m->label_room / sizeof *m->unlabelled; i++)
        m->unlabelled[i] = SP_IGNORE;
    return SP_OK;
}

static sp_status run_net(sp_model *m, const sp_sample *sample, float *logits,
                         uint16_t *labels)
{
    sp_tensor out;
    sp_batch *batch;
    sp_status rc;

    SP_TRY(sp_single_batch_fill(m->single, sample, 0));
    SP_TRY(sp_single_batch_use(m->single, &batch));
    rc = sp_net_forward(&m->net, batch, false, &out);
    if (rc == SP_OK)
        rc = give_rows(m, out, batch->row_of, sample->n, logits, labels);
    sp_single_batch_recycle(m->single);
    return rc;
}

static sp_status predict_sample(sp_model *m, int64_t n, const int32_t *coords,
                                const float *features, float *logits, uint16_t *labels)
{
    sp_sample sample = {.n = n,
                        .coords = (int32_t *)(uintptr_t)coords,
                        .features = (float *)(uintptr_t)features};

    SP_TRY(check_voxels(m, n, coords, features));
    SP_TRY(make_labels(m, n));
    sample.labels = m->unlabelled;
    return run_net(m, &sample, logits, labels);
}

int sp_model_predict(sp_model *m, int64_t n, const int32_t *coords,
                     const float *features, float *logits, uint16_t *labels)
{
    sp_status rc;
    sp_loops caller;

    if (!m || n < 0 || (n > 0 && (!coords || !features)))
        return SP_FAIL(SP_EUSAGE,
                       "sp_model_predict: model, coords or features is NULL, "
                       "or n is negative (%lld)",
                       (long long)n);
    if (n >= INT32_MAX / 2)
        return SP_FAIL(SP_EDATA, "%s: %lld voxels, expected less than 2^30",
                       m->file.path, (long long)n);
    if (n == 0)
        return SP_OK;
    pthread_mutex_lock(&m->lock);
    caller = sp_loops_begin(m->backend.threads);
    rc = predict_sample(m, n, coords, features, logits, labels);
    sp_loops_end(caller);
    pthread_mutex_unlock(&m->lock);
    return rc;
}
