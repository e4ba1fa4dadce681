/* Synthetic labelled scenes, like airborne scans, as samples and as shards. They serve
 * to try the program without data and to test it at scale. A sample is a pure function
 * of (seed, index, extent, voxel size).
 *
 *     landscape --sp_scene_scan--> points --> sp_gridding --> shard */
#ifndef SP_SCENE_H
#define SP_SCENE_H

#include "scan/sp_gridding.h"

enum { SP_GROUND, SP_VEGETATION, SP_BUILDING, SP_VEHICLE, SP_WIRE, SP_SCENE_CLASSES };
/* Intensity, height (metre above the scene's 2nd percentile of z), number of returns. */
enum { SP_SCENE_FEATURES = 3 };

typedef struct sp_scene_options {
    uint64_t seed;
    double extent;     /* metre, edge of the square, 4 to 1000 */
    double voxel_size; /* metre, > 0 */
    bool with_points;
} sp_scene_options;

/* The points of a scene, in the square 0 .. extent; z is up. */
typedef struct sp_scene_points {
    int64_t n;
    double *xyz;     /* [n][3] metre */
    float *features; /* [n][SP_SCENE_FEATURES] */
    int32_t *label;  /* [n] class, or -1: poles and stray returns */
} sp_scene_points;

/* Makes the points of sample `index`. Local. `points` is all zero before, and is to be
 * destroyed after a failure too. SP_EMEM. */
sp_status sp_scene_scan(const sp_scene_options *options, int64_t index,
                        sp_scene_points *points);
void sp_scene_points_destroy(sp_scene_points *points);
/* Makes a sample. Local. SP_EUSAGE: an option is out of range; SP_EDATA: the voxels are
 * too small for the grid; SP_EMEM. */
sp_status sp_scene_make(const sp_scene_options *options, int64_t index, sp_grid *grid);
/* Writes samples 0 .. n_samples-1 as PREFIX-00000-of-0000N.h5 ... and makes missing
 * folders. Each shard is written by one rank; the bytes do not depend on the number of
 * ranks. Collective, with an agreed result. SP_ELIMIT after a request to stop. */
sp_status sp_scene_write(const sp_scene_options *options, const char *prefix,
                         int64_t n_samples, int n_shards, sp_comm *comm);
/* Writes the sample data of the default deck: 32 small scenes to train on, and 8 of
 * another seed to validate on, with about 2,500 voxels of 0.5 m each. Local; takes
 * about a second. */
sp_status sp_scene_make_sample_data(const char *train_prefix, const char *val_prefix);

#endif
