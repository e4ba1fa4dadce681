/* `sptrain weights`: weights of other programs in and out.
 *
 *     list FILE     sp_tensors.h
 *     import FILE   sp_tensors.h --> sp_weights_import.h --> a file for run.init_from
 *     export MODEL  sp_weights_model.h --> sp_layout.h, sp_naming.h --> safetensors
 *                                      --> sp_packed.h              --> packed model
 */
#ifndef SP_WEIGHTS_H
#define SP_WEIGHTS_H

#include "base/sp_error.h"

/* Answers the command; argv[1] is "weights". Local, rank 0 only. Prints a report to
 * standard output. SP_EDATA unless all parameters of the network are filled or
 * --partial is given. */
sp_status sp_weights_answer(int argc, char **argv);

#endif
