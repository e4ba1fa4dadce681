/* The points of a copy of a LAS or LAZ file, by one writer or in parts. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_number.h"
#include "scan/sp_scan_las_copy.h"

enum {
    PORTION_BYTES = 1 << 18,
    SECTION = 16384,     /* rows of a section of LAS */
    LEAST_SECTION = 4096 /* rows; smaller ones would cost more than they divide */
};

sp_status sp_las_put_bytes(const sp_las_copy *c, const void *from, size_t n)
{
    if (fwrite(from, 1, n, c->to) != n)
        return SP_FAIL(SP_EIO, "%s: cannot write: %s", c->path, strerror(errno));
    return SP_OK;
}

/* Some records of the copy, and the values to write into them. */
typedef struct portion {
    int64_t most; /* records that fit */
    unsigned char *source, *record;
    int32_t *code;
    float *value;
} portion;

static sp_status make_portion(const sp_las_copy *c, portion *p)
{
    const int n_added = c->labels->n_added;
    size_t n = (size_t)(PORTION_BYTES / c->extra.record_bytes);

    p->most = (int64_t)n;
    p->source = malloc(n * (size_t)c->scan->record_bytes);
    p->record = malloc(n * (size_t)c->extra.record_bytes);
    p->code = malloc(n * sizeof *p->code);
    p->value = malloc(n * (size_t)n_added * sizeof *p->value + 1);
    if (!p->source || !p->record || !p->code || !p->value)
        return SP_FAIL(SP_EMEM, "%s: no memory to copy it", c->scan->path);
    return SP_OK;
}

/* Writes a class into a record. Formats 0 to 5 have flags in the same byte, and may
 * have a wider place for classes above 31 (sp_las.wide_class_at). */
static void change_class(const sp_las_copy *c, unsigned char *record, int32_t code)
{
    const int wide_at = sp_las_of(c->scan)->wide_class_at;
    const bool is_wide = wide_at > 0 && code > 31;

    if (c->header->format >= 6) {
        record[16] = (unsigned char)code;
        return;
    }
    record[15] = (unsigned char)((record[15] & 0xe0) | (is_wide ? 0 : code));
    if (wide_at > 0)
        record[wide_at] = (unsigned char)(is_wide ? code : 0);
}

/* Makes n records of the copy, from row scan->row on. */
static sp_status change_records(const sp_las_copy *c, portion *p, int64_t n)
{
    const int32_t limit = sp_las_most_code(c->scan);
    const size_t old = (size_t)c->scan->record_bytes;
    unsigned char *to = p->record;

    SP_TRY(c->labels->get(c->labels->from, c->scan->row, n, p->code, p->value));
    for (int64_t i = 0; i < n; i++, to += c->extra.record_bytes) {
        int32_t code = p->code[i] == SP_SCAN_NO_CLASS ? 0 : p->code[i];

        memcpy(to, p->source + (size_t)i * old, old);
        if (code > limit)
            return SP_FAIL(SP_EDATA, "%s: class code %d, but %s holds 0 to %d",
                           c->scan->path, code, c->scan->title, limit);
        if (code != SP_SCAN_KEEP)
            change_class(c, to, code);
        sp_las_extra_put(&c->extra, p->value + i * c->extra.n, to);
    }
    return SP_OK;
}

/* Writes records, and ends a chunk where the source's chunk ends, if chunks differ. */
static sp_status write_records(sp_las_copy *c, sp_laz_writer *laz,
                               const sp_laz_place **chunk, const unsigned char *records,
                               int64_t n)
{
    size_t bytes = (size_t)c->extra.record_bytes;
    int64_t row = c->scan->row, end = row + n;

    if (!laz)
        return sp_las_put_bytes(c, records, (size_t)n * bytes);
    while (*chunk && (*chunk)->first + (*chunk)->n <= end) {
        int64_t some = (*chunk)->first + (*chunk)->n - row;

        SP_TRY(sp_laz_write(laz, records, some));
        SP_TRY(sp_laz_cut(laz));
        records += (size_t)some * bytes;
        row += some;
        if (++*chunk, row == c->scan->n_points)
            *chunk = NULL;
    }
    return sp_laz_write(laz, records, end - row);
}

/* True if a record's point is within the window; x and y as sp_scan_next has them. */
static bool is_in_window(const sp_las_copy *c, const unsigned char *record)
{
    const double *w = c->labels->window;

    for (int a = 0; a < 2; a++) {
        volatile double scaled =
            (int32_t)sp_get32(record + 4 * a) * c->header->scale[a];
        const double x = scaled + c->header->offset[a];

        if (!(w[a] <= x && x < w[a + 2]))
            return false;
    }
    return true;
}

static void count_written(sp_las_copy *c, const unsigned char *record)
{
    const int number = record[14] & (c->header->format < 6 ? 7 : 15);

    for (int a = 0; a < 3; a++) {
        const int32_t x = (int32_t)sp_get32(record + 4 * a);

        c->low[a] = c->n_written == 0 || x < c->low[a] ? x : c->low[a];
        c->high[a] = c->n_written == 0 || x > c->high[a] ? x : c->high[a];
    }
    c->n_written++;
    if (number >= 1)
        c->by_return[number - 1]++;
}

/* Leaves out the records outside the window, and returns the number of the others. */
static int64_t cut_records(sp_las_copy *c, unsigned char *record, int64_t n)
{
    const size_t bytes = (size_t)c->extra.record_bytes;
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++) {
        const unsigned char *from = record + (size_t)i * bytes;

        if (!is_in_window(c, from))
            continue;
        count_written(c, from);
        memmove(record + (size_t)kept++ * bytes, from, bytes);
    }
    return kept;
}

/* Writes the rows first .. end - 1. */
static sp_status las_write_rows(sp_las_copy *c, sp_laz_writer *laz, portion *p,
                                const sp_laz_place *chunk, int64_t first, int64_t end)
{
    sp_scan *scan = c->scan;
    int64_t n;

    for (scan->row = first; scan->row < end; scan->row += n) {
        SP_TRY(
            sp_scan_records(scan, sp_least(end - scan->row, p->most), p->source, &n));
        SP_TRY(change_records(c, p, n));
        sp_liveness_count();
        SP_TRY(write_records(c, laz, &chunk, p->record,
                             c->labels->window ? cut_records(c, p->record, n) : n));
    }
    return SP_OK;
}

/* Writes the points of the window from the marked chunks of a COPC scan. The others, of
 * the window's surroundings, are not read again. */
static sp_status las_write_marked(sp_las_copy *c, sp_laz_writer *laz, portion *p,
                                  const bool *is_wanted)
{
    sp_laz_reader *reader = sp_las_of(c->scan)->reader;
    int64_t n, end;
    const sp_laz_place *chunk = sp_laz_chunks(reader, &n);

    for (int64_t first = 0; first < n; first = end) {
        end = first + 1;
        if (!is_wanted[first])
            continue;
        while (end < n && is_wanted[end])
            end++;
        SP_TRY(sp_laz_select(reader, first, end, 1));
        SP_TRY(las_write_rows(c, laz, p, NULL, chunk[first].first,
                              chunk[end - 1].first + chunk[end - 1].n));
    }
    return SP_OK;
}

static sp_status las_write_all(sp_las_copy *c, sp_laz_writer *laz, portion *p)
{
    SP_FREED bool *is_wanted = NULL;
    const sp_laz_place *chunk = NULL;

    if (laz && c->format.chunk_points == UINT32_MAX && !c->labels->window)
        chunk = sp_laz_chunks(sp_las_of(c->scan)->reader, NULL);
    SP_TRY(sp_scan_rewind(c->scan));
    if (c->labels->window && c->scan->format == &sp_scan_laz)
        SP_TRY(sp_copc_find(c->scan, c->labels->window, &is_wanted));
    return is_wanted ? las_write_marked(c, laz, p, is_wanted)
                     : las_write_rows(c, laz, p, chunk, 0, c->scan->n_points);
}

/* ---- parts ---- */

int64_t sp_las_section(sp_scan *scan, const sp_scan_format *as)
{
    uint32_t rows;

    if (scan->format == &sp_scan_las)
        return as == &sp_scan_laz ? SP_LAZ_CHUNK : SECTION;
    if (scan->format != &sp_scan_laz || !sp_laz_chunks(sp_las_of(scan)->reader, NULL))
        return 0;
    rows = sp_las_of(scan)->format.chunk_points;
    return rows == UINT32_MAX || rows < LEAST_SECTION ? 0 : rows;
}

static int64_t section_end(const sp_las_copy *c, int64_t first, int64_t rows)
{
    return first + sp_least(rows, c->scan->n_points - first);
}

/* Writes the sections of a part; a chunk of a LAZ copy ends with each. */
static sp_status write_part(sp_las_copy *c, sp_laz_writer *laz, portion *p)
{
    const int64_t rows = sp_las_section(c->scan, c->part->format);
    sp_laz_reader *reader = sp_las_of(c->scan)->reader;
    int64_t n_chunks;

    assert(rows > 0);
    if (reader) { /* a section is a chunk */
        sp_laz_chunks(reader, &n_chunks);
        SP_TRY(sp_laz_select(reader, sp_least(c->part->k, n_chunks), n_chunks,
                             c->part->n));
    }
    for (int64_t at = c->part->k * rows; at < c->scan->n_points;
         at += c->part->n * rows)
        SP_TRY(las_write_rows(c, laz, p, NULL, at, section_end(c, at, rows)));
    return SP_OK;
}

/* One part while parts are joined. */
typedef struct source {
    int fd;
    int64_t at;            /* LAS: the next byte */
    sp_laz_reader *reader; /* LAZ: for the table of its chunks */
    int64_t chunk;         /* the next one */
} source;

/* The rows of part k. */
static int64_t rows_of_part(const sp_las_copy *c, int k, int64_t rows)
{
    int64_t n = 0;

    for (int64_t at = k * rows; at < c->scan->n_points; at += c->part->n * rows)
        n += section_end(c, at, rows) - at;
    return n;
}

static sp_status las_open_source(const sp_las_copy *c, int k, int64_t rows, source *s)
{
    sp_laz_file file = {.path = c->part->path[k], .n_points = rows_of_part(c, k, rows)};
    off_t bytes;

    SP_TRY(sp_file_open(c->part->path[k], O_RDONLY, &s->fd));
    if (!c->is_laz)
        return SP_OK;
    bytes = lseek(s->fd, 0, SEEK_END);
    if (bytes < 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", c->part->path[k],
                       strerror(errno));
    file.fd = s->fd;
    file.file_bytes = bytes;
    return sp_laz_open(&s->reader, &file, &c->format, 1);
}

/* Copies the next section of a part, of n rows. */
static sp_status join_section(const sp_las_copy *c, sp_laz_writer *laz, int k,
                              source *s, int64_t n, unsigned char **buffer,
                              size_t *room)
{
    size_t bytes = (size_t)n * (size_t)c->extra.record_bytes;
    int64_t at = s->at, n_chunks;

    if (laz) {
        const sp_laz_place *chunk = sp_laz_chunks(s->reader, &n_chunks);

        if (!chunk || s->chunk >= n_chunks || chunk[s->chunk].n != n)
            return SP_FAIL(SP_EIO, "%s: is not as it was written", c->part->path[k]);
        at = chunk[s->chunk].at;
        bytes = (size_t)chunk[s->chunk++].bytes;
    }
    s->at += (int64_t)bytes;
    if (!sp_list_reserve(buffer, room, bytes))
        return SP_FAIL(SP_EMEM, "%s: no memory for %zu bytes", c->path, bytes);
    SP_TRY(sp_file_read_at(s->fd, c->part->path[k], *buffer, bytes, at));
    sp_liveness_count();
    return laz ? sp_laz_put(laz, *buffer, (int64_t)bytes, n)
               : sp_las_put_bytes(c, *buffer, bytes);
}

static sp_status join_sections(const sp_las_copy *c, sp_laz_writer *laz, source *s)
{
    const int64_t rows = sp_las_section(c->scan, c->part->format);
    SP_FREED unsigned char *buffer = NULL;
    size_t room = 0;
    int k = 0;

    assert(rows > 0);
    for (int i = 0; i < c->part->n; i++)
        SP_TRY(las_open_source(c, i, rows, &s[i]));
    for (int64_t at = 0; at < c->scan->n_points; at += rows) {
        SP_TRY(join_section(c, laz, k, &s[k], section_end(c, at, rows) - at, &buffer,
                            &room));
        k = (k + 1) % c->part->n;
    }
    return SP_OK;
}

static sp_status las_join(const sp_las_copy *c, sp_laz_writer *laz)
{
    source *s;
    sp_status rc;

    SP_TRY(SP_NEW(&s, c->part->n, c->path));
    for (int i = 0; i < c->part->n; i++)
        s[i].fd = -1;
    rc = join_sections(c, laz, s);
    for (int i = 0; i < c->part->n; i++) {
        sp_laz_close(s[i].reader);
        if (s[i].fd >= 0)
            close(s[i].fd);
    }
    free(s);
    return rc;
}

sp_status sp_las_put_points(sp_las_copy *c, sp_laz_writer *laz)
{
    portion p = {0};
    sp_status rc = c->part->path ? las_join(c, laz) : make_portion(c, &p);

    if (rc == SP_OK && !c->part->path)
        rc = c->part->n > 0 ? write_part(c, laz, &p) : las_write_all(c, laz, &p);
    free(p.source);
    free(p.record);
    free(p.code);
    free(p.value);
    return rc == SP_OK && laz ? sp_laz_finish(laz) : rc;
}
