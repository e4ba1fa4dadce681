/* Look-ups of any kernel and stride, in portable C.
 *
 * They begin at an ancestor with every partner in its one-step neighbourhood, choose
 * the neighbour that holds the partner and go down child by child. The 2^3 kernel of
 * stride 2 needs child words only. */
#include "cpu/plan/cpu_plan.h"

#include <assert.h>
#include <string.h>

void sp_cpu_plan_aim(const plan_lookup *q, int position, int axis, plan_axis *a)
{
    int lo = sp_kernel_first(q->kernel);
    int fine = q->is_swapped ? q->to : q->from, depth = q->top - fine;

    for (int d = 0; d < q->kernel; d++) {
        int t = q->is_swapped ? position - (lo + d) : position + lo + d;
        int local = t & ((1 << depth) - 1);
        a->cell[d] = (t >> depth) + 1;
        if (q->is_swapped) {
            if (t & ((1 << q->shift) - 1))
                a->cell[d] = -1;
            local >>= q->shift;
        }
        a->path[d] = sp_morton_spread((uint32_t)local) << axis;
    }
}

static inline int32_t plan_rows_descend(const plan_lookup *q, int32_t row,
                                        uint64_t path)
{
    for (int l = q->top; l > q->from && row >= 0; l--)
        row = plan_child(q->level[l].child[row], path >> 3 * (l - 1 - q->from) & 7);
    return row;
}

/* Lists the 27 neighbours of a row, -1 for an absent one. */
static void list_neighbours(const cpu_plan_level *level, int32_t row, int32_t *nbr)
{
    const plan_near near = level->near[row];
    const int32_t *at = level->nbr + near.at;

    for (int d = 0; d < PLAN_NEAR; d++)
        nbr[d] = -1;
    for (uint32_t set = near.mask; set; set &= set - 1)
        nbr[__builtin_ctz(set)] = *at++;
}

static void plan_rows_look_around(const plan_lookup *q, int32_t ancestor,
                                  const plan_axis a[3], int32_t out, plan_stage *stage)
{
    int32_t nbr[PLAN_NEAR];
    int n = q->kernel, k = 0;

    list_neighbours(&q->level[q->top], ancestor, nbr);
    for (int z = 0; z < n; z++)
        for (int y = 0; y < n; y++)
            for (int x = 0; x < n; x++, k++) {
                int32_t row;
                if ((a[0].cell[x] | a[1].cell[y] | a[2].cell[z]) < 0)
                    continue;
                row = nbr[a[0].cell[x] + 3 * a[1].cell[y] + 9 * a[2].cell[z]];
                if (row < 0)
                    continue;
                row = plan_rows_descend(q, row,
                                        a[0].path[x] | a[1].path[y] | a[2].path[z]);
                if (row >= 0)
                    plan_put(stage, k, row, out);
            }
}

void sp_cpu_plan_rows(const plan_lookup *q, plan_stage *stage, plan_tile *tile)
{
    int below = q->is_swapped ? 0 : q->shift;

    assert(q->to <= q->top && tile->first <= tile->last);
    stage->n = 0;
    stage->first = tile->first;
    for (int32_t i = tile->first; i < tile->last; i++) {
        uint64_t key = q->level[q->to].key[i];
        plan_axis a[3];
        int32_t up = i;
        for (int l = q->to; l < q->top; l++)
            up = q->level[l].parent[up];
        for (int axis = 0; axis < 3; axis++) {
            uint64_t local = key >> axis & (((uint64_t)1 << 3 * (q->top - q->to)) - 1);
            sp_cpu_plan_aim(q, sp_morton_gather(local) << below, axis, &a[axis]);
        }
        plan_rows_look_around(q, up, a, i, stage);
    }
    sp_cpu_plan_count_stage(stage, q->kernel * q->kernel * q->kernel, tile);
}

static inline int offset_of(uint64_t found)
{
    return (int)(found >> 32 & (((uint64_t)1 << PLAN_TAG) - 1));
}

void sp_cpu_plan_count_stage(const plan_stage *stage, int K, plan_tile *tile)
{
    int32_t *count = tile->count;

    assert(0 < K && K <= PLAN_MAX_K && stage->n >= 0);
    tile->n = stage->n;
    memset(count, 0, (size_t)K * sizeof *count);
    for (int32_t i = 0; i < stage->n; i++)
        count[offset_of(stage->found[i])]++;
}

/* The counting sort is stable, so output rows rise within an offset. */
void sp_cpu_plan_sort_stage(const plan_stage *stage, int K, plan_tile *tile)
{
    const uint64_t *found = stage->found, first = (uint64_t)stage->first;
    uint64_t *restrict sorted = stage->sorted;
    int32_t at[PLAN_MAX_K], sum = 0, *restrict out = tile->out, *restrict in = tile->in;

    for (int k = 0; k < K; k++) {
        at[k] = sum;
        sum += tile->count[k];
    }
    for (int32_t i = 0; i < stage->n; i++)
        sorted[at[offset_of(found[i])]++] =
            ((found[i] >> (32 + PLAN_TAG)) + first) << 32 | (uint32_t)found[i];
    for (int32_t i = 0; i < stage->n; i++) {
        in[i] = (int32_t)(uint32_t)sorted[i];
        out[i] = (int32_t)(sorted[i] >> 32);
    }
}
