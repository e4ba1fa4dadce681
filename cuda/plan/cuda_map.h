/* A kernel map as the device's kernels read it (sp_map.device).
 *
 * Output-stationary form, for the convolution forward and for its input gradient: the
 * neighbours of each output row behind one another, by rising offset.
 *
 *     row o   mask bits 1, 13, 14   ->   nbr[first[o]] .. nbr[first[o] + 2]
 *
 * Tiles of the kernels take 128 rows at a time of `order`: rows whose masks are alike
 * stand together, so that a tile skips the offsets that none of its rows has; a tile
 * may hold rows of several samples. The value of a row depends on none of this. Rows
 * stand window by window, since what a wave of blocks gathers should fit the L2: window
 * w has the samples that begin in rows 65536 w .. 65536 w + 65535. Work at 128 rows
 * over that of the pairs, level 0 of crops of a 64-beam scan at 5 cm:
 *
 *                  1 or 2 scans of 94,444   4 x 10,000   8 x 10,000   8 x 2,000
 *     windows                       1.51         1.61         1.59        1.87
 *     each sample                   1.51         1.93         1.96        2.68
 *
 * A window's rows rise by a key, equal ones by row:
 *
 *     kernel 1, 2   Gray place of the mask
 *     3             Gray place of 6 bits: is there anything at -z, +z, -x, +x, -y, +y
 *                   (highest first); then the Gray place of the 26 offsets besides the
 *                   centre: 32 bits
 *     wider         Gray place of 12 bits: is there anything in the planes 0, n - 1, 1,
 *                   n - 2 of z, of x, of y; then the key of the inner 3^3. A 5^3 kernel
 *                   on the scan above: 3.9 at 128 rows; 9.4 by the inner 3^3 alone
 *
 * Then a window's whole tiles of 128 rows, counted from the first row of all, are put in
 * falling order of the offsets that they hold: long ones begin first, and what ends last
 * is short. With 2 tiles at a time on 132 multiprocessors the convolutions of two scans
 * end 6 to 21 % earlier for that on the three finest levels, if a tile's time is that of
 * its offsets and two more. A tile belongs to the window of its first row.
 *
 * The Gray place of v is the i with v = i ^ i >> 1. The inner 3^3 of a kernel of edge n
 * begins at offset (n - 3) / 2 along each axis.
 *
 * Counted and refused: split masks, where each of 2 or 3 groups of offsets has an order
 * of its own, by the key of its part of the mask, and a launch of its own that adds to
 * fp32 sums in memory. Work over that of the pairs as above; milliseconds of all 3^3
 * convolutions of a MinkUNet34, forward and towards the input, on two scans: products
 * at 473 TFLOP/s, and what sums (at 4.3 TB/s) and launches (2 us) come to:
 *
 *     groups                        16 rows   128 rows   products   sums, launches
 *     one                              1.43       1.67        4.4              0
 *     offsets 0 .. 13 | 14 .. 26       1.17       1.37        3.6              1.6
 *     z = 0 | z != 0                   1.18       1.37        3.6              1.6
 *     x + y + z even | odd             1.18       1.40        3.6              1.6
 *     faces | edges and corners        1.24       1.44        3.8              1.6
 *     planes of z                      1.06       1.23        3.2              3.1
 *
 * Split only where it pays, layer by layer, 0.04 ms of an 11 ms step are gained; 0.2 if
 * sums stay in the L2 and products skip by 128 rows. Surfaces, which waste 1.05 to 1.27
 * at 16 rows, gain nothing. One order can hardly be better: of 6,000 keys (half planes
 * and edges too, offsets in any sequence) the best wastes 1.4 % less, and 100 million
 * swaps of rows between tiles save 6 %. Skipping by 8 rows instead of 16 (the n of the
 * mma instead of its m) would save 5 % of the products.
 *
 * Pair form, for the weight gradient: the pairs of one sample and one offset behind one
 * another, by rising output row. Their order depends on that sample alone.
 */
#ifndef CUDA_MAP_H
#define CUDA_MAP_H

#include <stdint.h>

enum { CUDA_MAP_WINDOW = 1 << 16, CUDA_TILE_ROWS = 128 };

typedef struct cuda_map {
    int K, n_words;      /* offsets; words of a mask, ceil(K / 32) */
    int32_t n_in, n_out; /* rows */
    int n_samples;
    int64_t pairs;
    const uint32_t
        *mask; /* [n_words][n_out] bit k % 32 of word k / 32: offset k is there */
    const int32_t *first; /* [n_out + 1] */
    const int32_t *nbr;   /* [pairs] input rows */
    const int32_t *order; /* [n_out] output rows in the order of the tiles */
    const int32_t *pair_in, *pair_out; /* [pairs] */
    const int32_t *pair_start;         /* [n_samples * K + 1] device */
    const int32_t *pair_start_host;    /* the same, host */
} cuda_map;

#endif
