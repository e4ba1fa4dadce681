#include "base/sp_child.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "base/sp_signal.h"

/* Marks all open files to be closed in the command. Otherwise it could send on MPI's
 * sockets as this rank, and would keep them open after this rank has ended. */
static void close_for_children(void)
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *entry;

    while (all && (entry = readdir(all))) {
        int fd = atoi(entry->d_name);

        if (fd > STDERR_FILENO)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (all)
        closedir(all);
}

/* The environment without the variables that give a process its rank (set by launchers
 * of MPICH and Open MPI, srun, torchrun): an MPI program in the command would take
 * itself for that rank. The user's settings and Slurm's of the job are kept. The caller
 * frees the array; NULL: out of memory. */
static char **environment(void)
{
    static const char *const launcher[] = {"PMI_",
                                           "PMIX_",
                                           "HYDI_",
                                           "MPI_LOCAL",
                                           "OMPI_COMM_WORLD_",
                                           "OMPI_UNIVERSE_",
                                           "OMPI_MCA_orte_",
                                           "OMPI_MCA_ess",
                                           "OMPI_MCA_pmix",
                                           "RANK=",
                                           "WORLD_SIZE=",
                                           "SLURM_STEP"};
    size_t n = 0;
    char **kept;

    while (environ[n])
        n++;
    kept = calloc(n + 1, sizeof *kept);
    n = 0;
    for (char **at = environ; kept && *at; at++) {
        bool is_launcher = false;

        for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++)
            is_launcher |= strncmp(*at, launcher[i], strlen(launcher[i])) == 0;
        if (!is_launcher)
            kept[n++] = *at;
    }
    return kept;
}

int sp_child_spawn(pid_t *pid, const char *path, char *const argv[], int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    char **variables = environment();
    sigset_t none, all;
    int error;

    assert(pid && path && argv);
    if (!variables)
        return ENOMEM;
    close_for_children();
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                              POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (int fd = STDOUT_FILENO; out >= 0 && fd <= STDERR_FILENO; fd++)
        posix_spawn_file_actions_adddup2(&files, out, fd);
    error = posix_spawn(pid, path, &files, &attributes, argv, variables);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    free(variables);
    return error;
}

static int spawn_shell(pid_t *pid, const char *script, const char *path)
{
    char *const argv[] = {
        "sh", "-c", (char *)(uintptr_t)script, "sh", (char *)(uintptr_t)path, NULL};

    return sp_child_spawn(pid, "/bin/sh", argv, -1);
}

/* Takes the eldest entry out of the queue. */
static sp_child_work child_dequeue(sp_child *child)
{
    const sp_child_work first = child->waiting[0];

    child->n_waiting--;
    memmove(child->waiting, child->waiting + 1,
            (size_t)child->n_waiting * sizeof *child->waiting);
    return first;
}

static void start_next(sp_child *child)
{
    char *script;
    int error = ENOMEM;

    if (child->pid || child->n_waiting == 0)
        return;
    free(child->running.path);
    child->running = child_dequeue(child);
    if (asprintf(&script, "%s \"$1\"", child->running.command) >= 0) {
        error = spawn_shell(&child->pid, script, child->running.path);
        free(script);
    }
    if (error) {
        child->pid = 0;
        sp_log_warn("%s: cannot start: %s", child->running.command, strerror(error));
    }
    child->started_s = sp_now_s();
}

/* Appends a line to the record of a command. A failure to write it does not disturb a
 * training, which warns of full disks itself. */
static void record_result(const char *record, const char *path, const char *result)
{
    FILE *to = record ? fopen(record, "a") : NULL;

    if (!to)
        return;
    fprintf(to, "%s %s\n", result, path);
    fclose(to);
}

static void child_leave_out(const sp_child_work *work, const char *why)
{
    if (work->path)
        record_result(work->record, work->path, "left out");
    sp_log_warn("%s %s: left out, %s", work->command,
                work->path ? work->path : "a file", why);
}

static void child_report_end(const sp_child *child, int status)
{
    const char *command = child->running.command, *path = child->running.path;
    char result[32];

    snprintf(result, sizeof result, WIFSIGNALED(status) ? "signal %d" : "%d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    record_result(child->running.record, path, result);
    if (WIFSIGNALED(status))
        sp_log_warn("%s %s: ended by signal %d", command, path, WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        sp_log_warn("%s %s: exit status %d", command, path, WEXITSTATUS(status));
}

static void kill_running(sp_child *child, double after_s)
{
    kill(-child->pid, SIGKILL);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    child->pid = 0;
    child->n_killed++;
    record_result(child->running.record, child->running.path, "killed");
    sp_log_warn("%s %s: killed after %.3g s", child->running.command,
                child->running.path, after_s);
}

/* Reports the running command if it has ended, and kills it if its time is over. */
static void child_reap(sp_child *child)
{
    int status = 0;
    pid_t ended = child->pid ? waitpid(child->pid, &status, WNOHANG) : 0;
    double elapsed_s = sp_now_s() - child->started_s;

    if (ended == child->pid && ended) {
        child_report_end(child, status);
        child->pid = 0;
    } else if (child->pid && elapsed_s > child->limit_s)
        kill_running(child, elapsed_s);
}

void sp_child_poll(sp_child *child)
{
    child_reap(child);
    start_next(child);
}

void sp_child_start(sp_child *child, const char *command, const char *path,
                    const char *record)
{
    sp_child_work work = {command, record, strdup(path)}, eldest;

    assert(command && path);
    for (int i = 0; i < child->n_waiting; i++)
        if (work.path && strcmp(child->waiting[i].path, path) == 0) {
            free(work.path);
            return;
        }
    if (child->n_waiting == SP_CHILD_QUEUE) {
        eldest = child_dequeue(child);
        child_leave_out(&eldest, "too many others wait");
        free(eldest.path);
    }
    if (work.path)
        child->waiting[child->n_waiting++] = work;
    else
        child_leave_out(&work, "out of memory");
    sp_child_poll(child);
}

void sp_child_finish(sp_child *child, double patience_s)
{
    const int n_killed = child->n_killed, signal_before = sp_signal_received();
    double begin_s = sp_now_s(), waited_s;
    bool is_said = false;

    assert(patience_s >= 0);
    for (;;) {
        child_reap(child);
        waited_s = sp_now_s() - begin_s;
        if (waited_s >= patience_s || child->n_killed >= n_killed + 2 ||
            sp_signal_received() != signal_before)
            break;
        start_next(child);
        if (!child->pid && child->n_waiting == 0)
            break;
        if (!is_said && waited_s > 1)
            sp_log_info("waiting for %s %s", child->running.command,
                        child->running.path);
        is_said = is_said || waited_s > 1;
        sp_sleep_s(0.002);
    }
    if (child->pid)
        kill_running(child, sp_now_s() - child->started_s);
    for (int i = 0; i < child->n_waiting; i++) {
        child_leave_out(&child->waiting[i], "the program ends");
        free(child->waiting[i].path);
    }
    child->n_waiting = 0;
    free(child->running.path);
    child->running.path = NULL;
}
