/* The curves of a page. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page/sp_chart.h"
#include "page/sp_page_internal.h"

/* One curve a run over the steps; allocate() makes the arrays. */
typedef struct curves {
    sp_series *series; /* [n] */
    double *values;    /* the points of all series */
    int n;
} curves;

static void release(curves *c)
{
    free(c->series);
    free(c->values);
}

/* Makes room for one series a run with n_of(run) points each. False without memory. */
static bool allocate(curves *c, const sp_page *page, int (*n_of)(const sp_story *))
{
    size_t all = 0;

    assert(page->n > 0);
    for (int run = 0; run < page->n; run++)
        all += (size_t)n_of(&page->story[run]);
    *c = (curves){calloc((size_t)page->n, sizeof *c->series),
                  malloc((2 * all + 1) * sizeof *c->values), page->n};
    if (c->series && c->values)
        return true;
    page->html->is_short = true;
    release(c);
    return false;
}

static int n_steps(const sp_story *s)
{
    return s->n_steps;
}

static int n_evals(const sp_story *s)
{
    return s->n_evals;
}

static const char *name_of(const sp_page *page, int run, const char *title)
{
    return page->n > 1 ? page->story[run].name : title;
}

/* Charts a number of the steps. */
static void add_step_chart(const sp_page *page, sp_step_value value, const char *title,
                           bool is_smoothed)
{
    const sp_chart chart = {.title = title,
                            .x_name = "step",
                            .lo = NAN,
                            .hi = NAN,
                            .is_smoothed = is_smoothed,
                            .is_linear = value == SP_STEP_AT_LR};
    double *at;
    curves c;

    if (!allocate(&c, page, n_steps))
        return;
    at = c.values;
    for (int run = 0; run < page->n; run++) {
        const sp_story *s = &page->story[run];
        double *x = at, *y = at + s->n_steps;

        for (int i = 0; i < s->n_steps; i++) {
            x[i] = s->step[i].at[SP_STEP_AT_STEP];
            y[i] = s->step[i].at[value];
        }
        c.series[run] = (sp_series){name_of(page, run, title), run, s->n_steps, x, y};
        at += 2 * s->n_steps;
    }
    sp_chart_add(page->html, &chart, c.series, c.n);
    release(&c);
}

/* Charts a number of the evaluations: `take` gets it; class is for take_class. */
static void add_eval_chart(const sp_page *page, const sp_chart *chart,
                           double (*take)(const sp_story_eval *, const char *class),
                           const char *class)
{
    double *at;
    curves c;

    if (!allocate(&c, page, n_evals))
        return;
    at = c.values;
    for (int run = 0; run < page->n; run++) {
        const sp_story *s = &page->story[run];
        double *x = at, *y = at + s->n_evals;

        for (int i = 0; i < s->n_evals; i++) {
            x[i] = s->eval[i].step;
            y[i] = take(&s->eval[i], class);
        }
        c.series[run] =
            (sp_series){name_of(page, run, chart->title), run, s->n_evals, x, y};
        at += 2 * s->n_evals;
    }
    sp_chart_add(page->html, chart, c.series, c.n);
    release(&c);
}

static double take_loss(const sp_story_eval *e, const char *class)
{
    (void)class;
    return e->loss;
}

static double take_miou(const sp_story_eval *e, const char *class)
{
    (void)class;
    return e->miou;
}

static double take_point_miou(const sp_story_eval *e, const char *class)
{
    (void)class;
    return e->point_miou;
}

static double take_accuracy(const sp_story_eval *e, const char *class)
{
    (void)class;
    return e->accuracy;
}

/* The IoU of the class of this name, over points where there are points. */
static double take_class(const sp_story_eval *e, const char *class)
{
    const double *iou = e->point_iou ? e->point_iou : e->iou;

    for (int c = 0; iou && c < e->n_classes; c++)
        if (strcmp(e->class_name[c], class) == 0)
            return iou[c];
    return NAN;
}

/* Has an earlier run a class of this name? Then its chart shows this run too. */
static bool is_shown(const sp_page *page, int run, const char *class)
{
    for (int r = 0; r < run; r++) {
        const sp_story *s = &page->story[r];

        if (s->n_evals > 0)
            for (int c = 0; c < s->eval[s->n_evals - 1].n_classes; c++)
                if (strcmp(s->eval[s->n_evals - 1].class_name[c], class) == 0)
                    return true;
    }
    return false;
}

static void add_class_charts(const sp_page *page)
{
    bool has_head = false;

    for (int run = 0; run < page->n; run++) {
        const sp_story *s = &page->story[run];
        const sp_story_eval *last = s->n_evals ? &s->eval[s->n_evals - 1] : NULL;

        for (int c = 0; last && c < last->n_classes; c++) {
            const sp_chart chart = {.title = last->class_name[c],
                                    .x_name = "step",
                                    .lo = 0,
                                    .hi = 1,
                                    .is_small = true};

            if (is_shown(page, run, last->class_name[c]))
                continue;
            if (!has_head)
                sp_html_raw(page->html,
                            "<h3>IoU of each class</h3><div class=\"grid4\">"
                            "\n");
            has_head = true;
            add_eval_chart(page, &chart, take_class, last->class_name[c]);
        }
    }
    if (has_head)
        sp_html_raw(page->html, "</div>\n");
}

static void add_legend(const sp_page *page)
{
    if (page->n < 2)
        return;
    sp_html_raw(page->html, "<ul class=\"keys\">");
    for (int run = 0; run < page->n; run++) {
        sp_html_raw(page->html, "<li>");
        sp_page_add_run(page, run);
        sp_html_raw(page->html, "</li>");
    }
    sp_html_raw(page->html, "</ul>\n");
}

void sp_page_add_curves(const sp_page *page)
{
    sp_chart chart = {.x_name = "step", .lo = NAN, .hi = NAN};
    bool has_any = false;

    assert(page->n > 0 && page->story);
    for (int run = 0; run < page->n; run++)
        has_any = has_any || page->story[run].n_steps || page->story[run].n_evals;
    sp_html_raw(page->html, "<h2>Training</h2>\n");
    if (!has_any) {
        sp_html_raw(page->html, "<p class=\"soft\">No step has been logged.</p>\n");
        return;
    }
    add_legend(page);
    sp_html_raw(page->html, "<div class=\"grid2\">\n");
    add_step_chart(page, SP_STEP_AT_LOSS, "Loss of the step", true);
    chart.title = "Loss in validation";
    add_eval_chart(page, &chart, take_loss, NULL);
    chart.title = "Mean IoU over voxels";
    add_eval_chart(page, &chart, take_miou, NULL);
    chart.title = "Mean IoU over points";
    add_eval_chart(page, &chart, take_point_miou, NULL);
    chart.title = "Accuracy";
    add_eval_chart(page, &chart, take_accuracy, NULL);
    add_step_chart(page, SP_STEP_AT_LR, "Learning rate", false);
    add_step_chart(page, SP_STEP_AT_GRAD_NORM, "Norm of the gradient", true);
    sp_html_raw(page->html, "</div>\n");
    add_class_charts(page);
}
