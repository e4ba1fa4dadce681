/* The bank of objects: a shard that is read at the start. */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/sp_list.h"
#include "data/sp_mix.h"
#include "data/sp_paste_internal.h"

int64_t sp_bank_bytes(const sp_config *config)
{
    struct stat of;

    /* Rows have 12 bytes of coordinates there and here; features may be half of their
     * size there, and a label is a byte there. */
    return sp_paste_is_on(config) && stat(config->augment.paste, &of) == 0
               ? 3 * (int64_t)of.st_size
               : 0;
}

/* ---- the bank ---- */

static sp_status bank_read(sp_bank *bank, const int *columns)
{
    const sp_sample_request request = {
        .columns = columns, .n_columns = bank->n_columns, .verify = true};

    SP_TRY(SP_NEW(&bank->object, bank->set.n_samples, "objects"));
    for (int64_t i = 0; i < bank->set.n_samples; i++)
        SP_TRY(sp_sample_read(&bank->set, i, &request, &bank->object[i]));
    return SP_OK;
}

/* The class of an object: its first label; -1 if it has no row or no label. */
static int bank_class_of(const sp_bank *bank, int64_t i)
{
    return bank->object[i].n > 0 ? (int)bank->object[i].labels[0] : -1;
}

/* Lists the objects by class. */
static sp_status bank_sort(const sp_config *config, const sp_dataset *set,
                           sp_bank *bank)
{
    const int n = (int)bank->set.n_samples;
    bool *is_wanted = NULL;
    int k = 0;

    SP_TRY(SP_NEW(&bank->first, set->n_classes, "objects"));
    SP_TRY(SP_NEW(&bank->member, n, "objects"));
    SP_TRY(sp_mix_find_classes(config, "augment.paste_classes",
                               &config->augment.paste_classes, set, &is_wanted));
    for (int c = 0; c < set->n_classes; c++) {
        if (is_wanted && !is_wanted[c])
            continue;
        for (int i = 0; i < n; i++)
            if (bank_class_of(bank, i) == c)
                bank->member[k++] = i;
        if (k > bank->first[bank->n_classes])
            bank->first[++bank->n_classes] = k;
    }
    free(is_wanted);
    if (k == 0)
        return SP_FAIL(
            SP_EDATA,
            "%saugment.paste: %s: no object of the classes of augment.paste_classes",
            sp_config_where(config, "augment.paste"), config->augment.paste);
    return SP_OK;
}

static sp_status bank_fill(const sp_config *config, const sp_dataset *set,
                           const int *columns, sp_bank *bank)
{
    char *path[1] = {config->augment.paste};
    const sp_strings paths = {1, path};

    SP_TRY(sp_dataset_open(&bank->set, &paths, NULL));
    SP_TRY(sp_dataset_match(set, &bank->set));
    if (bank->set.has_subvoxel != set->has_subvoxel)
        return SP_FAIL(SP_EDATA,
                       "%saugment.paste: %s and %s: only one of them has /subvoxel; "
                       "make the bank from "
                       "the shards of data.train",
                       sp_config_where(config, "augment.paste"), config->augment.paste,
                       set->shard[0].path);
    if (bank->set.n_voxels > 1 << 28 || bank->set.n_samples > 1 << 24)
        return SP_FAIL(
            SP_EDATA,
            "%saugment.paste: %s: %lld voxels of %lld objects, at most %d of %d",
            sp_config_where(config, "augment.paste"), config->augment.paste,
            (long long)bank->set.n_voxels, (long long)bank->set.n_samples, 1 << 28,
            1 << 24);
    SP_TRY(bank_read(bank, columns));
    return bank_sort(config, set, bank);
}

sp_status sp_bank_open(const sp_config *config, const sp_dataset *set,
                       const int *columns, int n_columns, sp_bank **bank)
{
    sp_status rc;

    *bank = NULL;
    if (!sp_paste_is_on(config))
        return SP_OK;
    SP_TRY(SP_NEW(bank, 1, "a bank of objects"));
    (*bank)->n_columns = n_columns;
    rc = bank_fill(config, set, columns, *bank);
    if (rc != SP_OK) {
        sp_bank_close(*bank);
        *bank = NULL;
    }
    return rc;
}

void sp_bank_close(sp_bank *bank)
{
    if (!bank)
        return;
    for (int64_t i = 0; bank->object && i < bank->set.n_samples; i++)
        sp_sample_destroy(&bank->object[i]);
    free(bank->object);
    free(bank->first);
    free(bank->member);
    sp_dataset_close(&bank->set);
    free(bank);
}
