/* How this process was started, from the environment.
 *
 *   PMI_FD, PMI_SIZE, OMPI_COMM_WORLD_SIZE     a launcher of MPI: it makes the world
 *   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT torchrun and pods that are started like
 *                                              it: sp_world.h makes the world
 *   SLURM_*, FLUX_*, JSM_*, PMIX_*, PBS_*      a scheduler's task: if MPI then sees a
 *                                              world of one, the start is refused
 *   LSB_*, NHOSTS, PBS_NODEFILE, K8S_MPI_*     an allocation of several hosts: training
 *                                              by one process in it is refused
 *
 * Variables of arrays of jobs (SLURM_ARRAY_TASK_ID, SGE_TASK_ID, PBS_ARRAY_INDEX,
 * LSB_JOBINDEX) announce no ranks. All functions are local. */
#ifndef SP_LAUNCHER_H
#define SP_LAUNCHER_H

#include <stdbool.h>

#include "base/sp_error.h"

/* A world as torchrun's variables describe it. */
typedef struct sp_launcher_world {
    int rank, size;            /* size 0: no world, or one of an MPI launcher */
    const char *host;          /* where rank 0 is: MASTER_ADDR */
    int port;                  /* MASTER_PORT */
    const char *run, *attempt; /* torchrun's name of this run, and its number; or "" */
    bool has_agent;            /* torchrun itself listens at MASTER_PORT */
} sp_launcher_world;

/* Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. SP_EUSAGE: one of them is
 * missing or not a number in its range. */
sp_status sp_launcher_find_world(sp_launcher_world *world);
/* Returns RANK of torchrun's variables, if they describe a world; else 0. */
int sp_launcher_rank(void);
/* True if a launcher of MPI, or torchrun, has started this process. */
bool sp_launcher_is_task(void);
/* Fails if several tasks were started, but MPI sees a world of one. SP_EUSAGE, with
 * advice. */
sp_status sp_launcher_check(int world_size);
/* Fails if the scheduler has assigned several hosts, or the MPI Operator several
 * workers, but only one process was started, without a launcher. For training, because
 * the other hosts would be idle until the end. SP_EUSAGE, with advice. */
sp_status sp_launcher_check_hosts(int world_size);

#endif
