/* Inside of sp_gridding: Morton keys, sorted items, and costs from sorted keys. */
#ifndef SP_GRIDDING_INTERNAL_H
#define SP_GRIDDING_INTERNAL_H

#include "compute/sp_backend.h"
#include "scan/sp_gridding.h"

/* A voxel's Morton key and the number of the point (or row) that it came from. */
typedef struct sp_grid_item {
    uint64_t key;
    uint32_t row;
} sp_grid_item;

static inline uint64_t sp_grid_key(const int32_t c[3])
{
    static const int32_t least[3] = {-SP_COORD_LIMIT, -SP_COORD_LIMIT, -SP_COORD_LIMIT};

    return sp_morton_key(c, least);
}

/* Sorts n items by key, stably, and returns the one of both arrays that has the result.
 */
sp_grid_item *sp_grid_sort(sp_grid_item *items, sp_grid_item *spare, int64_t n);
/* Computes the cost columns from the sorted keys of voxels. SP_EMEM. */
sp_status sp_grid_cost_of_keys(const uint64_t *key, int64_t n,
                               int64_t cost[SP_COST_COLUMNS]);

#endif
