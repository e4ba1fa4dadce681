/* A probe of wgmma in a child process, before the ranks use the device themselves. A
 * kernel that does not end, or that the device refuses while it runs, makes the device
 * unusable for the process that launched it, since the process loses its context. So a
 * child launches the first such kernel. The child is this program, started again
 * (sp_wgmma_probe_main). */
#ifndef SP_WGMMA_PROBE_H
#define SP_WGMMA_PROBE_H

#include <stdbool.h>

#include "compute/sp_backend.h"

/* In the child it runs the self-test of wgmma and ends the process; in any other
 * process it returns at once. Every main calls it first, before MPI starts. A program
 * that does not call it has no probes. */
void sp_wgmma_probe_main(int argc, char **argv);

/* Has a child run sp_selftest_wgmma on this CUDA device and waits for its end. The
 * child is killed after the seconds that the environment variable SP_TRIAL_S gives (60
 * without it). SP_EDEVICE, with the last line that the child printed, or how it ended.
 * Local; the caller holds no context that keeps other processes from the device. */
sp_status sp_wgmma_probe(int device);

#endif
