/* The catalog of an HDF5 file: its names, shapes, places of values and attributes, as
 * the limited child found them (sp_h5_child.h). Between the files of src/h5; without
 * HDF5.
 *
 *     child: sp_h5_describe --> catalog --> bytes --> parent: catalog, checked
 *
 * The parent trusts no number of a catalog before sp_h5_catalog_check has seen it. */
#ifndef SP_H5_CATALOG_H
#define SP_H5_CATALOG_H

#include "base/sp_serial.h"
#include "h5/sp_h5.h"

typedef struct sp_h5_attr {
    char *name;
    sp_h5_type type;
    int64_t n;   /* number of elements */
    void *value; /* [n] in the type as stored; NULL for texts */
    char **text; /* [n] for texts, else NULL */
    char *why;   /* why the attribute cannot be read; NULL: it can */
} sp_h5_attr;

typedef enum sp_h5_kind { SP_H5_GROUP, SP_H5_DATASET, SP_H5_LINK } sp_h5_kind;

typedef struct sp_h5_entry {
    char *name; /* the path, such as "/params/conv1/weight"; "/" for the root */
    int32_t kind;
    char *why; /* why the values cannot be read; NULL: they can */
    sp_h5_shape shape;
    int64_t n_texts;
    char **text; /* [n_texts] the values of a dataset of texts */
    int64_t n_attrs;
    sp_h5_attr *attr;
} sp_h5_entry;

typedef struct sp_h5_catalog {
    uint64_t device, inode; /* the identity of the file that the child read */
    int64_t bytes;          /* its size at that time */
    int64_t n;
    sp_h5_entry *entry; /* [n] sorted by name once the catalog is checked */
} sp_h5_catalog;

/* Writes the catalog to bytes, or reads it from bytes; serial->rc is the status. Call
 * sp_h5_catalog_free after a failure too. */
void sp_h5_catalog_serialize(sp_serial *serial, sp_h5_catalog *catalog);
/* Sorts the entries. An entry with impossible numbers for this file's size gets a
 * reason not to be read. SP_EMEM; SP_EDATA if the catalog itself is broken. */
sp_status sp_h5_catalog_check(sp_h5_catalog *catalog);
/* The object of this name, with or without the first slash, or NULL. */
const sp_h5_entry *sp_h5_catalog_find(const sp_h5_catalog *catalog, const char *name);
/* The link that the path leads through, or NULL. */
const sp_h5_entry *sp_h5_catalog_link(const sp_h5_catalog *catalog, const char *name);
const sp_h5_attr *sp_h5_entry_attr(const sp_h5_entry *entry, const char *name);
void sp_h5_catalog_free(sp_h5_catalog *catalog);

#endif
