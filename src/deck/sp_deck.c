#include "deck/sp_deck.h"

#include <assert.h>
#include <libconfig.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "deck/sp_deck_keys.h"
#include "deck/sp_deck_text.h"

static sp_status unknown_key(const char *where, const char *path)
{
    const sp_key *near = sp_deck_nearest_key(path);

    return SP_FAIL(SP_EUSAGE, "%s: unknown key %.80s; nearest is %s.%s", where, path,
                   near->section, near->name);
}

static void mark(sp_config *config, const sp_key *key, enum sp_origin origin,
                 const char *place)
{
    int i = (int)(key - sp_deck_key);

    config->origin[i] = (unsigned char)origin;
    free(config->place[i]);
    config->place[i] = origin == SP_FROM_DEFAULT ? NULL : strdup(place);
}

/* ---- a deck ---- */

static sp_status read_section(sp_config *config, const config_setting_t *section,
                              const sp_deck_text *from, enum sp_origin origin)
{
    const char *name = config_setting_name(section);
    char path[2 * SP_NAME];

    if (!config_setting_is_group(section) && !sp_deck_is_section(name))
        return unknown_key(sp_deck_where(from, section), name);
    if (!sp_deck_is_section(name))
        return SP_FAIL(SP_EUSAGE, "%s: unknown section %.80s; nearest is %s",
                       sp_deck_where(from, section), name,
                       sp_deck_nearest_section(name));
    if (!config_setting_is_group(section))
        return SP_FAIL(SP_EUSAGE, "%s: section %s takes a group { }, found %s",
                       sp_deck_where(from, section), name, sp_deck_describe(section));
    for (int i = 0; i < config_setting_length(section); i++) {
        const config_setting_t *s = config_setting_get_elem(section, (unsigned)i);
        const sp_key *key;

        snprintf(path, sizeof path, "%s.%.80s", name, config_setting_name(s));
        key = sp_deck_find(path);
        if (!key)
            return unknown_key(sp_deck_where(from, s), path);
        SP_TRY(sp_deck_set(config, key, s, from));
        mark(config, key, origin, sp_deck_where(from, s));
    }
    return SP_OK;
}

static sp_status parse_text(const sp_deck_text *text, config_t *parsed)
{
    const char *file, *begin = text->shown;
    int line, n;

    config_set_auto_convert(parsed, CONFIG_FALSE);
    if (config_read_string(parsed, text->text))
        return SP_OK;
    for (int i = 1; i < config_error_line(parsed) && strchr(begin, '\n'); i++)
        begin = strchr(begin, '\n') + 1;
    begin += strspn(begin, " \t");
    n = (int)strcspn(begin, "\n");
    file = sp_deck_text_place(text, config_error_line(parsed), &line);
    return SP_FAIL(SP_EUSAGE, "%s:%d: %s, in or just before: %.*s", file, line,
                   config_error_text(parsed), n ? n : INT_MAX,
                   n ? begin : "the end of the file");
}

static sp_status deck_read(sp_config *config, const sp_deck_text *text,
                           enum sp_origin origin)
{
    SP_CLOSED_BY(config_destroy) config_t parsed;
    const config_setting_t *root;

    config_init(&parsed);
    SP_TRY(parse_text(text, &parsed));
    root = config_root_setting(&parsed);
    for (int i = 0; i < config_setting_length(root); i++)
        SP_TRY(read_section(config, config_setting_get_elem(root, (unsigned)i), text,
                            origin));
    return SP_OK;
}

/* The defaults as the text of a deck, malloc'd. */
static sp_status write_defaults(char **deck)
{
    size_t size;
    FILE *to = open_memstream(deck, &size);

    for (int i = 0; to && i < sp_deck_n_keys; i++) {
        sp_deck_write_section(to, i);
        fprintf(to, "%s = %s;\n%s", sp_deck_key[i].name, sp_deck_key[i].standard,
                i + 1 < sp_deck_n_keys ? "" : "};\n");
    }
    return to && fclose(to) == 0 ? SP_OK : SP_FAIL(SP_EMEM, "deck: out of memory");
}

static sp_status read_defaults(sp_config *config)
{
    SP_CLOSED_BY(sp_deck_text_destroy) sp_deck_text text = {0};
    SP_FREED char *deck = NULL;

    *config = (sp_config){0};
    SP_TRY(write_defaults(&deck));
    SP_TRY(sp_deck_text_string(&text, deck, "defaults"));
    return deck_read(config, &text, SP_FROM_DEFAULT);
}

/* ---- the command line ---- */

static bool is_as_it_stands(const sp_key *key, const char *value)
{
    switch (key->type) {
    case SP_KEY_TEXT:
    case SP_KEY_RESUME:
    case SP_KEY_CHOICE:
        return *value != '"';
    case SP_KEY_TEXTS:
    case SP_KEY_LOSS:
    case SP_KEY_WEIGHTS:
        return *value && !strchr("\"[(", *value);
    default:
        return false;
    }
}

/* Sets a value that is written in the deck's grammar, by parsing a deck of this one
 * setting. */
static sp_status set_in_grammar(sp_config *config, const sp_key *key, const char *value)
{
    SP_CLOSED_BY(sp_deck_text_destroy) sp_deck_text text = {0};
    SP_CLOSED_BY(config_destroy) config_t parsed;
    SP_FREED char *deck = NULL;
    sp_status rc;

    config_init(&parsed);
    if (!value[strspn(value, " \t")])
        return SP_FAIL(SP_EUSAGE,
                       "command line: %s.%s takes a value (%s), found nothing",
                       key->section, key->name, sp_deck_type_name(key->type));
    if (asprintf(&deck, "value = %s\n;", value) < 0)
        return SP_FAIL(SP_EMEM, "deck: out of memory");
    rc = sp_deck_text_string(&text, deck, "command line");
    if (rc == SP_EUSAGE || rc == SP_EDATA ||
        (rc == SP_OK && (!config_read_string(&parsed, text.text) ||
                         config_setting_length(config_root_setting(&parsed)) != 1)))
        rc = SP_FAIL(SP_EUSAGE, "command line: %s.%s = %.80s is no %s as a deck has it",
                     key->section, key->name, value, sp_deck_type_name(key->type));
    SP_TRY(rc);
    return sp_deck_set(config, key,
                       config_setting_get_elem(config_root_setting(&parsed), 0), NULL);
}

static sp_status override(sp_config *config, const char *text)
{
    const char *equals = strchr(text, '=');
    const sp_key *key;
    char path[2 * SP_NAME];

    if (!equals)
        return SP_FAIL(SP_EUSAGE, "command line: \"%.80s\" is no SECTION.KEY=VALUE",
                       text);
    snprintf(path, sizeof path, "%.*s", (int)(equals - text), text);
    key = sp_deck_find(path);
    if (!key)
        return unknown_key("command line", path);
    if (is_as_it_stands(key, equals + 1))
        SP_TRY(sp_deck_set_text(config, key, equals + 1, "command line"));
    else
        SP_TRY(set_in_grammar(config, key, equals + 1));
    mark(config, key, SP_FROM_COMMAND_LINE, "command line");
    if (!strcmp(path, "net.family")) { /* a family replaces the layers of the deck */
        sp_layers_destroy(config->net.layers, config->net.n_layers);
        config->net.layers = NULL;
        config->net.n_layers = 0;
    }
    return SP_OK;
}

/* ---- the whole config ---- */

/* The batch norms of Pointcept's SpUNet have numbers of their own. */
static void set_norms_of_family(sp_config *config)
{
    if (config->net.n_layers > 0 || config->net.family != SP_SPUNET)
        return;
    if (!sp_config_is_set(config, "net.bn_eps"))
        config->net.bn_eps = 1e-3;
    if (!sp_config_is_set(config, "net.bn_momentum"))
        config->net.bn_momentum = 0.01;
}

static sp_status deck_override(sp_config *config, int n, char *const *overrides)
{
    for (int i = 0; i < n; i++)
        SP_TRY(override(config, overrides[i]));
    return SP_OK;
}

static sp_status deck_finish(sp_config *config)
{
    SP_TRY(sp_deck_expand_home(config));
    SP_TRY(sp_deck_check_together(config));
    if (!sp_config_is_set(config, "net.kernel_down") && config->net.n_layers == 0)
        config->net.kernel_down = config->net.family == SP_DUMMY ? 3 : 2;
    set_norms_of_family(config);
    sp_deck_warn_unused(config);
    return SP_OK;
}

/* Reads a deck's text, which is destroyed, unless making it has failed with rc. */
static sp_status use_text(sp_config *config, sp_deck_text *text, sp_status rc)
{
    if (rc == SP_OK)
        rc = deck_read(config, text, SP_FROM_DECK);
    sp_deck_text_destroy(text);
    return rc;
}

sp_status sp_config_read(sp_config *config, const char *path, int n_overrides,
                         char *const *overrides)
{
    sp_deck_text text = {0};

    assert(config && (overrides || n_overrides == 0));
    SP_TRY(read_defaults(config));
    if (path)
        SP_TRY(use_text(config, &text, sp_deck_text_file(&text, path)));
    SP_TRY(deck_override(config, n_overrides, overrides));
    SP_TRY(deck_finish(config));
    if (!*config->run.dir) /* as from a variable that is not set in a shell */
        return SP_FAIL(SP_EUSAGE, "%srun.dir is empty: name the folder of the run",
                       sp_config_where(config, "run.dir"));
    if (!*config->run.resume.text)
        return SP_FAIL(SP_EUSAGE, "%srun.resume is empty: auto, never, or a checkpoint",
                       sp_config_where(config, "run.resume"));
    return SP_OK;
}

sp_status sp_config_parse_keys(sp_config *config, const char *text, const char *name,
                               int n_overrides, char *const *overrides)
{
    sp_deck_text deck = {0};

    assert(config && text && name && (overrides || n_overrides == 0));
    SP_TRY(read_defaults(config));
    SP_TRY(use_text(config, &deck, sp_deck_text_string(&deck, text, name)));
    return deck_override(config, n_overrides, overrides);
}

sp_status sp_config_parse(sp_config *config, const char *text, const char *name,
                          int n_overrides, char *const *overrides)
{
    SP_TRY(sp_config_parse_keys(config, text, name, n_overrides, overrides));
    return deck_finish(config);
}

void sp_config_destroy(sp_config *config)
{
    for (int i = 0; i < sp_deck_n_keys; i++) {
        sp_deck_free_value(config, &sp_deck_key[i]);
        free(config->place[i]);
    }
    *config = (sp_config){0};
}

bool sp_config_is_set(const sp_config *config, const char *key)
{
    const sp_key *k = sp_deck_find(key);

    assert(k && "a key that exists");
    return k && config->origin[k - sp_deck_key] != SP_FROM_DEFAULT;
}

bool sp_config_is_overridden(const sp_config *config, const char *key)
{
    const sp_key *k = sp_deck_find(key);

    assert(k && "a key that exists");
    return k && config->origin[k - sp_deck_key] == SP_FROM_COMMAND_LINE;
}

const char *sp_config_where(const sp_config *config, const char *key)
{
    static _Thread_local char where[512];
    const sp_key *k = sp_deck_find(key);
    const char *place = k ? config->place[k - sp_deck_key] : NULL;

    assert(k && "a key that exists");
    snprintf(where, sizeof where, "%s%s", place ? place : "", place ? ": " : "");
    return where;
}

/* ---- the default deck ---- */

static bool try_folder(const char *folder, char *path, char *tried, size_t room)
{
    const size_t used = strlen(tried);
    const int n =
        snprintf(path, PATH_MAX, "%s%sinput/default.deck", folder, *folder ? "/" : "");

    snprintf(tried + used, room - used, "\n  %s", path);
    return n < PATH_MAX && access(path, R_OK) == 0;
}

/* True if programs of this folder look for files in the source: those beside configure's
 * script. An installed program does not. After the source is gone, whoever may write to
 * its parent (/tmp, say) could put a deck there, with commands to run. */
static bool uses_source(const char *folder)
{
    char script[PATH_MAX];
    const int n = snprintf(script, sizeof script, "%s/config.status", folder);

    return n < (int)sizeof script && access(script, F_OK) == 0;
}

sp_status sp_deck_find_default(char *path)
{
    char own[PATH_MAX], tried[SP_ERROR_MESSAGE] = "";

    sp_file_of_program(own);
    *strrchr(own, '/') = '\0';
    if (try_folder("", path, tried, sizeof tried) ||
        try_folder(own, path, tried, sizeof tried) ||
        (uses_source(own) && try_folder(SP_SOURCE_DIR, path, tried, sizeof tried)) ||
        try_folder(SP_DATA_DIR, path, tried, sizeof tried))
        return SP_OK;
    return SP_FAIL(SP_EUSAGE, "no deck given and no default deck found; tried%s",
                   tried);
}
