/* The state of a description in progress: shared by the files of sp_h5_describe. */
#ifndef SP_H5_DESCRIBER_H
#define SP_H5_DESCRIBER_H

#include "h5/sp_h5_internal.h"

enum { SP_H5_WHY = 256 }; /* bytes of a reason in the catalog, without the library's */

typedef struct describer {
    hid_t file;
    sp_h5_catalog *catalog;
    /* The bytes that texts and attributes of this file may still use. */
    int64_t texts_left;
    bool is_out_of_memory;
} describer;

/* Allocate memory that the catalog keeps; NULL and is_out_of_memory on failure. An
 * array has n zeroed elements and one more. */
char *sp_h5_describer_copy(describer *d, const char *text);
void *sp_h5_describer_allocate(describer *d, size_t n, size_t size);
/* Returns `what` followed by HDF5's error text; allocated likewise. */
char *sp_h5_describer_reason(describer *d, const char *what);

/* Stores the place of a dataset's values in the catalog: one place, or chunks or the
 * header, which a child unpacks. `made` is the list of properties that it was created
 * with. entry->why says why they cannot be read. */
void sp_h5_describe_layout(describer *d, hid_t set, hid_t made, sp_h5_entry *entry);

#endif
