/* Moves voxels: on the grid, or freely by their subvoxel positions. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/sp_plan.h"
#include "data/sp_augment_internal.h"

typedef struct mover {
    const sp_augment *aug;
    const sp_rows *rows;
    int32_t lo[3], hi[3]; /* the bounding box of their coordinates */
    int32_t *moved;       /* [n][3] coordinates after turn, scale and factor */
} mover;

static void find_box(mover *w)
{
    memcpy(w->lo, w->rows->coords, sizeof w->lo);
    memcpy(w->hi, w->rows->coords, sizeof w->hi);
    for (int32_t i = 1; i < w->rows->n; i++)
        for (int a = 0; a < 3; a++) {
            int32_t c = w->rows->coords[3 * (int64_t)i + a];

            w->lo[a] = c < w->lo[a] ? c : w->lo[a];
            w->hi[a] = c > w->hi[a] ? c : w->hi[a];
        }
}

/* ---- turns on the grid ---- */

/* Moves a run of `length` voxels that should begin at *lo into the coordinate range. */
static sp_status fit_run(const mover *w, int axis, int64_t length, int64_t *lo)
{
    if (length > 2 * (int64_t)SP_COORD_LIMIT)
        return SP_FAIL(
            SP_EDATA,
            "sample %lld is %lld voxels wide in %c after turning, more than the "
            "coordinate range of %d",
            (long long)w->rows->id, (long long)length, "xyz"[axis], 2 * SP_COORD_LIMIT);
    if (*lo < -SP_COORD_LIMIT)
        *lo = -SP_COORD_LIMIT;
    if (*lo + length > SP_COORD_LIMIT)
        *lo = SP_COORD_LIMIT - length;
    return SP_OK;
}

/* Mirrors, then turns by `quarters` quarter turns. Axis a of the output is axis from[a]
 * of the input, reversed or not, put so that the box keeps its centre. */
static sp_status move_on_grid(mover *w, int quarters)
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
        /* the output is at + (in - lo), or at + (hi - in) if the axis is reversed */
        at[a] += is_reversed[a] ? w->hi[from[a]] : -w->lo[from[a]];
    }
    for (int32_t i = 0; i < w->rows->n; i++) {
        c = w->rows->coords + 3 * (int64_t)i;
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

void sp_augment_tilts(const sp_augment *aug, double m[3][3])
{
    const double cx = cos(aug->tilt_x), sx = sin(aug->tilt_x);
    const double cy = cos(aug->tilt_y), sy = sin(aug->tilt_y);
    const double all[3][3] = {
        {cy, sy * sx, sy * cx}, {0, cx, -sx}, {-sy, cy * sx, cy * cx}};

    memcpy(m, all, sizeof all);
}

/* Sets f->m: mirrors, turns about z, tilts and scales. */
static void make_matrix(const sp_augment *aug, double factor, affine *f)
{
    const double cosine = cos(aug->angle), sine = sin(aug->angle);
    const double sx = aug->flip_x ? -1 : 1, sy = aug->flip_y ? -1 : 1;
    const double k = aug->scale / factor;
    const double flat[3][3] = {{k * cosine * sx, -k * sine * sy, 0},
                               {k * sine * sx, k * cosine * sy, 0},
                               {0, 0, k}};
    double tilt[3][3];

    sp_augment_tilts(aug, tilt);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            f->m[a][b] = tilt[a][0] * flat[0][b] + tilt[a][1] * flat[1][b] +
                         tilt[a][2] * flat[2][b];
}

static sp_status make_affine(const mover *w, double factor, affine *f)
{
    const sp_augment *aug = w->aug;
    const double most = sp_augment_reach(aug) / aug->edge;
    double half[3], edge;

    make_matrix(aug, factor, f);
    for (int a = 0; a < 3; a++) {
        f->centre[a] = (w->lo[a] + 1.0 + w->hi[a]) / 2;
        half[a] = (w->hi[a] + 1.0 - w->lo[a]) / 2;
    }
    for (int a = 0; a < 3; a++) {
        const double reach = fabs(f->m[a][0]) * half[0] + fabs(f->m[a][1]) * half[1] +
                             fabs(f->m[a][2]) * half[2] + most;

        edge = SP_COORD_LIMIT - 1 - reach;
        if (edge < 0)
            return SP_FAIL(
                SP_EDATA,
                "sample %lld is %.0f voxels wide in %c after turning by %g, scaling "
                "by %g and moving voxels by up to %.0f, more than the coordinate range "
                "of %d",
                (long long)w->rows->id, 2 * reach, "xyz"[a], aug -> angle, aug -> scale,
                most, 2 * SP_COORD_LIMIT);
        f->shift[a] =
            fmin(fmax(f->centre[a] / factor + aug->shift[a] / aug->edge, -edge), edge);
    }
    return SP_OK;
}

/* The floor of v without a call; |v| is within the coordinate range. */
static int32_t floor_near(double v)
{
    return (int32_t)(v + SP_COORD_LIMIT) - SP_COORD_LIMIT;
}

/* Moves rows that are not displaced one by one. f is a copy, which the compiler keeps
 * in registers; without a tilt, four products by 0 are left out. */
static void move_rigidly(const mover *w, const affine f)
{
    const bool is_tilted = w->aug->tilt_x != 0 || w->aug->tilt_y != 0;
    const int32_t *c = w->rows->coords;
    const uint8_t *sub = w->rows->subvoxel;
    int32_t *p = w->moved;

    for (int32_t i = 0; i < w->rows->n; i++, c += 3, p += 3) {
        double x = c[0] - f.centre[0], y = c[1] - f.centre[1], z = c[2] - f.centre[2];

        x += sub ? (sub[3 * (int64_t)i] + 0.5) / 256 : 0.5;
        y += sub ? (sub[3 * (int64_t)i + 1] + 0.5) / 256 : 0.5;
        z += sub ? (sub[3 * (int64_t)i + 2] + 0.5) / 256 : 0.5;
        if (is_tilted) {
            p[0] =
                floor_near(f.m[0][0] * x + f.m[0][1] * y + f.m[0][2] * z + f.shift[0]);
            p[1] =
                floor_near(f.m[1][0] * x + f.m[1][1] * y + f.m[1][2] * z + f.shift[1]);
            p[2] =
                floor_near(f.m[2][0] * x + f.m[2][1] * y + f.m[2][2] * z + f.shift[2]);
            continue;
        }
        p[0] = floor_near(f.m[0][0] * x + f.m[0][1] * y + f.shift[0]);
        p[1] = floor_near(f.m[1][0] * x + f.m[1][1] * y + f.shift[1]);
        p[2] = floor_near(f.m[2][2] * z + f.shift[2]);
    }
}

static sp_status move_freely(mover *w, double factor, sp_arena *arena, sp_moved *out)
{
    const int32_t n = w->rows->n;
    int32_t *p = w->moved;
    double v[3];
    affine f;

    SP_TRY(make_affine(w, factor, &f));
    if (!sp_augment_is_displaced(w->aug)) {
        move_rigidly(w, f);
        return SP_OK;
    }
    SP_TRY(SP_ALLOC(arena, 3 * (int64_t)n, &out->displacement));
    memset(out->displacement, 0, 3 * (size_t)n * sizeof *out->displacement);
    SP_TRY(sp_augment_displacements(w->aug, w->rows, &f, w->moved, arena,
                                    out->displacement));
    for (int32_t i = 0; i < n; i++, p += 3) {
        const float *d = out->displacement + 3 * (int64_t)i;

        affine_turn(&f, w->rows, i, v);
        for (int a = 0; a < 3; a++)
            p[a] = floor_near(v[a] + d[a] / w->aug->edge + f.shift[a]);
    }
    return SP_OK;
}

/* True if augmentation leaves voxels on the stored grid: mirrors them and turns them by
 * multiples of 90 degrees. */
static bool is_on_grid(const sp_augment *aug)
{
    const double turns = aug->angle / QUARTER;

    return aug->scale == 1 && fabs(turns - nearbyint(turns)) < 1e-9 &&
           aug->tilt_x == 0 && aug->tilt_y == 0 && aug->shift[0] == 0 &&
           aug->shift[1] == 0 && aug->shift[2] == 0 && !sp_augment_is_displaced(aug);
}

sp_status sp_augment_move(const sp_augment *aug, const sp_rows *rows, double factor,
                          sp_arena *arena, sp_moved *out)
{
    mover w = {.aug = aug, .rows = rows};
    const bool stays = is_on_grid(aug);
    const bool is_whole = fabs(factor - nearbyint(factor)) < 1e-6;
    const int quarters = (int)((int64_t)nearbyint(aug->angle / QUARTER) & 3);
    int32_t coarse;

    assert(aug->scale > 0 && aug->edge > 0 && rows->n >= 0);
    if (!stays && !rows->subvoxel)
        return SP_FAIL_INTERNAL(
            SP_EDATA,
            "sample %lld has no subvoxel positions: it cannot turn by %g, scale by %g "
            "or leave its grid otherwise",
            (long long)rows->id, aug->angle, aug->scale);
    if (!(factor >= 1 - 1e-6))
        return SP_FAIL_INTERNAL(
            SP_EDATA, "voxels of %g times the stored edge, at least 1 expected",
            factor);
    *out = (sp_moved){.coords = rows->coords,
                      .is_merged = !stays || fabs(factor - 1) >= 1e-6};
    if (!(out->is_merged || quarters || aug->flip_x || aug->flip_y) || rows->n == 0)
        return SP_OK;
    SP_TRY(SP_ALLOC(arena, 3 * (int64_t)rows->n, &w.moved));
    out->coords = w.moved;
    find_box(&w);
    if (!stays || !is_whole)
        return move_freely(&w, is_whole ? nearbyint(factor) : factor, arena, out);
    SP_TRY(move_on_grid(&w, quarters));
    coarse = (int32_t)nearbyint(factor);
    for (int64_t i = 0; out->is_merged && i < 3 * (int64_t)rows->n; i++)
        w.moved[i] = floor_div(w.moved[i], coarse);
    return SP_OK;
}
