/* The watchdog judges by the latest signs of life. */
#include "fixtures/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "watch/sp_watchdog_internal.h"

#define LIMIT_S  60.0
#define MARGIN_S 1000.0 /* a test may be interrupted for as long */

/* Rank 1 of 2 judges, a second after the limit since either has worked. Both said that
 * they wait; rank 0 said so `silent_s` ago. */
static void judge(double silent_s)
{
    const double now = sp_now_s(), then = now - LIMIT_S - 1;
    sp_heartbeats beats = {.fd = -1};
    sp_heartbeat beat = {0};
    sp_comm comm = {.rank = 1, .size = 2};
    sp_run run = {.comm = &comm, .dir = "", .beat = &beat, .beats = &beats};
    sp_watched row[2] = {{.signs.is_waiting = true,
                          .state = SP_WATCHED_LINKED,
                          .heard_s = now - silent_s,
                          .changed_s = now - silent_s,
                          .worked_s = then},
                         {.signs = {.rank = 1, .is_waiting = true},
                          .heard_s = now,
                          .changed_s = now,
                          .worked_s = then}};
    sp_watchdog w = {.run = &run, .limit_s = LIMIT_S, .row = row, .n_rows = 2};

    row[0].link.fd = row[1].link.fd = -1;
    sp_watchdog_judge(&w, MARGIN_S); /* does not return where it blames somebody */
}

/* The words of a process that judges so; none where it blames nobody. It is not waited
 * for, since it leaves seconds later. */
static void judge_in_child(double silent_s, char said[512])
{
    int ends[2];
    ssize_t n;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        judge(silent_s);
        _exit(0);
    }
    close(ends[1]);
    n = read(ends[0], said, 511);
    said[n > 0 ? n : 0] = 0;
    close(ends[0]);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* For longer than the limit nothing was heard of it, but not for so long that it may be
 * called silent. */
TEST(a_silent_rank_does_not_wait_for_others)
{
    char said[512];

    judge_in_child(LIMIT_S + 1, said);
    assert_string_equal(said, "");
}

TEST(ranks_that_all_wait_have_lost_their_transport)
{
    char said[512];

    judge_in_child(0, said);
    assert_non_null(strstr(said, "all ranks wait for each other for "));
}

/* Steps of which rank 1 needs thrice the time, and then none for longer than the
 * limit. */
TEST(nobody_gets_slower_while_no_step_ends)
{
    sp_comm comm = {.size = 2};
    sp_run run = {.comm = &comm, .dir = ""};
    sp_watched row[2] = {{.signs = {.step = 7, .own_s = 1}},
                         {.signs = {.rank = 1, .step = 7, .own_s = 3}}};
    sp_watchdog w = {.run = &run, .limit_s = LIMIT_S, .row = row, .n_rows = 2};

    sp_watchdog_judge_speed(&w);
    assert_true(row[1].slow_s > 0);
    row[1].slow_s -= LIMIT_S;
    sp_watchdog_judge_speed(&w);
    assert_false(row[1].is_slow_told);
    row[0].signs.step = row[1].signs.step = 8;
    sp_watchdog_judge_speed(&w);
    assert_true(row[1].is_slow_told);
}

/* It is slow in each of five steps, and for longer than the limit in all but the
 * first. */
TEST(a_slow_rank_is_named_once)
{
    sp_comm comm = {.size = 2};
    sp_run run = {.comm = &comm, .dir = ""};
    sp_watched row[2] = {{.signs = {.own_s = 1}}, {.signs = {.rank = 1, .own_s = 3}}};
    sp_watchdog w = {.run = &run, .limit_s = LIMIT_S, .row = row, .n_rows = 2};
    const char *first;

    test_capture(2);
    for (int step = 1; step <= 5; step++) {
        row[0].signs.step = step;
        sp_watchdog_judge_speed(&w);
        row[1].slow_s -= LIMIT_S;
    }
    first = strstr(test_captured(2), "is slow: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "is slow: "));
}
