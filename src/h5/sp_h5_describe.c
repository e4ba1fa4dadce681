/* Describes an HDF5 file as a catalog. It runs in the limited child, or in the process
 * that has just written the file. Values of datasets stay in the file, except texts. A
 * part that the library cannot read gets its reason in the catalog and is no failure,
 * since a file may hold much that is never read. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "h5/sp_h5_describer.h"

enum { TEXTS = 16 << 20, TEXTS_FACTOR = 4, NAME = 1000 };

char *sp_h5_describer_copy(describer *d, const char *text)
{
    char *out = strdup(text);

    d->is_out_of_memory |= !out;
    return out;
}

void *sp_h5_describer_allocate(describer *d, size_t n, size_t size)
{
    void *out = calloc(n + 1, size);

    d->is_out_of_memory |= !out;
    return out;
}

char *sp_h5_describer_reason(describer *d, const char *what)
{
    char text[SP_H5_WHY], why[2 * SP_H5_WHY];

    sp_h5_library_text(text, sizeof text);
    snprintf(why, sizeof why, "%s%s%s", what, *text ? ": " : "", text);
    return sp_h5_describer_copy(d, why);
}

/* ---- texts ---- */

static herr_t h5_read_from(hid_t id, hid_t type, void *to)
{
    return H5Iget_type(id) == H5I_ATTR
               ? H5Aread(id, type, to)
               : H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
}

/* Reads texts of variable size; false, with the list incomplete, after a failure. */
static bool read_varying_texts(describer *d, hid_t id, hid_t stored, hid_t space,
                               int64_t n, char **texts)
{
    hid_t type = sp_h5_text_type(0, H5Tget_cset(stored));
    char **raw = sp_h5_describer_allocate(d, (size_t)n, sizeof *raw);
    bool is_good = raw && h5_read_from(id, type, raw) >= 0;

    for (int64_t i = 0; is_good && i < n; i++) {
        d->texts_left -= raw[i] ? (int64_t)strlen(raw[i]) : 0;
        is_good = d->texts_left >= 0 &&
                  (texts[i] = sp_h5_describer_copy(d, raw[i] ? raw[i] : ""));
    }
    if (raw)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, raw);
    free(raw);
    H5Tclose(type);
    return is_good;
}

static bool read_fixed_texts(describer *d, hid_t id, hid_t stored, int64_t n,
                             char **texts)
{
    size_t size = H5Tget_size(stored) + 1;
    hid_t type = sp_h5_text_type(size, H5Tget_cset(stored));
    char *raw = sp_h5_describer_allocate(d, (size_t)n, size);
    bool is_good = raw && h5_read_from(id, type, raw) >= 0;

    for (int64_t i = 0; is_good && i < n; i++)
        is_good = (texts[i] = sp_h5_describer_copy(d, raw + (size_t)i * size));
    free(raw);
    H5Tclose(type);
    return is_good;
}

/* Reads n texts into *texts, or sets *why. */
static void h5_read_texts(describer *d, hid_t id, hid_t type, hid_t space, int64_t n,
                          char ***texts, char **why)
{
    int64_t size = (int64_t)H5Tget_size(type), bytes;
    bool is_good;

    if (n < 0 || __builtin_mul_overflow(n, size + 1, &bytes) || bytes > d->texts_left) {
        *why = sp_h5_describer_copy(d, "its texts are larger than the file can hold");
        return;
    }
    d->texts_left -= bytes;
    *texts = sp_h5_describer_allocate(d, (size_t)n, sizeof **texts);
    if (!*texts)
        return;
    is_good = H5Tis_variable_str(type) > 0
                  ? read_varying_texts(d, id, type, space, n, *texts)
                  : read_fixed_texts(d, id, type, n, *texts);
    if (is_good)
        return;
    sp_h5_list_free(*texts, n);
    *texts = NULL;
    *why = sp_h5_describer_reason(d, d->texts_left < 0
                                         ? "its texts are larger than the file can hold"
                                         : "texts cannot be read");
}

/* ---- attributes ---- */

static void h5_read_value(describer *d, hid_t id, hid_t type, hid_t space,
                          sp_h5_attr *attr)
{
    int64_t bytes;

    attr->type = sp_h5_type_of(type);
    attr->n = H5Sget_simple_extent_type(space) == H5S_NULL
                  ? 0
                  : (int64_t)H5Sget_simple_extent_npoints(space);
    if (attr->n < 0 || __builtin_mul_overflow(attr->n, attr->type.size, &bytes) ||
        bytes > d->texts_left) {
        attr->n = 0;
        attr->why = sp_h5_describer_copy(d, "is larger than its file");
    } else if (attr->type.kind == 's') {
        h5_read_texts(d, id, type, space, attr->n, &attr->text, &attr->why);
    } else if (attr->type.kind != '?') {
        d->texts_left -= bytes;
        attr->value =
            sp_h5_describer_allocate(d, (size_t)attr->n, (size_t)attr->type.size);
        if (attr->value && attr->n > 0 && H5Aread(id, type, attr->value) < 0)
            attr->why = sp_h5_describer_reason(d, "cannot be read");
    }
}

static void read_attr(describer *d, hid_t object, const char *name, sp_h5_attr *attr)
{
    hid_t id = H5Aopen(object, name, H5P_DEFAULT), type, space;

    attr->name = sp_h5_describer_copy(d, name);
    attr->type = (sp_h5_type){'?', 1, false};
    if (id < 0) {
        attr->why = sp_h5_describer_reason(d, "cannot be opened");
        return;
    }
    type = H5Aget_type(id);
    space = H5Aget_space(id);
    if (type < 0 || space < 0)
        attr->why = sp_h5_describer_reason(d, "cannot be read");
    else
        h5_read_value(d, id, type, space, attr);
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    H5Aclose(id);
}

typedef struct attr_walk {
    describer *d;
    sp_h5_entry *entry;
} attr_walk;

static herr_t visit_attr(hid_t object, const char *name, const H5A_info_t *info,
                         void *context)
{
    attr_walk *walk = context;
    sp_h5_entry *entry = walk->entry;

    (void)info;
    if (!sp_list_grow(&entry->attr, entry->n_attrs, sizeof *entry->attr)) {
        walk->d->is_out_of_memory = true;
        return -1;
    }
    entry->attr[entry->n_attrs] = (sp_h5_attr){0};
    read_attr(walk->d, object, name, &entry->attr[entry->n_attrs++]);
    return walk->d->is_out_of_memory ? -1 : 0;
}

static void read_attrs(describer *d, hid_t object, sp_h5_entry *entry)
{
    attr_walk walk = {d, entry};
    hsize_t at = 0;

    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &at, visit_attr, &walk) <
            0 &&
        !entry->why)
        entry->why = sp_h5_describer_reason(d, "its attributes cannot be read");
}

/* ---- datasets ---- */

static void read_shape(describer *d, hid_t space, sp_h5_entry *entry)
{
    sp_h5_shape *shape = &entry->shape;
    hsize_t dim[H5S_MAX_RANK];

    if (H5Sget_simple_extent_type(space) == H5S_NULL)
        return;
    shape->rank = H5Sget_simple_extent_dims(space, dim, NULL);
    if (shape->rank < 0 || shape->rank > SP_H5_RANK) {
        char why[SP_H5_WHY];

        snprintf(why, sizeof why, "%d dimensions, expected at most %d", shape->rank,
                 SP_H5_RANK);
        entry->why = sp_h5_describer_copy(d, why);
        shape->rank = -1;
    }
    for (int i = 0; i < shape->rank; i++)
        shape->dim[i] = dim[i] > INT64_MAX ? INT64_MAX : (int64_t)dim[i];
}

static void read_dataset(describer *d, hid_t set, hid_t made, sp_h5_entry *entry)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);

    if (type < 0 || space < 0) {
        entry->why = sp_h5_describer_reason(d, "cannot be read");
    } else {
        entry->shape.type = sp_h5_type_of(type);
        read_shape(d, space, entry);
        if (entry->shape.type.kind == 's' && entry->shape.rank >= 0) {
            entry->n_texts = H5Sget_simple_extent_npoints(space);
            h5_read_texts(d, set, type, space, entry->n_texts, &entry->text,
                          &entry->why);
        } else if (entry->shape.type.kind != '?' && entry->shape.rank >= 0) {
            sp_h5_describe_layout(d, set, made, entry);
        }
    }
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
}

/* Describes a dataset. Values in other files are refused before anything else is read.
 */
static void describe_dataset(describer *d, hid_t set, sp_h5_entry *entry)
{
    hid_t made = H5Dget_create_plist(set);

    if (made < 0)
        entry->why = sp_h5_describer_reason(d, "cannot be read");
    else if (H5Pget_layout(made) == H5D_VIRTUAL)
        entry->why = sp_h5_describer_copy(
            d, "is a virtual dataset, whose values lie in other files; "
               "expected them in this one");
    else if (H5Pget_layout(made) == H5D_CONTIGUOUS && H5Pget_external_count(made) != 0)
        entry->why = sp_h5_describer_copy(
            d, "its values lie outside the file (external storage); "
               "expected them in it");
    else
        read_dataset(d, set, made, entry);
    if (made >= 0)
        H5Pclose(made);
}

/* ---- names ---- */

static sp_h5_entry *h5_add(describer *d, sp_h5_kind kind, const char *name)
{
    sp_h5_catalog *all = d->catalog;
    sp_h5_entry *entry;
    char path[NAME + 2];

    if (!sp_list_grow(&all->entry, all->n, sizeof *all->entry)) {
        d->is_out_of_memory = true;
        return NULL;
    }
    entry = &all->entry[all->n++];
    *entry = (sp_h5_entry){.kind = (int32_t)kind, .shape = {.type = {'?', 1, false}}};
    entry->shape.rank = -1;
    snprintf(path, sizeof path, "/%s", name);
    entry->name = sp_h5_describer_copy(d, path);
    return entry;
}

static void visit_object(describer *d, const char *name)
{
    hid_t id = H5Oopen(d->file, name, H5P_DEFAULT);
    H5I_type_t kind = id < 0 ? H5I_BADID : H5Iget_type(id);
    bool is_dataset = id < 0 || kind == H5I_DATASET;
    sp_h5_entry *entry = h5_add(d, is_dataset ? SP_H5_DATASET : SP_H5_GROUP, name);

    if (entry && id < 0) {
        entry->why = sp_h5_describer_reason(d, "not a readable dataset");
    } else if (entry && is_dataset) {
        describe_dataset(d, id, entry);
        read_attrs(d, id, entry);
    } else if (entry) {
        entry->why = sp_h5_describer_copy(d, "is no dataset");
        read_attrs(d, id, entry);
    }
    if (id >= 0)
        H5Oclose(id);
}

/* Follows a link within the file if it leads to a dataset. A link to a group is not
 * followed, so each member of a group has one path. */
static void visit_soft_link(describer *d, const char *name)
{
    hid_t id = H5Oopen(d->file, name, H5P_DEFAULT);
    bool is_dataset = id >= 0 && H5Iget_type(id) == H5I_DATASET;
    sp_h5_entry *entry;

    H5Eclear2(H5E_DEFAULT);
    if (id >= 0)
        H5Oclose(id);
    if (is_dataset) {
        visit_object(d, name);
        return;
    }
    entry = h5_add(d, SP_H5_LINK, name);
    if (entry)
        entry->why = sp_h5_describer_copy(
            d, id >= 0 ? "is a link to a group, which is not followed"
                       : "is a link that leads to nothing in this file");
}

static void visit_outer_link(describer *d, const char *name, const H5L_info_t *link)
{
    sp_h5_entry *entry = h5_add(d, SP_H5_LINK, name);
    char target[SP_H5_WHY] = "", why[2 * SP_H5_WHY];
    const char *file = NULL, *object = NULL;

    if (!entry)
        return;
    if (link->type == H5L_TYPE_EXTERNAL && link->u.val_size <= sizeof target &&
        H5Lget_val(d->file, name, target, sizeof target, H5P_DEFAULT) >= 0 &&
        H5Lunpack_elink_val(target, link->u.val_size, NULL, &file, &object) >= 0)
        snprintf(why, sizeof why,
                 "is a link to another file (%s:%s); expected the values in this file",
                 file, object);
    else
        snprintf(why, sizeof why,
                 "is a link to another file; expected the values in this file");
    H5Eclear2(H5E_DEFAULT);
    entry->why = sp_h5_describer_copy(d, why);
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *link,
                    void *context)
{
    describer *d = context;

    (void)group;
    if (strlen(name) > NAME)
        return 0; /* such a name is never read */
    if (link->type == H5L_TYPE_HARD)
        visit_object(d, name);
    else if (link->type == H5L_TYPE_SOFT)
        visit_soft_link(d, name);
    else
        visit_outer_link(d, name, link);
    return d->is_out_of_memory ? -1 : 0;
}

/* ---- the file ---- */

static sp_status h5_describe(describer *d, const char *path)
{
    hid_t root = H5Gopen2(d->file, "/", H5P_DEFAULT);
    sp_h5_entry *entry = h5_add(d, SP_H5_GROUP, "");
    char text[SP_H5_WHY];
    herr_t walked = -1;

    if (root >= 0 && entry) {
        entry->why = sp_h5_describer_copy(d, "is no dataset");
        read_attrs(d, root, entry);
        walked = H5Lvisit(root, H5_INDEX_NAME, H5_ITER_NATIVE, visit, d);
    }
    if (d->is_out_of_memory)
        return SP_FAIL(SP_EMEM, "%s: no memory for its index", path);
    sp_h5_library_text(text, sizeof text);
    return root >= 0 && walked >= 0
               ? SP_OK
               : SP_FAIL(SP_EDATA, "%s: damaged file: it cannot be listed%s%s", path,
                         *text ? ": " : "", text);
}

/* Notes which file the library opens, to be compared with the one the parent opens. */
static sp_status identify(const char *path, sp_h5_catalog *catalog)
{
    struct stat about;

    if (stat(path, &about) != 0)
        return sp_h5_fail_system(path, errno);
    catalog->device = (uint64_t)about.st_dev;
    catalog->inode = (uint64_t)about.st_ino;
    catalog->bytes = (int64_t)about.st_size;
    return SP_OK;
}

sp_status sp_h5_describe(const char *path, sp_h5_catalog *catalog)
{
    describer d = {.catalog = catalog};
    char text[SP_H5_WHY];
    hid_t list;
    sp_status rc;

    assert(catalog->n == 0 && !catalog->entry);
    SP_TRY(identify(path, catalog));
    d.texts_left = TEXTS + TEXTS_FACTOR * catalog->bytes;
    sp_h5_enter();
    list = sp_h5_driver_list();
    d.file = H5Fopen(path, H5F_ACC_RDONLY, list);
    if (d.file < 0) { /* read at once, since the next call empties the error stack */
        sp_h5_library_text(text, sizeof text);
        rc = SP_FAIL(SP_EDATA, "%s: damaged file: it cannot be opened: %s", path, text);
    } else {
        rc = h5_describe(&d, path);
        H5Fclose(d.file);
    }
    if (sp_h5_driver_error())
        rc = sp_h5_fail_system(path, sp_h5_driver_error());
    H5Pclose(list);
    return sp_h5_leave(rc);
}
