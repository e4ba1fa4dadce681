#include "label/label_blocks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

/* ---- the pieces as a data set ---- */

static sp_status describe(label_blocks *b, const label_cut *cut)
{
    const char *path = cut->vox->input[cut->scan];
    const int64_t n = cut->n_pieces;
    SP_FREED int64_t *offset = NULL;

    SP_TRY(SP_NEW(&offset, n + 1, path));
    SP_TRY(SP_NEW(&b->scan, sp_spans_size(n), path));
    SP_TRY(SP_NEW(&b->block, n, path));
    for (int64_t i = 0; i < n; i++) {
        offset[i + 1] = offset[i] + cut->piece[i].n_own;
        b->block[i] = cut->piece[i].block;
    }
    SP_TRY(sp_spans_pack(&b->points, offset, n));
    b->shard = (sp_shard){.path = (char *)(uintptr_t)path, .n_samples = n};
    b->set = (sp_dataset){.n_shards = 1,
                          .shard = &b->shard,
                          .n_samples = n,
                          .n_points = offset[n],
                          .voxel_size = cut->vox->voxel_size,
                          .has_points = true,
                          .has_blocks = true,
                          .point_rows = b->points,
                          .scan = {b->scan, (char *)(uintptr_t)path, 0},
                          .block = b->block};
    return SP_OK;
}

static sp_status label_block(void *arg, const sp_merger_sample *sample);

sp_status label_blocks_open(label_blocks *b, const label_cut *cut,
                            const label_model *model, const label_options *options,
                            const label_deal *deal, label_result *result)
{
    sp_comm *comm = cut->comm;
    const int writer = label_deal_writer(deal, comm->rank);
    sp_status rc;

    assert(!result == (writer < 0));
    *b = (label_blocks){.comm = comm, .deal = *deal, .result = result};
    rc = describe(b, cut);
    assert(rc != SP_OK || b->set.n_points + cut->n_missing == deal->n_points);
    b->to = calloc((size_t)comm->size, sizeof *b->to);
    b->n_to = calloc((size_t)comm->size, sizeof *b->n_to);
    if (rc == SP_OK && (!b->to || !b->n_to))
        rc = SP_FAIL(SP_EMEM, "no memory for %d ranks", comm->size);
    if (rc == SP_OK)
        rc = label_result_open(&b->some, model, options);
    if (rc == SP_OK && result)
        rc = label_result_deal(result, deal, writer);
    SP_TRY(sp_comm_agree(comm, rc));
    return sp_merger_open(&b->merger, &b->set, label_model_sums(model), comm,
                          label_block, b);
}

void label_blocks_close(label_blocks *b)
{
    if (b->merger.comm)
        sp_merger_destroy(&b->merger);
    label_result_free(&b->some);
    for (int r = 0; b->to && r < b->comm->size; r++)
        sp_gather_buffer_destroy(&b->to[r]);
    sp_gather_buffer_destroy(&b->received);
    free(b->to);
    free(b->n_to);
    free(b->points);
    free(b->scan);
    free(b->block);
    *b = (label_blocks){0};
}

/* ---- blocks ---- */

/* The payload of a block goes to its owner and returns with its sums: the row of each
 * point in the scan, and its mark. */
static size_t payload_bytes(int64_t n)
{
    return (size_t)n * (sizeof(uint64_t) + sizeof(uint32_t));
}

sp_status label_blocks_add(label_blocks *b, const sp_sample *s, const uint64_t *sum,
                           const uint32_t *mark)
{
    const size_t n = (size_t)s->n_points;
    SP_FREED char *payload = malloc(payload_bytes(s->n_points) + 1);

    assert(b->merger.comm && 0 <= s->id && s->id < b->set.n_samples);
    if (!payload)
        return SP_FAIL(SP_EMEM, "no memory for %zu points", n);
    if (n > 0) {
        memcpy(payload, s->point_index, n * sizeof *s->point_index);
        memcpy(payload + n * sizeof *s->point_index, mark, n * sizeof *mark);
    }
    return sp_merger_add(&b->merger, s, sum, payload, payload_bytes(s->n_points));
}

/* A record of labelled points, which one rank writes, begins with their number (int64).
 * Their places there (uint64), their values and their classes (uint16 at a multiple of
 * 2) follow. */

static size_t even(size_t bytes)
{
    return (bytes + 1) / 2 * 2;
}

/* The parts of a record after its number of points. */
typedef struct labelled_parts {
    uint64_t *place;
    char *value;
    uint16_t *label;
} labelled_parts;

static labelled_parts parts_of(const label_blocks *b, int64_t *n)
{
    labelled_parts p = {.place = (uint64_t *)(n + 1)};

    p.value = (char *)(p.place + *n);
    p.label = (uint16_t *)(void *)(p.value + even((size_t)*n *
                                                  label_result_value_bytes(&b->some)));
    return p;
}

static size_t labelled_bytes(const label_blocks *b, int64_t n)
{
    return sizeof n + (size_t)n * (sizeof(uint64_t) + sizeof(uint16_t)) +
           even((size_t)n * label_result_value_bytes(&b->some));
}

/* Adds the points of b->some [n] that belong to a rank; `row` has their rows. */
static sp_status send(label_blocks *b, int rank, const uint64_t *row, int64_t n)
{
    const size_t bytes = label_result_value_bytes(&b->some);
    labelled_parts to;
    void *record;
    int64_t at = 0;

    SP_TRY(
        sp_gather_buffer_add(&b->to[rank], labelled_bytes(b, b->n_to[rank]), &record));
    *(int64_t *)record = b->n_to[rank];
    to = parts_of(b, record);
    for (int64_t i = 0; i < n; i++) {
        if (label_deal_rank(&b->deal, (int64_t)row[i]) != rank)
            continue;
        to.place[at] = (uint64_t)label_deal_place(&b->deal, (int64_t)row[i]);
        to.label[at] = b->some.label[i];
        if (bytes)
            memcpy(to.value + (size_t)at * bytes,
                   (const char *)b->some.value + (size_t)i * bytes, bytes);
        at++;
    }
    assert(at == b->n_to[rank]);
    return SP_OK;
}

/* Labels the points of a block with complete sums, on its owner. */
static sp_status label_block(void *arg, const sp_merger_sample *sample)
{
    label_blocks *b = arg;
    const int64_t n = sample->n_points, c = b->merger.n_classes;
    const uint64_t *row = sample->payload;
    const uint32_t *mark = (const uint32_t *)(row + n);

    assert(sample->payload_bytes == payload_bytes(n));
    SP_TRY(label_result_size(&b->some, n));
    memset(b->n_to, 0, (size_t)b->comm->size * sizeof *b->n_to);
    for (int64_t i = 0; i < n; i++) {
        assert(row[i] < (uint64_t)b->deal.n_points);
        label_result_put(&b->some, i, sample->sum + i * c, mark[i]);
        b->n_to[label_deal_rank(&b->deal, (int64_t)row[i])]++;
    }
    for (int r = 0; r < b->comm->size; r++)
        if (b->n_to[r] > 0)
            SP_TRY(send(b, r, row, n));
    return SP_OK;
}

static sp_status place(label_blocks *b, char *record)
{
    int64_t *n = (int64_t *)(void *)record;
    const labelled_parts p = parts_of(b, n);
    const label_result from = {
        .model = b->some.model, .n = *n, .value = p.value, .label = p.label};

    assert(b->result);
    return label_result_place(b->result, &from, p.place);
}

sp_status label_blocks_exchange(label_blocks *b, int64_t n_passed)
{
    char *record;

    assert(b->merger.comm && n_passed <= b->set.n_samples);
    for (int r = 0; r < b->comm->size; r++)
        sp_gather_buffer_clear(&b->to[r]);
    SP_TRY(sp_comm_agree(b->comm, sp_merger_exchange(&b->merger, n_passed)));
    SP_TRY(sp_gather_buffer_exchange(&b->received, b->to, b->comm));
    while ((record = sp_gather_buffer_next(&b->received, NULL)))
        SP_TRY(place(b, record));
    return SP_OK;
}
