/* Columns of numbers divided by blanks, tabs, commas or semicolons, a point a line.
 * Lines that begin with # or // are comments. Columns are named by --columns, or by a
 * line (a comment or the first one) that names x, y and z among others, or are x y z
 * where there are three. A first line with one number alone (.pts) is their count and
 * passed over. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "scan/sp_scan_format.h"

enum { MAX_COLUMNS = 256 };

typedef struct text {
    FILE *stream;
    char *line;
    size_t line_bytes;
    int64_t line_number; /* of the line in `line`, from 1 */
    int64_t data_line;   /* number of the first line of data */
    int n_columns;
    char names[SP_SCAN_LINE / 16]; /* found in the file, divided by commas; "" none */
} text;

static bool is_comment(const char *line)
{
    line += strspn(line, " \t\r\n");
    return *line == '\0' || *line == '#' || strncmp(line, "//", 2) == 0;
}

/* The next line; *got false at the end. */
static sp_status next_line(sp_scan *scan, text *t, bool *got)
{
    errno = 0;
    *got = getline(&t->line, &t->line_bytes, t->stream) >= 0;
    if (*got)
        t->line_number++;
    else if (ferror(t->stream) || errno == ENOMEM)
        return SP_FAIL(SP_EIO, "%s: cannot read: %s", scan->path, strerror(errno));
    return SP_OK;
}

/* Take the line's words as column names if x, y and z are among them. */
static void take_names(text *t, const char *line)
{
    char found[sizeof t->names] = "";
    size_t used = 0;
    int axes = 0;

    line += strspn(line, " \t#/");
    while (*line && used + SP_SCAN_NAME < sizeof found) {
        size_t n = strcspn(line, " \t,;\r\n\"");

        if (n > 0 && n < SP_SCAN_NAME)
            used += (size_t)snprintf(found + used, sizeof found - used, "%s%.*s",
                                     used ? "," : "", (int)n, line);
        axes += n == 1 && strchr("xyzXYZ", *line) != NULL;
        line += n;
        line += strspn(line, " \t,;\r\n\"");
    }
    if (axes == 3)
        memcpy(t->names, found, sizeof found);
}

/* Pass over what stands before the first point. */
static sp_status find_data(sp_scan *scan, text *t)
{
    double number[MAX_COLUMNS];
    bool got, is_first = true;
    int64_t at = 0;

    for (;;) {
        SP_TRY(next_line(scan, t, &got));
        if (!got)
            return SP_FAIL(SP_EDATA, "%s: no line with coordinates", scan->path);
        t->n_columns = sp_scan_numbers(t->line, number, MAX_COLUMNS);
        if (t->n_columns >= 3)
            break;
        if (!is_comment(t->line) && !is_first)
            return SP_FAIL(SP_EDATA,
                           "%s: line %" PRId64 ": %d numbers, expected 3 or more",
                           scan->path, t->line_number, t->n_columns);
        if (!t->names[0])
            take_names(t, t->line);
        is_first = is_first && is_comment(t->line);
        at = ftello(t->stream);
    }
    scan->data_at = at;
    t->data_line = t->line_number;
    return SP_OK;
}

static sp_status name_columns(sp_scan *scan, const text *t, const char *columns)
{
    for (int i = 0; i < t->n_columns; i++)
        if (!sp_scan_add(scan, "", i * (int)sizeof(double), 'f', sizeof(double)))
            return SP_EMEM;
    if (!columns && t->names[0])
        columns = t->names;
    if (!columns && t->n_columns == 3)
        columns = "x,y,z";
    if (!columns)
        return SP_FAIL(
            SP_EUSAGE,
            "%s: %d columns; say what they are: --columns x,y,z,... (- for one "
            "to pass over)",
            scan->path, t->n_columns);
    return sp_scan_name_columns(scan, columns);
}

static sp_status rewind_text(sp_scan *scan)
{
    text *t = scan->own;

    t->line_number = t->data_line - 1;
    if (fseeko(t->stream, scan->data_at, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", scan->path, strerror(errno));
    return SP_OK;
}

static sp_status open_text(sp_scan *scan, const sp_scan_options *options)
{
    text *t = calloc(1, sizeof *t);

    scan->own = t;
    if (!t)
        return SP_FAIL(SP_EMEM, "%s: no memory", scan->path);
    SP_TRY(sp_scan_stream(scan, 0, &t->stream));
    SP_TRY(find_data(scan, t));
    SP_TRY(name_columns(scan, t, options->columns));
    scan->record_bytes = t->n_columns * (int)sizeof(double);
    scan->n_points = -1;
    return rewind_text(scan);
}

static sp_status fill_text(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    text *t = scan->own;
    double number[MAX_COLUMNS];

    for (*n = 0; *n < max;) {
        bool got;
        int found;

        SP_TRY(next_line(scan, t, &got));
        if (!got)
            break;
        if (is_comment(t->line))
            continue;
        found = sp_scan_numbers(t->line, number, t->n_columns);
        if (found < t->n_columns)
            return SP_FAIL(SP_EDATA, "%s: line %" PRId64 ": %d numbers, expected %d",
                           scan->path, t->line_number, found, t->n_columns);
        memcpy(to + *n * scan->record_bytes, number, (size_t)scan->record_bytes);
        ++*n;
    }
    return SP_OK;
}

static void close_text(sp_scan *scan)
{
    text *t = scan->own;

    if (t && t->stream)
        fclose(t->stream);
    if (t)
        free(t->line);
}

const sp_scan_format sp_scan_text = {.name = "text",
                                     .open = open_text,
                                     .fill = fill_text,
                                     .rewind = rewind_text,
                                     .close = close_text};
