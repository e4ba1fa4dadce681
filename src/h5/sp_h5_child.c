#include "h5/sp_h5_child.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "base/sp_pulse.h"
#include "base/sp_signal.h"
#include "h5/sp_h5_internal.h"

#define WORD "--read-h5-headers"

/* The limits of a child, since the library never returns from some damaged headers.
 * Processor time and memory grow with the file, because large files may have large
 * indices. WORK_S and WALL_S are seconds of processor time and of wall time for one
 * file, MEMORY is bytes. */
enum {
    WORK_S = 3,
    WALL_S = 60,
    MORE_S = 120, /* the most seconds that a large file adds */
    MEMORY = 192 << 20,
    MEMORY_FACTOR = 8,
    UNPACK_FACTOR = 4,  /* memory for each byte that is unpacked */
    ANSWER = 16 << 20,  /* the most bytes of an answer: this */
    ANSWER_FACTOR = 16, /* plus the file's size times this */
    PATIENCE_S = 2 * (WALL_S + MORE_S),
};
#define WORK_BYTES_S 20000000
#define MEMORY_MOST  ((int64_t)4 << 30)

/* The bytes that follow are n texts, each with its zero byte: paths of the files to
 * describe, or with n_rows > 0 the path of a file and the name of a dataset. */
typedef struct list_head {
    uint64_t n, bytes;
    int64_t first, n_rows, rows_bytes, chunk_bytes;
} list_head;

/* The identity of the file that the child read. */
typedef struct identity {
    uint64_t device, inode;
    int64_t bytes;
} identity;

typedef struct frame {
    /* The bytes that follow the frame are a catalog, rows, or a message. */
    uint64_t status, bytes, hash;
    identity file; /* of rows; a catalog has its own */
} frame;

/* The child that waits for another list of this thread, and whether it is to wait. */
static _Thread_local struct {
    bool is_wanted;
    sp_h5_child child; /* pid 0: no child */
} kept;

/* Sends all the bytes; false if the other process has died. */
static bool send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    ssize_t n;

    for (; bytes > 0; bytes -= (size_t)n, at += n) {
        n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n < 0)
            return false;
    }
    return true;
}

/* ---- the child ---- */

static void put_frame(sp_status status, const void *data, size_t bytes,
                      const identity *file)
{
    frame head = {(uint64_t)status, bytes, XXH64(data, bytes, 0), {0}};

    if (file)
        head.file = *file;
    if (!send_all(STDOUT_FILENO, &head, sizeof head) ||
        !send_all(STDOUT_FILENO, data, bytes))
        _exit(1); /* the parent has died */
}

#if defined(__SANITIZE_ADDRESS__) /* which reserves terabytes of addresses */
static void limit_addresses(int64_t bytes)
{
    (void)bytes;
}
#else
/* Allows this number of bytes of addresses more than at the first call. */
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

/* Gives the signals that end a process their default action again, forbids core files,
 * and limits memory to this number of bytes more than this process had at the first
 * call. A later call sets another limit. */
static void limit_child(int64_t bytes)
{
    static const int deadly[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGFPE, SIGILL,
                                 SIGALRM, SIGPROF, SIGTERM, SIGINT, SIGPIPE};
    const struct rlimit no_core = {0, 0};

    /* libraries that were loaded with the program may have set handlers */
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
    limit_addresses(bytes);
}

/* Sets the limits for one file, to unpack `unpacked` bytes of it. If a limit ends this
 * process, the parent names the file. Unpacking needs the rows, a chunk and the memory
 * of its filters. */
static void limit_file(const char *path, int64_t unpacked)
{
    struct stat st;
    const int64_t bytes = stat(path, &st) == 0 ? st.st_size : 0;
    const int64_t seconds = (bytes + unpacked) / WORK_BYTES_S;
    const int64_t more = seconds < MORE_S ? seconds : MORE_S;
    const struct itimerval work = {.it_value.tv_sec = WORK_S + more};
    int64_t memory = MEMORY_MOST;

    if (bytes < MEMORY_MOST / MEMORY_FACTOR)
        memory = bytes * MEMORY_FACTOR;
    limit_child(MEMORY + memory + UNPACK_FACTOR * unpacked);
    alarm((unsigned)(WALL_S + more));
    setitimer(ITIMER_PROF, &work, NULL);
}

/* Receives all the bytes; no signal handler interrupts it. Ends the process if the
 * parent wants no more. */
static void get_all(void *data, size_t bytes)
{
    const ssize_t n = recv(STDIN_FILENO, data, bytes, MSG_WAITALL);

    if (n != (ssize_t)bytes)
        _exit(n < 0);
}

/* Serves tests of the parent: the child crashes, hangs or is killed at a file with the
 * value of one of these variables in its path. When it unpacks, the path is followed by
 * a colon and the dataset's name. */
static void misbehave(const char *path)
{
    const char *crash = getenv("SP_H5_CHILD_CRASH");
    const char *hang = getenv("SP_H5_CHILD_HANG");
    const char *killed = getenv("SP_H5_CHILD_KILL");

    if (crash && strstr(path, crash))
        raise(SIGSEGV);
    if (killed && strstr(path, killed))
        raise(SIGKILL); /* as the kernel does if memory is short */
    if (!hang || !strstr(path, hang))
        return;
    alarm(1); /* shorter than WALL_S */
    for (;;)
        pause();
}

/* While an answer is sent no limit holds, since the parent may be slow to read it. */
static void end_limits(void)
{
    const struct itimerval none = {0};

    alarm(0);
    setitimer(ITIMER_PROF, &none, NULL);
}

static void put_failure(sp_status rc)
{
    const char *message = sp_error_last()->message;

    put_frame(rc, message, strlen(message), NULL);
}

/* Describes a file and sends the answer. */
static void answer(const char *path)
{
    sp_h5_catalog catalog = {0};
    sp_wire wire = {0};
    sp_status rc;

    limit_file(path, 0);
    misbehave(path);
    rc = sp_h5_describe(path, &catalog);
    if (rc == SP_OK) {
        sp_h5_catalog_wire(&wire, &catalog);
        rc = wire.rc;
    }
    end_limits();
    if (rc == SP_OK)
        put_frame(SP_OK, wire.data, wire.size, NULL);
    else
        put_failure(rc);
    free(wire.data);
    sp_h5_catalog_free(&catalog);
}

/* Unpacks rows and sends them. */
static void answer_rows(const list_head *head, const char *path, const char *name)
{
    char *data, place[PATH_MAX + 1024];
    struct stat about;
    identity file;
    sp_status rc;

    limit_file(path, head->rows_bytes + head->chunk_bytes);
    snprintf(place, sizeof place, "%s:%s", path, name);
    misbehave(place);
    data = malloc((size_t)head->rows_bytes + 1);
    if (!data)
        _exit(SP_EMEM);
    rc = stat(path, &about) == 0 ? SP_OK : SP_FAIL(SP_EIO, "%s", strerror(errno));
    if (rc == SP_OK)
        rc =
            sp_h5_values(path, name, head->first, head->n_rows, head->rows_bytes, data);
    end_limits();
    file = (identity){(uint64_t)about.st_dev, (uint64_t)about.st_ino,
                      (int64_t)about.st_size};
    if (rc == SP_OK)
        put_frame(SP_OK, data, (size_t)head->rows_bytes, &file);
    else
        put_failure(rc);
    free(data);
}

/* Answers one list, or one request for rows. */
static void serve(void)
{
    list_head head;
    char *list, *path;

    get_all(&head, sizeof head);
    list = malloc(head.bytes);
    if (!list)
        _exit(SP_EMEM);
    get_all(list, head.bytes);
    path = list;
    if (head.n_rows > 0)
        answer_rows(&head, list, list + strlen(list) + 1);
    for (uint64_t i = 0; head.n_rows == 0 && i < head.n; i++, path += strlen(path) + 1)
        answer(path);
    free(list);
}

/* Closes descriptors that the parent left open for its own use. A connection of MPI
 * that the child held would hide from the other ranks that this rank was killed. */
static void close_inherited(void)
{
    DIR *all = opendir("/proc/self/fd");
    const struct dirent *one;

    while (all && (one = readdir(all)) != NULL) {
        const int fd = atoi(one->d_name);

        if (fd > STDERR_FILENO && fd != dirfd(all))
            close(fd);
    }
    if (all)
        closedir(all);
}

void sp_h5_child_main(int argc, char **argv)
{
    static const sp_h5_reader child = {sp_h5_child_start, sp_h5_child_next,
                                       sp_h5_child_end, sp_h5_child_rows,
                                       sp_h5_child_kill};

    sp_h5_reader_child = &child;
    if (argc != 2 || strcmp(argv[1], WORD) != 0)
        return;
    close_inherited();
    limit_child(MEMORY + MEMORY_MOST);
    for (;;)
        serve();
}

/* ---- the parent ---- */

/* Starts the child with one socket as its standard input and output. Terminals and
 * launchers send a request to stop to the whole process group of a rank, batch systems
 * to all processes of a job; it would kill the child, and its file would seem damaged.
 * So the child has its own group and blocks these signals. No other is blocked in it,
 * although threads of this process block them, since signals enforce its limits. */
static sp_status spawn(sp_h5_child *child)
{
    static const int requests[] = {SP_SIGNAL_REQUESTS};
    char *arguments[] = {"sptrain", WORD, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char own[PATH_MAX];
    sigset_t blocked;
    int ends[2], failed;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return SP_FAIL(SP_EIO, "reader of HDF5 files: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        sigaddset(&blocked, requests[i]);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    failed = posix_spawn(&child->pid, sp_file_of_program(own), &actions, &attributes,
                         arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    child->fd = ends[0];
    if (!failed)
        return SP_OK;
    close(ends[0]);
    *child = (sp_h5_child){0};
    return SP_FAIL(SP_EIO, "reader of HDF5 files cannot be started: %s",
                   strerror(failed));
}

/* Sends a list of n texts. That the child has died is noticed when its answer is read.
 */
static void send_list(int fd, list_head head, const char *const *texts, int n)
{
    bool is_alive;

    head.n = (uint64_t)n;
    for (int i = 0; i < n; i++)
        head.bytes += strlen(texts[i]) + 1;
    is_alive = send_all(fd, &head, sizeof head);
    for (int i = 0; i < n && is_alive; i++)
        is_alive = send_all(fd, texts[i], strlen(texts[i]) + 1);
}

/* Returns the child's exit status. A child that is ending already keeps its own, since
 * a signal sent to it then changes nothing. */
static int kill_child(sp_h5_child *child)
{
    int status = 0;

    kill(child->pid, SIGKILL);
    close(child->fd);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    *child = (sp_h5_child){0};
    return status;
}

/* Returns the child that was kept, unless it has died meanwhile. */
static bool take_kept(sp_h5_child *child)
{
    if (kept.child.pid == 0)
        return false;
    if (waitpid(kept.child.pid, NULL, WNOHANG) == 0)
        *child = kept.child;
    else
        close(kept.child.fd);
    kept.child = (sp_h5_child){0};
    return child->pid > 0;
}

sp_status sp_h5_child_start(sp_h5_child *child, char *const *paths, int n)
{
    assert(n > 0 && child->pid == 0);
    if (!take_kept(child))
        SP_TRY(spawn(child));
    child->n_left = n;
    send_list(child->fd, (list_head){0}, (const char *const *)paths, n);
    return SP_OK;
}

/* Waits for bytes; true if nothing came for PATIENCE_S seconds. */
static bool is_quiet(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    double until = sp_now_s() + PATIENCE_S;
    int n;

    do {
        n = poll(&wait, 1, 1000);
        sp_pulse_beat(); /* PATIENCE_S is the limit here, not the watchdog's */
    } while ((n == 0 || (n < 0 && errno == EINTR)) && sp_now_s() < until);
    return n <= 0;
}

/* Receives all the bytes; false if the child ended or sent nothing for too long; the
 * latter sets child->is_stalled. */
static bool receive(sp_h5_child *child, void *data, size_t bytes)
{
    char *at = data;
    ssize_t n;

    while (bytes > 0) {
        child->is_stalled = is_quiet(child->fd);
        if (child->is_stalled)
            return false;
        n = recv(child->fd, at, bytes, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Fails with the reason why there is no answer. */
static sp_status fail_ended(sp_h5_child *child, const char *path)
{
    const bool is_stalled = child->is_stalled;
    const int status = kill_child(child);

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !is_stalled)
        return SP_FAIL(SP_EMEM,
                       "%s: the process that reads it was killed from outside, "
                       "perhaps because the machine had no memory left",
                       path);
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || is_stalled))
        return SP_FAIL(SP_EIO,
                       "%s: it could not be read: no progress for %d s; is its file "
                       "system well?",
                       path, WALL_S);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
        return SP_FAIL(SP_EDATA, "%s: damaged file (reader did not finish in time)",
                       path);
    if (WIFSIGNALED(status))
        return SP_FAIL(SP_EDATA, "%s: damaged file (reader ended by signal %d)", path,
                       WTERMSIG(status));
    return SP_FAIL(SP_EDATA, "%s: damaged file (reader ended with status %d)", path,
                   WEXITSTATUS(status));
}

static sp_status fail_answer(const char *path)
{
    return SP_FAIL(SP_EDATA, "%s: damaged file (reader's answer makes no sense)", path);
}

static sp_status raise_message(const char *path, uint64_t status, const char *text,
                               size_t bytes)
{
    if (status != SP_EDATA && status != SP_EIO && status != SP_EMEM)
        return fail_answer(path);
    return SP_FAIL((sp_status)status, "%.*s", (int)bytes, text);
}

static sp_status read_catalog(const char *path, unsigned char *data, size_t bytes,
                              sp_h5_catalog *catalog)
{
    sp_wire wire = {.data = data, .size = bytes, .is_reading = true};

    sp_h5_catalog_wire(&wire, catalog);
    if (wire.rc == SP_EMEM)
        return wire.rc;
    return wire.rc == SP_OK && wire.at == bytes ? SP_OK : fail_answer(path);
}

sp_status sp_h5_child_next(sp_h5_child *child, const char *path, int64_t file_bytes,
                           sp_h5_catalog *catalog)
{
    frame head;
    unsigned char *data;
    sp_status rc;

    assert(child->pid > 0 && file_bytes >= 0);
    if (!receive(child, &head, sizeof head))
        return fail_ended(child, path);
    if (head.bytes / ANSWER_FACTOR > (uint64_t)(file_bytes + ANSWER / ANSWER_FACTOR) ||
        (head.status != SP_OK && head.bytes >= SP_ERROR_MESSAGE))
        return fail_answer(path);
    data = malloc(head.bytes + 1);
    if (!data)
        return SP_FAIL(SP_EMEM, "%s: no memory for its index of %llu bytes", path,
                       (unsigned long long)head.bytes);
    if (!receive(child, data, head.bytes))
        rc = fail_ended(child, path);
    else if (XXH64(data, head.bytes, 0) != head.hash)
        rc = fail_answer(path);
    else if (head.status != SP_OK)
        rc = raise_message(path, head.status, (char *)data, head.bytes);
    else
        rc = read_catalog(path, data, head.bytes, catalog);
    free(data);
    child->n_left -= rc == SP_OK;
    return rc;
}

/* SP_EIO unless the file that the child read is the one that is open here. */
static sp_status check_identity(const sp_h5_rows_request *q, const identity *file)
{
    struct stat about;

    if (fstat(q->fd, &about) != 0)
        return SP_FAIL(SP_EIO, "%s: %s", q->where, strerror(errno));
    if (file->device == (uint64_t)about.st_dev &&
        file->inode == (uint64_t)about.st_ino && file->bytes == (int64_t)about.st_size)
        return SP_OK;
    return SP_FAIL(SP_EIO, "%s: the file was replaced or changed while in use",
                   q->where);
}

/* Receives the message of a failed request. */
static sp_status receive_failure(sp_h5_child *child, const sp_h5_rows_request *q,
                                 const frame *head)
{
    char text[SP_ERROR_MESSAGE] = "";
    const uint64_t status = head->status;

    if (head->bytes >= sizeof text ||
        (status != SP_EDATA && status != SP_EIO && status != SP_EMEM)) {
        sp_h5_child_kill(child);
        return fail_answer(q->where);
    }
    if (!receive(child, text, head->bytes))
        return fail_ended(child, q->where);
    return SP_FAIL((sp_status)status, "%s: %s", q->where, text);
}

sp_status sp_h5_child_rows(sp_h5_child *child, const sp_h5_rows_request *q, void *to)
{
    const char *const texts[] = {q->path, q->name};
    const list_head list = {.first = q->first,
                            .n_rows = q->n,
                            .rows_bytes = q->bytes,
                            .chunk_bytes = q->chunk_bytes};
    frame head;

    assert(q->n > 0 && q->first >= 0 && q->bytes >= 0);
    if (child->pid == 0)
        SP_TRY(spawn(child));
    send_list(child->fd, list, texts, 2);
    if (!receive(child, &head, sizeof head))
        return fail_ended(child, q->where);
    if (head.status != SP_OK)
        return receive_failure(child, q, &head);
    if (head.bytes != (uint64_t)q->bytes) {
        sp_h5_child_kill(child);
        return fail_answer(q->where);
    }
    if (!receive(child, to, head.bytes))
        return fail_ended(child, q->where);
    if (XXH64(to, head.bytes, 0) != head.hash)
        return fail_answer(q->where);
    return check_identity(q, &head.file);
}

void sp_h5_child_kill(sp_h5_child *child)
{
    if (child->pid)
        kill_child(child);
}

void sp_h5_child_end(sp_h5_child *child)
{
    if (child->pid == 0)
        return;
    if (kept.is_wanted && child->n_left == 0 && kept.child.pid == 0) {
        kept.child = *child;
        *child = (sp_h5_child){0};
    } else
        kill_child(child);
}

void sp_h5_keep_child(bool is_wanted)
{
    kept.is_wanted = is_wanted;
    if (!is_wanted && kept.child.pid)
        kill_child(&kept.child);
}
