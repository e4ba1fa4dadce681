/* What augmentation does to features: vectors turn with their sample, and all features
 * get noise. */
#include <assert.h>
#include <math.h>

#include "augment/sp_augment_internal.h"
#include "base/sp_rng.h"

enum { BATCH = 256 /* numbers for which random numbers are drawn at a time */ };

void sp_augment_turn(const sp_augment *aug, float *features, int64_t n, int c,
                     const double *mean)
{
    const double turns = aug->angle / QUARTER, whole = nearbyint(turns);
    const bool is_whole = fabs(turns - whole) < 1e-9;
    const int quarters = (int)((int64_t)whole & 3);
    const double cosine =
        is_whole ? (quarters == 0) - (quarters == 2) : cos(aug->angle);
    const double sine = is_whole ? (quarters == 1) - (quarters == 3) : sin(aug->angle);
    const double sx = aug->flip_x ? -1 : 1, sy = aug->flip_y ? -1 : 1;

    if (!aug->vectors || (cosine == 1 && sx > 0 && sy > 0 && aug->scale == 1))
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
