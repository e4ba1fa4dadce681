#include "h5/sp_h5_catalog.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least bytes of an attribute and of an entry in a catalog as bytes, which bound
 * how many of them it can hold. */
enum { ATTR_BYTES = 32, ENTRY_BYTES = 64 };

/* The bytes that a chunk may have unpacked: CHUNK, in larger files CHUNK_FACTOR times
 * the size of the file. EXPANSION bounds how much larger than its file a dataset may
 * claim to be; deflate reaches 1032. */
enum { CHUNK = 64 << 20, CHUNK_FACTOR = 4, EXPANSION = 1100 };

/* ---- as bytes ---- */

static void serialize_type(sp_serial *serial, sp_h5_type *type)
{
    sp_serial_bytes(serial, &type->kind, sizeof type->kind);
    sp_serial_bytes(serial, &type->size, sizeof type->size);
    sp_serial_flag(serial, &type->is_swapped);
}

static void serialize_shape(sp_serial *serial, sp_h5_shape *shape)
{
    serialize_type(serial, &shape->type);
    sp_serial_bytes(serial, &shape->rank, sizeof shape->rank);
    sp_serial_bytes(serial, shape->dim, sizeof shape->dim);
    sp_serial_flag(serial, &shape->is_contiguous);
    sp_serial_bytes(serial, &shape->at, sizeof shape->at);
    sp_serial_bytes(serial, &shape->chunks, sizeof shape->chunks);
}

static void serialize_attr(sp_serial *serial, sp_h5_attr *attr)
{
    sp_serial_text(serial, &attr->name);
    serialize_type(serial, &attr->type);
    sp_serial_bytes(serial, &attr->n, sizeof attr->n);
    sp_serial_array(serial, &attr->value, attr->n,
                    attr->type.size > 0 ? (size_t)attr->type.size : SIZE_MAX);
    sp_serial_texts(serial, &attr->text, attr->n);
    sp_serial_text(serial, &attr->why);
}

/* Allocates a list of n elements on a serial that reads into an empty destination. */
static bool make_list(sp_serial *serial, void **list, int64_t n, size_t size)
{
    if (serial->is_reading && serial->rc == SP_OK &&
        !(*list = calloc((size_t)n + 1, size)))
        serial->rc =
            SP_FAIL(SP_EMEM, "no memory for an index of %lld parts", (long long)n);
    return serial->rc == SP_OK;
}

static void serialize_entry(sp_serial *serial, sp_h5_entry *entry)
{
    sp_serial_text(serial, &entry->name);
    sp_serial_bytes(serial, &entry->kind, sizeof entry->kind);
    sp_serial_text(serial, &entry->why);
    serialize_shape(serial, &entry->shape);
    sp_serial_bytes(serial, &entry->n_texts, sizeof entry->n_texts);
    sp_serial_texts(serial, &entry->text, entry->n_texts);
    sp_serial_count(serial, &entry->n_attrs, ATTR_BYTES);
    if (make_list(serial, (void **)&entry->attr, entry->n_attrs, sizeof *entry->attr))
        for (int64_t i = 0; i < entry->n_attrs && serial->rc == SP_OK; i++)
            serialize_attr(serial, &entry->attr[i]);
}

void sp_h5_catalog_serialize(sp_serial *serial, sp_h5_catalog *catalog)
{
    sp_serial_bytes(serial, &catalog->device, sizeof catalog->device);
    sp_serial_bytes(serial, &catalog->inode, sizeof catalog->inode);
    sp_serial_bytes(serial, &catalog->bytes, sizeof catalog->bytes);
    sp_serial_count(serial, &catalog->n, ENTRY_BYTES);
    if (make_list(serial, (void **)&catalog->entry, catalog->n, sizeof *catalog->entry))
        for (int64_t i = 0; i < catalog->n && serial->rc == SP_OK; i++)
            serialize_entry(serial, &catalog->entry[i]);
}

/* ---- checks ---- */

/* True if the size of an element is possible. Texts, and types that are not read, may
 * have any size. */
static bool is_sized(sp_h5_type type)
{
    if (type.kind != 'i' && type.kind != 'u' && type.kind != 'f')
        return type.size >= 1;
    return (type.size == 1 && type.kind != 'f') || type.size == 2 || type.size == 4 ||
           type.size == 8;
}

/* The bytes of n rows; -1 if it overflows. */
static int64_t catalog_bytes(const sp_h5_shape *shape, int64_t n)
{
    int64_t bytes = shape->type.size;
    bool is_over = __builtin_mul_overflow(bytes, n, &bytes);

    for (int d = 1; d < shape->rank; d++)
        is_over |= __builtin_mul_overflow(bytes, shape->dim[d], &bytes);
    return is_over ? -1 : bytes;
}

static void check_contiguous(const sp_h5_shape *shape, int64_t bytes,
                             int64_t file_bytes, char *why, size_t size)
{
    if (bytes == 0)
        return;
    if (bytes > 0 && shape->at < 0)
        snprintf(why, size, "its values were not all written");
    else if (bytes < 0 || shape->at > file_bytes || bytes > file_bytes - shape->at)
        snprintf(why, size,
                 "reaches beyond the end of the file (%lld bytes): truncated or "
                 "damaged",
                 (long long)file_bytes);
}

static void check_chunks(const sp_h5_shape *shape, int64_t bytes, int64_t file_bytes,
                         char *why, size_t size)
{
    const sp_h5_chunks *c = &shape->chunks;
    const int64_t more = file_bytes < INT64_MAX / 8 ? CHUNK_FACTOR * file_bytes : 0;
    const int64_t most = CHUNK + more, rows_bytes = catalog_bytes(shape, c->rows);

    if (c->rows < 1 || c->bytes < 1)
        snprintf(why, size, "its chunks do not make up its shape");
    else if (rows_bytes < 0 || rows_bytes > most || c->bytes > most)
        snprintf(why, size,
                 "its chunks of %lld rows are too large to unpack (at most %lld MiB, "
                 "of a file of this size): write it with smaller chunks",
                 (long long)c->rows, (long long)(most >> 20));
    else if (bytes < 0 || bytes / EXPANSION > file_bytes)
        snprintf(why, size,
                 "larger than the file (%lld bytes) can hold: truncated or damaged",
                 (long long)file_bytes);
}

static void check_dataset(const sp_h5_entry *entry, int64_t file_bytes, char *why,
                          size_t size)
{
    const sp_h5_shape *shape = &entry->shape;
    bool is_odd = shape->rank < -1 || shape->rank > SP_H5_RANK ||
                  !is_sized(shape->type) ||
                  (shape->is_contiguous && shape->chunks.rows != 0);
    int64_t bytes;

    for (int d = 0; d < shape->rank && !is_odd; d++)
        is_odd = shape->dim[d] < 0;
    if (is_odd)
        snprintf(why, size, "its shape makes no sense: damaged");
    if (is_odd || shape->rank < 0 || shape->type.kind == 's' || shape->type.kind == '?')
        return; /* find_numbers fails if numbers are asked for */
    bytes = catalog_bytes(shape, shape->rank > 0 ? shape->dim[0] : 1);
    if (shape->is_contiguous)
        check_contiguous(shape, bytes, file_bytes, why, size);
    else
        check_chunks(shape, bytes, file_bytes, why, size);
}

static int h5_by_name(const void *a, const void *b)
{
    const char *x = ((const sp_h5_entry *)a)->name, *y = ((const sp_h5_entry *)b)->name;

    return strcmp(x + (*x == '/'), y + (*y == '/'));
}

static sp_status h5_check_entry(sp_h5_entry *entry, int64_t file_bytes)
{
    char why[256] = "";

    if (!entry->name)
        return SP_FAIL(SP_EDATA, "an index has a part without a name");
    for (int64_t i = 0; i < entry->n_attrs; i++)
        if (!entry->attr[i].name || !is_sized(entry->attr[i].type))
            return SP_FAIL(SP_EDATA, "an index has an attribute that makes no sense");
    if (entry->kind != SP_H5_DATASET || entry->why)
        return SP_OK;
    check_dataset(entry, file_bytes, why, sizeof why);
    if (*why && !(entry->why = strdup(why)))
        return SP_FAIL(SP_EMEM, "no memory for an index");
    return SP_OK;
}

sp_status sp_h5_catalog_check(sp_h5_catalog *catalog)
{
    for (int64_t i = 0; i < catalog->n; i++)
        SP_TRY(h5_check_entry(&catalog->entry[i], catalog->bytes));
    if (catalog->n > 0)
        qsort(catalog->entry, (size_t)catalog->n, sizeof *catalog->entry, h5_by_name);
    return SP_OK;
}

/* ---- look-ups ---- */

const sp_h5_entry *sp_h5_catalog_find(const sp_h5_catalog *catalog, const char *name)
{
    sp_h5_entry key = {.name = (char *)(uintptr_t)name};

    assert(name);
    return catalog->n > 0 ? bsearch(&key, catalog->entry, (size_t)catalog->n,
                                    sizeof key, h5_by_name)
                          : NULL;
}

const sp_h5_entry *sp_h5_catalog_link(const sp_h5_catalog *catalog, const char *name)
{
    char part[1024];
    size_t n = strlen(name);
    const sp_h5_entry *entry;

    for (size_t i = 1; i < n && i < sizeof part; i++) {
        if (name[i] != '/')
            continue;
        memcpy(part, name, i);
        part[i] = 0;
        entry = sp_h5_catalog_find(catalog, part);
        if (entry && entry->kind == SP_H5_LINK)
            return entry;
    }
    return NULL;
}

const sp_h5_attr *sp_h5_entry_attr(const sp_h5_entry *entry, const char *name)
{
    assert(entry && name);
    for (int64_t i = 0; i < entry->n_attrs; i++)
        if (strcmp(entry->attr[i].name, name) == 0)
            return &entry->attr[i];
    return NULL;
}

/* ---- end ---- */

static void free_attr(sp_h5_attr *attr)
{
    sp_h5_list_free(attr->text, attr->n);
    free(attr->name);
    free(attr->value);
    free(attr->why);
}

static void free_entry(sp_h5_entry *entry)
{
    sp_h5_list_free(entry->text, entry->n_texts);
    for (int64_t i = 0; entry->attr && i < entry->n_attrs; i++)
        free_attr(&entry->attr[i]);
    free(entry->attr);
    free(entry->name);
    free(entry->why);
}

void sp_h5_catalog_free(sp_h5_catalog *catalog)
{
    for (int64_t i = 0; catalog->entry && i < catalog->n; i++)
        free_entry(&catalog->entry[i]);
    free(catalog->entry);
    *catalog = (sp_h5_catalog){0};
}
