/* Colours change as their published definitions say, in the order contrast, shift,
 * jitter, drop, and as often; other columns stay. Columns and their scale are found by
 * names and means, or refused. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "data/sp_color.h"

enum { N = 3000, C = 5 };

static char *names[C] = {"intensity", "red", "green", "blue", "height"};
static double means[C] = {30, 90, 100, 110, 4};
static const int columns[C] = {0, 1, 2, 3, 4};
static sp_shard shard = {.path = "a.h5"};
static sp_config config;
static sp_dataset set;
static sp_colors colors;
static float before[C * N], after[C * N];

BEFORE_ALL(create)
{
    OK(sp_config_read(&config, NULL, 0, NULL));
}

static void begin(void)
{
    sp_rng rng = sp_rng_open(3, SP_RNG_SCENE, 0, 0);

    set = (sp_dataset){.n_shards = 1,
                       .shard = &shard,
                       .n_features = C,
                       .feature_name = names,
                       .feature_mean = means};
    config.augment.color_contrast = config.augment.color_blend = 0;
    config.augment.color_shift = config.augment.color_jitter = 0;
    config.augment.color_drop = config.augment.color_max = 0;
    config.augment.color_shift_p = config.augment.color_jitter_p = 0.95;
    config.augment.color_columns = (sp_strings){0, NULL};
    colors = (sp_colors){.n = 3, .column = {1, 2, 3}, .white = 255};
    for (int i = 0; i < N * C; i++)
        before[i] = 40 + 150 * sp_rng_to_unit(sp_rng_u32(&rng));
    memcpy(after, before, sizeof after);
}

static void change(const sp_color *color)
{
    memcpy(after, before, sizeof after);
    sp_color_change(color, &colors, after, N, C);
    for (int i = 0; i < N; i++) {
        assert_true(after[C * i] == before[C * i]);
        assert_true(after[C * i + 4] == before[C * i + 4]);
    }
}

static bool near(double a, double b, double by)
{
    return fabs(a - b) <= by;
}

TEST_AFTER(begin, contrast_is_stretched_and_blended)
{
    for (int k = 1; k <= 3; k++) {
        float lo = 1e9f, hi = -1e9f;

        for (int i = 0; i < N; i++) {
            lo = fminf(lo, before[C * i + k]);
            hi = fmaxf(hi, before[C * i + k]);
        }
        change(&(sp_color){.blend = 0.3});
        for (int i = 0; i < N; i++) {
            const double x = before[C * i + k];

            assert_true(near(after[C * i + k],
                             0.7 * x + 0.3 * 255 * (x - lo) / ((double)hi - lo), 1e-4));
        }
    }
    for (int i = 0; i < N; i++)
        before[C * i + 2] = 77;
    change(&(sp_color){.blend = 1});
    assert_true(after[2] == 77 && after[C + 2] == 77);
    sp_color_change(&(sp_color){.blend = 1}, &colors, after, 0, C);
}

TEST_AFTER(begin, shifts_are_clipped)
{
    change(&(sp_color){.is_shifted = true, .shift = {0.4f, -0.5f, 0}});
    for (int i = 0; i < N; i++) {
        assert_true(near(after[C * i + 1], fmin(255, before[C * i + 1] + 102.0), 1e-4));
        assert_true(near(after[C * i + 2], fmax(0, before[C * i + 2] - 127.5), 1e-4));
        assert_true(after[C * i + 3] == before[C * i + 3]);
    }
}

TEST_AFTER(begin, jitter_is_normal)
{
    double sum = 0, squares = 0, product = 0;
    int within = 0;

    for (int i = 0; i < C * N; i++)
        before[i] = 128;
    change(&(sp_color){.jitter = 0.05, .seed = 4});
    for (int i = 0; i < N; i++)
        for (int k = 1; k <= 3; k++) {
            const double d = (after[C * i + k] - 128) / (0.05 * 255);

            sum += d;
            squares += d * d;
            within += fabs(d) < 1;
            product += d * (after[C * i + 1 + k % 3] - 128) / (0.05 * 255);
        }
    /* five standard deviations of 9,000 normal numbers */
    assert_true(near(sum / (3 * N), 0, 0.053));
    assert_true(near(squares / (3 * N), 1, 0.075));
    assert_true(near(within / (3.0 * N), 0.6827, 0.025));
    assert_true(near(product / (3 * N), 0, 0.053));
}

TEST_AFTER(begin, dropped_colours_are_0)
{
    change(&(sp_color){.is_dropped = true, .blend = 1, .jitter = 1});
    for (int i = 0; i < N; i++)
        assert_true(after[C * i + 1] == 0 && after[C * i + 2] == 0 &&
                    after[C * i + 3] == 0);
}

/* A share of the scale is the same for colours up to 1. */
TEST_AFTER(begin, scales_are_equivalent)
{
    const sp_color color = {.blend = 0.4,
                            .is_shifted = true,
                            .shift = {0.1f, -0.2f, 0.3f},
                            .jitter = 0.05,
                            .seed = 8};
    static float bytes[C * N];

    change(&color);
    memcpy(bytes, after, sizeof bytes);
    for (int i = 0; i < C * N; i++)
        before[i] /= 255;
    colors.white = 1;
    change(&color);
    for (int i = 0; i < N; i++)
        for (int k = 1; k <= 3; k++)
            assert_true(near(255 * after[C * i + k], bytes[C * i + k], 1e-3));
}

TEST_AFTER(begin, draws_are_as_often_and_as_large_as_asked)
{
    enum { DRAWS = 6000 };
    int stretched = 0, shifted = 0, noisy = 0, dropped = 0, upper = 0;
    double blend = 0, shift = 0, squares = 0;

    config.augment.color_contrast = 0.2;
    config.augment.color_shift = 0.05;
    config.augment.color_jitter = 0.07;
    config.augment.color_jitter_p = 0.9;
    config.augment.color_drop = 0.3;
    for (int e = 0; e < DRAWS; e++) {
        const sp_color c = sp_color_draw(&config, 2, (uint64_t)e / 6, e % 6);

        stretched += c.blend > 0;
        blend += c.blend;
        upper += c.blend > 0.5;
        shifted += c.is_shifted;
        noisy += c.jitter == 0.07;
        dropped += c.is_dropped;
        assert_true(c.blend < 1 && (c.jitter == 0 || c.jitter == 0.07));
        for (int k = 0; k < 3; k++) {
            assert_true(c.shift[k] >= -0.05f && c.shift[k] < 0.05f);
            shift += c.shift[k] / 0.05;
            squares += c.shift[k] / 0.05 * c.shift[k] / 0.05;
        }
    }
    assert_true(abs(stretched - 1200) < 155 && abs(upper - 600) < 117);
    assert_true(near(blend / stretched, 0.5, 0.042));
    assert_true(abs(shifted - 5700) < 85 && abs(noisy - 5400) < 117);
    assert_true(abs(dropped - 1800) < 178);
    assert_true(near(shift / (3 * DRAWS), 0, 0.022));
    assert_true(near(squares / (3 * DRAWS), 1.0 / 3, 0.012));
    config.augment.color_blend = 0.25;
    for (int e = 0; e < 100; e++) {
        const sp_color c = sp_color_draw(&config, 2, (uint64_t)e, 0);

        assert_true(c.blend == 0 || c.blend == 0.25);
    }
}

/* ---- columns ---- */

TEST_AFTER(begin, colours_are_found_by_name_and_scale)
{
    char *short_names[C] = {"x", "B", "scalar_R", "g", "y"};
    char *wanted[] = {"height", "red"};
    const int some[] = {4, 3, 1};

    OK(sp_colors_find(&config, &set, columns, C, &colors));
    assert_int_equal(colors.n, 0);
    config.augment.color_drop = 0.1;
    OK(sp_colors_find(&config, &set, columns, C, &colors));
    assert_true(colors.n == 3 && colors.column[0] == 1 && colors.column[2] == 3);
    assert_true(colors.white == 255);
    OK(sp_colors_find(&config, &set, some, 3, &colors));
    assert_true(colors.n == 2 && colors.column[0] == 1 && colors.column[1] == 2);
    means[2] = 300;
    OK(sp_colors_find(&config, &set, columns, C, &colors));
    assert_true(colors.white == 65535);
    means[1] = 0.2, means[2] = 0.3, means[3] = 1;
    OK(sp_colors_find(&config, &set, columns, C, &colors));
    assert_true(colors.white == 1);
    means[1] = 90, means[2] = 100, means[3] = 110;
    config.augment.color_max = 100;
    OK(sp_colors_find(&config, &set, columns, C, &colors));
    assert_true(colors.white == 100);
    config.augment.color_columns = (sp_strings){2, wanted};
    OK(sp_colors_find(&config, &set, columns, C, &colors));
    assert_true(colors.n == 2 && colors.column[0] == 4 && colors.column[1] == 1);
    config.augment.color_columns.n = 0;
    set.feature_name = short_names;
    OK(sp_colors_find(&config, &set, columns, C, &colors));
    assert_true(colors.n == 3 && colors.column[0] == 1);
}

TEST_AFTER(begin, data_without_colours_are_refused)
{
    char *wanted[] = {"rde"};

    config.augment.color_shift = 0.05;
    FAILS(sp_colors_find(&config, &set, columns, 1, &colors), SP_EUSAGE,
          "the columns in use, [\"intensity\"] of a.h5");
    config.augment.color_columns = (sp_strings){1, wanted};
    FAILS(sp_colors_find(&config, &set, columns, C, &colors), SP_EUSAGE,
          "augment.color_columns: \"rde\" is no column of a.h5");
    config.augment.color_columns.n = 0;
    set.feature_mean = NULL;
    FAILS(sp_colors_find(&config, &set, columns, C, &colors), SP_EUSAGE,
          "augment.color_max = 0: a.h5 has no feature_mean");
    config.augment.color_max = 255;
    OK(sp_colors_find(&config, &set, columns, C, &colors));
    config.augment.color_shift = 0;
}
