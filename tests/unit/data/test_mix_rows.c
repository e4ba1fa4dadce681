/* A mixed sample is what a plain reference makes of the two: rows exchanged by azimuth,
 * copies pasted at their angles with their vectors, clouds united, voxels that coincide
 * merged. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "compute/sp_backend.h"
#include "data/sp_mix.h"

enum { N = 500, C = 6, CLASSES = 4, PASTED = 2, MOST = 4 * N };

/* A sample, and the columns: x, y, z, nx, ny and a number of the row. */
typedef struct cloud {
    int32_t coords[3 * N], labels[N];
    float features[C * N];
    uint8_t subvoxel[3 * N];
    sp_sample sample;
} cloud;

/* A row as the reference has it. */
typedef struct row {
    double at[3]; /* in voxels of `own` */
    double f[C];
    int32_t label;
} row;

static cloud own, partner;
static sp_arena arena;
static sp_config config;
static sp_dataset set;
static const sp_mix united = {.kind = SP_MIX_3D, .seed = 1, .epoch = 2, .sample = 4};
static const bool is_pasted[CLASSES] = {[PASTED] = true};
static char *class_name[CLASSES] = {"ground", "tree", "car", "wire"};
static const sp_vectors vectors = {
    .n = 2,
    .at = {{.x = 0, .y = 1, .z = 2, .divisor = {1, 1, 1}, .is_position = true},
           {.x = 3, .y = 4, .z = -1, .divisor = {1, 2, 1}}},
    .lone = -1};
static sp_mixer mixer;
static sp_voxels v;
static row wanted[MOST];
static int n_wanted;

/* Distinct voxels about the origin of the scan, whose corner is `corner` metres off. */
static void fill(cloud *c, uint64_t seed, double corner)
{
    const double edge = set.voxel_size;
    sp_rng rng = sp_rng_open(seed, SP_RNG_SCENE, 0, 0);
    int32_t cell = 0;

    for (int i = 0; i < N; i++) {
        cell += 1 + (int32_t)(sp_rng_u32(&rng) % 3);
        c->coords[3 * i] = cell % 17;
        c->coords[3 * i + 1] = cell / 17 % 19;
        c->coords[3 * i + 2] = cell / (17 * 19);
        c->labels[i] = (int32_t)(sp_rng_u32(&rng) % (CLASSES + 1)) - 1;
        for (int k = 0; k < 3; k++) {
            c->subvoxel[3 * i + k] = (uint8_t)sp_rng_u32(&rng);
            c->features[C * i + k] =
                (float)(corner + edge * (c->coords[3 * i + k] +
                                         (c->subvoxel[3 * i + k] + 0.5) / 256));
        }
        c->features[C * i + 3] = sp_rng_to_unit(sp_rng_u32(&rng));
        c->features[C * i + 4] = sp_rng_to_unit(sp_rng_u32(&rng));
        c->features[C * i + 5] = (float)i;
    }
    c->sample = (sp_sample){.id = (int64_t)seed,
                            .n = N,
                            .coords = c->coords,
                            .labels = c->labels,
                            .features = c->features,
                            .subvoxel = c->subvoxel,
                            .origin = {corner, corner, corner}};
}

BEFORE_ALL(create)
{
    OK(sp_arena_create(&arena, (size_t)64 << 20, "test"));
    OK(sp_config_read(&config, NULL, 0, NULL));
}

/* Samples with the scan's origin in them, and no augmentation. */
static void begin(void)
{
    static sp_shard shard = {.path = "a.h5"};

    sp_arena_reset(&arena);
    set = (sp_dataset){.voxel_size = 0.5,
                       .n_classes = CLASSES,
                       .class_name = class_name,
                       .n_shards = 1,
                       .shard = &shard,
                       .n_samples = 20,
                       .has_subvoxel = true};
    config.augment.flip = config.augment.rotate_z = false;
    config.augment.scale.n = 0;
    config.augment.drop = config.augment.jitter = 0;
    fill(&own, 3, -4);
    fill(&partner, 7, -5);
    mixer = (sp_mixer){.config = &config,
                       .set = &set,
                       .is_pasted = is_pasted,
                       .vectors = &vectors,
                       .factor = 1,
                       .n_columns = C};
    n_wanted = 0;
}

static void mix_with(const sp_mix *mix)
{
    OK(sp_mix_voxelize(&mixer, mix, &own.sample, &partner.sample, &arena, &v));
}

/* ---- the reference ---- */

static void want(const cloud *c, int i, const double at[3], const double f[C])
{
    row *r = &wanted[n_wanted++];

    assert_true(n_wanted <= MOST);
    memcpy(r->at, at, sizeof r->at);
    memcpy(r->f, f, sizeof r->f);
    r->label = c->labels[i];
}

/* The position of a row in metres of its scan. */
static void scan_of(const cloud *c, int i, double at[3])
{
    for (int k = 0; k < 3; k++) {
        const double inside =
            c->sample.subvoxel ? (c->subvoxel[3 * i + k] + 0.5) / 256 : 0.5;

        at[k] = c->sample.origin[k] + set.voxel_size * (c->coords[3 * i + k] + inside);
    }
}

/* Wants a row turned by `angle` about the scan's origin. */
static void want_turned(const cloud *c, int i, double angle)
{
    const double cosine = cos(angle), sine = sin(angle);
    double m[3], at[3], f[C];

    scan_of(c, i, m);
    for (int k = 0; k < C; k++)
        f[k] = c->features[C * i + k];
    at[0] = (cosine * m[0] - sine * m[1] - own.sample.origin[0]) / set.voxel_size;
    at[1] = (sine * m[0] + cosine * m[1] - own.sample.origin[1]) / set.voxel_size;
    at[2] = (m[2] - own.sample.origin[2]) / set.voxel_size;
    f[0] = cosine * c->features[C * i] - sine * c->features[C * i + 1];
    f[1] = sine * c->features[C * i] + cosine * c->features[C * i + 1];
    /* The y column of this vector has twice the divisor of the x column. */
    f[3] = cosine * c->features[C * i + 3] - sine * 2 * c->features[C * i + 4];
    f[4] = (sine * c->features[C * i + 3] + cosine * 2 * c->features[C * i + 4]) / 2;
    want(c, i, at, f);
}

/* True if the azimuth of the row, clockwise as the authors measure it, is less than
 * half a turn from `begin` on. */
static bool is_between(const cloud *c, int i, double begin)
{
    double m[3], yaw;

    scan_of(c, i, m);
    yaw = -atan2(m[1], m[0]);
    return yaw > begin && yaw < begin + acos(-1);
}

static void want_scans(const sp_mix *mix, bool with_copies)
{
    for (int i = 0; i < N; i++)
        if (!mix->is_swapped || !is_between(&own, i, mix->begin))
            want_turned(&own, i, 0);
    for (int i = 0; i < N; i++)
        if (mix->is_swapped && is_between(&partner, i, mix->begin))
            want_turned(&partner, i, 0);
    for (int i = 0; i < N; i++)
        if (partner.labels[i] == PASTED &&
            !(mix->is_swapped && is_between(&partner, i, mix->begin)))
            want_turned(&partner, i, 0);
    for (int k = 0; with_copies && k < 2; k++)
        for (int i = 0; i < N; i++)
            if (partner.labels[i] == PASTED)
                want_turned(&partner, i, mix->turn[k]);
}

/* True if the wanted row lies in the voxel. Within 1/256 of a border, where a turned
 * position is rounded, either voxel is right. */
static bool is_at(const row *r, const int32_t *coords)
{
    for (int k = 0; k < 3; k++)
        if ((int32_t)floor(r->at[k]) != coords[k])
            return false;
    return true;
}

/* Checks that the voxels are the wanted rows merged: found by comparing all. */
static void check_voxels(void)
{
    int n_found = 0;

    for (int32_t i = 0; i < v.n; i++) {
        int votes[CLASSES] = {0}, best = 0, n = 0;
        int32_t label = SP_IGNORE;
        double sum[C] = {0};

        for (int j = 0; j < n_wanted; j++) {
            if (!is_at(&wanted[j], v.coords + 3 * i))
                continue;
            n++;
            for (int k = 0; k < C; k++)
                sum[k] += wanted[j].f[k];
            if (wanted[j].label >= 0)
                votes[wanted[j].label]++;
        }
        assert_true(n > 0);
        n_found += n;
        for (int k = 0; k < C; k++)
            assert_true(fabs(v.features[C * i + k] - sum[k] / n) < 1e-4);
        for (int k = 0; k < CLASSES; k++)
            if (votes[k] && votes[k] >= best) {
                label = votes[k] > best ? k : SP_IGNORE;
                best = votes[k];
            }
        assert_int_equal(v.labels[i], label);
        for (int32_t j = 0; j < i; j++)
            assert_memory_not_equal(v.coords + 3 * i, v.coords + 3 * j, 12);
    }
    assert_int_equal(n_found, n_wanted);
    assert_null(v.row_of);
}

/* ---- polarmix ---- */

static sp_mix scans(bool is_swapped, double begin, double first, double second)
{
    return (sp_mix){.kind = SP_MIX_POLAR,
                    .partner = 1,
                    .seed = 1,
                    .is_swapped = is_swapped,
                    .begin = begin,
                    .turn = {first, second}};
}

TEST_AFTER(begin, half_of_the_azimuths_are_the_partners)
{
    mixer.is_pasted = NULL;
    for (int i = 1; i <= 8; i++) {
        const sp_mix mix = scans(true, -0.39 * i, 0, 0);

        sp_arena_reset(&arena);
        n_wanted = 0;
        for (int j = 0; j < N; j++)
            if (!is_between(&own, j, mix.begin))
                want_turned(&own, j, 0);
        for (int j = 0; j < N; j++)
            if (is_between(&partner, j, mix.begin))
                want_turned(&partner, j, 0);
        assert_true(n_wanted > N / 2 && n_wanted < 3 * N / 2);
        mix_with(&mix);
        check_voxels();
    }
}

TEST_AFTER(begin, objects_are_pasted_at_their_angles)
{
    for (int i = 0; i < 8; i++) {
        const sp_mix mix =
            scans(i & 1, -0.7 - 0.25 * i, 0.11 + 0.22 * i, 2.2 + 0.2 * i);

        sp_arena_reset(&arena);
        n_wanted = 0;
        mix_with(&mix);
        want_scans(&mix, true);
        assert_true(n_wanted <= 2 * N);
        check_voxels();
    }
}

/* Without subvoxel positions copies turn by quarters, and rows stay whole. */
TEST_AFTER(begin, objects_turn_by_quarters_on_the_grid)
{
    const double quarter = acos(0);

    own.sample.subvoxel = partner.sample.subvoxel = NULL;
    set.has_subvoxel = false;
    for (int i = 0; i < 3; i++) {
        const sp_mix mix = scans(i == 1, -1.3, quarter * (i & 1), quarter * (1 + i));

        sp_arena_reset(&arena);
        n_wanted = 0;
        mix_with(&mix);
        want_scans(&mix, true);
        check_voxels();
    }
}

/* Copies do not fit where all of the partner is pasted: the mixed sample has at most as
 * many rows as both have. */
TEST_AFTER(begin, copies_that_do_not_fit_are_left_out)
{
    const sp_mix mix = scans(false, -1, 1, 2);

    for (int i = 0; i < N; i++)
        partner.labels[i] = PASTED;
    mix_with(&mix);
    want_scans(&mix, false);
    assert_int_equal(n_wanted, 2 * N);
    check_voxels();
}

/* A mixture is augmented as one sample: a quarter turn moves both alike. */
TEST_AFTER(begin, a_mixture_is_augmented_as_one)
{
    const sp_mix mix = scans(true, -1.1, 0.5, 2.5);
    int32_t *plain, n;

    mix_with(&mix);
    n = v.n;
    plain = v.coords;
    config.augment.flip = true; /* without turns and scales: exact on the grid */
    mix_with(&mix);
    assert_int_equal(v.n, n);
    for (int i = 1; i < n; i++)
        for (int k = 0; k < 3; k++)
            assert_int_equal(labs(v.coords[3 * i + k] - v.coords[k]),
                             labs(plain[3 * i + k] - plain[k]));
}

/* A copy lies where its position was turned to, not only in the same voxel: scaling by
 * 64 shows it to 1/256. */
TEST_AFTER(begin, copies_keep_their_place_within_the_voxel)
{
    const sp_mix mix = scans(false, -1, 0.77, 3.3);

    own.sample.n = 1;
    partner.sample.n = 3;
    for (int i = 0; i < 3; i++)
        partner.labels[i] = i ? 0 : PASTED;
    /* The origin of both scans is within their boxes. */
    for (int k = 0; k < 3; k++)
        own.sample.origin[k] = partner.sample.origin[k] = -0.25;
    memcpy(own.coords, (int32_t[]){0, 0, 0}, 12);
    memcpy(partner.coords, (int32_t[]){9, 5, 2, 0, 0, 0, 1, 1, 1}, 36);
    mixer.vectors = NULL;
    config.augment.scale.at[0] = config.augment.scale.at[1] = 64;
    config.augment.scale.n = 2;
    mix_with(&mix);
    want_turned(&own, 0, 0);
    want_turned(&partner, 0, 0);
    want_turned(&partner, 0, mix.turn[0]);
    want_turned(&partner, 0, mix.turn[1]);
    assert_int_equal(v.n, n_wanted);
    for (int i = 1; i < n_wanted; i++)
        for (int k = 0; k < 3; k++)
            assert_true(fabs(v.coords[3 * i + k] - v.coords[k] -
                             64 * (wanted[i].at[k] - wanted[0].at[k])) < 1.3);
    config.augment.scale.n = 0;
}

/* Where the scan's origin is far, azimuths are about the middles of the boxes, and
 * positions turn about the middle of their values. */
TEST_AFTER(begin, far_scans_are_mixed_about_their_middles)
{
    const sp_mix mix = scans(false, -1, acos(-1), acos(-1));
    float lo = partner.features[0], hi = lo;
    int n_found = 0;

    for (int k = 0; k < 2; k++)
        own.sample.origin[k] = partner.sample.origin[k] = 5e5;
    for (int i = 0; i < N; i++) {
        partner.labels[i] = i ? 0 : PASTED;
        lo = fminf(lo, partner.features[C * i]);
        hi = fmaxf(hi, partner.features[C * i]);
    }
    memcpy(partner.coords, (int32_t[]){0, 1, 40}, 12); /* above all others */
    mix_with(&mix);
    for (int32_t i = 0; i < v.n; i++) {
        if (v.coords[3 * i + 2] != 40)
            continue;
        n_found++;
        if (v.coords[3 * i] == 0)
            continue;
        assert_int_equal(v.coords[3 * i], 16); /* half a turn about (8.5, 9.5) */
        assert_int_equal(v.coords[3 * i + 1], 17);
        assert_int_equal(v.labels[i], PASTED);
        assert_true(fabs(v.features[C * i] - (lo + hi - partner.features[0])) < 1e-5);
    }
    assert_int_equal(n_found, 2);
}

/* ---- mix3d ---- */

/* Each cloud is augmented with draws of its own, and boxes are laid middle on middle,
 * lowest on lowest. */
TEST_AFTER(begin, clouds_are_united)
{
    double f[C], at[3];

    partner.sample.coords = partner.coords;
    for (int i = 0; i < 3 * N; i++)
        partner.coords[i] += i % 3 == 0 ? 1000 : i % 3 == 1 ? -400 : 7;
    mix_with(&united);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < N; i++) {
            const cloud *c = s ? &partner : &own;

            for (int k = 0; k < C; k++)
                f[k] = c->features[C * i + k];
            at[0] = c->coords[3 * i] - 1000 * s + 0.5;
            at[1] = c->coords[3 * i + 1] + 400 * s + 0.5;
            at[2] = c->coords[3 * i + 2] - 7 * s + 0.5;
            want(c, i, at, f);
        }
    assert_true(v.n < 2 * N && v.n > N); /* some coincide */
    check_voxels();
}

TEST_AFTER(begin, clouds_have_draws_of_their_own)
{
    int n_own = 0, n_partner = 0, n_both = 0;

    /* Of rows at the same places, dropped by half, labels tell whose were dropped. */
    memcpy(partner.coords, own.coords, sizeof own.coords);
    for (int i = 0; i < N; i++) {
        own.labels[i] = 0;
        partner.labels[i] = 1;
    }
    config.augment.drop = 0.5;
    mix_with(&united);
    for (int i = 0; i < v.n; i++) {
        n_own += v.labels[i] == 0;
        n_partner += v.labels[i] == 1;
        n_both += v.labels[i] == SP_IGNORE;
    }
    assert_true(n_own > N / 8 && n_partner > N / 8 && n_both > N / 8);
}

/* A partner at the end of the coordinate range stays in it. */
TEST_AFTER(begin, clouds_stay_in_range)
{
    for (int i = 0; i < N; i++) {
        own.coords[3 * i] += SP_COORD_LIMIT - 17;
        partner.coords[3 * i] *= 3000;
    }
    mix_with(&united);
    for (int i = 0; i < v.n; i++)
        assert_true(v.coords[3 * i] < SP_COORD_LIMIT &&
                    v.coords[3 * i] >= -SP_COORD_LIMIT);
    assert_true(v.n > N);
}

/* ---- lasermix ---- */

/* The band of a row, from above, by angles in degrees. */
static int band(const cloud *c, int i, int n_bands, double low, double high)
{
    double at[3], degrees;
    int b;

    scan_of(c, i, at);
    degrees = atan2(at[2] + 3.2, hypot(at[0] - 0.5, at[1])) * 180 / acos(-1);
    for (b = 0; b < n_bands - 1; b++)
        if (degrees > high - (b + 1) * (high - low) / n_bands)
            break;
    return b;
}

/* Odd bands are the partner's. The sensor is at (0.5, 0, -3.2). */
TEST_AFTER(begin, every_second_band_of_inclinations_is_exchanged)
{
    static double bounds[] = {-25, 10}, sensor[] = {0.5, 0, -3.2};
    const sp_doubles usual = config.augment.mix_sensor;
    const sp_doubles usual_bounds = config.augment.mix_inclination;
    int exchanged;

    config.augment.mix_inclination = (sp_doubles){2, bounds};
    config.augment.mix_sensor = (sp_doubles){3, sensor};
    for (int n = 2; n <= 6; n++) {
        const sp_mix mix = {.kind = SP_MIX_LASER, .n_bands = n};

        begin();
        for (int i = 0; i < N; i++)
            if (band(&own, i, n, -25, 10) % 2 == 0)
                want_turned(&own, i, 0);
        exchanged = n_wanted;
        for (int i = 0; i < N; i++)
            if (band(&partner, i, n, -25, 10) % 2 == 1)
                want_turned(&partner, i, 0);
        exchanged = n_wanted - exchanged;
        assert_true(exchanged > 20 && exchanged < N - 20);
        mix_with(&mix);
        check_voxels();
    }
    config.augment.mix_sensor = usual;
    config.augment.mix_inclination = usual_bounds;
}

TEST_AFTER(begin, scans_without_a_sensor_are_refused)
{
    const sp_mix mix = {.kind = SP_MIX_LASER, .n_bands = 3};

    partner.sample.origin[0] = 500000;
    FAILS(sp_mix_voxelize(&mixer, &mix, &own.sample, &partner.sample, &arena, &v),
          SP_EUSAGE,
          "coordinates about their sensor (augment.mix_sensor): sample 7 has "
          "x from 500000.0 to 500008.5");
}

/* ---- draws ---- */

TEST_AFTER(begin, draws_are_of_all_samples_and_ranges)
{
    enum { S = 7, EPOCHS = 600 };
    int n_mixed = 0, n_swapped = 0, partners[S][S] = {{0}};

    config.augment.mix = SP_MIX_POLAR;
    config.augment.mix_p = 0.75;
    for (int e = 0; e < EPOCHS; e++)
        for (int s = 0; s < S; s++) {
            const sp_mix m = sp_mix_draw(&config, true, S, (uint64_t)e, s);
            const sp_mix always = sp_mix_draw_always(&config, true, S, (uint64_t)e, s);

            assert_true(always.partner >= 0 && always.partner < S);
            assert_true(always.begin >= -acos(-1) && always.begin < 0);
            assert_true(always.turn[0] >= 0 && always.turn[0] < 2.0944);
            assert_true(always.turn[1] >= 2.0943 && always.turn[1] < 4.1888);
            assert_true(m.partner < 0 ? m.kind == SP_MIX_NONE
                                      : m.partner == always.partner);
            partners[s][always.partner]++;
            n_mixed += m.partner >= 0;
            n_swapped += always.is_swapped;
        }
    for (int s = 0; s < S; s++)
        for (int p = 0; p < S; p++)
            assert_true(p == s ? partners[s][p] == 0 : partners[s][p] > EPOCHS / 12);
    assert_true(abs(n_mixed - EPOCHS * S * 3 / 4) < 150);
    assert_true(abs(n_swapped - EPOCHS * S / 2) < 150);
    assert_int_equal(sp_mix_draw_always(&config, true, 1, 0, 0).partner, 0);
    config.augment.mix_p = 1;
    assert_int_equal(sp_mix_draw(&config, true, 1, 0, 0).partner, 0);
    config.augment.mix_p = 0;
    assert_int_equal(sp_mix_draw(&config, true, S, 0, 0).partner, -1);
    for (int e = 0; e < 50; e++)
        for (int k = 0; k < 2; k++) {
            const double turns =
                sp_mix_draw_always(&config, false, S, (uint64_t)e, 0).turn[k] / acos(0);
            assert_true(fabs(turns - nearbyint(turns)) < 1e-12);
        }
    config.augment.mix = SP_MIX_NONE;
    config.augment.mix_p = 0.8;
    assert_int_equal(sp_mix_draw(&config, true, S, 0, 0).partner, -1);
}

TEST_AFTER(begin, bands_and_kinds_are_drawn_evenly)
{
    enum { DRAWS = 8000 };
    double three[] = {3, 5, 6};
    const sp_doubles usual = config.augment.mix_bands;
    int n[7] = {0}, n_laser = 0;

    config.augment.mix = SP_MIX_LASERPOLAR;
    config.augment.mix_p = 1;
    config.augment.mix_bands = (sp_doubles){3, three};
    for (int e = 0; e < DRAWS; e++) {
        const sp_mix m = sp_mix_draw(&config, true, 8, (uint64_t)e / 8, e % 8);

        assert_true(m.kind == SP_MIX_LASER || m.kind == SP_MIX_POLAR);
        n_laser += m.kind == SP_MIX_LASER;
        n[m.n_bands]++;
    }
    /* five standard deviations */
    assert_true(abs(n_laser - DRAWS / 2) < 224);
    assert_int_equal(n[3] + n[5] + n[6], n_laser);
    for (int i = 0; i < 3; i++)
        assert_true(abs(n[(int)three[i]] - DRAWS / 6) < 167);
    config.augment.mix_bands = usual;
    config.augment.mix = SP_MIX_NONE;
}

TEST_AFTER(begin, classes_are_found_by_name_and_number)
{
    char *names[] = {"wire", "1"};
    bool *found;

    config.augment.mix = SP_MIX_POLAR;
    config.augment.mix_classes = (sp_strings){2, names};
    OK(sp_mix_classes(&config, &set, &found));
    assert_true(!found[0] && found[1] && !found[2] && found[3]);
    free(found);
    names[1] = "4";
    FAILS(sp_mix_classes(&config, &set, &found), SP_EDATA,
          "augment.mix_classes: \"4\" is no class of a.h5");
    assert_null(found);
    config.augment.mix = SP_MIX_3D;
    OK(sp_mix_classes(&config, &set, &found));
    assert_null(found);
    config.augment.mix = SP_MIX_NONE;
    config.augment.mix_classes = (sp_strings){0, NULL};
}
