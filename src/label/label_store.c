#include "label/label_store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"

#define UNFINISHED ".new"

/* The beginning of a file. Coordinates, positions in voxels and sums follow it. */
typedef struct store_head {
    int64_t n, n_sums;
    double origin[3];
} store_head;

/* ---- scans with the same blocks ---- */

static sp_status store_append(vox_block_number **list, int64_t *n,
                              vox_block_number block)
{
    if (!sp_list_grow(list, *n, sizeof **list))
        return SP_FAIL(SP_EMEM, "no memory for blocks of an area");
    (*list)[(*n)++] = block;
    return SP_OK;
}

sp_status label_store_open(label_store *s, const vox_options *vox,
                           const label_files *files, int scan, int n_sums,
                           const label_stored *stored)
{
    *s = (label_store){.vox = vox,
                       .files = files,
                       .scan = scan,
                       .n_sums = n_sums,
                       .own = LABEL_NO_EXTENT};
    for (int64_t i = 0; i < stored->n; i++)
        if (vox_block_is_complete(vox, &vox->extent[scan], stored->block[i]))
            SP_TRY(store_append(&s->done, &s->n_done, stored->block[i]));
    return SP_OK;
}

void label_store_close(label_store *s)
{
    free(s->done);
    free(s->later);
    *s = (label_store){0};
}

sp_status label_store_add_later(label_store *s, const vox_extent *extent)
{
    if (!sp_list_grow(&s->later, s->n_later, sizeof *s->later))
        return SP_FAIL(SP_EMEM, "no memory for the neighbours of a scan");
    s->later[s->n_later++] = *extent;
    return SP_OK;
}

static vox_block_number store_number(const label_store *s, const vox_piece *piece)
{
    return vox_block_at(s->vox, piece->block.low);
}

bool label_store_is_done(const label_store *s, const vox_piece *piece)
{
    return s->n_done > 0 && vox_block_is_in(store_number(s, piece), s->done, s->n_done);
}

static bool store_is_wanted(const label_store *s, vox_block_number block)
{
    bool is_wanted = false;

    for (int i = 0; i < s->n_later && !is_wanted; i++)
        is_wanted = vox_block_is_complete(s->vox, &s->later[i], block);
    return is_wanted;
}

/* Does this scan store the piece? */
static bool store_is_new(const label_store *s, const vox_piece *piece)
{
    return s->n_later > 0 && !label_store_is_done(s, piece) &&
           vox_block_is_complete(s->vox, &s->own, store_number(s, piece)) &&
           store_is_wanted(s, store_number(s, piece));
}

sp_status label_store_note(const label_store *s, const vox_piece *piece,
                           int64_t n_pieces, label_stored *stored)
{
    int64_t n = 0;

    for (int64_t i = 0; i < stored->n; i++)
        if (!vox_block_is_in(stored->block[i], s->done, s->n_done) ||
            store_is_wanted(s, stored->block[i]))
            stored->block[n++] = stored->block[i];
    stored->n = n;
    for (int64_t i = 0; i < n_pieces; i++)
        if (store_is_new(s, &piece[i]))
            SP_TRY(
                store_append(&stored->block, &stored->n, store_number(s, &piece[i])));
    return SP_OK;
}

/* ---- files ---- */

static const char *store_path(const label_store *s, vox_block_number block,
                              const char *ending, char path[LABEL_PATH])
{
    snprintf(path, LABEL_PATH, "%s/%s/block-%" PRId64 "-%" PRId64 "%s", s->files->work,
             s->files->tmp, block.x, block.y, ending);
    return path;
}

static size_t store_sum_bytes(const label_store *s, int64_t n)
{
    return (size_t)n * (size_t)s->n_sums * sizeof(uint64_t);
}

/* The bytes of the voxels' coordinates, or of their positions. */
static size_t store_voxel_bytes(int64_t n, size_t bytes)
{
    return 3 * (size_t)n * bytes;
}

typedef sp_status store_reader(const label_store *s, int fd, const char *path,
                               const store_head *head, void *to);

/* Opens the block's file, reads its head, and has `read` read the rest into `to`. */
static sp_status store_read(const label_store *s, const vox_piece *piece,
                            store_reader *read, void *to)
{
    char path[LABEL_PATH];
    store_head head;
    int fd;
    sp_status rc;

    store_path(s, store_number(s, piece), "", path);
    SP_TRY(sp_file_open(path, O_RDONLY, &fd));
    rc = sp_file_read_at(fd, path, &head, sizeof head, 0);
    if (rc == SP_OK && (head.n < 1 || head.n_sums != s->n_sums))
        rc = SP_FAIL(SP_EIO, "%s is not as it was written", path);
    if (rc == SP_OK)
        rc = read(s, fd, path, &head, to);
    close(fd);
    return rc;
}

static sp_status store_read_voxels(const label_store *s, int fd, const char *path,
                                   const store_head *head, void *to)
{
    sp_grid *grid = to;
    const size_t coords = store_voxel_bytes(head->n, sizeof *grid->sample.coords);

    (void)s;
    SP_TRY(sp_grid_reserve(grid, head->n));
    memcpy(grid->sample.origin, head->origin, sizeof head->origin);
    SP_TRY(sp_file_read_at(fd, path, grid->sample.coords, coords, sizeof *head));
    return sp_file_read_at(fd, path, grid->sample.subvoxel,
                           store_voxel_bytes(head->n, 1),
                           (int64_t)(sizeof *head + coords));
}

static sp_status store_read_sums(const label_store *s, int fd, const char *path,
                                 const store_head *head, void *to)
{
    return sp_file_read_at(
        fd, path, to, store_sum_bytes(s, head->n),
        (int64_t)(sizeof *head + store_voxel_bytes(head->n, sizeof(int32_t) + 1)));
}

sp_status label_store_get(const label_store *s, const vox_piece *piece, sp_grid *grid)
{
    return store_read(s, piece, store_read_voxels, grid);
}

sp_status label_store_sums(const label_store *s, const vox_piece *piece, uint64_t *sum)
{
    return store_read(s, piece, store_read_sums, sum);
}

static sp_status store_write(const label_store *s, int fd, const char *path,
                             const sp_sample *sample, const uint64_t *sum)
{
    const size_t coords = store_voxel_bytes(sample->n, sizeof *sample->coords);
    const size_t subvoxel = store_voxel_bytes(sample->n, 1);
    store_head head = {.n = sample->n, .n_sums = s->n_sums};
    int64_t at = sizeof head;

    memcpy(head.origin, sample->origin, sizeof head.origin);
    SP_TRY(sp_file_write_at(fd, path, &head, sizeof head, 0));
    SP_TRY(sp_file_write_at(fd, path, sample->coords, coords, at));
    at += (int64_t)coords;
    SP_TRY(sp_file_write_at(fd, path, sample->subvoxel, subvoxel, at));
    return sp_file_write_at(fd, path, sum, store_sum_bytes(s, sample->n),
                            at + (int64_t)subvoxel);
}

/* The file gets its name when it is complete: another rank reads it only then. */
sp_status label_store_put(const label_store *s, const vox_piece *piece,
                          const sp_sample *sample, const uint64_t *sum)
{
    const vox_block_number block = store_number(s, piece);
    char from[LABEL_PATH], path[LABEL_PATH];
    int fd;
    sp_status rc;

    if (!store_is_new(s, piece))
        return SP_OK;
    SP_TRY(sp_file_open(store_path(s, block, UNFINISHED, from),
                        O_CREAT | O_TRUNC | O_WRONLY, &fd));
    rc = store_write(s, fd, from, sample, sum);
    if (close(fd) != 0 && rc == SP_OK)
        rc = SP_FAIL(SP_EIO, "%s: cannot write: %s", from, strerror(errno));
    if (rc == SP_OK && rename(from, store_path(s, block, "", path)) != 0)
        rc =
            SP_FAIL(SP_EIO, "%s: cannot rename to %s: %s", from, path, strerror(errno));
    return rc;
}

void label_store_clean(const label_store *s)
{
    char path[LABEL_PATH];

    for (int64_t i = 0; i < s->n_done; i++)
        if (!store_is_wanted(s, s->done[i]))
            unlink(store_path(s, s->done[i], "", path));
}
