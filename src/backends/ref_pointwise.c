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

sp_status sp_ref_dropout(sp_backend *be, sp_tensor x, float p, uint64_t seed,
                         uint64_t epoch, int layer, const int64_t *sample_id,
                         const int32_t *sample_row, int n_samples, sp_tensor y)
{
    float scale = p < 1 ? 1 / (1 - p) : 0;

    assert(p >= 0 && p <= 1 && sp_tensors_match(x, y));
    assert(sp_samples_cover(sample_row, n_samples, x.n));
    (void)be;
    for (int b = 0; b < n_samples; b++) {
        sp_rng rng = sp_rng_open(seed, SP_RNG_DROPOUT, epoch, (uint64_t)sample_id[b]);
        for (int32_t i = sample_row[b]; i < sample_row[b + 1]; i++)
            for (int j = 0; j < x.c; j++) {
                uint64_t block = sp_dropout_block(layer, i - sample_row[b], j);
                float u =
                    sp_rng_to_unit(sp_rng_at(&rng, block << 2 | (uint64_t)(j & 3)));
                sp_row(y, i)[j] = u >= p ? sp_row(x, i)[j] * scale : 0;
            }
    }
    return SP_OK;
}
