/* Colours of classes, values and errors. Classes have the eight colours of M. Okabe and
 * K. Ito (Color Universal Design, 2008) without black, which was made for people with
 * any kind of colour vision, and then the colours of P. Tol's "muted" scheme (2021);
 * further classes repeat them darker and lighter. Values have a ramp from dark blue
 * over grey to yellow with evenly rising lightness, readable without colour too. */
#ifndef SP_PALETTE_H
#define SP_PALETTE_H

#include "report/sp_canvas.h"

enum { SP_RAMP = 64 }; /* colours of the ramp */

/* The colour of a class; any number from 0. */
sp_colour sp_palette_class(int index);
/* The colour of points without a class. */
extern const sp_colour sp_palette_ignored;
/* Step i of SP_RAMP, from the least to the greatest value. */
sp_colour sp_palette_ramp(int i);
/* The colours of a prediction that is right or wrong. */
extern const sp_colour sp_palette_right, sp_palette_wrong;

#endif
