/* Points as float32 without a header: NAME.bin of SemanticKITTI with x y z remission,
 * NAME.pcd.bin of nuScenes with x y z intensity ring, or what --columns names. The
 * values decide the records of other .bin files: a length that fits proves nothing.
 *
 * Labels are in a file of the same stem, beside the scan or in the folder labels/ next
 * to the folder of the scans: NAME.label, else NAME_lidarseg.bin. SemanticKITTI has a
 * uint32 per point, class in the low 16 bits and instance in the high ones; nuScenes
 * has a uint8, and masks of NumPy an int64. A record joins the two. The label file is a
 * scan without fields, so that sp_scan_pread checks its reads; its fd is -1 if there is
 * no such file. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

/* ---- the length of a record ----
 *
 *     float32   x y z r | x y z r | x y z r      4: SemanticKITTI
 *               x y z i n | x y z i n | x y      5: nuScenes, n a ring
 *
 * Read with a wrong length each column mixes quantities of other kinds. So the length
 * with the most homogeneous columns is chosen: the mean logarithm of a column's
 * variance is least (the likelihood of a normal distribution for each column). This
 * fails for coordinates in map units, or one quantity in all columns; then the ranges
 * decide: a remission is 0 to 1, an intensity 0 to 255. */

enum {
    LOOKED_AT = 1 << 18, /* numbers from the beginning of the file */
    MOST_COLUMNS = 8,
    LEAST_RECORDS = 8 /* for a meaningful variance */
};

/* The least cost of a wrong length, in the mean logarithm of the variance, and the part
 * that chance adds to it: this over the root of the number of records. */
#define CLEARLY 0.25
#define CHANCE  3.0
/* No coordinate is farther away, or nearer to zero without being zero. */
#define FARTHEST 1e8F
#define NEAREST  1e-30F

typedef struct numbers {
    const float *x;
    int64_t n;
} numbers;

/* Are these integers of eight bytes, small ones, as masks and labels are? */
static bool are_int64(numbers all)
{
    bool has_value = false;

    for (int64_t i = 0; i < all.n; i++) {
        uint32_t bits;

        memcpy(&bits, &all.x[i], sizeof bits);
        if (i % 2 && bits != 0 && bits != UINT32_MAX)
            return false;
        has_value = has_value || (i % 2 == 0 && bits != 0 && bits < 1 << 24);
    }
    return has_value;
}

/* The share of numbers that are no lengths: as floats, integers are next to zero and
 * halves of doubles are anything. */
static double share_of_odd(numbers all)
{
    int64_t n = 0;

    for (int64_t i = 0; i < all.n; i++) {
        const float size = fabsf(all.x[i]);

        n += !(size == 0 || (size > NEAREST && size < FARTHEST));
    }
    return all.n > 0 ? (double)n / (double)all.n : 0;
}

/* The mean logarithm of the variance of each of k columns. */
static double spread_of(numbers all, int k)
{
    double sum[MOST_COLUMNS] = {0}, square[MOST_COLUMNS] = {0}, total = 0;
    double all_sum = 0, all_square = 0, floor_at;
    const int64_t rows = all.n / k;

    for (int64_t i = 0; i < rows * k; i++) {
        const double x = isfinite(all.x[i]) ? (double)all.x[i] : 0;

        sum[i % k] += x;
        square[i % k] += x * x;
        all_sum += x;
        all_square += x * x;
    }
    floor_at = 1e-8 * (all_square - all_sum * all_sum / (double)(rows * k)) /
               (double)(rows * k);
    for (int c = 0; c < k; c++) {
        const double v = (square[c] - sum[c] * sum[c] / (double)rows) / (double)rows;

        total += log(fmax(v, floor_at) + 1e-300);
    }
    return total / k;
}

/* The number of columns, 3 to 8, that makes them the most homogeneous; the least of
 * those that differ little, since twice the columns are as homogeneous. `by` becomes
 * how much better it is than 4. */
static int best_columns(numbers all, int64_t file_bytes, double *by)
{
    double least = INFINITY, spread[MOST_COLUMNS + 1];
    int best = 4;

    *by = 0;
    for (int k = 3; k <= MOST_COLUMNS; k++) {
        spread[k] = file_bytes % (4 * k) == 0 && all.n / k >= LEAST_RECORDS
                        ? spread_of(all, k)
                        : INFINITY;
        least = fmin(least, spread[k]);
    }
    if (isinf(least))
        return best;
    for (best = 3; spread[best] > least + CLEARLY / 4; best++)
        ;
    *by = isinf(spread[4]) ? INFINITY : spread[4] - spread[best];
    return best;
}

/* The least `by` of best_columns. */
static double clearly(numbers all, int k)
{
    return CLEARLY + CHANCE / sqrt(fmax(1, (double)(all.n / k)));
}

/* The range of column c of k. */
static void range_of(numbers all, int k, int c, float range[2])
{
    range[0] = INFINITY;
    range[1] = -INFINITY;
    for (int64_t i = c; i < all.n; i += k) {
        range[0] = fminf(range[0], all.x[i]);
        range[1] = fmaxf(range[1], all.x[i]);
    }
}

static bool are_rings(numbers all)
{
    for (int64_t i = 4; i < all.n; i += 5)
        if (!(all.x[i] >= 0 && all.x[i] <= 255 && all.x[i] == floorf(all.x[i])))
            return false;
    return true;
}

static sp_status refuse_bin(const sp_scan *scan, const char *found)
{
    return SP_FAIL(
        SP_EDATA,
        "%s: %s, expected float32 x y z remission, from 0 to 1 (or to 255); "
        "say what each float32 of a point is: --columns x,y,z,... (- for one "
        "to pass over)",
        scan->path, found);
}

static sp_status bin_judge(const sp_scan *scan, numbers all, int *n)
{
    char found[160];
    float range[2];
    double by;
    const int best = best_columns(all, scan->file_bytes, &by);

    if (are_int64(all))
        return SP_FAIL(SP_EDATA,
                       "%s: holds integers of 8 bytes, as masks and labels are, "
                       "expected float32 x y z remission",
                       scan->path);
    if (share_of_odd(all) > 0.1)
        return refuse_bin(scan, "its numbers are not float32 coordinates");
    if (best == 5 && by > clearly(all, best) && are_rings(all)) {
        *n = 5;
        return SP_OK;
    }
    if (best != 4 && by > clearly(all, best)) {
        snprintf(found, sizeof found, "its points seem to have %d float32 each", best);
        return refuse_bin(scan, found);
    }
    if (scan->file_bytes % 16)
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " bytes, expected a multiple of 16 (float32 x y "
                       "z remission)",
                       scan->path, scan->file_bytes);
    range_of(all, 4, 3, range);
    if (range[0] < 0 || range[1] > 255) {
        snprintf(found, sizeof found, "the 4th numbers are %.4g to %.4g",
                 (double)range[0], (double)range[1]);
        return refuse_bin(scan, found);
    }
    *n = 4;
    return SP_OK;
}

static sp_status check_length(const sp_scan *scan, int n, const char *what)
{
    if (scan->file_bytes % (4 * n))
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " bytes, expected a multiple of %d (%s)",
                       scan->path, scan->file_bytes, 4 * n, what);
    return SP_OK;
}

/* Refuses a list of n columns for points that are SemanticKITTI's or nuScenes': a model
 * may have been trained on files of text with such a list. */
static sp_status check_listed(const sp_scan *scan, numbers all, int n)
{
    int found;

    if (bin_judge(scan, all, &found) != SP_OK || found == n || n > MOST_COLUMNS ||
        all.n / 8 < LEAST_RECORDS ||
        spread_of(all, n) < spread_of(all, found) + clearly(all, n))
        return SP_OK;
    return SP_FAIL(
        SP_EDATA,
        "%s: its points seem to have %d float32 each, but --columns %s lists "
        "%d",
        scan->path, found, scan->options.columns, n);
}

static int count_listed(const char *columns)
{
    int n = 1;

    for (const char *at = columns; (at = strchr(at, ',')); at++)
        n++;
    return n;
}

/* Sets *n to the float32 numbers of a point: the number that --columns lists; 5 in a
 * file that is named .pcd.bin or has the values of one; else 4, if the values are x y z
 * remission. */
static sp_status bin_columns(sp_scan *scan, int *n)
{
    const int64_t count = sp_least(scan->file_bytes / 4, LOOKED_AT);
    const char *listed = scan->options.columns;
    SP_FREED float *x = NULL;

    assert(scan->fd >= 0 && n);
    *n = listed ? count_listed(listed) : 5;
    if (!listed && sp_file_ends_in(scan->path, ".pcd.bin"))
        return check_length(scan, 5, "float32 x y z intensity ring, as in nuScenes");
    SP_TRY(SP_NEW(&x, count, scan->path));
    SP_TRY(sp_scan_pread(scan, x, (size_t)count * sizeof *x, 0));
    if (!listed)
        return bin_judge(scan, (numbers){x, count}, n);
    SP_TRY(check_listed(scan, (numbers){x, count}, *n));
    return check_length(scan, *n, "a float32 for each of --columns");
}

/* ---- the scan and its labels ---- */

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
    SP_TRY(bin_columns(scan, &n));
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
