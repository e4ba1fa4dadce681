/* The kernel of sums through memory that devices reach of each other (cuda_peer.cu).
 *
 *     rank 0's memory  | half 0: place of rank 0, 1, ... | half 1: rank 0, 1, ... |
 *                                ^                           sum n uses half n % 2
 *     rank 1's kernel  -----stores-----> its place in the memory of every rank,
 *                      then reads all places in its own, and adds them by rank
 *
 * A value of 8 bytes is stored as two words of 8, each with half of the value and the
 * number of the sum. Aligned words are stored and loaded whole, so a word that has the
 * number has arrived together with its half of the value. No store needs to be ordered
 * after another, there is no flag, no fence and no barrier, and a sum takes the time of
 * one store to a peer. (A flag after the values would need a release at system scope
 * before it, which waits for the peers' answers, and an acquire after it.)
 *
 * Two halves are enough, and no rank has to report that it has read. A rank overwrites
 * the words of sum n with words of sum n + 2 when its kernel of sum n + 1 has ended.
 * That kernel has seen a word of sum n + 1 from every rank, and a rank stores such
 * words only after its own kernel of sum n has ended, since both are in one stream. So
 * every rank has read all that it needs of sum n. (Early launches, sp_cuda.h, keep
 * this: a kernel stores only after sp_grid_wait, which returns when the kernel before
 * has completed.) A place is longer than most sums; words that an earlier, longer sum
 * left there have another number. Numbers repeat after 2^32 sums, which is tens of
 * millions of steps.
 *
 * All ranks add the same values in the same order and get the same bits.
 */
#ifndef CUDA_PEER_SUM_CUH
#define CUDA_PEER_SUM_CUH

#include "cuda/device/cuda_util.cuh"

enum { PEER_MOST = 16, PEER_VALUES = 4096, PEER_THREADS = 640, PEER_GROUP = 8 };
enum { PEER_TURNS = 512 }; /* turns of a waiting thread between looks at the record */
enum : size_t { PEER_PLACE_WORDS = 2 * PEER_VALUES };

/* A record in pinned host memory for the host and a waiting kernel to communicate. */
struct peer_record {
    uint64_t leave; /* written by the host: the exit status that this process is to end
                     * with, or 0 */
    uint64_t lost;  /* written by the device: 1 + the rank that did not come, or 0 */
    uint64_t looked_ns; /* written by the device while it waits for a peer */
};

/* The arguments of a kernel. Ranks are numbered within the scope. */
struct peer_ranks {
    /* The memory of each rank, [2][size][PEER_PLACE_WORDS]. */
    uint64_t *memory[PEER_MOST];
    peer_record *rec;
    uint64_t limit_ns;
    uint32_t number; /* number of the sum, from 1 */
    int rank, size;
};

/* ---- on the device ---- */

__device__ static inline uint64_t *peer_place(const peer_ranks &p, int in, int of)
{
    return p.memory[in] + ((size_t)(p.number % 2) * p.size + of) * PEER_PLACE_WORDS;
}

/* Sends to the next rank first, so that not all store to the same device at once. */
__device__ static inline void peer_send(const peer_ranks &p, int i, uint64_t value)
{
    for (int k = 1; k < p.size; k++) {
        const int to = p.rank + k < p.size ? p.rank + k : p.rank + k - p.size;

        sp_store_pair(peer_place(p, to, p.rank) + 2 * i, value >> 32 << 32 | p.number,
                      value << 32 | p.number);
    }
}

/* True while the thread may go on waiting for `rank`. *begin is the start of its wait,
 * 0 at first. */
__device__ static inline bool peer_may_wait(const peer_ranks &p, int rank,
                                            uint64_t *begin)
{
    const uint64_t now = sp_clock_ns();

    if (sp_load_word(&p.rec->leave) || sp_load_word(&p.rec->lost))
        return false;
    if (threadIdx.x == 0)
        sp_store_word(&p.rec->looked_ns, now);
    if (!*begin)
        *begin = now;
    if (now - *begin < p.limit_ns)
        return true;
    sp_store_word(&p.rec->lost, 1 + (uint64_t)rank);
    return false;
}

/* Receives value[k] of rank + k, if there is such a peer. All words are loaded
 * before any is examined. Returns false if the thread gave up. */
__device__ static inline bool peer_receive(const peer_ranks &p, int i, int rank,
                                           uint64_t (&value)[PEER_GROUP])
{
    uint64_t begin = 0;
    int missing = 0;

    for (int turn = 1; missing >= 0; turn++) {
        uint64_t high[PEER_GROUP], low[PEER_GROUP];

        missing = -1;
#pragma unroll
        for (int k = 0; k < PEER_GROUP; k++)
            if (rank + k < p.size && rank + k != p.rank)
                sp_load_pair(peer_place(p, p.rank, rank + k) + 2 * i, high[k], low[k]);
#pragma unroll
        for (int k = 0; k < PEER_GROUP; k++) {
            if (rank + k >= p.size || rank + k == p.rank)
                continue;
            if ((uint32_t)high[k] != p.number || (uint32_t)low[k] != p.number)
                missing = rank + k;
            value[k] = high[k] >> 32 << 32 | low[k] >> 32;
        }
        if (missing >= 0 && turn % PEER_TURNS == 0 &&
            !peer_may_wait(p, missing, &begin))
            return false;
    }
    return true;
}

__device__ static inline uint64_t peer_bits(double v)
{
    return (uint64_t)__double_as_longlong(v);
}

__device__ static inline uint64_t peer_bits(int64_t v)
{
    return (uint64_t)v;
}

__device__ static inline void peer_value(uint64_t bits, double *v)
{
    *v = __longlong_as_double((long long)bits);
}

__device__ static inline void peer_value(uint64_t bits, int64_t *v)
{
    *v = (int64_t)bits;
}

template <class T> __device__ bool peer_add(const peer_ranks &p, int i, T own, T *to)
{
    T sum = 0;

    for (int rank = 0; rank < p.size; rank += PEER_GROUP) {
        uint64_t value[PEER_GROUP];

        if (!peer_receive(p, i, rank, value))
            return false;
#pragma unroll
        for (int k = 0; k < PEER_GROUP; k++) {
            T of_rank = own;

            if (rank + k >= p.size)
                continue;
            if (rank + k != p.rank)
                peer_value(value[k], &of_rank);
            sum = rank + k ? sum + of_rank : of_rank;
        }
    }
    *to = sum;
    return true;
}

/* The sum of n values, by one block. Each thread sends all its values before it waits
 * for any. */
template <class T>
__global__ void __launch_bounds__(PEER_THREADS)
    peer_sum_kernel(peer_ranks p, const T *from, T *to, int n)
{
    sp_grid_wait();
    const int first = (int)threadIdx.x, step = (int)blockDim.x;

    for (int i = first; i < n; i += step)
        peer_send(p, i, peer_bits(from[i]));
    for (int i = first; i < n; i += step)
        if (!peer_add(p, i, from[i], &to[i]))
            return;
}

/* Puts the next sum of from[n] into the stream; n is at most PEER_VALUES. */
template <class T>
static sp_status peer_put_sum(peer_ranks *p, cudaStream_t stream, const T *from, T *to,
                              int n)
{
    const int threads = n < PEER_THREADS ? (n + 31) / 32 * 32 : (int)PEER_THREADS;

    /* The halves alternate across the wrap too; fresh memory has number 0. */
    p->number += p->number == UINT32_MAX ? 3 : 1;
    return CUDA_LAUNCH((peer_sum_kernel<T>), 1, (unsigned)threads, stream, *p, from, to,
                       n);
}

#endif
