/* The chunk table: version 0 u32, number of chunks u32, and for each chunk its points
 * (if chunks differ) and its bytes, coded as integers guessed to equal the chunk
 * before. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/laz/sp_laz_chunk.h"
#include "scan/laz/sp_laz_field.h"

enum { HEAD_BYTES = 8, POINTS = 0, BYTES = 1 };

sp_status sp_laz_pread(const sp_laz_file *file, void *to, size_t n, int64_t at)
{
    assert(file->fd >= 0 && (to || n == 0));
    if (at < 0 || at > file->file_bytes || (int64_t)n > file->file_bytes - at)
        return SP_FAIL(SP_EDATA,
                       "%s: truncated: %zu bytes wanted at byte %" PRId64
                       ", but the file has %" PRId64,
                       file->path, n, at, file->file_bytes);
    return sp_file_read_at(file->fd, file->path, to, n, at);
}

sp_status sp_laz_count_is_low(const sp_laz_file *file, int64_t least)
{
    return SP_FAIL(SP_EDATA,
                   "%s: the header counts %" PRId64
                   " points, but the LAZ chunks hold %" PRId64
                   " or more: the count is too low; correct it in the header, or write "
                   "the file anew with the program that made it",
                   file->path, file->n_points, least);
}

/* A coder of the table's numbers, with its pool. */
typedef struct table_coder {
    laz_coder coder;
    laz_pool pool;
    laz_fault fault;
    laz_integer number;
} table_coder;

/* The place of a chunk after the chunk before, which is NULL for the first. */
static sp_status code_place(table_coder *t, const sp_laz_place *before,
                            sp_laz_place *place, bool has_points, bool enc)
{
    static const sp_laz_place none = {0};

    before = before ? before : &none;
    SP_TRY(sp_laz_pool_reserve(&t->pool, 40));
    if (has_points)
        place->n = (uint32_t)laz_number(&t->coder, &t->number, POINTS,
                                        (int32_t)(uint32_t)before->n,
                                        (int32_t)(uint32_t)place->n, enc);
    place->bytes = (uint32_t)laz_number(&t->coder, &t->number, BYTES,
                                        (int32_t)(uint32_t)before->bytes,
                                        (int32_t)(uint32_t)place->bytes, enc);
    t->fault.point++;
    return SP_OK;
}

static void open_coder(table_coder *t, bool is_decoding)
{
    *t = (table_coder){.pool.is_decoding = is_decoding};
    t->coder.pool = &t->pool;
    t->coder.fault = &t->fault;
    laz_integer_open(&t->number, 32);
}

/* ---- reading ---- */

/* Finds the table. It is missing if the place kept for its offset still holds the value
 * of the beginning: the place itself, or -1 without an offset at the file's end. */
static sp_status find_table(const sp_laz_file *file, laz_table *table, int64_t *at)
{
    unsigned char b[8];
    bool is_last;

    SP_TRY(sp_laz_pread(file, b, sizeof b, file->at));
    *at = (int64_t)sp_get64(b);
    is_last = *at == -1;
    if (is_last && file->file_bytes - 8 >= table->begin) {
        SP_TRY(sp_laz_pread(file, b, sizeof b, file->file_bytes - 8));
        *at = (int64_t)sp_get64(b);
        table->file_end -= 8;
    }
    table->is_there = *at >= table->begin && *at <= file->file_bytes - HEAD_BYTES;
    if (!table->is_there && !is_last && *at != file->at)
        return SP_FAIL(SP_EDATA,
                       "%s: truncated or damaged: LAZ chunk table at byte %" PRId64
                       ", expected from %" PRId64 " to the file's end at %" PRId64,
                       file->path, *at, table->begin, file->file_bytes);
    return SP_OK;
}

/* Reads how many chunks there are. Each has a record at least, but an empty one may be
 * the last. */
static sp_status laz_table_read_count(const sp_laz_file *file,
                                      const sp_laz_format *format, laz_table *table,
                                      int64_t at)
{
    unsigned char b[HEAD_BYTES];
    int64_t most = (at - table->begin) / format->record_bytes + 1;

    SP_TRY(sp_laz_pread(file, b, sizeof b, at));
    if (sp_get32(b) != 0)
        return SP_FAIL(SP_EDATA, "%s: LAZ chunk table of version %u, expected 0",
                       file->path, sp_get32(b));
    table->n_chunks = sp_get32(b + 4);
    if (table->n_chunks > most)
        return SP_FAIL(SP_EDATA,
                       "%s: LAZ chunk table has %" PRId64 " chunks, but the file has "
                       "room for %" PRId64,
                       file->path, table->n_chunks, most);
    return SP_NEW(&table->chunk, table->n_chunks, file->path);
}

static sp_status read_places(const sp_laz_file *file, const sp_laz_format *format,
                             laz_table *table, int64_t at)
{
    bool has_points = format->chunk_points == UINT32_MAX;
    unsigned char buffer[LAZ_TAIL + LAZ_INPUT_BYTES] = {0};
    laz_input input = {file->fd, at + HEAD_BYTES, file->file_bytes, buffer};
    table_coder t;
    sp_status rc = SP_OK;

    open_coder(&t, true);
    t.coder.input = &input;
    t.coder.at = t.coder.end = buffer + LAZ_TAIL;
    sp_laz_decode_begin(&t.coder);
    for (int64_t i = 0; i < table->n_chunks && rc == SP_OK && !t.fault.what; i++)
        rc = code_place(&t, i ? &table->chunk[i - 1] : NULL, &table->chunk[i],
                        has_points, false);
    if (rc == SP_OK)
        sp_laz_decode_end(&t.coder, false);
    sp_laz_pool_destroy(&t.pool);
    table->end = input.at - (t.coder.end - t.coder.at);
    if (rc == SP_OK && t.fault.what)
        rc = SP_FAIL(t.fault.code, "%s: the LAZ chunk table, chunk %" PRId64 ", %s",
                     file->path, t.fault.at, t.fault.what);
    return rc;
}

/* Does chunk i, or do those after it, have more points than the header counts? */
static bool table_has_more(const sp_laz_file *file, const laz_table *table, int64_t i)
{
    const sp_laz_place *c = &table->chunk[i];
    const int64_t left = file->n_points - c->first;

    return c->n > left ||
           (c->n == left && (c->n == 0 || (i + 1 < table->n_chunks && c[1].bytes > 0)));
}

/* Lays the chunks one after the other and compares them with the file. */
static sp_status place_chunks(const sp_laz_file *file, const sp_laz_format *format,
                              laz_table *table, int64_t end)
{
    int64_t at = table->begin, first = 0;

    for (int64_t i = 0; i < table->n_chunks; i++) {
        sp_laz_place *c = &table->chunk[i];

        if (format->chunk_points != UINT32_MAX)
            c->n = sp_least(file->n_points - first, format->chunk_points);
        c->first = first;
        c->at = at;
        if (c->bytes > 0 && c->bytes <= end - at && table_has_more(file, table, i))
            return sp_laz_count_is_low(file, sp_most(first + c->n, file->n_points + 1));
        if (c->bytes > end - at || c->n > file->n_points - first ||
            (c->n == 0) != (c->bytes == 0) || (c->n == 0 && i + 1 < table->n_chunks))
            return SP_FAIL(SP_EDATA,
                           "%s: LAZ chunk %" PRId64 " of %" PRId64 " has %" PRId64
                           " points in %" PRId64 " bytes at byte %" PRId64
                           ", but %" PRId64 " points and %" PRId64 " bytes are left",
                           file->path, i, table->n_chunks, c->n, c->bytes, at,
                           file->n_points - first, end - at);
        at += c->bytes;
        first += c->n;
    }
    return first == file->n_points
               ? SP_OK
               : SP_FAIL(SP_EDATA,
                         "%s: %" PRId64 " points in the LAZ chunk table, but %" PRId64
                         " in the header",
                         file->path, first, file->n_points);
}

sp_status sp_laz_table_read(laz_table *table, const sp_laz_file *file,
                            const sp_laz_format *format)
{
    int64_t at = 0;

    *table = (laz_table){
        .begin = file->at, .end = file->file_bytes, .file_end = file->file_bytes};
    if (format->compressor == SP_LAZ_STREAM ||
        (file->n_points == 0 && file->at == file->file_bytes))
        return SP_OK;
    table->begin += 8;
    SP_TRY(find_table(file, table, &at));
    if (!table->is_there)
        return SP_OK;
    SP_TRY(laz_table_read_count(file, format, table, at));
    table->end = at + HEAD_BYTES;
    if (table->n_chunks > 0)
        SP_TRY(read_places(file, format, table, at));
    return place_chunks(file, format, table, at);
}

void sp_laz_table_destroy(laz_table *table)
{
    free(table->chunk);
    *table = (laz_table){0};
}

/* ---- writing ---- */

sp_status sp_laz_table_write(const sp_laz_place *chunk, int64_t n_chunks,
                             const sp_laz_format *format, unsigned char **bytes,
                             size_t *n)
{
    unsigned char head[HEAD_BYTES] = {0};
    table_coder t;
    sp_status rc;

    assert(n_chunks >= 0 && (chunk || n_chunks == 0) && bytes && n);
    open_coder(&t, false);
    rc = sp_laz_encode_begin(&t.coder);
    for (int64_t i = 0; i < n_chunks && rc == SP_OK; i++) {
        sp_laz_place place = chunk[i];

        rc = code_place(&t, i ? &chunk[i - 1] : NULL, &place,
                        format->chunk_points == UINT32_MAX, true);
    }
    if (rc == SP_OK && n_chunks > 0)
        sp_laz_encode_end(&t.coder);
    sp_laz_pool_destroy(&t.pool);
    *n = HEAD_BYTES + (size_t)(t.coder.at - t.coder.begin);
    *bytes = malloc(*n);
    if (rc == SP_OK && (!*bytes || t.fault.what))
        rc = SP_FAIL(SP_EMEM, "no memory for a LAZ chunk table");
    if (*bytes) {
        sp_put32(head + 4, (uint32_t)n_chunks);
        memcpy(*bytes, head, sizeof head);
        memcpy(*bytes + sizeof head, t.coder.begin, *n - sizeof head);
    }
    free(t.coder.begin);
    return rc;
}
