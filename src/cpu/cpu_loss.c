/* Loss: threads share spans of rows, and the spans' sums are added in order. */
#include <assert.h>
#include <string.h>

#include "cpu/cpu_isa.h"

/* Counts the confusion matrix in one thread after the predictions are known, because
 * all rows share its cells. */
static void count_confusion(const sp_loss_args *a, const int32_t *prediction)
{
    for (int64_t i = 0; i < a->logits.n; i++)
        if (a->label[i] != SP_IGNORE && prediction[i] != SP_IGNORE)
            a->confusion[(int64_t)a->label[i] * a->logits.c + prediction[i]]++;
}

size_t sp_cpu_loss_rows_bytes(int64_t n_spans, int64_t rows)
{
    return (size_t)n_spans * (2 * sizeof(double) + sizeof(sp_cpu_span)) +
           (size_t)rows * sizeof(int32_t);
}

/* Cross entropy. */
static sp_status cpu_loss_of_rows(sp_backend *be, const sp_loss_args *a)
{
    const sp_cpu_isa *isa = sp_cpu_isa_of(be);
    const int n = sp_cpu_spans(a->sample_row, a->n_samples, SP_CPU_ROW_BLOCK, NULL);
    const int64_t rows = a->prediction ? 0 : a->logits.n;
    int32_t *prediction;
    sp_cpu_span *span;
    double *part;
    void *at;

    SP_TRY(sp_cpu_scratch(be, sp_cpu_loss_rows_bytes(n, rows), &at));
    part = at;
    span = (sp_cpu_span *)(part + 2 * (size_t)n);
    prediction = a->prediction ? a->prediction : (int32_t *)(span + n);
    sp_cpu_spans(a->sample_row, a->n_samples, SP_CPU_ROW_BLOCK, span);
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, a->logits))
    for (int i = 0; i < n; i++)
        isa->loss(a, prediction, span[i].row, span[i].end, part + 2 * (size_t)i);
    memset(a->sums, 0, (size_t)a->n_samples * 2 * sizeof *a->sums);
    for (int i = 0; i < n; i++) {
        a->sums[2 * span[i].sample] += part[2 * i];
        a->sums[2 * span[i].sample + 1] += part[2 * i + 1];
    }
    if (a->confusion && a->label)
        count_confusion(a, prediction);
    return SP_OK;
}

sp_status sp_cpu_loss(sp_backend *be, const sp_loss_args *a)
{
    sp_loss_args plain = *a;

    assert(sp_loss_is_sound(a));
    if (!a->rule.is_sum || !a->label)
        return cpu_loss_of_rows(be, a);
    plain.dlogits.data = NULL;
    SP_TRY(cpu_loss_of_rows(be, &plain));
    return sp_cpu_loss_sum(be, a);
}
