/* The rows of /cost of all samples, in as few bits as the largest number of each column
 * needs: a row of 48 bytes takes 8 to 11. Column 0 repeats the sample's voxels and is
 * not stored. */
#ifndef SP_COSTS_H
#define SP_COSTS_H

#include <stdint.h>

#include "base/sp_error.h"

/* Columns of /cost: voxels at strides 1, 2, 4, 8, 16 and pairs of a 3^3 kernel. */
enum { SP_COST_COLUMNS = 6 };

typedef struct sp_costs {
    uint8_t bits[SP_COST_COLUMNS]; /* of each column; 0 of column 0 */
    uint64_t *word; /* [sp_costs_words] rows follow one another bit by bit */
} sp_costs;

/* Packs rows cost [n][SP_COST_COLUMNS] of numbers >= 0; the caller frees costs->word.
 * SP_EMEM. */
sp_status sp_costs_pack(sp_costs *costs, const int64_t *cost, int64_t n);
/* Makes the columns of `costs`, which has no rows yet, as wide as the other's. */
void sp_costs_widen(sp_costs *costs, const sp_costs *other);
/* The words of n rows. */
int64_t sp_costs_words(const sp_costs *costs, int64_t n);
/* Reads column 1 or above of a row. */
int64_t sp_costs_get(const sp_costs *costs, int64_t row, int column);
/* Copies n rows of `from` to rows at, at + 1, ...; costs->word was zeroed, and its
 * columns are as wide as those of `from` at least. */
void sp_costs_copy(sp_costs *costs, int64_t at, const sp_costs *from, int64_t n);

#endif
