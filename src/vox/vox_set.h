/* The data set that spvox convert makes, from its inputs to what its shards say:
 *
 *     inputs --vox_blocks--> pieces of blocks, in temporary files     (with --block)
 *     a cloud, voxelized --vox_part--> temporary file of the rank
 *     all parts --vox_set--> list of samples, classes, codes, statistics */
#ifndef VOX_SET_H
#define VOX_SET_H

#include "scan/sp_gridding.h"
#include "vox/vox_spill.h"

/* ---- vox_blocks ----
 * The inputs of spvox convert, cut into blocks by all ranks (vox_spill.h): part p of
 * input f by rank (f + p) % size. A large input has several parts, so that a single
 * huge one is dealt to all ranks; of many inputs each is cut by one. The files of the
 * parts are PREFIX.spill-INPUT-PART.tmp. */

/* All zero: nothing is cut. */
typedef struct vox_blocks {
    const vox_options *options; /* borrowed, as comm */
    sp_comm *comm;
    /* [options->n_inputs] */
    struct vox_blocks_input *input;
    vox_parts parts; /* of the input that was read last */
    char path[4096]; /* prefix of the names of its parts' files */
} vox_blocks;

/* Cuts all inputs and appends the pieces of every size-th one to *mine, which is
 * malloc'd and freed by the caller. Collective, agreed. Errors of vox_cut_run and
 * vox_cut_layout; SP_EMEM. Close in any case. */
sp_status vox_blocks_cut(vox_blocks *blocks, const vox_options *options, sp_comm *comm,
                         vox_codes *codes, vox_piece **mine, int64_t *n);
/* Reads a piece, which any rank may have listed; fast for one of the input of the last
 * call. Local. SP_EIO; SP_EMEM. */
sp_status vox_blocks_read(vox_blocks *blocks, const vox_piece *piece, vox_cloud *cloud);
/* Removes this rank's files, which no other rank may be reading. Local. */
void vox_blocks_close(vox_blocks *blocks);

/* ---- vox_part ----
 * Voxelized samples between voxelization and their shard. A rank appends the samples
 * that it voxelized to a temporary file of its own (PREFIX.part-RANK.tmp). When all
 * sizes are known, the rank that writes a shard reads them from there. So each sample
 * is voxelized once, by any rank, memory holds one sample at a time, and a shard is a
 * contiguous range of samples. The cost is the shards' size in temporary disk space. */

/* Describes one voxelized sample. Ranks exchange it as plain bytes. */
typedef struct vox_part {
    int64_t piece; /* number of the sample in the list of pieces */
    /* number of voxels; numbers of points in the point map and in the context */
    int64_t n, n_points, n_context;
    int64_t rank, at; /* rank with the sample in its file, and its first byte there */
    int64_t cost[SP_COST_COLUMNS];
    double origin[3];
    vox_source source;
    double step[3]; /* of x, y and z that lie on a grid coarser than voxels, else 0 */
    int32_t max_label;  /* largest label of its points; -1: no point has one */
    int64_t n_labelled; /* number of voxels with a class */
    double mean[VOX_MAX_FEATURES]; /* mean of each feature over the voxels */
    double m2[VOX_MAX_FEATURES];   /* sum of squared differences from the mean */
    double most[VOX_MAX_FEATURES]; /* the largest value of each, 0 at least */
} vox_part;

/* Appends the grid's sample to the open file at part->at, and sets n, n_points,
 * n_labelled, cost, origin, mean, m2 and most of part from the grid. *bytes is the number of
 * bytes written. Local. SP_EIO. */
sp_status vox_part_write(int fd, const char *path, const sp_grid *grid, int n_features,
                         vox_part *part, int64_t *bytes);
/* Reads a sample. Its arrays are malloc'd and freed by vox_part_free, never by
 * sp_sample_destroy. Local. SP_EIO; SP_EMEM. */
sp_status vox_part_read(const char *path, const vox_part *part, int n_features,
                        sp_sample *sample);
void vox_part_free(sp_sample *sample);

/* ---- vox_set ----
 * A data set as a whole, once all its samples are voxelized: the list of its samples,
 * classes, codes, statistics. Local; every rank computes the same from the same lists.
 */

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
