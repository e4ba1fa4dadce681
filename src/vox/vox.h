/* The commands of spvox. Each is collective over comm's ranks, takes the command's own
 * arguments (argv[0] is the command's name) and answers --help itself. SP_EUSAGE for
 * options that do not fit, SP_EDATA for input, SP_EIO for output; a record is set on
 * failure.
 */
#ifndef VOX_H
#define VOX_H

#include "comm/sp_comm.h"

/* Scans to voxel shards. The same bytes for any number of ranks. */
sp_status vox_convert(int argc, char **argv, sp_comm *comm);
/* Predicted classes back onto a scan. Rank 0 works. */
sp_status vox_apply(int argc, char **argv, sp_comm *comm);
/* Synthetic labelled scenes as shards. */
sp_status vox_scene(int argc, char **argv, sp_comm *comm);
/* What shards hold. */
sp_status vox_info(int argc, char **argv, sp_comm *comm);

#endif
