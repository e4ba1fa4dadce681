/* An airborne laser scanner over a world: scan lines, one ray a pulse, up to five
 * returns.
 *
 *            sensor (one strip: along `heading`, the ray swings across)
 *           /
 *          /  ray --> leaves, wires: partial returns, the beam goes on
 *         /        --> roof, car, ground: last return; what lies behind is hidden
 */
#ifndef SP_LIDAR_H
#define SP_LIDAR_H

#include "scan/sp_world.h"

/* Points within the scene's square; arrays grow. Zero before the first use. */
typedef struct sp_lidar {
    int64_t n, capacity;
    double *xyz;      /* [n][3] metre */
    int32_t *label;   /* [n] class or -1 */
    float *intensity; /* [n] reflectance seen, about 0 .. 1 */
    float *returns;   /* [n] returns of the pulse */
} sp_lidar;

/* One or two strips with about 10 pulses a square metre each, appended. SP_EMEM. */
sp_status sp_lidar_scan(sp_lidar *scan, const sp_world *world, sp_rng *rng);
void sp_lidar_destroy(sp_lidar *scan);

#endif
