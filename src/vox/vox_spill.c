/* Cutting a scan into blocks (vox_cloud.h) in one pass over the file where its header
 * tells its extent, else in two. The temporary file consists of slots of one size:
 *
 *     slot   | next | n | record | record | ...            per_slot records of a block
 *
 * A block's records, in the order of the file, fill one slot after the other; the head
 * of a slot has the number of the block's next one. So a block is written while it is
 * not known how many points it will have, and a sample depends on its scan alone. Slots
 * that were numbered and stay empty are holes of the file. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "compute/sp_backend.h"
#include "process/sp_pulse.h"
#include "show/sp_progress.h"
#include "vox/vox_cloud.h"

enum {
    MAX_BLOCKS = 1 << 20,
    BUFFER_BYTES = 64 << 20, /* bytes of all blocks' buffers together */
    MOST_PER_SLOT = 4096
};

/* The head of a slot. */
typedef struct slot_head {
    int64_t next; /* number of the block's next slot; -1: this one is its last */
    int64_t n;    /* records in this slot */
} slot_head;

/* One point in the temporary file. The features follow it: float [n_features]. */
typedef struct record {
    double xyz[3];
    uint64_t index;
    int32_t label, is_owned;
    uint32_t home, home_row; /* as in vox_cloud */
} record;

/* A box around points; it is empty, low above high, before the first one. */
typedef struct box {
    double low[3], high[3];
} box;

/* The grid of blocks that a scan is cut into. */
typedef struct layout {
    double corner[3];    /* the whole units below the lowest x, y, z */
    int64_t n_blocks[2]; /* along x and y */
} layout;

/* Counts and places of one block while the scan is cut. */
typedef struct block_state {
    int64_t total, own;  /* points of the block; those not in its margin */
    int64_t first, last; /* the least and greatest number of a block that has a point of
                          * its own */
    int64_t first_slot;  /* -1: none was written */
    int64_t slot;        /* where the records in the buffer will be written */
    int64_t n_held;      /* records in the buffer */
} block_state;

/* The state of cutting one file. */
typedef struct cutter {
    const vox_options *options;
    sp_scan *scan;
    sp_scan_points points;
    vox_codes *codes; /* NULL once they are counted */
    const char *path;
    int fd;
    box found; /* the points within the bounds, as far as they were read */
    uint32_t crc;
    layout layout;
    int64_t n;             /* blocks */
    block_state *block;    /* [n] */
    unsigned char *buffer; /* [n] slots to write */
    int64_t per_slot;      /* records that a slot holds */
    int64_t n_slots;       /* numbers given so far */
    int64_t home;          /* the block that owns the point at hand */
    record *record;        /* of the point at hand, with its features */
    size_t record_bytes, slot_bytes;
    int n_attrs;
    sp_progress progress;
} cutter;

static bool is_empty(const box *b)
{
    return b->low[0] > b->high[0];
}

static size_t bytes_of_record(const vox_options *o)
{
    return sizeof(record) + ((size_t)o->n_features * sizeof(float) + 7) / 8 * 8;
}

static size_t bytes_of_slot(const vox_options *o, int64_t per_slot)
{
    return sizeof(slot_head) + (size_t)per_slot * bytes_of_record(o);
}

/* ---- passes over the file ---- */

static void extend(cutter *c, const double *xyz)
{
    for (int a = 0; a < 3; a++) {
        c->found.low[a] = fmin(c->found.low[a], xyz[a]);
        c->found.high[a] = fmax(c->found.high[a], xyz[a]);
    }
}

/* Reads all points within the bounds for their extent, checksum and codes, and calls
 * `take` (NULL: none) for each. */
static sp_status each_point(cutter *c, const char *what,
                            sp_status (*take)(cutter *c, int64_t i))
{
    const int64_t n_points = sp_scan_count(c->scan);
    int64_t n_read = 0;

    c->found = (box){{INFINITY, INFINITY, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
    c->crc = 0;
    if (!c->options->is_quiet)
        sp_progress_begin(&c->progress, what, "points", n_points > 0 ? n_points : 0);
    SP_TRY(sp_scan_rewind(c->scan));
    do {
        SP_TRY(sp_scan_next(c->scan, SP_SCAN_BLOCK, &c->points));
        n_read += c->points.n;
        if (!c->options->is_quiet)
            sp_progress_at(&c->progress, n_read, "%s", sp_scan_path(c->scan));
        sp_pulse_beat();
        if (c->options->is_given_up && __atomic_load_n(c->options->is_given_up, __ATOMIC_RELAXED))
            return SP_FAIL(SP_EIO, "%s: was given up", sp_scan_path(c->scan));
        for (int64_t i = 0; i < c->points.n; i++) {
            const double *xyz = c->points.xyz + 3 * i;

            if (!vox_is_within(c->options, xyz))
                continue;
            extend(c, xyz);
            c->crc = sp_crc32c(c->crc, xyz, 3 * sizeof *xyz);
            if (c->codes)
                vox_codes_count(c->codes, c->points.label[i]);
            if (take)
                SP_TRY(take(c, i));
        }
    } while (c->points.n > 0);
    c->codes = NULL;
    return SP_OK;
}

/* ---- points to blocks ---- */

static int64_t block_of(const cutter *c, int axis, double x)
{
    const int64_t n = c->layout.n_blocks[axis];
    const double b = floor((x - c->layout.corner[axis]) / c->options->block);

    return b < 0 ? 0 : b >= (double)n ? n - 1 : (int64_t)b;
}

static sp_status flush(cutter *c, int64_t block, bool is_end)
{
    block_state *b = &c->block[block];
    unsigned char *slot = c->buffer + (size_t)block * c->slot_bytes;
    slot_head head = {.next = -1, .n = b->n_held};
    int64_t at;

    if (b->n_held == 0)
        return SP_OK;
    if (b->first_slot < 0)
        b->first_slot = b->slot = c->n_slots++;
    at = b->slot * (int64_t)c->slot_bytes;
    if (!is_end)
        head.next = b->slot = c->n_slots++;
    memcpy(slot, &head, sizeof head);
    b->n_held = 0;
    return sp_file_write_at(c->fd, c->path, slot,
                            sizeof head + (size_t)head.n * c->record_bytes, at);
}

/* Adds c->record to a block: the point's own, or one that has it in the margin. */
static sp_status put(cutter *c, int64_t block)
{
    block_state *b = &c->block[block], *home = &c->block[c->home];
    record *to =
        (record *)(void *)(c->buffer + (size_t)block * c->slot_bytes +
                           sizeof(slot_head) + (size_t)b->n_held * c->record_bytes);

    memcpy(to, c->record, c->record_bytes);
    b->total++;
    if (block == c->home) {
        b->own++;
        to->is_owned = 1;
    } else {
        to->label = SP_IGNORE;
        home->first = block < home->first ? block : home->first;
        home->last = block > home->last ? block : home->last;
    }
    return ++b->n_held == c->per_slot ? flush(c, block, false) : SP_OK;
}

/* Makes c->record of point i, whose home is known. */
static void make_record(cutter *c, int64_t i)
{
    record *r = c->record;

    *r = (record){.index = (uint64_t)(c->points.first_row + i),
                  .label = vox_class_of(c->options, c->points.label[i]),
                  .home = (uint32_t)c->home,
                  .home_row = (uint32_t)c->block[c->home].own};
    memcpy(r->xyz, c->points.xyz + 3 * i, sizeof r->xyz);
    vox_features_of(c->options, c->points.attr + i * c->n_attrs, (float *)(r + 1));
}

/* Adds the point to each block that it belongs to. */
static sp_status put_blocks(cutter *c, int64_t i)
{
    const double margin = c->options->overlap;
    int64_t own[2], first[2], last[2];

    for (int a = 0; a < 2; a++) {
        const double x = c->points.xyz[3 * i + a];

        own[a] = block_of(c, a, x);
        first[a] = block_of(c, a, x - margin);
        last[a] = block_of(c, a, x + margin);
    }
    c->home = own[1] * c->layout.n_blocks[0] + own[0];
    make_record(c, i);
    for (int64_t y = first[1]; y <= last[1]; y++)
        for (int64_t x = first[0]; x <= last[0]; x++)
            SP_TRY(put(c, y * c->layout.n_blocks[0] + x));
    return SP_OK;
}

/* ---- layout ---- */

/* Lays out the blocks of points in a box. SP_EUSAGE: there are too many. */
static sp_status lay_out(const cutter *c, const box *points, layout *to)
{
    const double edge = c->options->block;
    const char *path = sp_scan_path(c->scan);

    for (int a = 0; a < 3; a++)
        to->corner[a] = floor(points->low[a]);
    for (int a = 0; a < 2; a++) {
        const double length = points->high[a] - to->corner[a];
        const double blocks = fmax(1, ceil(length / edge));

        if (!(blocks <= MAX_BLOCKS))
            return SP_FAIL(SP_EUSAGE, "%s: --block %g cuts %g m into more than %d",
                           path, edge, length, MAX_BLOCKS);
        to->n_blocks[a] = (int64_t)blocks;
    }
    if (to->n_blocks[0] * to->n_blocks[1] > MAX_BLOCKS)
        return SP_FAIL(SP_EUSAGE, "%s: --block %g makes %" PRId64 " blocks, at most %d",
                       path, edge, to->n_blocks[0] * to->n_blocks[1], MAX_BLOCKS);
    return SP_OK;
}

static bool is_same_layout(const layout *a, const layout *b)
{
    for (int i = 0; i < 3; i++)
        if (a->corner[i] != b->corner[i] || (i < 2 && a->n_blocks[i] != b->n_blocks[i]))
            return false;
    return true;
}

static void free_blocks(cutter *c)
{
    free(c->block);
    free(c->buffer);
    c->block = NULL;
    c->buffer = NULL;
}

/* Makes the blocks of the layout, without points. */
static sp_status make_blocks(cutter *c)
{
    int64_t most;

    free_blocks(c);
    c->n = c->layout.n_blocks[0] * c->layout.n_blocks[1];
    most = BUFFER_BYTES / (c->n * (int64_t)c->record_bytes);
    c->per_slot = most < 1 ? 1 : most > MOST_PER_SLOT ? MOST_PER_SLOT : most;
    c->slot_bytes = bytes_of_slot(c->options, c->per_slot);
    c->n_slots = 0;
    c->block = calloc((size_t)c->n, sizeof *c->block);
    c->buffer = malloc((size_t)c->n * c->slot_bytes);
    if (!c->block || !c->buffer)
        return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " blocks",
                       sp_scan_path(c->scan), c->n);
    for (int64_t b = 0; b < c->n; b++)
        c->block[b] = (block_state){.first = b, .last = b, .first_slot = -1};
    return SP_OK;
}

/* ---- cutting ---- */

/* Writes all points to the blocks of the layout. */
static sp_status write_blocks(cutter *c)
{
    SP_TRY(make_blocks(c));
    if (ftruncate(c->fd, 0) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot empty: %s", c->path, strerror(errno));
    SP_TRY(each_point(c, "cutting", put_blocks));
    for (int64_t b = 0; b < c->n; b++)
        SP_TRY(flush(c, b, true));
    return SP_OK;
}

/* True if the header claims an extent that gives a layout, which is c->layout then. */
static bool use_header(cutter *c)
{
    box claimed;

    return !c->options->has_bounds &&
           sp_scan_extent(c->scan, claimed.low, claimed.high) &&
           lay_out(c, &claimed, &c->layout) == SP_OK;
}

/* Cuts by the extent that the header claims, and anew where it is not that of the
 * points: the blocks do not depend on the header. */
static sp_status cut_by_header(cutter *c)
{
    layout found;

    SP_TRY(write_blocks(c));
    if (is_empty(&c->found))
        return SP_OK;
    SP_TRY(lay_out(c, &c->found, &found));
    if (is_same_layout(&found, &c->layout))
        return SP_OK;
    c->layout = found;
    return write_blocks(c);
}

static sp_status cut_by_points(cutter *c)
{
    SP_TRY(each_point(c, "measuring", NULL));
    if (is_empty(&c->found))
        return SP_OK;
    SP_TRY(lay_out(c, &c->found, &c->layout));
    return write_blocks(c);
}

/* Block number b in its scan, as a sample has it. */
static sp_block describe(const cutter *c, int64_t b)
{
    const int64_t n_x = c->layout.n_blocks[0], at[2] = {b % n_x, b / n_x};
    sp_block block = {.margin = c->options->overlap,
                      .number = b,
                      .first = c->block[b].first,
                      .last = c->block[b].last};

    for (int a = 0; a < 2; a++) {
        block.low[a] = c->layout.corner[a] + (double)at[a] * c->options->block;
        block.high[a] = c->layout.corner[a] + (double)(at[a] + 1) * c->options->block;
    }
    return block;
}

/* Turns blocks that own points into pieces; margins alone are not a sample. */
static sp_status list_pieces(cutter *c, int file, vox_piece **pieces, int64_t *n_pieces)
{
    int64_t used = *n_pieces;

    for (int64_t b = 0; b < c->n; b++)
        used += c->block[b].own > 0;
    vox_piece *grown = realloc(*pieces, (size_t)(used + 1) * sizeof *grown);

    if (!grown)
        return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " samples", used);
    *pieces = grown;
    for (int64_t b = 0; b < c->n; b++) {
        vox_piece *p = &grown[*n_pieces];

        if (c->block[b].own == 0)
            continue;
        *p = (vox_piece){.file = file,
                         .bx = (int32_t)(b % c->layout.n_blocks[0]),
                         .by = (int32_t)(b / c->layout.n_blocks[0]),
                         .crc = c->crc,
                         .source = vox_source_of(c->scan),
                         .n_own = c->block[b].own,
                         .at = c->block[b].first_slot,
                         .per_slot = c->per_slot,
                         .n = c->block[b].total,
                         .block = describe(c, b)};
        memcpy(p->corner, c->layout.corner, sizeof p->corner);
        ++*n_pieces;
    }
    return SP_OK;
}

static sp_status cut(cutter *c, int file, vox_piece **pieces, int64_t *n_pieces)
{
    SP_TRY(vox_scan_open(&c->scan, c->options, file));
    SP_TRY(sp_file_open(c->path, O_CREAT | O_TRUNC | O_WRONLY, &c->fd));
    SP_TRY(use_header(c) ? cut_by_header(c) : cut_by_points(c));
    /* The layout counts in the checksum that names the scan: cut in another way, the
     * same scan has other blocks with the same numbers. */
    c->crc = sp_crc32c(c->crc, &c->layout, sizeof c->layout);
    c->crc = sp_crc32c(c->crc, &c->options->block, sizeof c->options->block);
    return list_pieces(c, file, pieces, n_pieces);
}

sp_status vox_spill_write(const vox_options *o, int file, const char *path,
                          vox_codes *codes, vox_piece **pieces, int64_t *n_pieces)
{
    cutter c = {.options = o,
                .codes = codes,
                .path = path,
                .fd = -1,
                .record_bytes = bytes_of_record(o)};
    sp_status rc;

    assert(file >= 0 && file < o->n_inputs && o->block > 0);
    assert(codes && pieces && *n_pieces >= 0);
    for (int i = 0; i < o->n_features; i++)
        c.n_attrs += o->feature[i].kind == VOX_ATTRIBUTE;
    c.record = calloc(1, c.record_bytes);
    rc = c.record ? cut(&c, file, pieces, n_pieces)
                  : SP_FAIL(SP_EMEM, "%s: no memory to cut it", o->input[file]);
    if (c.fd >= 0 && close(c.fd) != 0 && rc == SP_OK)
        rc = SP_FAIL(SP_EIO, "%s: cannot write: %s", path, strerror(errno));
    if (c.scan && !o->is_quiet)
        sp_progress_end(&c.progress);
    sp_scan_close(c.scan);
    sp_scan_points_destroy(&c.points);
    free_blocks(&c);
    free(c.record);
    return rc;
}

/* ---- reading back ---- */

static void take_records(vox_cloud *cloud, const vox_options *o,
                         const unsigned char *from, int64_t n)
{
    const size_t bytes = bytes_of_record(o);

    for (int64_t i = 0; i < n; i++, from += bytes) {
        int64_t to = cloud->n++;
        record r;

        memcpy(&r, from, sizeof r);
        memcpy(cloud->xyz + 3 * to, r.xyz, sizeof r.xyz);
        memcpy(cloud->features + to * o->n_features, from + sizeof r,
               (size_t)o->n_features * sizeof(float));
        cloud->label[to] = r.label;
        cloud->index[to] = r.index;
        cloud->is_owned[to] = (uint8_t)r.is_owned;
        cloud->home[to] = r.home;
        cloud->home_row[to] = r.home_row;
    }
}

/* Reads the slots of a piece, one after the other. */
static sp_status read_slots(vox_cloud *cloud, const vox_options *o, int fd,
                            const char *path, const vox_piece *piece,
                            unsigned char *buffer)
{
    const size_t record_bytes = bytes_of_record(o);
    const int64_t slot_bytes = (int64_t)bytes_of_slot(o, piece->per_slot);
    int64_t slot = piece->at;

    while (cloud->n < piece->n) {
        const int64_t at = slot * slot_bytes, left = piece->n - cloud->n;
        slot_head head;

        SP_TRY(sp_file_read_at(fd, path, &head, sizeof head, at));
        if (head.n < 1 || head.n > piece->per_slot || head.n > left ||
            (head.n < left && head.next < 0))
            return SP_FAIL(SP_EIO, "%s: slot %" PRId64 " is not as it was written",
                           path, slot);
        SP_TRY(sp_file_read_at(fd, path, buffer, (size_t)head.n * record_bytes,
                               at + (int64_t)sizeof head));
        take_records(cloud, o, buffer, head.n);
        slot = head.next;
    }
    return SP_OK;
}

sp_status vox_spill_read(vox_cloud *cloud, const vox_options *o, const char *path,
                         const vox_piece *piece)
{
    unsigned char *buffer = malloc((size_t)piece->per_slot * bytes_of_record(o));
    int fd = -1;
    sp_status rc;

    assert(piece->at >= 0 && piece->n >= 0);
    cloud->n = 0;
    cloud->source = piece->source;
    cloud->is_block = true;
    memcpy(cloud->corner, piece->corner, sizeof cloud->corner);
    rc = buffer ? sp_file_open(path, O_RDONLY, &fd)
                : SP_FAIL(SP_EMEM, "no memory to read %s", path);
    if (rc == SP_OK)
        rc = vox_cloud_reserve(cloud, o, piece->n);
    if (rc == SP_OK)
        rc = read_slots(cloud, o, fd, path, piece, buffer);
    if (fd >= 0)
        close(fd);
    free(buffer);
    return rc;
}
