/* The picture of a cloud from one side.
 *
 *     points --project--> u, v (metre or degree), depth       sp_render_open
 *            --fit------> the part that holds all but stray points
 *     paint:   nearest point of each pixel, each as large as its volume or as the gaps
 *     shade:   a pixel is darker the more its neighbours lie in front of it, as light
 *              is kept from it (eye-dome lighting; C. Boucheny, 2009)   sp_render_paint
 *     shrink:  the mean of the colours of `smooth` x `smooth` pixels, so that edges are
 *              smooth                                                  sp_render_colour
 *
 * A raster has no colours, so one of them serves several pictures of the same points.
 *
 * There are three sides to look from:
 *     top      from above, x to the right and y up. A room's ceiling is not drawn, so
 *              that it covers nothing.
 *     oblique  from the south-east and above, without perspective, so that one scale
 *              holds everywhere.
 *     sensor   all round from the origin, the place of a mobile scan's sensor. The
 *              horizontal axis is the azimuth, with the direction of x in the middle;
 *              elevations are stretched threefold.
 *
 * Time: a few passes over the points; 10 million need seconds. Memory: 12 bytes for
 * each pixel before the image shrinks. */
#ifndef SP_RENDER_H
#define SP_RENDER_H

#include <stdbool.h>

#include "report/sp_canvas.h"

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
    double cell;           /* edge in metre of the cube around a point; 0: a point */
    const uint8_t *hidden; /* [n] 1: the point is not drawn; NULL: all are */
} sp_cloud;

/* How a cloud is projected onto a picture: pixel = (u - u0, v1 - v) * scale. */
typedef struct sp_render {
    sp_render_from from;
    double u0, v1;     /* left and upper border */
    double scale;      /* pixels for a metre, or for a degree */
    int width, height; /* pixels */
} sp_render;

/* True if points of the class with this name are not drawn from this side: a ceiling
 * would hide its room from above. */
bool sp_render_hides(const char *class_name, sp_render_from from);
/* Chooses borders and scale for a picture of at most `width` x `height` pixels, and at
 * least a quarter of that height. SP_EDATA: the cloud has no point, or hides all;
 * SP_EUSAGE: no point is around the sensor; SP_EMEM. */
sp_status sp_render_open(sp_render *view, const sp_cloud *cloud, sp_render_from from,
                         int width, int height);
/* The nearest point of each pixel, and its light. All zero before the first use. */
typedef struct sp_raster {
    int width, height; /* of the picture times `smooth` */
    int smooth;
    double scale;    /* pixels of the raster for a metre, or for a degree */
    uint32_t *point; /* [height][width] number of the point, or SP_NO_POINT */
    float *depth;    /* [height][width] in pixels; infinite if there is no point */
    float *shade;    /* [height][width] light, 0.25 to 1 */
} sp_raster;
#define SP_NO_POINT UINT32_MAX

/* Finds the nearest point of each pixel and its light. smooth: 1 leaves pixels
 * unchanged; 2 to 4 is for smooth edges. The raster is the caller's, after failure too.
 * SP_EMEM; SP_EDATA for more points than 32 bits number. */
sp_status sp_render_paint(const sp_render *view, const sp_cloud *cloud, int smooth,
                          sp_raster *raster);
/* Draws the raster with its upper left corner at (x, y), in the colours of the cloud.
 * The cloud's points must be those from which the raster was painted. A raster with
 * smooth 1 gets few colours. Pixels without a point are unchanged. */
void sp_render_colour(const sp_raster *raster, const sp_cloud *cloud, sp_canvas *canvas,
                      int x, int y);
void sp_raster_destroy(sp_raster *raster);
/* Paints the cloud and draws it with its upper left corner at (x, y). SP_EMEM. */
sp_status sp_render_draw(const sp_render *view, const sp_cloud *cloud, int smooth,
                         sp_canvas *canvas, int x, int y);

#endif
