#include "scan/scene/sp_scene.h"

#include "base/sp_file.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sp_fault.h"
#include "base/sp_list.h"
#include "base/sp_signal.h"

/* Most voxels and points of this rank that are kept between measuring and writing; the
 * samples beyond are made a second time. */
#define KEPT_LIMIT ((int64_t)1 << 23)

static const char *const class_names[SP_LANDSCAPE_CLASSES] = {
    "ground", "vegetation", "building", "vehicle", "wire"};
static const char *const feature_names[SP_SCENE_FEATURES] = {"intensity", "height",
                                                             "number_of_returns"};

/* ---- one sample ---- */

/* Computes the features [n][3] of a scan; height is above its 2nd percentile of z. */
static sp_status make_features(const sp_lidar *scan, float **features)
{
    const int64_t n = scan->n;
    SP_FREED double *z = NULL;
    double base;
    float *f;

    SP_TRY(SP_NEW(&z, n, "the heights of a scene"));
    SP_TRY(SP_NEW(features, n * SP_SCENE_FEATURES, "the features of a scene"));
    f = *features;
    for (int64_t i = 0; i < n; i++)
        z[i] = scan->xyz[3 * i + 2];
    qsort(z, (size_t)n, sizeof *z, sp_by_double);
    base = n ? z[(n - 1) / 50] : 0;
    for (int64_t i = 0; i < n; i++) {
        f[SP_SCENE_FEATURES * i] = scan->intensity[i];
        f[SP_SCENE_FEATURES * i + 1] = (float)(scan->xyz[3 * i + 2] - base);
        f[SP_SCENE_FEATURES * i + 2] = scan->returns[i];
    }
    return SP_OK;
}

static sp_status make_scan(const sp_scene_options *options, int64_t index,
                           sp_lidar *scan)
{
    sp_rng layout = sp_rng_open(options->seed, SP_RNG_SCENE, (uint64_t)index, 0);
    sp_rng pulses = sp_rng_open(options->seed, SP_RNG_SCENE, (uint64_t)index, 1);
    SP_CLOSED_BY(sp_landscape_destroy) sp_landscape landscape = {0};

    SP_TRY(sp_landscape_create(&landscape, options->extent, &layout));
    return sp_lidar_scan(scan, &landscape, &pulses);
}

static sp_status scene_check_options(const sp_scene_options *options)
{
    if (!(options->extent >= 4 && options->extent <= 1000))
        return SP_FAIL(SP_EUSAGE, "extent of a scene: %g m, expected 4 to 1000",
                       options->extent);
    if (!(options->voxel_size > 0) || !isfinite(options->voxel_size))
        return SP_FAIL(SP_EUSAGE, "voxel size of a scene: %g m, expected more than 0",
                       options->voxel_size);
    return SP_OK;
}

sp_status sp_scene_make(const sp_scene_options *options, int64_t index, sp_grid *grid)
{
    const sp_grid_options how = {.voxel_size = options->voxel_size,
                                 .with_points = options->with_points};
    SP_CLOSED_BY(sp_lidar_destroy) sp_lidar scan = {0};
    SP_FREED float *features = NULL;
    sp_points points;

    assert(index >= 0);
    SP_TRY(scene_check_options(options));
    SP_TRY(make_scan(options, index, &scan));
    SP_TRY(make_features(&scan, &features));
    points = (sp_points){.n = scan.n,
                         .xyz = scan.xyz,
                         .features = features,
                         .c = SP_SCENE_FEATURES,
                         .label = scan.label};
    SP_TRY(sp_grid_points(grid, &points, &how));
    grid->sample.id = index;
    return SP_OK;
}

/* ---- shards ---- */

/* Sizes and sums of all samples, which every rank needs before the first shard is
 * written. Each entry is filled by one rank and zero on the others, so that the sum
 * over ranks is exact. */
typedef struct summary {
    int64_t *voxels, *points; /* [n_samples] */
    double *sums; /* [n_samples][2 C] sums of the features, then of their squares */
} summary;

/* The state of one sp_scene_write. */
typedef struct writing {
    const sp_scene_options *options;
    const char *prefix;
    int64_t n_samples;
    bool is_stoppable;
    int n_shards, rank, n_ranks;
    summary all;
    sp_grid *kept;  /* [n_samples] all zero if the sample is not kept */
    int64_t n_kept; /* voxels and points that this rank keeps */
    double mean[SP_SCENE_FEATURES], std[SP_SCENE_FEATURES];
    int lock; /* of rank 0 on the shards' names; -1: not held */
} writing;

static int64_t first_of(const writing *w, int shard)
{
    return w->n_samples * shard / w->n_shards;
}

static sp_status scene_allocate(writing *w)
{
    SP_TRY(SP_NEW(&w->all.voxels, w->n_samples, "the sizes of scenes"));
    SP_TRY(SP_NEW(&w->all.points, w->n_samples, "the sizes of scenes"));
    SP_TRY(SP_NEW(&w->all.sums, w->n_samples * 2 * SP_SCENE_FEATURES,
                  "the sums of scenes"));
    return SP_NEW(&w->kept, w->n_samples, "scenes");
}

static void scene_release(writing *w)
{
    for (int64_t i = 0; w->kept && i < w->n_samples; i++)
        sp_grid_destroy(&w->kept[i]);
    free(w->kept);
    free(w->all.voxels);
    free(w->all.points);
    free(w->all.sums);
}

static void summarize(writing *w, int64_t index, const sp_sample *s)
{
    double *sums = w->all.sums + 2 * SP_SCENE_FEATURES * index;

    w->all.voxels[index] = s->n;
    w->all.points[index] = s->n_points;
    for (int64_t i = 0; i < s->n; i++)
        for (int a = 0; a < SP_SCENE_FEATURES; a++) {
            double x = s->features[SP_SCENE_FEATURES * i + a];

            sums[a] += x;
            sums[SP_SCENE_FEATURES + a] += x * x;
        }
}

static bool is_mine(const writing *w, int shard)
{
    return shard % w->n_ranks == w->rank;
}

/* A training's sample data, which have no comm, are soon made. */
static sp_status scene_check_stop(const writing *w)
{
    return w->is_stoppable ? sp_signal_check() : SP_OK;
}

/* Makes this rank's samples and records their sizes and sums. */
static sp_status scene_measure(writing *w)
{
    for (int shard = 0; shard < w->n_shards; shard++)
        for (int64_t i = first_of(w, shard);
             is_mine(w, shard) && i < first_of(w, shard + 1); i++) {
            sp_grid *grid = &w->kept[i];

            SP_TRY(scene_check_stop(w));
            SP_TRY(sp_scene_make(w->options, i, grid));
            summarize(w, i, &grid->sample);
            w->n_kept += grid->sample.n + grid->sample.n_points;
            if (w->n_kept > KEPT_LIMIT)
                sp_grid_destroy(grid);
        }
    return SP_OK;
}

static sp_status scene_share(writing *w, sp_comm *comm)
{
    size_t n = (size_t)w->n_samples;

    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, w->all.voxels, n, SP_I64, SP_SUM));
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, w->all.points, n, SP_I64, SP_SUM));
    return sp_comm_allreduce(comm, SP_SCOPE_WORLD, w->all.sums,
                             n * 2 * SP_SCENE_FEATURES, SP_F64, SP_SUM);
}

/* Computes mean and standard deviation of the columns over all voxels. Samples are
 * added in order, so that every rank finds the same. */
static void find_statistics(writing *w)
{
    double sum[2 * SP_SCENE_FEATURES] = {0}, n = 0;

    for (int64_t i = 0; i < w->n_samples; i++) {
        n += (double)w->all.voxels[i];
        for (int a = 0; a < 2 * SP_SCENE_FEATURES; a++)
            sum[a] += w->all.sums[2 * SP_SCENE_FEATURES * i + a];
    }
    for (int a = 0; a < SP_SCENE_FEATURES; a++) {
        double mean = n > 0 ? sum[a] / n : 0;
        double square = n > 0 ? sum[SP_SCENE_FEATURES + a] / n : 1;

        w->mean[a] = mean;
        w->std[a] = sqrt(fmax(square - mean * mean, 0));
    }
}

static sp_status scene_write_sample(writing *w, sp_shard_writer *writer, int64_t index,
                                    int64_t at)
{
    sp_grid *grid = &w->kept[index];
    char name[64];
    sp_status rc = SP_OK;

    snprintf(name, sizeof name, "scene-%llu-%06lld",
             (unsigned long long)w->options->seed, (long long)index);
    if (!grid->own)
        SP_TRY(sp_scene_make(w->options, index, grid));
    rc = sp_shard_write_sample(writer, at, &grid->sample, name, grid->cost);
    sp_grid_destroy(grid);
    return rc;
}

static sp_status scene_write_samples(writing *w, sp_shard_writer *writer, int shard)
{
    int64_t first = first_of(w, shard);

    for (int64_t i = first; i < first_of(w, shard + 1); i++) {
        sp_fault_at("write", i);
        SP_TRY(scene_check_stop(w));
        SP_TRY(scene_write_sample(w, writer, i, i - first));
    }
    return SP_OK;
}

static sp_status scene_write_shard(writing *w, int shard)
{
    double divisor[SP_SCENE_FEATURES] = {1, 1, 1};
    const sp_recipe recipe = {.voxel_size = w->options->voxel_size,
                              .n_columns = SP_SCENE_FEATURES,
                              .column = (char **)feature_names,
                              .source = (char **)feature_names,
                              .divisor = divisor,
                              .height_percentile = SP_RECIPE_PERCENTILE,
                              .unit = "metre"};
    const sp_shard_meta meta = {.voxel_size = w->options->voxel_size,
                                .n_classes = SP_LANDSCAPE_CLASSES,
                                .ignore_label = 255,
                                .n_features = SP_SCENE_FEATURES,
                                .class_name = (char **)(uintptr_t)class_names,
                                .feature_name = (char **)feature_names,
                                .feature_mean = w->mean,
                                .feature_std = w->std,
                                .has_labels = true,
                                .has_subvoxel = true,
                                .has_points = w->options->with_points,
                                .recipe = &recipe,
                                .is_of_set = true};
    sp_shard_writer *writer = NULL;
    char path[PATH_MAX];
    int64_t first = first_of(w, shard), n = first_of(w, shard + 1) - first;

    SP_TRY(sp_shard_path(w->prefix, shard, w->n_shards, path, sizeof path));
    SP_TRY(sp_shard_create(&writer, path, &meta, n, w->all.voxels + first,
                           w->options->with_points ? w->all.points + first : NULL));
    return sp_shard_close(writer, scene_write_samples(w, writer, shard));
}

static sp_status scene_write_shards(writing *w)
{
    for (int shard = 0; shard < w->n_shards; shard++)
        if (is_mine(w, shard))
            SP_TRY(scene_write_shard(w, shard));
    return SP_OK;
}

static sp_status scene_agree(sp_comm *comm, sp_status mine)
{
    return comm ? sp_comm_agree(comm, mine) : mine;
}

static sp_status scene_write_all(writing *w, sp_comm *comm)
{
    sp_status rc = scene_allocate(w);

    if (rc == SP_OK)
        rc = sp_file_make_folder_of(w->prefix);
    if (rc == SP_OK && w->rank == 0)
        rc = sp_shards_lock(w->prefix, &w->lock);
    if (rc == SP_OK)
        rc = scene_measure(w);
    SP_TRY(scene_agree(comm, rc));
    if (comm)
        SP_TRY(scene_share(w, comm));
    find_statistics(w);
    rc = scene_agree(comm, scene_write_shards(w));
    return scene_agree(comm,
                       sp_shards_end(w->prefix, w->n_shards, w->rank, w->n_ranks, rc));
}

sp_status sp_scene_write(const sp_scene_options *options, const char *prefix,
                         int64_t n_samples, int n_shards, sp_comm *comm)
{
    writing w = {.options = options,
                 .prefix = prefix,
                 .n_samples = n_samples,
                 .n_shards = n_shards,
                 .is_stoppable = comm,
                 .rank = comm ? comm->rank : 0,
                 .n_ranks = comm ? comm->size : 1,
                 .lock = -1};
    char path[PATH_MAX];
    sp_status rc;

    assert(prefix && n_samples >= 0 && n_shards >= 1);
    SP_TRY(scene_check_options(options));
    if (n_samples < 1 || n_shards < 1 || n_shards > 99999 || n_shards > n_samples)
        return SP_FAIL(
            SP_EUSAGE,
            "%lld samples in %d shards: expected at least one sample a shard "
            "and at most 99999 shards",
            (long long)n_samples, n_shards);
    SP_TRY(sp_shard_path(prefix, 0, n_shards, path, sizeof path));
    rc = scene_write_all(&w, comm);
    sp_shards_unlock(prefix, &w.lock);
    scene_release(&w);
    return rc;
}

sp_status sp_scene_make_sample_data(const char *train_prefix, const char *val_prefix)
{
    sp_scene_options options = {.seed = 1, .extent = 20, .voxel_size = 0.5};

    SP_TRY(sp_scene_write(&options, train_prefix, 32, 1, NULL));
    options.seed = 2;
    return sp_scene_write(&options, val_prefix, 8, 1, NULL);
}
