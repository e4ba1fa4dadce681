/* An airborne laser scanner over a synthetic landscape: scan lines, one ray a pulse, up
 * to five returns.
 *
 *            sensor (one strip: along `heading`, the ray swings across)
 *           /
 *          /  ray --> leaves, wires: partial returns, the beam goes on
 *         /        --> roof, car, ground: last return; all beyond it is hidden */
#ifndef SP_LIDAR_H
#define SP_LIDAR_H

#include "scan/scene/sp_landscape.h"

/* Points within the scene's square. The arrays grow. All zero before the first use. */
typedef struct sp_lidar {
    int64_t n, capacity;
    double *xyz;      /* [n][3] metre */
    int32_t *label;   /* [n] class, or -1: not labelled */
    float *intensity; /* [n] received energy, about 0 .. 1 */
    float *returns;   /* [n] number of returns of the point's pulse */
} sp_lidar;

/* Appends the points of one or two strips with about 10 pulses a square metre each.
 * Local. SP_EMEM. */
sp_status sp_lidar_scan(sp_lidar *scan, const sp_landscape *landscape, sp_rng *rng);
void sp_lidar_destroy(sp_lidar *scan);

#endif
