/* Columns of numbers, one point a line. Lines that begin with # or // are comments, and
 * a byte order mark is skipped.
 *
 * Separators: the first point decides. It is the semicolon, else tabs and blanks, else
 * the comma (with or without blanks around it). If it is not the comma, numbers may
 * have decimal commas, but one file may not mix them with decimal points. Every line
 * must have the same number of values as the first one.
 *
 * Columns are named by --columns, or by a line (a comment or the first line) that names
 * x, y and z, or Easting and the like (sp_scan_axis.c), among others; three columns
 * without names are x y z. A first line that names each column, but not which are x, y
 * and z, is refused. A first line of one number (.pts) is the number of points.
 *
 * Columns that --columns passes over may hold any text: words, times, nothing, or a
 * text in quotes with separators in it. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

enum { MAX_COLUMNS = 256, NUMBER = 64 };
#define BLANKS " \t"

/* The conventions of a file, and its columns. */
typedef struct text {
    char separator; /* ';', ',' or a tab; ' ' means blanks and tabs */
    char mark;      /* decimal point or comma; 0 until a number has one */
    int n_columns, n_names;
    int n_listed; /* columns that --columns names or passes over; 0: no such option */
    bool is_passed[MAX_COLUMNS]; /* they hold any text */
    int n_read;                  /* numbers of the last line */
    int64_t n_claimed; /* points that the first line counts; -1: it does not */
    char name[MAX_COLUMNS][SP_SCAN_NAME]; /* names found in the file */
    const char *value[MAX_COLUMNS];       /* begin of the line's values */
} text;

static bool is_comment(const char *line)
{
    line += strspn(line, BLANKS);
    return *line == '\0' || *line == '#' || strncmp(line, "//", 2) == 0;
}

/* Reads the next line, without a byte order mark; NULL at the end. */
static sp_status next_line(sp_scan *scan, const char **line)
{
    bool got;

    SP_TRY(sp_scan_lines_next(scan, &got));
    *line = got ? scan->lines.line : NULL;
    if (got && scan->lines.number == 1 && strncmp(*line, "\xef\xbb\xbf", 3) == 0)
        *line += 3;
    return SP_OK;
}

/* ---- numbers ---- */

/* Are there two values with a blank, but no comma, between them? */
static bool has_gap(const char *line)
{
    for (const char *at = line + strspn(line, BLANKS); *at;) {
        const char *end = at + strcspn(at, BLANKS), *next = end + strspn(end, BLANKS);

        if (*end && *next && end[-1] != ',' && *next != ',')
            return true;
        at = next;
    }
    return false;
}

static char find_separator(const char *line)
{
    return strchr(line, ';') ? ';' : strchr(line, ',') && !has_gap(line) ? ',' : ' ';
}

static bool ends_value(const text *t, char c)
{
    return c == '\0' || strchr(BLANKS, c) || c == t->separator;
}

/* Reads a number with a decimal comma and returns its end; NULL: it is not a number. */
static const char *read_decimal_comma(const text *t, const char *at, double *x)
{
    char copy[NUMBER], *end;
    size_t n = 0;

    for (; n + 1 < sizeof copy && !ends_value(t, at[n]); n++)
        copy[n] = (char)(at[n] == ',' ? '.' : at[n] == '.' ? ',' : at[n]);
    copy[n] = '\0';
    *x = strtod(copy, &end);
    return *end == '\0' && ends_value(t, at[n]) ? at + n : NULL;
}

/* Reads the value at `at` and returns its end; NULL: it is not a number. */
static const char *text_read_value(text *t, const char *at, double *x)
{
    const char *stop;
    char *end;

    *x = strtod(at, &end);
    if (end == at)
        return NULL;
    if (*end == ',' && isdigit((unsigned char)end[1]) && t->separator != ',' &&
        t->mark != '.') {
        stop = read_decimal_comma(t, at, x);
        t->mark = stop ? ',' : t->mark;
        return stop;
    }
    if (!ends_value(t, *end))
        return NULL;
    if (t->mark != '.' && t->separator != ',' && memchr(at, '.', (size_t)(end - at))) {
        if (t->mark == ',')
            return NULL;
        t->mark = '.';
    }
    return end;
}

/* Passes over any text, in quotes or not, and returns its end. */
static const char *pass_text(const text *t, const char *at)
{
    const char divider[] = {t->separator, t->separator == ' ' ? '\t' : '\0', '\0'};

    while (*at == '"') {
        at += 1 + strcspn(at + 1, "\"");
        at += *at == '"';
    }
    return at + strcspn(at, divider);
}

/* Passes over the blanks after a value, which do not divide columns. */
static const char *pass_blanks(const text *t, const char *at)
{
    return at + strspn(at, t->separator == '\t' ? " " : BLANKS);
}

/* Reads all values of a line to `to` [MAX_COLUMNS]. Returns their number,
 * MAX_COLUMNS + 1 where there are more. *bad becomes the first one that is not a
 * number, NULL if there is none. */
static int read_values(text *t, const char *line, double *to, const char **bad)
{
    const char *at = pass_blanks(t, line);
    bool is_open = false; /* the line ends in a separator */
    int n = 0;

    *bad = NULL;
    t->n_read = 0;
    while (*at || (is_open && n < t->n_listed && t->is_passed[n])) {
        if (n == MAX_COLUMNS)
            return MAX_COLUMNS + 1;
        t->value[n] = at;
        to[n] = 0;
        at = t->is_passed[n] ? pass_text(t, at) : text_read_value(t, at, &to[n]);
        at = at ? pass_blanks(t, at) : NULL;
        if (!at || (*at && t->separator != ' ' && *at != t->separator)) {
            *bad = t->value[n];
            return n;
        }
        t->n_read += !t->is_passed[n++];
        is_open = *at && t->separator != ' ';
        /* The last value may be followed by a separator. */
        if (is_open)
            at = pass_blanks(t, at + 1);
    }
    return n;
}

static sp_status bad_value(const sp_scan *scan, const text *t, const char *value,
                           int column)
{
    const char divider[] = {t->separator, '\0'};
    int n = (int)strcspn(value, t->separator == ' ' ? BLANKS : divider);
    const char *why = t->mark == ',' && memchr(value, '.', (size_t)n)
                          ? ": numbers before it have decimal commas"
                      : t->mark == '.' && memchr(value, ',', (size_t)n)
                          ? ": numbers before it have decimal points"
                          : "";

    return SP_FAIL(SP_EDATA, "%s: line %" PRId64 ": value %d, \"%.*s\", is no number%s",
                   scan->path, scan->lines.number, column + 1, n < 40 ? n : 40, value,
                   *why ? why : "; \"-\" in --columns passes over a column of words");
}

/* ---- names ---- */

/* Reads the line's words as column names. If the line has the values' separator, only
 * that divides words, so that a name may hold blanks. */
static void text_read_names(text *t, const char *line)
{
    bool is_strict = t->separator != ' ' && strchr(line, t->separator);
    const char divider[] = {t->separator, '\0'};
    const char *stop = is_strict ? divider : BLANKS ",;";

    line += strspn(line, BLANKS "#/");
    for (t->n_names = 0; *line && t->n_names < MAX_COLUMNS; t->n_names++) {
        size_t n = strcspn(line, stop), end = n, begin = strspn(line, BLANKS "\"");

        while (end > begin && strchr(BLANKS "\"", line[end - 1]))
            end--;
        begin = begin < end ? begin : end;
        snprintf(t->name[t->n_names], SP_SCAN_NAME, "%.*s",
                 (int)(end - begin < SP_SCAN_NAME ? end - begin : SP_SCAN_NAME - 1),
                 line + begin);
        line += n;
        line += is_strict ? *line != '\0' : strspn(line, stop);
    }
}

/* Counts the axes that the names name, and the names that may be one. */
static int count_axes(const text *t, int *n_likely)
{
    const char *name[MAX_COLUMNS];
    int n = 0;

    *n_likely = 0;
    for (int i = 0; i < t->n_names; i++) {
        name[i] = t->name[i];
        *n_likely += sp_scan_is_axis(name[i]);
    }
    for (int a = 0; a < 3; a++)
        n += sp_scan_find_axis(a, t->n_names, name) >= 0;
    return n;
}

/* ---- the beginning of the file ---- */

/* Does the line of the value `at`, which is no number, hold a point all the same? It
 * begins with a digit then, as 1.#QNAN does, or is a word for a missing value, and a
 * number follows. */
static bool is_damaged_point(text *t, const char *at)
{
    static const char *const missing[] = {"NA", "N/A", "NULL", "None", "?", "-"};
    const char divider[] = {' ', '\t', t->separator, '\0'};
    const size_t n = at ? strcspn(at, divider) : 0;
    bool is_value = at && isdigit((unsigned char)at[strspn(at, "+-")]);
    double x;

    for (size_t i = 0; at && i < sizeof missing / sizeof *missing; i++)
        is_value = is_value ||
                   (strlen(missing[i]) == n && strncasecmp(at, missing[i], n) == 0);
    if (!is_value)
        return false;
    at += n;
    at += strspn(at, divider);
    return *at && text_read_value(t, at, &x);
}

/* Reads the line as the first point, which decides the separator: with columns to pass
 * over, the first one that gives the line the columns of --columns. */
static void read_first(text *t, const char *line, double *number, const char **bad)
{
    static const char others[] = {';', ',', '\t', ' ', '\0'};
    const char by_line = find_separator(line);
    bool has_passed = false;

    t->separator = by_line;
    t->mark = 0;
    t->n_columns = read_values(t, line, number, bad);
    for (int i = 0; i < t->n_listed; i++)
        has_passed = has_passed || t->is_passed[i];
    for (int i = 0; has_passed && others[i]; i++) {
        if (!*bad && t->n_columns == t->n_listed)
            return;
        t->separator = others[i];
        t->mark = 0;
        t->n_columns = read_values(t, line, number, bad);
    }
    if (has_passed && (*bad || t->n_columns != t->n_listed)) {
        t->separator = by_line;
        t->mark = 0;
        t->n_columns = read_values(t, line, number, bad);
    }
}

/* Finds the first point. Comments are skipped, and one first line that begins with a
 * word or holds one number. */
static sp_status find_data(sp_scan *scan, text *t)
{
    double number[MAX_COLUMNS];
    const char *line = NULL, *bad;
    bool is_first = true;

    for (;;) {
        sp_scan_lines_begin(scan);
        SP_TRY(next_line(scan, &line));
        if (!line)
            return SP_FAIL(SP_EDATA, "%s: no line with coordinates", scan->path);
        if (is_comment(line))
            continue;
        read_first(t, line, number, &bad);
        if (!bad && t->n_read >= 3)
            break;
        if (!is_first || t->n_read > 1 || (t->n_read == 1 && bad) ||
            is_damaged_point(t, bad))
            return bad ? bad_value(scan, t, bad, t->n_columns)
                       : SP_FAIL(SP_EDATA,
                                 "%s: line %" PRId64
                                 ": %d number%s, expected 3 or more",
                                 scan->path, scan->lines.number, t->n_read,
                                 sp_plural(t->n_read));
        if (!bad && t->n_read == 1 && t->n_columns == 1 && number[0] >= 0 &&
            number[0] < 0x1p53 && number[0] == floor(number[0]))
            t->n_claimed = (int64_t)number[0];
        is_first = false;
    }
    return t->n_columns <= MAX_COLUMNS
               ? SP_OK
               : SP_FAIL(SP_EDATA, "%s: line %" PRId64 ": more than %d numbers",
                         scan->path, scan->lines.number, MAX_COLUMNS);
}

/* Refuses a line that names columns without saying which are x, y and z. */
static sp_status refuse_names(const sp_scan *scan, const text *t)
{
    char list[160];
    size_t used = 0;

    for (int i = 0; i < t->n_names && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 t->name[i]);
    return SP_FAIL(SP_EUSAGE,
                   "%s: line %" PRId64 " names the columns %s: which are x, y and z? "
                   "Say what they are: --columns x,y,z,... (- for one to pass over)",
                   scan->path, scan->lines.number, list);
}

/* Reads the names in a line before the first point. A comment may mention x, y and z
 * without naming columns, but a first line that names another number of columns is an
 * error, and one with a name for each column must name x, y and z. */
static sp_status text_read_header(sp_scan *scan, text *t, const char *line)
{
    const bool is_divided = t->separator == ' ' || strchr(line, t->separator) != NULL;
    const bool is_first = !is_comment(line);
    int n_axes, n_likely;

    text_read_names(t, line);
    n_axes = count_axes(t, &n_likely);
    if (t->n_names == t->n_columns && n_axes == 3)
        return SP_OK;
    if (t->n_names == t->n_columns && ((is_first && is_divided) || n_likely >= 2))
        return refuse_names(scan, t);
    if (n_axes == 3 && is_first)
        return SP_FAIL(SP_EDATA,
                       "%s: line %" PRId64 " names %d columns, line %" PRId64
                       " has %d numbers",
                       scan->path, scan->lines.number, t->n_names,
                       scan->lines.begin_number + 1, t->n_columns);
    t->n_names = 0;
    return SP_OK;
}

/* Searches the lines before the first point for names. */
static sp_status find_names(sp_scan *scan, text *t)
{
    const char *line = NULL;

    SP_TRY(sp_scan_lines_seek(scan, 0, 0));
    while (t->n_names == 0 && scan->lines.number < scan->lines.begin_number) {
        SP_TRY(next_line(scan, &line));
        if (!line)
            break;
        SP_TRY(text_read_header(scan, t, line));
    }
    return SP_OK;
}

/* Notes which columns --columns passes over, so that they may hold any text. */
static void text_list_columns(const sp_scan *scan, text *t)
{
    const char *at = scan->options.columns;

    t->n_claimed = -1;
    for (int i = 0; at && i < MAX_COLUMNS; i++) {
        const char *end = at + strcspn(at, ",");

        at += strspn(at, " ");
        t->is_passed[i] = at >= end || ((*at == '-' || *at == '_') &&
                                        at + 1 + strspn(at + 1, " ") == end);
        t->n_listed = i + 1;
        at = *end ? end + 1 : NULL;
    }
    for (int i = t->n_listed; t->n_listed > 0 && i < MAX_COLUMNS; i++)
        t->is_passed[i] = true;
}

static sp_status text_name_columns(sp_scan *scan, text *t)
{
    for (int i = 0; i < t->n_columns; i++)
        SP_TRY(sp_scan_add(
            scan, "",
            (sp_scan_field){.at = 8 * i, .kind = 'f', .size = 8, .scale = 1}));
    if (scan->options.columns)
        return sp_scan_name_columns(scan);
    SP_TRY(find_names(scan, t));
    for (int i = 0; i < t->n_names; i++)
        if (strcmp(t->name[i], "-") != 0 && strcmp(t->name[i], "_") != 0)
            memcpy(scan->field[i].name, t->name[i], SP_SCAN_NAME);
    return t->n_names > 0 ? SP_OK : sp_scan_name_columns(scan);
}

static sp_status text_open(sp_scan *scan)
{
    text *t = scan->own;

    SP_TRY(sp_scan_lines_open(scan));
    text_list_columns(scan, t);
    SP_TRY(find_data(scan, t));
    SP_TRY(text_name_columns(scan, t));
    scan->record_bytes = 8 * t->n_columns;
    scan->n_points = -1;
    return sp_scan_lines_rewind(scan);
}

/* True for a whole number that is not the double x, as those above 2^53 may be. A
 * number with a point or an exponent is a measured one, which is rounded anyhow. */
static bool is_other_whole(const text *t, const char *number, double x)
{
    char word[320]; /* a double has at most 309 digits before its point */
    const char *digits = number + strspn(number, "+-");
    const size_t n = strspn(digits, "0123456789"), zeros = strspn(digits, "0");

    if (!ends_value(t, digits[n]) || !isfinite(x))
        return false;
    snprintf(word, sizeof word, "%.0f", fabs(x));
    return strlen(word) != n - zeros || memcmp(word, digits + zeros, n - zeros) != 0;
}

/* Refuses whole numbers that a copy would have rounded, as long identifiers may be.
 * Columns without a name are not copied. x [n]: the numbers of the line. */
static sp_status check_whole(const sp_scan *scan, const text *t, int n, const double *x)
{
    for (int i = 0; i < n; i++)
        if (fabs(x[i]) >= 0x1p53 && scan->field[i].name[0] &&
            is_other_whole(t, t->value[i], x[i]))
            return SP_FAIL(SP_EDATA,
                           "%s: line %" PRId64 ": value %d, %s = %.*s, would be "
                           "rounded to %.0f: leave it out by \"-\" in --columns",
                           scan->path, scan->lines.number, i + 1, scan->field[i].name,
                           (int)strspn(t->value[i], "+-0123456789"), t->value[i], x[i]);
    return SP_OK;
}

/* Remarks that the first line counted other points than the n that the file has. */
static void note_count(sp_scan *scan, const text *t, int64_t n)
{
    if (t->n_claimed >= 0 && t->n_claimed != n)
        sp_scan_keep_note(scan, SP_SCAN_NOTE_COUNT,
                          "%s: its first line counts %" PRId64
                          " points, but it has %" PRId64
                          "; all of these are read, and if it is a broken copy, "
                          "some are missing",
                          scan->path, t->n_claimed, n);
}

static sp_status fill_text(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    text *t = scan->own;
    double number[MAX_COLUMNS];

    for (*n = 0; *n < max;) {
        const char *line = NULL, *bad;
        int found;

        SP_TRY(next_line(scan, &line));
        if (!line) {
            note_count(scan, t, scan->row + *n);
            break;
        }
        if (is_comment(line))
            continue;
        found = read_values(t, line, number, &bad);
        if (bad)
            return bad_value(scan, t, bad, found);
        if (found != t->n_columns)
            return SP_FAIL(SP_EDATA, "%s: line %" PRId64 ": %d number%s, expected %d",
                           scan->path, scan->lines.number, found, sp_plural(found),
                           t->n_columns);
        if (scan->is_copied)
            SP_TRY(check_whole(scan, t, found, number));
        for (int i = 0; i < found; i++, to += 8)
            sp_put_double(to, number[i]);
        ++*n;
    }
    return SP_OK;
}

/* ---- writing ---- */

/* Writes a number with the fewest of 6, 9, 15 or 17 digits that read back as it, a
 * whole one with all its digits: readers of integers know no exponent. */
static void put_real(FILE *to, double x, bool is_float32)
{
    static const int digits[] = {6, 9, 15, 17};
    char word[32];

    if (x == floor(x) && fabs(x) < 1e15) {
        fprintf(to, "%.0f", x);
        return;
    }
    for (int i = 0; i < 4; i++) {
        double back;

        snprintf(word, sizeof word, "%.*g", digits[i], x);
        back = strtod(word, NULL);
        if (back == x || (is_float32 && (float)back == (float)x))
            break;
    }
    fputs(word, to);
}

static void text_put_number(FILE *to, double x, char kind, int size, char after)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    if (kind == 'f')
        put_real(to, x, size == 4);
    else if (size == 8 && kind == 'u')
        fprintf(to, "%" PRIu64, bits);
    else if (size == 8)
        fprintf(to, "%" PRId64, (int64_t)bits);
    else
        fprintf(to, "%.0f", x);
    putc(after, to);
}

/* Names may not hold what divides columns. */
static void put_column(FILE *to, const char *name)
{
    char word[SP_SCAN_NAME];

    snprintf(word, sizeof word, "%s", name);
    for (char *c = word; *c; c++)
        if (strchr(",;\"", *c))
            *c = '_';
    putc(' ', to);
    sp_scan_put_name(to, word);
}

static void put_names(const sp_scan_writing *w)
{
    fputs("x y z", w->to);
    for (int i = 0; i < w->columns.n; i++)
        put_column(w->to, w->columns.name[i]);
    for (int i = 0; i < w->labels->n_added; i++)
        put_column(w->to, w->labels->added[i].name);
    fputs(" label\n", w->to);
}

const sp_scan_format sp_scan_text = {
    .name = "text",
    .endings = ".txt .xyz .xyzi .pts .csv .asc .tsv "
               ".dat .xyzrgb .xyzl",
    .help = "columns of text",
    .own_bytes = sizeof(text),
    .open = text_open,
    .fill = fill_text,
    .rewind = sp_scan_lines_rewind,
    .write = sp_scan_write_file,
    .put_head = put_names,
    .put_number = text_put_number,
    .written = ".txt",
    .written_help =
        "columns of text: x, y, z, the attributes of any scan, and label; -1: no class",
    .no_class = SP_SCAN_NO_CLASS};
