#include "weights/sp_packed_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "checkpoint/sp_calibration.h"
#include "weights/sp_layout.h"

void sp_packed_free_header(packed_header *h)
{
    free(h->program);
    free(h->source);
    for (int64_t i = 0; h->row && i < h->n_rows; i++)
        free(h->row[i].name);
    free(h->row);
    memset(h, 0, sizeof *h);
}

static void serialize_row(sp_serial *serial, packed_row *row)
{
    sp_serial_text(serial, &row->name);
    sp_serial_bytes(serial, &row->type, sizeof row->type);
    sp_serial_bytes(serial, &row->n_dims, sizeof row->n_dims);
    sp_serial_bytes(serial, row->dim, sizeof row->dim);
}

void sp_packed_serialize_header(sp_serial *serial, packed_header *h,
                                sp_weights_model *m)
{
    sp_serial_text(serial, &h->program);
    sp_serial_text(serial, &h->source);
    sp_serial_bytes(serial, &m->state.step, sizeof m->state.step);
    sp_serial_bytes(serial, &m->state.at.epoch, sizeof m->state.at.epoch);
    sp_serial_bytes(serial, &m->state.at.position, sizeof m->state.at.position);
    sp_serial_bytes(serial, &m->state.samples_seen, sizeof m->state.samples_seen);
    sp_serial_bytes(serial, &m->state.best, sizeof m->state.best);
    sp_serial_bytes(serial, &h->precision, sizeof h->precision);
    sp_serial_text(serial, &m->state.deck);
    sp_normalization_serialize(serial, &m->norm);
    sp_serial_count(serial, &h->n_rows, SP_PACKED_LEAST_ROW);
    if (serial->is_reading && serial->rc == SP_OK)
        h->row = calloc((size_t)h->n_rows + 1, sizeof *h->row);
    if (serial->rc == SP_OK && !h->row)
        serial->rc = SP_FAIL(SP_EMEM, "no memory for the header");
    for (int64_t i = 0; i < h->n_rows && serial->rc == SP_OK; i++)
        serialize_row(serial, &h->row[i]);
    /* Models of earlier versions, and models without a calibration, end here. */
    if (serial->is_reading ? serial->at < serial->size : m->norm.calibration != NULL)
        sp_calibration_serialize(serial, &m->norm.calibration);
}

packed_type sp_packed_type_of(const sp_graph *graph, const sp_param *p,
                              sp_precision precision)
{
    return precision == SP_BF16 && sp_layout_is_kernel(graph, p) ? PACKED_BF16
                                                                 : PACKED_F32;
}

sp_status sp_packed_make_row(const sp_graph *graph, const sp_param *p,
                             const char *group, sp_precision precision, packed_row *row)
{
    char name[SP_NAME + 32];

    snprintf(name, sizeof name, "%s/%s", group, p->name);
    row->name = strdup(name);
    row->type = sp_packed_type_of(graph, p, precision);
    row->n_dims = p->n_dims;
    memcpy(row->dim, p->dim, sizeof row->dim);
    for (int d = p->n_dims; d < 3; d++)
        row->dim[d] = 1;
    return row->name ? SP_OK : SP_FAIL(SP_EMEM, "no memory for the header");
}

size_t sp_packed_count_bytes(const sp_graph *g, sp_precision precision)
{
    size_t bytes = 0;

    for (int i = 0; i < g->n_params; i++)
        bytes += (size_t)g->param[i].count *
                 (sp_packed_type_of(g, &g->param[i], precision) == PACKED_BF16 ? 2 : 4);
    for (int i = 0; i < g->n_buffers; i++)
        bytes += (size_t)g->buffer[i].count * 4;
    return bytes;
}

uint32_t sp_packed_header_crc(const unsigned char *file, size_t begin)
{
    return sp_crc32c(0, file + 16, begin - 16);
}
