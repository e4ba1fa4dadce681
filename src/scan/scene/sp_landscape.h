/* A synthetic landscape of shapes that a ray can be tested against: terrain, buildings,
 * trees, vehicles, power lines.
 * Local; a pure function of its random generator.
 *
 * z is up, in metre. The scene is the square 0 .. extent; objects also stand within a
 * margin around it. Objects are listed by the cells of a square raster that their
 * bounds touch, so that a steep ray is tested only against the few near its foot. */
#ifndef SP_LANDSCAPE_H
#define SP_LANDSCAPE_H

#include <stdbool.h>

#include "base/sp_error.h"
#include "base/sp_rng.h"

enum {
    SP_GROUND,
    SP_VEGETATION,
    SP_BUILDING,
    SP_VEHICLE,
    SP_WIRE,
    SP_LANDSCAPE_CLASSES
};

typedef enum sp_shape {
    SP_SOLID, /* convex and opaque: the points inside all of its planes */
    SP_CROWN, /* ellipsoid of leaves: returns on the way through it */
    SP_LINE   /* piece of a wire: a return where the beam touches it */
} sp_shape;

typedef struct sp_object {
    sp_shape shape;
    int label;           /* SP_GROUND, ..., or -1: not labelled (poles) */
    double reflectance;  /* 0 .. 1 */
    double lo[3], hi[3]; /* bounds */
    int n_planes;
    /* solid: points with n . p <= d are inside; {n, d}, n of length 1 */
    double plane[8][4];
    double free_path;      /* crown: mean way between returns */
    double from[3], to[3]; /* ends of a line */
} sp_object;

/* The landscape: terrain, a road, and the objects with their raster. */
typedef struct sp_landscape {
    double extent, margin; /* edge of the scene; margin with objects around it */
    /* terrain: a plane and waves {kx, ky, phase, amplitude} */
    double slope[2], wave[6][4];
    /* {n_x, n_y, d, half width}: the points with |n . p - d| < half width */
    double road[4];
    double top, bottom; /* heights that bound terrain and objects */
    int n_objects;
    sp_object *object;
    int n_cells;      /* raster cells along each axis */
    int *cell_start;  /* [n_cells^2 + 1] first entry of each cell in cell_object */
    int *cell_object; /* numbers of the objects, by cell */
} sp_landscape;

/* Creates the landscape; destroy it after failure too. SP_EMEM. */
sp_status sp_landscape_create(sp_landscape *landscape, double extent, sp_rng *rng);
void sp_landscape_destroy(sp_landscape *landscape);
/* Height of the terrain, and its upward normal if normal is not NULL. */
double sp_landscape_height(const sp_landscape *landscape, double x, double y,
                           double normal[3]);
/* Reflectance of the ground: road, grass or soil. */
double sp_landscape_ground(const sp_landscape *landscape, double x, double y);
/* Cell index along one axis, clamped to the raster. */
int sp_landscape_cell(const sp_landscape *landscape, double x);

#endif
