/* The parts of a page. Only sp_report*.c include this header. All functions are local
 * and return nothing: if memory runs out, sp_page_fill fails. The values are those that
 * sp_report.html names. */
#ifndef SP_REPORT_INTERNAL_H
#define SP_REPORT_INTERNAL_H

#include "report/sp_history.h"
#include "report/sp_page.h"

/* The runs of a page, borrowed. */
typedef struct sp_report {
    const sp_history *history;
    int n;
    sp_page *page;
} sp_report;

/* The template, which the build makes of sp_report.html. */
extern const char sp_report_form[];

/* Appends to a list of the page an element with the run's name and colour. */
json_t *sp_report_add(const sp_report *report, const char *list, int run);
/* Puts the numbers of an evaluation into an element. */
void sp_report_put_eval(const sp_report *report, json_t *to, const sp_history_eval *e);

/* ---- the sections ---- */

/* Charts of training and validation, of each class's IoU and of times. */
void sp_report_add_curves(const sp_report *report);
/* The classes and confusions of each run's latest evaluation. */
void sp_report_add_classes(const sp_report *report);
/* Reads the PNG files; files that cannot be read, or that would make the page too
 * large, are reported and left out. */
void sp_report_add_pictures(const sp_report *report);
/* The time of a step by its parts; starts, hosts, memory and checkpoints. */
void sp_report_add_machines(const sp_report *report);

#endif
