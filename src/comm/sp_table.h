/* Named numbers of all ranks, in one all-reduce.
 *
 *     rank 0   loss: 0.3 0.5   wait_s: 1.2             loss     3 values, sum 1.7,
 *     rank 1   loss: none      wait_s: 1.9   reduce-->          0.3 (rank 0) .. 0.9 (2)
 *     rank 2   loss: 0.9       wait_s: 0.1             wait_s   3 values, ...
 *
 * Sums are formed in fixed point (sp_exact), so they depend on neither order nor number
 * of ranks. A rank without values, or a row without any, is nothing special.
 */
#ifndef SP_TABLE_H
#define SP_TABLE_H

#include "comm/sp_comm.h"

typedef struct sp_table_row {
    const char *name; /* borrowed */
    int64_t count;
    double sum; /* after reduce; NAN where a value was not finite, or beyond 2^36 */
    double min, max; /* NAN of no values; values that are NaN do not count here */
    int min_rank, max_rank; /* after reduce: the lowest rank that has it, -1 none */
} sp_table_row;

typedef struct sp_table {
    sp_comm *comm; /* borrowed */
    int n;
    sp_table_row *row; /* [n] of this rank, of all ranks after reduce */
    int64_t *exact;    /* [n][SP_EXACT_LIMBS] */
    int64_t *wire;     /* [n_wire] what travels */
    size_t n_wire;
} sp_table;

/* A zeroed table with these rows. Collective: the same names on all ranks, else
 * SP_EMPI. SP_EMEM. Destroy after a failure too. */
sp_status sp_table_create(sp_table *table, sp_comm *comm, int n,
                          const char *const *names);
void sp_table_destroy(sp_table *table);
void sp_table_zero(sp_table *table);
/* One more value of this rank in row i. Local. */
void sp_table_add(sp_table *table, int i, double value);
/* Collective over the world, one all-reduce; allocates nothing. Afterwards the rows are
 * those of all ranks, until zeroed. */
sp_status sp_table_reduce(sp_table *table);

#endif
