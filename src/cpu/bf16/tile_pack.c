/* Weights of a convolution, rounded to bf16 and packed for tiles, and the gradient's
 * panels; the table of this order of sums. */
#include "cpu/bf16/tile.h"

void TILES(pack)(const float *w, int c_in, int c_out, bool is_transposed, float *packed)
{
    const size_t n_words = (size_t)chunks(c_in) * EDGE;
    const int most = is_transposed ? c_in : PACK_ROWS;

    for (int i = 0; i < c_in; i += most)
        for (int at = 0, ld; at < c_out; at += ld) {
            ld = panel_columns(at, c_out);
            const int width = min_i(ld, c_out - at);
            const float *rows = w + (size_t)i * (size_t)c_out;
            const int n = min_i(most, c_in - i);
            float *to = packed + (size_t)at * n_words + i / 2 * ld;
            if (i == 0 && (width < ld || c_in % CHUNK))
                memset(to, 0, n_words * (size_t)ld * sizeof *to);
            if (is_transposed)
                BF16(pack_columns)(w, c_in, at, width, ld, to);
            else
                BF16(pack_rows)(rows, n, c_out, at, width, ld, (uint32_t *)(void *)to);
        }
}

int TILES(n_panels)(int c_out)
{
    return (c_out + PANEL - 1) / PANEL;
}

void TILES(unpack)(const float *packed, int c_in, int c_out, float *w, bool is_added)
{
    for (int i = 0; i < c_in; i++, w += c_out)
        for (int at = 0, ld; at < c_out; at += ld) {
            ld = panel_columns(at, c_out);
            const int width = min_i(ld, c_out - at);
            const float *from = packed + (size_t)at * (size_t)c_in + (size_t)(i * ld);
            float *restrict to = w + at;
            for (int j = 0; j < width; j++)
                to[j] = (is_added ? to[j] : 0) + from[j];
        }
}

/* ---- the table ---- */

#define ENTRY(slot) .slot = TILES(slot),
const sp_cpu_isa TILES(isa) = {.name = TILES_NAME,
                               .is_here = TILES_HERE,
                               .lanes = EDGE,
                               .chunk = CHUNK,
                               .convert = BF16(convert),
                               SP_CPU_PRODUCTS(ENTRY) SP_CPU_PACKING(ENTRY)
                                   SP_CPU_ROWS(BF16_ENTRY)};
