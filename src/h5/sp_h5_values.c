/* Rows of a dataset in their stored type, unpacked by HDF5 in the limited child. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "h5/sp_h5_internal.h"

/* Selects the rows in the space of the dataset. Returns the space of the same rows in
 * memory, negative if they are not in it. A scalar has one row. */
static hid_t select_rows(hid_t space, int64_t first, int64_t n)
{
    const int rank = H5Sget_simple_extent_ndims(space);
    hsize_t at[SP_H5_RANK] = {(hsize_t)first}, count[SP_H5_RANK];

    if (rank == 0)
        return H5Screate(H5S_SCALAR);
    if (rank < 0 || rank > SP_H5_RANK ||
        H5Sget_simple_extent_dims(space, count, NULL) != rank ||
        (hsize_t)first > count[0] || (hsize_t)n > count[0] - (hsize_t)first)
        return H5I_INVALID_HID;
    count[0] = (hsize_t)n;
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, count, NULL) < 0)
        return H5I_INVALID_HID;
    return H5Screate_simple(rank, count, NULL);
}

/* True if the rows were read and have exactly this number of bytes; else text [size] is
 * the library's error. */
static bool read_selected(hid_t set, int64_t first, int64_t n, int64_t bytes, void *to,
                          char *text, size_t size)
{
    const hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    const hid_t memory = select_rows(space, first, n);
    const bool is_read =
        memory >= 0 &&
        H5Sget_simple_extent_npoints(memory) * (int64_t)H5Tget_size(type) == bytes &&
        H5Dread(set, type, memory, H5Sget_simple_extent_ndims(space) ? space : H5S_ALL,
                H5P_DEFAULT, to) >= 0;

    if (!is_read) /* at once: the next call empties the error stack */
        sp_h5_library_text(text, size);
    if (memory >= 0)
        H5Sclose(memory);
    H5Sclose(space);
    H5Tclose(type);
    return is_read;
}

sp_status sp_h5_values(const char *path, const char *name, int64_t first, int64_t n,
                       int64_t bytes, void *to)
{
    char text[256] = "";
    hid_t list, file, set;
    sp_status rc = SP_OK;

    assert(first >= 0 && n > 0 && bytes >= 0);
    sp_h5_enter();
    list = sp_h5_driver_list();
    file = H5Fopen(path, H5F_ACC_RDONLY, list);
    set = file < 0 ? H5I_INVALID_HID : H5Dopen2(file, name, H5P_DEFAULT);
    if (set < 0)
        sp_h5_library_text(text, sizeof text);
    if (set < 0 || !read_selected(set, first, n, bytes, to, text, sizeof text))
        rc = SP_FAIL(SP_EDATA, "rows %lld to %lld cannot be unpacked: damaged%s%s",
                     (long long)first, (long long)(first + n - 1), *text ? ": " : "",
                     text);
    if (set >= 0)
        H5Dclose(set);
    if (file >= 0)
        H5Fclose(file);
    H5Pclose(list);
    if (sp_h5_driver_error())
        rc = SP_FAIL(SP_EIO, "cannot read: %s", strerror(sp_h5_driver_error()));
    return sp_h5_leave(rc);
}
