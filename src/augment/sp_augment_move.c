/* Moves voxels: on the grid, or freely by their subvoxel positions. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "augment/sp_augment_internal.h"
#include "compute/sp_plan.h"

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
        /* the output is at + (in - lo), or at + (hi - in) where the axis is reversed */
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

/* A map of positions: p = shift + m * (position - centre), in units of the new voxel.
 */
typedef struct affine {
    double m[2][2], mz, centre[3], shift[3];
} affine;

static sp_status make_affine(const mover *w, double factor, affine *f)
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
                (long long)w->rows->id, 2 * half[a], "xyz"[a], w -> aug -> angle,
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

static sp_status move_freely(mover *w, double factor)
{
    const int32_t *c = w->rows->coords;
    const uint8_t *sub = w->rows->subvoxel;
    int32_t *p = w->moved;
    affine f;

    SP_TRY(make_affine(w, factor, &f));
    for (int32_t i = 0; i < w->rows->n; i++, c += 3, p += 3) {
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

sp_status sp_augment_move(const sp_augment *aug, const sp_rows *rows, double factor,
                          sp_arena *arena, sp_moved *out)
{
    mover w = {.aug = aug, .rows = rows};
    double turns = aug->angle / QUARTER, whole = nearbyint(turns);
    bool is_on_grid = aug->scale == 1 && fabs(turns - whole) < 1e-9;
    bool is_whole = fabs(factor - nearbyint(factor)) < 1e-6;
    int quarters = (int)((int64_t)whole & 3);
    int32_t coarse;

    assert(aug->scale > 0 && rows->n >= 0);
    if (!is_on_grid && !rows->subvoxel)
        return SP_FAIL_INTERNAL(
            SP_EDATA,
            "sample %lld has no subvoxel positions: it cannot turn by %g or "
            "scale by %g",
            (long long)rows->id, aug->angle, aug->scale);
    if (!(factor >= 1 - 1e-6))
        return SP_FAIL_INTERNAL(
            SP_EDATA, "voxels of %g times the stored edge, at least 1 expected",
            factor);
    *out = (sp_moved){.coords = rows->coords,
                      .is_merged = !is_on_grid || fabs(factor - 1) >= 1e-6};
    if (!(out->is_merged || quarters || aug->flip_x || aug->flip_y) || rows->n == 0)
        return SP_OK;
    SP_TRY(SP_TAKE(arena, 3 * (int64_t)rows->n, &w.moved));
    out->coords = w.moved;
    find_box(&w);
    if (!is_on_grid || !is_whole)
        return move_freely(&w, is_whole ? nearbyint(factor) : factor);
    SP_TRY(move_on_grid(&w, quarters));
    coarse = (int32_t)nearbyint(factor);
    for (int64_t i = 0; out->is_merged && i < 3 * (int64_t)rows->n; i++)
        w.moved[i] = floor_div(w.moved[i], coarse);
    return SP_OK;
}
