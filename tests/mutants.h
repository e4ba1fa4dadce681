/* Files made wrong on purpose, each a pure function of its number: bytes that change as
 * on a bad disk or a cut transfer, and HDF5 files that a hostile hand wrote. */
#ifndef MUTANTS_H
#define MUTANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole file. */
typedef struct blob {
    unsigned char *at; /* malloc'd */
    size_t n;
} blob;

blob blob_read(const char *path);
void blob_write(const char *path, blob data);

/* splitmix64: the next number of the sequence; one of 0 .. n - 1. */
uint64_t mutant_next(uint64_t *state);
size_t mutant_below(uint64_t *state, size_t n);

/* Damaged mutant `number` of a file, malloc'd: bits flipped, bytes and runs replaced,
 * numbers made huge, parts copied over others, the end cut off or something added. */
blob mutant_of(blob whole, uint64_t number);

/* The HDF5 file written anew as h5py does by default: the oldest format, whose headers
 * have no checksums; datasets in compressed chunks. */
void mutant_repack(const char *path);

/* Dataset `name` of an HDF5 file replaced by variant 0 .. n - 1: absent, a link to
 * nowhere, to itself or to another file, a group, of a wrong type, of no or of a huge
 * size, stored in another file. */
int mutant_n_datasets(void);
void mutant_dataset(const char *path, const char *name, int variant);
/* True if the variant is as if the dataset were not there. */
bool mutant_is_absent(int variant);
/* True if it is made of texts. */
bool mutant_is_text(int variant);

/* The same of an attribute of the root: absent, of a wrong type or size, a number that
 * no such number can be. */
int mutant_n_attributes(void);
void mutant_attribute(const char *path, const char *name, int variant);

#endif
