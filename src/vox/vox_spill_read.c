/* Reading the blocks of a scan back from its temporary files (vox_spill.h). */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "vox/vox_spill.h"

/* The slots of a block in one file. */
typedef struct chain {
    const char *path;
    int64_t at, per_slot, n; /* first slot; records of a slot and of the block */
    const vox_share *share; /* [blocks] of the part; NULL: the file is the whole scan */
} chain;

static void take_records(vox_cloud *cloud, const vox_options *o, const chain *from,
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
        cloud->home_row[to] =
            r.home_row + (from->share ? (uint32_t)from->share[r.home].before : 0);
    }
}

/* Reads the slots, one after the other. */
static sp_status read_slots(vox_cloud *cloud, const vox_options *o, const chain *from,
                            int fd, unsigned char *buffer)
{
    const int64_t slot_bytes = (int64_t)vox_slot_bytes(o, from->per_slot);
    int64_t slot = from->at;

    for (int64_t left = from->n; left > 0;) {
        const int64_t at = slot * slot_bytes;
        vox_slot head;

        SP_TRY(sp_file_read_at(fd, from->path, &head, sizeof head, at));
        if (head.n < 1 || head.n > from->per_slot || head.n > left ||
            (head.n < left && head.next < 0))
            return SP_FAIL(SP_EIO, "%s: slot %" PRId64 " is not as it was written",
                           from->path, slot);
        SP_TRY(sp_file_read_at(fd, from->path, buffer,
                               (size_t)head.n * vox_record_bytes(o),
                               at + (int64_t)sizeof head));
        take_records(cloud, o, from, buffer, head.n);
        left -= head.n;
        slot = head.next;
    }
    return SP_OK;
}

static sp_status read_chain(vox_cloud *cloud, const vox_options *o, const chain *from)
{
    unsigned char *buffer = malloc((size_t)from->per_slot * vox_record_bytes(o));
    int fd = -1;
    sp_status rc;

    assert(from->at >= 0 && from->per_slot > 0);
    rc = buffer ? sp_file_open(from->path, O_RDONLY, &fd)
                : SP_FAIL(SP_EMEM, "no memory to read %s", from->path);
    if (rc == SP_OK)
        rc = read_slots(cloud, o, from, fd, buffer);
    if (fd >= 0)
        close(fd);
    free(buffer);
    return rc;
}

static sp_status begin(vox_cloud *cloud, const vox_options *o, const vox_piece *piece)
{
    assert(piece->n >= 0);
    cloud->n = 0;
    cloud->source = piece->source;
    cloud->is_block = true;
    memcpy(cloud->corner, piece->corner, sizeof cloud->corner);
    return vox_cloud_reserve(cloud, o, piece->n);
}

sp_status vox_spill_read(vox_cloud *cloud, const vox_options *o, const char *path,
                         const vox_piece *piece)
{
    const chain whole = {path, piece->at, piece->per_slot, piece->n, NULL};

    SP_TRY(begin(cloud, o, piece));
    return read_chain(cloud, o, &whole);
}

void vox_part_path(const char *path, int part, char *to, size_t bytes)
{
    snprintf(to, bytes, "%s.%d", path, part);
}

sp_status vox_cut_read(vox_cloud *cloud, const vox_options *o, const vox_parts *parts,
                       const vox_piece *piece)
{
    char *path = malloc(strlen(parts->path) + VOX_PART_ROOM);
    sp_status rc;

    if (!path)
        return SP_FAIL(SP_EMEM, "no memory to read %s", parts->path);
    rc = begin(cloud, o, piece);
    for (int p = 0; rc == SP_OK && p < parts->n; p++) {
        const vox_share *share = parts->share + p * parts->n_blocks;
        const vox_share *block = &share[piece->block.number];
        const chain part = {path, block->at, piece->per_slot, block->n, share};

        assert(piece->block.number < parts->n_blocks);
        vox_part_path(parts->path, p, path, strlen(parts->path) + VOX_PART_ROOM);
        if (block->n > 0)
            rc = read_chain(cloud, o, &part);
    }
    free(path);
    assert(rc != SP_OK || cloud->n == piece->n);
    return rc;
}
