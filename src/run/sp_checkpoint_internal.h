/* Between the files of sp_checkpoint. */
#ifndef SP_CHECKPOINT_INTERNAL_H
#define SP_CHECKPOINT_INTERNAL_H

#include "h5/sp_h5.h"
#include "run/sp_checkpoint.h"

/* Root attributes with their checksum; of norm the texts. */
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
/* The rows of norm, each a dataset with its checksum. */
sp_status sp_checkpoint_write_rows(sp_h5 *file, const sp_normalization *norm);
/* After read_root, which has filled the texts: SP_EDATA where lengths differ. */
sp_status sp_checkpoint_read_rows(sp_h5 *file, sp_normalization *norm);
/* A dataset with its attribute crc32c. */
sp_status sp_checkpoint_write_array(sp_h5 *file, const char *name, sp_h5_type type,
                                    int rank, const int64_t *dim, const void *data,
                                    size_t bytes);
/* SP_EDATA unless format and version are those of a checkpoint. */
sp_status sp_checkpoint_check_format(sp_h5 *file);

#endif
