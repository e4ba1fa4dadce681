/* A small landscape made of shapes that a ray can be tested against: terrain,
 * buildings, trees, vehicles, power lines. Local; a pure function of its generator.
 *
 * z is up, in metre; the scene is the square 0 .. extent, objects stand a little beyond
 * it too.
 *
 * Objects are listed by the cells of a square raster that their bounds touch, so that a
 * steep ray meets only the few that stand near its foot.
 */
#ifndef SP_WORLD_H
#define SP_WORLD_H

#include <stdbool.h>

#include "base/sp_error.h"
#include "base/sp_rng.h"

enum { SP_GROUND, SP_VEGETATION, SP_BUILDING, SP_VEHICLE, SP_WIRE, SP_WORLD_CLASSES };

typedef enum sp_shape {
    SP_SOLID, /* convex, opaque: what lies behind all of its planes */
    SP_CROWN, /* ellipsoid of leaves: returns along the way through it */
    SP_LINE   /* piece of a wire: a return where the beam touches it */
} sp_shape;

typedef struct sp_object {
    sp_shape shape;
    int label;           /* SP_GROUND .. or -1: not labelled (poles) */
    double reflectance;  /* 0 .. 1 */
    double lo[3], hi[3]; /* bounds */
    int n_planes;
    double plane[8][4];    /* solid: inside is n . p <= d; {n, d}, n of length 1 */
    double free_path;      /* crown: mean way to the next return */
    double from[3], to[3]; /* line */
} sp_object;

typedef struct sp_world {
    double extent, margin;
    double slope[2], wave[6][4]; /* terrain: {kx, ky, phase, amplitude} */
    double road[4];     /* {n_x, n_y, d, half width}: |n . p - d| < half width */
    double top, bottom; /* heights that bound everything */
    int n_objects, capacity;
    sp_object *object;
    int n_cells;      /* raster cells along each axis */
    int *cell_start;  /* [n_cells^2 + 1] */
    int *cell_object; /* objects by cell */
} sp_world;

/* SP_EMEM. */
sp_status sp_world_create(sp_world *world, double extent, sp_rng *rng);
void sp_world_destroy(sp_world *world);
/* Terrain height; its upward normal (not NULL). */
double sp_world_height(const sp_world *world, double x, double y, double normal[3]);
/* Reflectance of the bare ground: road, grass or soil. */
double sp_world_ground(const sp_world *world, double x, double y);
/* Cell index along one axis, clamped to the raster. */
int sp_world_cell(const sp_world *world, double x);

#endif
