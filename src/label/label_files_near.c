/* Which scans of the command line are near another one. There may be thousands, so they
 * are sorted by where they begin. */
#include "label/label_files.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/sp_list.h"

static int by_low(const void *a, const void *b)
{
    return sp_by_double(&((const label_begin *)a)->low, &((const label_begin *)b)->low);
}

sp_status label_files_sort(label_files *f)
{
    double most = -INFINITY;

    if (f->begin)
        return SP_OK;
    SP_TRY(SP_NEW(&f->begin, f->n, "scans"));
    for (int i = 0; i < f->n; i++)
        f->begin[i] = (label_begin){.low = f->file[i].extent.low[0], .file = i};
    qsort(f->begin, (size_t)f->n, sizeof *f->begin, by_low);
    for (int i = 0; i < f->n; i++)
        f->begin[i].most_high = most =
            fmax(most, f->file[f->begin[i].file].extent.high[0]);
    return SP_OK;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

sp_status label_files_near(const label_files *f, int i, double distance, int **near,
                           int *n)
{
    const vox_extent *own = &f->file[i].extent;
    int low = 0, high = f->n;

    assert(f->begin && !*near && *n == 0);
    while (low < high) { /* to the first one that begins farther away */
        const int middle = low + (high - low) / 2;

        if (f->begin[middle].low <= own->high[0] + distance)
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- > 0 && own->low[0] - distance <= f->begin[low].most_high) {
        const int k = f->begin[low].file;

        if (k == i || !vox_extent_is_near(own, &f->file[k].extent, distance))
            continue;
        if (!sp_list_grow(near, *n, sizeof **near))
            return SP_FAIL(SP_EMEM, "no memory for the neighbours of a scan");
        (*near)[(*n)++] = k;
    }
    if (*n > 0)
        qsort(*near, (size_t)*n, sizeof **near, by_number);
    return SP_OK;
}
