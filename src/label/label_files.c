#include "label/label_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "label/label_index.h"
#include "label/label_raster.h"
#include "vox/vox_cloud.h"

#define WORK "/.sptrain"
#define MADE ".made"
#define SCAN " scan " /* after the description of an output; see word_made */

/* ---- names ---- */

/* The name of the scan with the ending of its output, "a.bin" becomes "a.label". */
static sp_status name_output(const sp_scan *scan, char name[LABEL_NAME])
{
    const char *base = sp_file_name(sp_scan_path(scan)), *dot = strrchr(base, '.');
    const char *ending = sp_scan_output_ending(scan);
    int stem = (int)(dot && dot > base ? dot - base : (ptrdiff_t)strlen(base));

    if (dot && strcasecmp(dot, ending) == 0)
        ending = dot;
    if (snprintf(name, LABEL_NAME, "%.*s%s", stem, base, ending) >=
        LABEL_NAME - (int)sizeof MADE - 16)
        return SP_FAIL(SP_EUSAGE, "%s: the name is too long", sp_scan_path(scan));
    return SP_OK;
}

static const char *path_of(const char *dir, const char *name, const char *ending,
                           char path[LABEL_PATH])
{
    snprintf(path, LABEL_PATH, "%s/%s%s", dir, name, ending);
    return path;
}

const char *label_files_unfinished(const label_files *f, int i, const char *ending,
                                   char *path)
{
    assert(0 <= i && i < f->n && ending && path);
    snprintf(path, LABEL_PATH, "%s/%s/%s%s", f->work, f->tmp, f->file[i].name, ending);
    return path;
}

static bool is_any(const char *name)
{
    (void)name;
    return true;
}

sp_status label_files_begin(const label_files *f)
{
    char path[LABEL_PATH];

    assert(f->work && "label_files_open comes first");
    snprintf(path, sizeof path, "%s/%s", f->work, f->tmp);
    SP_TRY(sp_file_make_folder(path));
    return sp_file_remove_if(path, is_any);
}

void label_files_end(const label_files *f)
{
    char path[LABEL_PATH];

    snprintf(path, sizeof path, "%s/%s", f->work, f->tmp);
    sp_file_remove_if(path, is_any);
    rmdir(path);
}

/* ---- what outputs were made of ---- */

/* Prints everything that determines the classes and fields of an output, but the scan.
 * Keys of the command line replace the model's, such as augment.rotate_z, which defines
 * the views. Keys of run say where and how, not what. */
static void print_origin(FILE *to, const label_model *m, const label_options *o)
{
    const vox_options *v = m->vox;
    const sp_config *config = m->infer.session.config;

    fprintf(to, "model crc32c %08x voxel %.17g %.17g block %.17g %.17g views %d",
            m->crc, v->voxel_size, config->data.voxel_size, v->block, v->overlap,
            (int)o->views);
    if (v->z_unit > 0)
        fprintf(to, " z-unit %s", sp_scan_z_word((sp_scan_z_unit)v->z_unit));
    if (v->block > 0) /* versions before placed blocks otherwise */
        fprintf(to, " aligned");
    if (o->buffer > 0)
        fprintf(to, " buffer %.17g", o->buffer);
    if (o->raster > 0)
        fprintf(to, " raster %.17g", o->raster);
    if (v->is_window)
        fprintf(to, " window %.17g %.17g %.17g %.17g", v->bounds[0], v->bounds[1],
                v->bounds[2], v->bounds[3]);
    fprintf(to, " min %.17g doubtful %d", o->min_confidence, (int)o->doubtful);
    if (m->temperature != 1)
        fprintf(to, " temperature %.17g", m->temperature);
    if (m->most_distance > 0)
        fprintf(to, " features %.17g", m->most_distance);
    for (int i = 0; i < v->n_features; i++)
        fprintf(to, " column %s/%.17g", v->feature[i].name, v->feature[i].divisor);
    for (int c = 0; c < m->n_classes; c++)
        fprintf(to, " code %d", m->code[c]);
    for (int i = 0; i < m->n_added; i++)
        fprintf(to, " field %s %s", m->added[i].name,
                m->added[i].is_float ? "float32" : "uint8");
    fprintf(to, " columns %s label %s", v->columns ? v->columns : "-",
            v->label_field ? v->label_field : "-");
    for (int code = 0; o->keep && code <= VOX_MAX_CODE; code++)
        if (o->keep[code])
            fprintf(to, " keep %d", code);
    for (int i = 0; i < o->n_overrides; i++)
        if (strncmp(o->overrides[i], "run.", 4) != 0)
            fprintf(to, " %s", o->overrides[i]);
}

static sp_status describe(char **text, const label_model *m, const label_options *o)
{
    size_t bytes;
    FILE *to = open_memstream(text, &bytes);
    bool is_whole;

    if (to)
        print_origin(to, m, o);
    is_whole = to && sp_file_close(to);
    /* The first SCAN before an absolute path is the one that word_made adds. */
    for (char *at = is_whole ? *text : NULL; at && (at = strstr(at, SCAN "/"));)
        *at = '_';
    return is_whole ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a text");
}

/* Length and time as the files .made have them. */
static bool stamp(const char *path, char text[64])
{
    char *blank;

    if (!label_index_stamp(path, text))
        return false;
    blank = strchr(text, ' ');
    assert(blank);
    memmove(blank + sizeof " bytes" - 1, blank, strlen(blank) + 1);
    memcpy(blank, " bytes", sizeof " bytes" - 1);
    return true;
}

/* A checksum of names, lengths and times of the other scans with points that an output
 * depends on. */
static sp_status sum_neighbours(const label_files *f, int i, uint32_t *crc)
{
    SP_FREED int *near = NULL;
    char text[64];
    int n = 0;

    *crc = 0;
    SP_TRY(label_files_near(f, i, f->options->buffer, &near, &n));
    for (int k = 0; k < n; k++) {
        const char *path = f->options->vox.input[near[k]], *name = sp_file_name(path);

        if (!stamp(path, text))
            continue;
        *crc = sp_crc32c(*crc, name, strlen(name));
        *crc = sp_crc32c(*crc, text, strlen(text));
    }
    return SP_OK;
}

/* The two lines of the file .made for an output that is at `path` now; malloc'd. */
static sp_status word_made(const label_files *f, int i, const char *path, char **text)
{
    const char *scan = f->options->vox.input[i];
    char output[64] = "", source[64] = "", near[32] = "", whole[PATH_MAX];
    uint32_t crc;

    stamp(path, output);
    stamp(scan, source);
    if (f->options->buffer > 0) {
        SP_TRY(sum_neighbours(f, i, &crc));
        snprintf(near, sizeof near, " near %08x", crc);
    }
    /* A relative path is another scan in another working folder. */
    if (asprintf(text, "%s\n%s%s" SCAN "%s %s\n", output, f->made_by, near,
                 realpath(scan, whole) ? whole : scan, source) < 0)
        return SP_FAIL(SP_EMEM, "no memory for a text");
    return SP_OK;
}

/* Rank 0: is output i there, and is it finished, with its map if one is asked for?
 * *is_ours: it is as this command left it, from any inputs. */
static sp_status look(const label_files *f, int i, bool *is_there, bool *is_ours,
                      bool *is_done)
{
    char path[LABEL_PATH], now[64];
    SP_FREED char *made = NULL, *want = NULL;

    *is_ours = *is_done = false;
    *is_there = access(path_of(f->dir, f->file[i].name, "", path), F_OK) == 0;
    if (!*is_there || !stamp(path, now))
        return SP_OK;
    SP_TRY(word_made(f, i, path, &want));
    path_of(f->work, f->file[i].name, MADE, path);
    if (access(path, R_OK) == 0)
        SP_TRY(sp_file_read(path, &made, NULL));
    if (made) {
        size_t n = strlen(now);

        *is_ours = strncmp(made, now, n) == 0 && made[n] == '\n';
        *is_done = strcmp(made, want) == 0 &&
                   (f->options->raster <= 0 ||
                    access(path_of(f->dir, f->file[i].name, ".tif", path), F_OK) == 0);
    }
    return SP_OK;
}

sp_status label_files_finish(const label_files *f, int i)
{
    char from[LABEL_PATH], path[LABEL_PATH], *made;
    int fd;
    sp_status rc;

    assert(0 <= i && i < f->n);
    sp_fault_at("written", i);
    label_files_unfinished(f, i, "", from);
    SP_TRY(sp_file_open(from, O_RDONLY, &fd));
    if (fsync(fd) != 0) {
        close(fd);
        return SP_FAIL(SP_EIO, "%s: cannot flush: %s", from, strerror(errno));
    }
    close(fd);
    /* An output of an earlier run would not fit the new lines if this run were killed
     * here, and would be mistaken for somebody else's. */
    unlink(path_of(f->dir, f->file[i].name, "", path));
    SP_TRY(word_made(f, i, from, &made));
    rc = sp_file_replace(path_of(f->work, f->file[i].name, MADE, path), made,
                         strlen(made), 0);
    free(made);
    SP_TRY(rc);
    sp_fault_at("made", i);
    path_of(f->dir, f->file[i].name, "", path);
    return sp_file_rename(from, path);
}

/* ---- checks ---- */

static int by_name(const void *a, const void *b)
{
    const label_file *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);

    return order ? order : (*x > *y) - (*x < *y);
}

static sp_status check_names(const label_files *f, const label_options *o)
{
    SP_FREED const label_file **sorted = NULL;
    int n = 0;

    SP_TRY(SP_NEW(&sorted, f->n, "the names of outputs"));
    for (int i = 0; i < f->n; i++)
        if (!f->file[i].is_skipped)
            sorted[n++] = &f->file[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return SP_FAIL(SP_EUSAGE,
                           "%s and %s would both become %s/%s; label them into two "
                           "folders",
                           o->vox.input[sorted[i - 1] - f->file],
                           o->vox.input[sorted[i] - f->file], f->dir, sorted[i]->name);
    return SP_OK;
}

/* The place of a file on its device; zero if it does not exist. */
static struct stat place_of(const char *path)
{
    struct stat st = {0};

    if (stat(path, &st) != 0)
        st = (struct stat){0};
    return st;
}

static int by_place(const void *a, const void *b)
{
    const struct stat *x = a, *y = b;

    return x->st_dev != y->st_dev ? (x->st_dev > y->st_dev ? 1 : -1)
                                  : (x->st_ino > y->st_ino) - (x->st_ino < y->st_ino);
}

/* No output may be one of the scans: its classes, or the scan, would be lost. */
static sp_status check_scans(const label_files *f, const label_options *o)
{
    const size_t n = f->n > 0 ? (size_t)f->n : 0;
    SP_FREED struct stat *scan = NULL;
    char path[LABEL_PATH];

    SP_TRY(SP_NEW(&scan, n, "scans"));
    for (int i = 0; i < f->n; i++)
        scan[i] = place_of(o->vox.input[i]);
    qsort(scan, n, sizeof *scan, by_place);
    for (int i = 0, k = 0; i < f->n; i++) {
        struct stat st = {0};

        if (!f->file[i].is_skipped)
            st = place_of(path_of(f->dir, f->file[i].name, "", path));
        if (!st.st_ino || !bsearch(&st, scan, n, sizeof *scan, by_place))
            continue;
        while (k + 1 < f->n && !sp_file_is_same(o->vox.input[k], path))
            k++;
        return SP_FAIL(
            SP_EUSAGE,
            "%s: the output %s would replace this scan; choose another --out",
            o->vox.input[k], path);
    }
    return SP_OK;
}

/* Notes the header's extent and coordinate system of the scan. */
static void set_extent(label_files *f, const sp_scan *scan, int i)
{
    double low[3], high[3];

    f->file[i].extent = (vox_extent){{1, 1}, {-1, -1}};
    if (sp_scan_extent(scan, low, high))
        f->file[i].extent = (vox_extent){{low[0], low[1]}, {high[0], high[1]}};
    f->file[i].epsg = sp_scan_epsg(scan);
    if (!f->crs[0] && sp_scan_epsg(scan) > 0)
        snprintf(f->crs, sizeof f->crs, "urn:ogc:def:crs:EPSG::%d", sp_scan_epsg(scan));
}

/* Opens a scan, names its output and checks it. */
static sp_status check_scan(label_files *f, const label_model *m,
                            const label_options *o, label_index *index, int i)
{
    const sp_scan_options options = vox_scan_options(m->vox);
    char path[LABEL_PATH];
    label_raster map;
    SP_CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;

    SP_TRY(sp_scan_open(&scan, o->vox.input[i], &options));
    SP_TRY(vox_scan_keep_near(scan, m->vox, i));
    SP_TRY(name_output(scan, f->file[i].name));
    f->file[i].n_points = sp_scan_count(scan);
    set_extent(f, scan, i);
    if (o->buffer > 0)
        SP_TRY(label_index_find(index, scan, &f->file[i].n_points, &f->file[i].extent));
    path_of(f->dir, f->file[i].name, "", path);
    f->file[i].section = m->vox->is_window ? 0 : sp_scan_section(scan, path);
    SP_TRY(label_model_check(m, o, scan, path));
    f->file[i].most_code = sp_scan_most_code(scan, path);
    return o->raster > 0
               ? label_raster_lay_out(&map, o->vox.input[i], &f->file[i].extent,
                                      o->raster, m->n_classes)
               : SP_OK;
}

/* The scan in the two lines of word_made, cut out of them; NULL if missing. */
static char *scan_of(char *made)
{
    char *line = strchr(made, '\n');
    char *scan = line ? strstr(line, SCAN "/") : NULL, *end;

    if (!scan)
        return NULL;
    scan += strlen(SCAN);
    for (int spaces = 0; spaces < 3; spaces++) { /* before "N bytes TIME" */
        end = strrchr(scan, ' ');
        if (!end)
            return NULL;
        *end = '\0';
    }
    return scan;
}

/* Scans of one name in several folders become outputs of one name: fails if output i
 * was made of another scan, which is still there. A scan that was moved is the same. */
static sp_status check_origin(const label_files *f, const char *scan, int i)
{
    char path[LABEL_PATH], *origin;
    SP_FREED char *made = NULL;
    struct stat was = {0}, is = place_of(scan);

    SP_TRY(sp_file_read(path_of(f->work, f->file[i].name, MADE, path), &made, NULL));
    origin = scan_of(made);
    if (origin)
        was = place_of(origin);
    if (was.st_ino && (was.st_dev != is.st_dev || was.st_ino != is.st_ino))
        return SP_FAIL(SP_EUSAGE,
                       "%s/%s was made of %s, not of %s; choose another --out, or "
                       "--overwrite replaces it",
                       f->dir, f->file[i].name, origin, scan);
    return SP_OK;
}

void label_files_skip(label_files *f, int i, const char *why)
{
    f->file[i].is_skipped = true;
    f->file[i].extent = (vox_extent){{1, 1}, {-1, -1}}; /* no context for others */
    if (!f->first_fault[0])
        snprintf(f->first_fault, sizeof f->first_fault, "%.900s", why);
}

sp_status label_files_report_skipped(const label_files *f, sp_comm *comm)
{
    SP_FREED unsigned char *is_skipped = NULL;
    int n = 0;
    sp_status rc = SP_OK;

    SP_TRY(sp_comm_agree(comm, SP_NEW(&is_skipped, f->n, "the scans")));
    for (int i = 0; i < f->n; i++)
        is_skipped[i] = f->file[i].is_skipped;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, is_skipped, (size_t)f->n, SP_U8,
                             SP_MAX));
    for (int i = 0; i < f->n; i++)
        n += is_skipped[i];
    if (f->first_fault[0])
        rc = SP_FAIL(SP_EDATA, "%d of %d scans %s not labelled; the first: %s", n, f->n,
                     n == 1 ? "was" : "were", f->first_fault);
    return sp_comm_agree(comm, rc);
}

static sp_status check_scans_of(label_files *f, const label_model *m,
                                const label_options *o)
{
    SP_CLOSED_BY(label_index_free) label_index index = {0};
    int n_skipped = 0;

    SP_TRY(label_index_read(&index, o->index));
    for (int i = 0; i < f->n; i++) {
        const sp_status rc = check_scan(f, m, o, &index, i);

        if (rc != SP_EDATA || f->n == 1) {
            SP_TRY(rc);
            continue;
        }
        label_files_skip(f, i, sp_error_last()->message);
        sp_log_warn0("skipped: %s", sp_error_last()->message);
        if (++n_skipped == f->n)
            return SP_FAIL(SP_EDATA, "%s", f->first_fault);
    }
    return label_index_write(&index, o->index);
}

/* A code that no scan can have would keep nothing. The codes of another field are not
 * known before it is read. */
static sp_status check_kept(const label_files *f, const label_options *o)
{
    int most = -1;

    if (!o->keep || o->vox.label_field)
        return SP_OK;
    for (int i = 0; i < f->n; i++)
        most = !f->file[i].is_skipped && f->file[i].most_code > most
                   ? f->file[i].most_code
                   : most;
    for (int code = VOX_MAX_CODE; code > most; code--)
        if (o->keep[code])
            return SP_FAIL(SP_EUSAGE, "--keep %d: these scans hold codes from 0 to %d",
                           code, most);
    return SP_OK;
}

static sp_status check_all(label_files *f, const label_model *m, const label_options *o)
{
    SP_TRY(check_scans_of(f, m, o));
    SP_TRY(check_kept(f, o));
    SP_TRY(check_names(f, o));
    SP_TRY(check_scans(f, o));
    SP_TRY(label_files_sort(f));
    for (int i = 0; i < f->n; i++) {
        bool is_there, is_ours;

        if (f->file[i].is_skipped)
            continue;
        SP_TRY(look(f, i, &is_there, &is_ours, &f->file[i].is_done));
        if (is_there && !is_ours && !o->overwrite)
            return SP_FAIL(SP_EUSAGE,
                           "%s/%s exists and was not made by this command, or was "
                           "changed since; --overwrite replaces it",
                           f->dir, f->file[i].name);
        if (is_ours && !f->file[i].is_done && !o->overwrite)
            SP_TRY(check_origin(f, o->vox.input[i], i));
    }
    return SP_OK;
}

/* ---- open and close ---- */

static sp_status make_texts(label_files *f, const label_model *m,
                            const label_options *o)
{
    size_t n = strlen(o->out);

    f->n = o->vox.n_inputs;
    f->options = o;
    if (o->n_tasks > 1)
        snprintf(f->tmp, sizeof f->tmp, "tmp-%d-of-%d", o->task, o->n_tasks);
    else
        snprintf(f->tmp, sizeof f->tmp, "tmp");
    f->file = calloc((size_t)f->n, sizeof *f->file);
    while (n > 1 && o->out[n - 1] == '/')
        n--;
    f->dir = strndup(o->out, n);
    f->work = malloc(n + sizeof WORK);
    SP_TRY(describe(&f->made_by, m, o));
    if (!f->file || !f->dir || !f->work)
        return SP_FAIL(SP_EMEM, "no memory for %d outputs", f->n);
    if (n > LABEL_PATH - LABEL_NAME - 64)
        return SP_FAIL(SP_EUSAGE, "--out %.100s...: the path is too long", o->out);
    snprintf(f->work, n + sizeof WORK, "%s%s", f->dir, WORK);
    return SP_OK;
}

sp_status label_files_open(label_files *f, label_model *m, const label_options *o)
{
    sp_session *s = &m->infer.session;
    sp_status rc;

    assert(m->n_classes >= 1 && o->out);
    *f = (label_files){0};
    rc = make_texts(f, m, o);
    if (rc == SP_OK && s->comm->rank == 0)
        rc = check_all(f, m, o);
    SP_TRY(sp_comm_agree(s->comm, rc));
    SP_TRY(sp_comm_bcast(s->comm, f->file, (size_t)f->n * sizeof *f->file, 0));
    return sp_comm_agree(s->comm, label_files_sort(f));
}

void label_files_close(label_files *f)
{
    free(f->file);
    free(f->begin);
    free(f->dir);
    free(f->work);
    free(f->made_by);
    *f = (label_files){0};
}
