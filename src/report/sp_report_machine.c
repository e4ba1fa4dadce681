/* Time, ranks, versions, checkpoints and decks of a page. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "report/sp_report_internal.h"

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
static double report_machine_mean_of(const sp_history *s, sp_step_value value)
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

/* The parts of a run's step that its bar shows, and what they leave over. */
typedef struct shown {
    const char *name;
    int colour;
    double s;
} shown;

static int list_parts(const sp_history *s, double whole, shown at[N_PARTS + 1])
{
    double rest = whole;
    int n = 0;

    for (int i = 0; i < N_PARTS; i++) {
        const double part = report_machine_mean_of(s, parts[i].value);

        if (!isfinite(part) || part <= 0)
            continue;
        at[n++] = (shown){parts[i].name, i + 1, fmin(part, rest)};
        rest -= fmin(part, rest);
    }
    if (rest > 0)
        at[n++] = (shown){isfinite(report_machine_mean_of(s, SP_STEP_AT_FORWARD_S))
                              ? "the rest"
                              : "computing",
                          0, rest};
    return n;
}

/* The bar of a step, and below it a list of its parts. */
static void add_parts(const sp_report *report, const sp_history *s, double whole)
{
    shown at[N_PARTS + 1];
    const int n = list_parts(s, whole, at);

    sp_html_raw(report->html, "<div class=\"parts\">");
    for (int i = 0; i < n; i++)
        sp_html_add(report->html,
                    "<i class=\"b%d\" style=\"width:%.2f%%\" title=\"%s\n%e, "
                    "%.1f %%\"></i>",
                    at[i].colour, 100 * at[i].s / whole, at[i].name, at[i].s,
                    100 * at[i].s / whole);
    sp_html_raw(report->html, "</div><ul class=\"keys\">");
    for (int i = 0; i < n; i++)
        sp_html_add(report->html,
                    "<li><i class=\"dot b%d\"></i>%s %e <small>%.1f %%</small></li>",
                    at[i].colour, at[i].name, at[i].s, 100 * at[i].s / whole);
    sp_html_raw(report->html, "</ul>\n");
}

static void add_step_time(const sp_report *report, int run)
{
    const sp_history *s = &report->history[run];
    const double whole = report_machine_mean_of(s, SP_STEP_AT_STEP_S);

    if (!(whole > 0))
        return;
    sp_report_head_run(report, run);
    sp_html_add(report->html,
                "<p>A step takes %e on the slowest rank and has %g voxels; the fullest "
                "rank has %.2f times the mean share. ",
                whole, report_machine_mean_of(s, SP_STEP_AT_VOXELS),
                report_machine_mean_of(s, SP_STEP_AT_IMBALANCE));
    if (isfinite(report_machine_mean_of(s, SP_STEP_AT_PLAN_S)))
        sp_html_add(report->html, "Plans are made ahead, in %e. ",
                    report_machine_mean_of(s, SP_STEP_AT_PLAN_S));
    sp_html_raw(report->html, "<span class=\"soft\">(Means of the logged steps but the "
                              "first.)</span></p>\n");
    add_parts(report, s, whole);
}

static void add_totals(const sp_report *report, const sp_history *s)
{
    static const struct {
        const char *name, *key;
    } totals[] = {{"in all", "total_s"},
                  {"training", "train_s"},
                  {"evaluation", "eval_s"},
                  {"waiting for checkpoints", "save_s"}};

    if (sp_history_count(s->ends) == 0)
        return;
    sp_html_raw(report->html, "<ul class=\"keys soft\">");
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
        if (sp_history_sum(s->ends, totals[i].key) > 0)
            sp_html_add(report->html, "<li>%s %e</li>", totals[i].name,
                        sp_history_sum(s->ends, totals[i].key));
    sp_html_raw(report->html, "</ul>\n");
}

void sp_report_add_times(const sp_report *report)
{
    static const struct {
        const char *title;
        size_t offset;
        double unit;
    } charts[] = {
        {"Seconds of a step", SP_REPORT_STEP(STEP_S), 1},
        {"Seconds waiting for data", SP_REPORT_STEP(DATA_WAIT_S), 1},
        {"Seconds waiting for other ranks", SP_REPORT_STEP(COMM_EXPOSED_S), 1},
        {"Imbalance: fullest rank over mean", SP_REPORT_STEP(IMBALANCE), 1},
        {"Voxels of a step", SP_REPORT_STEP(VOXELS), 1},
        {"Memory of the largest rank in MiB", SP_REPORT_STEP(MEMORY), MIB}};
    bool has_steps = false;

    assert(report->n > 0 && report->history);
    for (int run = 0; run < report->n; run++)
        has_steps = has_steps || report_machine_mean_of(&report->history[run],
                                                        SP_STEP_AT_STEP_S) > 0;
    if (!has_steps)
        return;
    sp_html_raw(report->html, "<h2>Time</h2>\n");
    for (int run = 0; run < report->n; run++) {
        add_step_time(report, run);
        add_totals(report, &report->history[run]);
    }
    sp_html_raw(report->html, "<div class=\"grid2\">\n");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        const sp_chart chart = {.title = charts[i].title,
                                .lo = NAN,
                                .hi = NAN,
                                .is_smoothed = true,
                                .is_linear = true};

        sp_report_add_chart(
            report, &chart,
            &(sp_report_numbers){.offset = charts[i].offset, .unit = charts[i].unit});
    }
    sp_html_raw(report->html, "</div>\n");
}

/* ---- who ran where ---- */

static void add_start(const sp_report *report, const struct json_t *s)
{
    sp_html_add(report->html,
                "<tr><td>%s</td><td>%g</td><td>%g on %g</td><td>%s</td><td>%s</td>"
                "<td>%s</td><td>%s</td><td>%s</td></tr>\n",
                strcmp(sp_history_text(s, "event"), "resume") == 0 ? "continued"
                                                                   : "begun",
                sp_history_number(s, "step"), sp_history_number(s, "ranks"),
                sp_history_number(s, "nodes"), sp_history_text(s, "device"),
                sp_history_text(s, "processor"), sp_history_text(s, "precision"),
                sp_history_text(s, "transport_text"), sp_history_text(s, "version"));
}

static void add_starts(const sp_report *report, const sp_history *s)
{
    const struct json_t *last =
        sp_history_get(s->starts, sp_history_count(s->starts) - 1);

    if (!last)
        return;
    sp_html_raw(
        report->html,
        "<div class=\"wide\"><table class=\"left\"><thead><tr><th>start</th>"
        "<th>at step</th><th>ranks, nodes</th><th>device</th><th>processor</th>"
        "<th>precision</th><th>sums by</th><th>version</th></tr></thead><tbody>\n");
    for (int i = 0; i < sp_history_count(s->starts); i++)
        add_start(report, sp_history_get(s->starts, i));
    sp_html_add(report->html,
                "</tbody></table></div>\n<ul class=\"keys soft\"><li>%s</li><li>HDF5 %s"
                "</li><li>deck %s</li><li>data %s</li></ul>\n",
                sp_history_text(last, "mpi"), sp_history_text(last, "hdf5"),
                sp_history_text(last, "deck_hash"), sp_history_text(last, "data_hash"));
}

/* Lists the hosts with their ranks: "node1: ranks 0-7". */
static void add_hosts(const sp_report *report, const sp_history *s)
{
    if (s->n_ranks == 0)
        return;
    sp_html_raw(report->html, "<ul class=\"keys\">");
    for (int i = 0, end; i < s->n_ranks; i = end) {
        for (end = i + 1;
             end < s->n_ranks && strcmp(s->rank[end].host, s->rank[i].host) == 0; end++)
            ;
        sp_html_add(report->html, "<li>%s", s->rank[i].host);
        if (end == i + 1)
            sp_html_add(report->html, " <small>rank %d</small></li>", i);
        else
            sp_html_add(report->html, " <small>ranks %d to %d</small></li>", i,
                        end - 1);
    }
    sp_html_raw(report->html, "</ul>\n");
}

static void add_checkpoints(const sp_report *report, const sp_history *s)
{
    if (s->n_checkpoints == 0)
        return;
    sp_html_raw(report->html, "<ul class=\"keys soft\">");
    for (int i = 0; i < s->n_checkpoints; i++)
        sp_html_add(report->html, "<li>%s <small>%.1f MiB</small></li>",
                    s->checkpoint[i].name, (double)s->checkpoint[i].bytes / MIB);
    sp_html_raw(report->html, "</ul>\n");
}

/* The largest rank's memory, of all logged steps. */
static void add_memory(const sp_report *report, const sp_history *s)
{
    double most = NAN;

    for (int i = 0; i < s->n_steps; i++)
        most = fmax(most, s->step[i].at[SP_STEP_AT_MEMORY]);
    if (isfinite(most))
        sp_html_add(report->html, "<p>The largest rank took %g MiB of memory.</p>\n",
                    most / MIB);
}

void sp_report_add_machines(const sp_report *report)
{
    bool has_head = false;

    assert(report->n > 0 && report->history);
    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];

        if (!s->starts && s->n_ranks + s->n_checkpoints == 0)
            continue;
        if (!has_head)
            sp_html_raw(report->html, "<h2>Ranks, restarts, checkpoints</h2>\n");
        has_head = true;
        sp_report_head_run(report, run);
        add_starts(report, s);
        add_hosts(report, s);
        add_memory(report, s);
        add_checkpoints(report, s);
    }
}

void sp_report_add_decks(const sp_report *report)
{
    bool has_head = false;

    for (int run = 0; run < report->n; run++) {
        if (!report->history[run].deck)
            continue;
        if (!has_head)
            sp_html_raw(report->html, "<h2>Deck</h2>\n");
        has_head = true;
        sp_html_add(report->html, "<details><summary>every key of %s</summary><pre>",
                    report->history[run].name);
        sp_html_lines(report->html, report->history[run].deck);
        sp_html_raw(report->html, "</pre></details>\n");
    }
}
