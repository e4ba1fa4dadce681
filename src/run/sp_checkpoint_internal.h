/* Between the files of sp_checkpoint. */
#ifndef SP_CHECKPOINT_INTERNAL_H
#define SP_CHECKPOINT_INTERNAL_H

#include "h5/sp_h5.h"
#include "run/sp_checkpoint.h"

/* Root attributes with their checksum; norm (its names alone) may be NULL. */
sp_status sp_checkpoint_write_root(sp_h5 *file, const sp_checkpoint_state *state,
                                   const sp_normalization *norm);
/* Fills state, and the names of norm, malloc'd, after a failure too. A file of weights
 * alone has no attribute format: step 0 and deck NULL. SP_EDATA for numbers that no run
 * can have come to. */
sp_status sp_checkpoint_read_root(sp_h5 *file, sp_checkpoint_state *state,
                                  sp_normalization *norm);
/* SP_EDATA for a deck that includes a file and for a seed that is not its own. One that
 * cannot be read, as a newer version's, is no damage: who needs it finds out. */
sp_status sp_checkpoint_check_deck(const char *path, const sp_checkpoint_state *state);
/* SP_EDATA unless format and version are those of a checkpoint. */
sp_status sp_checkpoint_check_format(sp_h5 *file);

#endif
