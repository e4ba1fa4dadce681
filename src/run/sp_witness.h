/* Who died first. A launcher that loses a rank kills the others within milliseconds,
 * before they can say a word, and the process that died cannot. So each node has a
 * witness: a small process beside the ranks, out of the launcher's sight.
 *
 *     local rank 0 --- starts, ends ---> witness <--- a pipe from each local rank
 *                                           |
 *                        heartbeat.bin: this rank was the first (sp_heartbeat.h)
 *                        status.json:   "failed", 6, where the ranks came to no word
 *
 * A process that dies closes its pipe, its files with the highest numbers first: ours
 * before the launcher's, who hears of it later. The kernel keeps the order in one epoll
 * set, so that a witness that wakes late still knows it. (Process descriptors do not: a
 * process of several threads counts as dead when the last of them is, after the
 * launcher has acted; of 24 kills with 4 and 8 ranks they named another rank 11 times.)
 *
 * The pipes have no name that other users could open: each rank opens its end through
 * /proc as a file of the node's first rank, which the system allows the same user
 * alone. The witness of rank 0 shares the lock on the run folder: the next start sees
 * what it wrote. Where heartbeat.bin is not shared there is none, and the watchdog's
 * word stands alone.
 */
#ifndef SP_WITNESS_H
#define SP_WITNESS_H

#include "run/sp_run.h"

typedef struct sp_witness {
    bool is_started;
    int pid, control; /* of the node's first rank; 0: none */
    int connection;
} sp_witness;

/* Collective, once the folder is open. */
sp_status sp_witness_start(sp_witness *witness, sp_run *run);
/* Local, once the folder is closed: this process ends by itself and has said how. */
void sp_witness_end(sp_witness *witness);
/* First thing in main: does not return where this process is a witness. */
void sp_witness_main(int argc, char **argv);

#endif
