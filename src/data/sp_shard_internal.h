/* What the files of the module sp_shard share.
 *
 *     sp_shard.c          look-ups in an open data set
 *     sp_shard_match.c    columns and classes of two sets, or of a set and a model
 *     sp_shard_files.c    which files a pattern names; the table of open files
 *     sp_shard_probe.c    the child: headers of one file --> sp_dataset of one shard
 *     sp_shard_index.c    spawn, collect, broadcast, merge
 *     sp_shard_wire.c     an index as bytes
 *     sp_shard_convert.c  numbers of any stored type
 *     sp_sample.c         reading and checking a sample; sp_sample_unique.c: duplicates
 *     sp_shard_write.c    writing
 */
#ifndef SP_SHARD_INTERNAL_H
#define SP_SHARD_INTERNAL_H

#include "compute/sp_backend.h"
#include "h5/sp_h5.h"
#include "data/sp_shard.h"

enum {
    SP_SHARD_EXPANSION = 1100
}; /* most that compression can shrink: deflate's 1032 */

/* ---- an index as bytes (sp_shard_wire.c) ---- */

/* A growing buffer that is written, or a given one that is read. The first failure
 * stays in rc and makes later calls do nothing. */
typedef struct sp_wire {
    unsigned char *data;
    size_t size, room, at;
    bool is_reading;
    sp_status rc;
} sp_wire;

/* The same sequence of calls writes and reads. Read texts and arrays are malloc'd. */
void sp_wire_bytes(sp_wire *wire, void *data, size_t bytes);
void sp_wire_text(sp_wire *wire, char **text);
void sp_wire_texts(sp_wire *wire, char ***texts, int64_t n);
void sp_wire_array(sp_wire *wire, void **data, int64_t count, size_t size);
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

/* ---- stored numbers (sp_shard_convert.c) ---- */

/* n elements of the extent's type and byte order, which may be changed in place. Return
 * -1, or the first element that does not convert without loss. */
int64_t sp_convert_i64(const sp_extent *type, void *raw, int64_t n, int64_t *out);
int64_t sp_convert_i32(const sp_extent *type, void *raw, int64_t n, int32_t *out);
int64_t sp_convert_f32(const sp_extent *type, void *raw, int64_t n, float *out);
/* One element, after a conversion of the same raw bytes, for messages. */
double sp_convert_value(const sp_extent *type, const void *raw, int64_t i);

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
    sp_h5 *h5; /* NULL unless the shard has chunked datasets */
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

/* Headers of one file into an empty set of one shard; the probe child's work. */
sp_status sp_shard_probe(const char *path, sp_dataset *set);
/* True if any dataset of it must be read through HDF5. */
bool sp_shard_is_chunked(const sp_shard *shard);

/* Frames that the child sends: tag, number of bytes, bytes. */
typedef struct sp_probe_frame {
    uint64_t tag, bytes;
} sp_probe_frame;

enum {
    SP_PROBE_FILE = 1,  /* begins with this path of the list: int64 */
    SP_PROBE_SHARD = 2, /* sp_wire_shard */
    SP_PROBE_ERROR = 3, /* int64 status, message */
    SP_PROBE_END = 4, /* XXH64 of the bytes of all shard frames, one after the other */
    SP_PROBE_WALL_S = 60, /* limits for one file */
    SP_PROBE_WORK_S = 10
};

#endif
