/* The trial of wgmma in a child process, ahead of the ranks' own use of the device. A kernel
 * that does not end, or that the device refuses halfway, takes the process that has launched
 * it: its context is lost. So the first to launch is a child, which is this program,
 * started again (sp_trial_main). */
#ifndef SP_TRIAL_H
#define SP_TRIAL_H

#include <stdbool.h>

#include "compute/sp_backend.h"

/* In the child runs the self-test of wgmma and ends the process; else returns at once. Every
 * main calls it first, ahead of MPI; a program that does not has no trials. */
void sp_trial_main(int argc, char **argv);

/* Has a child compute on this CUDA device, as sp_selftest_wgmma does, and waits for its end:
 * SP_TRIAL_S seconds of the environment at most (60), then it is killed. SP_EDEVICE with
 * what the child said last, or how it ended. Local; the caller has no context on the device
 * that keeps others from it. */
sp_status sp_trial_wgmma(int device);

#endif
