/* Faults of the order between blocks, which a word in memory makes, and between
 * launches of two streams. */
#include "emulator/hostcuda_bugs.h"

/* ---- blocks: the last of four to arrive reads what all have written ---- */

/* clang-format off */
#define WORD_BUGS(X) \
    X(word_sound) X(word_of_each_thread) X(word_fence_after) X(word_no_fence_before) \
    X(word_no_fence_behind) X(word_no_barrier) X(word_of_another)
/* clang-format on */
#define NAME(bug) bug,
enum word_bug { WORD_BUGS(NAME) };

template <int BUG> __device__ static bool is_last_of(unsigned *count, unsigned n)
{
    SP_SHARED(unsigned, arrived, [1]);

    if (BUG == word_of_each_thread)
        __threadfence();
    if (BUG != word_no_barrier)
        __syncthreads();
    if (threadIdx.x == 0) {
        if (BUG != word_fence_after && BUG != word_no_fence_before &&
            BUG != word_of_another)
            __threadfence();
        arrived[0] = atomicAdd(&count[0], 1u) + 1;
        if (BUG == word_fence_after)
            __threadfence();
        if (BUG == word_of_another && arrived[0] < n) { /* the last reads count[0] */
            __threadfence();
            atomicAdd(&count[1], 1u);
        }
        if (BUG != word_no_fence_behind && BUG != word_fence_after)
            __threadfence();
    }
    __syncthreads();
    return arrived[0] == n;
}

template <int BUG> __global__ static void word_with(call a)
{
    const int t = (int)threadIdx.x, part = N / (int)gridDim.x;
    int *const written = a.out + N;

    if (t / part == (int)blockIdx.x)
        written[t] = a.in[t];
    if (is_last_of<BUG>((unsigned *)(a.out + 3 * N), gridDim.x))
        a.out[t] = written[t];
}

#define W(bug) {#bug, word_with<bug>},
static const bug word_bugs[] = {WORD_BUGS(W)};

/* Blocks wait for what one of them does, as a kernel may; with `jobs_not_waited`
 * only those that come late find it done. */
template <bool WAITS> __global__ static void jobs_with(call a)
{
    unsigned *const count = (unsigned *)(a.out + 3 * N);
    const int t = (int)threadIdx.x, part = N / (int)gridDim.x;
    SP_SHARED(unsigned, job, [1]);

    if (t == 0)
        job[0] = atomicAdd(&count[0], 1u);
    __syncthreads();
    if (job[0] == 0) {
        a.out[N + t] = a.in[t];
        __syncthreads();
        if (t == 0) {
            __threadfence();
            atomicAdd(&count[1], 1u);
        }
    }
    if (t == 0) {
        while (WAITS && atomicAdd(&count[1], 0u) == 0)
            ;
        __threadfence();
    }
    __syncthreads();
    if (t / part == (int)blockIdx.x)
        a.out[t] = a.out[N + t];
}

static const bug jobs_bugs[] = {{"word_jobs", jobs_with<true>},
                                {"word_jobs_not_waited", jobs_with<false>}};

/* ---- launches of two streams ---- */

static __global__ void order_write(call a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

static __global__ void order_read(call a)
{
    a.out[N + threadIdx.x] = a.out[threadIdx.x];
}

/* order_sound, _written: the second stream reads what the first one writes, _read: the
 * first one writes again what the second one reads; _seen: the host waits between. */
void run_order_bug(const char *name, call a, cudaStream_t first, cudaStream_t second,
                   cudaEvent_t event)
{
    SP_LAUNCH(order_write, dim3(1), dim3(N), first, a);
    if (!strcmp(name, "order_seen"))
        cudaStreamSynchronize(first);
    else if (strcmp(name, "order_written")) {
        cudaEventRecord(event, first);
        cudaStreamWaitEvent(second, event, 0);
    }
    SP_LAUNCH(order_read, dim3(1), dim3(N), second, a);
    if (!strcmp(name, "order_sound")) {
        cudaEventRecord(event, second);
        cudaStreamWaitEvent(first, event, 0);
    }
    if (!strcmp(name, "order_seen"))
        cudaStreamSynchronize(second);
    if (strcmp(name, "order_written"))
        SP_LAUNCH(order_write, dim3(1), dim3(N), first, a);
    cudaStreamSynchronize(second);
}
