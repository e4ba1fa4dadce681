/* The place of a dataset's values in its file: contiguous, in chunks, in the header. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "h5/sp_h5_describer.h"
#include "h5/sp_h5_filter.h"

static void refuse_filter(describer *d, int id, const char *given, sp_h5_entry *entry)
{
    const char *name = id == H5Z_FILTER_SZIP          ? "szip"
                       : id == H5Z_FILTER_NBIT        ? "nbit"
                       : id == H5Z_FILTER_SCALEOFFSET ? "scaleoffset"
                       : id == 32000                  ? "lzf"
                                                      : given;
    char why[SP_H5_WHY];

    if (entry->why)
        return;
    snprintf(why, sizeof why,
             "compressed by the filter \"%s\" (number %d), which is not read; write it "
             "contiguous, or with gzip (h5repack -f GZIP=4 IN OUT)",
             name, id);
    entry->why = sp_h5_describer_copy(d, why);
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
        entry->why = sp_h5_describer_reason(d, "its chunks cannot be read");
        return;
    }
    for (int i = 0; i < c->rank; i++)
        c->chunk[i] = size[i] > 0 && size[i] <= INT64_MAX ? (int64_t)size[i] : 1;
    read_filters(d, made, c, entry);
    c->n = sp_h5_chunks_count(c);
    if (c->n < 0 || c->n > d->catalog->bytes) {
        c->n = 0;
        entry->why = sp_h5_describer_copy(d, "its values were not all written");
    }
    if (entry->why)
        return;
    c->at = sp_h5_describer_allocate(d, (size_t)c->n, sizeof *c->at);
    c->bytes = sp_h5_describer_allocate(d, (size_t)c->n, sizeof *c->bytes);
    c->mask = sp_h5_describer_allocate(d, (size_t)c->n, sizeof *c->mask);
    if (!d->is_out_of_memory && !find_chunks(set, made, c))
        entry->why = sp_h5_describer_reason(d, "its values were not all written");
}

static void read_compact(describer *d, hid_t set, hid_t type, sp_h5_entry *entry)
{
    sp_h5_chunks *c = entry->chunks;
    hid_t space = H5Dget_space(set);
    hssize_t n = H5Sget_simple_extent_npoints(space);

    H5Sclose(space);
    if (n < 0 || n > d->catalog->bytes / c->type_size) {
        entry->why = sp_h5_describer_copy(d, "is larger than its file");
        return;
    }
    c->compact_bytes = (int64_t)n * c->type_size;
    if ((int64_t)H5Dget_storage_size(set) != c->compact_bytes) {
        c->compact_bytes = 0; /* HDF5 would read on beyond the stored bytes */
        entry->why =
            sp_h5_describer_copy(d, "its values are not all in its header: damaged");
        return;
    }
    c->compact = sp_h5_describer_allocate(d, (size_t)c->compact_bytes, 1);
    if (c->compact && n > 0 &&
        H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, c->compact) < 0)
        entry->why = sp_h5_describer_reason(d, "cannot be read");
}

void sp_h5_describe_layout(describer *d, hid_t set, hid_t type, hid_t made,
                           sp_h5_entry *entry)
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
    memcpy(entry->chunks->dim, entry->shape.dim, sizeof entry->shape.dim);
    if (layout == H5D_CHUNKED)
        read_chunk_table(d, set, made, entry);
    else
        read_compact(d, set, type, entry);
}
