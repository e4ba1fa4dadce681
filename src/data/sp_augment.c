/* The draws of an augmentation. */
#include "data/sp_augment.h"

#include <assert.h>
#include <math.h>

#include "base/sp_rng.h"
#include "data/sp_augment_internal.h"

sp_augment sp_augment_none(void)
{
    return (sp_augment){.scale = 1, .edge = 1};
}

bool sp_augment_displaces(const sp_config *config)
{
    return config->augment.noise > 0 ||
           (config->augment.elastic.n > 0 && config->augment.elastic_p > 0);
}

bool sp_augment_merges(const sp_config *config)
{
    const sp_doubles *scale = &config->augment.scale;

    return config->augment.rotate_z ||
           (scale->n == 2 && (scale->at[0] != 1 || scale->at[1] != 1)) ||
           config->augment.tilt > 0 || config->augment.shift > 0 ||
           sp_augment_displaces(config);
}

/* The draws of a sample, each at a place of its own in the stream. New ones come at the
 * end, so that the others are unchanged. */
typedef enum draw {
    FLIP_X,
    FLIP_Y,
    TURN,
    STRETCH,
    TURN_P,
    TILT_X,
    TILT_Y,
    TILT_X_P,
    TILT_Y_P,
    DROP_P,
    ELASTIC_P,
    DRAWS
} draw;

static double to_radians(double degrees)
{
    return degrees * (QUARTER / 90);
}

/* The turn about z. Without subvoxel positions it is one of the multiples of 90 degrees
 * that are allowed, else any angle. */
static double angle_of(const sp_config *config, bool has_subvoxel, double turn)
{
    const double most = config->augment.rotate_max;
    const double quarters = floor(most / 90);

    if (most >= 180)
        return QUARTER * (has_subvoxel ? 4 * turn : floor(4 * turn));
    if (has_subvoxel)
        return to_radians(most) * (2 * turn - 1);
    return QUARTER * (floor((2 * quarters + 1) * turn) - quarters);
}

/* Draws what needs subvoxel positions. */
static void draw_off_grid(const sp_config *config, const double u[DRAWS],
                          sp_augment *aug)
{
    const double tilt = to_radians(config->augment.tilt);
    const sp_doubles *scale = &config->augment.scale;
    const sp_rng rng = sp_rng_open(aug->seed, SP_RNG_SHIFT, aug->epoch, aug->sample);
    float normal[3];

    if (scale->n == 2)
        aug->scale = scale->at[0] + u[STRETCH] * (scale->at[1] - scale->at[0]);
    if (tilt > 0 && u[TILT_X_P] < config->augment.tilt_p)
        aug->tilt_x = tilt * (2 * u[TILT_X] - 1);
    if (tilt > 0 && u[TILT_Y_P] < config->augment.tilt_p)
        aug->tilt_y = tilt * (2 * u[TILT_Y] - 1);
    if (config->augment.shift > 0) {
        sp_rng_normals(&rng, 0, 3, normal);
        for (int a = 0; a < 3; a++)
            aug->shift[a] = config->augment.shift * normal[a];
    }
    aug->noise = config->augment.noise;
    aug->noise_clip = config->augment.noise_clip;
    if (u[ELASTIC_P] < config->augment.elastic_p)
        aug->elastic = config->augment.elastic;
}

sp_augment sp_augment_draw(const sp_config *config, bool has_subvoxel, uint64_t seed,
                           uint64_t epoch, int64_t sample)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_AUGMENT, epoch, (uint64_t)sample);
    sp_augment aug = sp_augment_none();
    double u[DRAWS];

    assert(sample >= 0);
    for (int i = 0; i < DRAWS; i++)
        u[i] = sp_rng_unit(&rng);
    aug.seed = seed;
    aug.epoch = epoch;
    aug.sample = (uint64_t)sample;
    aug.flip_x = config->augment.flip && u[FLIP_X] < 0.5;
    aug.flip_y = config->augment.flip && u[FLIP_Y] < 0.5;
    if (config->augment.rotate_z && u[TURN_P] < config->augment.rotate_p)
        aug.angle = angle_of(config, has_subvoxel, u[TURN]);
    aug.edge = config->data.voxel_size;
    if (has_subvoxel)
        draw_off_grid(config, u, &aug);
    if (u[DROP_P] < config->augment.drop_p)
        aug.drop = config->augment.drop;
    aug.jitter = config->augment.jitter;
    aug.color = sp_color_draw(config, seed, epoch, sample);
    return aug;
}
