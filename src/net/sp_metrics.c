#include "net/sp_metrics.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_exact.h"
#include "base/sp_list.h"
#include "data/sp_loader.h"
#include "data/sp_shard.h"

sp_status sp_metrics_create(sp_metrics *metrics, int n_classes, int parts)
{
    const size_t cells = (size_t)n_classes * (size_t)n_classes;
    int64_t **const matrix[] = {&metrics->point_confusion, &metrics->merged,
                                &metrics->merged_points};
    size_t n = cells + 2 * SP_EXACT_WIDE + 1, at = cells;

    assert(n_classes >= 1);
    for (int i = 0; i < 3; i++)
        n += parts >> i & 1 ? cells : 0;
    memset(metrics, 0, sizeof *metrics);
    SP_TRY(SP_NEW(&metrics->sums, n, "confusion matrices"));
    metrics->n_sums = n;
    metrics->n_classes = n_classes;
    metrics->confusion = metrics->sums;
    for (int i = 0; i < 3; i++)
        if (parts >> i & 1) {
            *matrix[i] = metrics->sums + at;
            at += cells;
        }
    metrics->exact = metrics->sums + n - 1 - 2 * SP_EXACT_WIDE;
    return SP_OK;
}

void sp_metrics_destroy(sp_metrics *metrics)
{
    free(metrics->sums);
    memset(metrics, 0, sizeof *metrics);
}

void sp_metrics_zero(sp_metrics *metrics)
{
    assert(metrics->sums && "sp_metrics_create comes first");
    memset(metrics->sums, 0, metrics->n_sums * sizeof *metrics->sums);
    metrics->loss_sum = metrics->weight_sum = 0;
    metrics->n_samples = 0;
}

bool sp_metrics_find_unpredicted(const sp_batch *batch, const int32_t *prediction,
                                 int *b, int64_t *voxel)
{
    for (*b = 0; *b < batch->n_samples; ++*b) {
        const int32_t *row = batch->row_of + batch->row_of_at[*b];

        for (*voxel = 0; *voxel < batch->sample[*b].n; ++*voxel)
            if (row[*voxel] >= 0 && prediction[row[*voxel]] == SP_IGNORE)
                return true;
    }
    return false;
}

void sp_metrics_add_points(int64_t *confusion, int n_classes, const sp_sample *sample,
                           const int32_t *row_of, const int32_t *prediction)
{
    assert(n_classes >= 1 && sample->n_points >= 0);
    assert(sample->n_points == 0 || confusion);
    for (int64_t i = 0; i < sample->n_points; i++) {
        const int32_t label = sample->point_labels[i];
        const uint32_t voxel = sample->point_voxel[i];
        const int32_t row = row_of ? row_of[voxel] : (int32_t)voxel;

        assert(label < n_classes);
        if (label >= 0 && row >= 0)
            confusion[(int64_t)label * n_classes + prediction[row]]++;
    }
}

sp_status sp_metrics_reduce(sp_metrics *metrics, sp_comm *comm)
{
    int64_t *last = metrics->sums + metrics->n_sums - 1;
    double loss[2];

    assert(metrics->sums && comm);
    *last = metrics->n_samples;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, metrics->sums, metrics->n_sums,
                             SP_I64, SP_SUM));
    metrics->n_samples = *last;
    sp_exact_get_wide(metrics->exact, loss, 2);
    metrics->loss_sum = loss[0];
    metrics->weight_sum = loss[1];
    return SP_OK;
}

int64_t sp_metrics_truth(const int64_t *confusion, int n_classes, int c)
{
    int64_t row = 0;

    assert(0 <= c && c < n_classes);
    for (int i = 0; i < n_classes; i++)
        row += confusion[(int64_t)c * n_classes + i];
    return row;
}

int64_t sp_metrics_predicted(const int64_t *confusion, int n_classes, int c)
{
    int64_t column = 0;

    assert(0 <= c && c < n_classes);
    for (int i = 0; i < n_classes; i++)
        column += confusion[(int64_t)i * n_classes + c];
    return column;
}

/* The diagonal's element of class c as a share of n. */
static double hits_of(const int64_t *confusion, int n_classes, int c, int64_t n)
{
    return n ? (double)confusion[(int64_t)c * n_classes + c] / (double)n : NAN;
}

double sp_metrics_iou(const int64_t *confusion, int n_classes, int c)
{
    return hits_of(confusion, n_classes, c,
                   sp_metrics_truth(confusion, n_classes, c) +
                       sp_metrics_predicted(confusion, n_classes, c) -
                       confusion[(int64_t)c * n_classes + c]);
}

double sp_metrics_precision(const int64_t *confusion, int n_classes, int c)
{
    return hits_of(confusion, n_classes, c,
                   sp_metrics_predicted(confusion, n_classes, c));
}

double sp_metrics_recall(const int64_t *confusion, int n_classes, int c)
{
    return hits_of(confusion, n_classes, c, sp_metrics_truth(confusion, n_classes, c));
}

double sp_metrics_miou(const int64_t *confusion, int n_classes)
{
    double sum = 0, iou;
    int n = 0;

    assert(confusion && n_classes > 0);
    for (int c = 0; c < n_classes; c++) {
        iou = sp_metrics_iou(confusion, n_classes, c);
        if (!isnan(iou)) {
            sum += iou;
            n++;
        }
    }
    return n ? sum / n : NAN;
}

double sp_metrics_score(const sp_metrics *m)
{
    const double points =
        m->point_confusion ? sp_metrics_miou(m->point_confusion, m->n_classes) : NAN;

    return isnan(points) ? sp_metrics_miou(m->confusion, m->n_classes) : points;
}

double sp_metrics_accuracy(const int64_t *confusion, int n_classes)
{
    int64_t total = sp_metrics_total(confusion, n_classes), hit = 0;

    for (int c = 0; c < n_classes; c++)
        hit += confusion[(int64_t)c * n_classes + c];
    return total ? (double)hit / (double)total : NAN;
}

int64_t sp_metrics_total(const int64_t *confusion, int n_classes)
{
    int64_t total = 0;

    assert(confusion && n_classes > 0);
    for (int64_t i = 0; i < (int64_t)n_classes * n_classes; i++)
        total += confusion[i];
    return total;
}
