#include "train/sp_merging.h"

#include <assert.h>
#include <string.h>

#include "train/sp_members.h"

bool sp_merging_is_mean(const sp_evaluator *e, const sp_evaluation *of)
{
    return of->views.n > 1 || e->members;
}

sp_status sp_merging_open(sp_merging *m, const sp_evaluator *e, const sp_evaluation *of,
                          sp_merger_done *done, void *arg)
{
    sp_status rc;

    assert(of->loader && of->views.n >= 1);
    *m = (sp_merging){.evaluator = e, .of = of, .with_blocks = e->config->eval.merge};
    m->is_mean = sp_merging_is_mean(e, of);
    m->is_on = m->with_blocks || m->is_mean;
    if (!m->is_on)
        return SP_OK;
    rc = sp_arena_create(&m->arena, 0, "probabilities");
    SP_TRY(sp_comm_agree(e->comm, rc));
    if (!m->with_blocks)
        return SP_OK;
    rc = sp_merger_open(&m->merger, of->set, e->network->n_classes, e->comm, done, arg);
    return sp_comm_agree(e->comm, rc);
}

void sp_merging_destroy(sp_merging *m)
{
    if (m->with_blocks && m->merger.comm)
        sp_merger_destroy(&m->merger);
    sp_arena_destroy(&m->arena);
    *m = (sp_merging){0};
}

bool sp_merging_is_last(const sp_merging *m, const sp_batch *batch)
{
    assert(batch->view >= 0 && batch->view < m->of->views.n);
    return batch->view == m->of->views.n - 1;
}

static sp_status begin_batch(sp_merging *m, const sp_batch *batch)
{
    const size_t c = (size_t)m->evaluator->network->n_classes;
    const size_t n = (size_t)batch->row_of_at[batch->n_samples];

    sp_arena_reset(&m->arena);
    SP_TRY(SP_ALLOC(&m->arena, n * c, &m->sum));
    SP_TRY(SP_ALLOC(&m->arena, n, &m->label));
    m->kept = m->arena.used;
    memset(m->sum, 0, n * c * sizeof *m->sum);
    return SP_OK;
}

sp_status sp_merging_fetch(sp_backend *backend, sp_arena *arena, sp_tensor *logits)
{
    const float *from = logits->data;
    size_t n = (size_t)logits->n * (size_t)logits->ld;

    assert(arena && logits->n >= 0);
    if (backend->ops->is_host || n == 0)
        return SP_OK;
    SP_TRY(SP_ALLOC(arena, n, &logits->data));
    n -= (size_t)(logits->ld - logits->c); /* the last row ends with its channels */
    return backend->ops->download(backend, logits->data, from, n * sizeof *from);
}

/* Adds the probabilities of the other models, sample by sample. */
static sp_status add_members(sp_merging *m, const sp_batch *batch)
{
    sp_members *members = m->evaluator->members;
    const int c = m->evaluator->network->n_classes;
    char what[SP_ERROR_MESSAGE / 2];

    for (int b = 0; members && b < batch->n_samples; b++)
        for (int k = 0; k < members->n; k++)
            SP_TRY(
                sp_members_add(members, k, &batch->sample[b], batch->view,
                               sp_dataset_print_sample(m->of->set, batch->sample_id[b],
                                                       what, sizeof what),
                               m->sum + batch->row_of_at[b] * c, c));
    return SP_OK;
}

sp_status sp_merging_add(sp_merging *m, const sp_batch *batch, sp_tensor logits)
{
    const int64_t n = batch->row_of_at[batch->n_samples];
    const int c = m->evaluator->network->n_classes;

    assert(m->is_on && batch->row_of && (logits.c == c || logits.n == 0));
    if (batch->view == 0)
        SP_TRY(begin_batch(m, batch));
    sp_arena_rewind(&m->arena, m->kept);
    SP_TRY(sp_merging_fetch(m->evaluator->network->net.backend, &m->arena, &logits));
    sp_merge_view(logits, sp_members_temperature(m->evaluator->members), batch->row_of,
                  n, m->sum);
    SP_TRY(add_members(m, batch));
    if (sp_merging_is_last(m, batch))
        for (int64_t i = 0; i < n; i++)
            m->label[i] = sp_merge_class(m->sum + i * c, c);
    return SP_OK;
}

sp_status sp_merging_add_sample(sp_merging *m, const sp_batch *batch, int b,
                                const void *payload, size_t bytes)
{
    assert(m->with_blocks && sp_merging_is_last(m, batch));
    return sp_merger_add(&m->merger, &batch->sample[b],
                         m->sum +
                             batch->row_of_at[b] * m->evaluator->network->n_classes,
                         payload, bytes);
}

/* A step's samples lie on all ranks; with its last micro-batch they have passed. */
sp_status sp_merging_exchange(sp_merging *m, const sp_batch *batch)
{
    const bool is_last = batch->micro == batch->n_micro - 1;

    assert(m->with_blocks && sp_merging_is_last(m, batch));
    return sp_comm_agree(
        m->evaluator->comm,
        sp_merger_exchange(&m->merger,
                           batch->position + (is_last ? batch->step_samples : 0)));
}
