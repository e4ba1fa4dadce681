/* after_save runs beside the training, one command at a time, and none for ever. */
#include "config.h"

#include "test.h"

#include <unistd.h>

#include "sp_file.h"
#include "sp_log.h"
#include "sp_run.h"
#include "sp_signal.h"

static sp_comm comm;
static sp_run run;
static char dir[] = "/tmp/sp-save-XXXXXX";

static int open_run(void **state)
{
    (void)state;
    OK(sp_run_open(&run, dir, &comm));
    assert_int_equal(chdir(dir), 0);
    unlink("seen");
    return 0;
}

static void assert_seen(const char *expected)
{
    char *text;

    OK(sp_file_read("seen", &text, NULL));
    assert_string_equal(text, expected);
    free(text);
}

static void commands_run_in_order_with_the_path(void **state)
{
    (void)state;
    sp_run_after_save(&run, "sleep 0.1; echo >>seen", "a b.h5");
    sp_run_after_save(&run, "echo \"with options\" >>seen", "metrics.jsonl");
    sp_run_after_save(&run, "echo twice >>seen", "metrics.jsonl"); /* waits already */
    sp_run_after_save(&run, "false #", "c");                       /* a warning */
    sp_run_after_save(&run, "", "d");
    sp_run_close(&run);
    assert_seen("a b.h5\nwith options metrics.jsonl\n");
}

static void a_slow_command_does_not_hold_up_the_training(void **state)
{
    double begin_s = sp_now_s();

    (void)state;
    sp_run_after_save(&run, "sleep 1; echo >>seen", "x");
    sp_run_after_save(&run, "echo >>seen", "y");
    OK(sp_run_event(&run, "{}", NULL));
    assert_true(sp_now_s() - begin_s < 0.9);
    sp_run_close(&run);
    assert_seen("x\ny\n");
}

static void a_stuck_command_is_killed_with_its_children(void **state)
{
    double begin_s = sp_now_s();

    (void)state;
    run.after_save_limit_s = 0.2;
    sp_run_after_save(&run, "(sleep 1.5; echo alive >>seen) & sleep 100 #", "x");
    sp_run_after_save(&run, "echo >>seen", "y");
    sp_run_close(&run);
    assert_true(sp_now_s() - begin_s < 10);
    sleep(2);
    assert_seen("y\n");
}

static void the_end_waits_for_no_more_than_two_stuck_ones(void **state)
{
    double begin_s = sp_now_s();

    (void)state;
    run.after_save_limit_s = 0.3;
    for (int i = 0; i < 12; i++)
        sp_run_after_save(&run, "sleep 100 #", (char[]){(char)('a' + i), 0});
    sp_run_close(&run);
    assert_true(sp_now_s() - begin_s < 2.5); /* all: 3.6 */
}

static void a_signal_ends_the_wait(void **state)
{
    double begin_s = sp_now_s();

    (void)state;
    sp_signal_install();
    sp_signal_started();
    /* Not before the wait: what ends a run does not end its last command. */
    sp_run_after_save(&run, "sleep 1; kill -TERM $PPID; sleep 100 #", "x");
    sp_run_close(&run);
    assert_true(sp_now_s() - begin_s < 30);
}

static void events_move_the_queue(void **state)
{
    (void)state;
    sp_run_after_save(&run, "echo >>seen", "x");
    sp_run_after_save(&run, "echo >>seen", "y");
    for (int i = 0; i < 500 && access("seen", F_OK) != 0; i++)
        usleep(10000);
    for (int i = 0; i < 500; i++) {
        char *text;
        int is_there;

        OK(sp_run_event(&run, "{}", NULL));
        OK(sp_file_read("seen", &text, NULL));
        is_there = strcmp(text, "x\ny\n") == 0;
        free(text);
        if (is_there)
            break;
        usleep(10000);
    }
    assert_seen("x\ny\n");
    sp_run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(commands_run_in_order_with_the_path, open_run),
        cmocka_unit_test_setup(a_slow_command_does_not_hold_up_the_training, open_run),
        cmocka_unit_test_setup(a_stuck_command_is_killed_with_its_children, open_run),
        cmocka_unit_test_setup(the_end_waits_for_no_more_than_two_stuck_ones, open_run),
        cmocka_unit_test_setup(events_move_the_queue, open_run),
        cmocka_unit_test_setup(a_signal_ends_the_wait, open_run),
    };
    char command[64];
    int n_failed;

    sp_comm_open_self(&comm);
    if (!mkdtemp(dir))
        return 1;
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? n_failed : 1;
}
