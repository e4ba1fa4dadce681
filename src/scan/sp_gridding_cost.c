/* The cost columns of a sample from its sorted keys, and their sort. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_rng.h"
#include "scan/sp_gridding_internal.h"

/* A radix sort, which skips digits that are equal in all keys. Measured, digits of 11
 * bits are faster than bytes, but for few items, which the counts of digits outnumber. */
sp_grid_item *sp_grid_sort(sp_grid_item *items, sp_grid_item *spare, int64_t n)
{
    enum { MOST_BITS = 11, FEW = 4096 };
    const int bits = n < FEW ? 8 : MOST_BITS;
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    sp_grid_item *from = items, *to = spare, *swap;
    uint64_t all_or = 0, all_and = ~(uint64_t)0;
    uint32_t at[(1 << MOST_BITS) + 1];

    assert(n <= UINT32_MAX);
    for (int64_t i = 0; i < n; i++) {
        all_or |= items[i].key;
        all_and &= items[i].key;
    }
    for (int shift = 0; shift < 64; shift += bits) {
        if (n == 0 || ((all_or ^ all_and) >> shift & mask) == 0)
            continue;
        memset(at, 0, (mask + 2) * sizeof *at);
        for (int64_t i = 0; i < n; i++)
            at[(from[i].key >> shift & mask) + 1]++;
        for (uint64_t d = 0; d <= mask; d++)
            at[d + 1] += at[d];
        for (int64_t i = 0; i < n; i++)
            to[at[from[i].key >> shift & mask]++] = from[i];
        swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* ---- cost ---- */

/* The cubes of 4^3 voxels that hold any, in a hash table. A place depends on a random
 * secret of this process, so that a hostile file cannot make all cubes collide. The
 * counts do not depend on the secret. */
typedef struct cube {
    uint64_t key;  /* of its voxels without the last 6 bits, plus 1; 0: empty */
    uint64_t mask; /* bit i: it holds the voxel with these last 6 bits */
} cube;

typedef struct cube_table {
    cube *at; /* [mask + 1] */
    uint64_t mask, secret;
} cube_table;

/* Finds the place of a cube, or the empty place for it. */
static cube *find_cube(const cube_table *table, uint64_t key)
{
    uint64_t h = sp_rng_mix(key ^ table->secret) & table->mask;

    while (table->at[h].key && table->at[h].key != key + 1)
        h = (h + 1) & table->mask;
    return &table->at[h];
}

/* The neighbours of each voxel of a cube by the 13 offsets after the centre, half of
 * all: the cube of each among the 27 around, and its bit there. */
enum { CUBE = 64, HALF = 13, AROUND = 27 };
typedef struct neighbours {
    uint8_t cube[CUBE][HALF], bit[CUBE][HALF];
} neighbours;

static void list_neighbours(neighbours *list)
{
    int d[3];

    for (uint64_t voxel = 0; voxel < CUBE; voxel++)
        for (int k = 0; k < HALF; k++) {
            uint64_t bit = 0;
            int around = 0;

            sp_kernel_offset(3, k + AROUND / 2 + 1, d);
            for (int a = 2; a >= 0; a--) {
                const int at = sp_morton_gather(voxel >> a) + d[a] + 4; /* 3 to 8 */

                around = 3 * around + at / 4;
                bit |= sp_morton_spread((uint32_t)at % 4) << a;
            }
            list->cube[voxel][k] = (uint8_t)around;
            list->bit[voxel][k] = (uint8_t)bit;
        }
}

/* The voxels of cube `around` of the 27 around the cube of this key. */
static uint64_t mask_around(const cube_table *table, uint64_t key, int around)
{
    uint64_t other = 0;

    for (int a = 0; a < 3; a++, around /= 3) {
        const int32_t at = sp_morton_gather(key >> a) + around % 3 - 1;

        if (at < 0 || at >= SP_COORD_LIMIT / 2)
            return 0; /* outside the grid of 2^18 cubes an axis */
        other |= sp_morton_spread((uint32_t)at) << a;
    }
    return find_cube(table, other)->mask;
}

/* Counts the pairs of a kernel of edge 3: every voxel with itself, and each pair of
 * neighbours in both directions. A cube that is needed is looked up once for all voxels
 * of a cube. */
static int64_t gridding_count_pairs(const uint64_t *key, int64_t n,
                                    const cube_table *table)
{
    uint64_t mask[AROUND] = {0};
    uint32_t found = 0;
    int64_t pairs = n;
    neighbours list;

    list_neighbours(&list);
    for (int64_t i = 0; i < n; i++) {
        cube *own = find_cube(table, key[i] / CUBE);

        own->key = key[i] / CUBE + 1;
        own->mask |= (uint64_t)1 << key[i] % CUBE;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *around = list.cube[key[i] % CUBE];
        const uint8_t *bit = list.bit[key[i] % CUBE];

        if (i == 0 || key[i] / CUBE != key[i - 1] / CUBE)
            found = 0;
        for (int k = 0; k < HALF; k++) {
            if (!(found >> around[k] & 1))
                mask[around[k]] = mask_around(table, key[i] / CUBE, around[k]);
            found |= (uint32_t)1 << around[k];
            pairs += 2 * (int64_t)(mask[around[k]] >> bit[k] & 1);
        }
    }
    return pairs;
}

sp_status sp_grid_cost_of_keys(const uint64_t *key, int64_t n,
                               int64_t cost[SP_COST_COLUMNS])
{
    cube_table table = {.secret = 0};
    uint64_t size = 16, n_cubes = n > 0;

    for (int level = 0; level < SP_COST_COLUMNS - 1; level++)
        cost[level] = n > 0;
    for (int64_t i = 1; i < n; i++) {
        const uint64_t change = key[i] ^ key[i - 1];

        for (int level = 0; level < SP_COST_COLUMNS - 1; level++)
            cost[level] += change >> 3 * level != 0;
        n_cubes += change / CUBE != 0;
    }
    while (size < 2 * n_cubes)
        size *= 2;
    table.mask = size - 1;
    SP_TRY(SP_NEW(&table.at, size, "voxelization"));
    if (getentropy(&table.secret, sizeof table.secret) != 0)
        table.secret = (uintptr_t)table.at;
    cost[SP_COST_COLUMNS - 1] = gridding_count_pairs(key, n, &table);
    free(table.at);
    return SP_OK;
}

sp_status sp_grid_cost(const int32_t *coords, int64_t n, int64_t cost[SP_COST_COLUMNS])
{
    SP_FREED sp_grid_item *items = NULL;
    const sp_grid_item *sorted;
    uint64_t *key;

    assert(n >= 0 && (coords || n == 0) && cost);
    SP_TRY(SP_NEW(&items, 2 * ((size_t)n + 1), "cost of a sample"));
    for (int64_t i = 0; i < n; i++)
        items[i] = (sp_grid_item){sp_grid_key(coords + 3 * i), (uint32_t)i};
    sorted = sp_grid_sort(items, items + n, n);
    key = (uint64_t *)(sorted == items ? items + n : items);
    for (int64_t i = 0; i < n; i++)
        key[i] = sorted[i].key;
    return sp_grid_cost_of_keys(key, n, cost);
}
