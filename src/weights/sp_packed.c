#include "weights/sp_packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "data/sp_recipe.h"
#include "weights/sp_packed_internal.h"

enum { MOST_COLUMNS = 1 << 16, MOST_HEADER = 64 << 20 };

static float float_of_bf16(const unsigned char *p)
{
    const uint32_t bits = (uint32_t)sp_get16(p) << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

bool sp_packed_is(const char *path)
{
    return sp_file_begins(path, SP_PACKED_MAGIC, strlen(SP_PACKED_MAGIC));
}

/* The parts of a packed file. */
typedef struct packed_parts {
    const char *path;
    const unsigned char *file, *numbers;
    size_t header_bytes, number_bytes;
} packed_parts;

static sp_status split_file(packed_parts *p, const char *path, const char *bytes,
                            size_t n)
{
    const unsigned char *file = (const unsigned char *)bytes;
    uint64_t header, numbers, begin;

    *p = (packed_parts){.path = path, .file = file};
    if (n < SP_PACKED_HEAD || memcmp(bytes, SP_PACKED_MAGIC, 8) != 0)
        return SP_FAIL(SP_EDATA,
                       "%s: is no packed model (sptrain weights export MODEL --packed "
                       "-o OUT.spm writes one)",
                       path);
    header = sp_get64(file + 16);
    numbers = sp_get64(file + 24);
    begin = header <= MOST_HEADER
                ? sp_multiple(SP_PACKED_HEAD + header, SP_PACKED_ALIGNED)
                : 0;
    if (header > MOST_HEADER || begin > n || numbers != n - begin)
        return SP_FAIL(SP_EDATA,
                       "%s: a header of %llu bytes and %llu bytes of numbers in a file "
                       "of %zu: the file is damaged",
                       path, (unsigned long long)header, (unsigned long long)numbers,
                       n);
    p->header_bytes = header;
    p->number_bytes = numbers;
    p->numbers = file + begin;
    if (sp_get32(file + 8) != sp_packed_header_crc(file, begin))
        return SP_FAIL(SP_EDATA, "%s: header: crc32c differs: the file is damaged",
                       path);
    if (sp_get32(file + 12) != sp_crc32c(0, p->numbers, numbers))
        return SP_FAIL(SP_EDATA, "%s: numbers: crc32c differs: the file is damaged",
                       path);
    return SP_OK;
}

static sp_status check_statistics(const sp_weights_model *m)
{
    const sp_normalization *n = &m->norm;

    if (n->n_columns < 1 || n->n_columns > MOST_COLUMNS || n->n_classes < 1 ||
        n->n_classes > MOST_COLUMNS || !n->name || !n->class_name)
        return SP_FAIL(SP_EDATA,
                       "%s: %d columns and %d classes, expected 1 to %d with "
                       "names",
                       m->path, n->n_columns, n->n_classes, MOST_COLUMNS);
    if (!n->mean != !n->std)
        return SP_FAIL(SP_EDATA, "%s: has one of mean and std", m->path);
    for (int i = 0; i < n->n_columns; i++)
        if (!n->name[i] || (n->mean && !(isfinite(n->mean[i]) && isfinite(n->std[i]) &&
                                         n->std[i] >= 0)))
            return SP_FAIL(SP_EDATA,
                           "%s: column %d has no name, or statistics that "
                           "are not finite",
                           m->path, i);
    for (int i = 0; i < n->n_classes; i++)
        if (!n->class_name[i])
            return SP_FAIL(SP_EDATA, "%s: class %d has no name", m->path, i);
    return SP_OK;
}

/* sp_recipe_read's checks of a recipe in HDF5, for values that determine memory. */
static sp_status check_recipe(const sp_weights_model *m)
{
    const sp_recipe *r = m->norm.recipe;
    bool is_good = !r || (r->n_columns >= 1 && r->column && r->source && r->divisor &&
                          r->n_formats >= 0 && !r->format == (r->n_formats == 0) &&
                          isfinite(r->voxel_size) && r->voxel_size > 0 &&
                          isfinite(r->block) && r->block >= 0 && isfinite(r->overlap) &&
                          r->overlap >= 0 && r->alignment >= 0);

    for (int i = 0; is_good && r && i < r->n_columns; i++)
        is_good = isfinite(r->divisor[i]) && r->divisor[i] != 0;
    for (int i = 0; is_good && m->norm.class_weight && i < m->norm.n_classes; i++)
        is_good = isfinite(m->norm.class_weight[i]) && m->norm.class_weight[i] >= 0;
    return is_good ? SP_OK
                   : SP_FAIL(SP_EDATA,
                             "%s: header: a recipe or class weights that "
                             "cannot be",
                             m->path);
}

/* Checks the things that prediction computes with. */
static sp_status check_model(const sp_weights_model *m, const packed_header *h)
{
    if (!m->state.deck || !h->program || !h->source)
        return SP_FAIL(SP_EDATA, "%s: header: a text is missing", m->path);
    if (h->precision != SP_FP32 && h->precision != SP_BF16)
        return SP_FAIL(SP_EDATA, "%s: header: precision %d, expected 0 or 2", m->path,
                       h->precision);
    if (m->state.step < 0 || m->state.samples_seen < 0 || m->state.at.epoch < 0 ||
        m->state.at.position < 0)
        return SP_FAIL(SP_EDATA, "%s: header: a negative step or epoch", m->path);
    SP_TRY(check_statistics(m));
    return check_recipe(m);
}

static sp_status read_header(const packed_parts *p, packed_header *h,
                             sp_weights_model *m)
{
    sp_serial serial = {.data = (unsigned char *)p->file + SP_PACKED_HEAD,
                        .size = p->header_bytes,
                        .is_reading = true};

    snprintf(m->path, sizeof m->path, "%s", p->path);
    sp_packed_serialize_header(&serial, h, m);
    if (serial.rc == SP_EDATA || (serial.rc == SP_OK && serial.at != serial.size))
        return SP_FAIL(SP_EDATA,
                       "%s: header, byte %zu: it ends too early, or has a length that "
                       "cannot be; export the model again if another version wrote it",
                       p->path, SP_PACKED_HEAD + serial.at);
    SP_TRY(serial.rc);
    return check_model(m, h);
}

static sp_status build_graph(sp_weights_model *m)
{
    sp_status rc;

    SP_TRY(sp_checkpoint_config(&m->config, &m->state, m->path));
    rc = sp_graph_build(&m->graph, &m->config, m->norm.n_columns, m->norm.n_classes);
    if (rc == SP_EUSAGE || rc == SP_EDATA)
        return SP_FAIL(SP_EDATA, "%s: its network: %s", m->path,
                       sp_error_last()->message);
    return rc;
}

/* Compares a row of the header with the parameter that the network has there. */
static sp_status check_row(const sp_weights_model *m, const packed_row *row,
                           const char *group, const sp_param *p, sp_precision precision)
{
    packed_row want = {0};
    sp_status rc = sp_packed_make_row(&m->graph, p, group, precision, &want);

    if (rc == SP_OK &&
        (!row->name || strcmp(row->name, want.name) != 0 || row->type != want.type ||
         row->n_dims != want.n_dims || memcmp(row->dim, want.dim, sizeof row->dim)))
        rc = SP_FAIL(SP_EDATA,
                     "%s: array %s has another name, type or shape than the "
                     "network's %s",
                     m->path, row->name ? row->name : "without a name", want.name);
    free(want.name);
    return rc;
}

static const unsigned char *get_param(const sp_graph *graph, const sp_param *p,
                                      sp_precision precision, const unsigned char *at,
                                      float *flat)
{
    const bool is_bf16 = sp_packed_type_of(graph, p, precision) == PACKED_BF16;

    for (int64_t i = 0; i < p->count; i++, at += is_bf16 ? 2 : 4) {
        const uint32_t bits = is_bf16 ? 0 : sp_get32(at);

        if (is_bf16)
            flat[p->offset + i] = float_of_bf16(at);
        else
            memcpy(flat + p->offset + i, &bits, sizeof bits);
    }
    return at;
}

static sp_status read_numbers(const packed_parts *parts, const packed_header *h,
                              sp_weights_model *m)
{
    const sp_graph *g = &m->graph;
    const sp_precision precision = (sp_precision)h->precision;
    const unsigned char *at = parts->numbers;
    char fault[SP_CHECKPOINT_FAULT];

    if (h->n_rows != g->n_params + g->n_buffers ||
        parts->number_bytes != sp_packed_count_bytes(g, precision))
        return SP_FAIL(SP_EDATA,
                       "%s: %lld arrays and %zu bytes of numbers, expected %d and %zu "
                       "for its network",
                       m->path, (long long)h->n_rows, parts->number_bytes,
                       g->n_params + g->n_buffers, sp_packed_count_bytes(g, precision));
    SP_TRY(SP_NEW(&m->param, g->n_floats, m->path));
    SP_TRY(SP_NEW(&m->running, g->n_buffer_floats, m->path));
    for (int i = 0; i < g->n_params; i++) {
        SP_TRY(check_row(m, &h->row[i], "/params", &g->param[i], precision));
        at = get_param(g, &g->param[i], precision, at, m->param);
    }
    for (int i = 0; i < g->n_buffers; i++) {
        SP_TRY(check_row(m, &h->row[g->n_params + i], "/buffers", &g->buffer[i],
                         precision));
        at = get_param(g, &g->buffer[i], SP_FP32, at, m->running);
    }
    sp_checkpoint_find_fault(g, m->param, m->running, fault);
    return fault[0]
               ? SP_FAIL(SP_EDATA, "%s:%s, expected a finite number", m->path, fault)
               : SP_OK;
}

static sp_status parse_model(sp_weights_model *m, packed_header *h,
                             const packed_parts *parts)
{
    SP_TRY(read_header(parts, h, m));
    SP_TRY(build_graph(m));
    if ((int)m->config.train.precision != h->precision)
        return SP_FAIL(SP_EDATA, "%s: its deck has another precision", m->path);
    return read_numbers(parts, h, m);
}

/* Reads the file; *h is freed by the caller, after a failure too. */
static sp_status read_packed(sp_weights_model *m, packed_header *h, const char *path)
{
    SP_FREED char *bytes = NULL;
    packed_parts parts;
    size_t n;

    SP_TRY(sp_file_read(path, &bytes, &n));
    SP_TRY(split_file(&parts, path, bytes, n));
    return parse_model(m, h, &parts);
}

sp_status sp_packed_read(sp_weights_model *m, const char *path)
{
    SP_CLOSED_BY(sp_packed_free_header) packed_header h = {0};

    memset(m, 0, sizeof *m);
    return read_packed(m, &h, path);
}

/* ---- use ---- */

static bool is_same_param(const sp_param *a, const sp_param *b)
{
    return strcmp(a->name, b->name) == 0 && a->n_dims == b->n_dims &&
           memcmp(a->dim, b->dim, (size_t)a->n_dims * sizeof *a->dim) == 0;
}

static sp_status load_group(const sp_weights_model *m, int n, const sp_param *from,
                            int n_to, const sp_param *to, const float *flat,
                            float *flat_to)
{
    for (int i = 0; i < n_to; i++) {
        if (i >= n || !is_same_param(&from[i], &to[i]))
            return SP_FAIL(SP_EDATA,
                           "%s: has no %s of this shape: it is another "
                           "network",
                           m->path, to[i].name);
        memcpy(flat_to + to[i].offset, flat + from[i].offset,
               (size_t)to[i].count * sizeof *flat);
    }
    return SP_OK;
}

sp_status sp_packed_load(const sp_weights_model *m, const sp_graph *graph, float *param,
                         float *running)
{
    const sp_graph *g = &m->graph;

    SP_TRY(load_group(m, g->n_params, g->param, graph->n_params, graph->param, m->param,
                      param));
    return load_group(m, g->n_buffers, g->buffer, graph->n_buffers, graph->buffer,
                      m->running, running);
}

static void print_header(const packed_header *h, const sp_weights_model *m, FILE *to)
{
    for (int64_t i = 0; i < h->n_rows; i++) {
        fprintf(to, "%-56s %-5s [", h->row[i].name,
                h->row[i].type == PACKED_BF16 ? "BF16" : "F32");
        for (int d = 0; d < h->row[i].n_dims && d < 3; d++)
            fprintf(to, "%s%lld", d ? ", " : "", (long long)h->row[i].dim[d]);
        fputs("]\n", to);
    }
    fprintf(to, "%s: packed model of %s (%s, step %lld) by %s\n", m->path, h->source,
            h->precision == SP_BF16 ? "bf16" : "fp32", (long long)m->state.step,
            h->program);
    fprintf(to, "%d columns, %d classes, voxels of %g m, %lld weights\n",
            m->norm.n_columns, m->norm.n_classes, m->config.data.voxel_size,
            (long long)m->graph.n_weights);
}

sp_status sp_packed_print(const char *path, FILE *to)
{
    SP_CLOSED_BY(sp_weights_model_close) sp_weights_model m = {0};
    SP_CLOSED_BY(sp_packed_free_header) packed_header h = {0};

    SP_TRY(read_packed(&m, &h, path));
    print_header(&h, &m, to);
    return SP_OK;
}
