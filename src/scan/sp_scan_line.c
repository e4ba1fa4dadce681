/* Lines of text, for headers and ascii points of PLY and PCD and for columns of text.
 * Memory is bounded by SP_SCAN_LINE for any content of the file. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scan/sp_scan_format.h"

enum { FIRST_CAPACITY = 4096 };

sp_status sp_scan_lines_open(const sp_scan *scan, sp_scan_lines *lines)
{
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
    lines->line = malloc(FIRST_CAPACITY);
    lines->capacity = FIRST_CAPACITY;
    if (!lines->line)
        return SP_FAIL(SP_EMEM, "%s: no memory for a line", scan->path);
    return sp_scan_lines_seek(scan, lines, 0, 0);
}

void sp_scan_lines_close(sp_scan_lines *lines)
{
    if (lines->stream)
        fclose(lines->stream);
    free(lines->line);
    *lines = (sp_scan_lines){0};
}

sp_status sp_scan_lines_seek(const sp_scan *scan, sp_scan_lines *lines, int64_t at,
                             int64_t number)
{
    assert(lines->stream && at >= 0 && number >= 0);
    lines->number = number;
    if (fseeko(lines->stream, at, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", scan->path, strerror(errno));
    return SP_OK;
}

static sp_status grow(const sp_scan *scan, sp_scan_lines *lines)
{
    char *grown;

    if (lines->capacity >= SP_SCAN_LINE)
        return SP_FAIL(SP_EDATA,
                       "%s: line %" PRId64 " is longer than %d bytes, expected text",
                       scan->path, lines->number, SP_SCAN_LINE);
    grown = realloc(lines->line, 2 * lines->capacity);
    if (!grown)
        return SP_FAIL(SP_EMEM, "%s: no memory for a line", scan->path);
    lines->line = grown;
    lines->capacity *= 2;
    return SP_OK;
}

sp_status sp_scan_lines_next(const sp_scan *scan, sp_scan_lines *lines, bool *got)
{
    size_t n = 0;
    int c;

    lines->number++;
    while ((c = getc_unlocked(lines->stream)) != EOF && c != '\n') {
        if (c == '\0')
            return SP_FAIL(SP_EDATA,
                           "%s: line %" PRId64
                           " holds a zero byte, expected plain text (UTF-8)",
                           scan->path, lines->number);
        if (n + 1 == lines->capacity)
            SP_TRY(grow(scan, lines));
        lines->line[n++] = (char)c;
    }
    if (ferror(lines->stream))
        return SP_FAIL(SP_EIO, "%s: cannot read: %s", scan->path, strerror(errno));
    *got = n > 0 || c == '\n';
    while (n > 0 && lines->line[n - 1] == '\r')
        n--;
    lines->line[n] = '\0';
    return SP_OK;
}

int sp_scan_numbers(const char *line, double *to, int n)
{
    const char *at = line + strspn(line, " \t\r");
    int found = 0;

    assert(to && n >= 0);
    while (*at && found < n) {
        char *end;

        to[found] = strtod(at, &end);
        if (end == at || !strchr(" \t\r", *end))
            return found;
        at = end + strspn(end, " \t\r");
        found++;
    }
    return *at ? n + 1 : found;
}
