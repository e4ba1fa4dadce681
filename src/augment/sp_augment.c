/* The draws of an augmentation. */
#include "augment/sp_augment.h"

#include <assert.h>
#include <math.h>

#include "augment/sp_augment_internal.h"
#include "base/sp_rng.h"

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
