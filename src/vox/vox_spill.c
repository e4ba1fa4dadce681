/* Cutting a scan, or a part of its rows, into blocks (vox_spill.h), in one pass over
 * the rows if the header has the extent of the scan. The slots of the temporary file
 * are of one size:
 *
 *     file   | vox_part_head | vox_share of each block | slot | slot | ...
 *     slot   | next | n | record | record | ...
 *
 * A block's records, in the order of the rows, fill one slot after the other; the head
 * of a slot has the number of the block's next one. So a block is written before its
 * number of points is known, and a sample depends only on its scan. Slots that were
 * numbered and stay empty are holes of the file. */
#include "vox/vox_spill.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "compute/sp_backend.h"
#include "report/sp_progress.h"
#include "scan/sp_gridding.h"
#include "vox/vox_rim.h"

enum {
    BUFFER_BYTES = 64 << 20, /* bytes of all blocks' buffers together */
    MOST_PER_SLOT = 1024
};

/* The records of one block that are in the buffer. */
typedef struct block_state {
    int64_t slot;   /* the place of the buffer's records in the file */
    int64_t n_held; /* records in the buffer */
    bool is_done;   /* it gets no context */
} block_state;

/* The state of cutting one part. */
typedef struct vox_cutter {
    vox_cut *cut; /* that this belongs to */
    const vox_options *options;
    sp_scan *scan;
    sp_scan_points points;
    vox_codes *codes; /* NULL once they are counted */
    uint32_t crc;     /* of the part's points */
    int fd;
    int64_t n, per_slot;       /* blocks; records of a slot */
    block_state *block;        /* [n] */
    vox_share *share;          /* [n] */
    unsigned char *buffer;     /* [n] slots to write */
    int64_t n_slots;           /* numbers given so far */
    int64_t home;              /* the block that owns the point at hand */
    int64_t first[2], last[2]; /* blocks along x and y that are needed */
    vox_extent reach;          /* that blocks need points of other inputs from */
    vox_record *record;        /* of the point at hand, with its features */
    size_t record_bytes, slot_bytes;
    int n_attrs;
    sp_progress progress;
} vox_cutter;

/* ---- passes over the rows ---- */

static void spill_extend(vox_box *found, const double *xyz)
{
    for (int a = 0; a < 3; a++) { /* fmin and fmax are calls, for NaN */
        found->low[a] = found->low[a] < xyz[a] ? found->low[a] : xyz[a];
        found->high[a] = found->high[a] > xyz[a] ? found->high[a] : xyz[a];
    }
}

/* Points outside of a window may be context. */
static bool spill_is_read(const vox_options *o, const double *xyz)
{
    return o->is_window ? !sp_scan_is_missing(xyz) : vox_is_within(o, xyz);
}

/* Handles the points at hand. */
static sp_status each_of(vox_cutter *c, sp_status (*take)(vox_cutter *c, int64_t i))
{
    c->cut->n_rows += c->points.n;
    c->cut->n_missing += c->points.n_missing;
    if (c->codes)
        vox_codes_count_missing(c->codes, c->options, c->cut->file,
                                c->points.n_missing);
    for (int64_t i = 0; i < c->points.n; i++) {
        const double *xyz = c->points.xyz + 3 * i;

        if (!spill_is_read(c->options, xyz))
            continue;
        if (vox_is_within(c->options, xyz))
            spill_extend(&c->cut->found, xyz);
        c->crc = sp_crc32c(c->crc, xyz, 3 * sizeof *xyz);
        if (c->codes)
            vox_codes_count(c->codes, c->points.label[i]);
        if (take)
            SP_TRY(take(c, i));
    }
    return SP_OK;
}

/* Reads all points of the part, within bounds that are no window, for their extent,
 * checksum and codes, and calls `take` (may be NULL) for each. */
static sp_status each_point(vox_cutter *c, const char *what,
                            sp_status (*take)(vox_cutter *c, int64_t i))
{
    const int64_t n_points = sp_scan_count(c->scan);
    int64_t n_read = 0;

    if (!c->options->is_quiet)
        sp_progress_begin(&c->progress, what, "points",
                          n_points > 0 ? n_points / c->cut->n_parts : 0);
    do {
        SP_TRY(sp_scan_next(c->scan, SP_SCAN_BLOCK, &c->points));
        n_read += c->points.n;
        if (!c->options->is_quiet)
            sp_progress_at(&c->progress, n_read, "%s", sp_scan_path(c->scan));
        sp_liveness_count();
        SP_TRY(vox_options_check_stop(c->options));
        SP_TRY(each_of(c, take));
    } while (c->points.n > 0);
    c->codes = NULL;
    return SP_OK;
}

/* ---- points to blocks ---- */

static sp_status spill_flush(vox_cutter *c, int64_t block, bool is_end)
{
    block_state *b = &c->block[block];
    vox_share *share = &c->share[block];
    unsigned char *slot = c->buffer + (size_t)block * c->slot_bytes;
    vox_slot head = {.next = -1, .n = b->n_held};
    int64_t at;

    if (b->n_held == 0)
        return SP_OK;
    if (share->at < 0)
        share->at = b->slot = c->n_slots++;
    at = vox_slot_at(b->slot, c->slot_bytes, c->n);
    if (!is_end)
        head.next = b->slot = c->n_slots++;
    memcpy(slot, &head, sizeof head);
    b->n_held = 0;
    return sp_file_write_at(c->fd, c->cut->path, slot,
                            sizeof head + (size_t)head.n * c->record_bytes, at);
}

static sp_status put_record(vox_cutter *c, int64_t block, int32_t is_owned)
{
    block_state *b = &c->block[block];
    vox_record *to =
        (vox_record *)(void *)(c->buffer + (size_t)block * c->slot_bytes +
                               sizeof(vox_slot) + (size_t)b->n_held * c->record_bytes);

    memcpy(to, c->record, c->record_bytes);
    to->is_owned = is_owned;
    if (is_owned != 1)
        to->label = SP_IGNORE;
    c->share[block].n++;
    return ++b->n_held == c->per_slot ? spill_flush(c, block, false) : SP_OK;
}

/* Adds c->record to a block: the point's own, or one that has it in the margin. */
static sp_status spill_put(vox_cutter *c, int64_t block)
{
    vox_share *home = &c->share[c->home];

    if (block == c->home) {
        home->own++;
        return put_record(c, block, 1);
    }
    home->first = block < home->first ? block : home->first;
    home->last = block > home->last ? block : home->last;
    return put_record(c, block, 0);
}

/* Makes c->record of point i; its home is known. */
static void make_record(vox_cutter *c, int64_t i)
{
    vox_record *r = c->record;

    *r = (vox_record){.index = (uint64_t)(c->points.first_row + i),
                      .label = vox_class_of(c->options, c->points.label[i]),
                      .home = (uint32_t)c->home,
                      .home_row = (uint32_t)c->share[c->home].own};
    memcpy(r->xyz, c->points.xyz + 3 * i, sizeof r->xyz);
    vox_features_of(c->options, c->points.attr + i * c->n_attrs, (float *)(r + 1));
}

/* Adds c->record, which is context, to a block. */
static sp_status put_foreign(vox_cutter *c, int64_t block)
{
    vox_share *share = &c->share[block];

    share->foreign++;
    return put_record(c, block, SP_POINT_FOREIGN);
}

/* Adds a point to the blocks first .. last along x and y, as context. */
static sp_status put_context(vox_cutter *c, const double *xyz, const double *attr,
                             const int64_t first[2], const int64_t last[2])
{
    const int64_t n_x = c->cut->layout.n_blocks[0];

    *c->record = (vox_record){.label = SP_IGNORE};
    memcpy(c->record->xyz, xyz, sizeof c->record->xyz);
    vox_features_of(c->options, attr, (float *)(c->record + 1));
    for (int64_t y = first[1]; y <= last[1]; y++)
        for (int64_t x = first[0]; x <= last[0]; x++)
            if (!c->block[y * n_x + x].is_done)
                SP_TRY(put_foreign(c, y * n_x + x));
    return SP_OK;
}

/* Adds the point to each block that it belongs to and that is needed. */
static sp_status put_blocks(vox_cutter *c, int64_t i)
{
    const vox_layout *layout = &c->cut->layout;
    const int64_t n_x = layout->n_blocks[0];
    const double margin = c->options->overlap, *xyz = c->points.xyz + 3 * i;
    int64_t own[2], first[2], last[2];
    bool is_needed = true;

    for (int a = 0; a < 2; a++) {
        own[a] = vox_layout_block(c->options, layout, a, xyz[a]);
        first[a] = vox_layout_block(c->options, layout, a, xyz[a] - margin);
        last[a] = vox_layout_block(c->options, layout, a, xyz[a] + margin);
        first[a] = sp_most(first[a], c->first[a]);
        last[a] = sp_least(last[a], c->last[a]);
        is_needed = is_needed && c->first[a] <= own[a] && own[a] <= c->last[a];
    }
    if (!is_needed) {
        c->cut->n_missing++;
        return put_context(c, xyz, c->points.attr + i * c->n_attrs, first, last);
    }
    c->home = own[1] * n_x + own[0];
    make_record(c, i);
    for (int64_t y = first[1]; y <= last[1]; y++)
        for (int64_t x = first[0]; x <= last[0]; x++)
            SP_TRY(spill_put(c, y * n_x + x));
    return SP_OK;
}

/* ---- points of other inputs ---- */

vox_block_number vox_block_at(const vox_options *o, const double low[2])
{
    return (vox_block_number){(int64_t)nearbyint(low[0] / o->block),
                              (int64_t)nearbyint(low[1] / o->block)};
}

bool vox_block_is_complete(const vox_options *o, const vox_extent *e,
                           vox_block_number block)
{
    const double number[2] = {(double)block.x, (double)block.y};
    const double grown = o->buffer - o->overlap;

    for (int a = 0; a < 2; a++) {
        const double low = number[a] * o->block, high = (number[a] + 1) * o->block;

        if (e->low[a] > e->high[a] || low > e->high[a] + o->overlap ||
            high < e->low[a] - o->overlap || low < e->low[a] - grown ||
            high > e->high[a] + grown)
            return false;
    }
    return true;
}

bool vox_block_is_in(vox_block_number block, const vox_block_number *list, int64_t n)
{
    int64_t i = 0;

    while (i < n && (list[i].x != block.x || list[i].y != block.y))
        i++;
    return i < n;
}

/* Marks the blocks that are not needed or done, and finds where other inputs may have
 * points of the others. */
static void find_reach(vox_cutter *c)
{
    const vox_options *o = c->options;
    const vox_layout *layout = &c->cut->layout;
    vox_extent *reach = &c->reach;

    *reach = (vox_extent){{INFINITY, INFINITY}, {-INFINITY, -INFINITY}};
    vox_layout_need(o, layout, c->first, c->last);
    for (int64_t b = 0; b < c->n; b++) {
        const int64_t at[2] = {b % layout->n_blocks[0], b / layout->n_blocks[0]};
        double low[2];

        for (int a = 0; a < 2; a++) {
            low[a] = layout->corner[a] + (double)at[a] * o->block;
            c->block[b].is_done |= at[a] < c->first[a] || at[a] > c->last[a];
        }
        if (vox_block_is_in(vox_block_at(o, low), c->cut->done, c->cut->n_done))
            c->block[b].is_done = true;
        for (int a = 0; a < 2 && !c->block[b].is_done; a++) {
            reach->low[a] = fmin(reach->low[a], low[a] - o->overlap);
            reach->high[a] = fmax(reach->high[a], low[a] + o->block + o->overlap);
        }
    }
    for (int a = 0; a < 2; a++) {
        reach->low[a] = fmax(reach->low[a], layout->reach.low[a]);
        reach->high[a] = fmin(reach->high[a], layout->reach.high[a]);
    }
}

/* Adds a point of another input to the blocks that it belongs to, if it is in reach. */
static sp_status put_neighbour(void *cutter, const double *xyz, const double *attr)
{
    vox_cutter *c = cutter;
    const vox_layout *layout = &c->cut->layout;
    const double margin = c->options->overlap;
    int64_t first[2], last[2];

    if (!spill_is_read(c->options, xyz))
        return SP_OK;
    for (int a = 0; a < 2; a++) {
        const double n = (double)layout->n_blocks[a];
        const double from = vox_layout_place(c->options, layout, a, xyz[a] - margin);
        const double to = vox_layout_place(c->options, layout, a, xyz[a] + margin);

        if (!(c->reach.low[a] <= xyz[a] && xyz[a] <= c->reach.high[a]) || to < 0 ||
            from >= n)
            return SP_OK;
        first[a] = from < 0 ? 0 : (int64_t)from;
        last[a] = to >= n ? (int64_t)n - 1 : (int64_t)to;
    }
    return put_context(c, xyz, attr, first, last);
}

static sp_status add_neighbours(vox_cutter *c, int n_parts)
{
    for (int f = 0; f < c->options->n_inputs && c->options->buffer > 0; f++) {
        const vox_rim_part part = {f, c->cut->part, n_parts};
        sp_status rc;

        if (f == c->cut->file || c->cut->is_damaged[f] ||
            !vox_extent_is_near(&c->reach, &c->options->extent[f], 0))
            continue;
        rc = vox_rim_each(c->options, &part, &c->reach, put_neighbour, c);
        if (rc != SP_EDATA) {
            SP_TRY(rc);
            continue;
        }
        c->cut->is_partial = true;
        c->cut->is_damaged[f] = 1;
        sp_log_warn("%s is damaged: no other scan has its points as context: %s",
                    c->options->input[f], sp_error_last()->message);
    }
    return SP_OK;
}

/* ---- blocks ---- */

static void free_blocks(vox_cutter *c)
{
    free(c->block);
    free(c->share);
    free(c->buffer);
    c->block = NULL;
    c->share = NULL;
    c->buffer = NULL;
}

/* All blocks have a slot in the buffer. */
int64_t vox_slot_records(const vox_options *options, const vox_layout *layout)
{
    const int64_t n = vox_layout_blocks(layout);
    const int64_t most = BUFFER_BYTES / (n * (int64_t)vox_record_bytes(options));

    return most < 1 ? 1 : most > MOST_PER_SLOT ? MOST_PER_SLOT : most;
}

/* Makes the blocks of the layout, without points. */
static sp_status make_blocks(vox_cutter *c)
{
    c->n = vox_layout_blocks(&c->cut->layout);
    c->per_slot = vox_slot_records(c->options, &c->cut->layout);
    c->slot_bytes = vox_slot_bytes(c->options, c->per_slot);
    c->n_slots = 0;
    c->block = calloc((size_t)c->n, sizeof *c->block);
    c->share = calloc((size_t)c->n, sizeof *c->share);
    c->buffer = malloc((size_t)c->n * c->slot_bytes);
    if (!c->block || !c->share || !c->buffer)
        return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " blocks",
                       sp_scan_path(c->scan), c->n);
    for (int64_t b = 0; b < c->n; b++)
        c->share[b] = (vox_share){.at = -1, .first = b, .last = b};
    find_reach(c);
    return SP_OK;
}

/* ---- cutting ---- */

static sp_status spill_write_head(const vox_cutter *c)
{
    const vox_part_head head = {.source = vox_source_of(c->scan), .crc = c->crc};

    SP_TRY(sp_file_write_at(c->fd, c->cut->path, &head, sizeof head, 0));
    return sp_file_write_at(c->fd, c->cut->path, c->share,
                            (size_t)c->n * sizeof *c->share, sizeof head);
}

/* Writes all points to the blocks of the layout. */
static sp_status spill_write_blocks(vox_cutter *c, int n_parts)
{
    SP_TRY(make_blocks(c));
    SP_TRY(sp_file_open(c->cut->path, O_CREAT | O_TRUNC | O_WRONLY, &c->fd));
    SP_TRY(each_point(c, "cutting", put_blocks));
    /* What reads the others needs as much memory as what has read this one. */
    sp_scan_points_destroy(&c->points);
    SP_TRY(sp_scan_rewind(c->scan));
    SP_TRY(add_neighbours(c, n_parts));
    for (int64_t b = 0; b < c->n; b++)
        SP_TRY(spill_flush(c, b, true));
    return spill_write_head(c);
}

/* Closes the file; errors of writing may show only now. */
static sp_status spill_close_file(vox_cutter *c)
{
    const int fd = c->fd;

    c->fd = -1;
    if (fd >= 0 && close(fd) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot write: %s", c->cut->path, strerror(errno));
    return SP_OK;
}

/* True if the header claims an extent that gives a layout, which is cut->layout then.
 */
static bool use_header(vox_cut *cut)
{
    vox_box claimed;

    return (!cut->options->has_bounds || cut->options->is_window) &&
           sp_scan_extent(cut->own->scan, claimed.low, claimed.high) &&
           vox_cut_layout(cut->options, cut->file, &claimed, &cut->layout) == SP_OK;
}

sp_status vox_cut_run(vox_cut *cut, const vox_layout *layout)
{
    vox_cutter *c = cut->own;
    int n_parts = cut->n_parts;
    bool is_known = true;
    sp_status rc;

    assert(c && (!layout || vox_layout_blocks(layout) > 0));
    cut->found = VOX_NO_BOX;
    cut->n_rows = cut->n_missing = 0;
    cut->is_partial = false;
    c->crc = 0;
    if (layout)
        cut->layout = *layout;
    else
        is_known = use_header(cut);
    if (is_known)
        n_parts = vox_layout_parts(&cut->layout, n_parts);
    else
        cut->layout = (vox_layout){0};
    if (cut->part >= n_parts) {
        c->codes = NULL; /* others count all of them */
        return SP_OK;
    }
    SP_TRY(sp_scan_limit(c->scan, cut->part, n_parts));
    rc = is_known ? spill_write_blocks(c, n_parts) : each_point(c, "measuring", NULL);
    free_blocks(c);
    return rc == SP_OK ? spill_close_file(c) : rc;
}

sp_status vox_cut_open(vox_cut *cut, vox_codes *codes)
{
    const vox_options *o = cut->options;
    const int file = cut->file;
    vox_cutter *c;

    assert(file >= 0 && file < o->n_inputs && o->block > 0);
    assert(0 <= cut->part && cut->part < cut->n_parts && cut->path);
    assert(cut->is_damaged || !(o->buffer > 0));
    SP_TRY(SP_NEW(&cut->own, 1, o->input[file]));
    c = cut->own;
    *c = (vox_cutter){.cut = cut,
                      .options = o,
                      .codes = codes,
                      .fd = -1,
                      .record_bytes = vox_record_bytes(o)};
    c->n_attrs = vox_attributes_of(o);
    SP_TRY(SP_NEW(&c->record, c->record_bytes, o->input[file]));
    SP_TRY(vox_scan_open(&c->scan, o, file));
    if (cut->chunks)
        SP_TRY(sp_scan_copy_chunks(c->scan, cut->chunks, false));
    if (cut->part == 0)
        vox_warn_left_out(c->scan, o, file);
    return SP_OK;
}

void vox_cut_close(vox_cut *cut)
{
    vox_cutter *c = cut->own;

    if (c) {
        if (c->scan && !c->options->is_quiet)
            sp_progress_end(&c->progress);
        if (c->scan && cut->part == 0)
            vox_warn_of_notes(c->scan);
        if (c->fd >= 0)
            close(c->fd);
        sp_scan_close(c->scan);
        sp_scan_points_destroy(&c->points);
        free_blocks(c);
        free(c->record);
        free(c);
    }
    *cut = (vox_cut){0};
}
