/* Kernels with planted faults, and some without: `hostcuda_bugs NAME` runs one and ends
 * with 3 if its result is wrong. tests/emulator/test_hostcuda_findings.sh says what the
 * emulator must say to each. */
#include "cuda/device/sp_cuda.h"

#include <vector>

enum { N = 128 };

struct call {
    const int *in;
    int *out; /* [4 * N], begins as 0 */
};

__global__ static void copy_all(call a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* Static shared memory counts beside that of the launch. */
__global__ static void with_shared(call a)
{
    SP_SHARED(int, tile, [N]);
    SP_SHARED_BYTES(more);

    tile[threadIdx.x] = a.in[threadIdx.x];
    a.out[threadIdx.x] = tile[threadIdx.x] + 0 * (more == NULL);
}

/* The value that a lower thread wrote: rising order hides the missing barrier. */
__global__ static void missing_barrier(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;

    tile[t] = a.in[t];
    a.out[t] = tile[t ? t - 1 : 0];
}

/* One barrier a turn where two are needed. */
__global__ static void missing_second_barrier(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    int sum = 0;

    for (int k = 0; k < 4; k++) {
        tile[t] = a.in[t] + k;
        __syncthreads();
        sum += tile[N - 1 - t];
    }
    a.out[t] = sum;
}

/* Lanes of a warp do not run in step. */
__global__ static void missing_syncwarp(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;

    tile[t] = a.in[t];
    a.out[t] = tile[t ^ 1];
}

__global__ static void divergent_barrier(call a)
{
    const int t = (int)threadIdx.x;

    if (t < N / 2) {
        __syncthreads();
        a.out[t] = a.in[t];
    } else {
        a.out[t] = a.in[t];
        __syncthreads();
    }
}

__global__ static void early_return(call a)
{
    const int t = (int)threadIdx.x;

    a.out[t] = a.in[t];
    if (t < 3)
        return;
    __syncthreads();
}

__global__ static void shuffle_of_some(call a)
{
    const int t = (int)threadIdx.x;
    int v = a.in[t];

    if (t & 1)
        v += __shfl_xor_sync(0xffffffffu, v, 2);
    __syncwarp();
    a.out[t] = v;
}

__global__ static void shuffle_from_absent(call a)
{
    const int t = (int)threadIdx.x;

    a.out[t] = a.in[t];
    if (t == 5)
        return;
    a.out[t] = __shfl_sync(0xffffffffu, a.in[t], 5);
}

__global__ static void uninitialised_shared(call a)
{
    SP_SHARED(int, sum, [1]);
    const int t = (int)threadIdx.x;

    __syncthreads();
    atomicAdd(&sum[0], 1);
    __syncthreads();
    a.out[t] = a.in[t] + sum[0] - N;
}

__global__ static void far_out_of_bounds(call a)
{
    a.out[threadIdx.x + (1 << 22)] = a.in[threadIdx.x];
}

__global__ static void just_out_of_bounds(call a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
    if (threadIdx.x == 0)
        a.out[4 * N] = 1;
}

__global__ static void shared_out_of_bounds(call a)
{
    SP_SHARED(int, tile, [N]);
    int *t = tile + 1;

    t[threadIdx.x] = a.in[threadIdx.x];
    __syncthreads();
    a.out[threadIdx.x] = a.in[threadIdx.x] + 0 * t[0];
}

__global__ static void race_of_blocks(call a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
    a.out[N] += 1;
}

__global__ static void host_pointer(call a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void endless(call a)
{
    volatile int stop = 0;

    while (!stop)
        ;
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* ---- copies beside the computation: threads 0 .. 31 copy 16 bytes each ---- */

enum { CHUNKS = N / 4 };

__device__ static void begin_copy(int *tile, const int *in, int bytes)
{
    const int t = (int)threadIdx.x;

    if (t < CHUNKS)
        sp_copy_async(tile + 4 * t, in + 4 * t, bytes);
    sp_copy_commit();
}

__global__ static void copy_waited_late(call a)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    sp_copy_wait<1>();
    __syncthreads();
    a.out[threadIdx.x] = tile[threadIdx.x];
    sp_copy_wait<0>();
}

__global__ static void copy_never_waited(call a)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* A wait is for the thread's own copies. */
__global__ static void copy_without_barrier(call a)
{
    SP_SHARED(int, tile, [N]);

    begin_copy(tile, a.in, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = tile[threadIdx.x];
}

/* The next copies begin while others still read. */
__global__ static void copy_too_early(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    int sum = 0;

    for (int k = 0; k < 4; k++) {
        begin_copy(tile, a.in, k % 2 ? 8 : 16); /* two of four, the others 0 */
        sp_copy_wait<0>();
        __syncthreads();
        sum += tile[N - 1 - t];
    }
    a.out[t] = sum == (t % 4 < 2 ? 2 : 4) * a.in[N - 1 - t] ? a.in[t] : -1;
}

__global__ static void copy_misaligned(call a)
{
    SP_SHARED(int, tile, [N + 4]);

    begin_copy(tile, a.in + 1, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* The address counts, though none of its bytes are wanted. */
__global__ static void copy_of_nothing(call a)
{
    SP_SHARED(int, tile, [N + 4]);

    begin_copy(tile, a.in + 1, 0);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void copy_out_of_bounds(call a)
{
    SP_SHARED(int, tile, [2 * N]);

    begin_copy(tile, a.in, 16);
    begin_copy(tile + N, a.in + 4, 16);
    sp_copy_wait<0>();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void matrix_of_some(call a)
{
    SP_SHARED(uint32_t, tile, [N]);
    uint32_t r[4];

    tile[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x % 2)
        sp_ldmatrix(r, sp_shared_address(tile + threadIdx.x % 32 * 4));
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* ---- products of a warpgroup, which the block is ---- */

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

/* ---- two blocks of a cluster bring half of each stage to both ---- */

enum cluster_bug {
    cluster_sound,
    cluster_wrong_phase,
    cluster_without_arrival,
    cluster_refilled,
    cluster_few_bytes,
    cluster_never_made,
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
        sp_phases_init(full, 1);
        sp_phases_init(free, 2);
        sp_phases_made();
    }
    if (BUG == cluster_too_early)
        __syncthreads();
    else
        sp_cluster_arrive(), sp_cluster_wait();
    for (unsigned step = 0; step < 6; step++) {
        if (t == 0) {
            if (step > 0 && BUG != cluster_refilled)
                sp_phases_wait(free, (step - 1) & 1);
            sp_phases_expect(full, N * (BUG == cluster_few_bytes ? 2 : 4));
            sp_copy_bulk(sp_shared_address(s[0].data + from), a.in + from,
                         N / 2 * sizeof(int), full, 3);
        }
        sp_phases_wait(full, BUG == cluster_wrong_phase ? ~step & 1 : step & 1);
        sum += s[0].data[N - 1 - t];
        __syncthreads();
        if (t < 2 && BUG != cluster_without_arrival)
            sp_phases_arrive(free, (unsigned)t);
    }
    if (t / (N / 2) == rank)
        a.out[t] = sum == 6 * a.in[N - 1 - t] ? a.in[t] : -1;
    if (BUG == cluster_leaves)
        return;
    sp_cluster_arrive();
    if (BUG != cluster_leaves_between)
        sp_cluster_wait();
}

/* Runs a kernel by its name in clusters of two blocks; 0: there is none. */
static int run_cluster(const char *name, call a, cudaStream_t stream)
{
    static const struct {
        const char *name;
        void (*kernel)(call);
    } all[] = {
#define C(bug) {#bug, cluster_with<bug>}
        C(cluster_sound),    C(cluster_wrong_phase),    C(cluster_without_arrival),
        C(cluster_refilled), C(cluster_few_bytes),      C(cluster_never_made),
        C(cluster_leaves),   C(cluster_leaves_between), C(cluster_too_early),
    };

    for (const auto &k : all)
        if (!strcmp(k.name, name)) {
            SP_LAUNCH_CLUSTER(k.kernel, dim3(2), dim3(N), 0, 2, stream, a);
            return 1;
        }
    return 0;
}

/* ---- sound ---- */

__global__ static void copies(call a)
{
    SP_SHARED(int, tile, [2][N]);
    const int t = (int)threadIdx.x;
    int sum = 0;

    begin_copy(tile[0], a.in, 16);
    for (int k = 0; k < 4; k++) {
        begin_copy(tile[(k + 1) % 2], a.in, 8);
        sp_copy_wait<1>();
        __syncthreads();
        sum += tile[k % 2][N - 1 - t];
        __syncthreads();
    }
    sp_copy_wait<0>();
    a.out[t] = sum == (t % 4 < 2 ? 1 : 4) * a.in[N - 1 - t] ? a.in[t] : -1;
}

__global__ static void two_barriers(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    int sum = 0;

    for (int k = 0; k < 4; k++) {
        tile[t] = a.in[t] + k;
        __syncthreads();
        sum += tile[N - 1 - t];
        __syncthreads();
    }
    a.out[t] = (sum - 6) / 4 == a.in[N - 1 - t] ? a.in[t] : -1;
}

__global__ static void warp_exchange(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    int v;

    tile[t] = a.in[t];
    __syncwarp();
    v = __shfl_xor_sync(0xffffffffu, tile[t ^ 1], 1);
    a.out[t] = __any_sync(0xffffffffu, v != a.in[t]) ? -1 : v;
}

__global__ static void counted(call a)
{
    if (blockIdx.x == 0)
        a.out[threadIdx.x] = a.in[threadIdx.x];
    atomicAdd(&a.out[N], 1);
}

/* Two threads write a half each of a word; another reads all of it. */
__global__ static void halves(call a)
{
    SP_SHARED(uint16_t, tile, [2 * N]);
    const int t = (int)threadIdx.x;

    for (int w = t / 2; w < N; w += N / 2)
        tile[2 * w + t % 2] = (uint16_t)(a.in[w] >> 16 * (t % 2));
    __syncthreads();
    memcpy(&a.out[t], &tile[2 * t], sizeof(int));
}

/* A thread writes a word, another reads half of it. */
__global__ static void half_without_barrier(call a)
{
    SP_SHARED(int, tile, [N]);
    tile[threadIdx.x] = a.in[threadIdx.x];
    memcpy(&a.out[threadIdx.x], &tile[N - 1 - threadIdx.x], sizeof(uint16_t));
}

/* Threads stand at each other's places in every second block, and in the launch that
 * had the same number: no race, since shared memory is a block's own. */
__global__ static void in_turn(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    const int at = (blockIdx.x + gridDim.x) % 2 ? t : N - 1 - t;

    tile[at] = a.in[at];
    __syncthreads();
    a.out[(int)blockIdx.x * N + t] = tile[t];
}

/* ---- running them ---- */

static cudaStream_t first, second;
static cudaEvent_t event;

static int run_kernel(const char *name, call a, dim3 grid, unsigned threads)
{
    static const struct {
        const char *name;
        void (*kernel)(call);
    } all[] = {
#define K(name) {#name, name}
        K(copy_all),
        K(missing_barrier),
        K(missing_second_barrier),
        K(missing_syncwarp),
        K(divergent_barrier),
        K(early_return),
        K(shuffle_of_some),
        K(shuffle_from_absent),
        K(uninitialised_shared),
        K(far_out_of_bounds),
        K(just_out_of_bounds),
        K(shared_out_of_bounds),
        K(race_of_blocks),
        K(host_pointer),
        K(endless),
        K(copy_waited_late),
        K(copy_never_waited),
        K(copy_without_barrier),
        K(copy_too_early),
        K(copy_misaligned),
        K(copy_of_nothing),
        K(copy_out_of_bounds),
        K(matrix_of_some),
        K(two_barriers),
        K(warp_exchange),
        K(counted),
        K(halves),
        K(half_without_barrier),
        K(in_turn),
        K(copies),
#define W(bug) {#bug, wgmma_with<bug>}
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

    for (const auto &k : all)
        if (!strcmp(k.name, name)) {
            SP_LAUNCH(k.kernel, grid, dim3(threads), first, a);
            return 1;
        }
    return run_cluster(name, a, first);
}

__global__ static void waits_first(call a)
{
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void reads_ahead_of_the_wait(call a)
{
    const int v = a.in[threadIdx.x];

    sp_grid_wait();
    a.out[threadIdx.x] = v;
}

/* The input may be read ahead, since the kernel before does not write it. */
__global__ static void looks_ahead(call a)
{
    sp_reads_ahead();
    const int v = a.in[threadIdx.x];

    sp_grid_begin(true);
    a.out[threadIdx.x] = v;
}

__global__ static void looks_ahead_at_what_is_written(call a)
{
    sp_reads_ahead();
    const int v = a.out[threadIdx.x];

    sp_grid_wait();
    a.out[threadIdx.x] = v;
}

__global__ static void copies_ahead_what_is_written(call a)
{
    SP_SHARED(int, tile, [N]);

    sp_reads_ahead();
    begin_copy(tile, a.out, 16);
    sp_grid_wait();
    sp_copy_wait<0>();
    __syncthreads();
    a.out[threadIdx.x] = tile[threadIdx.x];
}

__global__ static void writes_ahead(call a)
{
    sp_reads_ahead();
    a.out[threadIdx.x] = a.in[threadIdx.x];
    sp_grid_wait();
}

__global__ static void lets_ahead(call a)
{
    hc_grid_let();
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

__global__ static void leaves_without_the_wait(call a)
{
    if (threadIdx.x == 3)
        return;
    sp_grid_wait();
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* Behind another in a stream of early launches. */
static void run_early(const char *name, call a)
{
    static const struct {
        const char *word;
        void (*kernel)(call);
    } all[] = {{"reads_ahead", reads_ahead_of_the_wait},
               {"leaves", leaves_without_the_wait},
               {"never_waits", copy_all},
               {"looks_at_written", looks_ahead_at_what_is_written},
               {"copies_written", copies_ahead_what_is_written},
               {"looks", looks_ahead},
               {"writes", writes_ahead},
               {"lets_ahead", lets_ahead}};
    void (*kernel)(call) = waits_first;

    for (const auto &k : all)
        if (kernel == waits_first && strstr(name, k.word))
            kernel = k.kernel;
    sp_early_allow(first, 0);
    SP_LAUNCH(waits_first, dim3(1), dim3(N), first, a);
    if (strstr(name, "_later")) /* what is read is the last kernel's no more */
        SP_LAUNCH(waits_first, dim3(1), dim3(N), first, (call{a.in, a.out + N}));
    if (strstr(name, "behind_a_fill"))
        cudaMemsetAsync(a.out, 0, N * sizeof(int), first);
    if (strstr(name, "behind_a_record"))
        cudaEventRecord(event, first);
    SP_LAUNCH(kernel, dim3(1), dim3(N), first, a);
}

/* The second stream copies what the first one makes. */
static void copy_on_second(const char *name, call a, int *result)
{
    SP_LAUNCH(copy_all, dim3(1), dim3(N), first, a);
    if (!strcmp(name, "event_between_streams")) {
        cudaEventRecord(event, first);
        cudaStreamWaitEvent(second, event, 0);
    }
    cudaMemcpyAsync(result, a.out, N * sizeof(int), cudaMemcpyDeviceToHost, second);
    cudaStreamSynchronize(second);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    std::vector<int> in(N), out(N), want(N);
    int *d_in, *d_out;

    for (int i = 0; i < N; i++)
        in[(size_t)i] = want[(size_t)i] = 7 * i + 1;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMalloc((void **)&d_in, N * sizeof(int));
    cudaMalloc((void **)&d_out, 4 * N * sizeof(int));
    cudaMemcpyAsync(d_in, in.data(), N * sizeof(int), cudaMemcpyHostToDevice, first);
    cudaMemsetAsync(d_out, 0, 4 * N * sizeof(int), first);
    cudaStreamSynchronize(first);
    if (!strcmp(name, "missing_barrier"))
        for (int i = N - 1; i > 0; i--)
            want[(size_t)i] = want[(size_t)i - 1];
    if (!strcmp(name, "missing_second_barrier"))
        for (int i = 0; i < N; i++)
            want[(size_t)i] = 4 * in[(size_t)(N - 1 - i)] + 6;
    if (!strcmp(name, "missing_syncwarp"))
        for (int i = 0; i < N; i++)
            want[(size_t)i] = in[(size_t)(i ^ 1)];
    if (!strcmp(name, "host_touches_device"))
        return d_out[0];
    if (strstr(name, "streams")) {
        copy_on_second(name, {d_in, d_out}, out.data());
        return out == want ? 0 : 3;
    }
    if (!strncmp(name, "launch_", 7)) {
        run_early(name, {d_in, d_out});
        cudaMemcpyAsync(out.data(), d_out, N * sizeof(int), cudaMemcpyDeviceToHost,
                        first);
        cudaStreamSynchronize(first);
        if (out != want)
            return 3;
        return hc_early_launches() == (strstr(name, "_later") ? 2u : 1u) &&
                       hc_kernels_that_let() == !!strstr(name, "_looks_ahead")
                   ? 0
                   : 4;
    }
    if (!strcmp(name, "too_much_shared")) {
        SP_LAUNCH_SHARED(copy_all, dim3(1), dim3(N), 64 << 10, first,
                         (call{d_in, d_out}));
        return cudaGetLastError() == cudaSuccess ? 0 : 4;
    }
    if (!strcmp(name, "shared_of_capability")) {
        if (SP_ALLOW_SHARED(with_shared, 99 << 10) != cudaSuccess)
            return 4;
        SP_LAUNCH_SHARED(with_shared, dim3(1), dim3(N), 99 << 10, first,
                         (call{d_in, d_out}));
        cudaMemcpyAsync(out.data(), d_out, N * sizeof(int), cudaMemcpyDeviceToHost,
                        first);
        return out == want ? 0 : 3;
    }
    const bool is_large = !strcmp(name, "too_large");
    const bool is_host = !strcmp(name, "host_pointer");
    const bool is_many = strstr("race_of_blocks counted in_turn", name);
    /* The race checker numbers launches from 1 to 4095: the next has the first's. */
    for (int i = 0; !strcmp(name, "in_turn") && i < 4095; i++)
        run_kernel(i ? "copy_all" : name, {d_in, d_out}, dim3(1), i ? 1 : N);
    if (!run_kernel(is_large ? "copy_all" : name, {is_host ? in.data() : d_in, d_out},
                    dim3(is_many ? 4 : 1), is_large ? 2048 : N))
        return 2;
    if (cudaGetLastError() != cudaSuccess)
        return 4;
    cudaMemcpyAsync(out.data(), d_out, N * sizeof(int), cudaMemcpyDeviceToHost, first);
    cudaStreamSynchronize(first);
    return out == want ? 0 : 3;
}
