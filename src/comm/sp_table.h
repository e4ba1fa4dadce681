/* Named numbers of all ranks, reduced in one all-reduce.
 *
 *     rank 0   loss: 0.3 0.5   wait_s: 1.2             loss     3 values, sum 1.7,
 *     rank 1   loss: none      wait_s: 1.9   reduce-->          0.3 (rank 0) .. 0.9 (2)
 *     rank 2   loss: 0.9       wait_s: 0.1             wait_s   3 values, ...
 *
 * Sums are formed in fixed point (sp_exact.h), so they depend on neither the order nor
 * the number of ranks. A rank without values, and a row without any, are allowed.
 */
#ifndef SP_TABLE_H
#define SP_TABLE_H

#include "comm/sp_comm.h"

/* A row: the values of one name. */
typedef struct sp_table_row {
    const char *name; /* borrowed */
    int64_t count;
    double sum;      /* after reduce; NAN if a value was not finite or beyond 2^36 */
    double min, max; /* NAN without values; values that are NaN do not count here */
    /* after reduce: the lowest rank with this value; -1: none */
    int min_rank, max_rank;
} sp_table_row;

typedef struct sp_table {
    sp_comm *comm; /* borrowed */
    int n;
    sp_table_row *row; /* [n] of this rank, and of all ranks after reduce */
    int64_t *exact;    /* [n][SP_EXACT_LIMBS] this rank's sums */
    int64_t *wire;     /* [n_wire] the words of the all-reduce */
    size_t n_wire;
} sp_table;

/* Creates a zeroed table with these rows, whose names are borrowed. Collective over the
 * world: SP_EMPI if the ranks give different names; SP_EMEM. The caller destroys the
 * table after a failure too. */
sp_status sp_table_create(sp_table *table, sp_comm *comm, int n,
                          const char *const *names);
void sp_table_destroy(sp_table *table);
/* Removes all values. Local. */
void sp_table_zero(sp_table *table);
/* Adds a value of this rank to row i. Local. */
void sp_table_add(sp_table *table, int i, double value);
/* Reduces the rows, which are then those of all ranks until the table is zeroed.
 * Collective over the world, one all-reduce; allocates nothing. */
sp_status sp_table_reduce(sp_table *table);

#endif
