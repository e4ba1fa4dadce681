/* The data: indexes, columns, classes, feature statistics and class
 * weights. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/sp_resources.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "data/sp_mix.h"
#include "data/sp_paste.h"
#include "data/sp_voxel.h"

/* ---- data ---- */

/* *copy [n] becomes copies of from[columns[i]] (columns NULL: of from[i]); NULL if from
 * is NULL. */
static sp_status resources_copy_texts(int n, char *const *from, const int *columns,
                                      char ***copy)
{
    int i;

    *copy = from ? calloc((size_t)n + 1, sizeof **copy) : NULL;
    for (i = 0; *copy && i < n; i++)
        if (!((*copy)[i] = strdup(from[columns ? columns[i] : i])))
            break;
    return !from || (*copy && i == n) ? SP_OK : SP_FAIL(SP_EMEM, "out of memory");
}

void sp_resources_find_vectors(sp_resources *r, const sp_recipe *recipe,
                               char *const *name)
{
    r->vectors = sp_recipe_vectors(recipe, r->n_columns, name);
    for (int k = 0; k < r->vectors.n; k++) {
        const sp_vector *v = &r->vectors.at[k];

        sp_log_info("columns %s and %s are %s with the sample", name[v->x], name[v->y],
                    v->is_position ? "positions: they turn, mirror and scale"
                                   : "of normals: they turn and mirror");
    }
    if (r->vectors.lone >= 0)
        sp_log_warn0("column %s is half of a vector and stays as it is where samples "
                     "turn: use x and y, or neither",
                     name[r->vectors.lone]);
}

static sp_status find_vectors(sp_resources *r, const sp_dataset *set)
{
    char **name = NULL;
    sp_status rc =
        resources_copy_texts(r->n_columns, set->feature_name, r->columns, &name);

    if (rc == SP_OK)
        sp_resources_find_vectors(r, set->recipe, name);
    sp_h5_list_free(name, name ? r->n_columns : 0);
    return rc;
}

static sp_status open_columns(sp_resources *r, const sp_dataset *set)
{
    SP_TRY(sp_dataset_columns(set, &r->config->data.features,
                              sp_config_where(r->config, "data.features"), &r->columns,
                              &r->n_columns));
    r->n_classes = set->n_classes;
    r->class_name = set->class_name;
    return find_vectors(r, set);
}

/* Opens data.val, or with data.folds the files of data.train that the fold holds out. */
static sp_status open_val(sp_resources *r)
{
    const sp_config *config = r->config;
    const sp_fold fold = {config->data.folds, config->data.fold, true};

    if (config->data.folds > 1)
        return sp_dataset_open_fold(&r->val, &config->data.train, &fold,
                                    r->comm);
    return config->data.val.n > 0
               ? sp_dataset_open(&r->val, &config->data.val, r->comm)
               : SP_OK;
}

static sp_status open_train(sp_resources *r)
{
    const sp_config *config = r->config;
    const sp_fold fold = {config->data.folds, config->data.fold, false};

    return sp_dataset_open_fold(&r->train, &config->data.train,
                                config->data.folds > 1 ? &fold : NULL, r->comm);
}

/* Opens a set of data.val_sets, "NAME=FILES", whose form the deck's check has seen. */
static sp_status open_val_set(sp_resources *r, char *text, sp_val_set *set)
{
    const size_t n = strcspn(text, "=");
    char *files = text + n + 1;
    double factor;

    SP_TRY(sp_comm_agree(r->comm, (set->name = strndup(text, n))
                                      ? SP_OK
                                      : SP_FAIL(SP_EMEM, "out of memory")));
    SP_TRY(sp_dataset_open(&set->data, &(sp_strings){1, &files}, r->comm));
    SP_TRY(sp_dataset_match(&r->train, &set->data));
    SP_TRY(sp_voxel_factor(r->config, &set->data, &factor));
    if (!set->data.has_labels)
        return SP_FAIL(SP_EDATA,
                       "%s: /labels: set %s of data.val_sets is evaluated, expected "
                       "labels, found none",
                       set->data.shard[0].path, set->name);
    if (set->data.n_samples == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: set %s of data.val_sets has no samples, expected one at "
                       "least",
                       set->data.shard[0].path, set->name);
    return SP_OK;
}

static sp_status open_val_sets(sp_resources *r)
{
    const sp_strings *text = &r->config->data.val_sets;

    r->val_set = calloc((size_t)text->n + 1, sizeof *r->val_set);
    SP_TRY(sp_comm_agree(r->comm,
                         r->val_set ? SP_OK : SP_FAIL(SP_EMEM, "out of memory")));
    for (int i = 0; i < text->n; i++) {
        r->n_val_sets++;
        SP_TRY(open_val_set(r, text->at[i], &r->val_set[i]));
    }
    return SP_OK;
}

sp_status sp_resources_open_data(sp_resources *r, bool with_train, bool with_val)
{
    const sp_config *config = r->config;
    const sp_dataset *set = with_train ? &r->train : &r->val;
    double factor;

    assert(with_train || with_val);
    assert(!r->columns && "the data are opened once");
    if ((with_train || config->data.folds > 1) && config->data.train.n == 0)
        return SP_FAIL(SP_EUSAGE, "data.train is empty: name the training shards");
    if (with_val && !with_train && config->data.val.n == 0 && config->data.folds < 2)
        return SP_FAIL(SP_EUSAGE, "data.val is empty: name the shards to evaluate");
    if (with_train)
        SP_TRY(open_train(r));
    if (with_val)
        SP_TRY(open_val(r));
    if (with_train && r->val.n_shards)
        SP_TRY(sp_dataset_match(&r->train, &r->val));
    if (with_train && with_val && config->data.test.n > 0) {
        SP_TRY(sp_dataset_open(&r->test, &config->data.test, r->comm));
        SP_TRY(sp_dataset_match(&r->train, &r->test));
        SP_TRY(sp_voxel_factor(config, &r->test, &factor));
    }
    if (with_train && r->val.n_shards && config->data.val_sets.n > 0)
        SP_TRY(open_val_sets(r));
    SP_TRY(sp_voxel_factor(config, set, &factor));
    SP_TRY(open_columns(r, set));
    return r->val.n_shards ? sp_voxel_factor(config, &r->val, &factor) : SP_OK;
}

sp_status sp_resources_use_data(sp_resources *r, const sp_dataset *train,
                                const sp_dataset *val)
{
    double factor;

    assert(!r->columns && "the data are opened once");
    r->train = *train;
    if (val)
        r->val = *val;
    SP_TRY(sp_voxel_factor(r->config, train, &factor));
    SP_TRY(open_columns(r, &r->train));
    return val ? sp_voxel_factor(r->config, &r->val, &factor) : SP_OK;
}

/* ---- columns and classes ---- */

static sp_status keep_names(sp_resources *r, const sp_dataset *set)
{
    sp_normalization *norm = &r->norm;

    norm->n_columns = r->n_columns;
    norm->n_classes = r->n_classes;
    SP_TRY(resources_copy_texts(norm->n_columns, set->feature_name, r->columns,
                                &norm->name));
    SP_TRY(resources_copy_texts(norm->n_classes, set->class_name, NULL,
                                &norm->class_name));
    SP_TRY(resources_copy_texts(norm->n_classes, set->class_code, NULL,
                                &norm->class_code));
    return sp_recipe_copy(set->recipe, &norm->recipe);
}

sp_status sp_resources_match_columns(const sp_resources *r, const sp_dataset *set,
                                     const sp_normalization *checkpoint,
                                     const char *path, sp_status code)
{
    const int n = r->n_columns;
    char want[300], found[300];
    bool is_same = !checkpoint->name || checkpoint->n_columns == n;

    assert(code != SP_OK && checkpoint && path);
    assert(r->columns && set->n_shards > 0);
    for (int i = 0; is_same && checkpoint->name && i < n; i++)
        is_same = strcmp(checkpoint->name[i], set->feature_name[r->columns[i]]) == 0;
    if (is_same)
        return SP_OK;
    sp_dataset_print_names(want, sizeof want, checkpoint->n_columns, checkpoint->name,
                           NULL);
    sp_dataset_print_names(found, sizeof found, n, set->feature_name, r->columns);
    return SP_FAIL(code,
                   "%s: feature columns: checkpoint %s, %s %s; name them by "
                   "data.features in the checkpoint's order",
                   path, want, set->shard[0].path, found);
}

sp_likeness sp_resources_compare_classes(const sp_resources *r,
                                         const sp_normalization *model)
{
    if (!model->class_name)
        return SP_EQUAL;
    return sp_dataset_compare_names(model->n_classes, model->class_name, r->n_classes,
                                    r->class_name);
}

sp_status sp_resources_refuse_classes(const sp_resources *r,
                                      const sp_normalization *model, const char *path,
                                      sp_status code)
{
    char want[300], found[300];

    assert(code != SP_OK && model->class_name);
    sp_dataset_print_names(want, sizeof want, model->n_classes, model->class_name,
                           NULL);
    sp_dataset_print_names(found, sizeof found, r->n_classes, r->class_name, NULL);
    return SP_FAIL(code, "%s: classes %s, but %s has %s", path, want,
                   r->train.shard[0].path, found);
}

sp_status sp_resources_take_classes(sp_resources *r, sp_dataset *set, const char *path)
{
    const sp_normalization *norm = &r->norm;

    if (!norm->class_name)
        return SP_OK;
    SP_TRY(sp_dataset_take_classes(set, norm->n_classes, norm->class_name, path));
    if (set->class_of)
        sp_log_info("%s: classes in another order than those of %s, matched by name",
                    set->shard[0].path, path);
    r->n_classes = norm->n_classes;
    r->class_name = norm->class_name;
    return SP_OK;
}

/* ---- statistics ---- */

/* A column's mean and deviation may differ from the model's by this number of standard
 * deviations without a warning. */
enum { FAR = 5 };

void sp_resources_warn_far(const sp_resources *r, const sp_dataset *set)
{
    const sp_normalization *norm = &r->norm;

    for (int i = 0; norm->mean && set->feature_mean && i < norm->n_columns; i++) {
        const double mean = set->feature_mean[r->columns[i]];
        const double std = set->feature_std[r->columns[i]];

        if (fabs(mean - norm->mean[i]) > FAR * norm->std[i] ||
            fabs(std - norm->std[i]) > FAR * norm->std[i])
            sp_log_warn0("%s: column %s has mean %.6g and standard deviation %.4g, but "
                         "the model was trained on %.6g and %.4g: is it another unit "
                         "or scale?",
                         set->shard[0].path, set->feature_name[r->columns[i]], mean,
                         std, norm->mean[i], norm->std[i]);
    }
}

sp_status sp_resources_normalize(sp_resources *r, const sp_dataset *set)
{
    const sp_config *config = r->config;
    const bool is_given = config->run.init_norm == SP_INIT_NORM_SOURCE;
    sp_normalization *norm = &r->norm;

    assert(r->columns);
    SP_TRY(keep_names(r, set));
    if (!config->data.normalize || !(set->feature_mean || is_given))
        return SP_OK;
    norm->mean = calloc((size_t)r->n_columns, sizeof *norm->mean);
    norm->std = calloc((size_t)r->n_columns, sizeof *norm->std);
    if (!norm->mean || !norm->std)
        return SP_FAIL(SP_EMEM, "out of memory");
    for (int i = 0; i < norm->n_columns; i++) {
        double std = set->feature_std ? set->feature_std[r->columns[i]] : 1;
        norm->mean[i] = set->feature_mean ? set->feature_mean[r->columns[i]] : 0;
        norm->std[i] = std > 0 ? std : 1; /* a constant column becomes 0 */
    }
    return SP_OK;
}

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
static sp_status resources_read_labels(sp_resources *r, int64_t i, sp_sample *sample,
                                       sp_error_record *damage)
{
    const sp_config *config = r->config;
    const bool is_skipping = config->data.on_error == SP_ON_ERROR_SKIP;
    const sp_sample_request request = {.verify = is_skipping && config->data.verify};
    const sp_status rc = sp_sample_read(&r->train, i, &request, sample);

    if (!is_skipping || rc == SP_OK || rc == SP_EMEM)
        return rc;
    sp_error_save(damage);
    sample->n = 0;
    return SP_OK;
}

sp_status sp_resources_check_labels(sp_resources *r)
{
    const sp_dataset *set = &r->train;
    const sp_comm *comm = r->comm;
    sp_sample sample = {0};
    sp_error_record damage = {0};
    int64_t n_found = 0;
    sp_status rc = SP_OK;

    assert(set->n_shards > 0 && "sp_resources_open_data comes first");
    if (!set->has_labels)
        return SP_FAIL(SP_EDATA, "%s: /labels: expected for training, found none",
                       set->shard[0].path);
    if (set->n_samples == 0)
        return SP_FAIL(SP_EDATA, "%s: no samples to train on", set->shard[0].path);
    for (int64_t first = 0; first < set->n_samples && !n_found; first += comm->size) {
        bool is_found = false;

        if (first + comm->rank < set->n_samples)
            rc = resources_read_labels(r, first + comm->rank, &sample, &damage);
        for (int64_t j = 0; rc == SP_OK && !is_found && j < sample.n; j++)
            is_found = is_learned(r->config, sample.labels[j]);
        rc = sp_comm_agree(r->comm, rc);
        n_found = is_found;
        if (rc == SP_OK)
            rc =
                sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, &n_found, 1, SP_I64, SP_SUM);
        if (rc != SP_OK)
            break;
    }
    sp_sample_destroy(&sample);
    SP_TRY(rc);
    if (n_found)
        return SP_OK;
    if (damage.message[0])
        rc = SP_FAIL(SP_EDATA,
                     "%s; of the samples that can be read none has a label: nothing to "
                     "train on",
                     damage.message);
    SP_TRY(sp_comm_agree(r->comm, rc));
    return SP_FAIL(SP_EDATA,
                   "%s: none of the voxels of %lld samples has a label%s, expected "
                   "one at least: nothing to train on (did --map name the codes of "
                   "these scans?)",
                   set->shard[0].path, (long long)set->n_samples,
                   r->config->train.class_weights.kind == SP_CW_LIST
                       ? " of a class whose weight in train.class_weights is above 0"
                       : "");
}

/* Counts the labels of this rank's share of the training set. */
static sp_status count_labels(sp_resources *r, int64_t *count)
{
    sp_error_record damage;
    sp_sample sample = {0};
    sp_status rc = SP_OK;

    for (int64_t i = r->comm->rank; i < r->train.n_samples && rc == SP_OK;
         i += r->comm->size) {
        rc = resources_read_labels(r, i, &sample, &damage);
        for (int64_t j = 0; rc == SP_OK && j < sample.n; j++)
            if (sample.labels[j] != SP_IGNORE)
                count[sample.labels[j]]++;
    }
    sp_sample_destroy(&sample);
    return rc;
}

/* The most labels of a rank that are counted for a warning: a second of reading. Chunks
 * are unpacked for each sample, so there are fewer of those. */
enum { MOST_COUNTED = 1 << 28, MOST_UNPACKED = 1 << 22 };

/* Counts this rank's share; false if a sample cannot be read; the loader reports it
 * when it comes to it. */
static bool resources_count_share(const sp_resources *r, const sp_dataset *set,
                                  int64_t *count)
{
    sp_sample sample = {0};
    bool is_read = true;

    for (int64_t i = r->comm->rank; i < set->n_samples && is_read;
         i += r->comm->size) {
        is_read = sp_sample_read_labels(set, i, &sample) == SP_OK;
        for (int64_t j = 0; is_read && j < sample.n; j++)
            if (sample.labels[j] != SP_IGNORE)
                count[sample.labels[j]]++;
    }
    sp_sample_destroy(&sample);
    return is_read;
}

sp_status sp_resources_count_labels(sp_resources *r, const sp_dataset *set,
                                    int64_t *count, bool *is_known)
{
    int64_t most = MOST_COUNTED, is_missing = 0;

    assert(set->has_labels && count && is_known);
    for (int i = 0; i < set->n_shards; i++)
        if (sp_shard_is_chunked(&set->shard[i]))
            most = MOST_UNPACKED;
    *is_known = false;
    if (set->n_voxels / r->comm->size > most)
        return SP_OK;
    is_missing = !resources_count_share(r, set, count);
    SP_TRY(sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, count,
                             (size_t)r->n_classes, SP_I64, SP_SUM));
    SP_TRY(sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, &is_missing, 1, SP_I64,
                             SP_MAX));
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

sp_status sp_resources_check_class_weights(const sp_resources *r)
{
    const sp_class_weighting *weights = &r->config->train.class_weights;

    if (weights->kind == SP_CW_LIST && weights->list.n != r->n_classes)
        return SP_FAIL(SP_EDATA,
                       "%strain.class_weights has %d numbers, expected %d, one for "
                       "each class of the data",
                       sp_config_where(r->config, "train.class_weights"),
                       weights->list.n, r->n_classes);
    return SP_OK;
}

sp_status sp_resources_check_mixing(sp_resources *r)
{
    bool *is_pasted;
    sp_colors colors;
    sp_status rc = sp_mix_classes(r->config, &r->train, &is_pasted);

    free(is_pasted);
    SP_TRY(rc);
    SP_TRY(sp_bank_open(r->config, &r->train, r->columns, r->n_columns, &r->bank));
    return sp_colors_find(r->config, &r->train, r->columns, r->n_columns, &colors);
}

static sp_status weights_of_list(const sp_resources *r, float *weights)
{
    const sp_doubles *list = &r->config->train.class_weights.list;

    SP_TRY(sp_resources_check_class_weights(r));
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
static sp_status keep_weights(sp_resources *r, const float *weights)
{
    sp_normalization *norm = &r->norm;

    norm->class_weight = calloc((size_t)r->n_classes, sizeof *norm->class_weight);
    if (!norm->class_weight)
        return SP_FAIL(SP_EMEM, "out of memory");
    for (int c = 0; c < r->n_classes; c++)
        norm->class_weight[c] = (double)weights[c];
    return SP_OK;
}

sp_status sp_resources_class_weights(sp_resources *r, float **weights)
{
    const sp_class_weights kind = r->config->train.class_weights.kind;
    size_t n = (size_t)r->n_classes;
    int64_t *count;
    sp_status rc;

    assert(r->n_classes >= 1 && weights);
    *weights = NULL;
    if (kind == SP_CW_NONE)
        return SP_OK;
    *weights = calloc(n, sizeof **weights);
    count = calloc(2 * n, sizeof *count);
    if (!*weights || !count)
        rc = SP_FAIL(SP_EMEM, "out of memory");
    else if (kind == SP_CW_LIST)
        rc = weights_of_list(r, *weights);
    else
        rc = count_labels(r, count);
    rc = sp_comm_agree(r->comm, rc);
    if (rc == SP_OK && kind != SP_CW_LIST) {
        rc = sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, count, n, SP_I64,
                               SP_SUM);
        weights_of_counts(count, (int)n, kind, count + n, *weights);
    }
    free(count);
    SP_TRY(rc);
    scale_weights(*weights, (int)n);
    return sp_comm_agree(r->comm, keep_weights(r, *weights));
}

sp_status sp_resources_kept_class_weights(sp_resources *r, bool is_named,
                                          float **weights)
{
    const sp_normalization *norm = &r->norm;
    const sp_class_weights kind = r->config->train.class_weights.kind;
    size_t n = (size_t)r->n_classes;

    assert(r->n_classes >= 1 && weights);
    *weights = NULL;
    if (is_named ? kind == SP_CW_NONE : !norm->class_weight)
        return SP_OK;
    *weights = calloc(n, sizeof **weights);
    if (!*weights)
        return SP_FAIL(SP_EMEM, "out of memory");
    if (is_named && kind == SP_CW_LIST) {
        SP_TRY(weights_of_list(r, *weights));
    } else if (!norm->class_weight || norm->n_classes != r->n_classes) {
        return SP_FAIL(SP_EDATA,
                       "train.class_weights: the checkpoint has weights of %d classes, "
                       "the data %d classes",
                       norm->class_weight ? norm->n_classes : 0, r->n_classes);
    } else {
        for (int c = 0; c < norm->n_classes; c++)
            (*weights)[c] = (float)norm->class_weight[c];
    }
    scale_weights(*weights, (int)n);
    return SP_OK;
}
