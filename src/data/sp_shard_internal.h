/* What the files of the module sp_shard share.
 *
 *     sp_shard.c          look-ups in an open data set
 *     sp_shard_match.c    columns and classes of two sets, or of a set and a model
 *     sp_shard_files.c    which files a pattern names; the table of open files
 *     sp_shard_header.c   headers of one file --> sp_dataset of one shard
 *     sp_shard_round.c    features that float32 does not hold exactly
 *     sp_shard_index.c    collect, broadcast, merge
 *     sp_shard_wire.c     an index as bytes
 *     sp_sample.c         reading and checking a sample; sp_sample_unique.c: duplicates
 *     sp_shard_write.c    writing
 */
#ifndef SP_SHARD_INTERNAL_H
#define SP_SHARD_INTERNAL_H

#include "compute/sp_backend.h"
#include "data/sp_shard.h"
#include "h5/sp_h5_number.h"
#include "h5/sp_h5_rows.h"

enum { SP_EXTENTS = 9 }; /* datasets of a shard that stay in the file */

/* The i-th of them. */
static inline sp_extent *sp_shard_extent(sp_shard *shard, int i)
{
    sp_extent *const all[SP_EXTENTS] = {
        &shard->coords,      &shard->features,     &shard->labels,
        &shard->origin,      &shard->subvoxel,     &shard->crc,
        &shard->point_voxel, &shard->point_labels, &shard->point_index};

    return all[i];
}

static inline sp_h5_type sp_extent_type(const sp_extent *extent)
{
    const sp_h5_type type = {extent->kind, extent->type_size, extent->is_swapped};

    return type;
}

/* ---- an index as bytes (sp_shard_wire.c) ---- */

/* A data set of one shard. */
void sp_wire_shard(sp_wire *wire, sp_dataset *set);

/* A pass over data in the cache, compiled for the wider registers of newer processors
 * too, which halve its time. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                 \
    !defined(__SANITIZE_ADDRESS__)
#define SP_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SP_WIDE
#endif

/* ---- unique coordinates (sp_sample_unique.c), all in [-limit, limit) ---- */

/* True if the order of the rows proves them unique (sorted with x or with z slowest, or
 * by Morton key as spvox writes them); false proves nothing. */
bool sp_unique_by_order(const int32_t *coords, int64_t n);
/* First row that repeats an earlier one, or -1. keys: room for sp_unique_slots(n) of
 * them. */
int64_t sp_unique_find(const int32_t *coords, int64_t n, uint64_t *keys, size_t slots);
size_t sp_unique_slots(int64_t n);

/* ---- files (sp_shard_files.c) ---- */

/* All files that the patterns name; malloc'd. SP_EDATA: none, or a family lacks a
 * member. */
sp_status sp_shard_glob(const sp_strings *patterns, sp_strings *paths);
void sp_shard_glob_free(sp_strings *paths);

typedef struct sp_shard_handle {
    int fd, slot;
} sp_shard_handle;

sp_status sp_shard_files_create(struct sp_shard_files **files, int n_shards,
                                int64_t n_samples);
void sp_shard_files_destroy(struct sp_shard_files *files);
/* Thread-safe. Each taken handle is given back. */
sp_status sp_shard_take(const sp_dataset *set, int shard, sp_shard_handle *handle);
void sp_shard_give(const sp_dataset *set, sp_shard_handle *handle);
/* The next take opens the file anew. */
void sp_shard_forget(const sp_dataset *set, int shard);
/* sp_sample_read without its patience: SP_EIO where the file could not be read. */
sp_status sp_sample_read_once(const sp_dataset *set, int64_t sample,
                              const sp_sample_request *request, sp_sample *out);
/* Coordinates with this checksum were found unique when this sample was read before:
 * bytes that are the same need no second search. Thread-safe. */
bool sp_shard_is_known(const sp_dataset *set, int64_t sample, uint32_t crc);
void sp_shard_make_known(const sp_dataset *set, int64_t sample, uint32_t crc);

/* ---- index ---- */

/* Headers of one file into an empty set of one shard, then the places of its chunks:
 * from there on its values are read by sp_sample_read. */
sp_status sp_shard_header(sp_h5 *file, sp_dataset *set);
sp_status sp_shard_take_chunks(sp_h5 *file, sp_shard *shard);

/* Rounding of features to float32 in the files of one data set; zeroed to begin. */
typedef struct sp_rounding {
    int n_columns, n_files;
    struct sp_rounded *column;
    char *path; /* of the first such file, with its type */
    char kind;
    int type_size;
    int64_t rows, rows_seen;
} sp_rounding;

/* Looks through a file, one of n_files; nothing where its type loses nothing. Before
 * sp_shard_take_chunks. */
sp_status sp_rounding_add(sp_rounding *rounding, sp_h5 *file, const sp_dataset *part,
                          int n_files);
/* One warning where anything is rounded. */
void sp_rounding_say(const sp_rounding *rounding);
void sp_rounding_free(sp_rounding *rounding);

/* True if any dataset of it is not contiguous. */
bool sp_shard_is_chunked(const sp_shard *shard);

#endif
