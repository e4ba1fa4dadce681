#include "run/sp_heartbeat.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_process.h"
#include "base/sp_text.h"

_Static_assert(sizeof(sp_heartbeat) == 128, "a record of heartbeat.bin");

#define MOST_TIME 253402300799.0 /* the end of the year 9999 */

#define PHASE_TEXT(name, text) text,
static const char *const phase_names[] = {SP_PHASE_LIST(PHASE_TEXT)};

const char *sp_phase_name(sp_phase phase)
{
    return (unsigned)phase < SP_PHASE_COUNT ? phase_names[phase] : "unknown";
}

/* ---- the file ---- */

sp_status sp_heartbeat_create(const char *path, int n)
{
    SP_FREED sp_heartbeat *records = NULL;

    assert(n > 0);
    SP_TRY(SP_NEW(&records, n, path));
    return sp_file_replace(path, (const char *)records, (size_t)n * sizeof *records, 0);
}

sp_status sp_heartbeat_open(sp_heartbeats *beats, const char *path, int n)
{
    const size_t want = (size_t)n * sizeof(sp_heartbeat);
    struct stat st = {0};
    int fd = -1;

    assert(n > 0);
    SP_TRY(sp_file_open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, &fd));
    if (fstat(fd, &st) != 0 || (size_t)st.st_size != want) {
        close(fd);
        return SP_FAIL(SP_EIO, "%s: %lld bytes, expected %zu of %d ranks", path,
                       (long long)st.st_size, want, n);
    }
    if (beats->fd < 0) {
        beats->fd = fd;
    } else {
        /* The descriptor's number is kept, since another thread may be writing to
         * it. */
        dup3(fd, beats->fd, O_CLOEXEC);
        close(fd);
    }
    beats->n = n;
    return SP_OK;
}

void sp_heartbeat_close(sp_heartbeats *beats)
{
    if (beats->fd >= 0)
        close(beats->fd);
    beats->fd = -1;
}

/* ---- records in the file ---- */

/* Position of a rank's field in the file. */
#define PLACE_OF(rank, field)                                                          \
    ((off_t)(rank) * (off_t)sizeof(sp_heartbeat) + (off_t)offsetof(sp_heartbeat, field))

static bool heartbeat_has(const sp_heartbeats *beats, int rank)
{
    return beats->fd >= 0 && rank >= 0 && rank < beats->n;
}

/* Writes to the file; a failure is ignored, since a missing heartbeat is no reason to
 * stop the run. */
static bool heartbeat_put(const sp_heartbeats *beats, const void *data, size_t bytes,
                          off_t at)
{
    return pwrite(beats->fd, data, bytes, at) == (ssize_t)bytes;
}

void sp_heartbeat_put(const sp_heartbeats *beats, int rank, const sp_heartbeat *record)
{
    assert(rank >= 0 && record);
    if (!heartbeat_has(beats, rank))
        return;
    sp_liveness_file_begin();
    heartbeat_put(beats, record, offsetof(sp_heartbeat, lost), PLACE_OF(rank, host));
    sp_liveness_file_end();
}

void sp_heartbeat_put_signs(const sp_heartbeats *beats, int rank, int64_t work,
                            int64_t waits)
{
    const int64_t signs[2] = {work, waits};

    assert(rank >= 0);
    if (heartbeat_has(beats, rank))
        heartbeat_put(beats, signs, sizeof signs, PLACE_OF(rank, work));
}

/* The name of a field that holds a value no rank writes; NULL: all are valid. */
static const char *damage_of(const sp_heartbeat *h)
{
    if (!sp_text_is_ascii(h->host, sizeof h->host))
        return "host";
    if (h->pid < 0)
        return "pid";
    if (h->step < 0 || h->epoch < 0)
        return "step";
    if (!(h->time >= 0 && h->time <= MOST_TIME))
        return "time";
    if (h->phase < 0 || h->phase >= SP_PHASE_COUNT)
        return "phase";
    if (h->lost < 0 || h->lost >= SP_LOST_COUNT)
        return "lost";
    if (h->done < 0 || h->done > h->total)
        return "done";
    if (h->counter < 0 || h->work < 0 || h->waits < 0)
        return "count";
    return NULL;
}

bool sp_heartbeat_get(const sp_heartbeats *beats, int rank, sp_heartbeat *record)
{
    assert(record);
    return heartbeat_has(beats, rank) &&
           pread(beats->fd, record, sizeof *record, PLACE_OF(rank, host)) ==
               (ssize_t)sizeof *record &&
           !damage_of(record);
}

int sp_heartbeat_lost(const sp_heartbeats *beats)
{
    int32_t lost;

    for (int r = 0; heartbeat_has(beats, r); r++)
        if (pread(beats->fd, &lost, sizeof lost, PLACE_OF(r, lost)) ==
                (ssize_t)sizeof lost &&
            lost != SP_NOT_LOST)
            return r;
    return -1;
}

bool sp_heartbeat_mark_lost(const sp_heartbeats *beats, int rank, sp_lost lost)
{
    const int32_t mark = (int32_t)lost;

    assert(lost != SP_NOT_LOST);
    return heartbeat_has(beats, rank) && sp_heartbeat_lost(beats) < 0 &&
           heartbeat_put(beats, &mark, sizeof mark, PLACE_OF(rank, lost));
}

/* ---- a copy of the file ---- */

static sp_status read_once(const char *path, sp_heartbeat **records, int *n)
{
    size_t bytes = 0;
    const char *field = NULL;
    char *data = NULL;
    int r;

    *records = NULL;
    *n = 0;
    SP_TRY(sp_file_read(path, &data, &bytes));
    if (bytes == 0 || bytes % sizeof **records != 0) {
        free(data);
        return SP_FAIL(SP_EDATA, "%s: %zu bytes, expected a multiple of %zu", path,
                       bytes, sizeof **records);
    }
    *records = (sp_heartbeat *)(void *)data;
    *n = (int)(bytes / sizeof **records);
    for (r = 0; r < *n && !field; r++)
        field = damage_of(&(*records)[r]);
    if (field) {
        free(data);
        *records = NULL;
        return SP_FAIL(SP_EDATA,
                       "%s: record of rank %d: %s has a value that no rank "
                       "writes: the file is damaged",
                       path, r - 1, field);
    }
    return SP_OK;
}

/* A record that its rank was just writing may seem damaged, so it is read again. */
sp_status sp_heartbeat_read(const char *path, sp_heartbeat **records, int *n)
{
    enum { TRIES = 3 };
    sp_status rc = SP_EDATA;

    assert(path && records && n);
    for (int i = 0; i < TRIES && rc == SP_EDATA; i++)
        rc = read_once(path, records, n);
    return rc;
}

int sp_heartbeat_find_lost(const sp_heartbeat *records, int n)
{
    assert(records && n >= 1);
    for (int r = 0; r < n; r++)
        if (records[r].lost != SP_NOT_LOST)
            return r;
    return -1;
}

void sp_heartbeat_ends(const sp_heartbeat *records, int n, int *first, int *last)
{
    assert(n >= 0 && first && last);
    *first = *last = -1;
    for (int r = 0; r < n; r++) {
        if (records[r].counter == 0)
            continue;
        if (*first < 0 || records[r].time < records[*first].time)
            *first = r;
        if (*last < 0 || records[r].time > records[*last].time)
            *last = r;
    }
}

/* ---- one record ---- */

void sp_heartbeat_beat(sp_heartbeat *record, sp_phase phase, int64_t epoch,
                       int64_t step)
{
    struct timespec now;

    assert((unsigned)phase < SP_PHASE_COUNT);
    clock_gettime(CLOCK_REALTIME, &now);
    record->phase = phase;
    record->epoch = (int32_t)(epoch < INT32_MAX ? epoch : INT32_MAX);
    record->step = step;
    record->time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    record->counter++;
}

void sp_heartbeat_count(sp_heartbeat *record, int64_t done, int64_t total)
{
    assert(done >= 0 && total >= 0);
    for (; total > INT32_MAX; total /= 2)
        done /= 2;
    record->done = (int32_t)(done < total ? done : total);
    record->total = (int32_t)total;
}

bool sp_heartbeat_pass(const sp_heartbeat *records, int n, int64_t *done,
                       int64_t *total)
{
    assert(n >= 0);
    *done = *total = 0;
    for (int r = 0; r < n; r++) {
        if (records[r].total == 0 || records[r].phase == SP_PHASE_END)
            continue;
        *done = *total == 0 || records[r].done < *done ? records[r].done : *done;
        *total = records[r].total;
    }
    return *total > 0;
}

const char *sp_heartbeat_process(const sp_heartbeat *record)
{
    char host[sizeof record->host] = "";
    sp_process p;

    gethostname(host, sizeof host - 1);
    if (!record->counter || strcmp(host, record->host) != 0 || record->pid <= 0)
        return "";
    if (kill((pid_t)record->pid, 0) != 0 && errno == ESRCH)
        return "gone";
    sp_process_read(record->pid, &p);
    return p.state == 'T' ? "stopped" : p.state == 'Z' || p.state == 'X' ? "gone" : "";
}
