/* The normalization in a checkpoint: its rows of numbers as datasets, and its broadcast
 * to all ranks. Its texts are root attributes (sp_checkpoint_root.c). */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "checkpoint/sp_calibration.h"
#include "checkpoint/sp_checkpoint_internal.h"
#include "data/sp_recipe.h"

static void normalization_serialize_all(sp_serial *serial,
                                        sp_normalization *normalization)
{
    sp_normalization_serialize(serial, normalization);
    sp_calibration_serialize(serial, &normalization->calibration);
}

sp_status sp_normalization_bcast(sp_normalization *normalization, sp_comm *comm)
{
    sp_serial serial = {0};
    sp_status rc;

    assert(normalization && comm);
    if (comm->rank == 0)
        normalization_serialize_all(&serial, normalization);
    rc = sp_comm_bcast_serial(comm, &serial);
    if (rc == SP_OK && comm->rank != 0)
        normalization_serialize_all(&serial, normalization);
    if (rc == SP_OK)
        rc = serial.rc;
    free(serial.data);
    return sp_comm_agree(comm, rc);
}

/* ---- rows ---- */

static sp_status write_row(sp_h5 *file, const char *name, int n, const double *row)
{
    const int64_t dim = n;

    if (!row)
        return SP_OK;
    return sp_checkpoint_write_array(file, name, SP_H5_F64, 1, &dim, row,
                                     (size_t)n * sizeof *row);
}

sp_status sp_checkpoint_write_rows(sp_h5 *file, const sp_normalization *norm)
{
    assert(!norm->mean == !norm->std);
    SP_TRY(write_row(file, "/normalization/mean", norm->n_columns, norm->mean));
    SP_TRY(write_row(file, "/normalization/std", norm->n_columns, norm->std));
    SP_TRY(write_row(file, "/loss/class_weights", norm->n_classes, norm->class_weight));
    return sp_recipe_write(file, norm->recipe);
}

/* Reads a row if the file has it. With is_known its length must be *n, which other data
 * have set before; else it sets *n. Every element is finite and at least `least`;
 * `meaning` words that bound for the message. */
static sp_status checkpoint_read_row(sp_h5 *file, const char *name, bool is_known,
                                     int *n, double **row, double least,
                                     const char *meaning)
{
    sp_h5_shape shape;

    if (!sp_h5_has(file, name))
        return SP_OK;
    SP_TRY(sp_h5_shape_of(file, name, &shape));
    if (shape.rank != 1 || shape.dim[0] < 1 || shape.dim[0] > SP_CHECKPOINT_COLUMNS)
        return SP_FAIL(SP_EDATA, "%s:%s: expected a row of numbers", sp_h5_path(file),
                       name);
    if (is_known && shape.dim[0] != *n)
        return SP_FAIL(SP_EDATA, "%s:%s: %lld numbers, expected %d", sp_h5_path(file),
                       name, (long long)shape.dim[0], *n);
    SP_TRY(SP_NEW(row, (size_t)shape.dim[0], "the normalization"));
    *n = (int)shape.dim[0];
    SP_TRY(sp_h5_read(file, name, SP_H5_F64, 1, shape.dim, *row));
    for (int i = 0; i < *n; i++)
        if (!isfinite((*row)[i]) || (*row)[i] < least)
            return SP_FAIL(SP_EDATA,
                           "%s:%s: element %d is %g, expected a finite number%s",
                           sp_h5_path(file), name, i, (*row)[i], meaning);
    return SP_OK;
}

sp_status sp_checkpoint_read_rows(sp_h5 *file, sp_normalization *norm)
{
    SP_TRY(checkpoint_read_row(file, "/normalization/mean", norm->name,
                               &norm->n_columns, &norm->mean, -DBL_MAX, ""));
    SP_TRY(checkpoint_read_row(file, "/normalization/std", norm->name || norm->mean,
                               &norm->n_columns, &norm->std, DBL_MIN, " above 0"));
    if (!norm->mean != !norm->std)
        return SP_FAIL(SP_EDATA, "%s:/normalization: %s without %s", sp_h5_path(file),
                       norm->mean ? "mean" : "std", norm->mean ? "std" : "mean");
    SP_TRY(checkpoint_read_row(file, "/loss/class_weights", norm->class_name,
                               &norm->n_classes, &norm->class_weight, 0,
                               ", not negative"));
    SP_TRY(sp_recipe_read(file, &norm->recipe));
    SP_TRY(sp_calibration_read(file, &norm->calibration));
    if (norm->calibration && norm->class_name &&
        norm->calibration->n_classes != norm->n_classes)
        return SP_FAIL(SP_EDATA, "%s:/calibration: %d classes, expected %d",
                       sp_h5_path(file), norm->calibration->n_classes, norm->n_classes);
    return sp_recipe_check_columns(norm->recipe, sp_h5_path(file), norm->n_columns,
                                   norm->name, true);
}
