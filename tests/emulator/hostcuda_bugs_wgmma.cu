/* Faults of products of a warpgroup, which the block is, and of clusters of two
 * blocks. */
#include "emulator/hostcuda_bugs.h"

/* ---- products of a warpgroup ---- */

/* clang-format off */
#define WGMMA_BUGS(X) \
    X(wgmma_sound) X(wgmma_not_landed) X(wgmma_not_passed_on) \
    X(wgmma_stored_not_passed_on) X(wgmma_without_barrier) X(wgmma_refilled) \
    X(wgmma_refilled_without_barrier) X(wgmma_sums_early) X(wgmma_without_fence) \
    X(wgmma_of_three_warps) X(wgmma_of_two_minds) X(wgmma_never_waited) \
    X(wgmma_base_offset) X(wgmma_transposed_within_atom)
/* clang-format on */
#define NAME(bug) bug,
enum wgmma_bug { WGMMA_BUGS(NAME) };

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
    if (BUG == wgmma_transposed_within_atom)
        sp_wgmma_transposed(d, x + 2, descriptor(tile[0].b[0]));
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

#define W(bug) {#bug, wgmma_with<bug>},
static const bug wgmma_bugs[] = {WGMMA_BUGS(W)};

/* ---- two blocks of a cluster bring half of each stage to both ---- */

/* clang-format off */
#define CLUSTER_BUGS(X) \
    X(cluster_sound) X(cluster_wrong_phase) X(cluster_without_arrival) \
    X(cluster_refilled) X(cluster_few_bytes) X(cluster_never_made) \
    X(cluster_not_passed_on) X(cluster_passed_on_late) X(cluster_many_bytes) \
    X(cluster_divergent) X(cluster_too_early) X(cluster_leaves) \
    X(cluster_leaves_between)
/* clang-format on */
enum cluster_bug { CLUSTER_BUGS(NAME) };

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

#define C(bug) {#bug, cluster_with<bug>, 2},
static const bug cluster_bugs[] = {CLUSTER_BUGS(C)};
