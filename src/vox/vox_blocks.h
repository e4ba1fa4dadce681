/* The inputs of spvox convert, cut into blocks by all ranks (vox_spill.h): part p of
 * input f by rank (f + p) % size. A large input has several parts, so that a single
 * huge one is dealt to all ranks; of many inputs each is cut by one. The files of the
 * parts are PREFIX.spill-INPUT-PART.tmp. */
#ifndef VOX_BLOCKS_H
#define VOX_BLOCKS_H

#include "vox/vox_spill.h"

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

#endif
