#include "h5/sp_h5_filter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

bool sp_h5_filter_known(int32_t id)
{
    return id == SP_H5_DEFLATE || id == SP_H5_SHUFFLE || id == SP_H5_FLETCHER32;
}

sp_status sp_h5_room(unsigned char **buffer, size_t *room, size_t bytes,
                     const char *where)
{
    assert(buffer && room);
    if (bytes <= *room && *buffer)
        return SP_OK;
    free(*buffer);
    *room = 0;
    *buffer = malloc(bytes + 1);
    if (!*buffer)
        return SP_FAIL(SP_EMEM, "%s: no memory for a chunk of %zu bytes", where, bytes);
    *room = bytes;
    return SP_OK;
}

void sp_h5_steps_free(sp_h5_steps *steps)
{
    if (steps->inflater)
        inflateEnd(steps->inflater);
    free(steps->inflater);
    free(steps->stored);
    free(steps->other);
    *steps = (sp_h5_steps){0};
}

/* ---- deflate ---- */

static sp_status begin_inflating(sp_h5_steps *steps, const char *where)
{
    if (steps->inflater)
        return inflateReset(steps->inflater) == Z_OK
                   ? SP_OK
                   : SP_FAIL(SP_EMEM, "%s: zlib cannot begin", where);
    steps->inflater = calloc(1, sizeof *steps->inflater);
    if (steps->inflater && inflateInit(steps->inflater) == Z_OK)
        return SP_OK;
    free(steps->inflater);
    steps->inflater = NULL;
    return SP_FAIL(SP_EMEM, "%s: no memory for zlib", where);
}

/* Inflates the stored bytes into `other`. The stream must give exactly `want` bytes and
 * end with the last stored byte. */
static sp_status inflate_exactly(sp_h5_steps *steps, size_t bytes, size_t want,
                                 int64_t chunk, const char *where)
{
    z_stream *z;
    int end;

    SP_TRY(begin_inflating(steps, where));
    z = steps->inflater;
    z->next_in = steps->stored;
    z->avail_in = (uInt)bytes;
    z->next_out = steps->other;
    z->avail_out = (uInt)want;
    end = inflate(z, Z_FINISH);
    if (end == Z_MEM_ERROR)
        return SP_FAIL(SP_EMEM, "%s: no memory for zlib", where);
    if (end == Z_STREAM_END && z->avail_out == 0 && z->avail_in == 0)
        return SP_OK;
    if (z->msg)
        return SP_FAIL(SP_EDATA, "%s: chunk %lld: damaged data (%s)", where,
                       (long long)chunk, z->msg);
    return SP_FAIL(SP_EDATA,
                   "%s: chunk %lld: damaged data (its %zu bytes do not unpack to %zu)",
                   where, (long long)chunk, bytes, want);
}

/* ---- shuffle ---- */

/* Undoes shuffle, which stores byte b of all elements together; bytes behind the last
 * whole element stay as they are. */
static void unshuffle(const unsigned char *from, size_t bytes, size_t size,
                      unsigned char *to)
{
    size_t n = bytes / size;

    for (size_t b = 0; b < size; b++)
        for (size_t i = 0; i < n; i++)
            to[i * size + b] = from[b * n + i];
    memcpy(to + n * size, from + n * size, bytes - n * size);
}

/* ---- Fletcher-32 ---- */

/* The checksum: two sums modulo 65535 over pairs of bytes, the high one first; an odd
 * last byte is a high one. */
static uint32_t fletcher32(const unsigned char *data, size_t bytes)
{
    enum { RUN = 360 }; /* pairs whose sums of sums fit into 32 bits */
    uint32_t a = 0, b = 0;
    size_t words = bytes / 2;

    while (words > 0) {
        size_t run = words < RUN ? words : RUN;

        words -= run;
        for (; run > 0; run--, data += 2) {
            a += (uint32_t)data[0] << 8 | data[1];
            b += a;
        }
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    if (bytes % 2) {
        a += (uint32_t)data[0] << 8;
        b += a;
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    a = (a & 0xffff) + (a >> 16);
    b = (b & 0xffff) + (b >> 16);
    return b << 16 | a;
}

/* Compares checksums. Old versions of the library swapped the bytes of each half. */
static bool is_fletcher32(uint32_t stored, uint32_t sum)
{
    uint32_t swapped = (sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff);

    return stored == sum || stored == swapped;
}

static sp_status check_sum(const unsigned char *data, size_t *bytes, int64_t chunk,
                           const char *where)
{
    const unsigned char *end;
    uint32_t stored;

    if (*bytes < 4)
        return SP_FAIL(SP_EDATA, "%s: chunk %lld has no checksum: damaged data", where,
                       (long long)chunk);
    *bytes -= 4;
    end = data + *bytes;
    stored = (uint32_t)end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 |
             (uint32_t)end[3] << 24;
    if (!is_fletcher32(stored, fletcher32(data, *bytes)))
        return SP_FAIL(SP_EDATA,
                       "%s: chunk %lld: Fletcher-32 checksum is %08x, expected %08x: "
                       "damaged data",
                       where, (long long)chunk, fletcher32(data, *bytes), stored);
    return SP_OK;
}

/* ---- the pipeline ---- */

/* The bytes that the first n filters of writing give, none of which is deflate. */
static size_t size_before(const sp_h5_chunks *c, int64_t i, int n, size_t want)
{
    for (int f = 0; f < n; f++)
        if (c->filter[f].id == SP_H5_FLETCHER32 && !(c->mask[i] >> f & 1))
            want += 4;
    return want;
}

/* Makes the result of a filter the source of the next one. */
static void exchange(sp_h5_steps *steps)
{
    unsigned char *buffer = steps->stored;
    size_t room = steps->stored_room;

    steps->stored = steps->other;
    steps->stored_room = steps->other_room;
    steps->other = buffer;
    steps->other_room = room;
}

static sp_status undo_one(sp_h5_steps *steps, const sp_h5_chunks *c, int64_t i, int f,
                          size_t want, const char *where, size_t *bytes)
{
    size_t before = size_before(c, i, f, want);

    switch (c->filter[f].id) {
    case SP_H5_FLETCHER32:
        return check_sum(steps->stored, bytes, i, where);
    case SP_H5_DEFLATE:
        SP_TRY(sp_h5_room(&steps->other, &steps->other_room, before, where));
        SP_TRY(inflate_exactly(steps, *bytes, before, i, where));
        *bytes = before;
        exchange(steps);
        return SP_OK;
    default:
        SP_TRY(sp_h5_room(&steps->other, &steps->other_room, *bytes, where));
        unshuffle(steps->stored, *bytes, c->filter[f].element_bytes, steps->other);
        exchange(steps);
        return SP_OK;
    }
}

sp_status sp_h5_undo(sp_h5_steps *steps, const sp_h5_chunks *c, int64_t i, size_t want,
                     const char *where, unsigned char **result)
{
    size_t bytes = c->bytes[i];

    assert(0 <= i && i < c->n);
    assert(steps->stored && steps->stored_room >= c->bytes[i]);
    assert(c->n_filters <= SP_H5_FILTERS);
    for (int f = c->n_filters - 1; f >= 0; f--)
        if (!(c->mask[i] >> f & 1))
            SP_TRY(undo_one(steps, c, i, f, want, where, &bytes));
    if (bytes != want)
        return SP_FAIL(SP_EDATA,
                       "%s: chunk %lld unpacks to %zu bytes, expected %zu: damaged "
                       "data",
                       where, (long long)i, bytes, want);
    *result = steps->stored;
    return SP_OK;
}
