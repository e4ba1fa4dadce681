#include "base/sp_fault.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_log.h"

static struct {
    atomic_bool is_set;
    char action[16], point[16];
    long long step;
    atomic_llong now; /* the last step that sp_fault_at was given */
} fault;

/* Computes for a hundredth of a second of processor time, which, unlike sleep, advances
 * the process's own clock. */
static void compute_for_a_while(void)
{
    const clock_t end = clock() + CLOCKS_PER_SEC / 100;

    while (clock() < end)
        ;
}

static bool is_action(const char *name)
{
    return strcmp(fault.action, name) == 0;
}

static void happen(void)
{
    static const struct {
        const char *action;
        int number;
    } sent[] = {{"kill", SIGKILL},
                {"stop", SIGSTOP},
                {"term", SIGTERM},
                {"hup", SIGHUP},
                {"xcpu", SIGXCPU}};

    /* written in one piece, since the process may end directly afterwards */
    dprintf(STDERR_FILENO, "fault: %s at %lld\n", fault.action, (long long)time(NULL));
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        if (is_action(sent[i].action))
            kill(getpid(), sent[i].number);
    if (is_action("segv"))
        raise(SIGSEGV);
    else if (is_action("abort"))
        abort();
    else if (is_action("leave"))
        _exit(0);
    else if (is_action("quit"))
        _exit(3);
    else if (is_action("exit"))
        exit(0);
    else if (is_action("pause"))
        sp_sleep_s(0.1);
    else if (is_action("stall"))
        sp_sleep_s(6);
    while (is_action("hang"))
        sleep(1000);
}

static void pass_point(const char *point, int64_t step)
{
    assert(point);
    if (!fault.is_set)
        return;
    if (step < 0)
        step = fault.now;
    fault.now = step;
    if (step < fault.step || strcmp(point, fault.point) != 0)
        return;
    if (is_action("slow"))
        sp_sleep_s(0.1);
    else if (is_action("busy"))
        compute_for_a_while();
    else if (atomic_exchange(&fault.is_set, false))
        happen();
}

void sp_fault_open(int rank)
{
    const char *text = getenv("SP_TEST_FAULT");
    int who;

    assert(rank >= 0);
    fault.is_set = text &&
                   sscanf(text, "%15[a-z]@%d:%15[a-z]:%lld", fault.action, &who,
                          fault.point, &fault.step) == 4 &&
                   who == rank;
    sp_fault_hook = fault.is_set ? pass_point : NULL;
}
