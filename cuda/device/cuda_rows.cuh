/* Rows of either element type, several channels at a time: the base of the operations
 * between the convolutions (cuda/rows).
 *
 *     cuda_each_row    f.load, f.finish for every row          pointwise operations,
 *                                                              norm: second passes
 *     cuda_row_sums    f.load, f.add over the rows of each     batch norm, bias,
 *                      sample, two sums a channel              global pools
 *          rows --> threads of a chunk --> tree --> part [sample][chunk][2][c]
 *                                                     |  cuda_add_chunks (cuda_sums.cu)
 *                                                     +--> sums [sample][2][c]
 *
 * A thread handles N adjacent channels, 16 bytes if all rows of a call are aligned to
 * that, and computes in fp32; the remaining channels of a row are handled one by one.
 * Columns after c are neither read nor written, since they may belong to another
 * tensor.
 */
#ifndef CUDA_ROWS_CUH
#define CUDA_ROWS_CUH

#include <assert.h>

#include "cuda/device/cuda_util.cuh"

typedef uint16_t cuda_bf16; /* the upper half of a float */

__device__ static inline float cuda_float_of(cuda_bf16 bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

__device__ static inline cuda_bf16 cuda_bf16_of(float v)
{
    return (cuda_bf16)sp_pack_bf16(v, 0);
}

/* ---- one element, whatever its type ---- */

__device__ static inline float cuda_get(const sp_tensor &t, int64_t i, int j)
{
    const int64_t at = i * t.ld + j;

    return t.elem == SP_ELEM_BF16 ? cuda_float_of(((const cuda_bf16 *)t.data)[at])
                                  : t.data[at];
}

__device__ static inline void cuda_put(const sp_tensor &t, int64_t i, int j, float v)
{
    const int64_t at = i * t.ld + j;

    if (t.elem == SP_ELEM_BF16)
        ((cuda_bf16 *)t.data)[at] = cuda_bf16_of(v);
    else
        t.data[at] = v;
}

__device__ static inline void cuda_add(const sp_tensor &t, int64_t i, int j, float v)
{
    cuda_put(t, i, j, cuda_get(t, i, j) + v);
}

/* ---- N elements of type T ---- */

/* N elements as they are in memory, read in one access. */
template <class T, int N> struct cuda_pack;
template <> struct cuda_pack<float, 1> {
    float bits;
};
template <> struct cuda_pack<float, 4> {
    float4 bits;
};
template <> struct cuda_pack<cuda_bf16, 1> {
    cuda_bf16 bits;
};
template <> struct cuda_pack<cuda_bf16, 4> {
    uint2 bits;
};
template <> struct cuda_pack<cuda_bf16, 8> {
    uint4 bits;
};

/* Two values of bf16 from the word that holds them. */
__device__ static inline void cuda_unpack_two(uint32_t two, float *v)
{
    v[0] = __uint_as_float(two << 16);
    v[1] = __uint_as_float(two & 0xffff0000u);
}

template <class T, int N>
__device__ void cuda_load_pack(const sp_tensor &t, int64_t i, int j,
                               cuda_pack<T, N> *pack)
{
    *pack = *(const cuda_pack<T, N> *)((const T *)t.data + i * t.ld + j);
}

template <class T, int N>
__device__ void cuda_unpack(const cuda_pack<T, N> &pack, float (&v)[N])
{
    if constexpr (sizeof(T) == 4 && N == 1) {
        v[0] = pack.bits;
    } else if constexpr (sizeof(T) == 4) {
        v[0] = pack.bits.x, v[1] = pack.bits.y, v[2] = pack.bits.z, v[3] = pack.bits.w;
    } else if constexpr (N == 1) {
        v[0] = cuda_float_of(pack.bits);
    } else {
        cuda_unpack_two(pack.bits.x, v);
        cuda_unpack_two(pack.bits.y, v + 2);
        if constexpr (N == 8) {
            cuda_unpack_two(pack.bits.z, v + 4);
            cuda_unpack_two(pack.bits.w, v + 6);
        }
    }
}

/* A value as an element of type T has it. */
template <class T> __device__ float cuda_rounded(float v)
{
    return sizeof(T) == 2 ? cuda_float_of(cuda_bf16_of(v)) : v;
}

/* Converts N values to the form that they have in memory. */
template <class T, int N>
__device__ void cuda_repack(const float (&v)[N], cuda_pack<T, N> *pack)
{
    if constexpr (sizeof(T) == 4 && N == 1)
        pack->bits = v[0];
    else if constexpr (sizeof(T) == 4)
        pack->bits = make_float4(v[0], v[1], v[2], v[3]);
    else if constexpr (N == 1)
        pack->bits = cuda_bf16_of(v[0]);
    else if constexpr (N == 4)
        pack->bits = make_uint2(sp_pack_bf16(v[0], v[1]), sp_pack_bf16(v[2], v[3]));
    else
        pack->bits = make_uint4(sp_pack_bf16(v[0], v[1]), sp_pack_bf16(v[2], v[3]),
                                sp_pack_bf16(v[4], v[5]), sp_pack_bf16(v[6], v[7]));
}

template <class T, int N>
__device__ void cuda_load(const sp_tensor &t, int64_t i, int j, float (&v)[N])
{
    cuda_pack<T, N> pack;

    cuda_load_pack(t, i, j, &pack);
    cuda_unpack(pack, v);
}

template <class T, int N>
__device__ void cuda_store(const sp_tensor &t, int64_t i, int j, const float (&v)[N])
{
    cuda_pack<T, N> pack;

    cuda_repack(v, &pack);
    *(cuda_pack<T, N> *)((T *)t.data + i * t.ld + j) = pack;
}

/* y = v; if is_added, v plus y's value before, which is `old`. */
template <class T, int N>
__device__ void cuda_store_sum(const sp_tensor &y, int64_t i, int j, float (&v)[N],
                               const cuda_pack<T, N> &old, bool is_added)
{
    float before[N];

    if (is_added) {
        cuda_unpack(old, before);
        for (int k = 0; k < N; k++)
            v[k] += before[k];
    }
    cuda_store<T>(y, i, j, v);
}

/* Loads the constants of N channels. */
template <int N> __device__ void cuda_channels(const float *from, int j, float (&v)[N])
{
    for (int k = 0; k < N; k++)
        v[k] = from[j + k];
}

/* The value of a batch norm before its activation. Forward and backward use this one
 * function, so that the backward finds the same bits and thus the same side of 0. */
__device__ static inline float cuda_affine(float x, float scale, float shift)
{
    return x * scale + shift;
}

/* ---- which T and N a call gets ---- */

/* True if all rows are aligned to 16 bytes. The tensors are of one type; tensors
 * without data do not count. */
static inline bool cuda_can_group(const sp_tensor *const *t, int n)
{
    bool can_group = true;

    for (int i = 0; i < n; i++) {
        assert(!t[i]->data || t[i]->elem == t[0]->elem);
        can_group = can_group && (!t[i]->data || cuda_is_aligned(*t[i]));
    }
    return can_group;
}

/* ---- each row ----
 * F has, for N channels from j on,
 *     template <int N> struct channels;  template <int N> channels<N> at(int j);
 *     template <class T, int N> struct item;               values read of a row
 *     template <class T, int N> void load(int64_t i, int j, item<T, N> *);
 *     template <class T, int N> void finish(const channels<N> &, const item<T, N> &,
 *                                           int64_t i, int j);
 * where channels holds the values that are the same for all rows. A functor without
 * such values derives from cuda_plain.
 *
 * A thread loads CUDA_EACH_ROWS rows before it finishes the first of them, so that the
 * memory's latency passes once for all. There are as many blocks as fit the device at a
 * time, and each handles rows at regular distances. */

struct cuda_plain {
    template <int N> struct channels {
    };
    template <int N> __device__ channels<N> at(int) const { return {}; }
};

/* Handles the rows first, first + step, ... of each of the block's groups of rows,
 * which are `stride` rows apart. */
template <class F, class T, int N>
__device__ void cuda_some_rows(const F &f, int64_t first, int64_t n, int step,
                               int64_t stride, int j)
{
    const auto here = f.template at<N>(j);
    typename F::template item<T, N> item[CUDA_EACH_ROWS];

    for (int64_t i = first; i < n; i += stride) {
#pragma unroll
        for (int r = 0; r < CUDA_EACH_ROWS; r++)
            if (i + r * step < n)
                f.load(i + r * step, j, &item[r]);
#pragma unroll
        for (int r = 0; r < CUDA_EACH_ROWS; r++)
            if (i + r * step < n)
                f.finish(here, item[r], i + r * step, j);
    }
}

template <class F, class T, int N>
__global__ void __launch_bounds__(CUDA_EACH_THREADS, CUDA_EACH_BLOCKS)
    rows_kernel(F f, int64_t n, int c, bool lets_next)
{
    const int64_t rows = (int64_t)blockDim.y * CUDA_EACH_ROWS;
    const int64_t first = blockIdx.x * rows + threadIdx.y;
    int j = (int)(blockIdx.y * blockDim.x + threadIdx.x) * N;

    sp_grid_begin(lets_next);
    if (j + N <= c)
        cuda_some_rows<F, T, N>(f, first, n, (int)blockDim.y, gridDim.x * rows, j);
    else
        for (; j < c; j++)
            cuda_some_rows<F, T, 1>(f, first, n, (int)blockDim.y, gridDim.x * rows, j);
}

template <class T, int N, class F>
sp_status cuda_launch_rows(sp_backend *be, const F &f, int64_t n, int c)
{
    const int groups = (c + N - 1) / N;
    const dim3 block(cuda_lanes(groups), CUDA_EACH_THREADS / cuda_lanes(groups));
    const unsigned across = ((unsigned)groups + block.x - 1) / block.x;
    const int64_t rows = (int64_t)block.y * CUDA_EACH_ROWS;
    const int64_t blocks = (n + rows - 1) / rows, fit = cuda_each_fit(be, across);

    if (c == 0 || n == 0)
        return SP_OK;
    return CUDA_LAUNCH((rows_kernel<F, T, N>),
                       dim3((unsigned)(blocks < fit ? blocks : fit), across), block,
                       cuda_of(be)->compute, f, n, c, cuda_lets_next(be));
}

/* Calls f for the n x c elements of the tensors, which are of one type. */
template <class F, class... Tensors>
sp_status cuda_each_row(sp_backend *be, const F &f, const sp_tensor &first,
                        const Tensors &...others)
{
    const sp_tensor *const all[] = {&first, &others...};
    const bool is_grouped = cuda_can_group(all, 1 + (int)sizeof...(others));
    const int64_t n = first.n;
    const int c = first.c;

    if (first.elem == SP_ELEM_BF16)
        return is_grouped ? cuda_launch_rows<cuda_bf16, 8>(be, f, n, c)
                          : cuda_launch_rows<cuda_bf16, 1>(be, f, n, c);
    return is_grouped ? cuda_launch_rows<float, 4>(be, f, n, c)
                      : cuda_launch_rows<float, 1>(be, f, n, c);
}

/* ---- sums of parts ---- */

enum { CUDA_PART_COLUMNS = 8, CUDA_PART_LANES = 128 };

/* The number of partial sums that n parts are dealt to. */
static inline SP_HOST_DEVICE int cuda_part_lanes(int n)
{
    int lanes = 1;

    while (lanes < CUDA_PART_LANES && lanes < n)
        lanes *= 2;
    return lanes;
}

/* The block that adds n parts: only the threads that have work. */
static inline dim3 cuda_part_block(int n)
{
    return dim3(CUDA_PART_COLUMNS, (unsigned)cuda_part_lanes(n));
}

/* A thread of such a block, and their number. */
__device__ static inline int cuda_part_thread()
{
    return (int)(threadIdx.y * CUDA_PART_COLUMNS + threadIdx.x);
}

__device__ static inline int cuda_part_threads()
{
    return (int)blockDim.y * CUDA_PART_COLUMNS;
}

/* Sets all[0][x] to the sum over the n parts of element `at` of each part, in the order
 * that cuda_part_lanes(n) lanes have: lane y adds parts y, y + lanes, ..., and the sums
 * of the lanes are added as a tree. Thread `thread` of `threads` has column x = thread
 * % CUDA_PART_COLUMNS and at most EACH of the lanes, so there are at least lanes *
 * CUDA_PART_COLUMNS / EACH threads; at < 0: no element. `stride` is the length of a
 * part. Called by all threads of the block; ends with a barrier. */
template <int EACH>
__device__ static inline void cuda_add_parts(const double *part, int n, size_t stride,
                                             int at, int thread, int threads,
                                             double (*all)[CUDA_PART_COLUMNS])
{
    const int x = thread % CUDA_PART_COLUMNS, y = thread / CUDA_PART_COLUMNS;
    const int rows = threads / CUDA_PART_COLUMNS, lanes = cuda_part_lanes(n);
    double sum[EACH] = {};

#pragma unroll 4
    for (int i = at < 0 ? n : y; i < n; i += lanes)
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (y + e * rows < lanes && i + e * rows < n)
                sum[e] += part[(size_t)(i + e * rows) * stride + at];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (y + e * rows < lanes)
            all[y + e * rows][x] = sum[e];
    for (int half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int to = y; to < half; to += rows)
            all[to][x] += all[to + half][x];
    }
    __syncthreads();
}

/* ---- sums over the rows of each sample ----
 * F has channels and at() as above, and
 *     template <class T, int N> struct item;                    values read of a row
 *     template <class T, int N> void load(int64_t i, int j, item<T, N> *);
 *     template <class T, int N> void add(const channels<N> &, const item<T, N> &,
 *                                        int64_t i, int j, double *a, double *b);
 * add adds to a[k] and b[k] of channel j + k. A sample is cut into chunks of rows from
 * its first row on. Thread y of a chunk sums rows y, y + step, ...; the sums of the
 * threads are added as a tree, and so are the chunks' sums. The value depends only on
 * the sample, on the number of channels and on their alignment. */

enum { CUDA_SUM_THREADS = 256 };

/* A chunk has about 32,768 elements: that makes enough blocks on the coarse levels and
 * few parts to add on the fine ones. */
static inline int cuda_chunk_rows(int c)
{
    int rows = 512;

    while (rows > 64 && rows * c > 32768)
        rows /= 2;
    return rows;
}

/* Adds rows i, i + step, ... below end. Two are loaded at a time, or one if eight
 * channels of three tensors beside their constants would not stay in registers. */
template <class F, class T, int N>
__device__ void cuda_add_rows(const F &f, int64_t i, int64_t end, int step, int j,
                              double *a, double *b)
{
    const auto here = f.template at<N>(j);
    using row = typename F::template item<T, N>;
    enum { AHEAD = sizeof(row) > 32 ? 1 : 2 };
    row item[AHEAD];

    for (; i < end; i += AHEAD * step) {
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
            if (i + r * step < end)
                f.load(i + r * step, j, &item[r]);
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
            if (i + r * step < end)
                f.add(here, item[r], i + r * step, j, a, b);
    }
}

/* Adds all [2][blockDim.y][columns] over y as a tree; row 0 becomes the sum. */
template <int N> __device__ void cuda_sum_threads(double *all, int columns)
{
    const int x = (int)threadIdx.x * N, y = (int)threadIdx.y, rows = (int)blockDim.y;

    for (int half = rows / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int at = 0; at < 2 * N && y < half; at++) {
            double *to = all + ((size_t)(at / N * rows) + y) * columns + x + at % N;
            *to += to[(size_t)half * columns];
        }
    }
    __syncthreads();
}

template <class F, class T, int N>
__global__ void __launch_bounds__(CUDA_SUM_THREADS, 2)
    row_sums_kernel(F f, cuda_samples s, int c, int chunk, double *part)
{
    sp_grid_wait();
    SP_SHARED(double, all, [2 * CUDA_SUM_THREADS * N]);
    const int b = (int)blockIdx.z, y = (int)threadIdx.y, rows = (int)blockDim.y;
    const int columns = (int)blockDim.x * N, x = (int)threadIdx.x * N;
    const int j = (int)blockIdx.y * columns + x;
    const int64_t begin = s.row[b] + (int64_t)blockIdx.x * chunk;
    const int64_t end = min(begin + chunk, (int64_t)s.row[b + 1]);
    double sum[2][N] = {};

    if (begin >= end) /* true of the whole block */
        return;
    if (j + N <= c)
        cuda_add_rows<F, T, N>(f, begin + y, end, rows, j, sum[0], sum[1]);
    else
#pragma unroll
        for (int k = 0; k < N; k++)
            if (j + k < c)
                cuda_add_rows<F, T, 1>(f, begin + y, end, rows, j + k, &sum[0][k],
                                       &sum[1][k]);
    for (int at = 0; at < 2 * N; at++)
        all[(size_t)(at / N * rows + y) * columns + x + at % N] = sum[at / N][at % N];
    cuda_sum_threads<N>(all, columns);
    for (int k = 0; y < 2 && k < N && j + k < c; k++)
        part[(((size_t)b * gridDim.x + blockIdx.x) * 2 + (size_t)y) * (size_t)c + j +
             k] = all[(size_t)(y * rows) * columns + x + k];
}

/* Writes sums [n_samples][2][c] (device); the rows of sample b begin at sample_row[b]
 * (host). The scratch's earlier content is kept. */
template <class T, int N, class F>
sp_status cuda_launch_sums(sp_backend *be, const F &f, const int32_t *sample_row,
                           int n_samples, int c, double *sums)
{
    sp_arena *scratch = &cuda_of(be)->scratch;
    const size_t mark = scratch->used;
    const int chunk = cuda_chunk_rows(c);
    const unsigned groups = ((unsigned)c + N - 1) / N, lanes = cuda_lanes((int)groups);

    for (int first = 0; c && first < n_samples; first += CUDA_GROUP) {
        const cuda_samples s = cuda_group(sample_row, first, n_samples);
        const int n_chunks = (cuda_longest(&s) + chunk - 1) / chunk;
        double *part;

        SP_TRY(SP_ALLOC(scratch, (size_t)s.n * n_chunks * 2 * c, &part));
        if (n_chunks)
            SP_TRY(CUDA_LAUNCH(
                (row_sums_kernel<F, T, N>),
                dim3((unsigned)n_chunks, (groups + lanes - 1) / lanes, (unsigned)s.n),
                dim3(lanes, CUDA_SUM_THREADS / lanes), cuda_of(be)->compute, f, s, c,
                chunk, part));
        SP_TRY(cuda_add_chunks(be, &s, c, chunk, n_chunks, part, sums));
        sp_arena_rewind(scratch, mark);
    }
    return SP_OK;
}

/* Writes the two sums of f over the rows of each sample. The tensors are of one type.
 */
template <class F, class... Tensors>
sp_status cuda_row_sums(sp_backend *be, const F &f, const int32_t *sample_row,
                        int n_samples, double *sums, const sp_tensor &first,
                        const Tensors &...others)
{
    const sp_tensor *const all[] = {&first, &others...};
    const bool is_grouped = cuda_can_group(all, 1 + (int)sizeof...(others));
    const int c = first.c;

    if (first.elem == SP_ELEM_BF16)
        return is_grouped ? cuda_launch_sums<cuda_bf16, 8>(be, f, sample_row, n_samples,
                                                           c, sums)
                          : cuda_launch_sums<cuda_bf16, 1>(be, f, sample_row, n_samples,
                                                           c, sums);
    return is_grouped
               ? cuda_launch_sums<float, 4>(be, f, sample_row, n_samples, c, sums)
               : cuda_launch_sums<float, 1>(be, f, sample_row, n_samples, c, sums);
}

/* The values of a tensor of any type, one element at a time. */
struct cuda_values : cuda_plain {
    sp_tensor x;

    template <class T, int N> struct item {
    };
    template <class T, int N> __device__ void load(int64_t, int, item<T, N> *) const {}
    template <class T, int N>
    __device__ void add(const channels<N> &, const item<T, N> &, int64_t i, int j,
                        double *a, double *) const
    {
        *a += cuda_get(x, i, j);
    }
};

/* Writes sums [n_samples][2][c] (device): the sums of x over the rows of each sample,
 * and zeros. */
static inline sp_status cuda_sample_sums(sp_backend *be, const sp_tensor &x,
                                         const int32_t *sample_row, int n_samples,
                                         double *sums)
{
    return cuda_launch_sums<float, 1>(be, cuda_values{{}, x}, sample_row, n_samples,
                                      x.c, sums);
}

#endif
