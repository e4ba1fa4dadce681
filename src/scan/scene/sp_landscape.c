#include "scan/scene/sp_landscape.h"
#include "base/sp_list.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CELL   8.0  /* metre */
#define MARGIN 10.0 /* metre around the scene; objects are placed there too */
#define TURN   6.283185307179586477

/* ---- terrain ---- */

static void make_terrain(sp_landscape *w, sp_rng *rng)
{
    for (int i = 0; i < 2; i++)
        w->slope[i] = sp_rng_uniform(rng, -0.06, 0.06) * fmin(1, 200 / w->extent);
    for (int i = 0; i < 6; i++) { /* from rolling ground down to small unevenness */
        double length = 70.0 / (1 << i) * sp_rng_uniform(rng, 0.8, 1.25);
        double heading = sp_rng_uniform(rng, 0, TURN);

        w->wave[i][0] = TURN / length * cos(heading);
        w->wave[i][1] = TURN / length * sin(heading);
        w->wave[i][2] = sp_rng_uniform(rng, 0, TURN);
        w->wave[i][3] = length * sp_rng_uniform(rng, 0.005, 0.018);
    }
}

double sp_landscape_height(const sp_landscape *w, double x, double y, double normal[3])
{
    double z = w->slope[0] * x + w->slope[1] * y;
    double gx = w->slope[0], gy = w->slope[1], angle, length;

    for (int i = 0; i < 6; i++) {
        angle = w->wave[i][0] * x + w->wave[i][1] * y + w->wave[i][2];
        z += w->wave[i][3] * sin(angle);
        gx += w->wave[i][3] * w->wave[i][0] * cos(angle);
        gy += w->wave[i][3] * w->wave[i][1] * cos(angle);
    }
    if (normal) {
        length = sqrt(gx * gx + gy * gy + 1);
        normal[0] = -gx / length;
        normal[1] = -gy / length;
        normal[2] = 1 / length;
    }
    return z;
}

double sp_landscape_ground(const sp_landscape *w, double x, double y)
{
    if (fabs(w->road[0] * x + w->road[1] * y - w->road[2]) < w->road[3])
        return 0.16;
    return sin(0.37 * x + w->wave[0][2]) * sin(0.29 * y + w->wave[1][2]) > 0.55 ? 0.3
                                                                                : 0.45;
}

/* ---- objects ---- */

static sp_object *add_object(sp_landscape *w, sp_shape shape, int label,
                             double reflectance)
{
    sp_object *o;

    if (!sp_list_grow(&w->object, w->n_objects, sizeof *w->object)) {
        SP_FAIL(SP_EMEM, "scene: no memory for %d objects", w->n_objects + 1);
        return NULL;
    }
    o = &w->object[w->n_objects++];
    memset(o, 0, sizeof *o);
    o->shape = shape;
    o->label = label;
    o->reflectance = reflectance;
    return o;
}

static void add_plane(sp_object *o, double nx, double ny, double nz, const double at[3])
{
    double length = sqrt(nx * nx + ny * ny + nz * nz), *p = o->plane[o->n_planes++];

    p[0] = nx / length;
    p[1] = ny / length;
    p[2] = nz / length;
    p[3] = p[0] * at[0] + p[1] * at[1] + p[2] * at[2];
}

/* A house: foot {x, y, z}, half sizes along and across `heading`, height of the eaves,
 * and of the ridge above the eaves (0: flat). A vehicle's body and cabin are houses
 * too. */
typedef struct house {
    double foot[3], heading, half[2], eaves, ridge;
} house;

static sp_status add_house(sp_landscape *w, int label, double reflectance,
                           const house *h)
{
    sp_object *o = add_object(w, SP_SOLID, label, reflectance);
    double c = cos(h->heading), s = sin(h->heading), at[3], reach;

    if (!o)
        return SP_EMEM;
    for (int side = -1; side <= 1; side += 2) {
        at[0] = h->foot[0] + side * c * h->half[0];
        at[1] = h->foot[1] + side * s * h->half[0];
        at[2] = h->foot[2];
        add_plane(o, side * c, side * s, 0, at);
        at[0] = h->foot[0] - side * s * h->half[1];
        at[1] = h->foot[1] + side * c * h->half[1];
        at[2] = h->foot[2] + h->eaves;
        add_plane(o, -side * s, side * c, 0, at);
        if (h->ridge > 0)
            add_plane(o, -side * s * h->ridge, side * c * h->ridge, h->half[1], at);
    }
    at[2] = h->foot[2] + h->eaves;
    if (h->ridge <= 0)
        add_plane(o, 0, 0, 1, at);
    reach = hypot(h->half[0], h->half[1]);
    for (int a = 0; a < 2; a++) {
        o->lo[a] = h->foot[a] - reach;
        o->hi[a] = h->foot[a] + reach;
    }
    o->lo[2] = h->foot[2];
    o->hi[2] = h->foot[2] + h->eaves + h->ridge;
    return SP_OK;
}

static sp_status add_crown(sp_landscape *w, const double centre[3], double radius,
                           double half_height, double free_path, double reflectance)
{
    sp_object *o = add_object(w, SP_CROWN, SP_VEGETATION, reflectance);

    if (!o)
        return SP_EMEM;
    o->free_path = free_path;
    for (int a = 0; a < 3; a++) {
        o->lo[a] = centre[a] - (a < 2 ? radius : half_height);
        o->hi[a] = centre[a] + (a < 2 ? radius : half_height);
    }
    return SP_OK;
}

static sp_status add_line(sp_landscape *w, const double from[3], const double to[3])
{
    sp_object *o = add_object(w, SP_LINE, SP_WIRE, 0.3);

    if (!o)
        return SP_EMEM;
    memcpy(o->from, from, sizeof o->from);
    memcpy(o->to, to, sizeof o->to);
    for (int a = 0; a < 3; a++) {
        o->lo[a] = fmin(from[a], to[a]) - 0.5;
        o->hi[a] = fmax(from[a], to[a]) + 0.5;
    }
    return SP_OK;
}

/* ---- layout ---- */

/* Finds a place for a footprint of this radius that meets neither road nor building, at
 * most `beyond` outside the scene. Returns false after 20 attempts. */
static bool landscape_find_place(const sp_landscape *w, sp_rng *rng, double beyond,
                                 double radius, double at[3])
{
    for (int attempt = 0; attempt < 20; attempt++) {
        bool is_free;

        for (int i = 0; i < 2; i++)
            at[i] = sp_rng_uniform(rng, -beyond, w->extent + beyond);
        is_free = fabs(w->road[0] * at[0] + w->road[1] * at[1] - w->road[2]) >
                  w->road[3] + radius;
        for (int i = 0; i < w->n_objects && is_free; i++) {
            const sp_object *o = &w->object[i];
            double dx = fmax(fmax(o->lo[0] - at[0], at[0] - o->hi[0]), 0);
            double dy = fmax(fmax(o->lo[1] - at[1], at[1] - o->hi[1]), 0);

            is_free = o->shape != SP_SOLID || hypot(dx, dy) > 0.8 * radius;
        }
        if (is_free) {
            at[2] = sp_landscape_height(w, at[0], at[1], NULL);
            return true;
        }
    }
    return false;
}

/* Draws the number of objects for a density. */
static int landscape_count_of(const sp_landscape *w, sp_rng *rng,
                              double per_square_metre)
{
    double side = w->extent + 2 * w->margin;

    return (int)(side * side * per_square_metre * sp_rng_uniform(rng, 0.6, 1.4) +
                 sp_rng_unit(rng));
}

static sp_status add_buildings(sp_landscape *w, sp_rng *rng)
{
    int n = 1 + landscape_count_of(w, rng, 0.0016);
    double street = atan2(w->road[1], w->road[0]);

    for (int i = 0; i < n; i++) {
        house h;
        double roof = sp_rng_uniform(rng, 0.12, 0.5);

        h.half[0] = sp_rng_uniform(rng, 3.5, 8);
        h.half[1] = sp_rng_uniform(rng, 2.8, 4.8);
        /* The first building is inside, so that every scene has one. */
        if (!landscape_find_place(w, rng, i == 0 ? -3 : w->margin,
                                  0.75 * hypot(h.half[0], h.half[1]), h.foot))
            continue;
        h.foot[2] -= 1.5; /* sinks into sloping ground */
        h.heading = street + (sp_rng_unit(rng) < 0.5 ? 0 : TURN / 4) +
                    sp_rng_uniform(rng, -0.1, 0.1);
        h.eaves = 1.5 + sp_rng_uniform(rng, 2.6, 7.5);
        h.ridge = sp_rng_unit(rng) < 0.65 ? sp_rng_uniform(rng, 1.5, 4) : 0;
        SP_TRY(add_house(w, SP_BUILDING, roof, &h));
    }
    return SP_OK;
}

static sp_status add_vehicle(sp_landscape *w, sp_rng *rng, const double at[3],
                             double heading)
{
    double paint = sp_rng_uniform(rng, 0.08, 0.7);
    house h = {{at[0], at[1], at[2] + 0.25}, heading, {2.1, 0.9}, 0.65, 0};

    h.half[0] = sp_rng_uniform(rng, 1.8, 2.6);
    SP_TRY(add_house(w, SP_VEHICLE, paint, &h));
    h.half[0] *= 0.6;
    h.half[1] = 0.8;
    h.eaves = sp_rng_uniform(rng, 1.15, 2);
    return add_house(w, SP_VEHICLE, paint, &h);
}

/* Adds cars on the road's two lanes, and parked ones anywhere off the road. */
static sp_status add_vehicles(sp_landscape *w, sp_rng *rng)
{
    int n = landscape_count_of(w, rng, 0.004);

    for (int i = 0; i < n; i++) {
        double at[3], along, lane, heading = atan2(w->road[0], -w->road[1]);

        if (i % 3 == 2) {
            if (!landscape_find_place(w, rng, w->margin, 2.8, at))
                continue;
            heading = sp_rng_uniform(rng, 0, TURN);
        } else {
            along = sp_rng_uniform(rng, -0.7, 0.7) * (w->extent + w->margin);
            lane = w->road[2] + (sp_rng_unit(rng) < 0.5 ? -1 : 1) * 0.5 * w->road[3];
            /* relative to the point of the lane nearest to the middle of the scene */
            lane -= (w->road[0] + w->road[1]) * w->extent / 2;
            at[0] = w->extent / 2 + w->road[0] * lane - w->road[1] * along;
            at[1] = w->extent / 2 + w->road[1] * lane + w->road[0] * along;
            at[2] = sp_landscape_height(w, at[0], at[1], NULL);
        }
        SP_TRY(add_vehicle(w, rng, at, heading));
    }
    return SP_OK;
}

static sp_status add_plants(sp_landscape *w, sp_rng *rng)
{
    int n = landscape_count_of(w, rng, 0.009);

    for (int i = 0; i < n; i++) {
        bool is_bush = sp_rng_unit(rng) < 0.4;
        double radius =
            is_bush ? sp_rng_uniform(rng, 0.5, 1.2) : sp_rng_uniform(rng, 1.2, 3.2);
        double half = radius * sp_rng_uniform(rng, 0.8, is_bush ? 1.1 : 1.8);
        double trunk = is_bush ? -0.3 * half : sp_rng_uniform(rng, 0.8, 2.5);
        double leaves = sp_rng_uniform(rng, 0.35, 0.6), at[3];

        if (!landscape_find_place(w, rng, w->margin, 0.6 * radius, at))
            continue;
        at[2] += trunk + half;
        SP_TRY(add_crown(w, at, radius, half,
                         is_bush ? 0.35 : sp_rng_uniform(rng, 0.7, 2), leaves));
    }
    return SP_OK;
}

/* Adds three wires over one span of 60 m, as parabolas of eight chords, and the pole at
 * the span's beginning. */
static sp_status add_span(sp_landscape *w, const double from[2], double heading,
                          double height)
{
    enum { CHORDS = 8 };
    const double length = 60, sag = 1.6, d[2] = {cos(heading), sin(heading)};
    house pole = {{from[0], from[1], 0}, heading, {0.2, 0.2}, height + 0.3, 0};
    double end[2] = {from[0] + length * d[0], from[1] + length * d[1]}, z[2];

    z[0] = sp_landscape_height(w, from[0], from[1], NULL) + height;
    z[1] = sp_landscape_height(w, end[0], end[1], NULL) + height;
    pole.foot[2] = z[0] - height;
    SP_TRY(add_house(w, -1, 0.35, &pole));
    for (int wire = -1; wire <= 1; wire++)
        for (int i = 0; i < CHORDS; i++) {
            double p[2][3];

            for (int e = 0; e < 2; e++) {
                double t = (double)(i + e) / CHORDS;

                p[e][0] = from[0] + t * length * d[0] - wire * 1.3 * d[1];
                p[e][1] = from[1] + t * length * d[1] + wire * 1.3 * d[0];
                p[e][2] = z[0] + t * (z[1] - z[0]) - 4 * sag * t * (1 - t);
            }
            SP_TRY(add_line(w, p[0], p[1]));
        }
    return SP_OK;
}

static sp_status add_power_lines(sp_landscape *w, sp_rng *rng)
{
    int n = (int)((w->extent + w->margin) / 120 + 0.8 + 0.4 * sp_rng_unit(rng));

    for (int i = 0; i < n; i++) {
        double heading = sp_rng_uniform(rng, 0, TURN), reach = 0.75 * w->extent + 60;
        double height = sp_rng_uniform(rng, 9, 14), shift = sp_rng_uniform(rng, 0, 60);
        double middle[2], from[2];

        middle[0] = sp_rng_uniform(rng, 0.2, 0.8) * w->extent;
        middle[1] = sp_rng_uniform(rng, 0.2, 0.8) * w->extent;
        for (int span = 0; span * 60 < 2 * reach; span++) {
            from[0] = middle[0] + (span * 60 + shift - reach) * cos(heading);
            from[1] = middle[1] + (span * 60 + shift - reach) * sin(heading);
            SP_TRY(add_span(w, from, heading, height));
        }
    }
    return SP_OK;
}

/* ---- raster ---- */

int sp_landscape_cell(const sp_landscape *w, double x)
{
    int cell = (int)floor((x + w->margin) / CELL);

    return cell < 0 ? 0 : cell >= w->n_cells ? w->n_cells - 1 : cell;
}

/* Counts the objects of every cell (fill false), or lists them (fill true). */
static void visit_cells(sp_landscape *w, bool fill)
{
    for (int i = 0; i < w->n_objects; i++) {
        const sp_object *o = &w->object[i];

        for (int y = sp_landscape_cell(w, o->lo[1]);
             y <= sp_landscape_cell(w, o->hi[1]); y++)
            for (int x = sp_landscape_cell(w, o->lo[0]);
                 x <= sp_landscape_cell(w, o->hi[0]); x++) {
                int *at = &w->cell_start[y * w->n_cells + x + (fill ? 0 : 1)];

                if (fill)
                    w->cell_object[*at] = i;
                ++*at;
            }
    }
}

static sp_status make_raster(sp_landscape *w)
{
    size_t cells;

    w->n_cells = (int)ceil((w->extent + 2 * w->margin) / CELL);
    cells = (size_t)w->n_cells * (size_t)w->n_cells;
    SP_TRY(SP_NEW(&w->cell_start, cells, "the cells of a scene"));
    visit_cells(w, false);
    for (int i = 0; i < (int)cells; i++)
        w->cell_start[i + 1] += w->cell_start[i];
    w->cell_object =
        malloc(((size_t)w->cell_start[cells] + 1) * sizeof *w->cell_object);
    if (!w->cell_object)
        return SP_FAIL(SP_EMEM, "scene: no memory for %d objects", w->n_objects);
    visit_cells(w, true); /* moves every start to its end, which is the next start */
    memmove(w->cell_start + 1, w->cell_start, cells * sizeof *w->cell_start);
    w->cell_start[0] = 0;
    return SP_OK;
}

static void make_road(sp_landscape *w, sp_rng *rng)
{
    double heading = sp_rng_uniform(rng, 0, TURN);
    double x = sp_rng_uniform(rng, 0.2, 0.8) * w->extent;
    double y = sp_rng_uniform(rng, 0.2, 0.8) * w->extent;

    w->road[0] = cos(heading);
    w->road[1] = sin(heading);
    w->road[2] = w->road[0] * x + w->road[1] * y;
    w->road[3] = sp_rng_uniform(rng, 2.5, 3.5);
}

sp_status sp_landscape_create(sp_landscape *w, double extent, sp_rng *rng)
{
    assert(w && rng && extent > 0);
    memset(w, 0, sizeof *w);
    w->extent = extent;
    w->margin = MARGIN;
    make_terrain(w, rng);
    make_road(w, rng);
    SP_TRY(add_buildings(w, rng)); /* placed first: other objects keep clear of them */
    SP_TRY(add_power_lines(w, rng));
    SP_TRY(add_vehicles(w, rng));
    SP_TRY(add_plants(w, rng));
    w->bottom = 1e9;
    w->top = -1e9;
    for (int i = 0; i < 4; i++) { /* the sum of the six waves stays within 3.2 m */
        double z = sp_landscape_height(w, i & 1 ? extent : 0, i & 2 ? extent : 0, NULL);

        w->bottom = fmin(w->bottom, z - 8);
        w->top = fmax(w->top, z + 8);
    }
    for (int i = 0; i < w->n_objects; i++)
        w->top = fmax(w->top, w->object[i].hi[2]);
    return make_raster(w);
}

void sp_landscape_destroy(sp_landscape *w)
{
    free(w->object);
    free(w->cell_start);
    free(w->cell_object);
    memset(w, 0, sizeof *w);
}
