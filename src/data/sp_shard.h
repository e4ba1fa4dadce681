/* Voxel shards (input/SCHEMA): the index of a data set and the samples in it.
 *
 *     rank 0: limited child reads the HDF5 headers (h5/sp_h5.h) --> offsets, attributes,
 *             places of values, checked --> sp_dataset index --broadcast--> every rank
 *     any thread of any rank: sp_sample_read: pread at known file offsets; chunks are
 *             unpacked there (h5/sp_h5_rows.h); no HDF5
 */
#ifndef SP_SHARD_H
#define SP_SHARD_H

#include <stdio.h>

#include "comm/sp_comm.h"
#include "compute/sp_tensor.h"
#include "deck/sp_deck.h"

enum { SP_COST_COLUMNS = 6 };

/* One dataset as it lies in the file. */
typedef struct sp_extent {
    int64_t at; /* byte offset in the file; -1: none (no rows, or chunks) */
    int64_t rows;
    int cols;
    int type_size;   /* bytes of an element; 0: the file has no such dataset */
    char kind;       /* 'i' signed, 'u' unsigned, 'f' float */
    bool is_swapped; /* byte order differs from this machine's */
    struct sp_h5_chunks *chunks; /* h5/sp_h5_rows.h; NULL: contiguous */
} sp_extent;

typedef struct sp_shard {
    char *path;
    int64_t first_sample, n_samples; /* in the data set */
    int64_t file_bytes;
    sp_extent coords, features, labels, origin, subvoxel, crc;
    sp_extent point_voxel, point_labels, point_index;
} sp_shard;

typedef struct sp_dataset {
    int n_shards;
    sp_shard *shard;
    int64_t n_samples, n_voxels, n_points;
    double voxel_size;
    int n_classes, ignore_label, n_features;
    char **class_name; /* [n_classes] */
    char **class_code; /* [n_classes] codes of the source, "3:4:5"; NULL: not stored */
    int *class_of;     /* [n_classes] what a stored label is read as; NULL: itself */
    char **feature_name;                /* [n_features] all columns of the files */
    double *feature_mean, *feature_std; /* [n_features]; NULL: not stored. By count */
    bool has_labels, has_subvoxel, has_points, has_cost, has_names;
    int64_t *offset;       /* [n_samples + n_shards] offsets of shard i start at
                              shard[i].first_sample + i: rows within the shard */
    int64_t *point_offset; /* like offset; NULL */
    int64_t *cost;         /* [n_samples][SP_COST_COLUMNS]; NULL */
    char **name;           /* [n_samples]; NULL */
    uint64_t hash; /* of base names, sizes and attributes: a checkpoint's data index */
    struct sp_shard_files *files; /* open files of sp_sample_read; has its own lock */
} sp_dataset;

/* One sample in host memory, converted: a reusable set of buffers that grow. Zero it
 * before the first read; with `own` NULL the arrays are somebody else's (as a writer
 * may be given). */
typedef struct sp_sample {
    int64_t id; /* in the data set */
    int64_t n, n_points;
    int32_t *coords;   /* [n][3] in units of the shard's voxel size */
    float *features;   /* [n][n_features of the selection], not normalized */
    int32_t *labels;   /* [n] class or SP_IGNORE */
    uint8_t *subvoxel; /* [n][3]; NULL: the data set has none */
    double origin[3];
    uint32_t *point_voxel; /* [n_points]; NULL unless points were asked for */
    int32_t *point_labels; /* [n_points] class or SP_IGNORE */
    uint64_t *point_index; /* [n_points] */
    struct sp_sample_buffers *own;
} sp_sample;

/* What sp_sample_read reads. */
typedef struct sp_sample_request {
    const int *columns; /* [n_columns] feature columns in the order wanted; NULL: all */
    int n_columns;
    bool verify; /* CRC and duplicate check too; range checks are always done */
    bool with_points;
    /* NULL: the sample's own. Borrowed: whose buffers for reading are used, one for
     * each thread; the sample's arrays are then those of sp_sample_lend. */
    sp_sample *reading;
} sp_sample_request;

/* Collective: the index of the files that match the patterns (glob), read by rank 0;
 * within a pattern by name, each file once. The same status and message on all ranks:
 * SP_EDATA for whatever is wrong with the files. comm NULL: local. Close after failure
 * too. */
sp_status sp_dataset_open(sp_dataset *set, const sp_strings *patterns, sp_comm *comm);
void sp_dataset_close(sp_dataset *set);
/* Columns named by data.features (all if empty), malloc'd. SP_EDATA with nearest name,
 * which begins with `where` (sp_config_where). */
sp_status sp_dataset_columns(const sp_dataset *set, const sp_strings *features,
                             const char *where, int **columns, int *n_columns);
/* The labels of the set are read as the classes name [n] from now on: the same names in
 * another order set class_of; a set without labels fits any. Else SP_EDATA with both
 * lists; `whose` [n] are, for the message. Local. */
sp_status sp_dataset_take_classes(sp_dataset *set, int n, char *const *name,
                                  const char *whose);
/* Train and val fit each other (voxel size, features); val takes train's classes. */
sp_status sp_dataset_match(const sp_dataset *train, sp_dataset *val);
/* Two lists of names. A name that is twice in a list makes it differ from others. */
typedef enum sp_likeness { SP_EQUAL, SP_OTHER_ORDER, SP_OTHER_NAMES } sp_likeness;
sp_likeness sp_dataset_compare_names(int n_a, char *const *a, int n_b, char *const *b);
/* ["a", "b"] of name[columns[i]] (columns NULL: name[i]), cut where the text is full.
 */
void sp_dataset_print_names(char *text, size_t size, int n, char *const *name,
                            const int *columns);

int sp_dataset_shard_of(const sp_dataset *set, int64_t sample);
int64_t sp_dataset_voxels(const sp_dataset *set, int64_t sample);
/* Points of a sample; 0 without has_points. */
int64_t sp_dataset_points(const sp_dataset *set, int64_t sample);
/* Work of a sample for balancing: pairs of the 3^3 kernel where known, else voxels. */
int64_t sp_dataset_cost(const sp_dataset *set, int64_t sample);

/* Read one sample. Thread-safe: no HDF5, no shared state but the table of open files.
 * Features of other types are rounded to float32. Point arrays are filled where asked
 * for and has_points. Unlabelled data give SP_IGNORE. The message names file, dataset,
 * sample (its number in that file, and name), expected and found; SP_EDATA, SP_EIO
 * where the device fails, SP_EMEM. */
sp_status sp_sample_read(const sp_dataset *set, int64_t sample,
                         const sp_sample_request *request, sp_sample *out);
void sp_sample_destroy(sp_sample *sample);
/* The arrays of a sample that is read with request->reading, as large as it is, from an
 * arena. *sample needs no destroying. SP_EMEM. */
sp_status sp_sample_lend(const sp_dataset *set, int64_t id,
                         const sp_sample_request *request, sp_arena *arena,
                         sp_sample *sample);
/* Bytes of the buffers for reading samples of up to n voxels: most that a thread has.
 */
int64_t sp_sample_reading_bytes(int64_t n);

/* ---- writing (spvox, tests): one shard, contiguous, 1.10 format ---- */
typedef struct sp_shard_writer sp_shard_writer;

typedef struct sp_shard_meta {
    double voxel_size;
    int n_classes, ignore_label, n_features;
    char **class_name, **feature_name;
    char **class_code;                        /* [n_classes]; NULL: not written */
    const double *feature_mean, *feature_std; /* NULL: not written */
    bool has_labels, has_subvoxel, has_points;
} sp_shard_meta;

/* Sizes are declared first, so that every dataset is contiguous and samples can be
 * written in any order, with the same bytes for the same content. voxels, points
 * [n_samples]; points NULL without has_points. The file has a temporary name until it
 * is closed. Local. SP_EIO; SP_EUSAGE for meta that the format cannot hold. *writer
 * NULL on failure. */
sp_status sp_shard_create(sp_shard_writer **writer, const char *path,
                          const sp_shard_meta *meta, int64_t n_samples,
                          const int64_t *voxels, const int64_t *points);
/* sample: all columns in features; name, cost NULL: none. /names is written if any
 * sample has one, /cost if all have. Every sample once. */
sp_status sp_shard_write_sample(sp_shard_writer *writer, int64_t index,
                                const sp_sample *sample, const char *name,
                                const int64_t cost[SP_COST_COLUMNS]);
/* Flushes and renames into place; on rc != SP_OK removes the unfinished file and
 * returns rc. NULL is fine. */
sp_status sp_shard_close(sp_shard_writer *writer, sp_status rc);

#endif
