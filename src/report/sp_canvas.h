/* Pictures that the program draws itself, and PNG files of them. The room's flow:
 *
 *     sp_palette   classes, values --> colours that colour-blind people tell apart
 *     sp_render      points of a cloud --> their picture from one side, shaded by depth
 *     sp_font      text --> strokes
 *     sp_figure    view, title, legend, scale bar --> a whole picture
 *     sp_heatmap   confusion matrix --> picture of its shares
 *     sp_canvas    pixels <-- all of these; sp_png --> bytes of a PNG file
 *
 * The same input gives the same bytes. Only sp_png.c includes libpng's header. All
 * functions of the room are local, and any thread may call them for its own canvases.
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

#endif
