/* Packed models: one file with everything for prediction, read without HDF5.
 *
 *     0   "SPMODEL1"
 *     8   uint32   CRC-32C of the bytes from 16 to the numbers
 *     12  uint32   CRC-32C of the numbers
 *     16  uint64   bytes of the header; they begin at byte 32
 *     24  uint64   bytes of the numbers; they begin at the next multiple of 64
 *     header       program, source, step, the keys of the deck that describe the
 *                  network, columns, statistics, classes, recipe, and a row for each
 *                  array: name, type, shape
 *     numbers      the arrays one after the other, float32 or bfloat16
 *
 * All numbers have the lowest byte first. Batch norms are stored unchanged: a forward
 * pass applies them to the sums of a convolution before it writes them, and folded into
 * the weights they would round differently from `sptrain predict`. A model in bf16
 * stores the weights of its convolutions in bfloat16. A network in bf16 rounds them to
 * that anyway, so that the model computes the same bits as `sptrain predict`. Only the
 * network's keys of the deck are stored: no path of the training is in the file.
 */
#ifndef SP_PACKED_H
#define SP_PACKED_H

#include <stdio.h>

#include "weights/sp_weights_model.h"

/* True if the file begins as a packed model. Local. */
bool sp_packed_is(const char *path);
/* Writes a model, in the precision given (SP_FP32 or SP_BF16), as a file that
 * atomically replaces the one at path. Local. SP_EIO, SP_EMEM. */
sp_status sp_packed_write(const char *path, const sp_weights_model *model,
                          sp_precision precision);
/* Reads a model; sp_weights_model_close follows in any case. Local. SP_EDATA: the file
 * is damaged, which its checksums find, or of another version; SP_EIO, SP_EMEM. */
sp_status sp_packed_read(sp_weights_model *model, const char *path);
/* Copies the weights into the flat buffers of a graph. SP_EDATA: it is another network.
 */
sp_status sp_packed_load(const sp_weights_model *model, const sp_graph *graph,
                         float *param, float *running);
/* Prints what the file holds: a line for each array, and the model. Local. */
sp_status sp_packed_print(const char *path, FILE *to);

#endif
