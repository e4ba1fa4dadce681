/* A file opened for reading: look-ups in its catalog, and values by pread. Without
 * HDF5. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "h5/sp_h5_child.h"
#include "h5/sp_h5_internal.h"
#include "h5/sp_h5_number.h"

const sp_h5_reader *sp_h5_reader_child;

enum {
    PIECE = 1 << 16, /* bytes that are read and converted at a time */
    KEPT = 32 << 20, /* bytes of unpacked chunks that an open file keeps */
};

/* ---- opening ---- */

sp_status sp_h5_fail_system(const char *path, int error)
{
    if (error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG)
        return SP_FAIL(SP_EDATA, "%s: %s", path, strerror(error));
    return SP_FAIL(SP_EIO, "%s: cannot read: %s", path, strerror(error));
}

/* SP_EDATA unless the file has HDF5's signature at a place that the library searches:
 * at the start and at each power of two from 512 bytes on. */
static sp_status check_signature(const sp_h5 *file)
{
    char found[8];
    const int64_t last = file->bytes - (int64_t)sizeof found;

    for (int64_t at = 0; at <= last; at = at ? 2 * at : 512) {
        SP_TRY(sp_file_read_at(file->fd, file->path, found, sizeof found, at));
        if (memcmp(found, SP_H5_SIGNATURE, sizeof found) == 0)
            return SP_OK;
    }
    return SP_FAIL(SP_EDATA, "%s: not an HDF5 file", file->path);
}

static sp_status h5_file_open(sp_h5 *file, struct stat *about)
{
    if (stat(file->path, about) != 0)
        return sp_h5_fail_system(file->path, errno);
    if (!S_ISREG(about->st_mode))
        return SP_FAIL(SP_EDATA, "%s: not a regular file", file->path);
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, about) != 0)
        return sp_h5_fail_system(file->path, errno);
    file->bytes = (int64_t)about->st_size;
    return check_signature(file);
}

/* Fails if the catalog describes another file than the one that is open: files are
 * often replaced by renaming. */
static sp_status h5_check_same(const sp_h5 *file, const struct stat *about)
{
    const sp_h5_catalog *c = &file->catalog;

    if (c->device == (uint64_t)about->st_dev && c->inode == (uint64_t)about->st_ino &&
        c->bytes == file->bytes)
        return SP_OK;
    return SP_FAIL(SP_EDATA, "%s: was replaced or changed while it was being opened",
                   file->path);
}

sp_status sp_h5_begin(sp_h5 **file, const char *path)
{
    *file = calloc(1, sizeof **file);
    if (*file && ((*file)->path = strdup(path))) {
        (*file)->id = H5I_INVALID_HID;
        (*file)->fd = -1;
        return SP_OK;
    }
    free(*file);
    *file = NULL;
    return SP_FAIL(SP_EMEM, "%s: no memory", path);
}

/* Opens a file with the catalog that the child sends; child NULL: with one that this
 * process makes. */
static sp_status open_with(sp_h5 **file, const char *path, sp_h5_child *child)
{
    struct stat about;
    sp_status rc;

    SP_TRY(sp_h5_begin(file, path));
    rc = h5_file_open(*file, &about);
    if (rc == SP_OK)
        rc = child ? sp_h5_reader_child->next(child, path, (*file)->bytes,
                                              &(*file)->catalog)
                   : sp_h5_describe(path, &(*file)->catalog);
    if (rc == SP_OK)
        rc = h5_check_same(*file, &about);
    if (rc == SP_OK)
        rc = sp_h5_catalog_check(&(*file)->catalog);
    if (rc != SP_OK) {
        sp_h5_close(*file);
        *file = NULL;
    }
    SP_TRY(rc);
    return SP_OK;
}

sp_status sp_h5_open_each(char *const *paths, int n,
                          sp_status (*use)(sp_h5 *file, int i, void *context),
                          void *context)
{
    const sp_h5_reader *reader = sp_h5_reader_child;
    sp_h5_child child = {0};
    sp_status rc = SP_OK;
    sp_h5 *file;

    assert(n > 0 && paths && use);
    if (reader)
        SP_TRY(reader->start(&child, paths, n));
    for (int i = 0; i < n && rc == SP_OK; i++) {
        rc = open_with(&file, paths[i], reader ? &child : NULL);
        if (rc == SP_OK) {
            rc = use(file, i, context);
            sp_h5_close(file);
        }
        sp_liveness_count();
    }
    if (reader)
        reader->end(&child);
    SP_TRY(rc);
    return SP_OK;
}

sp_status sp_h5_open(sp_h5 **file, const char *path)
{
    char *paths[] = {(char *)(uintptr_t)path};
    const sp_h5_reader *reader = sp_h5_reader_child;
    sp_h5_child child = {0};
    sp_status rc;

    assert(file && path);
    *file = NULL;
    if (reader)
        SP_TRY(reader->start(&child, paths, 1));
    rc = open_with(file, path, reader ? &child : NULL);
    if (reader)
        reader->end(&child);
    SP_TRY(rc);
    return SP_OK;
}

sp_status sp_h5_open_own(sp_h5 **file, const char *path)
{
    assert(file && path);
    SP_TRY(open_with(file, path, NULL));
    return SP_OK;
}

const char *sp_h5_path(const sp_h5 *file)
{
    return file->path;
}

int64_t sp_h5_bytes(const sp_h5 *file)
{
    return file->bytes;
}

/* ---- names ---- */

bool sp_h5_has(sp_h5 *file, const char *name)
{
    assert(!file->is_written);
    return sp_h5_catalog_find(&file->catalog, name) ||
           sp_h5_catalog_link(&file->catalog, name);
}

sp_status sp_h5_list(sp_h5 *file, char ***names, int *n)
{
    const sp_h5_catalog *c = &file->catalog;

    assert(!file->is_written && names && n);
    *n = 0;
    SP_TRY(SP_NEW(names, c->n, file->path));
    for (int64_t i = 0; i < c->n; i++) {
        if (c->entry[i].kind != SP_H5_DATASET)
            continue;
        (*names)[*n] = strdup(c->entry[i].name);
        if (!(*names)[(*n)++]) {
            sp_h5_list_free(*names, *n);
            *names = NULL;
            *n = 0;
            return SP_FAIL(SP_EMEM, "%s: no memory", file->path);
        }
    }
    return SP_OK;
}

void sp_h5_list_free(char **names, int64_t n)
{
    for (int64_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

/* ---- datasets ---- */

static sp_status h5_no_memory(const sp_h5 *file, const char *name)
{
    return SP_FAIL(SP_EMEM, "%s:%s: no memory", file->path, name);
}

/* Finds a dataset with readable values. */
static sp_status h5_find(const sp_h5 *file, const char *name, const sp_h5_entry **entry)
{
    *entry = sp_h5_catalog_find(&file->catalog, name);
    if (!*entry)
        *entry = sp_h5_catalog_link(&file->catalog, name);
    if (!*entry)
        return SP_FAIL(SP_EDATA, "%s: missing dataset %s", file->path, name);
    if ((*entry)->why)
        return SP_FAIL(SP_EDATA, "%s:%s: %s", file->path, (*entry)->name,
                       (*entry)->why);
    return SP_OK;
}

sp_status sp_h5_shape_of(sp_h5 *file, const char *name, sp_h5_shape *shape)
{
    const sp_h5_entry *entry;

    assert(!file->is_written && shape);
    SP_TRY(h5_find(file, name, &entry));
    *shape = entry->shape;
    return SP_OK;
}

static bool is_numeric(sp_h5_type type)
{
    return type.kind == 'i' || type.kind == 'u' || type.kind == 'f';
}

static sp_status find_numbers(const sp_h5 *file, const char *name,
                              const sp_h5_entry **entry)
{
    SP_TRY(h5_find(file, name, entry));
    if (!is_numeric((*entry)->shape.type) || (*entry)->shape.rank < 0)
        return SP_FAIL(SP_EDATA, "%s:%s: not of a number type", file->path, name);
    return SP_OK;
}

static int64_t h5_row_bytes(const sp_h5_shape *shape)
{
    int64_t bytes = shape->type.size;

    for (int d = 1; d < shape->rank; d++)
        bytes *= shape->dim[d];
    return bytes;
}

/* Reads n rows from row `first` on as stored. A scalar has one row. */
static sp_status read_stored(sp_h5 *file, const sp_h5_entry *entry, int64_t first,
                             int64_t n, void *to)
{
    const sp_h5_shape *shape = &entry->shape;
    const int64_t row = h5_row_bytes(shape);
    char where[1200];
    const sp_h5_packed packed = {.key = entry,
                                 .path = file->path,
                                 .fd = file->fd,
                                 .name = entry->name,
                                 .where = where,
                                 .rows = shape->rank > 0 ? shape->dim[0] : 1,
                                 .row_bytes = row,
                                 .chunks = shape->chunks};

    snprintf(where, sizeof where, "%s:%s", file->path, entry->name);
    if (!shape->is_contiguous && !file->cache)
        SP_TRY(sp_h5_cache_create(&file->cache, KEPT));
    if (!shape->is_contiguous)
        return sp_h5_cache_read(file->cache, &packed, first, n, to);
    if (row == 0)
        return SP_OK;
    SP_TRY(sp_file_read_at(file->fd, where, to, (size_t)(n * row),
                           shape->at + first * row));
    sp_liveness_count();
    return SP_OK;
}

sp_status sp_h5_read_rows(sp_h5 *file, const char *name, int64_t first, int64_t n,
                          void *data)
{
    const sp_h5_entry *entry;

    assert(!file->is_written);
    assert(data || n == 0);
    if (n == 0)
        return SP_OK;
    SP_TRY(find_numbers(file, name, &entry));
    if (entry->shape.rank < 1 || first < 0 || n < 0 || n > entry->shape.dim[0] ||
        first > entry->shape.dim[0] - n)
        return SP_FAIL(SP_EDATA, "%s:%s: has no rows %lld to %lld", file->path, name,
                       (long long)first, (long long)(first + n - 1));
    return read_stored(file, entry, first, n, data);
}

static void h5_print_shape(char *text, size_t size, int rank, const int64_t *dim)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (int i = 0; i < rank && i < SP_H5_RANK && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                 (long long)dim[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static sp_status h5_check_shape(const sp_h5 *file, const char *name,
                                const sp_h5_shape *have, int rank, const int64_t *dim)
{
    char want[96], found[96];
    bool is_same = have->rank == rank;

    for (int i = 0; is_same && i < rank; i++)
        is_same = have->dim[i] == dim[i];
    if (is_same)
        return is_numeric(have->type)
                   ? SP_OK
                   : SP_FAIL(SP_EDATA, "%s:%s: not of a number type", file->path, name);
    h5_print_shape(want, sizeof want, rank, dim);
    h5_print_shape(found, sizeof found, have->rank, have->dim);
    return SP_FAIL(SP_EDATA, "%s:%s: shape %s, expected %s", file->path, name, found,
                   want);
}

static bool is_same_type(sp_h5_type a, sp_h5_type b)
{
    return a.kind == b.kind && a.size == b.size && a.is_swapped == b.is_swapped;
}

static sp_status say_value(const sp_h5 *file, const char *name, sp_h5_type type,
                           const void *raw, int64_t i, int64_t element, sp_h5_type to)
{
    return SP_FAIL(SP_EDATA, "%s:%s: element %lld is %.17g, expected %s", file->path,
                   name, (long long)element, sp_h5_value(type, raw, i),
                   to.kind == 'f' ? "a number of float32's range"
                                  : "an integer that its type holds");
}

/* Reads the whole dataset piece by piece and converts each. */
static sp_status read_converted(sp_h5 *file, const sp_h5_entry *entry, sp_h5_type to,
                                int64_t rows, int64_t row, char *out)
{
    const sp_h5_type type = entry->shape.type;
    int64_t step = PIECE / (row * type.size) > 0 ? PIECE / (row * type.size) : 1, bad;
    SP_FREED char *raw = malloc((size_t)(step * row * type.size));

    if (!raw)
        return h5_no_memory(file, entry->name);
    for (int64_t done = 0; done < rows; done += step) {
        int64_t m = rows - done < step ? rows - done : step;

        SP_TRY(read_stored(file, entry, done, m, raw));
        bad = sp_h5_convert(type, raw, m * row, to, out + done * row * to.size);
        if (bad >= 0)
            return say_value(file, entry->name, type, raw, bad, done * row + bad, to);
    }
    return SP_OK;
}

sp_status sp_h5_read(sp_h5 *file, const char *name, sp_h5_type type, int rank,
                     const int64_t *dim, void *data)
{
    const sp_h5_entry *entry;
    int64_t rows = rank > 0 ? dim[0] : 1, row;

    assert(!file->is_written);
    assert(0 <= rank && rank <= SP_H5_RANK);
    SP_TRY(h5_find(file, name, &entry));
    SP_TRY(h5_check_shape(file, name, &entry->shape, rank, dim));
    row = h5_row_bytes(&entry->shape) / entry->shape.type.size;
    if (rows == 0 || row == 0)
        return SP_OK;
    if (is_same_type(type, entry->shape.type))
        return read_stored(file, entry, 0, rows, data);
    return read_converted(file, entry, type, rows, row, data);
}

/* ---- texts and attributes ---- */

/* Copies n texts; false without memory, with NULL after the copied texts. */
static bool h5_copy_texts(char *const *from, int64_t n, char **to)
{
    for (int64_t i = 0; i < n; i++)
        if (!(to[i] = strdup(from[i])))
            return false;
    return true;
}

sp_status sp_h5_find_texts(sp_h5 *file, const char *name, int64_t n,
                           char *const **texts)
{
    const sp_h5_entry *entry;

    assert(!file->is_written);
    assert(n >= 0 && texts);
    SP_TRY(h5_find(file, name, &entry));
    if (!entry->text)
        return SP_FAIL(SP_EDATA, "%s:%s: not of a text type", file->path, name);
    if (entry->n_texts != n)
        return SP_FAIL(SP_EDATA, "%s:%s: %lld texts, expected %lld", file->path, name,
                       (long long)entry->n_texts, (long long)n);
    *texts = entry->text;
    return SP_OK;
}

sp_status sp_h5_read_texts(sp_h5 *file, const char *name, int64_t n, char **texts)
{
    char *const *found;

    memset(texts, 0, (size_t)n * sizeof *texts);
    SP_TRY(sp_h5_find_texts(file, name, n, &found));
    return h5_copy_texts(found, n, texts) ? SP_OK : h5_no_memory(file, name);
}

static const sp_h5_attr *attr_of(const sp_h5 *file, const char *object,
                                 const char *name)
{
    const sp_h5_entry *entry = sp_h5_catalog_find(&file->catalog, object);

    return entry ? sp_h5_entry_attr(entry, name) : NULL;
}

bool sp_h5_attr_has(sp_h5 *file, const char *object, const char *name)
{
    assert(!file->is_written);
    return attr_of(file, object, name) != NULL;
}

/* The object as messages print it after the file's name: nothing for the root. */
static const char *shown(const char *object)
{
    return strcmp(object, "/") == 0 ? "" : object;
}

static const char *colon(const char *object)
{
    return *shown(object) ? ":" : "";
}

static sp_status find_attr(const sp_h5 *file, const char *object, const char *name,
                           const sp_h5_attr **attr)
{
    *attr = attr_of(file, object, name);
    if (!*attr)
        return SP_FAIL(SP_EDATA, "%s%s%s: missing attribute %s", file->path,
                       colon(object), shown(object), name);
    if ((*attr)->why)
        return SP_FAIL(SP_EDATA, "%s%s%s: attribute %s %s", file->path, colon(object),
                       shown(object), name, (*attr)->why);
    return SP_OK;
}

sp_status sp_h5_attr_count(sp_h5 *file, const char *object, const char *name,
                           int64_t *n)
{
    const sp_h5_attr *attr;

    SP_TRY(find_attr(file, object, name, &attr));
    *n = attr->n;
    return SP_OK;
}

sp_status sp_h5_attr_read(sp_h5 *file, const char *object, const char *name,
                          sp_h5_type type, int64_t n, void *data)
{
    const sp_h5_attr *attr;
    int64_t bad;
    SP_FREED void *raw = NULL;

    assert(!file->is_written);
    assert(n >= 0 && data);
    SP_TRY(find_attr(file, object, name, &attr));
    if (!is_numeric(attr->type) || !attr->value)
        return SP_FAIL(SP_EDATA, "%s%s%s: attribute %s is not a number", file->path,
                       colon(object), shown(object), name);
    if (attr->n != n)
        return SP_FAIL(SP_EDATA,
                       "%s%s%s: attribute %s has %lld elements, expected %lld",
                       file->path, colon(object), shown(object), name,
                       (long long)attr->n, (long long)n);
    raw = malloc((size_t)n * (size_t)attr->type.size + 1);
    if (!raw)
        return h5_no_memory(file, name);
    memcpy(raw, attr->value, (size_t)n * (size_t)attr->type.size);
    bad = sp_h5_convert(attr->type, raw, n, type, data);
    return bad < 0 ? SP_OK : say_value(file, name, attr->type, raw, bad, bad, type);
}

sp_status sp_h5_attr_read_int(sp_h5 *file, const char *object, const char *name,
                              int64_t *value)
{
    double real;

    SP_TRY(sp_h5_attr_read(file, object, name, SP_H5_F64, 1, &real));
    if (real >= -9007199254740992.0 && real <= 9007199254740992.0 &&
        real != (double)(int64_t)real)
        return SP_FAIL(SP_EDATA, "%s%s%s: attribute %s is %g, expected an integer",
                       file->path, colon(object), shown(object), name, real);
    return sp_h5_attr_read(file, object, name, SP_H5_I64, 1, value);
}

sp_status sp_h5_attr_read_texts(sp_h5 *file, const char *object, const char *name,
                                char ***texts, int *n)
{
    const sp_h5_attr *attr;

    assert(!file->is_written);
    assert(texts && n);
    *texts = NULL;
    *n = 0;
    SP_TRY(find_attr(file, object, name, &attr));
    if (!attr->text)
        return SP_FAIL(SP_EDATA, "%s%s%s:%s: not of a text type", file->path,
                       colon(object), shown(object), name);
    if (attr->n > INT32_MAX)
        return SP_FAIL(SP_EDATA, "%s%s%s: attribute %s is larger than its file",
                       file->path, colon(object), shown(object), name);
    *texts = calloc((size_t)attr->n + 1, sizeof **texts);
    if (!*texts || !h5_copy_texts(attr->text, attr->n, *texts)) {
        sp_h5_list_free(*texts, attr->n);
        *texts = NULL;
        return h5_no_memory(file, name);
    }
    *n = (int)attr->n;
    return SP_OK;
}

sp_status sp_h5_attr_read_text(sp_h5 *file, const char *object, const char *name,
                               char **text)
{
    char **texts;
    int n;

    *text = NULL;
    SP_TRY(sp_h5_attr_read_texts(file, object, name, &texts, &n));
    if (n != 1) {
        sp_h5_list_free(texts, n);
        return SP_FAIL(SP_EDATA, "%s%s%s: attribute %s has %d texts, expected 1",
                       file->path, colon(object), shown(object), name, n);
    }
    *text = texts[0];
    free(texts);
    return SP_OK;
}
