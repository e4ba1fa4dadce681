/* The labels of the data: their check, their counts, and the weights of classes. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "api/sp_labels.h"
#include "base/sp_list.h"
#include "base/sp_number.h"
#include "base/sp_scope.h"

/* ---- labels ---- */

/* True if a voxel of this label counts in the loss. A list of weights may give its
 * class the weight 0. */
static bool is_learned(const sp_config *config, int32_t label)
{
    const sp_class_weighting *weights = &config->train.class_weights;

    if (label == SP_IGNORE || weights->kind != SP_CW_LIST || label >= weights->list.n)
        return label != SP_IGNORE;
    return (float)weights->list.at[label] > 0;
}

/* Reads sample i of the training set for its labels. With data.on_error = "skip" a
 * damaged sample has no labels, since the loader, which names it, leaves it out;
 * `damage` becomes the reason. */
static sp_status labels_read(const sp_config *config, const sp_dataset *set, int64_t i,
                             sp_sample *sample, sp_error_record *damage)
{
    const bool is_skipping = config->data.on_error == SP_ON_ERROR_SKIP;
    const sp_sample_request request = {.verify = is_skipping && config->data.verify};
    const sp_status rc = sp_sample_read(set, i, &request, sample);

    if (!is_skipping || rc == SP_OK || rc == SP_EMEM)
        return rc;
    sp_error_save(damage);
    sample->n = 0;
    return SP_OK;
}

sp_status sp_labels_check(const sp_config *config, sp_comm *comm, const sp_dataset *set)
{
    sp_sample sample = {0};
    sp_error_record damage = {0};
    int64_t n_found = 0;
    sp_status rc = SP_OK;

    assert(set->n_shards > 0 && "sp_data_sets_open comes first");
    if (!set->has_labels)
        return SP_FAIL(SP_EDATA, "%s: /labels is absent, expected for training",
                       set->shard[0].path);
    if (set->n_samples == 0)
        return SP_FAIL(SP_EDATA, "%s: no samples to train on", set->shard[0].path);
    for (int64_t first = 0; first < set->n_samples && !n_found; first += comm->size) {
        bool is_found = false;

        if (first + comm->rank < set->n_samples)
            rc = labels_read(config, set, first + comm->rank, &sample, &damage);
        for (int64_t j = 0; rc == SP_OK && !is_found && j < sample.n; j++)
            is_found = is_learned(config, sample.labels[j]);
        rc = sp_comm_agree(comm, rc);
        n_found = is_found;
        if (rc == SP_OK)
            rc = sp_comm_allreduce(comm, SP_SCOPE_WORLD, &n_found, 1, SP_I64, SP_SUM);
        if (rc != SP_OK)
            break;
    }
    sp_sample_destroy(&sample);
    SP_TRY(rc);
    if (n_found)
        return SP_OK;
    if (damage.message[0])
        rc = SP_FAIL(
            SP_EDATA,
            "%s; no sample that can be read has a label: there is nothing to train on",
            damage.message);
    SP_TRY(sp_comm_agree(comm, rc));
    return SP_FAIL(SP_EDATA,
                   "%s: no voxel of %lld samples has a label%s, expected at least one: "
                   "nothing to train on (did --map name the codes of these scans?)",
                   set->shard[0].path, (long long)set->n_samples,
                   config->train.class_weights.kind == SP_CW_LIST
                       ? " of a class with a weight above 0 in train.class_weights"
                       : "");
}

static void labels_add(const sp_sample *sample, int64_t *count)
{
    for (int64_t i = 0; i < sample->n; i++)
        if (sample->labels[i] != SP_IGNORE)
            count[sample->labels[i]]++;
}

/* Counts the labels of this rank's share of the samples. */
static sp_status labels_count_share(const sp_config *config, const sp_comm *comm,
                                    const sp_dataset *set, int64_t *count)
{
    sp_error_record damage;
    SP_CLOSED_BY(sp_sample_destroy) sp_sample sample = {0};

    for (int64_t i = comm->rank; i < set->n_samples; i += comm->size) {
        SP_TRY(labels_read(config, set, i, &sample, &damage));
        labels_add(&sample, count);
    }
    return SP_OK;
}

/* Counts the labels of this rank's share of the rows. */
static sp_status labels_count_rows(const sp_comm *comm, const sp_dataset *set,
                                   int64_t *count)
{
    enum { PIECE = 1 << 16 };
    SP_CLOSED_BY(sp_sample_destroy) sp_sample sample = {0};
    int64_t piece = 0;

    for (int s = 0; s < set->n_shards; s++) {
        const int64_t rows = set->shard[s].labels.rows;

        for (int64_t at = 0; at < rows; at += PIECE) {
            if (piece++ % comm->size != comm->rank)
                continue;
            SP_TRY(
                sp_shard_read_labels(set, s, at, sp_least(PIECE, rows - at), &sample));
            labels_add(&sample, count);
        }
    }
    return SP_OK;
}

/* The most labels of a rank that are counted for a warning: a second of reading. Chunks
 * are unpacked, so there are fewer of those. */
enum { MOST_COUNTED = 1 << 28, MOST_UNPACKED = 1 << 22 };

sp_status sp_labels_count(sp_comm *comm, const sp_dataset *set, int n_classes,
                          int64_t *count, bool *is_known)
{
    int64_t most = MOST_COUNTED, is_missing = 0;

    assert(set->has_labels && count && is_known);
    for (int i = 0; i < set->n_shards; i++)
        if (sp_shard_is_chunked(&set->shard[i]))
            most = MOST_UNPACKED;
    *is_known = false;
    if (set->n_voxels / comm->size > most)
        return SP_OK;
    /* The loader reports a damaged sample when it comes to it. */
    is_missing = labels_count_rows(comm, set, count) != SP_OK;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, count, (size_t)n_classes, SP_I64,
                             SP_SUM));
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &is_missing, 1, SP_I64, SP_MAX));
    *is_known = is_missing == 0;
    return SP_OK;
}

/* The median of the counts of the classes present; 0 if no class is. */
static double median_count(const int64_t *count, int n, int64_t *sorted)
{
    int present = 0;

    for (int c = 0; c < n; c++)
        if (count[c])
            sorted[present++] = count[c];
    qsort(sorted, (size_t)present, sizeof *sorted, sp_by_int64);
    return present
               ? ((double)sorted[(present - 1) / 2] + (double)sorted[present / 2]) / 2
               : 0;
}

/* Weights of classes with n_c of n labels; absent classes have 0.
 *   inverse           n / (classes present * n_c): the mean weight of a voxel is 1
 *   sqrt_inverse      the root of it
 *   log_inverse       1 / log(1.02 + n_c / n) (Paszke et al., "ENet", 2016)
 *   median_frequency  median of the counts of classes present / n_c (Eigen and Fergus,
 *                     ICCV 2015, with frequencies in the whole set) */
static void weights_of_counts(const int64_t *count, int n, sp_class_weights kind,
                              int64_t *room, float *weights)
{
    const double median = median_count(count, n, room);
    double total = 0, present = 0;

    for (int c = 0; c < n; c++) {
        total += (double)count[c];
        present += count[c] > 0;
    }
    for (int c = 0; c < n; c++) {
        double w = count[c] ? total / (present * (double)count[c]) : 0;

        if (kind == SP_CW_SQRT_INVERSE)
            w = sqrt(w);
        if (kind == SP_CW_LOG_INVERSE && count[c])
            w = 1 / log(1.02 + (double)count[c] / total);
        if (kind == SP_CW_MEDIAN && count[c])
            w = median / (double)count[c];
        weights[c] = (float)w;
    }
}

sp_status sp_labels_check_weights(const sp_config *config, int n_classes)
{
    const sp_class_weighting *weights = &config->train.class_weights;

    if (weights->kind == SP_CW_LIST && weights->list.n != n_classes)
        return SP_FAIL(SP_EDATA,
                       "%strain.class_weights has %d numbers, expected %d, one for "
                       "each class of the data",
                       sp_config_where(config, "train.class_weights"), weights->list.n,
                       n_classes);
    return SP_OK;
}

static sp_status weights_of_list(const sp_config *config, int n_classes, float *weights)
{
    const sp_doubles *list = &config->train.class_weights.list;

    SP_TRY(sp_labels_check_weights(config, n_classes));
    for (int c = 0; c < list->n; c++)
        weights[c] = (float)list->at[c];
    return SP_OK;
}

/* Divides weights by a power of two if the largest is far from 1. The loss is a mean by
 * these weights, so that their common factor does not count; but the sum over a sample
 * must stay below SP_EXACT_TOP. */
static void scale_weights(float *weights, int n)
{
    enum { EXPONENT = 10 };
    float largest = 0;
    int exponent;

    for (int c = 0; c < n; c++)
        largest = fmaxf(largest, weights[c]);
    frexpf(largest, &exponent);
    if (abs(exponent) > EXPONENT)
        for (int c = 0; c < n; c++)
            weights[c] = ldexpf(weights[c], 1 - exponent);
}

/* Keeps the weights in norm, which checkpoints store. */
static sp_status keep_weights(sp_network *network, const float *weights)
{
    sp_normalization *norm = &network->norm;

    SP_TRY(
        SP_NEW(&norm->class_weight, network->n_classes, "the weights of the classes"));
    for (int c = 0; c < network->n_classes; c++)
        norm->class_weight[c] = (double)weights[c];
    return SP_OK;
}

sp_status sp_labels_weights(const sp_config *config, sp_comm *comm,
                            const sp_dataset *set, sp_network *network, float **weights)
{
    const sp_class_weights kind = config->train.class_weights.kind;
    size_t n = (size_t)network->n_classes;
    SP_FREED int64_t *count = NULL;
    sp_status rc;

    assert(network->n_classes >= 1 && weights);
    *weights = NULL;
    if (kind == SP_CW_NONE)
        return SP_OK;
    *weights = calloc(n, sizeof **weights);
    count = calloc(2 * n, sizeof *count);
    if (!*weights || !count)
        rc = SP_FAIL(SP_EMEM, "out of memory");
    else if (kind == SP_CW_LIST)
        rc = weights_of_list(config, network->n_classes, *weights);
    else
        rc = labels_count_share(config, comm, set, count);
    rc = sp_comm_agree(comm, rc);
    if (rc == SP_OK && kind != SP_CW_LIST) {
        rc = sp_comm_allreduce(comm, SP_SCOPE_WORLD, count, n, SP_I64, SP_SUM);
        weights_of_counts(count, (int)n, kind, count + n, *weights);
    }
    SP_TRY(rc);
    scale_weights(*weights, (int)n);
    return sp_comm_agree(comm, keep_weights(network, *weights));
}

sp_status sp_labels_kept_weights(const sp_config *config, const sp_network *network,
                                 bool is_named, float **weights)
{
    const sp_normalization *norm = &network->norm;
    const sp_class_weights kind = config->train.class_weights.kind;
    size_t n = (size_t)network->n_classes;

    assert(network->n_classes >= 1 && weights);
    *weights = NULL;
    if (is_named ? kind == SP_CW_NONE : !norm->class_weight)
        return SP_OK;
    SP_TRY(SP_NEW(weights, n, "the weights of the classes"));
    if (is_named && kind == SP_CW_LIST) {
        SP_TRY(weights_of_list(config, network->n_classes, *weights));
    } else if (!norm->class_weight || norm->n_classes != network->n_classes) {
        return SP_FAIL(SP_EDATA,
                       "train.class_weights: the checkpoint has weights of %d classes, "
                       "the data %d classes",
                       norm->class_weight ? norm->n_classes : 0, network->n_classes);
    } else {
        for (int c = 0; c < norm->n_classes; c++)
            (*weights)[c] = (float)norm->class_weight[c];
    }
    scale_weights(*weights, (int)n);
    return SP_OK;
}
