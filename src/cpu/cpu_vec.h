/* Vector types and operations of one instruction set. Each version compiles the same
 * sources with LANES and ISA_FILE of its own, which the Makefile sets. */
#ifndef SP_CPU_VEC_H
#define SP_CPU_VEC_H

#include <string.h>

#include "cpu/cpu_isa.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
/* IVDEP asserts to the compiler that the iterations of the next loop are independent.
 * SHUFFLE selects lanes of v, or SHUFFLE_2 of x and y joined, in the order that the
 * vector `from` names: clang has this builtin for literal orders only, and makes the
 * same instruction of the loop. */
#ifdef __clang__
#define IVDEP            _Pragma("clang loop vectorize(assume_safety)")
#define SHUFFLE(v, from) SHUFFLE_2(v, v, from)
#define SHUFFLE_2(x, y, from)                                                          \
    ({                                                                                 \
        __typeof__(-(x)) x_ = (x), y_ = (y), r_ = x_;                                  \
        const int n_ = sizeof x_ / sizeof x_[0];                                       \
        UNROLL                                                                         \
        for (int l_ = 0; l_ < n_; l_++)                                                \
            r_[l_] = (int)(from)[l_] < n_ ? x_[(from)[l_] % n_] : y_[(from)[l_] % n_]; \
        r_;                                                                            \
    })
#else
#define IVDEP                 _Pragma("GCC ivdep")
#define SHUFFLE(v, from)      __builtin_shuffle(v, from)
#define SHUFFLE_2(x, y, from) __builtin_shuffle(x, y, from)
#endif

enum { HALF = LANES / 2 };
/* A vector of words, and as many numbers of 16 bits; half a vector, with a mask of it
 * and in double; and the other types of 8 bytes with the same number of elements. */
typedef uint32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint16_t svec __attribute__((vector_size(2 * LANES)));
typedef float hvec __attribute__((vector_size(4 * HALF)));
typedef int32_t hmask __attribute__((vector_size(4 * HALF)));
typedef double dvec __attribute__((vector_size(8 * HALF)));
typedef int64_t lvec __attribute__((vector_size(8 * HALF)));
typedef uint64_t uvec __attribute__((vector_size(8 * HALF)));

#include ISA_FILE
#ifndef CONV_BLOCKS /* 16 registers: the blocks of both versions that have so many */
enum { NR_MAX = 2 };
#define CONV_BLOCKS(X)  X(12, 1) X(6, 2)
#define WGRAD_BLOCKS(X) X(12, 1) X(6, 2)
enum { PANELS_MAX = 6, WGRAD_LEAST = 5 };
#define LISTED_BLOCKS(X)                                                               \
    X(2, 3, 2, 1)                                                                      \
    X(2, 3, 2, 2) X(1, 4, 2, 1) X(1, 4, 2, 2) X(1, 5, 2, 1) X(1, 5, 2, 2)              \
        X(1, 6, 2, 1) X(1, 6, 2, 2)
#endif

enum { LISTED_VECTORS = (int)NR_MAX * (int)PANELS_MAX }; /* of a group of panels */

INLINE int min_i(int a, int b)
{
    return a < b ? a : b;
}
INLINE int vectors(int c)
{
    return (c + LANES - 1) / LANES;
}

/* The number of vectors in the panel that begins at vector v of nv. Panels have nearly
 * equal widths: 96 columns are 3 + 3 vectors, not 4 + 2. */
INLINE int panel_width(int v, int nv)
{
    int panels = (nv - v + NR_MAX - 1) / NR_MAX;
    return (nv - v + panels - 1) / panels;
}

/* The number of panels in the group that begins at vector v of nv; groups have nearly
 * equal widths, too. */
INLINE int group_width(int v, int nv)
{
    const int panels = (nv - v + NR_MAX - 1) / NR_MAX;
    const int groups = (panels + PANELS_MAX - 1) / PANELS_MAX;

    return (panels + groups - 1) / groups;
}

INLINE size_t packed_floats(int c_in, int c_out)
{
    return (size_t)c_in * (size_t)(vectors(c_out) * LANES);
}

/* Steps of the inner loops are unrolled by 4, because the exit of a loop of 64 trips is
 * mispredicted and of 16 trips is not. The fence between steps keeps gcc 12 from
 * loading the operands of all four steps first, which cost 10 % of peak with 16
 * registers (measured); with 32 it is neutral. PIN keeps gcc from reordering the rows
 * of a step, for which it stored sums in memory. */
enum { STEPS = 4 };
#define FENCE __asm__ volatile("" ::: "memory");
#ifndef PIN
#define PIN(sum)
#endif

/* Lists the functions M x N for each number of rows M and one number of vectors N. */
#define UP_TO_6(F, N)  F(1, N) F(2, N) F(3, N) F(4, N) F(5, N) F(6, N)
#define UP_TO_7(F, N)  UP_TO_6(F, N) F(7, N)
#define UP_TO_8(F, N)  UP_TO_7(F, N) F(8, N)
#define UP_TO_10(F, N) UP_TO_8(F, N) F(9, N) F(10, N)
#define UP_TO_12(F, N) UP_TO_10(F, N) F(11, N) F(12, N)

/* The pairs of one tile, and the rows to prefetch for the next one. */
typedef struct tile {
    const int32_t *start; /* [K + 1] first pair of each offset in `in` and `out` */
    const int32_t *in, *out;
    int K;
    int64_t row, end;           /* output rows */
    int64_t x_row, y_row;       /* added to the entries of `in` and `out` */
    int64_t next_x, next_x_end; /* estimate of the rows that the next tile reads */
    int64_t next_y, next_y_end;
} tile;

INLINE tile tile_of_map(const sp_map *m, int t)
{
    const double in_per_out = m->n_out ? (double)m->n_in / m->n_out : 0;
    const int after = t + 1 < m->n_tiles ? t + 2 : t + 1;
    tile r = {.start = m->start + (size_t)t * m->K,
              .in = m->in,
              .out = m->out,
              .K = m->K,
              .row = m->tile_row[t],
              .end = m->tile_row[t + 1],
              .next_y = m->tile_row[t + 1],
              .next_y_end = m->tile_row[after]};

    r.next_x = (int64_t)((double)r.next_y * in_per_out);
    r.next_x_end = (int64_t)((double)r.next_y_end * in_per_out);
    return r;
}

/* A tile of rows row .. end - 1, cut to SP_TILE rows, of a tensor of n rows; each row
 * is its own pair. start [2] is filled. */
INLINE tile tile_of_rows(int64_t row, int64_t end, int64_t n, int32_t *start)
{
    int64_t next = row + SP_TILE < end ? row + SP_TILE : end;
    int64_t last = next + SP_TILE < n ? next + SP_TILE : n;

    start[0] = 0;
    start[1] = (int32_t)(next - row);
    tile r = {start, sp_cpu_iota, sp_cpu_iota, 1,    row,  next,
              row,   row,         next,        last, next, last};

    return r;
}

/* The number of tiles that a weight gradient adds up, and tile i of them. start [2] is
 * filled if it has no map. */
INLINE int count_tiles(const sp_cpu_wgrad *g)
{
    return g->map ? g->tile1 - g->tile0 : (g->end - g->row + SP_TILE - 1) / SP_TILE;
}

INLINE tile tile_of_wgrad(const sp_cpu_wgrad *g, int i, int32_t *start)
{
    return g->map ? tile_of_map(g->map, g->tile0 + i)
                  : tile_of_rows(g->row + (int64_t)i * SP_TILE, g->end, g->end, start);
}

/* Tile `index` of a convolution. start [2] is filled if it has no map. */
INLINE tile tile_of_conv(const sp_cpu_conv *c, int index, int32_t *start)
{
    if (c->map)
        return tile_of_map(c->map, index);
    if (c->tile)
        return tile_of_rows(c->tile[index].row, c->tile[index].end, c->y.n, start);
    return tile_of_rows((int64_t)index * SP_TILE, c->y.n, c->y.n, start);
}

/* Is it a 2^3 kernel of stride 2 upwards? Then every output row has one pair, its
 * parent. */
INLINE bool has_one_pair(const sp_map *m)
{
    return m && m->key.kernel == 2 && m->key.level_in == m->key.level_out + 1;
}

/* ---- prefetch ----
 * While a tile is computed, the next tile's rows of two tensors are brought to L2, a
 * few lines per block. In Morton order a tile reads nearly the rows of its own range,
 * so two linear walks cover what would otherwise miss to L3 or memory. (Prefetching the
 * next block's rows to L1 was slower than no prefetch, measured: the out-of-order
 * window does that by itself.) */
typedef struct ahead {
    const char *at[2], *end[2];
    int lines; /* per block and tensor */
    /* Rows of a list in place of all: so many are left, and fetched per block. */
    int n, rows;
    const int32_t *row[2];
    int64_t apart[2], bytes[2]; /* of the rows that begin at `at` */
} ahead;

INLINE ahead ahead_open(const tile *t, const sp_tensor *x, const sp_tensor *y,
                        int blocks)
{
    ahead a = {
        .at = {sp_row_bytes(*x, t->next_x), sp_row_bytes(*y, t->next_y)},
        .end = {sp_row_bytes(*x, t->next_x_end), sp_row_bytes(*y, t->next_y_end)}};
    long n0 = a.end[0] - a.at[0], n1 = a.end[1] - a.at[1];

    a.lines = (int)((n0 > n1 ? n0 : n1) / 64 / (blocks + 1)) + 1;
    return a;
}

/* Only rows in [n] of x and out [n] of y. */
INLINE ahead ahead_list(const sp_tensor *x, const sp_tensor *y, const int32_t *in,
                        const int32_t *out, int n, int blocks)
{
    const int64_t size_x = (int64_t)sp_elem_bytes(x->elem);
    const int64_t size_y = (int64_t)sp_elem_bytes(y->elem);
    ahead a = {.at = {sp_row_bytes(*x, 0), sp_row_bytes(*y, 0)},
               .n = n,
               .rows = n / (blocks + 1) + 1,
               .row = {in, out},
               .apart = {x->ld * size_x, y->ld * size_y},
               .bytes = {x->c * size_x, y->c * size_y}};

    return a;
}

INLINE void ahead_step(ahead *a)
{
    for (int r = 0; r < a->rows && a->n > 0; r++, a->n--)
        for (int i = 0; i < 2; i++) {
            const char *at = a->at[i] + *a->row[i]++ * a->apart[i];
            for (int64_t b = 0; b < a->bytes[i]; b += 64)
                __builtin_prefetch(at + b, 0, 2);
        }
    for (int i = 0; i < a->lines; i++) {
        if (a->at[0] < a->end[0])
            __builtin_prefetch(a->at[0], 0, 2);
        if (a->at[1] < a->end[1])
            __builtin_prefetch(a->at[1], 0, 2);
        a->at[0] += 64;
        a->at[1] += 64;
    }
}

/* ---- packing ---- */

/* Forward, so many rows of weights are packed at a time, while the next ones are fetched
 * to L2. Weights come from memory, and the processor predicts no pieces of rows. */
enum { PACK_ROWS = 8 };

INLINE void fetch_floats(const float *p, int n)
{
    for (int i = 0; i < n; i += 16)
        __builtin_prefetch(p + i, 0, 2);
}

/* Exchanges the off-diagonal squares of edge `step` of all rows i and i + step. */
INLINE void exchange(vec row[LANES], const uint32_t step)
{
    ivec low, high; /* from the 2 * LANES lanes of both rows */

    UNROLL
    for (uint32_t l = 0; l < LANES; l++) {
        low[l] = (l & ~step) + (l & step ? LANES : 0);
        high[l] = low[l] + step;
    }
    UNROLL
    for (uint32_t i = 0; i < LANES; i++)
        if (!(i & step)) {
            const vec x = row[i], y = row[i ^ step]; /* i + step */
            row[i] = SHUFFLE_2(x, y, low);
            row[i ^ step] = SHUFFLE_2(x, y, high);
        }
}

/* Transposes the squares of 4 x 4 lanes of four rows. AVX2 has instructions for these
 * orders, and not for those of exchange with steps of 1. */
INLINE void transpose_fours(vec row[4])
{
    ivec low, high, even, odd;

    UNROLL
    for (uint32_t l = 0; l < LANES; l++) {
        low[l] = (l & ~3u) + l % 4 / 2 + l % 2 * LANES;
        high[l] = low[l] + 2;
        even[l] = (l & ~3u) + l % 2 + l % 4 / 2 * LANES;
        odd[l] = even[l] + 2;
    }
    const vec a = SHUFFLE_2(row[0], row[1], low), b = SHUFFLE_2(row[0], row[1], high);
    const vec c = SHUFFLE_2(row[2], row[3], low), d = SHUFFLE_2(row[2], row[3], high);

    row[0] = SHUFFLE_2(a, c, even);
    row[1] = SHUFFLE_2(a, c, odd);
    row[2] = SHUFFLE_2(b, d, even);
    row[3] = SHUFFLE_2(b, d, odd);
}

/* Transposes a square in registers. */
INLINE void transpose_square(vec row[LANES])
{
    if (LANES > 8)
        exchange(row, 8);
    if (LANES > 4)
        exchange(row, 4);
    UNROLL
    for (int i = 0; i < LANES; i += 4)
        transpose_fours(row + i);
}

/* ---- one version's functions, gathered in ISA(isa); meanings in cpu_isa.h ---- */
#define DECLARE(slot) SP_CPU_KERNEL(slot) ISA(slot);
SP_CPU_PRODUCTS(DECLARE)
SP_CPU_PACKING(DECLARE)
SP_CPU_ROWS(DECLARE)
SP_CPU_FP32(DECLARE)
#undef DECLARE
/* Adds offset k over the tile by c->list. is_first: the rows of y have no value yet. */
void ISA(add_listed)(const sp_cpu_conv *c, const tile *t, int k, bool is_first,
                     ahead *next);
/* to[i][j] = w[j][i] for words i < n, j < width; rows of w are ld apart. */
void ISA(transpose)(const float *w, size_t ld, int n, int width, size_t ld_to,
                    float *to);
extern const sp_cpu_isa ISA(bf16_isa); /* src/bf16 */

#endif
