#include "report/sp_report.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "deck/sp_deck.h"
#include "report/sp_report_internal.h"

json_t *sp_report_add(const sp_report *report, const char *list, int run)
{
    json_t *at = sp_page_add(report->page, report->page->values, list, NULL);

    sp_page_put(report->page, at, "name %s colour %d", report->history[run].name,
                run % 8);
    return at;
}

void sp_report_put_eval(const sp_report *report, json_t *to, const sp_history_eval *e)
{
    if (e->name)
        sp_page_put(report->page, to, "name %s", e->name);
    sp_page_put(report->page, to,
                "step %f epoch %f samples %f loss %f accuracy %f miou %f "
                "point_miou %f score %f merged %f score_of %s time %s checkpoint %s",
                e->step, e->epoch, e->samples, e->loss, e->accuracy, e->miou,
                e->point_miou, sp_history_score(e), sp_history_merged_score(e),
                isnan(e->point_miou) ? "voxels" : "points", e->time, e->checkpoint);
}

/* ---- summary ---- */

static void report_add_card(const sp_report *report, int run)
{
    const sp_history *s = &report->history[run];
    const sp_history_eval *best = sp_history_best(s),
                          *eval = best ? best : sp_history_last(s);
    const int n_starts = sp_history_count(s->starts);
    const int n_ends = sp_history_count(s->ends);
    json_t *at = sp_report_add(report, "run", run);
    char starts[64] = "";

    sp_page_put(report->page, at, "is_best %s state %s message %s", best ? "yes" : "",
                s->has_state ? s->state.state : "",
                s->has_state ? s->state.message : "");
    if (eval)
        sp_report_put_eval(report, sp_page_add(report->page, at, "eval", NULL), eval);
    if (s->n_steps) {
        const double *step = s->step[s->n_steps - 1].at;

        sp_page_put(report->page, sp_page_add(report->page, at, "step", NULL),
                    "step %f epoch %f loss %f", step[SP_STEP_AT_STEP],
                    step[SP_STEP_AT_EPOCH], step[SP_STEP_AT_LOSS]);
    }
    if (n_ends > 0 && n_ends < n_starts) /* one that was killed has no end */
        snprintf(starts, sizeof starts, " in %d of %d starts", n_ends, n_starts);
    else if (n_ends > 1)
        snprintf(starts, sizeof starts, " in %d starts", n_ends);
    sp_page_put(report->page, at, "total_s %f starts %s",
                n_ends ? sp_history_sum(s->ends, "total_s") : NAN, starts);
    if (n_starts > 0)
        sp_page_add(report->page, at, "start", sp_history_get(s->starts, n_starts - 1));
}

/* ---- differences ---- */

static const char *report_value_of(const sp_history *s, int key)
{
    return s->deck_value && s->deck_value[key] ? s->deck_value[key] : "\xe2\x80\x93";
}

static bool report_differs(const sp_report *report, int key)
{
    const char *first = NULL;

    /* Every run has its folder. */
    if (strcmp(sp_config_key(key), "run.dir") == 0)
        return false;
    for (int run = 0; run < report->n; run++) {
        if (!report->history[run].deck_value)
            continue;
        if (first && strcmp(first, report_value_of(&report->history[run], key)) != 0)
            return true;
        first = report_value_of(&report->history[run], key);
    }
    return false;
}

static void report_add_differences(const sp_report *report)
{
    for (int key = 0; key < sp_config_n_keys(); key++)
        if (report_differs(report, key)) {
            json_t *at =
                sp_page_add(report->page, report->page->values, "difference", NULL);

            sp_page_put(report->page, at, "key %s", sp_config_key(key));
            for (int run = 0; run < report->n; run++)
                sp_page_put(report->page, sp_page_add(report->page, at, "of_run", NULL),
                            "value %s", report_value_of(&report->history[run], key));
        }
}

/* ---- the page ---- */

/* A run's name is the last part of its folder's path, or the whole path if two runs
 * share the last part or the folder is the root. */
static void name_runs(sp_history *history, int n)
{
    for (int i = 0; i < n; i++) {
        const char *last = sp_file_name(history[i].dir);
        bool is_shared = !*last;

        for (int k = 0; k < n; k++)
            is_shared = is_shared ||
                        (k != i && strcmp(last, sp_file_name(history[k].dir)) == 0);
        history[i].name = is_shared ? history[i].dir : last;
    }
}

static void report_fill_values(const sp_report *report)
{
    char more[16] = "", renewal[16] = "";

    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];

        /* If a run goes on, a later report may lie in the same place. */
        if (s->has_state && strcmp(s->state.state, "running") == 0)
            snprintf(renewal, sizeof renewal, "%d", SP_REPORT_RENEWAL_S);
        report_add_card(report, run);
        if (s->deck)
            sp_page_put(report->page, sp_report_add(report, "deck", run), "text %s",
                        s->deck);
        for (int i = 0; i < s->n_notes; i++)
            sp_page_put(report->page, sp_report_add(report, "note", run), "text %s",
                        s->note[i]);
    }
    if (report->n > 1)
        snprintf(more, sizeof more, "%d", report->n - 1);
    sp_page_put(report->page, report->page->values,
                "first %s runs %d more %s renewal %s", report->history[0].name,
                report->n, more, renewal);
    report_add_differences(report);
    sp_report_add_curves(report);
    sp_report_add_classes(report);
    sp_report_add_pictures(report);
    sp_report_add_machines(report);
}

static sp_status report_write_filled(const sp_report *report, const char *form,
                                     const char *path)
{
    SP_FREED char *text = NULL;
    size_t n;

    SP_TRY(sp_page_fill(report->page, form, &text, &n));
    return sp_file_replace(path, text, n, 0);
}

static sp_status report_write_page(const sp_report *report, const char *path)
{
    static const char csv_form[] =
        "run,step,epoch,unit,class,count,predicted,iou,precision,recall,merged_iou\r\n"
        "{{#classes}}{{#class}}{{../name csv}},{{../step csv}},{{../epoch csv}},"
        "{{../unit}},{{name csv}},{{truth csv}},{{predicted csv}},{{iou csv}},"
        "{{precision csv}},{{recall csv}},{{merged_iou csv}}\r\n"
        "{{/class}}{{/classes}}";
    const int stem = (int)(strlen(path) - strlen(".html"));
    char csv[PATH_MAX];

    /* report.html has report.csv beside it. */
    if (snprintf(csv, sizeof csv, "%.*s.csv", stem, path) >= (int)sizeof csv)
        return SP_FAIL(SP_EIO, "%.100s...: path too long", path);
    report_fill_values(report);
    SP_TRY(sp_file_make_folder_of(path));
    SP_TRY(report_write_filled(report, sp_report_form, path));
    return report_write_filled(report, csv_form, csv);
}

sp_status sp_report_write(const char *path, int n, char *const *dirs, bool is_quiet)
{
    sp_history *history = calloc((size_t)n, sizeof *history);
    sp_page page;
    const sp_report report = {history, n, &page};
    sp_status rc = sp_page_open(&page);

    assert(path && sp_file_ends_in(path, ".html") && n >= 1 && dirs);
    if (!history)
        rc = SP_FAIL(SP_EMEM, "no memory for %d runs", n);
    for (int i = 0; rc == SP_OK && i < n; i++)
        rc = sp_history_read(&history[i], dirs[i]);
    for (int run = 0; rc == SP_OK && !is_quiet && run < n; run++)
        for (int k = 0; k < history[run].n_notes; k++)
            sp_log_warn0("%s: %s", dirs[run], history[run].note[k]);
    if (rc == SP_OK) {
        name_runs(history, n);
        rc = report_write_page(&report, path);
    }
    for (int i = 0; history && i < n; i++)
        sp_history_destroy(&history[i]);
    free(history);
    sp_page_close(&page);
    return rc;
}
