/* PLY: ascii, and binary of both byte orders. The points are the rows of the element
 * "vertex", or of the only element that has coordinates if it has another name; its
 * list properties and the elements before it are skipped. Binary points without lists
 * are read in place; all others go through a stream (sp_scan_ply_lists). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

enum { MAX_ELEMENTS = 16, MAX_PROPERTIES = 512 };

typedef struct ply_type {
    char kind;
    int size;
} ply_type;

typedef struct property {
    ply_type count, value; /* count.size 0: the property is not a list */
    char name[SP_SCAN_NAME];
} property;

typedef struct element {
    char name[SP_SCAN_NAME];
    int64_t count;
    int first, n; /* first property; number of properties */
} element;

/* The header. */
typedef struct ply {
    bool has_format, is_ascii, is_big;
    int n_elements, n_properties;
    element element[MAX_ELEMENTS];
    property property[MAX_PROPERTIES];
    int vertex; /* number of the element that has the points */
    int64_t header_bytes;
} ply;

/* The first N_WRITTEN are written, the others only read: PLY's other names, and types
 * that it lacks, but other programs write. */
static const struct {
    const char *name;
    ply_type type;
} types[] = {{"double", {'f', 8}},  {"float", {'f', 4}},    {"char", {'i', 1}},
             {"uchar", {'u', 1}},   {"short", {'i', 2}},    {"ushort", {'u', 2}},
             {"int", {'i', 4}},     {"uint", {'u', 4}},     {"float64", {'f', 8}},
             {"float32", {'f', 4}}, {"int8", {'i', 1}},     {"uint8", {'u', 1}},
             {"int16", {'i', 2}},   {"uint16", {'u', 2}},   {"int32", {'i', 4}},
             {"uint32", {'u', 4}},  {"int64", {'i', 8}},    {"uint64", {'u', 8}},
             {"long", {'i', 8}},    {"ulong", {'u', 8}},    {"half", {'f', 2}},
             {"float16", {'f', 2}}, {"longlong", {'i', 8}}, {"bool", {'u', 1}}};
enum { N_WRITTEN = 8 };

static bool find_type(const char *name, ply_type *type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0) {
            *type = types[i].type;
            return true;
        }
    return false;
}

/* The name of a type. Integers of 8 bytes, which PLY lacks, are written as double. */
static const char *type_name(char kind, int size)
{
    int i = N_WRITTEN - 1;

    while (i > 0 && (types[i].type.kind != kind || types[i].type.size != size))
        i--;
    return types[i].name;
}

/* ---- header ---- */
static sp_status add_element(sp_scan *scan, ply *p, const char *line)
{
    element *e = &p->element[p->n_elements];

    if (p->n_elements == MAX_ELEMENTS)
        return SP_FAIL(SP_EDATA, "%s: more than %d elements", scan->path, MAX_ELEMENTS);
    if (sscanf(line, "element %63s %" SCNd64, e->name, &e->count) != 2 || e->count < 0)
        return SP_FAIL(SP_EDATA, "%s: header line \"%s\", expected element NAME COUNT",
                       scan->path, line);
    e->first = p->n_properties;
    if (strcmp(e->name, "vertex") == 0 && p->vertex >= 0)
        return SP_FAIL(SP_EDATA, "%s: two elements vertex, expected one", scan->path);
    if (strcmp(e->name, "vertex") == 0)
        p->vertex = p->n_elements;
    e->n = 0;
    p->n_elements++;
    return SP_OK;
}

static sp_status add_property(sp_scan *scan, ply *p, const char *line)
{
    char name[SP_SCAN_NAME], value[16], count[16];
    property *to = &p->property[p->n_properties];
    bool is_list =
        sscanf(line, "property list %15s %15s %63s", count, value, name) == 3;

    if (p->n_elements == 0 || p->n_properties == MAX_PROPERTIES)
        return SP_FAIL(SP_EDATA, "%s: header line \"%s\": %s", scan->path, line,
                       p->n_elements ? "too many properties" : "no element before it");
    if (!is_list && sscanf(line, "property %15s %63s", value, name) != 2)
        return SP_FAIL(SP_EDATA, "%s: header line \"%s\", expected property TYPE NAME",
                       scan->path, line);
    if (!find_type(value, &to->value) || (is_list && !find_type(count, &to->count)))
        return SP_FAIL(SP_EDATA,
                       "%s: header line \"%s\": unknown type %s, expected char, uchar, "
                       "short, ushort, int, uint, int64, uint64, float or double",
                       scan->path, line, find_type(value, &to->value) ? count : value);
    snprintf(to->name, sizeof to->name, "%s", name);
    p->n_properties++;
    p->element[p->n_elements - 1].n++;
    return SP_OK;
}

/* Does the element have x, y and z that are no lists? */
static bool has_axes(const ply *p, const element *e)
{
    const char *name[MAX_PROPERTIES];
    int n = 0, axes = 0;

    for (int i = e->first; i < e->first + e->n; i++)
        if (!p->property[i].count.size)
            name[n++] = p->property[i].name;
    for (int a = 0; a < 3; a++)
        axes += sp_scan_find_axis(a, n, name) >= 0;
    return axes == 3;
}

/* Finds the element of the points: "vertex", else the one that has coordinates. */
static sp_status choose_vertex(const sp_scan *scan, ply *p)
{
    for (int i = 0, is_named = p->vertex >= 0; i < p->n_elements && !is_named; i++) {
        if (!has_axes(p, &p->element[i]))
            continue;
        if (p->vertex >= 0)
            return SP_FAIL(SP_EDATA,
                           "%s: the elements %s and %s have coordinates, expected one "
                           "that is named vertex",
                           scan->path, p->element[p->vertex].name, p->element[i].name);
        p->vertex = i;
    }
    return p->vertex >= 0 ? SP_OK
                          : SP_FAIL(SP_EDATA,
                                    "%s: PLY header without element vertex, or another "
                                    "one that has x, y and z",
                                    scan->path);
}

static sp_status ply_parse_line(sp_scan *scan, ply *p, const char *line, bool *is_end)
{
    char format[32];

    if (strncmp(line, "element ", 8) == 0)
        return add_element(scan, p, line);
    if (strncmp(line, "property ", 9) == 0)
        return add_property(scan, p, line);
    if (strcmp(line, "end_header") == 0) {
        *is_end = true;
        return SP_OK;
    }
    if (sscanf(line, "format %31s", format) == 1 && !p->has_format) {
        p->has_format = true;
        p->is_ascii = strcmp(format, "ascii") == 0;
        p->is_big = strcmp(format, "binary_big_endian") == 0;
        if (!p->is_ascii && !p->is_big && strcmp(format, "binary_little_endian") != 0)
            return SP_FAIL(SP_EDATA, "%s: PLY format %s, expected ascii or binary",
                           scan->path, format);
        snprintf(scan->title, sizeof scan->title, "PLY %s", format);
        return SP_OK;
    }
    if (strcmp(line, "ply") == 0 || strncmp(line, "comment", 7) == 0 ||
        strncmp(line, "obj_info", 8) == 0 || *line == '\0')
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s: header line \"%.60s\" is not a line of PLY",
                   scan->path, line);
}

/* Brings a header line to words with one blank between them. */
static void trim_line(char *line)
{
    char *to = line;

    for (const char *at = line + strspn(line, " \t"); *at;) {
        const size_t n = strcspn(at, " \t");

        if (to > line)
            *to++ = ' ';
        memmove(to, at, n);
        to += n;
        at += n + strspn(at + n, " \t");
    }
    *to = '\0';
}

static sp_status ply_read_header(sp_scan *scan, ply *p)
{
    bool is_end = false, got;

    p->vertex = -1;
    while (!is_end) {
        char *line;

        SP_TRY(sp_scan_lines_next(scan, &got));
        if (!got || ftello(scan->lines.stream) > 1 << 20)
            return SP_FAIL(SP_EDATA, "%s: PLY header without end_header", scan->path);
        line = scan->lines.line;
        trim_line(line);
        SP_TRY(ply_parse_line(scan, p, line, &is_end));
    }
    p->header_bytes = ftello(scan->lines.stream);
    if (!p->has_format)
        return SP_FAIL(SP_EDATA, "%s: PLY header without format", scan->path);
    SP_TRY(choose_vertex(scan, p));
    scan->n_points = p->element[p->vertex].count;
    return SP_OK;
}

/* Adds the fields of the vertex: in ascii files they have eight bytes each, in binary
 * ones they are as in the file without the lists. */
static sp_status ply_add_fields(sp_scan *scan, const ply *p)
{
    const element *v = &p->element[p->vertex];
    for (int i = v->first; i < v->first + v->n; i++) {
        const ply_type type = p->property[i].value;
        const sp_scan_field f = {.at = scan->record_bytes,
                                 .kind = type.kind,
                                 .size = p->is_ascii ? 8 : type.size,
                                 .scale = 1,
                                 .copy_kind = type.kind,
                                 .copy_size = type.size > 2      ? type.size
                                              : type.kind == 'f' ? 4
                                                                 : type.size,
                                 .is_big = p->is_big};

        if (p->property[i].count.size)
            continue;
        SP_TRY(sp_scan_add(scan, p->property[i].name, f));
        scan->record_bytes += f.size;
    }
    return SP_OK;
}

/* Bytes of an element's row in the file. For rows with lists and for ascii it is the
 * least possible: an empty list, a digit and a blank for each number. */
static int64_t least_bytes(const ply *p, const element *e, bool *has_lists)
{
    int64_t bytes = 0;

    *has_lists = false;
    for (int i = e->first; i < e->first + e->n; i++) {
        const property *f = &p->property[i];

        *has_lists = *has_lists || f->count.size;
        bytes += p->is_ascii ? 2 : f->count.size ? f->count.size : f->value.size;
    }
    return bytes;
}

/* ---- the stream: ascii, and binary with lists ---- */
static sp_status ends_early(const sp_scan *scan, const ply *p, const element *e,
                            int64_t row)
{
    char where[64] = "";

    if (p->is_ascii)
        snprintf(where, sizeof where, ", line %" PRId64, scan->lines.number);
    return SP_FAIL(SP_EDATA, "%s: truncated: ends in %s %" PRId64 " of %" PRId64 "%s",
                   scan->path, e->name, row, e->count, where);
}

static bool read_raw(const sp_scan *scan, ply_type type, unsigned char *to)
{
    return fread(to, (size_t)type.size, 1, scan->lines.stream) == 1;
}

/* The length of a list; -1 if it is not a valid count. */
static int64_t list_length(const ply *p, ply_type type, const unsigned char *raw)
{
    const uint64_t n = sp_scan_bits(raw, type.size, p->is_big);

    if (type.kind == 'f' || (type.kind == 'i' && n >> (8 * type.size - 1)))
        return -1;
    return n <= INT32_MAX ? (int64_t)n : -1; /* no file has such a list */
}

/* Skips a list. The file's size is checked, because seeking beyond the end would
 * succeed. */
static bool skip(const sp_scan *scan, int64_t bytes)
{
    unsigned char passed[256];

    if (bytes > (int64_t)sizeof passed)
        return bytes <= scan->file_bytes - ftello(scan->lines.stream) &&
               fseeko(scan->lines.stream, bytes, SEEK_CUR) == 0;
    return fread(passed, 1, (size_t)bytes, scan->lines.stream) == (size_t)bytes;
}

static bool binary_row(const sp_scan *scan, const ply *p, const element *e,
                       unsigned char *to)
{
    unsigned char raw[8];

    for (int i = e->first; i < e->first + e->n; i++) {
        const property *f = &p->property[i];
        int64_t n;

        if (!f->count.size) {
            if (!read_raw(scan, f->value, to ? to : raw))
                return false;
            to = to ? to + f->value.size : NULL;
            continue;
        }
        if (!read_raw(scan, f->count, raw) || (n = list_length(p, f->count, raw)) < 0 ||
            !skip(scan, n * f->value.size))
            return false;
    }
    return true;
}

/* Skips the numbers of a list, after its length, which is at `length`. */
static bool pass_list(const char **at, ply_type type, const unsigned char *length)
{
    const double x = sp_get_double(length);
    int64_t n = (int64_t)sp_get64(length);

    if (type.kind == 'f')
        n = x >= 0 && x <= INT32_MAX ? (int64_t)x : -1;
    if (n < 0 || n > INT32_MAX)
        return false;
    for (; n > 0; n--) {
        char *end;

        if (strtod(*at, &end), end == *at)
            return false;
        *at = end;
    }
    return true;
}

/* Reads the numbers of a line. *rest becomes the text after them; if they do not fit
 * the properties, the first that does not, which is returned, begins there. */
static const property *ascii_numbers(const sp_scan *scan, const element *e,
                                     unsigned char *to, const char **rest)
{
    const ply *p = scan->own;
    const char *at = scan->lines.line;

    for (int i = e->first; i < e->first + e->n; i++) {
        const property *f = &p->property[i];
        const bool is_list = f->count.size;
        const ply_type type = is_list ? f->count : f->value;
        unsigned char length[8];

        at += strspn(at, " \t");
        *rest = at;
        at = sp_scan_number(at, type.kind, type.size, is_list ? length : to);
        if (!at)
            return f;
        if (!is_list) {
            to += 8;
        } else if (!pass_list(&at, type, length)) {
            *rest = "";
            return f;
        }
    }
    *rest = at + strspn(at, " \t");
    return NULL;
}

/* Reads the next line that is not empty, and its numbers where `to` is not NULL. */
static sp_status ascii_row(sp_scan *scan, const ply *p, const element *e, int64_t row,
                           unsigned char *to)
{
    const property *misfit = NULL;
    const char *rest = "";
    bool got;

    do {
        SP_TRY(sp_scan_lines_next(scan, &got));
        if (!got)
            return ends_early(scan, p, e, row);
    } while (scan->lines.line[strspn(scan->lines.line, " \t")] == '\0');
    if (to)
        misfit = ascii_numbers(scan, e, to, &rest);
    if (misfit && *rest == '\0')
        return ends_early(scan, p, e, row);
    if (misfit)
        return SP_FAIL(SP_EDATA,
                       "%s: line %" PRId64 ": \"%.40s\", expected a number of the type "
                       "that the header gives it, %s",
                       scan->path, scan->lines.number, rest,
                       type_name(misfit->value.kind, misfit->value.size));
    if (*rest)
        return SP_FAIL(SP_EDATA,
                       "%s: line %" PRId64 ": \"%.40s\" follows the numbers that the "
                       "header names",
                       scan->path, scan->lines.number, rest);
    return SP_OK;
}

static sp_status next_row(sp_scan *scan, const ply *p, const element *e, int64_t row,
                          unsigned char *to)
{
    if (p->is_ascii)
        return ascii_row(scan, p, e, row, to);
    return binary_row(scan, p, e, to) ? SP_OK : ends_early(scan, p, e, row);
}

/* Skips the elements before the vertex, which follow the header. The stream is there.
 * An element without properties has no lines. */
static sp_status find_vertex(sp_scan *scan, const ply *p)
{
    for (int i = 0; i < p->vertex; i++)
        for (int64_t row = 0; p->element[i].n > 0 && row < p->element[i].count; row++)
            SP_TRY(next_row(scan, p, &p->element[i], row, NULL));
    sp_scan_lines_begin(scan);
    return SP_OK;
}

static sp_status fill_ply(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    const ply *p = scan->own;

    (void)n;
    for (int64_t i = 0; i < max; i++, to += scan->record_bytes)
        SP_TRY(next_row(scan, p, &p->element[p->vertex], scan->row + i, to));
    return SP_OK;
}

/* Checks the count of each element up to the vertex against the file's size. */
static sp_status check_counts(sp_scan *scan, const ply *p, bool *has_lists)
{
    int64_t at = p->header_bytes;

    *has_lists = false;
    for (int i = 0; i <= p->vertex; i++) {
        const element *e = &p->element[i];
        bool lists;
        int64_t least = least_bytes(p, e, &lists);

        /* The last number of an ascii file needs no blank after it. */
        SP_TRY(sp_scan_check_size(scan, e->count, least, at - p->is_ascii));
        *has_lists = *has_lists || lists;
        if (i == p->vertex)
            break;
        at += least * e->count; /* elements without properties have no bytes */
    }
    scan->data_at = at;
    return SP_OK;
}

static sp_status open_ply(sp_scan *scan)
{
    ply *p = scan->own;
    bool has_lists;

    SP_TRY(sp_scan_lines_open(scan));
    SP_TRY(ply_read_header(scan, p));
    SP_TRY(ply_add_fields(scan, p));
    SP_TRY(check_counts(scan, p, &has_lists));
    if (!p->is_ascii && !has_lists)
        return SP_OK;
    scan->format = &sp_scan_ply_lists;
    return find_vertex(scan, p);
}

/* ---- writing ---- */

/* Writes a number in the type that the header announces. */
static void ply_put_number(FILE *to, double x, char kind, int size, char after)
{
    uint64_t bits;
    float f = (float)x;
    uint32_t low;

    (void)after; /* nothing divides binary numbers */
    memcpy(&bits, &x, sizeof bits);
    if (kind == 'f' && size == 4) {
        memcpy(&low, &f, sizeof low);
        bits = low;
    } else if (kind != 'f' && size == 8) { /* PLY has no such integers */
        x = kind == 'u' ? (double)bits : (double)(int64_t)bits;
        memcpy(&bits, &x, sizeof bits);
    } else if (kind != 'f') {
        bits = (uint64_t)(int64_t)x;
    }
    sp_scan_put(to, bits, size);
}

static void put_header(const sp_scan_writing *w)
{
    const sp_scan_columns *c = &w->columns;

    fprintf(w->to,
            "ply\nformat binary_little_endian 1.0\nelement vertex %" PRId64
            "\nproperty double x\nproperty double y\nproperty double z\n",
            w->labels->n);
    for (int i = 0; i < c->n; i++) {
        fprintf(w->to, "property %s ", type_name(c->kind[i], c->size[i]));
        sp_scan_put_name(w->to, c->name[i]);
        putc('\n', w->to);
    }
    for (int i = 0; i < w->labels->n_added; i++) {
        fputs("property float ", w->to);
        sp_scan_put_name(w->to, w->labels->added[i].name);
        putc('\n', w->to);
    }
    fputs("property int label\nend_header\n", w->to);
}

static bool is_ply(const unsigned char *head)
{
    return memcmp(head, "ply", 3) == 0 && head[3] && strchr("\n\r \t", head[3]);
}

const sp_scan_format sp_scan_ply = {
    .name = "PLY",
    .endings = ".ply",
    .help = "PLY, ascii or binary",
    .is_ours = is_ply,
    .own_bytes = sizeof(ply),
    .open = open_ply,
    .write = sp_scan_write_file,
    .put_head = put_header,
    .put_number = ply_put_number,
    .written = ".ply",
    .written_help =
        "points of any scan with attributes and an int property label; -1: no class",
    .no_class = -1};
const sp_scan_format sp_scan_ply_lists = {
    .name = "PLY", .open = open_ply, .fill = fill_ply, .rewind = sp_scan_lines_rewind};
