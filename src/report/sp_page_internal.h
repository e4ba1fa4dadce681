/* The parts of a page. Only sp_page*.c include this header. All functions are local and
 * return nothing: if memory runs out, sp_html_end fails. */
#ifndef SP_PAGE_INTERNAL_H
#define SP_PAGE_INTERNAL_H

#include "report/sp_chart.h"
#include "report/sp_story.h"

/* The runs of a page, borrowed. */
typedef struct sp_page {
    const sp_story *story;
    int n;
    sp_html *html;
} sp_page;

extern const char sp_page_style[], sp_page_script[];

/* ---- sp_page.c ---- */

/* These append to page->html; run: 0 .. n - 1. */

/* The sign of a run's colour, and its name; nothing if the page has one run. */
void sp_page_add_run(const sp_page *page, int run);
/* A heading that names the run; nothing if the page has one run. */
void sp_page_head_run(const sp_page *page, int run);
/* ---- sp_page_curves.c ---- */

/* The numbers that a chart shows over the steps: one of each logged step, or of each
 * evaluation of the training. */
typedef struct sp_page_numbers {
    bool is_eval;
    size_t offset;   /* of the number in sp_story_step, or in sp_story_eval */
    double unit;     /* the number is divided by it; 0: it is not */
    const char *iou; /* of evaluations: the number is this class's IoU */
} sp_page_numbers;

#define SP_PAGE_STEP(name) offsetof(sp_story_step, at[SP_STEP_AT_##name])

/* Appends a chart with a curve for each run that has the numbers; nothing if no run
 * has. */
void sp_page_add_chart(const sp_page *page, const sp_chart *chart,
                       const sp_page_numbers *from);

/* ---- the sections, in the order of the page ---- */
/* Curves of training and validation over the steps, or a line that says that no step
 * was logged. */
void sp_page_add_curves(const sp_page *page);
/* A table for each run: IoU, precision and recall of the classes in its latest
 * evaluation, or a line that says that there is no evaluation. */
void sp_page_add_classes(const sp_page *page);
/* The rest append nothing if no run has the data. */
/* The confusion matrices of these evaluations. */
void sp_page_add_confusions(const sp_page *page);
/* Reads the PNG files; files that cannot be read, or that would make the page too
 * large, are reported and left out. */
void sp_page_add_pictures(const sp_page *page);
/* The time of a step by its parts, and charts of them over the steps. */
void sp_page_add_times(const sp_page *page);
/* Starts, hosts, memory and checkpoints of each run. */
void sp_page_add_machines(const sp_page *page);
/* Every key of each run's resolved deck. */
void sp_page_add_decks(const sp_page *page);

/* Appends a line of names and the classes of each run's latest evaluation as lines of
 * CSV to `csv`, which is not the page's html. */
void sp_page_add_csv(const sp_page *page, sp_html *csv);

#endif
