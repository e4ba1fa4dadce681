/* Describes an HDF5 file as a catalog: the only place that reads with HDF5. It runs in
 * the limited child, or in the process that has just written the file. Values of
 * datasets stay in the file, except texts and values inside headers. A part that the
 * library cannot read gets its reason in the catalog and is no failure, since a file
 * may hold much that nobody reads. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5/sp_h5_filter.h"
#include "h5/sp_h5_internal.h"

enum { TEXTS = 16 << 20, TEXTS_FACTOR = 4, WHY = 256, NAME = 1000 };

typedef struct describer {
    hid_t file;
    sp_h5_catalog *catalog;
    int64_t room; /* entries that are allocated */
    /* The bytes that texts and attributes of this file may still take. */
    int64_t texts_left;
    bool is_out_of_memory;
} describer;

static char *copy(describer *d, const char *text)
{
    char *out = strdup(text);

    d->is_out_of_memory |= !out;
    return out;
}

static void *allocate(describer *d, size_t n, size_t size)
{
    void *out = calloc(n + 1, size);

    d->is_out_of_memory |= !out;
    return out;
}

/* `what`, with the text of the library's error behind it. */
static char *library_reason(describer *d, const char *what)
{
    char text[WHY], why[2 * WHY];

    sp_h5_library_text(text, sizeof text);
    snprintf(why, sizeof why, "%s%s%s", what, *text ? ": " : "", text);
    return copy(d, why);
}

/* ---- texts ---- */

static herr_t read_from(hid_t id, hid_t type, void *to)
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
    char **raw = allocate(d, (size_t)n, sizeof *raw);
    bool is_good = raw && read_from(id, type, raw) >= 0;

    for (int64_t i = 0; is_good && i < n; i++) {
        d->texts_left -= raw[i] ? (int64_t)strlen(raw[i]) : 0;
        is_good = d->texts_left >= 0 && (texts[i] = copy(d, raw[i] ? raw[i] : ""));
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
    char *raw = allocate(d, (size_t)n, size);
    bool is_good = raw && read_from(id, type, raw) >= 0;

    for (int64_t i = 0; is_good && i < n; i++)
        is_good = (texts[i] = copy(d, raw + (size_t)i * size));
    free(raw);
    H5Tclose(type);
    return is_good;
}

/* Reads n texts into *texts, or sets *why. */
static void read_texts(describer *d, hid_t id, hid_t type, hid_t space, int64_t n,
                       char ***texts, char **why)
{
    int64_t size = (int64_t)H5Tget_size(type), bytes;
    bool is_good;

    if (n < 0 || __builtin_mul_overflow(n, size + 1, &bytes) || bytes > d->texts_left) {
        *why = copy(d, "its texts are larger than the file can hold");
        return;
    }
    d->texts_left -= bytes;
    *texts = allocate(d, (size_t)n, sizeof **texts);
    if (!*texts)
        return;
    is_good = H5Tis_variable_str(type) > 0
                  ? read_varying_texts(d, id, type, space, n, *texts)
                  : read_fixed_texts(d, id, type, n, *texts);
    if (is_good)
        return;
    for (int64_t i = 0; i < n; i++)
        free((*texts)[i]);
    free(*texts);
    *texts = NULL;
    *why = library_reason(d, d->texts_left < 0
                                 ? "its texts are larger than the file can hold"
                                 : "texts cannot be read");
}

/* ---- attributes ---- */

static void read_value(describer *d, hid_t id, hid_t type, hid_t space,
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
        attr->why = copy(d, "is larger than its file");
    } else if (attr->type.kind == 's') {
        read_texts(d, id, type, space, attr->n, &attr->text, &attr->why);
    } else if (attr->type.kind != '?') {
        d->texts_left -= bytes;
        attr->value = allocate(d, (size_t)attr->n, (size_t)attr->type.size);
        if (attr->value && attr->n > 0 && H5Aread(id, type, attr->value) < 0)
            attr->why = library_reason(d, "cannot be read");
    }
}

static void read_attr(describer *d, hid_t object, const char *name, sp_h5_attr *attr)
{
    hid_t id = H5Aopen(object, name, H5P_DEFAULT), type, space;

    attr->name = copy(d, name);
    attr->type = (sp_h5_type){'?', 1, false};
    if (id < 0) {
        attr->why = library_reason(d, "cannot be opened");
        return;
    }
    type = H5Aget_type(id);
    space = H5Aget_space(id);
    if (type < 0 || space < 0)
        attr->why = library_reason(d, "cannot be read");
    else
        read_value(d, id, type, space, attr);
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
    size_t n = (size_t)entry->n_attrs;
    sp_h5_attr *more = realloc(entry->attr, (n + 1) * sizeof *more);

    (void)info;
    walk->d->is_out_of_memory |= !more;
    if (!more)
        return -1;
    entry->attr = more;
    more[n] = (sp_h5_attr){0};
    entry->n_attrs++;
    read_attr(walk->d, object, name, &more[n]);
    return walk->d->is_out_of_memory ? -1 : 0;
}

static void read_attrs(describer *d, hid_t object, sp_h5_entry *entry)
{
    attr_walk walk = {d, entry};
    hsize_t at = 0;

    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &at, visit_attr, &walk) <
            0 &&
        !entry->why)
        entry->why = library_reason(d, "its attributes cannot be read");
}

/* ---- where values lie ---- */

static void refuse_filter(describer *d, int id, const char *given, sp_h5_entry *entry)
{
    const char *name = id == H5Z_FILTER_SZIP          ? "szip"
                       : id == H5Z_FILTER_NBIT        ? "nbit"
                       : id == H5Z_FILTER_SCALEOFFSET ? "scaleoffset"
                       : id == 32000                  ? "lzf"
                                                      : given;
    char why[WHY];

    if (entry->why)
        return;
    snprintf(why, sizeof why,
             "compressed by the filter \"%s\" (number %d), which is not read; write it "
             "contiguous, or with gzip (h5repack -f GZIP=4 IN OUT)",
             name, id);
    entry->why = copy(d, why);
}

static void read_filters(describer *d, hid_t made, sp_h5_chunks *c, sp_h5_entry *entry)
{
    int n = H5Pget_nfilters(made);

    for (int i = 0; i < n && !entry->why; i++) {
        unsigned flags, config, value[1] = {0};
        size_t n_values = 1;
        char name[64] = "";
        int id = H5Pget_filter2(made, (unsigned)i, &flags, &n_values, value,
                                sizeof name, name, &config);

        if (!sp_h5_filter_known(id) || i >= SP_H5_FILTERS) {
            refuse_filter(d, id, name, entry);
            return;
        }
        c->filter[i] = (sp_h5_filter){id, value[0]};
        c->n_filters = i + 1;
    }
}

/* True if the chunk reaches beyond the dataset. */
static bool is_partial(const sp_h5_chunks *c, const hsize_t *at)
{
    for (int d = 0; d < c->rank; d++)
        if ((int64_t)at[d] > c->dim[d] - c->chunk[d])
            return true;
    return false;
}

/* Finds the place of chunk i, which begins at these coordinates. */
static bool find_chunk(hid_t set, sp_h5_chunks *c, int64_t i, const hsize_t *at,
                       bool partial_is_plain)
{
    int64_t bytes;
    char none[16];

    if (H5Dread_chunk(set, H5P_DEFAULT, at, &c->mask[i], none) < 0)
        return false;
    sp_h5_driver_found(&c->at[i], &bytes);
    if (bytes < 0 || bytes > UINT32_MAX)
        return false;
    c->bytes[i] = (uint32_t)bytes;
    if (partial_is_plain && is_partial(c, at))
        c->mask[i] = UINT32_MAX;
    return true;
}

static bool find_chunks(hid_t set, hid_t made, sp_h5_chunks *c)
{
    hsize_t at[SP_H5_RANK] = {0};
    unsigned options = 0;
    bool is_found = true;

    H5Pget_chunk_opts(made, &options);
    sp_h5_driver_look(true);
    for (int64_t i = 0; i < c->n && is_found; i++) {
        is_found =
            find_chunk(set, c, i, at, options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
        for (int d = c->rank - 1; d >= 0; d--) {
            at[d] += (hsize_t)c->chunk[d];
            if ((int64_t)at[d] < c->dim[d])
                break;
            at[d] = 0;
        }
    }
    sp_h5_driver_look(false);
    return is_found;
}

/* Reads the table of chunks. A dataset with chunks that were never written is refused,
 * since HDF5 would read zeros there. A written chunk takes a byte of the file at least,
 * which bounds their number. */
static void read_chunk_table(describer *d, hid_t set, hid_t made, sp_h5_entry *entry)
{
    sp_h5_chunks *c = entry->chunks;
    hsize_t size[H5S_MAX_RANK];

    if (H5Pget_chunk(made, H5S_MAX_RANK, size) != c->rank) {
        entry->why = library_reason(d, "its chunks cannot be read");
        return;
    }
    for (int i = 0; i < c->rank; i++)
        c->chunk[i] = size[i] > 0 && size[i] <= INT64_MAX ? (int64_t)size[i] : 1;
    read_filters(d, made, c, entry);
    c->n = sp_h5_chunks_count(c);
    if (c->n < 0 || c->n > d->catalog->bytes) {
        c->n = 0;
        entry->why = copy(d, "its values were not all written");
    }
    if (entry->why)
        return;
    c->at = allocate(d, (size_t)c->n, sizeof *c->at);
    c->bytes = allocate(d, (size_t)c->n, sizeof *c->bytes);
    c->mask = allocate(d, (size_t)c->n, sizeof *c->mask);
    if (!d->is_out_of_memory && !find_chunks(set, made, c))
        entry->why = library_reason(d, "its values were not all written");
}

static void read_compact(describer *d, hid_t set, hid_t type, sp_h5_entry *entry)
{
    sp_h5_chunks *c = entry->chunks;
    hid_t space = H5Dget_space(set);
    hssize_t n = H5Sget_simple_extent_npoints(space);

    H5Sclose(space);
    if (n < 0 || n > d->catalog->bytes / c->type_size) {
        entry->why = copy(d, "is larger than its file");
        return;
    }
    c->compact_bytes = (int64_t)n * c->type_size;
    if ((int64_t)H5Dget_storage_size(set) != c->compact_bytes) {
        c->compact_bytes = 0; /* HDF5 would read on beyond the stored bytes */
        entry->why = copy(d, "its values are not all in its header: damaged");
        return;
    }
    c->compact = allocate(d, (size_t)c->compact_bytes, 1);
    if (c->compact && n > 0 &&
        H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, c->compact) < 0)
        entry->why = library_reason(d, "cannot be read");
}

static void read_layout(describer *d, hid_t set, hid_t type, hid_t made,
                        sp_h5_entry *entry)
{
    const H5D_layout_t layout = H5Pget_layout(made);
    haddr_t at;

    entry->shape.at = -1;
    if (layout == H5D_CONTIGUOUS) {
        at = H5Dget_offset(set);
        entry->shape.is_contiguous = true;
        if (at != HADDR_UNDEF && at <= INT64_MAX)
            entry->shape.at = (int64_t)at;
        return;
    }
    entry->chunks = allocate(d, 1, sizeof *entry->chunks);
    if (!entry->chunks)
        return;
    entry->chunks->rank = entry->shape.rank;
    entry->chunks->type_size = entry->shape.type.size;
    memcpy(entry->chunks->dim, entry->shape.dim, sizeof entry->shape.dim);
    if (layout == H5D_CHUNKED)
        read_chunk_table(d, set, made, entry);
    else
        read_compact(d, set, type, entry);
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
        entry->why = copy(d, why);
        shape->rank = -1;
    }
    for (int i = 0; i < shape->rank; i++)
        shape->dim[i] = dim[i] > INT64_MAX ? INT64_MAX : (int64_t)dim[i];
}

static void read_dataset(describer *d, hid_t set, hid_t made, sp_h5_entry *entry)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);

    if (type < 0 || space < 0) {
        entry->why = library_reason(d, "cannot be read");
    } else {
        entry->shape.type = sp_h5_type_of(type);
        read_shape(d, space, entry);
        if (entry->shape.type.kind == 's' && entry->shape.rank >= 0) {
            entry->n_texts = H5Sget_simple_extent_npoints(space);
            read_texts(d, set, type, space, entry->n_texts, &entry->text, &entry->why);
        } else if (entry->shape.type.kind != '?' && entry->shape.rank >= 0) {
            read_layout(d, set, type, made, entry);
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
        entry->why = library_reason(d, "cannot be read");
    else if (H5Pget_layout(made) == H5D_VIRTUAL)
        entry->why = copy(d, "is a virtual dataset, whose values lie in other files; "
                             "expected them in this one");
    else if (H5Pget_layout(made) == H5D_CONTIGUOUS && H5Pget_external_count(made) != 0)
        entry->why = copy(d, "its values lie outside the file (external storage); "
                             "expected them in it");
    else
        read_dataset(d, set, made, entry);
    if (made >= 0)
        H5Pclose(made);
}

/* ---- names ---- */

static sp_h5_entry *add(describer *d, sp_h5_kind kind, const char *name)
{
    sp_h5_catalog *all = d->catalog;
    sp_h5_entry *more;
    char path[NAME + 2];

    if (all->n == d->room) {
        more = realloc(all->entry, (size_t)(d->room = 2 * d->room + 64) * sizeof *more);
        d->is_out_of_memory |= !more;
        if (!more)
            return NULL;
        all->entry = more;
    }
    more = &all->entry[all->n++];
    *more = (sp_h5_entry){.kind = (int32_t)kind, .shape = {.type = {'?', 1, false}}};
    more->shape.rank = -1;
    snprintf(path, sizeof path, "/%s", name);
    more->name = copy(d, path);
    return more;
}

static void visit_object(describer *d, const char *name)
{
    hid_t id = H5Oopen(d->file, name, H5P_DEFAULT);
    H5I_type_t kind = id < 0 ? H5I_BADID : H5Iget_type(id);
    bool is_dataset = id < 0 || kind == H5I_DATASET;
    sp_h5_entry *entry = add(d, is_dataset ? SP_H5_DATASET : SP_H5_GROUP, name);

    if (entry && id < 0) {
        entry->why = library_reason(d, "not a readable dataset");
    } else if (entry && is_dataset) {
        describe_dataset(d, id, entry);
        read_attrs(d, id, entry);
    } else if (entry) {
        entry->why = copy(d, "is no dataset");
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
    entry = add(d, SP_H5_LINK, name);
    if (entry)
        entry->why = copy(d, id >= 0 ? "is a link to a group, which is not followed"
                                     : "is a link that leads to nothing in this file");
}

static void visit_outer_link(describer *d, const char *name, const H5L_info_t *link)
{
    sp_h5_entry *entry = add(d, SP_H5_LINK, name);
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
    entry->why = copy(d, why);
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

static sp_status describe(describer *d, const char *path)
{
    hid_t root = H5Gopen2(d->file, "/", H5P_DEFAULT);
    sp_h5_entry *entry = add(d, SP_H5_GROUP, "");
    char text[WHY];
    herr_t walked = -1;

    if (root >= 0 && entry) {
        entry->why = copy(d, "is no dataset");
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
        return SP_FAIL(SP_EDATA, "%s: %s", path, strerror(errno));
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
        rc = describe(&d, path);
        H5Fclose(d.file);
    }
    H5Pclose(list);
    return sp_h5_leave(rc);
}
