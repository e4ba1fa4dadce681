/* Reading the blocks of a scan back from the files of its parts (vox_spill.h). */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "vox/vox_spill.h"

/* ---- parts ---- */

void vox_part_path(const char *path, int part, char *to, size_t bytes)
{
    snprintf(to, bytes, "%s-%05d.tmp", path, part);
}

/* Opens the file of a part; *path, malloc'd for the caller, names it. */
static sp_status spill_open_part(const vox_parts *parts, int part, char **path, int *fd)
{
    const size_t bytes = strlen(parts->path) + VOX_PART_ROOM;

    *fd = -1;
    SP_TRY(SP_NEW(path, bytes, parts->path));
    vox_part_path(parts->path, part, *path, bytes);
    return sp_file_open(*path, O_RDONLY, fd);
}

static void close_part(char *path, int fd)
{
    if (fd >= 0)
        close(fd);
    free(path);
}

/* Reads the shares [n] of a part, and appends its points to the checksum. */
static sp_status read_shares(vox_parts *parts, int part, int64_t n)
{
    vox_share *share = parts->share + part * n;
    vox_part_head head;
    uint64_t n_points = 0;
    char *path;
    int fd;
    sp_status rc = spill_open_part(parts, part, &path, &fd);

    if (rc == SP_OK)
        rc = sp_file_read_at(fd, path, &head, sizeof head, 0);
    if (rc == SP_OK)
        rc = sp_file_read_at(fd, path, share, (size_t)n * sizeof *share, sizeof head);
    close_part(path, fd);
    SP_TRY(rc);
    parts->source = head.source;
    for (int64_t b = 0; b < n; b++) {
        n_points += (uint64_t)share[b].own;
        share[b].before = part > 0 ? share[b - n].before + share[b - n].own : 0;
    }
    parts->crc = sp_crc32c_join(parts->crc, head.crc, n_points * 3 * sizeof(double));
    return SP_OK;
}

sp_status vox_parts_open(vox_parts *parts, const vox_layout *layout, int n_parts)
{
    const int64_t n = vox_layout_blocks(layout);

    assert(n > 0 && !parts->share);
    parts->n = vox_layout_parts(layout, n_parts);
    parts->layout = *layout;
    parts->crc = 0;
    SP_TRY(SP_NEW(&parts->share, parts->n * n, parts->options->input[parts->file]));
    for (int p = 0; p < parts->n; p++)
        SP_TRY(read_shares(parts, p, n));
    /* The same scan cut otherwise has other blocks of the same numbers. */
    parts->crc = sp_crc32c(parts->crc, layout, offsetof(vox_layout, reach));
    parts->crc = sp_crc32c(parts->crc, &parts->options->block, sizeof(double));
    return SP_OK;
}

void vox_parts_close(vox_parts *parts)
{
    free(parts->share);
    *parts = (vox_parts){0};
}

/* ---- pieces ---- */

/* Block b as a sample has it. */
static vox_piece spill_describe(const vox_parts *parts, int64_t b)
{
    const vox_options *o = parts->options;
    const int64_t n_x = parts->layout.n_blocks[0], n_y = parts->layout.n_blocks[1];
    vox_piece piece = {
        .file = parts->file,
        .bx = (int32_t)(b % n_x),
        .by = (int32_t)(b / n_x),
        .crc = parts->crc,
        .block = {.margin = o->overlap, .number = b, .first = b, .last = b}};
    const double at[2] = {piece.bx, piece.by};

    for (int a = 0; a < 2; a++) {
        piece.block.low[a] = parts->layout.corner[a] + at[a] * o->block;
        piece.block.high[a] = parts->layout.corner[a] + (at[a] + 1) * o->block;
    }
    for (int p = 0; p < parts->n; p++) {
        const vox_share *s = &parts->share[p * n_x * n_y + b];

        piece.n += s->n;
        piece.n_own += s->own;
        piece.n_foreign += s->foreign;
        piece.block.first = sp_least(piece.block.first, s->first);
        piece.block.last = sp_most(piece.block.last, s->last);
    }
    return piece;
}

/* A margin without a point of its own is no sample, unless with a buffer the block is
 * needed for the points of the input in its margin. */
static bool is_piece(const vox_parts *parts, const vox_piece *piece)
{
    return parts->options->buffer > 0 ? piece->n > piece->n_foreign : piece->n_own > 0;
}

sp_status vox_parts_list(const vox_parts *parts, vox_piece **pieces, int64_t *n_pieces)
{
    const int64_t n = vox_layout_blocks(&parts->layout);
    int64_t used = *n_pieces;

    assert(parts->share && used >= 0);
    for (int64_t b = 0; b < n; b++) {
        const vox_piece piece = spill_describe(parts, b);

        used += is_piece(parts, &piece);
    }
    if (!sp_list_resize(pieces, (size_t)(used + 1) * sizeof **pieces))
        return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " samples", used);
    for (int64_t b = 0; b < n; b++) {
        const vox_piece piece = spill_describe(parts, b);

        if (is_piece(parts, &piece))
            (*pieces)[(*n_pieces)++] = piece;
    }
    return SP_OK;
}

/* ---- records ---- */

/* The records of a block in the file of a part. */
typedef struct chain {
    const char *path;
    int64_t at, n;          /* first slot; records of the block */
    int64_t n_blocks;       /* of the scan */
    int64_t per_slot;       /* the most records of a slot */
    const vox_share *share; /* [n_blocks] of the part */
} chain;

static void spill_add_records(vox_cloud *cloud, const vox_options *o, const chain *from,
                              const unsigned char *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++, bytes += vox_record_bytes(o)) {
        int64_t to = cloud->n++;
        vox_record r;

        memcpy(&r, bytes, sizeof r);
        memcpy(cloud->xyz + 3 * to, r.xyz, sizeof r.xyz);
        memcpy(cloud->features + to * o->n_features, bytes + sizeof r,
               (size_t)o->n_features * sizeof(float));
        cloud->label[to] = r.label;
        cloud->index[to] = r.index;
        cloud->is_owned[to] = (uint8_t)r.is_owned;
        cloud->home[to] = r.home;
        cloud->home_row[to] = r.home_row + (uint32_t)from->share[r.home].before;
    }
}

/* Reads the slots, one after the other. */
static sp_status read_slots(vox_cloud *cloud, const vox_options *o, const chain *from,
                            int fd, unsigned char *buffer)
{
    const size_t slot_bytes = vox_slot_bytes(o, from->per_slot);
    int64_t slot = from->at;

    for (int64_t left = from->n; left > 0;) {
        const int64_t at = vox_slot_at(slot, slot_bytes, from->n_blocks);
        vox_slot head;

        SP_TRY(sp_file_read_at(fd, from->path, &head, sizeof head, at));
        if (head.n < 1 || head.n > from->per_slot || head.n > left ||
            (head.n < left && head.next < 0))
            return SP_FAIL(SP_EIO, "%s: slot %" PRId64 " is not as it was written",
                           from->path, slot);
        SP_TRY(sp_file_read_at(fd, from->path, buffer,
                               (size_t)head.n * vox_record_bytes(o),
                               at + (int64_t)sizeof head));
        spill_add_records(cloud, o, from, buffer, head.n);
        left -= head.n;
        slot = head.next;
    }
    return SP_OK;
}

/* Reads the records of a block in one part. */
static sp_status spill_read_part(const vox_parts *parts, int part, int64_t block,
                                 vox_cloud *cloud)
{
    const vox_options *o = parts->options;
    const int64_t n = vox_layout_blocks(&parts->layout);
    const vox_share *share = parts->share + part * n;
    chain from = {.at = share[block].at,
                  .n = share[block].n,
                  .n_blocks = n,
                  .per_slot = vox_slot_records(o, &parts->layout),
                  .share = share};
    SP_FREED unsigned char *buffer = NULL;
    char *path;
    int fd;
    sp_status rc;

    if (from.n == 0)
        return SP_OK;
    buffer = malloc((size_t)from.per_slot * vox_record_bytes(o));
    rc = spill_open_part(parts, part, &path, &fd);
    from.path = path;
    if (rc == SP_OK && !buffer)
        rc = SP_FAIL(SP_EMEM, "no memory to read %s", path);
    if (rc == SP_OK)
        rc = read_slots(cloud, o, &from, fd, buffer);
    close_part(path, fd);
    return rc;
}

/* ---- order of an area's points ---- */

static int cloud_compare(const void *a, const void *b, void *arg)
{
    const vox_cloud *cloud = arg;
    const double *x = cloud->xyz + 3 * *(const int64_t *)a;
    const double *y = cloud->xyz + 3 * *(const int64_t *)b;

    for (int k = 0; k < 3; k++)
        if (x[k] != y[k])
            return x[k] < y[k] ? -1 : 1;
    return memcmp(cloud->features + cloud->n_columns * *(const int64_t *)a,
                  cloud->features + cloud->n_columns * *(const int64_t *)b,
                  (size_t)cloud->n_columns * sizeof(float));
}

/* Brings n elements of `size` bytes into an order, by a copy in `scratch`. */
static void cloud_permute(void *data, size_t size, const int64_t *order, int64_t n,
                          char *scratch)
{
    memcpy(scratch, data, (size_t)n * size);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)data + (size_t)i * size, scratch + (size_t)order[i] * size,
               size);
}

sp_status vox_cloud_sort(vox_cloud *c, int n_columns)
{
    const size_t row = (size_t)n_columns * sizeof *c->features, n = (size_t)c->n;
    const size_t widest = row > 3 * sizeof *c->xyz ? row : 3 * sizeof *c->xyz;
    SP_FREED int64_t *order = malloc(n * sizeof *order + 1);
    SP_FREED char *scratch = malloc(n * widest + 1);

    if (!order || !scratch)
        return SP_FAIL(SP_EMEM, "no memory for %zu points", n);
    for (int64_t i = 0; i < c->n; i++)
        order[i] = i;
    c->n_columns = n_columns;
    qsort_r(order, n, sizeof *order, cloud_compare, c);
    cloud_permute(c->xyz, 3 * sizeof *c->xyz, order, c->n, scratch);
    cloud_permute(c->features, row, order, c->n, scratch);
    cloud_permute(c->label, sizeof *c->label, order, c->n, scratch);
    cloud_permute(c->index, sizeof *c->index, order, c->n, scratch);
    cloud_permute(c->is_owned, sizeof *c->is_owned, order, c->n, scratch);
    cloud_permute(c->home, sizeof *c->home, order, c->n, scratch);
    cloud_permute(c->home_row, sizeof *c->home_row, order, c->n, scratch);
    return SP_OK;
}

sp_status vox_parts_read(const vox_parts *parts, const vox_piece *piece,
                         vox_cloud *cloud)
{
    assert(parts->share && piece->file == parts->file);
    assert(piece->block.number < vox_layout_blocks(&parts->layout));
    cloud->n = 0;
    cloud->source = parts->source;
    cloud->is_block = true;
    memcpy(cloud->corner, parts->layout.corner, sizeof cloud->corner);
    SP_TRY(vox_cloud_reserve(cloud, parts->options, piece->n));
    for (int p = 0; p < parts->n; p++)
        SP_TRY(spill_read_part(parts, p, piece->block.number, cloud));
    assert(cloud->n == piece->n);
    return SP_OK;
}
