/* Blocks that several scans of an area have (--buffer): the network computes each once.
 *
 *     first scan with the block   its points and others' --label_net_run--> sums
 *                                 --label_store_put--> file: voxels and their sums
 *     scans after it              own points --> voxels of the file, sums
 *
 * If a block with its margin lies within the buffer around two scans, both would make the
 * same sample of it (vox_block_is_complete). The extents of the headers say which scans
 * have it later. All ranks know the pieces of a scan that was cut, and so which of them
 * are stored. A scan with a damaged neighbour stores nothing. The last scan with a block
 * removes its file, which is in DIR/.sptrain/tmp and has 8 bytes for each voxel and sum,
 * and 15 for each voxel. All is local. */
#ifndef LABEL_STORE_H
#define LABEL_STORE_H

#include "label/label_files.h"
#include "scan/sp_gridding.h"
#include "vox/vox_spill.h"

/* All blocks that are stored. All zero: no block is. */
typedef struct label_stored {
    vox_block_number *block; /* [n] */
    int64_t n;
} label_stored;

/* The blocks of one scan. All zero: no block is shared. */
typedef struct label_store {
    const vox_options *vox; /* borrowed, as the files */
    const label_files *files;
    int scan;               /* number of the input */
    int n_sums;             /* of a voxel */
    vox_block_number *done; /* [n_done] stored by other scans, complete for this one */
    int64_t n_done;
    vox_extent *later; /* [n_later] of scans to come that are near */
    int n_later;
    vox_extent own; /* of the scan's points, once it is cut; low above high: unknown */
} label_store;

/* No points: low above high. */
#define LABEL_NO_EXTENT ((vox_extent){{1, 1}, {-1, -1}})

/* Opens the store of a scan that is about to be cut. Close after SP_EMEM too. */
sp_status label_store_open(label_store *store, const vox_options *vox,
                           const label_files *files, int scan, int n_sums,
                           const label_stored *stored);
void label_store_close(label_store *store);
/* Adds a scan that comes later. SP_EMEM. */
sp_status label_store_add_later(label_store *store, const vox_extent *extent);
/* Once the scan is cut, on all ranks: adds the pieces that it will store to the list of
 * all, and takes those off that no later scan has. SP_EMEM. */
sp_status label_store_note(const label_store *store, const vox_piece *piece,
                           int64_t n_pieces, label_stored *stored);

/* Has a scan before this one stored the block? */
bool label_store_is_done(const label_store *store, const vox_piece *piece);
/* Reads the voxels of the block into grid->sample. SP_EIO; SP_EMEM. */
sp_status label_store_get(const label_store *store, const vox_piece *piece,
                          sp_grid *grid);
/* Reads their sums [n voxels][n_sums]. SP_EIO. */
sp_status label_store_sums(const label_store *store, const vox_piece *piece,
                           uint64_t *sum);
/* Writes both, if the block is to be stored. SP_EIO. */
sp_status label_store_put(const label_store *store, const vox_piece *piece,
                          const sp_sample *sample, const uint64_t *sum);
/* One rank, once no rank reads blocks of the scan: removes the files that no later scan
 * has. */
void label_store_clean(const label_store *store);

#endif
