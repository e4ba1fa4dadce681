/* safetensors: 8 bytes with the header's length, the header as JSON, the numbers.
 *
 *     {"conv1.weight": {"dtype": "F32", "shape": [27, 4, 32],
 *                       "data_offsets": [0, 13824]}, "__metadata__": {...}}
 *
 * As the format's own library does, the reader refuses ranges that overlap, leave bytes
 * out, or do not have the bytes of their type and shape. */
#include "weights/sp_tensors.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_number.h"

enum { MOST_HEADER = 100 << 20 }; /* the format's own limit */

/* ---- read ---- */

static sp_status read_tensor_shape(const sp_tensors *file, json_t *shape,
                                   sp_tensor_view *t)
{
    if (!json_is_array(shape) || json_array_size(shape) > SP_TENSOR_RANK)
        return SP_FAIL(SP_EDATA,
                       "%s: tensor %s: shape is no list of at most %d numbers",
                       file->path, t->name, SP_TENSOR_RANK);
    t->rank = (int)json_array_size(shape);
    for (int d = 0; d < t->rank; d++) {
        json_t *n = json_array_get(shape, (size_t)d);

        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return SP_FAIL(SP_EDATA, "%s: tensor %s: shape[%d] is no whole number",
                           file->path, t->name, d);
        t->dim[d] = json_integer_value(n);
    }
    return sp_tensor_set_dense(file, t);
}

/* data: offset of the numbers in the file. */
static sp_status read_tensor_range(const sp_tensors *file, json_t *range, size_t data,
                                   sp_tensor_view *t)
{
    const int64_t most = (int64_t)(file->n_bytes - data);
    const int64_t want = t->count * sp_tensor_element_bytes(t->type);
    json_t *a = json_array_get(range, 0), *b = json_array_get(range, 1);
    int64_t begin, end;

    if (json_array_size(range) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return SP_FAIL(SP_EDATA, "%s: tensor %s: data_offsets are not two numbers",
                       file->path, t->name);
    begin = json_integer_value(a);
    end = json_integer_value(b);
    if (begin < 0 || end < begin || end > most)
        return SP_FAIL(SP_EDATA,
                       "%s: tensor %s: bytes %lld to %lld, expected within the %lld "
                       "bytes of numbers",
                       file->path, t->name, (long long)begin, (long long)end,
                       (long long)most);
    if (end - begin != want)
        return SP_FAIL(SP_EDATA,
                       "%s: tensor %s: %lld bytes, expected %lld for its type and "
                       "shape",
                       file->path, t->name, (long long)(end - begin), (long long)want);
    t->data = (const unsigned char *)file->bytes + data + begin;
    return SP_OK;
}

static sp_status read_tensor_entry(sp_tensors *file, const char *name, json_t *entry,
                                   size_t data)
{
    json_t *type = json_object_get(entry, "dtype");
    sp_tensor_view t = {.name = (char *)name};

    if (strlen(name) >= SP_TENSOR_NAME)
        return SP_FAIL(SP_EDATA,
                       "%s: the name of a tensor has more than %d bytes: "
                       "%.40s...",
                       file->path, SP_TENSOR_NAME - 1, name);
    if (!json_is_object(entry) || !json_is_string(type))
        return SP_FAIL(SP_EDATA, "%s: tensor %s has no dtype", file->path, name);
    if (!sp_tensor_element_bytes(json_string_value(type)))
        return SP_FAIL(SP_EDATA, "%s: tensor %s: unknown dtype \"%.20s\"", file->path,
                       name, json_string_value(type));
    snprintf(t.type, sizeof t.type, "%s", json_string_value(type));
    SP_TRY(read_tensor_shape(file, json_object_get(entry, "shape"), &t));
    SP_TRY(read_tensor_range(file, json_object_get(entry, "data_offsets"), data, &t));
    return sp_tensors_add(file, &t);
}

static int compare_places(const void *a, const void *b)
{
    const sp_tensor_view *x = a, *y = b;
    const int64_t n = x->count > 0, m = y->count > 0;

    return x->data != y->data ? (x->data > y->data) - (x->data < y->data)
                              : (n > m) - (n < m);
}

/* Sorts the tensors by place and checks that they fill the file without a gap. */
static sp_status check_places(sp_tensors *file, size_t data)
{
    const unsigned char *at = (const unsigned char *)file->bytes + data;
    const unsigned char *end = (const unsigned char *)file->bytes + file->n_bytes;

    if (file->n)
        qsort(file->at, (size_t)file->n, sizeof *file->at, compare_places);
    for (int i = 0; i < file->n; i++) {
        const sp_tensor_view *t = &file->at[i];

        if (t->data != at)
            return SP_FAIL(SP_EDATA,
                           "%s: tensor %s begins at byte %lld, expected %lld: tensors "
                           "overlap or leave bytes out",
                           file->path, t->name,
                           (long long)(t->data - (end - file->n_bytes)),
                           (long long)(at - (end - file->n_bytes)));
        at += t->count * sp_tensor_element_bytes(t->type);
    }
    if (at != end)
        return SP_FAIL(SP_EDATA, "%s: %lld bytes after the last tensor", file->path,
                       (long long)(end - at));
    return SP_OK;
}

static sp_status read_entries(sp_tensors *file, json_t *root, size_t data)
{
    const char *name;
    json_t *entry;

    json_object_foreach(root, name, entry) if (strcmp(name, "__metadata__") != 0)
        SP_TRY(read_tensor_entry(file, name, entry, data));
    return check_places(file, data);
}

sp_status sp_safetensors_parse(sp_tensors *file)
{
    const uint64_t n = sp_get64((const unsigned char *)file->bytes);
    json_error_t error;
    json_t *root;
    sp_status rc;

    file->container = "safetensors";
    if (n > MOST_HEADER || n > file->n_bytes - 8)
        return SP_FAIL(SP_EDATA,
                       "%s: a header of %llu bytes in a file of %zu: damaged, or no "
                       "safetensors file",
                       file->path, (unsigned long long)n, file->n_bytes);
    root = json_loadb(file->bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return SP_FAIL(SP_EDATA, "%s: header, byte %d: %s", file->path,
                       8 + error.position, error.text);
    rc = json_is_object(root)
             ? read_entries(file, root, 8 + (size_t)n)
             : SP_FAIL(SP_EDATA, "%s: the header is no JSON object", file->path);
    json_decref(root);
    return rc;
}

/* ---- write ---- */

static int64_t tensor_out_bytes(const sp_tensor_out *t)
{
    int64_t bytes = sizeof(float);

    for (int d = 0; d < t->rank; d++)
        bytes *= t->dim[d];
    return bytes;
}

static json_t *make_header(int n, const sp_tensor_out *tensor, const char *source)
{
    json_t *root = json_object();
    int64_t at = 0;

    json_object_set_new(root, "__metadata__",
                        json_pack("{s:s, s:s}", "format", "pt", "source", source));
    for (int i = 0; i < n; i++) {
        json_t *shape = json_array();
        const int64_t end = at + tensor_out_bytes(&tensor[i]);

        for (int d = 0; d < tensor[i].rank; d++)
            json_array_append_new(shape, json_integer(tensor[i].dim[d]));
        json_object_set_new(root, tensor[i].name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape",
                                      shape, "data_offsets", (json_int_t)at,
                                      (json_int_t)end));
        at = end;
    }
    return root;
}

/* The header is filled up with blanks, so that numbers begin at a multiple of 8. */
static bool write_tensors(FILE *to, int n, const sp_tensor_out *tensor,
                          const char *header)
{
    const size_t bytes = sp_multiple(strlen(header), 8);
    unsigned char head[8];
    bool is_good;

    sp_put64(head, bytes);
    is_good = fwrite(head, sizeof head, 1, to) == 1 &&
              fprintf(to, "%-*s", (int)bytes, header) >= 0;
    for (int i = 0; i < n && is_good; i++) {
        const size_t size = (size_t)tensor_out_bytes(&tensor[i]);

        is_good = size == 0 || fwrite(tensor[i].data, size, 1, to) == 1;
    }
    return is_good && fflush(to) == 0 && fsync(fileno(to)) == 0;
}

sp_status sp_safetensors_write(const char *path, int n, const sp_tensor_out *tensor,
                               const char *source)
{
    json_t *root = make_header(n, tensor, source);
    char *header = root ? json_dumps(root, JSON_COMPACT) : NULL;
    char temporary[PATH_MAX];
    FILE *to = NULL;
    bool is_good;
    sp_status rc = SP_OK;

    json_decref(root);
    if (!header)
        return SP_FAIL(SP_EMEM, "%s: no memory for its header", path);
    snprintf(temporary, sizeof temporary, "%s" SP_FILE_UNFINISHED, path);
    to = fopen(temporary, "wb");
    is_good = to && write_tensors(to, n, tensor, header);
    if (to)
        is_good = sp_file_close(to) && is_good;
    if (!is_good)
        rc = SP_FAIL(SP_EIO, "%s: cannot write: %s", temporary, strerror(errno));
    if (rc == SP_OK)
        rc = sp_file_rename(temporary, path);
    if (rc != SP_OK && to)
        unlink(temporary);
    free(header);
    return rc;
}
