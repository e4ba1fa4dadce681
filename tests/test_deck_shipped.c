/* The decks of input/ are valid, build a network, and the default deck says the
 * defaults. */
#include "test.h"

#include "sp_graph.h"

static char *path_of(const char *name, char *path)
{
    snprintf(path, 512, "%s/input/%s.deck", SP_SOURCE_DIR, name);
    return path;
}

static void decks_build(void **state)
{
    static const char *const name[] = {"default", "dummy", "nimes3"};
    char path[512];

    (void)state;
    for (int i = 0; i < 3; i++) {
        sp_config c;
        sp_graph g;

        OK(sp_config_read(&c, path_of(name[i], path), 0, NULL));
        OK(sp_graph_build(&g, &c, 4, 3));
        sp_graph_destroy(&g);
        sp_config_destroy(&c);
    }
}

static void the_default_deck_says_the_defaults(void **state)
{
    char path[512], *a, *b;
    sp_config none, deck;

    (void)state;
    OK(sp_config_read(&none, NULL, 0, NULL));
    OK(sp_config_read(&deck, path_of("default", path), 0, NULL));
    OK(sp_config_to_text(&none, &a));
    OK(sp_config_to_text(&deck, &b));
    assert_string_equal(a, b);
    for (const char *key = "data.train\0train.lr\0run.time_limit_s\0"; *key;
         key += strlen(key) + 1)
        assert_true(sp_config_is_set(&deck, key));
    free(a);
    free(b);
    sp_config_destroy(&none);
    sp_config_destroy(&deck);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decks_build),
        cmocka_unit_test(the_default_deck_says_the_defaults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
