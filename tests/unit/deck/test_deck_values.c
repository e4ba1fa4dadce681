/* Defaults, decks with includes and overrides give the values that were written. */
#include "fixtures/test.h"

#include "base/sp_file.h"
#include "deck/sp_deck.h"

static void write_file(const char *name, const char *text)
{
    OK(sp_file_replace(name, text, strlen(text), 0));
}

TEST(an_empty_deck_has_the_defaults)
{
    CLOSED_BY(sp_config_destroy) sp_config c;

    write_file("empty.deck", "");
    OK(sp_config_read(&c, "empty.deck", 0, NULL));
    assert_int_equal(c.data.train.n, 1);
    assert_string_equal(c.data.train.at[0], "input/sample/train-*.h5");
    assert_true(c.data.voxel_size == 0.5 && c.data.readers == 2 && c.data.planners == 1 && c.data.verify);
    assert_true(c.augment.scale.n == 2 && c.augment.scale.at[1] == 1.05);
    assert_true(c.batch.size == 16 && c.batch.per == SP_PER_WORLD && c.batch.balance);
    assert_int_equal(c.net.family, SP_MINKUNET18);
    assert_true(c.net.stem_kernel == 5 && c.net.kernel_down == 2 &&
                c.net.n_layers == 0);
    assert_true(c.train.optimizer == SP_SGD && c.train.schedule == SP_COSINE);
    assert_true(c.train.bn_scope == SP_SCOPE_WORLD && c.train.weight_decay == 1e-4);
    assert_true(c.train.deterministic == SP_DET_RUN && c.train.nesterov);
    assert_int_equal(c.run.resume.from, SP_RESUME_AUTO);
    assert_true(c.run.keep == 3 && c.run.watchdog_s == 60);
    assert_false(sp_config_is_set(&c, "train.lr"));
}

TEST(values_keep_type_and_width)
{
    char deck[] =
        "train : { class_weights = [1, 0.5, 2]; seed = -5000000000; steps = 0x10;\n"
        " lr = 1; }; batch : { voxel_budget = 5000000000L; };\n"
        "data : { train = \"one.h5\"; val = ( \"a\", \"b\" \"c\" ); };\n"
        "run : { devices = [2, 3]; };";
    CLOSED_BY(sp_config_destroy) sp_config c;

    OK(sp_config_parse(&c, deck, "d", 0, NULL));
    assert_int_equal(c.train.class_weights.kind, SP_CW_LIST);
    assert_int_equal(c.train.class_weights.list.n, 3);
    assert_true(c.train.class_weights.list.at[1] == 0.5);
    assert_true(c.train.seed == -5000000000 && c.train.steps == 16 && c.train.lr == 1);
    assert_true(c.batch.voxel_budget == 5000000000);
    assert_string_equal(c.data.train.at[0], "one.h5");
    assert_true(c.data.val.n == 2 && !strcmp(c.data.val.at[1], "bc"));
    assert_true(c.run.devices.n == 2 && c.run.devices.at[1] == 3);
    assert_true(sp_config_is_set(&c, "train.seed"));
    sp_config_destroy(&c);
    OK(sp_config_parse(&c, "train : { steps = 1e6; epochs = 2e0; };", "d", 0, NULL));
    assert_true(c.train.steps == 1000000 && c.train.epochs == 2);
}

/* Editors leave traces: a byte order mark before a file, no end of its last line. */
TEST(marks_of_editors_are_passed_over)
{
    static const char *const end[] = {"", "# end", "// end", "/* end */", "\r\n# end"};
    char deck[128];
    sp_config c;

    for (size_t i = 0; i < sizeof end / sizeof *end; i++) {
        snprintf(deck, sizeof deck, "\xef\xbb\xbftrain : { lr = 7; };%s", end[i]);
        write_file("top.deck", deck);
        OK(sp_config_read(&c, "top.deck", 0, NULL));
        assert_true(c.train.lr == 7);
        sp_config_destroy(&c);
    }
}

TEST(overrides_follow_the_type_of_the_key)
{
    char *o[] = {"train.lr=0.5",
                 "run.dir=a b;=\"c\"",
                 "run.after_save=\"x\\ty\"",
                 "data.train=in/[ab].h5",
                 "data.val=[\"p\", \"q\"]",
                 "data.features=one",
                 "train.class_weights=[1, 2.5]",
                 "augment.scale=[1, 1.5]",
                 "train.lr=0.25",
                 "data.verify=false",
                 "train.bn_scope=rank",
                 "net.family=MinkUNet14a",
                 "run.checkpoint=",
                 "run.resume=\"never\""};
    CLOSED_BY(sp_config_destroy) sp_config c;

    OK(sp_config_read(&c, NULL, sizeof o / sizeof o[0], o));
    assert_true(c.train.lr == 0.25);
    assert_string_equal(c.run.dir, "a b;=\"c\"");
    assert_string_equal(c.run.after_save, "x\ty");
    assert_string_equal(c.data.train.at[0], "in/[ab].h5");
    assert_true(c.data.val.n == 2 && !strcmp(c.data.val.at[1], "q"));
    assert_string_equal(c.data.features.at[0], "one");
    assert_true(c.train.class_weights.list.at[1] == 2.5);
    assert_true(c.augment.scale.at[0] == 1 && !c.data.verify);
    assert_int_equal(c.train.bn_scope, SP_SCOPE_RANK);
    assert_int_equal(c.net.family, SP_MINKUNET14A);
    assert_string_equal(c.run.checkpoint, "");
    assert_int_equal(c.run.resume.from, SP_RESUME_NEVER);
}

TEST(a_family_on_the_command_line_replaces_layers)
{
    char deck[] = "net : { layers = ( { name = \"a\"; op = \"relu\"; } ); };";
    char *dummy[] = {"net.family=dummy"};
    char *back[] = {"net.family=dummy",
                    "net.layers=({ name = \"b\"; op = \"relu\"; })"};
    char *down[] = {"net.family=dummy", "net.kernel_down=2"};
    sp_config c, from;

    OK(sp_config_parse(&c, deck, "d", 1, dummy));
    assert_int_equal(c.net.n_layers, 0);
    assert_int_equal(c.net.kernel_down, 3); /* the default of the family */
    /* those of a checkpoint too */
    OK(sp_config_parse(&from, deck, "checkpoint", 0, NULL));
    from.net.width = 0.25;
    sp_config_take(&c, &from, "net");
    assert_true(c.net.n_layers == 0 && c.net.kernel_down == 3 && c.net.width == 0.25);
    sp_config_destroy(&from);
    sp_config_destroy(&c);
    OK(sp_config_parse(&c, deck, "d", 2, back));
    assert_int_equal(c.net.n_layers, 1);
    assert_string_equal(c.net.layers[0].name, "b");
    sp_config_destroy(&c);
    OK(sp_config_parse(&c, deck, "d", 2, down));
    assert_int_equal(c.net.kernel_down, 2);
    sp_config_destroy(&c);
}

/* Files of the same names in the program's folder are not those that are meant. */
static void make_decks(void)
{
    OK(sp_file_make_folder("decks"));
    write_file("part.deck", "size = 9;");
    write_file("top.deck", "train : { lr = 9; };");
}

TEST_AFTER(make_decks, includes_are_relative_and_keep_their_lines)
{
    CLOSED_BY(sp_config_destroy) sp_config c;

    write_file("decks/top.deck",
               "batch : {\n  @include \"part.deck\"\n  accumulate = 2;\n};\n"
               "train : { lr = 7; };\n");
    write_file("decks/part.deck", "# \"@include\" [1]\nsize = 3;");
    OK(sp_config_read(&c, "decks/top.deck", 0, NULL));
    assert_true(c.batch.size == 3 && c.batch.accumulate == 2 && c.train.lr == 7);
}

/* Writes part.deck, where it is given, and top.deck, whose reading ends so. */
static void refused(const char *part, const char *deck, const char *message)
{
    CLOSED_BY(sp_config_destroy) sp_config c;

    if (part)
        write_file("decks/part.deck", part);
    write_file("decks/top.deck", deck);
    assert_int_equal(sp_config_read(&c, "decks/top.deck", 0, NULL), SP_EUSAGE);
    assert_string_equal(sp_error_last()->message, message);
}

TEST_AFTER(make_decks, a_refusal_names_the_file_that_is_wrong)
{
    static const char good[] =
        "batch : {\n  @include \"part.deck\"\n  accumulate = 2;\n};\n"
        "train : { lr = 7; };\n";
    static const char wrong[] =
        "batch : {\n  @include \"part.deck\"\n  accumulat = 2;\n};\n";
    static const char of_wrong[] =
        "decks/top.deck:3: unknown key batch.accumulat; nearest is batch.accumulate";

    refused("size = 3;\nsiz = 4;\n", good,
            "decks/part.deck:2: unknown key batch.siz; nearest is batch.size");
    refused("size = 3;\n", wrong, of_wrong);
    refused("size = 3; # no newline at the end", wrong, of_wrong);
    refused(NULL, "\n@include missing\n",
            "decks/top.deck:2: @include takes a file name in quotation marks");
    refused(NULL, "@include \"/nowhere/x.deck\"\n",
            "decks/top.deck:1: cannot read the deck /nowhere/x.deck: No such file or "
            "directory");
}

TEST(includes_of_themselves_are_refused)
{
    CLOSED_BY(sp_config_destroy) sp_config c;

    write_file("loop.deck", "@include \"loop.deck\"\n");
    FAILS(sp_config_read(&c, "loop.deck", 0, NULL), SP_EUSAGE,
          "includes nested deeper than 10");
}
