#include "label/label_raster.h"
#include "base/sp_list.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_COUNTS = 1 << 28 };

sp_status label_raster_lay_out(label_raster *r, const char *path,
                               const vox_extent *extent, double edge, int n_classes)
{
    double cells = n_classes + 1;

    assert(edge > 0 && n_classes >= 1);
    *r = (label_raster){.edge = edge, .n_classes = n_classes};
    for (int a = 0; a < 2; a++) {
        const double low = floor(extent->low[a] / edge);
        const double high = floor(extent->high[a] / edge);

        if (!(low <= high))
            return SP_FAIL(
                SP_EDATA,
                "%s: --raster needs the extent of the scan, which its header "
                "does not have; --buffer finds it",
                path);
        cells *= high - low + 1;
        if (!(cells <= MOST_COUNTS && fabs(low) < 0x1p62))
            return SP_FAIL(SP_EDATA,
                           "%s: --raster %g: more than %d cells and classes; choose a "
                           "wider cell",
                           path, edge, MOST_COUNTS);
        r->first[a] = (int64_t)low;
        r->n[a] = (int64_t)(high - low) + 1;
    }
    return SP_OK;
}

static size_t raster_counts(const label_raster *r)
{
    return (size_t)(r->n[0] * r->n[1]) * (size_t)(r->n_classes + 1);
}

sp_status label_raster_open(label_raster *r)
{
    assert(!r->count);
    return SP_NEW(&r->count, raster_counts(r), "the cells of a map");
}

void label_raster_free(label_raster *r)
{
    free(r->count);
    *r = (label_raster){0};
}

uint32_t label_raster_cell(const label_raster *r, double x, double y)
{
    const double at[2] = {floor(x / r->edge) - (double)r->first[0],
                          floor(y / r->edge) - (double)r->first[1]};

    for (int a = 0; a < 2; a++)
        if (!(0 <= at[a] && at[a] < (double)r->n[a]))
            return LABEL_NO_CELL;
    return (uint32_t)((int64_t)at[1] * r->n[0] + (int64_t)at[0]);
}

void label_raster_add(label_raster *r, uint32_t cell, int label, bool is_doubtful)
{
    int64_t *count = r->count + (size_t)cell * (size_t)(r->n_classes + 1);

    if (cell == LABEL_NO_CELL || label < 0)
        return;
    count[label]++;
    count[r->n_classes] += is_doubtful;
}

sp_status label_raster_sum(label_raster *r, sp_comm *comm)
{
    return sp_comm_allreduce(comm, SP_SCOPE_WORLD, r->count, raster_counts(r), SP_I64,
                             SP_SUM);
}
