/* Shards as spvox writes them, in chunks as other programs write them, with linked and
 * impossible parts. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/sp_backend.h"
#include "data/sp_index_file.h"
#include "fixtures/shard_fixture.h"
#include "torture/fuzz/fuzz.h"
#include "torture/fuzz/mutate_h5.h"
#include "torture/fuzz/recipe_checks.h"
#include "vox/vox.h"

static const char path[] = "shard.h5";
static const int64_t sizes[] = {30, 0, 20, 1};
enum { SAMPLES = 4 };

static blob stored[H5_N_STORES + 1];
static const blob *const good = &stored[H5_N_STORES];
static sp_dataset whole; /* the index of the good file */
static sp_sample samples[SAMPLES];
static blob beside; /* its index file */
static const sp_sample_request all = {.verify = true, .with_points = true};

/* ---- seeds ---- */

/* Gives the shard the time that its index file has. */
static void set_time(void)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

    mutate_check(utimensat(AT_FDCWD, path, times, 0) == 0, "no time of a file");
}

static void prepare_index(void)
{
    char *paths[] = {(char *)(uintptr_t)path};
    sp_indexed indexed;

    set_time();
    fuzz_must(sp_index_file_write(paths, 1, &indexed));
    beside = blob_read(SP_INDEX_FILE);
    unlink(SP_INDEX_FILE);
}

static void prepare(void)
{
    static const fixture f = {.n_samples = SAMPLES,
                              .voxels = sizes,
                              .has_subvoxel = true,
                              .has_points = true,
                              .has_cost = true,
                              .has_moments = true,
                              .has_recipe = true,
                              .has_blocks = true,
                              .seed = 3};

    fuzz_must(fixture_write(&f, path));
    fuzz_must(fixture_open(&whole, path));
    for (int i = 0; i < SAMPLES; i++)
        fuzz_must(sp_sample_read(&whole, i, &all, &samples[i]));
    prepare_index();
    h5_store_all(path, stored);
}

/* ---- reading ---- */

static void compare_sample(const sp_sample *got, const sp_sample *want)
{
    size_t n = (size_t)want->n;

    if (got->n != want->n)
        fuzz_fault("%lld voxels instead of %lld", (long long)got->n,
                   (long long)want->n);
    fuzz_same_bytes(got->coords, want->coords, 3 * n * sizeof *got->coords,
                    "coordinate");
    fuzz_same_bytes(got->features, want->features,
                    (size_t)whole.n_features * n * sizeof *got->features, "feature");
    fuzz_same_bytes(got->labels, want->labels, n * sizeof *got->labels, "label");
}

/* The file's own attributes and counts, which HDF5's checksums cover. */
static void compare_index(const sp_dataset *set)
{
    if (set->n_samples != SAMPLES || set->n_classes != whole.n_classes ||
        set->ignore_label != whole.ignore_label)
        fuzz_fault("another number of samples or classes, and nobody noticed");
    fuzz_same_bytes(&set->voxel_size, &whole.voxel_size, sizeof set->voxel_size,
                    "voxel size");
    fuzz_same_bytes(set->feature_mean, whole.feature_mean,
                    (size_t)whole.n_features * sizeof(double), "mean");
    fuzz_same_recipe(set->recipe, whole.recipe);
}

/* Numbers that are accepted must be fit to compute with: every reader relies on
 * these. */
static void check_sane_sample(const sp_dataset *set, const sp_sample *s)
{
    const int32_t edge = 1 << 19;

    for (int64_t i = 0; i < 3 * s->n; i++)
        if (s->coords[i] < -edge || s->coords[i] >= edge)
            fuzz_fault("coordinate %d was taken", s->coords[i]);
    for (int64_t i = 0; i < s->n; i++)
        if (s->labels[i] != SP_IGNORE &&
            (s->labels[i] < 0 || s->labels[i] >= set->n_classes))
            fuzz_fault("label %d was taken", s->labels[i]);
    for (int64_t i = 0; i < s->n * set->n_features; i++)
        if (!isfinite(s->features[i]))
            fuzz_fault("feature %g was taken", (double)s->features[i]);
    for (int64_t i = 0; i < s->n_points; i++)
        if ((int64_t)s->point_voxel[i] >= s->n)
            fuzz_fault("voxel %u of a point was taken", s->point_voxel[i]);
    for (int64_t i = 0; i < s->n_context; i++)
        if ((int64_t)s->context_voxel[i] >= s->n)
            fuzz_fault("voxel %u of a margin was taken", s->context_voxel[i]);
    for (int a = 0; a < 3; a++)
        if (!isfinite(s->origin[a]))
            fuzz_fault("origin %g was taken", s->origin[a]);
}

static void check_sane_index(const sp_dataset *set)
{
    if (!(set->voxel_size > 0) || !isfinite(set->voxel_size) || set->n_classes < 1)
        fuzz_fault("voxel size %g, %d classes: taken", set->voxel_size, set->n_classes);
    for (int c = 0; set->feature_mean && c < set->n_features; c++)
        if (!isfinite(set->feature_mean[c]) || !(set->feature_std[c] >= 0) ||
            !isfinite(set->feature_std[c]))
            fuzz_fault("mean %g, deviation %g: taken", set->feature_mean[c],
                       set->feature_std[c]);
    fuzz_sane_recipe(set->recipe);
    for (int64_t i = 0; i < set->n_samples; i++)
        if (sp_dataset_voxels(set, i) < 0 || sp_dataset_cost(set, i) < 0)
            fuzz_fault("a negative size was taken");
    for (int64_t i = 0; set->has_blocks && i < set->n_samples; i++)
        if (sp_dataset_context(set, i) < 0 || !sp_dataset_scan(set, i) ||
            !(set->block[i].margin >= 0) ||
            !(set->block[i].high[0] > set->block[i].low[0]) ||
            set->block[i].first > set->block[i].number ||
            set->block[i].last < set->block[i].number)
            fuzz_fault("a block that is none was taken");
}

typedef enum covered {
    NOTHING, /* any content may be right */
    SAMPLED, /* coordinates, features and labels are the good file's */
    ALL      /* the index, too */
} covered;

static bool use(covered c)
{
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};
    sp_sample_request request = all;
    sp_status rc = fixture_open(&set, path);

    if (rc == SP_OK)
        check_sane_index(&set);
    request.with_context = rc == SP_OK && set.has_blocks;
    for (int64_t i = 0; rc == SP_OK && i < set.n_samples; i++) {
        rc = sp_sample_read(&set, i, &request, &got);
        if (rc == SP_OK)
            check_sane_sample(&set, &got);
        if (rc == SP_OK && c != NOTHING && i < SAMPLES)
            compare_sample(&got, &samples[i]);
    }
    if (rc == SP_OK && c == ALL)
        compare_index(&set);
    return fuzz_is_ok(rc, path);
}

/* ---- mutants ---- */

static bool run_bytes(uint64_t *rng)
{
    fuzz_put_seed(path, *good, true, rng);
    return use(ALL);
}

static bool is_summed(const char *name)
{
    return strcmp(name, "/coords") == 0 || strcmp(name, "/features") == 0 ||
           strcmp(name, "/labels") == 0;
}

/* Changes bytes anywhere, or those of one chunk whose index stays right: then the
 * checksums of samples cover coordinates, features and labels. */
static bool run_chunked(uint64_t *rng)
{
    blob b = stored[mutate_below(rng, H5_N_STORES)];
    bool is_chunk = mutate_below(rng, 2);

    fuzz_put_seed(path, b, !is_chunk, rng);
    return use(is_chunk && is_summed(h5_damage_chunk(path, rng)) ? SAMPLED : NOTHING);
}

/* Changes values within a valid file: with checksums that fit, or with the old ones. */
static bool run_values(uint64_t *rng)
{
    size_t how = mutate_below(rng, H5_N_STORES + 1);
    bool is_mended = mutate_below(rng, 3) > 0;
    const char *which;

    fuzz_put(path, stored[how]);
    which = h5_change_value(path, rng);
    if (is_mended)
        h5_mend_shard_sums(path);
    return use(is_mended || !is_summed(which) ? NOTHING : SAMPLED);
}

static const char *const sets[] = {
    "/offsets",     "/coords", "/features", "/point_voxel", "/point_labels",
    "/labels",      "/origin", "/subvoxel", "/cost",        "/point_offsets",
    "/point_index", "/crc32c", "/names"};
static const char *const attributes[] = {"format",
                                         "version",
                                         "voxel_size",
                                         "num_classes",
                                         "ignore_label",
                                         "class_names",
                                         "feature_names",
                                         "feature_mean",
                                         "feature_std",
                                         "recipe/version",
                                         "recipe/voxel_size",
                                         "recipe/block",
                                         "recipe/overlap",
                                         "recipe/height_percentile",
                                         "recipe/column_names",
                                         "recipe/column_sources",
                                         "recipe/column_divisors",
                                         "recipe/formats",
                                         "recipe/unit",
                                         "recipe/crc32c"};
enum {
    N_SETS = sizeof sets / sizeof *sets,
    N_NEEDED = 5,
    N_ATTRIBUTES = sizeof attributes / sizeof *attributes
};

/* Replaces a part that must be there under its own name. */
static void put_impostor(uint64_t *rng, bool *must_refuse)
{
    int variant = h5_any_impostor(rng);
    size_t name = mutate_below(rng, N_SETS);

    h5_put_impostor(path, sets[name], variant);
    *must_refuse = !(name >= N_NEEDED && h5_is_absent(variant)) &&
                   !(name == N_SETS - 1 && h5_is_text(variant)) &&
                   !h5_is_linked(variant);
}

static bool run_links(uint64_t *rng)
{
    bool must_refuse = false, is_taken;

    blob_write("neighbour.h5", *good);
    fuzz_put(path,
             mutate_below(rng, 2) ? *good : stored[mutate_below(rng, H5_N_STORES)]);
    if (mutate_below(rng, 5) > 1)
        put_impostor(rng, &must_refuse);
    else
        h5_put_attribute(path, attributes[mutate_below(rng, N_ATTRIBUTES)],
                         h5_any_attribute(rng));
    is_taken = use(NOTHING);
    if (is_taken && must_refuse)
        fuzz_fault("an impostor was taken");
    return is_taken;
}

/* ---- the index file ---- */

/* Damage of the index file is seen, and the shard is read instead. With checksums that fit
 * the numbers may be others, but none leads beyond an array. */
static bool run_index(uint64_t *rng)
{
    const bool is_mended = mutate_below(rng, 4) > 0;
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};
    sp_sample_request request = all;
    blob b = blob_copy(beside);
    sp_status rc;

    fuzz_put(path, *good);
    set_time();
    mutate_bytes(&b, rng);
    if (is_mended)
        fixture_mend_index(b.at, b.n);
    fuzz_give(SP_INDEX_FILE, b);
    if (!is_mended && !use(ALL))
        fuzz_fault("a shard cannot be read, since its index file is damaged");
    rc = fixture_open(&set, path);
    unlink(SP_INDEX_FILE); /* of this mutant's shard only */
    request.with_context = rc == SP_OK && set.has_blocks;
    for (int64_t i = 0; rc == SP_OK && i < set.n_samples; i++)
        rc = sp_sample_read(&set, i, &request, &got);
    return fuzz_is_ok(rc, path);
}

/* ---- spvox info ---- */

static sp_status info(void *context)
{
    char *argv[] = {"info", "--samples", context, NULL};
    CLOSED_BY(sp_comm_close) sp_comm alone;
    sp_status rc;

    sp_comm_open_self(&alone);
    rc = vox_info(3, argv, &alone);
    return rc;
}

static bool run_info(uint64_t *rng)
{
    static const sp_status allowed[] = {SP_EDATA, SP_OK};
    size_t how = mutate_below(rng, H5_N_STORES + 1);
    size_t change = mutate_below(rng, 3);

    fuzz_put_seed(path, stored[how], change == 0, rng);
    if (change > 0)
        h5_change_value(path, rng);
    if (change == 2)
        h5_mend_shard_sums(path);
    return fuzz_command(info, (void *)(uintptr_t)path, allowed) == 0;
}

const fuzz_kind fuzz_shard = {"shard", 60, prepare, run_bytes};
const fuzz_kind fuzz_shard_chunked = {"shard-chunked", 60, prepare, run_chunked};
const fuzz_kind fuzz_shard_values = {"shard-values", 40, prepare, run_values};
const fuzz_kind fuzz_shard_links = {"shard-structure", 40, prepare, run_links};
const fuzz_kind fuzz_index = {"index", 30, prepare, run_index};
const fuzz_kind fuzz_info = {"info", 15, prepare, run_info};
