/* The witness finds out which rank of a node died first. A launcher that loses a rank
 * kills the others within milliseconds, before they can report it, and the process that
 * died cannot report. So each node has a witness: a small process besides the ranks
 * that the launcher does not know of.
 *
 *     local rank 0 --- starts, ends ---> witness <--- a pipe from each local rank
 *                                           |
 *                heartbeat.bin: this rank died first (sp_heartbeat.h)
 *                status.json:   "failed", 6, if no rank could write it
 *
 * When a process dies, its descriptors with the highest numbers are closed first: the
 * pipe to the witness before the connection to the launcher, which learns of the death
 * later. The kernel queues events of one epoll set in the order of arrival, so a
 * witness that wakes late still knows that order. (Process descriptors do not show it:
 * a process of several threads counts as dead when the last thread is, after the
 * launcher has acted. Measured: of 24 kills with 4 and 8 ranks they named another rank
 * 11 times.)
 *
 * The pipes have no name that other users could open: each rank opens its end through
 * /proc as a file of the node's first rank, which the system allows only to the same
 * user. The witness of rank 0 shares the lock on the run folder, so that the next start
 * sees what it wrote. If heartbeat.bin is not shared between nodes, nodes that cannot
 * see it have no witness, and only the watchdog gives a diagnosis.
 */
#ifndef SP_WITNESS_H
#define SP_WITNESS_H

#include "run/sp_run.h"

typedef struct sp_witness sp_witness;

/* Collective, once the folder is open; run is borrowed during the call. sp_witness_end
 * follows in any case. A witness that cannot be started is a warning. SP_EMEM, SP_EMPI.
 */
sp_status sp_witness_start(sp_witness **witness, sp_run *run);
/* Local: warns once if the witness has ended. NULL is accepted. */
void sp_witness_check(sp_witness *witness);
/* Local, once the folder is closed: this process ends by itself and has written its
 * status. Waits for the witness to end. NULL is accepted. */
void sp_witness_end(sp_witness *witness);
/* To be called first in main: it does not return in a process that is a witness. */
void sp_witness_main(int argc, char **argv);

#endif
