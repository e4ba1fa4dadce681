/* Scans cut into blocks, in temporary files: by one process, or by several of which
 * each reads a part of the rows (sp_scan_limit).
 *
 *     one process    vox_spill_write  scan --> file, pieces
 *                    vox_spill_read   piece --> cloud
 *
 *     several        vox_cut_open     a part of the scan, ready to be read
 *                    vox_cut_run      part --> file of the part, and its shares of the
 *                                     blocks, if the header tells where the points lie
 *                    vox_cut_layout   boxes of all parts --> layout; vox_cut_run again,
 *                                     by this layout, where it was not cut by it
 *                    vox_cut_list     shares of all parts --> pieces
 *                    vox_cut_read     piece --> cloud: its records of part 0, part 1, ...
 *
 * Parts are in the order of the file, so a block has its points in the order of the
 * file whoever cut it. Local; the several exchange boxes and shares. Memory is, while a
 * file is cut, one buffer of 64 MiB. The temporary files take 48 bytes, and 4 for each
 * feature, for each point and each of its copies in margins. */
#ifndef VOX_SPILL_H
#define VOX_SPILL_H

#include "vox/vox_cloud.h"

/* A box around points; it is empty, low above high, before the first one. */
typedef struct vox_box {
    double low[3], high[3];
} vox_box;

static inline bool vox_box_is_empty(const vox_box *b)
{
    return b->low[0] > b->high[0];
}

/* How a scan is cut. Blocks begin at the corner, and the last one of a row includes its
 * upper border, so that a tile of exactly n blocks is cut into n. */
typedef struct vox_layout {
    double corner[3];    /* the whole units below the lowest x, y, z */
    int64_t n_blocks[2]; /* along x and y; 0: there is no point */
} vox_layout;

/* One part's share of a block. */
typedef struct vox_share {
    int64_t at;          /* number of the first slot in the part's file; -1: none */
    int64_t n, own;      /* records; those of points that the block owns */
    int64_t first, last; /* the least and greatest number of a block that has a point
                          * which this one owns */
    int64_t before;      /* points that it owns in the parts before; by vox_cut_list */
} vox_share;

/* One part while it is cut, and what came of it. */
typedef struct vox_cut {
    /* Set by the caller; options and path, which names the part's file, are
     * borrowed. */
    const vox_options *options;
    int file, part, n_parts; /* number of the input; 0 <= part < n_parts */
    const char *path;
    /* All else is zero before vox_cut_open. */
    vox_source source;
    vox_box found;     /* around the part's points within the bounds */
    int64_t n_void;    /* its rows without a point */
    vox_layout layout; /* by which it was cut; n_blocks are 0: it was measured alone */
    vox_share *share;  /* [blocks of the layout] */
    int64_t per_slot;
    uint32_t crc; /* of the part's points */
    struct vox_cutter *own;
} vox_cut;

/* Opens a part of an input. codes: counts its codes in the first run. Errors of
 * vox_scan_open; SP_EMEM. Close in any case; the shares stay until then. */
sp_status vox_cut_open(vox_cut *cut, vox_codes *codes);
void vox_cut_close(vox_cut *cut);
/* Reads the part and cuts it by the layout. NULL: by the one that the header claims,
 * or, where it claims none, only measures. A part of a number that the layout has no
 * rows for (vox_layout_parts) has no shares and no file. SP_EIO; SP_EMEM; errors of
 * reading. */
sp_status vox_cut_run(vox_cut *cut, const vox_layout *layout);
/* Lays out the blocks of points in a box. SP_EUSAGE: there are too many. */
sp_status vox_cut_layout(const vox_options *options, int file, const vox_box *points,
                         vox_layout *layout);
bool vox_layout_is_same(const vox_layout *a, const vox_layout *b);
static inline int64_t vox_layout_blocks(const vox_layout *layout)
{
    return layout->n_blocks[0] * layout->n_blocks[1];
}
/* The number of parts that have rows where a scan is cut by this layout in at most n:
 * as many as keep the shares of all below 32 MiB, and one at least. The others are
 * empty. */
int vox_layout_parts(const vox_layout *layout, int n);
/* Appends the pieces (the blocks with points of their own, row by row) to *pieces,
 * which is malloc'd and freed by the caller, and completes the shares [n_parts][blocks]
 * of all parts that have rows. `cut` is any of these parts. SP_EMEM. */
sp_status vox_cut_list(const vox_cut *cut, int n_parts, vox_share *share,
                       vox_piece **pieces, int64_t *n_pieces);

/* A scan that was cut in parts; all is borrowed. */
typedef struct vox_parts {
    const char *path; /* of the files, which have ".0", ".1", ... behind it */
    int n;
    int64_t n_blocks;
    const vox_share *share; /* [n][n_blocks] */
} vox_parts;

enum { VOX_PART_ROOM = 16 }; /* bytes that the name of a part's file has more */

void vox_part_path(const char *path, int part, char *to, size_t bytes);
/* Reads one piece of a scan that was cut in parts. SP_EIO; SP_EMEM. */
sp_status vox_cut_read(vox_cloud *cloud, const vox_options *options,
                       const vox_parts *parts, const vox_piece *piece);

/* Cuts a file as a whole: writes its records to `path` and appends its pieces to
 * *pieces. The file is read once where its header tells its extent, else (or with
 * --bounds, or where the header is wrong) twice; codes are counted in `codes`.
 * SP_EUSAGE: too many blocks; SP_EIO; SP_EMEM. */
sp_status vox_spill_write(const vox_options *options, int file, const char *path,
                          vox_codes *codes, vox_piece **pieces, int64_t *n_pieces);
/* Reads one piece of such a file. SP_EIO; SP_EMEM. */
sp_status vox_spill_read(vox_cloud *cloud, const vox_options *options, const char *path,
                         const vox_piece *piece);

/* ---- the file, for vox_spill.c and vox_spill_read.c ---- */

/* The head of a slot. */
typedef struct vox_slot {
    int64_t next; /* number of the block's next slot; -1: this one is its last */
    int64_t n;    /* records in this slot */
} vox_slot;

/* One point in the temporary file. The features follow it: float [n_features]. */
typedef struct vox_record {
    double xyz[3];
    uint64_t index;
    int32_t label, is_owned;
    uint32_t home, home_row; /* as in vox_cloud; home_row counts within the part */
} vox_record;

static inline size_t vox_record_bytes(const vox_options *o)
{
    return sizeof(vox_record) + ((size_t)o->n_features * sizeof(float) + 7) / 8 * 8;
}

static inline size_t vox_slot_bytes(const vox_options *o, int64_t per_slot)
{
    return sizeof(vox_slot) + (size_t)per_slot * vox_record_bytes(o);
}

#endif
