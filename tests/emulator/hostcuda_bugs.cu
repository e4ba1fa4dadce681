/* Kernels with planted faults, and some without: `hostcuda_bugs NAME` runs one and ends
 * with 3 if its result is wrong. tests/emulator/test_hostcuda_findings.sh says what the
 * emulator must say to each. */
#include "emulator/hostcuda_bugs.h"
#include "base/sp_program.h"

#include <vector>

BUG(copy_all)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* Static shared memory counts beside that of the launch. */
BUG(with_shared)
{
    SP_SHARED(int, tile, [N]);
    SP_SHARED_BYTES(more);

    tile[threadIdx.x] = a.in[threadIdx.x];
    a.out[threadIdx.x] = tile[threadIdx.x] + 0 * (more == NULL);
}

/* The value that a lower thread wrote: rising order hides the missing barrier. */
BUG(missing_barrier)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;

    tile[t] = a.in[t];
    a.out[t] = tile[t ? t - 1 : 0];
}

/* The sum over four turns, each of which needs two barriers. */
template <bool HAS_SECOND> __device__ static int sum_of_turns(call a)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    int sum = 0;

    for (int k = 0; k < 4; k++) {
        tile[t] = a.in[t] + k;
        __syncthreads();
        sum += tile[N - 1 - t];
        if (HAS_SECOND)
            __syncthreads();
    }
    return sum;
}

BUG(missing_second_barrier)
{
    a.out[threadIdx.x] = sum_of_turns<false>(a);
}

/* Lanes of a warp do not run in step. */
BUG(missing_syncwarp)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;

    tile[t] = a.in[t];
    a.out[t] = tile[t ^ 1];
}

BUG(divergent_barrier)
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

BUG(early_return)
{
    const int t = (int)threadIdx.x;

    a.out[t] = a.in[t];
    if (t < 3)
        return;
    __syncthreads();
}

BUG(shuffle_of_some)
{
    const int t = (int)threadIdx.x;
    int v = a.in[t];

    if (t & 1)
        v += __shfl_xor_sync(0xffffffffu, v, 2);
    __syncwarp();
    a.out[t] = v;
}

BUG(shuffle_from_absent)
{
    const int t = (int)threadIdx.x;

    a.out[t] = a.in[t];
    if (t == 5)
        return;
    a.out[t] = __shfl_sync(0xffffffffu, a.in[t], 5);
}

BUG(uninitialised_shared)
{
    SP_SHARED(int, sum, [1]);
    const int t = (int)threadIdx.x;

    __syncthreads();
    atomicAdd(&sum[0], 1);
    __syncthreads();
    a.out[t] = a.in[t] + sum[0] - N;
}

BUG(far_out_of_bounds)
{
    a.out[threadIdx.x + (1 << 22)] = a.in[threadIdx.x];
}

BUG(just_out_of_bounds)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
    if (threadIdx.x == 0)
        a.out[4 * N] = 1;
}

BUG(shared_out_of_bounds)
{
    SP_SHARED(int, tile, [N]);
    int *t = tile + 1;

    t[threadIdx.x] = a.in[threadIdx.x];
    __syncthreads();
    a.out[threadIdx.x] = a.in[threadIdx.x] + 0 * t[0];
}

BUG(race_of_blocks)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
    a.out[N] += 1;
}

BUG(host_pointer)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

BUG(endless)
{
    volatile int stop = 0;

    while (!stop)
        ;
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* ---- sound ---- */

BUG(two_barriers)
{
    const int t = (int)threadIdx.x, sum = sum_of_turns<true>(a);

    a.out[t] = (sum - 6) / 4 == a.in[N - 1 - t] ? a.in[t] : -1;
}

BUG(warp_exchange)
{
    SP_SHARED(int, tile, [N]);
    const int t = (int)threadIdx.x;
    int v;

    tile[t] = a.in[t];
    __syncwarp();
    v = __shfl_xor_sync(0xffffffffu, tile[t ^ 1], 1);
    a.out[t] = __any_sync(0xffffffffu, v != a.in[t]) ? -1 : v;
}

BUG(counted)
{
    if (blockIdx.x == 0)
        a.out[threadIdx.x] = a.in[threadIdx.x];
    atomicAdd(&a.out[N], 1);
}

/* Two threads write a half each of a word; another reads all of it. */
BUG(halves)
{
    SP_SHARED(uint16_t, tile, [2 * N]);
    const int t = (int)threadIdx.x;

    for (int w = t / 2; w < N; w += N / 2)
        tile[2 * w + t % 2] = (uint16_t)(a.in[w] >> 16 * (t % 2));
    __syncthreads();
    memcpy(&a.out[t], &tile[2 * t], sizeof(int));
}

/* A thread writes a word, another reads half of it. */
BUG(half_without_barrier)
{
    SP_SHARED(int, tile, [N]);
    tile[threadIdx.x] = a.in[threadIdx.x];
    memcpy(&a.out[threadIdx.x], &tile[N - 1 - threadIdx.x], sizeof(uint16_t));
}

/* Threads stand at each other's places in every second block, and in the launch that
 * had the same number: no race, since shared memory is a block's own. */
BUG(in_turn)
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

/* False: there is no kernel of this name. */
static bool run_kernel(const char *name, call a, dim3 grid, unsigned threads)
{
    const bug *b = bug::last;

    while (b && strcmp(b->name, name))
        b = b->before;
    if (b)
        hc_launch_kernel(b->name, b->kernel, dim3(grid.x * b->cluster), dim3(threads),
                         0, b->cluster, first, a);
    return b != NULL;
}

/* The i-th number that a run gives. */
static int expected(const char *name, const std::vector<int> &in, int i)
{
    if (!strcmp(name, "missing_barrier"))
        return in[(size_t)(i ? i - 1 : 0)];
    if (!strcmp(name, "missing_second_barrier"))
        return 4 * in[(size_t)(N - 1 - i)] + 6;
    return in[(size_t)(strcmp(name, "missing_syncwarp") ? i : i ^ 1)];
}

/* Waits for the kernels and reads what they gave. */
static std::vector<int> result(const int *d_out)
{
    std::vector<int> out(N);

    cudaMemcpyAsync(out.data(), d_out, N * sizeof(int), cudaMemcpyDeviceToHost, first);
    cudaStreamSynchronize(first);
    return out;
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

    sp_program_begin("sptrain");
    for (int i = 0; i < N; i++)
        in[(size_t)i] = 7 * i + 1;
    for (int i = 0; i < N; i++)
        want[(size_t)i] = expected(name, in, i);
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMalloc((void **)&d_in, N * sizeof(int));
    cudaMalloc((void **)&d_out, 4 * N * sizeof(int));
    cudaMemcpyAsync(d_in, in.data(), N * sizeof(int), cudaMemcpyHostToDevice, first);
    cudaMemsetAsync(d_out, 0, 4 * N * sizeof(int), first);
    cudaStreamSynchronize(first);
    if (!strcmp(name, "host_touches_device"))
        return d_out[0];
    if (strstr(name, "streams")) {
        copy_on_second(name, {d_in, d_out}, out.data());
        return out == want ? 0 : 3;
    }
    if (!strncmp(name, "order_", 6)) {
        run_order_bug(name, {d_in, d_out}, first, second, event);
        return result(d_out) == want ? 0 : 3;
    }
    if (!strncmp(name, "launch_", 7)) {
        run_early_bug(name, {d_in, d_out}, first, event);
        if (result(d_out) != want)
            return 3;
        return hc_early_launches() == (strstr(name, "_later") ? 2u : 1u) &&
                       hc_kernels_that_let() == !!strstr(name, "_looks_ahead")
                   ? 0
                   : 4;
    }
    if (!strcmp(name, "stream_of_another_device")) {
        cudaSetDevice(1);
        SP_LAUNCH(copy_all, dim3(1), dim3(N), first, (call{d_in, d_out}));
        return cudaGetLastError() == cudaSuccess ? 0 : 4;
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
        return result(d_out) == want ? 0 : 3;
    }
    const bool is_large = !strcmp(name, "too_large");
    const bool is_host = !strcmp(name, "host_pointer");
    const bool is_many = strstr("race_of_blocks counted in_turn", name) ||
                         !strncmp(name, "word_", 5);
    /* The race checker numbers launches from 1 to 4095: the next has the first's. */
    for (int i = 0; !strcmp(name, "in_turn") && i < 4095; i++)
        run_kernel(i ? "copy_all" : name, {d_in, d_out}, dim3(1), i ? 1 : N);
    if (!run_kernel(is_large ? "copy_all" : name, {is_host ? in.data() : d_in, d_out},
                    dim3(is_many ? 4 : 1), is_large ? 2048 : N))
        return 2;
    if (cudaGetLastError() != cudaSuccess)
        return 4;
    return result(d_out) == want ? 0 : 3;
}
