/* `sptrain label`: scans with the classes that a model gives their points.
 *
 *     words of the command line                               label_options
 *     model: run folder or checkpoint --> columns, codes      label_model
 *     scans --> what each output is called, which are done    label_files
 *     for each scan                                           label_scan
 *         points of a block --voxelize--> sample              vox/vox_voxelize.h
 *         sample --network--> probabilities of its voxels     label_net
 *         blocks of all ranks --> probabilities of a point    label_blocks
 *         --> class, confidence, ... of all points            label_result
 *         scan + classes --> output                           scan/sp_scan.h
 *
 * A scan that the model's recipe cuts into blocks is shared by all ranks: one of them
 * cuts it into a temporary file and collects the classes, the blocks go to all. A scan
 * that is one sample belongs to one rank. Sums over blocks and views are of whole
 * numbers (merge/sp_merge.h), so the bytes do not depend on the number of ranks.
 *
 * A rank needs memory for the points of one block, for the probabilities of the blocks
 * whose neighbours are not done, and, where it collects a scan, for 2 bytes and the
 * added fields of each point. The points of a scan are in a temporary file meanwhile.
 *
 *     DIR/tile.laz                an output, complete
 *     DIR/.sptrain/tile.laz.made  what it was made of, by which model and options
 *     DIR/.sptrain/               all that is unfinished; lock, status, heartbeat
 */
#ifndef LABEL_H
#define LABEL_H

#include "comm/sp_comm.h"

/* Runs the command on its own words (argv[0] is "label"). Collective; reports its own
 * failures and returns the exit status. */
sp_status sp_label(int argc, char **argv, sp_comm *comm);

#endif
