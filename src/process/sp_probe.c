#include "config.h"

#include "process/sp_probe.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORDS = 4 };

/* Processor time: that of reading a file of this size, and a little. */
#define WORK_S       10
#define WORK_BYTES_S 50000000

/* The words that this program's main has registered by sp_probe_main. */
static const char *answered[MOST_WORDS];
static int n_answered;

/* ---- the child ---- */

#if !defined(__SANITIZE_ADDRESS__)
static long pages_in_use(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");

    if (statm && fscanf(statm, "%ld", &pages) != 1)
        pages = 0;
    if (statm)
        fclose(statm);
    return pages;
}
#endif

void sp_probe_limit(int64_t bytes)
{
    static const int deadly[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGFPE, SIGILL,
                                 SIGALRM, SIGPROF, SIGTERM, SIGINT, SIGPIPE};
    const struct rlimit no_core = {0, 0};

    assert(bytes > 0);
    /* libraries that were loaded with the program may have set handlers */
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
#if !defined(__SANITIZE_ADDRESS__) /* which reserves terabytes of addresses */
    static long pages = -1;
    const long page = sysconf(_SC_PAGESIZE);
    struct rlimit space;

    if (pages < 0)
        pages = pages_in_use();
    if (getrlimit(RLIMIT_AS, &space) != 0)
        return;
    space.rlim_cur = (rlim_t)bytes + (rlim_t)pages * (rlim_t)page;
    if (space.rlim_cur > space.rlim_max)
        space.rlim_cur = space.rlim_max;
    setrlimit(RLIMIT_AS, &space);
#else
    (void)bytes;
#endif
}

static int64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

void sp_probe_main(int argc, char **argv, const char *word,
                   sp_status (*work)(const char *path))
{
    struct itimerval work_limit = {.it_value.tv_sec = WORK_S};
    int64_t bytes;
    sp_status rc;

    if (n_answered < MOST_WORDS)
        answered[n_answered++] = word;
    if (argc != 3 || strcmp(argv[1], word) != 0)
        return;
    bytes = size_of(argv[2]);
    /* room for a few copies of the arrays */
    sp_probe_limit(((int64_t)2 << 30) + 4 * bytes);
    work_limit.it_value.tv_sec += bytes / WORK_BYTES_S;
    setitimer(ITIMER_PROF, &work_limit, NULL);
    rc = work(argv[2]);
    if (rc != SP_OK)
        fputs(sp_error_last()->message, stdout);
    fflush(stdout);
    _exit(rc);
}

/* ---- the parent ---- */

sp_status sp_probe_start(const char *word, const char *path, pid_t *pid, int *fd)
{
    char *arguments[] = {"sptrain", (char *)(uintptr_t)word, (char *)(uintptr_t)path,
                         NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], failed;

    assert(word && path && pid && fd);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot start its reader: %s", path,
                       strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    failed = posix_spawn(pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *fd = ends[0];
    if (!failed)
        return SP_OK;
    close(ends[0]);
    return SP_FAIL(SP_EIO, "%s: cannot start its reader: %s", path, strerror(failed));
}

static sp_status judge(const char *path, int status, const char *message)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (code == SP_OK)
        return SP_OK;
    if (message[0] && (code == SP_EDATA || code == SP_EIO || code == SP_EMEM))
        return SP_FAIL((sp_status)code, "%s", message);
    if (WIFSIGNALED(status) &&
        (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGKILL))
        return SP_FAIL(SP_EDATA, "%s: damaged file (its reader did not finish in time)",
                       path);
    if (WIFSIGNALED(status))
        return SP_FAIL(SP_EDATA, "%s: damaged file (its reader ended by signal %d)",
                       path, WTERMSIG(status));
    return SP_FAIL(SP_EDATA, "%s: damaged file (its reader ended with status %d)", path,
                   code);
}

bool sp_probe_is_answered(const char *word)
{
    for (int i = 0; i < n_answered; i++)
        if (strcmp(answered[i], word) == 0)
            return true;
    return false;
}

sp_status sp_probe_end(const char *path, pid_t pid, const char *message)
{
    int status = 0;

    assert(pid > 0 && path);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return judge(path, status, message);
}
