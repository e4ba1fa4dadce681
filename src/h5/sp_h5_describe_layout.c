/* The place of a dataset's values: contiguous, or the rows of its chunks. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "h5/sp_h5_describer.h"

enum { LZF = 32000 }; /* the number of h5py's filter, which the library lacks */

static void refuse_filter(describer *d, int id, const char *given, sp_h5_entry *entry)
{
    const char *name = id == LZF               ? "lzf"
                       : id == H5Z_FILTER_SZIP ? "szip"
                       : *given                ? given
                                               : "unnamed";
    char why[SP_H5_WHY];

    snprintf(
        why, sizeof why,
        "compressed by the filter \"%.40s\" (number %d), which this HDF5 lacks: name "
        "the folder of its plugin in HDF5_PLUGIN_PATH, or write the file anew with "
        "the program that wrote it%s, uncompressed or with gzip",
        name, id, id == LZF ? " (h5py)" : "");
    entry->why = sp_h5_describer_copy(d, why);
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
            entry->why = sp_h5_describer_reason(d, "its filters cannot be read");
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
    sp_h5_chunks *c = entry->chunks;
    hid_t space = H5Dget_space(set);
    hsize_t size[H5S_MAX_RANK], written = 0;
    int64_t n;

    if (H5Pget_chunk(made, H5S_MAX_RANK, size) != c->rank) {
        entry->why = sp_h5_describer_reason(d, "its chunks cannot be read");
    } else {
        n = h5_count_chunks(entry, size);
        c->rows = size[0] < INT64_MAX ? (int64_t)size[0] : 0;
        for (int i = 0; i < c->rank; i++)
            if (__builtin_mul_overflow(c->bytes, size[i], &c->bytes))
                c->bytes = 0;
        check_filters(d, made, entry);
        if (!entry->why && (n < 0 || n > d->catalog->bytes ||
                            (n > 0 && (H5Dget_num_chunks(set, space, &written) < 0 ||
                                       (int64_t)written < n))))
            entry->why = sp_h5_describer_reason(d, "its values were not all written");
    }
    H5Sclose(space);
}

/* Values within the header are read as if they were one chunk. */
static void read_compact(describer *d, hid_t set, sp_h5_entry *entry)
{
    sp_h5_chunks *c = entry->chunks;
    hid_t space = H5Dget_space(set);
    hssize_t n = H5Sget_simple_extent_npoints(space);

    H5Sclose(space);
    c->rows = c->rank > 0 && c->dim[0] > 0 ? c->dim[0] : 1;
    if (n < 0 || n > d->catalog->bytes / c->type_size)
        entry->why = sp_h5_describer_copy(d, "is larger than its file");
    else if ((int64_t)H5Dget_storage_size(set) != (int64_t)n * c->type_size)
        entry->why = /* the library would read on beyond the stored bytes */
            sp_h5_describer_copy(d, "its values are not all in its header: damaged");
}

void sp_h5_describe_layout(describer *d, hid_t set, hid_t made, sp_h5_entry *entry)
{
    const H5D_layout_t layout = H5Pget_layout(made);
    haddr_t at;

    assert(!entry->chunks && entry->shape.rank >= 0);
    entry->shape.at = -1;
    if (layout == H5D_CONTIGUOUS) {
        at = H5Dget_offset(set);
        entry->shape.is_contiguous = true;
        if (at != HADDR_UNDEF && at <= INT64_MAX)
            entry->shape.at = (int64_t)at;
        return;
    }
    entry->chunks = sp_h5_describer_allocate(d, 1, sizeof *entry->chunks);
    if (!entry->chunks)
        return;
    entry->chunks->rank = entry->shape.rank;
    entry->chunks->type_size = entry->shape.type.size;
    entry->chunks->bytes = entry->shape.type.size;
    entry->chunks->name = sp_h5_describer_copy(d, entry->name);
    memcpy(entry->chunks->dim, entry->shape.dim, sizeof entry->shape.dim);
    if (layout == H5D_CHUNKED)
        read_chunks(d, set, made, entry);
    else
        read_compact(d, set, entry);
}
