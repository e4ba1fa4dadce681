/* PLY: ascii and binary of both byte orders. Points are the element "vertex"; its list
 * properties and the elements before it are passed over. Binary points without lists
 * are read where they lie; the rest goes through a stream (sp_scan_ply_lists). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scan/sp_scan_format.h"

enum { MAX_ELEMENTS = 16, MAX_PROPERTIES = 512 };

typedef struct ply_type {
    char kind;
    int size;
} ply_type;

typedef struct property {
    ply_type count, value; /* count.size 0: no list */
} property;

typedef struct element {
    char name[SP_SCAN_NAME];
    int64_t count;
    int first, n; /* properties */
} element;

typedef struct ply {
    FILE *stream;
    char *line;
    size_t line_bytes;
    bool is_ascii, is_swapped;
    int n_elements, n_properties;
    element element[MAX_ELEMENTS];
    property property[MAX_PROPERTIES];
    int vertex;
    int64_t header_bytes;
} ply;

static bool find_type(const char *name, ply_type *type)
{
    static const struct {
        const char *name, *other;
        ply_type type;
    } table[] = {{"char", "int8", {'i', 1}},     {"uchar", "uint8", {'u', 1}},
                 {"short", "int16", {'i', 2}},   {"ushort", "uint16", {'u', 2}},
                 {"int", "int32", {'i', 4}},     {"uint", "uint32", {'u', 4}},
                 {"float", "float32", {'f', 4}}, {"double", "float64", {'f', 8}}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0 || strcmp(name, table[i].other) == 0) {
            *type = table[i].type;
            return true;
        }
    return false;
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
    if (strcmp(e->name, "vertex") == 0)
        p->vertex = p->n_elements;
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
    if ((!is_list && sscanf(line, "property %15s %63s", value, name) != 2) ||
        !find_type(value, &to->value) || (is_list && !find_type(count, &to->count)))
        return SP_FAIL(SP_EDATA, "%s: header line \"%s\", expected property TYPE NAME",
                       scan->path, line);
    p->n_properties++;
    p->element[p->n_elements - 1].n++;
    if (p->n_elements - 1 != p->vertex || is_list)
        return SP_OK;
    if (!sp_scan_add(scan, name, 0, 'f', 8)) /* placed when the header is read */
        return SP_EMEM;
    return SP_OK;
}

static sp_status take_line(sp_scan *scan, ply *p, const char *line, bool *is_end)
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
    if (sscanf(line, "format %31s", format) == 1) {
        bool is_big = strcmp(format, "binary_big_endian") == 0;

        p->is_ascii = strcmp(format, "ascii") == 0;
        p->is_swapped = !p->is_ascii && is_big != sp_scan_is_big_endian();
        if (!p->is_ascii && !is_big && strcmp(format, "binary_little_endian") != 0)
            return SP_FAIL(SP_EDATA, "%s: PLY format %s, expected ascii or binary",
                           scan->path, format);
        snprintf(scan->title, sizeof scan->title, "PLY %s", format);
        return SP_OK;
    }
    if (strcmp(line, "ply") == 0 || strncmp(line, "comment", 7) == 0 ||
        strncmp(line, "obj_info", 8) == 0 || *line == '\0')
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s: header line \"%.60s\" is none of PLY's", scan->path,
                   line);
}

static sp_status read_header(sp_scan *scan, ply *p)
{
    bool is_end = false;

    p->vertex = -1;
    while (!is_end) {
        ssize_t n = getline(&p->line, &p->line_bytes, p->stream);

        if (n < 0 || ftello(p->stream) > 1 << 20)
            return SP_FAIL(SP_EDATA, "%s: PLY header without end_header", scan->path);
        while (n > 0 && strchr("\r\n \t", p->line[n - 1]))
            p->line[--n] = '\0';
        SP_TRY(take_line(scan, p, p->line, &is_end));
    }
    p->header_bytes = ftello(p->stream);
    if (p->vertex < 0)
        return SP_FAIL(SP_EDATA, "%s: no element vertex", scan->path);
    scan->n_points = p->element[p->vertex].count;
    return SP_OK;
}

/* Give the fields of the vertex their places: ascii records are doubles, binary ones
 * are as in the file with the lists left out. */
static void place_fields(sp_scan *scan, const ply *p)
{
    const element *v = &p->element[p->vertex];
    int at = 0, f = 0;

    for (int i = v->first; i < v->first + v->n; i++) {
        ply_type type = p->property[i].value;

        if (p->property[i].count.size)
            continue;
        scan->field[f].at = at;
        scan->field[f].kind = p->is_ascii ? 'f' : type.kind;
        scan->field[f].size = p->is_ascii ? 8 : type.size;
        scan->field[f].is_swapped = p->is_swapped;
        at += scan->field[f++].size;
    }
    scan->record_bytes = at;
}

/* Bytes of an element's row, -1 where it has lists. */
static int64_t row_bytes(const ply *p, const element *e)
{
    int64_t bytes = 0;

    for (int i = e->first; i < e->first + e->n; i++) {
        if (p->property[i].count.size)
            return -1;
        bytes += p->property[i].value.size;
    }
    return bytes;
}

/* ---- the stream: ascii, and binary with lists ---- */
static sp_status ends_early(const sp_scan *scan, const element *e, int64_t row)
{
    return SP_FAIL(SP_EDATA, "%s: truncated: ends in %s %" PRId64 " of %" PRId64,
                   scan->path, e->name, row, e->count);
}

static bool read_raw(ply *p, ply_type type, unsigned char *to)
{
    return fread(to, (size_t)type.size, 1, p->stream) == 1;
}

/* A list's length, which must be a number of entries that can follow. */
static int64_t list_length(const ply *p, ply_type type, const unsigned char *raw)
{
    uint64_t n = 0;

    if (type.kind == 'f')
        return -1;
    for (int i = 0; i < type.size; i++)
        n |= (uint64_t)
                 raw[p->is_swapped != sp_scan_is_big_endian() ? type.size - 1 - i : i]
             << 8 * i;
    return n > INT32_MAX ? -1 : (int64_t)n;
}

static bool binary_row(ply *p, const element *e, unsigned char *to)
{
    unsigned char raw[8];

    for (int i = e->first; i < e->first + e->n; i++) {
        const property *f = &p->property[i];
        int64_t n;

        if (!f->count.size) {
            if (!read_raw(p, f->value, to ? to : raw))
                return false;
            to = to ? to + f->value.size : NULL;
            continue;
        }
        if (!read_raw(p, f->count, raw) || (n = list_length(p, f->count, raw)) < 0 ||
            fseeko(p->stream, n * f->value.size, SEEK_CUR) != 0)
            return false;
    }
    return true;
}

static bool ascii_row(ply *p, const element *e, unsigned char *to)
{
    const char *at;
    char *end;

    do {
        if (getline(&p->line, &p->line_bytes, p->stream) < 0)
            return false;
        at = p->line + strspn(p->line, " \t\r\n");
    } while (*at == '\0');
    for (int i = e->first; to && i < e->first + e->n; i++) {
        double x = strtod(at, &end);

        if (end == at)
            return false;
        at = end;
        if (!p->property[i].count.size) {
            memcpy(to, &x, sizeof x);
            to += sizeof x;
        }
        if (p->property[i].count.size && !(x >= 0 && x <= INT32_MAX))
            return false;
        for (int64_t k = 0; p->property[i].count.size && k < (int64_t)x; k++, at = end)
            if (strtod(at, &end), end == at)
                return false;
    }
    return true;
}

static bool next_row(ply *p, const element *e, unsigned char *to)
{
    return p->is_ascii ? ascii_row(p, e, to) : binary_row(p, e, to);
}

static sp_status rewind_ply(sp_scan *scan)
{
    ply *p = scan->own;

    if (fseeko(p->stream, p->header_bytes, SEEK_SET) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot seek: %s", scan->path, strerror(errno));
    for (int i = 0; i < p->vertex; i++)
        for (int64_t row = 0; row < p->element[i].count; row++)
            if (!next_row(p, &p->element[i], NULL))
                return ends_early(scan, &p->element[i], row);
    return SP_OK;
}

static sp_status fill_ply(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    ply *p = scan->own;

    *n = scan->n_points - scan->row < max ? scan->n_points - scan->row : max;
    for (int64_t i = 0; i < *n; i++, to += scan->record_bytes)
        if (!next_row(p, &p->element[p->vertex], to))
            return ends_early(scan, &p->element[p->vertex], scan->row + i);
    return SP_OK;
}

static sp_status open_ply(sp_scan *scan, const sp_scan_options *options)
{
    ply *p = calloc(1, sizeof *p);
    int64_t before = 0;

    (void)options;
    scan->own = p;
    if (!p)
        return SP_FAIL(SP_EMEM, "%s: no memory", scan->path);
    SP_TRY(sp_scan_stream(scan, 0, &p->stream));
    SP_TRY(read_header(scan, p));
    place_fields(scan, p);
    for (int i = 0; i < p->vertex && before >= 0; i++) {
        int64_t bytes = row_bytes(p, &p->element[i]);

        before = bytes < 0 || p->element[i].count > scan->file_bytes
                     ? -1
                     : before + bytes * p->element[i].count;
    }
    if (p->is_ascii || before < 0 || row_bytes(p, &p->element[p->vertex]) < 0) {
        scan->format = &sp_scan_ply_lists;
        return rewind_ply(scan);
    }
    scan->data_at = p->header_bytes + before;
    return scan->record_bytes ? sp_scan_check_size(scan) : SP_OK;
}

static void close_ply(sp_scan *scan)
{
    ply *p = scan->own;

    if (p && p->stream)
        fclose(p->stream);
    if (p)
        free(p->line);
}

const sp_scan_format sp_scan_ply = {
    .name = "PLY", .open = open_ply, .close = close_ply};
const sp_scan_format sp_scan_ply_lists = {.name = "PLY",
                                          .open = open_ply,
                                          .fill = fill_ply,
                                          .rewind = rewind_ply,
                                          .close = close_ply};
