/* The rows of the samples of a data set, in a dataset or among the texts of an index: the
 * first row of each sample and how many it has. 14 samples take the 64 bytes of a cache
 * line, 4.6 bytes a sample, and a look-up reads one line. */
#ifndef SP_SPANS_H
#define SP_SPANS_H

#include <stdint.h>

#include "base/sp_error.h"

enum { SP_SPANS_SAMPLES = 14 };

typedef struct sp_spans {
    int64_t first;                /* the rows of all samples before these */
    uint32_t n[SP_SPANS_SAMPLES]; /* of each sample */
} sp_spans;

/* The elements of the array for n samples. */
static inline int64_t sp_spans_size(int64_t n)
{
    return (n + SP_SPANS_SAMPLES - 1) / SP_SPANS_SAMPLES;
}

static inline int64_t sp_spans_count(const sp_spans *rows, int64_t sample)
{
    return rows[sample / SP_SPANS_SAMPLES].n[sample % SP_SPANS_SAMPLES];
}

/* The rows of all samples before this one. */
static inline int64_t sp_spans_first(const sp_spans *rows, int64_t sample)
{
    const sp_spans *of = rows + sample / SP_SPANS_SAMPLES;
    int64_t first = of->first;

    for (int i = 0; i < (int)(sample % SP_SPANS_SAMPLES); i++)
        first += of->n[i];
    return first;
}

/* Makes the array, malloc'd, of offset [n + 1], which begins with 0 and rises by less
 * than 2^31 a sample. SP_EMEM. */
sp_status sp_spans_pack(sp_spans **rows, const int64_t *offset, int64_t n);
/* Writes offset [n + 1] of the samples from `first` on; offset[0] is 0. */
void sp_spans_unpack(const sp_spans *rows, int64_t first, int64_t n, int64_t *offset);
/* Appends n samples of `from` to the `at` samples of `to`. */
void sp_spans_append(sp_spans *to, int64_t at, const sp_spans *from, int64_t n);

#endif
