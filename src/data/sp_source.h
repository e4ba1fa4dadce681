/* A data set that the calling program has: it gives sample i when a reader asks for it,
 * instead of files (data/sp_shard.h). The sizes of all samples are known before, since
 * steps are dealt to the ranks by them. */
#ifndef SP_SOURCE_H
#define SP_SOURCE_H

#include "data/sp_shard.h"

/* Fills coords [n][3], features [n][all columns] and labels [n] of sample i. Returns
 * 0, or another number after a failure. Any thread. */
typedef int sp_source_read(void *arg, int64_t i, int32_t *coords, float *features,
                           int32_t *labels);

typedef struct sp_source {
    sp_source_read *read;
    void *arg; /* borrowed */
} sp_source;

/* The properties that a data set of a source shares with one of files; names NULL:
 * "f0", ... and "class0", ... Borrowed during the call. */
typedef struct sp_source_about {
    double voxel_size;
    int n_features, n_classes;
    const char *const *feature_name, *const *class_name;
    const double *mean, *std; /* [n_features]; both NULL: not known */
} sp_source_about;

/* Makes *set the data set of a source; its samples have voxels [n_samples] voxels; it
 * is closed by sp_dataset_close, after a failure too. Local. SP_EUSAGE: a number is out
 * of range; SP_EMEM. */
sp_status sp_source_open(sp_dataset *set, const sp_source_about *about,
                         int64_t n_samples, const int64_t *voxels, sp_source source);
/* Checks a sample of the caller like one of a file: ranges, finite features, and
 * with `keys` (room for slots = sp_unique_slots(n) of them, else NULL) that coordinates
 * are unique. SP_EDATA with sample, row, expected and found. Any thread. */
sp_status sp_source_check(const sp_dataset *set, int64_t i, int64_t n,
                          const int32_t *coords, const float *features,
                          const int32_t *labels, uint64_t *keys, size_t slots);

#endif
