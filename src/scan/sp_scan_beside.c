/* Labels in a second PLY file beside the scan, as ScanNet distributes them: NAME.ply has
 * colours, NAME.labels.ply the same vertices in the same order with a label each. The
 * second file is a scan of its own, which is read in step with the first. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "scan/sp_scan_format.h"

#define SCANNET_LABELS ".labels.ply"

/* Gives the path of the file of labels, malloc'd; NULL: the scan cannot have one. */
static sp_status beside_path(const char *path, char **to)
{
    if (!sp_file_ends_in(path, ".ply") || sp_file_ends_in(path, SCANNET_LABELS))
        return SP_OK;
    SP_TRY(SP_NEW(to, strlen(path) + sizeof SCANNET_LABELS, path));
    sprintf(*to, "%.*s%s", (int)(strlen(path) - strlen(".ply")), path, SCANNET_LABELS);
    return SP_OK;
}

sp_status sp_scan_beside_open(sp_scan *scan)
{
    SP_FREED char *path = NULL;
    sp_scan *beside;

    SP_TRY(beside_path(scan->path, &path));
    if (!path || sp_file_is_absent(path))
        return SP_OK;
    SP_TRY(sp_scan_open(&beside, path, NULL));
    scan->beside = beside;
    scan->label_path = beside->path;
    if (beside->label < 0)
        return SP_FAIL(SP_EDATA,
                       "%s: has no attribute label, expected the labels of %s",
                       beside->path, scan->path);
    if (beside->n_points != scan->n_points)
        return SP_FAIL(
            SP_EDATA, "%s: %" PRId64 " points, expected %" PRId64 ", as many as %s has",
            beside->path, beside->n_points, scan->n_points, scan->path);
    return SP_OK;
}

sp_status sp_scan_beside_limit(sp_scan *scan, int part, int n_parts)
{
    sp_scan *beside = scan->beside;

    if (!beside)
        return SP_OK;
    SP_TRY(sp_scan_limit(beside, part, n_parts));
    if (beside->first_row != scan->first_row || beside->end_row != scan->end_row)
        return SP_FAIL(SP_EDATA,
                       "%s: of another kind of PLY, ascii or binary, than %s: they "
                       "cannot be read in parts",
                       beside->path, scan->path);
    return SP_OK;
}

sp_status sp_scan_beside_next(sp_scan *scan, const sp_scan_points *points, int64_t n)
{
    int64_t done = 0;

    while (scan->beside && done < n) {
        sp_scan_points *found = &scan->beside_points;

        SP_TRY(sp_scan_next(scan->beside, n - done, found));
        if (found->n == 0)
            return SP_FAIL(SP_EDATA, "%s: ends before %s", scan->beside->path,
                           scan->path);
        for (int64_t i = 0; i < found->n; i++, done++) {
            if (memcmp(found->xyz + 3 * i, points->xyz + 3 * done,
                       3 * sizeof *found->xyz) != 0)
                return SP_FAIL(SP_EDATA,
                               "%s: point %" PRId64 " is not where point %" PRId64
                               " of %s is: their vertices differ",
                               scan->beside->path, found->first_row + i,
                               scan->row + done, scan->path);
            points->label[done] = found->label[i];
        }
    }
    return SP_OK;
}

void sp_scan_beside_close(sp_scan *scan)
{
    sp_scan_points_destroy(&scan->beside_points);
    sp_scan_close(scan->beside);
    scan->beside = NULL;
}
