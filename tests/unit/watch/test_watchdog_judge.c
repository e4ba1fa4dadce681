/* What the watchdog makes of the latest signs of life. */
#include "config.h"

#include "fixtures/test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "watch/sp_watchdog_internal.h"

#define LIMIT_S  60.0
#define MARGIN_S 3.0

/* Rank 1 of 2 judges rank 0, from which it has heard nothing for longer than the limit,
 * but not for so long that it may call it silent. Both said that they wait. */
static void judge_in_child(void)
{
    const double now = sp_now_s(), then = now - LIMIT_S - 1;
    sp_heartbeat beat = {0};
    sp_comm comm = {.rank = 1, .size = 2};
    sp_run run = {.comm = &comm, .dir = "", .beat = &beat};
    sp_watched row[2] = {{.signs.is_waiting = true,
                          .state = SP_WATCHED_LINKED,
                          .heard_s = then,
                          .changed_s = then,
                          .worked_s = then},
                         {.signs = {.rank = 1, .is_waiting = true},
                          .heard_s = now,
                          .changed_s = now,
                          .worked_s = then}};
    sp_watchdog w = {.run = &run, .limit_s = LIMIT_S, .row = row, .n_rows = 2};

    row[0].link.fd = row[1].link.fd = -1;
    sp_watchdog_judge(&w, MARGIN_S); /* does not return where it blames the transport */
    _exit(0);
}

TEST(a_silent_rank_does_not_wait_for_others)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        judge_in_child();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Steps of which rank 1 needs thrice the time, and then none for longer than the limit. */
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
