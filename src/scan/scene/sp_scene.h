/* Synthetic labelled scenes, like airborne scans, as samples and as shards. They serve
 * to try the program without data and to test it at scale. A sample is a pure function
 * of (seed, index, extent, voxel size).
 *
 *     sp_landscape --> sp_lidar_scan --> points --> sp_gridding --> shard
 *
 * Classes: ground, vegetation, building, vehicle, wire; poles and stray returns are not
 * labelled. Features: intensity, height (metre above the scene's 2nd percentile of z),
 * number_of_returns, each the mean over a voxel's points.
 */
#ifndef SP_SCENE_H
#define SP_SCENE_H

#include "scan/sp_gridding.h"

enum { SP_SCENE_FEATURES = 3 };

typedef struct sp_scene_options {
    uint64_t seed;
    double extent;     /* metre, edge of the square, 4 to 1000 */
    double voxel_size; /* metre, > 0 */
    bool with_points;
} sp_scene_options;

/* Makes one sample. Local. SP_EUSAGE: an option is out of range; SP_EDATA: the voxels
 * are too small for the grid; SP_EMEM. */
sp_status sp_scene_make(const sp_scene_options *options, int64_t index, sp_grid *grid);

/* Writes samples 0 .. n_samples-1 as PREFIX-00000-of-0000N.h5 ... and makes missing
 * folders. Each shard is written by one rank; the bytes do not depend on the number of
 * ranks. Collective over comm, with an agreed result; comm NULL: local. A request
 * to stop ends it with SP_ELIMIT, but not if comm is NULL. */
sp_status sp_scene_write(const sp_scene_options *options, const char *prefix,
                         int64_t n_samples, int n_shards, sp_comm *comm);

/* Writes the sample data of the default deck: 32 small scenes to train on, and 8 of
 * another seed to validate on, with about 2,300 voxels of 0.5 m each. Local; takes
 * about a second. */
sp_status sp_scene_make_sample_data(const char *train_prefix, const char *val_prefix);

#endif
