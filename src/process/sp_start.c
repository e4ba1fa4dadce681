#include "config.h"

#include "process/sp_start.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_error.h"
#include "process/sp_thread.h"

enum { LIMIT_S = 300, TEXT = 512 };

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t over;
    bool is_started, is_over;
    double limit_s;
} start;

/* ---- processes of this job on this host ---- */

typedef struct process {
    long pid, parent, session;
    char state; /* as in /proc: T means stopped */
} process;

static bool read_process(long pid, process *p)
{
    char path[64], text[TEXT], *at;
    FILE *file;
    size_t n = 0;
    long group;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    /* the fields follow the name, which may contain any character */
    at = strrchr(text, ')');
    p->pid = pid;
    return at && sscanf(at + 1, " %c %ld %ld %ld", &p->state, &p->parent, &group,
                        &p->session) == 4;
}

static bool has_program_of(long pid, const char *own)
{
    char path[64], program[TEXT];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%ld/exe", pid);
    n = readlink(path, program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    return n > 0 && strcmp(program, own) == 0;
}

/* True if p belongs to this job: launchers start the ranks of a host from one process,
 * or in one session. */
static bool is_of_job(const process *p, const process *self)
{
    return p->parent == self->parent || p->session == self->session;
}

/* Returns the lowest number of a process of this program and job on this host that is
 * stopped (or, with !is_stopped, is not); 0: none. */
static long find_process(bool is_stopped)
{
    char own[TEXT];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    DIR *all = opendir("/proc");
    struct dirent *entry;
    long lowest = 0;
    process p, self = {0};

    own[n > 0 ? n : 0] = 0;
    if (!read_process((long)getpid(), &self))
        self.parent = self.session = -1;
    while (all && (entry = readdir(all))) {
        long pid = isdigit((unsigned char)entry->d_name[0]) ? atol(entry->d_name) : 0;

        if (pid && read_process(pid, &p) && is_of_job(&p, &self) &&
            (p.state == 'T') == is_stopped && has_program_of(pid, own) &&
            (!lowest || pid < lowest))
            lowest = pid;
    }
    if (all)
        closedir(all);
    return lowest;
}

/* ---- messages ---- */

/* Returns the rank that the launcher gave to a process, as text; "?" if it is not
 * known. */
static const char *rank_of(long pid, char text[16])
{
    static const char *const names[] = {
        "PMI_RANK=", "PMIX_RANK=", "OMPI_COMM_WORLD_RANK=", "SLURM_PROCID="};
    char path[64], *variable = NULL;
    size_t room = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    file = fopen(path, "re");
    snprintf(text, 16, "?");
    while (file && getdelim(&variable, &room, 0, file) > 0)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strncmp(variable, names[i], strlen(names[i])) == 0)
                snprintf(text, 16, "%.15s", variable + strlen(names[i]));
    free(variable);
    if (file)
        fclose(file);
    return text;
}

/* Prints the message; one of this host's ranks does so for all of them. */
static void say(bool is_end)
{
    long stopped = find_process(true);
    char host[64] = "", own[16], other[16],
         where[128] = "a rank that has not started, or is on another host";

    if (find_process(false) != (long)getpid())
        return;
    gethostname(host, sizeof host - 1);
    if (stopped)
        snprintf(where, sizeof where,
                 "rank %s, pid %ld of this host, which is stopped (kill -CONT %ld)",
                 rank_of(stopped, other), stopped, stopped);
    dprintf(STDERR_FILENO,
            "sptrain: rank %s host %s: %sthe ranks have not come together for %.0f s; "
            "waited for: %s%s\n",
            rank_of((long)getpid(), own), host, is_end ? "error: " : "",
            is_end ? start.limit_s : start.limit_s / 4, where,
            is_end ? "; more time: SP_START_S in the environment" : "");
}

/* ---- the thread ---- */

/* Waits until the start is over, at most until s seconds after `begin`. True if it is
 * over. */
static bool is_over_by(const struct timespec *begin, double s)
{
    struct timespec until = *begin;
    int error = 0;

    until.tv_sec += (time_t)s;
    until.tv_nsec += (long)(1e9 * (s - (double)(time_t)s));
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&start.mutex);
    while (!start.is_over && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&start.over, &start.mutex, &until);
    pthread_mutex_unlock(&start.mutex);
    return error != ETIMEDOUT;
}

static void *watch(void *arg)
{
    struct timespec begin;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (is_over_by(&begin, start.limit_s / 4))
        return arg;
    say(false);
    if (is_over_by(&begin, start.limit_s))
        return arg;
    say(true);
    _exit(SP_EMPI);
}

void sp_start_watch(void)
{
    const char *text = getenv("SP_START_S");
    pthread_condattr_t attributes;

    start.limit_s = text ? atof(text) : LIMIT_S;
    if (!(start.limit_s > 0) || start.limit_s > 1e9)
        return;
    pthread_mutex_init(&start.mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&start.over, &attributes);
    pthread_condattr_destroy(&attributes);
    start.is_started = sp_thread_start(&start.thread, watch, NULL) == 0;
}

void sp_start_over(void)
{
    if (!start.is_started)
        return;
    pthread_mutex_lock(&start.mutex);
    start.is_over = true;
    pthread_cond_signal(&start.over);
    pthread_mutex_unlock(&start.mutex);
    pthread_join(start.thread, NULL);
    start.is_started = false;
}
