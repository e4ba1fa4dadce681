/* `sptrain label`: scans with the classes that a model gives their points.
 *
 *     words of the command line                               label_options
 *     model: run folder or checkpoint --> columns, codes      label_model
 *     scans --> what each output is called, which are done    label_files
 *     for each scan                                           label_scan
 *         rows of all ranks --> points by blocks              label_cut, vox_spill
 *         points of a block --voxelize--> sample, ahead       label_ahead, vox_voxelize
 *         sample --network--> probabilities of its voxels     label_net
 *             or, if an earlier scan had the block, its file  label_store
 *         blocks of all ranks --> probabilities of a point    label_blocks
 *         --> class, confidence, ... to the row's writer    label_result
 *         rows + classes --> output, beside the network       label_writer, sp_scan
 *
 * A scan that the model's recipe cuts into blocks is shared by all ranks: each cuts a
 * part of its rows, predicts some of its blocks and writes some rows of LAS and LAZ
 * (one rank all of them in other formats). A scan that is one sample belongs to one
 * rank. Sums over blocks and views are of whole numbers (predict/sp_merge.h), so the
 * bytes do not depend on the number of ranks.
 *
 * A rank needs memory for the points of three blocks, for the probabilities of the
 * blocks with unfinished neighbours, for the buffers of a cut, and for 2 bytes and the
 * added fields of each point that it writes of two scans. The points of a scan, and of
 * the next one, are in temporary files meanwhile, as points that are context of others
 * (vox/vox_rim.h) and the probabilities of blocks that others have too.
 *
 *     DIR/tile.laz                an output, complete
 *     DIR/.sptrain/tile.laz.made  its inputs, model and options
 *     DIR/.sptrain/               all unfinished work; lock, status, heartbeat
 */
#ifndef LABEL_H
#define LABEL_H

#include "base/sp_word_table.h"
#include "comm/sp_comm.h"

extern const sp_usage sp_label_usage; /* label_options.c */

/* Runs the command on its own words (argv[0] is "label"). Collective; reports its own
 * failures and returns the exit status. */
sp_status sp_label(int argc, char **argv, sp_comm *comm);

#endif
