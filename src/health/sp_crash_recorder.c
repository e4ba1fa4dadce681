#include "health/sp_crash_recorder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "base/sp_signal.h"
#include "report/sp_live.h"
#include "run/sp_lock.h"

/* Command line of a crash recorder:
 *     sptrain --crash-recorder DIR TASK SET,CONTROL,LOCK FD,RANK,PID ...
 * TASK is the task in the status (sp_run.h). The descriptors are inherited; LOCK is -1
 * except for the crash recorder of rank 0. */
#define WORD "--crash-recorder"
enum { ARG_DIR = 2, ARG_TASK, ARG_FDS, ARG_RANKS };

/* LEAVE_MS: the other ranks leave within 15 s of the first; after this time the crash
 * recorder reports in any case. */
enum { LEAVE_MS = 20000, MOST_FD = 4096, HIGH_FD = 64 };

/* Number of the control pipe in the epoll set; ranks have 0 .. n - 1. */
#define CONTROL UINT32_MAX

/* This program's main has called sp_crash_recorder_main. A test's main has not, so that
 * no crash recorder can be started from it. */
static bool is_answered;

typedef struct watched {
    int fd, rank, pid;
} watched;

/* ---- the crash recorder ---- */

typedef struct recorder_state {
    const char *dir, *task;
    int set, control, lock;
    int n, n_alive;         /* ranks of the node */
    watched *rank;          /* [n] */
    bool has_seen;          /* a rank died before its end */
    sp_machine_kills kills; /* before the run */
} recorder_state;

/* The present heartbeat.bin, read again each time, since another start may have
 * replaced it. read_evidence returns false if the file is missing or damaged. */
typedef struct evidence {
    sp_heartbeats beats;
    sp_heartbeat *records; /* a copy, [n] */
    int n;
} evidence;

static bool read_evidence(const recorder_state *s, evidence *e)
{
    char path[PATH_MAX];

    *e = (evidence){.beats = {.fd = -1}};
    snprintf(path, sizeof path, "%s/heartbeat.bin", s->dir);
    return sp_lock_is_held(s->dir, s->lock) &&
           sp_heartbeat_read(path, &e->records, &e->n) == SP_OK &&
           sp_heartbeat_open(&e->beats, path, e->n) == SP_OK;
}

static void destroy_evidence(evidence *e)
{
    sp_heartbeat_close(&e->beats);
    free(e->records);
}

/* Writes the message about the rank that died first. The ranks' own diagnosis may
 * replace it. */
static void recorder_describe(const recorder_state *s, const sp_heartbeat *who,
                              int rank, int size, char *text, size_t n)
{
    char kills[384] = "";

    if (who->lost == SP_LOST_DEAD)
        sp_machine_tell_kills(&s->kills, kills, sizeof kills);
    snprintf(
        text, n, "rank %d/%d host %s pid %lld %s%s; phase %s, epoch %lld, step %lld%s",
        rank, size, who->host, (long long)who->pid,
        who->lost == SP_LOST_DEAD ? "died" : "is silent",
        size > 1 ? ", and the others with it" : "", sp_phase_name((sp_phase)who->phase),
        (long long)who->epoch, (long long)who->step, kills);
}

/* True if this start's status explains its end. */
static bool is_explained(const recorder_state *s, const sp_heartbeat *records, int n)
{
    sp_run_state state;
    const char *task;

    return sp_run_find_state(s->dir, records, n, &state, &task) &&
           strcmp(task, s->task) == 0 && strcmp(state.state, "running") != 0;
}

/* Writes the status at once, because a script that the launcher returns to reads
 * status.json. A start that was lost before it wrote any has its first one from here:
 * the script would read the earlier start's as this one's. */
static void write_status(const recorder_state *s, const sp_heartbeat *records, int n,
                         int lost)
{
    char text[896];

    if (is_explained(s, records, n))
        return;
    recorder_describe(s, &records[lost], lost, n, text, sizeof text);
    sp_run_write_status(s->dir, s->task, lost, &records[lost], "failed", SP_EMPI, text);
}

/* The crash recorder of another node than rank 0's has no status to write, but only it
 * sees the kernel's actions there. */
static void tell_memory(const recorder_state *s, int rank, const sp_heartbeat *who)
{
    char kills[384];

    sp_machine_tell_kills(&s->kills, kills, sizeof kills);
    if (kills[0])
        sp_log_warn("rank %d host %s pid %lld died%s", rank, who->host,
                    (long long)who->pid, kills);
}

static void see_dead(recorder_state *s, const watched *w)
{
    evidence e;

    if (read_evidence(s, &e) && w->rank < e.n && e.records[w->rank].pid == w->pid &&
        e.records[w->rank].phase != SP_PHASE_END) {
        if (sp_heartbeat_mark_lost(&e.beats, w->rank, SP_LOST_DEAD) && s->lock >= 0) {
            e.records[w->rank].lost = SP_LOST_DEAD;
            write_status(s, e.records, e.n, w->rank);
        } else if (s->lock < 0) {
            tell_memory(s, w->rank, &e.records[w->rank]);
        }
        s->has_seen = true;
    }
    destroy_evidence(&e);
}

/* All ranks are gone. One of them may have been killed while it wrote the diagnosis, so
 * the crash recorder completes it. */
static void conclude(const recorder_state *s)
{
    evidence e;
    const bool is_there = read_evidence(s, &e);
    const int lost = is_there ? sp_heartbeat_find_lost(e.records, e.n) : -1;
    sp_run_state state;
    const char *task;
    char text[896];

    if (lost >= 0) /* the rank that found it may have only marked it */
        write_status(s, e.records, e.n, lost);
    if (lost >= 0 && sp_run_find_state(s->dir, e.records, e.n, &state, &task) &&
        state.exit_code == SP_EMPI && sp_run_claim_diagnosis(s->dir)) {
        const sp_heartbeat *who = &e.records[lost];

        recorder_describe(s, who, lost, e.n, text, sizeof text);
        sp_log_open(lost, e.n, who->host, 0, NULL);
        SP_FAIL(SP_EMPI, "%s", text);
        sp_log_error(sp_error_last());
    }
    destroy_evidence(&e);
}

/* Reads one event at a time, in the order of arrival. */
static void recorder_watch(recorder_state *s)
{
    struct epoll_event event;
    char word;

    while (s->n_alive > 0) {
        int n = epoll_wait(s->set, &event, 1, s->has_seen ? LEAVE_MS : -1);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        if (event.data.u32 == CONTROL) {
            if (read(s->control, &word, 1) == 1)
                _exit(0); /* everything has been reported */
            epoll_ctl(s->set, EPOLL_CTL_DEL, s->control, NULL);
        } else {
            see_dead(s, &s->rank[event.data.u32]);
            epoll_ctl(s->set, EPOLL_CTL_DEL, s->rank[event.data.u32].fd, NULL);
            s->n_alive--;
        }
    }
}

static bool is_needed(const recorder_state *s, int fd)
{
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].fd == fd)
            return true;
    return fd == s->set || fd == s->control || fd == s->lock;
}

/* Detaches the crash recorder from the launcher: it ignores signals and closes the
 * inherited connections, because the launcher learns from their end that a rank is
 * gone. */
static void recorder_hide(const recorder_state *s)
{
    static const int signals[] = {SP_SIGNAL_REQUESTS, SIGPIPE};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_IGN);
    for (int fd = STDERR_FILENO + 1; fd < MOST_FD; fd++)
        if (!is_needed(s, fd))
            close(fd);
}

void sp_crash_recorder_main(int argc, char **argv)
{
    recorder_state s = {.n = argc - ARG_RANKS};

    is_answered = true;
    if (argc <= ARG_RANKS || strcmp(argv[1], WORD) != 0)
        return;
    s.dir = argv[ARG_DIR];
    s.task = argv[ARG_TASK];
    s.n_alive = s.n;
    s.rank = calloc((size_t)s.n, sizeof *s.rank);
    if (!s.rank || sscanf(argv[ARG_FDS], "%d,%d,%d", &s.set, &s.control, &s.lock) != 3)
        _exit(SP_EUSAGE);
    for (int i = 0; i < s.n; i++)
        if (sscanf(argv[ARG_RANKS + i], "%d,%d,%d", &s.rank[i].fd, &s.rank[i].rank,
                   &s.rank[i].pid) != 3)
            _exit(SP_EUSAGE);
    sp_live_open_errors();
    recorder_hide(&s);
    sp_machine_look_at_kills(&s.kills);
    recorder_watch(&s);
    if (s.has_seen && s.lock >= 0)
        conclude(&s);
    _exit(0);
}

/* ---- the ranks ---- */

/* The pipe from a rank to the crash recorder: process and number of the writing end,
 * which the node's first rank has open. */
typedef struct place {
    int64_t pid, fd, inode; /* pid 0: there is no crash recorder */
} place;

enum { PLACE_NUMBERS = sizeof(place) / sizeof(int64_t) };

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Makes a pipe for each of the n ranks of the node; reading ends go to rank[].fd.
 * Called by the node's first rank. */
static bool open_pipes(watched *rank, place *places, int n)
{
    struct stat st;
    int ends[2];

    for (int i = 0; i < n; i++) {
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
            return false;
        rank[i].fd = ends[0];
        places[i] = (place){.pid = getpid(), .fd = ends[1]};
        if (fstat(ends[1], &st) != 0)
            return false;
        places[i].inode = (int64_t)st.st_ino;
    }
    return true;
}

/* Opens this rank's writing end under a number above the launcher's descriptors; -1 if
 * it fails. The system opens it only for processes of the same user and does not block.
 * In another process namespace the path would lead to another file; the inode shows
 * that. */
static int connect_to(const place *p)
{
    char path[64];
    struct stat st;
    int fd, high;

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)p->pid,
             (long long)p->fd);
    fd = p->pid ? open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd < 0)
        return -1;
    high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    close(fd);
    if (high >= 0 && fstat(high, &st) == 0 && S_ISFIFO(st.st_mode) &&
        (int64_t)st.st_ino == p->inode)
        return high;
    close_fd(high);
    return -1;
}

static bool recorder_add(int set, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};

    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void set_inherited(int fd, bool is_inherited)
{
    if (fd >= 0)
        fcntl(fd, F_SETFD, is_inherited ? 0 : FD_CLOEXEC);
}

/* The crash recorder has a session of its own before spawn returns. A launcher kills
 * whole process groups, and on a busy machine that would hit a crash recorder before
 * its main begins. */
static pid_t recorder_spawn(char **arguments)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char own[PATH_MAX];
    pid_t pid;
    int failed;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    failed = posix_spawn(&pid, sp_file_of_program(own), &actions, &attributes,
                         arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? 0 : pid;
}

/* Starts the crash recorder. Descriptors that only the child needs are closed by the
 * caller soon, so they may stay inheritable; the lock may not. */
static pid_t start_child(const sp_run *run, int set, int control, const watched *rank,
                         int n)
{
    int lock = sp_run_lock(run);
    char **arguments = calloc((size_t)n + ARG_RANKS + 1, sizeof *arguments);
    char(*words)[48] = calloc((size_t)n + 2, sizeof *words);
    pid_t pid = 0;

    if (arguments && words) {
        arguments[0] = "sptrain";
        arguments[1] = WORD;
        arguments[ARG_DIR] = run->dir;
        arguments[ARG_TASK] = words[n];
        snprintf(words[n], sizeof *words, "%s", run->task);
        arguments[ARG_FDS] = words[n + 1];
        snprintf(words[n + 1], sizeof *words, "%d,%d,%d", set, control, lock);
        for (int i = 0; i < n; i++) {
            arguments[ARG_RANKS + i] = words[i];
            snprintf(words[i], sizeof *words, "%d,%d,%d", rank[i].fd, rank[i].rank,
                     rank[i].pid);
            set_inherited(rank[i].fd, true);
        }
        set_inherited(set, true);
        set_inherited(control, true);
        set_inherited(lock, true);
        pid = recorder_spawn(arguments);
        set_inherited(lock, false);
    }
    free(arguments);
    free(words);
    return pid;
}

struct sp_crash_recorder {
    /* Pid of the crash recorder and the pipe that ends it, on the node's first rank;
     * pid 0: no crash recorder. */
    int pid, control;
    int connection; /* this rank's end of its pipe to the crash recorder, or -1 */
};

/* Starts the crash recorder of the node, on its first rank, once all ranks have
 * connected. */
static void start_crash_recorder(sp_crash_recorder *recorder, const sp_run *run,
                                 watched *rank)
{
    const int n = run->comm->local_size, set = epoll_create1(EPOLL_CLOEXEC);
    int ends[2] = {-1, -1};
    bool is_ready =
        set >= 0 && pipe2(ends, O_CLOEXEC) == 0 && recorder_add(set, ends[0], CONTROL);

    for (int i = 0; is_ready && i < n; i++)
        is_ready = rank[i].pid && recorder_add(set, rank[i].fd, (uint32_t)i);
    if (is_ready)
        recorder->pid = start_child(run, set, ends[0], rank, n);
    close_fd(ends[0]);
    close_fd(set);
    if (recorder->pid)
        recorder->control = ends[1];
    else
        close_fd(ends[1]);
}

/* Each rank opens its pipe and sends the node's first rank its number in the world and
 * its pid, 0 if it could not connect. numbers: [2 * local_size], one pair a rank of the
 * node. Collective. */
static sp_status meet(sp_crash_recorder *recorder, sp_run *run, place *places,
                      int64_t *numbers)
{
    sp_comm *comm = run->comm;
    const size_t n = (size_t)comm->local_size, own = (size_t)comm->local_rank;

    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_NODE, places, n * PLACE_NUMBERS, SP_I64,
                             SP_SUM));
    recorder->connection = connect_to(&places[own]);
    numbers[2 * own] = comm->rank;
    numbers[2 * own + 1] = recorder->connection >= 0 ? getpid() : 0;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_NODE, numbers, 2 * n, SP_I64, SP_SUM));
    return SP_OK;
}

static void recorder_warn_missing(const char *since)
{
    sp_log_warn("this node has no crash recorder%s: if the launcher kills all ranks, "
                "the first that died may stay unknown",
                since);
}

static sp_status recorder_start(sp_crash_recorder *recorder, sp_run *run, watched *rank,
                                place *places, int64_t *numbers)
{
    const int n = run->comm->local_size;
    const bool is_wanted =
        run->comm->local_rank == 0 && is_answered && run->beats->fd >= 0;
    sp_status rc;

    for (int i = 0; i < n; i++)
        rank[i].fd = -1;
    if (is_wanted && !open_pipes(rank, places, n))
        sp_log_warn("crash recorder: %s", strerror(errno));
    rc = meet(recorder, run, places, numbers);
    for (int i = 0; i < n; i++) {
        rank[i].rank = (int)numbers[2 * i];
        rank[i].pid = (int)numbers[2 * i + 1];
        if (is_wanted && places[i].pid)
            close((int)places[i].fd);
    }
    if (rc == SP_OK && is_wanted) {
        start_crash_recorder(recorder, run, rank);
        if (!recorder->pid)
            recorder_warn_missing("");
    }
    for (int i = 0; i < n; i++)
        close_fd(rank[i].fd);
    return rc;
}

sp_status sp_crash_recorder_start(sp_crash_recorder **recorder, sp_run *run)
{
    const size_t n = (size_t)run->comm->local_size;
    watched *rank = calloc(n, sizeof *rank);
    place *places = calloc(n, sizeof *places);
    int64_t *numbers = calloc(2 * n, sizeof *numbers);
    sp_crash_recorder *own = calloc(1, sizeof *own);
    sp_status rc =
        rank && places && numbers && own
            ? SP_OK
            : SP_FAIL(SP_EMEM, "no memory for the crash recorder of this node");

    assert(run->comm->local_size > 0);
    *recorder = own;
    if (own)
        own->connection = -1;
    rc = sp_comm_agree(run->comm, rc);
    if (rc == SP_OK)
        rc = recorder_start(own, run, rank, places, numbers);
    free(rank);
    free(places);
    free(numbers);
    return rc;
}

void sp_crash_recorder_check(sp_crash_recorder *recorder)
{
    if (!recorder || !recorder->pid || waitpid(recorder->pid, NULL, WNOHANG) == 0)
        return;
    recorder_warn_missing(" any more");
    close(recorder->control);
    recorder->pid = 0;
}

void sp_crash_recorder_end(sp_crash_recorder *recorder)
{
    if (!recorder)
        return;
    sp_crash_recorder_check(recorder);
    if (recorder->pid) {
        if (write(recorder->control, "", 1) != 1)
            sp_log_warn("crash recorder: %s", strerror(errno));
        close(recorder->control);
        while (waitpid(recorder->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close_fd(recorder->connection);
    free(recorder);
}
