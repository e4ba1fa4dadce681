/* Backend memory filled with numbers, which are made on the host and uploaded. */
#include <assert.h>
#include <string.h>

#include "base/sp_rng.h"
#include "bench/bench.h"
#include "net/sp_buffer_plan.h"

/* Gives host memory for the next upload. It can be reused at once, since an upload has
 * read it when it returns. */
static sp_status stage(bench *b, size_t bytes, void *out)
{
    sp_arena_reset(&b->staging);
    return sp_arena_alloc(&b->staging, bytes, out);
}

static sp_status bench_upload_copy(bench *b, sp_arena *arena, const void *host,
                                   size_t bytes, void **out)
{
    SP_TRY(sp_arena_alloc(arena, bytes, out));
    return b->backend.ops->upload(&b->backend, *out, host, bytes);
}

static void tensor_draw(int64_t n, float *out)
{
    const sp_rng rng = sp_rng_open(1, SP_RNG_INIT, (uint64_t)n, 0);

    for (int64_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        sp_rng_block(&rng, (uint64_t)i / 4, word);
        for (int64_t j = i; j < n && j < i + 4; j++)
            out[j] = (float)(int32_t)word[j - i] * 0x1p-31f;
    }
}

sp_status bench_alloc_random(bench *b, sp_arena *arena, int64_t n, float **out)
{
    const size_t bytes = (size_t)n * sizeof(float);
    float *host;

    assert(n >= 0 && out);
    SP_TRY(stage(b, bytes, &host));
    tensor_draw(n, host);
    return bench_upload_copy(b, arena, host, bytes, (void **)out);
}

sp_status bench_alloc_value(bench *b, sp_arena *arena, int64_t n, float value,
                            float **out)
{
    const size_t bytes = (size_t)n * sizeof(float);
    float *host;

    assert(n >= 0 && out);
    SP_TRY(stage(b, bytes, &host));
    for (int64_t i = 0; i < n; i++)
        host[i] = value;
    return bench_upload_copy(b, arena, host, bytes, (void **)out);
}

sp_status bench_alloc_labels(bench *b, sp_arena *arena, int64_t n, int c, int32_t **out)
{
    const size_t bytes = (size_t)n * sizeof(int32_t);
    int32_t *host;

    assert(n >= 0 && c > 0 && out);
    SP_TRY(stage(b, bytes, &host));
    for (int64_t i = 0; i < n; i++)
        host[i] = (int32_t)(i % c);
    return bench_upload_copy(b, arena, host, bytes, (void **)out);
}

/* Converts in place to bf16 by cutting off the lower half; rounding does not matter
 * here. */
static void halve(float *data, int64_t n)
{
    uint16_t *half = (uint16_t *)data;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        memcpy(&half[i], &(uint16_t){(uint16_t)(bits >> 16)}, sizeof *half);
    }
}

sp_status bench_alloc_tensor(bench *b, sp_arena *arena, int64_t n, int c, sp_tensor *t)
{
    const sp_buffer_rules rules = sp_buffer_rules_of(&b->backend, false, false, false);
    const sp_elem elem = b->backend.precision == SP_BF16 ? SP_ELEM_BF16 : SP_ELEM_F32;
    const int ld = sp_buffer_pitch(&rules, c, elem);
    float *host;

    assert(n >= 0 && c >= 1 && t);
    SP_TRY(stage(b, (size_t)(n * ld) * sizeof(float), &host));
    tensor_draw(n * ld, host);
    if (elem == SP_ELEM_BF16)
        halve(host, n * ld);
    *t = (sp_tensor){NULL, n, c, ld, elem};
    return bench_upload_copy(b, arena, host, (size_t)(n * ld) * sp_elem_bytes(elem),
                             (void **)&t->data);
}
