/* Every refusal of a deck or an override names place, key and the nearest valid name.
 */
#include "fixtures/test.h"

#include "deck/sp_deck.h"

/* libconfig 1.5 leaks the text that it was reading when the grammar is broken. The leak
 * checker, where there is one, reads from here that those bytes do not count. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig";
}

static void refused(const char *deck, const char *override, const char *message)
{
    char *overrides[] = {(char *)(uintptr_t) override};
    CLOSED_BY(sp_config_destroy) sp_config config;
    sp_status rc = sp_config_parse(&config, deck, "d", override != NULL, overrides);

    if (rc == SP_OK)
        fail_msg("accepted: %s %s", deck, override ? override : "");
    assert_int_equal(rc, SP_EUSAGE);
    if (strcmp(sp_error_last()->message, message))
        fail_msg("%s %s\n  says    %s\n  not     %s", deck, override ? override : "",
                 sp_error_last()->message, message);
}

TEST(names)
{
    refused("trian : { lr = 1; };", NULL,
            "d:1: unknown section trian; nearest is train");
    refused("\n\ntrain : {\n lrr = 1; };", NULL,
            "d:4: unknown key train.lrr; nearest is train.lr");
    refused("data : { lr = 1; };", NULL,
            "d:1: unknown key data.lr; nearest is train.lr");
    refused("lr = 1;", NULL, "d:1: unknown key lr; nearest is train.lr");
    refused("train = 3;", NULL,
            "d:1: section train takes a group { }, found the integer 3");
    refused("", "train.schedull=cosine",
            "command line: unknown key train.schedull; nearest is train.schedule");
    refused("", "lr", "command line: \"lr\" is no SECTION.KEY=VALUE");
    refused("", "=", "command line: unknown key ; nearest is train.lr");
}

TEST(choices)
{
    refused("train : {\n schedule = \"cosin\"; };", NULL,
            "d:2: train.schedule = \"cosin\" is not one of "
            "constant|step|poly|cosine|onecycle; nearest is \"cosine\"");
    refused(
        "", "run.device=gpu",
        "command line: run.device = \"gpu\" is not one of auto|cuda|cpu; nearest is "
        "\"cuda\"");
    refused("", "train.schedule=none",
            "command line: train.schedule = \"none\" is not one of "
            "constant|step|poly|cosine|onecycle; nearest is \"constant\"");
    refused("batch : { per = 1; };", NULL,
            "d:1: batch.per takes one of world|node|rank, found the integer 1");
    refused("train : { class_weights = 1; };", NULL,
            "d:1: train.class_weights takes one of "
            "none|inverse|sqrt_inverse|log_inverse|median_frequency or a list of "
            "numbers, found the integer 1");
}

/* run.wgmma was a flag: true and false need no quotation marks. */
TEST(a_choice_that_was_a_flag)
{
    sp_config config;

    assert_int_equal(
        sp_config_parse(&config, "run : { wgmma = false; };", "d", 0, NULL), SP_OK);
    assert_int_equal(config.run.wgmma, SP_WGMMA_OFF);
    sp_config_destroy(&config);
    refused("run : { wgmma = 1; };", NULL,
            "d:1: run.wgmma takes one of auto|true|false, found the integer 1");
    refused(
        "train : { schedule = true; };", NULL,
        "d:1: train.schedule takes one of constant|step|poly|cosine|onecycle, found "
        "true");
}

TEST(types)
{
    refused("train : { lr = \"x\"; };", NULL,
            "d:1: train.lr takes a number, found the text \"x\"");
    refused("batch : { size = 2.5; };", NULL,
            "d:1: batch.size takes an integer, found 2.5, a number that is no integer");
    refused("data : { verify = 1; };", NULL,
            "d:1: data.verify takes true or false, found the integer 1");
    refused("run : { dir = 1; };", NULL,
            "d:1: run.dir takes a text in quotation marks, found the integer 1");
    refused("data : { val = [\"a\", 2]; };", NULL,
            "d:1: data.val takes a list of texts, found the integer 2");
    refused("run : { devices = [0, 1.5]; };", NULL,
            "d:1: run.devices takes a list of integers, found 1.5, a number that is no "
            "integer");
    refused("augment : { scale = 1; };", NULL,
            "d:1: augment.scale takes a list of numbers, found the integer 1");
    refused("net : { layers = 3; };", NULL,
            "d:1: net.layers takes a list ( ) of layers, found the integer 3");
    refused("", "train.lr=fast",
            "command line: train.lr = fast is no number as a deck has it");
    refused("", "batch.size=1; batch.x = 2",
            "command line: batch.size = 1; batch.x = 2 is no integer as a deck has it");
    refused("", "train.lr=",
            "command line: train.lr takes a value (number), found nothing");
    refused("", "data.val=",
            "command line: data.val takes a value (list of texts), found nothing");
}

TEST(ranges)
{
    refused("train : { lr = -1; };", NULL,
            "d:1: train.lr = -1 is out of range [0, inf)");
    refused("train : { lr = 1e999; };", NULL,
            "d:1: train.lr = inf is out of range [0, inf)");
    refused("augment : { drop = 1; };", NULL,
            "d:1: augment.drop = 1 is out of range [0, 1)");
    refused("data : { voxel_size = 0; };", NULL,
            "d:1: data.voxel_size = 0 is out of range (0, 1e9]");
    refused("", "batch.size=0",
            "command line: batch.size = 0 is out of range [1, inf)");
    refused("", "batch.size=3000000000",
            "command line: batch.size = 3000000000 is above 2147483647");
    refused("train :\n{ seed = 99999999999999999999; };", NULL,
            "d:2: the integer 99999999999999999999 is beyond 64 bits");
    refused(
        "", "train.seed=99999999999999999999",
        "command line: train.seed = 99999999999999999999 is no integer as a deck has "
        "it");
    refused("train : { lr = 1; };\n/* note *\ntrain : { epochs = 2; };", NULL,
            "d:2: the comment /* has no end, expected */");
    refused("train : { lr = 1; };\n/*/", NULL,
            "d:2: the comment /* has no end, expected */");
    refused("augment : { scale = [2, 1]; };", NULL,
            "d:1: augment.scale takes [low, high] or []");
    refused("augment : { elastic = [1, 2, 3]; };", NULL,
            "d:1: augment.elastic takes [] or up to 4 pairs [granularity, "
            "magnitude, ...]");
    refused("augment : { elastic = [1,1,1,1,1,1,1,1,1,1]; };", NULL,
            "d:1: augment.elastic takes [] or up to 4 pairs [granularity, "
            "magnitude, ...]");
    refused("augment : { rotate_max = 181; };", NULL,
            "d:1: augment.rotate_max = 181 is out of range [0, 180]");
    refused("augment : { drop_p = 1.5; };", NULL,
            "d:1: augment.drop_p = 1.5 is out of range [0, 1]");
    refused("augment :\n{ scale = [1, 1.5]; };", "augment.scale=[3]",
            "command line: augment.scale takes [low, high] or []");
    refused("", "train.betas=[0.9]",
            "command line: train.betas takes two numbers, found 1");
    refused("train : { betas = [0.9, 1]; };", NULL,
            "d:1: train.betas = 1 is out of range [0, 1)");
    refused("", "train.cycle_momentum=[0.95, 0.85]",
            "command line: train.cycle_momentum takes [low, high] or []");
    refused("train : {\n milestones = [0.9, 0.7]; };", NULL,
            "d:2: train.milestones takes numbers that rise");
    refused("", "train.milestones=[0.7, 0.7]",
            "command line: train.milestones takes numbers that rise");
    refused("", "train.milestones=[24, 32]",
            "command line: train.milestones = 24 is out of range (0, 1)");
    refused("train : { dampening = 0.1; };", NULL,
            "d:1: train.dampening = 0.1 needs train.nesterov = false: Nesterov's form "
            "of momentum has no dampening");
    refused("", "train.adamw_eps=0",
            "command line: train.adamw_eps = 0 is out of range [1e-16, 1]");
    refused(
        "batch : { per = \"rank\"; };", "train.deterministic=world",
        "command line: train.deterministic = \"world\" needs batch.per = \"world\" and "
        "train.bn_scope = \"world\"");
    refused("train : { bn_scope = \"rank\";\n deterministic = \"world\"; };", NULL,
            "d:2: train.deterministic = \"world\" needs batch.per = \"world\" and "
            "train.bn_scope = \"world\"");
}

TEST(grammar)
{
    refused("train : { lr = 1;\n  nesterov = yes; };", NULL,
            "d:2: syntax error, in or just before: nesterov = yes; };");
    refused("train : {\n  lr = 1;\n", NULL,
            "d:3: syntax error, in or just before: the end of the file");
    refused("train : {};\ntrain : {};", NULL,
            "d:2: duplicate setting name, in or just before: train : {};");
}

/* libconfig reads integers with a suffix and arrays as lists; a message shows
 * neither. */
TEST(a_line_is_quoted_as_it_was_written)
{
    refused(
        "batch : { size = 5; accumulate 4; };", NULL,
        "d:1: syntax error, in or just before: batch : { size = 5; accumulate 4; };");
    refused("augment : {\n scale = [1, 0x10 2L]; };", NULL,
            "d:2: syntax error, in or just before: scale = [1, 0x10 2L]; };");
    refused("run : { keep = 1; };\nrun : { devices = [0, 1]; keep = 1; };", NULL,
            "d:2: duplicate setting name, in or just before: run : { devices = [0, 1]; "
            "keep = 1; };");
}

/* A checkpoint from another person has a deck too, and no file that it names may be
 * read and shown. */
TEST(a_text_includes_no_file)
{
    sp_config config;

    assert_int_equal(
        sp_config_parse(&config, "\n@include \"/etc/passwd\"\n", "d", 0, NULL),
        SP_EDATA);
    assert_string_equal(sp_error_last()->message,
                        "d:2: @include in a text that is not a deck file");
    sp_config_destroy(&config);
    refused("", "train.lr=0.1;\n@include \"/etc/passwd\"",
            "command line: train.lr = 0.1;\n@include \"/etc/passwd\" is no number as a "
            "deck has it");
}

TEST(numbers_stay_within_their_arithmetic)
{
    refused("train : { steps = 9223372036854775807; };", NULL,
            "d:1: train.steps = 9.22337203685478e+18 is out of range [0, 1e12]");
    refused("", "batch.voxel_budget=9223372036854775807",
            "command line: batch.voxel_budget = 9.22337203685478e+18 is out of range "
            "[0, 1e15]");
    refused("", "train.warmup_steps=9223372036854775807",
            "command line: train.warmup_steps = 9.22337203685478e+18 is out of range "
            "[0, 1e12]");
    refused("", "run.memory_mb=1e13",
            "command line: run.memory_mb = 10000000000000 is out of range [0, 1e9]");
    refused("", "data.voxel_size=1e300",
            "command line: data.voxel_size = 1e+300 is out of range (0, 1e9]");
    refused("", "train.class_weights=[1, 1e300]",
            "command line: train.class_weights = 1e+300 is out of range [0, 1e9]");
}

TEST(layers)
{
    refused("net : { layers = ( { name = \"a\"; op = \"relu\"; },\n"
            "  { name = \"b\"; op = \"conv\"; kernal = 3; } ); };",
            NULL,
            "d:2: net.layers: layer \"b\": unknown key kernal; nearest is kernel");
    refused("net : { layers = ( { name = \"a\"; } ); };", NULL,
            "d:1: net.layers: layer \"a\" has no op");
    refused("net : { layers = ( 3 ); };", NULL,
            "d:1: net.layers: a layer is a group { }, found the integer 3");
    refused("net : { layers = ( { name = \"a/b\"; op = \"relu\"; } ); };", NULL,
            "d:1: net.layers: layer \"\": name takes 1 to 63 letters, digits and _ - . "
            "with no dot in front, found the text \"a/b\"");
    refused(
        "net : { layers = ( { name = \"a\"; op = \"conv\"; out = 0; } ); };", NULL,
        "d:1: net.layers: layer \"a\": out takes an integer from 1 to 1048576, found "
        "the integer 0");
    refused(
        "net : { layers = ( { name = \"a\"; op = \"conv\"; out = 1048577; } ); };",
        NULL,
        "d:1: net.layers: layer \"a\": out takes an integer from 1 to 1048576, found "
        "the integer 1048577");
    refused("net : { layers = ( { name = \"a\"; op = \"dropout\"; p = 1; } ); };", NULL,
            "d:1: net.layers: layer \"a\": p takes [0, 1), found the integer 1");
    refused("net : { layers = ( { name = \"a\"; op = \"batchnorm\"; eps = 0; } ); };",
            NULL,
            "d:1: net.layers: layer \"a\": eps takes [1e-12, 1], found the integer 0");
    refused("net : { layers = ( { name = \"a\"; op = \"batchnorm\"; momentum = 1.5; } "
            "); };",
            NULL,
            "d:1: net.layers: layer \"a\": momentum takes [0, 1], found 1.5, a number "
            "that is no integer");
    refused("", "net.bn_eps=0",
            "command line: net.bn_eps = 0 is out of range [1e-12, 1]");
    refused(
        "net : { layers = ( { name = \"a\"; op = \"conv\"; coordinates = \"wide\"; } "
        "); };",
        NULL,
        "d:1: net.layers: layer \"a\": coordinates takes \"floor\" or \"dilated\", "
        "found the text \"wide\"");
    refused("", "net.grid=[3, 4]",
            "command line: net.grid takes three numbers or [], found 2");
    refused("", "net.bn_momentum=-0.1",
            "command line: net.bn_momentum = -0.1 is out of range [0, 1]");
}

TEST(losses)
{
    refused("train : {\n loss = ( { name = \"dice\"; },\n { nam = \"focal\"; } ); };",
            NULL,
            "d:3: train.loss: a term takes name = \"...\" and weight = a number, found "
            "nam = the text \"focal\"");
    refused("train : { loss = ( { name = \"dice\"; },\n { name = \"focal\";\n"
            " weight = 0; } ); };",
            NULL, "d:3: train.loss: weight = 0 is out of range (0, 1e6]");
    refused("train : { loss = ( { name = \"dice\"; },\n { name = \"dice\"; } ); };",
            NULL, "d:2: train.loss has the term \"dice\" twice");
}

TEST(files)
{
    CLOSED_BY(sp_config_destroy) sp_config config;

    assert_int_equal(sp_config_read(&config, "/nowhere/a.deck", 0, NULL), SP_EUSAGE);
    assert_string_equal(sp_error_last()->message,
                        "cannot read the deck /nowhere/a.deck: "
                        "No such file or directory");
    sp_config_destroy(&config);
    assert_int_equal(sp_config_read(&config, "/", 0, NULL), SP_EUSAGE);
    assert_string_equal(sp_error_last()->message,
                        "/ is a folder, expected a deck; a run folder's deck is its "
                        "deck.resolved");
}
