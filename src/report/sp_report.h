/* The report of one or several runs: one HTML file that needs nothing else, to be
 * opened without a network, copied home, printed. The flow of the folder:
 *
 *     run folder --sp_history--> numbers, texts       damaged parts become notes
 *     histories  --sp_report---> values: cards, differences of the decks  (sp_report.c)
 *                              curves, by sp_chart                (sp_report_curves.c)
 *                              classes, confusion                 (sp_report_classes.c)
 *                              time, ranks, versions, checkpoints (sp_report_machine.c)
 *                              pictures                           (sp_report_pictures.c)
 *     values     --sp_page-----> sp_report.html, the template, filled; text is escaped
 *
 * The same folders give the same bytes: a page contains no time of its creation. Local;
 * used on one rank. */
#ifndef SP_REPORT_H
#define SP_REPORT_H

#include <stdbool.h>

#include "base/sp_error.h"

/* The most bytes of pictures in a page, before base64. */
enum { SP_REPORT_PICTURES = 2000000 };
/* Seconds after which a browser reads the page of a run that goes on again. */
enum { SP_REPORT_RENEWAL_S = 10 };

/* Writes the report of n run folders to `path`, which ends in .html, and the classes of
 * their latest evaluations beside it as CSV: report.html has report.csv. Both are
 * replaced atomically. Notes about skipped parts are warnings too, unless is_quiet.
 * SP_EIO: a folder is no run, or a file cannot be written; SP_EMEM. */
sp_status sp_report_write(const char *path, int n, char *const *dirs, bool is_quiet);

#endif
