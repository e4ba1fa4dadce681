/* A confusion matrix as a picture: a row is a true class, a column a predicted one,
 * both numbered at the margins if they fit. The colour of a cell is the share of its
 * row, from white to dark blue; large cells have it in percent. */
#ifndef SP_HEATMAP_H
#define SP_HEATMAP_H

#include "report/sp_canvas.h"

enum { SP_HEATMAP_CLASSES = 1024 }; /* the most that are drawn */

/* Makes the canvas, which the caller destroys, after a failure too; it has no pixels if
 * n is 0 or above the limit. confusion: [n][n], not negative. Local; SP_EMEM. */
sp_status sp_heatmap_draw(const int64_t *confusion, int n, sp_canvas *canvas);

#endif
