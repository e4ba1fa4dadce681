/* Trains a network on voxel shards, over the ranks of MPI.
 *
 *     mpiexec -n 2 ./01_train 'train-*.h5' 'val-*.h5' model.h5 [SECTION.KEY=VALUE ...]
 *
 * The same deck and data give the same weights, bit for bit, as `sptrain`. */
#include <mpi.h>
#include <sptrain.h>
#include <stdio.h>

/* Ends all ranks if a call has failed: the others may wait for this one. */
static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "01_train: %s\n", sp_error_text());
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void print_line(void *arg, int level, const char *line)
{
    (void)arg;
    fprintf(level ? stderr : stdout, "%s\n", line);
}

static void print_scores(void *arg, const sp_scores *scores)
{
    if (*(const int *)arg == 0)
        printf("evaluation: loss %.4f, mIoU %.4f, accuracy %.4f\n", scores->loss,
               scores->miou, scores->accuracy);
}

static void train(int rank, sp_training *training, const char *path)
{
    sp_step_info step;
    sp_scores scores;

    while (!sp_training_is_done(training)) {
        check(sp_training_step(training, &step));
        if (rank == 0)
            printf("step %lld: loss %.6f, lr %.4g\n", (long long)step.step, step.loss,
                   step.lr);
        if (step.is_epoch_end)
            check(sp_training_evaluate(training, &scores));
    }
    check(sp_training_save(training, path));
}

int main(int argc, char **argv)
{
    sp_training_options options = {0};
    sp_training *training;
    sp_comm *comm;
    sp_deck *deck;
    int threads, rank;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    if (argc < 4) {
        fprintf(stderr, "usage: 01_train TRAIN VAL MODEL [KEY=VALUE ...]\n");
        MPI_Abort(MPI_COMM_WORLD, SP_EUSAGE);
    }
    check(sp_comm_create_mpi(&comm, MPI_COMM_WORLD));
    rank = sp_comm_rank(comm);
    check(sp_deck_create(&deck, NULL));
    for (int i = 4; i < argc; i++)
        check(sp_deck_override(deck, argv[i]));
    check(sp_data_open_shards(&options.train, comm, 1, (const char *const *)&argv[1]));
    check(sp_data_open_shards(&options.validation, comm, 1,
                              (const char *const *)&argv[2]));
    options.comm = comm;
    options.deck = deck;
    options.hooks.arg = &rank;
    options.hooks.log = print_line;
    options.hooks.evaluation_end = print_scores;
    check(sp_training_create(&training, &options));
    train(rank, training, argv[3]);
    sp_training_destroy(training);
    sp_data_destroy(options.validation);
    sp_data_destroy(options.train);
    sp_deck_destroy(deck);
    sp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
