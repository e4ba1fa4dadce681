/* A kernel map in the form that the device's kernels read (sp_map.device).
 *
 * Output-stationary form, for the convolution and for its input gradient: the input
 * rows (neighbours) of each output row are adjacent, by rising offset.
 *
 *     row o   mask bits 1, 13, 14   ->   nbr[first[o]] .. nbr[first[o] + 2]
 *
 * Each tile of a kernel processes 128 or 256 consecutive rows of `order`. Rows with
 * similar masks are adjacent there, so that a tile skips the offsets that its rows
 * lack; a tile may hold rows of several samples. The value of a row does not depend on
 * this.
 *
 * `order` is sorted in windows of rows, so that the rows that concurrent blocks gather
 * fit the L2. Window w has the samples that begin in rows 65536 w .. 65536 w + 65535.
 * The waste of tiles, their work over the pairs' work, counted from the maps of level 0
 * of crops of a 64-beam scan at 5 cm:
 *
 *                  1 or 2 scans of 94,444   4 x 10,000   8 x 10,000   8 x 2,000
 *     windows                       1.51         1.61         1.59        1.87
 *     each sample                   1.51         1.93         1.96        2.68
 *
 * The rows of a window rise by a key; rows of equal key keep their order:
 *
 *     kernel 1, 2   Gray place of the mask
 *     3             Gray place of 6 bits, highest first: is any offset at -z, +z, -x,
 *                   +x, -y, +y present; then the Gray place of the 26 offsets
 *                   other than the centre: 32 bits
 *     wider         Gray place of 12 bits: is any offset in planes 0, n - 1, 1, n - 2
 *                   of z, x, y present; then the key of the inner 3^3. Waste of a 5^3
 *                   kernel on that scan, counted: 3.9; only by the inner 3^3, 9.4
 *
 * The Gray place of v is its position in the Gray code, the i with v = i ^ i >> 1. The
 * inner 3^3 of a kernel of edge n begins at offset (n - 3) / 2 along each axis.
 *
 * The whole units of 512 rows of a window, counted from the first row of the map, are
 * then sorted by the number of offsets that they hold, largest first. Long tiles begin
 * first and the last ones to end are short. The tiles of a unit have similar masks, so
 * that a cluster of four blocks, or a tile of 256 rows, has few more offsets than each of
 * them. A unit belongs to the window of its first row. Expected of a training step
 * (spbench roofline, honest; tests/results/README): 12.69 ms unsorted, 12.54, 12.38,
 * 12.29 and 12.55 ms with units of 128, 256, 512 and 1,024 rows.
 *
 * An alternative that was rejected is to split the masks: each of 2 or 3 groups of
 * offsets has an order of its own, by the key of its part of the mask, and a launch of
 * its own that adds to fp32 sums in memory. The ratios are counted as above, at tiles
 * that skip by 16 and by 128 rows. The milliseconds are expected, for all 3^3
 * convolutions of a MinkUNet34, forward and input gradient, on two scans: products at
 * 473 TFLOP/s, sums at 4.3 TB/s, 2 us a launch.
 *
 *     groups                        16 rows   128 rows   products   sums, launches
 *     one                              1.43       1.67        4.4              0
 *     offsets 0 .. 13 | 14 .. 26       1.17       1.37        3.6              1.6
 *     z = 0 | z != 0                   1.18       1.37        3.6              1.6
 *     x + y + z even | odd             1.18       1.40        3.6              1.6
 *     faces | edges and corners        1.24       1.44        3.8              1.6
 *     planes of z                      1.06       1.23        3.2              3.1
 *
 * Splitting only the layers that gain by it is expected to gain 0.04 ms of a step of 11
 * ms; 0.2 ms if the sums stay in the L2 and products skip by 128 rows. Surfaces gain
 * nothing; their waste at 16 rows is 1.05 to 1.27 (counted). A better single order is
 * unlikely: of 6,000 keys (half planes and edges too, offsets in any sequence) the best
 * wastes 1.4 % less, and 100 million swaps of rows between tiles save 6 % (both
 * counted). Skipping by 8 rows instead of 16 (rows as the n of the mma instead of its
 * m) would save 5 % of the products (counted).
 *
 * Pair form, for the weight gradient: the pairs of one sample and one offset are
 * adjacent, by rising output row. Their order depends only on that sample.
 */
#ifndef CUDA_MAP_H
#define CUDA_MAP_H

#include "compute/sp_plan.h"

#include <stdint.h>

enum {
    CUDA_MAP_WINDOW = 1 << 16,
    CUDA_TILE_ROWS = 128,  /* of a tile, and of a part of the sums of its rows */
    CUDA_TALL_ROWS = 256,  /* of a tall tile */
    CUDA_ORDER_ROWS = 512, /* of four tiles, the unit of the sort of `order` */
    CUDA_MAP_KEY_BITS = 44 /* of the longest key */
};

/* The bits of the key of `order`, by the edge of the kernel. Maps with equally long
 * keys are sorted together, each with its windows apart. */
static inline int cuda_map_key_bits(int kernel)
{
    return kernel < 3 ? 8 : kernel == 3 ? 32 : CUDA_MAP_KEY_BITS;
}

/* The index in the spec of the coarsest 3^3 map, whose neighbours are found before the
 * other maps; -1 if there is no such map. */
static inline int cuda_map_find_top(const sp_plan_spec *spec)
{
    int top = -1;

    for (int m = 0; m < spec->n_maps; m++) {
        const sp_map_key key = spec->map[m];

        if (key.level_in == key.level_out && key.kernel == 3 && !key.is_swapped &&
            (top < 0 || key.level_out > spec->map[top].level_out))
            top = m;
    }
    return top;
}

typedef struct cuda_map {
    int K, n_words;      /* offsets; words of a mask, ceil(K / 32) */
    int32_t n_in, n_out; /* rows of the input and of the output level */
    int n_samples;
    int64_t pairs;
    /* [n_words][n_out] bit k % 32 of word k / 32: row has offset k. */
    const uint32_t *mask;
    const int32_t *first; /* [n_out + 1] first entry of each row in nbr */
    const int32_t *nbr;   /* [pairs] input rows, by output row and offset */
    const int32_t *order; /* [n_out] output rows in the order of the tiles */
    const int32_t *pair_in, *pair_out; /* [pairs] rows of each pair */
    /* [n_samples * K + 1] host memory: first pair of each sample and offset */
    const int32_t *pair_start;
} cuda_map;

#endif
