/* Dilated levels: the coordinates that a 3^3 kernel of stride 2 reaches, as spconv's
 * SparseConv3d(3, stride 2, padding 1) generates them.
 *
 * Along an axis a voxel at i is read by the outputs o with i = 2 o + d, d in {-1, 0, 1}:
 * by i / 2 if i is even, by (i - 1) / 2 and (i + 1) / 2 if it is odd. So the parent is
 * always among them, and a voxel that is odd along a set of axes also reaches the
 * parent's neighbours upwards along each subset of them:
 *
 *     finer     . 2 . . | 4 . 7 .        parents   1, 2, 3
 *     reached                            1; 2; 3 and 4, since 7 is odd
 *
 * The neighbours of all parents are listed, sorted and freed of repeats, sample by
 * sample. Cost: 8 keys for each parent, sorted; about twice the sort of level 0. */
#include "cpu/plan/cpu_plan.h"

#include <assert.h>
#include <string.h>

#include "base/sp_number.h"
#include "cpu/cpu.h"

/* A run of rows of one parent: the digits (key & 7) of the children, a bit each. */
static int32_t run_of_parent(const uint64_t *key, int32_t i, int32_t n,
                             uint32_t *digits)
{
    const uint64_t parent = key[i] >> 3;

    *digits = 0;
    for (; i < n && key[i] >> 3 == parent; i++)
        *digits |= 1u << (key[i] & 7);
    return i;
}

/* Bit s is set if one of the digits has all bits of s: the children reach the neighbour
 * upwards along the axes of s. */
static uint32_t reached_by(uint32_t digits)
{
    uint32_t reached = digits;

    for (int axis = 0; axis < 3; axis++) {
        static const uint32_t has[3] = {0xaa, 0xcc, 0xf0};
        reached |= (reached & has[axis]) >> (1 << axis);
    }
    return reached;
}

/* The key one step upwards along the axes of s. */
static uint64_t step_up(uint64_t key, int s)
{
    for (int axis = 0; axis < 3; axis++) {
        const uint64_t lane = (uint64_t)0x1249249249249249 << axis;

        if (s >> axis & 1)
            key = (key & ~lane) | (((key | ~lane) + ((uint64_t)1 << axis)) & lane);
    }
    return key;
}

/* True for a parent (s 0), and for what lies within the grid. */
static bool reached_is_within(uint64_t key, int s, const int64_t bound[3])
{
    for (int axis = 0; axis < 3; axis++)
        if (s && sp_morton_gather(key >> axis) >= bound[axis])
            return false;
    return true;
}

/* Lists the voxels that the n rows of a sample reach; returns their number, repeats
 * counted. to NULL: only counts them, as if there were no bound. */
static int32_t list_reached(const uint64_t *key, int32_t n, const int64_t bound[3],
                            uint64_t *to)
{
    int32_t found = 0;

    for (int32_t i = 0, next; i < n; i = next) {
        uint32_t digits, reached;

        next = run_of_parent(key, i, n, &digits);
        reached = reached_by(digits);
        if (!to) {
            found += __builtin_popcount(reached);
            continue;
        }
        for (uint32_t set = reached; set; set &= set - 1) {
            const int s = __builtin_ctz(set);
            const uint64_t up = step_up(key[i] >> 3, s);
            if (reached_is_within(up, s, bound))
                to[found++] = up;
        }
    }
    return found;
}

/* The bound of keys of level l, from the grid's (sp_plan_spec.grid). */
static void dilated_bound(const sp_plan_spec *spec, int l, const int32_t base[3],
                          int64_t bound[3])
{
    for (int axis = 0; axis < 3; axis++) {
        const int64_t grid = spec->grid[axis], stride = (int64_t)1 << l;

        bound[axis] =
            grid > 0 ? (grid + stride - 1) / stride - base[axis] / stride : INT64_MAX;
    }
}

/* Writes to `to` the keys of level l that the n keys of a sample on level l - 1 reach,
 * rising, and returns their number. `to` and the buffers of the sort have room for all
 * that list_reached counts. */
static int32_t dilate_sample(const sp_plan_spec *spec, int l, const int32_t base[3],
                             const uint64_t *key, int32_t n, const plan_sort *sort,
                             uint64_t *to)
{
    int64_t bound[3];
    uint64_t last = ~(uint64_t)0, any = 0;
    const uint64_t *sorted;
    int32_t found, kept = 0;

    dilated_bound(spec, l, base, bound);
    found = list_reached(key, n, bound, sort->a);
    for (int32_t i = 0; i < found; i++)
        any |= sort->a[i];
    sorted = sp_cpu_plan_sort_keys(sort, found, any ? 64 - __builtin_clzll(any) : 0);
    for (int32_t i = 0; i < found; i++) {
        if (sorted[i] != last)
            to[kept++] = sorted[i];
        last = sorted[i];
    }
    return kept;
}

/* Writes the keys of all samples to `key`, which has room for all that are reached, and
 * the rows of the samples. */
static sp_status dilated_make_keys(cpu_plan_builder *b, int l, int64_t n_most,
                                   uint64_t *key)
{
    const cpu_plan_level *fine = &b->level[l - 1];
    cpu_plan_level *coarse = &b->level[l];
    plan_sort sort;

    SP_TRY(sp_cpu_plan_sort_open(&sort, b->loops, b->scratch, n_most));
    if (b->counts)
        return SP_OK;
    coarse->sample_row[0] = 0;
    for (int s = 0; s < b->n_samples; s++) {
        const int32_t row = fine->sample_row[s];
        const int64_t n = (int64_t)coarse->sample_row[s] +
                          dilate_sample(b->spec, l, b->base[s], fine->key + row,
                                        fine->sample_row[s + 1] - row, &sort,
                                        key + coarse->sample_row[s]);

        if (n > PLAN_MAX_ROWS)
            return SP_FAIL(SP_EDATA,
                           "more than %d voxels of stride %d in one micro-batch of a "
                           "rank: set batch.voxel_budget or use more ranks",
                           PLAN_MAX_ROWS, 1 << l);
        coarse->sample_row[s + 1] = (int32_t)n;
    }
    coarse->n = coarse->sample_row[b->n_samples];
    return SP_OK;
}

/* Fills parents and child words. A voxel without children has the row where they would
 * be. */
static void link_levels(const cpu_plan_builder *b, cpu_plan_level *fine,
                        cpu_plan_level *coarse)
{
    int32_t i = 0;

    for (int s = 0; s < b->n_samples; s++)
        for (int32_t j = coarse->sample_row[s]; j < coarse->sample_row[s + 1]; j++) {
            uint32_t word = (uint32_t)i << 8;

            for (; i < fine->sample_row[s + 1] && fine->key[i] >> 3 == coarse->key[j];
                 i++) {
                word |= 1u << (fine->key[i] & 7);
                fine->parent[i] = j;
            }
            coarse->child[j] = word;
        }
    assert(i == fine->n && "every voxel has its parent");
    coarse->child[coarse->n] = 0;
}

/* Counts the keys that all samples of level l - 1 reach, and the most of one. */
static void count_reached(const cpu_plan_builder *b, int l, int64_t *all, int64_t *most)
{
    const cpu_plan_level *fine = &b->level[l - 1];

    *all = *most = PLAN_REACHED * sp_least(fine->n, b->level[l].n);
    if (b->counts)
        return;
    *all = *most = 0;
    for (int s = 0; s < b->n_samples; s++) {
        const int32_t row = fine->sample_row[s];
        const int64_t n =
            list_reached(fine->key + row, fine->sample_row[s + 1] - row, NULL, NULL);
        *most = sp_most(*most, n);
        *all += n;
    }
}

sp_status sp_cpu_plan_dilate_level(cpu_plan_builder *b, int l)
{
    cpu_plan_level *fine = &b->level[l - 1], *coarse = &b->level[l];
    const size_t mark = b->scratch->used;
    int64_t all, most;
    uint64_t *key;

    count_reached(b, l, &all, &most);
    SP_TRY(SP_ALLOC(b->scratch, all, &key));
    SP_TRY(dilated_make_keys(b, l, most, key));
    SP_TRY(SP_ALLOC(b->arena, fine->n, &fine->parent));
    SP_TRY(SP_ALLOC(b->arena, coarse->n, &coarse->key));
    if (coarse->n && !b->counts)
        memcpy(coarse->key, key, (size_t)coarse->n * sizeof *key);
    sp_arena_rewind(b->scratch, mark);
    SP_TRY(SP_ALLOC(b->scratch, (size_t)coarse->n + 1, &coarse->child));
    if (!b->counts)
        link_levels(b, fine, coarse);
    return SP_OK;
}
