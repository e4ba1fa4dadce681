#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "h5/sp_h5_child.h"
#include "h5/sp_h5_internal.h"

/* Requests for less would cost more than the unpacking. */
enum { UNIT = 256 << 10 };

typedef struct block {
    const void *key; /* of the block's dataset */
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

int64_t sp_h5_block_rows(const sp_h5_chunks *c, int64_t row_bytes)
{
    const int64_t bytes = c->rows * row_bytes;

    assert(c->rows > 0 && bytes >= 0);
    return bytes > 0 && bytes < UNIT ? c->rows * (UNIT / bytes) : c->rows;
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

static block *cache_find(sp_h5_cache *cache, const void *key, int64_t index)
{
    for (int64_t i = 0; i < cache->n; i++)
        if (cache->block[i].index == index && cache->block[i].key == key)
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

static sp_status cache_unpack(sp_h5_cache *cache, const sp_h5_packed *set,
                              int64_t index, block *b)
{
    const int64_t step = sp_h5_block_rows(&set->chunks, set->row_bytes);
    const int64_t first = index * step, left = set->rows - first;
    const int64_t n = left < step ? left : step;
    const sp_h5_rows_request request = {.path = set->path,
                                        .name = set->name,
                                        .where = set->where,
                                        .fd = set->fd,
                                        .first = first,
                                        .n = n,
                                        .bytes = n * set->row_bytes,
                                        .chunk_bytes = set->chunks.bytes};

    *b = (block){.key = set->key, .index = index, .bytes = request.bytes};
    cache_make_room(cache, b->bytes);
    b->rows = malloc((size_t)b->bytes + 1);
    if (!b->rows)
        return SP_FAIL(SP_EMEM, "%s: no memory for a chunk of %lld bytes", set->where,
                       (long long)b->bytes);
    SP_TRY(sp_h5_reader_child
               ? sp_h5_reader_child->rows(&cache->child, &request, b->rows)
               : sp_h5_values(set->path, set->name, first, n, request.bytes, b->rows));
    cache->unpacked += b->bytes;
    return SP_OK;
}

static sp_status cache_get(sp_h5_cache *cache, const sp_h5_packed *set, int64_t index,
                           const unsigned char **rows)
{
    block *found = cache_find(cache, set->key, index), fresh = {0};
    sp_status rc;

    if (!found) {
        rc = cache_unpack(cache, set, index, &fresh);
        if (rc == SP_OK && !sp_list_grow(&cache->block, cache->n, sizeof fresh))
            rc = SP_FAIL(SP_EMEM, "%s: no memory for a chunk", set->where);
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

static sp_status cache_copy(sp_h5_cache *cache, const sp_h5_packed *set, int64_t first,
                            int64_t n, unsigned char *to)
{
    const int64_t row = set->row_bytes, step = sp_h5_block_rows(&set->chunks, row);
    const unsigned char *rows = NULL;

    while (n > 0 && row > 0) {
        const int64_t index = first / step, skip = first % step;
        const int64_t m = step - skip < n ? step - skip : n;

        SP_TRY(cache_get(cache, set, index, &rows));
        memcpy(to, rows + skip * row, (size_t)(m * row));
        to += m * row;
        first += m;
        n -= m;
    }
    return SP_OK;
}

sp_status sp_h5_cache_read(sp_h5_cache *cache, const sp_h5_packed *set, int64_t first,
                           int64_t n, void *to)
{
    sp_status rc;

    assert(first >= 0 && n >= 0 && first <= set->rows - n);
    pthread_mutex_lock(&cache->lock);
    rc = cache_copy(cache, set, first, n, to);
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
