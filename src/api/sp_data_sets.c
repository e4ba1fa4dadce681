/* The data sets of a deck: their indexes. */
#include "api/sp_data_sets.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "data/sp_voxel.h"

/* Opens data.val, or with data.folds the files of data.train that the fold holds out. */
static sp_status data_sets_open_val(sp_data_sets *d, const sp_config *config,
                                    sp_comm *comm)
{
    const sp_fold fold = {config->data.folds, config->data.fold, true};

    if (config->data.folds > 1)
        return sp_dataset_open_fold(&d->val, &config->data.train, &fold, comm);
    return config->data.val.n > 0 ? sp_dataset_open(&d->val, &config->data.val, comm)
                                  : SP_OK;
}

static sp_status data_sets_open_train(sp_data_sets *d, const sp_config *config,
                                      sp_comm *comm)
{
    const sp_fold fold = {config->data.folds, config->data.fold, false};

    return sp_dataset_open_fold(&d->train, &config->data.train,
                                config->data.folds > 1 ? &fold : NULL, comm);
}

/* Opens a set of data.val_sets, "NAME=FILES", whose form the deck's check has seen. */
static sp_status open_val_set(const sp_data_sets *d, const sp_config *config,
                              sp_comm *comm, char *text, sp_val_set *set)
{
    const size_t n = strcspn(text, "=");
    char *files = text + n + 1;
    double factor;

    SP_TRY(sp_comm_agree(comm, (set->name = strndup(text, n))
                                   ? SP_OK
                                   : SP_FAIL(SP_EMEM, "out of memory")));
    SP_TRY(sp_dataset_open(&set->data, &(sp_strings){1, &files}, comm));
    SP_TRY(sp_dataset_match(d->train.n_shards ? &d->train : &d->val, &set->data));
    SP_TRY(sp_voxel_factor(config, &set->data, &factor));
    if (!set->data.has_labels)
        return SP_FAIL(SP_EDATA,
                       "%s: /labels: set %s of data.val_sets is evaluated "
                       "and has no labels",
                       set->data.shard[0].path, set->name);
    if (set->data.n_samples == 0)
        return SP_FAIL(SP_EDATA,
                       "%s: set %s of data.val_sets has no samples, expected one at "
                       "least",
                       set->data.shard[0].path, set->name);
    return SP_OK;
}

sp_status sp_data_sets_open_val_sets(sp_data_sets *d, const sp_config *config,
                                     sp_comm *comm)
{
    const sp_strings *text = &config->data.val_sets;

    SP_TRY(sp_comm_agree(comm, SP_NEW(&d->val_set, text->n, "data.val_sets")));
    for (int i = 0; i < text->n; i++) {
        d->n_val_sets++;
        SP_TRY(open_val_set(d, config, comm, text->at[i], &d->val_set[i]));
    }
    return SP_OK;
}

sp_status sp_data_sets_open(sp_data_sets *d, const sp_config *config, sp_comm *comm,
                            bool with_train, bool with_val)
{
    const sp_dataset *set = with_train ? &d->train : &d->val;
    double factor;

    assert(with_train || with_val);
    assert(!d->train.n_shards && !d->val.n_shards && "the data are opened once");
    if ((with_train || config->data.folds > 1) && config->data.train.n == 0)
        return SP_FAIL(SP_EUSAGE, "data.train is empty: name the training shards");
    if (with_val && !with_train && config->data.val.n == 0 && config->data.folds < 2)
        return SP_FAIL(SP_EUSAGE, "data.val is empty: name the shards to evaluate");
    if (with_train)
        SP_TRY(data_sets_open_train(d, config, comm));
    if (with_val)
        SP_TRY(data_sets_open_val(d, config, comm));
    if (with_train && d->val.n_shards)
        SP_TRY(sp_dataset_match(&d->train, &d->val));
    if (with_train && with_val && config->data.test.n > 0) {
        SP_TRY(sp_dataset_open(&d->test, &config->data.test, comm));
        SP_TRY(sp_dataset_match(&d->train, &d->test));
        SP_TRY(sp_voxel_factor(config, &d->test, &factor));
    }
    if (with_train && d->val.n_shards && config->data.val_sets.n > 0)
        SP_TRY(sp_data_sets_open_val_sets(d, config, comm));
    SP_TRY(sp_voxel_factor(config, set, &factor));
    return d->val.n_shards ? sp_voxel_factor(config, &d->val, &factor) : SP_OK;
}

void sp_data_sets_close(sp_data_sets *d)
{
    sp_dataset_close(&d->train);
    sp_dataset_close(&d->val);
    sp_dataset_close(&d->test);
    for (int i = 0; i < d->n_val_sets; i++) {
        free(d->val_set[i].name);
        sp_dataset_close(&d->val_set[i].data);
    }
    free(d->val_set);
}
