#include "label/label_blocks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the pieces as a data set ---- */

static sp_status describe(label_blocks *b, const char *path, const label_model *model,
                          const vox_piece *piece, int64_t n)
{
    b->point_offset = calloc((size_t)n + 2, sizeof *b->point_offset);
    b->scan = calloc((size_t)n + 1, sizeof *b->scan);
    b->block = calloc((size_t)n + 1, sizeof *b->block);
    if (!b->point_offset || !b->scan || !b->block)
        return SP_FAIL(SP_EMEM, "%s: no memory for %" PRId64 " blocks", path, n);
    for (int64_t i = 0; i < n; i++) {
        b->point_offset[i + 1] = b->point_offset[i] + piece[i].n_own;
        b->scan[i] = (char *)(uintptr_t)path;
        b->block[i] = piece[i].block;
    }
    b->shard = (sp_shard){.path = (char *)(uintptr_t)path, .n_samples = n};
    b->set = (sp_dataset){.n_shards = 1,
                          .shard = &b->shard,
                          .n_samples = n,
                          .n_points = b->point_offset[n],
                          .voxel_size = model->vox->voxel_size,
                          .has_points = true,
                          .has_blocks = true,
                          .point_offset = b->point_offset,
                          .scan = b->scan,
                          .block = b->block};
    return SP_OK;
}

static sp_status settle(void *arg, const sp_merger_sample *sample);

sp_status label_blocks_open(label_blocks *b, const char *path, const label_model *model,
                            const label_options *options, const vox_piece *piece,
                            int64_t n_pieces, sp_comm *comm, int collector,
                            label_result *result)
{
    sp_status rc;

    assert(n_pieces >= 0 && 0 <= collector && collector < comm->size);
    *b = (label_blocks){.comm = comm, .collector = collector, .result = result};
    rc = describe(b, path, model, piece, n_pieces);
    if (rc == SP_OK)
        rc = label_result_open(&b->some, model, options);
    if (rc == SP_OK && comm->rank == collector)
        rc = label_result_size(result, b->set.n_points);
    SP_TRY(sp_comm_agree(comm, rc, NULL));
    return sp_merger_open(&b->merger, &b->set, model->n_classes, comm, settle, b);
}

void label_blocks_close(label_blocks *b)
{
    if (b->merger.comm)
        sp_merger_destroy(&b->merger);
    label_result_free(&b->some);
    sp_records_destroy(&b->settled);
    free(b->point_offset);
    free(b->scan);
    free(b->block);
    *b = (label_blocks){0};
}

/* ---- blocks ---- */

/* The payload of a block goes to its owner and returns with its sums: the row of each
 * point in the scan, and whether it keeps its code. */
static size_t payload_bytes(int64_t n)
{
    return (size_t)n * (sizeof(uint64_t) + sizeof(uint8_t));
}

sp_status label_blocks_add(label_blocks *b, const sp_sample *s, const uint64_t *sum,
                           const uint8_t *is_kept)
{
    const size_t n = (size_t)s->n_points;
    char *payload = malloc(payload_bytes(s->n_points) + 1);
    sp_status rc;

    assert(b->merger.comm && 0 <= s->id && s->id < b->set.n_samples);
    if (!payload)
        return SP_FAIL(SP_EMEM, "no memory for %zu points", n);
    if (n > 0) {
        memcpy(payload, s->point_index, n * sizeof *s->point_index);
        memcpy(payload + n * sizeof *s->point_index, is_kept, n);
    }
    rc = sp_merger_add(&b->merger, s, sum, payload, payload_bytes(s->n_points));
    free(payload);
    return rc;
}

/* The head of a record of settled points. It is followed by their rows (uint64), their
 * values and their classes (uint16 at a multiple of 2). */
typedef struct settled {
    int64_t n;
} settled;

static size_t even(size_t bytes)
{
    return (bytes + 1) / 2 * 2;
}

/* Settles the points of a block whose sums are complete, on its owner. */
static sp_status settle(void *arg, const sp_merger_sample *sample)
{
    label_blocks *b = arg;
    const int64_t n = sample->n_points, c = b->merger.n_classes;
    const uint64_t *row = sample->payload;
    const uint8_t *is_kept = (const uint8_t *)(row + n);
    size_t rows = (size_t)n * sizeof *row, classes = (size_t)n * sizeof(uint16_t);
    size_t values = (size_t)n * label_result_value_bytes(&b->some);
    settled head = {n};
    void *record;
    char *at;

    assert(sample->payload_bytes == payload_bytes(n));
    SP_TRY(label_result_size(&b->some, n));
    for (int64_t i = 0; i < n; i++)
        label_result_put(&b->some, i, sample->sum + i * c, is_kept[i]);
    SP_TRY(sp_records_add(&b->settled, sizeof head + rows + even(values) + classes,
                          &record));
    at = record;
    memcpy(at, &head, sizeof head);
    if (n > 0) {
        memcpy(at += sizeof head, row, rows);
        memcpy(at += rows, b->some.value, values);
        memcpy(at + even(values), b->some.label, classes);
    }
    return SP_OK;
}

static sp_status place(label_blocks *b, char *record)
{
    const settled *head = (const settled *)(void *)record;
    const uint64_t *row = (const uint64_t *)(head + 1);
    label_result from = {.model = b->some.model, .n = head->n};
    const size_t values = (size_t)head->n * label_result_value_bytes(&b->some);

    from.value = (void *)(uintptr_t)(row + head->n);
    from.label = (uint16_t *)(void *)((char *)from.value + even(values));
    return label_result_place(b->result, &from, row);
}

sp_status label_blocks_exchange(label_blocks *b, int64_t n_passed)
{
    char *record;

    assert(b->merger.comm && n_passed <= b->set.n_samples);
    sp_records_clear(&b->settled);
    SP_TRY(sp_comm_agree(b->comm, sp_merger_exchange(&b->merger, n_passed), NULL));
    SP_TRY(sp_records_gather(&b->settled, b->comm, b->collector));
    while ((record = sp_records_next(&b->settled, NULL)))
        SP_TRY(place(b, record));
    return SP_OK;
}
