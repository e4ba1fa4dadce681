#include "scan/scene/sp_scene.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_signal.h"

enum { C = SP_SCENE_FEATURES };

static sp_status scene_check_options(const sp_scene_options *o)
{
    if (!(o->extent >= 4 && o->extent <= 1000))
        return SP_FAIL(SP_EUSAGE, "extent of a scene: %g m, expected 4 to 1000",
                       o->extent);
    if (!(o->voxel_size > 0 && o->voxel_size < INFINITY))
        return SP_FAIL(SP_EUSAGE, "voxel size of a scene: %g m, expected more than 0",
                       o->voxel_size);
    return SP_OK;
}

sp_status sp_scene_make(const sp_scene_options *options, int64_t index, sp_grid *grid)
{
    const sp_grid_options how = {.voxel_size = options->voxel_size,
                                 .with_points = options->with_points};
    SP_CLOSED_BY(sp_scene_points_destroy) sp_scene_points made = {0};
    sp_points p = {.c = C};

    SP_TRY(scene_check_options(options));
    SP_TRY(sp_scene_scan(options, index, &made));
    p.n = made.n;
    p.xyz = made.xyz;
    p.features = made.features;
    p.label = made.label;
    SP_TRY(sp_grid_points(grid, &p, &how));
    grid->sample.id = index;
    return SP_OK;
}

/* A shard. It begins with sizes and statistics of all its samples, so these are made
 * twice, unless there is one: a rank holds one at a time. */
typedef struct scene_shard {
    const sp_scene_options *options;
    char path[PATH_MAX];
    int64_t first, n;         /* of the samples */
    int64_t *voxels, *points; /* [n] */
    double mean[C], std[C];   /* of the features of all voxels */
} scene_shard;

static sp_status scene_shard_measure(scene_shard *s, sp_grid *grid)
{
    double n = 0;

    for (int64_t i = 0; i < s->n; i++) {
        SP_TRY(sp_signal_check());
        SP_TRY(sp_scene_make(s->options, s->first + i, grid));
        for (int64_t k = 0; k < C * grid->sample.n; k++) {
            s->mean[k % C] += grid->sample.features[k];
            s->std[k % C] += pow(grid->sample.features[k], 2);
        }
        n += (double)(s->voxels[i] = grid->sample.n);
        s->points[i] = grid->sample.n_points;
    }
    for (int a = 0; a < C; a++) {
        s->mean[a] /= fmax(n, 1);
        s->std[a] = sqrt(fmax(s->std[a] / fmax(n, 1) - s->mean[a] * s->mean[a], 0));
    }
    return SP_OK;
}

static sp_status scene_shard_write_samples(const scene_shard *s,
                                           sp_shard_writer *writer, sp_grid *grid)
{
    for (int64_t i = 0; i < s->n; i++) {
        const long long index = s->first + i;
        char name[64];

        sp_fault_at("write", index);
        SP_TRY(sp_signal_check());
        if (s->n > 1)
            SP_TRY(sp_scene_make(s->options, index, grid));
        snprintf(name, sizeof name, "scene-%llu-%06lld",
                 (unsigned long long)s->options->seed, index);
        SP_TRY(sp_shard_write_sample(writer, i, &grid->sample, name, grid->cost));
    }
    return SP_OK;
}

static sp_status scene_shard_write(scene_shard *s)
{
    char *class_name[] = {"ground", "vegetation", "building", "vehicle", "wire"};
    char *feature[C] = {"intensity", "height", "number_of_returns"};
    double divisor[C] = {1, 1, 1};
    const sp_recipe recipe = {.voxel_size = s->options->voxel_size,
                              .n_columns = C,
                              .column = feature,
                              .source = feature,
                              .divisor = divisor,
                              .height_percentile = SP_RECIPE_PERCENTILE,
                              .unit = "metre"};
    const sp_shard_meta meta = {.voxel_size = s->options->voxel_size,
                                .n_classes = SP_SCENE_CLASSES,
                                .ignore_label = 255,
                                .n_features = C,
                                .class_name = class_name,
                                .feature_name = feature,
                                .feature_mean = s->mean,
                                .feature_std = s->std,
                                .has_labels = true,
                                .has_subvoxel = true,
                                .has_points = s->options->with_points,
                                .recipe = &recipe,
                                .is_of_set = true};
    SP_CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    SP_FREED int64_t *sizes = NULL;
    sp_shard_writer *writer;

    SP_TRY(SP_NEW(&sizes, 2 * s->n, "the sizes of scenes"));
    s->voxels = sizes;
    s->points = sizes + s->n;
    SP_TRY(scene_shard_measure(s, &grid));
    SP_TRY(sp_shard_create(&writer, s->path, &meta, s->n, s->voxels,
                           meta.has_points ? s->points : NULL));
    return sp_shard_close(writer, scene_shard_write_samples(s, writer, &grid));
}

static sp_status scene_write_shards(const sp_scene_options *options, const char *prefix,
                                    int64_t n, int n_shards, const sp_comm *comm)
{
    for (int i = comm->rank; i < n_shards; i += comm->size) {
        scene_shard s = {.options = options, .first = n * i / n_shards};

        s.n = n * (i + 1) / n_shards - s.first;
        SP_TRY(sp_shard_path(prefix, i, n_shards, s.path, sizeof s.path));
        SP_TRY(scene_shard_write(&s));
    }
    return SP_OK;
}

sp_status sp_scene_write(const sp_scene_options *options, const char *prefix,
                         int64_t n_samples, int n_shards, sp_comm *comm)
{
    char path[PATH_MAX];
    sp_status rc;
    int lock = -1;

    SP_TRY(scene_check_options(options));
    if (n_shards < 1 || n_shards > 99999 || n_shards > n_samples)
        return SP_FAIL(
            SP_EUSAGE,
            "%lld samples in %d shards: expected at least one sample a shard "
            "and at most 99999 shards",
            (long long)n_samples, n_shards);
    SP_TRY(sp_shard_path(prefix, 0, n_shards, path, sizeof path));
    rc = sp_file_make_folder_of(prefix);
    if (rc == SP_OK && comm->rank == 0)
        rc = sp_shards_lock(prefix, &lock);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK) {
        rc = scene_write_shards(options, prefix, n_samples, n_shards, comm);
        rc = sp_comm_agree(comm, rc);
        rc = sp_shards_end(prefix, n_shards, comm->rank, comm->size, rc);
        rc = sp_comm_agree(comm, rc);
    }
    sp_shards_unlock(prefix, &lock);
    return rc;
}

sp_status sp_scene_make_sample_data(const char *train_prefix, const char *val_prefix)
{
    sp_scene_options options = {.seed = 1, .extent = 20, .voxel_size = 0.5};
    sp_comm self;
    sp_status rc;

    sp_comm_open_self(&self);
    rc = sp_scene_write(&options, train_prefix, 32, 1, &self);
    options.seed = 2;
    if (rc == SP_OK)
        rc = sp_scene_write(&options, val_prefix, 8, 1, &self);
    sp_comm_detach(&self);
    return rc;
}
