/* Tensors among the values of PyTorch's pickles, and the file format before 1.6:
 *
 *     pickle of a magic number | of the protocol, 1001 | of facts about the system
 *     pickle of the object     | of the list of storages' keys
 *     each storage: its number of elements as int64, the elements */
#include "weights/sp_torch.h"

#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

enum {
    DEEPEST = 32, /* dicts within dicts */
    MOST_VISITS = 1 << 22
};

/* ---- types ---- */

/* The type of a storage's class ("FloatStorage") or of a dtype ("float32") in the words
 * of safetensors; NULL if safetensors has no such type. */
static const char *torch_type(sp_pickle_text name)
{
    static const char *const types[][3] = {
        {"FloatStorage", "float32", "F32"},
        {"HalfStorage", "float16", "F16"},
        {"BFloat16Storage", "bfloat16", "BF16"},
        {"DoubleStorage", "float64", "F64"},
        {"LongStorage", "int64", "I64"},
        {"IntStorage", "int32", "I32"},
        {"ShortStorage", "int16", "I16"},
        {"CharStorage", "int8", "I8"},
        {"ByteStorage", "uint8", "U8"},
        {"BoolStorage", "bool", "BOOL"},
        {"ComplexFloatStorage", "complex64", "C64"},
        {"ComplexDoubleStorage", "complex128", "C128"},
        {"UntypedStorage", "float8_e4m3fn", "F8_E4M3"}, /* bytes */
        {"UntypedStorage", "float8_e5m2", "F8_E5M2"},
        {"UntypedStorage", "uint16", "U16"},
        {"UntypedStorage", "uint32", "U32"},
        {"UntypedStorage", "uint64", "U64"},
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (sp_pickle_is(name, types[i][0]) || sp_pickle_is(name, types[i][1]))
            return types[i][2];
    return NULL;
}

static const char *type_of_tensor(const sp_pickle *p, const sp_pickle_value *tensor)
{
    const int type = tensor->type >= 0 ? tensor->type : p->value[tensor->storage].type;

    return p->value[type].kind == SP_PICKLE_GLOBAL ? torch_type(p->value[type].text)
                                                   : NULL;
}

/* ---- one tensor ---- */

typedef struct collecting {
    sp_tensors *file;
    const sp_pickle *pickle;
    sp_torch_find *find;
    void *arg;
    int64_t n_visits;
    char name[SP_TENSOR_NAME];
} collecting;

static sp_status read_numbers(const collecting *c, int list, const char *what, int *n,
                              int64_t *to)
{
    const sp_pickle *p = c->pickle;

    *n = 0;
    if (p->value[list].kind != SP_PICKLE_LIST || p->value[list].count > SP_TENSOR_RANK)
        return SP_FAIL(SP_EDATA,
                       "%s: tensor %s: its %s is no list of at most %d "
                       "numbers",
                       c->file->path, c->name, what, SP_TENSOR_RANK);
    for (int i = p->value[list].first; i >= 0; i = p->cell[i].next) {
        const sp_pickle_value *v = &p->value[p->cell[i].value];

        if (v->kind != SP_PICKLE_WHOLE || v->whole < 0)
            return SP_FAIL(SP_EDATA,
                           "%s: tensor %s: its %s has a part that is no "
                           "whole number from 0 on",
                           c->file->path, c->name, what);
        to[(*n)++] = v->whole;
    }
    return SP_OK;
}

/* The element with the highest offset; false: it exceeds 64 bits. */
static bool find_extent(const sp_tensor_view *t, int64_t *extent)
{
    *extent = 0;
    for (int d = 0; d < t->rank; d++) {
        int64_t more;

        if (t->dim[d] > 1 &&
            (__builtin_mul_overflow(t->dim[d] - 1, t->stride[d], &more) ||
             __builtin_add_overflow(*extent, more, extent)))
            return false;
    }
    return true;
}

/* Sets the place of the numbers from the storage and the offset into it. */
static sp_status place_tensor(const collecting *c, const sp_pickle_value *v,
                              sp_tensor_view *t)
{
    const sp_pickle_value *storage = &c->pickle->value[v->storage];
    const int64_t size = sp_tensor_element_bytes(t->type);
    const unsigned char *bytes;
    size_t n_bytes;
    int64_t extent = 0, end = 0;

    SP_TRY(c->find(c->arg, storage->text, &bytes, &n_bytes));
    if (!find_extent(t, &extent) || v->whole < 0 ||
        __builtin_add_overflow(extent, v->whole, &end) ||
        (t->count > 0 && end >= (int64_t)(n_bytes / (size_t)size)))
        return SP_FAIL(SP_EDATA,
                       "%s: tensor %s: reaches element %lld of a storage of %zu bytes",
                       c->file->path, c->name, (long long)end, n_bytes);
    t->data = t->count ? bytes + v->whole * size : bytes;
    return SP_OK;
}

static sp_status add_tensor(const collecting *c, const sp_pickle_value *v)
{
    const char *type = type_of_tensor(c->pickle, v);
    sp_tensor_view t = {.name = (char *)c->name};
    int64_t stride[SP_TENSOR_RANK];
    int n;

    snprintf(t.type, sizeof t.type, "%s", type ? type : "?");
    SP_TRY(read_numbers(c, v->size, "size", &t.rank, t.dim));
    SP_TRY(read_numbers(c, v->stride, "stride", &n, stride));
    if (n != t.rank)
        return SP_FAIL(SP_EDATA,
                       "%s: tensor %s: size and stride have %d and %d numbers",
                       c->file->path, c->name, t.rank, n);
    SP_TRY(sp_tensor_set_dense(c->file, &t));
    memcpy(t.stride, stride, sizeof t.stride);
    if (type)
        SP_TRY(place_tensor(c, v, &t));
    else
        t.fault = "its type is unknown"; /* only a fault if the network wants it */
    return sp_tensors_add(c->file, &t);
}

/* ---- all ---- */

/* Parts of the names in a module that was saved whole. */
static bool is_of_module(sp_pickle_text key)
{
    return sp_pickle_is(key, "_parameters") || sp_pickle_is(key, "_buffers") ||
           sp_pickle_is(key, "_modules");
}

/* Appends a key to the name; false if it is no text or number, or the name is too
 * long. */
static bool append_key(collecting *c, const sp_pickle_value *key)
{
    const size_t used = strlen(c->name), room = sizeof c->name - used;
    const char *point = used ? "." : "";

    if (key->kind == SP_PICKLE_WHOLE)
        return (size_t)snprintf(c->name + used, room, "%s%lld", point,
                                (long long)key->whole) < room;
    if (key->kind != SP_PICKLE_TEXT || memchr(key->text.at, 0, key->text.n))
        return false;
    if (is_of_module(key->text))
        return true;
    return key->text.n + 2 <= room &&
           (size_t)snprintf(c->name + used, room, "%s%.*s", point, (int)key->text.n,
                            key->text.at) < room;
}

static sp_status collect_value(collecting *c, int value, int depth);

static sp_status collect_cells(collecting *c, const sp_pickle_value *list, int depth)
{
    const size_t used = strlen(c->name);
    sp_status rc = SP_OK;
    int64_t i = 0;

    for (int cell = list->first; cell >= 0 && rc == SP_OK;
         cell = c->pickle->cell[cell].next, i++) {
        const sp_pickle_cell *at = &c->pickle->cell[cell];
        const sp_pickle_value number = {.kind = SP_PICKLE_WHOLE, .whole = i};

        if (append_key(c, at->key >= 0 ? &c->pickle->value[at->key] : &number))
            rc = collect_value(c, at->value, depth + 1);
        c->name[used] = '\0';
    }
    return rc;
}

static sp_status collect_value(collecting *c, int value, int depth)
{
    const sp_pickle_value *v = &c->pickle->value[value];

    if (depth > DEEPEST || ++c->n_visits > MOST_VISITS)
        return SP_FAIL(SP_EDATA,
                       "%s: dicts within dicts, more than %d deep or %d in "
                       "all, at %.60s",
                       c->file->path, DEEPEST, MOST_VISITS, c->name);
    switch (v->kind) {
    case SP_PICKLE_TENSOR:
        return c->name[0] ? add_tensor(c, v) : SP_OK;
    case SP_PICKLE_LIST:
    case SP_PICKLE_DICT:
        return collect_cells(c, v, depth);
    case SP_PICKLE_OPAQUE:
        return v->type >= 0 ? collect_value(c, v->type, depth + 1) : SP_OK;
    default:
        return SP_OK;
    }
}

sp_status sp_torch_collect(sp_tensors *file, const sp_pickle *pickle,
                           sp_torch_find *find, void *arg)
{
    collecting c = {file, pickle, find, arg, 0, ""};

    return collect_value(&c, pickle->root, 0);
}

/* ---- the format before 1.6 ---- */

typedef struct old_storage {
    sp_pickle_text key;
    const unsigned char *bytes;
    size_t n_bytes;
} old_storage;

typedef struct old_file {
    const sp_tensors *file;
    int n;
    old_storage *storage;
} old_file;

static sp_status find_old_storage(void *arg, sp_pickle_text key,
                                  const unsigned char **bytes, size_t *n_bytes)
{
    const old_file *old = arg;

    for (int i = 0; i < old->n; i++)
        if (old->storage[i].key.n == key.n &&
            memcmp(old->storage[i].key.at, key.at, key.n) == 0) {
            *bytes = old->storage[i].bytes;
            *n_bytes = old->storage[i].n_bytes;
            return SP_OK;
        }
    return SP_FAIL(SP_EDATA, "%s: storage %.*s is missing", old->file->path,
                   (int)(key.n < 40 ? key.n : 40), key.at);
}

/* Bytes of an element of a storage, by the object's pickle; 0: nothing refers to it. */
static int storage_element_bytes(const sp_pickle *p, sp_pickle_text key)
{
    for (int64_t i = 0; i < p->n_values; i++) {
        const sp_pickle_value *v = &p->value[i];
        const char *type = NULL;

        if (v->kind != SP_PICKLE_STORAGE || v->text.n != key.n ||
            memcmp(v->text.at, key.at, key.n) != 0)
            continue;
        if (p->value[v->type].kind == SP_PICKLE_GLOBAL)
            type = torch_type(p->value[v->type].text);
        return type ? sp_tensor_element_bytes(type) : 0;
    }
    return 0;
}

/* Reads the places of the storages: keys is the list of their keys, in their order. */
static sp_status place_old_storages(old_file *old, const sp_pickle *p, int keys,
                                    size_t at)
{
    const sp_tensors *file = old->file;

    for (int c = p->value[keys].first; c >= 0; c = p->cell[c].next) {
        const sp_pickle_value *key = &p->value[p->cell[c].value];
        old_storage *s = &old->storage[old->n];
        int64_t n;
        int size;

        if (key->kind != SP_PICKLE_TEXT || file->n_bytes - at < 8)
            return SP_FAIL(SP_EDATA, "%s: byte %zu: expected storage %d", file->path,
                           at, old->n);
        size = storage_element_bytes(p, key->text);
        n = (int64_t)sp_get64((const unsigned char *)file->bytes + at);
        at += 8;
        if (size == 0 || n < 0 || (uint64_t)n > (file->n_bytes - at) / (size_t)size)
            return SP_FAIL(SP_EDATA,
                           "%s: byte %zu: storage %d of %lld elements is outside of "
                           "the file, or of an unknown type",
                           file->path, at - 8, old->n, (long long)n);
        *s = (old_storage){key->text, (const unsigned char *)file->bytes + at,
                           (size_t)n * (size_t)size};
        at += s->n_bytes;
        old->n++;
    }
    return SP_OK;
}

static sp_status run_old_pickles(sp_tensors *file, sp_pickle *p, int *object, int *keys,
                                 size_t *at)
{
    static const unsigned char magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                          0x20, 0x6a, 0xa8, 0x50, 0x19};
    const char *number = file->bytes + 2; /* after PROTO and, since protocol 4, FRAME */

    if (file->n_bytes >= 24 && *number == (char)0x95)
        number += 9;
    /* LONG1 of 10 bytes, STOP */
    if (file->n_bytes < 15 || number[0] != (char)0x8a || number[1] != 10 ||
        memcmp(number + 2, magic, sizeof magic) != 0)
        return SP_FAIL(SP_EDATA,
                       "%s: is a pickle, but no file of PyTorch: its magic number is "
                       "missing",
                       file->path);
    *at = 0;
    for (int i = 0; i < 3; i++)
        SP_TRY(sp_pickle_run(p, *at, at));
    SP_TRY(sp_pickle_run(p, *at, at));
    *object = p->root;
    SP_TRY(sp_pickle_run(p, *at, at));
    *keys = p->root;
    p->root = *object;
    if (p->value[*keys].kind != SP_PICKLE_LIST)
        return SP_FAIL(SP_EDATA, "%s: byte %zu: expected a list of storages",
                       file->path, *at);
    return SP_OK;
}

sp_status sp_torch_old_parse(sp_tensors *file)
{
    SP_CLOSED_BY(sp_pickle_destroy)
    sp_pickle p = {.path = file->path,
                   .bytes = (const unsigned char *)file->bytes,
                   .n_bytes = file->n_bytes};
    SP_FREED old_storage *storage = NULL;
    old_file old = {.file = file};
    int object = -1, keys = -1;
    size_t at = 0;

    file->container = "PyTorch before 1.6";
    SP_TRY(run_old_pickles(file, &p, &object, &keys, &at));
    SP_TRY(SP_NEW(&storage, p.value[keys].count, file->path));
    old.storage = storage;
    SP_TRY(place_old_storages(&old, &p, keys, at));
    return sp_torch_collect(file, &p, find_old_storage, &old);
}
