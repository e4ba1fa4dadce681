/* The reader: chunks in the order of the file, decoded by the caller, or ahead of it by
 * n threads: worker k has the chunks k, k + n, k + 2 n, ...
 *
 *     task     decodes a portion into the worker's records --> ends --+
 *     caller   starts it again <-- copies the records out <-- joins it+
 *
 * A portion is a whole chunk, if it is not too large. Without a chunk table the place
 * of a chunk is known when the one before is decoded, so only the caller decodes. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "base/sp_task.h"
#include "scan/laz/sp_laz_chunk.h"

enum {
    PORTION_BYTES = 1 << 20, /* of records, at most */
    MOST_THREADS = 64
};

/* While the task runs, all of this is its own. */
typedef struct worker {
    const sp_laz_reader *reader;
    sp_task task;
    laz_decoder decoder;
    int64_t chunk; /* the one that is decoded */
    bool is_begun; /* the decoder is within it */
    unsigned char *records;
    size_t room;      /* bytes of records */
    int64_t n, taken; /* records in the portion; of these, given to the caller */
} worker;

struct sp_laz_reader {
    sp_laz_file file;
    sp_laz_format format;
    laz_table table;
    laz_copy copy;
    /* The chunks to read: first, first + step, ... below end. */
    int64_t first, end, step;
    bool is_selected; /* these are not all */
    int64_t chunk;    /* the one that is read */
    int64_t row;      /* the next point */
    sp_status rc;     /* after a failure nothing more is read */
    /* The caller's own decoder, if only the caller decodes. */
    laz_decoder decoder;
    bool is_begun; /* the decoder is within the chunk */
    int64_t at;    /* the next chunk, without a table */
    int n_threads;
    int64_t from;   /* the chunk that worker 0 began with */
    worker *worker; /* [n_threads] or NULL */
};

/* ---- workers ---- */

/* Decodes the next portion of the worker's chunk. */
static sp_status decode_portion(void *context)
{
    worker *w = context;
    const sp_laz_reader *r = w->reader;
    laz_decoder *d = &w->decoder;

    if (!w->is_begun)
        SP_TRY(
            sp_laz_decoder_begin(d, w->chunk, &r->table.chunk[w->chunk], r->table.end));
    w->is_begun = true;
    w->taken = 0;
    w->n = sp_least(d->place.n - d->done, PORTION_BYTES / r->format.record_bytes);
    if (!sp_list_reserve(&w->records, &w->room,
                         (size_t)w->n * (size_t)r->format.record_bytes))
        return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " points", r->file.path,
                       w->n);
    return w->n > 0 ? sp_laz_decoder_next(d, w->records, w->n) : SP_OK;
}

/* Starts the decoding of the next portion, if there is a chunk left for the worker. */
static sp_status decode_ahead(worker *w)
{
    return w->chunk < w->reader->end ? sp_task_start(&w->task, decode_portion, w)
                                     : SP_OK;
}

/* Ends the workers and drops their decoded chunks. */
static void laz_read_stop(sp_laz_reader *r)
{
    for (int i = 0; r->worker && i < r->n_threads; i++) {
        sp_task_drop(&r->worker[i].task);
        sp_laz_decoder_destroy(&r->worker[i].decoder);
        free(r->worker[i].records);
    }
    free(r->worker);
    r->worker = NULL;
}

static sp_status laz_read_start(sp_laz_reader *r)
{
    r->from = r->chunk;
    SP_TRY(SP_NEW(&r->worker, r->n_threads, r->file.path));
    for (int i = 0; i < r->n_threads; i++) {
        worker *w = &r->worker[i];

        w->reader = r;
        w->chunk = r->from + i * r->step;
        SP_TRY(sp_laz_decoder_create(&w->decoder, &r->file, &r->copy, &r->format));
        SP_TRY(decode_ahead(w));
    }
    return SP_OK;
}

/* Copies records out of the portion of the worker that has the next chunk. */
static sp_status laz_copy_portion(sp_laz_reader *r, int64_t max, unsigned char *records,
                                  int64_t *n)
{
    const size_t bytes = (size_t)r->format.record_bytes;
    worker *w = &r->worker[(r->chunk - r->from) / r->step % r->n_threads];

    SP_TRY(sp_task_join(&w->task));
    *n = sp_least(w->n - w->taken, max);
    if (*n > 0)
        memcpy(records, w->records + (size_t)w->taken * bytes, (size_t)*n * bytes);
    w->taken += *n;
    if (w->taken < w->n)
        return SP_OK;
    if (w->decoder.done == w->decoder.place.n) {
        w->is_begun = false;
        w->chunk += r->n_threads * r->step;
        r->chunk += r->step;
    }
    return decode_ahead(w);
}

/* ---- without threads ---- */

/* The place of the next chunk, as far as it is known. */
static sp_laz_place next_place(const sp_laz_reader *r)
{
    sp_laz_place place = {r->row, r->file.n_points - r->row, r->at, -1};
    uint32_t points = r->format.chunk_points;

    if (r->table.is_there)
        return r->table.chunk[r->chunk];
    if (r->format.compressor == SP_LAZ_STREAM)
        return place;
    if (points == UINT32_MAX)
        place.n = -1;
    else if (place.n > points)
        place.n = points;
    return place;
}

static sp_status begin_chunk(sp_laz_reader *r)
{
    sp_laz_place place = next_place(r);

    if (place.n < 0 && r->format.compressor != SP_LAZ_LAYERED)
        return SP_FAIL(
            SP_EDATA,
            "%s: its LAZ chunks differ in size, and the chunk table with the "
            "sizes is missing",
            r->file.path);
    SP_TRY(sp_laz_decoder_begin(&r->decoder, r->chunk, &place, r->table.end));
    r->is_begun = true;
    if (r->decoder.place.n > r->file.n_points - r->row)
        return SP_FAIL(SP_EDATA,
                       "%s: LAZ chunk %" PRId64 " has %" PRId64 " points, but %" PRId64
                       " are left",
                       r->file.path, r->chunk, r->decoder.place.n,
                       r->file.n_points - r->row);
    return SP_OK;
}

static sp_status decode_alone(sp_laz_reader *r, int64_t max, unsigned char *records,
                              int64_t *n)
{
    laz_decoder *d = &r->decoder;

    if (!d->file)
        SP_TRY(sp_laz_decoder_create(d, &r->file, &r->copy, &r->format));
    if (!r->is_begun)
        SP_TRY(begin_chunk(r));
    *n = sp_least(d->place.n - d->done, max);
    SP_TRY(sp_laz_decoder_next(d, records, *n));
    if (d->done == d->place.n) {
        r->is_begun = false;
        r->at = d->place.at + d->place.bytes;
        r->chunk += r->step;
    }
    return SP_OK;
}

/* ---- the interface ---- */

sp_status sp_laz_open(sp_laz_reader **reader, const sp_laz_file *file,
                      const sp_laz_format *format, int n_threads)
{
    sp_laz_reader *r = calloc(1, sizeof *r);
    sp_status rc;

    assert(file->path && file->fd >= 0);
    assert(n_threads >= 0);
    *reader = r;
    if (!r)
        return SP_FAIL(SP_EMEM, "%s: no memory to read LAZ", file->path);
    r->file = *file;
    r->format = *format;
    rc = sp_laz_table_read(&r->table, &r->file, &r->format);
    if (rc != SP_OK) {
        sp_laz_close(r);
        *reader = NULL;
        return rc;
    }
    r->at = r->table.begin;
    r->end = r->table.n_chunks;
    r->step = 1;
    r->n_threads = (int)sp_least(sp_least(n_threads, MOST_THREADS), r->table.n_chunks);
    return SP_OK;
}

void sp_laz_close(sp_laz_reader *reader)
{
    if (!reader)
        return;
    laz_read_stop(reader);
    sp_laz_decoder_destroy(&reader->decoder);
    sp_laz_table_destroy(&reader->table);
    if (reader->copy.path)
        close(reader->copy.fd);
    free(reader);
}

static sp_status read_next(sp_laz_reader *r, int64_t max, unsigned char *records,
                           int64_t *n)
{
    if (r->table.is_there && r->chunk >= r->table.n_chunks)
        return SP_FAIL(SP_EDATA, "%s: truncated: fewer points than %" PRId64,
                       r->file.path, r->file.n_points);
    if (r->n_threads <= 1)
        return decode_alone(r, max, records, n);
    if (!r->worker)
        SP_TRY(laz_read_start(r));
    return laz_copy_portion(r, max, records, n);
}

sp_status sp_laz_next(sp_laz_reader *reader, int64_t max, unsigned char *records,
                      int64_t *n)
{
    sp_laz_reader *r = reader;

    assert(max >= 0 && n && (records || max == 0));
    *n = 0;
    max = sp_least(max, r->file.n_points - r->row);
    while (r->rc == SP_OK && *n < max && !(r->is_selected && r->chunk >= r->end)) {
        const int64_t chunk = r->chunk;
        int64_t got = 0;

        r->rc = read_next(r, max - *n, records, &got);
        records += got * r->format.record_bytes;
        r->row += r->rc == SP_OK ? got : 0;
        if (r->is_selected && r->chunk != chunk && r->chunk < r->end)
            r->row = r->table.chunk[r->chunk].first;
        *n += got;
    }
    return r->rc;
}

const sp_laz_place *sp_laz_chunks(const sp_laz_reader *reader, int64_t *n)
{
    if (n)
        *n = reader->table.n_chunks;
    return reader->table.is_there ? reader->table.chunk : NULL;
}

int64_t sp_laz_keep(sp_laz_reader *r, const bool *is_wanted)
{
    int64_t n = 0, n_points = 0;

    assert(r->table.is_there && !r->worker && !r->is_begun);
    for (int64_t i = 0; i < r->table.n_chunks; i++) {
        if (!is_wanted[i])
            continue;
        r->table.chunk[n] = r->table.chunk[i];
        r->table.chunk[n].first = n_points;
        n_points += r->table.chunk[n++].n;
    }
    r->table.n_chunks = r->end = n;
    r->file.n_points = n_points;
    r->n_threads = (int)sp_least(r->n_threads, n);
    return n_points;
}

sp_status sp_laz_copy(sp_laz_reader *r, const char *path, bool is_copied)
{
    assert(!r->worker && !r->is_begun && !r->copy.path);
    if (r->format.compressor != SP_LAZ_LAYERED)
        return SP_OK;
    SP_TRY(sp_file_open(path, is_copied ? O_RDONLY : O_CREAT | O_WRONLY, &r->copy.fd));
    r->copy.path = path;
    r->copy.is_complete = is_copied;
    return SP_OK;
}

sp_status sp_laz_rewind(sp_laz_reader *reader)
{
    if (reader->rc != SP_OK)
        return SP_FAIL(reader->rc, "%s: cannot be read further", reader->file.path);
    laz_read_stop(reader);
    sp_laz_decoder_destroy(&reader->decoder);
    reader->is_begun = false;
    reader->at = reader->table.begin;
    reader->chunk = reader->first;
    reader->row = reader->first > 0 && reader->first < reader->table.n_chunks
                      ? reader->table.chunk[reader->first].first
                      : 0;
    return SP_OK;
}

sp_status sp_laz_select(sp_laz_reader *reader, int64_t first, int64_t end, int64_t step)
{
    assert(reader->table.is_there && step >= 1);
    assert(0 <= first && first <= end && end <= reader->table.n_chunks);
    reader->first = first;
    reader->end = end;
    reader->step = step;
    reader->is_selected = true;
    return sp_laz_rewind(reader);
}

void sp_laz_rest(const sp_laz_reader *reader, int64_t *at, int64_t *end)
{
    assert(at && end);
    *at = reader->table.is_there ? reader->table.end : reader->file.file_bytes;
    *end = reader->table.file_end > *at ? reader->table.file_end : *at;
}
