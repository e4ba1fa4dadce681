#include "deck/sp_deck_text.h"
#include "base/sp_list.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Limits of a deck with its includes. Without the limit on files, a file that includes
 * itself twice would be read a thousand times within ten levels. */
enum { MAX_INCLUDES = 10, MAX_FILES = 200, MAX_DECK_BYTES = 16 << 20 };

typedef struct scanner {
    sp_deck_text *to;
    FILE *out, *shown; /* the streams of to->text and to->shown */
    int file, line;    /* position of the character that is being read */
    int depth;
    size_t bytes; /* bytes of all files so far */
    bool may_include;
    bool is_short_of_memory;
} scanner;

static sp_status scan_file(scanner *x, const char *path, const char *from);

static void begin_line(scanner *x)
{
    sp_deck_text *t = x->to;

    if (sp_list_grow(&t->line, t->n_lines, sizeof *t->line))
        t->line[t->n_lines++] = (sp_deck_line){x->file, x->line};
    else
        x->is_short_of_memory = true;
}

/* Writes a character of the deck, and the one that libconfig reads in its place. */
static void deck_put(scanner *x, int written, int read)
{
    putc(read, x->out);
    putc(written, x->shown);
}

static void deck_emit(scanner *x, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        deck_put(x, s[i], s[i]);
        if (s[i] == '\n') {
            x->line++;
            begin_line(x);
        }
    }
}

static sp_status deck_add_file(scanner *x, const char *name)
{
    sp_deck_text *t = x->to;

    if (!sp_list_grow(&t->file, t->n_files, sizeof *t->file) ||
        !(t->file[t->n_files] = strdup(name)))
        return SP_FAIL(SP_EMEM, "%s: out of memory", name);
    x->file = t->n_files++;
    x->line = 1;
    return SP_OK;
}

/* Returns the length of the string, comment or name that begins at s; 0 if nothing of
 * the kind begins there. */
static size_t skip_length(const char *s)
{
    const char *p = s;

    if (*p == '"') {
        for (p++; *p && *p != '"'; p++)
            p += *p == '\\' && p[1];
        return (size_t)(p - s) + (*p == '"');
    }
    if (*p == '#' || (*p == '/' && p[1] == '/'))
        return strcspn(p, "\n");
    if (*p == '/' && p[1] == '*') {
        p = strstr(p + 2, "*/");
        return p ? (size_t)(p - s) + 2 : strlen(s);
    }
    if (isalpha((unsigned char)*p) || *p == '*' || *p == '_')
        while (isalnum((unsigned char)*p) || (*p && strchr("*_-", *p)))
            p++;
    return (size_t)(p - s);
}

/* True if a comment of n bytes begins at s and its end is missing: libconfig would take
 * the rest of the deck for it. */
static bool is_open_comment(const char *s, size_t n)
{
    return strncmp(s, "/*", 2) == 0 && (n < 4 || strncmp(s + n - 2, "*/", 2) != 0);
}

/* Copies the number at *s; an integer gets the suffix that makes libconfig keep 64
 * bits. */
static sp_status scan_number(scanner *x, const char **s)
{
    const char *p = *s + (**s == '-' || **s == '+');
    bool is_hex = p[0] == '0' && (p[1] == 'x' || p[1] == 'X');
    bool is_integer = true;
    size_t n;

    for (p += is_hex ? 2 : 0; isalnum((unsigned char)*p) || *p == '.'; p++) {
        is_integer = is_integer && (is_hex || isdigit((unsigned char)*p) || *p == 'L');
        if (!is_hex && (*p == 'e' || *p == 'E') && (p[1] == '-' || p[1] == '+'))
            p++;
    }
    n = (size_t)(p - *s);
    deck_emit(x, *s, n);
    errno = 0;
    if (is_integer && strtoll(*s, NULL, is_hex ? 16 : 10) && errno == ERANGE)
        return SP_FAIL(SP_EUSAGE, "%s:%d: the integer %.*s is beyond 64 bits",
                       x->to->file[x->file], x->line, (int)n, *s);
    if (is_integer && p[-1] != 'L')
        putc('L', x->out);
    *s = p;
    return SP_OK;
}

/* Reads the file of an @include "path" at *s. */
static sp_status scan_include(scanner *x, const char **s)
{
    const char *p = *s + strlen("@include");
    char path[PATH_MAX], place[PATH_MAX + 32];
    int file = x->file, line = x->line;
    const char *slash;
    size_t n;

    p += strspn(p, " \t");
    n = *p == '"' ? strcspn(p + 1, "\"\n") : 0;
    snprintf(place, sizeof place, "%s:%d: ", x->to->file[file], line);
    if (!x->may_include)
        return SP_FAIL(SP_EDATA, "%s@include in a text that is not a deck file", place);
    if (*p != '"' || p[n + 1] != '"')
        return SP_FAIL(SP_EUSAGE, "%s@include takes a file name in quotation marks",
                       place);
    if (x->depth >= MAX_INCLUDES)
        return SP_FAIL(SP_EUSAGE, "%sincludes nested deeper than %d", place,
                       MAX_INCLUDES);
    slash = strrchr(x->to->file[file], '/');
    if (p[1] == '/')
        slash = NULL;
    snprintf(path, sizeof path, "%.*s%.*s",
             slash ? (int)(slash + 1 - x->to->file[file]) : 0, x->to->file[file],
             (int)n, p + 1);
    if (x->to->n_files >= MAX_FILES)
        return SP_FAIL(SP_EUSAGE, "%smore than %d files are included", place,
                       MAX_FILES);
    SP_TRY(scan_file(x, path, place));
    x->file = file;
    x->line = line;
    deck_put(x, '\n', '\n');
    begin_line(x);
    *s = p + n + 2;
    return SP_OK;
}

static sp_status deck_scan(scanner *x, const char *s)
{
    bool is_line_start = true;
    size_t n;

    begin_line(x);
    while (*s) {
        bool is_sign =
            (*s == '-' || *s == '+') && (isdigit((unsigned char)s[1]) || s[1] == '.');

        if ((n = skip_length(s)) > 0) {
            if (is_open_comment(s, n))
                return SP_FAIL(SP_EUSAGE,
                               "%s:%d: the comment /* has no end, expected */",
                               x->to->file[x->file], x->line);
            deck_emit(x, s, n);
            /* libconfig expects a newline after a comment, at the end of a file too. */
            if (!s[n] && strchr("#/", *s)) {
                deck_put(x, '\n', '\n');
                begin_line(x);
            }
            s += n;
        } else if (is_line_start && !strncmp(s, "@include", 8)) {
            SP_TRY(scan_include(x, &s));
        } else if (isdigit((unsigned char)*s) || *s == '.' || is_sign) {
            SP_TRY(scan_number(x, &s));
        } else {
            if (*s != '[' && *s != ']')
                deck_emit(x, s, 1);
            else
                deck_put(x, *s, *s == '[' ? '(' : ')');
            is_line_start = *s == '\n' || (is_line_start && isspace((unsigned char)*s));
            s++;
            continue;
        }
        is_line_start = false;
    }
    if (x->is_short_of_memory)
        return SP_FAIL(SP_EMEM, "%s: out of memory", x->to->file[x->file]);
    return SP_OK;
}

/* Opens a deck. O_NONBLOCK, which changes nothing for a regular file, keeps the call
 * from waiting for a FIFO's writer. */
static sp_status open_deck(const char *path, const char *from, FILE **in)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat about = {0};

    *in = NULL;
    if (fd < 0)
        return SP_FAIL(SP_EUSAGE, "%scannot read the deck %s: %s", from, path,
                       strerror(errno));
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
        about.st_size <= MAX_DECK_BYTES && (*in = fdopen(fd, "r")))
        return SP_OK;
    close(fd);
    if (about.st_size > MAX_DECK_BYTES)
        return SP_FAIL(SP_EUSAGE, "%s%s is no deck: larger than 16 MiB", from, path);
    return SP_FAIL(
        SP_EUSAGE, "%s%s is %s", from, path,
        S_ISDIR(about.st_mode)
            ? "a folder, expected a deck; a run folder's deck is its deck.resolved"
            : "no regular file");
}

/* Reads a whole file and appends a NUL; messages begin with `from`. */
static sp_status deck_read_text(const char *path, const char *from, char **text)
{
    size_t room = 0;
    ssize_t n;
    int error;
    FILE *in;

    *text = NULL;
    SP_TRY(open_deck(path, from, &in));
    n = getdelim(text, &room, '\0', in);
    error = n < 0 && !feof(in) ? errno : 0;
    fclose(in);
    if (n < 0 && !error) { /* an empty file */
        free(*text);
        *text = strdup("");
        error = *text ? 0 : ENOMEM;
    }
    if (error)
        return SP_FAIL(error == ENOMEM ? SP_EMEM : SP_EUSAGE,
                       "%scannot read the deck %s: %s", from, path, strerror(error));
    if (n > 0 && (*text)[n - 1] == '\0')
        return SP_FAIL(SP_EUSAGE, "%s%s is no deck: it is a binary file", from, path);
    return SP_OK;
}

static sp_status scan_file(scanner *x, const char *path, const char *from)
{
    SP_FREED char *text = NULL;

    SP_TRY(deck_read_text(path, from, &text));
    x->bytes += strlen(text);
    if (x->bytes > MAX_DECK_BYTES)
        return SP_FAIL(SP_EUSAGE, "%sfiles of more than 16 MiB together", from);
    SP_TRY(deck_add_file(x, path));
    if (x->depth++)
        deck_put(x, '\n', '\n'); /* an included file begins on a line of its own */
    /* Some editors begin a file with a byte order mark. */
    SP_TRY(deck_scan(x, text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0)));
    x->depth--;
    return SP_OK;
}

static sp_status deck_open_text(scanner *x, sp_deck_text *text, size_t size[2])
{
    *text = (sp_deck_text){0};
    *x = (scanner){.to = text};
    x->out = open_memstream(&text->text, &size[0]);
    if (!x->out)
        return SP_FAIL(SP_EMEM, "deck: out of memory");
    x->shown = open_memstream(&text->shown, &size[1]);
    if (x->shown)
        return SP_OK;
    fclose(x->out);
    return SP_FAIL(SP_EMEM, "deck: out of memory");
}

static sp_status close_text(scanner *x, sp_status rc)
{
    const int n_failed = (fclose(x->out) != 0) + (fclose(x->shown) != 0);

    if (n_failed > 0 && rc == SP_OK)
        return SP_FAIL(SP_EMEM, "deck: out of memory");
    return rc;
}

sp_status sp_deck_text_file(sp_deck_text *text, const char *path)
{
    scanner x;
    size_t size[2];

    assert(text && path);
    SP_TRY(deck_open_text(&x, text, size));
    x.may_include = true;
    return close_text(&x, scan_file(&x, path, ""));
}

sp_status sp_deck_text_string(sp_deck_text *text, const char *string, const char *name)
{
    scanner x;
    size_t size[2];
    sp_status rc;

    assert(string && name);
    SP_TRY(deck_open_text(&x, text, size));
    rc = deck_add_file(&x, name);
    x.depth = 1;
    if (rc == SP_OK)
        rc = deck_scan(&x, string);
    return close_text(&x, rc);
}

void sp_deck_text_destroy(sp_deck_text *text)
{
    for (int i = 0; i < text->n_files; i++)
        free(text->file[i]);
    free(text->file);
    free(text->line);
    free(text->text);
    free(text->shown);
    *text = (sp_deck_text){0};
}

const char *sp_deck_text_place(const sp_deck_text *text, int line, int *line_in_file)
{
    const sp_deck_line *at;

    assert(line_in_file);
    if (line > text->n_lines)
        line = text->n_lines;
    at = &text->line[line > 0 ? line - 1 : 0];
    *line_in_file = at->line;
    return text->file[at->file];
}
