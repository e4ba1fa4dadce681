/* A loss that is a sum of terms (compute/sp_loss.h). Threads share pairs of a class and
 * a group of rows, each in one thread from the softmax to the sorted sums, and then
 * spans of rows for the gradient. Sums of a group are formed row after row, so they
 * depend on neither the threads nor the other groups.
 *
 *     logits --> soft [n]                             of each row
 *            --> derivatives of dice, Lovasz by p     in the room of dlogits
 *            --> dlogits
 */
#include <assert.h>
#include <string.h>

#include "compute/sp_loss.h"
#include "cpu/cpu_isa.h"

enum {
    DIGIT = 11, /* bits that one pass of a sort looks at: three passes */
    DIGITS = 1 << DIGIT,
    THREADS = 16 /* most threads that sort, since each needs room for a group */
};

/* One thread's memory for sorting. */
typedef struct sum_sorter {
    uint64_t *key[2]; /* [longest group] each */
    int32_t *row[2];
    int32_t *start; /* [DIGITS] */
} sum_sorter;

typedef struct sum_loss {
    const sp_loss_args *a;
    int n_groups, n_sorters;
    const int32_t *group_row; /* [n_groups + 1] */
    int64_t longest;          /* rows of the longest group */
    sp_loss_soft *soft;       /* [n] */
    int64_t *count;           /* [n_samples][C] rows that count */
    sp_loss_class *class;     /* [n_groups][C] */
    double *part;             /* [n_groups or n_samples][C] values of classes */
    double *value;            /* [n_samples] loss of the terms of groups */
    sp_cpu_span *span;        /* [n_spans] */
    double *focal;            /* [n_spans] */
    int n_spans;
    sum_sorter sorter[THREADS];
} sum_loss;

/* ---- memory ---- */

/* Takes `bytes` from *at, which may be an address or, from 0, a count. */
static void *loss_alloc(uintptr_t *at, size_t bytes)
{
    void *here = (void *)*at;

    *at += (bytes + 63) / 64 * 64;
    return here;
}

static void sum_alloc_memory(sum_loss *s, int64_t rows, int c, int n_samples,
                             uintptr_t *at)
{
    const size_t n = (size_t)rows, cells = (size_t)n_samples * (size_t)c;

    s->soft = loss_alloc(at, n * sizeof *s->soft);
    s->count = loss_alloc(at, cells * sizeof *s->count);
    s->class = loss_alloc(at, cells * sizeof *s->class);
    s->part = loss_alloc(at, cells * sizeof *s->part);
    s->value = loss_alloc(at, (size_t)n_samples * sizeof *s->value);
    s->span = loss_alloc(at, (size_t)s->n_spans * sizeof *s->span);
    s->focal = loss_alloc(at, (size_t)s->n_spans * sizeof *s->focal);
    for (int t = 0; t < s->n_sorters; t++)
        for (int i = 0; i < 2; i++) {
            sum_sorter *sorter = &s->sorter[t];

            sorter->key[i] =
                loss_alloc(at, (size_t)s->longest * sizeof *sorter->key[i]);
            sorter->row[i] =
                loss_alloc(at, (size_t)s->longest * sizeof *sorter->row[i]);
            sorter->start = loss_alloc(at, DIGITS * sizeof *sorter->start);
        }
}

static int count_sorters(const sp_backend *be, const sp_loss_rule *rule)
{
    const int threads = be->threads > 1 ? be->threads : 1;

    return rule->weight[SP_LOVASZ] > 0 ? (threads < THREADS ? threads : THREADS) : 0;
}

int64_t sp_cpu_loss_bytes(const sp_backend *be, const sp_loss_rule *rule, int64_t n,
                          int c, int n_samples)
{
    sum_loss s = {.n_sorters = count_sorters(be, rule),
                  .longest = n,
                  .n_spans = (int)(n / SP_CPU_ROW_BLOCK) + n_samples};
    uintptr_t bytes = sp_cpu_loss_rows_bytes(s.n_spans, n), sum = 0;

    if (rule->is_sum)
        sum_alloc_memory(&s, n, c, n_samples, &sum);
    return (int64_t)sp_cpu_scratch_size(sum > bytes ? sum : bytes);
}

static sp_status sum_open(sp_backend *be, const sp_loss_args *a, const int32_t joint[2],
                          sum_loss *s)
{
    uintptr_t bytes = 0;
    void *memory;

    *s = (sum_loss){
        .a = a,
        .n_groups = a->rule.is_joint ? 1 : a->n_samples,
        .group_row = a->rule.is_joint ? joint : a->sample_row,
        .n_sorters = count_sorters(be, &a->rule),
        .n_spans = sp_cpu_spans(a->sample_row, a->n_samples, SP_CPU_ROW_BLOCK, NULL)};
    for (int g = 0; g < s->n_groups; g++)
        s->longest = sp_most(s->longest, s->group_row[g + 1] - s->group_row[g]);
    sum_alloc_memory(s, a->logits.n, a->logits.c, a->n_samples, &bytes);
    SP_TRY(sp_cpu_scratch(be, bytes, &memory));
    bytes = (uintptr_t)memory;
    sum_alloc_memory(s, a->logits.n, a->logits.c, a->n_samples, &bytes);
    sp_cpu_spans(a->sample_row, a->n_samples, SP_CPU_ROW_BLOCK, s->span);
    return SP_OK;
}

/* ---- before the classes ---- */

static void sum_count(const sum_loss *s, int b)
{
    const sp_loss_args *a = s->a;
    int64_t *count = s->count + (size_t)b * (size_t)a->logits.c;

    memset(count, 0, (size_t)a->logits.c * sizeof *count);
    for (int32_t i = a->sample_row[b]; i < a->sample_row[b + 1]; i++) {
        s->soft[i] = sp_loss_softmax(sp_row(a->logits, i), a->logits.c);
        if (sp_loss_counts(a, i))
            count[a->label[i]]++;
    }
}

/* Counts the labels of group g and sets the factors of its classes: the loss of a group
 * is the mean over the classes present, times the sum of its weights. */
static void sum_count_group(const sum_loss *s, int g)
{
    const sp_loss_args *a = s->a;
    const int C = a->logits.c, end = a->rule.is_joint ? a->n_samples : g + 1;
    sp_loss_class *class = s->class + (size_t)g * (size_t)C;
    double weights = 0;
    int n_present = 0;

    memset(class, 0, (size_t)C * sizeof *class);
    for (int b = g; b < end; b++) {
        weights += a->sums[2 * b + 1];
        for (int c = 0; c < C; c++)
            class[c].n_labels += s->count[(size_t)b * (size_t)C + (size_t)c];
    }
    for (int c = 0; c < C; c++)
        n_present += class[c].n_labels > 0;
    for (int c = 0; c < C; c++)
        if (class[c].n_labels)
            class[c].factor = weights * (double)a->rule.weight[SP_LOVASZ] / n_present;
}

/* ---- dice ---- */

/* Writes the derivatives of class c of sample b, if there is a gradient, and returns the
 * value of the class. */
static double dice_of_class(const sum_loss *s, int b, int c)
{
    const sp_loss_args *a = s->a;
    const int C = a->logits.c;
    const double factor =
        a->sums[2 * b + 1] * (double)a->rule.weight[SP_DICE] / (double)C;
    double num = 1, den = 1 + (double)s->count[(size_t)b * (size_t)C + (size_t)c];

    for (int32_t i = a->sample_row[b]; i < a->sample_row[b + 1]; i++)
        if (sp_loss_counts(a, i)) {
            const double p = sp_loss_p(s->soft[i], sp_row(a->logits, i)[c]);

            num += a->label[i] == c ? 2 * p : 0;
            den += p * p;
        }
    for (int32_t i = a->sample_row[b]; a->dlogits.data && i < a->sample_row[b + 1]; i++)
        if (sp_loss_counts(a, i))
            sp_row(a->dlogits, i)[c] =
                (float)(factor * sp_loss_dice_step(
                                     num, den,
                                     sp_loss_p(s->soft[i], sp_row(a->logits, i)[c]),
                                     a->label[i] == c));
    return factor * (1 - num / den);
}

/* ---- Lovasz-softmax ---- */

static void sort_pass(const uint64_t *key, const int32_t *row, int64_t n, int shift,
                      int32_t *start, uint64_t *to_key, int32_t *to_row)
{
    int32_t before = 0;

    memset(start, 0, DIGITS * sizeof *start);
    for (int64_t i = 0; i < n; i++)
        start[key[i] >> shift & (DIGITS - 1)]++;
    for (int d = 0; d < DIGITS; d++) {
        const int32_t count = start[d];

        start[d] = before;
        before += count;
    }
    for (int64_t i = 0; i < n; i++) {
        const int32_t at = start[key[i] >> shift & (DIGITS - 1)]++;

        to_key[at] = key[i];
        to_row[at] = row[i];
    }
}

/* Sorts n keys with their rows, equal keys in the order that they have. Returns the
 * index of the arrays with the result. */
static int sort_errors(const sum_sorter *s, int64_t n)
{
    int from = 0;

    for (int shift = 0; shift < SP_LOSS_ERROR_BITS; shift += DIGIT, from = !from)
        sort_pass(s->key[from], s->row[from], n, shift, s->start, s->key[!from],
                  s->row[!from]);
    return from;
}

/* Adds the derivatives of class c of group g, and returns the value of the class. */
static double lovasz_of_class(const sum_loss *s, int g, int c, const sum_sorter *sorter)
{
    const sp_loss_args *a = s->a;
    const sp_loss_class *class = &s->class[(size_t)g * (size_t)a->logits.c + (size_t)c];
    int64_t n = 0, n_before = 0;
    double value = 0;
    int sorted;

    if (class->n_labels == 0)
        return 0;
    for (int32_t i = s->group_row[g]; i < s->group_row[g + 1]; i++)
        if (sp_loss_counts(a, i)) {
            const double p = sp_loss_p(s->soft[i], sp_row(a->logits, i)[c]);

            sorter->key[0][n] = sp_loss_key(a->label[i] == c ? 1 - p : p);
            sorter->row[0][n++] = i;
        }
    sorted = sort_errors(sorter, n);
    for (int64_t k = 0; k < n; k++) {
        const int32_t i = sorter->row[sorted][k];
        const bool is_label = a->label[i] == c;
        const double g_k =
            sp_loss_jaccard_step(class->n_labels, k + 1, n_before, is_label);

        n_before += is_label;
        value += g_k * sp_loss_error(sorter->key[sorted][k]);
        if (a->dlogits.data)
            sp_row(a->dlogits, i)[c] +=
                (float)(is_label ? -class->factor * g_k : class->factor * g_k);
    }
    return class->factor * value;
}

/* ---- all ---- */

/* Adds the loss of the terms of groups to the samples: each has the share of its weight
 * in its group. */
static void sum_add_values(const sum_loss *s, int n_groups, const double *part)
{
    const sp_loss_args *a = s->a;
    const bool is_joint = n_groups < a->n_samples;
    double weights = 0, value;

    for (int b = 0; is_joint && b < a->n_samples; b++)
        weights += a->sums[2 * b + 1];
    for (int b = 0; b < a->n_samples; b++) {
        value = 0;
        for (int c = 0; c < a->logits.c; c++)
            value += part[(size_t)(is_joint ? 0 : b) * (size_t)a->logits.c + (size_t)c];
        if (is_joint)
            value = weights > 0 ? value * (a->sums[2 * b + 1] / weights) : 0;
        s->value[b] += value;
    }
}

static void sum_of_samples(sp_backend *be, const sum_loss *s)
{
    const int C = s->a->logits.c, n = s->a->n_samples * C;

#pragma omp parallel for num_threads(be->threads) schedule(dynamic) if (n > 1)
    for (int b = 0; b < s->a->n_samples; b++)
        sum_count(s, b);
    for (int b = 0; b < s->a->n_samples; b++)
        s->value[b] = 0;
    if (s->a->rule.weight[SP_DICE] > 0) {
#pragma omp parallel for num_threads(be->threads) schedule(dynamic) if (n > 1)
        for (int i = 0; i < n; i++)
            s->part[i] = dice_of_class(s, i / C, i % C);
        sum_add_values(s, s->a->n_samples, s->part);
    } else if (s->a->dlogits.data) {
        for (int64_t i = 0; i < s->a->dlogits.n; i++)
            memset(sp_row(s->a->dlogits, i), 0, (size_t)C * sizeof(float));
    }
}

static void sum_of_groups(const sum_loss *s)
{
    const int C = s->a->logits.c, n = s->n_groups * C, n_threads = s->n_sorters;

    if (n_threads == 0)
        return;
    for (int g = 0; g < s->n_groups; g++)
        sum_count_group(s, g);
        /* Each sorter belongs to one iteration of this loop. */
#pragma omp parallel for num_threads(n_threads) schedule(static, 1) if (n > 1)
    for (int t = 0; t < n_threads; t++)
        for (int i = t; i < n; i += n_threads)
            s->part[i] = lovasz_of_class(s, i / C, i % C, &s->sorter[t]);
    sum_add_values(s, s->n_groups, s->part);
}

/* Computes the terms of single rows and the gradient of span i. */
static void loss_sum_rows(const sum_loss *s, int i)
{
    const sp_loss_args *a = s->a;
    const sp_loss_rule *rule = &a->rule;
    const int C = a->logits.c;
    double focal = 0, slope = 0;

    for (int32_t r = s->span[i].row; r < s->span[i].end; r++) {
        const int y = a->label[r];
        const float *z = sp_row(a->logits, r);
        const double w = y == SP_IGNORE ? 0 : a->class_weight ? a->class_weight[y] : 1;

        if (y != SP_IGNORE && rule->weight[SP_FOCAL] > 0)
            focal += w * sp_loss_focal(s->soft[r], z, C, y, rule->focal_gamma, &slope);
        if (!a->dlogits.data)
            continue;
        if (!sp_loss_counts(a, r)) /* dice has left the row as it was */
            memset(sp_row(a->dlogits, r), 0, (size_t)C * sizeof(float));
        else
            sp_loss_row_grad(rule, s->soft[r], z, C, y, w, slope,
                             sp_row(a->dlogits, r));
    }
    s->focal[i] = focal;
}

sp_status sp_cpu_loss_sum(sp_backend *be, const sp_loss_args *a)
{
    const int32_t joint[2] = {0, (int32_t)a->logits.n};
    sum_loss s;

    if (a->n_samples == 0)
        return SP_OK;
    SP_TRY(sum_open(be, a, joint, &s));
    sum_of_samples(be, &s);
    sum_of_groups(&s);
#pragma omp parallel for num_threads(be->threads) if (s.n_spans > 1)
    for (int i = 0; i < s.n_spans; i++)
        loss_sum_rows(&s, i);
    for (int b = 0; b < a->n_samples; b++)
        a->sums[2 * b] =
            (double)a->rule.weight[SP_CROSS_ENTROPY] * a->sums[2 * b] + s.value[b];
    for (int i = 0; i < s.n_spans; i++)
        a->sums[2 * s.span[i].sample] += (double)a->rule.weight[SP_FOCAL] * s.focal[i];
    return SP_OK;
}
