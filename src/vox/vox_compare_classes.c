#include "vox/vox_compare_classes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "base/sp_signal.h"

enum { LABEL_WORD = 4, LABEL_CLASS = 0xffff };

/* ---- lists of classes ---- */

static sp_status list_alloc(vox_class_file *f, int64_t n)
{
    f->n_list = n;
    return SP_NEW(&f->list, n, f->path);
}

static sp_status list_read_label(vox_class_file *f)
{
    SP_FREED unsigned char *data = NULL;
    size_t bytes = 0;

    SP_TRY(sp_file_read_input(f->path, (char **)&data, &bytes));
    if (bytes % LABEL_WORD != 0)
        return SP_FAIL(SP_EDATA, "%s: %zu bytes, expected 4 for each point", f->path,
                       bytes);
    SP_TRY(list_alloc(f, (int64_t)(bytes / LABEL_WORD)));
    for (int64_t i = 0; i < f->n_list; i++)
        f->list[i] = (int32_t)(sp_get32(data + LABEL_WORD * i) & LABEL_CLASS);
    return SP_OK;
}

/* The integer of `size` bytes at `from`, lowest first. */
static int64_t list_integer(const unsigned char *from, char kind, int size)
{
    uint64_t bits = 0;

    for (int i = size - 1; i >= 0; i--)
        bits = bits << 8 | from[i];
    if (kind == 'i' && size < 8 && bits >> (8 * size - 1))
        bits |= ~(uint64_t)0 << (8 * size);
    return (int64_t)bits;
}

/* Reads the header of an array of integers of one dimension. False: it is another. */
static bool list_npy_header(const unsigned char *data, size_t bytes, char *kind,
                            int *size, int64_t *n, size_t *begin)
{
    const char *descr, *shape;
    char head[1024], order;
    size_t length, at;
    int used = 0;

    if (bytes < 12 || memcmp(data, "\x93NUMPY", 6) != 0)
        return false;
    at = data[6] >= 2 ? 12 : 10;
    length = data[6] >= 2 ? sp_get32(data + 8) : sp_get16(data + 8);
    if (length >= sizeof head || at + length > bytes)
        return false;
    memcpy(head, data + at, length);
    head[length] = '\0';
    descr = strstr(head, "'descr': '");
    shape = strstr(head, "'shape': (");
    if (!descr || !shape ||
        sscanf(descr, "'descr': '%c%c%1d'", &order, kind, size) != 3 ||
        sscanf(shape, "'shape': (%" SCNd64 ",)%n", n, &used) != 1 || used == 0)
        return false;
    *begin = at + length;
    return strchr("<|", order) && strchr("iub", *kind) &&
           (*size == 1 || *size == 2 || *size == 4 || *size == 8) && *n >= 0 &&
           *n <= (int64_t)((bytes - *begin) / (size_t)*size);
}

/* Accepts an array of one dimension; *is_list is false for any other file. */
static sp_status list_read_npy(vox_class_file *f, bool *is_list)
{
    SP_FREED unsigned char *data = NULL;
    size_t bytes = 0, begin = 0;
    char kind = 0;
    int size = 0;
    int64_t n = 0;

    SP_TRY(sp_file_read_input(f->path, (char **)&data, &bytes));
    *is_list = list_npy_header(data, bytes, &kind, &size, &n, &begin);
    if (!*is_list)
        return SP_OK;
    SP_TRY(list_alloc(f, n));
    for (int64_t i = 0; i < n; i++) {
        const int64_t code = list_integer(data + begin + i * size, kind, size);

        if (code > VOX_MAX_CODE)
            return SP_FAIL(SP_EDATA,
                           "%s: class %" PRId64 " of point %" PRId64 ", expected at "
                           "most %d",
                           f->path, code, i, VOX_MAX_CODE);
        f->list[i] = code < 0 ? -1 : (int32_t)code;
    }
    return SP_OK;
}

/* ---- files ---- */

sp_status vox_classes_open(vox_class_file *f, const char *path,
                           const vox_compare_options *o, const char *label_field)
{
    const sp_scan_options options = {.columns = o->columns,
                                     .label_field =
                                         label_field ? label_field : o->label_field,
                                     .n_threads = o->threads};
    bool is_list = false;

    *f = (vox_class_file){.path = path};
    if (sp_file_ends_in(path, ".label"))
        return list_read_label(f);
    if (sp_file_ends_in(path, ".npy"))
        SP_TRY(list_read_npy(f, &is_list));
    if (is_list)
        return SP_OK;
    SP_TRY(sp_scan_open(&f->scan, path, &options));
    if (!sp_scan_is_labelled(f->scan))
        return SP_FAIL(SP_EDATA,
                       "%s: no classes; --label-field, --label-field-a or "
                       "--label-field-b names the attribute that has them",
                       path);
    sp_scan_resolution(f->scan, f->step, f->is_float);
    return sp_scan_select(f->scan, o->match_field ? 1 : 0, &o->match_field);
}

void vox_classes_close(vox_class_file *f)
{
    sp_scan_close(f->scan);
    sp_scan_points_destroy(&f->points);
    free(f->list);
}

sp_status vox_classes_rewind(vox_class_file *f)
{
    f->at = 0;
    return f->scan ? sp_scan_rewind(f->scan) : SP_OK;
}

/* Gives the next classes and, of a scan, positions; *n is 0 at the end. */
sp_status vox_classes_next(vox_class_file *f, int64_t *n, const int32_t **code,
                           const double **xyz)
{
    SP_TRY(sp_signal_check());
    if (!f->scan) {
        *n = f->n_list - f->at < SP_SCAN_BLOCK ? f->n_list - f->at : SP_SCAN_BLOCK;
        *code = f->list + f->at;
        *xyz = NULL;
        f->at += *n;
        return SP_OK;
    }
    SP_TRY(sp_scan_next(f->scan, SP_SCAN_BLOCK, &f->points));
    *n = f->points.n;
    *code = f->points.label;
    *xyz = f->points.xyz;
    for (int64_t i = 0; i < *n; i++)
        if ((*code)[i] > VOX_MAX_CODE)
            return SP_FAIL(SP_EDATA,
                           "%s: class %d of point %" PRId64 ", expected at most %d",
                           f->path, (*code)[i], f->points.first_row + i, VOX_MAX_CODE);
    return SP_OK;
}
