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

/* ---- Prediction ---- */

typedef struct sp_model sp_model;

typedef struct sp_model_options {
    int threads;        /* 0: all cores of the caller */
    const char *device; /* NULL: "cpu" */
} sp_model_options;

typedef struct sp_model_info {
    int n_features, n_classes;
    double voxel_size;                /* metre */
    const char *const *feature_names; /* [n_features], owned by the model */
    const char *const *class_names;   /* [n_classes], owned by the model */
} sp_model_info;

int sp_model_open(sp_model **model, const char *path, const sp_model_options *options);
int sp_model_describe(const sp_model *model, sp_model_info *info);
int sp_model_predict(sp_model *model, int64_t n, const int32_t *coords,
                     const float *features, float *logits, uint16_t *labels);
void sp_model_close(sp_model *model);
/* The message of the calling thread's last failure; "" if there was none. */
const char *sp_error_text(void);

#ifdef __cplusplus
}
#endif
#endif
