/* HDF5 files whose structure is valid for HDF5 and whose content is not what the
 * readers expect. No mutant damages HDF5's own structures, because libhdf5 does not
 * survive that: of 500 files with 1 to 8 damaged bytes of their headers 1.10.8 crashed
 * on 11 and never returned from 2, and a layout message that says compact makes it read
 * beyond the header. The limited child that reads such files crashes by its fault switch
 * instead. */
#ifndef MUTATE_H5_H
#define MUTATE_H5_H

#include "torture/fuzz/mutate.h"

/* How h5_repack stores datasets. */
typedef enum h5_store {
    H5_STORE_OLD,      /* oldest format, no checksums in headers; deflate, B-trees */
    H5_STORE_SHUFFLED, /* the same with shuffle, deflate and fletcher32 */
    H5_STORE_LATEST,   /* latest format, growing datasets; shuffle and deflate */
    H5_STORE_PLAIN,    /* latest format, chunks without a filter */
    H5_N_STORES
} h5_store;

/* Writes the HDF5 file anew with its datasets in chunks. */
void h5_repack(const char *path, h5_store store);
/* Gives the bytes of an HDF5 file as each of the stores has its datasets, in chunks,
 * and then its own, made[H5_N_STORES]. */
void h5_store_all(const char *path, blob made[H5_N_STORES + 1]);

/* Replaces dataset `name` by variant 0 .. n - 1: absent, a link to nowhere, to itself,
 * to another file or another dataset, a group, virtual, of a wrong type, of no or of a
 * huge size, stored in another file. */
int h5_any_impostor(uint64_t *rng);
void h5_put_impostor(const char *path, const char *name, int variant);
/* Tell whether the variant is as if the dataset were absent, is made of texts, or leads
 * to values that may be right. */
bool h5_is_absent(int variant);
bool h5_is_text(int variant);
bool h5_is_linked(int variant);

/* Replaces attribute `name` of the root, or "GROUP/NAME", by variant 0 .. n - 1:
 * absent, of a wrong type or size, an impossible number. */
int h5_any_attribute(uint64_t *rng);
void h5_put_attribute(const char *path, const char *name, int variant);

/* Gives the names of all datasets, until the next call of a function of this file. */
char *const *h5_list(const char *path, int *n);

/* Flips some stored bits of one chunk; the index stays right. Returns the name of the
 * dataset as h5_list does, "" where it has no chunk. */
const char *h5_damage_chunk(const char *path, uint64_t *rng);

/* True for the bytes of an HDF5 file. */
bool h5_is_file(blob b);
/* Cuts the file off, flips stored bits of a dataset, or makes the child that reads the
 * file crash: SP_H5_CHILD_CRASH is then set. */
void h5_damage(const char *path, uint64_t *rng);

/* Makes some elements of a dataset, or a number in a root attribute, unlikely;
 * checksums stay as they are. Returns the name of the one as h5_list does. */
const char *h5_change_value(const char *path, uint64_t *rng);
/* The same for elements of a dataset alone. */
void h5_change_dataset(const char *path, uint64_t *rng);
/* Make the checksums of a checkpoint, and of a shard's samples, right again. */
void h5_mend_checkpoint_sums(const char *path);
void h5_mend_shard_sums(const char *path);

#endif
