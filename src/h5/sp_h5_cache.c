#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "h5/sp_h5_child.h"
#include "h5/sp_h5_internal.h"
#include "h5/sp_h5_rows.h"

/* UNIT: requests for less would cost more than the unpacking. EXPANSION bounds how much
 * larger than its file a dataset may claim to be; deflate reaches 1032. */
enum { UNIT = 256 << 10, EXPANSION = 1100 };

typedef struct block {
    uint64_t serial; /* serial of the block's table */
    int64_t index;
    int64_t bytes;
    uint64_t last_use;
    unsigned char *rows;
} block;

struct sp_h5_cache {
    pthread_mutex_t lock;
    sp_h5_child child; /* pid 0: it is not started, or it died */
    int64_t most, used, unpacked;
    uint64_t clock;
    block *block;
    int64_t n;
};

/* ---- the table ---- */

/* The bytes of n rows; -1 if it overflows. */
static int64_t chunks_multiply(const sp_h5_chunks *c, int64_t n)
{
    int64_t bytes = c->type_size;

    if (__builtin_mul_overflow(bytes, n, &bytes))
        return -1;
    for (int d = 1; d < c->rank; d++)
        if (__builtin_mul_overflow(bytes, c->dim[d], &bytes))
            return -1;
    return bytes;
}

int64_t sp_h5_chunks_bytes(const sp_h5_chunks *c, int64_t n)
{
    const int64_t bytes = chunks_multiply(c, n);

    assert(bytes >= 0);
    return bytes;
}

/* The number of rows; a scalar has one. */
static int64_t chunks_rows(const sp_h5_chunks *c)
{
    return c->rank > 0 ? c->dim[0] : 1;
}

int64_t sp_h5_chunks_block(const sp_h5_chunks *c)
{
    const int64_t bytes = sp_h5_chunks_bytes(c, c->rows);

    return bytes > 0 && bytes < UNIT ? c->rows * (UNIT / bytes) : c->rows;
}

static bool chunks_are_shaped(const sp_h5_chunks *c)
{
    if (!c->name || c->rank < 0 || c->rank > SP_H5_RANK || c->type_size < 1 ||
        c->rows < 1 || c->bytes < 1)
        return false;
    for (int d = 0; d < c->rank; d++)
        if (c->dim[d] < 0)
            return false;
    return true;
}

bool sp_h5_chunks_check(const sp_h5_chunks *c, int64_t file_bytes, char *why,
                        size_t size)
{
    int64_t most = SP_H5_CHUNK, rows, all;

    if (!chunks_are_shaped(c)) {
        snprintf(why, size, "its chunks do not make up its shape");
        return false;
    }
    most += file_bytes < INT64_MAX / 8 ? SP_H5_CHUNK_FACTOR * file_bytes : 0;
    rows = chunks_multiply(c, c->rows);
    all = chunks_multiply(c, chunks_rows(c));
    if (rows < 0 || rows > most || c->bytes > most)
        snprintf(why, size,
                 "its chunks of %lld rows are too large to unpack (at most %lld MiB, "
                 "of a file of this size): write it with smaller chunks",
                 (long long)c->rows, (long long)(most >> 20));
    else if (all < 0 || all / EXPANSION > file_bytes)
        snprintf(why, size,
                 "larger than the file (%lld bytes) can hold: truncated or damaged",
                 (long long)file_bytes);
    else
        return true;
    return false;
}

void sp_h5_chunks_serialize(sp_serial *serial, sp_h5_chunks **chunks)
{
    static _Atomic uint64_t last_serial;
    sp_h5_chunks *c;

    if (!sp_serial_struct(serial, (void **)chunks, sizeof *c))
        return;
    c = *chunks;
    sp_serial_text(serial, &c->name);
    sp_serial_bytes(serial, c->dim, sizeof c->dim);
    sp_serial_bytes(serial, &c->rank, sizeof c->rank);
    sp_serial_bytes(serial, &c->type_size, sizeof c->type_size);
    sp_serial_bytes(serial, &c->rows, sizeof c->rows);
    sp_serial_bytes(serial, &c->bytes, sizeof c->bytes);
    c->serial = atomic_fetch_add(&last_serial, 1) + 1;
}

void sp_h5_chunks_free(sp_h5_chunks *chunks)
{
    if (!chunks)
        return;
    free(chunks->name);
    free(chunks);
}

/* ---- blocks ---- */

sp_status sp_h5_cache_create(sp_h5_cache **cache, int64_t most)
{
    assert(cache && most >= 0);
    SP_TRY(SP_NEW(cache, 1, "unpacked chunks"));
    (*cache)->most = most;
    pthread_mutex_init(&(*cache)->lock, NULL);
    return SP_OK;
}

static block *cache_find(sp_h5_cache *cache, uint64_t serial, int64_t index)
{
    for (int64_t i = 0; i < cache->n; i++)
        if (cache->block[i].index == index && cache->block[i].serial == serial)
            return &cache->block[i];
    return NULL;
}

static void cache_drop(sp_h5_cache *cache, block *b)
{
    free(b->rows);
    cache->used -= b->bytes;
    *b = cache->block[--cache->n];
}

/* Frees the blocks unused for longest until one of `bytes` bytes fits. */
static void cache_make_room(sp_h5_cache *cache, int64_t bytes)
{
    while (cache->n > 0 && cache->used + bytes > cache->most) {
        block *oldest = cache->block;

        for (int64_t i = 1; i < cache->n; i++)
            if (cache->block[i].last_use < oldest->last_use)
                oldest = &cache->block[i];
        cache_drop(cache, oldest);
    }
}

/* A part of a dataset that is to be unpacked. */
typedef struct cache_source {
    const sp_h5_chunks *chunks;
    const char *path, *where;
    int fd;
} cache_source;

static sp_status cache_unpack(sp_h5_cache *cache, const cache_source *from,
                              int64_t index, block *b)
{
    const sp_h5_chunks *c = from->chunks;
    const int64_t step = sp_h5_chunks_block(c), first = index * step;
    const int64_t left = chunks_rows(c) - first, n = left < step ? left : step;
    const sp_h5_rows_request request = {.path = from->path,
                                        .name = c->name,
                                        .where = from->where,
                                        .fd = from->fd,
                                        .first = first,
                                        .n = n,
                                        .bytes = sp_h5_chunks_bytes(c, n),
                                        .chunk_bytes = c->bytes};

    *b = (block){.serial = c->serial, .index = index, .bytes = request.bytes};
    cache_make_room(cache, b->bytes);
    b->rows = malloc((size_t)b->bytes + 1);
    if (!b->rows)
        return SP_FAIL(SP_EMEM, "%s: no memory for a chunk of %lld bytes", from->where,
                       (long long)b->bytes);
    SP_TRY(sp_h5_reader_child
               ? sp_h5_reader_child->rows(&cache->child, &request, b->rows)
               : sp_h5_values(from->path, c->name, first, n, request.bytes, b->rows));
    cache->unpacked += b->bytes;
    return SP_OK;
}

static sp_status cache_get(sp_h5_cache *cache, const cache_source *from, int64_t index,
                           const unsigned char **rows)
{
    block *found = cache_find(cache, from->chunks->serial, index), fresh = {0};
    sp_status rc;

    if (!found) {
        rc = cache_unpack(cache, from, index, &fresh);
        if (rc == SP_OK && !sp_list_grow(&cache->block, cache->n, sizeof fresh))
            rc = SP_FAIL(SP_EMEM, "%s: no memory for a chunk", from->where);
        if (rc != SP_OK) {
            free(fresh.rows);
            return rc;
        }
        found = &cache->block[cache->n++];
        *found = fresh;
        cache->used += fresh.bytes;
    }
    found->last_use = ++cache->clock;
    *rows = found->rows;
    return SP_OK;
}

static sp_status cache_copy(sp_h5_cache *cache, const cache_source *from, int64_t first,
                            int64_t n, unsigned char *to)
{
    const int64_t step = sp_h5_chunks_block(from->chunks);
    const int64_t row = sp_h5_chunks_bytes(from->chunks, 1);
    const unsigned char *rows = NULL;

    while (n > 0 && row > 0) {
        const int64_t index = first / step, skip = first % step;
        const int64_t m = step - skip < n ? step - skip : n;

        SP_TRY(cache_get(cache, from, index, &rows));
        memcpy(to, rows + skip * row, (size_t)(m * row));
        to += m * row;
        first += m;
        n -= m;
    }
    return SP_OK;
}

sp_status sp_h5_cache_read(sp_h5_cache *cache, const sp_h5_chunks *chunks,
                           const char *path, int fd, const char *where, int64_t first,
                           int64_t n, void *to)
{
    const cache_source from = {chunks, path, where, fd};
    sp_status rc;

    assert(first >= 0 && n >= 0 && first <= chunks_rows(chunks) - n);
    pthread_mutex_lock(&cache->lock);
    rc = cache_copy(cache, &from, first, n, to);
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int64_t sp_h5_cache_unpacked(sp_h5_cache *cache)
{
    int64_t bytes;

    pthread_mutex_lock(&cache->lock);
    bytes = cache->unpacked;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

void sp_h5_cache_destroy(sp_h5_cache *cache)
{
    if (!cache)
        return;
    if (sp_h5_reader_child)
        sp_h5_reader_child->kill(&cache->child);
    for (int64_t i = 0; i < cache->n; i++)
        free(cache->block[i].rows);
    free(cache->block);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}
