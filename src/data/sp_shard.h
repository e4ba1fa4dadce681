/* Voxel shards (input/SCHEMA): the index of a data set, the samples in it, and writing.
 *
 *     rank 0: a limited child reads the HDF5 headers (h5/sp_h5.h) --> offsets,
 *             attributes, places of values, checked --> index, one copy a node
 *     any thread of any rank: sp_sample_read: pread at known file offsets; HDF5 unpacks
 *             chunks in a limited child of the rank, once (h5/sp_h5_rows.h)
 *     writer: sp_shard_create --> sp_shard_write_sample, any order --> sp_shard_close
 */
#ifndef SP_SHARD_H
#define SP_SHARD_H

#include <stdio.h>

#include "base/sp_arena.h"
#include "comm/sp_comm.h"
#include "data/sp_costs.h"
#include "data/sp_recipe.h"
#include "data/sp_spans.h"
#include "deck/sp_deck.h"
#include "h5/sp_h5.h"

/* The place and the type of one dataset in its file. */
typedef struct sp_extent {
    /* Byte offset in the file; -1: the dataset has no rows, or is stored in chunks. */
    int64_t at;
    int64_t rows;
    int cols;
    int type_size;   /* bytes of an element; 0: the file has no such dataset */
    char kind;       /* 'i' signed, 'u' unsigned, 'f' float */
    bool is_swapped; /* the byte order is not this machine's */
    sp_h5_chunks chunks;
    const char *name; /* of the dataset, "/coords"; a constant */
} sp_extent;

typedef struct sp_shard {
    char *path;
    int64_t first_sample, n_samples; /* numbers in the data set */
    int64_t file_bytes;
    sp_extent coords, features, labels, origin, subvoxel, crc;
    sp_extent point_voxel, point_labels, point_index;
    sp_extent context_voxel, context_block, context_point;
} sp_shard;

/* The block of a scan that a sample is. Lengths are in metre, as are coordinates and
 * origin of the sample. */
typedef struct sp_block {
    double low[2], high[2]; /* x, y: of the points that the block owns */
    double margin;          /* around it; points in it are context; may be 0 */
    /* The block's number in its scan, and the least and greatest number of a block that
     * has any point of this one, in its margin or its own. */
    int64_t number, first, last;
} sp_block;

/* Texts one after the other, each with its end. */
typedef struct sp_texts {
    sp_spans *row; /* the bytes of each */
    char *bytes;
    int64_t n_bytes;
} sp_texts;

/* The largest voxel_size, as of the key data.voxel_size, in metre. */
#define SP_VOXEL_LARGEST 1e9

typedef struct sp_dataset {
    int n_shards;
    sp_shard *shard;
    char *paths; /* all paths of the shards; NULL: each is malloc'd */
    int64_t n_samples, n_voxels, n_points;
    double voxel_size;
    int n_classes, ignore_label, n_features;
    char **class_name; /* [n_classes] names in the order of the labels */
    /* [n_classes] codes of the source, such as "3:4:5"; NULL: not stored. */
    char **class_code;
    /* [n_classes] the class as which a stored label is read; NULL: the label itself. */
    int *class_of;
    char **feature_name; /* [n_features] names of all columns */
    /* [n_features] the column of the files that each is; NULL: in the files' order. */
    int *column_of;
    /* [n_features] merged over the files by their numbers of voxels; NULL: not stored.
     */
    double *feature_mean, *feature_std;
    bool has_labels, has_subvoxel, has_points, has_cost, has_names;
    /* How scans became the samples, as far as the files agree; NULL: not stored, or
     * columns mean different values in different files. */
    sp_recipe *recipe;
    /* The samples are blocks of scans, and the points of their margins are stored. */
    bool has_blocks;
    sp_spans *rows;       /* the voxels of each sample; over all shards */
    sp_spans *point_rows; /* the same for points; NULL: no points stored */
    sp_costs costs;       /* [n_samples] rows; empty without has_cost */
    sp_texts name; /* [n_samples] names of the samples' sources; empty: not stored */
    /* The next three are empty without has_blocks. */
    sp_spans *context_rows; /* as point_rows, of the points of margins */
    sp_texts scan;   /* [n_samples] samples with the same text are blocks of one scan */
    sp_block *block; /* [n_samples] */
    /* The seven above, as one copy for the ranks of a node; empty: each is malloc'd. */
    sp_common common;
    int n_sharing; /* ranks that have `common` together; 0: the set is local */
    /* The hash of base names, sizes and attributes; a checkpoint recognizes its
     * training data by it. */
    uint64_t hash;
    /* The calling program, which gives the samples (data/sp_source.h); NULL: files. */
    struct sp_source *source;
    /* The files that sp_sample_read holds open; it has a lock of its own. */
    struct sp_shard_files *files;
    /* Unpacked chunks, with a lock of their own; NULL if all values are contiguous. */
    struct sp_h5_cache *cache;
    int64_t cache_bytes; /* the most bytes of this rank's memory that they occupy */
} sp_dataset;

/* A sample in host memory, converted. It is a set of buffers that grow and can be used
 * again; zero it before the first read. With `own` NULL the arrays have another owner:
 * an arena (sp_sample_allot), or the caller of a writer. */
typedef struct sp_sample {
    int64_t id; /* the sample's number in the data set */
    int64_t n, n_points;
    int32_t *coords;   /* [n][3] in units of the shard's voxel size */
    float *features;   /* [n][columns asked for] not normalized */
    int32_t *labels;   /* [n] class or SP_IGNORE */
    uint8_t *subvoxel; /* [n][3]; NULL: not in the data set */
    double origin[3];
    /* [n_points] row of the point's voxel; NULL unless points were asked for. */
    uint32_t *point_voxel;
    int32_t *point_labels; /* [n_points] class or SP_IGNORE */
    uint64_t *point_index; /* [n_points] row of the point in its scan */
    /* The points in the margin of a block, which other blocks own. NULL unless they
     * were asked for. */
    int64_t n_context;
    uint32_t *context_voxel; /* [n_context] row of the point's voxel */
    uint32_t *context_block; /* [n_context] number of the block that owns the point */
    uint32_t *context_point; /* [n_context] row among the points of that block */
    struct sp_sample_buffers *own;
} sp_sample;

/* The position of a row along an axis, in units of the shard's voxel size: the middle of
 * its subvoxel, or of the voxel. */
static inline double sp_sample_position(const sp_sample *s, int64_t row, int axis)
{
    const double inside = s->subvoxel ? (s->subvoxel[3 * row + axis] + 0.5) / 256 : 0.5;

    return s->coords[3 * row + axis] + inside;
}

/* The parts of a sample that sp_sample_read reads. */
typedef struct sp_sample_request {
    const int *columns; /* [n_columns] feature columns in the order wanted; NULL: all */
    int n_columns;
    /* True: checks checksum and duplicates too; ranges are always checked. */
    bool verify;
    bool with_points;
    bool with_context; /* the points of margins; the set has blocks */
    int64_t room;      /* more rows that sp_sample_allot makes room for */
    /* The sample that lends its buffers for reading; each thread needs its own.
     * Borrowed. The arrays are then from sp_sample_allot. NULL: the buffers of the
     * sample that is read are used. */
    sp_sample *reading;
} sp_sample_request;

/* Opens the files that the patterns match: rank 0 reads their headers, every rank gets
 * the index. Files are in the order of the patterns, within a pattern by name, and each
 * counts once, even under several names, with a warning. Collective, with the same
 * status and message on all ranks; with comm NULL local. SP_EDATA if anything is wrong
 * with the files; SP_EIO, SP_EMEM. Close after a failure too. */
sp_status sp_dataset_open(sp_dataset *set, const sp_strings *patterns, sp_comm *comm);
/* A part of the files of a cross-validation: the files of fold `fold` of `n`, which are
 * held out, or all others. Files are counted by base name, then by path, and file i is
 * of fold i % n. */
typedef struct sp_fold {
    int n, fold;
    bool is_held_out;
} sp_fold;
/* The same of one part of the files. SP_EDATA also with fewer files than folds. */
sp_status sp_dataset_open_fold(sp_dataset *set, const sp_strings *patterns,
                               const sp_fold *fold, sp_comm *comm);
void sp_dataset_close(sp_dataset *set);
/* The columns that data.features names (all if it is empty), malloc'd. SP_EDATA with
 * the nearest name; the message begins with `where` (sp_config_where). */
sp_status sp_dataset_columns(const sp_dataset *set, const sp_strings *features,
                             const char *where, int **columns, int *n_columns);
/* Makes the labels of the set be read as the classes name [n]. The same names in
 * another order set class_of; a set without labels fits any classes. Other names are
 * SP_EDATA with both lists; `whose` says in the message who gave name [n]. Local. */
sp_status sp_dataset_order_classes(sp_dataset *set, int n, char *const *name,
                                   const char *whose);
/* Checks that val fits train (voxel size, features), and makes val's labels be read as
 * train's classes, and its columns, found by name, in train's order. SP_EDATA. Warns if
 * samples of val were made in another way. */
sp_status sp_dataset_match(const sp_dataset *train, sp_dataset *val);
/* Compares the recipe of the set with a model's or other data's, which `whose` names in
 * the message: warns if a column means other values. SP_EDATA if the coordinates are in
 * another unit. */
sp_status sp_dataset_match_recipe(const sp_dataset *set, const sp_recipe *recipe,
                                  const char *whose);
/* Compares two lists of names. A list that has a name twice differs from every other.
 */
typedef enum sp_match { SP_EQUAL, SP_OTHER_ORDER, SP_OTHER_NAMES } sp_match;
sp_match sp_dataset_compare_names(int n_a, char *const *a, int n_b, char *const *b);
/* Writes ["a", "b"] of name[columns[i]], or of name[i] with columns NULL; the list is
 * cut when the text is full. */
void sp_dataset_print_names(char *text, size_t size, int n, char *const *name,
                            const int *columns);

/* The hash of the data set; the folder of the files does not count. */
uint64_t sp_dataset_hash(const sp_dataset *set);
/* True if any dataset of the shard is not contiguous. */
bool sp_shard_is_chunked(const sp_shard *shard);
/* The bytes of the index, of shared memory this rank's part, with what is kept of each
 * sample while it is used. */
int64_t sp_dataset_index_bytes(const sp_dataset *set);
int sp_dataset_shard_of(const sp_dataset *set, int64_t sample);
/* Words a sample's place, as "a.h5: sample 3 (tile.las[0,0])". Returns text [size]. */
const char *sp_dataset_print_sample(const sp_dataset *set, int64_t sample, char *text,
                                    size_t size);
/* The name of a sample; "" without has_names. */
const char *sp_dataset_name(const sp_dataset *set, int64_t sample);
/* The scan of a sample; the set has blocks. */
const char *sp_dataset_scan(const sp_dataset *set, int64_t sample);
int64_t sp_dataset_voxels(const sp_dataset *set, int64_t sample);
/* The first row of a sample in /coords of its file, in /point_voxel, in /context_voxel;
 * 0 if the set has no such rows. */
int64_t sp_dataset_first_voxel(const sp_dataset *set, int64_t sample);
int64_t sp_dataset_first_point(const sp_dataset *set, int64_t sample);
int64_t sp_dataset_first_context(const sp_dataset *set, int64_t sample);
/* The points of a sample; 0 without has_points. */
int64_t sp_dataset_points(const sp_dataset *set, int64_t sample);
/* The points in the margin of a sample; 0 without has_blocks. */
int64_t sp_dataset_context(const sp_dataset *set, int64_t sample);
/* The work of a sample, used to balance samples: the pairs of the 3^3 kernel if they
 * are known, else the voxels. */
int64_t sp_dataset_cost(const sp_dataset *set, int64_t sample);
/* A column of the sample's row of /cost; the set has_cost. */
int64_t sp_dataset_cost_column(const sp_dataset *set, int64_t sample, int column);

/* Reads one sample. Thread-safe: it uses no HDF5, and shares only the table of open
 * files and the cache of unpacked chunks, which have locks. Features of other types are
 * rounded to float32. Point arrays are filled if they are asked for and the set has
 * points. Data without labels give SP_IGNORE. The message of a failure names file,
 * dataset, sample (its number in that file, and its name), expected and found.
 * SP_EDATA, also for a file that cannot be read after some tries, since it is input;
 * SP_EMEM. */
sp_status sp_sample_read(const sp_dataset *set, int64_t sample,
                         const sp_sample_request *request, sp_sample *out);
/* Reads the labels of n rows of a file from row `first` on, of any samples, into
 * out->labels, without a second try: files with millions of small samples are counted as
 * fast as others. The other arrays have no content. */
sp_status sp_shard_read_labels(const sp_dataset *set, int shard, int64_t first,
                               int64_t n, sp_sample *out);
void sp_sample_destroy(sp_sample *sample);
/* Allocates the arrays of a sample, in its size, in an arena, for reading with
 * request->reading. *sample needs no destroying. SP_EMEM. */
sp_status sp_sample_allot(const sp_dataset *set, int64_t id,
                          const sp_sample_request *request, sp_arena *arena,
                          sp_sample *sample);
/* The most bytes of buffers that a thread needs for reading samples of up to n voxels.
 */
int64_t sp_sample_reading_bytes(int64_t n);

/* ---- writing (spvox, tests): one shard, contiguous, in the 1.10 format ---- */
typedef struct sp_shard_writer sp_shard_writer;

typedef struct sp_shard_meta {
    double voxel_size;
    int n_classes, ignore_label, n_features;
    char **class_name, **feature_name;
    char **class_code;                        /* [n_classes]; NULL: not written */
    const double *feature_mean, *feature_std; /* [n_features]; NULL: not written */
    bool has_labels, has_subvoxel, has_points;
    const sp_recipe *recipe; /* NULL: not written */
    /* [n_samples] the points in the margin of each sample, which are blocks of scans;
     * NULL: they are not. Needs has_points. Borrowed until sp_shard_create returns. */
    const int64_t *context;
    bool is_of_set; /* sp_shards_end gives the file its name, not sp_shard_close */
} sp_shard_meta;

/* Begins a shard. Sizes are declared first, so that every dataset is contiguous and
 * samples can be written in any order; the same content gives the same bytes. voxels
 * and points have n_samples entries; points is NULL without has_points. The file has a
 * temporary name until it is closed. Local. SP_EIO; SP_EUSAGE: the format cannot hold
 * such meta. *writer is NULL after a failure. */
sp_status sp_shard_create(sp_shard_writer **writer, const char *path,
                          const sp_shard_meta *meta, int64_t n_samples,
                          const int64_t *voxels, const int64_t *points);
/* Writes sample `index`, with all columns in `features`; each sample comes once. name
 * or cost is NULL if unknown: /names is written if any sample has a name, /cost if all
 * have a cost. */
sp_status sp_shard_write_sample(sp_shard_writer *writer, int64_t index,
                                const sp_sample *sample, const char *name,
                                const int64_t cost[SP_COST_COLUMNS]);
/* Sets the block of sample `index` of a shard with meta->context, and its scan. */
sp_status sp_shard_write_block(sp_shard_writer *writer, int64_t index, const char *scan,
                               const sp_block *block);
/* Flushes the file and renames it into place. With rc != SP_OK it removes the
 * unfinished file and returns rc. NULL does nothing. */
sp_status sp_shard_close(sp_shard_writer *writer, sp_status rc);
/* Gives the path of shard s of the n shards of a set: PREFIX-00000-of-00004.h5.
 * SP_EUSAGE: it is longer than size - 1 bytes, or PREFIX names a folder. */
sp_status sp_shard_path(const char *prefix, int s, int n, char *path, size_t size);
/* Keeps others from making shards of this prefix, whose unfinished files have the same
 * names: locks the file PREFIX.lock, on one rank. SP_EIO: somebody else holds it for some
 * seconds. A file system without locks keeps nobody. *lock is -1 before, and after a
 * failure. sp_shards_unlock removes the file; it accepts -1. */
sp_status sp_shards_lock(const char *prefix, int *lock);
void sp_shards_unlock(const char *prefix, int *lock);
/* Names the shards of a set, which were made with is_of_set, once all ranks have agreed
 * on rc: a set that failed, or was killed before its last shard was complete, has no
 * shard that training could mistake for the whole. With rc != SP_OK it removes them and
 * returns rc. A rank passes its shards s = rank, rank + size, ... < n. Local; to be
 * agreed on. SP_EIO. */
sp_status sp_shards_end(const char *prefix, int n, int rank, int size, sp_status rc);

#endif
