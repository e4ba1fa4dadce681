/* Decks: the shipped ones and one with layers, read as every command reads them, and by
 * `sptrain check`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torture/fuzz/checkpoint_seeds.h"
#include "torture/fuzz/fuzz.h"

/* clang-format off */
static const char *const deck_words[] = {
    "0", "2147483647", "2147483648", "9223372036854775807", "99999999999999999999",
    "1e308", "1e999", "-1e-320", "0x", "0xffffffffffffffff", "1L", "1.", ".", "-",
    "+-1", "\"\"", "\"", "\"\\\"", "'", "[]", "()", "{}", "[", "(", "{", "}", ")", "]",
    ";", ",", "=", ":", "true", "false", "nan", "inf", "null", "/*", "*/", "//", "#",
    "%n%s%n", "@include", "@include \"deck.deck\"\n", "@include \".\"\n",
    "@include \"/dev/zero\"\n", "@include \"absent.deck\"\n", "net",
    "net : { width = 1e9; };", "layers", "[[[[[[[[[[", "((((((((((((((((((((",
    "\xff\xfe", "\n\n\n", "\t", "a.b.c = 1;", "net.width = 1;", "name = \"\";"};
/* clang-format on */
static const vocabulary words = {deck_words, sizeof deck_words / sizeof *deck_words};

static const char layers[] =
    "net : { layers = (\n  { name = \"a\"; op = \"conv\"; out = 8; kernel = 3; },\n"
    "  { name = \"b\"; op = \"batchnorm\"; eps = 1e-3; momentum = 0.02; },\n  { name = "
    "\"c\"; op = \"relu\"; },\n"
    "  { name = \"d\"; op = \"conv\"; out = 16; kernel = 2; stride = 2; },\n"
    "  { name = \"e\"; op = \"conv_transpose\"; out = 8; kernel = 2; stride = 2; },\n"
    "  { name = \"f\"; op = \"concat\"; from = [\"c\", \"e\"]; },\n"
    "  { name = \"g\"; op = \"linear\"; out = 3; bias = true; } ); };\n";

enum { SEEDS = 5 };
static const char path[] = "deck.deck";
static blob seed[SEEDS], shard;

/* Writes a deck that has every key with its default. */
static blob all_keys(void)
{
    CLOSED_BY(sp_config_destroy) sp_config config;
    FREED char *text;
    blob b;

    fuzz_must(sp_config_read(&config, NULL, 0, NULL));
    fuzz_must(sp_config_to_text(&config, &text));
    b = blob_of_text(text);
    return b;
}

static void prepare(void)
{
    static const char *const name[] = {"default", "dummy", "nimes3"};
    char from[4096];

    for (int i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%s/input/%s.deck", SP_SOURCE_DIR, name[i]);
        seed[i] = blob_read(from);
    }
    seed[3] = blob_of_text(layers);
    seed[4] = all_keys();
    seed_run();
    shard = blob_read(SEED_SHARD);
}

static void make(uint64_t *rng)
{
    blob b = blob_copy(seed[mutate_below(rng, SEEDS)]);

    for (size_t k = 1 + mutate_below(rng, 2); k > 0; k--) {
        if (mutate_below(rng, 3) == 0)
            mutate_bytes(&b, rng);
        else
            mutate_words(&b, b.n, &words, rng);
    }
    fuzz_give(path, b);
}

/* The resolved deck of a valid one reads back to itself. */
static void read_back(const sp_config *config)
{
    CLOSED_BY(sp_config_destroy) sp_config again;
    FREED char *text = NULL, *same = NULL;

    if (sp_config_to_text(config, &text) != SP_OK ||
        sp_config_parse(&again, text, "resolved", 0, NULL) != SP_OK)
        fuzz_fault("the resolved deck is refused: %s", sp_error_last()->message);
    if (sp_config_to_text(&again, &same) != SP_OK || strcmp(text, same) != 0)
        fuzz_fault("the resolved deck reads back to another one");
}

static bool run_deck(uint64_t *rng)
{
    static const sp_status allowed[] = {SP_EUSAGE, SP_OK};
    CLOSED_BY(sp_config_destroy) sp_config config;
    sp_graph graph;
    sp_status rc;

    make(rng);
    rc = sp_config_read(&config, path, 0, NULL);
    if (rc == SP_OK) {
        read_back(&config);
        if (sp_graph_build(&graph, &config, 4, 3) != SP_OK &&
            sp_error_last()->code != SP_EUSAGE && sp_error_last()->code != SP_EDATA)
            fuzz_fault("%s: %s", sp_status_name(sp_error_last()->code),
                       sp_error_last()->message);
        sp_graph_destroy(&graph);
    }
    return fuzz_status_is_ok(rc, path, allowed);
}

/* ---- sptrain check ---- */

static sp_status check(void *context)
{
    char *overrides[] = {"data.train=[\"" SEED_SHARD "\"]",
                         "data.val=[\"" SEED_SHARD "\"]", "run.device=cpu"};

    (void)context;
    return seed_sptrain("check", path, 3, overrides);
}

static bool run_check(uint64_t *rng)
{
    static const sp_status allowed[] = {SP_EUSAGE, SP_EDATA, SP_EMEM, SP_OK};

    make(rng);
    fuzz_put(SEED_SHARD, shard);
    return fuzz_command(check, NULL, allowed) == 0;
}

const fuzz_kind fuzz_deck = {"deck", 150, prepare, run_deck};
const fuzz_kind fuzz_check = {"check", 20, prepare, run_check};
