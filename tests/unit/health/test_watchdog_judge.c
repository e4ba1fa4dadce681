/* The watchdog judges by the latest signs of life. */
#include "fixtures/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "health/sp_watchdog_internal.h"

#define LIMIT_S  60.0
#define MARGIN_S 1000.0 /* a test may be interrupted for as long */

/* Rank 1 of 2 judges, a second after the limit since either has worked; both said just
 * now that they wait. `change` makes it another case; NULL: nothing. */
static void judge(void (*change)(sp_watchdog *w, double now))
{
    const double now = sp_now_s(), then = now - LIMIT_S - 1;
    sp_heartbeats beats = {.fd = -1};
    sp_heartbeat beat = {0};
    sp_comm comm = {.rank = 1, .size = 2};
    sp_run run = {.comm = &comm, .dir = "", .beat = &beat, .beats = &beats};
    sp_watched row[2] = {{.status.is_waiting = true,
                          .state = SP_WATCHED_LINKED,
                          .heard_s = now,
                          .changed_s = now,
                          .worked_s = then},
                         {.status = {.rank = 1, .is_waiting = true},
                          .heard_s = now,
                          .changed_s = now,
                          .worked_s = then}};
    sp_watchdog w = {.run = &run, .limit_s = LIMIT_S, .row = row, .n_rows = 2};

    row[0].link.fd = row[1].link.fd = -1;
    if (change)
        change(&w, now);
    sp_watchdog_judge(&w, MARGIN_S); /* does not return where it blames somebody */
}

/* The words of a process that judges so; none where it blames nobody. It is killed
 * where it has said something, since it would leave seconds later. Returns the status
 * of one that has said nothing. */
static int judge_in_child(void (*change)(sp_watchdog *w, double now), char said[512])
{
    int ends[2], status;
    ssize_t n;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        judge(change);
        _exit(0);
    }
    close(ends[1]);
    n = read(ends[0], said, 511);
    said[n > 0 ? n : 0] = 0;
    close(ends[0]);
    if (n > 0)
        kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    return n > 0 ? -1 : WEXITSTATUS(status);
}

static void blames_nobody(void (*change)(sp_watchdog *w, double now))
{
    char said[512];

    assert_int_equal(judge_in_child(change, said), 0);
    assert_string_equal(said, "");
}

/* The claim of a case that the statements make, in which nobody is blamed. */
#define NOBODY_IS_BLAMED(claim, ...)                                                   \
    static void make_##claim(sp_watchdog *w, double now)                               \
    {                                                                                  \
        (void)now;                                                                     \
        __VA_ARGS__;                                                                   \
    }                                                                                  \
    TEST(claim)                                                                        \
    {                                                                                  \
        blames_nobody(make_##claim);                                                   \
    }

static void blames(void (*change)(sp_watchdog *w, double now), const char *text)
{
    char said[512];

    judge_in_child(change, said);
    assert_non_null(strstr(said, text));
}

/* For longer than the limit nothing was heard of it, but not for so long that it may be
 * called silent. */
NOBODY_IS_BLAMED(a_silent_rank_does_not_wait_for_others,
                 w->row[0].heard_s = w->row[0].changed_s = now - LIMIT_S - 1)

TEST(ranks_that_all_wait_have_lost_their_transport)
{
    blames(NULL, "all ranks wait for each other for ");
}

NOBODY_IS_BLAMED(ranks_wait_for_each_other_since_the_last_has_worked,
                 w->row[1].worked_s = now)

/* Rank 1 knows of rank 0 and of itself alone. */
NOBODY_IS_BLAMED(a_rank_that_does_not_see_all_cannot_tell_that_all_wait,
                 w->run->comm->size = 3)

static void end_well(sp_watchdog *w, double now)
{
    w->row[0].state = SP_WATCHED_ENDED;
    w->row[0].heard_s = now - 1000;
    w->row[0].changed_s = now - 2 * MARGIN_S;
}

TEST(a_rank_that_has_ended_is_neither_waiting_nor_lost)
{
    blames_nobody(end_well);
}

static void end_badly(sp_watchdog *w, double now)
{
    end_well(w, now);
    w->row[0].status.code = SP_EDATA;
}

/* The others would wait for it; it has said itself what failed. */
TEST(a_rank_that_ended_with_an_error_takes_the_others_along)
{
    char said[512];

    assert_int_equal(judge_in_child(end_badly, said), SP_EDATA);
    assert_string_equal(said, "");
}

NOBODY_IS_BLAMED(a_rank_that_was_never_heard_is_not_lost,
                 w->row[0].state = SP_WATCHED_ABSENT;
                 w->row[0].status.is_waiting = false;
                 w->row[0].changed_s = now - 2 * MARGIN_S)

static void hang(sp_watchdog *w, double now)
{
    w->row[1].status.is_waiting = false;
    w->row[0].changed_s = now - 2 * MARGIN_S;
    w->row[1].changed_s = now - 3 * MARGIN_S;
    strcpy(w->row[1].status.host, "here");
}

TEST(the_rank_that_has_made_no_progress_for_longest_is_named)
{
    blames(hang, "rank 1/2 host here hangs: no progress for ");
}

/* Steps of which rank 1 needs thrice the time, and then none for longer than the
 * limit. */
TEST(nobody_gets_slower_while_no_step_ends)
{
    sp_comm comm = {.size = 2};
    sp_run run = {.comm = &comm, .dir = ""};
    sp_watched row[2] = {{.status = {.step = 7, .own_s = 1}},
                         {.status = {.rank = 1, .step = 7, .own_s = 3}}};
    sp_watchdog w = {.run = &run, .limit_s = LIMIT_S, .row = row, .n_rows = 2};

    sp_watchdog_judge_speed(&w);
    assert_true(row[1].slow_s > 0);
    row[1].slow_s -= LIMIT_S;
    sp_watchdog_judge_speed(&w);
    assert_false(row[1].is_slow_told);
    row[0].status.step = row[1].status.step = 8;
    sp_watchdog_judge_speed(&w);
    assert_true(row[1].is_slow_told);
}

/* It is slow in each of five steps, and for longer than the limit in all but the
 * first. */
TEST(a_slow_rank_is_named_once)
{
    sp_comm comm = {.size = 2};
    sp_run run = {.comm = &comm, .dir = ""};
    sp_watched row[2] = {{.status = {.own_s = 1}}, {.status = {.rank = 1, .own_s = 3}}};
    sp_watchdog w = {.run = &run, .limit_s = LIMIT_S, .row = row, .n_rows = 2};
    const char *first;

    test_capture(2);
    for (int step = 1; step <= 5; step++) {
        row[0].status.step = step;
        sp_watchdog_judge_speed(&w);
        row[1].slow_s -= LIMIT_S;
    }
    first = strstr(test_captured(2), "is slow: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "is slow: "));
}
