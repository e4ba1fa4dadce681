/* Voxels, features, labels and points of the samples of a case. */
#include <stdlib.h>
#include <string.h>

#include "fixtures/shard_fixture.h"
#include "torture/random/random.h"
#include "scan/sp_gridding.h"

enum { SMALL = 280, LARGE = 12000 };

/* ---- sizes and parts ---- */

/* A sample has no voxel, one, a few, or a small cloud; in a case that is drawn for
 * memory a large one. */
static int64_t draw_size(rnd_case *c, const rnd_set *set, int i)
{
    uint64_t stream = rnd_stream(c, set->name, i);
    int kind = rnd_pick(c, 10, "%s.sample%d", set->name, i);

    if (kind == 1)
        return 0;
    if (kind == 2)
        return 1;
    if (kind == 3)
        return 2 + rnd_below(&stream, 7);
    if (rnd_first_way(c) == 'f')
        return LARGE / 2 + rnd_below(&stream, LARGE);
    return 20 + rnd_below(&stream, kind < 7 ? SMALL / 3 : SMALL);
}

static void draw_set(rnd_case *c, rnd_set *set, const char *name)
{
    set->name = name;
    set->n_samples =
        1 + rnd_pick(c, rnd_first_way(c) == 'f' ? 4 : 9, "%s.samples", name);
    set->n_shards = 1 + rnd_pick(c, MOST_SHARDS, "%s.shards", name);
    for (int i = 0; i < set->n_samples; i++)
        set->n[i] = draw_size(c, set, i);
    if (set->n[0] < 20) /* something to learn from */
        set->n[0] = 20;
    for (int i = 1; i < set->n_shards; i++)
        set->first[i] = rnd_pick(c, set->n_samples + 1, "%s.cut%d", name, i);
    for (int i = 1; i < set->n_shards; i++)
        if (set->first[i] < set->first[i - 1])
            set->first[i] = set->first[i - 1];
    set->first[set->n_shards] = set->n_samples;
    set->has_labels =
        !rnd_chance(c, strcmp(name, "val") == 0 ? 8 : 1, "%s.unlabelled", name);
    set->has_points = rnd_chance(c, 35, "%s.points", name);
    set->has_subvoxel = rnd_chance(c, 50, "%s.subvoxel", name);
    set->has_moments = rnd_chance(c, 55, "%s.moments", name);
}

void rnd_data_draw(rnd_case *c)
{
    static const double sizes[] = {0.5, 0.05, 1, 0.3};
    static const int ignore[] = {255, 255, 99, -1};
    int kind = rnd_pick(c, 20, "feature.values");

    c->n_classes = 2 + rnd_pick(c, 6, "classes");
    c->n_features = 1 + rnd_pick(c, 5, "columns");
    c->voxel_size = sizes[rnd_pick(c, 4, "voxel_size")];
    c->ignore_label = ignore[rnd_pick(c, 4, "ignore_label")];
    c->feature_kind = kind < 11   ? VALUES_FRACTIONS
                      : kind < 19 ? VALUES_INTEGERS
                                  : VALUES_ROUNDED;
    draw_set(c, &c->train, "train");
    draw_set(c, &c->val, "val");
}

/* ---- values ---- */

/* The cells of a box come in a scattered order, row i being cell i * step mod box; the
 * box lies anywhere, but for unsigned types not below zero. */
static void make_coords(const rnd_case *c, rnd_cloud *cloud, uint64_t *stream)
{
    int64_t edge = 1, box, step, at[3];
    const int fill = 2 + rnd_below(stream, 4); /* cells for a voxel */
    const bool is_flat = rnd_below(stream, 2);

    while ((is_flat ? 4 : edge) * edge * edge < fill * cloud->n)
        edge++;
    box = (is_flat ? 4 : edge) * edge * edge;
    step = fixture_coprime(box / 3 + 1, box);
    for (int k = 0; k < 3; k++)
        at[k] = rnd_below(stream, 40) - (c->index % 3 == 0 ? 0 : 20);
    for (int64_t i = 0; i < cloud->n; i++) {
        const int64_t cell = i * step % box;

        cloud->coords[3 * i] = at[0] + cell % edge;
        cloud->coords[3 * i + 1] = at[1] + cell / edge % edge;
        cloud->coords[3 * i + 2] = at[2] + cell / edge / edge;
    }
}

static double make_feature(const rnd_case *c, const int64_t *coord, int label,
                           int column, uint64_t *stream)
{
    const int noise = rnd_below(stream, 64);

    if (c->feature_kind == VALUES_INTEGERS)
        return (double)((label * 17 + column * 5 + noise / 2) % 101);
    if (c->feature_kind == VALUES_ROUNDED)
        return (label + column) / 3.0 + noise / 97.0 + (double)coord[2] / 1e3;
    return ((label * 37 + column * 11) % 192 + noise - 128) / 64.0;
}

static void make_points(const rnd_case *c, const rnd_set *set, rnd_cloud *cloud,
                        uint64_t *stream)
{
    int64_t p = 0;

    for (int64_t i = 0; i < cloud->n; i++)
        for (int k = rnd_below(stream, 4); k > 0; k--, p++) {
            cloud->point_voxel[p] = i;
            cloud->point_index[p] = 7 * p + 3;
            cloud->point_labels[p] = rnd_below(stream, 4)
                                         ? cloud->labels[i]
                                         : rnd_below(stream, c->n_classes);
        }
    cloud->n_points = set->has_points ? p : 0;
}

static void *take(int64_t n, size_t size)
{
    void *at = calloc((size_t)n + 1, size);

    if (!at)
        abort();
    return at;
}

rnd_cloud rnd_cloud_room(const rnd_case *c, int64_t n)
{
    return (rnd_cloud){.n = n,
                       .coords = take(3 * n, sizeof(int64_t)),
                       .features = take(n * c->n_features, sizeof(double)),
                       .labels = take(n, sizeof(int64_t)),
                       .subvoxel = take(3 * n, sizeof(int64_t)),
                       .point_voxel = take(3 * n, sizeof(int64_t)),
                       .point_labels = take(3 * n, sizeof(int64_t)),
                       .point_index = take(3 * n, sizeof(int64_t))};
}

void rnd_cloud_make(const rnd_case *c, const rnd_set *set, int sample, rnd_cloud *cloud)
{
    char name[NAME_SIZE];
    const int64_t n = set->n[sample];
    uint64_t stream;
    bool is_dark;

    snprintf(name, sizeof name, "%s.cloud", set->name);
    stream = rnd_stream(c, name, sample);
    is_dark = sample > 0 && rnd_below(&stream, 8) == 0; /* nothing labelled */
    *cloud = rnd_cloud_room(c, n);
    make_coords(c, cloud, &stream);
    for (int k = 0; k < 3; k++)
        cloud->origin[k] = sample * 64 + k * 8;
    for (int64_t i = 0; i < n; i++) {
        const int64_t *at = cloud->coords + 3 * i;
        const int label = (int)(labs(at[0] / 3 + at[2] / 2) % c->n_classes);

        for (int k = 0; k < c->n_features; k++)
            cloud->features[i * c->n_features + k] =
                make_feature(c, at, label, k, &stream);
        cloud->labels[i] =
            is_dark || rnd_below(&stream, 9) == 0 ? c->ignore_label : label;
        for (int k = 0; k < 3; k++)
            cloud->subvoxel[3 * i + k] = rnd_below(&stream, 256);
    }
    make_points(c, set, cloud, &stream);
}

void rnd_cloud_free(rnd_cloud *cloud)
{
    free(cloud->coords);
    free(cloud->features);
    free(cloud->labels);
    free(cloud->subvoxel);
    free(cloud->point_voxel);
    free(cloud->point_labels);
    free(cloud->point_index);
    memset(cloud, 0, sizeof *cloud);
}

void rnd_cloud_cost(const rnd_cloud *cloud, int64_t cost[SP_COST_COLUMNS])
{
    FREED int32_t *coords = take(3 * cloud->n, sizeof *coords);

    for (int64_t i = 0; i < 3 * cloud->n; i++)
        coords[i] = (int32_t)cloud->coords[i];
    if (sp_grid_cost(coords, cloud->n, cost) != SP_OK)
        abort();
}
