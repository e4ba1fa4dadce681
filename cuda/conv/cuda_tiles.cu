/* The choice of a convolution's tile, by timing on the device when the backend is
 * opened.
 *
 * Tiles of the tensor cores differ in columns and warps (cuda_conv.cu). The fastest one
 * depends on the width of the result and on whether its rows fill the device: if they
 * do not, narrow tiles make more blocks. No bit of a result or of its sums depends on
 * the tile, so every rank measures for itself, and a continued run may choose another
 * one.
 *
 * Three synthetic maps represent all. They have half, two and four times as many tiles
 * of 128 rows as the device has multiprocessors. Their tiles hold 27 to 3 of 27 offsets
 * in falling order, as cuda_map.h orders them. A row has 3 in 5 of its tile's offsets,
 * 9 on average, each paired with a random row of x. For each width, with x as wide as
 * y, the tiles are timed in turn, several times; a tile with a median 3 % below the
 * formula's tile displaces it.
 *
 * Tall tiles are left out if a block of the device has too little shared memory.
 *
 * Cases without a measurement: other numbers of offsets and widths of x, which make
 * tiles longer or shorter; more than 256 channels, if there are enough blocks
 * (formula); fp32, which is bound by its multiply-adds. SP_TILES=64:8, for example,
 * uses that tile for all products by mma.sync, to compare; SP_TILES=formula times
 * nothing. A device of fewer than 4 multiprocessors is not timed either, since it has
 * no waves to fill: the emulator of the tests has one, and its clock says nothing about
 * tiles.
 */
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_env.h"
#include "base/sp_log.h"
#include "cuda/conv/cuda_conv.cuh"

namespace
{

enum { K = 27, RUNS = 2, REPEATS = 5, MOST_REPEATS = 16 };
const double WORTH = 0.97;

bool is_possible(const sp_cuda *cuda, int tile)
{
    return cuda_tile_at(tile).rows == CUDA_TILE_ROWS ||
           cuda->block_bytes >= CUDA_TALL_BYTES;
}

/* ---- a synthetic map and a convolution on it ---- */

/* Draws a map of n rows: mask [n], first [n + 1], nbr [K n]. */
void draw_map(int n, uint32_t *mask, int32_t *first, int32_t *nbr)
{
    const int n_tiles = n / CUDA_TILE_ROWS;
    unsigned draw = 1;

    first[0] = 0;
    for (int i = 0; i < n; i++) {
        const int tile = i / CUDA_TILE_ROWS, there = K - (K - 3) * tile / n_tiles;
        const int own = (3 * there + 4) / 5;

        mask[i] = 0;
        for (int j = 0; j < own; j++) { /* rows of a group of 16 have similar masks */
            const int of_tile = (i / 16 * 3 + i % 4 + j) % there;
            mask[i] |= 1u << (7 * tile + of_tile) % K;
            draw = draw * 1664525u + 1013904223u;
            nbr[first[i] + j] = (int32_t)((uint64_t)draw * (unsigned)n >> 32);
        }
        first[i + 1] = first[i] + own;
    }
}

sp_status tiles_upload_map(sp_backend *be, sp_arena *arena, int n, cuda_map *map)
{
    const size_t words = 2 * (size_t)n + 1 + (size_t)K * (size_t)n;
    int32_t *host = (int32_t *)malloc(words * sizeof *host), *device = NULL;
    sp_status rc = SP_ALLOC(arena, words, &device);

    if (!host)
        return SP_FAIL(SP_EMEM, "tiles: out of memory");
    if (rc == SP_OK) {
        draw_map(n, (uint32_t *)host, host + n, host + 2 * n + 1);
        rc = sp_cuda_upload(be, device, host, words * sizeof *host);
    }
    free(host);
    map->K = K;
    map->n_words = 1;
    map->n_in = map->n_out = n;
    map->mask = (const uint32_t *)device;
    map->first = device + n;
    map->nbr = device + 2 * n + 1;
    return rc;
}

/* The convolution that is timed, with the sums that most convolutions form. */
struct operands {
    sp_conv_args conv;
    double *sums;
};

/* Allocates operands of arbitrary finite values for results of up to `widest` channels.
 */
sp_status tiles_alloc_operands(sp_backend *be, sp_arena *arena, int n, int widest,
                               operands *o)
{
    const sp_elem elem = be->precision == SP_BF16 ? SP_ELEM_BF16 : SP_ELEM_F32;
    const size_t x_bytes = (size_t)n * (size_t)widest * sp_elem_bytes(elem);
    const size_t w_bytes = sp_cuda_conv_pack_floats(be, K, widest, widest, false) * 4;
    char *x, *y, *w;

    SP_TRY(sp_arena_alloc(arena, x_bytes, (void **)&x));
    SP_TRY(sp_arena_alloc(arena, x_bytes, (void **)&y));
    SP_TRY(sp_arena_alloc(arena, w_bytes, (void **)&w));
    SP_TRY(SP_ALLOC(arena, 2 * sp_cuda_fused_parts(n, 1).n * widest, &o->sums));
    SP_TRY(sp_cuda_fill(be, x, 0x3c, x_bytes));
    SP_TRY(sp_cuda_fill(be, w, 0x3c, w_bytes));
    o->conv.x = {(float *)x, n, 0, 0, elem};
    o->conv.y = {(float *)y, n, 0, 0, elem};
    o->conv.w_packed = (const float *)w;
    return SP_OK;
}

/* ---- time ---- */

/* Times RUNS convolutions. They follow one that keeps the device busy while the host
 * queues them. */
sp_status time_tile(sp_backend *be, const operands &o, double *seconds)
{
    SP_TRY(sp_cuda_conv_forward_norm_sums(be, &o.conv, NULL, 0, o.sums));
    SP_TRY(sp_cuda_clock_begin(be));
    for (int i = 0; i < RUNS; i++)
        SP_TRY(sp_cuda_conv_forward_norm_sums(be, &o.conv, NULL, 0, o.sums));
    return sp_cuda_clock_end(be, seconds);
}

double median(double *v, int n)
{
    std::sort(v, v + n);
    return v[n / 2];
}

/* Chooses the tile for x and y of c channels and stores it in *tile. */
sp_status tiles_choose(sp_backend *be, operands o, int c, int repeats, uint8_t *tile)
{
    const sp_cuda *cuda = cuda_of(be);
    const int prior = cuda_tile_by_formula(cuda_sms_of(be), o.conv.y.n, c, K);
    double time[CUDA_TILES][MOST_REPEATS];
    int best = prior;
    double least;

    o.conv.x.c = o.conv.x.ld = o.conv.y.c = o.conv.y.ld = c;
    for (int r = 0; r < repeats; r++)
        for (int t = 0; t < CUDA_TILES; t++)
            if (cuda_tile_at(t).columns <= c && is_possible(cuda, t)) {
                *tile = (uint8_t)t;
                SP_TRY(time_tile(be, o, &time[t][r]));
            }
    least = WORTH * median(time[prior], repeats);
    for (int t = 0; t < CUDA_TILES; t++) {
        if (cuda_tile_at(t).columns > c || !is_possible(cuda, t) || t == prior ||
            median(time[t], repeats) >= least)
            continue;
        least = median(time[t], repeats);
        best = t;
    }
    *tile = (uint8_t)best;
    return SP_OK;
}

/* Chooses the tiles of all widths on a map of n rows. */
sp_status choose_all(sp_backend *be, sp_arena *arena, int n, int widest, int repeats,
                     uint8_t *tile)
{
    cuda_map map = {};
    sp_map of = {};
    operands o = {};

    SP_TRY(tiles_upload_map(be, arena, n, &map));
    SP_TRY(tiles_alloc_operands(be, arena, n, widest, &o));
    of.device = &map;
    of.n_in = of.n_out = n;
    o.conv.map = &of;
    for (int i = 0; i < CUDA_TILE_WIDTHS && 32 * (i + 1) <= widest; i++)
        SP_TRY(tiles_choose(be, o, 32 * (i + 1), repeats, &tile[i]));
    return SP_OK;
}

/* ---- SP_TILES and the log ---- */

#define NAME_OF(index, name, rows, columns, wm, wn, blocks) " " name
const char tile_names[] = CUDA_TILE_LIST(NAME_OF);
#undef NAME_OF

sp_status tiles_parse(const sp_cuda *cuda, const char *text, uint8_t *tile)
{
    for (*tile = 0; *tile < CUDA_TILES; ++*tile)
        if (strcmp(text, cuda_tile_at(*tile).name) == 0)
            break;
    if (*tile < CUDA_TILES && !is_possible(cuda, *tile))
        return SP_FAIL(SP_EDEVICE,
                       "SP_TILES=%s: a block of this tile needs %d bytes of shared "
                       "memory, and the device has %d: choose another tile",
                       text, (int)CUDA_TALL_BYTES, cuda->block_bytes);
    if (*tile < CUDA_TILES || strcmp(text, "formula") == 0)
        return SP_OK;
    return SP_FAIL(SP_EUSAGE,
                   "SP_TILES=%s: expected formula or a tile%s: columns (and warps), or "
                   "rows x columns",
                   text, tile_names);
}

void tiles_print_row(const uint8_t *tile, char *to, size_t size)
{
    for (int i = 0, at = 0; i < CUDA_TILE_WIDTHS; i++)
        at += snprintf(to + at, size - (size_t)at, " %s", cuda_tile_at(tile[i]).name);
}

void print_choice(const sp_cuda *cuda, double seconds)
{
    const long long rows = (long long)CUDA_TILE_ROWS * cuda->n_multiprocessors;
    char row[CUDA_TILE_HEIGHTS][96];

    for (int i = 0; i < CUDA_TILE_HEIGHTS; i++)
        tiles_print_row(cuda->tile[i], row[i], sizeof row[i]);
    sp_log_info("convolution tiles for 32, 64 .. 256 channels, timed in %.0f ms:%s; "
                "below %lld rows:%s; below %lld:%s",
                1e3 * seconds, row[2], 4 * rows, row[1], rows, row[0]);
}

void set_all(sp_cuda *cuda, uint8_t tile)
{
    memset(cuda->tile, tile, sizeof cuda->tile);
}

} // namespace

int cuda_tile_of(sp_backend *be, int64_t n, int c, int K)
{
    const sp_cuda *cuda = cuda_of(be);
    const int64_t rows = (int64_t)CUDA_TILE_ROWS * cuda->n_multiprocessors;
    const int tile = cuda->tile[(n >= rows) + (n >= 4 * rows)]
                               [std::min((c - 1) / 32, (int)CUDA_TILE_WIDTHS)];

    if (tile >= CUDA_TILES)
        return cuda_tile_by_formula(cuda_sms_of(be), n, c, K);
    if (K >= CUDA_TALL_OFFSETS || cuda_tile_at(tile).rows == CUDA_TILE_ROWS)
        return tile;
    return tile == CUDA_TALL_96 ? CUDA_TILE_96 : CUDA_TILE_128;
}

sp_status sp_cuda_tiles_measure(sp_backend *be, int widest, int repeats)
{
    sp_cuda *cuda = cuda_of(be);
    const int n = cuda->n_multiprocessors;
    sp_arena arena;
    sp_status rc = sp_cuda_arena_create(&arena, 0, "tiles");

    for (int i = 0; rc == SP_OK && i < CUDA_TILE_HEIGHTS; i++) {
        sp_arena_reset(&arena);
        rc = choose_all(be, &arena, CUDA_TILE_ROWS * (i ? 2 * i * n : (n + 1) / 2),
                        widest, std::min(repeats, (int)MOST_REPEATS), cuda->tile[i]);
    }
    sp_cuda_arena_destroy(&arena);
    return rc;
}

sp_status sp_cuda_tiles_open(sp_backend *be)
{
    sp_cuda *cuda = cuda_of(be);
    const char *text = sp_env("SP_TILES");
    const double begin = sp_now_s();
    const bool is_wgmma = be->is_wgmma;
    uint8_t tile = CUDA_TILES;
    sp_status rc;

    SP_CUDA(cudaDeviceGetAttribute(
        &cuda->block_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, be->device));
    if (text && *text)
        SP_TRY(tiles_parse(cuda, text, &tile));
    set_all(cuda, tile);
    if ((text && *text) || cuda->n_multiprocessors < 4 || be->precision == SP_FP32)
        return SP_OK;
    be->is_wgmma = false; /* wgmma has tiles of its own, and was not checked yet */
    rc = sp_cuda_tiles_measure(be, 32 * CUDA_TILE_WIDTHS, REPEATS);
    be->is_wgmma = is_wgmma;
    if (rc == SP_EMEM) { /* others use the device; the step reports it if it must */
        sp_log_info("convolution tiles by the formula: %s", sp_error_last()->message);
        set_all(cuda, CUDA_TILES);
        return SP_OK;
    }
    if (rc == SP_OK)
        print_choice(cuda, sp_now_s() - begin);
    return rc;
}
