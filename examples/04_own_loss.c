/* A loss of one's own over all samples of a step, on all ranks: a contrastive loss. The
 * mean of a sample's logits is its embedding e. Samples 2k and 2k + 1 are a pair, and
 *
 *     S = sum over i of -log( exp(e_i e_p(i) / T) / sum over j != i of exp(e_i e_j / T) )
 *
 * pulls pairs together and pushes all others apart (InfoNCE; van den Oord et al. 2018).
 *     mpiexec -n 3 ./04_own_loss */
#include <math.h>
#include <mpi.h>
#include <sptrain.h>
#include <stdio.h>
#include <string.h>

#include "scene.h"

enum { SAMPLES = 12, C = 4 }; /* samples of a step; numbers of an embedding: classes */
static const double T = 0.5;

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "04_own_loss: %s\n", sp_error_text());
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* The embeddings of the samples of all ranks. */
static void gather(sp_comm *comm, const sp_logits *l, double e[SAMPLES][C])
{
    memset(e, 0, SAMPLES * sizeof *e);
    for (int b = 0; b < l->n_samples; b++) {
        const int64_t first = l->sample_row[b], end = l->sample_row[b + 1];

        for (int64_t i = first; i < end; i++)
            for (int k = 0; k < C; k++)
                e[l->sample[b]][k] +=
                    (double)l->logits[i * C + k] / (double)(end - first);
    }
    check(sp_comm_sum(comm, &e[0][0], SAMPLES * C));
}

/* Returns sample i's loss; p[j]: the share of sample j in its denominator. */
static double loss_of(double e[SAMPLES][C], int i, double p[SAMPLES])
{
    double sum = 0, pair = 0;

    for (int j = 0; j < SAMPLES; j++) {
        double s = 0;

        for (int k = 0; k < C; k++)
            s += e[i][k] * e[j][k] / T;
        pair = j == (i ^ 1) ? s : pair;
        sum += p[j] = j == i ? 0 : exp(s);
    }
    for (int j = 0; j < SAMPLES; j++)
        p[j] /= sum;
    return log(sum) - pair;
}

static int own_loss(void *comm, const sp_logits *l, float *gradient, double *loss_sum,
                    double *weight_sum)
{
    double e[SAMPLES][C], de[SAMPLES][C] = {{0}}, p[SAMPLES];

    gather(comm, l, e);
    for (int i = 0; i < SAMPLES; i++) {
        loss_of(e, i, p);
        p[i ^ 1] -= 1;
        for (int j = 0; j < SAMPLES; j++)
            for (int k = 0; k < C; k++) {
                de[i][k] += p[j] * e[j][k] / T;
                de[j][k] += p[j] * e[i][k] / T;
            }
    }
    for (int b = 0; b < l->n_samples; b++) {
        const int64_t first = l->sample_row[b], end = l->sample_row[b + 1];

        *loss_sum += loss_of(e, (int)l->sample[b], p);
        *weight_sum += 1;
        for (int64_t i = first * C; i < end * C; i++)
            gradient[i] = (float)(de[l->sample[b]][i % C] / (double)(end - first));
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const char text[] =
        "net: { family = \"dummy\"; width = 0.5; }; batch: { size = 12; };\n"
        "augment: { flip = false; rotate_z = false; scale = []; };\n"
        "train: { epochs = 15; warmup_steps = 0; optimizer = \"adamw\"; lr = 0.002; "
        "};\n"
        "run: { device = \"cpu\"; threads = 1; };\n";
    sp_data_about about = scene_about();
    sp_training_options options;
    sp_training *training;
    int64_t sizes[SAMPLES];
    sp_step_info step;
    sp_deck *deck;
    int threads;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    memset(&options, 0, sizeof options);
    check(sp_comm_create_mpi(&options.comm, MPI_COMM_WORLD));
    check(sp_deck_create(&deck, text));
    about.n_classes = C, about.class_names = NULL;
    scene_sizes(0, SAMPLES, sizes);
    check(sp_data_create_source(&options.train, &about, SAMPLES, sizes, scene_read, 0));
    options.deck = deck, options.loss = own_loss, options.loss_arg = options.comm;
    check(sp_training_create(&training, &options));
    while (!sp_training_is_done(training)) {
        check(sp_training_step(training, &step));
        if (sp_comm_rank(options.comm) == 0)
            printf("step %lld: loss %.5f\n", (long long)step.step, step.loss);
    }
    sp_training_destroy(training);
    sp_data_destroy(options.train);
    sp_deck_destroy(deck);
    sp_comm_destroy(options.comm);
    return MPI_Finalize();
}
