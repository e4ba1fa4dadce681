/* Elementwise operations by plain loops. */
#include <assert.h>

#include "base/sp_rng.h"
#include "cpu/cpu.h"

sp_status sp_ref_relu(sp_backend *be, sp_tensor x, float slope, sp_tensor y)
{
    assert(sp_tensors_match(x, y));
    (void)be;
    for (int64_t i = 0; i < x.n; i++)
        for (int j = 0; j < x.c; j++) {
            float v = sp_row(x, i)[j];
            sp_row(y, i)[j] = v > 0 ? v : slope * v;
        }
    return SP_OK;
}

sp_status sp_ref_relu_grad(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                           sp_tensor dx, bool is_added)
{
    assert(sp_tensors_match(y, dy) && sp_tensors_match(dy, dx));
    (void)be;
    for (int64_t i = 0; i < y.n; i++)
        for (int j = 0; j < y.c; j++) {
            float g = sp_row(dy, i)[j], *to = sp_row(dx, i) + j;
            g = sp_row(y, i)[j] > 0 ? g : slope * g;
            *to = is_added ? *to + g : g;
        }
    return SP_OK;
}

sp_status sp_ref_copy(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added)
{
    assert(sp_tensors_match(x, y));
    (void)be;
    for (int64_t i = 0; i < x.n; i++)
        for (int j = 0; j < x.c; j++) {
            float *to = sp_row(y, i) + j;
            *to = is_added ? *to + sp_row(x, i)[j] : sp_row(x, i)[j];
        }
    return SP_OK;
}

sp_status sp_ref_dropout(sp_backend *be, const sp_dropout_args *a)
{
    const float scale = a->p < 1 ? 1 / (1 - a->p) : 0;

    assert(a->p >= 0 && a->p <= 1 && sp_tensors_match(a->x, a->y));
    assert(sp_samples_cover(a->sample_row, a->n_samples, a->x.n));
    (void)be;
    for (int b = 0; b < a->n_samples; b++) {
        const sp_rng rng =
            sp_rng_open(a->seed, SP_RNG_DROPOUT, a->epoch, (uint64_t)a->sample_id[b]);
        const int32_t first = a->sample_row[b];
        for (int32_t i = first; i < a->sample_row[b + 1]; i++)
            for (int j = 0; j < a->x.c; j++) {
                uint64_t block = sp_dropout_block(a->layer, i - first, j);
                float u =
                    sp_rng_to_unit(sp_rng_at(&rng, block << 2 | (uint64_t)(j & 3)));
                sp_row(a->y, i)[j] = u >= a->p ? sp_row(a->x, i)[j] * scale : 0;
            }
    }
    return SP_OK;
}
