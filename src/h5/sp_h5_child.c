/* The parent's side. */
#include "h5/sp_h5_child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "h5/sp_h5_child_protocol.h"
#include "h5/sp_h5_internal.h"

enum {
    ANSWER = 16 << 20,  /* the most bytes of an answer: this */
    ANSWER_FACTOR = 16, /* plus the file's size times this */
    PATIENCE_S = 2 * (SP_H5_CHILD_WALL_S + SP_H5_CHILD_MORE_S),
};

/* The child that waits for another list of this thread, and whether it is to wait. */
static _Thread_local struct {
    bool is_wanted;
    sp_h5_child child; /* pid 0: no child */
} kept;

/* Starts the child with one socket as its standard input and output. Terminals and
 * launchers send a request to stop to the whole process group of a rank, batch systems
 * to all processes of a job; it would kill the child, and its file would seem damaged.
 * So the child has its own group and blocks these signals. No other is blocked in it,
 * although threads of this process block them, since signals enforce its limits. */
static sp_status h5_spawn(sp_h5_child *child)
{
    static const int requests[] = {SP_SIGNAL_REQUESTS};
    char *arguments[] = {"sptrain", SP_H5_CHILD_WORD, NULL};
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
static void send_list(int fd, sp_h5_list_head head, const char *const *texts, int n)
{
    bool is_alive;

    head.n = (uint64_t)n;
    for (int i = 0; i < n; i++)
        head.bytes += strlen(texts[i]) + 1;
    is_alive = sp_h5_child_send(fd, &head, sizeof head);
    for (int i = 0; i < n && is_alive; i++)
        is_alive = sp_h5_child_send(fd, texts[i], strlen(texts[i]) + 1);
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
static bool h5_child_reuse(sp_h5_child *child)
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
    if (!h5_child_reuse(child))
        SP_TRY(h5_spawn(child));
    child->n_left = n;
    send_list(child->fd, (sp_h5_list_head){0}, (const char *const *)paths, n);
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
        sp_liveness_count(); /* PATIENCE_S is the limit here, not the watchdog's */
    } while ((n == 0 || (n < 0 && errno == EINTR)) && sp_now_s() < until);
    return n <= 0;
}

/* Receives all the bytes; false if the child ended or sent nothing for too long; the
 * latter sets child->is_stalled. */
static bool h5_receive(sp_h5_child *child, void *data, size_t bytes)
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
                       path, SP_H5_CHILD_WALL_S);
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
    sp_serial serial = {.data = data, .size = bytes, .is_reading = true};

    sp_h5_catalog_serialize(&serial, catalog);
    if (serial.rc == SP_EMEM)
        return serial.rc;
    return serial.rc == SP_OK && serial.at == bytes ? SP_OK : fail_answer(path);
}

sp_status sp_h5_child_next(sp_h5_child *child, const char *path, int64_t file_bytes,
                           sp_h5_catalog *catalog)
{
    SP_FREED unsigned char *data = NULL;
    sp_h5_frame head;

    assert(child->pid > 0 && file_bytes >= 0);
    if (!h5_receive(child, &head, sizeof head))
        return fail_ended(child, path);
    if (head.bytes / ANSWER_FACTOR > (uint64_t)(file_bytes + ANSWER / ANSWER_FACTOR) ||
        (head.status != SP_OK && head.bytes >= SP_ERROR_MESSAGE))
        return fail_answer(path);
    SP_TRY(SP_NEW(&data, head.bytes, path));
    if (!h5_receive(child, data, head.bytes))
        return fail_ended(child, path);
    if (XXH64(data, head.bytes, 0) != head.hash)
        return fail_answer(path);
    if (head.status != SP_OK)
        return raise_message(path, head.status, (char *)data, head.bytes);
    SP_TRY(read_catalog(path, data, head.bytes, catalog));
    child->n_left--;
    return SP_OK;
}

/* SP_EIO unless the file that the child read is the one that is open here. */
static sp_status check_identity(const sp_h5_rows_request *q, const sp_h5_identity *file)
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
                                 const sp_h5_frame *head)
{
    char text[SP_ERROR_MESSAGE] = "";
    const uint64_t status = head->status;

    if (head->bytes >= sizeof text ||
        (status != SP_EDATA && status != SP_EIO && status != SP_EMEM)) {
        sp_h5_child_kill(child);
        return fail_answer(q->where);
    }
    if (!h5_receive(child, text, head->bytes))
        return fail_ended(child, q->where);
    return SP_FAIL((sp_status)status, "%s: %s", q->where, text);
}

sp_status sp_h5_child_rows(sp_h5_child *child, const sp_h5_rows_request *q, void *to)
{
    const char *const texts[] = {q->path, q->name};
    const sp_h5_list_head list = {.first = q->first,
                                  .n_rows = q->n,
                                  .rows_bytes = q->bytes,
                                  .chunk_bytes = q->chunk_bytes};
    sp_h5_frame head;

    assert(q->n > 0 && q->first >= 0 && q->bytes >= 0);
    if (child->pid == 0)
        SP_TRY(h5_spawn(child));
    send_list(child->fd, list, texts, 2);
    if (!h5_receive(child, &head, sizeof head))
        return fail_ended(child, q->where);
    if (head.status != SP_OK)
        return receive_failure(child, q, &head);
    if (head.bytes != (uint64_t)q->bytes) {
        sp_h5_child_kill(child);
        return fail_answer(q->where);
    }
    if (!h5_receive(child, to, head.bytes))
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
