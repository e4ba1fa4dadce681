#include "data/sp_mix.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_rng.h"
#include "compute/sp_backend.h"

/* pi and pi / 2 */
#define HALF    3.14159265358979323846
#define QUARTER 1.57079632679489661923

/* ---- draws ---- */

/* An angle as the sample can be turned by it. */
static double angle_of(bool has_subvoxel, double angle)
{
    return has_subvoxel ? angle : QUARTER * nearbyint(angle / QUARTER);
}

/* The number of bands of the list that u in [0, 1) chooses. */
static int mix_draw_bands(const sp_doubles *bands, double u)
{
    assert(bands->n > 0);
    return (int)bands->at[(int)(u * bands->n)];
}

static sp_mix draw(const sp_config *config, bool has_subvoxel, int64_t n_samples,
                   uint64_t epoch, int64_t sample, double p)
{
    const uint64_t seed = (uint64_t)config->train.seed;
    sp_rng rng = sp_rng_open(seed, SP_RNG_MIX, epoch, (uint64_t)sample);
    const bool is_mixed = sp_rng_unit(&rng) < p;
    const double which = sp_rng_unit(&rng), swap = sp_rng_unit(&rng);
    sp_mix mix = {.seed = seed, .epoch = epoch, .sample = (uint64_t)sample};
    int64_t step;

    assert(0 <= sample && sample < n_samples);
    mix.partner = -1;
    if (config->augment.mix == SP_MIX_NONE || !is_mixed)
        return mix;
    mix.kind = config->augment.mix;
    /* The product may round up to n_samples - 1. */
    step = (int64_t)(which * (double)(n_samples - 1));
    step = step < n_samples - 1 ? step : n_samples - 2;
    mix.partner = n_samples > 1 ? (sample + 1 + step) % n_samples : sample;
    mix.is_swapped = swap < 0.5;
    mix.begin = (sp_rng_unit(&rng) - 1) * HALF;
    for (int i = 0; i < 2; i++)
        mix.turn[i] = angle_of(has_subvoxel, (sp_rng_unit(&rng) + i) * 2 * HALF / 3);
    if (mix.kind == SP_MIX_LASERPOLAR)
        mix.kind = sp_rng_unit(&rng) < 0.5 ? SP_MIX_LASER : SP_MIX_POLAR;
    if (mix.kind == SP_MIX_LASER)
        mix.n_bands = mix_draw_bands(&config->augment.mix_bands, sp_rng_unit(&rng));
    return mix;
}

sp_mix sp_mix_draw(const sp_config *config, bool has_subvoxel, int64_t n_samples,
                   uint64_t epoch, int64_t sample)
{
    return draw(config, has_subvoxel, n_samples, epoch, sample, config->augment.mix_p);
}

sp_mix sp_mix_draw_always(const sp_config *config, bool has_subvoxel, int64_t n_samples,
                          uint64_t epoch, int64_t sample)
{
    return draw(config, has_subvoxel, n_samples, epoch, sample, 1);
}

int64_t sp_mix_cost(const sp_mix *mix, int64_t own, int64_t partner)
{
    assert(own >= 0 && partner >= 0);
    if (mix->kind == SP_MIX_LASER || (mix->kind == SP_MIX_POLAR && mix->is_swapped))
        return own / 2 + partner / 2;
    if (mix->kind == SP_MIX_POLAR)
        return own;
    return mix->kind == SP_MIX_NONE ? own : own + partner;
}

uint64_t sp_mix_partner_seed(uint64_t seed)
{
    return sp_rng_mix(seed + SP_RNG_MIX);
}

/* ---- rows ---- */

/* The box of stored voxels. */
typedef struct box {
    int32_t lo[3], hi[3];
} box;

static box box_of(const int32_t *coords, int64_t n)
{
    box b;

    memcpy(b.lo, coords, sizeof b.lo);
    memcpy(b.hi, coords, sizeof b.hi);
    for (int64_t i = 1; i < n; i++)
        for (int a = 0; a < 3; a++) {
            const int32_t c = coords[3 * i + a];

            b.lo[a] = c < b.lo[a] ? c : b.lo[a];
            b.hi[a] = c > b.hi[a] ? c : b.hi[a];
        }
    return b;
}

/* Allocates the arrays of a sample of up to n rows. */
static sp_status mix_alloc_rows(const sp_mixer *m, int64_t n, bool has_subvoxel,
                                sp_arena *arena, sp_sample *rows)
{
    SP_TRY(SP_ALLOC(arena, 3 * n, &rows->coords));
    SP_TRY(SP_ALLOC(arena, n * m->n_columns, &rows->features));
    SP_TRY(SP_ALLOC(arena, n, &rows->labels));
    return has_subvoxel ? SP_ALLOC(arena, 3 * n, &rows->subvoxel) : SP_OK;
}

/* Allocates the arrays of up to n voxels. */
static sp_status mix_alloc_voxels(const sp_mixer *m, int64_t n, sp_arena *arena,
                                  sp_voxels *v)
{
    *v = (sp_voxels){0};
    SP_TRY(SP_ALLOC(arena, 3 * n, &v->coords));
    SP_TRY(SP_ALLOC(arena, n * m->n_columns, &v->features));
    return SP_ALLOC(arena, n, &v->labels);
}

static void copy_voxels(const sp_mixer *m, const sp_voxels *from, sp_voxels *to)
{
    const size_t n = (size_t)from->n, c = (size_t)m->n_columns;

    to->n = from->n;
    if (n == 0)
        return;
    memcpy(to->coords, from->coords, 3 * n * sizeof *to->coords);
    memcpy(to->features, from->features, n * c * sizeof *to->features);
    memcpy(to->labels, from->labels, n * sizeof *to->labels);
}

static sp_augment augment_of(const sp_mixer *m, const sp_mix *mix, uint64_t seed)
{
    sp_augment aug = sp_augment_draw(m->config, m->set->has_subvoxel, seed, mix->epoch,
                                     (int64_t)mix->sample);

    aug.vectors = m->vectors;
    aug.colors = m->colors;
    return aug;
}

/* ---- mix3d ---- */

/* How far the partner moves, in voxels of the network, from the boxes as stored. */
static void find_shift(const sp_mixer *m, const sp_sample *own,
                       const sp_sample *partner, int64_t shift[3])
{
    const box a = box_of(own->coords, own->n), b = box_of(partner->coords, partner->n);

    for (int k = 0; k < 2; k++)
        shift[k] = (int64_t)nearbyint(((double)a.lo[k] + a.hi[k] - b.lo[k] - b.hi[k]) /
                                      (2 * m->factor));
    shift[2] = (int64_t)nearbyint(((double)a.lo[2] - b.lo[2]) / m->factor);
}

/* Appends voxels to rows, moved as far as the coordinate range allows. */
static void append_voxels(const sp_mixer *m, const sp_voxels *v, int64_t shift[3],
                          sp_sample *rows)
{
    const size_t n = (size_t)v->n, c = (size_t)m->n_columns;
    int32_t *coords = rows->coords + 3 * rows->n;
    box b;

    if (n == 0)
        return;
    b = box_of(v->coords, v->n);
    for (int k = 0; k < 3; k++) {
        const int64_t least = -SP_COORD_LIMIT - (int64_t)b.lo[k];
        const int64_t most = SP_COORD_LIMIT - 1 - (int64_t)b.hi[k];

        shift[k] = shift[k] < least ? least : shift[k] > most ? most : shift[k];
    }
    for (size_t i = 0; i < 3 * n; i++)
        coords[i] = (int32_t)(v->coords[i] + shift[i % 3]);
    memcpy(rows->features + rows->n * m->n_columns, v->features,
           n * c * sizeof *v->features);
    memcpy(rows->labels + rows->n, v->labels, n * sizeof *v->labels);
    rows->n += v->n;
}

/* Voxelizes one of the two samples and appends the voxels. */
static sp_status append_sample(const sp_mixer *m, const sp_sample *sample,
                               const sp_augment *aug, int64_t shift[3], sp_arena *arena,
                               sp_sample *rows)
{
    const size_t used = arena->used;
    sp_voxels v;

    SP_TRY(
        sp_voxelize(sample, aug, m->factor, m->n_columns, m->mean, m->std, arena, &v));
    append_voxels(m, &v, shift, rows);
    sp_arena_rewind(arena, used);
    return SP_OK;
}

static sp_status unite(const sp_mixer *m, const sp_mix *mix, const sp_sample *own,
                       const sp_sample *partner, sp_arena *arena, sp_voxels *out)
{
    /* The partner's draws have another seed, so that they differ each time it is a
     * partner, and from its own draws as a sample. */
    const sp_augment of_own = augment_of(m, mix, mix->seed);
    const sp_augment of_partner = augment_of(m, mix, sp_mix_partner_seed(mix->seed));
    sp_augment none = sp_augment_none();
    int64_t shift[3] = {0, 0, 0};
    sp_sample rows = {.id = own->id};

    SP_TRY(mix_alloc_rows(m, own->n + partner->n, false, arena, &rows));
    SP_TRY(append_sample(m, own, &of_own, shift, arena, &rows));
    find_shift(m, own, partner, shift);
    SP_TRY(append_sample(m, partner, &of_partner, shift, arena, &rows));
    none.is_mixed = true;
    return sp_voxelize(&rows, &none, 1, m->n_columns, NULL, NULL, arena, out);
}

/* ---- polarmix, lasermix ---- */

/* The poles of azimuths and inclinations, in stored voxels of both samples. */
typedef struct poles {
    double own[3], partner[3];
    int32_t shift[3]; /* own - partner, whole numbers */
    bool is_origin;   /* the sensors' places in the scans' coordinates */
} poles;

/* The greatest distance in an axis of a mobile scan from its sensor, in the unit of
 * voxel_size. */
#define MOST_DISTANCE 1000.0

/* Sets *pole to the sensor of the scan; false: it is outside of the box in x or y, by
 * more than `margin` stored voxels. */
static bool mix_find_sensor(const sp_mixer *m, const sp_sample *s, const box *b,
                            double margin, double pole[3])
{
    const sp_doubles *sensor = &m->config->augment.mix_sensor;
    bool is_inside = true;

    for (int k = 0; k < 3; k++)
        pole[k] =
            ((sensor->n == 3 ? sensor->at[k] : 0) - s->origin[k]) / m->set->voxel_size;
    for (int k = 0; k < 2; k++)
        is_inside = is_inside && b->lo[k] - margin <= pole[k] &&
                    pole[k] <= b->hi[k] + 1.0 + margin;
    return is_inside;
}

/* Checks that a sample is a scan about the sensor: without one, all inclinations would
 * be about the same, and nothing would be mixed. */
static sp_status mix_check_sensor(const sp_mixer *m, const sp_sample *s)
{
    const box b = box_of(s->coords, s->n);
    const double edge = m->set->voxel_size, margin = MOST_DISTANCE / edge;
    double pole[3];

    if (mix_find_sensor(m, s, &b, margin, pole) && b.lo[2] - margin <= pole[2] &&
        pole[2] <= b.hi[2] + margin)
        return SP_OK;
    return SP_FAIL(
        SP_EUSAGE,
        "%saugment.mix = \"lasermix\" needs scans in coordinates about their "
        "sensor (augment.mix_sensor): sample %lld has x from %.1f to %.1f, y "
        "from %.1f to %.1f",
        sp_config_where(m->config, "augment.mix"), (long long)s->id,
        b.lo[0] * edge + s->origin[0], (b.hi[0] + 1.0) * edge + s->origin[0],
        b.lo[1] * edge + s->origin[1], (b.hi[1] + 1.0) * edge + s->origin[1]);
}

static void find_middle(const box *b, double pole[3])
{
    for (int k = 0; k < 2; k++)
        pole[k] = (b->lo[k] + 1.0 + b->hi[k]) / 2;
    pole[2] = b->lo[2];
}

static poles find_poles(const sp_mixer *m, bool is_laser, const sp_sample *own,
                        const sp_sample *partner)
{
    const double most = 2.0 * SP_COORD_LIMIT;
    const double margin = is_laser ? MOST_DISTANCE / m->set->voxel_size : 0;
    const box a = box_of(own->coords, own->n), b = box_of(partner->coords, partner->n);
    poles p;

    p.is_origin = mix_find_sensor(m, own, &a, margin, p.own) &&
                  mix_find_sensor(m, partner, &b, margin, p.partner) &&
                  (is_laser || fabs(p.own[2] - p.partner[2]) <= most);
    if (!p.is_origin) {
        find_middle(&a, p.own);
        find_middle(&b, p.partner);
    }
    for (int k = 0; k < 3; k++) {
        p.shift[k] = (int32_t)nearbyint(p.own[k] - p.partner[k]);
        p.partner[k] = p.own[k] - p.shift[k];
    }
    return p;
}

/* The place of a row relative to the pole, in stored voxels. */
static double place_of(const sp_sample *s, int64_t row, int axis, const double pole[3])
{
    return sp_sample_position(s, row, axis) - pole[axis];
}

/* The work of mixing two scans. */
typedef struct work {
    const sp_mixer *m;
    const sp_mix *mix;
    const sp_sample *partner;
    poles at;
    double sine, cosine; /* of the sector's first angle */
    /* Of lasermix, [n_bands - 1]: of the inclinations between two bands, from above. */
    double tangent[SP_MOST_BANDS];
    int64_t most; /* rows that the mixed sample may have */
    sp_sample *rows;
} work;

static void mix_set_bands(const sp_config *config, work *w)
{
    const double *bound = config->augment.mix_inclination.at;
    const double width = (bound[1] - bound[0]) / w->mix->n_bands;

    assert(2 <= w->mix->n_bands && w->mix->n_bands <= SP_MOST_BANDS);
    for (int b = 0; b < w->mix->n_bands - 1; b++)
        w->tangent[b] = tan((bound[1] - (b + 1) * width) * HALF / 180);
}

/* The number of a row's band of inclinations, from above. Inclinations above or below
 * all bands are in the first or last one. */
static int mix_band_of(const work *w, const sp_sample *s, int64_t row,
                       const double pole[3])
{
    const double x = place_of(s, row, 0, pole), y = place_of(s, row, 1, pole);
    const double z = place_of(s, row, 2, pole), distance = sqrt(x * x + y * y);
    int b = 0;

    while (b < w->mix->n_bands - 1 && z <= distance * w->tangent[b])
        b++;
    return b;
}

/* True if the exchange takes this place from the partner. */
static bool is_exchanged(const work *w, const sp_sample *s, int64_t row,
                         const double pole[3])
{
    if (w->mix->kind == SP_MIX_LASER)
        return mix_band_of(w, s, row, pole) % 2 == 1;
    return w->mix->is_swapped &&
           place_of(s, row, 0, pole) * w->sine + place_of(s, row, 1, pole) * w->cosine <
               0;
}

static bool is_pasted(const work *w, int64_t row)
{
    const int32_t label = w->partner->labels[row];

    return w->m->is_pasted && label >= 0 && w->m->is_pasted[label];
}

static bool is_in_range(const int64_t at[3])
{
    for (int k = 0; k < 3; k++)
        if (at[k] < -SP_COORD_LIMIT || at[k] >= SP_COORD_LIMIT)
            return false;
    return true;
}

/* Appends a row unchanged, moved by whole voxels; one that would leave the range is
 * left out. */
static void append_row(const work *w, const sp_sample *from, int64_t row,
                       const int32_t shift[3])
{
    sp_sample *rows = w->rows;
    const int c = w->m->n_columns;
    int64_t at[3];

    for (int k = 0; k < 3; k++)
        at[k] = (int64_t)from->coords[3 * row + k] + shift[k];
    if (!is_in_range(at))
        return;
    for (int k = 0; k < 3; k++) {
        rows->coords[3 * rows->n + k] = (int32_t)at[k];
        if (from->subvoxel)
            rows->subvoxel[3 * rows->n + k] = from->subvoxel[3 * row + k];
    }
    memcpy(rows->features + rows->n * c, from->features + row * c,
           (size_t)c * sizeof *rows->features);
    rows->labels[rows->n++] = from->labels[row];
}

/* A turn about the pole, and about `middle` [2] of each vector's columns. */
typedef struct turn {
    double cosine, sine;
    double middle[SP_MOST_VECTORS][2];
} turn;

/* The middle of the values that a column has in the partner. */
static double middle_of(const work *w, int column)
{
    const float *f = w->partner->features;
    float lo = f[column], hi = f[column];

    for (int64_t i = 1; i < w->partner->n; i++) {
        const float x = f[i * w->m->n_columns + column];

        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    return ((double)lo + hi) / 2;
}

static turn make_turn(const work *w, double angle)
{
    const double turns = angle / QUARTER, whole = nearbyint(turns);
    const bool is_whole = fabs(turns - whole) < 1e-9;
    const int quarters = (int)((int64_t)whole & 3);
    turn t = {.cosine = is_whole ? (quarters == 0) - (quarters == 2) : cos(angle),
              .sine = is_whole ? (quarters == 1) - (quarters == 3) : sin(angle)};

    for (int i = 0; w->m->vectors && i < w->m->vectors->n; i++) {
        const sp_vector v = w->m->vectors->at[i];

        if (!v.is_position || w->at.is_origin)
            continue;
        t.middle[i][0] = middle_of(w, v.x);
        t.middle[i][1] = middle_of(w, v.y);
    }
    return t;
}

static void turn_vectors(const work *w, const turn *t, float *f)
{
    for (int i = 0; w->m->vectors && i < w->m->vectors->n; i++) {
        const sp_vector v = w->m->vectors->at[i];
        const double x = f[v.x] - t->middle[i][0], y = f[v.y] - t->middle[i][1];
        const double ratio = v.divisor[1] / v.divisor[0];

        f[v.x] = (float)(t->middle[i][0] + t->cosine * x - t->sine * y * ratio);
        f[v.y] = (float)(t->middle[i][1] + t->sine * x / ratio + t->cosine * y);
    }
}

/* Appends a row of the partner turned about the pole. */
static void append_turned(const work *w, int64_t row, const turn *t)
{
    const double x = place_of(w->partner, row, 0, w->at.partner);
    const double y = place_of(w->partner, row, 1, w->at.partner);
    const double place[2] = {w->at.own[0] + t->cosine * x - t->sine * y,
                             w->at.own[1] + t->sine * x + t->cosine * y};
    const int64_t before = w->rows->n;
    int32_t shift[3];

    for (int k = 0; k < 2; k++)
        shift[k] =
            (int32_t)((int64_t)floor(place[k]) - w->partner->coords[3 * row + k]);
    shift[2] = w->at.shift[2];
    append_row(w, w->partner, row, shift);
    if (w->rows->n == before)
        return;
    for (int k = 0; w->partner->subvoxel && k < 2; k++)
        w->rows->subvoxel[3 * before + k] =
            (uint8_t)(256 * (place[k] - floor(place[k])));
    turn_vectors(w, t, w->rows->features + before * w->m->n_columns);
}

static void paste(const work *w)
{
    int64_t n = 0;

    for (int64_t i = 0; i < w->partner->n; i++)
        if (is_pasted(w, i)) {
            n++;
            if (!is_exchanged(w, w->partner, i, w->at.partner))
                append_row(w, w->partner, i, w->at.shift);
        }
    for (int k = 0; k < 2 && n && w->rows->n + n <= w->most; k++) {
        const turn t = make_turn(w, w->mix->turn[k]);

        for (int64_t i = 0; i < w->partner->n; i++)
            if (is_pasted(w, i))
                append_turned(w, i, &t);
    }
}

static sp_status mix_scans(const sp_mixer *m, const sp_mix *mix, const sp_sample *own,
                           const sp_sample *partner, sp_arena *arena, sp_voxels *out)
{
    static const int32_t nowhere[3] = {0, 0, 0};
    const bool is_laser = mix->kind == SP_MIX_LASER;
    sp_sample rows = {.id = own->id};
    work w = {.m = m,
              .mix = mix,
              .partner = partner,
              .at = find_poles(m, is_laser, own, partner),
              .sine = sin(mix->begin),
              .cosine = cos(mix->begin),
              .most = own->n + partner->n,
              .rows = &rows};
    sp_augment aug = augment_of(m, mix, mix->seed);

    assert(!own->subvoxel == !partner->subvoxel);
    if (is_laser) {
        SP_TRY(mix_check_sensor(m, own));
        SP_TRY(mix_check_sensor(m, partner));
        mix_set_bands(m->config, &w);
    }
    SP_TRY(mix_alloc_rows(m, w.most, own->subvoxel, arena, &rows));
    for (int64_t i = 0; i < own->n; i++)
        if (!is_exchanged(&w, own, i, w.at.own))
            append_row(&w, own, i, nowhere);
    for (int64_t i = 0; (is_laser || mix->is_swapped) && i < partner->n; i++)
        if (is_exchanged(&w, partner, i, w.at.partner))
            append_row(&w, partner, i, w.at.shift);
    if (!is_laser)
        paste(&w);
    aug.is_mixed = true;
    return sp_voxelize(&rows, &aug, m->factor, m->n_columns, m->mean, m->std, arena,
                       out);
}

/* ---- both ---- */

sp_status sp_mix_voxelize(const sp_mixer *m, const sp_mix *mix, const sp_sample *own,
                          const sp_sample *partner, sp_arena *arena, sp_voxels *out)
{
    sp_voxels mixed;
    size_t used;

    assert(mix->kind != SP_MIX_NONE && own->n > 0 && partner->n > 0);
    if (own->n + partner->n > INT32_MAX / 4)
        return SP_FAIL(SP_EDATA,
                       "samples %lld and %lld: %lld voxels together, at most %d are "
                       "possible",
                       (long long)own->id, (long long)partner->id,
                       (long long)(own->n + partner->n), INT32_MAX / 4);
    SP_TRY(mix_alloc_voxels(m, own->n + partner->n, arena, out));
    used = arena->used;
    if (mix->kind == SP_MIX_3D)
        SP_TRY(unite(m, mix, own, partner, arena, &mixed));
    else
        SP_TRY(mix_scans(m, mix, own, partner, arena, &mixed));
    copy_voxels(m, &mixed, out);
    sp_arena_rewind(arena, used);
    return SP_OK;
}
