/* An evaluation of the library: one pass over the validation data, and exact sums. */
#include <math.h>
#include <string.h>

#include "api/api.h"
#include "base/sp_exact.h"

/* ---- metrics of the caller ---- */

static void api_metrics_zero(api_metrics *own)
{
    if (own->n)
        memset(own->exact, 0, (size_t)own->n * SP_EXACT_WIDE * sizeof *own->exact);
}

/* The rows of sample b only. */
static sp_logits logits_of_sample(const sp_net_rows *rows, int b, int64_t *sample_row)
{
    const int64_t first = rows->sample_row[b];

    sample_row[0] = 0;
    sample_row[1] = rows->sample_row[b + 1] - first;
    return (sp_logits){.n = sample_row[1],
                       .n_classes = rows->n_classes,
                       .logits = rows->logits + first * rows->n_classes,
                       .labels = rows->labels ? rows->labels + first : NULL,
                       .n_samples = 1,
                       .sample = rows->sample + b,
                       .sample_row = sample_row};
}

/* Adds the samples of a batch that was just evaluated. */
static sp_status api_metrics_add(sp_training *t, const sp_batch *batch)
{
    api_metrics *own = &t->own;
    int64_t sample_row[2];
    sp_net_rows rows;

    if (!own->n)
        return SP_OK;
    SP_TRY(sp_net_fetch_rows(&t->network.net, batch, &t->scratch, &rows));
    for (int b = 0; b < batch->n_samples; b++) {
        const sp_logits logits = logits_of_sample(&rows, b, sample_row);

        memset(own->sample, 0, (size_t)own->n * sizeof *own->sample);
        t->options.metric(t->options.metric_arg, &logits, own->sample);
        for (int k = 0; k < own->n; k++)
            if (!(fabs(own->sample[k]) < 0x1p192))
                return SP_FAIL(SP_EUSAGE,
                               "the metric of the program gives %g as sum %d of sample "
                               "%lld, expected a magnitude below 2^192",
                               own->sample[k], k, (long long)logits.sample[0]);
        sp_exact_add_wide(own->exact, own->sample, (size_t)own->n);
    }
    return SP_OK;
}

static sp_status api_metrics_reduce(sp_training *t)
{
    api_metrics *own = &t->own;

    if (!own->n)
        return SP_OK;
    SP_TRY(sp_comm_allreduce(t->options.comm, SP_SCOPE_WORLD, own->exact,
                             (size_t)own->n * SP_EXACT_WIDE, SP_I64, SP_SUM));
    sp_exact_get_wide(own->exact, own->total, (size_t)own->n);
    return SP_OK;
}

/* ---- the pass ---- */

/* A pass over the validation data on this rank. */
typedef struct training_pass {
    sp_training *training;
    int64_t n_done; /* samples of all ranks */
} training_pass;

static sp_status training_evaluate_batch(void *arg, const sp_batch *batch)
{
    training_pass *p = arg;
    sp_training *t = p->training;
    const sp_hooks *hooks = &t->options.hooks;
    const sp_dataset *set = &t->data.val;
    sp_metrics *m = &t->metrics;
    sp_net_loss_out out = {.exact = m->exact};
    int32_t *prediction;

    sp_arena_reset(&t->scratch);
    SP_TRY(SP_ALLOC(&t->scratch, batch->n + 1, &prediction));
    SP_TRY(sp_net_forward(&t->network.net, batch, false, NULL));
    SP_TRY(sp_net_loss(&t->network.net, batch, &out, m->confusion, prediction));
    SP_TRY(sp_evaluator_check(&t->network, set, batch, prediction));
    m->n_samples += batch->n_samples;
    SP_TRY(api_metrics_add(t, batch));
    if (batch->micro < batch->n_micro - 1)
        return SP_OK;
    p->n_done += batch->step_samples;
    if (hooks->progress)
        hooks->progress(hooks->arg, "evaluating", p->n_done, set->n_samples);
    return SP_OK;
}

static void fill_scores(sp_training *t, sp_scores *scores)
{
    const sp_metrics *m = &t->metrics;
    const int n = m->n_classes;

    for (int c = 0; c < n; c++)
        t->iou[c] = sp_metrics_iou(m->confusion, n, c);
    *scores = (sp_scores){.n_samples = m->n_samples,
                          .n_voxels = sp_metrics_total(m->confusion, n),
                          .loss = m->loss_sum / m->weight_sum,
                          .miou = sp_metrics_miou(m->confusion, n),
                          .accuracy = sp_metrics_accuracy(m->confusion, n),
                          .n_classes = n,
                          .n_metrics = t->own.n,
                          .confusion = m->confusion,
                          .iou = t->iou,
                          .metrics = t->own.total};
}

static sp_status training_evaluate(sp_training *t)
{
    sp_net *net = &t->network.net;
    sp_comm *comm = t->options.comm;
    training_pass p = {.training = t};
    sp_status rc;

    if (!t->validation)
        return SP_FAIL(SP_EUSAGE, "sp_training_evaluate: the training was created "
                                  "without validation data");
    sp_metrics_zero(&t->metrics);
    api_metrics_zero(&t->own);
    sp_net_lend(net, &t->learner.buckets);
    rc = sp_comm_agree(comm, sp_evaluator_run(&t->evaluator, &t->evaluator.val,
                                              training_evaluate_batch, &p));
    sp_net_lend(net, NULL);
    if (rc == SP_OK)
        rc = sp_metrics_reduce(&t->metrics, comm);
    return rc == SP_OK ? api_metrics_reduce(t) : rc;
}

int sp_training_evaluate(sp_training *t, sp_scores *scores)
{
    api_caller before;
    sp_scores own;
    sp_status rc;

    API_NEED(t, "training");
    before = api_enter(t);
    rc = training_evaluate(t);
    if (rc == SP_OK) {
        fill_scores(t, &own);
        if (scores)
            *scores = own;
        if (t->options.hooks.evaluation_end)
            t->options.hooks.evaluation_end(t->options.hooks.arg, &own);
    }
    return api_leave(before, rc);
}
