/* A synthetic landscape as a raster: terrain with a road, buildings, vehicles and poles,
 * and above them the crowns of trees and the spans of power lines. Local; a pure
 * function of its random generator.
 *
 *     cell    z, slope, label, reflectance    the highest opaque surface, a plane
 *             crown, span                     what else may be above the cell
 *
 * z is up, in metre. The scene is the square 0 .. extent; objects are also placed
 * within a margin around it, since they hide parts of the scene. */
#ifndef SP_LANDSCAPE_H
#define SP_LANDSCAPE_H

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
    double extent, margin; /* edge of the scene; margin with objects around it */
    double slope[2], wave[6][4]; /* terrain: a plane and waves {kx, ky, phase, z} */
    /* {n_x, n_y, d, half width}: the points with |n . p - d| < half width */
    double road[4];
    double top;   /* height that nothing exceeds */
    double edge;  /* of a cell */
    int n;        /* cells along each axis */
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

#endif
