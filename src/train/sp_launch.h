/* The command launch: starts the ranks of this node by the launcher that configure
 * found. */
#ifndef SP_LAUNCH_H
#define SP_LAUNCH_H

#include "base/sp_error.h"

/* argv is "launch [-n N] [--dry-run] ARGS...", after the program's name. Replaces this
 * process by `mpiexec -n N sptrain ARGS...`, with one rank for each CUDA device that
 * this process sees, else for each NUMA node of its cores. Returns after --dry-run,
 * which prints that line, after --help, and after a failure. SP_EUSAGE. */
sp_status sp_launch(int argc, char **argv);

#endif
