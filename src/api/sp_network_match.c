/* The columns that a network reads and the classes that it knows: chosen from its data,
 * compared with other data and models. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/sp_network.h"
#include "base/sp_list.h"
#include "base/sp_log.h"

/* *copy [n] becomes copies of from[columns[i]] (columns NULL: of from[i]); NULL if from
 * is NULL. */
static sp_status network_copy_texts(int n, char *const *from, const int *columns,
                                    char ***copy)
{
    int i;

    *copy = from ? calloc((size_t)n + 1, sizeof **copy) : NULL;
    for (i = 0; *copy && i < n; i++)
        if (!((*copy)[i] = strdup(from[columns ? columns[i] : i])))
            break;
    return !from || (*copy && i == n) ? SP_OK : SP_FAIL(SP_EMEM, "out of memory");
}

void sp_network_find_vectors(sp_network *network, const sp_recipe *recipe,
                             char *const *name)
{
    network->vectors = sp_recipe_vectors(recipe, network->n_columns, name);
    for (int k = 0; k < network->vectors.n; k++) {
        const sp_vector *v = &network->vectors.at[k];

        sp_log_info("columns %s and %s are %s with the sample", name[v->x], name[v->y],
                    v->is_position ? "positions: they turn, mirror and scale"
                                   : "of normals: they turn and mirror");
    }
    if (network->vectors.lone >= 0)
        sp_log_warn0("column %s is half of a vector and stays as it is where samples "
                     "turn: use x and y, or neither",
                     name[network->vectors.lone]);
}

static sp_status find_vectors(sp_network *network, const sp_dataset *set)
{
    char **name = NULL;
    sp_status rc = network_copy_texts(network->n_columns, set->feature_name,
                                      network->columns, &name);

    if (rc == SP_OK)
        sp_network_find_vectors(network, set->recipe, name);
    sp_h5_list_free(name, name ? network->n_columns : 0);
    return rc;
}

sp_status sp_network_use_columns(sp_network *network, const sp_config *config,
                                 const sp_dataset *set)
{
    SP_TRY(sp_dataset_columns(set, &config->data.features,
                              sp_config_where(config, "data.features"),
                              &network->columns, &network->n_columns));
    network->n_classes = set->n_classes;
    network->class_name = set->class_name;
    return find_vectors(network, set);
}

/* ---- columns and classes ---- */

static sp_status keep_names(sp_network *network, const sp_dataset *set)
{
    sp_normalization *norm = &network->norm;

    norm->n_columns = network->n_columns;
    norm->n_classes = network->n_classes;
    SP_TRY(network_copy_texts(norm->n_columns, set->feature_name, network->columns,
                              &norm->name));
    SP_TRY(
        network_copy_texts(norm->n_classes, set->class_name, NULL, &norm->class_name));
    SP_TRY(
        network_copy_texts(norm->n_classes, set->class_code, NULL, &norm->class_code));
    return sp_recipe_copy(set->recipe, &norm->recipe);
}

sp_status sp_network_match_columns(const sp_network *network, const sp_dataset *set,
                                   const sp_normalization *checkpoint, const char *path,
                                   sp_status code)
{
    const int n = network->n_columns;
    char want[300], found[300];
    bool is_same = !checkpoint->name || checkpoint->n_columns == n;

    assert(code != SP_OK && checkpoint && path);
    assert(network->columns && set->n_shards > 0);
    for (int i = 0; is_same && checkpoint->name && i < n; i++)
        is_same =
            strcmp(checkpoint->name[i], set->feature_name[network->columns[i]]) == 0;
    if (is_same)
        return SP_OK;
    sp_dataset_print_names(want, sizeof want, checkpoint->n_columns, checkpoint->name,
                           NULL);
    sp_dataset_print_names(found, sizeof found, n, set->feature_name, network->columns);
    return SP_FAIL(code,
                   "%s: feature columns: checkpoint %s, %s %s; name them by "
                   "data.features in the checkpoint's order",
                   path, want, set->shard[0].path, found);
}

sp_match sp_network_compare_classes(const sp_network *network,
                                    const sp_normalization *model)
{
    if (!model->class_name)
        return SP_EQUAL;
    return sp_dataset_compare_names(model->n_classes, model->class_name,
                                    network->n_classes, network->class_name);
}

sp_status sp_network_refuse_classes(const sp_network *network, const sp_dataset *set,
                                    const sp_normalization *model, const char *path,
                                    sp_status code)
{
    char want[300], found[300];

    assert(code != SP_OK && model->class_name);
    sp_dataset_print_names(want, sizeof want, model->n_classes, model->class_name,
                           NULL);
    sp_dataset_print_names(found, sizeof found, network->n_classes, network->class_name,
                           NULL);
    return SP_FAIL(code, "%s: classes %s, but %s has %s", path, want,
                   set->shard[0].path, found);
}

sp_status sp_network_match_classes(sp_network *network, sp_dataset *set,
                                   const char *path)
{
    const sp_normalization *norm = &network->norm;

    if (!norm->class_name)
        return SP_OK;
    SP_TRY(sp_dataset_order_classes(set, norm->n_classes, norm->class_name, path));
    if (set->class_of)
        sp_log_info(
            "%s: classes are in another order than in %s; they are matched by name",
            set->shard[0].path, path);
    network->n_classes = norm->n_classes;
    network->class_name = norm->class_name;
    return SP_OK;
}

/* ---- statistics ---- */

/* A column's mean and deviation may differ from the model's by this number of standard
 * deviations without a warning. */
enum { FAR = 5 };

void sp_network_warn_far(const sp_network *network, const sp_dataset *set)
{
    const sp_normalization *norm = &network->norm;

    for (int i = 0; norm->mean && set->feature_mean && i < norm->n_columns; i++) {
        const double mean = set->feature_mean[network->columns[i]];
        const double std = set->feature_std[network->columns[i]];

        if (fabs(mean - norm->mean[i]) > FAR * norm->std[i] ||
            fabs(std - norm->std[i]) > FAR * norm->std[i])
            sp_log_warn0("%s: column %s has mean %.6g and standard deviation %.4g, but "
                         "the model was trained on %.6g and %.4g: is it another unit "
                         "or scale?",
                         set->shard[0].path, set->feature_name[network->columns[i]],
                         mean, std, norm->mean[i], norm->std[i]);
    }
}

sp_status sp_network_normalize(sp_network *network, const sp_config *config,
                               const sp_dataset *set)
{
    const bool is_given = config->run.init_norm == SP_INIT_NORM_SOURCE;
    sp_normalization *norm = &network->norm;

    assert(network->columns);
    SP_TRY(keep_names(network, set));
    if (!config->data.normalize || !(set->feature_mean || is_given))
        return SP_OK;
    SP_TRY(SP_NEW(&norm->mean, network->n_columns, "the normalization"));
    SP_TRY(SP_NEW(&norm->std, network->n_columns, "the normalization"));
    for (int i = 0; i < norm->n_columns; i++) {
        double std = set->feature_std ? set->feature_std[network->columns[i]] : 1;
        norm->mean[i] = set->feature_mean ? set->feature_mean[network->columns[i]] : 0;
        norm->std[i] = std > 0 ? std : 1; /* a constant column becomes 0 */
    }
    return SP_OK;
}
