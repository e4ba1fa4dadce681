/* The buffers of samples: they grow as they are needed, are taken from an arena, and
 * are freed. */
#include "data/sp_sample_internal.h"

#include <assert.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

sp_status sp_sample_grow(void *array, size_t *have, size_t need, size_t size)
{
    void **pointer = array, *fresh;
    size_t room = need + need / 4 + 64;

    assert(array && have && size > 0);
    if (need <= *have && *pointer)
        return SP_OK;
    free(*pointer);
    *pointer = NULL;
    *have = 0;
    if (posix_memalign(&fresh, ALIGNMENT, room * size) != 0)
        return SP_FAIL(SP_EMEM, "no memory for a sample: %zu bytes", room * size);
    *pointer = fresh;
    *have = room;
    return SP_OK;
}

static sp_status grow_context(sp_sample *s)
{
    struct sp_sample_buffers *own = s->own;
    size_t n = (size_t)s->n_context, have = own->context;

    SP_TRY(sp_sample_grow(&s->context_voxel, &have, n, sizeof *s->context_voxel));
    have = own->context;
    SP_TRY(sp_sample_grow(&s->context_block, &have, n, sizeof *s->context_block));
    return sp_sample_grow(&s->context_point, &own->context, n,
                          sizeof *s->context_point);
}

/* Grows the arrays of a sample. Coordinates and labels have one size, and so have the
 * three arrays of points. */
static sp_status grow_arrays(sp_sample *s, const sample_reader *r)
{
    struct sp_sample_buffers *own = s->own;
    size_t n = (size_t)s->n, m = (size_t)s->n_points, have = own->voxels;

    SP_TRY(sp_sample_grow(&s->coords, &have, n, 3 * sizeof *s->coords));
    SP_TRY(sp_sample_grow(&s->labels, &own->voxels, n, sizeof *s->labels));
    SP_TRY(sp_sample_grow(&s->features, &own->features, n * (size_t)r->n_columns,
                          sizeof *s->features));
    if (r->set->has_subvoxel)
        SP_TRY(sp_sample_grow(&s->subvoxel, &own->subvoxel, 3 * n, 1));
    if (r->request->with_points && r->set->has_points) {
        have = own->points;
        SP_TRY(sp_sample_grow(&s->point_voxel, &have, m, sizeof *s->point_voxel));
        have = own->points;
        SP_TRY(sp_sample_grow(&s->point_index, &have, m, sizeof *s->point_index));
        SP_TRY(
            sp_sample_grow(&s->point_labels, &own->points, m, sizeof *s->point_labels));
    }
    return r->request->with_context ? grow_context(s) : SP_OK;
}

sp_status sp_sample_grow_all(const sample_reader *r)
{
    const size_t row = (size_t)r->shard->features.cols * 8;
    struct sp_sample_buffers *own = r->own;

    if (own == r->out->own)
        SP_TRY(grow_arrays(r->out, r));
    SP_TRY(sp_sample_grow(&own->raw, &own->raw_bytes,
                          row > SAMPLE_PIECE ? row : SAMPLE_PIECE, 1));
    return sp_sample_grow(&own->gathered, &own->gather,
                          row > SAMPLE_PIECE ? row : SAMPLE_PIECE, 1);
}

int64_t sp_sample_reading_bytes(int64_t n)
{
    assert(n >= 0);
    return 2 * (int64_t)SAMPLE_PIECE + (int64_t)(sp_unique_slots(n) * sizeof(uint64_t));
}

void sp_sample_measure(const sp_dataset *set, int64_t id,
                       const sp_sample_request *request, sp_sample *out)
{
    const int64_t *row = set->offset + id + sp_dataset_shard_of(set, id), *point;

    out->id = id;
    out->n = row[1] - row[0];
    out->n_points = 0;
    out->n_context = request->with_context ? sp_dataset_context(set, id) : 0;
    if (!request->with_points || !set->has_points)
        return;
    point = set->point_offset + (row - set->offset);
    out->n_points = point[1] - point[0];
}

sp_status sp_sample_allot(const sp_dataset *set, int64_t id,
                          const sp_sample_request *request, sp_arena *arena,
                          sp_sample *s)
{
    const int c = request->columns ? request->n_columns : set->n_features;

    assert(0 <= id && id < set->n_samples);
    *s = (sp_sample){0};
    sp_sample_measure(set, id, request, s);
    SP_TRY(SP_TAKE(arena, 3 * s->n, &s->coords));
    SP_TRY(SP_TAKE(arena, s->n, &s->labels));
    SP_TRY(SP_TAKE(arena, s->n * c, &s->features));
    if (set->has_subvoxel)
        SP_TRY(SP_TAKE(arena, 3 * s->n, &s->subvoxel));
    if (!request->with_points || !set->has_points)
        return SP_OK;
    SP_TRY(SP_TAKE(arena, s->n_points, &s->point_voxel));
    SP_TRY(SP_TAKE(arena, s->n_points, &s->point_index));
    SP_TRY(SP_TAKE(arena, s->n_points, &s->point_labels));
    if (!request->with_context)
        return SP_OK;
    SP_TRY(SP_TAKE(arena, s->n_context, &s->context_voxel));
    SP_TRY(SP_TAKE(arena, s->n_context, &s->context_block));
    return SP_TAKE(arena, s->n_context, &s->context_point);
}

void sp_sample_destroy(sp_sample *sample)
{
    if (sample->own) {
        free(sample->coords);
        free(sample->features);
        free(sample->labels);
        free(sample->subvoxel);
        free(sample->point_voxel);
        free(sample->point_labels);
        free(sample->point_index);
        free(sample->context_voxel);
        free(sample->context_block);
        free(sample->context_point);
        free(sample->own->raw);
        free(sample->own->gathered);
        free(sample->own->keys);
        sp_h5_unpacker_free(sample->own->unpacker);
        free(sample->own);
    }
    *sample = (sp_sample){0};
}
