#include "label/label_index.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_signal.h"

#define INDEX_HEAD "sptrain-index 1\n"

bool label_index_stamp(const char *path, char text[64])
{
    struct stat st;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    snprintf(text, 64, "%lld %lld.%09ld", (long long)st.st_size,
             (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return true;
}

/* By path and stamp. */
static int by_stamp(const void *a, const void *b)
{
    const label_index_entry *x = a, *y = b;
    const int order = strcmp(x->path, y->path);

    return order ? order : strcmp(x->stamp, y->stamp);
}

/* By path; those that this run has found are the last ones of a path. */
static int by_path(const void *a, const void *b)
{
    const label_index_entry *x = a, *y = b;
    const int order = strcmp(x->path, y->path);

    return order ? order : x->is_found - y->is_found;
}

/* Appends an entry; owns its path afterwards. */
static sp_status index_add(label_index *x, label_index_entry entry)
{
    if (!entry.path || !sp_list_grow(&x->entry, x->n, sizeof *x->entry)) {
        free(entry.path);
        return SP_FAIL(SP_EMEM, "no memory for an index of scans");
    }
    x->entry[x->n++] = entry;
    return SP_OK;
}

static sp_status index_parse_line(label_index *x, const char *file, const char *line)
{
    label_index_entry e = {0};
    char bytes[32], time[32];
    int used = 0;

    if (sscanf(line, "%31s %31s %" SCNd64 " %lf %lf %lf %lf %n", bytes, time,
               &e.n_points, &e.extent.low[0], &e.extent.low[1], &e.extent.high[0],
               &e.extent.high[1], &used) != 7 ||
        used == 0 || line[used] != '/')
        return SP_FAIL(SP_EDATA,
                       "%s: \"%.60s\": expected 7 numbers and an absolute path; "
                       "remove the file to make it anew",
                       file, line);
    snprintf(e.stamp, sizeof e.stamp, "%s %s", bytes, time);
    e.path = strdup(line + used);
    return index_add(x, e);
}

sp_status label_index_read(label_index *x, const char *path)
{
    char *text = NULL, *line;
    sp_status rc = SP_OK;

    *x = (label_index){0};
    if (!path || sp_file_is_absent(path))
        return SP_OK;
    SP_TRY(sp_file_read(path, &text, NULL));
    line = text;
    if (strncmp(line, INDEX_HEAD, strlen(INDEX_HEAD)) != 0)
        rc = SP_FAIL(SP_EDATA, "%s: is no index of scans; expected it to begin with %s",
                     path, INDEX_HEAD);
    line += rc == SP_OK ? strlen(INDEX_HEAD) : 0;
    while (rc == SP_OK && *line) {
        char *end = line + strcspn(line, "\n");
        const bool is_last = *end == '\0';

        *end = '\0';
        rc = index_parse_line(x, path, line);
        line = is_last ? end : end + 1;
    }
    free(text);
    x->n_read = x->n;
    if (x->n > 0)
        qsort(x->entry, (size_t)x->n, sizeof *x->entry, by_stamp);
    return rc;
}

void label_index_free(label_index *x)
{
    for (int64_t i = 0; i < x->n; i++)
        free(x->entry[i].path);
    free(x->entry);
    *x = (label_index){0};
}

/* Reads all points for their number and extent. */
static sp_status index_measure(sp_scan *scan, int64_t *n_points, vox_extent *e)
{
    SP_CLOSED_BY(sp_scan_points_destroy) sp_scan_points points = {0};

    *e = (vox_extent){{INFINITY, INFINITY}, {-INFINITY, -INFINITY}};
    *n_points = 0;
    do {
        SP_TRY(sp_scan_next(scan, SP_SCAN_BLOCK, &points));
        SP_TRY(sp_signal_check());
        sp_liveness_count();
        for (int64_t i = 0; i < points.n; i++)
            for (int a = 0; a < 2; a++) {
                e->low[a] = fmin(e->low[a], points.xyz[3 * i + a]);
                e->high[a] = fmax(e->high[a], points.xyz[3 * i + a]);
            }
        *n_points += points.n;
    } while (points.n > 0);
    return sp_scan_rewind(scan);
}

sp_status label_index_find(label_index *x, sp_scan *scan, int64_t *n_points,
                           vox_extent *extent)
{
    char whole[PATH_MAX];
    label_index_entry e = {.path = whole, .is_found = true}, *known = NULL;
    double low[3], high[3];

    assert(x && scan && n_points && extent);
    *n_points = sp_scan_count(scan);
    if (!realpath(sp_scan_path(scan), whole) || !label_index_stamp(whole, e.stamp))
        return SP_FAIL(SP_EIO, "%s: cannot be found any more", sp_scan_path(scan));
    if (x->n_read > 0)
        known = bsearch(&e, x->entry, (size_t)x->n_read, sizeof e, by_stamp);
    if (known) {
        known->is_found = true;
        *n_points = known->n_points;
        *extent = known->extent;
        return SP_OK;
    }
    e.n_points = *n_points;
    if (sp_scan_extent(scan, low, high))
        e.extent = (vox_extent){{low[0], low[1]}, {high[0], high[1]}};
    else
        SP_TRY(index_measure(scan, &e.n_points, &e.extent));
    *n_points = e.n_points;
    *extent = e.extent;
    e.path = strdup(whole);
    x->is_changed = true;
    return index_add(x, e);
}

sp_status label_index_write(label_index *x, const char *path)
{
    SP_FREED char *text = NULL;
    size_t bytes = 0;
    FILE *to;

    if (!path || !x->is_changed)
        return SP_OK;
    to = open_memstream(&text, &bytes);
    if (!to)
        return SP_FAIL(SP_EMEM, "%s: no memory to write it", path);
    fputs(INDEX_HEAD, to);
    qsort(x->entry, (size_t)x->n, sizeof *x->entry, by_path);
    for (int64_t i = 0; i < x->n; i++) {
        const label_index_entry *e = &x->entry[i];

        if ((i + 1 == x->n || strcmp(e->path, e[1].path) != 0) &&
            !strchr(e->path, '\n'))
            fprintf(to, "%s %" PRId64 " %.17g %.17g %.17g %.17g %s\n", e->stamp,
                    e->n_points, e->extent.low[0], e->extent.low[1], e->extent.high[0],
                    e->extent.high[1], e->path);
    }
    return sp_file_close(to) ? sp_file_replace(path, text, bytes, (int)getpid())
                             : SP_FAIL(SP_EMEM, "%s: no memory to write it", path);
}
