/* Keys by number, copies, and the exchange of values between two configs. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "deck/sp_deck_keys.h"

int sp_config_n_keys(void)
{
    return sp_deck_n_keys;
}

const char *sp_config_key(int i)
{
    assert(0 <= i && i < sp_deck_n_keys);
    static _Thread_local char path[2 * SP_NAME];

    snprintf(path, sizeof path, "%s.%s", sp_deck_key[i].section, sp_deck_key[i].name);
    return path;
}

static void deck_swap_bytes(void *a, void *b, size_t bytes)
{
    char old[sizeof(sp_strings) + sizeof(sp_class_weighting) + sizeof(sp_loss_mix)];

    memcpy(old, a, bytes);
    memcpy(a, b, bytes);
    memcpy(b, old, bytes);
}

/* Exchanges key i of two configs. Both stay complete, so each is destroyed as usual. */
static void deck_swap(sp_config *a, sp_config *b, int i)
{
    const sp_key *key = &sp_deck_key[i];

    deck_swap_bytes(&a->place[i], &b->place[i], sizeof a->place[i]);
    deck_swap_bytes(sp_key_field(a, key), sp_key_field(b, key), key->bytes);
    if (key->type == SP_KEY_LAYERS)
        deck_swap_bytes(&a->net.n_layers, &b->net.n_layers, sizeof a->net.n_layers);
}

/* True for keys that a family on the command line replaces: it has no list of layers,
 * and a kernel_down of its own. */
static bool is_replaced(const sp_config *config, const char *key)
{
    return sp_config_is_overridden(config, "net.family") &&
           (strcmp(key, "net.layers") == 0 || strcmp(key, "net.kernel_down") == 0);
}

void sp_config_take(sp_config *config, sp_config *from, const char *path)
{
    size_t n = strlen(path);

    assert(config != from && path);
    for (int i = 0; i < sp_deck_n_keys; i++) {
        const char *key = sp_config_key(i);
        if (strncmp(key, path, n) == 0 && (key[n] == 0 || key[n] == '.') &&
            config->origin[i] != SP_FROM_COMMAND_LINE && !is_replaced(config, key))
            deck_swap(config, from, i);
    }
}

/* *to becomes a copy of the text, or NULL where `from` is. */
static sp_status deck_copy_text(char **to, const char *from)
{
    free(*to);
    *to = from ? strdup(from) : NULL;
    return *to || !from ? SP_OK : SP_FAIL(SP_EMEM, "deck: out of memory");
}

/* Copies the origin of the values, for messages. */
static sp_status copy_origins(sp_config *to, const sp_config *from)
{
    memcpy(to->origin, from->origin, sizeof to->origin);
    for (int i = 0; i < sp_deck_n_keys; i++)
        SP_TRY(deck_copy_text(&to->place[i], from->place[i]));
    for (int i = 0; i < to->net.n_layers; i++) {
        to->net.layers[i].line = from->net.layers[i].line;
        SP_TRY(deck_copy_text(&to->net.layers[i].file, from->net.layers[i].file));
    }
    return SP_OK;
}

sp_status sp_config_copy(sp_config *to, const sp_config *from)
{
    SP_FREED char *text = NULL;

    assert(to != from);
    *to = (sp_config){0};
    SP_TRY(sp_config_to_text(from, &text));
    SP_TRY(sp_config_parse(to, text, "copy", 0, NULL));
    return copy_origins(to, from);
}
