/* A scan that all ranks cut into blocks together (vox/vox_spill.h). A part of its rows
 * belongs to each rank, which cuts it into a file of its own in DIR/.sptrain/tmp:
 *
 *     thread of a rank   rows of its part --label_cut_begin--> file, shares of blocks
 *     all ranks          extents, files --label_cut_finish-----> pieces, the same on all
 *     any rank           piece --label_cut_read--> its points, from the files of all
 *
 * The thread works while the scan before is predicted. If the header has no extent of
 * the points, it only measures, and the ranks cut within label_cut_finish. The later
 * results do not depend on which rank has which part. */
#ifndef LABEL_CUT_H
#define LABEL_CUT_H

#include "base/sp_task.h"
#include "comm/sp_comm.h"
#include "label/label_store.h"
#include "vox/vox_spill.h"

typedef struct label_cut {
    sp_comm *comm; /* borrowed, as the options */
    const vox_options *vox;
    int scan;
    label_store store;     /* of blocks that other scans have too */
    char path[LABEL_PATH]; /* prefix of the parts' names */
    char own_path[(int)LABEL_PATH + VOX_PART_ROOM]; /* this rank's file */
    char chunks[LABEL_PATH]; /* of COPC with a window, for the output */
    /* This rank's, until it is taken. */
    vox_cut part;
    unsigned char *is_damaged; /* [vox->n_inputs] */
    sp_task task;
    vox_parts parts;  /* all, once it is taken */
    vox_piece *piece; /* [n_pieces] the same on all ranks */
    int64_t n_pieces;
    int64_t n_missing; /* rows of the scan without a point, once it is taken */
} label_cut;

/* Begins to cut this rank's part of a scan on a thread. Each rank calls it, with the
 * same path and first_rank. `store`, which tells the scan and its options, is the cut's
 * from then on. Local. SP_EMEM. Free after failure too, unless *cut is NULL. */
sp_status label_cut_begin(label_cut **cut, sp_comm *comm, const label_store *store,
                          const char *path, int first_rank, vox_codes *codes);
/* Waits for all parts and lists the pieces. Collective, agreed. Errors of vox_cut_run.
 */
sp_status label_cut_finish(label_cut *cut);
/* Reads a piece of a cut that was taken: in the order of its points, or only the scan's
 * own if the piece is done (label_store_is_done). Local. SP_EIO; SP_EMEM. */
sp_status label_cut_read(const label_cut *cut, vox_cloud *cloud, int64_t piece);
/* Removes this rank's file, which no other rank may be reading. Waits for the thread,
 * which ends early if vox->is_given_up. Local; NULL is allowed. */
void label_cut_free(label_cut *cut);

#endif
