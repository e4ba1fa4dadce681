/* Predicts the classes of a small scene with a trained model, without MPI.
 *
 *     ./02_predict MODEL
 *
 * MODEL is a checkpoint or a packed model of features "height" and "noise". Prints the
 * number of voxels of each class. */
#include <sptrain.h>
#include <stdio.h>
#include <stdlib.h>

#include "scene.h"

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "02_predict: %s\n", sp_error_text());
    exit(status);
}

int main(int argc, char **argv)
{
    const int64_t n = scene_sample(1000, NULL, NULL, NULL);
    int32_t *coords = malloc((size_t)n * 3 * sizeof *coords);
    float *features = malloc((size_t)n * SCENE_FEATURES * sizeof *features);
    int32_t *truth = malloc((size_t)n * sizeof *truth);
    uint16_t *labels = malloc((size_t)n * sizeof *labels);
    int64_t n_right = 0, count[SCENE_CLASSES] = {0};
    sp_model_info info;
    sp_model *model;

    if (argc != 2 || !coords || !features || !truth || !labels)
        return 2;
    check(sp_model_open(&model, argv[1], NULL));
    check(sp_model_describe(model, &info));
    if (info.n_features != SCENE_FEATURES || info.n_classes != SCENE_CLASSES)
        return 2;
    scene_sample(1000, coords, features, truth);
    check(sp_model_predict(model, n, coords, features, NULL, labels));
    for (int64_t i = 0; i < n; i++) {
        count[labels[i]]++;
        n_right += labels[i] == truth[i];
    }
    for (int c = 0; c < info.n_classes; c++)
        printf("%s: %lld voxels\n", info.class_names[c], (long long)count[c]);
    printf("accuracy %.4f\n", (double)n_right / (double)n);
    sp_model_close(model);
    free(coords);
    free(features);
    free(truth);
    free(labels);
    return 0;
}
