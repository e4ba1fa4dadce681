/* A small synthetic data set for the examples: a floor, walls and balls of voxels, which a
 * network can tell apart by their shape. Sample i is the same on every rank and machine. */
#ifndef SCENE_H
#define SCENE_H

#include <sptrain.h>
#include <stdlib.h>

enum { SCENE_EDGE = 20, SCENE_FEATURES = 2, SCENE_CLASSES = 3 };

static inline uint32_t scene_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* The class of a cell: 0 floor, 1 wall, 2 ball; -1 empty. */
static inline int scene_class(int x, int y, int z, const int ball[3])
{
    const int dx = x - ball[0], dy = y - ball[1], dz = z - ball[2];
    const int r2 = dx * dx + dy * dy + dz * dz;

    if (9 <= r2 && r2 <= 16)
        return 2;
    return z == 0 ? 0 : x == 0 || y == 0 ? 1 : -1;
}

/* Returns the number of voxels of sample i, and fills its arrays unless they are NULL. */
static inline int64_t scene_sample(int64_t i, int32_t *coords, float *features,
                                   int32_t *labels)
{
    uint32_t state = (uint32_t)i * 2654435761u + 1;
    const int ball[3] = {5 + (int)(scene_random(&state) % 10),
                         5 + (int)(scene_random(&state) % 10),
                         5 + (int)(scene_random(&state) % 10)};
    int64_t n = 0;

    for (int x = 0; x < SCENE_EDGE; x++)
        for (int y = 0; y < SCENE_EDGE; y++)
            for (int z = 0; z < SCENE_EDGE; z++) {
                const int label = scene_class(x, y, z, ball);

                if (label < 0)
                    continue;
                if (coords) {
                    coords[3 * n] = x, coords[3 * n + 1] = y, coords[3 * n + 2] = z;
                    features[2 * n] = (float)z / SCENE_EDGE;
                    features[2 * n + 1] = (float)(scene_random(&state) % 1000) / 1000;
                    labels[n] = label;
                }
                n++;
            }
    return n;
}

/* What sp_data_create_source calls. */
static inline int scene_read(void *arg, int64_t i, int32_t *coords, float *features,
                             int32_t *labels)
{
    (void)arg;
    scene_sample(i, coords, features, labels);
    return 0;
}

static inline sp_data_about scene_about(void)
{
    static const char *const features[] = {"height", "noise"};
    static const char *const classes[] = {"floor", "wall", "ball"};
    static const double mean[] = {0.2, 0.5}, std[] = {0.3, 0.29};
    sp_data_about about;

    about.voxel_size = 0.05;
    about.n_features = SCENE_FEATURES;
    about.n_classes = SCENE_CLASSES;
    about.feature_names = features;
    about.class_names = classes;
    about.feature_mean = mean;
    about.feature_std = std;
    return about;
}

/* Fills sizes [n] with the voxels of samples first, first + 1, ... */
static inline void scene_sizes(int64_t first, int64_t n, int64_t *sizes)
{
    for (int64_t i = 0; i < n; i++)
        sizes[i] = scene_sample(first + i, NULL, NULL, NULL);
}

#endif
