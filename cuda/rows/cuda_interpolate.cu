/* Trilinear interpolation (compute/sp_interpolate.h): one thread for each row and
 * channel. The gradient runs one launch for each corner: within a corner no coarse row
 * is the neighbour of two others, so no two threads add to the same element. The fine
 * rows of a coarse row are consecutive; each thread finds the first one, which all
 * threads of a warp share, by bisection. */
#include <assert.h>

#include "compute/sp_interpolate.h"
#include "cuda/device/cuda_rows.cuh"
#include "cuda/plan/cuda_map.h"

namespace
{

enum { CORNERS = 8 };

/* The sum of the weights of the corners in a mask. */
__device__ float interpolate_sum(const float f[3], uint32_t mask)
{
    float sum = 0;

    for (int k = 0; k < CORNERS; k++)
        if (mask >> k & 1)
            sum += sp_lineage_weight(f, k);
    return sum;
}

struct interpolate_rows {
    cuda_map map;
    sp_lineage of;
    sp_tensor x, y;

    __device__ void operator()(int64_t o, int j) const
    {
        const int32_t up = sp_lineage_ancestor(&of, (int32_t)o);
        const uint32_t mask = map.mask[up];
        int32_t at = map.first[up];
        float f[3], value = 0;

        sp_lineage_place(&of, (int32_t)o, f);
        const float sum = interpolate_sum(f, mask);
        for (int k = 0; k < CORNERS; k++)
            if (mask >> k & 1) {
                const float w = sp_lineage_weight(f, k) / sum;
                const int32_t from = map.nbr[at++];

                if (w > 0)
                    value += w * cuda_get(x, from, j);
            }
        cuda_put(y, o, j, value);
    }
};

struct interpolate_grad_rows {
    cuda_map map;
    sp_lineage of;
    sp_tensor dx, dy;
    int k;

    __device__ void operator()(int64_t up, int j) const
    {
        const uint32_t mask = map.mask[up], bit = 1u << k;
        float f[3], value = 0;

        if (!(mask & bit))
            return;
        for (int32_t row = sp_lineage_first(&of, (int32_t)up);
             row < of.n && sp_lineage_ancestor(&of, row) == up; row++) {
            sp_lineage_place(&of, row, f);
            value += sp_lineage_weight(f, k) / interpolate_sum(f, mask) *
                     cuda_get(dy, row, j);
        }
        cuda_add(dx, map.nbr[map.first[up] + __popc(mask & (bit - 1))], j, value);
    }
};

} // namespace

sp_status sp_cuda_interpolate(sp_backend *be, const sp_interpolate_args *a)
{
    const cuda_map *map = (const cuda_map *)a->map->device;

    assert(sp_interpolate_is_sound(a, a->x, a->y));
    return cuda_each(be, interpolate_rows{*map, sp_lineage_of(a), a->x, a->y}, a->y.n,
                     a->y.c);
}

sp_status sp_cuda_interpolate_grad(sp_backend *be, const sp_interpolate_args *a)
{
    const cuda_map *map = (const cuda_map *)a->map->device;

    assert(sp_interpolate_is_sound(a, a->dx, a->dy));
    for (int k = 0; k < CORNERS; k++)
        SP_TRY(cuda_each(be,
                         interpolate_grad_rows{*map, sp_lineage_of(a), a->dx, a->dy, k},
                         a->dx.n, a->dx.c));
    return SP_OK;
}
