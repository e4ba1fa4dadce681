/* Pictures that the program draws itself, and PNG files of them. Its flow:
 *
 *     sp_palette_class   classes, values --> colours that colour-blind people tell apart
 *     sp_render          points of a cloud --> their picture from one side, with depth
 *     sp_font_draw       text --> strokes
 *     sp_figure          view, title, legend, scale bar --> a whole picture
 *     sp_heatmap_draw    confusion matrix --> picture of its shares
 *     sp_canvas          pixels <-- all of these; sp_png --> bytes of a PNG file
 *
 * The same input gives the same bytes. Only sp_png.c includes libpng's header. All
 * functions of these files are local, and any thread may call them for its own canvases.
 *
 * A canvas holds straight (not premultiplied) colours. */
#ifndef SP_CANVAS_H
#define SP_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

typedef struct sp_colour {
    uint8_t r, g, b, a; /* a: 0 transparent, 255 opaque */
} sp_colour;

typedef struct sp_canvas {
    int width, height;
    sp_colour *pixel; /* [height][width] row 0 is the top */
} sp_canvas;

/* Makes a canvas of one colour. SP_EMEM. Destroy after a failure too. */
sp_status sp_canvas_create(sp_canvas *canvas, int width, int height, sp_colour colour);
void sp_canvas_destroy(sp_canvas *canvas);
/* Fills a rectangle; parts outside the canvas are left out. */
void sp_canvas_fill(sp_canvas *canvas, int x, int y, int width, int height,
                    sp_colour colour);
/* Paints over a share (0 to 1) of a pixel. Outside the canvas nothing is painted. */
void sp_canvas_blend(sp_canvas *canvas, int x, int y, sp_colour colour, float share);

/* Encodes the canvas as a PNG file in memory, with a palette if it has at most 256
 * colours; *bytes is malloc'd for the caller. SP_EMEM; SP_EUSAGE in a build without
 * libpng. */
sp_status sp_png_encode(const sp_canvas *canvas, char **bytes, size_t *n);
/* True if this build writes PNG files. */
bool sp_png_is_built(void);

/* Colours of classes, values and errors. Classes have the eight colours of M. Okabe and
 * K. Ito (Color Universal Design, 2008) without black, which was made for people with
 * any kind of colour vision, and then the colours of P. Tol's "muted" scheme (2021);
 * further classes repeat them darker and lighter. Values have a ramp from dark blue
 * over grey to yellow with evenly rising lightness, readable without colour too. */

enum { SP_RAMP = 64 }; /* colours of the ramp */

/* The colour of a class; any number from 0. */
sp_colour sp_palette_class(int index);
/* The colour of points without a class. */
extern const sp_colour sp_palette_ignored;
/* Step i of SP_RAMP, from the least to the greatest value. */
sp_colour sp_palette_ramp(int i);
/* The colours of a prediction that is right or wrong. */
extern const sp_colour sp_palette_right, sp_palette_wrong;

/* Text on a canvas, in a font of strokes that belongs to this program: each character
 * is a few lines and curves on a grid, drawn with a round pen and smooth edges at any
 * size.
 *
 *     cap height 16 units      'A'  0g50ag   from (0,16) to (5,0) to (10,16)
 *     x height   11                 2a8a     from (2,10) to (8,10)
 *     baseline at y = 16       'o'  o05858g0g   a closed curve
 *
 * ASCII and the letters of Latin-1 are there; every other character of UTF-8 is shown
 * as an empty box. Control characters and bytes that are not UTF-8 become '?'. */

/* The width in pixels of a text with capitals `cap` pixels high. */
double sp_font_width(const char *text, double cap);
/* Draws a text; x is its left edge, y its baseline. A text wider than `most` pixels (0:
 * no limit) is cut and ends in dots. Returns the width drawn. */
double sp_font_draw(sp_canvas *canvas, double x, double y, double cap, double most,
                    sp_colour colour, const char *text);

/* A confusion matrix as a picture: a row is a true class, a column a predicted one,
 * both numbered at the margins if they fit. The colour of a cell is the share of its
 * row, from white to dark blue; large cells have it in percent. */

enum { SP_HEATMAP_CLASSES = 1024 }; /* the most that are drawn */

/* Makes the canvas, which the caller destroys, after a failure too; it has no pixels if
 * n is 0 or above the limit. confusion: [n][n], not negative. Local; SP_EMEM. */
sp_status sp_heatmap_draw(const int64_t *confusion, int n, sp_canvas *canvas);

#endif
