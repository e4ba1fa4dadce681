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

#include "base/sp_rng.h"
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

/* A synthetic landscape as a raster: terrain with a road, buildings, vehicles and poles,
 * and above them the crowns of trees and the spans of power lines. Local; a pure
 * function of its random generator.
 *
 *     cell    z, slope, label, reflectance    the highest opaque surface, a plane
 *             crown, span                     what else may be above the cell
 *
 * z is up, in metre. The scene is the square 0 .. extent; objects are also placed
 * within a margin around it, since they hide parts of the scene. */

enum {
    SP_GROUND,
    SP_VEGETATION,
    SP_BUILDING,
    SP_VEHICLE,
    SP_WIRE,
    SP_LANDSCAPE_CLASSES
};

typedef struct sp_cell {
    double x, y; /* centre */
    float z, slope[2], reflectance;
    int label;       /* SP_GROUND, ..., or -1: not labelled (poles) */
    int crown, span; /* -1: nothing */
} sp_cell;

/* An ellipsoid of leaves. */
typedef struct sp_crown {
    double at[3], radius, half_height;
    double free_path; /* mean way of a beam between returns */
    double reflectance;
} sp_crown;

/* Three wires side by side between two poles, each a parabola. */
typedef struct sp_span {
    double from[2], heading, z[2]; /* z: at both ends */
} sp_span;

typedef struct sp_landscape {
    double extent, margin;       /* edge of the scene; margin with objects around it */
    double slope[2], wave[6][4]; /* terrain: a plane and waves {kx, ky, phase, z} */
    /* {n_x, n_y, d, half width}: the points with |n . p - d| < half width */
    double road[4];
    double top;    /* height that nothing exceeds */
    double edge;   /* of a cell */
    int n;         /* cells along each axis */
    sp_cell *cell; /* [n][n] */
    int n_crowns, n_spans;
    sp_crown *crown;
    sp_span *span;
} sp_landscape;

/* Creates the landscape; destroy it after failure too. SP_EMEM. */
sp_status sp_landscape_create(sp_landscape *landscape, double extent, sp_rng *rng);
void sp_landscape_destroy(sp_landscape *landscape);
/* Returns the cell at (x, y); outside of the raster the nearest one. */
const sp_cell *sp_landscape_at(const sp_landscape *landscape, double x, double y);
/* Returns the distance of a point from the nearest wire of the span. */
double sp_span_distance(const sp_span *span, const double p[3]);

/* An airborne laser scanner over a synthetic landscape: scan lines, one ray a pulse, up
 * to five returns.
 *
 *            sensor (one strip: along `heading`, the ray swings across)
 *           /
 *          /  ray --> leaves, wires: partial returns, the beam goes on
 *         /        --> roof, car, ground: last return; all beyond it is hidden */

/* Points within the scene's square. The arrays grow. All zero before the first use. */
typedef struct sp_lidar {
    int64_t n, capacity;
    double *xyz;      /* [n][3] metre */
    int32_t *label;   /* [n] class, or -1: not labelled */
    float *intensity; /* [n] received energy, about 0 .. 1 */
    float *returns;   /* [n] number of returns of the point's pulse */
} sp_lidar;

/* Appends the points of one or two strips with about 10 pulses a square metre each.
 * Local. SP_EMEM. */
sp_status sp_lidar_scan(sp_lidar *scan, const sp_landscape *landscape, sp_rng *rng);
void sp_lidar_destroy(sp_lidar *scan);

#endif
