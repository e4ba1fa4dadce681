/* The decoding of one chunk. A pointwise chunk is the first record and a stream, which
 * is read from the file in blocks. A layered one is read whole:
 *
 *     record | points u32 | bytes of each layer, u32 | layer | layer | ... */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "scan/laz/sp_laz_chunk.h"
#include "scan/laz/sp_laz_field.h"

sp_status sp_laz_decoder_create(laz_decoder *d, const sp_laz_file *file,
                                const laz_copy *copy, const sp_laz_format *format)
{
    assert(file->fd >= 0 && format->record_bytes > 0);
    *d = (laz_decoder){.file = file, .copy = copy, .input.fd = file->fd};
    SP_TRY(sp_laz_codec_create(&d->codec, format, true));
    if (format->compressor == SP_LAZ_LAYERED)
        return SP_OK;
    return SP_NEW(&d->input.buffer, LAZ_TAIL + LAZ_INPUT_BYTES, "a LAZ reader");
}

void sp_laz_decoder_destroy(laz_decoder *d)
{
    sp_laz_codec_destroy(&d->codec);
    free(d->input.buffer);
    free(d->bytes);
    *d = (laz_decoder){0};
}

static sp_status damaged(const laz_decoder *d, const char *what)
{
    const laz_fault *f = &d->codec.fault;

    return SP_FAIL(f->what ? f->code : SP_EDATA,
                   "%s: LAZ chunk %" PRId64 " at byte %" PRId64 " %s, at point %" PRId64
                   " of the chunk, %" PRId64 " of the file",
                   d->file->path, d->number, d->place.at, what, f->what ? f->at : 0,
                   d->place.first + (f->what ? f->at : 0));
}

/* The chunk is one that the header's number of points ends. */
static bool is_last(const laz_decoder *d)
{
    return d->place.first + d->place.n == d->file->n_points;
}

static sp_status begin_pointwise(laz_decoder *d, int64_t end)
{
    int64_t bytes = d->codec.format->record_bytes;
    laz_coder *c = d->codec.coder;

    if (bytes > end - d->place.at)
        return damaged(d, "ends in its first record");
    SP_TRY(sp_laz_pread(d->file, d->codec.record, (size_t)bytes, d->place.at));
    SP_TRY(sp_laz_codec_begin(&d->codec, d->codec.record));
    d->input.at = d->place.at + bytes;
    d->input.end = end;
    c->input = &d->input;
    c->at = c->end = d->input.buffer + LAZ_TAIL;
    sp_laz_decode_begin(c);
    return SP_OK;
}

static sp_status laz_chunk_reserve(laz_decoder *d, size_t bytes)
{
    return sp_list_reserve(&d->bytes, &d->room, bytes)
               ? SP_OK
               : SP_FAIL(SP_EMEM, "%s: no memory for a LAZ chunk of %zu bytes",
                         d->file->path, bytes);
}

/* Reads n bytes of a layered chunk from byte `at` of the file on. */
static sp_status chunk_pread(const laz_decoder *d, unsigned char *to, int64_t n,
                             int64_t at)
{
    return d->copy->is_complete
               ? sp_file_read_at(d->copy->fd, d->copy->path, to, (size_t)n, at)
               : sp_laz_pread(d->file, to, (size_t)n, at);
}

/* Reads and checks the sizes before the layers; *n is the bytes of the whole chunk. */
static sp_status read_sizes(laz_decoder *d, int64_t head, int64_t end, int64_t *n)
{
    const unsigned char *at;

    if (head > end - d->place.at)
        return damaged(d, "ends in its first record");
    SP_TRY(laz_chunk_reserve(d, (size_t)head));
    SP_TRY(chunk_pread(d, d->bytes, head, d->place.at));
    at = d->bytes + d->codec.format->record_bytes;
    if (d->place.n < 0)
        d->place.n = sp_get32(at);
    if (sp_get32(at) > d->place.n && d->place.n > 0 && is_last(d))
        return sp_laz_count_is_low(d->file, d->place.first + sp_get32(at));
    if (sp_get32(at) != d->place.n || d->place.n == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: LAZ chunk %" PRId64 " at byte %" PRId64
                       " has %u points, expected %" PRId64,
                       d->file->path, d->number, d->place.at, sp_get32(at), d->place.n);
    *n = head;
    for (int i = 0; i < d->codec.n_layers; i++) {
        at += 4;
        d->codec.is_used[i] = sp_get32(at) != 0;
        *n += sp_get32(at);
    }
    if (d->place.bytes < 0 && *n <= end - d->place.at)
        d->place.bytes = *n;
    return *n == d->place.bytes
               ? SP_OK
               : SP_FAIL(SP_EDATA,
                         "%s: LAZ chunk %" PRId64 " at byte %" PRId64
                         " has layers of %" PRId64 " bytes, but the chunk has %" PRId64,
                         d->file->path, d->number, d->place.at, *n - head,
                         (d->place.bytes < 0 ? end - d->place.at : d->place.bytes) -
                             head);
}

static sp_status begin_layered(laz_decoder *d, int64_t end)
{
    int64_t head = d->codec.format->record_bytes + 4 + 4 * (int64_t)d->codec.n_layers,
            n = 0;
    const unsigned char *size;
    unsigned char *at;

    SP_TRY(read_sizes(d, head, end, &n));
    SP_TRY(laz_chunk_reserve(d, (size_t)n));
    SP_TRY(chunk_pread(d, d->bytes + head, n - head, d->place.at + head));
    if (d->copy->path && !d->copy->is_complete)
        SP_TRY(sp_file_write_at(d->copy->fd, d->copy->path, d->bytes, (size_t)n,
                                d->place.at));
    SP_TRY(sp_laz_codec_begin(&d->codec, d->bytes));
    size = d->bytes + d->codec.format->record_bytes + 4;
    at = d->bytes + head;
    for (int i = 0; i < d->codec.n_layers; i++, size += 4) {
        laz_coder *c = &d->codec.coder[i];

        c->at = at;
        c->end = at += sp_get32(size);
        if (d->codec.is_used[i])
            sp_laz_decode_begin(c);
    }
    return SP_OK;
}

sp_status sp_laz_decoder_begin(laz_decoder *d, int64_t number,
                               const sp_laz_place *place, int64_t end)
{
    assert(number >= 0);
    assert(place->n >= 0 || d->codec.format->compressor == SP_LAZ_LAYERED);
    d->number = number;
    d->place = *place;
    d->done = 0;
    d->is_first = true;
    if (place->bytes >= 0)
        end = place->at + place->bytes;
    if (place->n == 0)
        return SP_OK;
    return d->codec.format->compressor == SP_LAZ_LAYERED ? begin_layered(d, end)
                                                         : begin_pointwise(d, end);
}

/* All streams have to end here. Writers of the time before chunks may have ended theirs
 * in other ways. */
static void laz_chunk_check_end(laz_decoder *d)
{
    laz_codec *z = &d->codec;
    bool is_layered = z->format->compressor == SP_LAZ_LAYERED;

    if (z->format->compressor == SP_LAZ_STREAM)
        return;
    for (int i = 0; i < z->n_layers; i++)
        if (!is_layered || z->is_used[i])
            sp_laz_decode_end(&z->coder[i], d->place.bytes >= 0);
    if (d->place.bytes < 0)
        d->place.bytes = d->input.at - (z->coder->end - z->coder->at) - d->place.at;
}

/* The last chunk ends in another place than that after the header's last point. */
static sp_status damaged_or_low(const laz_decoder *d)
{
    return SP_FAIL(SP_EDATA,
                   "%s: the header counts %" PRId64 " points, but LAZ chunk %" PRId64
                   " at byte %" PRId64
                   " %s: either the chunk holds more points than are counted, and the "
                   "count in the header has to be corrected, or the chunk is damaged",
                   d->file->path, d->file->n_points, d->number, d->place.at,
                   d->codec.fault.what);
}

sp_status sp_laz_decoder_next(laz_decoder *d, unsigned char *records, int64_t n)
{
    size_t bytes = (size_t)d->codec.format->record_bytes;

    assert(records && n >= 0 && n <= d->place.n - d->done);
    if (n > 0 && d->is_first) {
        memcpy(records, d->codec.last, bytes);
        records += bytes;
        d->is_first = false;
        d->done++;
        n--;
    }
    SP_TRY(sp_laz_codec_decode(&d->codec, records, n));
    d->done += n;
    if (d->codec.fault.what)
        return damaged(d, d->codec.fault.what);
    if (d->done == d->place.n && d->place.n > 0)
        laz_chunk_check_end(d);
    if (!d->codec.fault.what)
        return SP_OK;
    return is_last(d) ? damaged_or_low(d) : damaged(d, d->codec.fault.what);
}
