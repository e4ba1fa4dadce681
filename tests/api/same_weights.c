/* same_weights SHARD A.h5 B.h5 [KEY=VALUE ...]: exits with 0 if both files have the same
 * weights, bit for bit, of the deck's network on the shard's data; prints how many. */
#include <sptrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "same_weights: %s\n", sp_error_text());
    exit(2);
}

int main(int argc, char **argv)
{
    sp_training_options options = {0};
    sp_training *training;
    sp_comm *comm;
    sp_deck *deck;
    float *weights[2];
    int64_t n;

    if (argc < 4)
        return 2;
    check(sp_comm_create_self(&comm));
    check(sp_deck_create(&deck, NULL));
    for (int i = 4; i < argc; i++)
        check(sp_deck_override(deck, argv[i]));
    check(sp_data_open_shards(&options.train, comm, 1, (const char *const *)&argv[1]));
    options.comm = comm;
    options.deck = deck;
    check(sp_training_create(&training, &options));
    n = sp_training_n_weights(training);
    for (int i = 0; i < 2; i++) {
        weights[i] = malloc((size_t)n * sizeof **weights);
        if (!weights[i])
            return 2;
        check(sp_training_load_weights(training, argv[2 + i]));
        check(sp_training_weights(training, weights[i]));
    }
    printf("%lld weights\n", (long long)n);
    return memcmp(weights[0], weights[1], (size_t)n * sizeof **weights) != 0;
}
