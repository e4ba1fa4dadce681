/* The curves of a page. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "report/sp_report_internal.h"

/* The IoU of the class of this name, over points if there are points. */
static double report_curves_iou_of(const sp_history_eval *e, const char *class)
{
    const double *iou = e->point_iou ? e->point_iou : e->iou;

    for (int c = 0; iou && c < e->n_classes; c++)
        if (strcmp(e->class_name[c], class) == 0)
            return iou[c];
    return NAN;
}

static double number_at(const void *element, size_t offset)
{
    return *(const double *)(const void *)((const char *)element + offset);
}

/* Writes the n points of a run: x [n], then y [n]. */
static void curves_copy_points(const sp_history *s, const sp_report_numbers *from,
                               int n, double *x)
{
    for (int i = 0; i < n; i++) {
        x[i] = from->is_eval ? s->eval[i].step : s->step[i].at[SP_STEP_AT_STEP];
        x[n + i] = from->iou       ? report_curves_iou_of(&s->eval[i], from->iou)
                   : from->is_eval ? number_at(&s->eval[i], from->offset)
                                   : number_at(&s->step[i], from->offset);
        x[n + i] /= from->unit > 0 ? from->unit : 1;
    }
}

void sp_report_add_chart(const sp_report *report, const sp_chart *chart,
                         const sp_report_numbers *from)
{
    sp_series *series = calloc((size_t)report->n, sizeof *series);
    double **held = calloc((size_t)report->n, sizeof *held);
    bool is_short = !series || !held;

    assert(report->n > 0);
    for (int run = 0; !is_short && run < report->n; run++) {
        const sp_history *s = &report->history[run];
        const int n = from->is_eval ? s->n_evals : s->n_steps;
        double *x = held[run] = malloc((2 * (size_t)n + 1) * sizeof *x);

        is_short = !x;
        if (is_short)
            break;
        curves_copy_points(s, from, n, x);
        series[run] =
            (sp_series){report->n > 1 ? s->name : chart->title, run, n, x, x + n};
    }
    if (is_short)
        report->html->is_short = true;
    else
        sp_chart_add(report->html, chart, series, report->n);
    for (int run = 0; held && run < report->n; run++)
        free(held[run]);
    free(held);
    free(series);
}

/* Has an earlier run a class of this name? Then its chart shows this run too. */
static bool is_shown(const sp_report *report, int run, const char *class)
{
    for (int r = 0; r < run; r++) {
        const sp_history *s = &report->history[r];

        if (s->n_evals > 0)
            for (int c = 0; c < s->eval[s->n_evals - 1].n_classes; c++)
                if (strcmp(s->eval[s->n_evals - 1].class_name[c], class) == 0)
                    return true;
    }
    return false;
}

static void add_class_charts(const sp_report *report)
{
    bool has_head = false;

    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];
        const sp_history_eval *last = s->n_evals ? &s->eval[s->n_evals - 1] : NULL;

        for (int c = 0; last && c < last->n_classes; c++) {
            const sp_chart chart = {
                .title = last->class_name[c], .lo = 0, .hi = 1, .is_small = true};

            if (is_shown(report, run, last->class_name[c]))
                continue;
            if (!has_head)
                sp_html_raw(report->html,
                            "<h3>IoU of each class</h3><div class=\"grid4\">"
                            "\n");
            has_head = true;
            sp_report_add_chart(
                report, &chart,
                &(sp_report_numbers){.is_eval = true, .iou = last->class_name[c]});
        }
    }
    if (has_head)
        sp_html_raw(report->html, "</div>\n");
}

static void report_curves_add_legend(const sp_report *report)
{
    if (report->n < 2)
        return;
    sp_html_raw(report->html, "<ul class=\"keys\">");
    for (int run = 0; run < report->n; run++) {
        sp_html_raw(report->html, "<li>");
        sp_report_add_run(report, run);
        sp_html_raw(report->html, "</li>");
    }
    sp_html_raw(report->html, "</ul>\n");
}

void sp_report_add_curves(const sp_report *report)
{
    static const struct {
        const char *title;
        bool is_eval, is_smoothed, is_linear;
        size_t offset;
    } charts[] = {
        {"Loss of the step", false, true, false, SP_REPORT_STEP(LOSS)},
        {"Loss in validation", true, false, false, offsetof(sp_history_eval, loss)},
        {"Mean IoU over voxels", true, false, false, offsetof(sp_history_eval, miou)},
        {"Mean IoU over points", true, false, false,
         offsetof(sp_history_eval, point_miou)},
        {"Accuracy", true, false, false, offsetof(sp_history_eval, accuracy)},
        {"Learning rate", false, false, true, SP_REPORT_STEP(LR)},
        {"Norm of the gradient", false, true, false, SP_REPORT_STEP(GRAD_NORM)}};
    bool has_any = false;

    assert(report->n > 0 && report->history);
    for (int run = 0; run < report->n; run++)
        has_any =
            has_any || report->history[run].n_steps || report->history[run].n_evals;
    sp_html_raw(report->html, "<h2>Training</h2>\n");
    if (!has_any) {
        sp_html_raw(report->html, "<p class=\"soft\">No step has been logged.</p>\n");
        return;
    }
    report_curves_add_legend(report);
    sp_html_raw(report->html, "<div class=\"grid2\">\n");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        const sp_chart chart = {.title = charts[i].title,
                                .lo = NAN,
                                .hi = NAN,
                                .is_smoothed = charts[i].is_smoothed,
                                .is_linear = charts[i].is_linear};

        sp_report_add_chart(report, &chart,
                            &(sp_report_numbers){.is_eval = charts[i].is_eval,
                                                 .offset = charts[i].offset});
    }
    sp_html_raw(report->html, "</div>\n");
    add_class_charts(report);
}
