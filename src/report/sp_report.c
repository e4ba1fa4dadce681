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

/* ---- small parts ---- */

void sp_report_add_run(const sp_report *report, int run)
{
    assert(run >= 0 && run < report->n);
    if (report->n > 1)
        sp_html_add(report->html, "<i class=\"dot b%d\"></i>%s", run % 8,
                    report->history[run].name);
}

void sp_report_head_run(const sp_report *report, int run)
{
    if (report->n < 2)
        return;
    sp_html_raw(report->html, "<h3>");
    sp_report_add_run(report, run);
    sp_html_raw(report->html, "</h3>\n");
}

/* ---- summary ---- */

static void add_score(const sp_report *report, const sp_history *s)
{
    const sp_history_eval *best = sp_history_best(s),
                          *e = best ? best : sp_history_last(s);

    if (!e) {
        sp_html_raw(report->html,
                    "<div class=\"big\">&ndash;</div><div class=\"soft\">no evaluation "
                    "yet</div>");
        return;
    }
    sp_html_add(report->html,
                "<div class=\"big\">%.4f</div><div class=\"soft\">mean IoU over %s, "
                "%sat step %g",
                sp_history_score(e), isnan(e->point_miou) ? "voxels" : "points",
                best ? "best, " : "", e->step);
    if (isfinite(e->epoch))
        sp_html_add(report->html, ", epoch %g", e->epoch);
    sp_html_raw(report->html, "</div>");
}

static void add_progress(const sp_report *report, const sp_history *s)
{
    const sp_history_step *last = s->n_steps ? &s->step[s->n_steps - 1] : NULL;
    const int n_starts = sp_history_count(s->starts);
    const int n_ends = sp_history_count(s->ends);

    if (last)
        sp_html_add(report->html, "<dt>last step</dt><dd>%g (epoch %g), loss %.4f</dd>",
                    last->at[SP_STEP_AT_STEP], last->at[SP_STEP_AT_EPOCH],
                    last->at[SP_STEP_AT_LOSS]);
    else
        sp_html_raw(report->html, "<dt>last step</dt><dd>not logged</dd>");
    sp_html_add(report->html, "<dt>time</dt><dd>%e",
                n_ends ? sp_history_sum(s->ends, "total_s") : NAN);
    if (n_ends > 0 && n_ends < n_starts) /* one that was killed has no end */
        sp_html_add(report->html, " in %d of %d starts", n_ends, n_starts);
    else if (n_ends > 1)
        sp_html_add(report->html, " in %d starts", n_ends);
    sp_html_raw(report->html, "</dd>");
}

static void add_card(const sp_report *report, int run)
{
    const sp_history *s = &report->history[run];
    const struct json_t *start =
        sp_history_get(s->starts, sp_history_count(s->starts) - 1);

    sp_html_add(report->html, "<section class=\"card\"><h3><i class=\"dot b%d\"></i>%s",
                run % 8, s->name);
    if (s->has_state)
        sp_html_add(report->html, "<span class=\"state %s\">%s</span>", s->state.state,
                    s->state.state);
    sp_html_raw(report->html, "</h3>");
    add_score(report, s);
    sp_html_raw(report->html, "<dl>");
    add_progress(report, s);
    if (start)
        sp_html_add(report->html,
                    "<dt>on</dt><dd>%g rank%s, %s</dd><dt>parameters</dt><dd>%g</dd>",
                    sp_history_number(start, "ranks"),
                    sp_plural(sp_history_number(start, "ranks")),
                    sp_history_text(start, "device"),
                    sp_history_number(start, "parameters"));
    if (s->has_state && *s->state.message)
        sp_html_add(report->html, "<dt>message</dt><dd>%s</dd>", s->state.message);
    sp_html_raw(report->html, "</dl></section>\n");
}

/* True if a run of the page goes on, so that a later report may lie in the same place. */
static bool is_running(const sp_report *report)
{
    for (int run = 0; run < report->n; run++)
        if (report->history[run].has_state &&
            strcmp(report->history[run].state.state, "running") == 0)
            return true;
    return false;
}

static void add_head(const sp_report *report)
{
    const bool renews = is_running(report);

    sp_html_raw(
        report->html,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    if (renews)
        sp_html_add(report->html, "<meta http-equiv=\"refresh\" content=\"%d\">",
                    SP_REPORT_RENEWAL_S);
    sp_html_add(report->html, "<title>%s", report->history[0].name);
    if (report->n > 1)
        sp_html_add(report->html, " and %d more", report->n - 1);
    sp_html_add(report->html,
                " &middot; sptrain report</title>\n<style>\n%-s</style></head>\n"
                "<body><main>\n<header><h1>",
                sp_report_style);
    if (report->n > 1)
        sp_html_add(report->html, "%d runs compared", report->n);
    else
        sp_html_add(report->html, "%s", report->history[0].name);
    sp_html_raw(report->html, "</h1><div class=\"soft\">sptrain report");
    if (renews)
        sp_html_add(report->html, ", read again every %d s while the run goes on",
                    SP_REPORT_RENEWAL_S);
    sp_html_raw(report->html, "</div></header>\n<div class=\"cards\">\n");
    for (int run = 0; run < report->n; run++)
        add_card(report, run);
    sp_html_raw(report->html, "</div>\n");
}

/* ---- differences ---- */

static const char *report_value_of(const sp_history *s, int key)
{
    return s->deck_value && s->deck_value[key] ? s->deck_value[key] : "\xe2\x80\x93";
}

static bool differs(const sp_report *report, int key)
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

static void add_differences(const sp_report *report)
{
    int n = 0;

    if (report->n < 2)
        return;
    sp_html_raw(report->html, "<h2>Differences of the decks</h2>\n");
    for (int key = 0; key < sp_config_n_keys(); key++)
        n += differs(report, key);
    if (n == 0) {
        sp_html_raw(report->html, "<p class=\"soft\">All keys are the same.</p>\n");
        return;
    }
    sp_html_raw(report->html, "<div class=\"wide\"><table class=\"left\"><thead><tr>"
                              "<th>key</th>");
    for (int run = 0; run < report->n; run++) {
        sp_html_raw(report->html, "<th>");
        sp_report_add_run(report, run);
        sp_html_raw(report->html, "</th>");
    }
    sp_html_raw(report->html, "</tr></thead><tbody>\n");
    for (int key = 0; key < sp_config_n_keys(); key++) {
        if (!differs(report, key))
            continue;
        sp_html_add(report->html, "<tr><td>%s</td>", sp_config_key(key));
        for (int run = 0; run < report->n; run++)
            sp_html_add(report->html, "<td>%s</td>",
                        report_value_of(&report->history[run], key));
        sp_html_raw(report->html, "</tr>\n");
    }
    sp_html_raw(report->html, "</tbody></table></div>\n");
}

/* ---- notes ---- */

static void add_notes(const sp_report *report)
{
    bool has_head = false;

    for (int run = 0; run < report->n; run++)
        for (int i = 0; i < report->history[run].n_notes; i++) {
            if (!has_head)
                sp_html_raw(report->html, "<h2>Notes</h2>\n<div class=\"note\">\n");
            has_head = true;
            sp_html_add(report->html, "<p>%s: %s</p>\n", report->history[run].name,
                        report->history[run].note[i]);
        }
    if (has_head)
        sp_html_raw(report->html, "</div>\n");
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

static sp_status write_html(sp_html *html, const char *path)
{
    const char *text;
    size_t n;

    SP_TRY(sp_html_end(html, &text, &n));
    return sp_file_replace(path, text, n, 0);
}

/* report.html has report.csv beside it. */
static sp_status write_csv(const sp_report *report, const char *path)
{
    const int stem = (int)(strlen(path) - strlen(".html"));
    SP_CLOSED_BY(sp_html_destroy) sp_html csv = {0};
    char beside[PATH_MAX];

    if (snprintf(beside, sizeof beside, "%.*s.csv", stem, path) >= (int)sizeof beside)
        return SP_FAIL(SP_EIO, "%.100s...: path too long", path);
    sp_report_add_csv(report, &csv);
    return write_html(&csv, beside);
}

static sp_status write_page(const sp_report *report, const char *path)
{
    add_head(report);
    add_differences(report);
    sp_report_add_curves(report);
    sp_report_add_classes(report);
    sp_report_add_confusions(report);
    sp_report_add_pictures(report);
    sp_report_add_times(report);
    sp_report_add_machines(report);
    sp_report_add_decks(report);
    add_notes(report);
    sp_html_add(report->html,
                "</main><div id=\"tip\" role=\"status\"></div>\n<script>\n%-s\n"
                "</script></body></html>\n",
                sp_report_script);
    SP_TRY(sp_file_make_folder_of(path));
    SP_TRY(write_html(report->html, path));
    return write_csv(report, path);
}

sp_status sp_report_write(const char *path, int n, char *const *dirs, bool is_quiet)
{
    sp_history *history = calloc((size_t)n, sizeof *history);
    sp_html html = {0};
    const sp_report report = {history, n, &html};
    sp_status rc = SP_OK;

    assert(path && sp_file_ends_in(path, ".html") && n >= 1 && dirs);
    if (!history)
        return SP_FAIL(SP_EMEM, "no memory for %d runs", n);
    for (int i = 0; rc == SP_OK && i < n; i++)
        rc = sp_history_read(&history[i], dirs[i]);
    for (int run = 0; rc == SP_OK && !is_quiet && run < n; run++)
        for (int k = 0; k < history[run].n_notes; k++)
            sp_log_warn0("%s: %s", dirs[run], history[run].note[k]);
    if (rc == SP_OK) {
        name_runs(history, n);
        rc = write_page(&report, path);
    }
    for (int i = 0; i < n; i++)
        sp_history_destroy(&history[i]);
    free(history);
    sp_html_destroy(&html);
    return rc;
}
