/* A data set as a whole, once all its samples are voxelized: the list of its samples,
 * classes, codes, statistics. Local; every rank computes the same from the same lists.
 */
#ifndef VOX_SET_H
#define VOX_SET_H

#include "vox/vox_cloud.h"
#include "vox/vox_part.h"

/* The description that each shard of the set stores. All zero before the first use. */
typedef struct vox_set {
    bool has_labels;
    int n_classes;
    char **class_name; /* [n_classes] */
    /* [n_classes] "3:4:5"; NULL: there are neither labels nor a map */
    char **class_code;
    sp_recipe *recipe;
    double mean[VOX_MAX_FEATURES]; /* over all voxels; 0 if constant */
    double std[VOX_MAX_FEATURES];  /* over all voxels; 1 if constant */
} vox_set;

/* Leaves out parts without points, describes the rest, and warns on rank 0 of classes
 * that no point has. part [*n_parts] is in the order of the pieces; codes are the sums
 * over all ranks. SP_EDATA: there is no point, or only some inputs have labels; or they
 * name different units; SP_EUSAGE: more shards than samples; SP_EMEM. Destroy after
 * failure too. */
sp_status vox_set_describe(vox_set *set, const vox_options *options,
                           const vox_piece *piece, vox_part *part, int64_t *n_parts,
                           const vox_codes *codes);
void vox_set_destroy(vox_set *set);

#endif
