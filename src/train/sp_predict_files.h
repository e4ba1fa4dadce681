/* The files of `sptrain predict`, on rank 0: one for each shard of data.val, with its
 * rows in the shard's order.
 *
 *     begin --> store, for each sample in the data set's order --> finish | discard
 *
 * No more than one file is open, whatever the number of shards. Until all are complete
 * their names end in ".tmp", so that a reader finds all files or no file.
 */
#ifndef SP_PREDICT_FILES_H
#define SP_PREDICT_FILES_H

#include "train/sp_infer.h"

/* The prediction of a sample as rank 0 stores it: this head, then logits [n][C] if they
 * are wanted, point indexes [n_points] (uint64), point labels [n_points] and labels [n]
 * (uint16). */
typedef struct sp_parcel {
    int64_t sample, n, n_points;
} sp_parcel;

typedef struct sp_predict_files {
    const sp_infer *infer; /* borrowed */
    bool with_logits;
    int label_bytes;  /* 1 or 2 */
    int ignore_label; /* label of samples left out: no class, fits label_bytes */
    /* The members below belong to the functions. */
    int64_t n_skipped;  /* stored samples that data.on_error = "skip" left out */
    int64_t n_voxels;   /* rows and points of the others */
    int64_t n_points;
    int n_begun;        /* files that have been created: of the first n_begun shards */
    struct sp_h5 *file; /* the last of them while it is written, else NULL */
} sp_predict_files;

/* Checks the names of the files and makes their folder. Local. SP_EUSAGE: two files
 * would have one name; SP_EIO; SP_EMEM. */
sp_status sp_predict_files_begin(sp_predict_files *files);
/* Writes the rows of a sample, and changes its labels in place on the way. Samples come
 * in their order, each once. Local. SP_EIO; SP_EMEM. */
sp_status sp_predict_files_store(sp_predict_files *files, char *parcel);
/* Completes the files and gives them their names. Local. SP_EIO. */
sp_status sp_predict_files_finish(sp_predict_files *files);
/* Deletes the files that were begun; the error record of the failure is kept. Local. */
void sp_predict_files_discard(sp_predict_files *files);

#endif
