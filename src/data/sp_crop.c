#include "data/sp_crop.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_number.h"
#include "base/sp_rng.h"

sp_crop sp_crop_draw(const sp_config *config, uint64_t seed, uint64_t epoch,
                     int64_t sample)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_CROP, epoch, (uint64_t)sample);
    const bool is_cropped = sp_rng_unit(&rng) < config->augment.crop_p;

    assert(sample >= 0);
    return (sp_crop){config->augment.crop != SP_CROP_NONE && is_cropped,
                     sp_rng_unit(&rng)};
}

bool sp_crop_is_on(const sp_config *config)
{
    return config->augment.range.n > 0 ||
           (config->augment.crop != SP_CROP_NONE && config->augment.crop_p > 0);
}

int64_t sp_crop_most(const sp_config *config, int64_t n)
{
    const bool is_bound = config && config->augment.crop != SP_CROP_NONE &&
                          config->augment.crop_voxels > 0 &&
                          config->augment.crop_p >= 1;

    return is_bound ? sp_least(n, config->augment.crop_voxels) : n;
}

int64_t sp_crop_cost(const sp_config *config, const sp_dataset *set, int64_t sample)
{
    const int64_t n = sp_dataset_voxels(set, sample);
    const double part = n ? (double)sp_crop_most(config, n) / (double)n : 1;

    return (int64_t)(part * (double)sp_dataset_cost(set, sample));
}

bool sp_crop_is_vague(const sp_config *config)
{
    return sp_crop_is_on(config) &&
           (config->augment.range.n > 0 || config->augment.crop_size.n > 0 ||
            config->augment.crop_p < 1);
}

/* ---- rows ---- */

static void crop_move_row(sp_sample *s, int64_t from, int64_t to, int c)
{
    if (from == to)
        return;
    memcpy(s->coords + 3 * to, s->coords + 3 * from, 3 * sizeof *s->coords);
    memcpy(s->features + c * to, s->features + c * from,
           (size_t)c * sizeof *s->features);
    s->labels[to] = s->labels[from];
    if (s->subvoxel)
        memcpy(s->subvoxel + 3 * to, s->subvoxel + 3 * from, 3);
}

/* ---- the range ---- */

bool sp_crop_is_within(const sp_doubles *range, double voxel_size, const sp_sample *s,
                       int64_t row)
{
    bool is_inside = true;

    assert(range->n == 6 && 0 <= row && row < s->n);
    for (int a = 0; a < 3; a++) {
        const double x = sp_sample_position(s, row, a) * voxel_size + s->origin[a];

        is_inside = is_inside && range->at[a] <= x && x < range->at[a + 3];
    }
    return is_inside;
}

static void crop_to_range(const sp_doubles *range, double voxel_size, int c,
                          sp_sample *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        if (sp_crop_is_within(range, voxel_size, s, i))
            crop_move_row(s, i, n++, c);
    s->n = n;
}

/* ---- sphere and box ---- */

/* The shape that is kept: its distance grows from 0 at the centre. */
typedef struct crop_shape {
    bool is_sphere;
    double centre[3];
    double weight[3]; /* distances in the axes are multiplied by it; 0: no bound */
    double most;      /* the greatest distance that is kept */
} crop_shape;

static crop_shape crop_make_shape(const sp_config *config, double voxel_size,
                                  const sp_sample *s, int64_t row)
{
    const sp_doubles *size = &config->augment.crop_size;
    crop_shape shape = {.is_sphere = config->augment.crop == SP_CROP_SPHERE,
                        .most = size->n ? 1 : INFINITY};

    for (int a = 0; a < 3; a++) {
        const double edge = size->n == 0      ? 2 * voxel_size
                            : shape.is_sphere ? 2 * size->at[0]
                                              : size->at[a];

        shape.centre[a] = sp_sample_position(s, row, a);
        shape.weight[a] = edge > 0 ? 2 * voxel_size / edge : 0;
    }
    return shape;
}

/* The distance of a row: in a sphere squared. */
static double crop_distance(const crop_shape *shape, const sp_sample *s, int64_t row)
{
    double sum = 0, most = 0;

    for (int a = 0; a < 3; a++) {
        const double d =
            (sp_sample_position(s, row, a) - shape->centre[a]) * shape->weight[a];

        sum += d * d;
        most = fmax(most, fabs(d));
    }
    return shape->is_sphere ? sum : most;
}

static void crop_swap(double *a, double *b)
{
    const double t = *a;

    *a = *b;
    *b = t;
}

/* Returns the k-th smallest of d [n], from 0, whose order it changes. */
static double crop_select(double *d, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;

    while (lo < hi) {
        const double middle = d[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;

        while (i <= j) {
            while (d[i] < middle)
                i++;
            while (d[j] > middle)
                j--;
            if (i <= j)
                crop_swap(&d[i++], &d[j--]);
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            break;
    }
    return d[k];
}

static sp_status crop_to_shape(const sp_config *config, const crop_shape *shape, int c,
                               sp_arena *arena, sp_sample *s)
{
    const int64_t wanted = config->augment.crop_voxels;
    const size_t used = arena->used;
    double *distance, *sorted, limit = shape->most;
    int64_t n_equal = s->n, n = 0, near = 0;

    SP_TRY(SP_ALLOC(arena, s->n, &distance));
    SP_TRY(SP_ALLOC(arena, s->n, &sorted));
    for (int64_t i = 0; i < s->n; i++)
        sorted[i] = distance[i] = crop_distance(shape, s, i);
    if (wanted > 0 && wanted < s->n) {
        const double at = crop_select(sorted, s->n, wanted - 1);

        if (at <= limit) {
            for (int64_t i = 0; i < s->n; i++)
                near += distance[i] < at;
            limit = at;
            n_equal = wanted - near;
        }
    }
    for (int64_t i = 0; i < s->n; i++)
        if (distance[i] < limit || (distance[i] == limit && n_equal-- > 0))
            crop_move_row(s, i, n++, c);
    s->n = n;
    sp_arena_rewind(arena, used);
    return SP_OK;
}

sp_status sp_crop_apply(const sp_config *config, const sp_crop *crop, double voxel_size,
                        int c, sp_arena *arena, sp_sample *s)
{
    crop_shape shape;
    int64_t row;

    assert(c > 0 && voxel_size > 0 && s->n_points == 0);
    if (config->augment.range.n)
        crop_to_range(&config->augment.range, voxel_size, c, s);
    if (!crop->is_cropped || s->n == 0)
        return SP_OK;
    row = sp_least((int64_t)(crop->centre * (double)s->n), s->n - 1);
    shape = crop_make_shape(config, voxel_size, s, row);
    return crop_to_shape(config, &shape, c, arena, s);
}
