#include "predict/sp_merge.h"

#include <assert.h>
#include <math.h>

#include "compute/sp_backend.h"

enum { PARALLEL_FROM = 1 << 12 };

/* ---- weights ---- */

/* The factor s(t) of one axis; x lies within [low, high], up to rounding. */
static double fade(double x, double low, double high, double margin)
{
    double t;

    if (!(margin > 0))
        return 1;
    t = fmin(x - (low - margin), high + margin - x) / (2 * margin);
    t = fmin(fmax(t, 0), 1);
    return t * t * (3 - 2 * t);
}

void sp_merge_weigh(const sp_sample *s, double voxel_size, const sp_block *block,
                    uint32_t *weight)
{
    assert(s && voxel_size > 0 && (weight || s->n == 0));
    for (int64_t i = 0; i < s->n; i++) {
        double w = 1;

        for (int a = 0; block && a < 2; a++) {
            const double x = s->origin[a] + sp_sample_position(s, i, a) * voxel_size;

            w *= fade(x, block->low[a], block->high[a], block->margin);
        }
        weight[i] = 1 + (uint32_t)((SP_MERGE_WEIGHT - 1) * w + 0.5);
    }
}

/* ---- sums ---- */

/* Adds the softmax of one row of logits over a temperature. The powers of the first
 * classes are computed once. */
static void add_row(const float *z, int c, double temperature, uint64_t *sum)
{
    enum { FIRST = 64 };
    double power[FIRST], total = 0;
    int top = 0;

    for (int j = 1; j < c; j++)
        top = z[j] > z[top] ? j : top;
    for (int j = 0; j < c; j++) {
        const double e = exp(((double)z[j] - z[top]) / temperature);

        total += e;
        if (j < FIRST)
            power[j] = e;
    }
    for (int j = 0; j < c; j++) {
        const double e =
            j < FIRST ? power[j] : exp(((double)z[j] - z[top]) / temperature);

        sum[j] += (uint64_t)(e / total * SP_MERGE_ONE + 0.5);
    }
    sum[top]++;
}

void sp_merge_view(sp_tensor logits, double temperature, const int32_t *row_of,
                   int64_t n, uint64_t *sum)
{
    assert(temperature > 0 && n >= 0 && (n == 0 || (row_of && sum)));
    assert(logits.elem == SP_ELEM_F32);
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++)
        if (row_of[i] >= 0)
            add_row(logits.data + row_of[i] * (int64_t)logits.ld, logits.c, temperature,
                    sum + i * logits.c);
}

void sp_merge_points(const uint64_t *voxel_sum, int c, const uint32_t *weight,
                     int64_t n_points, const uint32_t *point_voxel, const uint32_t *to,
                     uint64_t *sum)
{
    assert(c >= 1 && n_points >= 0 &&
           (n_points == 0 || (voxel_sum && point_voxel && sum)));
    for (int64_t i = 0; i < n_points; i++) {
        const uint64_t w = weight ? weight[point_voxel[i]] : SP_MERGE_WEIGHT;
        const uint64_t *from = voxel_sum + (int64_t)point_voxel[i] * c;
        uint64_t *at = sum + (to ? to[i] : i) * c;

        for (int j = 0; j < c; j++)
            at[j] += w * from[j];
    }
}

/* ---- results ---- */

static uint64_t total_of(const uint64_t *sum, int c)
{
    uint64_t total = 0;

    for (int j = 0; j < c; j++)
        total += sum[j];
    return total;
}

/* The first of the greatest. */
static int best_of(const uint64_t *sum, int c)
{
    int best = 0;

    for (int j = 1; j < c; j++)
        best = sum[j] > sum[best] ? j : best;
    return best;
}

sp_merged sp_merge_result(const uint64_t *sum, int c, float *probability)
{
    const uint64_t total = total_of(sum, c);
    const int best = best_of(sum, c);

    assert(sum && c > 0);
    for (int j = 0; probability && j < c; j++)
        probability[j] = total ? (float)((double)sum[j] / (double)total) : 0;
    if (total == 0)
        return (sp_merged){.label = SP_IGNORE};
    return (sp_merged){best, (float)((double)sum[best] / (double)total)};
}

float sp_merge_entropy(const uint64_t *sum, int c)
{
    const uint64_t total = total_of(sum, c);
    double entropy = 0;

    for (int j = 0; j < c; j++)
        if (sum[j] > 0) {
            const double p = (double)sum[j] / (double)total;

            entropy -= p * log(p);
        }
    return (float)entropy;
}

void sp_merge_logits(const uint64_t *sum, int c, float *logits)
{
    const int best = best_of(sum, c);
    double total = 0;

    assert(c > 0 && logits);
    for (int j = 0; j < c; j++)
        total += (double)sum[j];
    for (int j = 0; j < c; j++)
        logits[j] = total > 0 ? (float)log(fmax((double)sum[j], 0.5) / total) : 0;
    for (int j = 0; j < best; j++)
        if (logits[j] >= logits[best])
            logits[best] = nextafterf(logits[j], INFINITY);
}

int32_t sp_merge_class(const uint64_t *sum, int c)
{
    const int best = best_of(sum, c);

    return sum[best] ? best : SP_IGNORE;
}
