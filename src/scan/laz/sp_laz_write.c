/* The writer: the records of a chunk are collected, encoded by the caller or by one of
 * n threads, and written by the caller in the order of the file.
 *
 *     caller   collects a chunk --> task encodes it --> ends --------+
 *              joins it, writes it to the file, collects the next <--+
 *
 * Chunk i has place i modulo n, so the caller waits for chunk i - n before it collects
 * chunk i there. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "base/sp_task.h"
#include "scan/laz/sp_laz_chunk.h"
#include "scan/laz/sp_laz_field.h"

enum { MOST_THREADS = 64 };

typedef struct place {
    laz_codec codec;
    unsigned char *records; /* [room] bytes */
    size_t room;
    int64_t n;    /* records collected */
    sp_task task; /* encodes them, with more than one place */
} place;

struct sp_laz_writer {
    const char *path;
    FILE *to;
    sp_laz_format format;
    int64_t at; /* the first byte of the points, the place of the table's offset */
    int64_t n_chunks;
    sp_laz_place *chunk; /* [n_chunks] those written */
    int64_t next;        /* the chunk that is collected */
    int n_places;
    place *place;
};

/* ---- encoding ---- */

static sp_status encode(void *context)
{
    place *p = context;
    laz_codec *z = &p->codec;
    bool is_layered = z->format->compressor == SP_LAZ_LAYERED;

    memset(z->is_used, 0, (size_t)z->n_layers * sizeof *z->is_used);
    z->is_used[0] = true;
    SP_TRY(sp_laz_codec_begin(z, p->records));
    for (int i = 0; i < z->n_layers; i++)
        SP_TRY(sp_laz_encode_begin(&z->coder[i]));
    SP_TRY(sp_laz_codec_encode(z, p->records + z->format->record_bytes, p->n - 1));
    for (int i = 0; i < z->n_layers; i++)
        if (z->is_used[i] || !is_layered)
            sp_laz_encode_end(&z->coder[i]);
    return z->fault.what ? SP_FAIL(z->fault.code, "%s", z->fault.what) : SP_OK;
}

/* ---- the file ---- */

static sp_status laz_write_put(sp_laz_writer *w, const void *from, size_t bytes)
{
    if (bytes > 0 && fwrite(from, 1, bytes, w->to) != bytes)
        return SP_FAIL(SP_EIO, "%s: cannot write: %s", w->path, strerror(errno));
    return SP_OK;
}

static size_t stream_bytes(const laz_codec *z, int i)
{
    return z->is_used[i] ? (size_t)(z->coder[i].at - z->coder[i].begin) : 0;
}

/* Writes an encoded chunk: the first record, for layers the number of points and the
 * sizes, and the streams. */
static sp_status put_chunk(sp_laz_writer *w, const place *p, int64_t *bytes)
{
    const laz_codec *z = &p->codec;
    unsigned char number[4];

    *bytes = w->format.record_bytes;
    SP_TRY(laz_write_put(w, p->records, (size_t)w->format.record_bytes));
    if (w->format.compressor == SP_LAZ_LAYERED) {
        *bytes += 4 + 4 * (int64_t)z->n_layers;
        sp_put32(number, (uint32_t)p->n);
        SP_TRY(laz_write_put(w, number, sizeof number));
        for (int i = 0; i < z->n_layers; i++) {
            sp_put32(number, (uint32_t)stream_bytes(z, i));
            SP_TRY(laz_write_put(w, number, sizeof number));
        }
    }
    for (int i = 0; i < z->n_layers; i++) {
        SP_TRY(laz_write_put(w, z->coder[i].begin, stream_bytes(z, i)));
        *bytes += (int64_t)stream_bytes(z, i);
    }
    if (*bytes > UINT32_MAX)
        return SP_FAIL(SP_EDATA, "%s: a LAZ chunk of %lld bytes, at most 4 GiB",
                       w->path, (long long)*bytes);
    return SP_OK;
}

static sp_status laz_write_add_chunk(sp_laz_writer *w, int64_t n, int64_t bytes)
{
    const sp_laz_place none = {.at = w->at + 8}, *before;

    if (!sp_list_grow(&w->chunk, w->n_chunks, sizeof *w->chunk))
        return SP_FAIL(SP_EMEM, "%s: no memory for the LAZ chunk table", w->path);
    before = w->n_chunks > 0 ? &w->chunk[w->n_chunks - 1] : &none;
    w->chunk[w->n_chunks++] =
        (sp_laz_place){before->first + before->n, n, before->at + before->bytes, bytes};
    return SP_OK;
}

/* Waits for the chunk in a place and writes it, if there is one. */
static sp_status laz_write_flush(sp_laz_writer *w, place *p)
{
    int64_t bytes;

    if (p->n == 0)
        return SP_OK;
    SP_TRY(w->n_places > 1 ? sp_task_join(&p->task) : encode(p));
    SP_TRY(put_chunk(w, p, &bytes));
    SP_TRY(laz_write_add_chunk(w, p->n, bytes));
    p->n = 0;
    return SP_OK;
}

/* ---- collecting ---- */

static place *collecting(sp_laz_writer *w)
{
    return &w->place[w->next % w->n_places];
}

sp_status sp_laz_cut(sp_laz_writer *w)
{
    place *p = collecting(w);

    assert(w->next >= 0 && w->n_places >= 1);
    if (p->n == 0)
        return SP_OK;
    if (w->n_places > 1) {
        SP_TRY(sp_task_start(&p->task, encode, p));
        w->next++;
    }
    return laz_write_flush(w, collecting(w));
}

sp_status sp_laz_write(sp_laz_writer *w, const unsigned char *records, int64_t n)
{
    size_t bytes = (size_t)w->format.record_bytes;

    assert(n >= 0 && (records || n == 0));
    while (n > 0) {
        place *p = collecting(w);
        int64_t some = sp_least(w->format.chunk_points - p->n, n);

        if (!sp_list_reserve(&p->records, &p->room, (size_t)(p->n + some) * bytes))
            return SP_FAIL(SP_EMEM, "%s: no memory for %lld points", w->path,
                           (long long)(p->n + some));
        memcpy(p->records + (size_t)p->n * bytes, records, (size_t)some * bytes);
        p->n += some;
        records += (size_t)some * bytes;
        n -= some;
        if (p->n == w->format.chunk_points)
            SP_TRY(sp_laz_cut(w));
    }
    return SP_OK;
}

sp_status sp_laz_put(sp_laz_writer *w, const unsigned char *chunk, int64_t bytes,
                     int64_t n)
{
    assert(w->next == 0 && collecting(w)->n == 0 && "no points are being encoded");
    SP_TRY(laz_write_put(w, chunk, (size_t)bytes));
    return laz_write_add_chunk(w, n, bytes);
}

/* ---- beginning and end ---- */

static sp_status laz_write_start(sp_laz_writer *w)
{
    static const unsigned char no_table[8] = {255, 255, 255, 255, 255, 255, 255, 255};

    w->at = ftello(w->to);
    if (w->at < 0)
        return SP_FAIL(SP_EIO, "%s: LAZ needs a file that can be sought: %s", w->path,
                       strerror(errno));
    for (int i = 0; i < w->n_places; i++)
        SP_TRY(sp_laz_codec_create(&w->place[i].codec, &w->format, false));
    return laz_write_put(w, no_table, sizeof no_table);
}

sp_status sp_laz_create(sp_laz_writer **writer, const char *path, FILE *to,
                        const sp_laz_format *format, int n_threads)
{
    sp_laz_writer *w = calloc(1, sizeof *w);
    sp_status rc;

    assert(path && to && n_threads >= 0);
    assert(format->compressor != SP_LAZ_STREAM &&
           "sp_laz_format_current makes it one of chunks");
    *writer = w;
    if (!w)
        return SP_FAIL(SP_EMEM, "%s: no memory to write LAZ", path);
    w->path = path;
    w->to = to;
    w->format = *format;
    w->n_places = (int)sp_most(sp_least(n_threads, MOST_THREADS), 1);
    w->place = calloc((size_t)w->n_places, sizeof *w->place);
    rc = w->place ? laz_write_start(w)
                  : SP_FAIL(SP_EMEM, "%s: no memory to write LAZ", path);
    if (rc != SP_OK) {
        sp_laz_abandon(w);
        *writer = NULL;
    }
    return rc;
}

static sp_status put_table(sp_laz_writer *w)
{
    int64_t at = ftello(w->to);
    SP_FREED unsigned char *bytes = NULL;
    unsigned char offset[8];
    size_t n = 0;

    SP_TRY(sp_laz_table_write(w->chunk, w->n_chunks, &w->format, &bytes, &n));
    SP_TRY(laz_write_put(w, bytes, n));
    sp_put64(offset, (uint64_t)at);
    if (at < 0 || fseeko(w->to, w->at, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", w->path, strerror(errno));
    SP_TRY(laz_write_put(w, offset, sizeof offset));
    if (fseeko(w->to, at + (int64_t)n, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", w->path, strerror(errno));
    return SP_OK;
}

sp_status sp_laz_finish(sp_laz_writer *w)
{
    SP_TRY(sp_laz_cut(w));
    for (int i = 0; i < w->n_places; i++, w->next++)
        SP_TRY(laz_write_flush(w, collecting(w)));
    return put_table(w);
}

const sp_laz_place *sp_laz_written(const sp_laz_writer *writer, int64_t *n)
{
    *n = writer->n_chunks;
    return writer->chunk;
}

void sp_laz_abandon(sp_laz_writer *w)
{
    if (!w)
        return;
    for (int i = 0; w->place && i < w->n_places; i++) {
        place *p = &w->place[i];

        sp_task_drop(&p->task);
        sp_laz_codec_destroy(&p->codec);
        free(p->records);
    }
    free(w->place);
    free(w->chunk);
    free(w);
}
