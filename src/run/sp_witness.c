#include "config.h"

#include "run/sp_witness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"

/* sptrain --witness DIR SET,CONTROL,LOCK FD,RANK,PID ...: the descriptors are
 * inherited, LOCK is -1 but for the witness of rank 0. */
#define WORD "--witness"
enum { ARG_DIR = 2, ARG_FDS, ARG_RANKS };

/* The others leave within 15 s of the first; then the word is said in any case. */
enum { LEAVE_MS = 20000, MOST_FD = 4096, HIGH_FD = 64 };

#define CONTROL UINT32_MAX /* among the numbers of the ranks in the epoll set */

/* This program's main has asked; a test's has not. */
static bool is_answered;

typedef struct watched {
    int fd, rank, pid;
} watched;

/* ---- the witness ---- */

typedef struct scene {
    const char *dir;
    int set, control, lock;
    int n, n_alive; /* of the node's ranks */
    watched *rank;  /* [n] */
    bool has_seen;  /* one die before its end */
} scene;

static sp_heartbeat *map_records(const char *dir, int *n)
{
    char path[PATH_MAX];
    sp_heartbeat *copy, *records = NULL;

    snprintf(path, sizeof path, "%s/heartbeat.bin", dir);
    if (sp_heartbeat_read(path, &copy, n) == SP_OK) {
        free(copy);
        if (sp_heartbeat_map(path, *n, &records) != SP_OK)
            records = NULL;
    }
    return records;
}

/* What is said of the first that died; the ranks may come to a word of their own. */
static void describe(const sp_heartbeat *who, int rank, int size, char *text, size_t n)
{
    snprintf(text, n,
             "rank %d/%d host %s pid %lld %s, and the others with it; phase %s, epoch "
             "%lld, step %lld",
             rank, size, who->host, (long long)who->pid,
             who->lost == SP_LOST_DEAD ? "died" : "is silent",
             sp_phase_name((sp_phase)who->phase), (long long)who->epoch,
             (long long)who->step);
}

/* At once: a script that the launcher returns to reads status.json. */
static void write_status(const scene *s, const sp_heartbeat *records, int n, int lost)
{
    sp_run_state state;
    const char *task;
    char text[512];

    if (!sp_run_find_state(s->dir, records, n, &state, &task) ||
        strcmp(state.state, "running") != 0)
        return;
    describe(&records[lost], lost, n, text, sizeof text);
    sp_run_write_status(s->dir, task, lost, &records[lost], "failed", SP_EMPI, text);
}

static void see_dead(scene *s, const watched *w)
{
    int n;
    sp_heartbeat *records = map_records(s->dir, &n);

    /* the file may be another start's by now */
    if (records && w->rank < n && records[w->rank].pid == w->pid &&
        records[w->rank].phase != SP_PHASE_END) {
        if (sp_heartbeat_mark_lost(records, n, w->rank, SP_LOST_DEAD) && s->lock >= 0)
            write_status(s, records, n, w->rank);
        s->has_seen = true;
    }
    sp_heartbeat_unmap(records, n);
}

/* They are gone; one may have been killed over its word. */
static void conclude(const scene *s)
{
    int n, lost;
    sp_heartbeat *records = map_records(s->dir, &n);
    sp_run_state state;
    const char *task;
    char text[512];

    if (!records)
        return;
    lost = sp_heartbeat_lost(records, n);
    if (lost >= 0) /* the rank that found it may have come no further */
        write_status(s, records, n, lost);
    if (lost >= 0 && sp_run_find_state(s->dir, records, n, &state, &task) &&
        state.exit_code == SP_EMPI && sp_run_claim_diagnosis(s->dir)) {
        const sp_heartbeat *who = &records[lost];

        describe(who, lost, n, text, sizeof text);
        sp_log_open(lost, n, who->host, 0, NULL);
        sp_log_position(sp_phase_name((sp_phase)who->phase), who->epoch, who->step);
        SP_FAIL(SP_EMPI, "%s", text);
        sp_log_error(sp_error_last());
    }
    sp_heartbeat_unmap(records, n);
}

/* One event at a time: in the order in which they came. */
static void watch(scene *s)
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
                _exit(0); /* all has been said */
            epoll_ctl(s->set, EPOLL_CTL_DEL, s->control, NULL);
        } else {
            see_dead(s, &s->rank[event.data.u32]);
            epoll_ctl(s->set, EPOLL_CTL_DEL, s->rank[event.data.u32].fd, NULL);
            s->n_alive--;
        }
    }
}

static bool is_needed(const scene *s, int fd)
{
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].fd == fd)
            return true;
    return fd == s->set || fd == s->control || fd == s->lock;
}

/* Out of the launcher's sight: none of its signals, none of its connections, by whose
 * end it knows that a rank is gone. */
static void hide(const scene *s)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_IGN);
    for (int fd = STDERR_FILENO + 1; fd < MOST_FD; fd++)
        if (!is_needed(s, fd))
            close(fd);
    setsid();
}

void sp_witness_main(int argc, char **argv)
{
    scene s = {.n = argc - ARG_RANKS};

    is_answered = true;
    if (argc <= ARG_RANKS || strcmp(argv[1], WORD) != 0)
        return;
    s.dir = argv[ARG_DIR];
    s.n_alive = s.n;
    s.rank = calloc((size_t)s.n, sizeof *s.rank);
    if (!s.rank || sscanf(argv[ARG_FDS], "%d,%d,%d", &s.set, &s.control, &s.lock) != 3)
        _exit(SP_EUSAGE);
    for (int i = 0; i < s.n; i++)
        if (sscanf(argv[ARG_RANKS + i], "%d,%d,%d", &s.rank[i].fd, &s.rank[i].rank,
                   &s.rank[i].pid) != 3)
            _exit(SP_EUSAGE);
    hide(&s);
    watch(&s);
    if (s.has_seen && s.lock >= 0)
        conclude(&s);
    _exit(0);
}

/* ---- the ranks ---- */

static struct sockaddr_un address_of(int64_t number, socklen_t *size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    /* sun_path[0] 0: a name outside the file system; the kernel chooses five digits */
    snprintf(address.sun_path + 1, 17, "%05llx", (unsigned long long)number);
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 6);
    return address;
}

/* The node's first rank: the number of the name at which *listener waits; -1. */
static int64_t open_listener(int *listener, int most)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address.sun_family;

    *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listener < 0 || bind(*listener, (struct sockaddr *)&address, size) != 0 ||
        listen(*listener, most) != 0)
        return -1;
    size = sizeof address;
    if (getsockname(*listener, (struct sockaddr *)&address, &size) != 0)
        return -1;
    address.sun_path[6] = 0;
    return strtoll(address.sun_path + 1, NULL, 16);
}

/* -1: none. Its number is above those of what the launcher opened. */
static int connect_to(int64_t number)
{
    socklen_t size;
    struct sockaddr_un address = address_of(number, &size);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), high;

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, size) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* The rank whose process is at the other end; -1. */
static int rank_of(const sp_run *run, int fd, int *pid)
{
    const sp_comm *comm = run->comm;
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return -1;
    *pid = peer.pid;
    for (int r = 0; r < comm->size; r++)
        if (comm->node_of_rank[r] == comm->node &&
            sp_run_heartbeat(run, r)->pid == peer.pid)
            return r;
    return -1;
}

static bool add(int set, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u32 = number};

    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* The connections of all n ranks of this node into the set. */
static bool add_ranks(const sp_run *run, int listener, int set, watched *rank, int n)
{
    for (int i = 0; i < n; i++) {
        watched *w = &rank[i];

        w->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (w->fd < 0)
            return false;
        w->rank = rank_of(run, w->fd, &w->pid);
        if (w->rank < 0 || !add(set, w->fd, (uint32_t)i))
            return false;
    }
    return true;
}

static void set_inherited(int fd, bool is_inherited)
{
    if (fd >= 0)
        fcntl(fd, F_SETFD, is_inherited ? 0 : FD_CLOEXEC);
}

static pid_t spawn(char **arguments)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int failed;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    failed = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? 0 : pid;
}

/* All that the child needs is closed here soon, but for the lock. */
static pid_t start_child(const sp_run *run, int set, int control, const watched *rank,
                         int n)
{
    int lock = sp_run_lock(run);
    char **arguments = calloc((size_t)n + ARG_RANKS + 1, sizeof *arguments);
    char(*words)[48] = calloc((size_t)n + 1, sizeof *words);
    pid_t pid = 0;

    if (arguments && words) {
        arguments[0] = "sptrain";
        arguments[1] = WORD;
        arguments[ARG_DIR] = run->dir;
        arguments[ARG_FDS] = words[n];
        snprintf(words[n], sizeof *words, "%d,%d,%d", set, control, lock);
        for (int i = 0; i < n; i++) {
            arguments[ARG_RANKS + i] = words[i];
            snprintf(words[i], sizeof *words, "%d,%d,%d", rank[i].fd, rank[i].rank,
                     rank[i].pid);
            set_inherited(rank[i].fd, true);
        }
        set_inherited(set, true);
        set_inherited(control, true);
        set_inherited(lock, true);
        pid = spawn(arguments);
        set_inherited(lock, false);
    }
    free(arguments);
    free(words);
    return pid;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* The node's first rank, once all have connected. */
static void start_witness(sp_witness *witness, const sp_run *run, int listener)
{
    const int n = run->comm->local_size, set = epoll_create1(EPOLL_CLOEXEC);
    watched *rank = calloc((size_t)n, sizeof *rank);
    int ends[2] = {-1, -1};

    for (int i = 0; rank && i < n; i++)
        rank[i].fd = -1;
    if (set >= 0 && rank && pipe2(ends, O_CLOEXEC) == 0 &&
        add_ranks(run, listener, set, rank, n) && add(set, ends[0], CONTROL))
        witness->pid = start_child(run, set, ends[0], rank, n);
    for (int i = 0; rank && i < n; i++)
        close_fd(rank[i].fd);
    free(rank);
    close_fd(ends[0]);
    close_fd(set);
    if (witness->pid)
        witness->control = ends[1];
    else
        close_fd(ends[1]);
}

sp_status sp_witness_start(sp_witness *witness, sp_run *run)
{
    sp_comm *comm = run->comm;
    const bool is_first = comm->local_rank == 0;
    int listener = -1;
    int64_t number = -1;

    memset(witness, 0, sizeof *witness);
    if (is_first && is_answered && sp_run_heartbeat(run, 0))
        number = open_listener(&listener, comm->local_size);
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_NODE, &number, 1, SP_I64, SP_MAX));
    witness->connection = number >= 0 ? connect_to(number) : -1;
    SP_TRY(sp_comm_barrier(comm)); /* all have connected, and written their records */
    if (number >= 0 && is_first) {
        start_witness(witness, run, listener);
        if (!witness->pid)
            sp_log_warn("no witness beside the ranks of this node: %s",
                        strerror(errno));
    }
    close_fd(listener);
    witness->is_started = true;
    return SP_OK;
}

void sp_witness_end(sp_witness *witness)
{
    if (!witness->is_started)
        return;
    if (witness->pid) {
        if (write(witness->control, "", 1) != 1)
            sp_log_warn("witness: %s", strerror(errno));
        close(witness->control);
        while (waitpid(witness->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close_fd(witness->connection);
    memset(witness, 0, sizeof *witness);
}
