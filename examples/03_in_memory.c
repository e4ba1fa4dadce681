/* A simulation that trains on its own arrays, without a file: each rank computes some of
 * the samples, and all ranks train on all of them.
 *
 *     mpiexec -n 2 ./03_in_memory [SHARD [WEIGHTS]]
 *
 * With SHARD the data are written as a voxel shard too, and a second training reads them
 * from there: the weights of both are the same bits, which the program checks. WEIGHTS
 * is a checkpoint of the first training. */
#include <mpi.h>
#include <sptrain.h>
#include <stdio.h>
#include <string.h>

#include "scene.h"

enum { SAMPLES = 12 };

static const char deck_text[] =
    "net: { family = \"dummy\"; width = 0.5; };\n"
    "batch: { size = 4; };\n"
    "train: { epochs = 2; warmup_steps = 0; lr = 0.02; deterministic = \"world\"; };\n"
    "run: { device = \"cpu\"; threads = 1; };\n";

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "03_in_memory: %s\n", sp_error_text());
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* The samples that this rank has: a run of them, so that all ranks together have them in
 * order. */
static int64_t simulate(int rank, int size, sp_sample_arrays *samples)
{
    const int64_t first = SAMPLES * (int64_t)rank / size;
    const int64_t end = SAMPLES * ((int64_t)rank + 1) / size;

    for (int64_t i = first; i < end; i++) {
        const int64_t n = scene_sample(i, NULL, NULL, NULL);
        int32_t *coords = malloc((size_t)n * 3 * sizeof *coords);
        float *features = malloc((size_t)n * SCENE_FEATURES * sizeof *features);
        int32_t *labels = malloc((size_t)n * sizeof *labels);
        const sp_sample_arrays arrays = {n, coords, features, labels};

        if (!coords || !features || !labels)
            MPI_Abort(MPI_COMM_WORLD, SP_EMEM);
        scene_sample(i, coords, features, labels);
        samples[i - first] = arrays;
    }
    return end - first;
}

/* Trains on the data; *weights is malloc'd. */
static int64_t train(sp_comm *comm, sp_data *data, const char *path, float **weights)
{
    sp_training_options options;
    sp_training *training;
    sp_step_info step;
    sp_deck *deck;
    int64_t n;

    memset(&options, 0, sizeof options);
    check(sp_deck_create(&deck, deck_text));
    options.comm = comm, options.deck = deck, options.train = data;
    check(sp_training_create(&training, &options));
    while (!sp_training_is_done(training)) {
        check(sp_training_step(training, &step));
        if (sp_comm_rank(comm) == 0)
            printf("step %lld: loss %.9g\n", (long long)step.step, step.loss);
    }
    if (path)
        check(sp_training_save(training, path));
    n = sp_training_n_weights(training);
    *weights = malloc((size_t)n * sizeof **weights);
    check(sp_training_weights(training, *weights));
    sp_training_destroy(training);
    sp_deck_destroy(deck);
    return n;
}

int main(int argc, char **argv)
{
    const sp_data_about about = scene_about();
    sp_sample_arrays samples[SAMPLES];
    sp_data *data, *stored;
    sp_comm *comm;
    float *weights, *again;
    int64_t n, n_samples;
    int threads, is_same = 1;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    check(sp_comm_create_mpi(&comm, MPI_COMM_WORLD));
    n_samples = simulate(sp_comm_rank(comm), sp_comm_size(comm), samples);
    check(sp_data_create_gathered(&data, comm, &about, n_samples, samples));
    n = train(comm, data, argc > 2 ? argv[2] : NULL, &weights);
    if (argc > 1) {
        if (sp_comm_rank(comm) == 0)
            check(sp_data_write_shard(data, argv[1]));
        MPI_Barrier(MPI_COMM_WORLD);
        check(sp_data_open_shards(&stored, comm, 1, (const char *const *)&argv[1]));
        is_same = train(comm, stored, NULL, &again) == n &&
                  memcmp(weights, again, (size_t)n * sizeof *weights) == 0;
        if (sp_comm_rank(comm) == 0)
            printf("%lld weights, the same from memory and from %s: %s\n", (long long)n,
                   argv[1], is_same ? "yes" : "no");
        free(again);
        sp_data_destroy(stored);
    }
    sp_data_destroy(data);
    for (int64_t i = 0; i < n_samples; i++) {
        free((void *)(uintptr_t)samples[i].coords);
        free((void *)(uintptr_t)samples[i].features);
        free((void *)(uintptr_t)samples[i].labels);
    }
    free(weights);
    sp_comm_destroy(comm);
    MPI_Finalize();
    return is_same ? 0 : 1;
}
