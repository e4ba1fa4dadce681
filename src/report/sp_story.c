#include "report/sp_story.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "deck/sp_deck.h"
#include "h5/sp_h5.h"

/* Damaged lines of a file that have a note of their own. */
enum { NOTES = 5 };

sp_status sp_story_grow(void **array, int n, size_t size)
{
    assert(n >= 0 && size > 0);
    return sp_list_grow(array, n, size)
               ? SP_OK
               : SP_FAIL(SP_EMEM, "no memory for the lines of a run");
}

void sp_story_note(sp_story *story, const char *format, ...)
{
    char text[512];
    va_list list;

    assert(story && format);
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (sp_story_grow((void **)&story->note, story->n_notes, sizeof *story->note) !=
        SP_OK)
        return;
    story->note[story->n_notes] = strdup(text);
    story->n_notes += story->note[story->n_notes] != NULL;
}

/* ---- lines ---- */

/* Reads all lines of a file. The last line may be incomplete if the program is running
 * or was killed. */
static sp_status story_read_lines(sp_story *story, const char *name, bool is_later)
{
    char path[PATH_MAX], *all;
    int number = 0, n_faults = 0;

    if (access(sp_file_in(story->dir, name, path), F_OK) != 0)
        return SP_OK;
    SP_TRY(sp_file_read(path, &all, NULL));
    for (char *line = all, *end; *line; line = end + 1) {
        const char *fault = NULL;
        sp_status rc;

        number++;
        end = strchr(line, '\n');
        if (!end) {
            sp_story_note(story, "%s: line %d is incomplete and was skipped.", name,
                          number);
            break;
        }
        rc = sp_story_take_line(story, line, (size_t)(end - line), is_later, &fault);
        if (rc != SP_OK) {
            free(all);
            return rc;
        }
        if (fault && ++n_faults <= NOTES)
            sp_story_note(story, "%s: line %d was skipped: %s.", name, number, fault);
    }
    if (n_faults > NOTES)
        sp_story_note(story, "%s: %d more line%s skipped.", name, n_faults - NOTES,
                      n_faults - NOTES == 1 ? " was" : "s were");
    free(all);
    return SP_OK;
}

static bool story_has(const sp_story *story, const char *name)
{
    char path[PATH_MAX];

    return access(sp_file_in(story->dir, name, path), F_OK) == 0;
}

/* Fails if the folder holds no run. */
static sp_status check_folder(const sp_story *story)
{
    struct stat st;

    if (stat(story->dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return SP_FAIL(SP_EIO, "%s: no such run folder", story->dir);
    if (story_has(story, "metrics.jsonl") || story_has(story, "evaluations.jsonl") ||
        story_has(story, "status.json"))
        return SP_OK;
    return SP_FAIL(SP_EIO,
                   "%s: no run in it: expected metrics.jsonl, "
                   "evaluations.jsonl or status.json",
                   story->dir);
}

sp_status sp_story_read(sp_story *story, const char *dir)
{
    size_t n = strlen(dir);

    assert(dir);
    *story = (sp_story){0};
    while (n > 1 && dir[n - 1] == '/')
        n--;
    story->dir = strndup(dir, n);
    story->name = story->dir;
    if (!story->dir)
        return SP_FAIL(SP_EMEM, "no memory for a run");
    if (n >= PATH_MAX - 256)
        return SP_FAIL(SP_EIO, "%.100s...: path too long", dir);
    SP_TRY(check_folder(story));
    SP_TRY(story_read_lines(story, "metrics.jsonl", false));
    SP_TRY(story_read_lines(story, "evaluations.jsonl", true));
    return sp_story_read_folder(story);
}

/* ---- the best, the last ---- */

double sp_story_score(const sp_story_eval *eval)
{
    assert(eval);
    return isnan(eval->point_miou) ? eval->miou : eval->point_miou;
}

double sp_story_merged_score(const sp_story_eval *eval)
{
    assert(eval);
    return isnan(eval->point_miou) ? eval->merged_miou : eval->merged_point_miou;
}

const sp_story_eval *sp_story_best(const sp_story *story)
{
    const sp_story_eval *best = NULL;

    for (int i = 0; i < story->n_evals; i++)
        if (!isnan(sp_story_score(&story->eval[i])) &&
            (!best || sp_story_score(&story->eval[i]) > sp_story_score(best)))
            best = &story->eval[i];
    return best;
}

const sp_story_eval *sp_story_last(const sp_story *story)
{
    if (story->n_evals > 0)
        return &story->eval[story->n_evals - 1];
    return story->n_later > 0 ? &story->later[story->n_later - 1] : NULL;
}

/* ---- the end ---- */

static void free_eval(sp_story_eval *e)
{
    sp_h5_list_free(e->class_name, e->n_classes);
    free(e->iou);
    free(e->point_iou);
    free(e->merged_iou);
    free(e->merged_point_iou);
    free(e->confusion);
    free(e->point_confusion);
    free(e->time);
    free(e->checkpoint);
    for (int i = 0; i < e->n_sets; i++)
        free(e->set[i].name);
    free(e->set);
}

static void free_start(sp_story_start *s)
{
    char *const all[] = {s->version,   s->mpi,       s->hdf5,
                         s->processor, s->device,    s->precision,
                         s->transport, s->deck_hash, s->data_hash};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

void sp_story_destroy(sp_story *story)
{
    for (int i = 0; i < story->n_evals; i++)
        free_eval(&story->eval[i]);
    for (int i = 0; i < story->n_later; i++)
        free_eval(&story->later[i]);
    for (int i = 0; i < story->n_starts; i++)
        free_start(&story->start[i]);
    sp_h5_list_free(story->deck_value, sp_config_n_keys());
    for (int i = 0; i < story->n_checkpoints; i++)
        free(story->checkpoint[i].name);
    for (int i = 0; i < story->n_samples; i++) {
        free(story->sample[i].which);
        free(story->sample[i].name);
    }
    sp_h5_list_free(story->note, story->n_notes);
    free(story->step);
    free(story->eval);
    free(story->later);
    free(story->start);
    free(story->end);
    free(story->deck);
    free(story->rank);
    free(story->checkpoint);
    free(story->sample);
    free(story->dir);
    *story = (sp_story){0};
}
