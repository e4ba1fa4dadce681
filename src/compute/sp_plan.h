/* The plan of a batch: its coordinate pyramid and kernel maps. A plan depends on
 * coordinates only, so the loader builds it before the step.
 *
 * Rows of every level are sorted by (sample, Morton key), bit 0 of the key x, bit 1 y,
 * bit 2 z. Keys are relative to a base of their sample: its least coordinate along each
 * axis, rounded down to a multiple of the coarsest stride. So a sample's order depends
 * only on that sample and the number of levels, and
 * - the next level is a scan of key >> 3;
 * - the children of a voxel are consecutive rows;
 * - key & 7 is the offset of the 2^3 kernel of stride 2 (offsets have x fastest).
 * Coordinates are not kept: row i of level 0 is row order[i] of the caller's.
 *
 * A level that is_dilated has more voxels: all that a 3^3 kernel of stride 2 on the
 * next finer level reaches, which is every o with a finer voxel at 2 o + d, d in
 * {-1, 0, 1}^3. They include the parents of the finer voxels, so all of the above
 * holds; a voxel that was only reached has no children.
 *
 * On the host a map is cut into tiles of at most SP_TILE output rows; no tile straddles
 * a sample, so that per-sample sums do not depend on what else is in the batch. Per
 * tile and offset the (in, out) pairs are sorted by rising output row:
 *
 *     start[t * K + k] .. start[t * K + k + 1] - 1      pairs of tile t, offset k
 *     tile_row[t] .. tile_row[t + 1] - 1                output rows of tile t
 *     sample_tile[b] .. sample_tile[b + 1] - 1          tiles of sample b
 */
#ifndef SP_PLAN_H
#define SP_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_arena.h"
#include "base/sp_rng.h"

enum {
    SP_MAX_LEVELS = 12, /* tensor strides 1 .. 2^11 */
    SP_MAX_MAPS = 64,   /* distinct kernel maps of a network */
    SP_MAX_KERNEL = 7,  /* edge of a kernel */
    SP_TILE = 512,
    SP_COORD_LIMIT = 1 << 19 /* coordinates lie in [-limit, limit) */
};

/* Names the kernel map of a kernel^3 convolution from level_in to level_out (a level is
 * log2 of its tensor stride). If level_out >= level_in, offset k pairs output row o
 * with the input row at o + s * d_k, s the tensor stride of level_in. If level_out <
 * level_in, or if is_swapped on one level, it is the map of the convolution from
 * level_out to level_in with in and out exchanged. */
typedef struct sp_map_key {
    uint8_t level_in, level_out, kernel, is_swapped;
} sp_map_key;

/* The levels and maps that a network needs; sp_graph makes it once. */
typedef struct sp_plan_spec {
    int n_levels; /* levels 0 .. n_levels - 1 */
    int n_maps;
    sp_map_key map[SP_MAX_MAPS];
    bool is_dilated[SP_MAX_LEVELS]; /* of level 0: false */
    /* Dilated levels get no voxel at or above ceil(grid / stride) along an axis unless
     * it is the parent of a finer voxel; 0: without bound. In voxels of level 0. */
    int32_t grid[3];
} sp_plan_spec;

/* The finest level that is dilated; n_levels if no level is. */
static inline int sp_plan_first_dilated(const sp_plan_spec *spec)
{
    int l = 1;

    while (l < spec->n_levels && !spec->is_dilated[l])
        l++;
    return l < spec->n_levels ? l : spec->n_levels;
}

static inline int sp_kernel_volume(sp_map_key key)
{
    return key.kernel * key.kernel * key.kernel;
}

/* The lowest offset of a kernel of edge n along an axis, in steps of the finer
 * stride. */
static inline SP_HOST_DEVICE int sp_kernel_first(int n)
{
    return n % 2 ? -(n / 2) : 0;
}

/* The offset that pairs every row with itself; -1 with a stride. */
static inline int sp_kernel_centre(sp_map_key key)
{
    if (key.level_in != key.level_out)
        return -1;
    return key.kernel % 2 ? sp_kernel_volume(key) / 2 : 0;
}

/* True if the output has the positions that a partner's offset is subtracted from. */
static inline bool sp_map_is_exchanged(sp_map_key key)
{
    return key.level_out < key.level_in ||
           (key.level_out == key.level_in && key.is_swapped);
}

/* The number of levels to go up until every partner of a row is at most one neighbour
 * away: 0, 1, 2, 3 for offsets of at most 1, 2, 4, 8 steps. */
static inline int sp_kernel_reach(int kernel)
{
    const int far = kernel % 2 ? kernel / 2 : kernel - 1;

    return far <= 1 ? 0 : far <= 2 ? 1 : far <= 4 ? 2 : 3;
}

typedef struct sp_level {
    int32_t n; /* voxels */
    /* [n] Morton key relative to the sample's base, rising within a sample; the bits
     * above the key are private to the backend. */
    const uint64_t *key;
    const int32_t *parent;     /* [n] row in the next coarser level; NULL on the last */
    const int32_t *sample_row; /* [n_samples + 1] host: first row of each sample */
} sp_level;

typedef struct sp_map {
    sp_map_key key;
    int32_t n_in, n_out;
    int K; /* kernel^3 */
    int n_tiles;
    int64_t pairs;
    /* True: offset `centre` pairs every row with itself. This follows only from the key
     * (input and output on one level, kernels of either parity), since it decides the
     * order of sums. */
    bool is_full;
    int centre;
    const int32_t *start;       /* [n_tiles * K + 1] */
    const int32_t *in, *out;    /* [pairs] */
    const int32_t *tile_row;    /* [n_tiles + 1] */
    const int32_t *sample_tile; /* [n_samples + 1] host */
    /* The map in the form of a device's backend; NULL on the host. A device has no
     * tiles: the fields from `start` to here are NULL there. */
    const void *device;
} sp_map;

typedef struct sp_plan {
    int n_samples, n_levels, n_maps;
    int64_t above; /* host: voxels of all levels above these, up to one a sample */
    /* The number of kernels, copies and fills of a device to build the plan, and of the
     * host's waits for it; 0 on the host. */
    int n_operations, n_waits;
    sp_level level[SP_MAX_LEVELS];
    sp_map map[SP_MAX_MAPS]; /* in the order of the spec */
    const int32_t *order;    /* [n] host: input row of each row of level 0 */
} sp_plan;

/* The numbers that the memory of a plan follows from, of a plan or estimated. */
typedef struct sp_plan_counts {
    int n_samples;
    int64_t voxels[SP_MAX_LEVELS], above; /* of each level; sp_plan.above */
    int64_t pairs[SP_MAX_MAPS];           /* of each map */
} sp_plan_counts;

static inline sp_plan_counts sp_plan_count(const sp_plan *plan)
{
    sp_plan_counts counts;

    memset(&counts, 0, sizeof counts);
    counts.n_samples = plan->n_samples;
    counts.above = plan->above;
    for (int l = 0; l < plan->n_levels; l++)
        counts.voxels[l] = plan->level[l].n;
    for (int m = 0; m < plan->n_maps; m++)
        counts.pairs[m] = plan->map[m].pairs;
    return counts;
}

/* Bytes of a plan's arena that the plan keeps, or takes meanwhile on a device, and of
 * the arena's scratch. */
typedef struct sp_plan_bytes {
    int64_t arena, scratch;
} sp_plan_bytes;

/* Spreads the low 21 bits of v to every third bit, as a Morton key has them. */
static inline SP_HOST_DEVICE uint64_t sp_morton_spread(uint32_t v)
{
    uint64_t x = v & 0x1fffff;

    x = (x | x << 32) & 0x001f00000000ffff;
    x = (x | x << 16) & 0x001f0000ff0000ff;
    x = (x | x << 8) & 0x100f00f00f00f00f;
    x = (x | x << 4) & 0x10c30c30c30c30c3;
    return (x | x << 2) & 0x1249249249249249;
}

/* The inverse of sp_morton_spread. */
static inline SP_HOST_DEVICE int sp_morton_gather(uint64_t key)
{
    uint64_t x = key & 0x1249249249249249;

    x = (x | x >> 2) & 0x10c30c30c30c30c3;
    x = (x | x >> 4) & 0x100f00f00f00f00f;
    x = (x | x >> 8) & 0x001f0000ff0000ff;
    x = (x | x >> 16) & 0x001f00000000ffff;
    return (int)((x | x >> 32) & 0x1fffff);
}

/* The Morton key of c - base. */
static inline SP_HOST_DEVICE uint64_t sp_morton_key(const int32_t *c,
                                                    const int32_t *base)
{
    return sp_morton_spread((uint32_t)(c[0] - base[0])) |
           sp_morton_spread((uint32_t)(c[1] - base[1])) << 1 |
           sp_morton_spread((uint32_t)(c[2] - base[2])) << 2;
}

/* Writes offset k of a kernel of edge n, in steps of the finer stride, into d. x runs
 * fastest (input/SCHEMA). */
static inline void sp_kernel_offset(int n, int k, int d[3])
{
    const int lo = sp_kernel_first(n);

    d[0] = lo + k % n;
    d[1] = lo + k / n % n;
    d[2] = lo + k / (n * n);
}

#endif
