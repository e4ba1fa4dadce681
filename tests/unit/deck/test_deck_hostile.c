/* Decks that an attacker wrote are refused in time, with status 2 and a message that
 * names the file. */
#include "fixtures/test.h"
#include "base/sp_program.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture/fuzz/mutate.h"
#include "net/sp_graph.h"

enum { PATIENCE_S = 1000 };
static const char path[] = "mutant.deck";
static volatile sig_atomic_t current;

static void say_hang(int number)
{
    char text[64];
    int n = snprintf(text, sizeof text, "deck: mutant %d hangs\n", (int)current);

    (void)number;
    if (write(STDERR_FILENO, text, (size_t)n) < 0 || true)
        _exit(1);
}

static void check_refusal(sp_status rc)
{
    if (rc != SP_EUSAGE || !strstr(sp_error_last()->message, path))
        fail_msg("mutant %d: %s: %s", (int)current, sp_status_name(rc),
                 sp_error_last()->message);
}

static void read_back(const sp_config *config)
{
    CLOSED_BY(sp_config_destroy) sp_config again;
    FREED char *text, *same;

    OK(sp_config_to_text(config, &text));
    OK(sp_config_parse(&again, text, "resolved", 0, NULL));
    OK(sp_config_to_text(&again, &same));
    assert_string_equal(text, same);
}

/* True if the deck is valid. */
static bool use(int number)
{
    CLOSED_BY(sp_config_destroy) sp_config config;
    sp_graph graph;
    sp_status rc;

    current = number;
    alarm(PATIENCE_S);
    rc = sp_config_read(&config, path, 0, NULL);
    if (rc != SP_OK) {
        check_refusal(rc);
    } else {
        read_back(&config);
        if (sp_graph_build(&graph, &config, 4, 3) != SP_OK)
            assert_int_equal(sp_error_last()->code, SP_EUSAGE);
        sp_graph_destroy(&graph);
    }
    return rc == SP_OK;
}

static void refused(int number, const char *text, size_t n)
{
    blob_write(path, (blob){(unsigned char *)(uintptr_t)text, n});
    assert_false(use(number));
}

/* Writes `part` n times. */
static void refused_many(int number, const char *part, size_t times)
{
    size_t n = strlen(part);
    char *text = test_alloc(n * times);

    for (size_t i = 0; i < times; i++)
        memcpy(text + i * n, part, n);
    refused(number, text, n * times);
}

TEST(hostile_decks)
{
    refused_many(1, "@include \"mutant.deck\"\n", 10); /* 10^10 files */
    refused_many(2, "a : { ", 100000);
    refused_many(3, "(", 200000);
    refused_many(4, "x", 300000);
    refused_many(5, "x : {", 1);
    refused_many(6, "train : { lr = 0.1; };\n", 20000);
    refused(7, "train : { lr\0 = 1; };", 20);
    assert_int_equal(mkfifo("mutant.fifo", 0600), 0);
    refused(8, "@include \"mutant.fifo\"\n", 23); /* no process writes to it */
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(use(9));
    unlink(path);
}

/* Writes n layers, each of which reads the layer far before it, and one more. */
TEST(many_layers_are_read_in_seconds)
{
    static const char layer[] = "{ name = \"%05d\"; op = \"linear\"; out = 3; "
                                "from = \"%05d\"; },\n";

    for (int more = 0; more < 2; more++) {
        FILE *to = fopen(path, "w");

        assert_non_null(to);
        fprintf(to, "net : { layers = ( { name = \"00000\"; op = \"linear\"; out = 3; "
                    "},\n");
        for (int i = 1; i < SP_MAX_LAYERS - 1 + more; i++)
            fprintf(to, layer, i, i - 1);
        fprintf(to, "{ name = \"end\"; op = \"linear\"; out = 3; } ); };\n");
        assert_int_equal(fclose(to), 0);
        assert_int_equal(use(100 + more), !more);
    }
    SAYS("net.layers has 10001 layers, at most 10000 are taken");
}

int main(void)
{
    sp_program_begin("sptrain");
    signal(SIGALRM, say_hang);
    return run_all_tests();
}
