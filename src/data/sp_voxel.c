#include "data/sp_voxel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_rng.h"
#include "compute/sp_backend.h"

/* pi / 2 */
#define QUARTER 1.57079632679489661923

/* ---- draws ---- */

sp_augment sp_augment_none(void)
{
    return (sp_augment){.scale = 1};
}

sp_status sp_voxel_factor(const sp_config *config, const sp_dataset *set,
                          double *factor)
{
    const double want = config->data.voxel_size, ratio = want / set->voxel_size;

    assert(set->voxel_size > 0 && factor);
    *factor = rint(ratio);
    /* Coordinates have 20 bits, so at a larger multiple all voxels would become one. */
    if (*factor < 1 || ratio > 1 << 20 || fabs(ratio - *factor) > 1e-6 * ratio)
        return SP_FAIL(
            SP_EDATA,
            "%s%s: voxel_size %g, data.voxel_size = %g: expected the same or a "
            "multiple up to 1048576 times it",
            sp_config_where(config, "data.voxel_size"), set->shard[0].path,
            set->voxel_size, want);
    return SP_OK;
}

sp_augment sp_augment_draw(const sp_config *config, bool has_subvoxel, uint64_t seed,
                           uint64_t epoch, int64_t sample)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_AUGMENT, epoch, (uint64_t)sample);
    sp_augment aug = sp_augment_none();
    double x = sp_rng_unit(&rng), y = sp_rng_unit(&rng), turn = sp_rng_unit(&rng),
           stretch = sp_rng_unit(&rng);

    assert(sample >= 0);
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

enum { BATCH = 256 /* rows or numbers for which random numbers are drawn at a time */ };

typedef struct work {
    const sp_sample *in;
    const sp_augment *aug;
    sp_voxels *out;
    int32_t n;            /* number of stored rows */
    int32_t lo[3], hi[3]; /* the bounding box of their coordinates */
    int32_t *moved;       /* [n][3] coordinates after turn, scale and factor */
    bool is_moved, is_merged;
    int32_t *table; /* [mask + 1] number of a voxel + 1; 0: empty */
    uint32_t mask;
    int shift;
    int32_t *count;        /* [n] number of rows of each voxel */
    int32_t *start, *list; /* the rows of voxels that have several, by voxel */
    int32_t *votes;        /* [largest label + 1] votes of a voxel */
} work;

static void find_box(work *w)
{
    memcpy(w->lo, w->in->coords, sizeof w->lo);
    memcpy(w->hi, w->in->coords, sizeof w->hi);
    for (int32_t i = 1; i < w->n; i++)
        for (int a = 0; a < 3; a++) {
            int32_t c = w->in->coords[3 * (int64_t)i + a];

            w->lo[a] = c < w->lo[a] ? c : w->lo[a];
            w->hi[a] = c > w->hi[a] ? c : w->hi[a];
        }
}

/* ---- turns on the grid ---- */

/* Moves a run of `length` voxels that should begin at *lo into the coordinate range. */
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

/* Mirrors, then turns by `quarters` quarter turns. Axis a of the output is axis from[a]
 * of the input, reversed or not, put so that the box keeps its centre. */
static sp_status move_on_grid(work *w, int quarters)
{
    int from[2] = {0, 1}, t;
    bool is_reversed[2] = {w->aug->flip_x, w->aug->flip_y}, b;
    int64_t at[2];
    int32_t *p;
    const int32_t *c;

    for (; quarters > 0; quarters--) { /* one quarter turn maps (x, y) to (-y, x) */
        t = from[0], from[0] = from[1], from[1] = t;
        b = is_reversed[0], is_reversed[0] = !is_reversed[1], is_reversed[1] = b;
    }
    for (int a = 0; a < 2; a++) {
        int64_t length = (int64_t)w->hi[from[a]] - w->lo[from[a]];

        at[a] = ((int64_t)w->lo[a] + w->hi[a] - length) >> 1;
        SP_TRY(fit_run(w, a, length + 1, &at[a]));
        /* the output is at + (in - lo), or at + (hi - in) where the axis is reversed */
        at[a] += is_reversed[a] ? w->hi[from[a]] : -w->lo[from[a]];
    }
    for (int32_t i = 0; i < w->n; i++) {
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

/* ---- turns off the grid ---- */

/* A map of positions: p = shift + m * (position - centre), in units of the new voxel.
 */
typedef struct affine {
    double m[2][2], mz, centre[3], shift[3];
} affine;

static sp_status make_affine(const work *w, double factor, affine *f)
{
    double cosine = cos(w->aug->angle), sine = sin(w->aug->angle), half[3], edge;
    double sx = w->aug->flip_x ? -1 : 1, sy = w->aug->flip_y ? -1 : 1;
    double k = w->aug->scale / factor;

    f->m[0][0] = k * cosine * sx;
    f->m[0][1] = -k * sine * sy;
    f->m[1][0] = k * sine * sx;
    f->m[1][1] = k * cosine * sy;
    f->mz = k;
    for (int a = 0; a < 3; a++) {
        f->centre[a] = (w->lo[a] + 1.0 + w->hi[a]) / 2;
        half[a] = (w->hi[a] + 1.0 - w->lo[a]) / 2;
    }
    edge = half[0];
    half[0] = fabs(f->m[0][0]) * edge + fabs(f->m[0][1]) * half[1];
    half[1] = fabs(f->m[1][0]) * edge + fabs(f->m[1][1]) * half[1];
    half[2] *= k;
    for (int a = 0; a < 3; a++) {
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

/* The floor of v without a call; |v| is within the coordinate range. */
static int32_t floor_near(double v)
{
    return (int32_t)(v + SP_COORD_LIMIT) - SP_COORD_LIMIT;
}

static sp_status move_freely(work *w, double factor)
{
    const int32_t *c = w->in->coords;
    const uint8_t *sub = w->in->subvoxel;
    int32_t *p = w->moved;
    affine f;

    SP_TRY(make_affine(w, factor, &f));
    for (int32_t i = 0; i < w->n; i++, c += 3, p += 3) {
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

/* Computes the coordinates after augmentation and factor into w->moved. */
static sp_status move(work *w, double factor, sp_arena *arena)
{
    double turns = w->aug->angle / QUARTER, whole = nearbyint(turns);
    bool is_on_grid = w->aug->scale == 1 && fabs(turns - whole) < 1e-9;
    bool is_whole = fabs(factor - nearbyint(factor)) < 1e-6;
    int quarters = (int)((int64_t)whole & 3);
    int32_t coarse;

    if (!is_on_grid && !w->in->subvoxel)
        return SP_FAIL_INTERNAL(
            SP_EDATA,
            "sample %lld has no subvoxel positions: it cannot turn by %g or "
            "scale by %g",
            (long long)w->in->id, w->aug->angle, w->aug->scale);
    if (!(factor >= 1 - 1e-6))
        return SP_FAIL_INTERNAL(
            SP_EDATA, "voxels of %g times the stored edge, at least 1 expected",
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
    coarse = (int32_t)nearbyint(factor);
    for (int64_t i = 0; w->is_merged && i < 3 * (int64_t)w->n; i++)
        w->moved[i] = floor_div(w->moved[i], coarse);
    return SP_OK;
}

/* ---- rows to voxels ---- */

/* The place in the table at which the search for c begins. Cells of a 2^3 block begin
 * next to each other, so that rows that are neighbours share cache lines. */
static uint32_t begin_of(const work *w, const int32_t *c)
{
    uint64_t x = (uint64_t)(c[0] + SP_COORD_LIMIT),
             y = (uint64_t)(c[1] + SP_COORD_LIMIT),
             z = (uint64_t)(c[2] + SP_COORD_LIMIT);
    uint64_t block = (x >> 1) << 40 | (y >> 1) << 20 | z >> 1;
    uint64_t cell = (x & 1) << 2 | (y & 1) << 1 | (z & 1);

    return (uint32_t)((block * 0x9e3779b97f4a7c15u) >> w->shift << 3 | cell);
}

/* The number of the voxel at c: one that the table has, or n for a new one. */
static int32_t find_or_add(work *w, const int32_t *c, uint32_t place, int32_t n)
{
    const int32_t *coords = w->out->coords, *d;

    for (; w->table[place]; place = (place + 1) & w->mask) {
        d = coords + 3 * (int64_t)(w->table[place] - 1);
        if (!((c[0] ^ d[0]) | (c[1] ^ d[1]) | (c[2] ^ d[2])))
            return w->table[place] - 1;
    }
    w->table[place] = n + 1;
    return n;
}

/* Draws which of the m rows from `first` on are dropped. */
static void draw_dropped(const work *w, int32_t first, int32_t m, bool *is_dropped)
{
    sp_rng rng =
        sp_rng_open(w->aug->seed, SP_RNG_VOXEL_DROP, w->aug->epoch, w->aug->sample);
    uint32_t words[BATCH];

    if (!(w->aug->drop > 0)) {
        memset(is_dropped, 0, (size_t)m * sizeof *is_dropped);
        return;
    }
    sp_rng_words(&rng, (uint64_t)first, m, words);
    for (int32_t i = 0; i < m; i++)
        is_dropped[i] = sp_rng_to_unit(words[i]) < w->aug->drop;
}

/* Numbers the voxels in the order of their first rows: sets row_of, coords and n of the
 * output, and count. */
static void number_voxels(work *w)
{
    const int32_t *coords = w->is_moved ? w->moved : w->in->coords, *c;
    sp_voxels *out = w->out;
    uint32_t place[BATCH];
    bool is_dropped[BATCH];
    int32_t m, v, n = 0;

    for (int32_t first = 0; first < w->n; first += BATCH) {
        m = w->n - first < BATCH ? w->n - first : BATCH;
        c = coords + 3 * (int64_t)first;
        draw_dropped(w, first, m, is_dropped);
        for (int32_t i = 0; w->is_merged && i < m; i++) {
            place[i] = begin_of(w, c + 3 * i);
            __builtin_prefetch(&w->table[place[i]], 1);
        }
        for (int32_t i = 0; i < m; i++, c += 3) {
            if (is_dropped[i]) {
                out->row_of[first + i] = -1;
                continue;
            }
            v = w->is_merged ? find_or_add(w, c, place[i], n) : n;
            out->row_of[first + i] = v;
            if (v == n)
                memcpy(out->coords + 3 * (int64_t)n++, c, 3 * sizeof *c);
            if (w->is_merged)
                w->count[v]++;
        }
    }
    out->n = n;
}

/* Copies a row without the call of memcpy. */
static inline void copy_row(float *to, const float *from, int c)
{
    for (int a = 0; a < c; a++)
        to[a] = from[a];
}

/* The label of most of the m rows; SP_IGNORE where two labels are equally frequent. */
static int32_t majority(const int32_t *labels, const int32_t *rows, int32_t m,
                        int32_t *votes)
{
    int32_t best = 0, winner = SP_IGNORE, label;

    for (int32_t i = 0; i < m; i++)
        if (labels[rows[i]] >= 0)
            votes[labels[rows[i]]]++;
    for (int32_t i = 0; i < m; i++) {
        label = labels[rows[i]];
        if (label < 0 || votes[label] == 0)
            continue;
        if (votes[label] >= best)
            winner = votes[label] > best ? label : SP_IGNORE;
        best = votes[label] > best ? votes[label] : best;
        /* The label is counted, and its entry is 0 for the next voxel. */
        votes[label] = 0;
    }
    return winner;
}

/* Copies the rows of voxels that have a single one, and lists the rows of the others by
 * voxel in stored order (a counting sort). start[v] becomes the end of the list of v.
 */
static void copy_single_rows(work *w, int c)
{
    const sp_sample *in = w->in;
    const sp_voxels *out = w->out;
    int32_t v, at = 0;

    for (v = 0; v < out->n; v++) {
        w->start[v] = at;
        at += w->count[v] > 1 ? w->count[v] : 0;
    }
    for (int32_t i = 0; i < w->n; i++) {
        v = out->row_of[i];
        if (v < 0)
            continue;
        if (w->count[v] > 1) {
            w->list[w->start[v]++] = i;
            continue;
        }
        out->labels[v] = in->labels[i];
        copy_row(out->features + (int64_t)v * c, in->features + (int64_t)i * c, c);
    }
}

static void mean_of_rows(const float *from, const int32_t *rows, int32_t m, int c,
                         float *to)
{
    for (int a = 0; a < c; a++) {
        double sum = 0;

        for (int32_t j = 0; j < m; j++)
            sum += from[(int64_t)rows[j] * c + a];
        to[a] = (float)(sum / m);
    }
}

static sp_status merge_rows(work *w, int c, sp_arena *arena)
{
    const int32_t *labels = w->in->labels, *rows;
    int32_t largest = 0;

    SP_TRY(SP_TAKE(arena, (int64_t)w->out->n, &w->start));
    SP_TRY(SP_TAKE(arena, (int64_t)w->n, &w->list));
    for (int32_t i = 0; i < w->n; i++)
        largest = labels[i] > largest ? labels[i] : largest;
    SP_TRY(SP_TAKE(arena, (int64_t)largest + 1, &w->votes));
    memset(w->votes, 0, ((size_t)largest + 1) * sizeof *w->votes);
    copy_single_rows(w, c);
    for (int32_t v = 0; v < w->out->n; v++) {
        if (w->count[v] == 1)
            continue;
        rows = w->list + w->start[v] - w->count[v];
        w->out->labels[v] = majority(labels, rows, w->count[v], w->votes);
        mean_of_rows(w->in->features, rows, w->count[v], c,
                     w->out->features + (int64_t)v * c);
    }
    return SP_OK;
}

/* Copies rows where nothing merges: each voxel is one row. */
static void copy_rows(work *w, int c)
{
    size_t bytes = (size_t)c * sizeof(float);
    int32_t v;

    if (w->out->n == w->n) { /* no row is dropped, so row_of is the identity */
        memcpy(w->out->labels, w->in->labels, (size_t)w->n * sizeof *w->out->labels);
        memcpy(w->out->features, w->in->features, (size_t)w->n * bytes);
        return;
    }
    for (int32_t i = 0; i < w->n; i++) {
        v = w->out->row_of[i];
        if (v < 0)
            continue;
        w->out->labels[v] = w->in->labels[i];
        copy_row(w->out->features + (int64_t)v * c, w->in->features + (int64_t)i * c,
                 c);
    }
}

/* ---- features ---- */

static void normalize(float *features, int64_t n, int c, const double *mean,
                      const double *std)
{
    for (int a = 0; a < c; a++) {
        double centre = mean[a], width = std[a] > 0 ? std[a] : 1;

        for (int64_t i = a; i < n * c; i += c)
            features[i] = (float)((features[i] - centre) / width);
    }
}

static void add_noise(float *features, int64_t n, const sp_augment *aug)
{
    sp_rng rng = sp_rng_open(aug->seed, SP_RNG_JITTER, aug->epoch, aug->sample);
    float width = (float)aug->jitter, noise[BATCH];

    for (int64_t done = 0; done < n; done += BATCH) {
        int64_t m = n - done < BATCH ? n - done : BATCH;

        sp_rng_normals(&rng, (uint64_t)done, m, noise);
        for (int64_t i = 0; i < m; i++)
            features[done + i] += width * noise[i];
    }
}

/* Mirrors and turns vectors as the voxels, and scales positions, about their mean where
 * one is known. Whole quarter turns are exact. */
static void turn_vectors(float *features, int64_t n, int c, const double *mean,
                         const sp_augment *aug)
{
    const double turns = aug->angle / QUARTER, whole = nearbyint(turns);
    const bool is_whole = fabs(turns - whole) < 1e-9;
    const int quarters = (int)((int64_t)whole & 3);
    const double cosine =
        is_whole ? (quarters == 0) - (quarters == 2) : cos(aug->angle);
    const double sine = is_whole ? (quarters == 1) - (quarters == 3) : sin(aug->angle);
    const double sx = aug->flip_x ? -1 : 1, sy = aug->flip_y ? -1 : 1;

    if (cosine == 1 && sx > 0 && sy > 0 && aug->scale == 1)
        return;
    for (int k = 0; k < aug->vectors->n; k++) {
        const sp_vector v = aug->vectors->at[k];
        const bool has_mean = v.is_position && mean;
        const double at_x = has_mean ? mean[v.x] : 0, at_y = has_mean ? mean[v.y] : 0;
        const double at_z = has_mean && v.z >= 0 ? mean[v.z] : 0;
        const double scale = v.is_position ? aug->scale : 1;

        for (float *f = features, *end = features + n * c; f < end; f += c) {
            const double x = scale * sx * (f[v.x] - at_x);
            const double y = scale * sy * (f[v.y] - at_y);

            f[v.x] = (float)(at_x + cosine * x - sine * y * v.ratio);
            f[v.y] = (float)(at_y + sine * x / v.ratio + cosine * y);
            if (v.z >= 0)
                f[v.z] = (float)(at_z + scale * (f[v.z] - at_z));
        }
    }
}

/* ---- the sample ---- */

static sp_status allocate_outputs(const sp_sample *in, int c, sp_arena *arena,
                                  sp_voxels *out)
{
    memset(out, 0, sizeof *out);
    SP_TRY(SP_TAKE(arena, 3 * in->n, &out->coords));
    SP_TRY(SP_TAKE(arena, in->n * c, &out->features));
    SP_TRY(SP_TAKE(arena, in->n, &out->labels));
    return SP_TAKE(arena, in->n, &out->row_of);
}

static sp_status allocate_table(work *w, sp_arena *arena)
{
    int bits = 4;

    while ((int64_t)1 << bits < 2 * (int64_t)w->n)
        bits++;
    w->mask = ((uint32_t)1 << bits) - 1;
    w->shift = 64 - (bits - 3);
    SP_TRY(SP_TAKE(arena, (size_t)1 << bits, &w->table));
    memset(w->table, 0, sizeof *w->table << bits);
    SP_TRY(SP_TAKE(arena, (int64_t)w->n, &w->count));
    memset(w->count, 0, (size_t)w->n * sizeof *w->count);
    return SP_OK;
}

static sp_status voxelize(work *w, double factor, int c, sp_arena *arena)
{
    SP_TRY(move(w, factor, arena));
    w->is_merged = w->is_merged || w->aug->is_mixed;
    if (w->is_merged)
        SP_TRY(allocate_table(w, arena));
    number_voxels(w);
    if (w->is_merged)
        return merge_rows(w, c, arena);
    copy_rows(w, c);
    return SP_OK;
}

sp_status sp_voxelize(const sp_sample *in, const sp_augment *aug, double factor, int c,
                      const double *mean, const double *std, sp_arena *arena,
                      sp_voxels *out)
{
    work w = {.in = in, .aug = aug, .out = out, .n = (int32_t)in->n};
    size_t used;

    assert(in && aug && out && c > 0 && arena);
    assert(!mean == !std);
    assert(0 <= aug->drop && aug->drop <= 1 && aug->scale > 0);
    if (in->n > INT32_MAX / 4)
        return SP_FAIL(SP_EDATA, "sample %lld: %lld voxels, at most %d are possible",
                       (long long)in->id, (long long)in->n, INT32_MAX / 4);
    SP_TRY(allocate_outputs(in, c, arena, out));
    used = arena->used;
    SP_TRY(voxelize(&w, factor, c, arena));
    sp_arena_rewind(arena, used);
    if (aug->vectors)
        turn_vectors(out->features, out->n, c, mean, aug);
    if (mean && std)
        normalize(out->features, out->n, c, mean, std);
    if (aug->jitter > 0)
        add_noise(out->features, (int64_t)out->n * c, aug);
    return SP_OK;
}
