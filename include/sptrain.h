/* sptrain: sparse 3D convolutional networks on point clouds, as a library.
 *
 * Link with `pkg-config --cflags --libs sptrain`. The section "Prediction" alone needs
 * neither MPI nor HDF5: `pkg-config --cflags --libs sptrain-predict`.
 *
 * The library never prints, exits, catches signals or reads the environment. A function
 * that can fail returns an sp_status; sp_error_text has the message. Two objects may be
 * used by two threads at the same time, one object by one thread at a time. Functions
 * are local unless their comment says that they are collective.
 */
#ifndef SPTRAIN_H
#define SPTRAIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Prediction ----
 *
 *     sp_model *model;
 *     if (sp_model_open(&model, "model.spm", NULL) != 0)
 *         puts(sp_error_text());
 *     sp_model_describe(model, &info);       columns, classes, voxel size
 *     sp_model_predict(model, n, coords, features, logits, labels);
 *     sp_model_close(model);
 *
 * `sptrain weights export MODEL --packed -o model.spm` makes the file. A model computes
 * on the CPU, by the code and to the bits of `sptrain predict`.
 */

typedef struct sp_model sp_model;

typedef struct sp_model_options {
    int threads;        /* 0: all cores of the caller */
    const char *device; /* NULL: "cpu", which is the only one */
} sp_model_options;

typedef struct sp_model_info {
    int n_features, n_classes;
    double voxel_size;                /* metre */
    const char *const *feature_names; /* [n_features], owned by the model */
    const char *const *class_names;   /* [n_classes], owned by the model */
} sp_model_info;

/* Opens a packed model, or with the full library a checkpoint or a run folder too (its
 * best.h5, else its newest checkpoint). options NULL: zeros. *model is NULL after a
 * failure. SP_EUSAGE (2): an option; SP_EDATA (3): the file is damaged, of another
 * kind, or names no columns; SP_EIO (4), SP_EMEM (5). Cost: reads the whole file. */
int sp_model_open(sp_model **model, const char *path, const sp_model_options *options);
/* Fills info, whose names live as long as the model. SP_EUSAGE: a pointer is NULL. */
int sp_model_describe(const sp_model *model, sp_model_info *info);
/* Predicts the classes of one sample:
 *   n         number of voxels, less than 2^30; 0 is allowed and does nothing
 *   coords    [n][3] voxel indices x, y, z of info.voxel_size, each voxel once, in any
 *             order; -2^19 to 2^19 - 1
 *   features  [n][n_features] in the order of info.feature_names, as the shards have
 *             them: the model normalizes them
 *   logits    [n][n_classes], written; NULL: not wanted
 *   labels    [n] the class of the greatest logit, the first of several; NULL likewise
 * Rows of logits and labels are the caller's rows. Several threads may use one model;
 * they wait for each other, and models of their own run at the same time. Memory stays
 * that of the largest sample so far. After a failure logits and labels are undefined
 * and the model can be used again. SP_EUSAGE: a pointer is NULL; SP_EDATA: a
 * coordinate out of range or twice, or a feature that is not finite, with its row;
 * SP_ENUMERIC (8): an output is not finite; SP_EMEM. */
int sp_model_predict(sp_model *model, int64_t n, const int32_t *coords,
                     const float *features, float *logits, uint16_t *labels);
/* Frees the model; NULL does nothing. No thread may be using it. */
void sp_model_close(sp_model *model);
/* The message of the calling thread's last failure; "" if there was none. Valid until
 * this thread's next failure. Never NULL. */
const char *sp_error_text(void);

#ifdef __cplusplus
}
#endif
#endif
