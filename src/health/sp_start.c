#include "health/sp_start.h"

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
#include "base/sp_fault.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_process.h"
#include "base/sp_thread.h"
#include "comm/sp_launcher.h"

/* LOOKS: between two looks at waits passes this part of the limit. */
enum { LIMIT_S = 300, LOOKS = 20, TEXT = 512 };

/* The ranks are still missing, they are together without a watchdog, or the thread is
 * to end. */
typedef enum stage { APART, TOGETHER, OVER } stage;

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_started;
    stage stage;
    double limit_s;
    const char *program;
} start;

/* ---- processes of this job on this host ---- */

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
static bool is_of_job(const sp_process *p, const sp_process *self)
{
    return p->parent == self->parent || p->session == self->session;
}

/* Returns the lowest number of a process of this program and job on this host that is
 * stopped (or, with !is_stopped, is not); 0 without such a process. */
static long find_process(bool is_stopped)
{
    char own[TEXT];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    DIR *all = opendir("/proc");
    struct dirent *entry;
    long lowest = 0;
    sp_process p, self;

    own[n > 0 ? n : 0] = 0;
    if (!sp_process_read((long)getpid(), &self))
        self.parent = self.session = -1;
    while (all && (entry = readdir(all))) {
        long pid = isdigit((unsigned char)entry->d_name[0]) ? atol(entry->d_name) : 0;

        if (pid && sp_process_read(pid, &p) && is_of_job(&p, &self) &&
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
static const char *start_rank_of(long pid, char text[16])
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

int sp_start_rank(void)
{
    char text[16];

    return sp_launcher_rank() > 0 ? sp_launcher_rank()
                                  : atoi(start_rank_of((long)getpid(), text));
}

enum { WHERE = 128 };

/* Describes the stopped process of this host; false if no process is stopped. */
static bool name_stopped(char where[WHERE])
{
    const long stopped = find_process(true);
    char rank[16];

    if (stopped)
        snprintf(where, WHERE,
                 "rank %s, pid %ld of this host, which is stopped (kill -CONT %ld)",
                 start_rank_of(stopped, rank), stopped, stopped);
    return stopped != 0;
}

/* One of this host's ranks reports for all of them. */
static bool is_speaker(void)
{
    return find_process(false) == (long)getpid();
}

/* Prints that ranks are missing. */
static void start_say(bool is_end)
{
    char host[64] = "", own[16], where[WHERE];

    if (!is_speaker())
        return;
    gethostname(host, sizeof host - 1);
    if (!name_stopped(where))
        snprintf(where, sizeof where, "%s",
                 "a rank that has not started, or is on another host");
    dprintf(STDERR_FILENO,
            "%s: rank %s host %s: %sthe ranks have not come together for %.0f s; "
            "waited for: %s%s\n",
            start.program, start_rank_of((long)getpid(), own), host,
            is_end ? "error: " : "", is_end ? start.limit_s : start.limit_s / 4, where,
            is_end ? "; more time: SP_START_S in the environment" : "");
}

/* ---- the thread ---- */

/* Waits until a stage is over, at most until s seconds after `begin`. True if it is
 * over, also if a stopped process is continued after that time. */
static bool is_over_by(stage which, const struct timespec *begin, double s)
{
    struct timespec until = *begin;
    bool is_over;
    int error = 0;

    until.tv_sec += (time_t)s;
    until.tv_nsec += (long)(1e9 * (s - (double)(time_t)s));
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&start.mutex);
    while (start.stage == which && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&start.changed, &start.mutex, &until);
    is_over = start.stage != which;
    pthread_mutex_unlock(&start.mutex);
    return is_over;
}

static void limit_start(void)
{
    struct timespec begin;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (is_over_by(APART, &begin, start.limit_s / 4))
        return;
    start_say(false);
    if (is_over_by(APART, &begin, start.limit_s))
        return;
    start_say(true);
    _exit(SP_EMPI);
}

/* Names a stopped process that this rank waits for. Any work ends the wait for it. */
static void name_waits(void)
{
    sp_liveness last = {.work = -1}, now;
    struct timespec begin;
    bool is_told = false;
    char where[WHERE];

    for (;; last = now) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        if (is_over_by(TOGETHER, &begin, start.limit_s / LOOKS))
            return;
        sp_liveness_read(&now);
        is_told = is_told && now.work == last.work;
        if (is_told || !now.is_waiting || now.work != last.work || !is_speaker() ||
            !name_stopped(where))
            continue;
        sp_log_warn("the ranks wait for %s", where);
        is_told = true;
    }
}

static void *start_watch(void *arg)
{
    limit_start();
    name_waits();
    return arg;
}

double sp_start_limit_s(void)
{
    const char *text = getenv("SP_START_S");
    const double limit_s = text ? atof(text) : LIMIT_S;

    return limit_s > 0 && limit_s <= 1e9 ? limit_s : 0;
}

void sp_start_watch(const char *program)
{
    pthread_condattr_t attributes;

    start.program = program;
    start.limit_s = sp_start_limit_s();
    if (start.limit_s == 0)
        return;
    pthread_mutex_init(&start.mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&start.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    start.is_started = sp_thread_start(&start.thread, start_watch, NULL) == 0;
}

static void enter(stage next)
{
    pthread_mutex_lock(&start.mutex);
    start.stage = next;
    pthread_cond_signal(&start.changed);
    pthread_mutex_unlock(&start.mutex);
}

void sp_start_together(int rank)
{
    if (start.stage == TOGETHER) /* which only this thread writes */
        return;
    if (start.is_started)
        enter(TOGETHER);
    sp_fault_open(rank);
    sp_fault_at("together", 0);
}

void sp_start_over(void)
{
    if (!start.is_started)
        return;
    enter(OVER);
    pthread_join(start.thread, NULL);
    start.is_started = false;
}
