/* The memory of a plan, computed from its numbers of voxels and pairs. It repeats the
 * allocations of cuda_plan.cu, cuda_plan_maps.cu and cuda_plan_lists.cu in their order.
 */
#include "cuda/device/cuda_ops.h"
#include "cuda/plan/cuda_map.h"

enum { ALIGN = 128, CHUNK = 256, SORT_ROOM = 64 << 10 };

/* The arena while the plan is built: bytes in use, and their peak. */
typedef struct room {
    int64_t used, high;
} room;

static int64_t padded(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* An allocation that stays. */
static void keep(room *r, int64_t bytes)
{
    r->used += padded(bytes);
    r->high = r->used > r->high ? r->used : r->high;
}

/* Scratch that is given back. */
static void use(room *r, int64_t bytes)
{
    const int64_t high = r->used + bytes;

    r->high = high > r->high ? high : r->high;
}

/* The scratch of sorting n pairs: words, rows, sorted words, and as much for the
 * library. */
static int64_t sort_bytes(int64_t n)
{
    return 20 * n + 12 * n + SORT_ROOM;
}

static void take_map(room *r, sp_map_key key, int n_samples, int64_t n, int64_t pairs)
{
    const int64_t K = key.kernel * key.kernel * key.kernel;

    keep(r, (K + 31) / 32 * n * 4); /* masks */
    keep(r, (n + 1) * 4);           /* first */
    keep(r, n * 4);                 /* order */
    keep(r, (n_samples * K + 1) * 4);
    keep(r, ((n / CHUNK + n_samples) * K + 1) * 4); /* positions of the pairs */
    use(r, 4 * n + 4 * (n / CUDA_TILE_ROWS) + sort_bytes(n));
    for (int i = 0; i < 3; i++)
        keep(r, pairs * 4);
}

static int is_cube(sp_map_key key)
{
    return key.level_in == key.level_out && key.kernel == 3 && !key.is_swapped;
}

int64_t sp_cuda_plan_bytes(const sp_plan_spec *spec, int n_samples,
                           const int64_t *voxels, const int64_t *pairs)
{
    const int64_t rows = ((int64_t)n_samples + 1) * 4;
    room r = {0, 0};

    keep(&r, voxels[0] * 8);
    keep(&r, rows);
    use(&r, (4 + 12) * voxels[0] + sort_bytes(voxels[0]));
    for (int l = 1; l < spec->n_levels; l++) {
        keep(&r, voxels[l - 1] * 4);
        keep(&r, rows);
        keep(&r, voxels[l] * 8);
        keep(&r, voxels[l] * 8);
    }
    for (int l = 0; l < spec->n_levels; l++)
        keep(&r, rows); /* chunks */
    for (int cubes = 1; cubes >= 0; cubes--)
        for (int m = 0; m < spec->n_maps; m++)
            if (is_cube(spec->map[m]) == cubes)
                take_map(&r, spec->map[m], n_samples, voxels[spec->map[m].level_out],
                         pairs[m]);
    return r.high;
}

/* Always 0: the scratch of a plan lies in the plan's own arena, above its content, and
 * sp_cuda_plan_bytes counts it. */
int64_t sp_cuda_plan_scratch_bytes(const sp_plan_spec *spec, const int64_t *voxels,
                                   int64_t above, const int64_t *pairs)
{
    (void)spec, (void)voxels, (void)above, (void)pairs;
    return 0;
}
