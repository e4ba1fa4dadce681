/* Signs of life of this process, and the order to end it.
 *
 *   loader, saver, compute       sp_liveness_count     --> work  --+
 *   training thread, in sp_comm  sp_liveness_wait_poll --> waits --+--> sp_liveness_read
 *                                                                          the watchdog
 *   sp_comm_wait_for     <-- sp_exit_requested <-- code <----+--- sp_exit_request
 *   kernel on a device   <-- *word, see sp_exit_set_flag <--+    if a rank is lost
 *
 * Work is a sample read, a layer computed or an array written, by any thread. A
 * collective that waits for other ranks counts its polls apart from work, to
 * distinguish the waiting rank from the rank that it waits for. The watchdog
 * (health/sp_watchdog.h) reads both counts; when a rank is lost it leaves the exit
 * status here, and every wait in sp_comm ends the process with it.
 *
 * A thread in a call of the file system is neither: it may hang for minutes (a server
 * that fails over) while the process is alive. Such calls are counted, so that the
 * watchdog can wait longer for them.
 *
 * Other modules of this folder accompany a process too: requests to stop (sp_signal.h),
 * faults for tests (sp_fault.h), commands of the user and other child processes
 * (sp_child.h). health/ has the limit on the start (sp_start.h).
 */
#ifndef SP_LIVENESS_H
#define SP_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The counts since the process began. */
typedef struct sp_liveness {
    int64_t work, waits; /* numbers of events, which only grow */
    bool is_waiting;     /* a wait for other ranks is under way */
    double waited_s;     /* seconds of all ended waits for other ranks */
    /* Seconds since a thread that is in a call of the file system began it, or another
     * ended one; 0: no thread is in one. */
    double file_s;
} sp_liveness;

/* Counts a piece of work. Any thread; one atomic addition. */
void sp_liveness_count(void);
/* Called by the training thread when a wait for other ranks begins, at each poll, and
 * when it ends. The end of a wait counts as work. */
void sp_liveness_wait_begin(void);
void sp_liveness_wait_poll(void);
void sp_liveness_wait_end(void);

/* Called by any thread before and after it calls the file system; may be nested. */
void sp_liveness_file_begin(void);
void sp_liveness_file_end(void);

/* Reads the counts. Any thread. */
void sp_liveness_read(sp_liveness *liveness);

/* sp_exit_request orders this process to end with exit status `code`: the watchdog
 * calls it, and sp_comm_abort, which thereby ends waits of other threads and of the
 * device. sp_exit_requested returns that status, or 0 if there is no order. */
void sp_exit_request(int code);
int sp_exit_requested(void);
/* Makes sp_exit_request store the code in *word too, for a device, which cannot call
 * sp_exit_requested. The word is borrowed until the next call; NULL: no word. */
void sp_exit_set_flag(uint64_t *word);

#ifdef __cplusplus
}
#endif
#endif
