#include "label/label_cut.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sp_status run_part(void *arg)
{
    label_cut *c = arg;

    return vox_cut_run(&c->part, NULL);
}

sp_status label_cut_begin(label_cut **cut, sp_comm *comm, const vox_options *vox,
                          int scan, const char *path, int first_rank, vox_codes *codes)
{
    const int part = (comm->rank - first_rank + comm->size) % comm->size;
    label_cut *c = calloc(1, sizeof *c);

    assert(0 <= first_rank && first_rank < comm->size && vox->block > 0);
    *cut = c;
    if (!c)
        return SP_FAIL(SP_EMEM, "no memory for a scan");
    *c = (label_cut){.comm = comm, .vox = vox, .scan = scan, .first_rank = first_rank};
    snprintf(c->path, sizeof c->path, "%s", path);
    vox_part_path(c->path, part, c->own_path, sizeof c->own_path);
    c->part = (vox_cut){.options = vox,
                        .file = scan,
                        .part = part,
                        .n_parts = comm->size,
                        .path = c->own_path};
    SP_TRY(vox_cut_open(&c->part, codes));
    return sp_task_start(&c->task, run_part, c);
}

/* Finds the extent of the scan and cuts by it where that was not done, and counts its
 * void rows. Collective, agreed. *is_empty: the scan has no point. */
static sp_status choose_layout(label_cut *c, bool *is_empty)
{
    vox_box found = c->part.found;
    vox_layout layout;

    SP_TRY(sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, found.low, 3, SP_F64, SP_MIN));
    SP_TRY(sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, found.high, 3, SP_F64, SP_MAX));
    c->n_void = c->part.n_void;
    SP_TRY(sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, &c->n_void, 1, SP_I64, SP_SUM));
    *is_empty = vox_box_is_empty(&found);
    if (*is_empty)
        return SP_OK;
    SP_TRY(vox_cut_layout(c->vox, c->scan, &found, &layout));
    if (vox_layout_is_same(&layout, &c->part.layout))
        return SP_OK;
    return sp_comm_agree(c->comm, vox_cut_run(&c->part, &layout), NULL);
}

/* Brings what came rank by rank to the order of the parts: the parts of the ranks
 * before first_rank are the last ones. */
static sp_status order_shares(label_cut *c, const vox_share *by_rank)
{
    const size_t n = (size_t)c->parts.n_blocks;
    const int behind = c->comm->size - c->first_rank;
    const size_t head = n * (size_t)(c->parts.n < behind ? c->parts.n : behind);
    const size_t tail = n * (size_t)c->parts.n - head;

    c->share = malloc((head + tail) * sizeof *c->share);
    if (!c->share)
        return SP_FAIL(SP_EMEM, "no memory for %zu blocks", n);
    memcpy(c->share, by_rank + tail, head * sizeof *c->share);
    if (tail > 0)
        memcpy(c->share + head, by_rank, tail * sizeof *c->share);
    return SP_OK;
}

/* Gives all ranks the shares of all parts. Collective, agreed. */
static sp_status share_all(label_cut *c)
{
    const vox_layout *layout = &c->part.layout;
    size_t bytes;
    void *all = NULL;
    sp_status rc;

    c->parts = (vox_parts){.path = c->path,
                           .n = vox_layout_parts(layout, c->comm->size),
                           .n_blocks = vox_layout_blocks(layout)};
    bytes = (size_t)c->parts.n_blocks * sizeof *c->share;
    rc = sp_comm_gather(c->comm, c->part.share, c->part.share ? bytes : 0,
                        c->first_rank, &all, NULL);
    if (rc == SP_OK && all)
        rc = order_shares(c, all);
    free(all);
    SP_TRY(sp_comm_agree(c->comm, rc, NULL));
    all = c->share;
    rc = sp_comm_bcast_array(c->comm, &all, bytes * (size_t)c->parts.n, c->first_rank);
    c->parts.share = c->share = all;
    return rc;
}

sp_status label_cut_take(label_cut *c)
{
    bool is_empty;
    sp_status rc;

    assert(!c->share && "it is taken once");
    SP_TRY(sp_comm_agree(c->comm, sp_task_join(&c->task), NULL));
    SP_TRY(choose_layout(c, &is_empty));
    if (is_empty)
        return SP_OK;
    SP_TRY(share_all(c));
    rc = vox_cut_list(&c->part, c->parts.n, c->share, &c->piece, &c->n_pieces);
    vox_cut_close(&c->part);
    return sp_comm_agree(c->comm, rc, NULL);
}

sp_status label_cut_read(const label_cut *c, vox_cloud *cloud, int64_t piece)
{
    assert(0 <= piece && piece < c->n_pieces);
    return vox_cut_read(cloud, c->vox, &c->parts, &c->piece[piece]);
}

void label_cut_free(label_cut *c)
{
    if (!c)
        return;
    sp_task_drop(&c->task);
    vox_cut_close(&c->part);
    unlink(c->own_path);
    free(c->share);
    free(c->piece);
    free(c);
}
