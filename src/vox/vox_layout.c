/* Where the blocks of a scan lie (vox_spill.h): by the extent of its points, or, with a
 * buffer, on the grid of the whole area. */
#include "vox/vox_spill.h"

#include <assert.h>
#include <math.h>

enum {
    MAX_BLOCKS = 1 << 20,
    SHARE_BYTES = 32 << 20 /* bytes of all parts' shares together */
};

/* In metre, the most that rounding adds to a coordinate of LAS that lies on the border
 * of a tile, as 49800 * 0.001 + 0.2 is above 50. */
#define ROUNDING 1e-6

/* Lays out all blocks that have a point of the box, in their margin too. */
static void lay_out_area(const vox_options *o, const vox_box *points, vox_layout *to,
                         double blocks[2])
{
    for (int a = 0; a < 2; a++) {
        const double first = floor((points->low[a] - o->overlap) / o->block);
        const double last = floor((points->high[a] + o->overlap) / o->block);

        to->corner[a] = first * o->block;
        to->reach.low[a] = points->low[a] - o->buffer;
        to->reach.high[a] = points->high[a] + o->buffer;
        blocks[a] = last - first + 1;
    }
}

sp_status vox_cut_layout(const vox_options *o, int file, const vox_box *points,
                         vox_layout *to)
{
    double length[2], blocks[2];

    assert(o->block > 0 && !vox_box_is_empty(points));
    *to = (vox_layout){0};
    for (int a = 0; a < 3; a++)
        to->corner[a] = floor(points->low[a]);
    for (int a = 0; a < 2; a++) {
        length[a] = points->high[a] - to->corner[a];
        blocks[a] = fmax(1, ceil((length[a] - ROUNDING) / o->block));
    }
    if (o->buffer > 0)
        lay_out_area(o, points, to, blocks);
    if (!(blocks[0] * blocks[1] <= MAX_BLOCKS))
        return SP_FAIL(SP_EUSAGE,
                       "%s: --block %g makes more than %d blocks of points that extend "
                       "over %.0f x %.0f m; do a few lie far from the others?",
                       o->input[file], o->block, MAX_BLOCKS, length[0], length[1]);
    for (int a = 0; a < 2; a++)
        to->n_blocks[a] = (int64_t)blocks[a];
    return SP_OK;
}

double vox_layout_place(const vox_options *o, const vox_layout *layout, int axis,
                        double x)
{
    const double corner = layout->corner[axis];

    return o->buffer > 0 ? x / o->block - nearbyint(corner / o->block)
                         : (x - corner) / o->block;
}

int64_t vox_layout_block(const vox_options *o, const vox_layout *layout, int axis,
                         double x)
{
    const int64_t n = layout->n_blocks[axis];
    const double b = vox_layout_place(o, layout, axis, x);

    return b < 0 ? 0 : b >= (double)n ? n - 1 : (int64_t)b;
}

void vox_layout_need(const vox_options *o, const vox_layout *layout, int64_t first[2],
                     int64_t last[2])
{
    for (int a = 0; a < 2; a++) {
        const double low = o->is_window ? o->bounds[a] : -INFINITY;
        const double high = o->is_window ? o->bounds[a + 2] : INFINITY;

        first[a] = vox_layout_block(o, layout, a, low - o->overlap);
        last[a] = vox_layout_block(o, layout, a, high + o->overlap);
    }
}

void vox_layout_surround(const vox_options *o, const vox_layout *layout,
                         double window[4])
{
    /* A point that rounding puts into the next block is in it all the same. */
    const double more = o->overlap + o->block / 1024;
    int64_t first[2], last[2];

    vox_layout_need(o, layout, first, last);
    for (int a = 0; a < 2; a++) {
        const bool is_last = last[a] == layout->n_blocks[a] - 1;

        window[a] = first[a] == 0
                        ? -INFINITY
                        : layout->corner[a] + (double)first[a] * o->block - more;
        window[a + 2] =
            is_last ? INFINITY
                    : layout->corner[a] + (double)(last[a] + 1) * o->block + more;
    }
}

sp_status vox_box_join(sp_comm *comm, vox_box *box)
{
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, box->low, 3, SP_F64, SP_MIN));
    return sp_comm_allreduce(comm, SP_SCOPE_WORLD, box->high, 3, SP_F64, SP_MAX);
}

/* True if all points that blocks have in their margins lie within reach. */
static bool is_all_in_reach(const vox_options *o, const vox_layout *l)
{
    for (int a = 0; a < 2; a++)
        if (l->corner[a] - o->overlap < l->reach.low[a] ||
            l->corner[a] + (double)l->n_blocks[a] * o->block + o->overlap >
                l->reach.high[a])
            return false;
    return true;
}

bool vox_layout_is_same(const vox_options *o, const vox_layout *a, const vox_layout *b)
{
    bool is_same = a->corner[2] == b->corner[2], is_reach_same = true;

    for (int i = 0; i < 2; i++) {
        is_same =
            is_same && a->corner[i] == b->corner[i] && a->n_blocks[i] == b->n_blocks[i];
        is_reach_same = is_reach_same && a->reach.low[i] == b->reach.low[i] &&
                        a->reach.high[i] == b->reach.high[i];
    }
    /* Headers that round their extent otherwise than the points are common. */
    return is_same &&
           (is_reach_same || (is_all_in_reach(o, a) && is_all_in_reach(o, b)));
}

int vox_layout_parts(const vox_layout *layout, int n)
{
    const int64_t bytes = vox_layout_blocks(layout) * (int64_t)sizeof(vox_share);
    const int64_t most = bytes > 0 ? SHARE_BYTES / bytes : n;

    assert(n >= 1);
    return most < 1 ? 1 : most < n ? (int)most : n;
}
