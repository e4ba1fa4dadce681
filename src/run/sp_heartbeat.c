#include "config.h"

#include "run/sp_heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_file.h"

_Static_assert(sizeof(sp_heartbeat) == 128, "a record of heartbeat.bin");

#define PHASE_TEXT(name, text) text,
static const char *const phase_names[] = {SP_PHASE_LIST(PHASE_TEXT)};

const char *sp_phase_name(sp_phase phase)
{
    return (unsigned)phase < SP_PHASE_COUNT ? phase_names[phase] : "unknown";
}

sp_status sp_heartbeat_create(const char *path, int n)
{
    sp_heartbeat *records = calloc((size_t)n, sizeof *records);
    sp_status rc;

    if (!records)
        return SP_FAIL(SP_EMEM, "%s: %d records", path, n);
    rc = sp_file_replace(path, (const char *)records, (size_t)n * sizeof *records, 0);
    free(records);
    SP_TRY(rc);
    return SP_OK;
}

sp_status sp_heartbeat_map(const char *path, int n, sp_heartbeat **records)
{
    size_t bytes = (size_t)n * sizeof **records;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    void *base;

    if (fd < 0)
        return SP_FAIL(SP_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || (size_t)st.st_size != bytes) {
        close(fd);
        return SP_FAIL(SP_EIO, "%s: %lld bytes, expected %zu of %d ranks", path,
                       (long long)st.st_size, bytes, n);
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED)
        return SP_FAIL(SP_EIO, "%s: cannot map: %s", path, strerror(errno));
    *records = base;
    return SP_OK;
}

void sp_heartbeat_unmap(sp_heartbeat *records, int n)
{
    if (records)
        munmap(records, (size_t)n * sizeof *records);
}

sp_status sp_heartbeat_read(const char *path, sp_heartbeat **records, int *n)
{
    size_t bytes;
    char *data;

    *records = NULL;
    *n = 0;
    SP_TRY(sp_file_read(path, &data, &bytes));
    if (bytes == 0 || bytes % sizeof **records != 0) {
        free(data);
        return SP_FAIL(SP_EDATA, "%s: %zu bytes, expected a multiple of %zu", path,
                       bytes, sizeof **records);
    }
    *records = (sp_heartbeat *)data;
    *n = (int)(bytes / sizeof **records);
    for (int r = 0; r < *n; r++)
        (*records)[r].host[sizeof(*records)[r].host - 1] = 0;
    return SP_OK;
}

void sp_heartbeat_beat(sp_heartbeat *record, sp_phase phase, int64_t epoch,
                       int64_t step)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    record->phase = phase;
    record->epoch = epoch;
    record->step = step;
    record->time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    /* last: a watching thread takes it for the sign of life */
    __atomic_store_n(&record->counter, record->counter + 1, __ATOMIC_RELEASE);
}

int sp_heartbeat_lost(const sp_heartbeat *records, int n)
{
    for (int r = 0; r < n; r++)
        if (__atomic_load_n(&records[r].lost, __ATOMIC_RELAXED) != SP_NOT_LOST)
            return r;
    return -1;
}

bool sp_heartbeat_mark_lost(sp_heartbeat *records, int n, int rank, sp_lost lost)
{
    if (sp_heartbeat_lost(records, n) >= 0)
        return false;
    __atomic_store_n(&records[rank].lost, (int32_t)lost, __ATOMIC_RELEASE);
    return true;
}

void sp_heartbeat_ends(const sp_heartbeat *records, int n, int *first, int *last)
{
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

bool sp_heartbeat_is_gone(const sp_heartbeat *record)
{
    char host[sizeof record->host] = "";

    gethostname(host, sizeof host - 1);
    return record->counter && strcmp(host, record->host) == 0 &&
           kill((pid_t)record->pid, 0) != 0 && errno == ESRCH;
}
