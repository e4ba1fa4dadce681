/* Checks that two data sets, or a data set and a model, mean the same by their columns
 * and by their classes. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "data/sp_shard.h"

enum { LIST = 300 /* the bytes of a list of names in a message */ };

void sp_dataset_print_names(char *text, size_t size, int n, char *const *name,
                            const int *columns)
{
    size_t used = (size_t)snprintf(text, size, "[");

    assert(size > 0 && n >= 0);
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", i ? ", " : "",
                                 name[columns ? columns[i] : i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

sp_match sp_dataset_compare_names(int n_a, char *const *a, int n_b, char *const *b)
{
    bool is_equal = n_a == n_b;

    assert(n_a >= 0 && n_b >= 0);
    for (int i = 0; is_equal && i < n_a; i++)
        is_equal = strcmp(a[i], b[i]) == 0;
    if (is_equal)
        return SP_EQUAL;
    for (int i = 0; n_a == n_b && i < n_a; i++)
        if (sp_text_find(n_b, b, a[i]) < 0 || sp_text_find(i, a, a[i]) >= 0)
            return SP_OTHER_NAMES;
    return n_a == n_b ? SP_OTHER_ORDER : SP_OTHER_NAMES;
}

static sp_status refuse(const sp_dataset *set, int n, char *const *name,
                        const char *whose)
{
    char want[LIST], found[LIST];

    sp_dataset_print_names(want, sizeof want, n, name, NULL);
    sp_dataset_print_names(found, sizeof found, set->n_classes, set->class_name, NULL);
    return SP_FAIL(SP_EDATA,
                   "%s: classes %s, but %s has %s; convert the scans with the same "
                   "--map",
                   set->shard[0].path, found, whose, want);
}

sp_status sp_dataset_order_classes(sp_dataset *set, int n, char *const *name,
                                   const char *whose)
{
    assert(n > 0 && name);
    if (!set->has_labels)
        return SP_OK;
    switch (sp_dataset_compare_names(set->n_classes, set->class_name, n, name)) {
    case SP_EQUAL:
        return SP_OK;
    case SP_OTHER_NAMES:
        return refuse(set, n, name, whose);
    case SP_OTHER_ORDER:
        break;
    }
    SP_TRY(SP_NEW(&set->class_of, n, "the order of the classes"));
    for (int i = 0; i < n; i++)
        set->class_of[i] = sp_text_find(n, name, set->class_name[i]);
    return SP_OK;
}

/* ---- recipes ---- */

sp_status sp_dataset_match_recipe(const sp_dataset *set, const sp_recipe *recipe,
                                  const char *whose)
{
    char text[SP_RECIPE_DIFFERENCE];

    switch (sp_recipe_compare(recipe, set->recipe, text)) {
    case SP_RECIPE_OTHER_UNIT:
        return SP_FAIL(SP_EDATA, "%s and %s: %s", whose, set->shard[0].path, text);
    case SP_RECIPE_OTHER_VALUES:
        sp_log_warn0("%s and %s: %s; convert the scans with the same --features", whose,
                     set->shard[0].path, text);
        break;
    case SP_RECIPE_SAME:
    case SP_RECIPE_OTHER_CUT: /* a voxel of another block is a voxel */
        break;
    }
    return SP_OK;
}

/* ---- train and val ---- */

/* array [n] of elements of 8 bytes, NULL: element i becomes what from[i] was. */
static void reorder(void *array, int n, const int *from, void *room)
{
    if (!array)
        return;
    memcpy(room, array, (size_t)n * 8);
    for (int i = 0; i < n; i++)
        memcpy((char *)array + 8 * i, (char *)room + 8 * from[i], 8);
}

/* val has train's columns in another order. */
static sp_status reorder_columns(const sp_dataset *train, sp_dataset *val)
{
    const int n = val->n_features;
    SP_FREED uint64_t *room = NULL;

    SP_TRY(SP_NEW(&room, n, "the order of columns"));
    SP_TRY(SP_NEW(&val->column_of, n, "the order of columns"));
    for (int i = 0; i < n; i++)
        val->column_of[i] = sp_text_find(n, val->feature_name, train->feature_name[i]);
    reorder(val->feature_name, n, val->column_of, room);
    reorder(val->feature_mean, n, val->column_of, room);
    reorder(val->feature_std, n, val->column_of, room);
    sp_log_info(
        "%s: feature columns are in another order than in %s; they are matched by name",
        val->shard[0].path, train->shard[0].path);
    return SP_OK;
}

static sp_status match_columns(const sp_dataset *train, sp_dataset *val)
{
    const char *a = train->shard[0].path, *b = val->shard[0].path;

    if (sp_dataset_compare_names(train->n_features, train->feature_name,
                                 val->n_features, val->feature_name) == SP_OTHER_ORDER)
        return reorder_columns(train, val);
    if (train->n_features != val->n_features)
        return SP_FAIL(SP_EDATA, "%s has %d feature columns, training data %s have %d",
                       b, val->n_features, a, train->n_features);
    for (int i = 0; i < train->n_features; i++)
        if (strcmp(train->feature_name[i], val->feature_name[i]) != 0)
            return SP_FAIL(SP_EDATA,
                           "%s: number %d of feature columns is \"%s\", in training "
                           "data %s \"%s\"",
                           b, i, val->feature_name[i], a, train->feature_name[i]);
    return SP_OK;
}

sp_status sp_dataset_match(const sp_dataset *train, sp_dataset *val)
{
    const char *a = train->shard[0].path, *b = val->shard[0].path;

    assert(train->n_shards > 0 && val->n_shards > 0);
    if (fabs(train->voxel_size - val->voxel_size) > 1e-6 * train->voxel_size)
        return SP_FAIL(SP_EDATA, "%s has voxel_size %.9g, training data %s have %.9g",
                       b, val->voxel_size, a, train->voxel_size);
    SP_TRY(sp_dataset_order_classes(val, train->n_classes, train->class_name, a));
    SP_TRY(sp_dataset_match_recipe(val, train->recipe, a));
    return match_columns(train, val);
}
