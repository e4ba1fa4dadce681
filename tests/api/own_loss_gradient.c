/* examples/04_own_loss.c, whose loss is followed in the first step by a comparison of its
 * gradient with a finite difference: the logits of one rank move, each by a random length
 * in the direction that increases S, and the change of S is the gradient times these
 * lengths. Ends the ranks if they differ. */
#include <mpi.h>
#include <sptrain.h>

static int create_checked(sp_training **training, const sp_training_options *options);
#define sp_training_create create_checked
#include "04_own_loss.c"
#undef sp_training_create

static double total_loss(sp_comm *comm, const sp_logits *l)
{
    double e[SAMPLES][C], p[SAMPLES], sum = 0;

    gather(comm, l, e);
    for (int i = 0; i < SAMPLES; i++)
        sum += loss_of(e, i, p);
    return sum;
}

static void check_gradient(sp_comm *comm, int rank, const sp_logits *l,
                           const float *gradient)
{
    const int64_t n = l->n * C;
    float *moved = malloc(((size_t)n + 1) * sizeof *moved);
    double expected = 0, found = 0;
    sp_logits at = *l;

    at.logits = moved;
    for (int side = -1; side <= 1; side += 2) {
        uint32_t state = 7;

        for (int64_t i = 0; i < n; i++) {
            const double up = gradient[i] > 0 ? 1e-3 : -1e-3;
            const double d = up * (scene_random(&state) % 3);

            moved[i] = (float)(l->logits[i] + (rank == sp_comm_rank(comm)) * side * d);
            expected += gradient[i] * ((double)moved[i] - l->logits[i]) * side;
        }
        found += side * total_loss(comm, &at);
    }
    free(moved);
    check(sp_comm_sum(comm, &expected, 1));
    if (fabs(found - expected) / (fabs(expected) + 1e-6) < 1e-4)
        return;
    fprintf(stderr, "rank %d: S changes by %g, expected %g\n", rank, found, expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int checked_loss(void *comm, const sp_logits *l, float *gradient,
                        double *loss_sum, double *weight_sum)
{
    static int n_calls;
    const int status = own_loss(comm, l, gradient, loss_sum, weight_sum);

    for (int rank = 0; n_calls == 0 && rank < sp_comm_size(comm); rank++)
        check_gradient(comm, rank, l, gradient);
    n_calls++;
    return status;
}

static int create_checked(sp_training **training, const sp_training_options *options)
{
    sp_training_options checked = *options;

    checked.loss = checked_loss;
    return sp_training_create(training, &checked);
}
