/* Augmentation of features: vectors turn with their sample, and all features get
 * noise. */
#include <assert.h>
#include <math.h>

#include "data/sp_augment_internal.h"
#include "base/sp_rng.h"

/* Mirrors, turns about z and scales. */
static void turn_flat(const sp_augment *aug, float *features, int64_t n, int c,
                      const double *mean)
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
        const double ratio = v.divisor[1] / v.divisor[0];

        for (float *f = features, *end = features + n * c; f < end; f += c) {
            const double x = scale * sx * (f[v.x] - at_x);
            const double y = scale * sy * (f[v.y] - at_y);

            f[v.x] = (float)(at_x + cosine * x - sine * y * ratio);
            f[v.y] = (float)(at_y + sine * x / ratio + cosine * y);
            if (v.is_position && v.z >= 0)
                f[v.z] = (float)(at_z + scale * (f[v.z] - at_z));
        }
    }
}

/* Turns vectors that have a z about x and y. */
static void tilt(const sp_augment *aug, float *features, int64_t n, int c,
                 const double *mean)
{
    double m[3][3];

    if (aug->tilt_x == 0 && aug->tilt_y == 0)
        return;
    sp_augment_tilts(aug, m);
    for (int k = 0; k < aug->vectors->n; k++) {
        const sp_vector *v = &aug->vectors->at[k];
        const int column[3] = {v->x, v->y, v->z};
        double at[3] = {0}, d[3];

        if (v->z < 0)
            continue;
        for (int a = 0; a < 3 && v->is_position && mean; a++)
            at[a] = mean[column[a]];
        for (float *f = features, *end = features + n * c; f < end; f += c) {
            for (int a = 0; a < 3; a++)
                d[a] = (f[column[a]] - at[a]) * v->divisor[a];
            for (int a = 0; a < 3; a++)
                f[column[a]] =
                    (float)(at[a] + (m[a][0] * d[0] + m[a][1] * d[1] + m[a][2] * d[2]) /
                                        v->divisor[a]);
        }
    }
}

/* Adds d [n][3], or d_all [3] if d is NULL, to the positions. */
static void add(const sp_augment *aug, const double *d_all, const float *d, int64_t n,
                float *features, int c)
{
    for (int k = 0; k < aug->vectors->n; k++) {
        const sp_vector *v = &aug->vectors->at[k];
        const int column[3] = {v->x, v->y, v->z};

        for (int a = 0; a < 3 && v->is_position && column[a] >= 0; a++)
            for (int64_t i = 0; i < n; i++)
                features[i * c + column[a]] +=
                    (float)((d ? d[3 * i + a] : d_all[a]) / v->divisor[a]);
    }
}

void sp_augment_turn(const sp_augment *aug, float *features, int64_t n, int c,
                     const double *mean)
{
    if (!aug->vectors)
        return;
    turn_flat(aug, features, n, c, mean);
    tilt(aug, features, n, c, mean);
    if (aug->shift[0] != 0 || aug->shift[1] != 0 || aug->shift[2] != 0)
        add(aug, aug->shift, NULL, n, features, c);
}

void sp_augment_displace(const sp_augment *aug, const float *d, float *features,
                         int64_t n, int c)
{
    if (aug->vectors)
        add(aug, NULL, d, n, features, c);
}

void sp_augment_jitter(const sp_augment *aug, float *features, int64_t n)
{
    sp_rng rng = sp_rng_open(aug->seed, SP_RNG_JITTER, aug->epoch, aug->sample);
    float width = (float)aug->jitter, noise[BATCH];

    if (!(aug->jitter > 0))
        return;
    for (int64_t done = 0; done < n; done += BATCH) {
        int64_t m = n - done < BATCH ? n - done : BATCH;

        sp_rng_normals(&rng, (uint64_t)done, m, noise);
        for (int64_t i = 0; i < m; i++)
            features[done + i] += width * noise[i];
    }
}
