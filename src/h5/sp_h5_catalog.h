/* What a limited child found in an HDF5 file (sp_h5_child.h): names, shapes, places of
 * values, attributes. Between the files of src/h5; without HDF5.
 *
 *     child: sp_h5_describe --> catalog --> bytes --> parent: catalog, checked
 */
#ifndef SP_H5_CATALOG_H
#define SP_H5_CATALOG_H

#include "h5/sp_h5_rows.h"

typedef struct sp_h5_attr {
    char *name;
    sp_h5_type type;
    int64_t n;   /* elements; -1: no data space */
    void *value; /* [n] as stored; NULL for texts */
    char **text; /* [n] */
    char *why;   /* the reason that it cannot be read; NULL: it can */
} sp_h5_attr;

typedef enum sp_h5_kind { SP_H5_GROUP, SP_H5_DATASET, SP_H5_LINK } sp_h5_kind;

typedef struct sp_h5_entry {
    char *name; /* "/params/conv1/weight"; "/" for the root */
    int32_t kind;
    char *why; /* the reason that its values cannot be read; NULL: they can */
    sp_h5_shape shape;
    sp_h5_chunks *chunks; /* NULL: contiguous, or no values */
    int64_t n_texts;
    char **text; /* [n_texts] of a dataset of texts */
    int64_t n_attrs;
    sp_h5_attr *attr;
} sp_h5_entry;

typedef struct sp_h5_catalog {
    uint64_t device, inode; /* of the file that was read */
    int64_t bytes;          /* its size */
    int64_t n;
    sp_h5_entry *entry; /* by name once it is checked */
} sp_h5_catalog;

/* Writes or reads it; sp_h5_catalog_free after a failure too. */
void sp_h5_catalog_wire(sp_wire *wire, sp_h5_catalog *catalog);
/* Sorts the entries, and gives those whose numbers make no sense in a file of this size
 * a reason not to be read. SP_EMEM. */
sp_status sp_h5_catalog_check(sp_h5_catalog *catalog);
/* With or without the first slash; NULL: none. */
const sp_h5_entry *sp_h5_catalog_find(const sp_h5_catalog *catalog, const char *name);
/* The link that a path leads through, NULL: none. */
const sp_h5_entry *sp_h5_catalog_link(const sp_h5_catalog *catalog, const char *name);
const sp_h5_attr *sp_h5_entry_attr(const sp_h5_entry *entry, const char *name);
void sp_h5_catalog_free(sp_h5_catalog *catalog);

#endif
