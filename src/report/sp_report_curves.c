/* The charts of a page. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "report/sp_chart.h"
#include "report/sp_report_internal.h"

/* A chart of a number of each logged step, or of each evaluation of the training. */
typedef struct curves_chart {
    const char *list, *title;
    int flags; /* of sp_chart.h */
    bool is_eval;
    size_t offset;     /* of the number in sp_history_step or sp_history_eval */
    double unit;       /* the number is divided by it */
    const char *class; /* the number is the IoU of this class */
} curves_chart;

#define STEP(name, unit)                                                               \
    false, offsetof(sp_history_step, at[SP_STEP_AT_##name]), unit, NULL
#define EVAL(name) true, offsetof(sp_history_eval, name), 1, NULL
static const char training[] = "training_chart", times[] = "time_chart";
enum { NOISY = SP_CHART_SMOOTHED, TIME = SP_CHART_SMOOTHED | SP_CHART_LINEAR };
static const curves_chart charts[] = {
    {training, "Loss of the step", NOISY, STEP(LOSS, 1)},
    {training, "Loss in validation", 0, EVAL(loss)},
    {training, "Mean IoU over voxels", 0, EVAL(miou)},
    {training, "Mean IoU over points", 0, EVAL(point_miou)},
    {training, "Accuracy", 0, EVAL(accuracy)},
    {training, "Learning rate", SP_CHART_LINEAR, STEP(LR, 1)},
    {training, "Norm of the gradient", NOISY, STEP(GRAD_NORM, 1)},
    {times, "Seconds of a step", TIME, STEP(STEP_S, 1)},
    {times, "Seconds waiting for data", TIME, STEP(DATA_WAIT_S, 1)},
    {times, "Seconds waiting for other ranks", TIME, STEP(COMM_EXPOSED_S, 1)},
    {times, "Imbalance: fullest rank over mean", TIME, STEP(IMBALANCE, 1)},
    {times, "Voxels of a step", TIME, STEP(VOXELS, 1)},
    {times, "Memory of the largest rank in MiB", TIME, STEP(MEMORY, 1 << 20)}};

/* The IoU of the class of this name, over points if there are points. */
static double curves_iou(const sp_history_eval *e, const char *class)
{
    const double *iou = e->point_iou ? e->point_iou : e->iou;

    for (int c = 0; iou && c < e->n_classes; c++)
        if (strcmp(e->class_name[c], class) == 0)
            return iou[c];
    return NAN;
}

/* Gives a run's n points: x [n], then y [n]; malloc'd, NULL without memory. */
static double *curves_points(const sp_history *s, const curves_chart *from, int n)
{
    double *x = malloc((2 * (size_t)n + 1) * sizeof *x);

    for (int i = 0; x && i < n; i++) {
        const char *element =
            from->is_eval ? (const char *)&s->eval[i] : (const char *)&s->step[i];

        x[i] = from->is_eval ? s->eval[i].step : s->step[i].at[SP_STEP_AT_STEP];
        if (from->class)
            x[n + i] = curves_iou(&s->eval[i], from->class);
        else
            memcpy(&x[n + i], element + from->offset, sizeof *x);
        x[n + i] /= from->unit;
    }
    return x;
}

/* Appends a chart with a curve for each run that has the numbers. */
static void curves_add(const sp_report *report, const curves_chart *from)
{
    sp_series *series = calloc((size_t)report->n, sizeof *series);
    bool is_short = !series;

    for (int run = 0; !is_short && run < report->n; run++) {
        const sp_history *s = &report->history[run];
        const int n = from->is_eval ? s->n_evals : s->n_steps;
        double *x = curves_points(s, from, n);

        is_short = !x;
        if (x)
            series[run] =
                (sp_series){report->n > 1 ? s->name : from->title, n, x, x + n};
    }
    if (is_short)
        report->page->is_short = true;
    else
        sp_chart_add(report->page, from->list, from->title, from->flags, series,
                     report->n);
    for (int run = 0; series && run < report->n; run++)
        free((void *)(uintptr_t)series[run].x);
    free(series);
}

/* Has an earlier run a class of this name? Then its chart shows this run too. */
static bool curves_has_class(const sp_report *report, int run, const char *class)
{
    for (int r = 0; r < run; r++) {
        const sp_history *s = &report->history[r];

        for (int c = 0; s->n_evals && c < s->eval[s->n_evals - 1].n_classes; c++)
            if (strcmp(s->eval[s->n_evals - 1].class_name[c], class) == 0)
                return true;
    }
    return false;
}

void sp_report_add_curves(const sp_report *report)
{
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        curves_add(report, &charts[i]);
    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];
        const sp_history_eval *last = s->n_evals ? &s->eval[s->n_evals - 1] : NULL;

        for (int c = 0; last && c < last->n_classes; c++) {
            const curves_chart chart = {
                "class_chart",      last->class_name[c], SP_CHART_SHARE, true, 0, 1,
                last->class_name[c]};

            if (!curves_has_class(report, run, chart.class))
                curves_add(report, &chart);
        }
    }
}
