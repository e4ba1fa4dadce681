#include "report/sp_figure.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/sp_number.h"
#include "report/sp_canvas.h"

/* Pixels. */
enum {
    WIDTH = 1600,
    VIEW_WIDTH = 1200,
    VIEW_HEIGHT = 1100,
    EDGE = 36,
    HEAD = 108, /* title and subtitle */
    ROW = 30,   /* of the legend */
    SWATCH = 16,
    LEGEND_X = EDGE + VIEW_WIDTH + 32,
    LEGEND_WIDTH = WIDTH - LEGEND_X - EDGE,
    SHARE_WIDTH = 66, /* column of the percentages */
    SMOOTH = 2
};

static const sp_colour paper = {255, 255, 255, 255}, ground = {250, 250, 248, 255};
static const sp_colour ink = {32, 33, 36, 255}, pale = {110, 112, 118, 255};
static const sp_colour line = {222, 222, 218, 255}, neutral = {128, 130, 136, 255};
static const sp_colour plate = {250, 250, 248, 215}; /* under the scale bar */

const char *sp_figure_count(int64_t n, char text[SP_COUNT_TEXT])
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    int to = 0;

    assert(n >= 0 && text);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[to++] = ' ';
        text[to++] = digits[i];
    }
    text[to] = '\0';
    return text;
}

/* ---- scale bar ---- */

/* The longest of 1, 2, 5, 10, 20, ... that is at most `most`. */
static double round_length(double most)
{
    const double power = pow(10, floor(log10(most)));
    const double digit = most / power;

    return power * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
}

/* Draws the bar into the lower left corner of the view at (x, y). */
static void draw_scale(sp_canvas *canvas, const sp_render *view, int x, int y,
                       double cap, sp_colour colour, sp_colour below)
{
    const bool is_angle = view->from == SP_FROM_SENSOR;
    const double length = is_angle ? 30 : round_length(view->width / 5.0 / view->scale);
    const int pixels = (int)(length * view->scale + 0.5);
    const int left = x + 16, bottom = y + view->height - 16;
    char text[48];

    for (int row = bottom - 34; row < bottom + 8; row++)
        for (int at = left - 8; at < left + pixels + 8; at++)
            sp_canvas_blend(canvas, at, row, below, 1);
    sp_canvas_fill(canvas, left, bottom - 2, pixels, 2, colour);
    sp_canvas_fill(canvas, left, bottom - 8, 2, 8, colour);
    sp_canvas_fill(canvas, left + pixels - 2, bottom - 8, 2, 8, colour);
    if (is_angle)
        snprintf(text, sizeof text, "30 degrees");
    else if (length >= 1000)
        snprintf(text, sizeof text, "%g km", length / 1000);
    else if (length < 1)
        snprintf(text, sizeof text, "%g cm", length * 100);
    else
        snprintf(text, sizeof text, "%g m", length);
    sp_font_draw(canvas, left + 1, bottom - 14, cap, 0, colour, text);
}

/* ---- legend ---- */

static double draw_right(sp_canvas *canvas, double right, double y, double cap,
                         sp_colour colour, const char *text)
{
    const double width = sp_font_width(text, cap);

    sp_font_draw(canvas, right - width, y, cap, 0, colour, text);
    return width;
}

static void figure_draw_row(sp_canvas *canvas, const sp_legend_row *row, int64_t whole,
                            int y)
{
    const int right = LEGEND_X + LEGEND_WIDTH;
    const double percent = whole > 0 ? 100.0 * (double)row->n / (double)whole : 0;
    char count[SP_COUNT_TEXT], share[16];
    double used;

    sp_canvas_fill(canvas, LEGEND_X, y - 13, SWATCH, SWATCH, row->colour);
    snprintf(share, sizeof share, row->n > 0 && percent < 0.1 ? "<0.1 %%" : "%.1f %%",
             percent);
    draw_right(canvas, right, y, 11, pale, share);
    used = draw_right(canvas, right - SHARE_WIDTH, y, 11, ink,
                      sp_figure_count(row->n, count));
    sp_font_draw(canvas, LEGEND_X + SWATCH + 12, y, 12,
                 LEGEND_WIDTH - SWATCH - 26 - SHARE_WIDTH - used, ink, row->name);
}

static void figure_draw_rows(sp_canvas *canvas, const sp_figure *f, int y, int bottom)
{
    const int most = (bottom - y) / ROW;
    const int n = f->n_rows <= most ? f->n_rows : most - 1;
    int64_t whole = 0;
    char text[96];

    for (int i = 0; i < f->n_rows; i++)
        whole += f->row[i].n;
    for (int i = 0; i < n; i++)
        figure_draw_row(canvas, &f->row[i], whole, y + i * ROW);
    if (n < f->n_rows) {
        snprintf(text, sizeof text, "and %d more", f->n_rows - n);
        sp_font_draw(canvas, LEGEND_X + SWATCH + 12, y + n * ROW, 12, 0, pale, text);
    }
}

static void draw_ramp(sp_canvas *canvas, const sp_figure *f, int y)
{
    enum { STEP = 4 };
    const double width = f->hi - f->lo;
    /* Three significant digits of the difference. */
    const int digits = (int)fmin(fmax(2 - floor(log10(width > 0 ? width : 1)), 0), 6);
    char text[48];

    for (int i = 0; i < SP_RAMP; i++)
        sp_canvas_fill(canvas, LEGEND_X, y + (SP_RAMP - 1 - i) * STEP, 28, STEP,
                       sp_palette_ramp(i));
    for (int i = 0; i <= 4; i++) {
        const int at = y + (int)((4 - i) * (SP_RAMP * STEP - 1) / 4.0);

        snprintf(text, sizeof text, "%.*f", digits, f->lo + width * i / 4);
        sp_canvas_fill(canvas, LEGEND_X + 28, at, 6, 1, pale);
        sp_font_draw(canvas, LEGEND_X + 42, at + 6, 12, 0, ink, text);
    }
}

static void draw_legend(sp_canvas *canvas, const sp_figure *f, int bottom)
{
    const int y = HEAD + 14;

    sp_font_draw(canvas, LEGEND_X, y, 12, LEGEND_WIDTH - 90, pale, f->what);
    draw_right(canvas, LEGEND_X + LEGEND_WIDTH - (f->n_rows ? SHARE_WIDTH : 0), y, 12,
               pale, f->unit);
    sp_canvas_fill(canvas, LEGEND_X, y + 12, LEGEND_WIDTH, 1, line);
    if (f->n_rows)
        figure_draw_rows(canvas, f, y + 40, bottom);
    else
        draw_ramp(canvas, f, y + 32);
}

/* The view is framed higher if the legend needs it. */
static int height_of(const sp_figure *f, const sp_render *view)
{
    enum { LEAST = 420, ABOVE = 60 };
    const int64_t framed = sp_most(ABOVE + ROW * (int64_t)f->n_rows, LEAST);

    return (int)sp_most(sp_least(framed, VIEW_HEIGHT), view->height);
}

sp_status sp_figure_draw(const sp_figure *f, const sp_cloud *cloud, sp_render_from from,
                         sp_canvas *canvas)
{
    sp_render view;
    int height, top;

    assert(f->title && f->subtitle && f->what && f->unit);
    assert(f->n_rows == 0 || f->row);
    memset(canvas, 0, sizeof *canvas);
    SP_TRY(sp_render_open(&view, cloud, from, VIEW_WIDTH, VIEW_HEIGHT));
    height = height_of(f, &view);
    top = HEAD + (height - view.height) / 2;
    SP_TRY(sp_canvas_create(canvas, WIDTH, HEAD + height + EDGE, paper));
    sp_canvas_fill(canvas, EDGE - 1, HEAD - 1, VIEW_WIDTH + 2, height + 2, line);
    sp_canvas_fill(canvas, EDGE, HEAD, VIEW_WIDTH, height, ground);
    SP_TRY(sp_render_draw(&view, cloud, SMOOTH, canvas, EDGE, top));
    view.height = height;
    draw_scale(canvas, &view, EDGE, HEAD, 12, ink, plate);
    sp_font_draw(canvas, EDGE, 52, 20, WIDTH - 2.0 * EDGE, ink, f->title);
    sp_font_draw(canvas, EDGE, 84, 12, WIDTH - 2.0 * EDGE, pale, f->subtitle);
    draw_legend(canvas, f, HEAD + height);
    return SP_OK;
}

sp_status sp_figure_draw_plain(const sp_cloud *cloud, int n, sp_render_from from,
                               int width, int height, sp_canvas *canvas)
{
    enum { FOOT = 30 }; /* below the view, for the scale bar */
    const sp_colour clear = {0, 0, 0, 0};
    SP_CLOSED_BY(sp_raster_destroy) sp_raster raster = {0};
    sp_render view, foot;

    assert(n > 0 && cloud && canvas);
    assert(width > 0 && height > FOOT);
    memset(canvas, 0, (size_t)n * sizeof *canvas);
    SP_TRY(sp_render_open(&view, cloud, from, width, height - FOOT));
    SP_TRY(sp_render_paint(&view, cloud, 1, &raster));
    foot = view;
    foot.height += FOOT - 8;
    for (int i = 0; i < n; i++) {
        assert(cloud[i].n == cloud->n && cloud[i].xyz == cloud->xyz);
        SP_TRY(sp_canvas_create(&canvas[i], view.width, view.height + FOOT, clear));
        sp_render_colour(&raster, &cloud[i], &canvas[i], 0, 0);
        draw_scale(&canvas[i], &foot, 0, 0, 11, neutral, clear);
    }
    return SP_OK;
}
