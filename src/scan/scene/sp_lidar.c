#include "scan/scene/sp_lidar.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

#define SPACING  0.32  /* metre between pulses and between lines on the ground */
#define ALTITUDE 450.0 /* metre, the least; wide scenes are flown higher */
/* Metre from the beam's axis within which a wire returns an echo. */
#define FOOTPRINT   0.16
#define RANGE_NOISE 0.015 /* metre, standard deviation */
/* Share of pulses with an unlabelled return out of thin air. */
#define STRAY 0.0006

enum { MAX_RETURNS = 5, MAX_ECHOES = 24 };

/* One surface that a ray meets. */
typedef struct echo {
    /* t: distance along the ray; cosine: of the angle of incidence */
    double t, cosine, reflectance;
    int label;
    bool is_last; /* opaque: the ray ends here */
} echo;

/* A pulse on its way: partial echoes in any order, and the surface that ends it. */
typedef struct ray {
    double from[3], dir[3]; /* dir has length 1 and points downwards */
    int n;
    echo echo[MAX_ECHOES];
    echo wall; /* the nearest opaque surface */
} ray;

typedef struct scanner {
    const sp_landscape *landscape;
    sp_lidar *scan;
    sp_rng *rng;
    double altitude;
    /* [n_objects] number of the last ray that was tested against the object */
    int *seen;
    int number; /* number of the present ray */
} scanner;

static void at_ray(const ray *r, double t, double p[3])
{
    for (int a = 0; a < 3; a++)
        p[a] = r->from[a] + t * r->dir[a];
}

double sp_lidar_noise(sp_rng *rng)
{
    double sum = sp_rng_unit(rng);

    /* One by one: the order within an expression is the compiler's choice. */
    sum += sp_rng_unit(rng);
    sum += sp_rng_unit(rng);
    return 2 * sum - 3;
}

/* ---- intersections of a ray ---- */

static void add_echo(ray *r, echo e)
{
    if (r->n < MAX_ECHOES)
        r->echo[r->n++] = e;
}

static void meet_ground(ray *r, const sp_landscape *w)
{
    double t = (w->top - r->from[2]) / r->dir[2], p[3], normal[3], above;

    /* This converges: slopes times the ray's tangent are far below 1. */
    for (int i = 0; i < 12; i++) {
        at_ray(r, t, p);
        above = p[2] - sp_landscape_height(w, p[0], p[1], normal);
        t += above / -r->dir[2];
        if (fabs(above) < 1e-4)
            break;
    }
    at_ray(r, t, p);
    r->wall = (echo){.t = t,
                     .cosine = -(normal[0] * r->dir[0] + normal[1] * r->dir[1] +
                                 normal[2] * r->dir[2]),
                     .reflectance = sp_landscape_ground(w, p[0], p[1]),
                     .label = SP_GROUND,
                     .is_last = true};
}

static void meet_solid(ray *r, const sp_object *o)
{
    double enter = 0, leave = 1e30, cosine = 0, along, t;

    for (int i = 0; i < o->n_planes; i++) {
        const double *p = o->plane[i];

        along = p[0] * r->dir[0] + p[1] * r->dir[1] + p[2] * r->dir[2];
        t = p[3] - (p[0] * r->from[0] + p[1] * r->from[1] + p[2] * r->from[2]);
        if (fabs(along) < 1e-12) {
            if (t < 0)
                return;
            continue;
        }
        t /= along;
        if (along < 0 && t > enter) {
            enter = t;
            cosine = -along;
        } else if (along > 0) {
            leave = fmin(leave, t);
        }
    }
    if (enter > 0 && enter < leave && enter < r->wall.t)
        r->wall = (echo){enter, cosine, o->reflectance, o->label, true};
}

static void meet_crown(ray *r, const sp_object *o, sp_rng *rng)
{
    double p[3], d[3], a = 0, b = 0, c = -1, root, t;

    /* Computed in the space in which the crown is the unit ball. */
    for (int i = 0; i < 3; i++) {
        double half = (o->hi[i] - o->lo[i]) / 2;

        p[i] = (r->from[i] - (o->lo[i] + o->hi[i]) / 2) / half;
        d[i] = r->dir[i] / half;
        a += d[i] * d[i];
        b += p[i] * d[i];
        c += p[i] * p[i];
    }
    root = b * b - a * c;
    if (root <= 0)
        return;
    root = sqrt(root);
    t = (-b - root) / a - o->free_path * log(1 - sp_rng_unit(rng));
    for (; t < (-b + root) / a; t += 0.7 - o->free_path * log(1 - sp_rng_unit(rng)))
        add_echo(r, (echo){t, 0.5 + 0.5 * sp_rng_unit(rng), o->reflectance, o->label,
                           false});
}

/* The ray meets a wire if the least distance of its line and the piece is small. */
static void meet_line(ray *r, const sp_object *o, sp_rng *rng)
{
    double e[3], g[3], ee = 0, ed = 0, eg = 0, dg = 0, s, t, gap = 0;

    for (int a = 0; a < 3; a++) {
        e[a] = o->to[a] - o->from[a];
        g[a] = r->from[a] - o->from[a];
        ee += e[a] * e[a];
        ed += e[a] * r->dir[a];
        eg += e[a] * g[a];
        dg += r->dir[a] * g[a];
    }
    if (ee - ed * ed < 1e-9)
        return;
    s = fmin(fmax((eg - ed * dg) / (ee - ed * ed), 0), 1);
    t = s * ed - dg;
    for (int a = 0; a < 3; a++)
        gap += pow(g[a] + t * r->dir[a] - s * e[a], 2);
    if (gap < FOOTPRINT * FOOTPRINT && sp_rng_unit(rng) < 0.9)
        add_echo(r, (echo){t, 1 - gap / (FOOTPRINT * FOOTPRINT) / 2, o->reflectance,
                           o->label, false});
}

static void meet_object(scanner *s, ray *r, int i)
{
    const sp_object *o = &s->landscape->object[i];

    if (s->seen[i] == s->number)
        return;
    s->seen[i] = s->number;
    if (o->shape == SP_SOLID)
        meet_solid(r, o);
    else if (o->shape == SP_CROWN)
        meet_crown(r, o, s->rng);
    else
        meet_line(r, o, s->rng);
}

/* Meets all objects of the cells that the ray crosses between the top of the landscape
 * and the ground. */
static void meet_all(scanner *s, ray *r)
{
    const sp_landscape *w = s->landscape;
    double a[3], b[3];
    int x0, x1, y0, y1;

    meet_ground(r, w);
    at_ray(r, (w->top - r->from[2]) / r->dir[2], a);
    at_ray(r, r->wall.t, b);
    x0 = sp_landscape_cell(w, fmin(a[0], b[0]));
    x1 = sp_landscape_cell(w, fmax(a[0], b[0]));
    y0 = sp_landscape_cell(w, fmin(a[1], b[1]));
    y1 = sp_landscape_cell(w, fmax(a[1], b[1]));
    s->number++;
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            const int *start = w->cell_start + y * w->n_cells + x;

            for (int i = start[0]; i < start[1]; i++)
                meet_object(s, r, w->cell_object[i]);
        }
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

sp_status sp_lidar_add(sp_lidar *scan, const double p[3], int label, double intensity,
                       int returns)
{
    assert(p && label >= -1);
    if (scan->n == scan->capacity)
        SP_TRY(lidar_grow(scan));
    memcpy(scan->xyz + 3 * scan->n, p, 3 * sizeof *p);
    scan->label[scan->n] = label;
    scan->intensity[scan->n] = (float)fmax(intensity, 0.005);
    scan->returns[scan->n++] = (float)returns;
    return SP_OK;
}

static sp_status add_point(scanner *s, const double p[3], int label, double intensity,
                           int returns)
{
    const double extent = s->landscape->extent;

    if (!(p[0] >= 0 && p[0] < extent && p[1] >= 0 && p[1] < extent))
        return SP_OK;
    return sp_lidar_add(s->scan, p, label, intensity, returns);
}

static void sort_echoes(ray *r)
{
    int j;
    echo e;

    for (int i = 1; i < r->n; i++) {
        e = r->echo[i];
        for (j = i; j > 0 && r->echo[j - 1].t > e.t; j--)
            r->echo[j] = r->echo[j - 1];
        r->echo[j] = e;
    }
}

/* Turns the echoes of a ray into points. The beam loses a share of its energy with each
 * partial return. */
static sp_status record_returns(scanner *s, ray *r)
{
    double energy = 1, share[MAX_RETURNS], p[3];
    int n = 0;

    add_echo(r, r->wall);
    sort_echoes(r);
    for (int i = 0; i < r->n && n < MAX_RETURNS && energy > 0.12; i++) {
        share[n] =
            r->echo[i].is_last ? energy : energy * sp_rng_uniform(s->rng, 0.25, 0.75);
        energy -= share[n];
        r->echo[n++] = r->echo[i];
        if (r->echo[n - 1].is_last)
            break;
    }
    for (int i = 0; i < n; i++) {
        const echo *e = &r->echo[i];

        at_ray(r, e->t + RANGE_NOISE * sp_lidar_noise(s->rng), p);
        SP_TRY(add_point(s, p, e->label,
                         e->reflectance * e->cosine * share[i] *
                             (1 + 0.12 * sp_lidar_noise(s->rng)),
                         n));
    }
    if (sp_rng_unit(s->rng) >= STRAY)
        return SP_OK;
    at_ray(r, r->wall.t - sp_rng_uniform(s->rng, -3, 25), p);
    return add_point(s, p, -1, sp_rng_uniform(s->rng, 0.01, 0.2), 1);
}

/* ---- strips ---- */

/* Fires one pulse at (u, v) of the strip's ground plane, u along the flight and v
 * across it, both from the middle of the scene. The sensor has the same u, and `aside`
 * is its v. */
static sp_status lidar_fire(scanner *s, double heading, double aside, double u,
                            double v)
{
    double c = cos(heading), q = sin(heading), half = s->landscape->extent / 2, length;
    double reach = half + s->landscape->margin, target[2];
    ray r;

    target[0] = half + u * c - v * q;
    target[1] = half + u * q + v * c;
    if (fabs(target[0] - half) > reach || fabs(target[1] - half) > reach)
        return SP_OK;
    r.from[0] = half + u * c - aside * q;
    r.from[1] = half + u * q + aside * c;
    r.from[2] = s->altitude;
    r.dir[0] = target[0] - r.from[0];
    r.dir[1] = target[1] - r.from[1];
    r.dir[2] = (s->landscape->bottom + s->landscape->top) / 2 - s->altitude;
    length = sqrt(r.dir[0] * r.dir[0] + r.dir[1] * r.dir[1] + r.dir[2] * r.dir[2]);
    r.dir[0] /= length;
    r.dir[1] /= length;
    r.dir[2] /= length;
    r.n = 0;
    meet_all(s, &r);
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
            double v = aside + h * tan(angle) + 0.04 * sp_lidar_noise(s->rng);
            double drift = SPACING * (angle - first) / (last - first);

            SP_TRY(lidar_fire(s, heading, aside,
                              u + drift + 0.04 * sp_lidar_noise(s->rng), v));
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
    SP_TRY(SP_NEW(&s.seen, landscape->n_objects, "the objects of a scene"));
    for (int i = 0; i < strips && rc == SP_OK; i++)
        rc = fly_strip(&s);
    free(s.seen);
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
