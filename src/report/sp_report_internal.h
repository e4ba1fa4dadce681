/* The parts of a page. Only sp_report*.c include this header. All functions are local
 * and return nothing: if memory runs out, sp_html_end fails. */
#ifndef SP_REPORT_INTERNAL_H
#define SP_REPORT_INTERNAL_H

#include "report/sp_chart.h"
#include "report/sp_history.h"

/* The runs of a page, borrowed. */
typedef struct sp_report {
    const sp_history *history;
    int n;
    sp_html *html;
} sp_report;

extern const char sp_report_style[], sp_report_script[];

/* ---- sp_report.c ---- */

/* These append to page->html; run: 0 .. n - 1. */

/* The sign of a run's colour, and its name; nothing if the page has one run. */
void sp_report_add_run(const sp_report *report, int run);
/* A heading that names the run; nothing if the page has one run. */
void sp_report_head_run(const sp_report *report, int run);
/* ---- sp_report_curves.c ---- */

/* The numbers that a chart shows over the steps: one of each logged step, or of each
 * evaluation of the training. */
typedef struct sp_report_numbers {
    bool is_eval;
    size_t offset;   /* of the number in sp_history_step, or in sp_history_eval */
    double unit;     /* the number is divided by it; 0: it is not */
    const char *iou; /* of evaluations: the number is this class's IoU */
} sp_report_numbers;

#define SP_REPORT_STEP(name) offsetof(sp_history_step, at[SP_STEP_AT_##name])

/* Appends a chart with a curve for each run that has the numbers; nothing if no run
 * has. */
void sp_report_add_chart(const sp_report *report, const sp_chart *chart,
                         const sp_report_numbers *from);

/* ---- the sections, in the order of the page ---- */
/* Curves of training and validation over the steps, or a line that says that no step
 * was logged. */
void sp_report_add_curves(const sp_report *report);
/* A table for each run: IoU, precision and recall of the classes in its latest
 * evaluation, or a line that says that there is no evaluation. */
void sp_report_add_classes(const sp_report *report);
/* The rest append nothing if no run has the data. */
/* The confusion matrices of these evaluations. */
void sp_report_add_confusions(const sp_report *report);
/* Reads the PNG files; files that cannot be read, or that would make the page too
 * large, are reported and left out. */
void sp_report_add_pictures(const sp_report *report);
/* The time of a step by its parts, and charts of them over the steps. */
void sp_report_add_times(const sp_report *report);
/* Starts, hosts, memory and checkpoints of each run. */
void sp_report_add_machines(const sp_report *report);
/* Every key of each run's resolved deck. */
void sp_report_add_decks(const sp_report *report);

/* Appends a line of names and the classes of each run's latest evaluation as lines of
 * CSV to `csv`, which is not the page's html. */
void sp_report_add_csv(const sp_report *report, sp_html *csv);

#endif
