/* The cost of reading files in chunks, and the cache of unpacked chunks.
 *
 * A sample is some rows of each dataset, and the chunks that hold them are unpacked
 * whole. The cache of a rank has a sixteenth of its share of the machine's memory, at
 * least LEAST and one chunk of each dataset, and no more than all values occupy. If it
 * holds them all, each chunk is unpacked once on each rank that needs it. */
#include <assert.h>
#include <stdio.h>

#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "data/sp_shard_internal.h"

enum { LEAST = 64 << 20, SHARE = 16 };

typedef struct chunked_sizes {
    int n_files;
    const char *first;     /* path of the first file with chunks */
    int64_t all;           /* bytes unpacked of all datasets in chunks */
    int64_t blocks;        /* bytes of one block of each of them, in the worst file */
    double sample, chunks; /* bytes of all samples; of the blocks that hold them */
} chunked_sizes;

/* Adds a dataset to the sizes of its file. Samples begin anywhere in a block, so one of
 * m rows touches blocks of m + block - 1 rows on average. */
static int64_t measure_extent(const sp_extent *extent, int64_t n_samples,
                              chunked_sizes *sizes)
{
    const int64_t row_bytes = sp_extent_row_bytes(extent);
    const int64_t block = sp_h5_block_rows(&extent->chunks, row_bytes);
    const double row = (double)row_bytes, rows = (double)extent->rows;
    const double touched = rows + (double)n_samples * (double)(block - 1);
    const double most = rows * (double)n_samples;

    sizes->all += extent->rows * row_bytes;
    sizes->sample += rows * row;
    sizes->chunks += row * (touched < most ? touched : most);
    return sp_least(block, extent->rows) * row_bytes;
}

static void measure_shard(const sp_shard *shard, chunked_sizes *sizes)
{
    int64_t blocks = 0;
    bool is_chunked = false;

    for (int i = 0; i < SP_EXTENTS; i++) {
        const sp_extent *extent = sp_shard_extent((sp_shard *)(uintptr_t)shard, i);

        if (!extent->chunks.rows || extent->rows == 0)
            continue;
        blocks += measure_extent(extent, shard->n_samples, sizes);
        is_chunked = true;
    }
    if (is_chunked && sizes->n_files++ == 0)
        sizes->first = shard->path;
    sizes->blocks = sp_most(sizes->blocks, blocks);
}

bool sp_shard_is_chunked(const sp_shard *shard)
{
    for (int i = 0; i < SP_EXTENTS; i++)
        if (sp_shard_extent((sp_shard *)(uintptr_t)shard, i)->chunks.rows)
            return true;
    return false;
}

static void warn_chunked(const sp_dataset *set, const chunked_sizes *sizes)
{
    const double mib = 1 << 20;
    const char *more = sizes->n_files > 1 ? " and others" : "";

    if (sizes->all <= set->cache_bytes)
        sp_log_warn0(
            "%s%s: chunked or compressed: each rank unpacks the values that it "
            "needs once and keeps them (%.1f MiB in all); contiguous files "
            "need neither time nor memory for it",
            sizes->first, more, (double)sizes->all / mib);
    else
        sp_log_warn0("%s%s: chunked or compressed, and %.1f MiB of unpacked values do "
                     "not fit into the %.1f MiB that a rank keeps: a sample that is "
                     "read in random order is unpacked with its chunks, %.1f times its "
                     "bytes (%.2f MiB for %.2f MiB); contiguous files, or chunks of "
                     "about a sample's size, are read faster",
                     sizes->first, more, (double)sizes->all / mib,
                     (double)set->cache_bytes / mib, sizes->chunks / sizes->sample,
                     sizes->chunks / (double)set->n_samples / mib,
                     sizes->sample / (double)set->n_samples / mib);
}

sp_status sp_shard_open_cache(sp_dataset *set, int n_sharing)
{
    chunked_sizes sizes = {0};
    int64_t most;

    assert(!set->cache && n_sharing >= 1);
    for (int i = 0; i < set->n_shards; i++)
        measure_shard(&set->shard[i], &sizes);
    most = (int64_t)(sp_machine_memory() / SHARE) / n_sharing;
    most = sp_most(sp_most(most, LEAST), sizes.blocks);
    set->cache_bytes = sp_least(most, sizes.all);
    for (int i = 0; i < set->n_shards && !set->cache; i++)
        for (int k = 0; k < SP_EXTENTS && !set->cache; k++)
            if (sp_shard_extent(&set->shard[i], k)->chunks.rows)
                SP_TRY(sp_h5_cache_create(&set->cache, set->cache_bytes));
    if (sizes.n_files > 0)
        warn_chunked(set, &sizes);
    return SP_OK;
}
