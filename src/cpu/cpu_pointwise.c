/* Elementwise operations: threads share blocks of rows. */
#include <assert.h>
#include <string.h>

#include "cpu/cpu_isa.h"

sp_status sp_cpu_relu(sp_backend *be, sp_tensor x, float slope, sp_tensor y)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, x.elem);
    const int64_t n = x.n, size = SP_CPU_ROW_BLOCK, n_blocks = sp_cpu_blocks(n, size);

    assert(sp_tensors_match(x, y));
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, x))
    for (int64_t i = 0; i < n_blocks; i++)
        isa->relu(x, slope, y, i * size, sp_least((i + 1) * size, n));
    return SP_OK;
}

sp_status sp_cpu_relu_grad(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                           sp_tensor dx, bool is_added)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, y.elem);
    const int64_t n = y.n, size = SP_CPU_ROW_BLOCK, n_blocks = sp_cpu_blocks(n, size);

    assert(sp_tensors_match(y, dy) && sp_tensors_match(dy, dx));
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, y))
    for (int64_t i = 0; i < n_blocks; i++)
        isa->relu_grad(y, slope, dy, dx, is_added, i * size,
                       sp_least((i + 1) * size, n));
    return SP_OK;
}

static void pointwise_copy_rows(sp_tensor x, sp_tensor y, int64_t row, int64_t end)
{
    for (int64_t i = row; i < end; i++)
        memcpy(sp_row_bytes(y, i), sp_row_bytes(x, i),
               (size_t)x.c * sp_elem_bytes(x.elem));
}

sp_status sp_cpu_copy(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, x.elem);
    const int64_t n = x.n, size = SP_CPU_ROW_BLOCK, n_blocks = sp_cpu_blocks(n, size);

    assert(sp_tensors_match(x, y));
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, x))
    for (int64_t i = 0; i < n_blocks; i++)
        if (x.elem != y.elem)
            sp_cpu_rows_of(be, SP_ELEM_BF16)
                ->convert(x, y, is_added, i * size, sp_least((i + 1) * size, n));
        else if (is_added)
            isa->add(x, y, i * size, sp_least((i + 1) * size, n));
        else
            pointwise_copy_rows(x, y, i * size, sp_least((i + 1) * size, n));
    return SP_OK;
}

sp_status sp_cpu_dropout(sp_backend *be, const sp_dropout_args *a)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, a->x.elem);

    assert(a->p >= 0 && a->p <= 1 && sp_tensors_match(a->x, a->y));
    assert(sp_samples_cover(a->sample_row, a->n_samples, a->x.n));
    for (int b = 0; b < a->n_samples; b++) {
        const sp_rng rng =
            sp_rng_open(a->seed, SP_RNG_DROPOUT, a->epoch, (uint64_t)a->sample_id[b]);
        const int32_t first = a->sample_row[b], end = a->sample_row[b + 1];
        const int threads = sp_cpu_threads(be, (int64_t)(end - first) * a->x.c);
#pragma omp parallel for num_threads(threads)
        for (int32_t i = first; i < end; i++)
            isa->dropout(&rng, sp_dropout_block(a->layer, i - first, 0), a->p,
                         sp_row_bytes(a->x, i), a->x.c, sp_row_bytes(a->y, i));
    }
    return SP_OK;
}
