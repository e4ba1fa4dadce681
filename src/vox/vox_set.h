/* A data set as a whole, once all its samples are voxelized: which of them there are,
 * classes, codes, statistics. Every rank finds the same from the same lists; local.
 */
#ifndef VOX_SET_H
#define VOX_SET_H

#include "vox/vox_cloud.h"
#include "vox/vox_part.h"

/* Zero at first. */
typedef struct vox_set {
    bool has_labels;
    int n_classes;
    char **class_name; /* [n_classes] */
    char **class_code; /* [n_classes] "3:4:5"; NULL: without labels and map */
    double mean[VOX_MAX_FEATURES]; /* of each feature over all voxels; a constant one */
    double std[VOX_MAX_FEATURES];  /* has 0 and 1, and keeps its value */
} vox_set;

/* Leaves out parts without points, describes the rest, and warns on rank 0 of classes
 * that no point has. part [*n_parts] in the order of the pieces; codes: of all ranks.
 * SP_EDATA where there is no point or only some inputs have labels, SP_EUSAGE for more
 * shards than samples, SP_EMEM. Destroy after failure too. */
sp_status vox_set_describe(vox_set *set, const vox_options *options,
                           const vox_piece *piece, vox_part *part, int64_t *n_parts,
                           const vox_codes *codes);
void vox_set_destroy(vox_set *set);

#endif
