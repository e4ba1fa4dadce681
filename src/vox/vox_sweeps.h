/* Several scans of a moving scanner joined by their poses. Local.
 *
 *     poses.txt, calib.txt --> table of one sequence, read when its first scan comes
 *     NAME of scan k, age a --vox_sweeps_find--> NAME of scan k - a, and the motion
 *         from its frame to the frame of scan k
 *
 * The files are as in KITTI and SemanticKITTI. Line k of poses.txt, from 0, belongs to
 * the scan with the number k at the end of its name, as 000012.bin: 12 numbers, the
 * rows of [R | t], which lead from the camera at scan k to the first camera. The line
 * "Tr: " of calib.txt, 12 numbers, leads from the scanner to the camera. Without
 * calib.txt beside the poses, or without that line, the poses are the scanner's own. */
#ifndef VOX_SWEEPS_H
#define VOX_SWEEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/sp_comm.h"

/* The word for --poses: the poses are in the scan's folder or in the one above it. */
#define VOX_POSES_AUTO "auto"

/* A motion of rigid bodies: rows of [R | t]. */
typedef struct vox_motion {
    double at[3][4];
} vox_motion;

typedef struct vox_sweeps {
    const char *poses; /* a path, or VOX_POSES_AUTO; borrowed. Set by the caller */
    char *path;        /* of the table; NULL: no table was read */
    vox_motion *pose;  /* [n_poses] of the scanner */
    int64_t n_poses;
    /* Earlier scans that should be there and are not, and the path of the first one. */
    int64_t n_absent;
    char *absent;
} vox_sweeps;

/* Finds the scan `age` scans before the one at `path`. *to is its path, malloc'd, and
 * motion leads from its frame to the frame of the scan at `path`. *to is NULL if the
 * sequence begins later, or if the file is not there, which is counted. SP_EDATA: the
 * name has no number, no poses are found, or they are damaged; SP_EIO; SP_EMEM. */
sp_status vox_sweeps_find(vox_sweeps *sweeps, const char *path, int age, char **to,
                          vox_motion *motion);
/* Warns on rank 0 of the earlier scans that were not there. Collective. */
sp_status vox_sweeps_tell(const vox_sweeps *sweeps, sp_comm *comm);
void vox_sweeps_destroy(vox_sweeps *sweeps);
static inline void vox_motion_apply(const vox_motion *m, double xyz[3])
{
    const double x = xyz[0], y = xyz[1], z = xyz[2];

    for (int a = 0; a < 3; a++)
        xyz[a] = m->at[a][0] * x + m->at[a][1] * y + m->at[a][2] * z + m->at[a][3];
}

#endif
