/* The epilogue of a convolution: the sums of a tile, in registers, become rows of y.
 * Each warp passes 16 rows at a time through shared memory, so that device memory is
 * accessed by 16 bytes. On the way the epilogue computes v = [y +] [bias +] sum, and
 * the sums for which a following operation would read v again:
 *
 *     forward          sums of v and v^2                     batch norm that reads y
 *     input gradient   v = g = v act'(.); sums of g, g xhat  the preceding batch norm
 *                      sums of g, g xhat                     its residual norm
 *
 * Each sum covers CUDA_TILE_ROWS rows, in double, of the values as they are stored. It
 * is formed of pieces of 32 rows (16 where a warp has no more), added in order, so that
 * no bit depends on the arrangement of the warps. The rows of a tile belong to several
 * samples and are in the map's order, which is the same in every run.
 *
 * The operands that a row needs (y itself, or x and y of the norm) are loaded several
 * rows ahead.
 */
#ifndef CUDA_CONV_OUT_CUH
#define CUDA_CONV_OUT_CUH

#include "cuda/conv/cuda_mma.cuh"
#include "cuda/device/cuda_rows.cuh"
#include "cuda/plan/cuda_map.h"

/* The result of a convolution and the sums that the epilogue forms of it. */
struct conv_result {
    sp_tensor y;
    const float *bias;
    double *part; /* [tiles][2][channels of y or of the norm] sums; NULL: none */
    bool is_added, is_aligned;
    /* The norm of conv_grad_input_norm_sums, the gradient of whose output is the
     * columns of y from `column` on; x.data NULL: none. */
    sp_tensor x, act; /* output of the activation; act.data NULL: the side of 0 is that
                       * of x scale + shift */
    const float *mean, *inv_std, *scale, *shift;
    float slope;
    int column;
    /* The residual norm; x.data NULL: none. */
    struct {
        sp_tensor x;
        const float *mean, *inv_std;
        double *part; /* as part of the first norm */
    } residual;
};

/* The operands that are loaded for N elements of the epilogue. */
template <class E, int N> struct conv_operands {
    cuda_pack<E, N> y, x, act;
};

/* The sums of a column: of v; of v times `other` (xhat of the norm, else v); of v times
 * xhat of the residual norm. */
enum { CONV_SUMS = 3 };

/* T is the tile; P tells which lane holds which element of a group of 16 rows. */
template <class P, class T> struct conv_out {
    const conv_result &a;
    const int32_t *row;  /* [BM] rows of y, -1: none */
    const int64_t part0; /* the block's first part in a.part */
    const int first;     /* column of the block */
    int column0, warp, lane;
    float *value, *other; /* [16][PITCH] of the warp: v; xhat (without norm, v) */

    __device__ conv_out(const conv_result &result, const int32_t *rows, int64_t part,
                        int column, char *shared)
        : a(result), row(rows), part0(part), first(column)
    {
        warp = (int)threadIdx.x / 32;
        lane = (int)threadIdx.x % 32;
        column0 = column + warp / T::WM * T::NT * 8;
        value = (float *)shared + warp * 16 * T::PITCH;
        other = a.x.data ? value + T::WARPS * 16 * T::PITCH : value;
    }

    /* The sums of one piece, GROUPS times 16 rows. */
    typedef double piece_sums[CONV_SUMS][T::BN];
    enum { GROUPS = T::MT == 1 ? 1 : 2, PIECES = T::BM / (16 * GROUPS) };
    static_assert(T::MT % GROUPS == 0, "whole pieces of a warp");

    /* Writes the rows of the tile. `pieces` has room for PIECES pieces. */
    __device__ void write(const float (&sum)[T::MT][T::NT][4], piece_sums *pieces)
    {
        double total[CONV_SUMS][T::COLUMNS] = {};

#pragma unroll
        for (int i = 0; i < T::MT; i++) {
            const int32_t *rows = row + (warp % T::WM * T::MT + i) * 16;

#pragma unroll
            for (int j = 0; j < T::NT; j++)
#pragma unroll
                for (int v = 0; v < 4; v++)
                    value[P::row(v) * T::PITCH + P::column(j, v)] = sum[i][j][v];
            __syncwarp();
            pass<false>(rows);
            __syncwarp();
            if (a.part) {
                add_columns(rows, total[0], total[1]);
                __syncwarp();
            }
            if (a.residual.x.data) {
                double again[T::COLUMNS] = {};

                pass<true>(rows);
                __syncwarp();
                add_columns(rows, again, total[2]);
                __syncwarp();
            }
            if (a.part && (i + 1) % GROUPS == 0)
                put_piece(total, pieces[(warp % T::WM * T::MT + i) / GROUPS]);
        }
        if (a.part)
            write_sums(pieces);
    }

    template <bool IS_RESIDUAL> __device__ void pass(const int32_t *rows)
    {
        if (a.y.elem == SP_ELEM_BF16)
            pass_rows<cuda_bf16, 8, IS_RESIDUAL>(rows);
        else
            pass_rows<float, 4, IS_RESIDUAL>(rows);
    }

    /* Passes 16 rows of the warp's columns, N elements (16 bytes) a lane, AHEAD of them
     * loaded at a time: writes y, or, with IS_RESIDUAL, prepares xhat of the residual
     * norm. */
    template <class E, int N, bool IS_RESIDUAL>
    __device__ void pass_rows(const int32_t *rows)
    {
        enum { ACROSS = T::NT * 8 / N, TIMES = 16 * ACROSS / 32 };
        /* AHEAD is as large as the registers that the sums leave free. A thread has 128
         * registers where two blocks of 256 share an SM. */
        enum { IS_TIGHT = T::THREADS * T::BLOCKS >= 512 };
        enum {
            AHEAD = IS_TIGHT                      ? (T::NT < 8 ? 2 : 1)
                    : TIMES % 3 == 0              ? 3
                    : TIMES % 4 == 0 && T::NT < 8 ? 4
                                                  : 2
        };
        static_assert(TIMES % AHEAD == 0, "whole batches");

#pragma unroll 1
        for (int first = lane; first < 16 * ACROSS; first += 32 * AHEAD) {
            conv_operands<E, N> loaded[AHEAD] = {};

#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int e = first + 32 * u, r = e / ACROSS, c = e % ACROSS * N;
                if (rows[r] < 0 || column0 + c >= a.y.c)
                    continue;
                if (IS_RESIDUAL)
                    fetch_norm(a.residual.x, rows[r], column0 + c, &loaded[u].x);
                else
                    fetch(rows[r], column0 + c, &loaded[u]);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int e = first + 32 * u, r = e / ACROSS, c = e % ACROSS * N;
                if (rows[r] < 0 || column0 + c >= a.y.c)
                    continue;
                if (IS_RESIDUAL)
                    pass_residual(rows[r], column0 + c, r * T::PITCH + c, loaded[u]);
                else
                    finish(rows[r], column0 + c, r * T::PITCH + c, loaded[u]);
            }
        }
    }

    /* Whether channels n .. n + N - 1 exist among c and can be accessed as one. */
    template <int N> __device__ bool is_whole(int n, int c) const
    {
        return n >= 0 && n + N <= c && a.is_aligned;
    }

    template <class E, int N>
    __device__ void fetch(int32_t i, int n, conv_operands<E, N> *to) const
    {
        if (a.is_added && is_whole<N>(n, a.y.c))
            cuda_take(a.y, i, n, &to->y);
        if (a.x.data)
            fetch_norm(a.x, i, n, &to->x);
        if (a.act.data)
            fetch_norm(a.act, i, n, &to->act);
    }

    template <class E, int N>
    __device__ void fetch_norm(const sp_tensor &t, int32_t i, int n,
                               cuda_pack<E, N> *to) const
    {
        if (is_whole<N>(n - a.column, t.c))
            cuda_take(t, i, n - a.column, to);
    }

    /* Converts channels n .. n + N - 1 of t from the pack that was loaded; channels
     * that were not loaded as one are read one by one. */
    template <class E, int N>
    __device__ void open(const sp_tensor &t, int32_t i, int n,
                         const cuda_pack<E, N> &pack, float (&v)[N]) const
    {
        if (is_whole<N>(n, t.c))
            cuda_open(pack, v);
        else
            for (int j = 0; j < N; j++)
                v[j] = n + j >= 0 && n + j < t.c ? cuda_get(t, i, n + j) : 0;
    }

    /* Finishes N elements of row i from channel n on, which stand at `at` in shared
     * memory. */
    template <class E, int N>
    __device__ void finish(int32_t i, int n, int at, const conv_operands<E, N> &loaded)
    {
        float v[N], old[N];

        if (a.is_added)
            open(a.y, i, n, loaded.y, old);
        for (int j = 0; j < N; j++)
            v[j] = value[at + j] + (a.bias && n + j < a.y.c ? a.bias[n + j] : 0) +
                   (a.is_added ? old[j] : 0);
        if (a.x.data)
            pass_norm(i, n - a.column, at, loaded, v);
        if (a.part) /* v as y stores it */
            for (int j = 0; j < N; j++)
                value[at + j] =
                    sizeof(E) == 2 ? cuda_float_of(cuda_bf16_of(v[j])) : v[j];
        if (is_whole<N>(n, a.y.c))
            cuda_store<E>(a.y, i, n, v);
        else
            for (int j = 0; j < N && n + j < a.y.c; j++)
                cuda_put(a.y, i, n + j, v[j]);
    }

    /* Applies act' to v and writes xhat. n is the first of N channels of the norm; some
     * of them may lie outside it. */
    template <class E, int N>
    __device__ void pass_norm(int32_t i, int n, int at,
                              const conv_operands<E, N> &loaded, float (&v)[N])
    {
        float x[N], act[N];

        open(a.x, i, n, loaded.x, x);
        if (a.act.data)
            open(a.act, i, n, loaded.act, act);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if ((unsigned)(n + j) >= (unsigned)a.x.c)
                continue;
            if (a.slope != 1) {
                const float side =
                    a.act.data ? act[j]
                               : cuda_affine(x[j], a.scale[n + j], a.shift[n + j]);
                v[j] = side > 0 ? v[j] : a.slope * v[j];
            }
            other[at + j] = (x[j] - a.mean[n + j]) * a.inv_std[n + j];
        }
    }

    template <class E, int N>
    __device__ void pass_residual(int32_t i, int n, int at,
                                  const conv_operands<E, N> &loaded)
    {
        float x[N];

        n -= a.column;
        open(a.residual.x, i, n, loaded.x, x);
#pragma unroll
        for (int j = 0; j < N; j++)
            if ((unsigned)(n + j) < (unsigned)a.x.c)
                other[at + j] =
                    (x[j] - a.residual.mean[n + j]) * a.residual.inv_std[n + j];
    }

    /* Adds the columns of 16 rows: v to plain, v times `other` to times. */
    __device__ void add_columns(const int32_t *rows, double (&plain)[T::COLUMNS],
                                double (&times)[T::COLUMNS])
    {
#pragma unroll
        for (int e = 0; e < T::COLUMNS; e++)
            for (int r = 0; r < 16 && lane + 32 * e < T::NT * 8; r++) {
                const int at = r * T::PITCH + lane + 32 * e;
                if (rows[r] < 0)
                    continue;
                plain[e] += value[at];
                times[e] += (double)value[at] * other[at];
            }
    }

    /* Moves the totals into a piece and clears them. */
    __device__ void put_piece(double (&total)[CONV_SUMS][T::COLUMNS], piece_sums &piece)
    {
#pragma unroll
        for (int e = 0; e < T::COLUMNS; e++)
            for (int s = 0; s < CONV_SUMS && lane + 32 * e < T::NT * 8; s++) {
                piece[s][warp / T::WM * T::NT * 8 + lane + 32 * e] = total[s][e];
                total[s][e] = 0;
            }
    }

    /* Adds the pieces of each part and writes the parts. */
    __device__ void write_sums(const piece_sums *pieces)
    {
        enum { PARTS = T::BM / CUDA_TILE_ROWS, EACH = PIECES / PARTS };
        static_assert(PARTS * T::BN <= T::THREADS, "a thread for each sum");
        const int tid = (int)threadIdx.x, c = tid % T::BN, p = tid / T::BN;
        const int n = first + c - a.column, width = a.x.data ? a.x.c : a.y.c;
        const size_t at = (size_t)(part0 + p) * 2 * width + n;

        __syncthreads();
        if (p >= PARTS || n < 0 || n >= width || (part0 + p) * CUDA_TILE_ROWS >= a.y.n)
            return;
        for (int s = 0; s < CONV_SUMS; s++) {
            double sum = 0;

            for (int i = 0; i < EACH; i++)
                sum += pieces[p * EACH + i][s][c];
            if (s < 2)
                a.part[at + s * width] = sum;
            if (s != 1 && a.residual.x.data)
                a.residual.part[at + s / 2 * width] = sum;
        }
    }
};

#endif
