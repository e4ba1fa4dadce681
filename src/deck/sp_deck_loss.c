/* The key train.loss: the name of a term, or a list of terms with their weights. */
#include "deck/sp_deck_keys.h"

#include <assert.h>
#include <libconfig.h>
#include <string.h>

#include "deck/sp_deck_text.h"

#define WEIGHTS "(0, 1e6]"

static const char *const loss_word[] = {SP_LOSSES(SP_CHOICE_WORD)};

static sp_status loss_find(const char *name, const char *where, int *kind)
{
    char nearest[SP_NAME];

    *kind = sp_choice_find(SP_WORDS(SP_LOSSES), name);
    if (*kind >= 0)
        return SP_OK;
    sp_choice_nearest(SP_WORDS(SP_LOSSES), name, nearest);
    return SP_FAIL(SP_EUSAGE,
                   "%s: train.loss: \"%.80s\" is not one of %s; nearest is \"%s\"",
                   where, name, SP_WORDS(SP_LOSSES), nearest);
}

/* Reads { name = "lovasz"; weight = 0.5; }. */
static sp_status loss_read_group(const config_setting_t *group,
                                 const sp_deck_text *from, int *kind, double *weight)
{
    *kind = -1;
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *s = config_setting_get_elem(group, (unsigned)i);
        const char *field = config_setting_name(s), *where = sp_deck_where(from, s);

        if (strcmp(field, "name") == 0 &&
            config_setting_type(s) == CONFIG_TYPE_STRING) {
            SP_TRY(loss_find(config_setting_get_string(s), where, kind));
        } else if (strcmp(field, "weight") == 0 && config_setting_is_number(s)) {
            *weight = config_setting_type(s) == CONFIG_TYPE_FLOAT
                          ? config_setting_get_float(s)
                          : (double)config_setting_get_int64(s);
            if (!sp_deck_in_range(WEIGHTS, *weight))
                return SP_FAIL(SP_EUSAGE,
                               "%s: train.loss: weight = %.15g is out of range %s",
                               where, *weight, WEIGHTS);
        } else {
            return SP_FAIL(SP_EUSAGE,
                           "%s: train.loss: a term takes name = \"...\" and weight = a "
                           "number, found %.80s = %s",
                           where, field, sp_deck_describe(s));
        }
    }
    return *kind >= 0 ? SP_OK
                      : SP_FAIL(SP_EUSAGE,
                                "%s: train.loss: a term has no name, "
                                "expected one of %s",
                                sp_deck_where(from, group), SP_WORDS(SP_LOSSES));
}

static sp_status loss_read_term(sp_loss_mix *mix, const config_setting_t *s,
                                const sp_deck_text *from)
{
    const config_setting_t *first =
        config_setting_is_group(s) ? config_setting_get_elem(s, 0) : NULL;
    const char *where = sp_deck_where(from, first ? first : s);
    double weight = 1;
    int kind;

    if (config_setting_type(s) == CONFIG_TYPE_STRING)
        SP_TRY(loss_find(config_setting_get_string(s), where, &kind));
    else if (config_setting_is_group(s))
        SP_TRY(loss_read_group(s, from, &kind, &weight));
    else
        return SP_FAIL(SP_EUSAGE,
                       "%s: train.loss takes one of %s or a list of { name = \"...\"; "
                       "weight = 1.0; }, found %s",
                       where, SP_WORDS(SP_LOSSES), sp_deck_describe(s));
    if (mix->weight[kind] > 0)
        return SP_FAIL(SP_EUSAGE, "%s: train.loss has the term \"%s\" twice", where,
                       loss_word[kind]);
    mix->weight[kind] = weight;
    return SP_OK;
}

sp_status sp_deck_read_loss(sp_loss_mix *mix, const config_setting_t *s,
                            const sp_deck_text *from)
{
    const bool is_list = config_setting_is_list(s) || config_setting_is_array(s);
    sp_loss_mix read = {0};

    assert(mix && s);
    if (!is_list)
        SP_TRY(loss_read_term(&read, s, from));
    for (int i = 0; is_list && i < config_setting_length(s); i++)
        SP_TRY(loss_read_term(&read, config_setting_get_elem(s, (unsigned)i), from));
    if (is_list && config_setting_length(s) == 0)
        return SP_FAIL(SP_EUSAGE,
                       "%s: train.loss is an empty list, expected one term at least",
                       sp_deck_where(from, s));
    *mix = read;
    return SP_OK;
}

sp_status sp_deck_set_loss(sp_loss_mix *mix, const char *name, const char *where)
{
    int kind;

    SP_TRY(loss_find(name, where, &kind));
    *mix = (sp_loss_mix){0};
    mix->weight[kind] = 1;
    return SP_OK;
}

bool sp_loss_mix_is(const sp_loss_mix *mix, sp_loss_kind kind)
{
    for (int i = 0; i < SP_N_LOSSES; i++)
        if (mix->weight[i] != (double)(i == (int)kind))
            return false;
    return true;
}

void sp_deck_write_loss(FILE *to, const sp_loss_mix *mix)
{
    const char *before = "( ";

    for (int i = 0; i < SP_N_LOSSES; i++)
        if (sp_loss_mix_is(mix, (sp_loss_kind)i)) {
            fprintf(to, "\"%s\"", loss_word[i]);
            return;
        }
    for (int i = 0; i < SP_N_LOSSES; i++)
        if (mix->weight[i] > 0) {
            fprintf(to, "%s{ name = \"%s\"; weight = ", before, loss_word[i]);
            sp_deck_write_real(to, mix->weight[i]);
            fputs("; }", to);
            before = ", ";
        }
    fputs(" )", to);
}
