/* Time, ranks, versions and checkpoints of a page. */
#include <math.h>
#include <string.h>

#include "report/sp_report_internal.h"

enum { MIB = 1 << 20 };

/* ---- time of a step ---- */

/* The mean of a number over the logged steps but the first, which warms up; NAN: no
 * line has it. */
static double machine_mean(const sp_history *s, sp_step_value value)
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

static void machine_add_part(const sp_report *report, json_t *to, const char *name,
                             int colour, double s, double whole)
{
    sp_page_put(report->page, sp_page_add(report->page, to, "part", NULL),
                "name %s colour %d s %f percent %f", name, colour, s, 100 * s / whole);
}

/* Appends the parts of a step that lines report, in the order of execution, and what
 * they leave over. Plans are made ahead, beside the steps. */
static void machine_add_step(const sp_report *report, json_t *to, const sp_history *s)
{
    static const struct {
        const char *name;
        sp_step_value value;
    } parts[] = {{"waiting for data", SP_STEP_AT_DATA_WAIT_S},
                 {"forward", SP_STEP_AT_FORWARD_S},
                 {"backward", SP_STEP_AT_BACKWARD_S},
                 {"waiting for other ranks", SP_STEP_AT_COMM_EXPOSED_S},
                 {"update", SP_STEP_AT_UPDATE_S}};
    const double whole = machine_mean(s, SP_STEP_AT_STEP_S);
    double rest = whole;

    sp_page_put(report->page, to, "step_s %f voxels %f imbalance %f plan_s %f", whole,
                machine_mean(s, SP_STEP_AT_VOXELS),
                machine_mean(s, SP_STEP_AT_IMBALANCE),
                machine_mean(s, SP_STEP_AT_PLAN_S));
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        const double part = fmin(machine_mean(s, parts[i].value), rest);

        if (!(machine_mean(s, parts[i].value) > 0))
            continue;
        machine_add_part(report, to, parts[i].name, i + 1, part, whole);
        rest -= part;
    }
    if (rest > 0)
        machine_add_part(report, to,
                         isfinite(machine_mean(s, SP_STEP_AT_FORWARD_S)) ? "the rest"
                                                                         : "computing",
                         0, rest, whole);
}

static void machine_add_time(const sp_report *report, int run)
{
    static const char *const totals[][2] = {{"in all", "total_s"},
                                            {"training", "train_s"},
                                            {"evaluation", "eval_s"},
                                            {"waiting for checkpoints", "save_s"}};
    const sp_history *s = &report->history[run];
    json_t *at = sp_report_add(report, "time", run);

    if (machine_mean(s, SP_STEP_AT_STEP_S) > 0)
        machine_add_step(report, at, s);
    for (int i = 0; i < 4; i++)
        if (sp_history_sum(s->ends, totals[i][1]) > 0)
            sp_page_put(report->page, sp_page_add(report->page, at, "total", NULL),
                        "name %s s %f", totals[i][0],
                        sp_history_sum(s->ends, totals[i][1]));
}

/* ---- who ran where ---- */

static void machine_add_starts(const sp_report *report, json_t *to, const sp_history *s)
{
    const int n = sp_history_count(s->starts);

    for (int i = 0; i < n; i++) {
        const json_t *start = sp_history_get(s->starts, i);
        json_t *at = sp_page_add(report->page, to, "start", start);

        sp_page_put(report->page, at, "how %s",
                    strcmp(sp_history_text(start, "event"), "resume") == 0 ? "continued"
                                                                           : "begun");
    }
    if (n > 0)
        sp_page_add(report->page, to, "last", sp_history_get(s->starts, n - 1));
}

/* Appends the hosts with their ranks. */
static void machine_add_hosts(const sp_report *report, json_t *to, const sp_history *s)
{
    for (int i = 0, end; i < s->n_ranks; i = end) {
        char ranks[48];

        for (end = i + 1;
             end < s->n_ranks && strcmp(s->rank[end].host, s->rank[i].host) == 0; end++)
            ;
        if (end == i + 1)
            snprintf(ranks, sizeof ranks, "rank %d", i);
        else
            snprintf(ranks, sizeof ranks, "ranks %d to %d", i, end - 1);
        sp_page_put(report->page, sp_page_add(report->page, to, "host", NULL),
                    "name %s ranks %s", s->rank[i].host, ranks);
    }
}

static void machine_add_places(const sp_report *report, int run)
{
    const sp_history *s = &report->history[run];
    json_t *at = sp_report_add(report, "machine", run);
    double most = NAN;

    machine_add_starts(report, at, s);
    machine_add_hosts(report, at, s);
    for (int i = 0; i < s->n_steps; i++)
        most = fmax(most, s->step[i].at[SP_STEP_AT_MEMORY]);
    sp_page_put(report->page, at, "memory %f", most / MIB);
    for (int i = 0; i < s->n_checkpoints; i++)
        sp_page_put(report->page, sp_page_add(report->page, at, "checkpoint", NULL),
                    "name %s mib %f", s->checkpoint[i].name,
                    (double)s->checkpoint[i].bytes / MIB);
}

void sp_report_add_machines(const sp_report *report)
{
    bool has_steps = false;

    for (int run = 0; run < report->n; run++)
        has_steps =
            has_steps || machine_mean(&report->history[run], SP_STEP_AT_STEP_S) > 0;
    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];

        if (has_steps)
            machine_add_time(report, run);
        if (s->starts || s->n_ranks + s->n_checkpoints > 0)
            machine_add_places(report, run);
    }
}
