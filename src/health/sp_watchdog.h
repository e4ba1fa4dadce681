/* The watchdog finds out which ranks are alive: one thread a rank, without MPI.
 *
 *     rank r: thread --- its signs of life (sp_liveness.h, phase, step), every second --->
 *     rank 0: thread  <-- "alive", or "leave with this status" ---                TCP
 *
 * Each side first proves that it belongs to this run (sp_auth_socket.h). Rank 0 listens
 * until all ranks have connected; a run of one rank has no connection.
 *
 * Rank 0 hears every rank itself: 30 us of a core for each rank and second (the growth
 * from 2 to 16 ranks), below 1 % of a core with 256. In a tree the death of an inner
 * rank would also cut off the ranks below it, and rank 0 could name the dead one only
 * after they had connected elsewhere, which the 3 s below do not leave time for.
 *
 * A rank with its thread in a call of the file system (sp_liveness_file_begin) is alive
 * as long as its process is: a server that fails over answers after minutes. For
 * file_wait_s (run.file_wait_s) its watchdog counts such a wait as work and warns once.
 * heartbeat.bin is written by a thread of its own (sp_watchdog.c), so that the watchdog
 * never waits for that file system either.
 *
 * A rank is lost when its connection closes without an end frame (it died), or when
 * neither its work nor its waiting for others advances for limit_s (run.watchdog_s; it
 * hangs; a stopped process, or a node that is gone, sends nothing at all). All ranks
 * are stuck when they all wait for each other and no rank has worked for limit_s. Rank
 * 0 watches the others, and they watch rank 0 and themselves, up to 3 s later, so that
 * rank 0 judges first. If a rank cannot connect, its record in heartbeat.bin is read
 * instead, if the run folder is shared.
 *
 * The process that finds a rank lost reports it once, on standard error and in
 * status.json ("failed", 6), and leaves with 6. Rank 0 also orders all other ranks to
 * leave; no watchdog ends another process. A rank that leaves ends its waits in sp_comm
 * by sp_comm_abort (MPI_Abort), so that the launcher ends the remaining processes, also
 * a stopped one, which receives no order. If the training thread does not wait there,
 * the watchdog calls _exit after 3 s, or after 10 s if writing the diagnosis hangs.
 * Until the watchdog runs, health/sp_start.h limits the start (SP_START_S). The crash
 * recorder (sp_crash_recorder.h) ends no process: it names the rank that died first.
 */
#ifndef SP_WATCHDOG_H
#define SP_WATCHDOG_H

#include "run/sp_run.h"

typedef struct sp_watchdog sp_watchdog;

/* Collective, agreed: starts watching. limit_s 0: *watchdog is NULL and nothing is
 * watched. run is borrowed and stays open until stop. SP_EMEM, SP_EMPI. */
sp_status sp_watchdog_start(sp_watchdog **watchdog, sp_run *run, double limit_s,
                            double file_wait_s);
/* Called by the training thread at the end of a step with the seconds of the rank's own
 * work in it (without waits for other ranks) by phase. Rank 0 warns of a rank that has
 * needed 1.5 times the median for half of limit_s, and names the longest phase. NULL is
 * accepted. */
void sp_watchdog_step(sp_watchdog *watchdog, const double own_s[SP_PHASE_COUNT]);
/* Core time that the thread has used so far; NULL gives 0. */
double sp_watchdog_cpu_s(const sp_watchdog *watchdog);
/* Local: announces that this rank ends by itself with `code`, which the rank reports
 * itself, and ends the thread. After a code other than SP_OK and SP_ELIMIT the other
 * ranks leave with the same code after 10 s at the latest. If a peer was lost, the
 * diagnosis is written before the return. NULL is accepted. */
void sp_watchdog_stop(sp_watchdog *watchdog, sp_status code);

#endif
