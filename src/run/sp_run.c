#include "config.h"

#include "run/sp_run.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "process/sp_child.h"
#include "process/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_json.h"
#include "base/sp_log.h"
#include "process/sp_pulse.h"

#define AFTER_SAVE_LIMIT_S    60.0
#define PATIENCE_OF_FAILURE_S 5.0
#define FOREIGN_OWNER_WATCH_S 5.0
#define LOCK_PATIENCE_S       3.0
#define LOCK_TEXT             128

struct sp_run_impl {
    int lock, metrics; /* descriptors, -1: none (other ranks, no folder) */
    sp_heartbeat *records;
    int n_records;
    sp_heartbeat own; /* where there is no file to share */
    bool has_failed;
    sp_child child;
};

/* What a run writes: set_aside moves these. */
static const char *const run_files[] = {
    "status.json",   "status-eval.json", "status-predict.json",
    "heartbeat.bin", "metrics.jsonl",    "deck.resolved",
    "checkpoints",   "predictions",      "logs"};
enum { N_RUN_FILES = sizeof run_files / sizeof *run_files };

static bool is_owner(const sp_run *run)
{
    return run->dir && run->dir[0] && run->comm->rank == 0;
}

/* dir/name; paths too long were refused by open. */
static const char *in_folder(const char *dir, const char *name, char *path)
{
    snprintf(path, PATH_MAX, "%s/%s", dir, name);
    return path;
}

/* ---- lock ----
 *
 * flock decides where it works: on local file systems and on NFS and Lustre mounts that
 * pass it on. Where each host locks for itself, the lock is free although another
 * host's process runs; then the text names that host, and we watch whether the folder's
 * files still move.
 */

typedef struct owner {
    char host[64];
    long pid;
} owner;

static bool read_owner(int fd, owner *o)
{
    char text[LOCK_TEXT];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%63s %ld", o->host, &o->pid) == 2;
}

/* A number that changes when the heartbeat or one of the files does. */
static uint64_t activity(const char *dir)
{
    static const char *const watched[] = {"metrics.jsonl", "status.json",
                                          "heartbeat.bin"};
    uint64_t sum = 0;
    sp_heartbeat *records;
    char path[PATH_MAX];
    struct stat st;
    int n;

    for (int i = 0; i < 3; i++)
        if (stat(in_folder(dir, watched[i], path), &st) == 0)
            sum += (uint64_t)st.st_mtim.tv_nsec +
                   1000003 * (uint64_t)st.st_mtim.tv_sec + (uint64_t)st.st_size;
    if (sp_heartbeat_read(in_folder(dir, "heartbeat.bin", path), &records, &n) ==
        SP_OK) {
        for (int r = 0; r < n; r++)
            sum += (uint64_t)records[r].counter;
        free(records);
    }
    return sum;
}

static bool is_folder_alive(const char *dir)
{
    const struct timespec nap = {0, 200000000};
    double begin_s = sp_now_s();
    uint64_t before = activity(dir);

    while (sp_now_s() - begin_s < FOREIGN_OWNER_WATCH_S) {
        nanosleep(&nap, NULL);
        if (activity(dir) != before)
            return true;
    }
    return false;
}

static sp_status fail_in_use(const char *dir, bool is_known, const owner *o)
{
    if (!is_known)
        return SP_FAIL(SP_EIO, "%s: run folder in use by another process", dir);
    return SP_FAIL(SP_EIO, "%s: run folder in use by host %s pid %ld", dir, o->host,
                   o->pid);
}

/* A killed run's processes may take a moment to vanish: a little patience before the
 * refusal. *is_free: nobody holds the lock; *is_sure: the file system has such locks.
 */
static void try_flock(int fd, bool *is_free, bool *is_sure)
{
    const struct timespec nap = {0, 50000000};
    double begin_s = sp_now_s();
    int error;

    for (;;) {
        error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (error != EWOULDBLOCK && error != EINTR)
            break;
        if (sp_now_s() - begin_s > LOCK_PATIENCE_S)
            break;
        nanosleep(&nap, NULL);
    }
    *is_free = error != EWOULDBLOCK && error != EINTR;
    *is_sure = error == 0;
}

/* Whether the process that the text names runs, although the lock is free. */
static bool is_owner_alive(const sp_run *run, const owner *o, bool is_sure)
{
    if (strcmp(o->host, run->comm->host) != 0)
        return is_folder_alive(run->dir);
    return !is_sure && o->pid != (long)getpid() && kill((pid_t)o->pid, 0) == 0;
}

static sp_status lock_folder(sp_run *run)
{
    char path[PATH_MAX], text[LOCK_TEXT];
    int fd =
        open(in_folder(run->dir, "lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool is_free, is_sure, is_known;
    owner o;

    if (fd < 0)
        return SP_FAIL(SP_EIO, "%s: cannot open: %s", path, strerror(errno));
    try_flock(fd, &is_free, &is_sure);
    is_known = read_owner(fd, &o);
    if (!is_free || (is_known && is_owner_alive(run, &o, is_sure))) {
        close(fd);
        return fail_in_use(run->dir, is_known, &o);
    }
    run->impl->lock = fd;
    snprintf(text, sizeof text, "%s %ld\n", run->comm->host, (long)getpid());
    if (ftruncate(fd, 0) != 0 ||
        pwrite(fd, text, strlen(text), 0) < (ssize_t)strlen(text))
        return SP_FAIL(SP_EIO, "%s: cannot write: %s", path, strerror(errno));
    return SP_OK;
}

static void unlock_folder(struct sp_run_impl *impl)
{
    if (impl->lock < 0)
        return;
    if (ftruncate(impl->lock, 0) != 0)
        sp_log_warn("run folder: cannot clear the lock: %s", strerror(errno));
    close(impl->lock);
    impl->lock = -1;
}

/* ---- metrics.jsonl ---- */

/* A process killed while it wrote leaves half a line; JSON lines end in a newline. */
static sp_status cut_half_line(int fd, const char *path)
{
    off_t end = lseek(fd, 0, SEEK_END), whole = end;
    char last = 0;

    while (whole > 0 && pread(fd, &last, 1, whole - 1) == 1 && last != '\n')
        whole--;
    if (whole != end && ftruncate(fd, whole) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot cut: %s", path, strerror(errno));
    return SP_OK;
}

static sp_status open_metrics(sp_run *run)
{
    char path[PATH_MAX];
    int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;

    if (run->impl->metrics >= 0)
        close(run->impl->metrics);
    run->impl->metrics = open(in_folder(run->dir, "metrics.jsonl", path), flags, 0666);
    if (run->impl->metrics < 0)
        return SP_FAIL(SP_EIO, "%s: cannot open: %s", path, strerror(errno));
    SP_TRY(cut_half_line(run->impl->metrics, path));
    return SP_OK;
}

sp_status sp_run_event(sp_run *run, const char *json_line, int64_t *bytes)
{
    size_t length = strlen(json_line);
    struct iovec line[2] = {{(void *)(uintptr_t)json_line, length}, {"\n", 1}};
    ssize_t written;
    int fd, error;
    off_t end;

    if (bytes)
        *bytes = 0;
    if (!is_owner(run))
        return SP_OK;
    fd = run->impl->metrics;
    end = lseek(fd, 0, SEEK_END);
    do
        written = writev(fd, line, 2);
    while (written < 0 && errno == EINTR);
    if (written != (ssize_t)length + 1) {
        error = written < 0 ? errno : ENOSPC; /* a file takes part of it when full */
        if (ftruncate(fd, end) != 0)
            sp_log_warn("%s/metrics.jsonl: half a line stays: %s", run->dir,
                        strerror(errno));
        return SP_FAIL(SP_EIO, "%s/metrics.jsonl: cannot write: %s", run->dir,
                       strerror(error));
    }
    if (bytes)
        *bytes = end + written;
    sp_child_poll(&run->impl->child);
    return SP_OK;
}

sp_status sp_run_sync_metrics(sp_run *run)
{
    if (is_owner(run) && fsync(run->impl->metrics) != 0)
        return SP_FAIL(SP_EIO, "%s/metrics.jsonl: cannot flush: %s", run->dir,
                       strerror(errno));
    return SP_OK;
}

sp_status sp_run_truncate_metrics(sp_run *run, int64_t bytes)
{
    off_t end;

    if (!is_owner(run))
        return SP_OK;
    end = lseek(run->impl->metrics, 0, SEEK_END);
    if (end < bytes)
        sp_log_warn0(
            "%s/metrics.jsonl: %lld bytes, the checkpoint was written at %" PRId64
            ": earlier lines are missing",
            run->dir, (long long)end, bytes);
    else if (ftruncate(run->impl->metrics, bytes) != 0)
        return SP_FAIL(SP_EIO, "%s/metrics.jsonl: cannot cut to %" PRId64 " bytes: %s",
                       run->dir, bytes, strerror(errno));
    return SP_OK;
}

/* ---- open, set aside, close ---- */

/* This rank's record in the file. Where the folder is not shared between nodes the
 * record stays private: less to tell after an accident, no reason to stop. */
static void map_heartbeat(sp_run *run)
{
    struct sp_run_impl *impl = run->impl;
    char path[PATH_MAX];

    sp_heartbeat_unmap(impl->records, impl->n_records);
    impl->records = NULL;
    impl->n_records = run->comm->size;
    run->beat = &impl->own;
    if (run->dir[0]) {
        in_folder(run->dir, "heartbeat.bin", path);
        if (sp_heartbeat_map(path, impl->n_records, &impl->records) == SP_OK)
            run->beat = &impl->records[run->comm->rank];
        else if (run->comm->local_rank == 0)
            sp_log_warn("%s; this node's heartbeats stay unwritten",
                        sp_error_last()->message);
    }
    memcpy(run->beat->host, run->comm->host, sizeof run->beat->host);
    run->beat->pid = getpid();
    sp_run_beat(run, SP_PHASE_START, 0, 0);
}

/* Rank 0. */
static sp_status take_folder(sp_run *run)
{
    char path[PATH_MAX];

    if (strlen(run->dir) > PATH_MAX - 128)
        return SP_FAIL(SP_EIO, "%.100s...: path too long", run->dir);
    SP_TRY(sp_file_make_folder(run->dir));
    SP_TRY(lock_folder(run));
    sp_run_report_lost(run->dir);
    unlink(in_folder(run->dir, ".diagnosed", path));
    SP_TRY(open_metrics(run));
    SP_TRY(sp_heartbeat_create(in_folder(run->dir, "heartbeat.bin", path),
                               run->comm->size));
    return SP_OK;
}

sp_status sp_run_open(sp_run *run, const char *dir, sp_comm *comm)
{
    sp_status rc = SP_OK;

    memset(run, 0, sizeof *run);
    run->comm = comm;
    run->after_save_limit_s = AFTER_SAVE_LIMIT_S;
    run->task = "";
    run->dir = strdup(dir);
    run->impl = calloc(1, sizeof *run->impl);
    if (!run->dir || !run->impl)
        rc = SP_FAIL(SP_EMEM, "run folder");
    else
        run->impl->lock = run->impl->metrics = -1;
    if (rc == SP_OK && is_owner(run))
        rc = take_folder(run);
    SP_TRY(sp_comm_agree(comm, rc, NULL));
    map_heartbeat(run);
    return SP_OK;
}

static bool exists(const char *dir, const char *name, struct stat *st)
{
    char path[PATH_MAX];

    return lstat(in_folder(dir, name, path), st) == 0;
}

/* More than what open has just made? */
static bool is_used(const char *dir)
{
    struct stat st;

    for (int i = 0; i < N_RUN_FILES; i++) {
        if (strcmp(run_files[i], "heartbeat.bin") == 0 ||
            !exists(dir, run_files[i], &st))
            continue;
        if (strcmp(run_files[i], "metrics.jsonl") != 0 || st.st_size > 0)
            return true;
    }
    return false;
}

/* One more than the highest old-NNN. */
static sp_status next_old(const char *dir, int *next)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;
    int number;

    if (!folder)
        return SP_FAIL(SP_EIO, "%s: cannot list: %s", dir, strerror(errno));
    *next = 1;
    while ((entry = readdir(folder)))
        if (sscanf(entry->d_name, "old-%d", &number) == 1 && number >= *next)
            *next = number + 1;
    closedir(folder);
    return SP_OK;
}

/* Rank 0. */
static sp_status move_to_old(sp_run *run)
{
    char name[32], old[PATH_MAX], from[PATH_MAX], to[PATH_MAX + 32];
    struct stat st;
    int number = 0;

    if (!is_used(run->dir))
        return SP_OK;
    SP_TRY(next_old(run->dir, &number));
    snprintf(name, sizeof name, "old-%03d", number);
    in_folder(run->dir, name, old);
    if (mkdir(old, 0777) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot make the folder: %s", old, strerror(errno));
    for (int i = 0; i < N_RUN_FILES; i++) {
        if (!exists(run->dir, run_files[i], &st))
            continue;
        snprintf(to, sizeof to, "%s/%s", old, run_files[i]);
        if (rename(in_folder(run->dir, run_files[i], from), to) != 0)
            return SP_FAIL(SP_EIO, "%s: cannot move to %s: %s", from, to,
                           strerror(errno));
    }
    sp_log_info("%s: earlier content moved to %s", run->dir, old);
    SP_TRY(open_metrics(run));
    SP_TRY(sp_heartbeat_create(in_folder(run->dir, "heartbeat.bin", from),
                               run->comm->size));
    return SP_OK;
}

sp_status sp_run_set_aside(sp_run *run)
{
    SP_TRY(sp_comm_agree(run->comm, is_owner(run) ? move_to_old(run) : SP_OK, NULL));
    map_heartbeat(run);
    return SP_OK;
}

void sp_run_close(sp_run *run)
{
    struct sp_run_impl *impl = run->impl;
    double patience_s = run->after_save_limit_s * (1 + SP_CHILD_QUEUE);

    if (impl) {
        if (run->beat) /* by itself: nobody lost it */
            sp_run_beat(run, SP_PHASE_END, run->beat->epoch, run->beat->step);
        sp_child_finish(&impl->child,
                        impl->has_failed ? PATIENCE_OF_FAILURE_S : patience_s);
        sp_heartbeat_unmap(impl->records, impl->n_records);
        if (impl->metrics >= 0)
            close(impl->metrics);
        unlock_folder(impl);
    }
    free(impl);
    free(run->dir);
    memset(run, 0, sizeof *run);
}

/* ---- while it runs ---- */

int sp_run_lock(const sp_run *run)
{
    return run->impl->lock;
}

sp_heartbeat *sp_run_heartbeat(const sp_run *run, int rank)
{
    return run->impl->records ? &run->impl->records[rank] : NULL;
}

void sp_run_beat(sp_run *run, sp_phase phase, int64_t epoch, int64_t step)
{
    sp_heartbeat_beat(run->beat, phase, epoch, step);
    sp_pulse_beat();
    sp_log_position(sp_phase_name(phase), epoch, step);
    sp_fault_at(sp_phase_name(phase), step);
}

sp_status sp_run_write_status(const char *dir, const char *task, int rank,
                              const sp_heartbeat *who, const char *state,
                              sp_status code, const char *message)
{
    char path[PATH_MAX];
    sp_json own = {0}, *json = &own; /* the watchdog's thread may be the caller */
    const char *text;
    sp_status rc;

    sp_json_begin(json);
    sp_json_text(json, "state", state);
    sp_json_int(json, "exit_code", (int)code);
    sp_json_int(json, "rank", rank);
    sp_json_text(json, "host", who->host);
    sp_json_int(json, "pid", who->pid);
    sp_json_text(json, "phase", sp_phase_name((sp_phase)who->phase));
    sp_json_int(json, "epoch", who->epoch);
    sp_json_int(json, "step", who->step);
    sp_json_text(json, "message", message ? message : code ? sp_status_text(code) : "");
    rc = sp_json_end(json, &text);
    if (rc == SP_OK)
        rc = sp_file_replace(sp_run_status_path(dir, task, path), text, strlen(text),
                             rank);
    sp_json_destroy(json);
    SP_TRY(rc);
    return SP_OK;
}

sp_status sp_run_status(sp_run *run, const char *state, sp_status code, int64_t epoch,
                        int64_t step, const char *message)
{
    sp_heartbeat who;

    /* Without a heartbeat the folder was not opened: it may be another's. */
    if (!run->dir || !run->dir[0] || !run->beat)
        return SP_OK;
    run->impl->has_failed = strcmp(state, "failed") == 0;
    who = *run->beat;
    who.epoch = epoch;
    who.step = step;
    return sp_run_write_status(run->dir, run->task, run->comm->rank, &who, state, code,
                               message);
}

/* Made by one process alone, on NFS too. */
bool sp_run_claim_diagnosis(const char *dir)
{
    char path[PATH_MAX];
    int fd;

    if (!dir || !dir[0])
        return true;
    fd = open(in_folder(dir, ".diagnosed", path),
              O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno != EEXIST; /* better twice than never */
    close(fd);
    return true;
}

sp_status sp_run_write_text(sp_run *run, const char *name, const char *text)
{
    char path[PATH_MAX];

    if (is_owner(run))
        SP_TRY(sp_file_replace(in_folder(run->dir, name, path), text, strlen(text), 0));
    return SP_OK;
}

void sp_run_after_save(sp_run *run, const char *command, const char *path)
{
    if (!is_owner(run) || !command || !command[0])
        return;
    run->impl->child.limit_s = run->after_save_limit_s;
    sp_child_start(&run->impl->child, command, path);
}
