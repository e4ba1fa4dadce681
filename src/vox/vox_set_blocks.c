#include "vox/vox_set.h"
#include "base/sp_list.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct vox_blocks_input {
    int n_parts;
    vox_box found;     /* around the points of this rank's part, later of all */
    vox_layout layout; /* used to cut it; no blocks: it has no point */
} vox_blocks_input;

/* Sets the prefix of the names of an input's files. */
static void name_parts(vox_blocks *b, int f)
{
    snprintf(b->path, sizeof b->path, "%s.spill-%05d", b->options->out, f);
}

static double blocks_bytes_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (double)st.st_size : 0;
}

/* A part is at most about half of a rank's reading. */
static void choose_parts(vox_blocks *b)
{
    const vox_options *o = b->options;
    const double size = b->comm->size;
    double total = 1; /* not 0 without inputs */

    for (int f = 0; f < o->n_inputs; f++)
        total += blocks_bytes_of(o->input[f]);
    for (int f = 0; f < o->n_inputs; f++) {
        const double n = ceil(2 * size * blocks_bytes_of(o->input[f]) / total);

        b->input[f] = (vox_blocks_input){.n_parts = (int)fmin(size, fmax(1, n)),
                                         .found = VOX_NO_BOX};
    }
}

/* Rank 0 decides for all, so that a growing file has the same parts everywhere.
 * Collective. */
static sp_status blocks_deal(vox_blocks *b)
{
    const size_t n = (size_t)b->options->n_inputs;

    SP_TRY(sp_comm_agree(b->comm, SP_NEW(&b->input, n, "the inputs")));
    if (b->comm->rank == 0)
        choose_parts(b);
    return sp_comm_bcast(b->comm, b->input, n * sizeof *b->input, 0);
}

/* The part of an input that this rank has; from n_parts on it does not exist. */
static int blocks_part_of(const vox_blocks *b, int f)
{
    return (b->comm->rank + b->comm->size - f % b->comm->size) % b->comm->size;
}

/* Cuts this rank's part of an input by the layout or, if it is NULL, by the header. */
static sp_status cut_part(vox_blocks *b, int f, const vox_layout *layout,
                          vox_codes *codes)
{
    vox_blocks_input *input = &b->input[f];
    char path[sizeof b->path + VOX_PART_ROOM];
    vox_cut cut = {.options = b->options,
                   .file = f,
                   .part = blocks_part_of(b, f),
                   .n_parts = input->n_parts,
                   .path = path};
    sp_status rc;

    if (cut.part >= cut.n_parts)
        return SP_OK;
    name_parts(b, f);
    vox_part_path(b->path, cut.part, path, sizeof path);
    rc = vox_cut_open(&cut, codes);
    if (rc == SP_OK)
        rc = vox_cut_run(&cut, layout);
    input->found = cut.found;
    input->layout = cut.layout;
    vox_cut_close(&cut);
    return rc;
}

/* Cuts this rank's part of an input by the extent of all its points, if it was cut by
 * another extent: the blocks do not depend on the header. */
static sp_status cut_again(vox_blocks *b, int f)
{
    const vox_box found = b->input[f].found;
    const vox_layout claimed = b->input[f].layout;
    vox_layout layout = {0};
    sp_status rc = SP_OK;

    if (!vox_box_is_empty(&found)) {
        SP_TRY(vox_cut_layout(b->options, f, &found, &layout));
        if (!vox_layout_is_same(b->options, &layout, &claimed))
            rc = cut_part(b, f, &layout, NULL);
    }
    b->input[f].layout = layout;
    return rc;
}

/* Sets b->parts to an input's parts. */
static sp_status open_parts(vox_blocks *b, int f)
{
    vox_parts_close(&b->parts);
    name_parts(b, f);
    b->parts = (vox_parts){.options = b->options, .file = f, .path = b->path};
    return vox_parts_open(&b->parts, &b->input[f].layout, b->input[f].n_parts);
}

/* Lists the pieces of every size-th input. */
static sp_status list(vox_blocks *b, vox_piece **mine, int64_t *n)
{
    for (int f = b->comm->rank; f < b->options->n_inputs; f += b->comm->size) {
        if (vox_layout_blocks(&b->input[f].layout) == 0)
            continue;
        SP_TRY(open_parts(b, f));
        SP_TRY(vox_parts_list(&b->parts, mine, n));
    }
    return SP_OK;
}

sp_status vox_blocks_cut(vox_blocks *b, const vox_options *options, sp_comm *comm,
                         vox_codes *codes, vox_piece **mine, int64_t *n)
{
    const int n_inputs = options->n_inputs;
    sp_status rc = SP_OK;

    assert(!b->input && options->block > 0 && codes);
    b->options = options;
    b->comm = comm;
    SP_TRY(blocks_deal(b));
    for (int f = 0; rc == SP_OK && f < n_inputs; f++)
        rc = cut_part(b, f, NULL, codes);
    SP_TRY(sp_comm_agree(comm, rc));
    for (int f = 0; f < n_inputs; f++)
        SP_TRY(vox_box_join(comm, &b->input[f].found));
    for (int f = 0; rc == SP_OK && f < n_inputs; f++)
        rc = cut_again(b, f);
    SP_TRY(sp_comm_agree(comm, rc));
    return sp_comm_agree(comm, list(b, mine, n));
}

sp_status vox_blocks_read(vox_blocks *b, const vox_piece *piece, vox_cloud *cloud)
{
    assert(b->input && 0 <= piece->file && piece->file < b->options->n_inputs);
    if (!b->parts.share || b->parts.file != piece->file)
        SP_TRY(open_parts(b, piece->file));
    return vox_parts_read(&b->parts, piece, cloud);
}

void vox_blocks_close(vox_blocks *b)
{
    vox_parts_close(&b->parts);
    for (int f = 0; b->input && f < b->options->n_inputs; f++) {
        char path[sizeof b->path + VOX_PART_ROOM];

        name_parts(b, f);
        vox_part_path(b->path, blocks_part_of(b, f), path, sizeof path);
        if (blocks_part_of(b, f) < b->input[f].n_parts)
            unlink(path);
    }
    free(b->input);
    *b = (vox_blocks){0};
}
