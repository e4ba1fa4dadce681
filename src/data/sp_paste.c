#include "data/sp_paste_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_rng.h"
#include "compute/sp_plan.h"

/* pi / 2 */
#define QUARTER 1.57079632679489661923
/* Rows that are less than this above the ground do not hinder an object, in the unit of
 * voxel_size. */
#define CLEARANCE 0.5

enum { PASTE_TRIES = 8 };

bool sp_paste_is_on(const sp_config *config)
{
    return config->augment.paste && *config->augment.paste &&
           config->augment.paste_p > 0;
}

int64_t sp_paste_most(const sp_config *config)
{
    return sp_paste_is_on(config) ? config->augment.paste_voxels : 0;
}

/* ---- places ---- */

/* A box in stored voxels, with its upper end. */
typedef struct paste_box {
    double lo[3], hi[3];
} paste_box;

/* A pasted object: row p of it comes to place + turn * p in x and y, ground + p in z. */
typedef struct paste_place {
    int64_t at[2];
    double cosine, sine;
    int64_t ground;
} paste_place;

/* The work on one sample. */
typedef struct paste_work {
    const sp_config *config;
    const sp_bank *bank;
    const sp_vectors *vectors;
    sp_sample *sample;
    int64_t n_own;    /* rows before anything was pasted */
    double sensor[2]; /* in stored voxels */
    bool has_sensor;  /* it is within the sample's box */
    paste_box own;    /* of the sample */
    double voxel_size;
} paste_work;

static paste_box paste_box_of(const sp_sample *s, int64_t n)
{
    paste_box b = {{INFINITY, INFINITY, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};

    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            b.lo[k] = fmin(b.lo[k], s->coords[3 * i + k]);
            b.hi[k] = fmax(b.hi[k], s->coords[3 * i + k] + 1.0);
        }
    return b;
}

/* The box of a turned object about its middle. */
static paste_box paste_turned_box(const sp_sample *object, double cosine, double sine)
{
    paste_box b = paste_box_of(object, object->n);

    b.lo[0] = b.lo[1] = INFINITY;
    b.hi[0] = b.hi[1] = -INFINITY;
    for (int64_t i = 0; i < object->n; i++) {
        const double x = sp_sample_position(object, i, 0),
                     y = sp_sample_position(object, i, 1);
        const double at[2] = {floor(cosine * x - sine * y),
                              floor(sine * x + cosine * y)};

        for (int k = 0; k < 2; k++) {
            b.lo[k] = fmin(b.lo[k], at[k]);
            b.hi[k] = fmax(b.hi[k], at[k] + 1);
        }
    }
    return b;
}

static bool paste_is_above(const sp_sample *s, int64_t row, const paste_box *b)
{
    for (int k = 0; k < 2; k++)
        if (s->coords[3 * row + k] < b->lo[k] || s->coords[3 * row + k] >= b->hi[k])
            return false;
    return true;
}

/* Finds the ground below a box in x and y, and moves the box onto it. False: there is
 * no row, a row is in the box, or it would leave the coordinate range. */
static bool paste_settle(const paste_work *w, paste_box *b, int64_t *ground)
{
    const sp_sample *s = w->sample;
    double lowest = INFINITY, from;

    for (int64_t i = 0; i < w->n_own; i++)
        if (paste_is_above(s, i, b))
            lowest = fmin(lowest, s->coords[3 * i + 2]);
    if (!isfinite(lowest))
        return false;
    *ground = (int64_t)lowest;
    b->lo[2] += lowest;
    b->hi[2] += lowest;
    for (int k = 0; k < 3; k++)
        if (b->lo[k] < -SP_COORD_LIMIT || b->hi[k] > SP_COORD_LIMIT)
            return false;
    from = fmax(b->lo[2], lowest + CLEARANCE / w->voxel_size);
    for (int64_t i = 0; i < s->n; i++)
        if (s->coords[3 * i + 2] >= from && s->coords[3 * i + 2] < b->hi[2] &&
            paste_is_above(s, i, b))
            return false;
    return true;
}

/* Draws a place for an object. */
static bool paste_find_place(const paste_work *w, const sp_sample *object, sp_rng *rng,
                             paste_place *p)
{
    double turn = 4 * sp_rng_unit(rng);
    const int64_t row = (int64_t)(sp_rng_unit(rng) * (double)w->n_own);
    double at[2], from[2];
    paste_box b;

    turn = w->sample->subvoxel ? turn : floor(turn);
    p->cosine = cos(turn * QUARTER);
    p->sine = sin(turn * QUARTER);
    if (!w->sample->subvoxel) {
        p->cosine = ((int)turn == 0) - ((int)turn == 2);
        p->sine = ((int)turn == 1) - ((int)turn == 3);
    }
    for (int k = 0; k < 2; k++) {
        /* the object's middle, in voxels of this sample */
        from[k] =
            (object->origin[k] - w->sample->origin[k]) / w->voxel_size - w->sensor[k];
        at[k] = w->sample->coords[3 * (row < w->n_own ? row : 0) + k];
    }
    if (w->has_sensor) {
        at[0] = floor(w->sensor[0] + p->cosine * from[0] - p->sine * from[1]);
        at[1] = floor(w->sensor[1] + p->sine * from[0] + p->cosine * from[1]);
    }
    b = paste_turned_box(object, p->cosine, p->sine);
    for (int k = 0; k < 2; k++) {
        if (!(w->own.lo[k] <= at[k] && at[k] < w->own.hi[k]))
            return false;
        p->at[k] = (int64_t)at[k];
        b.lo[k] += at[k];
        b.hi[k] += at[k];
    }
    return paste_settle(w, &b, &p->ground);
}

/* ---- rows ---- */

static void paste_move_vectors(const paste_work *w, const sp_sample *object,
                               const paste_place *p, float *f)
{
    for (int i = 0; w->vectors && i < w->vectors->n; i++) {
        const sp_vector v = w->vectors->at[i];
        const int column[3] = {v.x, v.y, v.z};
        double d[3] = {0}, to[3] = {0};

        for (int k = 0; k < 3 && column[k] >= 0; k++) {
            const double place = k < 2 ? (double)p->at[k] : (double)p->ground;

            d[k] =
                f[column[k]] * v.divisor[k] - (v.is_position ? object->origin[k] : 0);
            if (v.is_position)
                to[k] = w->sample->origin[k] + place * w->voxel_size;
        }
        f[v.x] = (float)((to[0] + p->cosine * d[0] - p->sine * d[1]) / v.divisor[0]);
        f[v.y] = (float)((to[1] + p->sine * d[0] + p->cosine * d[1]) / v.divisor[1]);
        if (v.z >= 0)
            f[v.z] = (float)((to[2] + d[2]) / v.divisor[2]);
    }
}

static void paste_rows(const paste_work *w, const sp_sample *object,
                       const paste_place *p)
{
    const int c = w->bank->n_columns;
    sp_sample *s = w->sample;

    for (int64_t i = 0; i < object->n; i++) {
        const int64_t to = s->n++;
        const double x = sp_sample_position(object, i, 0),
                     y = sp_sample_position(object, i, 1);
        const double at[2] = {p->cosine * x - p->sine * y, p->sine * x + p->cosine * y};

        for (int k = 0; k < 2; k++)
            s->coords[3 * to + k] = (int32_t)(p->at[k] + (int64_t)floor(at[k]));
        s->coords[3 * to + 2] = (int32_t)(p->ground + object->coords[3 * i + 2]);
        for (int k = 0; s->subvoxel && k < 2; k++)
            s->subvoxel[3 * to + k] = (uint8_t)(256 * (at[k] - floor(at[k])));
        if (s->subvoxel)
            s->subvoxel[3 * to + 2] = object->subvoxel[3 * i + 2];
        memcpy(s->features + c * to, object->features + c * i,
               (size_t)c * sizeof *s->features);
        paste_move_vectors(w, object, p, s->features + c * to);
        s->labels[to] = object->labels[i];
    }
}

/* Draws an object: a class, then one of its objects. */
static const sp_sample *paste_draw_object(const sp_bank *bank, sp_rng *rng)
{
    const int c = (int)(sp_rng_unit(rng) * bank->n_classes);
    const int n = bank->first[c + 1] - bank->first[c];

    return &bank->object[bank->member[bank->first[c] + (int)(sp_rng_unit(rng) * n)]];
}

static void paste_object(const paste_work *w, int number, uint64_t epoch)
{
    /* Each object has a part of the stream, so that its tries change no other's draws. */
    enum { PASTE_WORDS = 64 }; /* more than the words of two draws and all tries */
    sp_rng rng = sp_rng_open((uint64_t)w->config->train.seed, SP_RNG_PASTE, epoch,
                             (uint64_t)w->sample->id);
    const sp_sample *object;
    paste_place place;

    rng.counter = PASTE_WORDS * (uint64_t)(number + 1);
    object = paste_draw_object(w->bank, &rng);
    if (w->sample->n - w->n_own + object->n > w->config->augment.paste_voxels)
        return;
    for (int k = 0; k < PASTE_TRIES; k++)
        if (paste_find_place(w, object, &rng, &place)) {
            paste_rows(w, object, &place);
            return;
        }
}

void sp_paste_apply(const sp_config *config, const sp_bank *bank,
                    const sp_vectors *vectors, uint64_t epoch, sp_sample *s)
{
    sp_rng rng =
        sp_rng_open((uint64_t)config->train.seed, SP_RNG_PASTE, epoch, (uint64_t)s->id);
    const sp_doubles *sensor = &config->augment.mix_sensor;
    paste_work w = {.config = config,
                    .bank = bank,
                    .vectors = vectors,
                    .sample = s,
                    .n_own = s->n,
                    .has_sensor = true,
                    .voxel_size = bank->set.voxel_size};

    if (s->n == 0 || !(sp_rng_unit(&rng) < config->augment.paste_p))
        return;
    w.own = paste_box_of(s, s->n);
    for (int k = 0; k < 2; k++) {
        w.sensor[k] =
            ((sensor->n == 3 ? sensor->at[k] : 0) - s->origin[k]) / w.voxel_size;
        w.has_sensor =
            w.has_sensor && w.own.lo[k] <= w.sensor[k] && w.sensor[k] <= w.own.hi[k];
    }
    for (int k = 0; k < config->augment.paste_count; k++)
        paste_object(&w, k, epoch);
}
