#include "weights/sp_tensors.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "base/sp_text.h"
#include "h5/sp_h5.h"

/* ---- types ---- */

static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static float get_f16(const unsigned char *p)
{
    return sp_half_to_float(sp_get16(p));
}

static float get_bf16(const unsigned char *p)
{
    return float_of_bits((uint32_t)sp_get16(p) << 16);
}

static float get_f32(const unsigned char *p)
{
    return float_of_bits(sp_get32(p));
}

static float get_f64(const unsigned char *p)
{
    return (float)sp_get_double(p);
}

typedef struct tensor_type {
    const char *name;
    int bytes;
    float (*get)(const unsigned char *p); /* NULL: no weights are of this type */
} tensor_type;

static const tensor_type types[] = {
    {"F32", 4, get_f32}, {"F16", 2, get_f16},  {"BF16", 2, get_bf16},
    {"F64", 8, get_f64}, {"I64", 8, NULL},     {"I32", 4, NULL},
    {"I16", 2, NULL},    {"I8", 1, NULL},      {"U64", 8, NULL},
    {"U32", 4, NULL},    {"U16", 2, NULL},     {"U8", 1, NULL},
    {"BOOL", 1, NULL},   {"F8_E4M3", 1, NULL}, {"F8_E5M2", 1, NULL},
    {"C64", 8, NULL},    {"C128", 16, NULL},
};

static const tensor_type *find_tensor_type(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

int sp_tensor_element_bytes(const char *type)
{
    const tensor_type *t = find_tensor_type(type);

    return t ? t->bytes : 0;
}

/* ---- the list ---- */

sp_status sp_tensors_add(sp_tensors *file, const sp_tensor_view *tensor)
{
    if (file->n == SP_MOST_TENSORS)
        return SP_FAIL(SP_EDATA, "%s: more than %d tensors", file->path,
                       SP_MOST_TENSORS);
    if (!sp_list_grow(&file->at, file->n, sizeof *file->at))
        return SP_FAIL(SP_EMEM, "%s: no memory for its tensors", file->path);
    file->at[file->n] = *tensor;
    file->at[file->n].name = strdup(tensor->name);
    if (!file->at[file->n].name)
        return SP_FAIL(SP_EMEM, "%s: no memory for its tensors", file->path);
    file->n++;
    return SP_OK;
}

const sp_tensor_view *sp_tensors_find(const sp_tensors *file, const char *name)
{
    int from = 0, to = file->n;

    while (from < to) {
        const int i = from + (to - from) / 2,
                  order = strcmp(name, file->by_name[i]->name);

        if (order == 0)
            return file->by_name[i];
        if (order < 0)
            to = i;
        else
            from = i + 1;
    }
    return NULL;
}

sp_status sp_tensor_set_dense(const sp_tensors *file, sp_tensor_view *t)
{
    int64_t count = 1;

    for (int d = t->rank - 1; d >= 0; d--) {
        t->stride[d] = count;
        if (__builtin_mul_overflow(count, t->dim[d], &count) || count > (int64_t)1
                                                                            << 40)
            return SP_FAIL(SP_EDATA, "%s: tensor %s has more than 2^40 elements",
                           file->path, t->name);
    }
    t->count = count;
    return SP_OK;
}

char *sp_tensor_print_shape(int rank, const int64_t *dim, char to[SP_TENSOR_SHAPE])
{
    int used = snprintf(to, SP_TENSOR_SHAPE, "[");

    for (int d = 0; d < rank; d++)
        used += snprintf(to + used, (size_t)(SP_TENSOR_SHAPE - used), "%s%lld",
                         d ? ", " : "", (long long)dim[d]);
    snprintf(to + used, (size_t)(SP_TENSOR_SHAPE - used), "]");
    return to;
}

void sp_tensors_print(const sp_tensors *file, FILE *to)
{
    char shape[SP_TENSOR_SHAPE], name[SP_TENSOR_NAME];
    int64_t elements = 0, bytes = 0;

    for (int i = 0; i < file->n; i++) {
        const sp_tensor_view *t = &file->at[i];
        const int64_t n = t->count * sp_tensor_element_bytes(t->type);

        fprintf(to, "%-56s %-5s %-24s %lld bytes%s%s\n",
                sp_text_printable(name, sizeof name, t->name, false), t->type,
                sp_tensor_print_shape(t->rank, t->dim, shape), (long long)n,
                t->fault ? ": " : "", t->fault ? t->fault : "");
        elements += t->count;
        bytes += n;
    }
    fprintf(to, "%s: %s, %d tensor%s, %lld elements, %lld bytes\n", file->path,
            file->container, file->n, sp_plural(file->n), (long long)elements,
            (long long)bytes);
}

/* ---- numbers ---- */

/* Reverses the bytes of an element. */
static void swap_element(unsigned char *to, const unsigned char *from, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = from[bytes - 1 - i];
}

/* Moves to the next element in C order. */
static const unsigned char *next_element(const sp_tensor_view *t, int64_t *index,
                                         const unsigned char *at, int bytes)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        at += t->stride[d] * bytes;
        if (++index[d] < t->dim[d])
            return at;
        at -= t->dim[d] * t->stride[d] * bytes;
        index[d] = 0;
    }
    return at;
}

sp_status sp_tensor_read(const sp_tensors *file, const sp_tensor_view *t, float *to)
{
    const tensor_type *type = find_tensor_type(t->type);
    int64_t index[SP_TENSOR_RANK] = {0};
    const unsigned char *at = t->data;
    unsigned char element[16];

    if (!type || !type->get)
        return SP_FAIL(SP_EDATA,
                       "%s: tensor %s has type %s, expected F16, BF16, F32 or F64",
                       file->path, t->name, t->type);
    if (t->fault)
        return SP_FAIL(SP_EDATA, "%s: tensor %s: %s", file->path, t->name, t->fault);
    for (int64_t i = 0; i < t->count; i++) {
        if (file->is_swapped)
            swap_element(element, at, type->bytes);
        to[i] = type->get(file->is_swapped ? element : at);
        if (!isfinite(to[i]))
            return SP_FAIL(SP_EDATA,
                           "%s: tensor %s: element %lld is %g, expected a finite "
                           "number",
                           file->path, t->name, (long long)i, (double)to[i]);
        at = next_element(t, index, at, type->bytes);
    }
    return SP_OK;
}

/* ---- containers ---- */

static int compare_names(const void *a, const void *b)
{
    const sp_tensor_view *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* Sorts the names. With two tensors of one name the choice would be arbitrary. */
static sp_status sort_names(sp_tensors *file)
{
    SP_TRY(SP_NEW(&file->by_name, file->n, file->path));
    for (int i = 0; i < file->n; i++)
        file->by_name[i] = &file->at[i];
    qsort(file->by_name, (size_t)file->n, sizeof *file->by_name, compare_names);
    for (int i = 1; i < file->n; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return SP_FAIL(SP_EDATA, "%s: two tensors are named %s", file->path,
                           file->by_name[i]->name);
    return SP_OK;
}

static bool begins_with(const sp_tensors *file, const char *head, size_t bytes)
{
    return file->n_bytes >= bytes && memcmp(file->bytes, head, bytes) == 0;
}

static sp_status parse_container(sp_tensors *file)
{
    if (begins_with(file, "PK\3\4", 4))
        return sp_torch_zip_parse(file);
    if (begins_with(file, "\x80", 1) && file->n_bytes > 2 && file->bytes[1] <= 5)
        return sp_torch_old_parse(file);
    if (file->n_bytes > 8 && file->bytes[8] == '{')
        return sp_safetensors_parse(file);
    if (begins_with(file, SP_H5_SIGNATURE, 8))
        return SP_FAIL(SP_EDATA,
                       "%s: is HDF5; `sptrain check %s` describes a checkpoint",
                       file->path, file->path);
    return SP_FAIL(SP_EDATA,
                   "%s: is neither safetensors nor a file of PyTorch (a zip file, or "
                   "the format before 1.6)",
                   file->path);
}

sp_status sp_tensors_open(sp_tensors *file, const char *path)
{
    memset(file, 0, sizeof *file);
    SP_TRY(sp_file_read_input(path, &file->bytes, &file->n_bytes));
    file->path = strdup(path);
    if (!file->path)
        return SP_FAIL(SP_EMEM, "%s: no memory", path);
    SP_TRY(parse_container(file));
    return sort_names(file);
}

void sp_tensors_close(sp_tensors *file)
{
    for (int i = 0; i < file->n; i++)
        free(file->at[i].name);
    free(file->at);
    free(file->by_name);
    free(file->bytes);
    free(file->path);
    memset(file, 0, sizeof *file);
}
