/* Time, ranks, versions, checkpoints and decks of a page. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "report/sp_page_internal.h"

enum { MIB = 1 << 20 };

/* ---- time of a step ---- */

/* The parts of a step that a line may report, in the order of execution. Plans are made
 * ahead, beside the steps. */
static const struct part {
    const char *name;
    sp_step_value value;
} parts[] = {{"waiting for data", SP_STEP_AT_DATA_WAIT_S},
             {"forward", SP_STEP_AT_FORWARD_S},
             {"backward", SP_STEP_AT_BACKWARD_S},
             {"waiting for other ranks", SP_STEP_AT_COMM_EXPOSED_S},
             {"update", SP_STEP_AT_UPDATE_S}};
enum { N_PARTS = sizeof parts / sizeof *parts };

/* The mean of a number over the logged steps but the first, which warms up; NAN: no
 * line has it. */
static double page_machine_mean_of(const sp_story *s, sp_step_value value)
{
    double sum = 0;
    int n = 0;

    for (int i = s->n_steps > 1; i < s->n_steps; i++)
        if (isfinite(s->step[i].at[value])) {
            sum += s->step[i].at[value];
            n++;
        }
    return n ? sum / n : NAN;
}

/* Appends a part of the bar, and its word to the list below. */
static void page_add_part(const sp_page *page, sp_html *list, const char *name,
                          int colour, double s, double whole)
{
    const sp_page below = {page->story, page->n, list};

    sp_html_add(page->html, "<i class=\"b%d\" style=\"width:%.2f%%\" title=\"%s\n",
                colour, 100 * s / whole, name);
    sp_page_add_seconds(page, s);
    sp_html_add(page->html, ", %.1f %%\"></i>", 100 * s / whole);
    sp_html_add(list, "<li><i class=\"dot b%d\"></i>%s ", colour, name);
    sp_page_add_seconds(&below, s);
    sp_html_add(list, " <small>%.1f %%</small></li>", 100 * s / whole);
}

static void add_parts(const sp_page *page, const sp_story *s, double whole)
{
    double rest = whole;
    sp_html list = {0};
    const char *text;
    size_t n;

    sp_html_raw(page->html, "<div class=\"parts\">");
    for (int i = 0; i < N_PARTS; i++) {
        const double part = page_machine_mean_of(s, parts[i].value);

        if (!isfinite(part) || part <= 0)
            continue;
        page_add_part(page, &list, parts[i].name, i + 1, fmin(part, rest), whole);
        rest -= fmin(part, rest);
    }
    if (rest > 0)
        page_add_part(page, &list,
                      isfinite(page_machine_mean_of(s, SP_STEP_AT_FORWARD_S))
                          ? "the rest"
                          : "computing",
                      0, rest, whole);
    sp_html_raw(page->html, "</div><ul class=\"keys\">");
    if (sp_html_end(&list, &text, &n) == SP_OK)
        sp_html_raw(page->html, text);
    else
        page->html->is_short = page->html->is_short || list.is_short;
    sp_html_raw(page->html, "</ul>\n");
    sp_html_destroy(&list);
}

static void add_step_time(const sp_page *page, int run)
{
    const sp_story *s = &page->story[run];
    const double whole = page_machine_mean_of(s, SP_STEP_AT_STEP_S);

    if (!(whole > 0))
        return;
    sp_page_head_run(page, run);
    sp_html_raw(page->html, "<p>A step takes ");
    sp_page_add_seconds(page, whole);
    sp_html_raw(page->html, " on the slowest rank and has ");
    sp_page_add_count(page, page_machine_mean_of(s, SP_STEP_AT_VOXELS));
    sp_html_raw(page->html, " voxels; the fullest rank has ");
    sp_page_add_number(page, page_machine_mean_of(s, SP_STEP_AT_IMBALANCE), 2);
    sp_html_raw(page->html, " times the mean share. ");
    if (isfinite(page_machine_mean_of(s, SP_STEP_AT_PLAN_S))) {
        sp_html_raw(page->html, "Plans are made ahead, in ");
        sp_page_add_seconds(page, page_machine_mean_of(s, SP_STEP_AT_PLAN_S));
        sp_html_raw(page->html, ". ");
    }
    sp_html_raw(page->html, "<span class=\"soft\">(Means of the logged steps but the "
                            "first.)</span></p>\n");
    add_parts(page, s, whole);
}

static void add_total(const sp_page *page, const char *name, double seconds)
{
    if (!(seconds > 0))
        return;
    sp_html_add(page->html, "<li>%s ", name);
    sp_page_add_seconds(page, seconds);
    sp_html_raw(page->html, "</li>");
}

static void add_totals(const sp_page *page, const sp_story *s)
{
    double total = 0, train = 0, eval = 0, save = 0;

    for (int i = 0; i < s->n_ends; i++) {
        total += isfinite(s->end[i].total_s) ? s->end[i].total_s : 0;
        train += isfinite(s->end[i].train_s) ? s->end[i].train_s : 0;
        eval += isfinite(s->end[i].eval_s) ? s->end[i].eval_s : 0;
        save += isfinite(s->end[i].save_s) ? s->end[i].save_s : 0;
    }
    if (s->n_ends == 0)
        return;
    sp_html_raw(page->html, "<ul class=\"keys soft\">");
    add_total(page, "in all", total);
    add_total(page, "training", train);
    add_total(page, "evaluation", eval);
    add_total(page, "waiting for checkpoints", save);
    sp_html_raw(page->html, "</ul>\n");
}

void sp_page_add_times(const sp_page *page)
{
    static const struct {
        const char *title;
        size_t offset;
        double unit;
    } charts[] = {{"Seconds of a step", SP_PAGE_STEP(STEP_S), 1},
                  {"Seconds waiting for data", SP_PAGE_STEP(DATA_WAIT_S), 1},
                  {"Seconds waiting for other ranks", SP_PAGE_STEP(COMM_EXPOSED_S), 1},
                  {"Imbalance: fullest rank over mean", SP_PAGE_STEP(IMBALANCE), 1},
                  {"Voxels of a step", SP_PAGE_STEP(VOXELS), 1},
                  {"Memory of the largest rank in MiB", SP_PAGE_STEP(MEMORY), MIB}};
    bool has_steps = false;

    assert(page->n > 0 && page->story);
    for (int run = 0; run < page->n; run++)
        has_steps =
            has_steps || page_machine_mean_of(&page->story[run], SP_STEP_AT_STEP_S) > 0;
    if (!has_steps)
        return;
    sp_html_raw(page->html, "<h2>Time</h2>\n");
    for (int run = 0; run < page->n; run++) {
        add_step_time(page, run);
        add_totals(page, &page->story[run]);
    }
    sp_html_raw(page->html, "<div class=\"grid2\">\n");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        const sp_chart chart = {.title = charts[i].title,
                                .lo = NAN,
                                .hi = NAN,
                                .is_smoothed = true,
                                .is_linear = true};

        sp_page_add_chart(
            page, &chart,
            &(sp_page_numbers){.offset = charts[i].offset, .unit = charts[i].unit});
    }
    sp_html_raw(page->html, "</div>\n");
}

/* ---- who ran where ---- */

static void page_machine_add_cell(const sp_page *page, const char *text)
{
    sp_html_put(page->html, "<td>", text, "</td>");
}

static void add_start(const sp_page *page, const sp_story_start *s)
{
    sp_html_raw(page->html,
                s->is_resume ? "<tr><td>continued</td><td>" : "<tr><td>begun</td><td>");
    sp_page_add_count(page, s->step);
    sp_html_raw(page->html, "</td><td>");
    sp_page_add_count(page, s->ranks);
    sp_html_raw(page->html, " on ");
    sp_page_add_count(page, s->nodes);
    sp_html_raw(page->html, "</td>");
    page_machine_add_cell(page, s->device);
    page_machine_add_cell(page, s->processor);
    page_machine_add_cell(page, s->precision);
    page_machine_add_cell(page, s->transport);
    page_machine_add_cell(page, s->version);
    sp_html_raw(page->html, "</tr>\n");
}

static void add_starts(const sp_page *page, const sp_story *s)
{
    const sp_story_start *last = s->n_starts ? &s->start[s->n_starts - 1] : NULL;

    if (!last)
        return;
    sp_html_raw(
        page->html,
        "<div class=\"wide\"><table class=\"left\"><thead><tr><th>start</th>"
        "<th>at step</th><th>ranks, nodes</th><th>device</th><th>processor</th>"
        "<th>precision</th><th>sums by</th><th>version</th></tr></thead><tbody>\n");
    for (int i = 0; i < s->n_starts; i++)
        add_start(page, &s->start[i]);
    sp_html_put(page->html, "</tbody></table></div>\n<ul class=\"keys soft\"><li>",
                last->mpi, "</li><li>HDF5 ");
    sp_html_text(page->html, last->hdf5);
    sp_html_put(page->html, "</li><li>deck ", last->deck_hash, "</li><li>data ");
    sp_html_text(page->html, last->data_hash);
    sp_html_raw(page->html, "</li></ul>\n");
}

/* Lists the hosts with their ranks: "node1: ranks 0-7". */
static void add_hosts(const sp_page *page, const sp_story *s)
{
    if (s->n_ranks == 0)
        return;
    sp_html_raw(page->html, "<ul class=\"keys\">");
    for (int i = 0, end; i < s->n_ranks; i = end) {
        for (end = i + 1;
             end < s->n_ranks && strcmp(s->rank[end].host, s->rank[i].host) == 0; end++)
            ;
        sp_html_raw(page->html, "<li>");
        sp_html_text(page->html, s->rank[i].host);
        if (end == i + 1)
            sp_html_add(page->html, " <small>rank %d</small></li>", i);
        else
            sp_html_add(page->html, " <small>ranks %d to %d</small></li>", i, end - 1);
    }
    sp_html_raw(page->html, "</ul>\n");
}

static void add_checkpoints(const sp_page *page, const sp_story *s)
{
    if (s->n_checkpoints == 0)
        return;
    sp_html_raw(page->html, "<ul class=\"keys soft\">");
    for (int i = 0; i < s->n_checkpoints; i++) {
        sp_html_raw(page->html, "<li>");
        sp_html_text(page->html, s->checkpoint[i].name);
        sp_html_add(page->html, " <small>%.1f MiB</small></li>",
                    (double)s->checkpoint[i].bytes / MIB);
    }
    sp_html_raw(page->html, "</ul>\n");
}

/* The largest rank's memory, of all logged steps. */
static void add_memory(const sp_page *page, const sp_story *s)
{
    double most = NAN;

    for (int i = 0; i < s->n_steps; i++)
        most = fmax(most, s->step[i].at[SP_STEP_AT_MEMORY]);
    if (!isfinite(most))
        return;
    sp_html_raw(page->html, "<p>The largest rank took ");
    sp_page_add_count(page, most / MIB);
    sp_html_raw(page->html, " MiB of memory.</p>\n");
}

void sp_page_add_machines(const sp_page *page)
{
    bool has_head = false;

    assert(page->n > 0 && page->story);
    for (int run = 0; run < page->n; run++) {
        const sp_story *s = &page->story[run];

        if (s->n_starts + s->n_ranks + s->n_checkpoints == 0)
            continue;
        if (!has_head)
            sp_html_raw(page->html, "<h2>Ranks, restarts, checkpoints</h2>\n");
        has_head = true;
        sp_page_head_run(page, run);
        add_starts(page, s);
        add_hosts(page, s);
        add_memory(page, s);
        add_checkpoints(page, s);
    }
}

void sp_page_add_decks(const sp_page *page)
{
    bool has_head = false;

    for (int run = 0; run < page->n; run++) {
        if (!page->story[run].deck)
            continue;
        if (!has_head)
            sp_html_raw(page->html, "<h2>Deck</h2>\n");
        has_head = true;
        sp_html_put(page->html, "<details><summary>every key of ",
                    page->story[run].name, "</summary><pre>");
        sp_html_lines(page->html, page->story[run].deck);
        sp_html_raw(page->html, "</pre></details>\n");
    }
}
