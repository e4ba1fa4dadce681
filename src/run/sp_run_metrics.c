/* The lines of metrics.jsonl: appended, kept in memory while the disk is full, and cut
 * when a run continues. */
#include "run/sp_run_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "run/sp_events.h"

enum { MOST_KEPT = 64 << 20 };

/* Removes the incomplete last line that a process killed while writing leaves; complete
 * JSON lines end in a newline. */
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

sp_status sp_run_open_metrics(sp_run *run)
{
    char path[PATH_MAX];

    if (run->impl->metrics >= 0)
        close(run->impl->metrics);
    SP_TRY(sp_file_open(sp_file_in(run->dir, "metrics.jsonl", path),
                        O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, &run->impl->metrics));
    return cut_half_line(run->impl->metrics, path);
}

/* Adds a line to those that wait; after the first failure of a row gives the reason. */
static sp_status keep_line(sp_run *run, const char *line)
{
    struct sp_run_impl *impl = run->impl;
    const size_t n = strlen(line);
    char *longer = impl->n_kept + n + 1 <= MOST_KEPT
                       ? realloc(impl->kept, impl->n_kept + n + 1)
                       : NULL;

    if (!longer)
        return SP_EIO; /* the message is the file's */
    if (impl->n_kept == 0)
        sp_log_warn0("%s; the run goes on, and its lines wait in memory",
                     sp_error_last()->message);
    impl->kept = longer;
    memcpy(longer + impl->n_kept, line, n);
    longer[impl->n_kept + n] = '\n';
    impl->n_kept += n + 1;
    return SP_OK;
}

static sp_status deliver_lines(sp_run *run, const char *path)
{
    struct sp_run_impl *impl = run->impl;
    const struct iovec lines = {impl->kept, impl->n_kept};
    int64_t end;

    if (impl->n_kept == 0)
        return SP_OK;
    SP_TRY(sp_file_append(impl->metrics, path, &lines, 1, &end));
    sp_log_info("%s: the lines that waited are written", path);
    free(impl->kept);
    impl->kept = NULL;
    impl->n_kept = 0;
    return SP_OK;
}

sp_status sp_run_deliver(sp_run *run)
{
    char path[PATH_MAX];

    if (!sp_run_is_owner(run))
        return SP_OK;
    SP_TRY(sp_run_check_ours(run));
    return deliver_lines(run, sp_file_in(run->dir, "metrics.jsonl", path));
}

sp_status sp_run_event(sp_run *run, const char *json_line, int64_t *bytes)
{
    struct iovec line[2] = {{(void *)(uintptr_t)json_line, strlen(json_line)},
                            {"\n", 1}};
    char path[PATH_MAX];
    int64_t end;
    sp_status rc;

    assert(json_line[0] == '{');
    if (bytes)
        *bytes = 0;
    if (!sp_run_is_owner(run))
        return SP_OK;
    SP_TRY(sp_run_check_ours(run));
    sp_file_in(run->dir, "metrics.jsonl", path);
    if (!sp_file_is_at(path, run->impl->metrics)) {
        sp_log_warn0("%s: deleted or replaced, earlier lines are missing", path);
        SP_TRY(sp_run_open_metrics(run));
    }
    rc = deliver_lines(run, path);
    if (rc == SP_OK)
        rc = sp_file_append(run->impl->metrics, path, line, 2, &end);
    if (rc == SP_EIO) {
        SP_TRY(keep_line(run, json_line));
        end = lseek(run->impl->metrics, 0, SEEK_END) + (int64_t)run->impl->n_kept;
    }
    if (bytes)
        *bytes = end;
    sp_child_poll(&run->impl->child);
    return SP_OK;
}

sp_status sp_run_sync_metrics(sp_run *run)
{
    SP_TRY(sp_run_check_ours(run));
    if (sp_run_is_owner(run) && fsync(run->impl->metrics) != 0)
        return SP_FAIL(SP_EIO, "%s/metrics.jsonl: cannot flush: %s", run->dir,
                       strerror(errno));
    return sp_events_sync(run->events);
}

/* True for lines that record the start or the end of a process, a prediction, or an
 * evaluation by `sptrain eval`, which begins with its time: a run that continues does
 * not repeat them. */
static bool run_is_kept(const char *line)
{
    return sp_run_is_event(line, "start") || sp_run_is_event(line, "resume") ||
           sp_run_is_event(line, "end") || sp_run_is_event(line, "predict") ||
           sp_run_is_event(line, "eval\",\"time");
}

/* Moves the complete lines that are kept to the front of text; returns their bytes. */
static size_t keep_lines(char *text)
{
    char *to = text, *end;

    for (char *line = text; (end = strchr(line, '\n')); line = end + 1)
        if (run_is_kept(line)) {
            memmove(to, line, (size_t)(end + 1 - line));
            to += end + 1 - line;
        }
    return (size_t)(to - text);
}

/* Removes the lines of the steps after `bytes` and of their evaluations, because the
 * run is going to repeat them. A run that was stopped right after its last checkpoint
 * has no such lines. */
static sp_status roll_back(int fd, off_t bytes, off_t end)
{
    size_t size = (size_t)(end - bytes), kept;
    char *text = calloc(1, size + 1);
    ssize_t n = text ? pread(fd, text, size, bytes) : -1;

    kept = n > 0 ? keep_lines(text) : 0;
    if (n >= 0 && kept == size)
        n = (ssize_t)size;
    else if (n >= 0 && ftruncate(fd, bytes) == 0)
        /* Appended, since the file was opened with O_APPEND. */
        n = write(fd, text, kept);
    else
        n = -1;
    free(text);
    return n == (ssize_t)kept ? SP_OK : SP_EIO;
}

sp_status sp_run_truncate_metrics(sp_run *run, int64_t bytes)
{
    off_t end;

    assert(bytes >= 0);
    if (!sp_run_is_owner(run))
        return SP_OK;
    end = lseek(run->impl->metrics, 0, SEEK_END);
    if (end < bytes)
        sp_log_warn0(
            "%s/metrics.jsonl: %lld bytes, the checkpoint was written at %" PRId64
            ": earlier lines are missing",
            run->dir, (long long)end, bytes);
    else if (roll_back(run->impl->metrics, bytes, end) != SP_OK)
        return SP_FAIL(SP_EIO,
                       "%s/metrics.jsonl: cannot cut after %" PRId64 " bytes: %s",
                       run->dir, bytes, strerror(errno));
    return SP_OK;
}
