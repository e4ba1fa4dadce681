#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/sp_list.h"

sp_status api_deck_config(const sp_deck *deck, sp_config *config)
{
    return sp_config_parse(config, deck->text, "deck", deck->n, deck->assignment);
}

/* Overrides come one by one, so keys that need each other are checked at their use. */
static sp_status check_deck(const sp_deck *deck)
{
    sp_config config = {0};
    const sp_status rc =
        sp_config_parse_keys(&config, deck->text, "deck", deck->n, deck->assignment);

    sp_config_destroy(&config);
    /* Files included by a checkpoint's deck are damage, by the caller's a mistake. */
    return rc == SP_EDATA ? SP_FAIL(SP_EUSAGE, "%s", sp_error_last()->message) : rc;
}

int sp_deck_create(sp_deck **deck, const char *text)
{
    sp_status rc;

    API_NEED(deck, "deck");
    *deck = calloc(1, sizeof **deck);
    if (*deck)
        (*deck)->text = strdup(text ? text : "");
    if (!*deck || !(*deck)->text)
        rc = SP_FAIL(SP_EMEM, "no memory for a deck");
    else
        rc = check_deck(*deck);
    if (rc != SP_OK) {
        sp_deck_destroy(*deck);
        *deck = NULL;
    }
    return rc;
}

int sp_deck_override(sp_deck *deck, const char *assignment)
{
    sp_status rc;

    API_NEED(deck, "deck");
    API_NEED(assignment, "assignment");
    if (!sp_list_resize(&deck->assignment,
                        ((size_t)deck->n + 1) * sizeof *deck->assignment) ||
        !(deck->assignment[deck->n] = strdup(assignment)))
        return SP_FAIL(SP_EMEM, "no memory for a deck");
    deck->n++;
    rc = check_deck(deck);
    if (rc != SP_OK)
        free(deck->assignment[--deck->n]);
    return rc;
}

void sp_deck_destroy(sp_deck *deck)
{
    if (!deck)
        return;
    for (int i = 0; i < deck->n; i++)
        free(deck->assignment[i]);
    free(deck->assignment);
    free(deck->text);
    free(deck);
}
