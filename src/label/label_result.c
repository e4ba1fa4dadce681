#include "label/label_result.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "checkpoint/sp_calibration.h"
#include "compute/sp_backend.h"
#include "predict/sp_merge.h"

/* Values of `label` that are no class. */
enum { NO_CLASS = 0xffff, KEPT = 0xfffe, DOUBTFUL = 0xfffd };

sp_status label_result_open(label_result *r, const label_model *m,
                            const label_options *o)
{
    assert(m->n_classes >= 1 && m->n_added >= 0 && m->n_added <= LABEL_ADDED);
    *r = (label_result){.model = m,
                        .min_confidence = o->min_confidence,
                        .doubtful = o->doubtful == LABEL_NOT_GIVEN
                                        ? SP_SCAN_NO_CLASS
                                        : (int32_t)o->doubtful,
                        .has_kept = o->keep != NULL};
    SP_TRY(SP_NEW(&r->probability, m->n_classes, "the classes"));
    return SP_NEW(&r->total, m->n_classes, "the classes");
}

/* ---- rows of ranks ---- */

label_deal label_deal_make(int64_t n_points, int64_t section, int n_ranks, int first)
{
    label_deal deal = {.n_points = n_points,
                       .section = n_points > 0 ? n_points : 1,
                       .n_writers = 1,
                       .n_ranks = n_ranks,
                       .first = first};

    assert(n_points >= 0 && section >= 0 && 0 <= first && first < n_ranks);
    if (section > 0 && section < n_points && n_ranks > 1) {
        const int64_t n = (n_points + section - 1) / section;

        deal.section = section;
        deal.n_writers = n < n_ranks ? (int)n : n_ranks;
    }
    return deal;
}

int label_deal_writer(const label_deal *deal, int rank)
{
    const int writer = (rank - deal->first + deal->n_ranks) % deal->n_ranks;

    return writer < deal->n_writers ? writer : -1;
}

/* The number of rows of a writer. */
static int64_t count_rows(const label_deal *deal, int writer)
{
    const int64_t whole = deal->n_points / deal->section, n = deal->n_writers;
    const int64_t rest = whole % n == writer ? deal->n_points % deal->section : 0;

    assert(0 <= writer && writer < n);
    return (whole + n - 1 - writer) / n * deal->section + rest;
}

/* ---- points ---- */

/* All values of a result have one size, in the class's field too. */
static bool has_float_values(const label_model *m)
{
    for (int k = 0; k < m->n_added; k++)
        if (m->added[k].is_float)
            return true;
    return false;
}

size_t label_result_value_bytes(const label_result *r)
{
    const label_model *m = r->model;
    return (size_t)m->n_added * (has_float_values(m) ? sizeof(float) : 1);
}

sp_status label_result_size(label_result *r, int64_t n)
{
    assert(n >= 0);
    if (!sp_list_reserve(&r->label, &r->label_room, (size_t)n * sizeof *r->label) ||
        !sp_list_reserve(&r->value, &r->value_room,
                         (size_t)n * label_result_value_bytes(r) + 1))
        return SP_FAIL(SP_EMEM, "no memory for the classes of %" PRId64 " points", n);
    r->n = n;
    r->deal = label_deal_make(n, 0, 1, 0);
    if (n > 0) {
        memset(r->label, 0xff, (size_t)n * sizeof *r->label);
        memset(r->value, 0, (size_t)n * label_result_value_bytes(r));
    }
    return SP_OK;
}

sp_status label_result_deal(label_result *r, const label_deal *deal, int writer)
{
    SP_TRY(label_result_size(r, writer < 0 ? 0 : count_rows(deal, writer)));
    r->deal = *deal;
    return SP_OK;
}

void label_result_free(label_result *r)
{
    if (r->strips) {
        pthread_cond_destroy(&r->strips->change);
        pthread_mutex_destroy(&r->strips->lock);
        free(r->strips->left);
    }
    free(r->strips);
    free(r->label);
    free(r->value);
    free(r->probability);
    free(r->total);
    *r = (label_result){0};
}

static bool has_field(const label_model *m, label_field_kind kind)
{
    for (int k = 0; k < m->n_added; k++)
        if (m->kind[k] == kind)
            return true;
    return false;
}

/* The probability of the class less the greatest of the others. */
static float margin_of(const label_result *r, const sp_merged *merged)
{
    float second = 0;

    for (int c = 0; c < r->model->n_classes; c++)
        if (c != merged->label)
            second = fmaxf(second, r->probability[c]);
    return r->probability[merged->label] - second;
}

static float value_of(const label_result *r, int field, const sp_merged *merged)
{
    const label_model *m = r->model;

    switch (m->kind[field]) {
    case LABEL_CONFIDENCE:
        return merged->confidence;
    case LABEL_ENTROPY:
        return m->n_classes > 1 ? r->entropy / logf((float)m->n_classes) : 0;
    case LABEL_MARGIN:
        return margin_of(r, merged);
    case LABEL_AGREEMENT:
        return r->agreement;
    case LABEL_CLASS: /* made of the label when it is written */
        return 0;
    case LABEL_PROBABILITY:
        return r->probability[m->class_of_field[field]];
    }
    return 0;
}

static void put_values(label_result *r, int64_t row, const sp_merged *merged)
{
    const int64_t n = r->model->n_added;
    const bool is_float = has_float_values(r->model);

    for (int k = 0; k < (int)n; k++) {
        float x = fminf(fmaxf(value_of(r, k, merged), 0), 1);

        if (is_float)
            ((float *)r->value)[row * n + k] = x;
        else
            ((uint8_t *)r->value)[row * n + k] = (uint8_t)lrintf(x * UINT8_MAX);
    }
}

/* Adds the models' sums up, and finds the share of the models that have the class of
 * the whole. One model's sums are returned unchanged. */
static const uint64_t *add_models(label_result *r, const uint64_t *sum)
{
    const int c = r->model->n_classes, n = r->model->members.n + 1;
    int32_t label;
    int n_same = 0;

    r->agreement = 1;
    if (n == 1)
        return sum;
    memset(r->total, 0, (size_t)c * sizeof *r->total);
    for (int k = 0; k < n; k++)
        for (int j = 0; j < c; j++)
            r->total[j] += sum[k * c + j];
    label = sp_merge_class(r->total, c);
    for (int k = 0; k < n; k++)
        n_same += sp_merge_class(sum + k * c, c) == label;
    r->agreement = (float)n_same / (float)n;
    return r->total;
}

/* Makes each probability p^(1/T) over the sum of all. */
static void apply_temperature(label_result *r, sp_merged *merged)
{
    const int c = r->model->n_classes;
    const double power = 1 / r->model->temperature;
    const double best = (double)r->probability[merged->label];
    double total = 0, entropy = 0;

    if (r->model->temperature == 1)
        return;
    for (int j = 0; j < c; j++)
        total += pow((double)r->probability[j] / best, power);
    for (int j = 0; j < c; j++) {
        const double p = pow((double)r->probability[j] / best, power) / total;

        entropy -= p > 0 ? p * log(p) : 0;
        r->probability[j] = (float)p;
    }
    merged->confidence = r->probability[merged->label];
    r->entropy = (float)entropy;
}

/* Are the features of a point, on average over its blocks and views, too far from those
 * of all classes? */
static bool is_far(const label_result *r, const uint64_t *sum)
{
    const int c = r->model->n_classes;
    uint64_t total = 0;

    if (!(r->model->most_distance > 0))
        return false;
    for (int j = 0; j < c; j++)
        total += sum[j];
    return (double)sum[label_model_sums(r->model) - 1] * SP_CALIBRATION_MOST >
           r->model->most_distance * (double)total;
}

void label_result_put(label_result *r, int64_t row, const uint64_t *sum, uint32_t mark)
{
    const uint64_t *total;
    sp_merged merged;
    bool is_doubtful;

    assert(row >= 0 && row < r->n);
    if (mark >> 1 == LABEL_OUTSIDE)
        return;
    total = add_models(r, sum);
    merged = sp_merge_result(total, r->model->n_classes, r->probability);
    if (merged.label == SP_IGNORE)
        return;
    if (has_field(r->model, LABEL_ENTROPY))
        r->entropy = sp_merge_entropy(total, r->model->n_classes);
    apply_temperature(r, &merged);
    is_doubtful = (double)merged.confidence < r->min_confidence || is_far(r, sum);
    if (r->tally)
        label_tally_add(r->tally, merged.label, merged.confidence, is_doubtful);
    if (r->raster)
        label_raster_add(r->raster, mark >> 1, merged.label, is_doubtful);
    if (mark & 1)
        r->label[row] = KEPT;
    else if (is_doubtful)
        r->label[row] = DOUBTFUL;
    else
        r->label[row] = (uint16_t)merged.label;
    put_values(r, row, &merged);
}

static sp_status place(label_result *r, const label_result *from, const uint64_t *row)
{
    const size_t bytes = label_result_value_bytes(r);

    assert(row || from->n == 0);
    assert(from->model == r->model && "their values have the same size");
    for (int64_t i = 0; i < from->n; i++) {
        if (row[i] >= (uint64_t)r->n)
            return SP_FAIL(SP_EDATA, "row %" PRIu64 " of a scan of %" PRId64 " points",
                           row[i], r->n);
        r->label[row[i]] = from->label[i];
        if (bytes)
            memcpy((char *)r->value + row[i] * bytes,
                   (const char *)from->value + (size_t)i * bytes, bytes);
        if (r->strips)
            r->strips->left[row[i] / LABEL_STRIP]--;
    }
    return SP_OK;
}

sp_status label_result_place(label_result *r, const label_result *from,
                             const uint64_t *row)
{
    label_strips *s = r->strips;
    sp_status rc;

    if (!s)
        return place(r, from, row);
    pthread_mutex_lock(&s->lock);
    rc = place(r, from, row);
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* ---- the thread that reads rows ---- */

sp_status label_result_share(label_result *r)
{
    label_strips *s;

    assert(!r->strips);
    SP_TRY(SP_NEW(&s, 1, "points"));
    s->n = (r->n + LABEL_STRIP - 1) / LABEL_STRIP;
    s->left = malloc((size_t)s->n * sizeof *s->left + 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    r->strips = s;
    if (!s->left)
        return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " points", r->n);
    for (int64_t i = 0; i < s->n; i++)
        s->left[i] = i + 1 < s->n ? LABEL_STRIP : r->n - i * LABEL_STRIP;
    return SP_OK;
}

static void end_waits(label_strips *s, bool *flag)
{
    pthread_mutex_lock(&s->lock);
    *flag = true;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

void label_result_complete(label_result *r)
{
    end_waits(r->strips, &r->strips->is_complete);
}

void label_result_give_up(label_result *r)
{
    end_waits(r->strips, &r->strips->is_given_up);
}

void label_result_wait(label_result *r)
{
    label_strips *s = r->strips;

    pthread_mutex_lock(&s->lock);
    while (!s->is_complete && !s->is_given_up)
        pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* True once all of the strips have their rows. */
static bool are_placed(const label_strips *s, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        if (s->left[i] > 0)
            return false;
    return true;
}

/* Waits for n rows. */
static sp_status wait_for_rows(label_strips *s, int64_t row, int64_t n)
{
    const int64_t first = row / LABEL_STRIP;
    const int64_t end = (row + n + LABEL_STRIP - 1) / LABEL_STRIP;
    bool is_given_up;

    assert(end <= s->n);
    pthread_mutex_lock(&s->lock);
    while (!s->is_complete && !s->is_given_up && !are_placed(s, first, end))
        pthread_cond_wait(&s->change, &s->lock);
    is_given_up = s->is_given_up;
    pthread_mutex_unlock(&s->lock);
    return is_given_up ? SP_FAIL(SP_EIO, "the output was given up") : SP_OK;
}

static int32_t code_of(const label_result *r, uint16_t label)
{
    return label == NO_CLASS   ? SP_SCAN_NO_CLASS
           : label == KEPT     ? SP_SCAN_KEEP
           : label == DOUBTFUL ? r->doubtful
                               : r->model->code[label];
}

/* Writes the codes into their field, and keeps the scan's own. */
static void move_codes(const label_model *m, int64_t n, int32_t *code, float *value)
{
    int k = 0;

    while (m->kind[k] != LABEL_CLASS)
        k++;
    for (int64_t i = 0; i < n; i++) {
        value[i * m->n_added + k] = code[i] > 0 ? (float)code[i] : 0;
        code[i] = SP_SCAN_KEEP;
    }
}

static sp_status get(const void *from, int64_t first, int64_t n, int32_t *code,
                     float *value)
{
    const label_result *r = from;
    const int64_t fields = r->model->n_added;
    int64_t at;

    assert(n == 0 || first / r->deal.section == (first + n - 1) / r->deal.section);
    first = label_deal_place(&r->deal, first);
    at = first * fields;
    if (r->strips)
        SP_TRY(wait_for_rows(r->strips, first, n));
    sp_liveness_count();
    for (int64_t i = 0; i < n; i++)
        code[i] = code_of(r, r->label[first + i]);
    for (int64_t i = 0; i < n * fields; i++)
        value[i] = has_float_values(r->model)
                       ? ((const float *)r->value)[at + i]
                       : (float)((const uint8_t *)r->value)[at + i] / UINT8_MAX;
    if (r->model->has_class_field)
        move_codes(r->model, n, code, value);
    return SP_OK;
}

sp_scan_labels label_result_labels(const label_result *r)
{
    return (sp_scan_labels){.n = r->deal.n_points,
                            .has_kept = r->has_kept || r->model->has_class_field,
                            .n_added = r->model->n_added,
                            .added = r->model->added,
                            .get = get,
                            .from = r};
}
