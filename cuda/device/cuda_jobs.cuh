/* Two ways for a kernel to do some small work itself, instead of in a separate launch.
 *
 * Before its own work: cuda_do_jobs. All blocks of the kernel need the results (the
 * coefficients of a batch norm), so each begins with
 *
 *     take the next job, do it, count it done     until no job is left
 *     wait until all jobs are done
 *
 * A block waits only for jobs that other blocks have taken, and those blocks are
 * running, so the kernel ends whatever the number of blocks that fit the device at a
 * time and whatever their order. A single block does all jobs before it waits.
 *
 * After it: cuda_is_last is true in the last block to arrive. All others have written
 * their parts then, and it adds them (sums of losses, of squares).
 *
 * Neither changes the order of a sum: a job is the same whichever block does it.
 */
#ifndef CUDA_JOBS_CUH
#define CUDA_JOBS_CUH

#include "cuda/device/cuda_util.cuh"

/* Counters of the jobs of one launch, in device memory. Launches of the compute stream
 * use two sets by turns: whoever does job 0 zeroes the other set, which no kernel uses
 * meanwhile. */
typedef struct cuda_jobs {
    unsigned *count; /* [CUDA_JOB_COUNTS] jobs taken, jobs done */
    unsigned *other; /* [CUDA_JOB_COUNTS] the set of the next launch with jobs */
    unsigned n;      /* jobs, may be 0 */
} cuda_jobs;

enum { CUDA_JOB_COUNTS = 2 };

/* The counters of the next launch in the compute stream, which must follow. */
static inline cuda_jobs cuda_next_jobs(sp_backend *be, unsigned n)
{
    sp_cuda *cuda = cuda_of(be);
    unsigned *const set[2] = {cuda->counts + CUDA_COUNT_JOBS,
                              cuda->counts + CUDA_COUNT_JOBS + CUDA_JOB_COUNTS};
    const int turn = cuda->job_turn;

    if (n == 0)
        return {NULL, NULL, 0};
    cuda->job_turn = !turn;
    return {set[turn], set[!turn], n};
}

__device__ static inline bool cuda_is_first_thread()
{
    return threadIdx.x == 0 && threadIdx.y == 0;
}

/* Calls do_job(k) for the jobs k that this block gets, and returns when all jobs of the
 * launch are done and their results visible. Called by all threads of all blocks. */
template <class F> __device__ void cuda_do_jobs(const cuda_jobs &jobs, const F &do_job)
{
    SP_SHARED(unsigned, job, [1]);

    if (jobs.n == 0)
        return;
    for (;;) {
        if (cuda_is_first_thread())
            job[0] = atomicAdd(&jobs.count[0], 1u);
        __syncthreads();
        const unsigned k = job[0];
        __syncthreads(); /* read by all before it is written again */
        if (k >= jobs.n)
            break;
        do_job((int)k);
        if (k == 0 && cuda_is_first_thread())
            jobs.other[0] = jobs.other[1] = 0;
        __syncthreads(); /* all threads have written their results */
        if (cuda_is_first_thread()) {
            __threadfence();
            atomicAdd(&jobs.count[1], 1u);
        }
    }
    if (cuda_is_first_thread()) {
        while (sp_load_count(&jobs.count[1]) < jobs.n)
            ;
        __threadfence();
    }
    __syncthreads();
}

/* True if this block is the last of n that count here; *count, which is 0 before the
 * first and after the last, is zeroed again. The n blocks' earlier writes are then
 * visible to all threads of this block. Called by all threads of a block. */
__device__ static inline bool cuda_is_last(unsigned *count, unsigned n)
{
    SP_SHARED(unsigned, arrived, [1]);

    __syncthreads();
    if (cuda_is_first_thread()) {
        __threadfence();
        arrived[0] = atomicAdd(count, 1u) + 1;
        if (arrived[0] == n)
            *count = 0;
        __threadfence();
    }
    __syncthreads();
    return arrived[0] == n;
}

#endif
