#include "report/sp_page.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "deck/sp_deck.h"
#include "report/sp_page_internal.h"

/* ---- small parts ---- */

void sp_page_add_run(const sp_page *page, int run)
{
    assert(run >= 0 && run < page->n);
    if (page->n > 1)
        sp_html_add(page->html, "<i class=\"dot b%d\"></i>%s", run % 8,
                    page->story[run].name);
}

void sp_page_head_run(const sp_page *page, int run)
{
    if (page->n < 2)
        return;
    sp_html_raw(page->html, "<h3>");
    sp_page_add_run(page, run);
    sp_html_raw(page->html, "</h3>\n");
}

/* ---- summary ---- */

static void add_score(const sp_page *page, const sp_story *s)
{
    const sp_story_eval *best = sp_story_best(s), *e = best ? best : sp_story_last(s);

    if (!e) {
        sp_html_raw(page->html,
                    "<div class=\"big\">&ndash;</div><div class=\"soft\">no evaluation "
                    "yet</div>");
        return;
    }
    sp_html_add(page->html,
                "<div class=\"big\">%.4f</div><div class=\"soft\">mean IoU over %s, "
                "%sat step %g",
                sp_story_score(e), isnan(e->point_miou) ? "voxels" : "points",
                best ? "best, " : "", e->step);
    if (isfinite(e->epoch))
        sp_html_add(page->html, ", epoch %g", e->epoch);
    sp_html_raw(page->html, "</div>");
}

static double total_time(const sp_story *s)
{
    double sum = 0;

    for (int i = 0; i < s->n_ends; i++)
        sum += isfinite(s->end[i].total_s) ? s->end[i].total_s : 0;
    return s->n_ends ? sum : NAN;
}

static void add_progress(const sp_page *page, const sp_story *s)
{
    const sp_story_step *last = s->n_steps ? &s->step[s->n_steps - 1] : NULL;

    if (last)
        sp_html_add(page->html, "<dt>last step</dt><dd>%g (epoch %g), loss %.4f</dd>",
                    last->at[SP_STEP_AT_STEP], last->at[SP_STEP_AT_EPOCH],
                    last->at[SP_STEP_AT_LOSS]);
    else
        sp_html_raw(page->html, "<dt>last step</dt><dd>not logged</dd>");
    sp_html_add(page->html, "<dt>time</dt><dd>%e", total_time(s));
    if (s->n_ends > 0 && s->n_ends < s->n_starts) /* one that was killed has no end */
        sp_html_add(page->html, " in %d of %d starts", s->n_ends, s->n_starts);
    else if (s->n_ends > 1)
        sp_html_add(page->html, " in %d starts", s->n_ends);
    sp_html_raw(page->html, "</dd>");
}

static void add_card(const sp_page *page, int run)
{
    const sp_story *s = &page->story[run];
    const sp_story_start *start = s->n_starts ? &s->start[s->n_starts - 1] : NULL;

    sp_html_add(page->html, "<section class=\"card\"><h3><i class=\"dot b%d\"></i>%s",
                run % 8, s->name);
    if (s->has_state)
        sp_html_add(page->html, "<span class=\"state %s\">%s</span>", s->state.state,
                    s->state.state);
    sp_html_raw(page->html, "</h3>");
    add_score(page, s);
    sp_html_raw(page->html, "<dl>");
    add_progress(page, s);
    if (start)
        sp_html_add(page->html,
                    "<dt>on</dt><dd>%g rank%s, %s</dd><dt>parameters</dt><dd>%g</dd>",
                    start->ranks, sp_plural(start->ranks), start->device,
                    start->parameters);
    if (s->has_state && *s->state.message)
        sp_html_add(page->html, "<dt>message</dt><dd>%s</dd>", s->state.message);
    sp_html_raw(page->html, "</dl></section>\n");
}

/* True if a run of the page goes on, so that a later report may lie in the same place. */
static bool is_running(const sp_page *page)
{
    for (int run = 0; run < page->n; run++)
        if (page->story[run].has_state &&
            strcmp(page->story[run].state.state, "running") == 0)
            return true;
    return false;
}

static void add_head(const sp_page *page)
{
    const bool renews = is_running(page);

    sp_html_raw(
        page->html,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    if (renews)
        sp_html_add(page->html, "<meta http-equiv=\"refresh\" content=\"%d\">",
                    SP_PAGE_RENEWAL_S);
    sp_html_add(page->html, "<title>%s", page->story[0].name);
    if (page->n > 1)
        sp_html_add(page->html, " and %d more", page->n - 1);
    sp_html_add(page->html,
                " &middot; sptrain report</title>\n<style>\n%-s</style></head>\n"
                "<body><main>\n<header><h1>",
                sp_page_style);
    if (page->n > 1)
        sp_html_add(page->html, "%d runs compared", page->n);
    else
        sp_html_add(page->html, "%s", page->story[0].name);
    sp_html_raw(page->html, "</h1><div class=\"soft\">sptrain report");
    if (renews)
        sp_html_add(page->html, ", read again every %d s while the run goes on",
                    SP_PAGE_RENEWAL_S);
    sp_html_raw(page->html, "</div></header>\n<div class=\"cards\">\n");
    for (int run = 0; run < page->n; run++)
        add_card(page, run);
    sp_html_raw(page->html, "</div>\n");
}

/* ---- differences ---- */

static const char *page_value_of(const sp_story *s, int key)
{
    return s->deck_value && s->deck_value[key] ? s->deck_value[key] : "\xe2\x80\x93";
}

static bool differs(const sp_page *page, int key)
{
    const char *first = NULL;

    /* Every run has its folder. */
    if (strcmp(sp_config_key(key), "run.dir") == 0)
        return false;
    for (int run = 0; run < page->n; run++) {
        if (!page->story[run].deck_value)
            continue;
        if (first && strcmp(first, page_value_of(&page->story[run], key)) != 0)
            return true;
        first = page_value_of(&page->story[run], key);
    }
    return false;
}

static void add_differences(const sp_page *page)
{
    int n = 0;

    if (page->n < 2)
        return;
    sp_html_raw(page->html, "<h2>Differences of the decks</h2>\n");
    for (int key = 0; key < sp_config_n_keys(); key++)
        n += differs(page, key);
    if (n == 0) {
        sp_html_raw(page->html, "<p class=\"soft\">All keys are the same.</p>\n");
        return;
    }
    sp_html_raw(page->html, "<div class=\"wide\"><table class=\"left\"><thead><tr>"
                            "<th>key</th>");
    for (int run = 0; run < page->n; run++) {
        sp_html_raw(page->html, "<th>");
        sp_page_add_run(page, run);
        sp_html_raw(page->html, "</th>");
    }
    sp_html_raw(page->html, "</tr></thead><tbody>\n");
    for (int key = 0; key < sp_config_n_keys(); key++) {
        if (!differs(page, key))
            continue;
        sp_html_add(page->html, "<tr><td>%s</td>", sp_config_key(key));
        for (int run = 0; run < page->n; run++)
            sp_html_add(page->html, "<td>%s</td>",
                        page_value_of(&page->story[run], key));
        sp_html_raw(page->html, "</tr>\n");
    }
    sp_html_raw(page->html, "</tbody></table></div>\n");
}

/* ---- notes ---- */

static void add_notes(const sp_page *page)
{
    bool has_head = false;

    for (int run = 0; run < page->n; run++)
        for (int i = 0; i < page->story[run].n_notes; i++) {
            if (!has_head)
                sp_html_raw(page->html, "<h2>Notes</h2>\n<div class=\"note\">\n");
            has_head = true;
            sp_html_add(page->html, "<p>%s: %s</p>\n", page->story[run].name,
                        page->story[run].note[i]);
        }
    if (has_head)
        sp_html_raw(page->html, "</div>\n");
}

/* ---- the page ---- */

/* A run's name is the last part of its folder's path, or the whole path if two runs
 * share the last part or the folder is the root. */
static void name_runs(sp_story *story, int n)
{
    for (int i = 0; i < n; i++) {
        const char *last = sp_file_name(story[i].dir);
        bool is_shared = !*last;

        for (int k = 0; k < n; k++)
            is_shared =
                is_shared || (k != i && strcmp(last, sp_file_name(story[k].dir)) == 0);
        story[i].name = is_shared ? story[i].dir : last;
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
static sp_status write_csv(const sp_page *page, const char *path)
{
    const int stem = (int)(strlen(path) - strlen(".html"));
    char beside[PATH_MAX];
    sp_html csv = {0};
    sp_status rc;

    if (snprintf(beside, sizeof beside, "%.*s.csv", stem, path) >= (int)sizeof beside)
        return SP_FAIL(SP_EIO, "%.100s...: path too long", path);
    sp_page_add_csv(page, &csv);
    rc = write_html(&csv, beside);
    sp_html_destroy(&csv);
    return rc;
}

static sp_status write_page(const sp_page *page, const char *path)
{
    add_head(page);
    add_differences(page);
    sp_page_add_curves(page);
    sp_page_add_classes(page);
    sp_page_add_confusions(page);
    sp_page_add_pictures(page);
    sp_page_add_times(page);
    sp_page_add_machines(page);
    sp_page_add_decks(page);
    add_notes(page);
    sp_html_add(page->html,
                "</main><div id=\"tip\" role=\"status\"></div>\n<script>\n%-s\n"
                "</script></body></html>\n",
                sp_page_script);
    SP_TRY(sp_file_make_folder_of(path));
    SP_TRY(write_html(page->html, path));
    return write_csv(page, path);
}

sp_status sp_page_write(const char *path, int n, char *const *dirs, bool is_quiet)
{
    sp_story *story = calloc((size_t)n, sizeof *story);
    sp_html html = {0};
    const sp_page page = {story, n, &html};
    sp_status rc = SP_OK;

    assert(path && sp_file_ends_in(path, ".html") && n >= 1 && dirs);
    if (!story)
        return SP_FAIL(SP_EMEM, "no memory for %d runs", n);
    for (int i = 0; rc == SP_OK && i < n; i++)
        rc = sp_story_read(&story[i], dirs[i]);
    for (int run = 0; rc == SP_OK && !is_quiet && run < n; run++)
        for (int k = 0; k < story[run].n_notes; k++)
            sp_log_warn0("%s: %s", dirs[run], story[run].note[k]);
    if (rc == SP_OK) {
        name_runs(story, n);
        rc = write_page(&page, path);
    }
    for (int i = 0; i < n; i++)
        sp_story_destroy(&story[i]);
    free(story);
    sp_html_destroy(&html);
    return rc;
}
