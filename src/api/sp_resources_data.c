/* The data: indexes, columns, classes and feature statistics. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/sp_resources.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
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
        return sp_dataset_open_fold(&r->val, &config->data.train, &fold, r->comm);
    return config->data.val.n > 0 ? sp_dataset_open(&r->val, &config->data.val, r->comm)
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
    SP_TRY(sp_dataset_match(r->train.n_shards ? &r->train : &r->val, &set->data));
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

sp_status sp_resources_open_set_data(sp_resources *r)
{
    const sp_strings *text = &r->config->data.val_sets;

    r->val_set = calloc((size_t)text->n + 1, sizeof *r->val_set);
    SP_TRY(
        sp_comm_agree(r->comm, r->val_set ? SP_OK : SP_FAIL(SP_EMEM, "out of memory")));
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
        SP_TRY(sp_resources_open_set_data(r));
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

sp_match sp_resources_compare_classes(const sp_resources *r,
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
        sp_log_info(
            "%s: classes are in another order than in %s; they are matched by name",
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
    SP_TRY(SP_NEW(&norm->mean, r->n_columns, "the normalization"));
    SP_TRY(SP_NEW(&norm->std, r->n_columns, "the normalization"));
    for (int i = 0; i < norm->n_columns; i++) {
        double std = set->feature_std ? set->feature_std[r->columns[i]] : 1;
        norm->mean[i] = set->feature_mean ? set->feature_mean[r->columns[i]] : 0;
        norm->std[i] = std > 0 ? std : 1; /* a constant column becomes 0 */
    }
    return SP_OK;
}
