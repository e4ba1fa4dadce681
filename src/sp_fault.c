#include "sp_fault.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool is_set;
    char action[16], point[16];
    long long step;
} fault;

void sp_fault_open(int rank)
{
    const char *text = getenv("SP_TEST_FAULT");
    int who;

    fault.is_set = text &&
                   sscanf(text, "%15[a-z]@%d:%15[a-z]:%lld", fault.action, &who,
                          fault.point, &fault.step) == 4 &&
                   who == rank;
}

static void happen(void)
{
    if (strcmp(fault.action, "kill") == 0)
        kill(getpid(), SIGKILL);
    else if (strcmp(fault.action, "stop") == 0)
        kill(getpid(), SIGSTOP);
    else if (strcmp(fault.action, "segv") == 0)
        raise(SIGSEGV);
    else if (strcmp(fault.action, "leave") == 0)
        _exit(0);
    else if (strcmp(fault.action, "exit") == 0)
        exit(0);
    else
        while (strcmp(fault.action, "hang") == 0)
            sleep(1000);
}

void sp_fault_at(const char *point, int64_t step)
{
    if (!fault.is_set || step < fault.step || strcmp(point, fault.point) != 0)
        return;
    fault.is_set = false;
    happen();
}
