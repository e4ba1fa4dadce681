/* Launches are told of: how often each kernel ran (HC_COUNT), and which one never ends
 * (HC_WATCHDOG). */
#include "emulator/hostcuda_internal.h"

#include <signal.h>
#include <sys/time.h>

#include <map>
#include <string>

static void on_watchdog(int)
{
    const hc_fiber *f = hc_running;

    if (f)
        hc_fail("watchdog: still running after %d s: %s", hc_option.watchdog_s,
                hc_where(f));
}

void hc_set_watchdog(int seconds)
{
    const struct itimerval timer = {{0, 0}, {seconds, 0}};

    signal(SIGPROF, seconds ? on_watchdog : SIG_IGN);
    setitimer(ITIMER_PROF, &timer, NULL);
}

static std::map<std::string, long> *n_launches;
static long n_early, n_blocks;
static unsigned n_that_let;

unsigned hc_kernels_that_let()
{
    return n_that_let;
}

void hc_count_let(bool lets_next)
{
    n_that_let += lets_next;
}

static void print_launches()
{
    for (const auto &kernel : *n_launches)
        fprintf(stderr, "%6ld %s\n", kernel.second, kernel.first.c_str());
    fprintf(stderr, "%6ld launched early\n", n_early);
    fprintf(stderr, "%6ld blocks of all launches\n", n_blocks);
    fprintf(stderr, "%6u let the next kernel begin\n", n_that_let);
}

void hc_count_launch(const hc_launch *launch)
{
    static const bool is_asked = getenv("HC_COUNT") != NULL;

    if (!is_asked)
        return;
    if (!n_launches) {
        n_launches = new std::map<std::string, long>();
        atexit(print_launches);
    }
    ++(*n_launches)[launch->kernel];
    n_early += launch->is_early;
    n_blocks += (long)launch->grid.x * launch->grid.y * launch->grid.z;
}

size_t hc_bound_of(const void *kernel)
{
    size_t n = 0;

#if defined __x86_64__
    static const unsigned char NOP = 0x90, ENDBR[] = {0xf3, 0x0f, 0x1e, 0xfa};
    const unsigned char *at = (const unsigned char *)kernel;

    if (!hc_is_checked() && memcmp(at, ENDBR, sizeof ENDBR) == 0)
        at += sizeof ENDBR;
    while (!hc_is_checked() && at[n] == NOP)
        n++;
#endif
    (void)kernel;
    return n > 0 ? 32 * n : 1024;
}
