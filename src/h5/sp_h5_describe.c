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
#include "h5/sp_h5_internal.h"

/* WHY: bytes of a reason in the catalog, without the library's. */
enum { WHY = 256, TEXTS = 16 << 20, TEXTS_FACTOR = 4, NAME = 1000 };

/* The state of a description in progress. */
typedef struct describer {
    hid_t file;
    sp_h5_catalog *catalog;
    /* The bytes that texts and attributes of this file may still use. */
    int64_t texts_left;
    bool is_out_of_memory;
} describer;

/* These allocate memory that the catalog keeps; NULL and is_out_of_memory on failure. An
 * array has n zeroed elements and one more. */
static char *describer_copy(describer *d, const char *text)
{
    char *out = strdup(text);

    d->is_out_of_memory |= !out;
    return out;
}

static void *describer_allocate(describer *d, size_t n, size_t size)
{
    void *out = calloc(n + 1, size);

    d->is_out_of_memory |= !out;
    return out;
}

/* Returns `what` followed by HDF5's error text. */
static char *describer_reason(describer *d, const char *what)
{
    char text[WHY], why[2 * WHY];

    sp_h5_library_text(text, sizeof text);
    snprintf(why, sizeof why, "%s%s%s", what, *text ? ": " : "", text);
    return describer_copy(d, why);
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
    char **raw = describer_allocate(d, (size_t)n, sizeof *raw);
    bool is_good = raw && h5_read_from(id, type, raw) >= 0;

    for (int64_t i = 0; is_good && i < n; i++) {
        d->texts_left -= raw[i] ? (int64_t)strlen(raw[i]) : 0;
        is_good =
            d->texts_left >= 0 && (texts[i] = describer_copy(d, raw[i] ? raw[i] : ""));
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
    char *raw = describer_allocate(d, (size_t)n, size);
    bool is_good = raw && h5_read_from(id, type, raw) >= 0;

    for (int64_t i = 0; is_good && i < n; i++)
        is_good = (texts[i] = describer_copy(d, raw + (size_t)i * size));
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
        *why = describer_copy(d, "its texts are larger than the file can hold");
        return;
    }
    d->texts_left -= bytes;
    *texts = describer_allocate(d, (size_t)n, sizeof **texts);
    if (!*texts)
        return;
    is_good = H5Tis_variable_str(type) > 0
                  ? read_varying_texts(d, id, type, space, n, *texts)
                  : read_fixed_texts(d, id, type, n, *texts);
    if (is_good)
        return;
    sp_h5_list_free(*texts, n);
    *texts = NULL;
    *why = describer_reason(d, d->texts_left < 0
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
        attr->why = describer_copy(d, "is larger than its file");
    } else if (attr->type.kind == 's') {
        h5_read_texts(d, id, type, space, attr->n, &attr->text, &attr->why);
    } else if (attr->type.kind != '?') {
        d->texts_left -= bytes;
        attr->value = describer_allocate(d, (size_t)attr->n, (size_t)attr->type.size);
        if (attr->value && attr->n > 0 && H5Aread(id, type, attr->value) < 0)
            attr->why = describer_reason(d, "cannot be read");
    }
}

static void read_attr(describer *d, hid_t object, const char *name, sp_h5_attr *attr)
{
    hid_t id = H5Aopen(object, name, H5P_DEFAULT), type, space;

    attr->name = describer_copy(d, name);
    attr->type = (sp_h5_type){'?', 1, false};
    if (id < 0) {
        attr->why = describer_reason(d, "cannot be opened");
        return;
    }
    type = H5Aget_type(id);
    space = H5Aget_space(id);
    if (type < 0 || space < 0)
        attr->why = describer_reason(d, "cannot be read");
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
        entry->why = describer_reason(d, "its attributes cannot be read");
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
        char why[WHY];

        snprintf(why, sizeof why, "%d dimensions, expected at most %d", shape->rank,
                 SP_H5_RANK);
        entry->why = describer_copy(d, why);
        shape->rank = -1;
    }
    for (int i = 0; i < shape->rank; i++)
        shape->dim[i] = dim[i] > INT64_MAX ? INT64_MAX : (int64_t)dim[i];
}

/* ---- the place of the values ---- */

enum { LZF = 32000 }; /* the number of h5py's filter, which the library lacks */

static void refuse_filter(describer *d, int id, const char *given, sp_h5_entry *entry)
{
    const char *name = id == LZF               ? "lzf"
                       : id == H5Z_FILTER_SZIP ? "szip"
                       : *given                ? given
                                               : "unnamed";
    char why[WHY];

    snprintf(
        why, sizeof why,
        "compressed by the filter \"%.40s\" (number %d), which this HDF5 lacks: name "
        "the folder of its plugin in HDF5_PLUGIN_PATH, or write the file anew with "
        "the program that wrote it%s, uncompressed or with gzip",
        name, id, id == LZF ? " (h5py)" : "");
    entry->why = describer_copy(d, why);
}

/* Looks for every filter of the dataset, in plugins too. */
static void check_filters(describer *d, hid_t made, sp_h5_entry *entry)
{
    const int n = H5Pget_nfilters(made);

    for (int i = 0; i < n && !entry->why; i++) {
        unsigned flags, config = 0;
        size_t n_values = 0;
        char name[64] = "";
        const int id = H5Pget_filter2(made, (unsigned)i, &flags, &n_values, NULL,
                                      sizeof name, name, &config);

        if (id < 0)
            entry->why = describer_reason(d, "its filters cannot be read");
        else if (H5Zfilter_avail(id) <= 0 || H5Zget_filter_info(id, &config) < 0 ||
                 !(config & H5Z_FILTER_CONFIG_DECODE_ENABLED))
            refuse_filter(d, id, name, entry);
        H5Eclear2(H5E_DEFAULT);
    }
}

/* The number of chunks that cover the dataset; -1 if it overflows. */
static int64_t h5_count_chunks(const sp_h5_entry *entry, const hsize_t *size)
{
    int64_t n = 1;

    for (int i = 0; i < entry->shape.rank; i++) {
        const int64_t chunk = (int64_t)size[i], dim = entry->shape.dim[i];

        if (chunk < 1 ||
            __builtin_mul_overflow(n, dim / chunk + (dim % chunk != 0), &n))
            return -1;
    }
    return n;
}

/* Notes the rows of a chunk. A dataset with chunks that were never written is refused,
 * since HDF5 would read zeros there. A written chunk needs at least one byte of the
 * file, which bounds their number. */
static void read_chunks(describer *d, hid_t set, hid_t made, sp_h5_entry *entry)
{
    sp_h5_chunks *c = &entry->shape.chunks;
    hid_t space = H5Dget_space(set);
    hsize_t size[H5S_MAX_RANK], written = 0;
    int64_t n;

    if (H5Pget_chunk(made, H5S_MAX_RANK, size) != entry->shape.rank) {
        entry->why = describer_reason(d, "its chunks cannot be read");
    } else {
        n = h5_count_chunks(entry, size);
        c->rows = size[0] < INT64_MAX ? (int64_t)size[0] : 0;
        for (int i = 0; i < entry->shape.rank; i++)
            if (__builtin_mul_overflow(c->bytes, size[i], &c->bytes))
                c->bytes = 0;
        check_filters(d, made, entry);
        if (!entry->why && (n < 0 || n > d->catalog->bytes ||
                            (n > 0 && (H5Dget_num_chunks(set, space, &written) < 0 ||
                                       (int64_t)written < n))))
            entry->why = describer_reason(d, "its values were not all written");
    }
    H5Sclose(space);
}

/* Values within the header are read as if they were one chunk. */
static void read_compact(describer *d, hid_t set, sp_h5_entry *entry)
{
    sp_h5_shape *shape = &entry->shape;
    hid_t space = H5Dget_space(set);
    hssize_t n = H5Sget_simple_extent_npoints(space);

    H5Sclose(space);
    shape->chunks.rows = shape->rank > 0 && shape->dim[0] > 0 ? shape->dim[0] : 1;
    if (n < 0 || n > d->catalog->bytes / shape->type.size)
        entry->why = describer_copy(d, "is larger than its file");
    else if ((int64_t)H5Dget_storage_size(set) != (int64_t)n * shape->type.size)
        entry->why = /* the library would read on beyond the stored bytes */
            describer_copy(d, "its values are not all in its header: damaged");
}

/* Stores the place of a dataset's values in the catalog: one place, or chunks or the
 * header, which a child unpacks. `made` is the list of properties that it was created
 * with. entry->why says why they cannot be read. */
static void describe_layout(describer *d, hid_t set, hid_t made, sp_h5_entry *entry)
{
    const H5D_layout_t layout = H5Pget_layout(made);
    haddr_t at;

    assert(entry->shape.rank >= 0);
    entry->shape.at = -1;
    if (layout == H5D_CONTIGUOUS) {
        at = H5Dget_offset(set);
        entry->shape.is_contiguous = true;
        if (at != HADDR_UNDEF && at <= INT64_MAX)
            entry->shape.at = (int64_t)at;
        return;
    }
    entry->shape.chunks.bytes = entry->shape.type.size;
    if (layout == H5D_CHUNKED)
        read_chunks(d, set, made, entry);
    else
        read_compact(d, set, entry);
}

/* ---- datasets ---- */

static void read_dataset(describer *d, hid_t set, hid_t made, sp_h5_entry *entry)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);

    if (type < 0 || space < 0) {
        entry->why = describer_reason(d, "cannot be read");
    } else {
        entry->shape.type = sp_h5_type_of(type);
        read_shape(d, space, entry);
        if (entry->shape.type.kind == 's' && entry->shape.rank >= 0) {
            entry->n_texts = H5Sget_simple_extent_npoints(space);
            h5_read_texts(d, set, type, space, entry->n_texts, &entry->text,
                          &entry->why);
        } else if (entry->shape.type.kind != '?' && entry->shape.rank >= 0) {
            describe_layout(d, set, made, entry);
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
        entry->why = describer_reason(d, "cannot be read");
    else if (H5Pget_layout(made) == H5D_VIRTUAL)
        entry->why =
            describer_copy(d, "is a virtual dataset, whose values lie in other files; "
                              "expected them in this one");
    else if (H5Pget_layout(made) == H5D_CONTIGUOUS && H5Pget_external_count(made) != 0)
        entry->why =
            describer_copy(d, "its values lie outside the file (external storage); "
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
    entry->name = describer_copy(d, path);
    return entry;
}

static void visit_object(describer *d, const char *name)
{
    hid_t id = H5Oopen(d->file, name, H5P_DEFAULT);
    H5I_type_t kind = id < 0 ? H5I_BADID : H5Iget_type(id);
    bool is_dataset = id < 0 || kind == H5I_DATASET;
    sp_h5_entry *entry = h5_add(d, is_dataset ? SP_H5_DATASET : SP_H5_GROUP, name);

    if (entry && id < 0) {
        entry->why = describer_reason(d, "not a readable dataset");
    } else if (entry && is_dataset) {
        describe_dataset(d, id, entry);
        read_attrs(d, id, entry);
    } else if (entry) {
        entry->why = describer_copy(d, "is no dataset");
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
        entry->why =
            describer_copy(d, id >= 0 ? "is a link to a group, which is not followed"
                                      : "is a link that leads to nothing in this file");
}

static void visit_outer_link(describer *d, const char *name, const H5L_info_t *link)
{
    sp_h5_entry *entry = h5_add(d, SP_H5_LINK, name);
    char target[WHY] = "", why[2 * WHY];
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
    entry->why = describer_copy(d, why);
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
    char text[WHY];
    herr_t walked = -1;

    if (root >= 0 && entry) {
        entry->why = describer_copy(d, "is no dataset");
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
    char text[WHY];
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
