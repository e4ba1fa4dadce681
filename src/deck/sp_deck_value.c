/* Reads one value of a deck into its field of sp_config. sp_deck_text has made every
 * integer 64 bits wide and every array a list. */
#include "deck/sp_deck_keys.h"

#include <assert.h>
#include <libconfig.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_env.h"
#include "base/sp_list.h"
#include "deck/sp_deck_text.h"

enum { WHERE_BYTES = 512 };

const char *sp_deck_where(const sp_deck_text *from, const config_setting_t *setting)
{
    static _Thread_local char where[WHERE_BYTES];
    int line;
    const char *file;

    if (!from)
        return "command line";
    /* elements of lists have no line of their own */
    while (setting && config_setting_source_line(setting) == 0)
        setting = config_setting_parent(setting);
    line = setting ? (int)config_setting_source_line(setting) : 1;
    file = sp_deck_text_place(from, line, &line);
    snprintf(where, sizeof where, "%s:%d", file, line);
    return where;
}

const char *sp_deck_describe(const config_setting_t *s)
{
    static _Thread_local char text[128];

    switch (config_setting_type(s)) {
    case CONFIG_TYPE_STRING:
        snprintf(text, sizeof text, "the text \"%.80s\"", config_setting_get_string(s));
        break;
    case CONFIG_TYPE_BOOL:
        return config_setting_get_bool(s) ? "true" : "false";
    case CONFIG_TYPE_FLOAT:
        snprintf(text, sizeof text, "%.15g, a number that is no integer",
                 config_setting_get_float(s));
        break;
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        snprintf(text, sizeof text, "the integer %lld", config_setting_get_int64(s));
        break;
    case CONFIG_TYPE_GROUP:
        return "a group { }";
    default:
        return "a list";
    }
    return text;
}

static sp_status wrong_type(const sp_key *key, const char *takes, const char *where,
                            const config_setting_t *found)
{
    return SP_FAIL(SP_EUSAGE, "%s: %s.%s takes %s, found %s", where, key->section,
                   key->name, takes, sp_deck_describe(found));
}

static bool is_list(const config_setting_t *s)
{
    return config_setting_is_list(s) || config_setting_is_array(s);
}

static bool is_integer(const config_setting_t *s)
{
    return config_setting_is_number(s) && config_setting_type(s) != CONFIG_TYPE_FLOAT;
}

static double deck_number(const config_setting_t *s)
{
    return is_integer(s) ? (double)config_setting_get_int64(s)
                         : config_setting_get_float(s);
}

static sp_status deck_check_range(const sp_key *key, double value, const char *where)
{
    const char *range = key->range ? key->range : "(-inf, inf)";

    if (!sp_deck_in_range(range, value))
        return SP_FAIL(SP_EUSAGE, "%s: %s.%s = %.15g is out of range %s", where,
                       key->section, key->name, value, range);
    return SP_OK;
}

static sp_status set_string(char **to, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return SP_FAIL(SP_EMEM, "no memory for a text");
    free(*to);
    *to = copy;
    return SP_OK;
}

void sp_strings_free(sp_strings *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->at[i]);
    free(s->at);
    *s = (sp_strings){0};
}

sp_status sp_strings_add(sp_strings *to, const char *text)
{
    if (!sp_list_grow(&to->at, to->n, sizeof *to->at) ||
        !(to->at[to->n] = strdup(text)))
        return SP_FAIL(SP_EMEM, "no memory for a text");
    to->n++;
    return SP_OK;
}

sp_status sp_deck_read_strings(sp_strings *to, const config_setting_t *s,
                               const char *what, const char *where)
{
    int n = is_list(s) ? config_setting_length(s) : 1;

    assert(to && s && what && where);
    sp_strings_free(to);
    for (int i = 0; i < n; i++) {
        const config_setting_t *e =
            is_list(s) ? config_setting_get_elem(s, (unsigned)i) : s;

        if (config_setting_type(e) != CONFIG_TYPE_STRING)
            return SP_FAIL(SP_EUSAGE, "%s: %s takes a list of texts, found %s", where,
                           what, sp_deck_describe(e));
        SP_TRY(sp_strings_add(to, config_setting_get_string(e)));
    }
    return SP_OK;
}

static sp_status deck_read_numbers(const sp_key *key, sp_doubles *to,
                                   const config_setting_t *s, const char *where)
{
    int n = is_list(s) ? config_setting_length(s) : 0;

    free(to->at);
    *to = (sp_doubles){0};
    if (!is_list(s))
        return wrong_type(key, "a list of numbers", where, s);
    SP_TRY(SP_NEW(&to->at, n, "a list of numbers"));
    for (int i = 0; i < n; i++) {
        const config_setting_t *e = config_setting_get_elem(s, (unsigned)i);
        bool is_right =
            key->type == SP_KEY_INTS ? is_integer(e) : config_setting_is_number(e);

        if (!is_right)
            return wrong_type(key,
                              key->type == SP_KEY_INTS ? "a list of integers"
                                                       : "a list of numbers",
                              where, e);
        SP_TRY(deck_check_range(key, deck_number(e), where));
        to->at[to->n++] = deck_number(e);
    }
    return SP_OK;
}

static sp_status set_resume(sp_resume *resume, const char *text)
{
    static const char *const word[] = {SP_RESUMES(SP_CHOICE_WORD)};
    int i = 0;

    while (i < SP_RESUME_FILE && strcmp(word[i], text) != 0)
        i++;
    resume->from = (sp_resume_from)i;
    return set_string(&resume->text, text);
}

sp_status sp_deck_set_text(sp_config *config, const sp_key *key, const char *text,
                           const char *where)
{
    void *field = sp_key_field(config, key);
    char nearest[SP_NAME];
    int i;

    assert(config && key && text && where);
    if (key->type == SP_KEY_TEXT)
        return set_string(field, text);
    if (key->type == SP_KEY_RESUME)
        return set_resume(field, text);
    if (key->type == SP_KEY_TEXTS) {
        sp_strings_free(field);
        return sp_strings_add(field, text);
    }
    if (key->type == SP_KEY_LOSS)
        return sp_deck_set_loss(field, text, where);
    i = sp_choice_find(key->names, text);
    if (i < 0) {
        sp_choice_nearest(key->names, text, nearest);
        return SP_FAIL(SP_EUSAGE,
                       "%s: %s.%s = \"%.80s\" is not one of %s; nearest is \"%s\"",
                       where, key->section, key->name, text, key->names, nearest);
    }
    if (key->type == SP_KEY_WEIGHTS)
        config->train.class_weights.kind = (sp_class_weights)i;
    else
        *(int *)field = i;
    return SP_OK;
}

/* True for 1000 and for 1e3. */
static bool deck_is_whole(const config_setting_t *s)
{
    const double exact = 1LL << 53;

    return is_integer(s) ||
           (config_setting_type(s) == CONFIG_TYPE_FLOAT &&
            fabs(deck_number(s)) <= exact && deck_number(s) == floor(deck_number(s)));
}

static sp_status set_integer(void *field, const sp_key *key, const config_setting_t *s,
                             const char *where)
{
    long long value;

    if (!deck_is_whole(s))
        return wrong_type(key, "an integer", where, s);
    value = is_integer(s) ? config_setting_get_int64(s) : (long long)deck_number(s);
    SP_TRY(deck_check_range(key, (double)value, where));
    if (key->type == SP_KEY_INT64)
        *(int64_t *)field = value;
    else if (value > INT_MAX)
        return SP_FAIL(SP_EUSAGE, "%s: %s.%s = %lld is above %d", where, key->section,
                       key->name, value, INT_MAX);
    else
        *(int *)field = (int)value;
    return SP_OK;
}

static sp_status set_words(sp_config *config, const sp_key *key,
                           const config_setting_t *s, const char *where)
{
    if (key->type == SP_KEY_WEIGHTS && is_list(s)) {
        config->train.class_weights.kind = SP_CW_LIST;
        return deck_read_numbers(key, &config->train.class_weights.list, s, where);
    }
    if (config_setting_type(s) == CONFIG_TYPE_STRING)
        return sp_deck_set_text(config, key, config_setting_get_string(s), where);
    /* A key with true and false among its names was a flag once. */
    if (config_setting_type(s) == CONFIG_TYPE_BOOL && key->names &&
        sp_choice_find(key->names, sp_deck_describe(s)) >= 0)
        return sp_deck_set_text(config, key, sp_deck_describe(s), where);
    if (key->type == SP_KEY_TEXT || key->type == SP_KEY_RESUME)
        return wrong_type(key, "a text in quotation marks", where, s);
    return SP_FAIL(SP_EUSAGE, "%s: %s.%s takes one of %s%s, found %s", where,
                   key->section, key->name, key->names,
                   key->type == SP_KEY_WEIGHTS ? " or a list of numbers" : "",
                   sp_deck_describe(s));
}

sp_status sp_deck_set(sp_config *config, const sp_key *key, const config_setting_t *s,
                      const sp_deck_text *from)
{
    const char *where = sp_deck_where(from, s);
    void *field = sp_key_field(config, key);
    char path[2 * SP_NAME];

    assert(config && key && s);
    switch (key->type) {
    case SP_KEY_BOOL:
        if (config_setting_type(s) != CONFIG_TYPE_BOOL)
            return wrong_type(key, "true or false", where, s);
        *(bool *)field = config_setting_get_bool(s);
        return SP_OK;
    case SP_KEY_INT:
    case SP_KEY_INT64:
        return set_integer(field, key, s, where);
    case SP_KEY_REAL:
        if (!config_setting_is_number(s))
            return wrong_type(key, "a number", where, s);
        SP_TRY(deck_check_range(key, deck_number(s), where));
        *(double *)field = deck_number(s);
        return SP_OK;
    case SP_KEY_REALS:
    case SP_KEY_INTS:
        return deck_read_numbers(key, field, s, where);
    case SP_KEY_TEXTS:
        snprintf(path, sizeof path, "%s.%s", key->section, key->name);
        return sp_deck_read_strings(field, s, path, where);
    case SP_KEY_LOSS:
        return sp_deck_read_loss(field, s, from);
    case SP_KEY_LAYERS:
        if (!is_list(s))
            return wrong_type(key, "a list ( ) of layers", where, s);
        return sp_deck_read_layers(config, s, from);
    default:
        return set_words(config, key, s, where);
    }
}

static sp_status expand_text(const sp_config *config, const char *key, char **text)
{
    const char *home = sp_env("HOME"), *rest = *text + 1;
    char *path;

    if (**text != '~')
        return SP_OK;
    if (*rest && *rest != '/')
        return strchr(rest, '/') ? SP_FAIL(SP_EUSAGE,
                                           "%s%s = \"%.200s\": expected ~/ or a whole "
                                           "path (./~ for a folder of this name)",
                                           sp_config_where(config, key), key, *text)
                                 : SP_OK;
    if (!home || !*home)
        return SP_FAIL(SP_EUSAGE,
                       "%s%s = \"%.200s\": the variable HOME is not set; write the "
                       "whole path",
                       sp_config_where(config, key), key, *text);
    if (asprintf(&path, "%s%s", home, rest) < 0)
        return SP_FAIL(SP_EMEM, "deck: out of memory");
    free(*text);
    *text = path;
    return SP_OK;
}

sp_status sp_deck_expand_home(sp_config *config)
{
    assert(config);
    for (const char *const *name = sp_deck_paths; *name; name++) {
        const sp_key *key = sp_deck_find(*name);
        void *field = sp_key_field(config, key);

        if (key->type == SP_KEY_TEXT)
            SP_TRY(expand_text(config, *name, field));
        if (key->type == SP_KEY_RESUME)
            SP_TRY(expand_text(config, *name, &config->run.resume.text));
        for (int i = 0; key->type == SP_KEY_TEXTS && i < ((sp_strings *)field)->n; i++)
            SP_TRY(expand_text(config, *name, &((sp_strings *)field)->at[i]));
    }
    return SP_OK;
}

void sp_deck_free_value(sp_config *config, const sp_key *key)
{
    void *field = sp_key_field(config, key);

    if (key->type == SP_KEY_TEXT) {
        free(*(char **)field);
    } else if (key->type == SP_KEY_RESUME) {
        free(config->run.resume.text);
    } else if (key->type == SP_KEY_TEXTS) {
        sp_strings_free(field);
    } else if (key->type == SP_KEY_REALS || key->type == SP_KEY_INTS) {
        free(((sp_doubles *)field)->at);
    } else if (key->type == SP_KEY_WEIGHTS) {
        free(config->train.class_weights.list.at);
    } else if (key->type == SP_KEY_LAYERS) {
        sp_layers_destroy(config->net.layers, config->net.n_layers);
    }
}
