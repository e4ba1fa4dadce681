/* Fine-tuning: layers that are newly initialized, keep their weights, or have their own
 * learning rate. The deck names them by the beginnings of their names. */
#include "net/sp_graph.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"

bool sp_graph_is_named(const sp_strings *prefixes, const char *name)
{
    assert(name && (prefixes->at || prefixes->n == 0));
    for (int i = 0; i < prefixes->n; i++)
        if (strncmp(name, prefixes->at[i], strlen(prefixes->at[i])) == 0)
            return true;
    return false;
}

/* The length of the prefix in "PREFIX=FACTOR". */
static size_t prefix_of(const char *entry)
{
    const char *equals = strrchr(entry, '=');

    return equals ? (size_t)(equals - entry) : strlen(entry);
}

int sp_graph_lr_entry(const sp_config *config, const char *name)
{
    const sp_strings *list = &config->train.lr_layers;
    size_t longest = 0;
    int entry = -1;

    for (int i = 0; i < list->n; i++) {
        const size_t n = prefix_of(list->at[i]);

        if (n < longest || strncmp(name, list->at[i], n) != 0)
            continue;
        longest = n;
        entry = i;
    }
    return entry;
}

double sp_graph_lr_factor(const sp_config *config, const char *name)
{
    const int entry = sp_graph_lr_entry(config, name);
    const char *equals =
        entry < 0 ? NULL : strrchr(config->train.lr_layers.at[entry], '=');

    return equals ? sp_text_to_number(equals + 1, NULL) : 1;
}

/* Writes the names of the layers that have parameters, as far as there is room. */
static void list_layers(const sp_graph *g, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < g->n_nodes; i++) {
        const char *name = g->node[i].name;

        if (g->node[i].weight < 0)
            continue;
        if (used + strlen(name) + sizeof ", ..." > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
    }
}

/* Fails unless a layer with parameters has a name that begins with these n bytes. */
static sp_status check_prefix(const sp_graph *g, const sp_config *config,
                              const char *key, const char *prefix, size_t n)
{
    char layers[SP_ERROR_MESSAGE - 300];

    for (int i = 0; n > 0 && i < g->n_nodes; i++)
        if (g->node[i].weight >= 0 && strncmp(g->node[i].name, prefix, n) == 0)
            return SP_OK;
    list_layers(g, layers, sizeof layers);
    return SP_FAIL(SP_EUSAGE,
                   "%s%s: no layer with parameters has a name that begins with "
                   "\"%.*s\"; there are %s",
                   sp_config_where(config, key), key, n < 64 ? (int)n : 64, prefix,
                   layers);
}

static sp_status check_list(const sp_graph *g, const sp_config *config, const char *key,
                            const sp_strings *list)
{
    for (int i = 0; i < list->n; i++)
        SP_TRY(check_prefix(g, config, key, list->at[i], strlen(list->at[i])));
    return SP_OK;
}

static sp_status check_factors(const sp_graph *g, const sp_config *config)
{
    static const char key[] = "train.lr_layers";
    const sp_strings *list = &config->train.lr_layers;

    for (int i = 0; i < list->n; i++) {
        const char *entry = list->at[i];
        const size_t n = prefix_of(entry);
        char *end = NULL;
        double factor = entry[n] ? sp_text_to_number(entry + n + 1, &end) : NAN;

        if (!isfinite(factor) || factor < 0 || end == entry + n + 1 || *end)
            return SP_FAIL(SP_EUSAGE,
                           "%s%s: \"%.80s\", expected PREFIX=FACTOR with a factor of 0 "
                           "or more",
                           sp_config_where(config, key), key, entry);
        SP_TRY(check_prefix(g, config, key, entry, n));
    }
    return SP_OK;
}

sp_status sp_graph_check_tuning(const sp_graph *g, const sp_config *config)
{
    assert(g->n_nodes > 0);
    SP_TRY(check_list(g, config, "train.freeze", &config->train.freeze));
    SP_TRY(check_list(g, config, "run.init_skip", &config->run.init_skip));
    SP_TRY(check_factors(g, config));
    if (!g->node[g->n_nodes - 1].needs_grad)
        return SP_FAIL(SP_EUSAGE,
                       "%strain.freeze: all layers keep their weights, so there is "
                       "nothing to train",
                       sp_config_where(config, "train.freeze"));
    return SP_OK;
}

void sp_graph_count_frozen(const sp_graph *g, int *n_layers, int64_t *n_weights)
{
    *n_layers = 0;
    *n_weights = 0;
    for (int i = 0; i < g->n_nodes; i++)
        *n_layers += g->node[i].is_frozen && g->node[i].weight >= 0;
    for (int i = 0; i < g->n_params; i++)
        *n_weights += g->node[g->param[i].node].is_frozen ? g->param[i].count : 0;
}
