#include "cuda/conv/cuda_count.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_BYTES = 32, GROUP = 16, QUARTER = 64 };

/* ---- tiles of rows ---- */

static sp_status count_alloc_tiles(cuda_row_tiles *tiles)
{
    const size_t n = (size_t)tiles->n + 1;

    tiles->offsets = calloc(4 * n, sizeof *tiles->offsets);
    if (!tiles->offsets)
        return SP_FAIL(SP_EMEM, "tiles of a map: out of memory");
    tiles->shared = tiles->offsets + n;
    tiles->groups = tiles->shared + n;
    tiles->quarters = tiles->groups + n;
    return SP_OK;
}

/* The offsets of a word of the masks that any of the rows from..end - 1 has. */
static uint32_t any_of(const cuda_map *m, int word, int64_t from, int64_t end)
{
    const uint32_t *mask = m->mask + (size_t)word * (size_t)m->n_out;
    uint32_t any = 0;

    for (int64_t i = from; i < end && i < m->n_out; i++)
        any |= mask[m->order[i]];
    return any;
}

static void cuda_count_tile(const cuda_map *m, cuda_row_tiles *tiles, int t)
{
    const int64_t from = (int64_t)t * tiles->rows, end = from + tiles->rows;

    for (int w = 0; w < m->n_words; w++) {
        uint32_t all = 0, pairs;

        for (int64_t i = from; i < end; i += QUARTER) {
            uint32_t quarter = 0;
            for (int64_t j = i; j < i + QUARTER; j += GROUP) {
                const uint32_t group = any_of(m, w, j, j + GROUP);
                tiles->groups[t] += __builtin_popcount(group);
                quarter |= group;
            }
            tiles->quarters[t] += __builtin_popcount(quarter);
            all |= quarter;
        }
        pairs = (all | all >> 1) & 0x55555555u;
        tiles->offsets[t] += __builtin_popcount(all);
        tiles->shared[t] += __builtin_popcount(pairs);
    }
}

sp_status cuda_count_tiles(const cuda_map *map, int64_t n_rows, int rows,
                           cuda_row_tiles *tiles)
{
    assert(rows % QUARTER == 0 && (!map || map->n_out == n_rows));
    *tiles = (cuda_row_tiles){.rows = rows,
                              .n = (int)((n_rows + rows - 1) / rows),
                              .pairs = map ? map->pairs : n_rows};
    SP_TRY(count_alloc_tiles(tiles));
    for (int t = 0; t < tiles->n; t++) {
        const int64_t left = n_rows - (int64_t)t * rows;
        const int own = left < rows ? (int)left : rows;

        if (map) {
            cuda_count_tile(map, tiles, t);
            continue;
        }
        tiles->offsets[t] = tiles->shared[t] = 1;
        tiles->groups[t] = (own + GROUP - 1) / GROUP;
        tiles->quarters[t] = (own + QUARTER - 1) / QUARTER;
    }
    return SP_OK;
}

void cuda_row_tiles_free(cuda_row_tiles *tiles)
{
    free(tiles->offsets);
    memset(tiles, 0, sizeof *tiles);
}

/* ---- convolution ---- */

static int elem_bytes(sp_precision precision)
{
    return precision == SP_BF16 ? 2 : 4;
}

static bool count_is_shared(const cuda_conv_shape *s)
{
    return s->c_x * elem_bytes(s->precision) <= UNIT_BYTES / 2;
}

/* True if rows consist of whole k-tiles of that many bytes. */
static bool count_is_whole(const cuda_conv_shape *s, int bytes)
{
    return !count_is_shared(s) && s->c_x * elem_bytes(s->precision) % bytes == 0;
}

/* Units of an offset. */
static int units_of(const cuda_conv_shape *s)
{
    return count_is_shared(s)
               ? 1
               : (s->c_x * elem_bytes(s->precision) + UNIT_BYTES - 1) / UNIT_BYTES;
}

static void describe_wgmma(const cuda_conv_shape *s, cuda_work *work)
{
    const cuda_wgmma_tile tile = cuda_wgmma_choose(s->K, s->c_x, s->c_y);

    work->is_wgmma = true;
    work->columns = tile.columns;
    work->cluster = tile.cluster;
    work->rows = CUDA_TILE_ROWS * tile.cluster;
    work->depth = tile.depth ? tile.depth : CUDA_WGMMA_DEPTH;
    snprintf(work->kernel, sizeof work->kernel, "wgmma bf16 %d%s%s %s", tile.columns,
             tile.depth == CUDA_WGMMA_DEEP ? " deep" : "",
             tile.cluster == CUDA_WGMMA_FOUR ? " four" : "",
             tile.depth ? "whole" : "any");
}

static void describe_mma(const cuda_conv_shape *s, cuda_sms sms, cuda_work *work)
{
    static const int narrow[] = {32, 64};
    const bool whole = count_is_whole(s, 2 * UNIT_BYTES);
    const bool is_narrow = !whole || s->precision == SP_FP32;
    const cuda_tile tile =
        cuda_tile_at(is_narrow ? cuda_fewest_columns(s->c_y, narrow, 2)
                               : cuda_tile_by_formula(sms, s->n, s->c_y, s->K));

    work->rows = tile.rows;
    work->cluster = 1;
    work->columns = tile.columns;
    snprintf(work->kernel, sizeof work->kernel, "conv %s %s%d %dx%d %s",
             sp_precision_word[s->precision], tile.rows == CUDA_TALL_ROWS ? "256x" : "",
             tile.columns, tile.warps[0], tile.warps[1], whole ? "whole" : "any");
}

cuda_work cuda_count_shape(const cuda_conv_shape *s, cuda_sms sms)
{
    cuda_work work = {0};

    if (s->precision == SP_BF16 && s->is_wgmma &&
        cuda_wgmma_gains(s->K, s->c_x, s->c_y))
        describe_wgmma(s, &work);
    else
        describe_mma(s, sms, &work);
    work.across = (s->c_y + work.columns - 1) / work.columns;
    return work;
}

static int64_t units_of_tile(const cuda_conv_shape *s, const cuda_row_tiles *tiles,
                             int t)
{
    return (int64_t)(count_is_shared(s) ? tiles->shared[t] : tiles->offsets[t]) *
           units_of(s);
}

void cuda_count_block(const cuda_conv_shape *s, const cuda_row_tiles *tiles,
                      const cuda_work *work, int t, double *k_tiles, double *products)
{
    const int of_k_tile = work->is_wgmma ? work->depth / 16 : 2; /* units */
    const double depth = (double)units_of(s) * UNIT_BYTES / elem_bytes(s->precision);
    const double rows = work->is_wgmma ? (double)QUARTER * tiles->quarters[t]
                                       : (double)GROUP * tiles->groups[t];

    *k_tiles = (double)((units_of_tile(s, tiles, t) + of_k_tile - 1) / of_k_tile);
    /* two offsets that share a unit are multiplied at once */
    *products =
        rows * depth * work->columns * (count_is_shared(s) ? 0.5 : 1) / work->cluster;
}

/* Reads of the table, for each tile of columns: order, masks, first and neighbours. */
static double plan_bytes(const cuda_conv_shape *s, const cuda_row_tiles *tiles)
{
    const double words = (s->K + 31) / 32;

    return s->K == 1 ? 0
                     : 4.0 * (double)s->n * (2 + words) + 4.0 * (double)tiles->pairs;
}

void cuda_count_conv(const cuda_conv_shape *s, const cuda_row_tiles *tiles,
                     cuda_work *work)
{
    assert(tiles->rows == work->rows);
    work->n_blocks = (int64_t)tiles->n * work->across * work->cluster;
    work->gathered =
        (double)tiles->pairs * s->c_x * elem_bytes(s->precision) * work->across;
    work->plan = plan_bytes(s, tiles) * work->across;
    work->weights = work->k_tiles = work->products = 0;
    for (int t = 0; t < tiles->n; t++) {
        double k_tiles, products;

        cuda_count_block(s, tiles, work, t, &k_tiles, &products);
        work->weights += (double)units_of_tile(s, tiles, t) * s->c_y * UNIT_BYTES;
        work->k_tiles += k_tiles * work->across * work->cluster;
        work->products += products * work->across * work->cluster;
    }
}

/* ---- weight gradient ---- */

int64_t cuda_count_list(const cuda_wgrad_shape *s, int i)
{
    return s->start ? s->start[i + 1] - s->start[i] : s->n;
}

static void describe_wgrad(const cuda_wgrad_shape *s, cuda_wgrad_tile tile, bool whole,
                           cuda_work *work)
{
    const char *warps = s->precision == SP_FP32 ? "2x1"
                        : tile.in == 128        ? "2x4"
                                                : "2x2";

    work->is_wgmma = tile.is_wgmma;
    work->rows = tile.in;
    work->columns = tile.out;
    work->cluster = 1;
    work->across = cuda_wgrad_tiles(s->c_in, s->c_out, tile);
    work->item = cuda_wgrad_item(s->c_in, s->c_out, s->K, tile.is_wgmma);
    work->depth = tile.is_wgmma ? 64 : s->precision == SP_BF16 ? 32 : 16;
    if (tile.is_wgmma)
        snprintf(work->kernel, sizeof work->kernel, "wgrad bf16 %dx%d whole", tile.in,
                 tile.out);
    else
        snprintf(work->kernel, sizeof work->kernel, "wgrad %s %d %s %s",
                 sp_precision_word[s->precision], tile.in, warps,
                 whole ? "whole" : "any");
}

void cuda_count_wgrad(const cuda_wgrad_shape *s, cuda_work *work)
{
    const int chunk = 16 / elem_bytes(s->precision);
    const bool whole = s->c_in % chunk == 0 && s->c_out % chunk == 0;
    const bool is_wgmma = s->is_wgmma && s->precision == SP_BF16;
    const cuda_wgrad_tile tile = whole && s->precision != SP_FP32
                                     ? cuda_wgrad_choose(is_wgmma, s->c_in, s->c_out)
                                     : cuda_wgrad_square(s->c_in, s->c_out, false);
    int64_t items = 0, steps = 0, pairs = 0;

    *work = (cuda_work){0};
    describe_wgrad(s, tile, whole, work);
    for (int i = 0; i < s->n_lists; i++) {
        int64_t left = cuda_count_list(s, i);

        pairs += left;
        for (; left > 0; left -= work->item, items++)
            steps += cuda_count_steps(work, left);
    }
    work->n_blocks = items * work->across;
    work->gathered = (double)pairs * elem_bytes(s->precision) *
                     cuda_wgrad_gathers(s->c_in, s->c_out, tile);
    work->weights = 8.0 * (double)items * s->c_in * s->c_out;
    work->plan = s->start ? 8.0 * (double)pairs * work->across : 0;
    work->k_tiles = (double)steps * work->across;
    work->products = work->k_tiles * work->depth * work->rows * work->columns;
}

int64_t cuda_count_steps(const cuda_work *work, int64_t left)
{
    return ((left < work->item ? left : work->item) + work->depth - 1) / work->depth;
}
