/* The epilogue of a convolution: the sums of a tile, in registers, become rows of y.
 * Each warp passes 16 rows at a time through shared memory, so that device memory is
 * accessed by 8 or 16 bytes. On the way the epilogue computes v = [y +] [bias +] sum,
 * and the sums for which a following operation would read v again:
 *
 *     forward          sums of v and v^2                     batch norm that reads y
 *     in evaluation    v = act(sum scale + shift [+ res])    the whole batch norm
 *     input gradient   v = g = v act'(.); sums of g, g xhat  the preceding batch norm
 *                      sums of g, g xhat                     its residual norm
 *
 * Each sum covers CUDA_TILE_ROWS rows (a tile has one or two such groups) of the values
 * as stored, in double; if rows are bf16, 16 rows at a time in fp32. It is formed of
 * pieces of 32 rows (16 if a warp has no 32 adjacent ones), added in order, so that no
 * bit depends on the height of the tile or the arrangement of the warps. The rows of a
 * tile belong to several samples and are in the map's order, which is the same in every
 * run.
 *
 * A lane handles the same chunk of N channels in each of its rows, so the constants of
 * these channels stay in registers if there are enough (no IS_TIGHT). Chunks that
 * cannot be accessed as one (rows that are not aligned, the last channels, the border
 * of a norm's columns, fp32 rows of a product in bf16) are handled channel by channel,
 * in the same arithmetic. The loops are rolled, because the machine code of all groups
 * and all kinds of call would not fit the instruction caches.
 */
#ifndef CUDA_CONV_OUT_CUH
#define CUDA_CONV_OUT_CUH

#include <type_traits>

#include "cuda/conv/cuda_mma.cuh"
#include "cuda/device/cuda_rows.cuh"
#include "cuda/plan/cuda_map.h"

/* The result of a convolution and the sums that the epilogue forms of it. */
struct conv_result {
    sp_tensor y;
    const float *bias;
    double *part; /* [tiles][2][channels of y or of the norm] sums, or NULL */
    bool is_added, is_aligned;
    /* The norm of conv_forward_norm_apply, with scale, shift and slope of below, and its
     * residual, unless res.data is NULL. */
    bool is_normed;
    sp_tensor res;
    /* The norm of conv_grad_input_norm_sums; its output's gradient is the columns of y
     * from `column` on. x.data is NULL if there is no norm. */
    sp_tensor x, act; /* output of the activation; if act.data is NULL, the sign is
                       * taken from x scale + shift */
    const float *mean, *inv_std, *scale, *shift;
    float slope;
    int column;
    /* The residual norm; x.data is NULL without one. */
    struct {
        sp_tensor x;
        const float *mean, *inv_std;
        double *part; /* as part of the first norm */
    } residual;
};

/* The sums of a column: of v; of v times `other` (xhat of the norm, else v); of v times
 * xhat of the residual norm. */
enum { CONV_SUMS = 3 };

/* N adjacent floats, aligned to 16 bytes. */
template <int N>
__device__ static inline void conv_read(const float *from, float (&v)[N])
{
#pragma unroll
    for (int j = 0; j < N; j += 4) {
        const float4 f = *(const float4 *)(from + j);

        v[j] = f.x, v[j + 1] = f.y, v[j + 2] = f.z, v[j + 3] = f.w;
    }
}

template <int N>
__device__ static inline void conv_write(float *to, const float (&v)[N])
{
#pragma unroll
    for (int j = 0; j < N; j += 4)
        *(float4 *)(to + j) = make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]);
}

/* The norm's constants of N channels. */
template <int N> struct conv_constants {
    float mean[N], inv_std[N], scale[N], shift[N];

    /* j: the first of the channels. */
    __device__ void read(const conv_result &a, int j)
    {
        conv_read(a.mean + j, mean);
        conv_read(a.inv_std + j, inv_std);
        if (a.scale && a.slope != 1) {
            conv_read(a.scale + j, scale);
            conv_read(a.shift + j, shift);
        }
    }

    /* Copies the constants of `from` from its channel j on. */
    template <int M> __device__ void copy(const conv_constants<M> &from, int j)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            mean[i] = from.mean[j + i];
            inv_std[i] = from.inv_std[j + i];
            scale[i] = from.scale[j + i];
            shift[i] = from.shift[j + i];
        }
    }
};

/* T is the tile; P defines which lane holds which element of a group of 16 rows; E is
 * the element type of y that is accessed by chunks. */
template <class P, class T, class E> struct conv_out {
    enum {
        /* Two blocks of 256 threads on an SM leave 128 registers to each thread. */
        IS_TIGHT = T::THREADS * T::BLOCKS >= 512,
        N = 16 / sizeof(E), /* channels of a chunk */
        CHUNKS = T::NT * 8 / N,
        LANES = CHUNKS <= 4   ? 4
                : CHUNKS <= 8 ? 8
                              : 16, /* lanes of a row */
        AT_ONCE = 32 / LANES,       /* rows of the warp's lanes */
        TIMES = 16 / AT_ONCE,
        AHEAD = IS_TIGHT ? 1 : 2 /* rows loaded at a time */
    };
    static_assert(CHUNKS <= LANES && TIMES % AHEAD == 0, "whole batches of rows");
    typedef cuda_pack<E, N> chunk;

    const conv_result &a;
    const int32_t *row;  /* [BM] rows of y, -1 if absent */
    const int64_t part0; /* the block's first part in a.part */
    const int first;     /* column of the block */
    int warp, lane;
    int column0;          /* the warp's first column */
    int c;                /* of the lane's chunk, from column0 on */
    bool exists;          /* the chunk has channels of y */
    bool is_whole;        /* it can be accessed as one */
    bool has_norm;        /* and all of it belongs to the norm */
    float *value, *other; /* [16][PITCH] of the warp: v; xhat of the norm */

    __device__ conv_out(const conv_result &result, const int32_t *rows, int64_t part,
                        int column, char *shared)
        : a(result), row(rows), part0(part), first(column)
    {
        warp = (int)threadIdx.x / 32;
        lane = (int)threadIdx.x % 32;
        column0 = column + warp / T::WM * T::NT * 8;
        c = lane % LANES * N;
        value = (float *)shared + warp * 16 * T::PITCH;
        other = value + T::WARPS * 16 * T::PITCH;
        describe_chunk();
    }

    __device__ void describe_chunk()
    {
        const int n = column0 + c, m = n - a.column;
        const bool is_outside = !a.x.data || m + N <= 0 || m >= a.x.c;

        exists = c < T::NT * 8 && n < a.y.c;
        has_norm = a.x.data && m >= 0 && m + N <= a.x.c;
        is_whole = exists && a.is_aligned && n + N <= a.y.c &&
                   (is_outside || has_norm) &&
                   (a.y.elem == SP_ELEM_BF16) == (sizeof(E) == 2);
    }

    /* The sums of one piece, GROUPS times 16 rows. */
    typedef double piece_sums[CONV_SUMS][T::BN];
    enum { GROUPS = T::GROUPS, PIECES = T::BM / (16 * GROUPS) };
    static_assert(T::MT % GROUPS == 0, "whole pieces of a warp");

    /* Writes the rows of the tile. put(i, value) stores the sums of the warp's group i
     * of 16 rows; `pieces` has room for PIECES pieces. */
    template <class F> __device__ void write(const F &put, piece_sums *pieces)
    {
#pragma unroll 1
        for (int i = 0; i < T::MT; i++) {
            const int group = T::group(warp, i);
            const int32_t *rows = row + group * 16;

            put(i, value);
            if (a.is_normed)
                finish_norm(rows);
            /* Flags of the chunk that are kept over this loop spill on sm_80 and
             * sm_100; three comparisons for 16 rows cost less. */
            c = sp_opaque(c);
            describe_chunk();
            __syncwarp();
            if (a.x.data)
                pass<true>(rows);
            else
                pass<false>(rows);
            __syncwarp();
            if (a.part)
                add_group(rows, pieces[group / GROUPS], i % GROUPS == 0);
        }
        if (a.part)
            write_sums(pieces);
    }

    /* The lane's row number t of a group. */
    __device__ int row_of(int t) const
    {
        return lane / LANES + t * AT_ONCE;
    }

    /* Applies the norm of y to the values of 16 rows in shared memory, four channels at
     * a time; each lane to those that its pass then reads. In the pass itself its
     * constants would not stay in registers. All chunks are whole. */
    __device__ void finish_norm(const int32_t *rows)
    {
        __syncwarp();
        c = sp_opaque(c);
        if (c >= T::NT * 8 || column0 + c >= a.y.c)
            return;
#pragma unroll 1
        for (int e = 0; e < TIMES * N; e += 4) {
            const int r = sp_opaque(row_of(e / N)), j = c + e % N;

            if (rows[r] >= 0)
                norm_four(rows[r], column0 + j, value + r * T::PITCH + j);
        }
    }

    __device__ void norm_four(int32_t i, int n, float *at) const
    {
        enum { EACH = IS_TIGHT ? 1 : 4 }; /* four at once spill on sm_80 */
#pragma unroll 1
        for (int h = 0; h < 4; h += EACH)
            norm_some<EACH>(i, n + h, at + h);
    }

    template <int EACH> __device__ void norm_some(int32_t i, int n, float *at) const
    {
        float v[EACH], scale[EACH], shift[EACH], res[EACH] = {};

        if constexpr (EACH == 1) {
            v[0] = *at, scale[0] = a.scale[n], shift[0] = a.shift[n];
            if (a.res.data)
                res[0] = cuda_get(a.res, i, n);
        } else {
            conv_read(at, v);
            conv_read(a.scale + n, scale);
            conv_read(a.shift + n, shift);
            if (a.res.data)
                cuda_load<E>(a.res, i, n, res);
        }
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            v[u] = cuda_affine(v[u], scale[u], shift[u]) + res[u];
            at[u] = v[u] > 0 ? v[u] : a.slope * v[u];
        }
    }

    /* Computes v of 16 rows, writes y, and keeps v and xhat for the sums. */
    template <bool IS_NORM> __device__ void pass(const int32_t *rows)
    {
        if (is_whole)
            pass_chunks<IS_NORM>(rows);
        else if (exists)
#pragma unroll 1
            for (int e = 0; e < TIMES * N; e++) {
                const int r = row_of(e / N), j = c + e % N;

                if (rows[r] >= 0 && column0 + j < a.y.c)
                    finish_one<IS_NORM>(rows[r], column0 + j, r * T::PITCH + j);
            }
    }

/* Operands that the call does not have, and rows that are not there, are neither loaded
 * nor used. GCC does not see that the conditions are the same. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
    template <bool IS_NORM> __device__ void pass_chunks(const int32_t *rows)
    {
        conv_constants<N> k;
        float bias[N] = {};

        for (int j = 0; !IS_NORM && a.bias && j < N; j++)
            bias[j] += a.bias[column0 + c + j]; /* never -0 */
        if (IS_NORM && !IS_TIGHT && has_norm)
            k.read(a, column0 + c - a.column);
#pragma unroll 1
        for (int t = 0; t < TIMES; t += AHEAD) {
            /* addresses are computed again if registers are few */
            const int n = IS_TIGHT ? sp_opaque(column0 + c) : column0 + c;
            chunk y[AHEAD], x[AHEAD], act[AHEAD];

            if (IS_TIGHT) /* no register is kept for what another row has left */
                y[0] = x[0] = act[0] = {};

#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (!IS_TIGHT && rows[row_of(t + u)] >= 0)
                    fetch<IS_NORM>(rows[row_of(t + u)], n, &y[u], &x[u], &act[u]);
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (rows[row_of(t + u)] >= 0)
                    finish<IS_NORM>(rows[row_of(t + u)], n,
                                    row_of(t + u) * T::PITCH + c, bias, k, y[u], x[u],
                                    act[u]);
        }
    }

    /* Loads the operands of a chunk: those that the call has. If registers are few,
     * each is loaded when it is needed. */
    template <bool IS_NORM>
    __device__ void fetch(int32_t i, int n, chunk *y, chunk *x, chunk *act) const
    {
        if (a.is_added)
            cuda_load_pack(a.y, i, n, y);
        if (!IS_NORM || !has_norm)
            return;
        cuda_load_pack(a.x, i, n - a.column, x);
        if (a.act.data)
            cuda_load_pack(a.act, i, n - a.column, act);
    }

    /* Finishes a chunk of row i from channel n on. Its sums are at `at` in shared
     * memory. */
    template <bool IS_NORM>
    __device__ void finish(int32_t i, int n, int at, const float (&bias)[N],
                           const conv_constants<N> &k, chunk &y, chunk &x, chunk &act)
    {
        float v[N];
        chunk result;

        conv_read(value + at, v);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] += bias[j];
        if (a.is_added) {
            float old[N];

            if (IS_TIGHT)
                cuda_load_pack(a.y, i, n, &y);
            cuda_unpack(y, old);
#pragma unroll
            for (int j = 0; j < N; j++)
                v[j] += old[j];
        }
        if (IS_NORM && has_norm)
            apply_norm(i, n - a.column, at, k, x, act, v);
        cuda_repack(v, &result);
        *(chunk *)((E *)a.y.data + (int64_t)i * a.y.ld + n) = result;
        if (a.part) {
            cuda_unpack(result, v); /* as y stores it */
            conv_write(value + at, v);
        }
    }

    /* Converts the four channels of a chunk from its channel h on. */
    __device__ static void unpack_four(const chunk &pack, int h, float (&v)[4])
    {
        if constexpr (N == 4) {
            cuda_unpack(pack, v);
        } else {
            cuda_unpack_two(h ? pack.bits.z : pack.bits.x, v);
            cuda_unpack_two(h ? pack.bits.w : pack.bits.y, v + 2);
        }
    }

    /* Multiplies v by act' and keeps xhat, four channels at a time. i: the row; m: the
     * first of the chunk in the norm. */
    __device__ void apply_norm(int32_t i, int m, int at, const conv_constants<N> &k,
                               const chunk &x_chunk, const chunk &act_chunk,
                               float (&v)[N])
    {
#pragma unroll
        for (int h = 0; h < N; h += 4) {
            conv_constants<4> c;
            float x[4], y[4];

            if (IS_TIGHT) {
                c.read(a, m + h);
                cuda_load<E>(a.x, i, m + h, x);
                if (a.act.data)
                    cuda_load<E>(a.act, i, m + h, y);
            } else {
                c.copy(k, h);
                unpack_four(x_chunk, h, x);
                if (a.act.data)
                    unpack_four(act_chunk, h, y);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (!a.act.data)
                    y[j] = cuda_affine(x[j], c.scale[j], c.shift[j]);
                if (a.slope != 1)
                    v[h + j] = y[j] > 0 ? v[h + j] : a.slope * v[h + j];
                x[j] = (x[j] - c.mean[j]) * c.inv_std[j];
            }
            conv_write(other + at + h, x);
        }
    }

#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

    /* Finishes one element, as finish() does a chunk. */
    template <bool IS_NORM> __device__ void finish_one(int32_t i, int n, int at)
    {
        const int m = n - a.column;
        float v = value[at] + (!IS_NORM && a.bias ? a.bias[n] : 0);

        v += a.is_added ? cuda_get(a.y, i, n) : 0;
        if (IS_NORM && m >= 0 && m < a.x.c) {
            const float x = cuda_get(a.x, i, m);

            if (a.slope != 1) {
                const float side = a.act.data ? cuda_get(a.act, i, m)
                                              : cuda_affine(x, a.scale[m], a.shift[m]);
                v = side > 0 ? v : a.slope * v;
            }
            other[at] = (x - a.mean[m]) * a.inv_std[m];
        }
        cuda_put(a.y, i, n, v);
        value[at] = a.y.elem == SP_ELEM_BF16 ? cuda_float_of(cuda_bf16_of(v)) : v;
    }

    /* Overwrites xhat of the first norm with xhat of the residual norm. */
    __device__ void pass_residual(const int32_t *rows)
    {
        const int m = column0 + c - a.column;

        c = sp_opaque(c);
        describe_chunk();
        if (is_whole && has_norm)
#pragma unroll 1
            for (int t = 0; t < TIMES; t++) {
                const int r = row_of(t);
                chunk pack;

                if (rows[r] < 0)
                    continue;
                cuda_load_pack(a.residual.x, rows[r], m, &pack);
#pragma unroll
                for (int h = 0; h < N; h += 4) {
                    float x[4], mean[4], inv_std[4];

                    unpack_four(pack, h, x);
                    conv_read(a.residual.mean + m + h, mean);
                    conv_read(a.residual.inv_std + m + h, inv_std);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        x[j] = (x[j] - mean[j]) * inv_std[j];
                    conv_write(other + r * T::PITCH + c + h, x);
                }
            }
        else if (exists && !is_whole)
#pragma unroll 1
            for (int e = 0; e < TIMES * N; e++) {
                const int r = row_of(e / N), j = e % N;

                if (rows[r] >= 0 && m + j >= 0 && m + j < a.x.c)
                    other[r * T::PITCH + c + j] =
                        (cuda_get(a.residual.x, rows[r], m + j) -
                         a.residual.mean[m + j]) *
                        a.residual.inv_std[m + j];
            }
    }

    /* Adds the columns of 16 rows to a piece; is_first: they are its first. */
    __device__ void add_group(const int32_t *rows, piece_sums &piece, bool is_first)
    {
        const int n_rows = __popc(__ballot_sync(~0u, lane < 16 && rows[lane] >= 0));

        if (a.x.data)
            add_columns<true, false>(n_rows, piece[0], piece[1], is_first);
        else
            add_columns<true, true>(n_rows, piece[0], piece[1], is_first);
        __syncwarp();
        if (!a.residual.x.data)
            return;
        pass_residual(rows);
        __syncwarp();
        add_columns<false, false>(n_rows, piece[0], piece[2], is_first);
        __syncwarp();
    }

    /* Sums over a group of 16 rows. A value of bf16 has 8 bits, so the sum of 16 of
     * them, or of their squares, in fp32 loses far less than rounding the values has
     * lost. Most devices have few units for double. */
    enum { IS_SHORT = sizeof(E) == 2 };
    typedef std::conditional_t<IS_SHORT, float, double> group_sum;

    /* Adds the first n_rows of 16 rows: v to plain, if IS_PLAIN; v^2, if IS_SQUARE, or
     * v xhat to times. The sums stay in shared memory, since registers are few. */
    template <bool IS_PLAIN, bool IS_SQUARE>
    __device__ void add_columns(int n_rows, double *plain, double *times, bool is_first)
    {
#pragma unroll 1
        for (int e = 0; e < T::COLUMNS; e++) {
            const int column = lane + 32 * e, at = warp / T::WM * T::NT * 8 + column;
            double before_p, before_q;
            group_sum p, q;

            if (column >= T::NT * 8)
                continue;
            before_p = is_first || !IS_PLAIN ? 0 : plain[at];
            before_q = is_first ? 0 : times[at];
            p = IS_SHORT ? 0 : (group_sum)before_p;
            q = IS_SHORT ? 0 : (group_sum)before_q;
#pragma unroll 4
            for (int r = 0; r < n_rows; r++) {
                const group_sum v = value[r * T::PITCH + column];

                if (IS_PLAIN)
                    p += v;
                q += v * (IS_SQUARE ? v : (group_sum)other[r * T::PITCH + column]);
            }
            if (IS_PLAIN)
                plain[at] = IS_SHORT ? before_p + p : p;
            times[at] = IS_SHORT ? before_q + q : q;
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
        for (int s = 0; s < (a.residual.x.data ? 3 : 2); s++) {
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
