/* Lines of text, for headers and ascii points of PLY and PCD and for columns of text.
 * Memory is bounded by SP_SCAN_LINE for any content of the file. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

enum { FIRST_CAPACITY = 4096 };

/* The character that ends lines: a carriage return if the file's first one is not
 * followed by a newline, as on old computers. */
static sp_status lines_find_end(sp_scan *scan)
{
    sp_scan_lines *lines = &scan->lines;
    int c;

    SP_TRY(sp_scan_lines_seek(scan, 0, 0));
    lines->end = '\n';
    for (int n = 0; n < SP_SCAN_LINE; n++) {
        c = getc_unlocked(lines->stream);
        if (c == '\0' || c == '\n' || c == EOF)
            break;
        if (c != '\r')
            continue;
        while ((c = getc_unlocked(lines->stream)) == '\r')
            ;
        lines->end = c == '\n' || c == EOF ? '\n' : '\r';
        break;
    }
    return SP_OK;
}

sp_status sp_scan_lines_open(sp_scan *scan)
{
    sp_scan_lines *lines = &scan->lines;
    int fd = fcntl(scan->fd, F_DUPFD_CLOEXEC, 0);

    assert(scan->fd >= 0 && !lines->stream);
    lines->stream = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!lines->stream) {
        sp_status rc =
            SP_FAIL(SP_EIO, "%s: cannot read: %s", scan->path, strerror(errno));

        if (fd >= 0)
            close(fd);
        return rc;
    }
    SP_TRY(SP_NEW(&lines->line, FIRST_CAPACITY, scan->path));
    lines->capacity = FIRST_CAPACITY;
    SP_TRY(lines_find_end(scan));
    return sp_scan_lines_seek(scan, 0, 0);
}

void sp_scan_lines_close(sp_scan_lines *lines)
{
    if (lines->stream)
        fclose(lines->stream);
    free(lines->line);
    *lines = (sp_scan_lines){0};
}

sp_status sp_scan_lines_seek(sp_scan *scan, int64_t at, int64_t number)
{
    assert(scan->lines.stream && at >= 0 && number >= 0);
    scan->lines.number = number;
    if (fseeko(scan->lines.stream, at, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", scan->path, strerror(errno));
    return SP_OK;
}

void sp_scan_lines_begin(sp_scan *scan)
{
    scan->lines.begin_at = ftello(scan->lines.stream);
    scan->lines.begin_number = scan->lines.number;
}

sp_status sp_scan_lines_rewind(sp_scan *scan)
{
    return sp_scan_lines_seek(scan, scan->lines.begin_at, scan->lines.begin_number);
}

static sp_status line_grow(sp_scan *scan)
{
    sp_scan_lines *lines = &scan->lines;

    if (lines->capacity >= SP_SCAN_LINE)
        return SP_FAIL(SP_EDATA,
                       "%s: line %" PRId64 " is longer than %d bytes, expected text",
                       scan->path, lines->number, SP_SCAN_LINE);
    if (!sp_list_resize(&lines->line, 2 * lines->capacity))
        return SP_FAIL(SP_EMEM, "%s: no memory for a line", scan->path);
    lines->capacity *= 2;
    return SP_OK;
}

sp_status sp_scan_lines_next(sp_scan *scan, bool *got)
{
    sp_scan_lines *lines = &scan->lines;
    size_t n = 0;
    int c;

    lines->number++;
    while ((c = getc_unlocked(lines->stream)) != EOF && c != lines->end) {
        if (c == '\0')
            return SP_FAIL(SP_EDATA,
                           "%s: line %" PRId64
                           " holds a zero byte, expected plain text (UTF-8)",
                           scan->path, lines->number);
        if (n + 1 == lines->capacity)
            SP_TRY(line_grow(scan));
        lines->line[n++] = (char)c;
    }
    if (ferror(lines->stream))
        return SP_FAIL(SP_EIO, "%s: cannot read: %s", scan->path, strerror(errno));
    *got = n > 0 || c == lines->end;
    while (n > 0 && lines->line[n - 1] == '\r')
        n--;
    lines->line[n] = '\0';
    return SP_OK;
}

/* Whole numbers may have a point or an exponent, as 2.0 has, but a double holds only
 * those below 2^53. */
const char *sp_scan_number(const char *at, char kind, int size, unsigned char to[8])
{
    const int unused = 64 - 8 * size;
    char *end, *whole;
    const double x = strtod(at, &end);
    uint64_t bits;

    assert(1 <= size && size <= 8);
    if (end == at)
        return NULL;
    sp_put_double(to, x);
    if (kind == 'f')
        return end;
    errno = 0;
    bits = kind == 'u' ? strtoull(at, &whole, 10) : (uint64_t)strtoll(at, &whole, 10);
    if (whole != end && (x != floor(x) || fabs(x) >= 0x1p53))
        return NULL;
    if (whole != end)
        bits = (uint64_t)(int64_t)x;
    sp_put64(to, bits);
    if (errno != 0 || (kind == 'u' && x < 0))
        return NULL;
    if (kind == 'u')
        return bits << unused >> unused == bits ? end : NULL;
    return (int64_t)(bits << unused) >> unused == (int64_t)bits ? end : NULL;
}
