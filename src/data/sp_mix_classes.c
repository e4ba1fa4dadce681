/* The classes that keys of augmentation name. */
#include <stdlib.h>

#include "base/sp_list.h"
#include "base/sp_text.h"
#include "data/sp_mix.h"

/* The class that a word names: by its name, else by its number; -1 if not found. */
static int class_of(const sp_dataset *set, const char *word)
{
    const int named = sp_text_find(set->n_classes, set->class_name, word);
    char *end;
    long number;

    if (named >= 0)
        return named;
    number = strtol(word, &end, 10);
    return end > word && !*end && 0 <= number && number < set->n_classes ? (int)number
                                                                         : -1;
}

sp_status sp_mix_find_classes(const sp_config *config, const char *key,
                              const sp_strings *words, const sp_dataset *set,
                              bool **is_named)
{
    char classes[300];

    *is_named = NULL;
    if (words->n == 0)
        return SP_OK;
    SP_TRY(SP_NEW(is_named, set->n_classes, "classes"));
    for (int i = 0; i < words->n; i++) {
        const int found = class_of(set, words->at[i]);

        if (found >= 0) {
            (*is_named)[found] = true;
            continue;
        }
        free(*is_named);
        *is_named = NULL;
        sp_dataset_print_names(classes, sizeof classes, set->n_classes, set->class_name,
                               NULL);
        return SP_FAIL(SP_EDATA,
                       "%s%s: \"%.80s\" is no class of %s, expected names of %s or "
                       "numbers from 0 to %d",
                       sp_config_where(config, key), key, words->at[i],
                       set->shard[0].path, classes, set->n_classes - 1);
    }
    return SP_OK;
}

sp_status sp_mix_classes(const sp_config *config, const sp_dataset *set,
                         bool **is_pasted)
{
    const sp_mixing mix = config->augment.mix;

    *is_pasted = NULL;
    if (mix != SP_MIX_POLAR && mix != SP_MIX_LASERPOLAR)
        return SP_OK;
    return sp_mix_find_classes(config, "augment.mix_classes",
                               &config->augment.mix_classes, set, is_pasted);
}
