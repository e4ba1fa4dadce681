#include "shard_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sp_backend.h"

enum { MOST = 64, IGNORE = 255 };

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int classes_of(const fixture *f)
{
    return f->n_classes ? f->n_classes : 4;
}
static int features_of(const fixture *f)
{
    return f->n_features ? f->n_features : 3;
}

/* Points of a sample: one to three a voxel. */
static int64_t points_of(const fixture *f, int index)
{
    int64_t n = 0;

    for (int64_t i = 0; f->has_points && i < f->voxels[index]; i++)
        n += 1 + (i + index) % 3;
    return n;
}

/* Cells of a box in a scattered order: row i is cell i * step mod box. */
static void fill_coords(sp_sample *s, uint64_t *state)
{
    int64_t edge = 1, box, step, start = (int64_t)(next(state) % 1000);

    while (edge * edge * edge < 2 * s->n)
        edge++;
    box = edge * edge * edge;
    for (step = box / 2 + 1; step < box; step++) {
        int64_t a = step, b = box;

        while (b) {
            int64_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1)
            break;
    }
    for (int64_t i = 0; i < s->n; i++) {
        int64_t cell = (start + i * step) % box;

        s->coords[3 * i] = (int32_t)(cell % edge - edge / 2);
        s->coords[3 * i + 1] = (int32_t)(cell / edge % edge - edge / 2);
        s->coords[3 * i + 2] = (int32_t)(cell / edge / edge);
    }
}

static void fill_points(const fixture *f, int index, sp_sample *s, uint64_t *state)
{
    int64_t p = 0;

    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < 1 + (i + index) % 3; k++, p++) {
            s->point_voxel[p] = (uint32_t)i;
            s->point_index[p] = (uint64_t)(1000 + p);
            s->point_labels[p] =
                k ? (int32_t)(next(state) % (uint64_t)classes_of(f)) : s->labels[i];
        }
}

void fixture_sample(const fixture *f, int index, sp_sample *s)
{
    uint64_t state = f->seed * 1000003u + (uint64_t)index;
    size_t n = (size_t)f->voxels[index] + 1, p = (size_t)points_of(f, index) + 1;

    memset(s, 0, sizeof *s);
    s->id = index;
    s->n = f->voxels[index];
    s->n_points = points_of(f, index);
    s->coords = malloc(n * 3 * sizeof *s->coords);
    s->features = malloc(n * (size_t)features_of(f) * sizeof *s->features);
    s->labels = malloc(n * sizeof *s->labels);
    s->subvoxel = f->has_subvoxel ? malloc(n * 3) : NULL;
    fill_coords(s, &state);
    for (int64_t i = 0; i < s->n * features_of(f); i++)
        s->features[i] = (float)((double)(next(&state) >> 40) / (1 << 22) - 2);
    for (int64_t i = 0; i < s->n; i++) {
        s->labels[i] = (int32_t)(next(&state) % (uint64_t)classes_of(f));
        if (f->is_unlabelled || (f->unlabelled >> index & 1) || next(&state) % 10 == 0)
            s->labels[i] = SP_IGNORE;
    }
    for (int64_t i = 0; f->has_subvoxel && i < 3 * s->n; i++)
        s->subvoxel[i] = (uint8_t)next(&state);
    for (int k = 0; k < 3; k++)
        s->origin[k] = index * 100.0 + k;
    if (!f->has_points)
        return;
    s->point_voxel = malloc(p * sizeof *s->point_voxel);
    s->point_labels = malloc(p * sizeof *s->point_labels);
    s->point_index = malloc(p * sizeof *s->point_index);
    fill_points(f, index, s, &state);
}

void fixture_free(sp_sample *s)
{
    free(s->coords);
    free(s->features);
    free(s->labels);
    free(s->subvoxel);
    free(s->point_voxel);
    free(s->point_labels);
    free(s->point_index);
    memset(s, 0, sizeof *s);
}

static sp_status write_samples(const fixture *f, sp_shard_writer *writer)
{
    int64_t cost[SP_COST_COLUMNS];
    char name[32];
    sp_sample s;
    sp_status rc = SP_OK;

    for (int i = f->n_samples - 1; rc == SP_OK && i >= 0; i--) {
        fixture_sample(f, i, &s);
        snprintf(name, sizeof name, "sample%d", i);
        for (int k = 0; k < SP_COST_COLUMNS; k++)
            cost[k] = k < 5 ? s.n >> k : 7 * s.n;
        rc = sp_shard_write_sample(writer, i, &s, name, f->has_cost ? cost : NULL);
        fixture_free(&s);
    }
    return rc;
}

sp_status fixture_write(const fixture *f, const char *path)
{
    char text[2][MOST][24], *name[2][MOST];
    double mean[MOST], std[MOST];
    int64_t *points = calloc((size_t)f->n_samples + 1, sizeof *points);
    sp_shard_meta meta = {.voxel_size = f->voxel_size > 0 ? f->voxel_size : 0.5,
                          .n_classes = classes_of(f),
                          .ignore_label = IGNORE,
                          .n_features = features_of(f),
                          .class_name = name[0],
                          .feature_name = name[1],
                          .feature_mean = f->has_moments ? mean : NULL,
                          .feature_std = f->has_moments ? std : NULL,
                          .has_labels = !f->is_unlabelled,
                          .has_subvoxel = f->has_subvoxel,
                          .has_points = f->has_points};
    sp_shard_writer *writer;
    sp_status rc;

    for (int i = 0; i < MOST; i++) {
        snprintf(name[0][i] = text[0][i], 24, "class%d", i);
        snprintf(name[1][i] = text[1][i], 24, "feature%d",
                 f->is_renamed ? features_of(f) - 1 - i : i);
        mean[i] = (double)f->seed + i;
        std[i] = 1 + i;
    }
    for (int i = 0; i < f->n_samples; i++)
        points[i] = points_of(f, i);
    rc = sp_shard_create(&writer, path, &meta, f->n_samples, f->voxels, points);
    if (rc == SP_OK)
        rc = sp_shard_close(writer, write_samples(f, writer));
    free(points);
    return rc;
}

sp_status fixture_open(sp_dataset *set, const char *pattern)
{
    char *at[1] = {(char *)pattern};
    sp_strings patterns = {1, at};

    return sp_dataset_open(set, &patterns, NULL);
}
