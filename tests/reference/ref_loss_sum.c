/* A loss that is a sum of terms, by the definitions of compute/sp_loss.h and plain
 * loops in double: Jaccard losses of sorted prefixes as they are, and the chain rule
 * through the full softmax. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/cpu.h"
#include "fixtures/test.h"
#include "reference/ref_backend.h"

/* The rows of a group that count, with their softmax and derivatives by it. */
typedef struct group {
    const sp_loss_args *a;
    int n, C;
    int *row;      /* [n] */
    double *p;     /* [n][C] */
    double *dp;    /* [n][C] */
    double weight; /* sum of w */
} group;

static int label_of(const group *g, int i)
{
    return g->a->label[g->row[i]];
}

static double weight_of(const group *g, int i)
{
    return g->a->class_weight ? (double)g->a->class_weight[label_of(g, i)] : 1;
}

static group group_open(const sp_loss_args *a, int begin, int end)
{
    const int C = a->logits.c;
    group g = {.a = a, .C = C, .row = test_alloc(((size_t)(end - begin) + 1) * 4)};
    const size_t cells = (size_t)(end - begin) * (size_t)C + 1;

    g.p = test_alloc(cells * sizeof *g.p);
    g.dp = test_alloc(cells * sizeof *g.dp);
    for (int r = begin; r < end; r++) {
        const float *z = sp_row(a->logits, r);
        double top = z[0], sum = 0;

        if (a->label[r] < 0 || (a->class_weight && a->class_weight[a->label[r]] == 0))
            continue;
        g.row[g.n] = r;
        g.weight += weight_of(&g, g.n);
        for (int c = 1; c < C; c++)
            top = fmax(top, z[c]);
        for (int c = 0; c < C; c++)
            sum += exp(z[c] - top);
        for (int c = 0; c < C; c++) {
            g.p[g.n * C + c] = exp(z[c] - top) / sum;
            g.dp[g.n * C + c] = 0;
        }
        g.n++;
    }
    return g;
}

static int count(const group *g, int c)
{
    int n = 0;

    for (int i = 0; i < g->n; i++)
        n += label_of(g, i) == c;
    return n;
}

/* ---- terms: each adds its derivatives by p, and returns its value ---- */

static double dice(const group *g, double factor)
{
    double value = 0;

    for (int c = 0; c < g->C; c++) {
        double num = 1, den = 1 + count(g, c);

        for (int i = 0; i < g->n; i++) {
            const double p = g->p[i * g->C + c];

            num += label_of(g, i) == c ? 2 * p : 0;
            den += p * p;
        }
        value += factor / g->C * (1 - num / den);
        for (int i = 0; i < g->n; i++) {
            const double dnum = label_of(g, i) == c ? 2 : 0,
                         dden = 2 * g->p[i * g->C + c];

            g->dp[i * g->C + c] -=
                factor / g->C * (dnum * den - num * dden) / (den * den);
        }
    }
    return value;
}

typedef struct place {
    double error;
    int i;
} place;

static int by_error(const void *a, const void *b)
{
    const place *x = a, *y = b;

    return x->error != y->error ? (x->error < y->error ? 1 : -1)
                                : (x->i > y->i) - (x->i < y->i);
}

/* The Jaccard loss of a class with n labels if `missed` of them and `added` other rows
 * are wrong. */
static double jaccard(int n, int missed, int added)
{
    return 1 - (double)(n - missed) / (n + added);
}

static double lovasz_of(const group *g, int c, int n_labels, double factor)
{
    place *sorted = test_alloc(((size_t)g->n + 1) * sizeof *sorted);
    int missed = 0, added = 0;
    double value = 0, before = 0;

    for (int i = 0; i < g->n; i++) {
        const double p = g->p[i * g->C + c];

        sorted[i] = (place){label_of(g, i) == c ? 1 - p : p, i};
    }
    qsort(sorted, (size_t)g->n, sizeof *sorted, by_error);
    for (int k = 0; k < g->n; k++) {
        const int i = sorted[k].i, is_label = label_of(g, i) == c;

        missed += is_label;
        added += !is_label;
        value += factor * sorted[k].error * (jaccard(n_labels, missed, added) - before);
        g->dp[i * g->C + c] +=
            (is_label ? -factor : factor) * (jaccard(n_labels, missed, added) - before);
        before = jaccard(n_labels, missed, added);
    }
    return value;
}

static double lovasz(const group *g, double factor)
{
    double value = 0;
    int n_present = 0;

    for (int c = 0; c < g->C; c++)
        n_present += count(g, c) > 0;
    for (int c = 0; c < g->C; c++)
        if (count(g, c))
            value += lovasz_of(g, c, count(g, c), factor / n_present);
    return value;
}

/* Focal loss, as a term of p_y alone. */
static double focal(const group *g, double factor, double gamma)
{
    double value = 0;

    for (int i = 0; i < g->n; i++) {
        const int at = i * g->C + label_of(g, i);
        const double p = g->p[at], w = factor * weight_of(g, i), rest = 1 - p;

        value -= w * pow(rest, gamma) * log(p);
        g->dp[at] -= w * pow(rest, gamma) / p;
        if (gamma > 0 && rest > 0)
            g->dp[at] += w * gamma * pow(rest, gamma - 1) * log(p);
    }
    return value;
}

static double entropy(const group *g, double factor, double smoothing)
{
    double value = 0;

    for (int i = 0; i < g->n; i++)
        for (int c = 0; c < g->C; c++) {
            const int at = i * g->C + c;
            const double t = (c == label_of(g, i)) * (1 - smoothing) + smoothing / g->C;

            value -= t > 0 ? factor * weight_of(g, i) * t * log(g->p[at]) : 0;
            g->dp[at] -= t > 0 ? factor * weight_of(g, i) * t / g->p[at] : 0;
        }
    return value;
}

/* Adds to dlogits what follows from the derivatives by p. */
static void add_gradient(const group *g)
{
    for (int i = 0; g->a->dlogits.data && i < g->n; i++)
        for (int j = 0; j < g->C; j++) {
            double sum = 0;

            for (int c = 0; c < g->C; c++)
                sum += g->dp[i * g->C + c] * g->p[i * g->C + c] *
                       ((c == j) - g->p[i * g->C + j]);
            sp_row(g->a->dlogits, g->row[i])[j] += (float)sum;
        }
}

void sp_ref_loss_sum(const sp_loss_args *a)
{
    const sp_loss_rule *rule = &a->rule;
    const group all = group_open(a, 0, (int)a->logits.n);
    const double joint = rule->is_joint ? lovasz(&all, rule->weight[SP_LOVASZ]) : 0;

    for (int64_t i = 0; a->dlogits.data && i < a->logits.n; i++)
        for (int j = 0; j < a->logits.c; j++)
            sp_row(a->dlogits, i)[j] = 0;
    for (int b = 0; b < a->n_samples; b++) {
        const group g = group_open(a, a->sample_row[b], a->sample_row[b + 1]);

        a->sums[2 * b] =
            entropy(&g, rule->weight[SP_CROSS_ENTROPY], rule->smoothing) +
            focal(&g, rule->weight[SP_FOCAL], rule->focal_gamma) +
            dice(&g, rule->weight[SP_DICE] * g.weight) +
            (rule->is_joint ? g.weight * joint
                            : lovasz(&g, rule->weight[SP_LOVASZ] * g.weight));
        add_gradient(&g);
    }
    for (int i = 0; i < all.n * all.C; i++)
        all.dp[i] *= all.weight;
    if (rule->is_joint)
        add_gradient(&all);
}
