/* Faults of products of a warpgroup, which the block is, and of clusters of two blocks. */
#include "emulator/hostcuda_bugs.h"

/* ---- products of a warpgroup ---- */

enum wgmma_bug {
    wgmma_sound,
    wgmma_not_landed,
    wgmma_not_passed_on,
    wgmma_stored_not_passed_on,
    wgmma_without_barrier,
    wgmma_refilled,
    wgmma_refilled_without_barrier,
    wgmma_sums_early,
    wgmma_without_fence,
    wgmma_of_three_warps,
    wgmma_of_two_minds,
    wgmma_never_waited,
    wgmma_base_offset
};

struct __align__(1024) operands
{
    char a[64][128], b[128][128];
};

__device__ static uint64_t descriptor(const char *first)
{
    return sp_shared_address(first) >> 4 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

template <int BUG> __global__ static void wgmma_with(call a)
{
    SP_SHARED(operands, tile, [1]);
    char *const bytes = (char *)tile;
    const int t = (int)threadIdx.x;
    uint64_t x = descriptor(tile[0].a[0]);
    float d[64] = {};

    for (int e = t; e < (int)sizeof(operands) / 16; e += N)
        if (BUG == wgmma_stored_not_passed_on)
            *(int4 *)(bytes + 16 * e) = make_int4(1, 2, 3, 4);
        else
            sp_copy_async(bytes + 16 * e, a.in + 4 * (e % CHUNKS), 16);
    sp_copy_commit();
    if (BUG != wgmma_not_landed)
        sp_copy_wait<0>();
    if (BUG != wgmma_not_passed_on && BUG != wgmma_stored_not_passed_on)
        sp_fence_async();
    if (BUG != wgmma_without_barrier)
        __syncthreads();
    if (BUG == wgmma_of_two_minds && t >= 96)
        x += 2;
    if (BUG == wgmma_base_offset)
        x |= (uint64_t)1 << 49;
    if (BUG != wgmma_without_fence)
        sp_wgmma_fence();
    if (BUG != wgmma_of_three_warps || t >= 32)
        sp_wgmma(d, x, descriptor(tile[0].b[0]));
    sp_wgmma_commit();
    if (BUG != wgmma_refilled && BUG != wgmma_sums_early && BUG != wgmma_never_waited)
        sp_wgmma_wait<0>(d);
    a.out[t] = d[0] == d[0] ? a.in[t] : -1;
    if (BUG == wgmma_refilled || BUG == wgmma_refilled_without_barrier)
        sp_copy_async(bytes + sizeof(operands) - 16 * (t + 1), a.in, 16);
    sp_copy_commit();
    sp_copy_wait<0>();
    if (BUG == wgmma_refilled || BUG == wgmma_sums_early)
        sp_wgmma_wait<0>(d);
}

static const bug wgmma_bugs[] = {
#define W(bug)                                                                         \
    {                                                                                  \
#bug, wgmma_with < bug>                                                        \
    }
    W(wgmma_sound),
    W(wgmma_not_landed),
    W(wgmma_not_passed_on),
    W(wgmma_stored_not_passed_on),
    W(wgmma_without_barrier),
    W(wgmma_refilled),
    W(wgmma_refilled_without_barrier),
    W(wgmma_sums_early),
    W(wgmma_without_fence),
    W(wgmma_of_three_warps),
    W(wgmma_of_two_minds),
    W(wgmma_never_waited),
    W(wgmma_base_offset),
};

/* ---- two blocks of a cluster bring half of each stage to both ---- */

enum cluster_bug {
    cluster_sound,
    cluster_wrong_phase,
    cluster_without_arrival,
    cluster_refilled,
    cluster_few_bytes,
    cluster_never_made,
    cluster_not_passed_on,
    cluster_passed_on_late,
    cluster_many_bytes,
    cluster_divergent,
    cluster_too_early,
    cluster_leaves,
    cluster_leaves_between
};

struct stage {
    int data[N];
    uint64_t full, free;
};

template <int BUG> __global__ static void cluster_with(call a)
{
    SP_SHARED(stage, s, [1]);
    const uint32_t full = sp_shared_address(&s[0].full);
    const uint32_t free = sp_shared_address(&s[0].free);
    const int t = (int)threadIdx.x, rank = (int)sp_cluster_rank(), from = rank * N / 2;
    int sum = 0;

    if (t == 0 && BUG != cluster_never_made) {
        sp_mbarrier_init(full, 1);
        sp_mbarrier_init(free, 2);
        if (BUG != cluster_not_passed_on && BUG != cluster_passed_on_late)
            sp_mbarrier_fence();
    }
    if (BUG == cluster_too_early)
        __syncthreads();
    else if (BUG == cluster_divergent && t % 2)
        sp_cluster_arrive(), sp_cluster_wait();
    else
        sp_cluster_arrive(), sp_cluster_wait();
    if (t == 0 && BUG == cluster_passed_on_late)
        sp_mbarrier_fence();
    for (unsigned step = 0; step < 6; step++) {
        if (t == 0) {
            if (step > 0 && BUG != cluster_refilled)
                sp_mbarrier_wait(free, (step - 1) & 1);
            sp_mbarrier_expect(full, BUG == cluster_few_bytes    ? N * 2
                                     : BUG == cluster_many_bytes ? 1u << 20
                                                                 : N * 4);
            sp_copy_bulk(sp_shared_address(s[0].data + from), a.in + from,
                         N / 2 * sizeof(int), full, 3);
        }
        sp_mbarrier_wait(full, BUG == cluster_wrong_phase ? ~step & 1 : step & 1);
        sum += s[0].data[N - 1 - t];
        __syncthreads();
        if (t < 2 && BUG != cluster_without_arrival)
            sp_mbarrier_arrive(free, (unsigned)t);
    }
    if (t / (N / 2) == rank)
        a.out[t] = sum == 6 * a.in[N - 1 - t] ? a.in[t] : -1;
    if (BUG == cluster_leaves)
        return;
    sp_cluster_arrive();
    if (BUG != cluster_leaves_between)
        sp_cluster_wait();
}

static const bug cluster_bugs[] = {
#define C(bug)                                                                         \
    {                                                                                  \
#bug, cluster_with < bug>, 2                                                   \
    }
    C(cluster_sound),         C(cluster_wrong_phase),    C(cluster_without_arrival),
    C(cluster_refilled),      C(cluster_few_bytes),      C(cluster_never_made),
    C(cluster_leaves),        C(cluster_leaves_between), C(cluster_too_early),
    C(cluster_not_passed_on), C(cluster_passed_on_late), C(cluster_many_bytes),
    C(cluster_divergent),
};
