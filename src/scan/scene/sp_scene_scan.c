/* A landscape, and a scanner that flies beside it along x and looks to larger y. A line
 * of pulses lies in a vertical plane, so hiding needs no ray tracing: from the nearest
 * place of the line on, a pulse ends at the first place whose surface it is not above,
 * and the next pulse, which is flatter, goes on from there. */
#include <math.h>

#include "base/sp_list.h"
#include "base/sp_rng.h"
#include "scan/scene/sp_scene.h"

#define MARGIN  10.0 /* metre around the scene; objects there hide parts of it */
#define SPACING 0.32 /* metre between pulses and between lines, on level ground */
#define STEP    0.16 /* metre in y between the places of a line */

/* Appends to a list of n elements. */
#define ADD(list, n, ...)                                                              \
    (sp_list_grow(&(list), (n), sizeof *(list))                                        \
         ? ((list)[(n)++] = __VA_ARGS__, SP_OK)                                        \
         : SP_FAIL(SP_EMEM, "no memory: scene"))

/* Kinds of objects: halves of the edges, and heights of the eaves and from there to the
 * ridge. A roof with a ridge below 0 is flat. Crowns are ellipsoids of leaves above the
 * eaves, and a power line is three hanging wires. */
enum { LENGTH, WIDTH, EAVES, RIDGE, REFLECTANCE, NUMBERS };
static const struct kind {
    int label;
    double per_m2, leaves_per_m3, least[NUMBERS], most[NUMBERS];
} kinds[] = {
    {SP_BUILDING, 0.003, 0, {3.5, 3, 2.6, -2, 0.1}, {8, 5, 7.5, 4, 0.5}},
    {SP_VEHICLE, 0.014, 0, {1.8, 0.8, 0.9, 0, 0.1}, {2.6, 1, 1.4, 1, 0.7}},
    {SP_VEGETATION, 0.012, 9, {1, 1, 0.8, 1, 0.3}, {3, 3, 2.5, 4.5, 0.4}},
    {SP_VEGETATION, 0.008, 28, {0.5, 0.5, -0.5, 0.5, 0.3}, {1.2, 1.2, 0, 1, 0.4}},
    {SP_WIRE, 0.0007, 3, {30, 1.3, 8, 1.6, 0.3}, {30, 1.3, 12, 1.6, 0.3}},
};

typedef struct object {
    int label;
    double x, y, c, s, of[NUMBERS]; /* its middle, and the direction of its length */
} object;

/* A part of a crown or wire, which returns a part of the pulse that meets it. The key is
 * the number of that pulse, less z / 10^4: the order in which leaves are met. */
typedef struct leaf {
    double key, x, y, z;
    int label;
} leaf;

typedef struct scene {
    double extent, wave[6][4]; /* terrain: {kx, ky, phase, height} */
    int64_t n_solids, n_leaves;
    object *solid;     /* opaque down to the ground */
    leaf *leaf, *next; /* next: the first that no earlier pulse has passed */
    sp_rng rng;
    sp_scene_points *points;
    double near, altitude; /* of the sensor, in y to -MARGIN and in z */
    double x, skew;        /* of a line: x at y = 0, and dx / dy */
    double n_pulses;       /* of a line, which begins at y = -MARGIN */
    int64_t n_places;
    struct place {
        double z;            /* of the highest surface */
        const object *owner; /* NULL: it is the ground */
    } * place;
} scene;

/* ---- landscape ---- */

static double scene_draw(scene *w, double low, double high)
{
    return sp_rng_uniform(&w->rng, low, high);
}

static double ground_height(const scene *w, double x, double y)
{
    double z = 0;

    for (int i = 0; i < 6; i++)
        z += w->wave[i][3] * sin(w->wave[i][0] * x + w->wave[i][1] * y + w->wave[i][2]);
    return z;
}

/* The height of the top; -INFINITY farther than `beyond` from the object's rectangle. */
static double object_top(const object *o, double x, double y, double beyond)
{
    const double along = fabs(o->c * (x - o->x) + o->s * (y - o->y));
    const double across = fabs(o->c * (y - o->y) - o->s * (x - o->x));

    if (along > o->of[LENGTH] + beyond || across > o->of[WIDTH] + beyond)
        return -INFINITY;
    return o->of[EAVES] + fmax(o->of[RIDGE], 0) * (1 - across / o->of[WIDTH]);
}

static sp_status add_leaves(scene *w, const object *o, double per_m3)
{
    const double l = o->of[LENGTH], width = o->of[WIDTH], half = o->of[RIDGE];

    for (double n = 8 * l * width * half * per_m3; n > 0; n--) {
        const double u = scene_draw(w, -1, 1), v = scene_draw(w, -1, 1),
                     z = scene_draw(w, -1, 1);
        const bool is_wire = o->label == SP_WIRE;
        const double x = l * u, y = width * (is_wire ? round(1.5 * v) : v);

        if (is_wire || u * u + v * v + z * z < 1)
            SP_TRY(
                ADD(w->leaf, w->n_leaves,
                    (leaf){0, o->x + o->c * x - o->s * y, o->y + o->s * x + o->c * y,
                           o->of[EAVES] + half * (is_wire ? u * u : 1 + z), o->label}));
    }
    return SP_OK;
}

/* Adds the objects of a kind, but those whose place is taken. */
static sp_status add_objects(scene *w, const struct kind *kind)
{
    const double low = -MARGIN, high = w->extent + MARGIN;
    const double n =
        kind->per_m2 * (high - low) * (high - low) * scene_draw(w, 0.6, 1.4);

    for (int i = 0; i < n; i++) {
        const double x = scene_draw(w, low, high), y = scene_draw(w, low, high);
        const double heading = scene_draw(w, 0, 6.28);
        object o = {kind->label, x, y, cos(heading), sin(heading), {0}};
        bool is_free = true;

        for (int k = 0; k < NUMBERS; k++)
            o.of[k] = scene_draw(w, kind->least[k], kind->most[k]);
        o.of[EAVES] += ground_height(w, x, y);
        for (int64_t k = 0; k < w->n_solids && is_free; k++)
            is_free = kind->label == SP_WIRE ||
                      isinf(object_top(&w->solid[k], x, y, 0.7 * o.of[LENGTH]));
        if (is_free)
            SP_TRY(kind->leaves_per_m3 > 0 ? add_leaves(w, &o, kind->leaves_per_m3)
                                           : ADD(w->solid, w->n_solids, o));
    }
    return SP_OK;
}

/* ---- scanner ---- */

/* Appends a point of a pulse, if it is in the scene. */
static sp_status scene_add_point(scene *w, double aim, double z, int label,
                                 double intensity)
{
    const double y = aim * (1 - z / w->altitude) - w->near - MARGIN;
    const double at[3] = {w->x + w->skew * y + scene_draw(w, -0.06, 0.06), y, z};
    sp_scene_points *p = w->points;

    if (!(fmin(at[0], y) >= 0 && fmax(at[0], y) < w->extent))
        return SP_OK;
    if (!sp_list_grow(&p->xyz, p->n, sizeof at) ||
        !sp_list_grow(&p->features, p->n, SP_SCENE_FEATURES * sizeof *p->features) ||
        !sp_list_grow(&p->label, p->n, sizeof *p->label))
        return SP_FAIL(SP_EMEM, "no memory for the points of a scene");
    memcpy(p->xyz + 3 * p->n, at, sizeof at);
    p->features[SP_SCENE_FEATURES * p->n] =
        (float)(intensity * scene_draw(w, 0.8, 1.2));
    p->label[p->n++] = label;
    return SP_OK;
}

/* Turns a pulse that ends at the height z of object `o`, or of the ground, into points:
 * leaves above take shares of its energy until little is left. */
static sp_status record_pulse(scene *w, double pulse, double aim, double z,
                              const object *o)
{
    const double soil = sin(0.37 * w->x) * sin(0.29 * aim) > 0.5 ? 0.25 : 0.4;
    const int64_t first = w->points->n;
    double energy = 1, last = INFINITY;
    int n = 0;

    for (; w->next < w->leaf + w->n_leaves && w->next->key < pulse + 0.5; w->next++) {
        const leaf *l = w->next;
        const double share = energy * scene_draw(w, 0.25, 0.75);

        if (l->key < pulse - 0.5 || l->z < z || last - l->z < 0.7 || n == 4 ||
            energy < 0.12)
            continue;
        SP_TRY(scene_add_point(w, aim, l->z, l->label, 0.35 * share));
        last = l->z;
        energy -= share;
        n++;
    }
    if (energy >= 0.12 && ++n)
        SP_TRY(scene_add_point(w, aim, z + scene_draw(w, -0.03, 0.03),
                               o ? o->label : SP_GROUND,
                               (o ? o->of[REFLECTANCE] : soil) * energy));
    if (scene_draw(w, 0, 1) < 0.001) /* a stray return, out of thin air */
        SP_TRY(scene_add_point(w, aim, z + scene_draw(w, -3, 25), -1, 0.1));
    for (int64_t i = first; i < w->points->n; i++)
        w->points->features[SP_SCENE_FEATURES * i + 2] = (float)n;
    return SP_OK;
}

/* Finds the surface at the places of a line. */
static void find_surface(scene *w)
{
    for (int64_t k = 0; k < w->n_places; k++) {
        const double y = STEP * (double)k - MARGIN;

        w->place[k] = (struct place){ground_height(w, w->x + w->skew * y, y), NULL};
    }
    for (const object *o = w->solid; o < w->solid + w->n_solids; o++) {
        const double reach = 1.2 * (o->of[LENGTH] + o->of[WIDTH]), u = o->y + MARGIN;
        int64_t k = (int64_t)(fmax(u - reach, 0) / STEP);

        if (fabs(w->x + w->skew * o->y - o->x) > reach)
            continue;
        for (; k < w->n_places && STEP * (double)k < u + reach; k++) {
            const double y = STEP * (double)k - MARGIN;
            const double z = object_top(o, w->x + w->skew * y, y, 0);

            if (z > w->place[k].z)
                w->place[k] = (struct place){z, o};
        }
    }
}

/* The height of a pulse above the surface at place k. It would reach the height 0 at
 * `aim` metre in y from the sensor. */
static double height_above(const scene *w, double aim, int64_t k)
{
    return w->altitude * (1 - (w->near + STEP * (double)k) / aim) - w->place[k].z;
}

static sp_status scan_line(scene *w, double line)
{
    double aim = w->near, i = 0;

    find_surface(w);
    for (int64_t k = 1; k < w->n_places; k++)
        for (; i < w->n_pulses && height_above(w, aim, k) <= 0; i++) {
            const struct place *p = &w->place[k - 1], *q = p + 1;
            const double before = fmax(height_above(w, aim, k - 1), 0);
            const double part = before / (before - height_above(w, aim, k) + 1e-9);

            SP_TRY(record_pulse(w, line * w->n_pulses + i, aim,
                                p->z + part * (q->z - p->z),
                                p->z > q->z ? p->owner : q->owner));
            aim = w->near + SPACING * (i + 1) + scene_draw(w, -0.07, 0.07);
        }
    return SP_OK;
}

/* Flies past the landscape. Lines cover the scene, and pulses its margins too. */
static sp_status fly_past(scene *w)
{
    const double first = fmin(0, -w->skew * w->extent);

    for (leaf *l = w->leaf; l < w->leaf + w->n_leaves; l++) {
        const double aim = (w->near + MARGIN + l->y) / (1 - l->z / w->altitude);
        const double i = round((aim - w->near) / SPACING);
        const double line = round((l->x - w->skew * l->y - first) / SPACING);

        l->key = i >= 0 && i < w->n_pulses ? line * w->n_pulses + i - l->z / 1e4 : -1;
    }
    qsort(w->leaf, (size_t)w->n_leaves, sizeof *w->leaf, sp_by_double); /* the keys */
    w->next = w->leaf;
    for (int line = 0; line < w->extent * (1 + fabs(w->skew)) / SPACING; line++) {
        w->x = first + SPACING * line;
        SP_TRY(scan_line(w, line));
    }
    return SP_OK;
}

/* Fills in the heights, above the 2nd percentile of z. */
static sp_status scene_add_heights(sp_scene_points *p)
{
    SP_FREED double *z = NULL;

    SP_TRY(SP_NEW(&z, p->n, "the heights of a scene"));
    for (int64_t i = 0; i < p->n; i++)
        z[i] = p->xyz[3 * i + 2];
    qsort(z, (size_t)p->n, sizeof *z, sp_by_double);
    for (int64_t i = 0; i < p->n; i++)
        p->features[SP_SCENE_FEATURES * i + 1] =
            (float)(p->xyz[3 * i + 2] - z[(p->n - 1) / 50]);
    return SP_OK;
}

static void scene_release(scene *w)
{
    free(w->solid);
    free(w->leaf);
    free(w->place);
}

sp_status sp_scene_scan(const sp_scene_options *options, int64_t index,
                        sp_scene_points *points)
{
    SP_CLOSED_BY(scene_release) scene w = {.extent = options->extent, .points = points};

    w.rng = sp_rng_open(options->seed, SP_RNG_SCENE, (uint64_t)index, 0);
    w.altitude = fmax(450, 3 * w.extent);
    w.near = scene_draw(&w, 0.05, 0.3) * w.altitude;
    w.skew = scene_draw(&w, -0.4, 0.4);
    w.n_pulses = floor((w.extent + 2 * MARGIN) / SPACING);
    w.n_places = (int64_t)((w.extent + 2 * MARGIN) / STEP);
    SP_TRY(SP_NEW(&w.place, w.n_places, "a line of a scene"));
    for (int i = 0; i < 6; i++) { /* from hills down to small unevenness */
        const double k = 6.28 / 140 * (1 << i);

        w.wave[i][0] = scene_draw(&w, -k, k);
        w.wave[i][1] = scene_draw(&w, -k, k);
        w.wave[i][2] = scene_draw(&w, 0, 6.28);
        w.wave[i][3] = scene_draw(&w, 0.03, 0.11) / k;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        SP_TRY(add_objects(&w, &kinds[i]));
    SP_TRY(fly_past(&w));
    return scene_add_heights(points);
}

void sp_scene_points_destroy(sp_scene_points *points)
{
    free(points->xyz);
    free(points->features);
    free(points->label);
    *points = (sp_scene_points){0};
}
