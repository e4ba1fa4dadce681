#include "process/sp_limit.h"

#include <assert.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>

#include "base/sp_machine.h"

#if defined(__SANITIZE_ADDRESS__) /* which reserves terabytes of addresses */
static void limit_addresses(int64_t bytes)
{
    (void)bytes;
}
#else
/* Allows so many bytes of addresses beyond those of the first call. */
static void limit_addresses(int64_t bytes)
{
    static size_t taken;
    struct rlimit space;

    if (taken == 0)
        taken = sp_machine_addresses();
    if (getrlimit(RLIMIT_AS, &space) != 0)
        return;
    space.rlim_cur = (rlim_t)bytes + (rlim_t)taken;
    if (space.rlim_cur > space.rlim_max)
        space.rlim_cur = space.rlim_max;
    setrlimit(RLIMIT_AS, &space);
}
#endif

void sp_limit_child(int64_t bytes)
{
    static const int deadly[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGFPE, SIGILL,
                                 SIGALRM, SIGPROF, SIGTERM, SIGINT, SIGPIPE};
    const struct rlimit no_core = {0, 0};

    assert(bytes > 0);
    /* libraries that were loaded with the program may have set handlers */
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
    limit_addresses(bytes);
}
