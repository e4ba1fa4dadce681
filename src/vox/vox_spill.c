/* Cutting a scan into blocks (vox_cloud.h) in three passes over the file: for its
 * extent, for the number of points of each block, and to write them. The records of a
 * block are contiguous and in the order of the file, so a sample depends on its scan
 * alone. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/sp_backend.h"
#include "process/sp_pulse.h"
#include "show/sp_progress.h"
#include "vox/vox_cloud.h"

enum {
    MAX_BLOCKS = 1 << 20,
    BUFFER_BYTES = 64 << 20 /* bytes of all blocks' buffers together */
};

/* One point in the temporary file. The features follow it: float [n_features]. */
typedef struct record {
    double xyz[3];
    uint64_t index;
    int32_t label, is_owned;
    uint32_t home, home_row; /* as in vox_cloud */
} record;

/* The state of cutting one file. */
typedef struct cutter {
    const vox_options *options;
    sp_scan *scan;
    sp_scan_points points;
    vox_codes *codes;
    const char *path;
    int fd;
    double low[2], high[2]; /* extent of the points within the bounds */
    int64_t n_blocks[2];    /* along x and y */
    int64_t *total, *own;   /* [blocks] points of the block; those not in its margin */
    /* [blocks][2] the least and greatest number of a block that has a point of its own
     */
    int64_t (*span)[2];
    int64_t *placed;        /* [blocks] its own points that were written so far */
    int64_t home;           /* the block that owns the point of each_block */
    int64_t *at;            /* [blocks] number of the next record in the file */
    unsigned char *buffer;  /* [blocks][per_block] records to write */
    int64_t *held;          /* [blocks] records in the buffer */
    int64_t per_block;      /* records that the buffer of one block holds */
    size_t record_bytes;
    int n_attrs;
    sp_progress progress;
    int64_t n_read; /* points, in all passes */
} cutter;

enum { PASSES = 3 };

static size_t bytes_of_record(const vox_options *o)
{
    return sizeof(record) + ((size_t)o->n_features * sizeof(float) + 7) / 8 * 8;
}

/* Calls `take` for each point within the bounds. */
static sp_status each_point(cutter *c, sp_status (*take)(cutter *c, int64_t i))
{
    SP_TRY(sp_scan_rewind(c->scan));
    do {
        SP_TRY(sp_scan_next(c->scan, SP_SCAN_BLOCK, &c->points));
        c->n_read += c->points.n;
        sp_progress_at(&c->progress, c->n_read / PASSES, "%s", sp_scan_path(c->scan));
        sp_pulse_beat();
        for (int64_t i = 0; i < c->points.n; i++)
            if (vox_is_within(c->options, c->points.xyz + 3 * i))
                SP_TRY(take(c, i));
    } while (c->points.n > 0);
    return SP_OK;
}

static sp_status extend(cutter *c, int64_t i)
{
    vox_codes_count(c->codes, c->points.label[i]);
    for (int a = 0; a < 2; a++) {
        double x = c->points.xyz[3 * i + a];

        c->low[a] = fmin(c->low[a], x);
        c->high[a] = fmax(c->high[a], x);
    }
    return SP_OK;
}

static int64_t block_of(const cutter *c, int axis, double x)
{
    double b = floor((x - c->low[axis]) / c->options->block);

    return b < 0                            ? 0
           : b >= (double)c->n_blocks[axis] ? c->n_blocks[axis] - 1
                                            : (int64_t)b;
}

/* Calls `take` for each block that the point belongs to, its own block or one that has
 * it in the margin. */
static sp_status each_block(cutter *c, int64_t i,
                            sp_status (*take)(cutter *c, int64_t i, int64_t block,
                                              bool is_own))
{
    double margin = c->options->overlap;
    int64_t own[2], first[2], last[2];

    for (int a = 0; a < 2; a++) {
        double x = c->points.xyz[3 * i + a];

        own[a] = block_of(c, a, x);
        first[a] = block_of(c, a, x - margin);
        last[a] = block_of(c, a, x + margin);
    }
    c->home = own[1] * c->n_blocks[0] + own[0];
    for (int64_t y = first[1]; y <= last[1]; y++)
        for (int64_t x = first[0]; x <= last[0]; x++)
            SP_TRY(take(c, i, y * c->n_blocks[0] + x, x == own[0] && y == own[1]));
    return SP_OK;
}

static sp_status count(cutter *c, int64_t i, int64_t block, bool is_own)
{
    (void)i;
    int64_t *span = c->span[c->home];

    c->total[block]++;
    c->own[block] += is_own;
    span[0] = block < span[0] ? block : span[0];
    span[1] = block > span[1] ? block : span[1];
    return SP_OK;
}

static sp_status count_blocks(cutter *c, int64_t i)
{
    return each_block(c, i, count);
}

static sp_status flush(cutter *c, int64_t block)
{
    const unsigned char *from =
        c->buffer + (size_t)(block * c->per_block) * c->record_bytes;
    size_t bytes = (size_t)c->held[block] * c->record_bytes, done = 0;
    off_t at = (off_t)((size_t)c->at[block] * c->record_bytes);

    while (done < bytes) {
        ssize_t put = pwrite(c->fd, from + done, bytes - done, at + (off_t)done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return SP_FAIL(SP_EIO, "%s: cannot write: %s", c->path, strerror(errno));
        done += (size_t)put;
    }
    c->at[block] += c->held[block];
    c->held[block] = 0;
    return SP_OK;
}

static sp_status put(cutter *c, int64_t i, int64_t block, bool is_own)
{
    unsigned char *to =
        c->buffer + (size_t)(block * c->per_block + c->held[block]) * c->record_bytes;
    float features[VOX_MAX_FEATURES];
    record r = {.index = (uint64_t)(c->points.first_row + i),
                .label =
                    is_own ? vox_class_of(c->options, c->points.label[i]) : SP_IGNORE,
                .is_owned = is_own,
                .home = (uint32_t)c->home,
                .home_row = (uint32_t)c->placed[c->home]};

    if (c->own[block] == 0) /* margins alone are not a sample */
        return SP_OK;
    memcpy(r.xyz, c->points.xyz + 3 * i, sizeof r.xyz);
    vox_features_of(c->options, c->points.attr + i * c->n_attrs, features);
    memcpy(to, &r, sizeof r);
    memcpy(to + sizeof r, features, (size_t)c->options->n_features * sizeof *features);
    return ++c->held[block] == c->per_block ? flush(c, block) : SP_OK;
}

static sp_status put_blocks(cutter *c, int64_t i)
{
    SP_TRY(each_block(c, i, put));
    c->placed[c->home]++;
    return SP_OK;
}

/* Computes the number of blocks from the extent and allocates their counts and buffers.
 */
static sp_status lay_out(cutter *c, int64_t *n)
{
    const char *path = sp_scan_path(c->scan);

    for (int a = 0; a < 2; a++) {
        double blocks;

        c->low[a] = floor(c->low[a]);
        blocks = fmax(1, ceil((c->high[a] - c->low[a]) / c->options->block));
        if (blocks > MAX_BLOCKS)
            return SP_FAIL(SP_EUSAGE, "%s: --block %g cuts %g m into more than %d",
                           path, c->options->block, c->high[a] - c->low[a], MAX_BLOCKS);
        c->n_blocks[a] = (int64_t)blocks;
    }
    *n = c->n_blocks[0] * c->n_blocks[1];
    if (*n > MAX_BLOCKS)
        return SP_FAIL(SP_EUSAGE, "%s: --block %g makes %" PRId64 " blocks, at most %d",
                       path, c->options->block, *n, MAX_BLOCKS);
    c->span = malloc((size_t)*n * sizeof *c->span);
    c->placed = calloc((size_t)*n, sizeof *c->placed);
    c->total = calloc((size_t)*n, sizeof *c->total);
    c->own = calloc((size_t)*n, sizeof *c->own);
    c->at = calloc((size_t)*n, sizeof *c->at);
    c->held = calloc((size_t)*n, sizeof *c->held);
    c->per_block = BUFFER_BYTES / (*n * (int64_t)c->record_bytes);
    c->per_block = c->per_block < 1 ? 1 : c->per_block > 4096 ? 4096 : c->per_block;
    c->buffer = malloc((size_t)(*n * c->per_block) * c->record_bytes);
    if (!c->span || !c->placed || !c->total || !c->own || !c->at || !c->held ||
        !c->buffer)
        return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " blocks", path, *n);
    for (int64_t b = 0; b < *n; b++)
        c->span[b][0] = c->span[b][1] = b;
    return SP_OK;
}

/* Block number b in its scan, as a sample has it. */
static sp_block describe(const cutter *c, int64_t b)
{
    const int64_t at[2] = {b % c->n_blocks[0], b / c->n_blocks[0]};
    sp_block block = {.margin = c->options->overlap,
                      .number = b,
                      .first = c->span[b][0],
                      .last = c->span[b][1]};

    for (int a = 0; a < 2; a++) {
        block.low[a] = c->low[a] + (double)at[a] * c->options->block;
        block.high[a] = c->low[a] + (double)(at[a] + 1) * c->options->block;
    }
    return block;
}

/* Turns blocks that own points into pieces, contiguous in the temporary file. */
static sp_status list_pieces(cutter *c, int64_t n, int file, vox_piece **pieces,
                             int64_t *n_pieces)
{
    int64_t at = 0, used = *n_pieces;

    for (int64_t b = 0; b < n; b++)
        used += c->own[b] > 0;
    vox_piece *grown = realloc(*pieces, (size_t)(used + 1) * sizeof *grown);

    if (!grown)
        return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " samples", used);
    *pieces = grown;
    for (int64_t b = 0; b < n; b++) {
        if (c->own[b] == 0)
            continue;
        c->at[b] = at;
        grown[(*n_pieces)++] = (vox_piece){.file = file,
                                           .bx = (int32_t)(b % c->n_blocks[0]),
                                           .by = (int32_t)(b / c->n_blocks[0]),
                                           .source = vox_source_of(c->scan),
                                           .n_own = c->own[b],
                                           .at = at,
                                           .n = c->total[b],
                                           .block = describe(c, b)};
        at += c->total[b];
    }
    return SP_OK;
}

static sp_status cut(cutter *c, int file, vox_piece **pieces, int64_t *n_pieces)
{
    int64_t n = 0, n_points;

    SP_TRY(vox_scan_open(&c->scan, c->options, file));
    n_points = sp_scan_count(c->scan);
    sp_progress_begin(&c->progress, "cutting", "points", n_points > 0 ? n_points : 0);
    SP_TRY(each_point(c, extend));
    if (c->low[0] > c->high[0])
        return SP_OK; /* no point within the bounds */
    SP_TRY(lay_out(c, &n));
    SP_TRY(each_point(c, count_blocks));
    SP_TRY(list_pieces(c, n, file, pieces, n_pieces));
    c->fd = open(c->path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (c->fd < 0)
        return SP_FAIL(SP_EIO, "%s: cannot create: %s", c->path, strerror(errno));
    SP_TRY(each_point(c, put_blocks));
    for (int64_t b = 0; b < n; b++)
        SP_TRY(flush(c, b));
    return SP_OK;
}

sp_status vox_spill_write(const vox_options *o, int file, const char *path,
                          vox_codes *codes, vox_piece **pieces, int64_t *n_pieces)
{
    cutter c = {.options = o,
                .codes = codes,
                .path = path,
                .fd = -1,
                .low = {INFINITY, INFINITY},
                .high = {-INFINITY, -INFINITY},
                .record_bytes = bytes_of_record(o)};
    sp_status rc;

    assert(file >= 0 && file < o->n_inputs && o->block > 0);
    assert(codes && pieces && *n_pieces >= 0);
    for (int i = 0; i < o->n_features; i++)
        c.n_attrs += o->feature[i].kind == VOX_ATTRIBUTE;
    rc = cut(&c, file, pieces, n_pieces);
    if (c.fd >= 0 && close(c.fd) != 0 && rc == SP_OK)
        rc = SP_FAIL(SP_EIO, "%s: cannot write: %s", path, strerror(errno));
    if (c.scan)
        sp_progress_end(&c.progress);
    sp_scan_close(c.scan);
    sp_scan_points_destroy(&c.points);
    free(c.span);
    free(c.placed);
    free(c.total);
    free(c.own);
    free(c.at);
    free(c.held);
    free(c.buffer);
    return rc;
}

static void take_records(vox_cloud *cloud, const vox_options *o,
                         const unsigned char *from, int64_t n)
{
    size_t bytes = bytes_of_record(o);

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

sp_status vox_spill_read(vox_cloud *cloud, const vox_options *o, const char *path,
                         const vox_piece *piece)
{
    size_t bytes = bytes_of_record(o);
    unsigned char *buffer = malloc(SP_SCAN_BLOCK * bytes);
    FILE *file = fopen(path, "rb");
    sp_status rc = SP_OK;

    assert(piece->at >= 0 && piece->n >= 0);
    cloud->n = 0;
    cloud->source = piece->source;
    cloud->has_homes = true;
    if (!buffer)
        rc = SP_FAIL(SP_EMEM, "no memory to read %s", path);
    else if (!file || fseeko(file, (off_t)((size_t)piece->at * bytes), SEEK_SET) != 0)
        rc = SP_FAIL(SP_EIO, "%s: cannot read: %s", path, strerror(errno));
    else
        rc = vox_cloud_reserve(cloud, o, piece->n);
    while (rc == SP_OK && cloud->n < piece->n) {
        int64_t n =
            piece->n - cloud->n < SP_SCAN_BLOCK ? piece->n - cloud->n : SP_SCAN_BLOCK;

        if (fread(buffer, bytes, (size_t)n, file) != (size_t)n)
            rc = SP_FAIL(SP_EIO, "%s: ends early, expected %" PRId64 " points", path,
                         piece->at + piece->n);
        else
            take_records(cloud, o, buffer, n);
    }
    if (file)
        fclose(file);
    free(buffer);
    return rc;
}
