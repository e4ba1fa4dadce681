/* The list net.layers: one group for each layer. This file checks the names and types
 * of the fields; sp_graph checks their meaning. */
#include "deck/sp_deck_keys.h"

#include <assert.h>
#include <libconfig.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "deck/sp_deck_text.h"

#define FIELDS "name|op|from|out|kernel|stride|bias|coordinates|p|slope|eps|momentum"
enum {
    F_NAME,
    F_OP,
    F_FROM,
    F_OUT,
    F_KERNEL,
    F_STRIDE,
    F_BIAS,
    F_COORDINATES,
    F_P,
    F_SLOPE,
    F_EPS,
    F_MOMENTUM
};

const sp_layer sp_layer_plain = {.out = -1,
                                 .kernel = -1,
                                 .stride = -1,
                                 .bias = -1,
                                 .coordinates = -1,
                                 .p = NAN,
                                 .slope = NAN,
                                 .eps = NAN,
                                 .momentum = NAN};

static sp_status fail(const char *where, const sp_layer *layer, const char *what,
                      const char *takes, const config_setting_t *found)
{
    return SP_FAIL(SP_EUSAGE, "%s: net.layers: layer \"%s\": %s takes %s, found %s",
                   where, layer->name, what, takes, sp_deck_describe(found));
}

static sp_status set_label(char *to, size_t room, const sp_layer *layer,
                           const config_setting_t *s, const char *where)
{
    const char *what = config_setting_name(s), *text = config_setting_get_string(s);
    const char *allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    char takes[80];

    if (!text)
        return fail(where, layer, what, "a text in quotation marks", s);
    snprintf(takes, sizeof takes,
             "1 to %zu letters, digits and _ - . with no dot in front", room - 1);
    if (!*text || strlen(text) >= room || text[strspn(text, allowed)] || *text == '.')
        return fail(where, layer, what, takes, s);
    snprintf(to, room, "%s", text);
    return SP_OK;
}

static sp_status set_count(int *to, const sp_layer *layer, const config_setting_t *s,
                           const char *where)
{
    long long value;

    if (!config_setting_is_number(s) || config_setting_type(s) == CONFIG_TYPE_FLOAT)
        return fail(where, layer, config_setting_name(s), "an integer", s);
    value = config_setting_get_int64(s);
    if (value < 1 || value > 1 << 20)
        return fail(where, layer, config_setting_name(s),
                    "an integer from 1 to 1048576", s);
    *to = (int)value;
    return SP_OK;
}

static sp_status layer_set_coordinates(sp_layer *layer, const config_setting_t *s,
                                       const char *where)
{
    const char *text = config_setting_get_string(s);

    layer->coordinates = text ? sp_choice_find(SP_WORDS(SP_COORDINATES), text) : -1;
    if (layer->coordinates < 0)
        return fail(where, layer, "coordinates", "\"floor\" or \"dilated\"", s);
    return SP_OK;
}

static sp_status set_number(double *to, const sp_layer *layer,
                            const config_setting_t *s, const char *range,
                            const char *where)
{
    double value = config_setting_type(s) == CONFIG_TYPE_FLOAT
                       ? config_setting_get_float(s)
                       : (double)config_setting_get_int64(s);

    if (!config_setting_is_number(s) || !sp_deck_in_range(range, value))
        return fail(where, layer, config_setting_name(s), range, s);
    *to = value;
    return SP_OK;
}

static sp_status set_field(sp_layer *layer, const config_setting_t *s,
                           const char *where)
{
    const char *name = config_setting_name(s);
    char nearest[SP_NAME], what[2 * SP_NAME + 32];

    switch (sp_choice_find(FIELDS, name)) {
    case F_NAME:
        return set_label(layer->name, sizeof layer->name, layer, s, where);
    case F_OP:
        return set_label(layer->op, sizeof layer->op, layer, s, where);
    case F_FROM:
        snprintf(what, sizeof what, "net.layers: layer \"%s\": from", layer->name);
        return sp_deck_read_strings(&layer->from, s, what, where);
    case F_OUT:
        return set_count(&layer->out, layer, s, where);
    case F_KERNEL:
        return set_count(&layer->kernel, layer, s, where);
    case F_STRIDE:
        return set_count(&layer->stride, layer, s, where);
    case F_BIAS:
        if (config_setting_type(s) != CONFIG_TYPE_BOOL)
            return fail(where, layer, name, "true or false", s);
        layer->bias = config_setting_get_bool(s);
        return SP_OK;
    case F_COORDINATES:
        return layer_set_coordinates(layer, s, where);
    case F_P:
        return set_number(&layer->p, layer, s, "[0, 1)", where);
    case F_SLOPE:
        return set_number(&layer->slope, layer, s, "(-inf, inf)", where);
    case F_EPS:
        return set_number(&layer->eps, layer, s, SP_BN_EPS_RANGE, where);
    case F_MOMENTUM:
        return set_number(&layer->momentum, layer, s, SP_BN_MOMENTUM_RANGE, where);
    default:
        sp_choice_nearest(FIELDS, name, nearest);
        return SP_FAIL(SP_EUSAGE,
                       "%s: net.layers: layer \"%s\": unknown key %s; nearest is %s",
                       where, layer->name, name, nearest);
    }
}

static sp_status read_layer(sp_layer *layer, const config_setting_t *group,
                            const sp_deck_text *from)
{
    const config_setting_t *first =
        config_setting_length(group) ? config_setting_get_elem(group, 0) : group;
    const config_setting_t *name = config_setting_get_member(group, "name");
    char where[512];

    snprintf(where, sizeof where, "%s", sp_deck_where(from, first));
    layer->line = from ? (int)config_setting_source_line(first) : 0;
    layer->file = strdup(from ? sp_deck_text_place(from, layer->line, &layer->line)
                              : "command line");
    if (!layer->file)
        return SP_FAIL(SP_EMEM, "deck: out of memory");
    if (name) /* first, so that messages can name the layer */
        SP_TRY(set_field(layer, name, where));
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *s = config_setting_get_elem(group, (unsigned)i);
        SP_TRY(set_field(layer, s, sp_deck_where(from, s)));
    }
    if (!*layer->name || !*layer->op)
        return SP_FAIL(SP_EUSAGE, "%s: net.layers: layer \"%s\" has no %s", where,
                       layer->name, *layer->name ? "op" : "name");
    return SP_OK;
}

sp_status sp_deck_read_layers(sp_config *config, const config_setting_t *list,
                              const sp_deck_text *from)
{
    int n = config_setting_length(list);

    assert(config && list);
    if (n > SP_MAX_LAYERS)
        return SP_FAIL(SP_EUSAGE, "%s: net.layers has %d layers, at most %d are taken",
                       sp_deck_where(from, list), n, SP_MAX_LAYERS);
    sp_layers_destroy(config->net.layers, config->net.n_layers);
    config->net.n_layers = 0;
    SP_TRY(SP_NEW(&config->net.layers, n, "the layers of the deck"));
    for (int i = 0; i < n; i++) {
        const config_setting_t *group = config_setting_get_elem(list, (unsigned)i);
        sp_layer *layer = &config->net.layers[config->net.n_layers++];

        *layer = sp_layer_plain;
        if (!config_setting_is_group(group))
            return SP_FAIL(SP_EUSAGE,
                           "%s: net.layers: a layer is a group { }, found %s",
                           sp_deck_where(from, group), sp_deck_describe(group));
        SP_TRY(read_layer(layer, group, from));
    }
    return SP_OK;
}

void sp_layers_destroy(sp_layer *layers, int n)
{
    for (int i = 0; i < n; i++) {
        sp_strings_free(&layers[i].from);
        free(layers[i].file);
    }
    free(layers);
}

void sp_deck_write_layers(FILE *to, const sp_config *config)
{
    static const char *const word[] = {SP_COORDINATES(SP_CHOICE_WORD)};

    fprintf(to, "(");
    for (int i = 0; i < config->net.n_layers; i++) {
        const sp_layer *l = &config->net.layers[i];
        const int count[] = {l->out, l->kernel, l->stride};
        const char *const name[] = {"out", "kernel", "stride"};
        const double number[] = {l->p, l->slope, l->eps, l->momentum};
        const char *const number_name[] = {"p", "slope", "eps", "momentum"};

        fprintf(to, "%s\n        { name = \"%s\"; op = \"%s\";", i ? "," : "", l->name,
                l->op);
        if (l->from.n) {
            fprintf(to, " from = ");
            sp_deck_write_strings(to, &l->from);
            fprintf(to, ";");
        }
        for (int k = 0; k < 3; k++)
            if (count[k] >= 0)
                fprintf(to, " %s = %d;", name[k], count[k]);
        if (l->bias >= 0)
            fprintf(to, " bias = %s;", l->bias ? "true" : "false");
        if (l->coordinates >= 0)
            fprintf(to, " coordinates = \"%s\";", word[l->coordinates]);
        for (int k = 0; k < 4; k++)
            if (!isnan(number[k])) {
                fprintf(to, " %s = ", number_name[k]);
                sp_deck_write_real(to, number[k]);
                fprintf(to, ";");
            }
        fprintf(to, " }");
    }
    fprintf(to, ")");
}
