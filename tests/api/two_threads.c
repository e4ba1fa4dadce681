/* Two threads use two communicators of the same ranks, a data set and a training each, in
 * any order of time: no rank may wait in one for a thread that waits in the other.
 *
 *     mpiexec -n 2 ./two_threads SHARD
 *
 * Ends with 77 if this MPI serves one thread only. */
#include <mpi.h>
#include <pthread.h>
#include <sptrain.h>
#include <stdio.h>
#include <string.h>

enum { TIMES = 60 };

static const char *shard;

typedef struct worker {
    sp_comm *comm;
    pthread_t thread;
    char path[16]; /* of its checkpoint */
} worker;

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "two_threads: %s\n", sp_error_text());
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* Opens, saves and loads files again and again. */
static void *use_files(void *arg)
{
    worker *w = arg;
    sp_training_options options;
    sp_training *training;
    sp_model *model;
    sp_deck *deck;

    check(sp_deck_create(&deck, "net: { family = \"dummy\"; width = 0.1; };\n"
                                "run: { device = \"cpu\"; threads = 1; };\n"));
    memset(&options, 0, sizeof options);
    options.comm = w->comm, options.deck = deck;
    for (int i = 0; i < TIMES; i++) {
        sp_data_destroy(options.train);
        check(sp_data_open_shards(&options.train, w->comm, 1, &shard));
    }
    check(sp_training_create(&training, &options));
    check(sp_training_step(training, NULL));
    for (int i = 0; i < TIMES; i++) {
        check(sp_training_save(training, w->path));
        check(sp_training_load(training, w->path));
        check(sp_model_open(&model, w->path, NULL));
        sp_model_close(model);
    }
    sp_training_destroy(training);
    sp_data_destroy(options.train);
    sp_deck_destroy(deck);
    return NULL;
}

int main(int argc, char **argv)
{
    worker w[2];
    int level;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    shard = argv[1];
    for (int i = 0; i < 2 && level == MPI_THREAD_MULTIPLE; i++) {
        snprintf(w[i].path, sizeof w[i].path, "thread%d.h5", i);
        check(sp_comm_create_mpi(&w[i].comm, MPI_COMM_WORLD));
    }
    for (int i = 0; i < 2 && level == MPI_THREAD_MULTIPLE; i++)
        if (pthread_create(&w[i].thread, NULL, use_files, &w[i]))
            MPI_Abort(MPI_COMM_WORLD, SP_EMEM);
    for (int i = 0; i < 2 && level == MPI_THREAD_MULTIPLE; i++) {
        pthread_join(w[i].thread, NULL);
        sp_comm_destroy(w[i].comm);
    }
    MPI_Finalize();
    return level == MPI_THREAD_MULTIPLE ? 0 : 77;
}
