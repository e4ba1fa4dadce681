#include "train/sp_wgmma_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/sp_selftest.h"
#include "base/sp_child.h"
#include "base/sp_file.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"

/* WORD is the option that starts the child. PASSED is the line that it prints after
 * success, since an abandoned child has no exit status. */
static const char WORD[] = "--try-wgmma", PASSED[] = "wgmma computes as mma.sync";
enum { LIMIT_S = 60, REAP_S = 5, SAID = 400 };

static bool has_main;

/* ---- the child ---- */

static sp_status probe_try(int device)
{
    sp_backend be = {.ops = sp_backend_find("cuda"),
                     .precision = SP_BF16,
                     .is_wgmma = true,
                     .is_wgmma_optional = true};

    if (!be.ops)
        return SP_FAIL(SP_EDEVICE, "this program was built without CUDA");
    SP_TRY(be.ops->open(&be, device, 1));
    return be.is_wgmma ? sp_selftest_wgmma(&be) : SP_OK;
}

void sp_wgmma_probe_main(int argc, char **argv)
{
    sp_status rc;

    has_main = true;
    if (argc != 4 || strcmp(argv[1], WORD) != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("SP_TILES", "formula", 1); /* the parent times tiles for itself */
    if (getppid() != atol(argv[3]))   /* the parent has ended before this call */
        _exit(SP_EDEVICE);
    rc = probe_try(atoi(argv[2]));
    printf("\n%s\n", rc == SP_OK ? PASSED : sp_error_last()->message);
    fflush(stdout);
    _exit(rc);
}

/* ---- the parent ---- */

static int probe_spawn(pid_t *pid, int device, int out)
{
    char number[16], parent[16], own[PATH_MAX];
    char *const arguments[] = {"sptrain", (char *)(uintptr_t)WORD, number, parent,
                               NULL};

    snprintf(number, sizeof number, "%d", device);
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    return sp_child_spawn(pid, sp_file_of_program(own), arguments, out);
}

/* Reads until the child closes the pipe, which happens at its end at the latest, and
 * keeps the last line that is not empty. False if the child is not done at end_s. The
 * watchdog's limit may be shorter than this wait, so it gets a sign of life every
 * second. */
static bool read_last(int from, double end_s, char said[SAID])
{
    char line[SAID], some[512];
    size_t n = 0;

    for (;;) {
        struct pollfd what = {.fd = from, .events = POLLIN};
        const double left_s = end_s - sp_now_s();
        const int ready =
            left_s > 0 ? poll(&what, 1, (int)(fmin(left_s, 1) * 1000) + 1) : 0;
        ssize_t got;

        sp_liveness_count();
        if (ready < 0 && errno == EINTR)
            continue;
        if (left_s <= 0)
            return false;
        if (ready == 0)
            continue;
        got = read(from, some, sizeof some);
        if (got < 0 && errno == EINTR)
            continue;
        for (ssize_t i = 0; i < got; i++) {
            if (some[i] != '\n' && n < sizeof line - 1)
                line[n++] = some[i];
            if (some[i] != '\n' || n == 0)
                continue;
            line[n] = 0;
            memcpy(said, line, n + 1);
            n = 0;
        }
        if (got <= 0)
            return true;
    }
}

/* Waits for the end of a child that has closed its pipe or was killed. A child that the
 * driver keeps from ending is abandoned after REAP_S, since it might never end. */
static int probe_reap(pid_t pid)
{
    const double end_s = sp_now_s() + REAP_S;
    int status = 0;

    for (;;) {
        const pid_t ended = waitpid(pid, &status, WNOHANG);

        if (ended == pid)
            return status;
        if ((ended < 0 && errno != EINTR) || sp_now_s() > end_s)
            return 0;
        sp_sleep_s(0.002);
    }
}

sp_status sp_wgmma_probe(int device)
{
    const char *text = getenv("SP_TRIAL_S");
    const double most_s = text && atof(text) > 0 ? atof(text) : LIMIT_S;
    char said[SAID] = "";
    bool is_in_time;
    int ends[2], status, error;
    pid_t pid;

    if (!has_main)
        return SP_OK;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return SP_FAIL(SP_EDEVICE, "no child can be started: %s", strerror(errno));
    error = probe_spawn(&pid, device, ends[1]);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return SP_FAIL(SP_EDEVICE, "no child can be started: %s", strerror(error));
    }
    is_in_time = read_last(ends[0], sp_now_s() + most_s, said);
    close(ends[0]);
    if (!is_in_time)
        kill(-pid, SIGKILL);
    status = probe_reap(pid);
    if (!is_in_time)
        return SP_FAIL(SP_EDEVICE,
                       "it did not end in %.3g s (SP_TRIAL_S) and was killed", most_s);
    if (WIFSIGNALED(status))
        return SP_FAIL(SP_EDEVICE, "it ended by signal %d%s%s", WTERMSIG(status),
                       *said ? ": " : "", said);
    if (strcmp(said, PASSED) != 0)
        return SP_FAIL(SP_EDEVICE, "%s", *said ? said : "it ended without a word");
    return SP_OK;
}
