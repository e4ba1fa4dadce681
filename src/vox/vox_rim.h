/* The points of an input that lie near other inputs (vox_options.buffer). Each of these
 * needs them as context; the input is read for the first of them, and what the others
 * need of it is kept in a temporary file, its rim:
 *
 *     input of 8 neighbours --read once--> context of the first neighbour
 *                                      \-> rim --> context of the 7 others
 *
 * So a LAZ tile with 8 neighbours is decompressed 3 times instead of 10: as context, to
 * be cut, and for its copy. A rim needs 24 bytes a point, and 8 for each attribute of
 * the features. All is local. */
#ifndef VOX_RIM_H
#define VOX_RIM_H

#include "vox/vox_options.h"

/* Takes a point: x, y and z, and the attributes that the features need. */
typedef sp_status vox_rim_take(void *arg, const double *xyz, const double *attr);

/* Part `part` of `n_parts` of the rows of an input. */
typedef struct vox_rim_part {
    int file, part, n_parts;
} vox_rim_part;

/* Calls `take` for at least the points of the part that lie within `reach`. They come
 * from the rim if options->rims is set and the rim exists; else the input is read, and
 * its rim is made. reach: within the buffer around the extent of another input, or no
 * rim is used. Errors of vox_scan_open, of reading and of `take`; SP_EIO; SP_EMEM. */
sp_status vox_rim_each(const vox_options *options, const vox_rim_part *part,
                       const vox_extent *reach, vox_rim_take *take, void *arg);
/* Removes the rims of all parts of an input. */
void vox_rim_remove(const vox_options *options, int file, int n_parts);

#endif
