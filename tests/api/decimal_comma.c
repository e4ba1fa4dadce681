/* A program whose locale has a decimal comma: numbers of decks mean the same, and its
 * checkpoints are read again. Prints the steps and ends with 77 if there is no such locale.
 *
 *     ./decimal_comma SHARD CHECKPOINT LOCALE */
#include <locale.h>
#include <sptrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char deck_text[] =
    "net: { layers = ( { name = \"a\"; op = \"conv\"; out = 8; kernel = 3; },\n"
    "    { name = \"b\"; op = \"batchnorm\"; eps = 0.0015; }, { name = \"r\"; op = "
    "\"relu\"; },\n"
    "    { name = \"last\"; op = \"linear\"; out = 3; } ); };\n"
    "train: { lr = 0.0215; warmup_steps = 0; lr_layers = [\"a=0.25\"]; };\n"
    "run: { device = \"cpu\"; threads = 1; };\n";

static void check(int status)
{
    if (status == SP_OK)
        return;
    fprintf(stderr, "decimal_comma: %s\n", sp_error_text());
    exit(1);
}

int main(int argc, char **argv)
{
    sp_training_options options = {0};
    sp_training *training;
    sp_step_info step;
    sp_model *model;
    sp_comm *comm;
    sp_deck *deck;

    if (argc < 4 || !setlocale(LC_ALL, argv[3]))
        return 77;
    check(sp_comm_create_self(&comm));
    check(sp_deck_create(&deck, deck_text));
    check(sp_deck_override(deck, "augment.scale=[0.925, 1.0625]"));
    check(sp_data_open_shards(&options.train, comm, 1, (const char *const *)&argv[1]));
    options.comm = comm, options.deck = deck;
    check(sp_training_create(&training, &options));
    for (int i = 0; i < 2; i++) {
        check(sp_training_step(training, &step));
        check(sp_training_save(training, argv[2]));
        check(sp_training_load(training, argv[2]));
        printf("%.0f\n", step.loss * 1e15);
    }
    check(sp_model_open(&model, argv[2], NULL));
    sp_model_close(model);
    sp_training_destroy(training);
    sp_data_destroy(options.train);
    sp_deck_destroy(deck);
    sp_comm_destroy(comm);
    return strcmp(localeconv()->decimal_point, argv[3][0] == 'C' ? "." : ",") != 0;
}
