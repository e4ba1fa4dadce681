/* NumPy arrays: [n, k] of any number type, in C or Fortran order, with columns named by
 * --columns (three columns: x y z), and structured arrays of numbers with their own
 * names. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"
#include "scan/sp_scan_format.h"

enum { MAX_HEADER = 1 << 20 };

/* The array that the header describes. */
typedef struct npy {
    char *header; /* the header, a Python literal */
    bool is_fortran;
} npy;

static sp_status bad_header(const sp_scan *scan, const npy *a, const char *what)
{
    return SP_FAIL(SP_EDATA, "%s: npy header: %s: %.200s", scan->path, what, a->header);
}

static sp_status npy_read_header(sp_scan *scan, npy *a)
{
    unsigned char b[12];
    size_t bytes, at;

    SP_TRY(sp_scan_pread(scan, b, 10, 0));
    at = b[6] >= 2 ? 12 : 10;
    SP_TRY(sp_scan_pread(scan, b, at, 0));
    bytes = b[6] >= 2 ? sp_get32(b + 8) : sp_get16(b + 8);
    if (b[6] < 1 || b[6] > 3 || bytes > MAX_HEADER)
        return SP_FAIL(SP_EDATA, "%s: npy version %d with a header of %zu bytes",
                       scan->path, b[6], bytes);
    SP_TRY(SP_NEW(&a->header, bytes, scan->path));
    scan->data_at = (int64_t)(at + bytes);
    SP_TRY(sp_scan_pread(scan, a->header, bytes, (int64_t)at));
    /* NumPy pads headers with blanks */
    while (bytes > 0 && strchr(" \n", a->header[bytes - 1]))
        a->header[--bytes] = '\0';
    return SP_OK;
}

/* Returns the end of the literal at `at`: the comma, colon or bracket after it, outside
 * of texts and of brackets of its own. */
static const char *npy_end_of(const char *at)
{
    char quote = 0;

    for (int depth = 0; *at; at++) {
        if (quote && *at == '\\' && at[1])
            at++;
        else if (quote || strchr("'\"", *at))
            quote = !quote ? *at : *at == quote ? 0 : quote;
        else if (depth == 0 && strchr(",:)]}", *at))
            break;
        else
            depth += (strchr("([{", *at) != NULL) - (strchr(")]}", *at) != NULL);
    }
    return at;
}

/* Finds the value of a key, with its quotes, in the header's dictionary; NULL if it is
 * missing. */
static const char *npy_value_of(const npy *a, const char *key)
{
    const char *at = a->header, *name;

    while (*at == (at == a->header ? '{' : ',')) {
        name = at + 1 + strspn(at + 1, " ");
        at = npy_end_of(name);
        if (*at != ':')
            break;
        if (strncmp(name, key, strlen(key)) == 0)
            return at + 1 + strspn(at + 1, " ");
        at = npy_end_of(at + 1);
    }
    return NULL;
}

/* Reads a type like '<f4', with its quotes. Returns the text after it; NULL: it is not
 * a type of numbers. */
static const char *npy_read_type(const char *at, sp_scan_field *f)
{
    char order, kind;
    int size, used = 0;

    if (sscanf(at, "'%c%c%1d'%n", &order, &kind, &size, &used) != 3 || used == 0 ||
        !strchr("<>|=", order) || !strchr("iufb", kind))
        return NULL;
    if ((size != 1 && size != 2 && size != 4 && size != 8) ||
        (kind == 'f' && size == 1))
        return NULL;
    f->kind = (char)(kind == 'b' ? 'u' : kind);
    f->size = size;
    f->scale = 1;
    f->is_big = order == '>';
    return at + used;
}

/* Adds the fields of a structured type: [('x', '<f8'), ('label', '|u1')]. */
static sp_status npy_add_structure(sp_scan *scan, const npy *a, const char *at)
{
    for (at++; *at && *at != ']'; at += strspn(at, "), ")) {
        char name[SP_SCAN_NAME];
        sp_scan_field type = {.at = scan->record_bytes};
        int used = 0;

        if ((sscanf(at, "('%63[^']', %n", name, &used) != 1 &&
             sscanf(at, "(\"%63[^\"]\", %n", name, &used) != 1) ||
            used == 0 || !(at = npy_read_type(at + used, &type)) || *at != ')')
            return bad_header(scan, a, "expected a plain number in each field");
        if (scan->n_fields == SP_SCAN_FIELDS)
            return bad_header(scan, a, "expected at most 4096 fields");
        SP_TRY(sp_scan_add(scan, name, type));
        scan->record_bytes += type.size;
    }
    return SP_OK;
}

static sp_status npy_add_columns(sp_scan *scan, const npy *a, const char *descr,
                                 int64_t cols)
{
    sp_scan_field type = {0};

    if (!npy_read_type(descr, &type))
        return bad_header(scan, a, "expected numbers of 1, 2, 4 or 8 bytes");
    if (cols < 3 || cols > SP_SCAN_FIELDS)
        return bad_header(scan, a, "expected a shape (points, 3 or more columns)");
    for (int i = 0; i < cols; i++, type.at += type.size)
        SP_TRY(sp_scan_add(scan, "", type));
    scan->record_bytes = (int)cols * type.size;
    return sp_scan_name_columns(scan);
}

static sp_status open_npy(sp_scan *scan)
{
    npy *a = scan->own;
    const char *descr, *order, *shape;
    int64_t cols = 0;
    int n, used = 0;

    SP_TRY(npy_read_header(scan, a));
    descr = npy_value_of(a, "'descr'");
    order = npy_value_of(a, "'fortran_order'");
    shape = npy_value_of(a, "'shape'");
    if (!descr || !order || !shape)
        return bad_header(scan, a, "expected descr, fortran_order and shape");
    n = sscanf(shape, "(%" SCNd64 ",%n %" SCNd64 "%n", &scan->n_points, &used, &cols,
               &used);
    if (n < 1 || scan->n_points < 0 || (n == 2) == (*descr == '[') ||
        shape[used + (int)strspn(shape + used, ", ")] != ')')
        return bad_header(scan, a, "expected a shape (points, columns)");
    a->is_fortran = *order == 'T' && *descr != '[';
    if (*descr == '[')
        SP_TRY(npy_add_structure(scan, a, descr));
    else
        SP_TRY(npy_add_columns(scan, a, descr, cols));
    return sp_scan_check_size(scan, scan->n_points, scan->record_bytes, scan->data_at);
}

static sp_status fill_npy(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n)
{
    const npy *a = scan->own;
    const sp_scan_field *f = scan->field;
    const size_t item = (size_t)f->size; /* of all columns */
    SP_FREED unsigned char *column = NULL;

    (void)n;
    if (!a->is_fortran)
        return sp_scan_pread(scan, to, (size_t)(max * scan->record_bytes),
                             scan->data_at + scan->row * scan->record_bytes);
    SP_TRY(SP_NEW(&column, (size_t)max * item, scan->path));
    for (int64_t c = 0; c < scan->n_fields; c++) {
        SP_TRY(
            sp_scan_pread(scan, column, (size_t)max * item,
                          scan->data_at + (c * scan->n_points + scan->row) * f->size));
        for (int64_t i = 0; i < max; i++)
            memcpy(to + i * scan->record_bytes + f[c].at, column + (size_t)i * item,
                   item);
    }
    return SP_OK;
}

static void close_npy(sp_scan *scan)
{
    npy *a = scan->own;

    free(a->header);
}

static bool is_npy(const unsigned char *head)
{
    return memcmp(head, "\x93NUMPY", 6) == 0;
}

const sp_scan_format sp_scan_npy = {.name = "NumPy",
                                    .endings = ".npy",
                                    .help = "array of NumPy",
                                    .is_ours = is_npy,
                                    .own_bytes = sizeof(npy),
                                    .open = open_npy,
                                    .fill = fill_npy,
                                    .close = close_npy};
