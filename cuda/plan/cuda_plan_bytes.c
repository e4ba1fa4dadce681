/* The memory of a plan, computed from its numbers of voxels and pairs. It repeats the
 * allocations of cuda_plan.cu, cuda_plan_levels.cu, cuda_plan_maps.cu and
 * cuda_plan_lists.cu in their order.
 */
#include "base/sp_number.h"
#include "cuda/device/cuda_ops.h"
#include "cuda/plan/cuda_map.h"

enum { ALIGN = 128, CHUNK = 256, SCAN = 2048, SORT_ROOM = 16 << 10 };

/* The arena while the plan is built: bytes in use, and their peak. */
typedef struct room {
    int64_t used, high;
} room;

/* The numbers of a plan. */
typedef struct numbers {
    const sp_plan_spec *spec;
    int64_t n_samples;
    const int64_t *voxels, *pairs;
} numbers;

/* An allocation that stays. */
static void plan_keep(room *r, int64_t bytes)
{
    r->used += (int64_t)sp_multiple((size_t)bytes, ALIGN);
    r->high = sp_most(r->high, r->used);
}

/* Scratch that is given back. */
static void use(room *r, int64_t bytes)
{
    r->high = sp_most(r->high, r->used + bytes);
}

/* The scratch of sorting n pairs: words, rows, sorted words, and for the library a copy
 * of words and rows, up to a byte for each pair and the counts of its digits. */
static int64_t sort_bytes(int64_t n)
{
    return n ? 20 * n + 13 * n + SORT_ROOM : 0;
}

static int64_t plan_bytes_rows_of(const numbers *n, int map)
{
    return n->voxels[n->spec->map[map].level_out];
}

static void plan_bytes_take_levels(room *r, const numbers *n)
{
    const int64_t tables = 4 * n->spec->n_levels * (n->n_samples + 1);

    plan_keep(r, 8 * n->voxels[0]);
    plan_keep(r, 4 * n->spec->n_levels * ((n->voxels[0] + SCAN - 1) / SCAN));
    use(r, tables + (4 + 12) * n->voxels[0] + 4 * (4 * n->n_samples + 1) +
               sort_bytes(n->voxels[0]));
    plan_keep(r, 2 * tables);
    for (int l = 1; l < n->spec->n_levels; l++) {
        plan_keep(r, 4 * n->voxels[l - 1]);
        plan_keep(r, 8 * n->voxels[l]);
        plan_keep(r, 8 * n->voxels[l]);
    }
}

static void plan_bytes_take_rows(room *r, const numbers *n, int map)
{
    const int64_t rows = plan_bytes_rows_of(n, map),
                  K = sp_kernel_volume(n->spec->map[map]);

    plan_keep(r, (K + 31) / 32 * rows * 4); /* masks */
    plan_keep(r, (rows + 1) * 4);           /* first */
    plan_keep(r, rows * 4);                 /* order */
    plan_keep(r,
              ((rows / CHUNK + n->n_samples) * K + 1) * 4); /* positions of the pairs */
}

/* Sorted rows of all maps, their tiles, and the largest sort. */
static void use_order(room *r, const numbers *n)
{
    int64_t rows = 0, most = 0, sorted[CUDA_MAP_KEY_BITS + 1] = {0};

    for (int m = 0; m < n->spec->n_maps; m++) {
        int64_t *of_key = &sorted[cuda_map_key_bits(n->spec->map[m].kernel)];

        *of_key += plan_bytes_rows_of(n, m);
        most = sp_most(most, *of_key);
        rows += plan_bytes_rows_of(n, m);
    }
    use(r, 4 * rows + 4 * (rows / CUDA_ORDER_ROWS) + sort_bytes(most));
}

static void take_maps(room *r, const numbers *n)
{
    const int top = cuda_map_find_top(n->spec);
    int64_t starts = 0;

    for (int m = 0; m < n->spec->n_maps; m++) {
        plan_bytes_take_rows(r, n, m);
        starts += n->n_samples * sp_kernel_volume(n->spec->map[m]) + 1;
    }
    plan_keep(r, 4 * starts);
    if (top >= 0)
        plan_keep(r, 4 * n->pairs[top]);
    use_order(r, n);
    for (int m = 0; m < n->spec->n_maps; m++)
        for (int list = m == top; list < 3; list++)
            plan_keep(r, 4 * n->pairs[m]);
}

int64_t sp_cuda_plan_bytes(const sp_plan_spec *spec, int n_samples,
                           const int64_t *voxels, const int64_t *pairs)
{
    const numbers n = {spec, n_samples, voxels, pairs};
    room r = {0, 0};

    plan_bytes_take_levels(&r, &n);
    if (spec->n_maps)
        take_maps(&r, &n);
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
