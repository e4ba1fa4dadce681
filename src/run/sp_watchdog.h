/* Who is alive. One thread a rank, no MPI in it.
 *
 *     rank r: thread --- its signs of life (sp_pulse.h, phase, step), every second --->
 *     rank 0: thread  <-- "alive", or "leave with this status" ---                TCP
 *
 * Each side proves first that it is of this run (sp_link.h). Rank 0 listens
 * until all ranks have connected; one rank alone has no connection.
 *
 * A rank is lost when its connection closes without a word (it died) or when neither
 * its work nor its waiting for others advances for limit_s (it hangs; a stopped process
 * or a node that is gone says nothing at all). All are stuck when all wait for each
 * other and none works for limit_s. Rank 0 watches the others, they watch rank 0. Where
 * a rank cannot connect, the records of heartbeat.bin stand in, as far as the run
 * folder is shared.
 *
 * Who finds a rank lost says so once, on standard error and in status.json ("failed",
 * 6), and has all ranks leave with 6: waits in sp_comm end by sp_comm_abort; a training
 * thread that does not wait there gets a few seconds, then the thread ends the process.
 */
#ifndef SP_WATCHDOG_H
#define SP_WATCHDOG_H

#include "run/sp_run.h"

typedef struct sp_watchdog sp_watchdog;

/* Collective: begin to watch; limit_s 0: *watchdog is NULL and nothing is watched. The
 * run must stay open until stop. SP_EMEM, SP_EMPI. */
sp_status sp_watchdog_start(sp_watchdog **watchdog, sp_run *run, double limit_s);
/* Training thread, at the end of a step: seconds of its own work in it (none of its
 * waits for others). Rank 0 reports ranks that take 1.5 times the median for half of
 * limit_s. */
void sp_watchdog_step(sp_watchdog *watchdog, double own_s);
/* Seconds of a core that the thread took so far; NULL: 0. */
double sp_watchdog_cpu_s(const sp_watchdog *watchdog);
/* Local: this rank ends by itself with `code`, which it reports itself. After a code
 * other than SP_OK and SP_ELIMIT the others leave with it at the latest after 10 s.
 * Where a peer was lost, the diagnosis comes before return. NULL is fine. */
void sp_watchdog_stop(sp_watchdog *watchdog, sp_status code);

#endif
