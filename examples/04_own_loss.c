/* A loss of one's own over all samples of a step, on all ranks: a contrastive loss. The
 * mean of a sample's logits is its embedding e. Samples 2k and 2k + 1 are a pair, and
 *
 *     S = sum over i of -log( exp(e_i e_p(i) / T) / sum over j != i of exp(e_i e_j / T) )
 *
 * pulls pairs together and pushes all others apart (InfoNCE; van den Oord et al. 2018).
 *
 *     mpiexec -n 3 ./04_own_loss [--check]
 *
 * --check compares the gradient with a finite difference in the first step. */
#include <math.h>
#include <mpi.h>
#include <sptrain.h>
#include <stdio.h>
#include <string.h>

#include "scene.h"

enum { SAMPLES = 12, C = 4 /* length of an embedding: classes of the network */ };
static const double T = 0.5;

typedef struct contrast {
    sp_comm *comm;
    int is_checking;
    double worst; /* greatest relative error of the gradient */
} contrast;

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "04_own_loss: %s\n", sp_error_text());
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* Embeddings of the samples of all ranks; present[i] is 1 if sample i is in the step. */
typedef struct table {
    double e[SAMPLES][C], present[SAMPLES];
} table;

static void gather(const contrast *c, const sp_logits *l, table *t)
{
    memset(t, 0, sizeof *t);
    for (int b = 0; b < l->n_samples; b++) {
        const int64_t first = l->sample_row[b], end = l->sample_row[b + 1];
        double *e = t->e[l->sample[b]];

        t->present[l->sample[b]] = 1;
        for (int64_t i = first; i < end; i++)
            for (int k = 0; k < C; k++)
                e[k] += (double)l->logits[i * C + k] / (double)(end - first);
    }
    check(sp_comm_sum(c->comm, &t->e[0][0], SAMPLES * C + SAMPLES));
}

/* p[j]: the share of sample j in the denominator of sample i. Returns i's loss, 0 if it
 * has no pair in this step. */
static double loss_of(const table *t, int i, double p[SAMPLES])
{
    double s[SAMPLES], top = -INFINITY, sum = 0;

    memset(p, 0, SAMPLES * sizeof *p);
    if (!t->present[i] || !t->present[i ^ 1])
        return 0;
    for (int j = 0; j < SAMPLES; j++) {
        s[j] = 0;
        for (int k = 0; k < C; k++)
            s[j] += t->e[i][k] * t->e[j][k] / T;
        if (j != i && t->present[j] && s[j] > top)
            top = s[j];
    }
    for (int j = 0; j < SAMPLES; j++)
        sum += p[j] = j != i && t->present[j] ? exp(s[j] - top) : 0;
    for (int j = 0; j < SAMPLES; j++)
        p[j] /= sum;
    return top + log(sum) - s[i ^ 1];
}

/* The gradient of S by all embeddings. */
static void differentiate(const table *t, double de[SAMPLES][C])
{
    double p[SAMPLES];

    memset(de, 0, SAMPLES * sizeof *de);
    for (int i = 0; i < SAMPLES; i++) {
        if (!t->present[i] || !t->present[i ^ 1])
            continue;
        loss_of(t, i, p);
        p[i ^ 1] -= 1;
        for (int j = 0; j < SAMPLES; j++)
            for (int k = 0; k < C; k++) {
                de[i][k] += p[j] * t->e[j][k] / T;
                de[j][k] += p[j] * t->e[i][k] / T;
            }
    }
}

static double total_loss(const contrast *c, const sp_logits *l)
{
    double p[SAMPLES], sum = 0;
    table t;

    gather(c, l, &t);
    for (int i = 0; i < SAMPLES; i++)
        sum += loss_of(&t, i, p);
    return sum;
}

/* Moves the logits of one rank, each by a random length to where S grows; the change of S
 * is the gradient times these lengths. */
static void check_gradient(contrast *c, const sp_logits *l, const float *gradient)
{
    const int64_t n = l->n * C;
    const double h = 1e-3;
    float *moved = malloc(((size_t)n + 1) * sizeof *moved);
    uint32_t state = 7;
    sp_logits at = *l;

    at.logits = moved;
    for (int rank = 0; rank < sp_comm_size(c->comm); rank++) {
        const int is_mine = rank == sp_comm_rank(c->comm);
        double expected = 0, found = 0;

        for (int side = -1; side <= 1; side += 2) {
            state = 7;
            for (int64_t i = 0; i < n; i++) {
                const double up = gradient[i] > 0 ? 1 : -1;
                const double d = is_mine ? up * (scene_random(&state) % 3) : 0;

                moved[i] = (float)(l->logits[i] + side * h * d);
                expected += gradient[i] * ((double)moved[i] - l->logits[i]) * side;
            }
            found += side * total_loss(c, &at);
        }
        check(sp_comm_sum(c->comm, &expected, 1));
        c->worst = fmax(c->worst, fabs(found - expected) / (fabs(expected) + 1e-6));
    }
    free(moved);
}

static int own_loss(void *arg, const sp_logits *l, float *gradient, double *loss_sum,
                    double *weight_sum)
{
    contrast *c = arg;
    double de[SAMPLES][C], p[SAMPLES];
    table t;

    gather(c, l, &t);
    differentiate(&t, de);
    for (int b = 0; b < l->n_samples; b++) {
        const int64_t first = l->sample_row[b], end = l->sample_row[b + 1];
        const int s = (int)l->sample[b];

        *loss_sum += loss_of(&t, s, p);
        *weight_sum += t.present[s ^ 1];
        for (int64_t i = first; i < end; i++)
            for (int k = 0; k < C; k++)
                gradient[i * C + k] = (float)(de[s][k] / (double)(end - first));
    }
    if (c->is_checking)
        check_gradient(c, l, gradient);
    c->is_checking = 0;
    return 0;
}

int main(int argc, char **argv)
{
    sp_data_about about = scene_about();
    sp_training_options options;
    contrast c = {NULL, 0, 0};
    sp_training *training;
    int64_t sizes[SAMPLES];
    sp_step_info step;
    sp_deck *deck;
    int threads;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    memset(&options, 0, sizeof options);
    check(sp_comm_create_mpi(&c.comm, MPI_COMM_WORLD));
    check(sp_deck_create(&deck,
                         "net: { family = \"dummy\"; width = 0.5; };\n"
                         "batch: { size = 12; };\n"
                         "augment: { flip = false; rotate_z = false; scale = []; };\n"
                         "train: { epochs = 15; warmup_steps = 0; optimizer = "
                         "\"adamw\"; lr = 0.002; };\n"
                         "run: { device = \"cpu\"; threads = 1; };\n"));
    c.is_checking = argc > 1 && strcmp(argv[1], "--check") == 0;
    about.n_classes = C, about.class_names = NULL;
    scene_sizes(0, SAMPLES, sizes);
    check(sp_data_create_source(&options.train, &about, SAMPLES, sizes, scene_read,
                                NULL));
    options.comm = c.comm, options.deck = deck;
    options.loss = own_loss, options.loss_arg = &c;
    check(sp_training_create(&training, &options));
    while (!sp_training_is_done(training)) {
        check(sp_training_step(training, &step));
        if (sp_comm_rank(c.comm) == 0)
            printf("step %lld: loss %.5f\n", (long long)step.step, step.loss);
    }
    if (argc > 1 && sp_comm_rank(c.comm) == 0)
        printf("gradient: relative error %.2g\n", c.worst);
    sp_training_destroy(training);
    sp_data_destroy(options.train);
    sp_deck_destroy(deck);
    sp_comm_destroy(c.comm);
    MPI_Finalize();
    return c.worst < 1e-4 ? 0 : 1;
}
