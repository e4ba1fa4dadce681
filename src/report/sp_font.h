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
#ifndef SP_FONT_H
#define SP_FONT_H

#include "report/sp_canvas.h"

/* The width in pixels of a text with capitals `cap` pixels high. */
double sp_font_width(const char *text, double cap);
/* Draws a text; x is its left edge, y its baseline. A text wider than `most` pixels (0:
 * no limit) is cut and ends in dots. Returns the width drawn. */
double sp_font_draw(sp_canvas *canvas, double x, double y, double cap, double most,
                    sp_colour colour, const char *text);

#endif
