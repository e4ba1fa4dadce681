/* A metric of one's own, summed over all samples of all ranks, here on one rank without
 * MPI, with data from a callback: in how many scenes the ball is found, and how sure the
 * network is.
 *
 *     ./05_own_metric */
#include <math.h>
#include <sptrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"

enum { TRAIN = 8, VALIDATION = 4, FOUND = 0, SURE = 1, METRICS = 2, BALL = 2 };

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "05_own_metric: %s\n", sp_error_text());
    exit(status);
}

/* One sample: does the predicted ball overlap the true one by half, and what is the mean
 * probability of the predicted classes? */
static void measure(void *arg, const sp_logits *l, double *sums)
{
    int64_t both = 0, any = 0;
    double sure = 0;

    (void)arg;
    for (int64_t i = 0; i < l->n; i++) {
        const float *x = l->logits + i * l->n_classes;
        double sum = 0;
        int best = 0;

        for (int c = 1; c < l->n_classes; c++)
            best = x[c] > x[best] ? c : best;
        for (int c = 0; c < l->n_classes; c++)
            sum += exp((double)x[c] - x[best]);
        sure += 1 / sum;
        both += best == BALL && l->labels[i] == BALL;
        any += best == BALL || l->labels[i] == BALL;
    }
    sums[FOUND] = any > 0 && 2 * both >= any;
    sums[SURE] = l->n ? sure / (double)l->n : 0;
}

/* Validation samples are others than those of the training. */
static int read_validation(void *arg, int64_t i, int32_t *coords, float *features,
                           int32_t *labels)
{
    return scene_read(arg, TRAIN + i, coords, features, labels);
}

int main(void)
{
    const sp_data_about about = scene_about();
    int64_t sizes[TRAIN], validation_sizes[VALIDATION];
    sp_training_options options;
    sp_training *training;
    sp_step_info step;
    sp_scores scores;
    sp_deck *deck;
    sp_comm *comm;

    memset(&options, 0, sizeof options);
    scene_sizes(0, TRAIN, sizes);
    scene_sizes(TRAIN, VALIDATION, validation_sizes);
    check(sp_comm_create_self(&comm));
    check(sp_deck_create(&deck, "net: { family = \"dummy\"; };\n"
                                "batch: { size = 2; };\n"
                                "train: { epochs = 8; warmup_steps = 0; lr = 0.02; };\n"
                                "run: { device = \"cpu\"; threads = 1; };\n"));
    check(
        sp_data_create_source(&options.train, &about, TRAIN, sizes, scene_read, NULL));
    check(sp_data_create_source(&options.validation, &about, VALIDATION,
                                validation_sizes, read_validation, NULL));
    options.comm = comm, options.deck = deck;
    options.n_metrics = METRICS, options.metric = measure;
    check(sp_training_create(&training, &options));
    while (!sp_training_is_done(training)) {
        check(sp_training_step(training, &step));
        if (!step.is_epoch_end)
            continue;
        check(sp_training_evaluate(training, &scores));
        printf(
            "epoch %lld: mIoU %.3f, balls found %.0f of %lld, mean probability %.4f\n",
            (long long)step.epoch + 1, scores.miou, scores.metrics[FOUND],
            (long long)scores.n_samples,
            scores.metrics[SURE] / (double)scores.n_samples);
    }
    sp_training_destroy(training);
    sp_data_destroy(options.train);
    sp_data_destroy(options.validation);
    sp_deck_destroy(deck);
    sp_comm_destroy(comm);
    return 0;
}
