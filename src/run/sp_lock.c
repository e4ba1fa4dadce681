#include "run/sp_lock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "run/sp_heartbeat.h"

#define FOREIGN_OWNER_WATCH_S 5.0
#define LOCK_PATIENCE_S       3.0
#define LOCK_TEXT             128

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

/* A hash that changes when the heartbeat or one of the run's files changes. */
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
        if (stat(sp_file_in(dir, watched[i], path), &st) == 0)
            sum += (uint64_t)st.st_mtim.tv_nsec +
                   1000003 * (uint64_t)st.st_mtim.tv_sec + (uint64_t)st.st_size;
    if (sp_heartbeat_read(sp_file_in(dir, "heartbeat.bin", path), &records, &n) ==
        SP_OK) {
        for (int r = 0; r < n; r++)
            sum += (uint64_t)records[r].counter;
        free(records);
    }
    return sum;
}

static bool is_folder_alive(const char *dir)
{
    double begin_s = sp_now_s();
    uint64_t before = activity(dir);

    while (sp_now_s() - begin_s < FOREIGN_OWNER_WATCH_S) {
        sp_sleep_s(0.2);
        if (activity(dir) != before)
            return true;
    }
    return false;
}

static sp_status fail_in_use(const char *dir, bool is_known, const owner *o)
{
    if (!is_known)
        return SP_FAIL(SP_EIO,
                       "%s: run folder in use by another process; end that run, or "
                       "choose another run.dir",
                       dir);
    return SP_FAIL(SP_EIO,
                   "%s: run folder in use by host %s pid %ld; end that run, or choose "
                   "another run.dir",
                   dir, o->host, o->pid);
}

/* Tries to lock for some seconds, since the processes of a killed run may need a moment
 * to vanish. Returns 0; EWOULDBLOCK if another process holds the lock; or why the file
 * system has no such locks. */
static int try_flock(int fd)
{
    const double begin_s = sp_now_s();
    int error;

    do {
        error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (error != EWOULDBLOCK && error != EINTR)
            return error;
        sp_sleep_s(0.05);
    } while (sp_now_s() - begin_s <= LOCK_PATIENCE_S);
    return EWOULDBLOCK;
}

/* True if the process named in the file runs although the lock is free. */
static bool is_owner_alive(const char *dir, const char *host, const owner *o,
                           bool is_sure)
{
    if (strcmp(o->host, host) != 0)
        return is_folder_alive(dir);
    return !is_sure && o->pid != (long)getpid() && kill((pid_t)o->pid, 0) == 0;
}

sp_status sp_lock_acquire(const char *dir, const char *host, int *lock)
{
    char path[PATH_MAX], text[LOCK_TEXT];
    bool is_known;
    owner o;
    int fd, error;

    assert(dir && host && lock);
    *lock = -1;
    SP_TRY(sp_file_open(sp_file_in(dir, "lock", path), O_RDWR | O_CREAT | O_NOFOLLOW,
                        &fd));
    error = try_flock(fd);
    is_known = read_owner(fd, &o);
    if (error == EWOULDBLOCK ||
        (is_known && is_owner_alive(dir, host, &o, error == 0))) {
        close(fd);
        return fail_in_use(dir, is_known, &o);
    }
    if (error)
        sp_log_warn0("%s: this file system has no locks (flock: %s): never start two "
                     "runs in this folder at the same time",
                     dir, strerror(error));
    *lock = fd;
    snprintf(text, sizeof text, "%s %ld\n", host, (long)getpid());
    if (ftruncate(fd, 0) != 0 ||
        pwrite(fd, text, strlen(text), 0) < (ssize_t)strlen(text))
        return SP_FAIL(SP_EIO, "%s: cannot write: %s", path, strerror(errno));
    return SP_OK;
}

bool sp_lock_is_held(const char *dir, int lock)
{
    char path[PATH_MAX];

    return lock < 0 || sp_file_is_at(sp_file_in(dir, "lock", path), lock);
}

void sp_lock_release(int *lock)
{
    if (*lock < 0)
        return;
    if (ftruncate(*lock, 0) != 0)
        sp_log_warn("run folder: cannot clear the lock: %s", strerror(errno));
    close(*lock);
    *lock = -1;
}
