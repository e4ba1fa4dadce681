/* All of a run folder but its lines. */
#include <assert.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "deck/sp_deck.h"
#include "report/sp_story.h"
#include "checkpoint/sp_checkpoint.h"

/* Reads a small file of the folder; NULL if it does not exist or cannot be read. The
 * latter adds a note. */
static char *story_read_text(sp_story *story, const char *name)
{
    char path[PATH_MAX], *text;

    if (access(sp_file_in(story->dir, name, path), F_OK) != 0)
        return NULL;
    if (sp_file_read(path, &text, NULL) == SP_OK)
        return text;
    sp_story_note(story, "%s", sp_error_last()->message);
    return NULL;
}

/* ---- deck ---- */

/* Uses the deck that best.h5 holds. */
static char *read_checkpoint_deck(const sp_story *story)
{
    char path[PATH_MAX];
    sp_checkpoint_state state = {0};
    sp_normalization normalization = {0};
    char *deck = NULL;

    sp_file_in(story->dir, "checkpoints/best.h5", path);
    if (access(path, R_OK) == 0 &&
        sp_checkpoint_read_state(path, &state, &normalization) == SP_OK) {
        deck = state.deck;
        state.deck = NULL;
    }
    sp_checkpoint_state_destroy(&state);
    sp_normalization_destroy(&normalization);
    return deck;
}

static sp_status story_read_deck(sp_story *story)
{
    sp_config config = {0};
    sp_status rc = SP_OK;

    story->deck = story_read_text(story, "deck.resolved");
    if (!story->deck)
        story->deck = read_checkpoint_deck(story);
    if (!story->deck) {
        sp_story_note(story,
                      "There is no deck.resolved, so its keys are not compared.");
        return SP_OK;
    }
    if (sp_config_parse(&config, story->deck, "deck.resolved", 0, NULL) == SP_OK) {
        story->deck_value =
            calloc((size_t)sp_config_n_keys(), sizeof *story->deck_value);
        for (int i = 0; story->deck_value && i < sp_config_n_keys(); i++)
            story->deck_value[i] = sp_config_value(&config, sp_config_key(i));
        if (!story->deck_value)
            rc = SP_FAIL(SP_EMEM, "no memory for the keys of a deck");
    } else
        sp_story_note(story, "deck.resolved cannot be read: %s",
                      sp_error_last()->message);
    sp_config_destroy(&config);
    return rc;
}

/* ---- checkpoints ---- */

static int story_by_name(const void *a, const void *b)
{
    const sp_story_file *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static sp_status read_checkpoints(sp_story *story)
{
    char path[PATH_MAX], file[PATH_MAX];
    DIR *folder = opendir(sp_file_in(story->dir, "checkpoints", path));
    struct dirent *entry;
    sp_status rc = SP_OK;

    while (folder && rc == SP_OK && (entry = readdir(folder))) {
        const size_t n = strlen(entry->d_name);
        struct stat st;

        if (n < 4 || strcmp(entry->d_name + n - 3, ".h5") != 0 ||
            snprintf(file, sizeof file, "%s/%s", path, entry->d_name) >=
                (int)sizeof file ||
            stat(file, &st) != 0)
            continue;
        rc = sp_story_grow((void **)&story->checkpoint, story->n_checkpoints,
                           sizeof *story->checkpoint);
        if (rc == SP_OK)
            story->checkpoint[story->n_checkpoints++] =
                (sp_story_file){strdup(entry->d_name), (int64_t)st.st_size};
        if (rc == SP_OK && !story->checkpoint[story->n_checkpoints - 1].name)
            rc = SP_FAIL(SP_EMEM, "no memory for the names of checkpoints");
    }
    if (folder)
        closedir(folder);
    if (rc == SP_OK && story->n_checkpoints > 0)
        qsort(story->checkpoint, (size_t)story->n_checkpoints,
              sizeof *story->checkpoint, story_by_name);
    return rc;
}

sp_status sp_story_read_folder(sp_story *story)
{
    char path[PATH_MAX], *pictures;
    sp_status rc = SP_OK;

    assert(story->dir);
    story->has_state = sp_run_read_state(story->dir, "", &story->state) == SP_OK;
    if (!story->has_state &&
        access(sp_file_in(story->dir, "status.json", path), F_OK) == 0)
        sp_story_note(story, "status.json cannot be read: %s",
                      sp_error_last()->message);
    if (access(sp_file_in(story->dir, "heartbeat.bin", path), F_OK) == 0 &&
        sp_heartbeat_read(path, &story->rank, &story->n_ranks) != SP_OK) {
        story->n_ranks = 0;
        sp_story_note(story, "heartbeat.bin cannot be read: %s",
                      sp_error_last()->message);
    }
    SP_TRY(story_read_deck(story));
    SP_TRY(read_checkpoints(story));
    pictures = story_read_text(story, "pictures/pictures.json");
    if (pictures)
        rc = sp_story_take_pictures(story, pictures);
    free(pictures);
    return rc;
}
