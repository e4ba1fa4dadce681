/* The declarations that the files of the module sp_shard share.
 *
 *     sp_shard.c          look-ups in an open data set
 *     sp_shard_match.c    compares columns and classes of two sets, or of set and model
 *     sp_shard_files.c    the files that a pattern names; the table of open files
 *     sp_shard_header.c   headers of one file --> sp_dataset of one shard
 *     sp_shard_round.c    warns of features that float32 does not hold exactly
 *     sp_shard_index.c    collects, broadcasts and merges indices
 *     sp_shard_bytes.c    an index as bytes; sp_index_file.c: the index file of a folder
 *     sp_shard_chunked.c  what chunked files cost; the cache of unpacked chunks
 *     sp_sample.c         reads and checks a sample; sp_sample_unique.c: duplicates
 *     sp_shard_write.c    writes a shard */
#ifndef SP_SHARD_INTERNAL_H
#define SP_SHARD_INTERNAL_H

#include "base/sp_number.h"
#include "compute/sp_backend.h"
#include "data/sp_shard.h"
#include "h5/sp_h5_number.h"
#include "h5/sp_h5_rows.h"

enum { SP_EXTENTS = 12 }; /* the datasets of a shard that are read with each sample */

/* The i-th of these datasets. */
static inline sp_extent *sp_shard_extent(sp_shard *shard, int i)
{
    sp_extent *const all[SP_EXTENTS] = {
        &shard->coords,        &shard->features,      &shard->labels,
        &shard->origin,        &shard->subvoxel,      &shard->crc,
        &shard->point_voxel,   &shard->point_labels,  &shard->point_index,
        &shard->context_voxel, &shard->context_block, &shard->context_point};

    return all[i];
}

static inline int64_t sp_extent_row_bytes(const sp_extent *extent)
{
    return (int64_t)extent->cols * extent->type_size;
}

static inline sp_h5_type sp_extent_type(const sp_extent *extent)
{
    const sp_h5_type type = {extent->kind, extent->type_size, extent->is_swapped};

    return type;
}

/* ---- the arrays of an index, with values of each sample ---- */

/* The first SP_INDEX_COSTS of them are sp_spans; that one is costs.word. */
enum { SP_INDEX_COSTS = 5, SP_INDEX_ARRAYS = 9 };
typedef struct sp_index_array {
    void **at;
    int64_t n;   /* elements; 0: the set does not have it */
    size_t size; /* bytes of each */
} sp_index_array;

/* The i-th of them. Elements of 8 bytes come before those of 1. */
sp_index_array sp_index_array_of(sp_dataset *set, int i);

/* ---- an index as bytes (sp_shard_bytes.c) ---- */

/* Writes the index of one shard without its arrays to bytes, or reads it; serial->rc
 * reports a failure. */
void sp_shard_serialize(sp_serial *serial, sp_dataset *set);

/* ---- unique coordinates (sp_sample_unique.c), all in [-limit, limit) ---- */

/* True if the order of the rows proves them unique: sorted with x slowest, with z
 * slowest, or by Morton key as spvox writes them. False proves nothing. */
bool sp_unique_by_order(const int32_t *coords, int64_t n);
/* The first row that repeats an earlier one, or -1. `keys` has room for `slots` =
 * sp_unique_slots(n) keys. */
int64_t sp_unique_find(const int32_t *coords, int64_t n, uint64_t *keys, size_t slots);
size_t sp_unique_slots(int64_t n);

/* ---- files (sp_shard_files.c) ---- */

/* Lists all files that the patterns name, malloc'd. SP_EDATA: no file exists, or a file
 * of a numbered set is missing. Free them (sp_strings_free) after a failure too. */
sp_status sp_shard_glob(const sp_strings *patterns, sp_strings *paths);

typedef struct sp_shard_handle {
    int fd, slot;
} sp_shard_handle;

/* Creates the table of the open files of a data set, which also remembers of each
 * sample whether its coordinates were found unique. No file is opened. Destroying
 * closes those that are open; NULL is allowed. Local. SP_EMEM, and *files is NULL. */
sp_status sp_shard_files_create(struct sp_shard_files **files, int n_shards,
                                int64_t n_samples);
void sp_shard_files_destroy(struct sp_shard_files *files);
/* Opens a shard for reading, or finds it open. Thread-safe. Each handle is given back
 * with sp_shard_release. SP_EIO. */
sp_status sp_shard_acquire(const sp_dataset *set, int shard, sp_shard_handle *handle);
void sp_shard_release(const sp_dataset *set, sp_shard_handle *handle);
/* Makes the next sp_shard_acquire open the file anew. */
void sp_shard_forget(const sp_dataset *set, int shard);
/* Reads a sample as sp_sample_read does, but does not try again: SP_EIO if the file
 * could not be read. */
sp_status sp_sample_read_once(const sp_dataset *set, int64_t sample,
                              const sp_sample_request *request, sp_sample *out);
/* True if coordinates with this checksum were found unique when this sample was read
 * before. The same bytes need no second search. Thread-safe. */
bool sp_shard_is_unique(const sp_dataset *set, int64_t sample, uint32_t crc);
/* Remembers it. Thread-safe. */
void sp_shard_set_unique(const sp_dataset *set, int64_t sample, uint32_t crc);

/* ---- index ---- */

/* Reads the headers of one file into an empty set of one shard. Local. SP_EDATA names
 * the dataset and the expected value; SP_EMEM. */
sp_status sp_shard_header(sp_h5 *file, sp_dataset *set);

/* The values that rounding to float32 changes in the files of one data set; zero it to
 * begin. */
typedef struct sp_rounding {
    int n_columns, n_files;
    struct sp_rounded *column;
    char *path; /* the first file that is rounded, and its type */
    char kind;
    int type_size;
    int64_t rows, rows_seen;
} sp_rounding;

/* True if float32 does not hold all values of this type. */
bool sp_rounding_is_needed(const sp_extent *features);
/* Looks through a file, one of n_files; does nothing if float32 holds its type. */
sp_status sp_rounding_add(sp_rounding *rounding, sp_h5 *file, const sp_dataset *part,
                          int n_files);
/* Warns once if anything is rounded. */
void sp_rounding_warn(const sp_rounding *rounding);
void sp_rounding_free(sp_rounding *rounding);

/* Compares the files of a set over the nodes, unless they are on a shared file system.
 * Collective over the world, agreed. SP_EDATA names a file that nodes have different
 * copies of, or that one lacks; SP_EMEM, SP_EMPI. */
sp_status sp_shard_compare_copies(const sp_dataset *set, sp_comm *comm);
/* Gives the set a cache of unpacked chunks if any dataset is not contiguous, and warns
 * how much is unpacked for a sample. n_sharing ranks share this machine's memory.
 * Local. SP_EMEM. */
sp_status sp_shard_open_cache(sp_dataset *set, int n_sharing);

#endif
