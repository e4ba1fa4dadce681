/* Pasted objects keep their shape, their height above the ground and, about a sensor,
 * their distance; they take free places only, and their features go with them. What is
 * drawn is a pure function of seed, epoch and sample, of all classes alike. */
#include "fixtures/test.h"

#include <stdlib.h>

#include "data/sp_paste_internal.h"

enum { EDGE = 40, N = EDGE * EDGE, ROOM = 400, C = 4, OBJECTS = 3, CUBE = 27 };

static int32_t coords[3 * (N + ROOM)], labels[N + ROOM];
static uint8_t subvoxel[3 * (N + ROOM)];
static float features[C * (N + ROOM)];
static sp_sample sample;
static int32_t object_coords[OBJECTS][3 * CUBE], object_labels[OBJECTS][CUBE];
static uint8_t object_subvoxel[OBJECTS][3 * CUBE];
static float object_features[OBJECTS][C * CUBE];
static sp_sample object[OBJECTS];
static int first[] = {0, 1, 3}, member[] = {0, 1, 2};
static sp_bank bank;
static sp_config config;
static const double voxel = 0.5;
/* x, y and z, and a number of the row */
static const sp_vectors vectors = {
    .n = 1,
    .at = {{.x = 0, .y = 1, .z = 2, .divisor = {1, 1, 1}, .is_position = true}},
    .lone = -1};

BEFORE_ALL(create)
{
    OK(sp_config_read(&config, NULL, 0, NULL));
    free(config.augment.paste); /* tests have a path of their own */
    config.augment.paste = NULL;
}

static void set_positions(const sp_sample *s, int64_t i)
{
    for (int k = 0; k < 3; k++) {
        const double inside = s->subvoxel ? (s->subvoxel[3 * i + k] + 0.5) / 256 : 0.5;

        s->features[C * i + k] =
            (float)(s->origin[k] + voxel * (s->coords[3 * i + k] + inside));
    }
}

/* A plane in z = 7, about its middle; objects of 3 x 3 x 3 voxels, the last one in the
 * air, 8 m from the origin. */
static void fill(bool has_subvoxel, double origin)
{
    sample = (sp_sample){.id = 5,
                         .n = N,
                         .coords = coords,
                         .labels = labels,
                         .features = features,
                         .subvoxel = has_subvoxel ? subvoxel : NULL,
                         .origin = {origin, origin, 3}};
    for (int i = 0; i < N; i++) {
        const int32_t at[3] = {i % EDGE - EDGE / 2, i / EDGE - EDGE / 2, 7};

        memcpy(coords + 3 * i, at, sizeof at);
        memset(subvoxel + 3 * i, 128, 3);
        labels[i] = 0;
        set_positions(&sample, i);
        features[C * i + 3] = -1;
    }
    for (int o = 0; o < OBJECTS; o++) {
        object[o] = (sp_sample){.n = CUBE,
                                .coords = object_coords[o],
                                .labels = object_labels[o],
                                .features = object_features[o],
                                .subvoxel = has_subvoxel ? object_subvoxel[o] : NULL,
                                .origin = {6, -4, 10 + o}};
        for (int i = 0; i < CUBE; i++) {
            const int32_t at[3] = {i % 3 - 1, i / 3 % 3 - 1,
                                   i / 9 + 1 + (o == 2 ? 20 : 0)};

            memcpy(object_coords[o] + 3 * i, at, sizeof at);
            for (int k = 0; k < 3; k++)
                object_subvoxel[o][3 * i + k] = (uint8_t)(37 * i + 11 * k);
            object_labels[o][i] = o ? 2 : 1;
            set_positions(&object[o], i);
            object_features[o][C * i + 3] = (float)(100 * o + i);
        }
    }
    bank = (sp_bank){.set = {.voxel_size = voxel, .n_samples = OBJECTS},
                     .n_columns = C,
                     .object = object,
                     .n_classes = 2,
                     .first = first,
                     .member = member};
}

static void begin(void)
{
    static char path[] = "bank.h5";

    config.augment.paste = path;
    config.augment.paste_p = 1;
    config.augment.paste_count = 1;
    config.augment.paste_voxels = ROOM;
    fill(true, 0);
}

static void paste(uint64_t epoch)
{
    sp_paste_apply(&config, &bank, &vectors, epoch, &sample);
}

/* The object that rows from `at` on are. */
static int object_at(int64_t at)
{
    return (int)features[C * at + 3] / 100;
}

/* The position of a row in metres. */
static double place(const sp_sample *s, int64_t i, int k)
{
    const double inside = s->subvoxel ? (s->subvoxel[3 * i + k] + 0.5) / 256 : 0.5;

    return s->origin[k] + voxel * (s->coords[3 * i + k] + inside);
}

/* Checks the rows of a pasted object, of which the first is row `at`. */
static void check_object(int64_t at)
{
    const sp_sample *o = &object[object_at(at)];

    for (int i = 0; i < CUBE; i++) {
        assert_true(features[C * (at + i) + 3] == o->features[C * i + 3]);
        assert_int_equal(labels[at + i], o->labels[i]);
        /* the plane is the ground, in voxel 7 */
        assert_int_equal(coords[3 * (at + i) + 2], o->coords[3 * i + 2] + 7);
        for (int k = 0; k < 3; k++)
            assert_true(fabs(place(&sample, at + i, k) - features[C * (at + i) + k]) <
                        0.005);
        for (int j = 0; j < i; j++) {
            double is = 0, was = 0;

            for (int k = 0; k < 3; k++) {
                is += pow(place(&sample, at + i, k) - place(&sample, at + j, k), 2);
                was += pow(place(o, i, k) - place(o, j, k), 2);
            }
            assert_true(fabs(sqrt(is) - sqrt(was)) < 0.01);
        }
    }
}

TEST_AFTER(begin, objects_keep_shape_height_and_distance)
{
    double angles = 0;

    for (int e = 0; e < 40; e++) {
        double x = 0, y = 0;

        fill(true, 0);
        paste((uint64_t)e);
        assert_int_equal(sample.n, N + CUBE);
        check_object(N);
        for (int i = 0; i < CUBE; i++) {
            x += place(&sample, N + i, 0) / CUBE;
            y += place(&sample, N + i, 1) / CUBE;
        }
        /* its middle was 7.2 m from the sensor, and comes to a whole voxel */
        assert_true(fabs(hypot(x, y) - hypot(6.25, -3.75)) < 1);
        angles += atan2(y, x) > 0;
    }
    assert_true(angles > 8 && angles < 32);
}

TEST_AFTER(begin, without_a_sensor_objects_lie_anywhere)
{
    int quarter[4] = {0};

    for (int e = 0; e < 200; e++) {
        fill(e % 2, 1000);
        paste((uint64_t)e);
        if (sample.n == N) /* no place was free, over the edge */
            continue;
        check_object(N);
        quarter[2 * (coords[3 * N] > 0) + (coords[3 * N + 1] > 0)]++;
    }
    for (int k = 0; k < 4; k++)
        assert_true(quarter[k] > 25);
}

static bool is_over_edge(int64_t at)
{
    for (int i = 0; i < CUBE; i++)
        if (coords[3 * (at + i)] < -EDGE / 2 || coords[3 * (at + i)] >= EDGE / 2)
            return true;
    return false;
}

TEST_AFTER(begin, places_are_free)
{
    config.augment.paste_count = 12;
    for (int e = 0; e < 30; e++) {
        fill(true, 1000);
        paste((uint64_t)e);
        assert_true(sample.n <= N + ROOM && (sample.n - N) % CUBE == 0);
        assert_true(sample.n > N + 4 * CUBE);
        for (int64_t at = N; at < sample.n; at += CUBE)
            check_object(at);
        for (int64_t i = N; i < sample.n; i++)
            for (int64_t j = N; j < i - i % CUBE; j++)
                if ((i - N) / CUBE != (j - N) / CUBE)
                    assert_memory_not_equal(coords + 3 * i, coords + 3 * j, 12);
    }
    /* Walls above the ground leave only the air, and the edge of the plane. */
    for (int e = 0; e < 20; e++) {
        fill(true, 1000);
        for (int i = 0; i < N; i += 2)
            coords[3 * i + 2] = 9;
        paste((uint64_t)e);
        for (int64_t at = N; at < sample.n; at += CUBE)
            assert_true(object_at(at) == 2 || is_over_edge(at));
    }
}

TEST_AFTER(begin, classes_are_drawn_alike)
{
    int n[OBJECTS] = {0};

    for (int e = 0; e < 1000; e++) {
        fill(true, 0);
        sample.id = e % 10;
        paste((uint64_t)e / 10);
        assert_int_equal(sample.n, N + CUBE);
        n[object_at(N)]++;
    }
    /* five standard deviations; the second class has two objects */
    assert_true(abs(n[0] - 500) < 80);
    assert_true(abs(n[1] - 250) < 69 && abs(n[2] - 250) < 69);
}

TEST_AFTER(begin, draws_have_a_probability_and_a_bound)
{
    int n = 0;

    config.augment.paste_p = 0.3;
    for (int e = 0; e < 1000; e++) {
        fill(true, 0);
        paste((uint64_t)e);
        n += sample.n > N;
    }
    assert_true(abs(n - 300) < 73);
    config.augment.paste_p = 1;
    config.augment.paste_count = 10;
    config.augment.paste_voxels = 2 * CUBE + 5;
    assert_int_equal(sp_paste_most(&config), 2 * CUBE + 5);
    fill(true, 0);
    paste(3);
    assert_int_equal(sample.n, N + 2 * CUBE);
    config.augment.paste_voxels = CUBE - 1;
    fill(true, 0);
    paste(3);
    assert_int_equal(sample.n, N);
    sample.n = 0;
    paste(3);
    assert_int_equal(sample.n, 0);
    config.augment.paste_p = 0;
    assert_int_equal(sp_paste_most(&config), 0);
}

/* The same draws again, and others for other samples and epochs. */
TEST_AFTER(begin, draws_are_keyed)
{
    static int32_t before[3 * CUBE];

    paste(4);
    memcpy(before, coords + 3 * N, sizeof before);
    fill(true, 0);
    paste(4);
    assert_memory_equal(before, coords + 3 * N, sizeof before);
    fill(true, 0);
    paste(5);
    assert_memory_not_equal(before, coords + 3 * N, sizeof before);
    fill(true, 0);
    sample.id = 6;
    paste(4);
    assert_memory_not_equal(before, coords + 3 * N, sizeof before);
}
