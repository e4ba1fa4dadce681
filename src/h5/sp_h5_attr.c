/* Texts and attributes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5/sp_h5_internal.h"

/* Text of the same character set as `like` (the library converts none); size 0: of any
 * size. */
static hid_t text_type(size_t size, H5T_cset_t set)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, size ? size : H5T_VARIABLE);
    H5Tset_cset(type, set);
    return type;
}

static herr_t read_from(hid_t id, hid_t type, void *to)
{
    return H5Iget_type(id) == H5I_ATTR
               ? H5Aread(id, type, to)
               : H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
}

static sp_status copy_text(const sp_h5 *file, const char *name, const char *text,
                           size_t most, char **out)
{
    *out = strndup(text ? text : "", most);
    return *out ? SP_OK : SP_FAIL(SP_EMEM, "%s:%s: no memory", file->path, name);
}

static sp_status read_varying(const sp_h5 *file, const char *name, hid_t id,
                              hid_t stored, hid_t space, int64_t n, char **texts)
{
    hid_t type = text_type(0, H5Tget_cset(stored));
    char **raw = calloc((size_t)n + 1, sizeof *raw);
    sp_status rc = SP_OK;

    if (!raw)
        rc = SP_FAIL(SP_EMEM, "%s:%s: no memory", file->path, name);
    else if (read_from(id, type, raw) < 0)
        rc = sp_h5_fail(file, name, "texts cannot be read");
    for (int64_t i = 0; rc == SP_OK && i < n; i++)
        rc = copy_text(file, name, raw[i], PTRDIFF_MAX, &texts[i]);
    if (raw)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, raw);
    free(raw);
    H5Tclose(type);
    return rc;
}

static sp_status read_fixed(const sp_h5 *file, const char *name, hid_t id, hid_t stored,
                            int64_t n, char **texts)
{
    size_t size = H5Tget_size(stored) + 1;
    hid_t type = text_type(size, H5Tget_cset(stored));
    char *raw = calloc((size_t)n + 1, size);
    sp_status rc = SP_OK;

    if (!raw)
        rc = SP_FAIL(SP_EMEM, "%s:%s: no memory", file->path, name);
    else if (read_from(id, type, raw) < 0)
        rc = sp_h5_fail(file, name, "texts cannot be read");
    for (int64_t i = 0; rc == SP_OK && i < n; i++)
        rc = copy_text(file, name, raw + (size_t)i * size, size, &texts[i]);
    free(raw);
    H5Tclose(type);
    return rc;
}

/* Nothing is allocated that the size of the file cannot account for. */
static sp_status read_texts(const sp_h5 *file, const char *name, hid_t id, hid_t type,
                            hid_t space, int64_t n, char **texts)
{
    hssize_t have = H5Sget_simple_extent_npoints(space);
    int64_t size = (int64_t)H5Tget_size(type), most;

    memset(texts, 0, (size_t)n * sizeof *texts);
    if (H5Tget_class(type) != H5T_STRING)
        return SP_FAIL(SP_EDATA, "%s:%s: not of a text type", file->path, name);
    if (have != n)
        return SP_FAIL(SP_EDATA, "%s:%s: %lld texts, expected %lld", file->path, name,
                       (long long)have, (long long)n);
    if (__builtin_mul_overflow(file->bytes, (int64_t)SP_H5_EXPANSION, &most) ||
        (n > 0 && size > most / n))
        return SP_FAIL(SP_EDATA, "%s:%s: larger than its file", file->path, name);
    return H5Tis_variable_str(type) > 0
               ? read_varying(file, name, id, type, space, n, texts)
               : read_fixed(file, name, id, type, n, texts);
}

sp_status sp_h5_read_texts(sp_h5 *file, const char *name, int64_t n, char **texts)
{
    sp_status rc;
    hid_t set, type, space;

    sp_h5_enter();
    set = sp_h5_open_set(file, name, &rc);
    if (set >= 0) {
        type = H5Dget_type(set);
        space = H5Dget_space(set);
        rc = read_texts(file, name, set, type, space, n, texts);
        H5Sclose(space);
        H5Tclose(type);
        H5Dclose(set);
    }
    return sp_h5_leave(rc);
}

sp_status sp_h5_write_texts(sp_h5 *file, const char *name, int64_t n,
                            char *const *texts)
{
    size_t size = 1;
    char *block;
    hid_t type;
    sp_status rc;

    for (int64_t i = 0; i < n; i++)
        size = strlen(texts[i]) > size ? strlen(texts[i]) : size;
    block = calloc((size_t)n + 1, size);
    if (!block)
        return SP_FAIL(SP_EMEM, "%s:%s: no memory", file->path, name);
    for (int64_t i = 0; i < n; i++)
        memcpy(block + (size_t)i * size, texts[i], strlen(texts[i]));
    sp_h5_enter();
    type = text_type(size, H5T_CSET_UTF8);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    rc = sp_h5_make_set(file, name, type, 1, &n, type, block);
    H5Tclose(type);
    sp_h5_leave(rc);
    free(block);
    return rc;
}

/* ---- attributes ---- */

static hid_t open_attr(const sp_h5 *file, const char *object, const char *name,
                       sp_status *rc)
{
    hid_t attr = H5I_INVALID_HID;

    *rc = SP_OK;
    if (!sp_h5_exists(file, object) ||
        H5Aexists_by_name(file->id, object, name, H5P_DEFAULT) <= 0)
        *rc = SP_FAIL(SP_EDATA, "%s%s%s: missing attribute %s", file->path,
                      strcmp(object, "/") ? ":" : "", strcmp(object, "/") ? object : "",
                      name);
    else if ((attr = H5Aopen_by_name(file->id, object, name, H5P_DEFAULT,
                                     H5P_DEFAULT)) < 0)
        *rc = sp_h5_fail(file, name, "attribute cannot be opened");
    return attr;
}

static int64_t count_of(hid_t attr)
{
    hid_t space = H5Aget_space(attr);
    hssize_t n = H5Sget_simple_extent_npoints(space);

    H5Sclose(space);
    return n;
}

bool sp_h5_attr_has(sp_h5 *file, const char *object, const char *name)
{
    bool is_there;

    sp_h5_enter();
    is_there = sp_h5_exists(file, object) &&
               H5Aexists_by_name(file->id, object, name, H5P_DEFAULT) > 0;
    sp_h5_leave(SP_OK);
    return is_there;
}

sp_status sp_h5_attr_count(sp_h5 *file, const char *object, const char *name,
                           int64_t *n)
{
    sp_status rc;
    hid_t attr;

    sp_h5_enter();
    attr = open_attr(file, object, name, &rc);
    if (attr >= 0) {
        *n = count_of(attr);
        H5Aclose(attr);
    }
    return sp_h5_leave(rc);
}

static sp_status make_attr(sp_h5 *file, const char *object, const char *name,
                           hid_t type, int n, const void *data)
{
    hsize_t size = n < 0 ? 1 : (hsize_t)n;
    hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &size, NULL);
    hid_t attr = H5Acreate_by_name(file->id, object, name, type, space, H5P_DEFAULT,
                                   H5P_DEFAULT, H5P_DEFAULT);
    sp_status rc = SP_OK;

    if (attr < 0 || H5Awrite(attr, type, data) < 0)
        rc = sp_h5_fail(file, name, "attribute cannot be written");
    if (attr >= 0)
        H5Aclose(attr);
    H5Sclose(space);
    return rc;
}

sp_status sp_h5_attr_write(sp_h5 *file, const char *object, const char *name,
                           sp_h5_type type, int n, const void *data)
{
    sp_h5_enter();
    return sp_h5_leave(make_attr(file, object, name, sp_h5_native(type), n, data));
}

sp_status sp_h5_attr_write_texts(sp_h5 *file, const char *object, const char *name,
                                 int n, char *const *texts)
{
    hid_t type;
    sp_status rc;

    sp_h5_enter();
    type = text_type(0, H5T_CSET_UTF8);
    rc = make_attr(file, object, name, type, n, texts);
    H5Tclose(type);
    return sp_h5_leave(rc);
}

static sp_status read_attr(const sp_h5 *file, const char *name, hid_t attr,
                           sp_h5_type type, int64_t n, void *data)
{
    hid_t stored = H5Aget_type(attr);
    char kind = sp_h5_describe(stored).kind;

    H5Tclose(stored);
    if (kind == 's' || kind == '?')
        return SP_FAIL(SP_EDATA, "%s: attribute %s is not a number", file->path, name);
    if (count_of(attr) != n)
        return SP_FAIL(SP_EDATA, "%s: attribute %s has %lld elements, expected %lld",
                       file->path, name, (long long)count_of(attr), (long long)n);
    if (H5Aread(attr, sp_h5_native(type), data) < 0)
        return sp_h5_fail(file, name, "attribute cannot be read");
    return SP_OK;
}

sp_status sp_h5_attr_read(sp_h5 *file, const char *object, const char *name,
                          sp_h5_type type, int64_t n, void *data)
{
    sp_status rc;
    hid_t attr;

    sp_h5_enter();
    attr = open_attr(file, object, name, &rc);
    if (attr >= 0) {
        rc = read_attr(file, name, attr, type, n, data);
        H5Aclose(attr);
    }
    return sp_h5_leave(rc);
}

sp_status sp_h5_attr_read_int(sp_h5 *file, const char *object, const char *name,
                              int64_t *value)
{
    double real;

    SP_TRY(sp_h5_attr_read(file, object, name, SP_H5_F64, 1, &real));
    if (real >= -9007199254740992.0 && real <= 9007199254740992.0 &&
        real != (double)(int64_t)real)
        return SP_FAIL(SP_EDATA, "%s: attribute %s is %g, expected an integer",
                       file->path, name, real);
    return sp_h5_attr_read(file, object, name, SP_H5_I64, 1, value);
}

static sp_status read_attr_texts(const sp_h5 *file, const char *name, hid_t attr,
                                 char ***texts, int *n)
{
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    int64_t count = count_of(attr);
    sp_status rc;

    if (count < 0 || count > file->bytes || count > INT32_MAX)
        rc = SP_FAIL(SP_EDATA, "%s: attribute %s is larger than its file", file->path,
                     name);
    else if (!(*texts = calloc((size_t)count + 1, sizeof **texts)))
        rc = SP_FAIL(SP_EMEM, "%s: no memory", file->path);
    else
        rc = read_texts(file, name, attr, type, space, *n = (int)count, *texts);
    H5Sclose(space);
    H5Tclose(type);
    return rc;
}

sp_status sp_h5_attr_read_texts(sp_h5 *file, const char *object, const char *name,
                                char ***texts, int *n)
{
    sp_status rc;
    hid_t attr;

    *texts = NULL;
    *n = 0;
    sp_h5_enter();
    attr = open_attr(file, object, name, &rc);
    if (attr >= 0) {
        rc = read_attr_texts(file, name, attr, texts, n);
        H5Aclose(attr);
    }
    sp_h5_leave(rc);
    if (rc != SP_OK) {
        sp_h5_list_free(*texts, *n);
        *texts = NULL;
        *n = 0;
    }
    return rc;
}
