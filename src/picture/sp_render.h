/* The picture of a cloud from one side.
 *
 *     points --project--> u, v (metre or degree), depth       sp_render_open
 *            --fit------> the part that holds all but stray points
 *     paint:   nearest point of each pixel, each as large as its volume or as the gaps
 *     shade:   a pixel is darker the more its neighbours lie in front of it, as light
 *              is kept from it (eye-dome lighting; C. Boucheny, 2009)
 *     shrink:  the mean of `smooth` x `smooth` pixels, so that edges are smooth
 *
 * top: x to the right, y up, seen from above. oblique: from the south-east and above,
 * without perspective, so that one scale holds everywhere. sensor: all round from the
 * origin, where the sensor of a mobile scan stands; x is in the middle, the horizontal
 * axis is the azimuth, and elevations are stretched threefold.
 *
 * Time is that of a few passes over the points: 10 million take seconds. Memory is 14
 * bytes for each pixel before it shrinks. */
#ifndef SP_RENDER_H
#define SP_RENDER_H

#include "picture/sp_canvas.h"

typedef enum sp_render_from {
    SP_FROM_TOP,
    SP_FROM_OBLIQUE,
    SP_FROM_SENSOR
} sp_render_from;

/* The points and their colours, borrowed. */
typedef struct sp_cloud {
    int64_t n;
    const float *xyz;       /* [n][3] metre, relative to any origin; for SP_FROM_SENSOR
                                relative to the sensor */
    const uint16_t *colour; /* [n] index into palette */
    const sp_colour *palette;
    double cell; /* edge in metre of the cube that a point stands for; 0: a point */
} sp_cloud;

/* How a cloud is projected onto a picture: pixel = (u - u0, v1 - v) * scale. */
typedef struct sp_render {
    sp_render_from from;
    double u0, v1;     /* left and upper border */
    double scale;      /* pixels for a metre, or for a degree */
    int width, height; /* pixels */
} sp_render;

/* Chooses borders and scale for a picture of at most `width` x `height` pixels, and at
 * least a quarter of that height. SP_EDATA: the cloud has no point; SP_EUSAGE: no point
 * is around the sensor; SP_EMEM. */
sp_status sp_render_open(sp_render *view, const sp_cloud *cloud, sp_render_from from,
                         int width, int height);
/* Draws the cloud with its upper left corner at (x, y). smooth: 1 draws pixels as they
 * are, with few colours; 2 to 4 smooths edges. Pixels without a point stay as they are.
 * SP_EMEM. */
sp_status sp_render_draw(const sp_render *view, const sp_cloud *cloud, int smooth,
                         sp_canvas *canvas, int x, int y);

#endif
