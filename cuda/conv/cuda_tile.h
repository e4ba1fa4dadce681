/* The tiles of the GEMM kernels, and their choice by formula. This is plain C, because
 * it is shared by the kernels' host code and by what counts their work without a device
 * (cuda_count.h).
 */
#ifndef CUDA_TILE_H
#define CUDA_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/plan/cuda_map.h"

/* The tiles of the tensor cores (cuda_conv.cu), as X(index, name, rows, columns, warps
 * along the rows, warps along the columns, blocks of an SM). cuda_tile_by_formula
 * chooses its columns from the first four, in this order. Tall tiles have 256 rows.
 * There is no 96 with 128 rows and 8 warps: its columns do not divide among the warps.
 */
#define CUDA_TILE_LIST(X)                                                              \
    X(CUDA_TILE_32, "32", 128, 32, 4, 1, 3)                                            \
    X(CUDA_TILE_64, "64", 128, 64, 4, 1, 3)                                            \
    X(CUDA_TILE_96, "96", 128, 96, 2, 2, 2)                                            \
    X(CUDA_TILE_128, "128", 128, 128, 2, 2, 2)                                         \
    X(CUDA_TILE_64_8, "64:8", 128, 64, 4, 2, 2)                                        \
    X(CUDA_TILE_128_8, "128:8", 128, 128, 4, 2, 2)                                     \
    X(CUDA_TALL_96, "256x96", 256, 96, 4, 2, 1)                                        \
    X(CUDA_TALL_128, "256x128", 256, 128, 4, 2, 1)

#define CUDA_TILE_INDEX(index, name, rows, columns, wm, wn, blocks) index,
enum { CUDA_TILE_LIST(CUDA_TILE_INDEX) CUDA_TILES };
#undef CUDA_TILE_INDEX

typedef struct cuda_tile {
    /* The tile's name in SP_TILES: columns, and ":8" for 8 warps; or rows x columns. */
    const char *name;
    int rows, columns;
    int warps[2]; /* along the rows and along the columns */
    int blocks;   /* of an SM */
} cuda_tile;

static inline cuda_tile cuda_tile_at(int i)
{
#define CUDA_TILE_ROW(index, name, rows, columns, wm, wn, blocks)                      \
    {name, rows, columns, {wm, wn}, blocks},
    static const cuda_tile tile[CUDA_TILES] = {CUDA_TILE_LIST(CUDA_TILE_ROW)};
#undef CUDA_TILE_ROW

    return tile[i];
}

enum {
    /* The shared memory of a block that every device from 8.0 on grants: 8.6, 8.9 and
     * 12.0 have no more. All tiles except tall and wgmma ones fit into it. */
    CUDA_LEAST_BYTES = 99 << 10,
    /* The shared memory of a tall tile is at most this much. */
    CUDA_TALL_BYTES = 130 << 10,
    /* Tall tiles serve kernels of at least this many offsets: smaller ones read few
     * weights. */
    CUDA_TALL_OFFSETS = 27,
    /* The formula chooses tall tiles if they fill the multiprocessors at least this
     * many times. */
    CUDA_TALL_WAVES = 2
};

/* The properties of a device that the choice depends on. */
typedef struct cuda_sms {
    int n;           /* multiprocessors */
    int block_bytes; /* the shared memory that a block may have */
} cuda_sms;

/* The entry of columns[n], rising, that needs the fewest columns in all for c channels,
 * where each pass over the rows counts as 64 columns more for its gathers. */
static inline int cuda_fewest_columns(int c, const int *columns, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if ((c + columns[i] - 1) / columns[i] * (columns[i] + 64) <=
            (c + columns[best] - 1) / columns[best] * (columns[best] + 64))
            best = i;
    return best;
}

/* True if tall tiles of that many columns are right for a result of n rows and c
 * channels. They halve the weights that pass through the L2. But a block has an SM to
 * itself, and the longest tile holds up to twice as many offsets as the mean one, so
 * that with few blocks most SMs would wait for the longest. */
static inline bool cuda_is_tall(cuda_sms sms, int64_t n, int c, int columns)
{
    const int64_t blocks =
        (n + CUDA_TALL_ROWS - 1) / CUDA_TALL_ROWS * ((c + columns - 1) / columns);

    return sms.block_bytes >= CUDA_TALL_BYTES &&
           blocks >= (int64_t)CUDA_TALL_WAVES * sms.n;
}

/* The tile for a result of n rows and c channels by a kernel of K offsets. */
static inline int cuda_tile_by_formula(cuda_sms sms, int64_t n, int c, int K)
{
    const int columns[] = {cuda_tile_at(0).columns, cuda_tile_at(1).columns,
                           cuda_tile_at(2).columns, cuda_tile_at(3).columns};
    const int tile = cuda_fewest_columns(c, columns, 4);

    if (columns[tile] < 96 || K < CUDA_TALL_OFFSETS ||
        !cuda_is_tall(sms, n, c, columns[tile]))
        return tile;
    return columns[tile] == 96 ? CUDA_TALL_96 : CUDA_TALL_128;
}

/* ---- wgmma (cuda_conv_wgmma.cu) ---- */

enum {
    CUDA_WGMMA_LEAST = 128, /* channels of a result */
    /* Channels of a k-tile. An offset of 96 channels is one deep k-tile. */
    CUDA_WGMMA_DEPTH = 64,
    CUDA_WGMMA_DEEP = 96,
    /* Blocks of a cluster that share their weights. With eight, a training step would
     * read 2.0 GB less and last 0.4 ms longer: the lists of offsets, a union of the
     * blocks', have 14 to 24 % more than those of four. */
    CUDA_WGMMA_FOUR = 4
};

/* The channels of a k-tile for a kernel of K offsets of c_x channels, if an offset
 * consists of whole k-tiles; else 0. Deep ones serve kernels of many offsets. */
static inline int cuda_wgmma_depth(int K, int c_x)
{
    return c_x % CUDA_WGMMA_DEPTH == 0                            ? CUDA_WGMMA_DEPTH
           : c_x % CUDA_WGMMA_DEEP == 0 && K >= CUDA_TALL_OFFSETS ? CUDA_WGMMA_DEEP
                                                                  : 0;
}

/* True if a call in bf16 gains from wgmma, by the count of its instructions: a k-tile
 * of 128 columns needs 65 % of the instructions of mma.sync and multiplies at a higher
 * rate (tests/results/code-sm_90.txt). Products of K c_x < 512 are bound by the L2 or
 * by their launch, whatever multiplies; with at most 8 channels offsets share units.
 * Results of 96 channels gain because the weights pass through the L2 once for 512 rows
 * and not for 256; of 64, at most as much as wgmma's instructions cost. The exact
 * measure would be t c_x, t the pairs of a row, but t changes with the batch, and the
 * bits of a row must not depend on the batch. */
static inline bool cuda_wgmma_gains(int K, int c_x, int c_y)
{
    if (c_y == 96)
        return K >= CUDA_TALL_OFFSETS && cuda_wgmma_depth(K, c_x) > 0;
    return c_y >= CUDA_WGMMA_LEAST && c_x > 8 && (int64_t)K * c_x >= 512;
}

/* The channels of a k-tile, if such a call has its weights packed by whole k-tiles, to
 * be brought by bulk copies (cuda_conv_pack.cu); else 0. */
static inline int cuda_wgmma_tiled(int K, int c_x, int c_y)
{
    return cuda_wgmma_gains(K, c_x, c_y) ? cuda_wgmma_depth(K, c_x) : 0;
}

/* The tile of such a call: 128 rows, the columns, channels of a whole k-tile (else 0),
 * blocks of a cluster. */
typedef struct cuda_wgmma_tile {
    int columns, depth, cluster;
} cuda_wgmma_tile;

/* The tile for a call with a result of c_y channels by a kernel of K offsets of c_x
 * channels.
 *
 * A tile has 128 or 256 columns, whichever cost less: rows are gathered and masked
 * again for each tile of columns, which counts as 64 columns more. Kernels of many
 * offsets read more bytes of weights than of rows; there the blocks of a cluster bring
 * the weights once for all of them, and tiles have 96 or 128 columns. With 256 a block
 * has an SM to itself, which is idle while the block waits: for the block of its cluster
 * that has most rows of an offset (13 % of the products of four blocks, 7 % of two), and
 * for the longest tile, which holds up to twice as many offsets as the mean one. Counted
 * by spbench roofline (tests/results/README). */
static inline cuda_wgmma_tile cuda_wgmma_choose(int K, int c_x, int c_y)
{
    static const int columns[] = {256, 128, 96};
    const int depth = cuda_wgmma_tiled(K, c_x, c_y);
    const bool is_shared = K >= CUDA_TALL_OFFSETS && depth > 0;
    const int first = is_shared ? 1 : 0;
    const cuda_wgmma_tile tile = {
        columns[first + cuda_fewest_columns(c_y, columns + first, 2)], depth,
        is_shared ? CUDA_WGMMA_FOUR : 1};

    return tile;
}

/* ---- weight gradient (cuda_wgrad.cu) ---- */

enum {
    CUDA_SHORT_ITEM = 2048,
    CUDA_LONG_ITEM = 4096,
    /* Channels of a tile of wgmma (cuda_wgrad_wgmma.cu), and the fewest of x and of dy
     * that it serves: with fewer, most of its products would be idle. */
    CUDA_WGRAD_NARROW = 128,
    CUDA_WGRAD_WIDE = 256,
    CUDA_WGRAD_LEAST = 64
};

/* A tile of the weight gradient: channels of x and of dy. */
typedef struct cuda_wgrad_tile {
    int in, out;
    bool is_wgmma;
} cuda_wgrad_tile;

static inline int cuda_wgrad_tiles(int c_in, int c_out, cuda_wgrad_tile t)
{
    return (c_in + t.in - 1) / t.in * ((c_out + t.out - 1) / t.out);
}

/* The channels that all tiles gather for a pair: a row of x for each tile along dy, and
 * the other way round. */
static inline int cuda_wgrad_gathers(int c_in, int c_out, cuda_wgrad_tile t)
{
    return c_in * ((c_out + t.out - 1) / t.out) + c_out * ((c_in + t.in - 1) / t.in);
}

/* The square tile of mma.sync, or of fp32: least arithmetic, when the gathers of a tile
 * count as 64 channels more. is_wide: edges of 96 and 128 exist too. */
static inline cuda_wgrad_tile cuda_wgrad_square(int c_in, int c_out, bool is_wide)
{
    cuda_wgrad_tile best = {32, 32, false};

    for (int t = 64; t <= (is_wide ? 128 : 64); t += 32) {
        const cuda_wgrad_tile next = {t, t, false};
        if (cuda_wgrad_tiles(c_in, c_out, next) * t * (t + 64) <=
            cuda_wgrad_tiles(c_in, c_out, best) * best.in * (best.in + 64))
            best = next;
    }
    return best;
}

/* The clocks of an SM for a pair in bf16, by spbench roofline's rates of an H100: 24
 * bytes through the L2, 1638 products by wgmma and 1270 by mma.sync in a clock. */
static inline double cuda_wgrad_clocks(int c_in, int c_out, cuda_wgrad_tile t)
{
    const double l2 = 2.0 * cuda_wgrad_gathers(c_in, c_out, t) / 24;
    const double products = (double)cuda_wgrad_tiles(c_in, c_out, t) * t.in * t.out /
                            (t.is_wgmma ? 1638 : 1270);

    return l2 > products ? l2 : products;
}

/* The tile of rows of whole chunks. is_wgmma: in bf16, on a device that has wgmma; then
 * wgmma's tile, the wide side along the channels that so gather least, if that saves at
 * least an eighth. The number of pairs has no say: the order of sums inside the tensor
 * cores may differ, and a sample's bits must not depend on the batch. */
static inline cuda_wgrad_tile cuda_wgrad_choose(bool is_wgmma, int c_in, int c_out)
{
    const cuda_wgrad_tile square = cuda_wgrad_square(c_in, c_out, true);
    const cuda_wgrad_tile along_dy = {CUDA_WGRAD_NARROW, CUDA_WGRAD_WIDE, true};
    const cuda_wgrad_tile along_x = {CUDA_WGRAD_WIDE, CUDA_WGRAD_NARROW, true};
    const cuda_wgrad_tile best = cuda_wgrad_clocks(c_in, c_out, along_x) <
                                         cuda_wgrad_clocks(c_in, c_out, along_dy)
                                     ? along_x
                                     : along_dy;

    return is_wgmma && c_in % 8 == 0 && c_out % 8 == 0 && c_in >= CUDA_WGRAD_LEAST &&
                   c_out >= CUDA_WGRAD_LEAST &&
                   8 * cuda_wgrad_clocks(c_in, c_out, best) <=
                       7 * cuda_wgrad_clocks(c_in, c_out, square)
               ? best
               : square;
}

/* The number of pairs of an item, for a kernel of K offsets. wgmma has one block of an
 * SM, so that the few lists of a small kernel are cut into more items to fill the
 * device. */
static inline int cuda_wgrad_item(int c_in, int c_out, int K, bool is_wgmma)
{
    const cuda_wgrad_tile square = {128, 128, false};

    if (is_wgmma && K < CUDA_TALL_OFFSETS)
        return CUDA_SHORT_ITEM / 2;
    return cuda_wgrad_tiles(c_in, c_out, square) < 4 ? CUDA_SHORT_ITEM : CUDA_LONG_ITEM;
}

#endif
