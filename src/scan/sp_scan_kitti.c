/* SemanticKITTI: NAME.bin holds x y z remission as float32. NAME.label, in the same
 * folder or in the folder labels/ next to the folder of the scans, holds a uint32 per
 * point: class in the low 16 bits, instance in the high ones. A record joins the two:
 * 16 bytes and 4. The label file, `own`, is a scan without fields, so that
 * sp_scan_pread checks its reads; its fd is -1 where there is none. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

enum { POINT_BYTES = 16, LABEL_BYTES = 4 };

/* Path of the label file, malloc'd. beside: NAME.label in the folder of the scan; else
 * FOLDER/../labels/NAME.label. */
static char *label_path(const char *path, bool beside)
{
    const char *name = sp_file_name(path);
    int stem = (int)(strlen(name) - strlen(".bin"));
    size_t bytes = strlen(path) + sizeof "/../labels/.label";
    char *to = malloc(bytes);

    if (to && beside)
        snprintf(to, bytes, "%.*s%.*s.label", (int)(name - path), path, stem, name);
    else if (to)
        snprintf(to, bytes, "%.*s../labels/%.*s.label", (int)(name - path), path, stem,
                 name);
    return to;
}

static sp_status open_label(sp_scan *scan, sp_scan *label)
{
    for (int beside = 1; beside >= 0 && label->fd < 0; beside--) {
        free(label->path);
        label->path = label_path(scan->path, beside);
        if (!label->path)
            return SP_FAIL(SP_EMEM, "%s: no memory for a path", scan->path);
        SP_TRY(sp_scan_open_regular(label));
    }
    if (label->fd < 0)
        return SP_OK;
    scan->label_path = label->path;
    if (label->file_bytes != scan->n_points * LABEL_BYTES)
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " bytes, expected %" PRId64 " for the %" PRId64
                       " points of %s",
                       label->path, label->file_bytes, scan->n_points * LABEL_BYTES,
                       scan->n_points, scan->path);
    return SP_OK;
}

static sp_status add_fields(sp_scan *scan, bool is_labelled)
{
    static const sp_scan_field field[] = {{"x", 0, 'f', 4, .scale = 1},
                                          {"y", 4, 'f', 4, .scale = 1},
                                          {"z", 8, 'f', 4, .scale = 1},
                                          {"intensity", 12, 'f', 4, .scale = 1},
                                          {"remission", 12, 'f', 4, .scale = 1},
                                          {"label", 16, 'u', 4, 0, 16, .scale = 1},
                                          {"instance", 16, 'u', 4, 16, 16, .scale = 1}};

    for (int i = 0; i < (is_labelled ? 7 : 5); i++)
        SP_TRY(sp_scan_add(scan, field[i].name, field[i]));
    return SP_OK;
}

static sp_status open_kitti(sp_scan *scan)
{
    sp_scan *label = scan->own;

    label->fd = -1;
    if (scan->file_bytes % POINT_BYTES)
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64
                       " bytes, expected a multiple of %d (float32 x y z "
                       "remission)",
                       scan->path, scan->file_bytes, POINT_BYTES);
    scan->n_points = scan->file_bytes / POINT_BYTES;
    scan->record_bytes = POINT_BYTES + LABEL_BYTES;
    SP_TRY(open_label(scan, label));
    return add_fields(scan, label->fd >= 0);
}

static sp_status fill_kitti(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    sp_scan *from = scan->own;
    unsigned char *plain = malloc((size_t)max * (POINT_BYTES + LABEL_BYTES) + 1);
    unsigned char *label = plain + max * POINT_BYTES;
    sp_status rc;

    (void)n;
    if (!plain)
        return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " points", scan->path,
                       max);
    memset(label, 0, (size_t)max * LABEL_BYTES);
    rc = sp_scan_pread(scan, plain, (size_t)max * POINT_BYTES, scan->row * POINT_BYTES);
    if (rc == SP_OK && from->fd >= 0)
        rc = sp_scan_pread(from, label, (size_t)max * LABEL_BYTES,
                           scan->row * LABEL_BYTES);
    for (int64_t i = 0; rc == SP_OK && i < max; i++, to += POINT_BYTES + LABEL_BYTES) {
        memcpy(to, plain + i * POINT_BYTES, POINT_BYTES);
        memcpy(to + POINT_BYTES, label + i * LABEL_BYTES, LABEL_BYTES);
    }
    free(plain);
    return rc;
}

static void close_kitti(sp_scan *scan)
{
    sp_scan *label = scan->own;

    if (label->fd >= 0)
        close(label->fd);
    free(label->path);
}

/* ---- writing ---- */

enum { WRITTEN = 4096 }; /* points at a time */

/* Replaces SP_SCAN_KEEP among the codes of n rows by what the scan's label file has,
 * the instance included. */
static sp_status keep_labels(sp_scan *scan, int64_t first, int64_t n, int32_t *code)
{
    unsigned char label[WRITTEN * LABEL_BYTES];

    SP_TRY(
        sp_scan_pread(scan->own, label, (size_t)n * LABEL_BYTES, first * LABEL_BYTES));
    for (int64_t i = 0; i < n; i++)
        if (code[i] == SP_SCAN_KEEP)
            code[i] = (int32_t)sp_get32(label + i * LABEL_BYTES);
        else if (code[i] < 0)
            code[i] = 0;
    return SP_OK;
}

static void put_codes(FILE *to, const int32_t *code, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sp_scan_put(to, (uint32_t)code[i], LABEL_BYTES);
}

static sp_status put_block(void *to, const sp_scan_points *points, const int32_t *code,
                           const float *value)
{
    (void)value;
    put_codes(to, code, points->n);
    return SP_OK;
}

/* Are the labels of the scan those of a label file, whose instances are kept too? */
static bool has_label_file(const sp_scan *scan)
{
    return scan->format == &sp_scan_kitti &&
           strcmp(scan->field[scan->label].name, "label") == 0;
}

/* The scan itself is read only where its own labels are wanted. */
static sp_status write_label(sp_scan *scan, const sp_scan_labels *labels,
                             const sp_scan_part *part)
{
    const bool has_kept = labels->has_kept && scan->label >= 0;
    int32_t code[WRITTEN];

    if (has_kept && !has_label_file(scan))
        return sp_scan_each_block(scan, labels, 0, put_block, part->to);
    for (int64_t first = 0; first < labels->n; first += WRITTEN) {
        int64_t n = sp_least(labels->n - first, WRITTEN);

        SP_TRY(labels->get(labels->from, first, n, code, NULL));
        if (has_kept)
            SP_TRY(keep_labels(scan, first, n, code));
        for (int64_t i = 0; !has_kept && i < n; i++)
            code[i] = code[i] < 0 ? 0 : code[i];
        put_codes(part->to, code, n);
    }
    return SP_OK;
}

static sp_status check_added(const sp_scan *scan, int n, const sp_scan_added *added)
{
    (void)n;
    return SP_FAIL(SP_EDATA,
                   "%s: a .label file holds a class a point and no other field, such "
                   "as %s",
                   scan->path, added->name);
}

static int32_t most_code(const sp_scan *scan)
{
    (void)scan;
    return UINT16_MAX;
}

const sp_scan_format sp_scan_kitti = {
    .name = "SemanticKITTI",
    .endings = ".bin",
    .help = "SemanticKITTI, with its .label",
    .own_bytes = sizeof(sp_scan),
    .open = open_kitti,
    .fill = fill_kitti,
    .close = close_kitti,
    .write = write_label,
    .check_added = check_added,
    .most_code = most_code,
    .written = ".label",
    .written_help = "uint32 per point as in SemanticKITTI; 0 where there is none",
    .is_dense = true};
