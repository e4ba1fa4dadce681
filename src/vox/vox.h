/* The commands of spvox, which lead from scans to shards and from predictions back.
 *
 *     convert   scans --vox_set, vox_cloud--> points of one sample (vox_cloud)
 *               cloud --vox_voxelize--> voxels --vox_part--> temporary file of a rank
 *               all parts --vox_set--> classes, statistics --> voxel shards (sp_shard)
 *     apply     predictions + scan --> codes of points --sp_scan_write--> labelled scan
 *     scene     seed --sp_scene--> synthetic labelled shards
 *     info      shards --> counts, ranges, cost
 *     index     shards --> index file of their folder (sp_index_file)
 *     bank      shards --> objects of classes as the samples of one shard
 *     compare   two scans, or folders of scans --vox_compare_*--> scores
 *     view      shard, predictions or scan --vox_view_load_*--> points --> picture
 *
 * vox_options reads the command line of convert and apply; main of spvox.c starts the
 * ranks and calls one of the functions below.
 *
 * Each command is collective over the ranks of comm and gets the command's own arguments
 * (argv[0] is its name); its vox_..._usage is what --help prints. SP_EUSAGE: options that do not fit;
 * SP_EDATA: input; SP_EIO: output; SP_EMEM. A rank that fails holds the record of the
 * error. */
#ifndef VOX_H
#define VOX_H

#include "base/sp_word_table.h"
#include "comm/sp_comm.h"

extern const sp_usage vox_convert_usage, vox_apply_usage, vox_scene_usage,
    vox_info_usage, vox_index_usage, vox_bank_usage, vox_compare_usage, vox_view_usage;

/* Converts scans to voxel shards. The bytes do not depend on the number of ranks. */
sp_status vox_convert(int argc, char **argv, sp_comm *comm);
/* Writes predicted classes onto a scan. Only rank 0 works. */
sp_status vox_apply(int argc, char **argv, sp_comm *comm);
/* Synthetic labelled scenes as shards. */
sp_status vox_scene(int argc, char **argv, sp_comm *comm);
/* Prints the content of shards. */
sp_status vox_info(int argc, char **argv, sp_comm *comm);
/* Writes the index file of a folder of shards. Only rank 0 works. */
sp_status vox_index(int argc, char **argv, sp_comm *comm);
/* Collects the objects of classes. Only rank 0 works. */
sp_status vox_bank(int argc, char **argv, sp_comm *comm);
/* Compares the classes of the same points in two scans or folders. SP_EBELOW: the mean
 * IoU is below the bound that was given. */
sp_status vox_compare(int argc, char **argv, sp_comm *comm);
/* Draws a sample of a shard, its predictions, or a scan. Only rank 0 works. */
sp_status vox_view(int argc, char **argv, sp_comm *comm);

#endif
