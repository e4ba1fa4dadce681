/* Console output. Rank 0 prints progress; warnings and errors of any rank are printed with
 * rank and host. Progress lines go to standard output, the rest to standard error.
 */
#ifndef SP_LOG_H
#define SP_LOG_H

#include "sp_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of this process in messages; call once after the ranks are known. With rank_file not
 * NULL everything this rank says is also written there. */
sp_status sp_log_open(int rank, int size, const char *host, int local_rank,
                      const char *rank_file);
void sp_log_close(void);

/* "sptrain", "spvox", ...: the word messages begin with. Default "sptrain". */
void sp_log_program(const char *name);

/* Rank 0 only, one line, standard output. */
void sp_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Rank 0 only: a line that replaces the last such line on a terminal; in a file it is an
 * ordinary line. The next sp_log_info ends it. */
void sp_log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Any rank, standard error: "sptrain: rank 3/8 host local 1: warning: ...". */
void sp_log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Rank 0 only: a warning that all ranks would say alike. */
void sp_log_warn0(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Any rank, standard error: the record as three lines (who: code: message, trace). */
void sp_log_error(const sp_error_record *record);

/* Monotonic seconds. */
double sp_now_s(void);

#ifdef __cplusplus
}
#endif
#endif
