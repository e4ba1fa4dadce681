/* Faults of bulk copies and of barriers in shared memory within a block. */
#include "emulator/hostcuda_bugs.h"

/* clang-format off */
#define BULK_BUGS(X) \
    X(bulk_sound) X(bulk_beyond_array) X(bulk_beyond_shared) X(bulk_over_stores) \
    X(bulk_over_copies) X(bulk_passed_on_late) X(bulk_over_reads) \
    X(bulk_read_too_early) X(bulk_matrix_too_early) X(bulk_over_barrier) \
    X(barrier_stored_over) X(barrier_copied_over) X(barrier_read)
/* clang-format on */
#define NAME(bug) bug,
enum bulk_bug { BULK_BUGS(NAME) };

struct __align__(16) bulk_stage
{
    uint64_t full[2];
    int data[N];
};

/* What the block's threads do with the places before the copy. */
template <int BUG> __device__ static void use_before(bulk_stage &s, call a, int *sum)
{
    const int t = (int)threadIdx.x;

    if (BUG == bulk_over_stores || BUG == bulk_passed_on_late)
        s.data[t] = t;
    if (BUG == bulk_over_copies) {
        begin_copy(s.data, a.in, 16);
        sp_copy_wait<0>();
    }
    if (BUG == barrier_stored_over && t == 5)
        *(volatile uint64_t *)&s.full[0] = 0;
    if (BUG == barrier_copied_over && t == 5) {
        sp_copy_async(s.full, a.in, 16);
        sp_copy_commit();
        sp_copy_wait<0>();
    }
    if (BUG == barrier_read && t == 5)
        *sum += s.full[0] != 0;
    if (BUG == bulk_over_stores || BUG == bulk_over_copies)
        __syncthreads();
    if (BUG == bulk_passed_on_late)
        sp_fence_async();
}

template <int BUG> __global__ static void bulk_with(call a)
{
    SP_SHARED(bulk_stage, stage, [1]);
    bulk_stage &s = stage[0];
    const uint32_t full = sp_shared_address(&s.full[0]);
    const int t = (int)threadIdx.x;
    int *const to = BUG == bulk_beyond_shared  ? s.data + 8
                    : BUG == bulk_over_barrier ? (int *)s.full
                                               : s.data;
    uint32_t matrix[4];
    int sum = 0;

    if (t == 0) {
        sp_mbarrier_init(full, 1);
        sp_mbarrier_fence();
    }
    __syncthreads();
    use_before<BUG>(s, a, &sum);
    if (BUG == bulk_over_reads) {
        if (t == 0) {
            sp_mbarrier_expect(full, N * 4);
            sp_copy_bulk(sp_shared_address(s.data), a.in, N * 4, full, 1);
        }
        sp_mbarrier_wait(full, 0);
        sum += s.data[t] == -1;
    }
    if (t == 0) {
        sp_mbarrier_expect(full, N * 4);
        sp_copy_bulk(sp_shared_address(to),
                     a.in + (BUG == bulk_beyond_array ? N - 4 : 0), N * 4, full, 1);
    }
    if (BUG == bulk_matrix_too_early)
        sp_ldmatrix(matrix, sp_shared_address(s.data + t % 32 * 4));
    if (BUG != bulk_read_too_early || t == 0)
        sp_mbarrier_wait(full, BUG == bulk_over_reads);
    a.out[t] = sum == 0 ? s.data[t] : -1;
}

#define B(bug) {#bug, bulk_with<bug>},
static const bug bulk_bugs[] = {BULK_BUGS(B)};

/* Its block has more threads than it was compiled for. */
static __global__ void __launch_bounds__(32) bounded_kernel(call a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* Lanes of a warp load and multiply at two places. */
template <bool IS_MMA> __global__ static void two_places(call a)
{
    SP_SHARED(uint32_t, tile, [N]);
    uint32_t r[4] = {}, q[4] = {};
    float c[4] = {};
    const int t = (int)threadIdx.x;

    tile[t] = (uint32_t)a.in[t];
    __syncthreads();
    if (IS_MMA && t % 2)
        sp_mma_bf16(c, r, 0, 0);
    else if (IS_MMA)
        sp_mma_bf16(c, q, 0, 0);
    else if (t % 2)
        sp_ldmatrix(r, sp_shared_address(tile + t % 32 * 4));
    else
        sp_ldmatrix(q, sp_shared_address(tile + t % 32 * 4));
    a.out[t] = a.in[t];
}

static const bug other_bugs[] = {{"bounded", bounded_kernel},
                                 {"matrix_at_two_places", two_places<false>},
                                 {"product_at_two_places", two_places<true>}};
