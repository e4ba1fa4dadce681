/* Neighbours by descent, portable: neighbour tables and the look-ups of any kernel.
 *
 * A voxel at position c (0, 1) of its parent has its neighbour at step d in the
 * parent's neighbour floor((c + d) / 2), as child (c + d) & 1; the same in three axes.
 * Larger kernels begin at an ancestor whose one-step neighbourhood holds every partner.
 */
#include "cpu_plan.h"

#include <assert.h>

/* ---- tables ---- */

static void root_table(plan_level *root)
{
    int32_t i;
    int d;

    for (i = 0; i < root->n; i++)
        for (d = 0; d < PLAN_NBR; d++)
            root->nbr[(size_t)i * PLAN_NBR + (size_t)d] = d == 13 ? i : root->n;
}

/* For child position c and step d of 27: which neighbour of the parent, which child. */
static void table_steps(uint8_t from[8][27], uint8_t digit[8][27])
{
    int c, d, a;

    for (c = 0; c < 8; c++)
        for (d = 0; d < 27; d++) {
            int step[3], cell = 0, child = 0;
            sp_kernel_offset(3, d, step);
            for (a = 2; a >= 0; a--) {
                int t = (c >> a & 1) + step[a];
                cell = 3 * cell + (t >> 1) + 1;
                child = 2 * child + (t & 1);
            }
            from[c][d] = (uint8_t)cell;
            digit[c][d] = (uint8_t)child;
        }
}

static void fill_table(plan_level *fine, const plan_level *up)
{
    uint8_t from[8][27], digit[8][27];
    int32_t i;
    int d;

    table_steps(from, digit);
    for (i = 0; i < fine->n; i++) {
        const int32_t *above = up->nbr + (size_t)fine->parent[i] * PLAN_NBR;
        int32_t *row = fine->nbr + (size_t)i * PLAN_NBR;
        int c = (int)(fine->key[i] & 7);
        for (d = 0; d < 27; d++) {
            int32_t q = plan_child(up->child[above[from[c][d]]], digit[c][d]);
            row[d] = q < 0 ? fine->n : q;
        }
        for (; d < PLAN_NBR; d++)
            row[d] = fine->n;
    }
}

sp_status sp_cpu_plan_tables(plan_builder *b, int lowest)
{
    int l;

    for (l = b->n_levels - 1; l >= lowest; l--) {
        plan_level *at = &b->level[l];
        SP_TRY(SP_TAKE(b->arena, (size_t)at->n * PLAN_NBR, &at->nbr));
        if (l == b->n_levels - 1)
            root_table(at);
        else
            fill_table(at, at + 1);
    }
    return SP_OK;
}

/* ---- look-ups ---- */

/* One axis of one offset: which neighbour of the ancestor (0, 1, 2; -1: the partner
 * would not lie on the lattice), and the way down to the partner, a bit per level. */
typedef struct plan_axis {
    int cell[SP_MAX_KERNEL];
    uint64_t path[SP_MAX_KERNEL]; /* every third bit */
} plan_axis;

/* position: of the row within its ancestor, in steps of the finer level. */
static void aim(const plan_lookup *q, int position, int axis, plan_axis *a)
{
    int lo = q->kernel % 2 ? -(q->kernel / 2) : 0, d;
    int fine = q->is_swapped ? q->to : q->from, depth = q->top - fine;

    for (d = 0; d < q->kernel; d++) {
        int t = q->is_swapped ? position - (lo + d) : position + lo + d;
        int local = t & ((1 << depth) - 1);
        a->cell[d] = (t >> depth) + 1;
        if (q->is_swapped) {
            if (t & ((1 << q->shift) - 1))
                a->cell[d] = -1;
            local >>= q->shift;
        }
        a->path[d] = plan_spread((uint32_t)local) << axis;
    }
}

static inline int32_t descend(const plan_lookup *q, int32_t row, uint64_t path)
{
    int l;

    for (l = q->top; l > q->from && row >= 0; l--)
        row = plan_child(q->level[l].child[row], path >> 3 * (l - 1 - q->from) & 7);
    return row;
}

static void look_around(const plan_lookup *q, int32_t ancestor, const plan_axis a[3],
                        int32_t out, plan_stage *stage)
{
    const plan_level *top = &q->level[q->top];
    const int32_t *nbr = top->nbr + (size_t)ancestor * PLAN_NBR;
    int n = q->kernel, x, y, z, k = 0;

    for (z = 0; z < n; z++)
        for (y = 0; y < n; y++)
            for (x = 0; x < n; x++, k++) {
                int32_t row;
                if ((a[0].cell[x] | a[1].cell[y] | a[2].cell[z]) < 0)
                    continue;
                row = nbr[a[0].cell[x] + 3 * a[1].cell[y] + 9 * a[2].cell[z]];
                if (row == top->n)
                    continue;
                row = descend(q, row, a[0].path[x] | a[1].path[y] | a[2].path[z]);
                if (row >= 0)
                    plan_put(stage, k, row, out);
            }
}

void sp_cpu_plan_rows(const plan_lookup *q, int32_t first, int32_t last,
                      plan_stage *stage)
{
    int below = q->is_swapped ? 0 : q->shift, l, axis;
    int32_t i;

    for (i = first; i < last; i++) {
        uint64_t key = q->level[q->to].key[i];
        plan_axis a[3];
        int32_t up = i;
        for (l = q->to; l < q->top; l++)
            up = q->level[l].parent[up];
        for (axis = 0; axis < 3; axis++) {
            uint64_t local = key >> axis & (((uint64_t)1 << 3 * (q->top - q->to)) - 1);
            aim(q, plan_gather(local) << below, axis, &a[axis]);
        }
        look_around(q, up, a, i, stage);
    }
}

void sp_cpu_plan_children(const plan_lookup *q, int32_t first, int32_t last,
                          plan_stage *stage)
{
    const plan_level *to = &q->level[q->to];
    int32_t i;

    for (i = first; i < last; i++) {
        uint32_t word, row, set;
        if (q->is_swapped) {
            plan_put(stage, (int)(to->key[i] & 7), to->parent[i], i);
            continue;
        }
        word = to->child[i];
        row = word >> 8;
        for (set = word & 255; set; set &= set - 1)
            plan_put(stage, __builtin_ctz(set), (int32_t)row++, i);
    }
}
