/* spvox apply: predicted classes back onto the scan that they belong to.
 *
 *     predictions  /names         tile.las[0,0]  tile.las[0,1]  other.las ...
 *                  /point_index   rows of tile.las ...
 *                  /point_labels  classes   --map reversed, or class_codes--> codes
 *     scan         code [points of the scan], 0 or -1 if nothing was predicted
 *
 * The samples of a scan are found by name: the same file, or else the same name in
 * another folder or compressed, if the predictions hold only one file of that name. A
 * relative name is another file in another working folder, so two names that both are
 * the scan's are refused. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "h5/sp_h5.h"
#include "scan/sp_scan.h"
#include "vox/vox.h"
#include "vox/vox_options.h"

/* EXPANSION is the largest ratio of deflate. */
enum { PATH_BYTES = 4096, NONE = SP_SCAN_NO_CLASS, EXPANSION = 1100 };

#define AT(member) .offset = offsetof(vox_options, member)
/* clang-format off */
static const sp_option option_table[] = {
{{"--out", "FILE", "the labelled scan"}, SP_OPTION_TEXT, AT(out)},
{{"--map", "LIST", "as in spvox convert; each class becomes the first code of its "
  "entry. Without it the codes are those that the predictions have from the shards"},
 SP_OPTION_READ, AT(map), .read = vox_read_map},
{{"--columns", "LIST", "as in spvox convert"}, SP_OPTION_TEXT, AT(columns)},
{{"--label-field", "NAME", "as in spvox convert"}, SP_OPTION_TEXT, AT(label_field)},
SP_OPTION_HELP_ROW,
};
/* clang-format on */

const sp_usage vox_apply_usage = {
    .line = "usage: spvox apply PREDICTIONS... SCAN --out FILE [--map LIST]",
    .text = "Writes the classes that sptrain predict gave the points (shards made with "
            "--points) onto the scan. The ending of FILE says how:",
    .options = SP_WORD_ROWS(option_table),
    .formats = sp_scan_print_outputs,
};

/* The content of one file of predictions. */
typedef struct prediction {
    const char *path;
    int64_t n_samples, n_points;
    char **name;     /* [n_samples] file and block of each sample */
    int64_t *offset; /* [n_samples + 1] first point of each sample */
    int32_t *label;  /* [n_points] predicted class */
    uint64_t *index; /* [n_points] row in the scan */
    int64_t ignore_label;
    int n_classes;     /* length of class_name, class_code and code */
    char **class_name; /* NULL: not in the file */
    char **class_code; /* "3:4:5"; NULL: not in the file */
    int32_t *code; /* [n_classes] code to write for a class; NULL: the class's number */
} prediction;

/* ---- reading ---- */
/* Counts the rows of a list. More rows than the file can hold (EXPANSION times its size
 * if the list is compressed) are damage: no memory is requested for them. */
static sp_status apply_count_rows(sp_h5 *file, const char *path, const char *name,
                                  int64_t *n)
{
    int64_t most = sp_h5_bytes(file);
    sp_h5_shape shape;

    if (!sp_h5_has(file, name))
        return SP_FAIL(
            SP_EDATA, "%s: no %s; predictions on points need shards made with --points",
            path, name);
    SP_TRY(sp_h5_shape_of(file, name, &shape));
    if (shape.rank != 1)
        return SP_FAIL(SP_EDATA, "%s:%s: %d dimension%s, expected 1", path, name,
                       shape.rank, sp_plural(shape.rank));
    if (!shape.is_contiguous)
        most *= EXPANSION;
    if (shape.dim[0] > most ||
        shape.dim[0] > most / (shape.type.size > 0 ? shape.type.size : 1))
        return SP_FAIL(SP_EDATA,
                       "%s:%s: %" PRId64 " rows, which the file does not hold", path,
                       name, shape.dim[0]);
    *n = shape.dim[0];
    return SP_OK;
}

/* Reads the offsets, which may be absent if there is one sample. */
static sp_status apply_read_offsets(sp_h5 *file, prediction *p)
{
    const int64_t dim = p->n_samples + 1;

    if (sp_h5_has(file, "/point_offsets"))
        SP_TRY(sp_h5_read(file, "/point_offsets", SP_H5_I64, 1, &dim, p->offset));
    else if (p->n_samples == 1)
        p->offset[1] = p->n_points;
    else
        return SP_FAIL(SP_EDATA, "%s: no /point_offsets", p->path);
    for (int64_t i = 0; i < p->n_samples; i++)
        if (p->offset[i] < 0 || p->offset[i + 1] < p->offset[i])
            return SP_FAIL(SP_EDATA, "%s:/point_offsets: sample %" PRId64 ": falls",
                           p->path, i);
    if (p->offset[0] != 0 || p->offset[p->n_samples] != p->n_points)
        return SP_FAIL(SP_EDATA,
                       "%s:/point_offsets: %" PRId64 " to %" PRId64 ", expected 0 to "
                       "%" PRId64,
                       p->path, p->offset[0], p->offset[p->n_samples], p->n_points);
    return SP_OK;
}

static sp_status apply_read_arrays(sp_h5 *file, prediction *p)
{
    int64_t n_index;

    SP_TRY(apply_count_rows(file, p->path, "/names", &p->n_samples));
    SP_TRY(apply_count_rows(file, p->path, "/point_labels", &p->n_points));
    SP_TRY(apply_count_rows(file, p->path, "/point_index", &n_index));
    if (n_index != p->n_points)
        return SP_FAIL(SP_EDATA, "%s:/point_index: %" PRId64 " rows, expected %" PRId64,
                       p->path, n_index, p->n_points);
    SP_TRY(SP_NEW(&p->name, p->n_samples, p->path));
    SP_TRY(SP_NEW(&p->offset, p->n_samples, p->path));
    SP_TRY(SP_NEW(&p->label, p->n_points, p->path));
    SP_TRY(SP_NEW(&p->index, p->n_points, p->path));
    SP_TRY(sp_h5_read_texts(file, "/names", p->n_samples, p->name));
    SP_TRY(apply_read_offsets(file, p));
    SP_TRY(sp_h5_read(file, "/point_labels", SP_H5_I32, 1, &p->n_points, p->label));
    return sp_h5_read(file, "/point_index", SP_H5_U64, 1, &p->n_points, p->index);
}

/* Reads names of classes, and the same number of codes, if the file has them. */
static sp_status read_classes(sp_h5 *file, prediction *p)
{
    int64_t n = 0;

    if (!sp_h5_attr_has(file, "/", "class_names"))
        return SP_OK;
    SP_TRY(
        sp_h5_attr_read_texts(file, "/", "class_names", &p->class_name, &p->n_classes));
    if (!sp_h5_attr_has(file, "/", "class_codes"))
        return SP_OK;
    SP_TRY(sp_h5_attr_count(file, "/", "class_codes", &n));
    if (n != p->n_classes)
        return SP_FAIL(SP_EDATA, "%s: %" PRId64 " class_codes, expected %d", p->path, n,
                       p->n_classes);
    return sp_h5_attr_read_texts(file, "/", "class_codes", &p->class_code,
                                 &p->n_classes);
}

static sp_status read_prediction(prediction *p, const char *path)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;

    p->path = path;
    p->ignore_label = VOX_IGNORE_LABEL;
    SP_TRY(sp_h5_open(&file, path));
    SP_TRY(apply_read_arrays(file, p));
    if (sp_h5_has(file, "/coords"))
        sp_log_warn0("%s is a shard: its labels are the scan's own and no predictions",
                     path);
    if (sp_h5_attr_has(file, "/", "ignore_label"))
        SP_TRY(sp_h5_attr_read_int(file, "/", "ignore_label", &p->ignore_label));
    return read_classes(file, p);
}

static void free_prediction(prediction *p)
{
    sp_h5_list_free(p->name, p->n_samples);
    free(p->offset);
    free(p->label);
    free(p->index);
    sp_h5_list_free(p->class_name, p->n_classes);
    sp_h5_list_free(p->class_code, p->n_classes);
    free(p->code);
}

/* ---- which samples are of the scan ---- */

/* The file's name within a sample's name like "tile.las[3,4]". */
static void file_of(const char *name, char path[PATH_BYTES])
{
    size_t n = strlen(name);
    const char *bracket = strrchr(name, '[');
    int bx, by, used = 0;

    if (bracket && sscanf(bracket, "[%d,%d]%n", &bx, &by, &used) == 2 &&
        bracket[used] == '\0')
        n = (size_t)(bracket - name);
    snprintf(path, PATH_BYTES, "%.*s", (int)n, name);
}

/* Are these names the same, or of one scan, compressed and not? */
static bool is_same_scan(const char *a, const char *b)
{
    size_t n = strlen(a);

    if (strcmp(a, b) == 0)
        return true;
    return sp_file_ends_in(a, ".las .laz") && sp_file_ends_in(b, ".las .laz") &&
           strlen(b) == n && strncmp(a, b, n - 1) == 0;
}

/* Returns 2 for the same file, 1 for the same name in another folder, or with another
 * ending of .las and .laz, else 0. */
static int compare_files(const char *a, const char *b)
{
    return sp_file_is_same(a, b) ? 2 : is_same_scan(sp_file_name(a), sp_file_name(b));
}

/* Finds how well the best match of a name does, and which name that is. */
static void find_best(const prediction *p, int n, const char *scan, int *best,
                      char found[PATH_BYTES])
{
    char file[PATH_BYTES];

    *best = 0;
    for (int i = 0; i < n; i++)
        for (int64_t s = 0; s < p[i].n_samples; s++) {
            int match;

            file_of(p[i].name[s], file);
            match = compare_files(file, scan);
            if (match > *best) {
                *best = match;
                memcpy(found, file, PATH_BYTES);
            }
        }
}

/* Warns if only the name says that the samples of `file` are of the scan. Scans of one
 * name in several folders are common (000000.bin of each sequence), and the predictions
 * have no coordinates to compare. */
static void warn_of_folder(const char *file, const char *scan)
{
    const size_t n = (size_t)(sp_file_name(file) - file),
                 m = (size_t)(sp_file_name(scan) - scan);

    if (n != m || memcmp(file, scan, n) != 0)
        sp_log_warn0("%s gets the classes predicted for %s: only their names agree, so "
                     "make sure that it has the same points in the same order",
                     scan, file);
}

/* Chooses the samples to take: their file matches the scan's name as *best says. They
 * must all have one name. */
static sp_status find_match(const prediction *p, int n, const char *scan, int *best)
{
    char file[PATH_BYTES], found[PATH_BYTES] = "";

    find_best(p, n, scan, best, found);
    if (*best == 0)
        return SP_FAIL(SP_EDATA, "%s: no sample of %s; the first one is of %s", p->path,
                       scan, p->n_samples ? p->name[0] : "nothing");
    for (int i = 0; i < n; i++)
        for (int64_t s = 0; s < p[i].n_samples; s++) {
            file_of(p[i].name[s], file);
            if (compare_files(file, scan) == *best && strcmp(found, file) != 0)
                return SP_FAIL(SP_EDATA, "%s: both %s and %s may be %s", p[i].path,
                               found, file, scan);
        }
    if (*best == 1)
        warn_of_folder(found, scan);
    return SP_OK;
}

/* ---- codes ---- */

static sp_status choose_codes(const vox_map *map, prediction *p)
{
    if (map->n == 0 && !p->class_code)
        return SP_OK;
    if (!p->class_name)
        p->n_classes = map->n;
    SP_TRY(SP_NEW(&p->code, p->n_classes, "the codes of the classes"));
    return map->n > 0
               ? vox_codes_of_map(map, p->path, p->n_classes, p->class_name, p->code)
               : vox_first_codes(p->path, p->n_classes, p->class_code, p->code);
}

static sp_status apply_store_sample(const prediction *p, int64_t s, int64_t n_points,
                                    int32_t *code, int64_t *n_taken)
{
    for (int64_t i = p->offset[s]; i < p->offset[s + 1]; i++) {
        int32_t label = p->label[i];

        if (label == p->ignore_label) /* of a sample that was left out, of no row */
            continue;
        if (p->index[i] >= (uint64_t)n_points)
            return SP_FAIL(SP_EDATA,
                           "%s:/point_index: sample %" PRId64 ": row %" PRIu64
                           ", but the scan has %" PRId64 " points",
                           p->path, s, p->index[i], n_points);
        if (label < 0 || (p->code && label >= p->n_classes))
            return SP_FAIL(SP_EDATA,
                           "%s:/point_labels: sample %" PRId64 ": class %d of %d",
                           p->path, s, label, p->n_classes);
        *n_taken += code[p->index[i]] == NONE;
        code[p->index[i]] = p->code ? p->code[label] : label;
    }
    return SP_OK;
}

/* Collects the codes of all points of the scan. If several samples predict a point, the
 * last one counts. */
static sp_status apply_collect(const vox_options *o, prediction *p, int n,
                               int64_t n_points, int32_t *code, int64_t *n_taken)
{
    const char *scan = o->input[o->n_inputs - 1];
    char file[PATH_BYTES];
    int best;

    *n_taken = 0;
    for (int64_t i = 0; i < n_points; i++)
        code[i] = NONE;
    SP_TRY(find_match(p, n, scan, &best));
    if (o->map.n == 0 && !p->class_code)
        sp_log_warn0(
            "%s has no codes of its classes: they are written as 0, 1, 2, ...; "
            "--map gives them",
            p->path);
    for (int i = 0; i < n; i++) {
        SP_TRY(choose_codes(&o->map, &p[i]));
        for (int64_t s = 0; s < p[i].n_samples; s++) {
            file_of(p[i].name[s], file);
            if (compare_files(file, scan) == best)
                SP_TRY(apply_store_sample(&p[i], s, n_points, code, n_taken));
        }
    }
    return SP_OK;
}

/* ---- the command ---- */

/* Counts the points of the scan, which reads a text or LAZ file to its end. */
static sp_status count_points(sp_scan *scan, int64_t *n)
{
    SP_CLOSED_BY(sp_scan_points_destroy) sp_scan_points points = {0};

    *n = sp_scan_count(scan);
    if (*n >= 0)
        return SP_OK;
    do {
        SP_TRY(sp_scan_next(scan, SP_SCAN_BLOCK, &points));
        *n = points.first_row + points.n;
    } while (points.n > 0);
    return SP_OK;
}

static sp_status apply_check_options(const vox_options *o)
{
    if (!o->out)
        return SP_FAIL(SP_EUSAGE, "spvox apply: --out FILE is missing");
    if (o->n_inputs < 2)
        return SP_FAIL(SP_EUSAGE,
                       "spvox apply: expected PREDICTIONS... SCAN, found %d file%s",
                       o->n_inputs, sp_plural(o->n_inputs));
    return sp_scan_check_output(o->out);
}

/* Gives codes to sp_scan_write. */
static sp_status get_codes(const void *from, int64_t first, int64_t n, int32_t *code,
                           float *value)
{
    const int32_t *all = from;

    (void)value;
    sp_fault_at("write", first);
    SP_TRY(sp_signal_check());
    memcpy(code, all + first, (size_t)n * sizeof *code);
    return SP_OK;
}

static sp_status apply_to_scan(const vox_options *o, prediction *p, int n)
{
    const sp_scan_options options = vox_scan_options(o);
    SP_CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;
    SP_FREED int32_t *code = NULL;
    sp_scan_labels labels;
    int64_t n_points = 0, n_taken;

    for (int i = 0; i < n; i++)
        SP_TRY(read_prediction(&p[i], o->input[i]));
    SP_TRY(sp_scan_open(&scan, o->input[n], &options));
    SP_TRY(count_points(scan, &n_points));
    if ((uint64_t)n_points < SIZE_MAX / sizeof *code)
        code = malloc((size_t)n_points * sizeof *code + 1);
    if (!code)
        return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " points", n_points);
    SP_TRY(apply_collect(o, p, n, n_points, code, &n_taken));
    labels = (sp_scan_labels){.n = n_points, .get = get_codes, .from = code};
    SP_TRY(sp_scan_write(scan, o->out, &labels));
    sp_log_info("points=%" PRId64 " predicted=%" PRId64 " out=%s", n_points, n_taken,
                o->out);
    return SP_OK;
}

static sp_status apply(const vox_options *o)
{
    const int n = o->n_inputs - 1;
    SP_FREED prediction *p = NULL;
    sp_status rc;

    SP_TRY(SP_NEW(&p, n, "predictions"));
    rc = apply_to_scan(o, p, n);
    for (int i = 0; i < n; i++)
        free_prediction(&p[i]);
    return rc;
}

sp_status vox_apply(int argc, char **argv, sp_comm *comm)
{
    SP_CLOSED_BY(vox_options_free) vox_options *o = NULL;
    sp_status rc;

    assert(argc >= 1 && argv && comm);
    SP_TRY(SP_NEW(&o, 1, "options"));
    SP_TRY(vox_options_read(o, argc, argv, SP_WORD_TABLE(option_table)));
    o->threads = comm->node_cores; /* the other ranks wait */
    rc = apply_check_options(o);
    if (rc == SP_OK && comm->rank == 0)
        rc = apply(o);
    return sp_comm_agree(comm, rc);
}
