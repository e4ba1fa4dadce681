/* Points as float32 without a header: NAME.bin of SemanticKITTI with x y z remission,
 * NAME.pcd.bin of nuScenes with x y z intensity ring, or what --columns names. The
 * values decide the records of other .bin files (sp_scan_bin.c): a length that fits
 * proves nothing.
 *
 * Labels are in a file of the same stem, beside the scan or in the folder labels/ next
 * to the folder of the scans: NAME.label, else NAME_lidarseg.bin. SemanticKITTI has a
 * uint32 per point, class in the low 16 bits and instance in the high ones; nuScenes
 * has a uint8, and masks of NumPy an int64. A record joins the two. The label file is a
 * scan without fields, so that sp_scan_pread checks its reads; its fd is -1 if there is
 * no such file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_number.h"
#include "scan/sp_scan_bin.h"
#include "scan/sp_scan_format.h"

enum { KITTI_LABEL = 4 /* bytes of a label of SemanticKITTI */ };

typedef struct kitti {
    sp_scan label;   /* first: the file of labels */
    int point_bytes; /* of a record of the scan */
    int label_bytes; /* of a record of the label file; 0: no such file */
} kitti;

/* Path of a label file, malloc'd: FOLDER + `folder` + NAME + `ending`. */
static char *label_path(const char *path, const char *folder, const char *ending)
{
    const char *name = sp_file_name(path);
    const char *own = sp_file_ends_in(path, ".pcd.bin") ? ".pcd.bin" : ".bin";
    int stem = (int)(strlen(name) - strlen(own));
    size_t bytes = strlen(path) + strlen(folder) + strlen(ending) + 1;
    char *to = malloc(bytes);

    if (to)
        snprintf(to, bytes, "%.*s%s%.*s%s", (int)(name - path), path, folder,
                 stem > 0 ? stem : 0, name, ending);
    return to;
}

/* Opens the first label file that there is. */
static sp_status find_label_file(sp_scan *scan, sp_scan *label)
{
    static const struct {
        const char *folder, *ending;
    } at[] = {{"", ".label"},
              {"../labels/", ".label"},
              {"", "_lidarseg.bin"},
              {"../labels/", "_lidarseg.bin"},
              {"../lidarseg/", "_lidarseg.bin"}};

    for (size_t i = 0; i < sizeof at / sizeof *at && label->fd < 0; i++) {
        free(label->path);
        label->path = label_path(scan->path, at[i].folder, at[i].ending);
        if (!label->path)
            return SP_FAIL(SP_EMEM, "%s: no memory for a path", scan->path);
        SP_TRY(sp_scan_open_regular(label));
    }
    return SP_OK;
}

static sp_status open_label(sp_scan *scan, kitti *k)
{
    static const int sizes[] = {KITTI_LABEL, 1, 8};
    sp_scan *label = &k->label;

    SP_TRY(find_label_file(scan, label));
    if (label->fd < 0)
        return SP_OK;
    scan->label_path = label->path;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && k->label_bytes == 0; i++)
        if (label->file_bytes == scan->n_points * sizes[i])
            k->label_bytes = sizes[i];
    if (k->label_bytes == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " bytes, expected %" PRId64 " for the %" PRId64
                       " points of %s (or %" PRId64 " of uint8, %" PRId64 " of int64)",
                       label->path, label->file_bytes, scan->n_points * KITTI_LABEL,
                       scan->n_points, scan->path, scan->n_points, 8 * scan->n_points);
    return SP_OK;
}

/* Adds the columns of the scan's records; "-" leaves one without a name. */
static sp_status add_columns(sp_scan *scan, int n, const char *const *names)
{
    for (int i = 0; i < n; i++)
        SP_TRY(sp_scan_add(
            scan, names ? names[i] : "",
            (sp_scan_field){.at = 4 * i, .kind = 'f', .size = 4, .scale = 1}));
    return names ? SP_OK : sp_scan_name_columns(scan);
}

static sp_status add_labels(sp_scan *scan, const kitti *k)
{
    const int at = k->point_bytes;

    if (k->label_bytes == 1)
        return sp_scan_add(
            scan, "label",
            (sp_scan_field){.at = at, .kind = 'u', .size = 1, .scale = 1});
    if (k->label_bytes == 8)
        return sp_scan_add(
            scan, "label",
            (sp_scan_field){.at = at, .kind = 'i', .size = 8, .scale = 1});
    SP_TRY(
        sp_scan_add(scan, "label", (sp_scan_field){"", at, 'u', 4, 0, 16, .scale = 1}));
    return sp_scan_add(scan, "instance",
                       (sp_scan_field){"", at, 'u', 4, 16, 16, .scale = 1});
}

static sp_status open_kitti(sp_scan *scan)
{
    static const char *const names[] = {"x", "y", "z", "intensity", "ring"};
    kitti *k = scan->own;
    int n;

    k->label.fd = -1;
    SP_TRY(sp_scan_bin_columns(scan, &n));
    k->point_bytes = 4 * n;
    scan->n_points = scan->file_bytes / k->point_bytes;
    SP_TRY(open_label(scan, k));
    SP_TRY(add_columns(scan, n, scan->options.columns ? NULL : names));
    if (!scan->options.columns && n == 4)
        SP_TRY(
            sp_scan_add(scan, "remission",
                        (sp_scan_field){.at = 12, .kind = 'f', .size = 4, .scale = 1}));
    scan->record_bytes = k->point_bytes + k->label_bytes;
    return k->label_bytes ? add_labels(scan, k) : SP_OK;
}

static sp_status fill_kitti(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    kitti *k = scan->own;
    const int point = k->point_bytes, label = k->label_bytes;
    SP_FREED unsigned char *points = malloc((size_t)max * (size_t)(point + label) + 1);
    unsigned char *labels = points + max * point;

    (void)n;
    if (!points)
        return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " points", scan->path,
                       max);
    SP_TRY(sp_scan_pread(scan, points, (size_t)(max * point), scan->row * point));
    if (label > 0)
        SP_TRY(
            sp_scan_pread(&k->label, labels, (size_t)(max * label), scan->row * label));
    for (int64_t i = 0; i < max; i++, to += point + label) {
        memcpy(to, points + i * point, (size_t)point);
        memcpy(to + point, labels + i * label, (size_t)label);
    }
    return SP_OK;
}

static void close_kitti(sp_scan *scan)
{
    kitti *k = scan->own;

    if (k->label.fd >= 0)
        close(k->label.fd);
    free(k->label.path);
}

/* ---- writing ---- */

enum { WRITTEN = 4096 }; /* points at a time */

/* Replaces SP_SCAN_KEEP among the codes of n rows by the label file's values, including
 * the instance. */
static sp_status keep_labels(sp_scan *scan, int64_t first, int64_t n, int32_t *code)
{
    kitti *k = scan->own;
    unsigned char label[WRITTEN * KITTI_LABEL];

    SP_TRY(
        sp_scan_pread(&k->label, label, (size_t)n * KITTI_LABEL, first * KITTI_LABEL));
    for (int64_t i = 0; i < n; i++)
        if (code[i] == SP_SCAN_KEEP)
            code[i] = (int32_t)sp_get32(label + i * KITTI_LABEL);
        else if (code[i] < 0)
            code[i] = 0;
    return SP_OK;
}

static void put_codes(FILE *to, const int32_t *code, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sp_scan_put(to, (uint32_t)code[i], KITTI_LABEL);
}

static sp_status put_block(void *to, const sp_scan_points *points, const int32_t *code,
                           const float *value)
{
    (void)value;
    put_codes(to, code, points->n);
    return SP_OK;
}

/* Are the labels of the scan in a label file with instances, which are kept too? */
static bool has_label_file(const sp_scan *scan)
{
    return scan->format == &sp_scan_kitti &&
           ((const kitti *)scan->own)->label_bytes == KITTI_LABEL &&
           strcmp(scan->field[scan->label].name, "label") == 0;
}

/* Reads the scan itself only if its own labels are wanted. */
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
    .help = "SemanticKITTI with its .label; .pcd.bin of nuScenes",
    .own_bytes = sizeof(kitti),
    .open = open_kitti,
    .fill = fill_kitti,
    .close = close_kitti,
    .write = write_label,
    .check_added = check_added,
    .most_code = most_code,
    .written = ".label",
    .written_help = "uint32 per point as in SemanticKITTI; 0: no class",
    .is_dense = true};
