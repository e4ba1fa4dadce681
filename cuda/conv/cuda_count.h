/* The work of the GEMM kernels, counted on the host without running them: which tile a
 * call gets, how many k-tiles its blocks step through, and the bytes that they move
 * through the L2. spbench roofline prints it; tests compare it with the copies that the
 * emulator sees.
 *
 *     sp_map (host) --cuda_map_host--> masks, order
 *         --cuda_count_tiles--> cuda_row_tiles: offsets of each tile
 *     call: channels, kernel, device --cuda_count_shape--> the tile (cuda_tile.h)
 *     both --cuda_count_conv--> work
 */
#ifndef CUDA_COUNT_H
#define CUDA_COUNT_H

#include "compute/sp_backend.h"
#include "cuda/conv/cuda_tile.h"

/* The offsets that the rows of each tile have, for tiles of `rows` rows of the map's
 * order. */
typedef struct cuda_row_tiles {
    int rows, n;
    int64_t pairs;    /* of the map */
    int32_t *offsets; /* [n] offsets that any row of the tile has */
    int32_t *shared;  /* [n] the same where offsets 2 i and 2 i + 1 count as one */
    /* [n] groups of 16, and of 64, rows that have an offset, summed over the offsets */
    int32_t *groups, *quarters;
} cuda_row_tiles;

/* Counts the tiles of a map; map NULL: n_rows rows, each paired with itself. SP_EMEM.
 * cuda_row_tiles_free follows in any case. */
sp_status cuda_count_tiles(const cuda_map *map, int64_t n_rows, int rows,
                           cuda_row_tiles *tiles);
void cuda_row_tiles_free(cuda_row_tiles *tiles);

/* A call of a convolution, forward or input gradient, as its kernels see it. The rows
 * that it gathers lie at multiples of 16 bytes. */
typedef struct cuda_conv_shape {
    sp_precision precision;
    int64_t n; /* rows of the result */
    int K, c_x, c_y;
    bool is_wgmma; /* the device has it */
} cuda_conv_shape;

/* The work of one kernel. Bytes are those that pass through the L2. */
typedef struct cuda_work {
    char kernel[40];   /* its name in tests/results/code-sm_90.txt */
    bool is_wgmma;     /* it multiplies by wgmma */
    int rows, columns; /* rows: of a cluster's blocks together */
    int cluster;       /* blocks that share a list of offsets and the weights */
    int across;        /* tiles of columns, or of a matrix of the weight gradient */
    int item;          /* pairs of an item of a weight gradient */
    int depth;         /* of its k-tile: pairs, or channels of wgmma */
    int64_t n_blocks;
    double gathered; /* bytes of rows that are copied to shared memory */
    double weights;  /* bytes of weights, or of the slots of a weight gradient */
    double plan;     /* bytes of the map */
    double k_tiles;  /* of all blocks */
    double products; /* multiply-adds of all blocks, idle rows included */
} cuda_work;

/* The tile that a call gets by the formula: its rows, columns and kernel. */
cuda_work cuda_count_shape(const cuda_conv_shape *shape, cuda_sms sms);
/* Counts a call with the tile *work (cuda_count_shape), given the tiles of its map with
 * that many rows. */
void cuda_count_conv(const cuda_conv_shape *shape, const cuda_row_tiles *tiles,
                     cuda_work *work);
/* The k-tiles and products of one block of the call, in row tile t; of a cluster's
 * blocks the mean. */
void cuda_count_block(const cuda_conv_shape *shape, const cuda_row_tiles *tiles,
                      const cuda_work *work, int t, double *k_tiles, double *products);

/* A weight gradient over n_lists lists (of a sample and an offset) of start[i + 1] -
 * start[i] pairs; start NULL, without a map: of n pairs each. */
typedef struct cuda_wgrad_shape {
    sp_precision precision;
    int K, c_in, c_out;
    const int32_t *start; /* [n_lists + 1] or NULL */
    int n_lists;
    int64_t n;
    bool is_wgmma; /* the device has it */
} cuda_wgrad_shape;

void cuda_count_wgrad(const cuda_wgrad_shape *shape, cuda_work *work);
/* The pairs of list i; the k-tiles of an item at whose begin `left` pairs of its list
 * are left. */
int64_t cuda_count_list(const cuda_wgrad_shape *shape, int i);
int64_t cuda_count_steps(const cuda_work *work, int64_t left);

#endif
