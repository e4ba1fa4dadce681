/* The after_save command runs while training goes on, one command at a time, and none
 * runs for ever. */
#include "fixtures/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "run/sp_run.h"

static sp_run run;

static void open_run(void)
{
    OK(sp_run_open(&run, test_folder(), alone()));
    unlink("seen");
}

/* Ends the run; its commands have written this. */
static void assert_seen(const char *expected)
{
    sp_run_close(&run);
    assert_string_equal(test_content("seen", NULL), expected);
}

TEST_AFTER(open_run, commands_run_in_order_with_the_path)
{
    sp_run_after_save(&run, "sleep 0.1; echo >>seen", "a b.h5");
    sp_run_after_save(&run, "echo \"with options\" >>seen", "metrics.jsonl");
    sp_run_after_save(&run, "echo twice >>seen", "metrics.jsonl"); /* waits already */
    sp_run_after_save(&run, "false #", "c");                       /* a warning */
    sp_run_after_save(&run, "", "d");
    assert_seen("a b.h5\nwith options metrics.jsonl\n");
}

/* Like MPI's sockets, which the library does not close for programs that it starts. */
TEST_AFTER(open_run, commands_inherit_nothing_that_is_open)
{
    int ends[2], high;

    assert_int_equal(pipe(ends), 0);
    high = dup2(ends[1], 200);
    assert_int_equal(high, 200);
    sp_run_after_save(&run, "ls /proc/self/fd >seen; :", "x"); /* 3: what it lists */
    assert_seen("0\n1\n2\n3\n");
    close(high);
    close(ends[0]);
    close(ends[1]);
}

TEST_AFTER(open_run, commands_are_no_rank_of_the_launcher)
{
    setenv("PMI_FD", "6", true);
    setenv("PMIX_RANK", "0", true);
    setenv("OMPI_COMM_WORLD_SIZE", "2", true);
    setenv("OMPI_MCA_btl", "tcp", true); /* the user's setting */
    setenv("SLURM_STEP_ID", "0", true);
    setenv("SLURM_JOB_ID", "7", true);
    sp_run_after_save(&run,
                      "env | grep -E '^(PMI|OMPI_(COMM|MCA_b)|SLURM_(STEP|JOB)_ID)' | "
                      "sort >seen; :",
                      "x");
    assert_seen("OMPI_MCA_btl=tcp\nSLURM_JOB_ID=7\n");
}

TEST_AFTER(open_run, a_slow_command_does_not_hold_up_the_training)
{
    FILE *go;

    /* it ends later than everything that it could delay, else it is killed unseen */
    unlink("go");
    run.after_save_limit_s = 1000;
    sp_run_after_save(&run, "until [ -e go ]; do sleep 0.01; done; echo >>seen", "x");
    sp_run_after_save(&run, "echo >>seen", "y");
    OK(sp_run_event(&run, "{}", NULL));
    go = fopen("go", "w");
    assert_non_null(go);
    fclose(go);
    assert_seen("x\ny\n");
}

/* Whether the process whose number is in the file runs; a zombie does not. */
static bool lives(const char *file)
{
    char path[64], *stat, *state;

    snprintf(path, sizeof path, "/proc/%d/stat", atoi(test_content(file, NULL)));
    if (access(path, F_OK) != 0 || sp_file_read(path, &stat, NULL) != SP_OK)
        return false;
    state = strrchr(test_keep(stat), ')');
    return state && state[2] != 'Z' && state[2] != 'X';
}

/* Calls `stick`, which gives stuck commands limit_s, with a limit that a machine with
 * other work needs longer than for what is before: it is doubled until these were seen.
 */
static void stick_long_enough(void (*stick)(double limit_s), const char *expected)
{
    bool is_seen = false;

    for (double limit_s = 0.5; !is_seen && limit_s < 100; limit_s *= 2) {
        OK(sp_file_replace("seen", "", 0, 0));
        stick(limit_s);
        is_seen = strcmp(test_content("seen", NULL), expected) == 0;
        OK(sp_run_open(&run, test_folder(), alone()));
    }
    assert_seen(expected);
}

static void stick_with_child(double limit_s)
{
    run.after_save_limit_s = limit_s;
    sp_run_after_save(&run, "sleep 10000 & echo $! >child; echo >>seen; sleep 10000 #",
                      "x");
    sp_run_after_save(&run, "echo >>seen", "y");
    sp_run_close(&run);
}

TEST_AFTER(open_run, a_stuck_command_is_killed_with_its_children)
{
    stick_long_enough(stick_with_child, "\ny\n");
    while (lives("child"))
        usleep(10000);
}

static void stick_often(double limit_s)
{
    run.after_save_limit_s = limit_s;
    for (int i = 0; i < 12; i++)
        sp_run_after_save(&run, "echo >>seen \"$1\"; sleep 10000 #",
                          (char[]){(char)('a' + i), 0});
    sp_run_close(&run);
}

TEST_AFTER(open_run, the_end_waits_for_no_more_than_two_stuck_ones)
{
    stick_long_enough(stick_often, "a\nb\n");
}

/* The third could begin after the time of one command only. */
TEST_AFTER(open_run, the_end_of_a_stopped_run_waits_for_no_more_than_one_limit)
{
    FREED char *text;

    run.after_save_limit_s = 1;
    for (int i = 0; i < 3; i++)
        sp_run_after_save(&run, "echo >>seen \"$1\"; sleep 0.7 #",
                          (char[]){(char)('a' + i), 0});
    OK(sp_run_status(&run, "stopped", SP_ELIMIT, 1, 1, ""));
    sp_run_close(&run);
    OK(sp_file_read("seen", &text, NULL));
    assert_null(strstr(text, "c"));
}

/* A process whose command asks it to end after so many seconds, and then is stuck for
 * longer: whether the wait for the command ended at that request. */
static bool ends_by_signal(int after_s)
{
    const double begin_s = sp_now_s();
    char command[80];
    int status;
    pid_t child = fork();

    if (child == 0) {
        OK(sp_run_open(&run, test_folder(), alone()));
        sp_signal_install();
        sp_signal_started();
        run.after_save_limit_s = 10 * after_s;
        snprintf(command, sizeof command, "sleep %d; kill -TERM $PPID; sleep 10000 #",
                 after_s);
        sp_run_after_save(&run, command, "x");
        sp_run_close(&run);
        _exit(sp_signal_received() != SIGTERM || sp_now_s() - begin_s >= 10 * after_s);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status == 0;
}

/* A request that comes before the wait does not end it, as where this process stands
 * still for a second; it is then tried with more time. */
TEST(a_signal_ends_the_wait)
{
    assert_true(ends_by_signal(1) || ends_by_signal(5) || ends_by_signal(20));
}

TEST_AFTER(open_run, events_move_the_queue)
{
    sp_run_after_save(&run, "echo >>seen", "x");
    sp_run_after_save(&run, "echo >>seen", "y");
    while (access("seen", F_OK) != 0)
        usleep(10000);
    for (;; usleep(10000)) {
        OK(sp_run_event(&run, "{}", NULL));
        if (strcmp(test_content("seen", NULL), "x\ny\n") == 0)
            break;
    }
    sp_run_close(&run);
}
