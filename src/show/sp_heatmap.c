#include "show/sp_heatmap.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EDGE = 720,        /* about that many pixels for all cells */
    MOST_CELL = 56,    /* pixels of a cell */
    NUMBERED_CELL = 8, /* from this size on rows and columns have their numbers */
    FILLED_CELL = 28,  /* from this size on cells have their percentage */
    GLYPH_W = 3,
    GLYPH_H = 5,
    SCALE = 2, /* pixels of a point of a digit */
    DIGIT = (GLYPH_W + 1) * SCALE
};

/* The digits, a row of 3 points in 3 bits, the left one highest. */
static const unsigned char digits[10][GLYPH_H] = {
    {7, 5, 5, 5, 7}, {2, 6, 2, 2, 7}, {7, 1, 7, 4, 7}, {7, 1, 7, 1, 7},
    {5, 5, 7, 1, 1}, {7, 4, 7, 1, 7}, {7, 4, 7, 5, 7}, {7, 1, 2, 2, 2},
    {7, 5, 7, 5, 7}, {7, 5, 7, 1, 7}};

typedef struct picture {
    unsigned char *rgb;
    int width, height, margin, cell;
} picture;

static void fill(picture *p, int x0, int y0, int w, int h, const unsigned char color[3])
{
    for (int y = y0; y < y0 + h && y < p->height; y++)
        for (int x = x0; x < x0 + w && x < p->width; x++)
            memcpy(p->rgb + 3 * ((size_t)y * (size_t)p->width + (size_t)x), color, 3);
}

/* Writes a number with its middle at (x, y). */
static void write_number(picture *p, int number, int x, int y,
                         const unsigned char color[3])
{
    char text[16];
    const int n = snprintf(text, sizeof text, "%d", number);

    x -= (n * DIGIT - SCALE) / 2;
    y -= GLYPH_H * SCALE / 2;
    for (int i = 0; i < n; i++)
        for (int row = 0; row < GLYPH_H; row++)
            for (int column = 0; column < GLYPH_W; column++)
                if (digits[text[i] - '0'][row] >> (GLYPH_W - 1 - column) & 1)
                    fill(p, x + i * DIGIT + column * SCALE, y + row * SCALE, SCALE,
                         SCALE, color);
}

/* White to dark blue; the ends are those of the scale "Blues" of ColorBrewer. */
static void color_of(double share, unsigned char color[3])
{
    static const double low[3] = {247, 251, 255}, high[3] = {8, 48, 107};

    for (int i = 0; i < 3; i++)
        color[i] = (unsigned char)(low[i] + share * (high[i] - low[i]) + 0.5);
}

static void draw_cell(picture *p, int row, int column, double share)
{
    static const unsigned char black[3] = {0, 0, 0}, white[3] = {255, 255, 255};
    const int x = p->margin + column * p->cell, y = p->margin + row * p->cell;
    const int gap = p->cell >= NUMBERED_CELL;
    unsigned char color[3];

    color_of(share, color);
    fill(p, x, y, p->cell - gap, p->cell - gap, color);
    if (p->cell >= FILLED_CELL)
        write_number(p, (int)(100 * share + 0.5), x + p->cell / 2, y + p->cell / 2,
                     share > 0.5 ? white : black);
}

static void draw_numbers(picture *p, int n)
{
    static const unsigned char ink[3] = {64, 64, 64};
    const int room = n > 100 ? 3 : n > 10 ? 2 : 1;
    const int step = (room * DIGIT + SCALE + p->cell - 1) / p->cell;

    for (int c = 0; c < n; c += step) {
        const int at = p->margin + c * p->cell + p->cell / 2;

        write_number(p, c, p->margin / 2, at, ink);
        write_number(p, c, at, p->margin / 2, ink);
    }
}

static void draw(picture *p, const int64_t *confusion, int n)
{
    for (int row = 0; row < n; row++) {
        double total = 0;

        for (int column = 0; column < n; column++)
            total += (double)confusion[row * n + column];
        for (int column = 0; column < n; column++)
            draw_cell(p, row, column,
                      total > 0 ? (double)confusion[row * n + column] / total : 0);
    }
    if (p->margin > 0)
        draw_numbers(p, n);
}

sp_status sp_heatmap_draw(const int64_t *confusion, int n, unsigned char **rgb,
                          int *width, int *height)
{
    picture p = {.cell = n > 0 ? EDGE / n : 0};

    assert(confusion && n >= 0);
    *rgb = NULL;
    *width = *height = 0;
    if (n == 0 || n > SP_HEATMAP_CLASSES)
        return SP_OK;
    p.cell = p.cell < 1 ? 1 : p.cell > MOST_CELL ? MOST_CELL : p.cell;
    p.margin = p.cell >= NUMBERED_CELL ? 4 * DIGIT : 0;
    p.width = p.height = p.margin + n * p.cell;
    p.rgb = malloc(3 * (size_t)p.width * (size_t)p.height);
    if (!p.rgb)
        return SP_FAIL(SP_EMEM, "no memory for a picture of %d classes", n);
    memset(p.rgb, 255, 3 * (size_t)p.width * (size_t)p.height);
    draw(&p, confusion, n);
    *rgb = p.rgb;
    *width = p.width;
    *height = p.height;
    return SP_OK;
}
