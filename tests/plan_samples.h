/* Batches of made-up samples that plans are built of. */
#ifndef PLAN_SAMPLES_H
#define PLAN_SAMPLES_H

#include "plan_oracle.h"

typedef struct batch {
    int n_samples;
    int32_t row[41]; /* [n_samples + 1] first row of each sample */
    int32_t *coords; /* [n][3], the test's to free */
} batch;

static inline void batch_add(batch *b, const int32_t *coords, int32_t n)
{
    int32_t at = b->row[b->n_samples];

    b->coords = realloc(b->coords, ((size_t)at + (size_t)n + 1) * 12);
    assert_non_null(b->coords);
    if (n)
        memcpy(b->coords + 3 * (size_t)at, coords, (size_t)n * 12);
    b->row[++b->n_samples] = at + n;
}

static inline void add_surface(batch *b, int32_t n, int32_t x, int32_t y, int32_t z)
{
    int32_t *c = malloc((size_t)n * 12 + 1), at[3] = {x, y, z};

    oracle_surface(c, n, at, (uint32_t)(n + b->n_samples));
    batch_add(b, c, n);
    free(c);
}

static inline void add_scatter(batch *b, int32_t n, int32_t lo, int32_t hi)
{
    int32_t *c = malloc((size_t)n * 12 + 1);

    oracle_scatter(c, n, lo, hi, (uint32_t)n);
    batch_add(b, c, n);
    free(c);
}

#endif
