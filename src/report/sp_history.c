#include "report/sp_history.h"

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

sp_status sp_history_grow(void **array, int n, size_t size)
{
    assert(n >= 0 && size > 0);
    return sp_list_grow(array, n, size)
               ? SP_OK
               : SP_FAIL(SP_EMEM, "no memory for the lines of a run");
}

void sp_history_note(sp_history *history, const char *format, ...)
{
    char text[512];
    va_list list;

    assert(history && format);
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (sp_history_grow((void **)&history->note, history->n_notes,
                        sizeof *history->note) != SP_OK)
        return;
    history->note[history->n_notes] = strdup(text);
    history->n_notes += history->note[history->n_notes] != NULL;
}

/* ---- lines ---- */

/* Reads all lines of a file. The last line may be incomplete if the program is running
 * or was killed. */
static sp_status history_read_lines(sp_history *history, const char *name,
                                    bool is_later)
{
    SP_FREED char *all = NULL;
    char path[PATH_MAX];
    int number = 0, n_faults = 0;

    if (access(sp_file_in(history->dir, name, path), F_OK) != 0)
        return SP_OK;
    SP_TRY(sp_file_read(path, &all, NULL));
    for (char *line = all, *end; *line; line = end + 1) {
        const char *fault = NULL;

        number++;
        end = strchr(line, '\n');
        if (!end) {
            sp_history_note(history, "%s: line %d is incomplete and was skipped.", name,
                            number);
            break;
        }
        SP_TRY(sp_history_parse_line(history, line, (size_t)(end - line), is_later,
                                     &fault));
        if (fault && ++n_faults <= NOTES)
            sp_history_note(history, "%s: line %d was skipped: %s.", name, number,
                            fault);
    }
    if (n_faults > NOTES)
        sp_history_note(history, "%s: %d more line%s skipped.", name, n_faults - NOTES,
                        n_faults - NOTES == 1 ? " was" : "s were");
    return SP_OK;
}

static bool history_has(const sp_history *history, const char *name)
{
    char path[PATH_MAX];

    return access(sp_file_in(history->dir, name, path), F_OK) == 0;
}

/* Fails if the folder holds no run. */
static sp_status check_folder(const sp_history *history)
{
    struct stat st;

    if (stat(history->dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return SP_FAIL(SP_EIO, "%s: no such run folder", history->dir);
    if (history_has(history, "metrics.jsonl") ||
        history_has(history, "evaluations.jsonl") ||
        history_has(history, "status.json"))
        return SP_OK;
    return SP_FAIL(SP_EIO,
                   "%s: no run in it: expected metrics.jsonl, "
                   "evaluations.jsonl or status.json",
                   history->dir);
}

sp_status sp_history_read(sp_history *history, const char *dir)
{
    size_t n = strlen(dir);

    assert(dir);
    *history = (sp_history){0};
    while (n > 1 && dir[n - 1] == '/')
        n--;
    history->dir = strndup(dir, n);
    history->name = history->dir;
    if (!history->dir)
        return SP_FAIL(SP_EMEM, "no memory for a run");
    if (n >= PATH_MAX - 256)
        return SP_FAIL(SP_EIO, "%.100s...: path too long", dir);
    SP_TRY(check_folder(history));
    SP_TRY(history_read_lines(history, "metrics.jsonl", false));
    SP_TRY(history_read_lines(history, "evaluations.jsonl", true));
    return sp_history_read_folder(history);
}

/* ---- the best, the last ---- */

double sp_history_score(const sp_history_eval *eval)
{
    assert(eval);
    return isnan(eval->point_miou) ? eval->miou : eval->point_miou;
}

double sp_history_merged_score(const sp_history_eval *eval)
{
    assert(eval);
    return isnan(eval->point_miou) ? eval->merged_miou : eval->merged_point_miou;
}

const sp_history_eval *sp_history_best(const sp_history *history)
{
    const sp_history_eval *best = NULL;

    for (int i = 0; i < history->n_evals; i++)
        if (!isnan(sp_history_score(&history->eval[i])) &&
            (!best || sp_history_score(&history->eval[i]) > sp_history_score(best)))
            best = &history->eval[i];
    return best;
}

const sp_history_eval *sp_history_last(const sp_history *history)
{
    if (history->n_evals > 0)
        return &history->eval[history->n_evals - 1];
    return history->n_later > 0 ? &history->later[history->n_later - 1] : NULL;
}

/* ---- the end ---- */

static void free_eval(sp_history_eval *e)
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

void sp_history_destroy(sp_history *history)
{
    for (int i = 0; i < history->n_evals; i++)
        free_eval(&history->eval[i]);
    for (int i = 0; i < history->n_later; i++)
        free_eval(&history->later[i]);
    sp_h5_list_free(history->deck_value, sp_config_n_keys());
    for (int i = 0; i < history->n_checkpoints; i++)
        free(history->checkpoint[i].name);
    sp_history_drop(history->starts);
    sp_history_drop(history->ends);
    sp_history_drop(history->samples);
    sp_h5_list_free(history->note, history->n_notes);
    free(history->step);
    free(history->eval);
    free(history->later);
    free(history->deck);
    free(history->rank);
    free(history->checkpoint);
    free(history->dir);
    *history = (sp_history){0};
}
