
#include <assert.h>
#include <stdio.h>

#include "report/sp_canvas.h"

enum {
    EDGE = 720,        /* about that many pixels for all cells */
    MOST_CELL = 56,    /* pixels of a cell */
    NUMBERED_CELL = 8, /* from this size on rows and columns have their numbers */
    FILLED_CELL = 28,  /* from this size on cells have their percentage */
    CAP = 9,           /* height of a digit */
    MARGIN = 36
};

static const sp_colour white = {255, 255, 255, 255}, black = {0, 0, 0, 255},
                       ink = {64, 64, 64, 255};

/* Writes a number with its middle at (x, y). */
static void write_number(sp_canvas *canvas, int number, int x, int y, sp_colour colour)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    sp_font_draw(canvas, x - sp_font_width(text, CAP) / 2, y + CAP / 2., CAP, 0, colour,
                 text);
}

/* White to dark blue; the ends are ColorBrewer's for its scale "Blues". */
static sp_colour heatmap_colour_of(double share)
{
    return (sp_colour){(uint8_t)(247 - share * (247 - 8) + 0.5),
                       (uint8_t)(251 - share * (251 - 48) + 0.5),
                       (uint8_t)(255 - share * (255 - 107) + 0.5), 255};
}

static void heatmap_draw_row(sp_canvas *canvas, const int64_t *counts, int n, int y,
                             int cell)
{
    const int left = cell >= NUMBERED_CELL ? MARGIN : 0;
    const int gap = cell >= NUMBERED_CELL;
    double total = 0;

    for (int c = 0; c < n; c++)
        total += (double)counts[c];
    for (int c = 0; c < n; c++) {
        const double share = total > 0 ? (double)counts[c] / total : 0;
        const int x = left + c * cell;

        sp_canvas_fill(canvas, x, y, cell - gap, cell - gap, heatmap_colour_of(share));
        if (cell >= FILLED_CELL)
            write_number(canvas, (int)(100 * share + 0.5), x + cell / 2, y + cell / 2,
                         share > 0.5 ? white : black);
    }
}

static void draw_numbers(sp_canvas *canvas, int n, int cell)
{
    char widest[16];
    int step;

    snprintf(widest, sizeof widest, "%d ", n - 1);
    step = 1 + (int)(sp_font_width(widest, CAP) / cell);
    for (int c = 0; c < n; c += step) {
        const int at = MARGIN + c * cell + cell / 2;

        write_number(canvas, c, MARGIN / 2, at, ink);
        write_number(canvas, c, at, MARGIN / 2, ink);
    }
}

sp_status sp_heatmap_draw(const int64_t *confusion, int n, sp_canvas *canvas)
{
    int cell, margin;

    assert(confusion && n >= 0);
    *canvas = (sp_canvas){0};
    if (n == 0 || n > SP_HEATMAP_CLASSES)
        return SP_OK;
    cell = EDGE / n < 1 ? 1 : EDGE / n > MOST_CELL ? MOST_CELL : EDGE / n;
    margin = cell >= NUMBERED_CELL ? MARGIN : 0;
    SP_TRY(sp_canvas_create(canvas, margin + n * cell, margin + n * cell, white));
    for (int row = 0; row < n; row++)
        heatmap_draw_row(canvas, confusion + (int64_t)row * n, n, margin + row * cell,
                         cell);
    if (margin > 0)
        draw_numbers(canvas, n, cell);
    return SP_OK;
}
