/* The resolved deck reads back to the identical config, whatever the values. */
#include "fixtures/test.h"

#include <ctype.h>

#include "deck/sp_deck_keys.h"

static void same_text_and_layers(const sp_config *a, const sp_config *b)
{
    char *x, *y;

    OK(sp_config_to_text(a, &x));
    OK(sp_config_to_text(b, &y));
    assert_string_equal(x, y);
    free(x);
    free(y);
    assert_int_equal(a->net.n_layers, b->net.n_layers);
    for (int i = 0; i < a->net.n_layers; i++) {
        const sp_layer *l = &a->net.layers[i], *m = &b->net.layers[i];

        assert_string_equal(l->name, m->name);
        assert_string_equal(l->op, m->op);
        assert_int_equal(l->from.n, m->from.n);
        assert_true(l->out == m->out && l->kernel == m->kernel &&
                    l->stride == m->stride);
        assert_true(l->bias == m->bias);
        assert_true(l->p == m->p || (isnan(l->p) && isnan(m->p)));
        assert_true(l->slope == m->slope || (isnan(l->slope) && isnan(m->slope)));
        assert_true(l->eps == m->eps || (isnan(l->eps) && isnan(m->eps)));
        assert_true(l->momentum == m->momentum ||
                    (isnan(l->momentum) && isnan(m->momentum)));
    }
}

TEST(roundtrip)
{
    static const char deck[] =
        "data : { train = [\"a\\\"b\", \"c\\\\\", \"\"]; features = []; };\n"
        "run : { dir = \"x\\n\\t\\x01\\x7f \xc3\xa9 # // [1] @include\"; devices = [1, "
        "2]; };\n"
        "train : { lr = 0.1000000000000000055; weight_decay = 3e-320; seed = "
        "9223372036854775807; class_weights = [1, 1e-300, 0.3333333333333333]; };\n"
        "augment : { scale = []; jitter = 1e22; };\n"
        "net : { layers = ( { name = \"c\"; op = \"conv\"; out = 4; kernel = 3; stride "
        "= 2;"
        " bias = true; from = \"input\"; }, { name = \"d\"; op = \"dropout\"; p = 0.1; "
        "},"
        " { name = \"n\"; op = \"batchnorm\"; eps = 1e-3; momentum = 0; from = \"c\"; "
        "}, { name = \"r\"; op = \"leaky_relu\"; slope = -0.25; from = [\"c\", \"d\"]; "
        "} "
        "); };";
    CLOSED_BY(sp_config_destroy) sp_config a, b;
    FREED char *text;

    OK(sp_config_parse(&a, deck, "d", 0, NULL));
    OK(sp_config_to_text(&a, &text));
    OK(sp_config_parse(&b, text, "resolved", 0, NULL));
    same_text_and_layers(&a, &b);
    assert_string_equal(b.data.train.at[0], "a\"b");
    assert_string_equal(b.data.train.at[1], "c\\");
    assert_string_equal(b.run.dir, a.run.dir);
    assert_true(a.train.lr == b.train.lr &&
                a.train.weight_decay == b.train.weight_decay);
    assert_true(b.train.seed == INT64_MAX && b.augment.jitter == 1e22);
    assert_true(b.train.class_weights.list.at[2] == 0.3333333333333333);
    assert_true(b.net.n_layers == 4 && b.net.layers[3].slope == -0.25);
    assert_true(b.net.layers[2].eps == 1e-3 && b.net.layers[2].momentum == 0);
}

TEST(single_values_are_text)
{
    CLOSED_BY(sp_config_destroy) sp_config c;
    char *value;

    OK(sp_config_read(&c, NULL, 0, NULL));
    value = sp_config_value(&c, "augment.scale");
    assert_string_equal(value, "[0.95, 1.05]");
    free(value);
    value = sp_config_value(&c, "train.schedule");
    assert_string_equal(value, "\"cosine\"");
    free(value);
    assert_null(sp_config_value(&c, "train.none"));
}

/* Every word of every key is accepted in capitals too, kept as the value of its place
 * in the list, and written as the table has it. */
TEST(every_word_comes_back)
{
    int n_words = 0;

    for (int k = 0; k < sp_deck_n_keys; k++) {
        const sp_key *key = &sp_deck_key[k];
        char word[SP_NAME], override[3 * SP_NAME], quoted[SP_NAME + 2];
        char bound[] = "augment.crop_voxels=9"; /* a crop needs it */
        char *overrides[] = {override, bound}, *value;
        sp_config c;

        for (int i = 0; key->names && sp_choice_name(key->names, i, word); i++) {
            snprintf(quoted, sizeof quoted, "\"%s\"", word);
            for (char *at = word; *at; at++)
                *at = (char)toupper((unsigned char)*at);
            snprintf(override, sizeof override, "%s.%s=%s", key->section, key->name,
                     word);
            OK(sp_config_read(&c, NULL, 2, overrides));
            if (key->type == SP_KEY_LOSS)
                assert_true(sp_loss_mix_is(&c.train.loss, (sp_loss_kind)i));
            else
                assert_int_equal(key->type == SP_KEY_WEIGHTS
                                     ? (int)c.train.class_weights.kind
                                     : *(int *)sp_key_field(&c, key),
                                 i);
            value = sp_config_value(&c, sp_config_key(k));
            assert_string_equal(value, quoted);
            free(value);
            sp_config_destroy(&c);
            n_words++;
        }
    }
    assert_true(n_words > 40);
}

/* A copy has the same text, and its messages name the same places. */
TEST(a_copy_is_the_same)
{
    static const char deck[] =
        "net : { layers = (\n{ name = \"a\"; op = \"relu\"; } ); };\n"
        "run : { memory_mb = 7.0; };\n";
    char *overrides[] = {"train.lr=0.5", "run.resume=a.h5"};
    CLOSED_BY(sp_config_destroy) sp_config a, b;

    OK(sp_config_parse(&a, deck, "d", 2, overrides));
    OK(sp_config_copy(&b, &a));
    same_text_and_layers(&a, &b);
    assert_int_equal(b.run.resume.from, SP_RESUME_FILE);
    assert_string_equal(b.run.resume.text, "a.h5");
    assert_string_equal(b.net.layers[0].file, "d");
    assert_int_equal(b.net.layers[0].line, 2);
    assert_string_equal(sp_config_where(&b, "run.memory_mb"), "d:3: ");
    assert_string_equal(sp_config_where(&b, "train.lr"), "command line: ");
    assert_string_equal(sp_config_where(&b, "train.loss"), "");
    assert_true(sp_config_is_overridden(&b, "train.lr"));
    assert_true(!sp_config_is_overridden(&b, "run.memory_mb") &&
                sp_config_is_set(&b, "run.memory_mb"));
    assert_true(!sp_config_is_set(&b, "train.loss"));
}

/* The printed table has every key of the resolved deck and nothing else. */
TEST(printed_keys_are_all_keys)
{
    char *table = NULL, *text, *line;
    size_t size;
    FILE *to = open_memstream(&table, &size);
    int n_table = 0, n_text = 0;
    CLOSED_BY(sp_config_destroy) sp_config c;

    sp_deck_print_keys(to);
    fclose(to);
    OK(sp_config_read(&c, NULL, 0, NULL));
    OK(sp_config_to_text(&c, &text));
    for (line = strchr(table, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        char key[64];

        assert_int_equal(sscanf(line, "%63s", key), 1);
        line = line + 1;
        if (strcmp(key, "net.layers")) {
            char *value = sp_config_value(&c, key);
            assert_non_null(value);
            free(value);
            n_table++;
        }
    }
    for (line = text; (line = strstr(line, " = ")); line++)
        n_text++;
    assert_int_equal(n_table, n_text);
    free(table);
    free(text);
}
