/* A loss of one's own over all samples of a step, on all ranks: a contrastive loss. The
 * mean of a sample's logits is its embedding e. Samples 2k and 2k + 1 are a pair, and
 *
 *     S = sum over i of -log( exp(e_i e_p(i) / T) / sum over j != i of exp(e_i e_j / T) )
 *
 * pulls pairs together and pushes all others apart (InfoNCE; van den Oord et al. 2018).
 *
 *     mpiexec -n 3 ./04_own_loss */
#include <math.h>
#include <mpi.h>
#include <sptrain.h>
#include <stdio.h>

#include "scene.h"

enum { SAMPLES = 12, C = 4 /* length of an embedding: classes of the network */ };
static const double T = 0.5;
static const char deck_text[] =
    "net: { family = \"dummy\"; width = 0.5; }; batch: { size = 12; };" /* all */
    "augment: { flip = false; rotate_z = false; scale = []; };"
    "train: { epochs = 15; warmup_steps = 0; optimizer = \"adamw\"; lr = 0.002; };"
    "run: { device = \"cpu\"; threads = 1; };";

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "04_own_loss: %s\n", sp_error_text());
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* Adds up the embeddings of the samples of all ranks; e is 0 before. */
static void gather(sp_comm *comm, const sp_logits *l, double e[SAMPLES][C])
{
    for (int b = 0; b < l->n_samples; b++) {
        const int64_t first = l->sample_row[b], end = l->sample_row[b + 1];

        for (int64_t i = first; i < end; i++)
            for (int k = 0; k < C; k++)
                e[l->sample[b]][k] += l->logits[i * C + k] / (double)(end - first);
    }
    check(sp_comm_sum(comm, &e[0][0], SAMPLES * C));
}

/* Returns the loss of sample i, and adds its derivatives by all embeddings to de. */
static double pair_loss(double e[SAMPLES][C], int i, double de[SAMPLES][C])
{
    double s[SAMPLES], top = -INFINITY, sum = 0;

    for (int j = 0; j < SAMPLES; j++) {
        s[j] = j != i ? 0 : -INFINITY;
        for (int k = 0; k < C; k++)
            s[j] += e[i][k] * e[j][k] / T;
        top = fmax(top, s[j]);
    }
    for (int j = 0; j < SAMPLES; j++)
        sum += exp(s[j] - top);
    for (int j = 0; j < SAMPLES; j++) {
        const double d = exp(s[j] - top) / sum - (j == (i ^ 1));

        for (int k = 0; k < C; k++) {
            de[i][k] += d * e[j][k] / T;
            de[j][k] += d * e[i][k] / T;
        }
    }
    return top + log(sum) - s[i ^ 1];
}

static int own_loss(void *comm, const sp_logits *l, float *gradient, double *loss_sum,
                    double *weight_sum)
{
    double e[SAMPLES][C] = {{0}}, de[SAMPLES][C] = {{0}}, loss[SAMPLES];

    gather((sp_comm *)comm, l, e);
    for (int i = 0; i < SAMPLES; i++)
        loss[i] = pair_loss(e, i, de);
    for (int b = 0; b < l->n_samples; b++) {
        const int64_t first = l->sample_row[b], end = l->sample_row[b + 1];

        *loss_sum += loss[l->sample[b]];
        *weight_sum += 1;
        for (int64_t i = first; i < end; i++)
            for (int k = 0; k < C; k++)
                gradient[i * C + k] = (float)(de[l->sample[b]][k] / (end - first));
    }
    return 0;
}

int main(int argc, char **argv)
{
    sp_data_about about = scene_about();
    sp_training_options options = {0};
    sp_training *training;
    int64_t n[SAMPLES];
    sp_step_info step;
    sp_deck *deck;
    sp_comm *comm;
    int threads;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    check(sp_comm_create_mpi(&comm, MPI_COMM_WORLD));
    check(sp_deck_create(&deck, deck_text));
    about.n_classes = C, about.class_names = NULL;
    scene_sizes(0, SAMPLES, n);
    check(sp_data_create_source(&options.train, &about, SAMPLES, n, scene_read, NULL));
    options.comm = comm, options.deck = deck;
    options.loss = own_loss, options.loss_arg = comm;
    check(sp_training_create(&training, &options));
    while (!sp_training_is_done(training)) {
        check(sp_training_step(training, &step));
        if (sp_comm_rank(comm) == 0)
            printf("step %lld: loss %.5f\n", (long long)step.step, step.loss);
    }
    sp_training_destroy(training);
    sp_data_destroy(options.train);
    sp_deck_destroy(deck);
    sp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
