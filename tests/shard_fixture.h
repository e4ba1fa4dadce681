/* Small data sets for tests: random unique coordinates, features, labels and points, a
 * pure function of the seed. A test that opens a data set calls sp_shard_probe_main
 * first in main. */
#ifndef SHARD_FIXTURE_H
#define SHARD_FIXTURE_H

#include "sp_shard.h"

typedef struct fixture {
    int n_samples;
    const int64_t *voxels; /* [n_samples] */
    int n_classes;         /* 0: 4 */
    int n_features;        /* 0: 3 */
    double voxel_size;     /* 0: 0.5 */
    bool is_unlabelled, has_subvoxel, has_points, has_cost, has_moments;
    bool is_renamed;     /* the columns' names the other way round */
    uint64_t unlabelled; /* bit i: all labels of sample i are ignored */
    uint64_t seed;
} fixture;

/* Writes one shard. Classes "class0", ..., columns "feature0", ...; about one label in
 * ten is ignored (255). Samples are named "sample0", ... */
sp_status fixture_write(const fixture *f, const char *path);
/* The sample as it was written, with its own arrays: fixture_free. */
void fixture_sample(const fixture *f, int index, sp_sample *sample);
void fixture_free(sp_sample *sample);
/* Opens one file, or one pattern, without ranks. */
sp_status fixture_open(sp_dataset *set, const char *pattern);

#endif
