#include "base/sp_signal.h"

#include <assert.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_error.h"

static volatile sig_atomic_t received;
static struct timespec first;
static volatile sig_atomic_t is_starting, is_installed;

/* Seconds that MPI's start may take after a request to stop; nothing can be lost by
 * then. */
enum { START_S = 5 };

static volatile sig_atomic_t exit_status;

static void set_handler(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void leave(int number)
{
    (void)number;
    _exit(exit_status);
}

/* A signal handler may call this: it uses async-signal-safe functions only. */
void sp_signal_leave_after(unsigned seconds, int status)
{
    assert(seconds > 0);
    exit_status = status;
    set_handler(SIGALRM, leave, 0);
    alarm(seconds);
}

static void handle(int number)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now); /* async-signal-safe */
    if (!received) {
        first = now;
        received = number;
        if (is_starting)
            sp_signal_leave_after(START_S, SP_ELIMIT);
    } else if (number != SIGXCPU && now.tv_sec - first.tv_sec >= 2) {
        /* the system repeats XCPU every second of the processor */
        _exit(128 + number);
    }
}

/* Was HUP ignored when the program was started, as nohup has it? UCX, which MPI loads
 * with the program, sets a handler before main (for its debugging); functions in
 * .preinit_array run before the libraries do. */
static bool is_hup_ignored;

static void look_at_hup(void)
{
    struct sigaction action;

    is_hup_ignored =
        sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}
static void (*const first_of_all)(void)
    __attribute__((section(".preinit_array"), used)) = look_at_hup;

void sp_signal_begin(void)
{
    signal(SIGHUP, is_hup_ignored ? SIG_IGN : SIG_DFL);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", O_RDONLY); /* the lowest number that is free, so fd */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
}

void sp_signal_install(void)
{
    static const int numbers[] = {SP_SIGNAL_REQUESTS};

    is_starting = is_installed = 1;
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] != SIGHUP || !is_hup_ignored)
            set_handler(numbers[i], handle, SA_RESTART);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end the run */
}

void sp_signal_started(void)
{
    is_starting = 0;
    alarm(0);
    /* UCX has taken HUP once more. */
    if (is_hup_ignored || !is_installed)
        signal(SIGHUP, is_hup_ignored ? SIG_IGN : SIG_DFL);
    else
        set_handler(SIGHUP, handle, SA_RESTART);
}

/* abort() ends the process when the handler returns, a signal of another process by the
 * second delivery. */
static void wait_a_second(int number)
{
    const struct timespec second = {1, 0};

    nanosleep(&second, NULL);
    signal(number, SIG_DFL);
    raise(number);
}

void sp_signal_delay_abort(void)
{
    set_handler(SIGABRT, wait_a_second, 0);
}

int sp_signal_received(void)
{
    return received;
}

sp_status sp_signal_check(void)
{
    if (!received)
        return SP_OK;
    return SP_FAIL(
        SP_ELIMIT,
        "stopped by signal %d, and nothing was written: run the same command "
        "again",
        (int)received);
}

double sp_signal_job_left_s(void)
{
    const char *text = getenv("SLURM_JOB_END_TIME");
    long long end = text ? atoll(text) : 0;
    struct timespec now;

    if (end <= 0)
        return INFINITY;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)(end - (long long)now.tv_sec);
}
