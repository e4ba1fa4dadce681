/* Files made wrong on purpose, each a pure function of a random number's seed.
 *
 *     mutate_bytes   any file      bits, bytes, runs, numbers, length: a bad disk
 *     mutate_words   texts         words, lines and numbers: a careless or hostile hand
 *     mutate_field   binary heads  a number at a known place becomes an unlikely one
 *     mutate_h5.h    HDF5          datasets, attributes, links, chunks, values
 */
#ifndef MUTATE_H
#define MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole file. */
typedef struct blob {
    unsigned char *at; /* malloc'd */
    size_t n;
} blob;

/* A failure of these functions is the test's own: it ends the process with a
 * message. */
blob blob_read(const char *path);
void blob_write(const char *path, blob data);
blob blob_copy(blob data);
blob blob_of_text(const char *text);
void mutate_check(bool is_good, const char *what);

/* splitmix64: the next number of the sequence, and one of 0 .. n - 1 (0 for n 0). */
uint64_t mutate_next(uint64_t *rng);
size_t mutate_below(uint64_t *rng, size_t n);

/* Makes one change: bits flipped, bytes and runs replaced, a number made huge, a part
 * copied over another, the end cut off or something added. */
void mutate_bytes(blob *m, uint64_t *rng);

/* The words that a text of one format may have, hostile ones among them. */
typedef struct vocabulary {
    const char *const *at;
    size_t n;
} vocabulary;

/* Makes one change within the first `end` bytes of a text: a word replaced or put in, a
 * number changed, a line removed, doubled or exchanged, a word repeated many times.
 * Returns how far the end has moved. */
ptrdiff_t mutate_words(blob *m, size_t end, const vocabulary *words, uint64_t *rng);

/* A number in a binary head. */
typedef struct field {
    int at, size;
    char kind; /* 'u' integer, 'f' IEEE float; in the machine's byte order */
} field;

/* Makes one of the fields that lie within the file an unlikely number. */
void mutate_field(blob *m, const field *fields, size_t n, uint64_t *rng);

/* Returns an unlikely number of this kind and size ('i' and 'u' alike). */
void mutate_number(void *to, char kind, int size, uint64_t *rng);

#endif
