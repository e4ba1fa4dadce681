/* The decks of input/ are valid, build a network, and the default deck says the
 * defaults. */
#include "fixtures/test.h"

#include "net/sp_graph.h"

static char *path_of(const char *name, char *path)
{
    snprintf(path, 512, "%s/input/%s.deck", SP_SOURCE_DIR, name);
    return path;
}

TEST(decks_build)
{
    static const char *const name[] = {"default", "dummy", "nimes3",
                                       "semantickitti_minkunet18",
                                       "semantickitti_minkunet34c"};
    char path[512];

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        CLOSED_BY(sp_config_destroy) sp_config c;
        CLOSED_BY(sp_graph_destroy) sp_graph g;

        OK(sp_config_read(&c, path_of(name[i], path), 0, NULL));
        OK(sp_graph_build(&g, &c, 4, 3));
    }
}

/* Newcomers read the defaults in the default deck, so it differs from them only where
 * it says so, for the small sample data. It has every key whose default does not depend
 * on the network. */
TEST(the_default_deck_says_the_defaults)
{
    static const char *const own[] = {"batch.size", "train.epochs",
                                      "train.warmup_steps"};
    char path[512];
    CLOSED_BY(sp_config_destroy) sp_config none, deck;

    OK(sp_config_read(&none, NULL, 0, NULL));
    OK(sp_config_read(&deck, path_of("default", path), 0, NULL));
    for (int i = 0; i < sp_config_n_keys(); i++) {
        char key[128];
        FREED char *a, *b;
        bool is_own = false, is_of_net;

        snprintf(key, sizeof key, "%s", sp_config_key(i));
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            is_own |= strcmp(key, own[j]) == 0;
        is_of_net = !strcmp(key, "net.kernel_down") || !strcmp(key, "net.layers");
        if (sp_config_is_set(&deck, key) == is_of_net)
            fail_msg("input/default.deck: %s is %s", key,
                     is_of_net ? "set" : "missing");
        a = sp_config_value(&none, key);
        b = sp_config_value(&deck, key);
        if (is_own)
            assert_string_not_equal(a, b);
        else
            assert_string_equal(a, b);
    }
}
