#include "config.h"

#include "weights/sp_packed_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"

/* Rounds to the nearest, to even in the middle, as the networks in bf16 do. x is
 * finite. */
static uint16_t bf16_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static sp_status make_rows(const sp_weights_model *m, sp_precision precision,
                           packed_header *h)
{
    const sp_graph *g = &m->graph;

    h->n_rows = g->n_params + g->n_buffers;
    SP_TRY(SP_NEW(&h->row, h->n_rows, "the header"));
    for (int i = 0; i < g->n_params; i++)
        SP_TRY(sp_packed_make_row(g, &g->param[i], "/params", precision, &h->row[i]));
    for (int i = 0; i < g->n_buffers; i++)
        SP_TRY(sp_packed_make_row(g, &g->buffer[i], "/buffers", precision,
                                  &h->row[g->n_params + i]));
    return SP_OK;
}

/* The keys of the deck that describe the network, all others at their defaults. */
static sp_status make_deck(const sp_weights_model *m, sp_precision precision,
                           char **text)
{
    static const char *const more[] = {"net.bn_momentum", "train.precision",
                                       "train.bf16_sums", NULL};
    SP_CLOSED_BY(sp_config_destroy) sp_config from = {0};
    SP_CLOSED_BY(sp_config_destroy) sp_config to = {0};

    SP_TRY(sp_config_copy(&from, &m->config));
    SP_TRY(sp_config_read(&to, NULL, 0, NULL));
    from.train.precision = precision;
    for (const char *const *key = sp_config_kept_by_model; *key; key++)
        sp_config_take(&to, &from, *key);
    for (const char *const *key = more; *key; key++)
        sp_config_take(&to, &from, *key);
    return sp_config_to_text(&to, text);
}

static sp_status name_list(char ***list, int n, const char *word)
{
    char name[32];

    SP_TRY(SP_NEW(list, n, "names"));
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s_%d", word, i);
        if (!((*list)[i] = strdup(name)))
            return SP_FAIL(SP_EMEM, "no memory for names");
    }
    return SP_OK;
}

/* Files with only weights name neither columns nor classes: both get numbers. */
static sp_status copy_norm(const sp_weights_model *m, sp_normalization *to)
{
    sp_normalization from = m->norm;
    sp_serial serial = {0};
    sp_status rc;

    sp_normalization_serialize(&serial, &from);
    serial.is_reading = true;
    sp_normalization_serialize(&serial, to);
    rc = serial.rc;
    free(serial.data);
    if (rc == SP_OK && !to->name) {
        to->n_columns = m->graph.c_in;
        rc = name_list(&to->name, to->n_columns, "column");
    }
    if (rc == SP_OK && !to->class_name) {
        to->n_classes = m->graph.n_classes;
        rc = name_list(&to->class_name, to->n_classes, "class");
    }
    return rc;
}

static sp_status write_header(sp_serial *serial, const sp_weights_model *m,
                              sp_precision precision)
{
    SP_CLOSED_BY(sp_packed_free_header)
    packed_header h = {.program = strdup(PACKAGE_STRING),
                       .source = strdup(sp_file_name(m->path)),
                       .precision = precision};
    SP_CLOSED_BY(sp_weights_model_close) sp_weights_model head = {.state = m->state};

    head.state.deck = NULL;
    SP_TRY(make_rows(m, precision, &h));
    SP_TRY(make_deck(m, precision, &head.state.deck));
    SP_TRY(copy_norm(m, &head.norm));
    head.norm.calibration = m->norm.calibration; /* borrowed */
    sp_packed_serialize_header(serial, &h, &head);
    head.norm.calibration = NULL;
    return serial->rc;
}

static unsigned char *put_param(const sp_graph *graph, const sp_param *p,
                                sp_precision precision, const float *flat,
                                unsigned char *at)
{
    const bool is_bf16 = sp_packed_type_of(graph, p, precision) == PACKED_BF16;

    for (int64_t i = 0; i < p->count; i++) {
        uint32_t bits;

        memcpy(&bits, flat + p->offset + i, sizeof bits);
        if (is_bf16)
            sp_put16(at, bf16_of_float(flat[p->offset + i]));
        else
            sp_put32(at, bits);
        at += is_bf16 ? 2 : 4;
    }
    return at;
}

static void put_numbers(const sp_weights_model *m, sp_precision precision,
                        unsigned char *at)
{
    const sp_graph *g = &m->graph;

    for (int i = 0; i < g->n_params; i++)
        at = put_param(g, &g->param[i], precision, m->param, at);
    for (int i = 0; i < g->n_buffers; i++)
        at = put_param(g, &g->buffer[i], SP_FP32, m->running, at);
}

static sp_status write_model(const char *path, const sp_weights_model *m,
                             sp_precision precision, const sp_serial *header)
{
    const size_t n = sp_packed_count_bytes(&m->graph, precision);
    const size_t begin = sp_multiple(SP_PACKED_HEAD + header->size, SP_PACKED_ALIGNED);
    SP_FREED unsigned char *file = NULL;

    SP_TRY(SP_NEW(&file, begin + n, path));
    memcpy(file, SP_PACKED_MAGIC, 8);
    sp_put64(file + 16, header->size);
    sp_put64(file + 24, n);
    memcpy(file + SP_PACKED_HEAD, header->data, header->size);
    put_numbers(m, precision, file + begin);
    sp_put32(file + 8, sp_packed_header_crc(file, begin));
    sp_put32(file + 12, sp_crc32c(0, file + begin, n));
    return sp_file_replace(path, (char *)file, begin + n, 0);
}

sp_status sp_packed_write(const char *path, const sp_weights_model *m,
                          sp_precision precision)
{
    sp_serial header = {0};
    sp_status rc;

    assert(path && m->param && (precision == SP_FP32 || precision == SP_BF16));
    rc = write_header(&header, m, precision);
    if (rc == SP_OK)
        rc = write_model(path, m, precision, &header);
    free(header.data);
    return rc;
}
