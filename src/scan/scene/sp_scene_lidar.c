#include "scan/scene/sp_scene.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

#define SPACING  0.32  /* metre between pulses and between lines on the ground */
#define ALTITUDE 450.0 /* metre, the least; wide scenes are flown higher */
/* Metre that a ray goes on between two looks at the raster. */
#define STEP 0.15
/* Metre from the beam's axis within which a wire returns an echo. */
#define FOOTPRINT   0.16
#define LEAF_GAP    0.7   /* metre between two returns of leaves, at least */
#define RANGE_NOISE 0.015 /* metre, standard deviation */
/* Share of pulses with an unlabelled return out of thin air. */
#define STRAY 0.0006

enum { MAX_RETURNS = 5 };

/* A part of the pulse that comes back: distance along the ray, share of the energy that
 * a white surface would return, and what returned it. */
typedef struct echo {
    double t, brightness;
    int label;
} echo;

/* A pulse on its way. */
typedef struct ray {
    double from[3], dir[3]; /* dir has length 1 and points downwards */
    int n;
    echo echo
        [MAX_RETURNS]; /* in the order of t; the surface that ends the ray is last */
} ray;

typedef struct scanner {
    const sp_landscape *landscape;
    sp_lidar *scan;
    sp_rng *rng;
    double altitude;
} scanner;

static void at_ray(const ray *r, double t, double p[3])
{
    for (int a = 0; a < 3; a++)
        p[a] = r->from[a] + t * r->dir[a];
}

/* A random number of mean 0, standard deviation 1 and magnitude below 3: a sum of three
 * uniform ones. */
static double lidar_noise(sp_rng *rng)
{
    double sum = sp_rng_unit(rng);

    /* One by one: the order within an expression is the compiler's choice. */
    sum += sp_rng_unit(rng);
    sum += sp_rng_unit(rng);
    return 2 * sum - 3;
}

/* ---- the way of a ray ---- */

/* The depth of a point below the highest opaque surface of its cell. */
static double depth_of(const sp_cell *cell, const double p[3])
{
    return cell->z + cell->slope[0] * (p[0] - cell->x) +
           cell->slope[1] * (p[1] - cell->y) - p[2];
}

/* The cosine of the angle of incidence: a point that is deep below the surface lies on
 * the wall of its cell. */
static double cosine_of(const sp_cell *cell, const double p[3], const double dir[3])
{
    const double x = cell->slope[0], y = cell->slope[1];

    if (depth_of(cell, p) > STEP)
        return hypot(dir[0], dir[1]);
    return (x * dir[0] + y * dir[1] - dir[2]) / sqrt(x * x + y * y + 1);
}

static bool is_in_crown(const sp_crown *c, const double p[3])
{
    const double x = (p[0] - c->at[0]) / c->radius, y = (p[1] - c->at[1]) / c->radius;
    const double z = (p[2] - c->at[2]) / c->half_height;

    return x * x + y * y + z * z < 1;
}

static void add_echo(ray *r, double t, double brightness, int label)
{
    if (r->n < MAX_RETURNS)
        r->echo[r->n++] = (echo){t, brightness, label};
}

/* The surface between t - STEP and t ends the ray, whatever returned before. */
static void end_ray(ray *r, const sp_landscape *w, double t)
{
    double above = t - STEP, p[3];
    const sp_cell *cell;

    for (int i = 0; i < 6; i++) {
        const double middle = (above + t) / 2;

        at_ray(r, middle, p);
        *(depth_of(sp_landscape_at(w, p[0], p[1]), p) >= 0 ? &t : &above) = middle;
    }
    at_ray(r, t, p);
    cell = sp_landscape_at(w, p[0], p[1]);
    add_echo(r, t, cell->reflectance * cosine_of(cell, p, r->dir), cell->label);
}

/* Follows the ray from the top of the landscape to the surface that ends it. */
static void follow_ray(const scanner *s, ray *r)
{
    const sp_landscape *w = s->landscape;
    double t = (w->top - r->from[2]) / r->dir[2], next_leaf = t, next_wire = t, p[3];
    const sp_cell *cell;

    for (at_ray(r, t, p); depth_of(cell = sp_landscape_at(w, p[0], p[1]), p) < 0;
         at_ray(r, t += STEP, p)) {
        if (cell->crown >= 0 && t >= next_leaf && r->n < MAX_RETURNS - 1) {
            const sp_crown *c = &w->crown[cell->crown];

            if (is_in_crown(c, p) && sp_rng_unit(s->rng) * c->free_path < STEP) {
                add_echo(r, t, c->reflectance * (0.5 + 0.5 * sp_rng_unit(s->rng)),
                         SP_VEGETATION);
                next_leaf = t + LEAF_GAP;
            }
        }
        if (cell->span >= 0 && t >= next_wire && r->n < MAX_RETURNS - 1) {
            const double gap = sp_span_distance(&w->span[cell->span], p) / FOOTPRINT;

            if (gap < 1) {
                add_echo(r, t, 0.3 * (1 - gap * gap / 2), SP_WIRE);
                next_wire = t + 10 * FOOTPRINT;
            }
        }
    }
    end_ray(r, w, t);
}

/* ---- returns ---- */

static sp_status lidar_grow(sp_lidar *scan)
{
    const size_t n = 2 * (size_t)scan->capacity + 1024;

    if (!sp_list_resize(&scan->xyz, n * 3 * sizeof *scan->xyz) ||
        !sp_list_resize(&scan->label, n * sizeof *scan->label) ||
        !sp_list_resize(&scan->intensity, n * sizeof *scan->intensity) ||
        !sp_list_resize(&scan->returns, n * sizeof *scan->returns))
        return SP_FAIL(SP_EMEM, "scene: no memory for %zu points", n);
    scan->capacity = (int64_t)n;
    return SP_OK;
}

static sp_status add_point(scanner *s, const double p[3], int label, double intensity,
                           int returns)
{
    const double extent = s->landscape->extent;
    sp_lidar *scan = s->scan;

    if (!(p[0] >= 0 && p[0] < extent && p[1] >= 0 && p[1] < extent))
        return SP_OK;
    if (scan->n == scan->capacity)
        SP_TRY(lidar_grow(scan));
    memcpy(scan->xyz + 3 * scan->n, p, 3 * sizeof *p);
    scan->label[scan->n] = label;
    scan->intensity[scan->n] = (float)fmax(intensity, 0.005);
    scan->returns[scan->n++] = (float)returns;
    return SP_OK;
}

/* Turns the echoes of a ray into points. The beam loses a share of its energy with each
 * partial return, and ends when little is left. */
static sp_status record_returns(scanner *s, const ray *r)
{
    double energy = 1, share[MAX_RETURNS], p[3];
    int n = 0;

    for (; n < r->n && energy > 0.12; energy -= share[n++])
        share[n] = n == r->n - 1 ? energy : energy * sp_rng_uniform(s->rng, 0.25, 0.75);
    for (int i = 0; i < n; i++) {
        const echo *e = &r->echo[i];

        at_ray(r, e->t + RANGE_NOISE * lidar_noise(s->rng), p);
        SP_TRY(add_point(s, p, e->label,
                         e->brightness * share[i] * (1 + 0.12 * lidar_noise(s->rng)),
                         n));
    }
    if (sp_rng_unit(s->rng) >= STRAY)
        return SP_OK;
    at_ray(r, r->echo[r->n - 1].t - sp_rng_uniform(s->rng, -3, 25), p);
    return add_point(s, p, -1, sp_rng_uniform(s->rng, 0.01, 0.2), 1);
}

/* ---- strips ---- */

/* Fires one pulse at (u, v) of the strip's ground plane, u along the flight and v
 * across it, both from the middle of the scene. The sensor has the same u, and `aside`
 * is its v. */
static sp_status lidar_fire(scanner *s, double heading, double aside, double u,
                            double v)
{
    const double c = cos(heading), q = sin(heading), half = s->landscape->extent / 2;
    const double reach = half + s->landscape->margin;
    const double x = u * c - v * q, y = u * q + v * c; /* of the target */
    const double length = hypot(v - aside, s->altitude);
    ray r = {.from = {half + u * c - aside * q, half + u * q + aside * c, s->altitude},
             .dir = {(aside - v) * q / length, (v - aside) * c / length,
                     -s->altitude / length}};

    if (fabs(x) > reach || fabs(y) > reach)
        return SP_OK;
    follow_ray(s, &r);
    return record_returns(s, &r);
}

/* Flies one strip: scan lines across the flight, in equal steps of angle. The aircraft
 * moves on during a line. */
static sp_status fly_strip(scanner *s)
{
    double heading = sp_rng_uniform(s->rng, 0, 6.283185307179586477);
    double h = s->altitude,
           aside = sp_rng_uniform(s->rng, -0.36, 0.36) * h; /* within 20 degrees */
    double reach = 1.4143 * (s->landscape->extent / 2 + s->landscape->margin), u, angle;
    double first = atan2(-reach - aside, h), last = atan2(reach - aside, h);

    for (u = -reach; u < reach; u += SPACING)
        for (angle = first; angle < last; angle += SPACING / h) {
            double v = aside + h * tan(angle) + 0.04 * lidar_noise(s->rng);
            double drift = SPACING * (angle - first) / (last - first);

            SP_TRY(lidar_fire(s, heading, aside, u + drift + 0.04 * lidar_noise(s->rng),
                              v));
        }
    return SP_OK;
}

sp_status sp_lidar_scan(sp_lidar *scan, const sp_landscape *landscape, sp_rng *rng)
{
    scanner s = {.landscape = landscape, .scan = scan, .rng = rng};
    int strips = sp_rng_unit(rng) < 0.35 ? 2 : 1;
    sp_status rc = SP_OK;

    assert(scan && landscape->extent > 0);
    assert(!scan->xyz && "the scan is zeroed or destroyed");
    s.altitude = fmax(ALTITUDE, 2 * landscape->extent);
    for (int i = 0; i < strips && rc == SP_OK; i++)
        rc = fly_strip(&s);
    return rc;
}

void sp_lidar_destroy(sp_lidar *scan)
{
    free(scan->xyz);
    free(scan->label);
    free(scan->intensity);
    free(scan->returns);
    memset(scan, 0, sizeof *scan);
}
