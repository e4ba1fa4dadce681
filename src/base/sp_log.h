/* Console output. Rank 0 prints progress; warnings and errors of any rank are printed
 * with rank and host. Progress lines go to standard output, the rest to standard error.
 * Any thread may call; a message is written in one piece. Names from files may be part
 * of any message: characters that would control a terminal are shown as text
 * (sp_text.h). */
#ifndef SP_LOG_H
#define SP_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/sp_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names this process in messages. Called once the ranks are known, and again if the
 * rank gets a log file: if rank_file is not NULL, all messages of this rank are
 * appended to that file too, including sp_log_info's on ranks other than 0. SP_EIO if
 * it cannot be opened. Local. */
sp_status sp_log_open(int rank, int size, const char *host, int local_rank,
                      const char *rank_file);
/* Closes this rank's file, if there is one. */
void sp_log_close(void);
/* Flushes the output and waits, for a second at most, until the launcher has read its
 * pipes: it may throw away unread output when it learns that a rank ends the others.
 * Local. */
void sp_log_deliver(void);

/* Sets the program's name, which begins messages: "sptrain" (the default), "spvox",
 * ...; a string constant. */
void sp_log_program(const char *name);
/* States the position of this process in the run, printed with an error. phase is a
 * string constant; NULL: no position. Called by the training thread; costs a few
 * stores. */
void sp_log_position(const char *phase, int64_t epoch, int64_t step);

/* SP_EIO if a part of standard output was lost (a full disk, for example). Called by
 * commands that print their result. */
sp_status sp_log_written(void);
/* Writes the error of a command that answers without ranks, if it failed; returns
 * rc. */
sp_status sp_log_answered(sp_status rc);

/* ---- where lines go ---- */

/* The kinds of lines; the four functions below describe them. */
typedef enum sp_log_kind {
    SP_LOG_INFO,
    SP_LOG_PROGRESS,
    SP_LOG_WARN,
    SP_LOG_WARN0
} sp_log_kind;

/* Writes the lines of a program. NULL: lines of threads without a route are dropped.
 * Called by sp_log_program. */
typedef void sp_log_console(sp_log_kind kind, const char *line);
void sp_log_to_console(sp_log_console *console);
/* Sends lines of a thread to the caller of the library instead of the console. */
typedef struct sp_log_route {
    int rank;
    /* Any thread that has the route calls it. NULL: lines are dropped. */
    void (*line)(void *arg, sp_log_kind kind, const char *line);
    void *arg;
} sp_log_route;
/* Gives the calling thread a route, which is borrowed; NULL: the console. Threads that
 * it starts (sp_thread.h) have the same. Returns the route before. */
const sp_log_route *sp_log_set_route(const sp_log_route *route);
const sp_log_route *sp_log_current_route(void);

/* ---- lines ---- */

/* Prints one line on standard output; rank 0 only. */
void sp_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line of progress, which a live line replaces: rank 0 prints it on standard
 * output unless live lines are drawn there; this rank's file has it in any case. */
void sp_log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Live lines (report/sp_live.h): one line of text at the end of the output, which the
 * next one replaces. A message removes it first and, unless it is an error, draws it
 * again below itself. is_live: this rank draws them on standard output. is_shared:
 * standard error appears on the same terminal, so this rank's messages there clear what
 * another rank may have drawn. Called once, before other threads log. */
void sp_log_open_live(bool is_live, bool is_shared);
/* Draws the text, which is printable and fits the width of the terminal, in place of
 * the last one; "" removes it. Does nothing unless this rank draws live lines. */
void sp_log_live(const char *text);
/* Prints a warning on standard error; any rank: "sptrain: rank 3/8 host local 1:
 * warning: ...". */
void sp_log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a warning that would be the same on all ranks; rank 0 only. */
void sp_log_warn0(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the record as one line on standard error; any rank:
 *   sptrain: rank 3/8 host local 1: error: MESSAGE (this rank: phase forward, epoch 2,
 *   step 120)
 * The position in the run is printed if sp_log_position has stated it. A message of
 * several lines is indented from the second. With SP_TRACE=1 in the environment, and
 * for an internal error always, one more line has the code and the positions in the
 * source: "  SP_EDATA at FILE:12 f < FILE:34 g". */
void sp_log_error(const sp_error_record *record);

/* A date and time of day in UTC, as "2026-11-22T21:24:00Z". time_s: seconds since 1970.
 * Returns text. */
enum { SP_DATE = 32 };
const char *sp_date(double time_s, char text[SP_DATE]);
/* Seconds since 1970 by the system's clock, which may be set meanwhile. */
double sp_time_s(void);
/* Seconds of the system's monotonic clock; its zero is arbitrary. */
double sp_now_s(void);
/* Seconds of any of the system's clocks, such as CLOCK_THREAD_CPUTIME_ID. */
double sp_clock_s(clockid_t clock);
/* Waits s seconds, or until a signal arrives. */
void sp_sleep_s(double s);

#ifdef __cplusplus
}
#endif
#endif
