#include "vox/vox_rim.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "vox/vox_cloud.h"

#define UNFINISHED ".new"

enum { ROWS = 4096 /* that are held at a time */ };

/* A rim while it is read or made. A row is a point: x, y, z and its attributes. */
typedef struct rim {
    const vox_options *options;
    char path[PATH_MAX];
    int fd;           /* -1: it is neither read nor made */
    int64_t at, n;    /* byte of the file; rows that are held */
    size_t row;       /* doubles of a row */
    double *rows;     /* [ROWS] */
    vox_extent *near; /* [n_near] where other inputs need points */
    int n_near;
} rim;

static void rim_path(const vox_options *o, const vox_rim_part *p, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s-%d-%d-%d", o->rims, p->file, p->part, p->n_parts);
}

/* ---- a rim is read ---- */

static sp_status rim_read(rim *r, int64_t bytes, vox_rim_take *take, void *arg)
{
    const size_t most = ROWS * r->row * sizeof *r->rows;

    while (r->at < bytes) {
        const size_t left = (size_t)(bytes - r->at), n = left < most ? left : most;

        SP_TRY(sp_file_read_at(r->fd, r->path, r->rows, n, r->at));
        r->at += (int64_t)n;
        sp_liveness_count();
        SP_TRY(vox_options_check_stop(r->options));
        for (size_t i = 0; i < n / sizeof *r->rows; i += r->row)
            SP_TRY(take(arg, r->rows + i, r->rows + i + 3));
    }
    return SP_OK;
}

/* ---- a rim is made ---- */

/* Lists where the other inputs need points of the input. */
static sp_status rim_list_near(rim *r, int file)
{
    const vox_options *o = r->options;

    SP_TRY(SP_NEW(&r->near, o->n_inputs, "the extents of scans"));
    for (int i = 0; i < o->n_inputs; i++) {
        vox_extent e = o->extent[i];

        if (i == file || !vox_extent_is_near(&e, &o->extent[file], o->buffer))
            continue;
        for (int a = 0; a < 2; a++) {
            e.low[a] -= o->buffer;
            e.high[a] += o->buffer;
        }
        r->near[r->n_near++] = e;
    }
    return SP_OK;
}

static bool rim_needs(const rim *r, const double *xyz)
{
    for (int i = 0; i < r->n_near; i++) {
        const vox_extent *e = &r->near[i];

        if (e->low[0] <= xyz[0] && xyz[0] <= e->high[0] && e->low[1] <= xyz[1] &&
            xyz[1] <= e->high[1])
            return true;
    }
    return false;
}

/* Gives the rim up; the next neighbour reads the input itself. */
static void rim_drop(rim *r)
{
    if (r->fd >= 0) {
        close(r->fd);
        unlink(r->path);
    }
    r->fd = -1;
}

/* Writes the rows that are held. A disk without room for them has no rim. */
static void rim_flush(rim *r)
{
    const size_t bytes = (size_t)r->n * r->row * sizeof *r->rows;

    if (bytes > 0 && r->fd >= 0 &&
        sp_file_write_at(r->fd, r->path, r->rows, bytes, r->at) != SP_OK)
        rim_drop(r);
    r->at += (int64_t)bytes;
    r->n = 0;
}

/* Writes the points that other inputs need. */
static void rim_add(rim *r, const sp_scan_points *points)
{
    const size_t n_attrs = r->row - 3;

    for (int64_t i = 0; r->fd >= 0 && i < points->n; i++) {
        double *to = r->rows + (size_t)r->n * r->row;

        if (!rim_needs(r, points->xyz + 3 * i))
            continue;
        memcpy(to, points->xyz + 3 * i, 3 * sizeof *to);
        memcpy(to + 3, points->attr + (size_t)i * n_attrs, n_attrs * sizeof *to);
        if (++r->n == ROWS)
            rim_flush(r);
    }
}

/* Gives the complete rim its name. */
static void rim_finish(rim *r, const vox_rim_part *p)
{
    char path[PATH_MAX];

    rim_flush(r);
    if (r->fd < 0)
        return;
    rim_path(r->options, p, path);
    if (close(r->fd) != 0 || rename(r->path, path) != 0)
        unlink(r->path);
    r->fd = -1;
}

/* Reads the part of the input; what other inputs need goes to the rim, if it is open. */
static sp_status rim_read_input(rim *r, const vox_rim_part *p, vox_rim_take *take,
                                void *arg)
{
    const size_t n_attrs = r->row - 3;
    SP_CLOSED_BY(sp_scan_points_destroy) sp_scan_points points = {0};
    SP_CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;

    SP_TRY(vox_scan_open(&scan, r->options, p->file));
    SP_TRY(sp_scan_limit(scan, p->part, p->n_parts));
    do {
        SP_TRY(sp_scan_next(scan, SP_SCAN_BLOCK, &points));
        sp_liveness_count();
        SP_TRY(vox_options_check_stop(r->options));
        rim_add(r, &points);
        for (int64_t i = 0; i < points.n; i++)
            SP_TRY(take(arg, points.xyz + 3 * i, points.attr + (size_t)i * n_attrs));
    } while (points.n > 0);
    rim_finish(r, p);
    return SP_OK;
}

/* ---- either ---- */

/* True if rims hold all points of `reach`: it lies within what an input needs. */
static bool rims_cover(const vox_options *o, int file, const vox_extent *reach)
{
    bool is_within = false;

    for (int i = 0; i < o->n_inputs && !is_within; i++) {
        const vox_extent *e = &o->extent[i];

        is_within = i != file && e->low[0] <= e->high[0];
        for (int a = 0; a < 2; a++)
            is_within = is_within && reach->low[a] >= e->low[a] - o->buffer &&
                        reach->high[a] <= e->high[a] + o->buffer;
    }
    return is_within;
}

/* Opens the rim to be read, or else the file to make it. */
static sp_status rim_open(rim *r, const vox_rim_part *p, bool *is_made)
{
    const size_t n = strlen(r->path);

    SP_TRY(SP_NEW(&r->rows, ROWS * r->row, r->path));
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC);
    *is_made = r->fd >= 0;
    if (*is_made)
        return SP_OK;
    snprintf(r->path + n, sizeof r->path - n, UNFINISHED);
    r->fd = open(r->path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    return rim_list_near(r, p->file);
}

sp_status vox_rim_each(const vox_options *o, const vox_rim_part *p,
                       const vox_extent *reach, vox_rim_take *take, void *arg)
{
    rim r = {.options = o, .fd = -1, .row = 3 + (size_t)vox_attributes_of(o)};
    bool is_made = false;
    sp_status rc = SP_OK;

    assert(0 <= p->part && p->part < p->n_parts && take);
    if (o->rims && rims_cover(o, p->file, reach)) {
        rim_path(o, p, r.path);
        rc = rim_open(&r, p, &is_made);
    }
    if (rc == SP_OK && is_made) {
        rc = rim_read(&r, lseek(r.fd, 0, SEEK_END), take, arg);
        close(r.fd);
    } else {
        if (rc == SP_OK)
            rc = rim_read_input(&r, p, take, arg);
        rim_drop(&r);
    }
    free(r.rows);
    free(r.near);
    return rc;
}

void vox_rim_remove(const vox_options *o, int file, int n_parts)
{
    char path[PATH_MAX];

    for (int part = 0; part < n_parts; part++) {
        rim_path(o, &(vox_rim_part){file, part, n_parts}, path);
        unlink(path);
    }
}
