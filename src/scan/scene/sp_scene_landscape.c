#include "base/sp_list.h"
#include "scan/scene/sp_scene.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 10.0 /* metre around the scene; objects are placed there too */
#define SPAN   60.0 /* metre between two poles */
#define TURN   6.283185307179586477
enum {
    MOST_CELLS = 1600
}; /* along an edge of the scene; its cells are 25 cm or more */

/* ---- raster ---- */

static int cell_index(const sp_landscape *w, double x)
{
    const int i = (int)((x + w->margin) / w->edge);

    return i < 0 ? 0 : i >= w->n ? w->n - 1 : i;
}

const sp_cell *sp_landscape_at(const sp_landscape *w, double x, double y)
{
    return &w->cell[(int64_t)cell_index(w, y) * w->n + cell_index(w, x)];
}

/* Changes a cell whose centre is dx, dy from the place of `what`. */
typedef void stamp(const sp_landscape *w, sp_cell *cell, double dx, double dy,
                   const void *what);

/* Calls `change` for the cells of the square of half edge `reach` around (x, y). */
static void change_cells(sp_landscape *w, double x, double y, double reach,
                         stamp *change, const void *what)
{
    for (int j = cell_index(w, y - reach); j <= cell_index(w, y + reach); j++)
        for (int i = cell_index(w, x - reach); i <= cell_index(w, x + reach); i++) {
            sp_cell *cell = &w->cell[(int64_t)j * w->n + i];

            change(w, cell, cell->x - x, cell->y - y, what);
        }
}

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

/* Distance from the road's edge; negative on the road. */
static double road_distance(const sp_landscape *w, double x, double y)
{
    return fabs(w->road[0] * x + w->road[1] * y - w->road[2]) - w->road[3];
}

static double terrain_height(const sp_landscape *w, double x, double y, float slope[2])
{
    double z = w->slope[0] * x + w->slope[1] * y, g[2] = {w->slope[0], w->slope[1]};

    for (int i = 0; i < 6; i++) {
        const double *wave = w->wave[i], angle = wave[0] * x + wave[1] * y + wave[2];

        z += wave[3] * sin(angle);
        for (int a = 0; a < 2; a++)
            g[a] += wave[3] * wave[a] * cos(angle);
    }
    for (int a = 0; a < 2; a++)
        slope[a] = (float)g[a];
    return z;
}

static void stamp_ground(const sp_landscape *w, sp_cell *cell, double dx, double dy,
                         const void *what)
{
    const double soil =
        sin(0.37 * cell->x + w->wave[0][2]) * sin(0.29 * cell->y + w->wave[1][2]);

    (void)dx, (void)dy, (void)what;
    cell->z = (float)terrain_height(w, cell->x, cell->y, cell->slope);
    cell->label = SP_GROUND;
    cell->reflectance = road_distance(w, cell->x, cell->y) < 0 ? 0.16f
                        : soil > 0.55                          ? 0.3f
                                                               : 0.45f;
    cell->crown = cell->span = -1;
}

static sp_status make_raster(sp_landscape *w)
{
    w->edge = fmax(0.25, w->extent / MOST_CELLS);
    w->n = (int)ceil((w->extent + 2 * w->margin) / w->edge);
    SP_TRY(SP_NEW(&w->cell, (size_t)w->n * (size_t)w->n, "the cells of a scene"));
    for (int64_t i = 0; i < (int64_t)w->n * w->n; i++) {
        w->cell[i].x = ((double)(i % w->n) + 0.5) * w->edge - w->margin;
        w->cell[i].y = ((double)(i / w->n) + 0.5) * w->edge - w->margin;
    }
    change_cells(w, 0, 0, 2 * w->extent + w->margin, stamp_ground, NULL);
    return SP_OK;
}

/* ---- solids ---- */

/* A house: foot {x, y, z}, half sizes along and across `heading`, height of the eaves,
 * and of the ridge above the eaves (0: flat). A vehicle's body and cabin and a pole are
 * houses too. */
typedef struct house {
    double foot[3], heading, half[2], eaves, ridge, reflectance;
    int label;
} house;

static void stamp_house(const sp_landscape *w, sp_cell *cell, double dx, double dy,
                        const void *what)
{
    const house *h = what;
    const double c = cos(h->heading), s = sin(h->heading);
    const double along = c * dx + s * dy, across = c * dy - s * dx;
    const double fall = h->ridge / h->half[1];
    const float z = (float)(h->foot[2] + h->eaves + h->ridge - fall * fabs(across));

    (void)w;
    if (fabs(along) > h->half[0] || fabs(across) > h->half[1] || z <= cell->z)
        return;
    cell->z = z;
    cell->slope[0] = (float)(across < 0 ? -s * fall : s * fall);
    cell->slope[1] = (float)(across < 0 ? c * fall : -c * fall);
    cell->label = h->label;
    cell->reflectance = (float)h->reflectance;
}

static void add_house(sp_landscape *w, const house *h)
{
    change_cells(w, h->foot[0], h->foot[1], hypot(h->half[0], h->half[1]), stamp_house,
                 h);
}

/* Finds a place for a footprint of this radius that meets neither road nor building, at
 * most `beyond` outside the scene. Returns false after 20 attempts. */
static bool landscape_find_place(const sp_landscape *w, sp_rng *rng, double beyond,
                                 double radius, double at[3])
{
    for (int attempt = 0; attempt < 20; attempt++) {
        bool is_free;

        for (int i = 0; i < 2; i++)
            at[i] = sp_rng_uniform(rng, -beyond, w->extent + beyond);
        is_free = road_distance(w, at[0], at[1]) > radius;
        for (int i = 0; i <= 16 && is_free; i++) { /* the middle and two circles */
            double r = i == 16 ? 0 : i % 2 ? 0.8 * radius : 0.4 * radius;

            is_free = sp_landscape_at(w, at[0] + r * cos(i * TURN / 16),
                                      at[1] + r * sin(i * TURN / 16))
                          ->label == SP_GROUND;
        }
        if (is_free) {
            at[2] = sp_landscape_at(w, at[0], at[1])->z;
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

static void add_buildings(sp_landscape *w, sp_rng *rng)
{
    int n = 1 + landscape_count_of(w, rng, 0.0016);
    double street = atan2(w->road[1], w->road[0]);

    for (int i = 0; i < n; i++) {
        house h = {.label = SP_BUILDING, .reflectance = sp_rng_uniform(rng, 0.12, 0.5)};

        h.half[0] = sp_rng_uniform(rng, 3.5, 8);
        h.half[1] = sp_rng_uniform(rng, 2.8, 4.8);
        /* The first building is inside, so that every scene has one. */
        if (!landscape_find_place(w, rng, i == 0 ? -3 : w->margin,
                                  0.75 * hypot(h.half[0], h.half[1]), h.foot))
            continue;
        h.heading = street + (sp_rng_unit(rng) < 0.5 ? 0 : TURN / 4) +
                    sp_rng_uniform(rng, -0.1, 0.1);
        h.eaves = sp_rng_uniform(rng, 2.6, 7.5);
        h.ridge = sp_rng_unit(rng) < 0.65 ? sp_rng_uniform(rng, 1.5, 4) : 0;
        add_house(w, &h);
    }
}

static void add_vehicle(sp_landscape *w, sp_rng *rng, const double at[3],
                        double heading)
{
    house h = {.foot = {at[0], at[1], at[2] + 0.25},
               .heading = heading,
               .half = {2.1, 0.9},
               .eaves = 0.65,
               .label = SP_VEHICLE};

    h.reflectance = sp_rng_uniform(rng, 0.08, 0.7);
    h.half[0] = sp_rng_uniform(rng, 1.8, 2.6);
    add_house(w, &h);
    h.half[0] *= 0.6;
    h.half[1] = 0.8;
    h.eaves = sp_rng_uniform(rng, 1.15, 2);
    add_house(w, &h);
}

/* Adds cars on the road's two lanes, and parked ones anywhere off the road. */
static void add_vehicles(sp_landscape *w, sp_rng *rng)
{
    int n = landscape_count_of(w, rng, 0.004);

    for (int i = 0; i < n; i++) {
        double at[3], along, lane, heading = atan2(w->road[0], -w->road[1]);
        float unused[2];

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
            at[2] = terrain_height(w, at[0], at[1], unused);
        }
        add_vehicle(w, rng, at, heading);
    }
}

/* ---- plants and power lines ---- */

static void stamp_crown(const sp_landscape *w, sp_cell *cell, double dx, double dy,
                        const void *what)
{
    (void)what;
    if (hypot(dx, dy) <= w->crown[w->n_crowns - 1].radius + w->edge)
        cell->crown = w->n_crowns - 1;
}

static sp_status add_plants(sp_landscape *w, sp_rng *rng)
{
    int n = landscape_count_of(w, rng, 0.009);

    SP_TRY(SP_NEW(&w->crown, n, "the trees of a scene"));
    for (int i = 0; i < n; i++) {
        sp_crown *c = &w->crown[w->n_crowns];
        bool is_bush = sp_rng_unit(rng) < 0.4;
        double trunk;

        c->radius =
            is_bush ? sp_rng_uniform(rng, 0.5, 1.2) : sp_rng_uniform(rng, 1.2, 3.2);
        c->half_height = c->radius * sp_rng_uniform(rng, 0.8, is_bush ? 1.1 : 1.8);
        c->reflectance = sp_rng_uniform(rng, 0.35, 0.6);
        c->free_path = is_bush ? 0.35 : sp_rng_uniform(rng, 0.7, 2);
        trunk = is_bush ? -0.3 * c->half_height : sp_rng_uniform(rng, 0.8, 2.5);
        if (!landscape_find_place(w, rng, w->margin, 0.6 * c->radius, c->at))
            continue;
        c->at[2] += trunk + c->half_height;
        w->top = fmax(w->top, c->at[2] + c->half_height);
        w->n_crowns++;
        change_cells(w, c->at[0], c->at[1], c->radius, stamp_crown, NULL);
    }
    return SP_OK;
}

#define WIRES_APART 1.3 /* metre */

static void stamp_span(const sp_landscape *w, sp_cell *cell, double dx, double dy,
                       const void *what)
{
    const sp_span *span = what;
    const double c = cos(span->heading), s = sin(span->heading);
    const double along = c * dx + s * dy, across = c * dy - s * dx;

    if (along >= -w->edge && along < SPAN + w->edge &&
        fabs(across) < WIRES_APART + 2 * w->edge)
        cell->span = w->n_spans - 1;
}

double sp_span_distance(const sp_span *span, const double p[3])
{
    const double c = cos(span->heading), s = sin(span->heading), sag = 1.6;
    const double dx = p[0] - span->from[0], dy = p[1] - span->from[1];
    const double across = c * dy - s * dx, t = (c * dx + s * dy) / SPAN;
    const double wire = fmin(fmax(round(across / WIRES_APART), -1), 1) * WIRES_APART;
    const double z = span->z[0] + t * (span->z[1] - span->z[0]) - 4 * sag * t * (1 - t);

    return t < 0 || t >= 1 ? INFINITY : hypot(across - wire, p[2] - z);
}

/* Adds a span and the pole at its beginning. */
static void add_span(sp_landscape *w, double x, double y, double heading, double height)
{
    sp_span *span = &w->span[w->n_spans++];
    const double end[2] = {x + SPAN * cos(heading), y + SPAN * sin(heading)};
    float unused[2];
    house pole = {.foot = {x, y, terrain_height(w, x, y, unused)},
                  .heading = heading,
                  .half = {0.2, 0.2},
                  .eaves = height + 0.3,
                  .reflectance = 0.35,
                  .label = -1};

    *span = (sp_span){.from = {x, y}, .heading = heading};
    span->z[0] = pole.foot[2] + height;
    span->z[1] = terrain_height(w, end[0], end[1], unused) + height;
    w->top = fmax(w->top, fmax(span->z[0], span->z[1]) + 0.3);
    add_house(w, &pole);
    change_cells(w, x, y, SPAN + WIRES_APART, stamp_span, span);
}

static sp_status add_power_lines(sp_landscape *w, sp_rng *rng)
{
    const int n = (int)((w->extent + w->margin) / 120 + 0.8 + 0.4 * sp_rng_unit(rng));
    const double reach = 0.75 * w->extent + SPAN;
    const int spans = (int)ceil(2 * reach / SPAN);

    SP_TRY(SP_NEW(&w->span, (size_t)n * (size_t)spans, "the wires of a scene"));
    for (int i = 0; i < n; i++) {
        double heading = sp_rng_uniform(rng, 0, TURN),
               height = sp_rng_uniform(rng, 9, 14);
        double shift = sp_rng_uniform(rng, 0, SPAN) - reach;
        double x = sp_rng_uniform(rng, 0.2, 0.8) * w->extent + shift * cos(heading);
        double y = sp_rng_uniform(rng, 0.2, 0.8) * w->extent + shift * sin(heading);

        for (int k = 0; k < spans; k++)
            add_span(w, x + k * SPAN * cos(heading), y + k * SPAN * sin(heading),
                     heading, height);
    }
    return SP_OK;
}

sp_status sp_landscape_create(sp_landscape *w, double extent, sp_rng *rng)
{
    assert(w && rng && extent > 0);
    *w = (sp_landscape){.extent = extent, .margin = MARGIN, .top = -INFINITY};
    make_terrain(w, rng);
    make_road(w, rng);
    SP_TRY(make_raster(w));
    add_buildings(w, rng); /* placed first: other objects keep clear of them */
    SP_TRY(add_power_lines(w, rng));
    add_vehicles(w, rng);
    SP_TRY(add_plants(w, rng));
    for (int64_t i = 0; i < (int64_t)w->n * w->n; i++)
        w->top = fmax(w->top, (double)w->cell[i].z + w->edge);
    return SP_OK;
}

void sp_landscape_destroy(sp_landscape *w)
{
    free(w->cell);
    free(w->crown);
    free(w->span);
    memset(w, 0, sizeof *w);
}
