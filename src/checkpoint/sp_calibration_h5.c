/* A calibration in a checkpoint. */
#include <math.h>

#include "checkpoint/sp_calibration.h"
#include "checkpoint/sp_checkpoint_internal.h"

#define GROUP "/calibration"

static sp_status calibration_put(sp_h5 *file, const char *name, int rank, int64_t n,
                                 int64_t m, const double *x)
{
    const int64_t dim[] = {n, m, m};

    return sp_checkpoint_write_array(file, name, SP_H5_F64, rank, dim, x,
                                     (size_t)(rank > 2 ? n * m * m : n * m) *
                                         sizeof *x);
}

sp_status sp_calibration_write(sp_h5 *file, const sp_calibration *c)
{
    const int64_t n = c->n_features, k = c->n_classes;

    SP_TRY(calibration_put(file, GROUP "/temperature", 1, 1, 1, &c->temperature));
    SP_TRY(calibration_put(file, GROUP "/count", 1, k, 1, c->count));
    if (n == 0)
        return SP_OK;
    SP_TRY(calibration_put(file, GROUP "/whiten", 3, k, n, c->whiten));
    SP_TRY(calibration_put(file, GROUP "/mean", 2, k, n, c->mean));
    return calibration_put(file, GROUP "/quantile", 1, SP_CALIBRATION_STEPS + 1, 1,
                           c->quantile);
}

/* Numbers that are not finite would label points without a warning. */
static sp_status calibration_check(const char *path, const char *name, const double *x,
                                   int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return SP_FAIL(SP_EDATA, "%s:%s: element %lld is %g, expected a number",
                           path, name, (long long)i, x[i]);
    return SP_OK;
}

static sp_status calibration_get(sp_h5 *file, const char *name, int rank, int64_t n,
                                 int64_t m, double *x)
{
    const int64_t dim[] = {n, m, m};

    SP_TRY(sp_h5_read(file, name, SP_H5_F64, rank, dim, x));
    return calibration_check(sp_h5_path(file), name, x, rank > 2 ? n * m * m : n * m);
}

/* The lengths of the arrays: classes by /count, features by /mean. */
static sp_status calibration_sizes(sp_h5 *file, int64_t *n_classes, int64_t *n_features)
{
    sp_h5_shape shape;

    *n_features = 0;
    SP_TRY(sp_h5_shape_of(file, GROUP "/count", &shape));
    if (shape.rank != 1 || shape.dim[0] < 1 || shape.dim[0] > SP_CALIBRATION_CLASSES)
        return SP_FAIL(SP_EDATA, "%s:" GROUP "/count: expected a number for each class",
                       sp_h5_path(file));
    *n_classes = shape.dim[0];
    if (!sp_h5_has(file, GROUP "/whiten"))
        return SP_OK;
    SP_TRY(sp_h5_shape_of(file, GROUP "/whiten", &shape));
    if (shape.rank == 2) /* of an earlier version, whose distances were others */
        return SP_OK;
    SP_TRY(sp_h5_shape_of(file, GROUP "/mean", &shape));
    if (shape.rank != 2 || shape.dim[0] != *n_classes || shape.dim[1] < 1 ||
        !sp_calibration_has_room(shape.dim[0], shape.dim[1]))
        return SP_FAIL(SP_EDATA, "%s:" GROUP "/mean: expected %lld rows of features",
                       sp_h5_path(file), (long long)*n_classes);
    *n_features = shape.dim[1];
    return SP_OK;
}

static sp_status calibration_read_arrays(sp_h5 *file, sp_calibration *c)
{
    const int64_t n = c->n_features, k = c->n_classes;

    SP_TRY(calibration_get(file, GROUP "/temperature", 1, 1, 1, &c->temperature));
    if (c->temperature <= 0)
        return SP_FAIL(SP_EDATA, "%s:" GROUP "/temperature: %g, expected above 0",
                       sp_h5_path(file), c->temperature);
    SP_TRY(calibration_get(file, GROUP "/count", 1, k, 1, c->count));
    if (n == 0)
        return SP_OK;
    SP_TRY(calibration_get(file, GROUP "/whiten", 3, k, n, c->whiten));
    SP_TRY(calibration_get(file, GROUP "/mean", 2, k, n, c->mean));
    return calibration_get(file, GROUP "/quantile", 1, SP_CALIBRATION_STEPS + 1, 1,
                           c->quantile);
}

sp_status sp_calibration_read(sp_h5 *file, sp_calibration **calibration)
{
    int64_t n_classes = 0, n_features = 0;
    sp_status rc;

    *calibration = NULL;
    if (!sp_h5_has(file, GROUP "/temperature"))
        return SP_OK;
    SP_TRY(calibration_sizes(file, &n_classes, &n_features));
    rc = sp_calibration_create(calibration, (int)n_classes, (int)n_features);
    if (rc == SP_OK)
        rc = calibration_read_arrays(file, *calibration);
    if (rc != SP_OK) {
        sp_calibration_destroy(*calibration);
        *calibration = NULL;
    }
    return rc;
}
