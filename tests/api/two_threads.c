/* Two threads use two communicators of the same ranks, a data set and a training each, in
 * any order of time: no rank may wait in one for a thread that waits in the other. Decks and
 * columns that differ between the ranks are refused on all of them.
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

static void no_metric(void *arg, const sp_logits *logits, double *sums)
{
    (void)arg, (void)logits, (void)sums;
}

static void refused(int status, const char *text)
{
    if (status == SP_EUSAGE && strstr(sp_error_text(), text))
        return;
    fprintf(stderr, "two_threads: status %d, %s, expected %s\n", status,
            sp_error_text(), text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Gives each rank something else. */
static void differ(sp_training_options *options, sp_deck *deck)
{
    const sp_data_about about = {
        .voxel_size = 1, .n_features = 1 + sp_comm_rank(options->comm), .n_classes = 2};
    sp_training *training;
    sp_data *data;
    char key[32];

    refused(sp_data_create_gathered(&data, options->comm, &about, 0, NULL),
            "n_features is 1 on rank 0 and 2 on rank 1");
    snprintf(key, sizeof key, "train.seed=%d", sp_comm_rank(options->comm));
    check(sp_deck_override(deck, key));
    refused(sp_training_create(&training, options), "different values of train.seed");
    check(sp_deck_override(deck, "train.seed=1"));
    options->n_metrics = sp_comm_rank(options->comm);
    options->metric = no_metric;
    refused(sp_training_create(&training, options), "different values of options.loss");
    options->n_metrics = 0;
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
    differ(&options, deck);
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
