/* Means over the surroundings of voxels. An object has many voxels, so the mean of what
 * each of them says of itself tells more than any of them.
 *
 *     x of voxels --sum--> cells of edge^3 voxels --mean over the 3^3 cells around,
 *                          each voxel counts once--> cells --the same again--> voxels
 *
 * The two means together weigh near voxels most. All numbers are whole, so the result
 * depends on neither the order of voxels nor the threads. Cells begin at multiples of
 * the edge: blocks that begin there too have the same cells. */
#ifndef SP_NEARBY_H
#define SP_NEARBY_H

#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

/* The cells of a sample. Zero it before the first use; its memory is used again. */
typedef struct sp_nearby {
    struct sp_nearby_cell *cell; /* [size] a hash table; size is a power of 2 */
    size_t size, room;
} sp_nearby;

/* Replaces x [n], each at most 2^30, by its mean over the surroundings, rounded to
 * nearest. coords [n][3] in -2^19 .. 2^19 - 1; edge >= 1. Local. SP_EMEM. */
sp_status sp_nearby_mean(sp_nearby *nearby, const int32_t *coords, int64_t n, int edge,
                         uint64_t *x);
void sp_nearby_destroy(sp_nearby *nearby);

#endif
