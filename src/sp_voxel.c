#include "sp_voxel.h"

#include <math.h>
#include <string.h>

#include "sp_backend.h"
#include "sp_rng.h"

/* pi / 2 */
#define QUARTER 1.57079632679489661923

/* ---- draws ---- */

sp_augment sp_augment_none(void)
{
    return (sp_augment){.scale = 1};
}

sp_augment sp_augment_draw(const sp_config *config, bool has_subvoxel, uint64_t seed,
                           uint64_t epoch, int64_t sample)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_AUGMENT, epoch, (uint64_t)sample);
    sp_augment aug = sp_augment_none();
    double x = sp_rng_unit(&rng), y = sp_rng_unit(&rng), turn = sp_rng_unit(&rng),
           stretch = sp_rng_unit(&rng);

    aug.flip_x = config->augment.flip && x < 0.5;
    aug.flip_y = config->augment.flip && y < 0.5;
    if (config->augment.rotate_z)
        aug.angle = QUARTER * (has_subvoxel ? 4 * turn : floor(4 * turn));
    if (has_subvoxel && config->augment.scale.n == 2)
        aug.scale =
            config->augment.scale.at[0] +
            stretch * (config->augment.scale.at[1] - config->augment.scale.at[0]);
    aug.drop = config->augment.drop;
    aug.jitter = config->augment.jitter;
    aug.seed = seed;
    aug.epoch = epoch;
    aug.sample = (uint64_t)sample;
    return aug;
}

/* ---- scratch ---- */

typedef struct slot {
    uint64_t key; /* 0 empty: the keys in use begin at 1 */
    int32_t row;
} slot;

typedef struct work {
    const sp_sample *in;
    const sp_augment *aug;
    sp_voxels *out;
    int32_t n;            /* stored rows */
    int32_t lo[3], hi[3]; /* their bounding box */
    int32_t *moved;       /* [n][3] coordinates after turn, scale and factor */
    bool is_moved, is_merged;
    slot *table; /* [mask + 1] */
    uint64_t mask;
    int32_t *start, *list; /* rows by voxel: list[start[v] .. start[v + 1] - 1] */
    int32_t *votes;        /* [largest label + 1] */
} work;

static void find_box(work *w)
{
    int32_t i;
    int a;

    memcpy(w->lo, w->in->coords, sizeof w->lo);
    memcpy(w->hi, w->in->coords, sizeof w->hi);
    for (i = 1; i < w->n; i++)
        for (a = 0; a < 3; a++) {
            int32_t c = w->in->coords[3 * (int64_t)i + a];

            w->lo[a] = c < w->lo[a] ? c : w->lo[a];
            w->hi[a] = c > w->hi[a] ? c : w->hi[a];
        }
}

/* ---- turns on the grid ---- */

/* Where a run of `length` voxels goes that should begin at lo. */
static sp_status fit_run(const work *w, int axis, int64_t length, int64_t *lo)
{
    if (length > 2 * (int64_t)SP_COORD_LIMIT)
        return SP_FAIL(
            SP_EDATA,
            "sample %lld is %lld voxels wide in %c after turning, more than the "
            "coordinate range of %d",
            (long long)w->in->id, (long long)length, "xyz"[axis], 2 * SP_COORD_LIMIT);
    if (*lo < -SP_COORD_LIMIT)
        *lo = -SP_COORD_LIMIT;
    if (*lo + length > SP_COORD_LIMIT)
        *lo = SP_COORD_LIMIT - length;
    return SP_OK;
}

/* Flips, then `quarters` quarter turns: output axis a is input axis from[a], reversed
 * or not, put so that the box keeps its centre. */
static sp_status move_on_grid(work *w, int quarters)
{
    int from[2] = {0, 1}, t, a;
    bool is_reversed[2] = {w->aug->flip_x, w->aug->flip_y}, b;
    int64_t at[2];
    int32_t i, *p;
    const int32_t *c;

    for (; quarters > 0; quarters--) { /* (x, y) -> (-y, x) */
        t = from[0], from[0] = from[1], from[1] = t;
        b = is_reversed[0], is_reversed[0] = !is_reversed[1], is_reversed[1] = b;
    }
    for (a = 0; a < 2; a++) {
        int64_t length = (int64_t)w->hi[from[a]] - w->lo[from[a]];

        at[a] = ((int64_t)w->lo[a] + w->hi[a] - length) >> 1;
        SP_TRY(fit_run(w, a, length + 1, &at[a]));
        /* out = at + (in - lo), or at + (hi - in) */
        at[a] += is_reversed[a] ? w->hi[from[a]] : -w->lo[from[a]];
    }
    for (i = 0; i < w->n; i++) {
        c = w->in->coords + 3 * (int64_t)i;
        p = w->moved + 3 * (int64_t)i;
        p[0] = (int32_t)(is_reversed[0] ? at[0] - c[from[0]] : at[0] + c[from[0]]);
        p[1] = (int32_t)(is_reversed[1] ? at[1] - c[from[1]] : at[1] + c[from[1]]);
        p[2] = c[2];
    }
    return SP_OK;
}

static int32_t floor_div(int32_t x, int32_t d)
{
    return (x - (x < 0 ? d - 1 : 0)) / d;
}

static void coarsen(work *w, int32_t factor)
{
    int64_t i;

    for (i = 0; i < 3 * (int64_t)w->n; i++)
        w->moved[i] = floor_div(w->moved[i], factor);
}

/* ---- turns off the grid ---- */

/* p = shift + m * (position - centre), in units of the new voxel. */
typedef struct affine {
    double m[2][2], mz, centre[3], shift[3];
} affine;

static sp_status make_affine(const work *w, double factor, affine *f)
{
    double cosine = cos(w->aug->angle), sine = sin(w->aug->angle), half[3], edge;
    double sx = w->aug->flip_x ? -1 : 1, sy = w->aug->flip_y ? -1 : 1;
    double k = w->aug->scale / factor;
    int a;

    f->m[0][0] = k * cosine * sx;
    f->m[0][1] = -k * sine * sy;
    f->m[1][0] = k * sine * sx;
    f->m[1][1] = k * cosine * sy;
    f->mz = k;
    for (a = 0; a < 3; a++) {
        f->centre[a] = (w->lo[a] + 1.0 + w->hi[a]) / 2;
        half[a] = (w->hi[a] + 1.0 - w->lo[a]) / 2;
    }
    edge = half[0];
    half[0] = fabs(f->m[0][0]) * edge + fabs(f->m[0][1]) * half[1];
    half[1] = fabs(f->m[1][0]) * edge + fabs(f->m[1][1]) * half[1];
    half[2] *= k;
    for (a = 0; a < 3; a++) {
        edge = SP_COORD_LIMIT - 1 - half[a];
        if (edge < 0)
            return SP_FAIL(
                SP_EDATA,
                "sample %lld is %.0f voxels wide in %c after turning by %g and "
                "scaling by %g, more than the coordinate range of %d",
                (long long)w->in->id, 2 * half[a], "xyz"[a], w -> aug -> angle,
                w -> aug -> scale, 2 * SP_COORD_LIMIT);
        f->shift[a] = fmin(fmax(f->centre[a] / factor, -edge), edge);
    }
    return SP_OK;
}

/* floor without a call: the argument is within the coordinate range. */
static int32_t floor_near(double v)
{
    return (int32_t)(v + SP_COORD_LIMIT) - SP_COORD_LIMIT;
}

static sp_status move_freely(work *w, double factor)
{
    const int32_t *c = w->in->coords;
    const uint8_t *sub = w->in->subvoxel;
    int32_t *p = w->moved, i;
    affine f;

    SP_TRY(make_affine(w, factor, &f));
    for (i = 0; i < w->n; i++, c += 3, p += 3) {
        double x = c[0] - f.centre[0], y = c[1] - f.centre[1], z = c[2] - f.centre[2];

        x += sub ? (sub[3 * (int64_t)i] + 0.5) / 256 : 0.5;
        y += sub ? (sub[3 * (int64_t)i + 1] + 0.5) / 256 : 0.5;
        z += sub ? (sub[3 * (int64_t)i + 2] + 0.5) / 256 : 0.5;
        p[0] = floor_near(f.m[0][0] * x + f.m[0][1] * y + f.shift[0]);
        p[1] = floor_near(f.m[1][0] * x + f.m[1][1] * y + f.shift[1]);
        p[2] = floor_near(f.mz * z + f.shift[2]);
    }
    return SP_OK;
}

/* Coordinates after augmentation and factor into w->moved. */
static sp_status move(work *w, double factor, sp_arena *arena)
{
    double turns = w->aug->angle / QUARTER, whole = nearbyint(turns);
    bool is_on_grid = w->aug->scale == 1 && fabs(turns - whole) < 1e-9;
    bool is_whole = fabs(factor - nearbyint(factor)) < 1e-6;
    int quarters = (int)((int64_t)whole & 3);

    if (!is_on_grid && !w->in->subvoxel)
        return SP_FAIL(SP_EDATA,
                       "sample %lld has no subvoxel positions: it cannot turn by %g or "
                       "scale by %g",
                       (long long)w->in->id, w->aug->angle, w->aug->scale);
    if (!(factor >= 1 - 1e-6))
        return SP_FAIL(SP_EDATA,
                       "voxels of %g times the stored edge, at least 1 expected",
                       factor);
    w->is_merged = !is_on_grid || fabs(factor - 1) >= 1e-6;
    w->is_moved = w->is_merged || quarters || w->aug->flip_x || w->aug->flip_y;
    if (!w->is_moved || w->n == 0)
        return SP_OK;
    SP_TRY(SP_TAKE(arena, 3 * (int64_t)w->n, &w->moved));
    find_box(w);
    if (!is_on_grid || !is_whole)
        return move_freely(w, is_whole ? nearbyint(factor) : factor);
    SP_TRY(move_on_grid(w, quarters));
    if (w->is_merged)
        coarsen(w, (int32_t)nearbyint(factor));
    return SP_OK;
}

/* ---- rows to voxels ---- */

static uint64_t pack(const int32_t c[3])
{
    return ((uint64_t)(c[0] + SP_COORD_LIMIT) << 40 |
            (uint64_t)(c[1] + SP_COORD_LIMIT) << 20 |
            (uint64_t)(c[2] + SP_COORD_LIMIT)) +
           1;
}

static int32_t find_or_add(work *w, uint64_t key, int32_t row)
{
    uint64_t h = (key * 0x9e3779b97f4a7c15u) >> 24 & w->mask;

    while (w->table[h].key && w->table[h].key != key)
        h = (h + 1) & w->mask;
    if (!w->table[h].key)
        w->table[h] = (slot){key, row};
    return w->table[h].row;
}

/* Numbers the voxels by first row: row_of, coords and n of the output. */
static void number_voxels(work *w)
{
    const int32_t *coords = w->is_moved ? w->moved : w->in->coords, *c;
    sp_voxels *out = w->out;
    sp_rng rng =
        sp_rng_open(w->aug->seed, SP_RNG_VOXEL_DROP, w->aug->epoch, w->aug->sample);
    uint32_t words[4];
    int32_t i, v, n = 0;

    for (i = 0; i < w->n; i++) {
        if (w->aug->drop > 0) {
            if ((i & 3) == 0)
                sp_rng_block(&rng, (uint64_t)i >> 2, words);
            if (sp_rng_to_unit(words[i & 3]) < w->aug->drop) {
                out->row_of[i] = -1;
                continue;
            }
        }
        c = coords + 3 * (int64_t)i;
        v = w->is_merged ? find_or_add(w, pack(c), n) : n;
        out->row_of[i] = v;
        if (v == n)
            memcpy(out->coords + 3 * (int64_t)n++, c, 3 * sizeof *c);
    }
    out->n = n;
}

/* Rows by voxel, in stored order (a counting sort). */
static sp_status list_rows(work *w, sp_arena *arena)
{
    const int32_t *row_of = w->out->row_of;
    int32_t i, n = w->out->n;

    SP_TRY(SP_TAKE(arena, (int64_t)n + 2, &w->start));
    SP_TRY(SP_TAKE(arena, (int64_t)w->n, &w->list));
    memset(w->start, 0, ((size_t)n + 2) * sizeof *w->start);
    for (i = 0; i < w->n; i++)
        if (row_of[i] >= 0)
            w->start[row_of[i] + 2]++;
    for (i = 0; i < n; i++)
        w->start[i + 2] += w->start[i + 1];
    for (i = 0; i < w->n;
         i++) /* start[v + 1] walks from the first row of v to its end */
        if (row_of[i] >= 0)
            w->list[w->start[row_of[i] + 1]++] = i;
    return SP_OK;
}

/* Label of most of the m rows; two labels in front: SP_IGNORE. */
static int32_t majority(const int32_t *labels, const int32_t *rows, int32_t m,
                        int32_t *votes)
{
    int32_t best = 0, winner = SP_IGNORE, i, label;

    for (i = 0; i < m; i++)
        if (labels[rows[i]] >= 0)
            votes[labels[rows[i]]]++;
    for (i = 0; i < m; i++) {
        label = labels[rows[i]];
        if (label < 0 || votes[label] == 0)
            continue;
        if (votes[label] >= best)
            winner = votes[label] > best ? label : SP_IGNORE;
        best = votes[label] > best ? votes[label] : best;
        votes[label] = 0; /* counted; and clean for the next voxel */
    }
    return winner;
}

static sp_status merge_labels(work *w, sp_arena *arena)
{
    const int32_t *labels = w->in->labels, *rows;
    int32_t i, m, largest = 0;

    for (i = 0; i < w->n; i++)
        largest = labels[i] > largest ? labels[i] : largest;
    SP_TRY(SP_TAKE(arena, (int64_t)largest + 1, &w->votes));
    memset(w->votes, 0, ((size_t)largest + 1) * sizeof *w->votes);
    for (i = 0; i < w->out->n; i++) {
        rows = w->list + w->start[i];
        m = w->start[i + 1] - w->start[i];
        w->out->labels[i] =
            m == 1 ? labels[rows[0]] : majority(labels, rows, m, w->votes);
    }
    return SP_OK;
}

static void merge_features(work *w, int c)
{
    const float *from = w->in->features;
    int32_t i, j, m;
    const int32_t *rows;
    int a;

    for (i = 0; i < w->out->n; i++) {
        float *to = w->out->features + (int64_t)i * c;

        rows = w->list + w->start[i];
        m = w->start[i + 1] - w->start[i];
        for (a = 0; a < c; a++) {
            double sum = 0;

            for (j = 0; j < m; j++)
                sum += from[(int64_t)rows[j] * c + a];
            to[a] = (float)(m == 1 ? sum : sum / m);
        }
    }
}

/* Without merging each voxel is one row. */
static void copy_rows(work *w, int c)
{
    size_t bytes = (size_t)c * sizeof(float);
    int32_t i, v;

    if (w->out->n == w->n) { /* none dropped: row_of is the identity */
        memcpy(w->out->labels, w->in->labels, (size_t)w->n * sizeof *w->out->labels);
        memcpy(w->out->features, w->in->features, (size_t)w->n * bytes);
        return;
    }
    for (i = 0; i < w->n; i++) {
        v = w->out->row_of[i];
        if (v < 0)
            continue;
        w->out->labels[v] = w->in->labels[i];
        memcpy(w->out->features + (int64_t)v * c, w->in->features + (int64_t)i * c,
               bytes);
    }
}

/* ---- features ---- */

static void normalize(float *features, int64_t n, int c, const double *mean,
                      const double *std)
{
    int64_t i;
    int a;

    for (a = 0; a < c; a++) {
        double centre = mean[a], width = std[a] > 0 ? std[a] : 1;

        for (i = a; i < n * c; i += c)
            features[i] = (float)((features[i] - centre) / width);
    }
}

/* Each random word gives one number: the sum of its four bytes, centred, of variance
 * 4 (256^2 - 1) / 12. Much cheaper than a normal deviate, and no outliers. */
static void add_noise(float *features, int64_t n, const sp_augment *aug)
{
    sp_rng rng = sp_rng_open(aug->seed, SP_RNG_JITTER, aug->epoch, aug->sample);
    float unit = (float)(aug->jitter / sqrt((256.0 * 256 - 1) / 3));
    uint32_t words[4], x;
    int64_t i;

    for (i = 0; i < n; i++) {
        if ((i & 3) == 0)
            sp_rng_block(&rng, (uint64_t)i >> 2, words);
        x = words[i & 3];
        x = (x & 0xff00ff) + (x >> 8 & 0xff00ff);
        features[i] += unit * (float)((int)((x & 0xffff) + (x >> 16)) - 510);
    }
}

/* ---- all of it ---- */

static sp_status take_outputs(const sp_sample *in, int c, sp_arena *arena,
                              sp_voxels *out)
{
    memset(out, 0, sizeof *out);
    SP_TRY(SP_TAKE(arena, 3 * in->n, &out->coords));
    SP_TRY(SP_TAKE(arena, in->n * c, &out->features));
    SP_TRY(SP_TAKE(arena, in->n, &out->labels));
    return SP_TAKE(arena, in->n, &out->row_of);
}

static sp_status take_table(work *w, sp_arena *arena)
{
    uint64_t size = 16;

    while (size < 2 * (uint64_t)w->n)
        size *= 2;
    w->mask = size - 1;
    SP_TRY(SP_TAKE(arena, size, &w->table));
    memset(w->table, 0, size * sizeof *w->table);
    return SP_OK;
}

static sp_status voxelize(work *w, double factor, int c, sp_arena *arena)
{
    SP_TRY(move(w, factor, arena));
    if (w->is_merged)
        SP_TRY(take_table(w, arena));
    number_voxels(w);
    if (!w->is_merged) {
        copy_rows(w, c);
        return SP_OK;
    }
    SP_TRY(list_rows(w, arena));
    merge_features(w, c);
    return merge_labels(w, arena);
}

sp_status sp_voxelize(const sp_sample *in, const sp_augment *aug, double factor, int c,
                      const double *mean, const double *std, sp_arena *arena,
                      sp_voxels *out)
{
    work w = {.in = in, .aug = aug, .out = out, .n = (int32_t)in->n};
    size_t used;

    if (in->n > INT32_MAX / 4)
        return SP_FAIL(SP_EDATA, "sample %lld: %lld voxels, at most %d are possible",
                       (long long)in->id, (long long)in->n, INT32_MAX / 4);
    SP_TRY(take_outputs(in, c, arena, out));
    used = arena->used;
    SP_TRY(voxelize(&w, factor, c, arena));
    sp_arena_rewind(arena, used);
    if (mean && std)
        normalize(out->features, out->n, c, mean, std);
    if (aug->jitter > 0)
        add_noise(out->features, (int64_t)out->n * c, aug);
    return SP_OK;
}
