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

static void wire_row(sp_wire *wire, packed_row *row)
{
    sp_wire_text(wire, &row->name);
    sp_wire_bytes(wire, &row->type, sizeof row->type);
    sp_wire_bytes(wire, &row->n_dims, sizeof row->n_dims);
    sp_wire_bytes(wire, row->dim, sizeof row->dim);
}

void sp_packed_wire_header(sp_wire *wire, packed_header *h, sp_weights_model *m)
{
    sp_wire_text(wire, &h->program);
    sp_wire_text(wire, &h->source);
    sp_wire_bytes(wire, &m->state.step, sizeof m->state.step);
    sp_wire_bytes(wire, &m->state.at.epoch, sizeof m->state.at.epoch);
    sp_wire_bytes(wire, &m->state.at.position, sizeof m->state.at.position);
    sp_wire_bytes(wire, &m->state.samples_seen, sizeof m->state.samples_seen);
    sp_wire_bytes(wire, &m->state.best, sizeof m->state.best);
    sp_wire_bytes(wire, &h->precision, sizeof h->precision);
    sp_wire_text(wire, &m->state.deck);
    sp_normalization_wire(wire, &m->norm);
    sp_wire_count(wire, &h->n_rows, SP_PACKED_LEAST_ROW);
    if (wire->is_reading && wire->rc == SP_OK)
        h->row = calloc((size_t)h->n_rows + 1, sizeof *h->row);
    if (wire->rc == SP_OK && !h->row)
        wire->rc = SP_FAIL(SP_EMEM, "no memory for the header");
    for (int64_t i = 0; i < h->n_rows && wire->rc == SP_OK; i++)
        wire_row(wire, &h->row[i]);
    /* Models of earlier versions, and models without a calibration, end here. */
    if (wire->is_reading ? wire->at < wire->size : m->norm.calibration != NULL)
        sp_calibration_wire(wire, &m->norm.calibration);
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
