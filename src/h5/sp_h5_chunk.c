/* Tables of chunks, and the rows of a dataset out of its chunks.
 *
 * The chunks with the same first index make a band: chunk[0] rows of the dataset with
 * all their columns. A band is unpacked as a whole into a buffer, where its rows stand
 * as in a contiguous dataset. */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "h5/sp_h5_filter.h"
#include "base/sp_pulse.h"

/* A sample is read from up to nine datasets in turn, so an unpacker keeps BANDS bands,
 * together at most KEPT_BYTES. EXPANSION bounds how much larger than its stored bytes a
 * chunk may claim to be; deflate reaches 1032. */
enum { BANDS = 8, KEPT_BYTES = 32 << 20, EXPANSION = 1100 };

typedef struct band {
    uint64_t serial; /* serial of the band's table; 0: the entry is empty */
    int64_t index;
    uint64_t last_use;
    unsigned char *rows;
    size_t room;
} band;

struct sp_h5_unpacker {
    band band[BANDS];
    uint64_t clock;
    sp_h5_steps steps;
};

/* ---- the table ---- */

static int64_t grid(const sp_h5_chunks *c, int d)
{
    return c->dim[d] / c->chunk[d] + (c->dim[d] % c->chunk[d] != 0);
}

int64_t sp_h5_chunks_count(const sp_h5_chunks *c)
{
    int64_t n = 1;

    assert(0 <= c->rank && c->rank <= SP_H5_RANK);
    for (int d = 0; d < c->rank; d++)
        if (__builtin_mul_overflow(n, grid(c, d), &n))
            return -1;
    return n;
}

/* The bytes of `rows` rows of `dim`, which is that of the dataset or of a chunk; -1
 * where it overflows. */
static int64_t bytes_of(const sp_h5_chunks *c, const int64_t *dim, int64_t rows)
{
    int64_t bytes = c->type_size;

    if (__builtin_mul_overflow(bytes, rows, &bytes))
        return -1;
    for (int d = 1; d < c->rank; d++)
        if (__builtin_mul_overflow(bytes, dim[d], &bytes))
            return -1;
    return bytes;
}

/* A compact dataset may be a scalar, and has no chunks. */
static bool is_shaped(const sp_h5_chunks *c)
{
    if (c->rank < (c->compact ? 0 : 1) || c->rank > SP_H5_RANK || c->type_size < 1 ||
        c->n_filters < 0 || c->n_filters > SP_H5_FILTERS || c->n < 0)
        return false;
    for (int d = 0; d < c->rank; d++)
        if (c->dim[d] < 0 || (!c->compact && c->chunk[d] < 1))
            return false;
    return true;
}

static bool are_filters_known(const sp_h5_chunks *c, uint32_t chunk_bytes)
{
    int n_deflate = 0;

    for (int f = 0; f < c->n_filters; f++) {
        n_deflate += c->filter[f].id == SP_H5_DEFLATE;
        if (!sp_h5_filter_known(c->filter[f].id) || n_deflate > 1 ||
            (c->filter[f].id == SP_H5_SHUFFLE &&
             (c->filter[f].element_bytes < 1 ||
              c->filter[f].element_bytes > chunk_bytes)))
            return false;
    }
    return true;
}

/* True if all chunks lie within the file and together are not larger than it. */
static bool are_in_file(const sp_h5_chunks *c, int64_t file_bytes)
{
    int64_t left = file_bytes;

    for (int64_t i = 0; i < c->n; i++) {
        if (c->bytes[i] < 1 || c->bytes[i] > left || c->at[i] < 0 ||
            c->at[i] > file_bytes - c->bytes[i])
            return false;
        left -= c->bytes[i];
    }
    return true;
}

/* True if the stored bytes can hold that many values: compression has a limit. */
static bool is_possible(const sp_h5_chunks *c, int64_t file_bytes)
{
    int64_t bytes = bytes_of(c, c->dim, c->dim[0]);

    return bytes >= 0 && bytes / EXPANSION <= file_bytes;
}

static bool check_compact(const sp_h5_chunks *c, char *why, size_t size)
{
    if (c->rank == 0 ? c->compact_bytes == c->type_size
                     : c->compact_bytes == bytes_of(c, c->dim, c->dim[0]))
        return true;
    snprintf(why, size, "holds %lld bytes, not those of its shape",
             (long long)c->compact_bytes);
    return false;
}

bool sp_h5_chunks_check(const sp_h5_chunks *c, int64_t file_bytes, char *why,
                        size_t size)
{
    int64_t band_bytes, chunk, most = SP_H5_BAND;

    if (!is_shaped(c) ||
        (!c->compact && (c->n != sp_h5_chunks_count(c) ||
                         (c->n > 0 && (!c->at || !c->bytes || !c->mask))))) {
        snprintf(why, size, "its chunks do not make up its shape");
        return false;
    }
    if (c->compact)
        return check_compact(c, why, size);
    most += file_bytes < INT64_MAX / 8 ? SP_H5_BAND_FACTOR * file_bytes : 0;
    band_bytes = bytes_of(c, c->dim, c->chunk[0]);
    chunk = bytes_of(c, c->chunk, c->chunk[0]);
    if (band_bytes < 0 || band_bytes > most || chunk < 0 || chunk > most ||
        chunk > UINT32_MAX - 64)
        snprintf(why, size,
                 "its chunks of %lld rows are too large to unpack (at most %lld MiB, "
                 "of a file of this size): write it with smaller chunks",
                 (long long)c->chunk[0], (long long)(most >> 20));
    else if (!is_possible(c, file_bytes))
        snprintf(why, size,
                 "larger than the file (%lld bytes) can hold: truncated or damaged",
                 (long long)file_bytes);
    else if (!are_filters_known(c, (uint32_t)chunk))
        snprintf(why, size, "its filters make no sense: damaged");
    else if (!are_in_file(c, file_bytes))
        snprintf(why, size,
                 "reaches beyond the end of the file (%lld bytes): truncated or "
                 "damaged",
                 (long long)file_bytes);
    else
        return true;
    return false;
}

void sp_h5_chunks_wire(sp_wire *wire, sp_h5_chunks **chunks)
{
    static _Atomic uint64_t last_serial;
    sp_h5_chunks *c;

    if (!sp_wire_struct(wire, (void **)chunks, sizeof *c))
        return;
    c = *chunks;
    sp_wire_bytes(wire, c->dim, sizeof c->dim);
    sp_wire_bytes(wire, c->chunk, sizeof c->chunk);
    sp_wire_bytes(wire, &c->rank, sizeof c->rank);
    sp_wire_bytes(wire, &c->type_size, sizeof c->type_size);
    sp_wire_bytes(wire, &c->n_filters, sizeof c->n_filters);
    sp_wire_bytes(wire, c->filter, sizeof c->filter);
    sp_wire_bytes(wire, &c->n, sizeof c->n);
    sp_wire_array(wire, (void **)&c->at, c->n, sizeof *c->at);
    sp_wire_array(wire, (void **)&c->bytes, c->n, sizeof *c->bytes);
    sp_wire_array(wire, (void **)&c->mask, c->n, sizeof *c->mask);
    sp_wire_bytes(wire, &c->compact_bytes, sizeof c->compact_bytes);
    sp_wire_array(wire, (void **)&c->compact, c->compact_bytes, 1);
    c->serial = atomic_fetch_add(&last_serial, 1) + 1;
}

void sp_h5_chunks_free(sp_h5_chunks *chunks)
{
    if (!chunks)
        return;
    free(chunks->at);
    free(chunks->bytes);
    free(chunks->mask);
    free(chunks->compact);
    free(chunks);
}

/* ---- bands ---- */

/* Copies from dimension d on the part of a chunk that lies within the dataset. `at` is
 * the chunk's first element, counted from the band's first row. */
static void place(const sp_h5_chunks *c, const int64_t *at, int d,
                  const unsigned char *from, unsigned char *to)
{
    int64_t n = c->dim[d] - at[d] < c->chunk[d] ? c->dim[d] - at[d] : c->chunk[d];
    size_t from_step = (size_t)c->type_size, to_step = from_step;

    for (int e = d + 1; e < c->rank && e < SP_H5_RANK; e++) {
        from_step *= (size_t)c->chunk[e];
        to_step *= (size_t)c->dim[e];
    }
    to += (d ? (size_t)at[d] : 0) * to_step;
    if (d + 1 >= c->rank || d + 1 >= SP_H5_RANK) {
        memcpy(to, from, (size_t)n * from_step);
        return;
    }
    for (int64_t i = 0; i < n; i++, from += from_step, to += to_step)
        place(c, at, d + 1, from, to);
}

/* Unpacks all chunks of band `index` into rows. */
static sp_status fill(sp_h5_unpacker *u, const sp_h5_chunks *c, int fd,
                      const char *where, int64_t index, unsigned char *rows)
{
    size_t chunk_bytes = (size_t)bytes_of(c, c->chunk, c->chunk[0]);
    int64_t per_band = c->n / grid(c, 0), at[SP_H5_RANK] = {index * c->chunk[0]};
    sp_h5_steps *steps = &u->steps;
    unsigned char *chunk;

    for (int64_t k = 0; k < per_band; k++) {
        int64_t i = index * per_band + k, rest = k;

        for (int d = c->rank - 1; d > 0; rest /= grid(c, d), d--)
            at[d] = rest % grid(c, d) * c->chunk[d];
        SP_TRY(sp_h5_room(&steps->stored, &steps->stored_room, c->bytes[i], where));
        SP_TRY(sp_file_read_at(fd, where, steps->stored, c->bytes[i], c->at[i]));
        SP_TRY(sp_h5_undo(steps, c, i, chunk_bytes, where, &chunk));
        place(c, at, 0, chunk, rows);
        sp_pulse_beat();
    }
    return SP_OK;
}

/* Finds the entry of this band, or the one that was not used for longest. */
static band *find_band(sp_h5_unpacker *u, const sp_h5_chunks *c, int64_t index)
{
    band *oldest = &u->band[0];

    for (int i = 0; i < BANDS; i++) {
        band *b = &u->band[i];

        if (b->serial == c->serial && b->index == index)
            return b;
        if (b->last_use < oldest->last_use)
            oldest = b;
    }
    return oldest;
}

/* Frees the bands unused for longest until one of `bytes` bytes fits within KEPT_BYTES.
 */
static void make_space(sp_h5_unpacker *u, const band *keep, size_t bytes)
{
    for (;;) {
        band *oldest = NULL;
        size_t total = bytes;

        for (int i = 0; i < BANDS; i++) {
            band *b = &u->band[i];

            if (b == keep || !b->rows)
                continue;
            total += b->room;
            if (!oldest || b->last_use < oldest->last_use)
                oldest = b;
        }
        if (!oldest || total <= KEPT_BYTES)
            return;
        free(oldest->rows);
        *oldest = (band){0};
    }
}

static sp_status get_band(sp_h5_unpacker *u, const sp_h5_chunks *c, int fd,
                          const char *where, int64_t index, unsigned char **rows)
{
    size_t bytes = (size_t)bytes_of(c, c->dim, c->chunk[0]);
    band *b = find_band(u, c, index);

    if (b->serial != c->serial || b->index != index) {
        b->serial = 0;
        make_space(u, b, bytes);
        SP_TRY(sp_h5_room(&b->rows, &b->room, bytes, where));
        SP_TRY(fill(u, c, fd, where, index, b->rows));
        b->serial = c->serial;
        b->index = index;
    }
    b->last_use = ++u->clock;
    *rows = b->rows;
    return SP_OK;
}

sp_status sp_h5_unpack(sp_h5_unpacker **unpacker, const sp_h5_chunks *c, int fd,
                       const char *where, int64_t first, int64_t n, void *to)
{
    size_t row = (size_t)bytes_of(c, c->dim, 1);
    unsigned char *rows = NULL, *out = to;

    assert(first >= 0 && n >= 0 && (c->rank == 0 || first <= c->dim[0] - n));
    assert(c->compact || (c->at && c->bytes && c->mask));
    if (c->compact) {
        memcpy(out, c->compact + (size_t)first * row, (size_t)n * row);
        return SP_OK;
    }
    if (!*unpacker && !(*unpacker = calloc(1, sizeof **unpacker)))
        return SP_FAIL(SP_EMEM, "%s: no memory", where);
    while (n > 0 && row > 0) {
        int64_t index = first / c->chunk[0], skip = first % c->chunk[0];
        int64_t m = c->chunk[0] - skip < n ? c->chunk[0] - skip : n;

        SP_TRY(get_band(*unpacker, c, fd, where, index, &rows));
        memcpy(out, rows + (size_t)skip * row, (size_t)m * row);
        out += (size_t)m * row;
        first += m;
        n -= m;
    }
    return SP_OK;
}

void sp_h5_unpacker_free(sp_h5_unpacker *unpacker)
{
    if (!unpacker)
        return;
    for (int i = 0; i < BANDS; i++)
        free(unpacker->band[i].rows);
    sp_h5_steps_free(&unpacker->steps);
    free(unpacker);
}
