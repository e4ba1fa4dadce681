#include "label/label_cut.h"
#include "base/sp_list.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

static sp_status run_part(void *arg)
{
    label_cut *c = arg;

    return vox_cut_run(&c->part, NULL);
}

sp_status label_cut_begin(label_cut **cut, sp_comm *comm, const label_store *store,
                          const char *path, int first_rank, vox_codes *codes)
{
    const int part = (comm->rank - first_rank + comm->size) % comm->size;
    label_cut *c;

    assert(0 <= first_rank && first_rank < comm->size && store->vox->block > 0);
    SP_TRY(SP_NEW(cut, 1, "a scan"));
    c = *cut;
    *c = (label_cut){
        .comm = comm, .vox = store->vox, .scan = store->scan, .store = *store};
    snprintf(c->path, sizeof c->path, "%s", path);
    vox_part_path(c->path, part, c->own_path, sizeof c->own_path);
    label_files_unfinished(store->files, c->scan, LABEL_CHUNKS, c->chunks);
    SP_TRY(SP_NEW(&c->is_damaged, c->vox->n_inputs, "the neighbours of a scan"));
    c->part = (vox_cut){.options = c->vox,
                        .file = c->scan,
                        .part = part,
                        .n_parts = comm->size,
                        .path = c->own_path,
                        .chunks = c->vox->is_window ? c->chunks : NULL,
                        .done = c->store.done,
                        .n_done = c->store.n_done,
                        .is_damaged = c->is_damaged};
    SP_TRY(vox_cut_open(&c->part, codes));
    return sp_task_start(&c->task, run_part, c);
}

/* The blocks of a window are the whole scan's, which its header gives. */
static sp_status choose_window_layout(label_cut *c, vox_layout *layout)
{
    sp_status rc = SP_OK;

    *layout = c->part.layout;
    if (vox_layout_blocks(layout) == 0)
        rc = SP_FAIL(
            SP_EDATA,
            "%s: --window needs the extent of the scan, and its header does not "
            "have it",
            c->vox->input[c->scan]);
    return sp_comm_agree(c->comm, rc);
}

/* Cuts again without the neighbours that a rank has found to be damaged: how much of them
 * it read before depends on the number of ranks. Later scans have no block from this one
 * then. Collective, agreed. */
static sp_status leave_out_damaged(label_cut *c, const vox_layout *layout)
{
    unsigned char is_partial = c->part.is_partial;

    SP_TRY(sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, &is_partial, 1, SP_U8, SP_MAX));
    while (is_partial) {
        c->store.own = LABEL_NO_EXTENT;
        SP_TRY(sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, c->is_damaged,
                                 c->vox->n_inputs, SP_U8, SP_MAX));
        SP_TRY(sp_comm_agree(c->comm, vox_cut_run(&c->part, layout)));
        is_partial = c->part.is_partial;
        SP_TRY(
            sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, &is_partial, 1, SP_U8, SP_MAX));
    }
    return SP_OK;
}

/* Finds the extent of the scan and cuts by it if that was not done, and counts its
 * missing points. Collective, agreed. *layout has no blocks: the scan has no point. */
static sp_status choose_layout(label_cut *c, vox_layout *layout)
{
    vox_box found = c->part.found;
    int64_t n[2] = {c->part.n_missing, c->part.n_rows};

    *layout = (vox_layout){0};
    SP_TRY(vox_box_join(c->comm, &found));
    SP_TRY(sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, n, 2, SP_I64, SP_SUM));
    c->n_missing = n[vox_box_is_empty(&found)];
    if (vox_box_is_empty(&found))
        return SP_OK;
    c->store.own =
        (vox_extent){{found.low[0], found.low[1]}, {found.high[0], found.high[1]}};
    if (c->vox->is_window) /* by the header, also if the window lacks its corner */
        return choose_window_layout(c, layout);
    SP_TRY(vox_cut_layout(c->vox, c->scan, &found, layout));
    if (vox_layout_is_same(c->vox, layout, &c->part.layout))
        return SP_OK;
    return sp_comm_agree(c->comm, vox_cut_run(&c->part, layout));
}

sp_status label_cut_finish(label_cut *c)
{
    vox_layout layout;
    sp_status rc;

    assert(!c->parts.share && "it is taken once");
    SP_TRY(sp_comm_agree(c->comm, sp_task_join(&c->task)));
    SP_TRY(choose_layout(c, &layout));
    if (vox_layout_blocks(&layout) > 0)
        SP_TRY(leave_out_damaged(c, &layout));
    vox_cut_close(&c->part);
    if (vox_layout_blocks(&layout) == 0)
        return SP_OK;
    c->parts = (vox_parts){.options = c->vox, .file = c->scan, .path = c->path};
    rc = vox_parts_open(&c->parts, &layout, c->comm->size);
    if (rc == SP_OK)
        rc = vox_parts_list(&c->parts, &c->piece, &c->n_pieces);
    return sp_comm_agree(c->comm, rc);
}

sp_status label_cut_read(const label_cut *c, vox_cloud *cloud, int64_t piece)
{
    assert(0 <= piece && piece < c->n_pieces);
    SP_TRY(vox_parts_read(&c->parts, &c->piece[piece], cloud));
    if (c->vox->buffer <= 0 || label_store_is_done(&c->store, &c->piece[piece]))
        return SP_OK;
    return vox_cloud_sort(cloud, c->vox->n_features);
}

void label_cut_free(label_cut *c)
{
    if (!c)
        return;
    sp_task_drop(&c->task);
    vox_cut_close(&c->part);
    unlink(c->own_path);
    vox_parts_close(&c->parts);
    label_store_close(&c->store);
    free(c->piece);
    free(c->is_damaged);
    free(c);
}
