/* Scans cut into blocks by one process or by several. Each reads a part of the rows
 * (sp_scan_limit) and writes it to a temporary file, which all of them can read:
 *
 *     vox_cut_open     a part of the scan, ready to be read
 *     vox_cut_run      part --> file of the part, if the header has the extent
 *     vox_cut_layout   boxes of all parts --> layout; vox_cut_run again, by this
 *                      layout, if it was not cut by it
 *     vox_parts_open   files of all parts --> which records each block has in them
 *     vox_parts_list   --> pieces
 *     vox_parts_read   piece --> cloud: its records of part 0, part 1, ...
 *
 * With a buffer (vox_options) the points of neighbouring inputs join:
 *
 *     own input     pieces: its blocks, and all blocks with its points in the margin
 *     other inputs  points within the buffer of the own ones are in these pieces as
 *                   SP_POINT_FOREIGN: they shape voxels and features, and get no class
 *
 * Blocks then begin at multiples of their edge, so that an area has the same blocks for
 * any division into files, and the points of a block are sorted by position, so that
 * sums over them do not depend on files or parts. A block is complete, and its classes
 * are as from one file with all points, if the buffer is at least block + 2 overlap.
 *
 * Parts are in the order of the rows, so a block has its points in the order of the
 * scan whoever cut it. All but vox_box_join is local. Memory is, while a part is cut,
 * one buffer of 64 MiB. The temporary files need 48 bytes, and 4 for each feature, for
 * each point and each of its copies in margins. */
#ifndef VOX_SPILL_H
#define VOX_SPILL_H

#include "vox/vox_cloud.h"

/* A box around points; it is empty, low above high, before the first one. */
typedef struct vox_box {
    double low[3], high[3];
} vox_box;

#define VOX_NO_BOX                                                                     \
    ((vox_box){{INFINITY, INFINITY, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}})

static inline bool vox_box_is_empty(const vox_box *b)
{
    return b->low[0] > b->high[0];
}

/* Are points in the box at most `distance` from the window, in x and y? */
static inline bool vox_box_meets(const vox_box *b, const double window[4],
                                 double distance)
{
    return window[0] - distance <= b->high[0] && b->low[0] <= window[2] + distance &&
           window[1] - distance <= b->high[1] && b->low[1] <= window[3] + distance;
}

/* With a buffer: the numbers of a block along x and y, the same for all inputs. */
typedef struct vox_block_number {
    int64_t x, y;
} vox_block_number;

/* How a scan is cut. Blocks begin at the corner, and the last one of a row includes its
 * upper border, so that a tile of exactly n blocks is cut into n. */
typedef struct vox_layout {
    double corner[3];    /* the whole units below the lowest x, y, z */
    int64_t n_blocks[2]; /* along x and y; 0: there is no point */
    /* With a buffer: foreign points are taken from low <= x, y <= high; else zeros. */
    vox_extent reach;
} vox_layout;

/* One part while it is cut, and what came of it. */
typedef struct vox_cut {
    /* Set by the caller; options and path, which names the part's file, are
     * borrowed. */
    const vox_options *options;
    int file, part, n_parts; /* number of the input; 0 <= part < n_parts */
    const char *path;
    const char
        *chunks; /* gets the chunks of COPC (sp_scan_copy_chunks); borrowed, or NULL */
    const vox_block_number *done; /* [n_done] blocks that are done; borrowed */
    int64_t n_done;
    /* [n_inputs] 1: damaged, and no context. vox_cut_run marks those that it finds; cut
     * again without them, since blocks have their points before the damage. Borrowed;
     * NULL without a buffer. */
    unsigned char *is_damaged;
    /* All else is zero before vox_cut_open. */
    vox_box found;     /* around the part's points within the bounds */
    bool is_partial;   /* an input was found to be damaged, and is in blocks in part */
    int64_t n_rows;    /* that the part has */
    int64_t n_missing; /* of these, without a point, or outside of a window's blocks */
    vox_layout layout; /* used to cut it; n_blocks are 0: it was only measured */
    struct vox_cutter *own;
} vox_cut;

/* Opens a part of an input. codes: counts its codes in the first run; NULL: they are
 * counted already. Errors of vox_scan_open; SP_EMEM. Close in any case. */
sp_status vox_cut_open(vox_cut *cut, vox_codes *codes);
void vox_cut_close(vox_cut *cut);
/* Reads the part and cuts it by the layout. NULL: by the one that the header claims,
 * or, without such a claim, only measures. A part without rows in the layout
 * (vox_layout_parts) has no file. SP_EIO; SP_EMEM; errors of reading. */
sp_status vox_cut_run(vox_cut *cut, const vox_layout *layout);
/* Extends a box to the boxes of all ranks. Collective. */
sp_status vox_box_join(sp_comm *comm, vox_box *box);
/* Lays out the blocks of points in a box. SP_EUSAGE: too many blocks. */
sp_status vox_cut_layout(const vox_options *options, int file, const vox_box *points,
                         vox_layout *layout);
/* True if both layouts cut a scan into the same blocks, with the same points of other
 * inputs. */
bool vox_layout_is_same(const vox_options *options, const vox_layout *a,
                        const vox_layout *b);
/* The place of a coordinate in blocks from the corner: with a buffer multiples of the edge
 * are the same from every corner. The block there; outside of the layout the nearest. */
double vox_layout_place(const vox_options *options, const vox_layout *layout, int axis,
                        double x);
int64_t vox_layout_block(const vox_options *options, const vox_layout *layout, int axis,
                         double x);
/* The blocks that a point within options->bounds may lie in, margins included, if these are
 * a window; else all. */
void vox_layout_need(const vox_options *options, const vox_layout *layout,
                     int64_t first[2], int64_t last[2]);
/* The window around these blocks with their margins; infinite beyond the last ones. */
void vox_layout_surround(const vox_options *options, const vox_layout *layout,
                         double window[4]);
/* The numbers of the block that begins there. */
vox_block_number vox_block_at(const vox_options *options, const double low[2]);
/* True if an input with points in this extent has the block, in its margin at least,
 * with all points of the block and its margin. */
bool vox_block_is_complete(const vox_options *options, const vox_extent *extent,
                           vox_block_number block);
bool vox_block_is_in(vox_block_number block, const vox_block_number *list, int64_t n);
static inline int64_t vox_layout_blocks(const vox_layout *layout)
{
    return layout->n_blocks[0] * layout->n_blocks[1];
}
/* The number of parts with rows if this layout cuts a scan in at most n: the most that
 * keep all shares together below 32 MiB, and one at least. The others are empty. */
int vox_layout_parts(const vox_layout *layout, int n);

/* One part's share of a block. */
typedef struct vox_share {
    int64_t at;          /* number of the first slot in the part's file, or -1 */
    int64_t n, own;      /* records; records of points that the block owns */
    int64_t foreign;     /* records of points of other inputs */
    int64_t first, last; /* the least and greatest number of a block that has a point
                          * which this one owns */
    int64_t before;      /* points that it owns in the parts before */
} vox_share;

/* A scan that was cut in parts. All zero: no scan. */
typedef struct vox_parts {
    /* Set by the caller; options and path, the prefix of the parts' file names
     * (vox_part_path), are borrowed. */
    const vox_options *options;
    int file; /* number of the input */
    const char *path;
    int n; /* parts that have rows */
    vox_layout layout;
    vox_source source;
    uint32_t crc;     /* of the scan's points and layout: identifies the scan */
    vox_share *share; /* [n][blocks of the layout] */
} vox_parts;

enum { VOX_PART_ROOM = 16 }; /* bytes that the name of a part's file has more */

void vox_part_path(const char *path, int part, char *to, size_t bytes);
/* Reads what became of the parts that were cut by this layout, in at most n_parts.
 * SP_EIO; SP_EMEM. Close in any case. */
sp_status vox_parts_open(vox_parts *parts, const vox_layout *layout, int n_parts);
void vox_parts_close(vox_parts *parts);
/* Appends the pieces (the blocks with points of their own, row by row) to *pieces,
 * which is malloc'd and freed by the caller. SP_EMEM. */
sp_status vox_parts_list(const vox_parts *parts, vox_piece **pieces, int64_t *n_pieces);
/* Reads one of the pieces, part by part. SP_EIO; SP_EMEM. */
sp_status vox_parts_read(const vox_parts *parts, const vox_piece *piece,
                         vox_cloud *cloud);
/* Sorts the points by position and features [n_columns]. SP_EMEM. */
sp_status vox_cloud_sort(vox_cloud *cloud, int n_columns);

/* ---- the file, for vox_spill.c and vox_spill_read.c ---- */

/* The beginning of a part's file. The shares [blocks] follow it, and the slots. */
typedef struct vox_part_head {
    vox_source source;
    uint32_t crc; /* of the part's points */
} vox_part_head;

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

/* The most records of a slot, if blocks are cut by the layout. */
int64_t vox_slot_records(const vox_options *options, const vox_layout *layout);
static inline size_t vox_slot_bytes(const vox_options *o, int64_t n_records)
{
    return sizeof(vox_slot) + (size_t)n_records * vox_record_bytes(o);
}
/* The offset in the file of a slot of this many bytes. */
static inline int64_t vox_slot_at(int64_t slot, size_t slot_bytes, int64_t n_blocks)
{
    return (int64_t)sizeof(vox_part_head) + n_blocks * (int64_t)sizeof(vox_share) +
           slot * (int64_t)slot_bytes;
}

#endif
