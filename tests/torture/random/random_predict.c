/* Predictions are checked against the values that the shards were written from. */
#include <hdf5.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "torture/random/random.h"

/* One file of predictions. */
typedef struct prediction {
    int64_t n, n_points; /* rows expected */
    int64_t *label, *point_label, *point_index;
    float *logits; /* [n, n_classes] */
} prediction;

static bool read_rows(hid_t file, const char *name, hid_t type, int64_t n, void *to)
{
    hid_t data = H5Dopen2(file, name, H5P_DEFAULT), space;
    bool is_good = false;

    if (data < 0)
        return false;
    space = H5Dget_space(data);
    if (H5Sget_simple_extent_npoints(space) == n)
        is_good = n == 0 || H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0;
    H5Sclose(space);
    H5Dclose(data);
    return is_good;
}

static bool read_prediction(const rnd_case *c, const char *path, bool has_points,
                            prediction *p)
{
    const int64_t m = p->n * c->n_classes;
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    bool is_good;

    p->label = calloc((size_t)p->n + 1, sizeof *p->label);
    p->logits = calloc((size_t)m + 1, sizeof *p->logits);
    p->point_label = calloc((size_t)p->n_points + 1, sizeof *p->point_label);
    p->point_index = calloc((size_t)p->n_points + 1, sizeof *p->point_index);
    if (file < 0)
        return false;
    is_good = read_rows(file, "/labels", H5T_NATIVE_INT64, p->n, p->label) &&
              read_rows(file, "/logits", H5T_NATIVE_FLOAT, m, p->logits);
    if (has_points)
        is_good = is_good &&
                  read_rows(file, "/point_labels", H5T_NATIVE_INT64, p->n_points,
                            p->point_label) &&
                  read_rows(file, "/point_index", H5T_NATIVE_INT64, p->n_points,
                            p->point_index);
    H5Fclose(file);
    return is_good;
}

static void free_prediction(prediction *p)
{
    free(p->label);
    free(p->logits);
    free(p->point_label);
    free(p->point_index);
}

/* Returns the arg max; ties go to the lowest class; -1: a logit is no number. */
static int largest(const float *logit, int n)
{
    int best = 0;

    for (int k = 0; k < n; k++) {
        if (!isfinite(logit[k]))
            return -1;
        if (logit[k] > logit[best])
            best = k;
    }
    return best;
}

static bool check_labels(rnd_case *c, char way, const prediction *p, const char *path)
{
    for (int64_t i = 0; i < p->n; i++) {
        const int best = largest(p->logits + i * c->n_classes, c->n_classes);

        if (best < 0)
            return rnd_fault(c, way, "%s: row %lld: a logit is no finite number", path,
                             (long long)i);
        if (best != p->label[i])
            return rnd_fault(c, way, "%s: row %lld: label %lld, greatest logit %d",
                             path, (long long)i, (long long)p->label[i], best);
    }
    return true;
}

static void count(const rnd_case *c, int64_t *matrix, int64_t truth, int64_t label)
{
    if (truth != c->ignore_label && label >= 0 && label < c->n_classes)
        matrix[truth * c->n_classes + label]++;
}

/* Adds the samples of one shard to both matrices. */
static bool count_shard(rnd_case *c, char way, int shard, const prediction *p,
                        int64_t *voxels, int64_t *points)
{
    const rnd_set *set = &c->val;
    const bool has_index = rnd_chance(c, 50, "%s.%d/point_index", set->name, shard);
    int64_t row = 0, point = 0;
    bool is_good = true;

    for (int s = set->first[shard]; s < set->first[shard + 1]; s++) {
        CLOSED_BY(rnd_cloud_free) rnd_cloud cloud;

        rnd_cloud_make(c, set, s, &cloud);
        for (int64_t i = 0; i < cloud.n; i++)
            count(c, voxels, cloud.labels[i], p->label[row + i]);
        for (int64_t i = 0; i < cloud.n_points; i++) {
            const int64_t label = p->point_label[point + i];

            if (is_good && label != p->label[row + cloud.point_voxel[i]])
                is_good =
                    rnd_fault(c, way, "sample %d point %lld: not its voxel's label", s,
                              (long long)i);
            if (is_good &&
                p->point_index[point + i] != (has_index ? cloud.point_index[i] : i))
                is_good = rnd_fault(c, way, "sample %d point %lld: index %lld", s,
                                    (long long)i, (long long)p->point_index[point + i]);
            count(c, points, cloud.point_labels[i], label);
        }
        row += cloud.n;
        point += cloud.n_points;
    }
    return is_good;
}

/* Writes the matrix as metrics.jsonl does. */
static char *matrix_text(const int64_t *matrix, int n)
{
    char *text = calloc((size_t)(n * n) * 24 + 8, 1), *to = text;

    *to++ = '[';
    for (int i = 0; i < n * n; i++)
        to +=
            sprintf(to, "%s%s%lld%s",
                    i % n ? ","
                    : i   ? ","
                          : "",
                    i % n ? "" : "[", (long long)matrix[i], i % n == n - 1 ? "]" : "");
    *to++ = ']';
    return text;
}

static void count_rows(const rnd_case *c, int shard, prediction *p)
{
    const rnd_set *set = &c->val;

    for (int s = set->first[shard]; s < set->first[shard + 1]; s++) {
        CLOSED_BY(rnd_cloud_free) rnd_cloud cloud;

        rnd_cloud_make(c, set, s, &cloud);
        p->n += cloud.n;
        p->n_points += cloud.n_points;
    }
}

static bool check_shard(rnd_case *c, char way, const char *dir, int shard,
                        int64_t *voxels, int64_t *points)
{
    FREED char *path = rnd_predictions(c, dir, shard);
    CLOSED_BY(free_prediction) prediction p = {0};
    bool is_good;

    count_rows(c, shard, &p);
    is_good = read_prediction(c, path, c->val.has_points, &p) ||
              rnd_fault(c, way, "%s: not the rows of the shard", path);
    return is_good && check_labels(c, way, &p, path) &&
           count_shard(c, way, shard, &p, voxels, points);
}

bool rnd_predictions_check(rnd_case *c, char way, const char *dir, char **confusion,
                           char **points)
{
    const size_t n = (size_t)(c->n_classes * c->n_classes);
    FREED int64_t *of_voxels = calloc(n, sizeof *of_voxels);
    FREED int64_t *of_points = calloc(n, sizeof *of_points);
    bool is_good = true;

    for (int i = 0; is_good && i < c->val.n_shards; i++)
        is_good = check_shard(c, way, dir, i, of_voxels, of_points);
    *confusion = matrix_text(of_voxels, c->n_classes);
    *points = matrix_text(of_points, c->n_classes);
    return is_good;
}
