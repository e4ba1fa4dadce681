/* Between the files of sp_checkpoint. */
#ifndef SP_CHECKPOINT_INTERNAL_H
#define SP_CHECKPOINT_INTERNAL_H

#include "run/sp_checkpoint.h"
#include "h5/sp_h5.h"

/* Root attributes with their checksum; norm (its names alone) may be NULL. */
sp_status sp_checkpoint_write_root(sp_h5 *file, const sp_checkpoint_state *state,
                                   const sp_normalization *norm);
/* Fills state, and the names of norm, malloc'd, after a failure too. A file of weights
 * alone has no attribute format: step 0 and deck NULL. */
sp_status sp_checkpoint_read_root(sp_h5 *file, sp_checkpoint_state *state,
                                  sp_normalization *norm);
/* SP_EDATA unless format and version are those of a checkpoint. */
sp_status sp_checkpoint_check_format(sp_h5 *file);

#endif
