/* The second order of sums of products in bf16, for the tiles of Intel's AMX_BF16,
 * which form 16 times as many products a cycle as multiply-adds of fp32 do.
 *
 *     x  rows of bf16 --gathered: 32 pairs of rows--+
 *                                                   +--> products of an offset -> y
 *     w  fp32 --packed: 32 channels are a chunk-----+    (tile_conv.c)
 *
 *     x   gathered: 32 pairs x channels, transposed-+
 *                                                   +--> dW, fp32   (tile_wgrad.c)
 *     dy  gathered: 32 pairs x channels-------------+
 *
 * One operation, TDPBF16PS, forms all products. To each sum it adds a chunk of 32
 * products. The numbers are two to a word, `even` the lower one:
 *
 *     even = odd = +0
 *     for each of the 16 words: even = even + a.even * b.even
 *                               odd  = odd + a.odd * b.odd
 *     sum = sum + (even + odd)
 *
 * Each step is rounded once to nearest with ties to even; subnormal operands count as 0
 * and a subnormal result becomes 0 with its sign. (Intel 64 and IA-32 Architectures
 * Software Developer's Manual, volume 2, TDPBF16PS.) A chunk that is not full is filled
 * up with zeros, on both sides.
 *
 *     output of a convolution   its first value (the bias, 0 or the present value);
 *                               each offset's products are added to it in fp32, the
 *                               centre offset of a full map first, then by rising k. An
 *                               offset's products begin with 0 and add the chunks of
 *                               input channels by rising index.
 *     element of dW[k]          begins with 0; each tile of output rows adds the chunks
 *                               of its pairs of offset k.
 *
 * So a result depends only on its own operands. VDPBF16PS alternates between even and
 * odd within one sum (bf16.h), and no instruction but AMX's forms these sums as fast as
 * it does, so a processor computes in one order or the other: all ranks of a run choose
 * the same one (train.bf16_sums). Two forms of this order have the same bits; only the
 * payload of a NaN may differ:
 *
 *     AMX_BF16   the instruction; a thread configures its tiles for each tile of rows
 *                and releases them, so that nothing else saves or restores them
 *     portable   the steps above by bf16.h's: for tests, and to repeat a run of another
 *                processor. Slow.
 *
 * Floor of a pair of rows with c_in x c_out channels: c_in c_out / 512 cycles of the
 * tile unit (16 a TDPBF16PS of 16 x 16 x 32 products); meanwhile 2 c_in bytes are
 * gathered and 8 c_out bytes of sums are read and written. At 64 x 64 that is 8 cycles
 * beside 2 lines and 8; multiply-adds need 64. */
#ifndef SP_TILE_H
#define SP_TILE_H

#include "cpu/bf16/bf16.h"
#include "cpu/bf16/bf16_weave.h"

enum {
    EDGE = 16,        /* rows of a tile; its columns, of 4 bytes */
    CHUNK = 2 * EDGE, /* numbers with products added to a sum at once */
    PAIRS = 2 * EDGE, /* rows that are multiplied together: two tiles */
    /* Columns of a panel of packed weights or of dW: what two rows of tiles read is
     * consecutive, which L2 delivers faster than lines of a wider panel (measured). */
    PANEL = 2 * EDGE,
    SQUARE = EDGE * EDGE, /* elements of a tile */
    CHANNELS = 256,       /* input channels that a weight gradient gathers at a time */
    /* The operations of one product of tiles, and of one round of multiply_add in
     * bf16_peak.c, so that a caller may ask all versions for rounds of equal work. */
    OPERATION = 2 * SQUARE * CHUNK,
    ROUND = 4 * 16 * 12 * STEPS
};

INLINE int chunks(int n)
{
    return (n + CHUNK - 1) / CHUNK;
}

INLINE int padded_columns(int c)
{
    return (c + EDGE - 1) / EDGE * EDGE;
}

/* Columns of the panel that begins at column `at` of c, filled up to whole tiles. */
INLINE int panel_columns(int at, int c)
{
    return min_i(PANEL, padded_columns(c) - at);
}

/* Words of the packed weights of one offset; they are panels of
 * [chunks * EDGE words][panel_columns]. */
INLINE size_t tile_words(int c_in, int c_out)
{
    return (size_t)chunks(c_in) * EDGE * (size_t)padded_columns(c_out);
}

/* The tile of channels j .. j + 15: two follow one another, and `step` words lie
 * between one pair of tiles and the next. */
INLINE uint32_t *tile_of(uint32_t *first, size_t step, int j)
{
    return first + (size_t)(j / (2 * EDGE)) * step + (j / EDGE % 2) * SQUARE;
}

/* The names of the functions (TILES) and of their table, and the gathering that the
 * instruction set has operations for. */
#include TILES_FILE

/* Operands of products: rows x columns tiles of sums, each of n_chunks chunks. Row r of
 * the a-tile (i, q) is a + (i * EDGE + r) * ld_a + q * step_a; row s of the b-tile (q,
 * j) is b + ((q * EDGE + s) * ld_b + j * EDGE) words. */
typedef struct tile_products {
    const char *a;
    size_t ld_a, step_a; /* bytes */
    const uint32_t *b;
    float *sum; /* row r of the tile (i, j): sum + (i * EDGE + r) * ld + j * EDGE */
    size_t ld_b, ld;   /* words */
    int rows, columns; /* tiles: 1 or 2; any number */
    int n_chunks;
    bool is_added; /* to the sums that are there; else they begin with 0 */
} tile_products;

/* Configures this thread's tiles, and releases them. Only multiply between them. */
void TILES(begin)(void);
void TILES(end)(void);
void TILES(multiply)(const tile_products *p);

/* ---- listed in TILES(isa); meanings in cpu_isa.h ---- */
#define DECLARE(slot) SP_CPU_KERNEL(slot) TILES(slot);
SP_CPU_PRODUCTS(DECLARE)
SP_CPU_PACKING(DECLARE)
#undef DECLARE

#endif
