/* LAZ through a child process with limits. On some damaged files the library crashes
 * (measured: 1 of 400 mutants, a double free), and then only the child dies.
 *
 *     parent  header, fields             <-- frames --    child  sp_laz_fill
 *
 * A frame is a count of records (uint64) and the records. The child writes frames to
 * its standard output, and at the end END with the message of sp_probe_main, which is
 * empty unless it failed. The parent starts the child at the first read, and again
 * after a rewind. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/sp_probe.h"
#include "process/sp_pulse.h"
#include "scan/sp_scan_las.h"

#define WORD "--read-laz"
#define END  UINT64_MAX
enum { FRAME = 4096, SILENCE_S = 60 };

typedef struct laz_child {
    pid_t pid; /* 0: not started */
    int fd;
    uint64_t left; /* records of the frame that are not read yet */
} laz_child;

/* ---- the child ---- */

static bool is_child;

static sp_status send_records(sp_scan *scan)
{
    unsigned char *record = malloc((size_t)FRAME * (size_t)scan->record_bytes);
    sp_status rc =
        record ? SP_OK : SP_FAIL(SP_EMEM, "%s: no memory for points", scan->path);
    int64_t n = 1;

    while (rc == SP_OK && n > 0) {
        size_t bytes = (size_t)scan->record_bytes;
        uint64_t head;

        rc = scan->format->fill(scan, FRAME, record, &n);
        head = (uint64_t)n;
        if (rc == SP_OK && n > 0 &&
            (fwrite(&head, sizeof head, 1, stdout) != 1 ||
             fwrite(record, bytes, (size_t)n, stdout) != (size_t)n))
            rc = SP_FAIL(SP_EIO, "%s: nobody reads its points", scan->path);
        scan->row += n;
    }
    free(record);
    return rc;
}

static sp_status send_scan(const char *path)
{
    const struct itimerval none = {0};
    const uint64_t end = END;
    sp_scan *scan;
    sp_status rc;

    is_child = true;
    setitimer(ITIMER_PROF, &none, NULL); /* the limit is the parent's SILENCE_S */
    rc = sp_scan_open(&scan, path, NULL);
    if (rc == SP_OK)
        rc = send_records(scan);
    sp_scan_close(scan);
    fwrite(&end, sizeof end, 1, stdout);
    return rc;
}

void sp_scan_main(int argc, char **argv)
{
    sp_probe_main(argc, argv, WORD, send_scan);
}

/* ---- the parent ---- */

/* Reads exactly `bytes` bytes; *n is fewer where the child ended or was silent for
 * SILENCE_S. */
static void receive(const laz_child *c, void *to, size_t bytes, size_t *n)
{
    int silent_s = 0;

    for (*n = 0; *n < bytes && silent_s < SILENCE_S;) {
        struct pollfd wait = {c->fd, POLLIN, 0};
        int ready = poll(&wait, 1, 1000);
        ssize_t got;

        sp_pulse_beat();
        silent_s = ready == 0 ? silent_s + 1 : 0;
        if (ready <= 0)
            continue;
        got = read(c->fd, (unsigned char *)to + *n, bytes - *n);
        if (got == 0 || (got < 0 && errno != EINTR))
            return;
        *n += got > 0 ? (size_t)got : 0;
    }
}

static void stop(laz_child *c)
{
    if (c->pid == 0)
        return;
    close(c->fd);
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ; /* its exit status does not matter */
    *c = (laz_child){0};
}

/* Ends the child and returns its error, or "truncated" where it reports none. */
static sp_status explain(const sp_scan *scan, laz_child *c)
{
    char message[SP_ERROR_MESSAGE];
    size_t n;
    sp_status rc;

    receive(c, message, sizeof message - 1, &n);
    message[n] = '\0';
    close(c->fd);
    kill(c->pid, SIGKILL);
    rc = sp_probe_end(scan->path, c->pid, message);
    *c = (laz_child){0};
    return rc != SP_OK ? rc
                       : SP_FAIL(SP_EDATA, "%s: truncated: fewer points than %" PRId64,
                                 scan->path, scan->n_points);
}

static sp_status open_laz(sp_scan *scan, const sp_scan_options *options)
{
    sp_las_header header;
    laz_child *c;

    if (is_child || !sp_probe_is_answered(WORD)) {
        scan->format = &sp_scan_laz_here;
        return sp_laz_open(scan, options);
    }
    scan->own = c = calloc(1, sizeof *c);
    return c ? sp_las_open(scan, &header)
             : SP_FAIL(SP_EMEM, "%s: no memory for LAZ", scan->path);
}

static sp_status fill_laz(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    laz_child *c = scan->own;
    int64_t wanted = scan->n_points - scan->row;

    wanted = wanted < max ? wanted : max;
    if (c->pid == 0 && wanted > 0)
        SP_TRY(sp_probe_start(WORD, scan->path, &c->pid, &c->fd));
    for (*n = 0; *n < wanted;) {
        int64_t part = wanted - *n;
        size_t got, bytes;

        if (c->left == 0) {
            receive(c, &c->left, sizeof c->left, &got);
            if (got < sizeof c->left || c->left == END)
                return explain(scan, c);
            continue;
        }
        part = (uint64_t)part < c->left ? part : (int64_t)c->left;
        bytes = (size_t)part * (size_t)scan->record_bytes;
        receive(c, to, bytes, &got);
        if (got < bytes)
            return explain(scan, c);
        to += bytes;
        c->left -= (uint64_t)part;
        *n += part;
    }
    return SP_OK;
}

static sp_status rewind_laz(sp_scan *scan)
{
    stop(scan->own);
    return SP_OK;
}

static void close_laz(sp_scan *scan)
{
    if (scan->own)
        stop(scan->own);
}

static bool is_laz(const unsigned char *head)
{
    return memcmp(head, "LASF", 4) == 0 && (head[104] & 0xc0);
}

const sp_scan_format sp_scan_laz = {.name = "LAZ",
                                    .endings = ".laz",
                                    .help = "LAZ, where liblaszip is installed",
                                    .is_ours = is_laz,
                                    .open = open_laz,
                                    .fill = fill_laz,
                                    .rewind = rewind_laz,
                                    .close = close_laz,
                                    .is_count_claimed = true};
const sp_scan_format sp_scan_laz_here = {.name = "LAZ",
                                         .open = sp_laz_open,
                                         .fill = sp_laz_fill,
                                         .rewind = sp_laz_rewind,
                                         .close = sp_laz_close,
                                         .is_count_claimed = true};
