/* The crash recorder finds out which rank of a node died first. A launcher that loses a
 * rank kills the others within milliseconds, before they can report it, and the process
 * that died cannot report. So each node has a crash recorder: a small process besides
 * the ranks that the launcher does not know of (`sptrain --crash-recorder` in a list of
 * processes).
 *
 *     local rank 0 --- starts, ends ---> crash recorder <--- a pipe from each local rank
 *                                           |
 *                heartbeat.bin: this rank died first (sp_heartbeat.h)
 *                status.json:   "failed", 6, if no rank could write it
 *
 * When a process dies, its descriptors with the highest numbers are closed first: the
 * pipe to the crash recorder before the connection to the launcher, which learns of the
 * death later. The kernel queues events of one epoll set in the order of arrival, so a
 * crash recorder that wakes late still knows that order. (Process descriptors do not
 * show it: a process of several threads counts as dead when the last thread is, after
 * the launcher has acted. Measured: of 24 kills with 4 and 8 ranks they named another
 * rank 11 times.)
 *
 * The pipes have no name that other users could open: each rank opens its end through
 * /proc as a file of the node's first rank, which the system allows only to the same
 * user. The crash recorder of rank 0 shares the lock on the run folder, so that the
 * next start sees what it wrote. If heartbeat.bin is not shared between nodes, nodes
 * that cannot see it have no crash recorder, and only the watchdog gives a diagnosis.
 */
#ifndef SP_CRASH_RECORDER_H
#define SP_CRASH_RECORDER_H

#include "run/sp_run.h"

typedef struct sp_crash_recorder sp_crash_recorder;

/* Collective, once the folder is open; run is borrowed during the call.
 * sp_crash_recorder_end follows in any case. A crash recorder that cannot be started is
 * a warning. SP_EMEM, SP_EMPI.
 */
sp_status sp_crash_recorder_start(sp_crash_recorder **recorder, sp_run *run);
/* Local: warns once if the crash recorder has ended. NULL is accepted. */
void sp_crash_recorder_check(sp_crash_recorder *recorder);
/* Local, once the folder is closed: this process ends by itself and has written its
 * status. Waits for the crash recorder to end. NULL is accepted. */
void sp_crash_recorder_end(sp_crash_recorder *recorder);
/* To be called first in main: it does not return in a process that is a crash recorder.
 */
void sp_crash_recorder_main(int argc, char **argv);

#endif
