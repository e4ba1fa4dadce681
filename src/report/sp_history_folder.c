/* All of a run folder but its lines. */
#include <assert.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "checkpoint/sp_checkpoint.h"
#include "deck/sp_deck.h"
#include "report/sp_history.h"

/* Reads a small file of the folder; NULL if it does not exist or cannot be read. The
 * latter adds a note. */
static char *history_read_text(sp_history *history, const char *name)
{
    char path[PATH_MAX], *text;

    if (access(sp_file_in(history->dir, name, path), F_OK) != 0)
        return NULL;
    if (sp_file_read(path, &text, NULL) == SP_OK)
        return text;
    sp_history_note(history, "%s", sp_error_last()->message);
    return NULL;
}

/* ---- deck ---- */

/* Uses the deck that best.h5 holds. */
static char *read_checkpoint_deck(const sp_history *history)
{
    SP_CLOSED_BY(sp_checkpoint_state_destroy) sp_checkpoint_state state = {0};
    SP_CLOSED_BY(sp_normalization_destroy) sp_normalization normalization = {0};
    char path[PATH_MAX], *deck;

    sp_file_in(history->dir, "checkpoints/best.h5", path);
    if (access(path, R_OK) != 0 ||
        sp_checkpoint_read_state(path, &state, &normalization) != SP_OK)
        return NULL;
    deck = state.deck;
    state.deck = NULL;
    return deck;
}

static sp_status history_read_deck(sp_history *history)
{
    SP_CLOSED_BY(sp_config_destroy) sp_config config = {0};

    history->deck = history_read_text(history, "deck.resolved");
    if (!history->deck)
        history->deck = read_checkpoint_deck(history);
    if (!history->deck) {
        sp_history_note(history,
                        "There is no deck.resolved, so its keys are not compared.");
        return SP_OK;
    }
    if (sp_config_parse(&config, history->deck, "deck.resolved", 0, NULL) != SP_OK) {
        sp_history_note(history, "deck.resolved cannot be read: %s",
                        sp_error_last()->message);
        return SP_OK;
    }
    SP_TRY(SP_NEW(&history->deck_value, sp_config_n_keys(), "the keys of a deck"));
    for (int i = 0; i < sp_config_n_keys(); i++)
        history->deck_value[i] = sp_config_value(&config, sp_config_key(i));
    return SP_OK;
}

/* ---- checkpoints ---- */

static int history_is_checkpoint(const struct dirent *entry)
{
    return sp_file_ends_in(entry->d_name, ".h5");
}

static sp_status history_read_checkpoints(sp_history *history)
{
    char folder[PATH_MAX], file[2 * PATH_MAX];
    struct dirent **entry = NULL;
    const int n = scandir(sp_file_in(history->dir, "checkpoints", folder), &entry,
                          history_is_checkpoint, alphasort);
    sp_status rc = n > 0 ? SP_NEW(&history->checkpoint, n, "checkpoints") : SP_OK;

    for (int i = 0; i < n; i++) {
        struct stat st;

        snprintf(file, sizeof file, "%s/%s", folder, entry[i]->d_name);
        if (rc == SP_OK && stat(file, &st) == 0) {
            sp_history_file *to = &history->checkpoint[history->n_checkpoints++];

            *to = (sp_history_file){strdup(entry[i]->d_name), (int64_t)st.st_size};
            rc = to->name ? SP_OK : SP_FAIL(SP_EMEM, "no memory for checkpoints");
        }
        free(entry[i]);
    }
    free(entry);
    return rc;
}

sp_status sp_history_read_folder(sp_history *history)
{
    SP_FREED char *pictures = NULL;
    char path[PATH_MAX];

    assert(history->dir);
    history->has_state = sp_run_read_state(history->dir, "", &history->state) == SP_OK;
    if (!history->has_state &&
        access(sp_file_in(history->dir, "status.json", path), F_OK) == 0)
        sp_history_note(history, "status.json cannot be read: %s",
                        sp_error_last()->message);
    if (access(sp_file_in(history->dir, "heartbeat.bin", path), F_OK) == 0 &&
        sp_heartbeat_read(path, &history->rank, &history->n_ranks) != SP_OK) {
        history->n_ranks = 0;
        sp_history_note(history, "heartbeat.bin cannot be read: %s",
                        sp_error_last()->message);
    }
    SP_TRY(history_read_deck(history));
    SP_TRY(history_read_checkpoints(history));
    pictures = history_read_text(history, "pictures/pictures.json");
    if (pictures)
        sp_history_parse_pictures(history, pictures);
    return SP_OK;
}
