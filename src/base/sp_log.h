/* Console output. Rank 0 prints progress; warnings and errors of any rank are printed
 * with rank and host. Progress lines go to standard output, the rest to standard error.
 * Any thread may call; a message is written whole. Names from files may be part of any
 * message: what a terminal would obey is shown instead (sp_text.h).
 */
#ifndef SP_LOG_H
#define SP_LOG_H

#include <stdint.h>

#include "base/sp_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of this process in messages; call once after the ranks are known. With rank_file
 * not NULL everything this rank says is appended there too, and what sp_log_info is
 * given on ranks other than 0 as well. SP_EIO where it cannot be opened. */
sp_status sp_log_open(int rank, int size, const char *host, int local_rank,
                      const char *rank_file);
void sp_log_close(void);

/* "sptrain", "spvox", ...: the word messages begin with, a string constant. Default
 * "sptrain". */
void sp_log_program(const char *name);
/* What this process is doing, for the error block; phase is a string constant, NULL:
 * nothing to say. Training thread; cheap. */
void sp_log_position(const char *phase, int64_t epoch, int64_t step);

/* SP_EIO where something of what went to standard output was lost (disk full): for
 * commands whose output is their result. */
sp_status sp_log_written(void);

/* Rank 0 only, one line, standard output. */
void sp_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Rank 0 only: a line that replaces the last such line on a terminal; in a file it is
 * an ordinary line. The next other message ends it. */
void sp_log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Any rank, standard error: "sptrain: rank 3/8 host local 1: warning: ...". */
void sp_log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Rank 0 only: a warning that all ranks would say alike. */
void sp_log_warn0(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Any rank, standard error: the record as a block of lines,
 *   sptrain: rank 3/8 host local 1: SP_EDATA: first line of the message
 *     further lines of the message
 *     phase forward, epoch 2, step 120      (where sp_log_position was told)
 *     src/a.c:12 f < src/b.c:34 g */
void sp_log_error(const sp_error_record *record);

/* Monotonic seconds. */
double sp_now_s(void);

#ifdef __cplusplus
}
#endif
#endif
