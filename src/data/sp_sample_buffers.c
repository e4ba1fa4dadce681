/* The buffers of samples: they grow as needed, are allocated in an arena, and are
 * freed. */
#include "data/sp_sample_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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

/* An array of a sample: the pointer to it in sp_sample, and its size. */
typedef struct sample_array {
    void *at;
    size_t bytes;
    bool is_wanted; /* false: the set does not have it, or it was not asked for */
} sample_array;

/* Lists the arrays of a sample with known sizes, in the order an arena has them. */
static void list_arrays(const sp_dataset *set, const sp_sample_request *request,
                        sp_sample *s, sample_array array[SAMPLE_ARRAYS])
{
    const size_t c = (size_t)(request->columns ? request->n_columns : set->n_features);
    const size_t n = (size_t)(s->n + request->room), m = (size_t)s->n_points,
                 k = (size_t)s->n_context;
    const bool with_points = request->with_points && set->has_points;
    const bool with_context = request->with_context;
    const sample_array all[SAMPLE_ARRAYS] = {
        {&s->coords, 3 * n * sizeof *s->coords, true},
        {&s->labels, n * sizeof *s->labels, true},
        {&s->features, n * c * sizeof *s->features, true},
        {&s->subvoxel, 3 * n, set->has_subvoxel},
        {&s->point_voxel, m * sizeof *s->point_voxel, with_points},
        {&s->point_index, m * sizeof *s->point_index, with_points},
        {&s->point_labels, m * sizeof *s->point_labels, with_points},
        {&s->context_voxel, k * sizeof *s->context_voxel, with_context},
        {&s->context_block, k * sizeof *s->context_block, with_context},
        {&s->context_point, k * sizeof *s->context_point, with_context}};

    memcpy(array, all, sizeof all);
}

sp_status sp_sample_grow_all(const sample_reader *r)
{
    const size_t row = (size_t)r->shard->features.cols * 8;
    struct sp_sample_buffers *own = r->own;
    sample_array array[SAMPLE_ARRAYS];

    list_arrays(r->set, r->request, r->out, array);
    for (int i = 0; own == r->out->own && i < SAMPLE_ARRAYS; i++)
        if (array[i].is_wanted)
            SP_TRY(sp_sample_grow(array[i].at, &own->array[i], array[i].bytes, 1));
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
    out->id = id;
    out->n = sp_dataset_voxels(set, id);
    out->n_points = request->with_points ? sp_dataset_points(set, id) : 0;
    out->n_context = request->with_context ? sp_dataset_context(set, id) : 0;
}

sp_status sp_sample_allot(const sp_dataset *set, int64_t id,
                          const sp_sample_request *request, sp_arena *arena,
                          sp_sample *s)
{
    sample_array array[SAMPLE_ARRAYS];

    assert(0 <= id && id < set->n_samples);
    *s = (sp_sample){0};
    sp_sample_measure(set, id, request, s);
    list_arrays(set, request, s, array);
    for (int i = 0; i < SAMPLE_ARRAYS; i++)
        if (array[i].is_wanted)
            SP_TRY(sp_arena_alloc(arena, array[i].bytes, array[i].at));
    return SP_OK;
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
        free(sample->own);
    }
    *sample = (sp_sample){0};
}
