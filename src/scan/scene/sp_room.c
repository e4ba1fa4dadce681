#include "scan/scene/sp_room.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define TURN 6.283185307179586477
/* Metre, standard deviation of a measured range. */
#define NOISE 0.006

enum {
    MOST = 1000,       /* boxes */
    ATTEMPTS = 30,     /* to find a place for a piece of furniture */
    RAYS = 1400,       /* of a station, for a square metre of the floor */
    FEWEST_RAYS = 8000 /* of a station */
};

/* A box with a vertical axis, from the height `from` up to `to`. */
typedef struct box {
    double x, y, cosine, sine; /* its middle, and its turn about z */
    double half[2], from, to;
    double reflectance;
    int label;
} box;

typedef struct room {
    double size[3];
    int n;
    box box[MOST];
} room;

/* ---- furniture ---- */

static box *add_box(room *r, double x, double y, double turn, int label)
{
    box *b = &r->box[r->n < MOST - 1 ? r->n++ : MOST - 1];

    *b = (box){.x = x,
               .y = y,
               .cosine = cos(turn),
               .sine = sin(turn),
               .reflectance = 0.5,
               .label = label};
    return b;
}

/* Adds a box at (along, across) of a piece of furniture at b. */
static void room_add_part(room *r, const box *b, double along, double across,
                          const double half[2], double from, double to)
{
    box *part = add_box(r, b->x + along * b->cosine - across * b->sine,
                        b->y + along * b->sine + across * b->cosine,
                        atan2(b->sine, b->cosine), b->label);

    memcpy(part->half, half, sizeof part->half);
    part->from = from;
    part->to = to;
    part->reflectance = b->reflectance;
}

/* Finds a free place for a circle of this radius; false: no place is free. */
static bool room_find_place(const room *r, sp_rng *rng, double radius, double *x,
                            double *y)
{
    for (int attempt = 0; attempt < ATTEMPTS && 2 * radius < r->size[1]; attempt++) {
        bool is_free = true;

        *x = sp_rng_uniform(rng, radius, r->size[0] - radius);
        *y = sp_rng_uniform(rng, radius, r->size[1] - radius);
        for (int i = 0; i < r->n && is_free; i++)
            is_free = hypot(r->box[i].x - *x, r->box[i].y - *y) >
                      radius + hypot(r->box[i].half[0], r->box[i].half[1]);
        if (is_free)
            return true;
    }
    return false;
}

static void add_legs(room *r, const box *b, const double half[2], double height)
{
    const double thin[2] = {0.03, 0.03};

    for (int leg = 0; leg < 4; leg++)
        room_add_part(r, b, (leg & 1 ? 1 : -1) * (half[0] - 0.05),
                      (leg & 2 ? 1 : -1) * (half[1] - 0.05), thin, 0, height);
}

static void add_chair(room *r, sp_rng *rng, double x, double y, double turn)
{
    const double half[2] = {0.22, 0.22}, back[2] = {0.02, 0.22};
    const box at = {.x = x,
                    .y = y,
                    .cosine = cos(turn),
                    .sine = sin(turn),
                    .reflectance = sp_rng_uniform(rng, 0.2, 0.6),
                    .label = SP_ROOM_CHAIR};

    add_legs(r, &at, half, 0.43);
    room_add_part(r, &at, 0, 0, half, 0.43, 0.47);
    room_add_part(r, &at, -0.2, 0, back, 0.47, sp_rng_uniform(rng, 0.8, 1));
}

/* Adds a table with chairs along its longer sides. */
static void room_add_table(room *r, sp_rng *rng)
{
    const double half_x = sp_rng_uniform(rng, 0.5, 1.1);
    const double half[2] = {half_x, sp_rng_uniform(rng, 0.35, 0.5)};
    const double turn = sp_rng_uniform(rng, 0, TURN);
    const double height = sp_rng_uniform(rng, 0.7, 0.78);
    const int chairs = 1 + (int)(half[0] / 0.4);
    box at = {.cosine = cos(turn),
              .sine = sin(turn),
              .reflectance = sp_rng_uniform(rng, 0.3, 0.7),
              .label = SP_ROOM_TABLE};

    if (!room_find_place(r, rng, half[0] + 0.5, &at.x, &at.y))
        return;
    room_add_part(r, &at, 0, 0, half, height - 0.04, height);
    add_legs(r, &at, half, height - 0.04);
    for (int i = 0; i < 2 * chairs; i++) {
        const double side = i % 2 ? 1 : -1, away = sp_rng_uniform(rng, 0.12, 0.3);
        const double along = (2.0 * (i / 2) + 1 - chairs) * half[0] / chairs;
        const double across = side * (half[1] + away);

        if (sp_rng_unit(rng) < 0.8)
            add_chair(r, rng, at.x + along * at.cosine - across * at.sine,
                      at.y + along * at.sine + across * at.cosine,
                      turn - side * TURN / 4 + sp_rng_uniform(rng, -0.3, 0.3));
    }
}

/* Adds a cabinet with its back to a wall. */
static void add_cabinet(room *r, sp_rng *rng)
{
    const int wall = (int)(4 * sp_rng_unit(rng));
    const double wide = sp_rng_uniform(rng, 0.4, 0.9), deep = 0.2;
    const double length = r->size[wall % 2] - 2 * wide;
    const double at = wide + length * sp_rng_unit(rng);
    const double back = wall < 2 ? deep : r->size[1 - wall % 2] - deep;
    box *b;

    if (length <= 0)
        return;
    b = add_box(r, wall % 2 ? back : at, wall % 2 ? at : back,
                wall % 2 ? TURN / 4 : 0, SP_ROOM_CABINET);
    b->half[0] = wide;
    b->half[1] = deep;
    b->to = sp_rng_uniform(rng, 0.8, 2.1);
    b->reflectance = sp_rng_uniform(rng, 0.3, 0.8);
}

/* Adds what has no class: lamps below the ceiling, and boxes on the floor. */
static void add_others(room *r, sp_rng *rng)
{
    const int n = 1 + (int)(r->size[0] * r->size[1] / 12);

    for (int i = 0; i < n; i++) {
        box *lamp = add_box(r, sp_rng_uniform(rng, 0.5, r->size[0] - 0.5),
                            sp_rng_uniform(rng, 0.5, r->size[1] - 0.5), 0, -1);
        double x, y;

        lamp->half[0] = 0.3;
        lamp->half[1] = 0.08;
        lamp->to = r->size[2] - 0.1;
        lamp->from = lamp->to - 0.08;
        if (room_find_place(r, rng, 0.3, &x, &y)) {
            box *parcel = add_box(r, x, y, sp_rng_uniform(rng, 0, TURN), -1);

            parcel->half[0] = sp_rng_uniform(rng, 0.1, 0.2);
            parcel->half[1] = parcel->to = 0.15;
        }
    }
}

static void room_furnish(room *r, double extent, sp_rng *rng)
{
    double area;

    r->n = 0;
    r->size[0] = extent;
    r->size[1] = extent * sp_rng_uniform(rng, 0.6, 1);
    r->size[2] = sp_rng_uniform(rng, 2.4, 3.2);
    area = r->size[0] * r->size[1];
    for (int i = 0; i < 2 + (int)(area / 14); i++)
        add_cabinet(r, rng);
    for (int i = 0; i < 1 + (int)(area / 14); i++)
        room_add_table(r, rng);
    add_others(r, rng);
}

/* ---- the scanner ---- */

/* The distance at which a ray meets wall, floor or ceiling: the plane where it leaves
 * the room. */
static double meet_room(const room *r, const double from[3], const double dir[3],
                        int *label, double *reflectance)
{
    double nearest = INFINITY;
    int side = 0;

    for (int a = 0; a < 3; a++) {
        const double t = dir[a] > 0   ? (r->size[a] - from[a]) / dir[a]
                         : dir[a] < 0 ? -from[a] / dir[a]
                                      : INFINITY;

        if (t < nearest) {
            nearest = t;
            side = a;
        }
    }
    *label = side < 2 ? SP_ROOM_WALL : dir[2] > 0 ? SP_ROOM_CEILING : SP_ROOM_FLOOR;
    *reflectance = side < 2 ? 0.75 : dir[2] > 0 ? 0.85 : 0.35;
    return nearest;
}

/* The distance at which a ray enters a box; INFINITY: it does not. */
static double meet_box(const box *b, const double from[3], const double dir[3])
{
    const double x = from[0] - b->x, y = from[1] - b->y, height = (b->to - b->from) / 2;
    const double at[3] = {x * b->cosine + y * b->sine, y * b->cosine - x * b->sine,
                          from[2] - b->from - height};
    const double way[3] = {dir[0] * b->cosine + dir[1] * b->sine,
                           dir[1] * b->cosine - dir[0] * b->sine, dir[2]};
    const double half[3] = {b->half[0], b->half[1], height};
    double enter = 0, leave = INFINITY;

    for (int a = 0; a < 3; a++) {
        const double middle = -at[a] / way[a], reach = fabs(half[a] / way[a]);

        if (way[a] == 0) {
            if (fabs(at[a]) > half[a])
                return INFINITY;
            continue;
        }
        enter = fmax(enter, middle - reach);
        leave = fmin(leave, middle + reach);
    }
    return enter > 0 && enter < leave ? enter : INFINITY;
}

static sp_status room_fire(sp_lidar *scan, const room *r, const double from[3],
                           sp_rng *rng)
{
    const double up = sp_rng_uniform(rng, -1, 1), flat = sqrt(1 - up * up);
    const double turn = sp_rng_uniform(rng, 0, TURN);
    const double dir[3] = {flat * cos(turn), flat * sin(turn), up};
    double reflectance, p[3], t;
    int label;

    t = meet_room(r, from, dir, &label, &reflectance);
    for (int i = 0; i < r->n; i++) {
        const double here = meet_box(&r->box[i], from, dir);

        if (here < t) {
            t = here;
            label = r->box[i].label;
            reflectance = r->box[i].reflectance;
        }
    }
    t += NOISE * sp_lidar_noise(rng);
    for (int a = 0; a < 3; a++)
        p[a] = from[a] + t * dir[a];
    return sp_lidar_add(scan, p, label,
                        reflectance * sp_rng_uniform(rng, 0.85, 1.15) / (1 + 0.05 * t),
                        1);
}

sp_status sp_room_scan(sp_lidar *scan, double extent, sp_rng *layout, sp_rng *pulses)
{
    room r;
    double area;
    int stations, rays;

    assert(extent > 0);
    room_furnish(&r, extent, layout);
    area = r.size[0] * r.size[1];
    stations = 2 + (int)(area / 25);
    rays = (int)fmax(RAYS * area / stations, FEWEST_RAYS);
    for (int s = 0; s < stations; s++) {
        double from[3] = {0, 0, sp_rng_uniform(pulses, 1.4, 1.8)};

        if (!room_find_place(&r, pulses, 0.3, &from[0], &from[1]))
            continue;
        for (int i = 0; i < rays; i++)
            SP_TRY(room_fire(scan, &r, from, pulses));
    }
    return SP_OK;
}
