/* own_loss_gradient: the loss of examples/04_own_loss.c on random logits of samples that lie
 * on all ranks. Exits with 0 if its gradient is that of a finite difference: the logits of
 * one rank at a time move, and S of all ranks changes. */
#define main example_main
#include "04_own_loss.c"
#undef main

enum { ROWS = 5 /* of each sample */ };

/* S of all ranks. */
static double gradient_loss(sp_comm *comm, const sp_logits *l, float *gradient)
{
    double sum = 0, weight = 0;

    check(own_loss(comm, l, gradient, &sum, &weight));
    check(sp_comm_sum(comm, &sum, 1));
    check(sp_comm_sum(comm, &weight, 1));
    return weight == SAMPLES ? sum : NAN;
}

/* The relative error with the logits of `rank` moved, each by up to h to either side, in the
 * direction in which S grows. */
static double gradient_error(sp_comm *comm, sp_logits *l, int rank,
                             const float *gradient)
{
    const double h = 1e-3;
    const float *at = l->logits;
    float moved[SAMPLES * ROWS * C], scratch[SAMPLES * ROWS * C];
    double expected = 0, found = 0;

    l->logits = moved;
    for (int side = -1; side <= 1; side += 2) {
        uint32_t state = 7;

        for (int64_t i = 0; i < l->n * C; i++) {
            const double d = scene_random(&state) % 3 * (gradient[i] > 0 ? h : -h);

            moved[i] = (float)(at[i] + (rank == sp_comm_rank(comm) ? side * d : 0));
            expected += gradient[i] * ((double)moved[i] - at[i]) * side;
        }
        found += side * gradient_loss(comm, l, scratch);
    }
    l->logits = at;
    check(sp_comm_sum(comm, &expected, 1));
    return fabs(found - expected) / fabs(expected);
}

int main(int argc, char **argv)
{
    float logits[SAMPLES * ROWS * C], gradient[SAMPLES * ROWS * C];
    int64_t sample[SAMPLES], sample_row[SAMPLES + 1] = {0};
    sp_logits l = {0, C, logits, NULL, 0, sample, sample_row};
    double worst = 0;
    sp_comm *comm;
    int threads;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    check(sp_comm_create_mpi(&comm, MPI_COMM_WORLD));
    for (int s = 0; s < SAMPLES; s++) {
        uint32_t state = (uint32_t)s + 1;

        if (s % sp_comm_size(comm) != sp_comm_rank(comm))
            continue;
        sample[l.n_samples++] = s;
        for (int i = 0; i < ROWS * C; i++)
            logits[l.n * C + i] = (float)(scene_random(&state) % 2000) / 1000 - 1;
        sample_row[l.n_samples] = l.n += ROWS;
    }
    gradient_loss(comm, &l, gradient);
    for (int rank = 0; rank < sp_comm_size(comm); rank++)
        worst = fmax(worst, gradient_error(comm, &l, rank, gradient));
    if (sp_comm_rank(comm) == 0)
        printf("gradient: relative error %.2g\n", worst);
    sp_comm_destroy(comm);
    MPI_Finalize();
    return worst < 1e-4 ? 0 : 1;
}
