/* The memory of a plan, from its numbers: goes through what cpu_plan.c,
 * cpu_plan_lanes.c and cpu_plan_maps.c take of the arena and of its scratch. */
#include <assert.h>

#include "base/sp_number.h"
#include "cpu/cpu.h"
#include "cpu/plan/cpu_plan.h"

enum { ALIGN = 128, SORT_ROOM = 64 << 10, STREAM_ROOM = 1 << 18 };

static int64_t plan_padded(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* An upper bound of the tiles of a level: the last tile of each sample may be short. */
static int64_t plan_tiles_of(int n_samples, int64_t rows)
{
    return rows / SP_TILE + n_samples;
}

int64_t sp_cpu_plan_bytes(const sp_plan_spec *spec, int n_samples,
                          const int64_t *voxels, const int64_t *pairs)
{
    int64_t bytes = plan_padded(4 * voxels[0]) + plan_padded(8 * voxels[0]);
    bool has_tiles[SP_MAX_LEVELS] = {false};

    assert(n_samples >= 0);
    /* The most levels that there can be. */
    bytes += PLAN_LEVELS * plan_padded(4 * ((int64_t)n_samples + 1));
    bytes += plan_padded(12 * (int64_t)n_samples);
    for (int l = 1; l < spec->n_levels; l++)
        bytes += plan_padded(4 * voxels[l - 1]) + plan_padded(8 * voxels[l]);
    for (int m = 0; m < spec->n_maps; m++) {
        const int out = spec->map[m].level_out;
        const int64_t n_tiles = plan_tiles_of(n_samples, voxels[out]);

        if (!has_tiles[out])
            bytes += plan_padded(4 * ((int64_t)n_samples + 1)) +
                     plan_padded(4 * (n_tiles + 1));
        has_tiles[out] = true;
        bytes += plan_padded(4 * (n_tiles * sp_kernel_volume(spec->map[m]) + 1)) +
                 2 * plan_padded(4 * pairs[m]);
    }
    return bytes;
}

/* Bytes of the tables that maps read, and of the two others, as if all neighbours
 * existed: memory that is not touched is counted too. Tables above the network's
 * levels have at most the rows of the coarsest level each, and `above` rows together.
 */
static int64_t table_bytes(const sp_plan_spec *spec, const int64_t *voxels,
                           int64_t above)
{
    const cpu_plan_builder b = {.spec = spec};
    int64_t rows = 0, higher = 0;
    int lowest, highest;

    sp_cpu_plan_table_range(&b, &lowest, &highest);
    for (int l = lowest; l <= highest + 2; l++)
        if (l < spec->n_levels)
            rows += voxels[l];
        else
            higher += voxels[spec->n_levels - 1];
    rows += higher < above ? higher : above;
    if (highest < 0)
        return 0;
    return rows * (int64_t)(sizeof(plan_near) + 4 * PLAN_NEAR) +
           (highest + 3 - lowest) * plan_padded(2 * ALIGN);
}

/* The most that the making of a dilated level takes. */
static int64_t dilated_bytes(const sp_plan_spec *spec, const int64_t *voxels)
{
    int64_t most = 0;

    for (int l = 1; l < spec->n_levels; l++)
        if (spec->is_dilated[l])
            most = sp_most(most, 3 * plan_padded(8 * PLAN_REACHED *
                                            sp_least(voxels[l - 1], voxels[l])) +
                                     SORT_ROOM);
    return most;
}

int64_t sp_cpu_plan_scratch_bytes(const sp_plan_spec *spec, const int64_t *voxels,
                                  int64_t above, const int64_t *pairs)
{
    const int64_t sort = 2 * plan_padded(8 * voxels[0]) + SORT_ROOM;
    int64_t bytes = 4 * voxels[spec->n_levels - 1] + (4 + 8 + 4) * above;
    const cpu_plan_builder b = {.spec = spec};
    int64_t most_out = 0, most_k = 1;

    assert(above >= 0);
    for (int l = 1; l < spec->n_levels; l++)
        bytes += plan_padded(4 * (voxels[l] + 1));
    for (int m = 0; m < spec->n_maps; m++) {
        const int64_t tile = (sp_kernel_volume(spec->map[m]) + 16) * SP_TILE;

        most_k = sp_most(most_k, sp_kernel_volume(spec->map[m]));
        if (sp_cpu_plan_is_counted_late(&b, m))
            most_out = sp_most(most_out, 4 * (pairs[m] + tile) + STREAM_ROOM);
    }
    bytes += table_bytes(spec, voxels, above) + dilated_bytes(spec, voxels);
    bytes += 2 * 8 * (most_k + 16) * SP_TILE; /* the stage */
    bytes += most_out;
    return sp_most(sort, bytes);
}
