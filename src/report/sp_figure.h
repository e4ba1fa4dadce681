/* A whole picture of a cloud: the view, a title, a legend and a scale bar.
 *
 *     title                                        |  legend
 *     subtitle                                     |  [] class      points
 *     +------------------------------------------+ |  [] class      points
 *     | view                                     | |
 *     |--- scale bar                             | |
 *     +------------------------------------------+ |
 *
 * A plain figure has only the view and the scale bar, on a transparent ground and with
 * few colours: pages show it beside others with a legend of their own. */
#ifndef SP_FIGURE_H
#define SP_FIGURE_H

#include "report/sp_render.h"

typedef struct sp_legend_row {
    sp_colour colour;
    const char *name; /* UTF-8; borrowed */
    int64_t n;        /* points */
} sp_legend_row;

typedef struct sp_figure {
    const char *title, *subtitle; /* borrowed, as are all pointers here */
    const char *what;             /* head of the legend: "class", "intensity" */
    const char *unit;             /* of the numbers in the legend: "points", "voxels" */
    const sp_legend_row *row;     /* [n_rows] classes; empty: the ramp is shown */
    int n_rows;
    double lo, hi; /* values at the ends of the ramp */
} sp_figure;

/* Draws the figure, at most 1,600 pixels wide; *canvas becomes the caller's. Errors of
 * sp_render_open; SP_EMEM. */
sp_status sp_figure_draw(const sp_figure *figure, const sp_cloud *cloud,
                         sp_render_from from, sp_canvas *canvas);
/* Draws n plain figures of at most width x height pixels of clouds that differ only in
 * their colours, which costs little more than one; canvas[n] become the caller's, after
 * failure too. Errors of sp_render_open; SP_EMEM. */
sp_status sp_figure_draw_plain(const sp_cloud *cloud, int n, sp_render_from from,
                               int width, int height, sp_canvas *canvas);

/* Writes a count with blanks between thousands: "1 234 567". Returns text. */
enum { SP_COUNT_TEXT = 32 };
const char *sp_figure_count(int64_t n, char text[SP_COUNT_TEXT]);

#endif
