/* A world of processes that no launcher of MPI has started, but torchrun or people and
 * pods that set its variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
 *
 *   rank 0                                  rank r
 *   listens at MASTER_PORT or one of the    connects to MASTER_ADDR, twice:
 *   ports after it
 *          <---- "hello", the line "go" --------- tether: ends if a process ends
 *          <---- PMI-1 (sp_pmi.h) --------------- PMI_FD, which MPI_Init takes
 *
 * A thread of rank 0 serves PMI until the processes have left. If a process ends before
 * that, or has called MPI_Abort, the thread tells the others, which then end too, as a
 * launcher would end them. The port is closed as soon as the world is complete; until
 * then any process that reaches it could replace a rank, as with torchrun's own store.
 *
 * Works with every MPI that speaks PMI-1. Open MPI does not. */
#ifndef SP_WORLD_H
#define SP_WORLD_H

#include "base/sp_error.h"

/* Makes the world, if the variables describe one and no launcher of MPI has started
 * this process; sets PMI_FD, PMI_RANK and PMI_SIZE for sp_comm_open. Called before
 * sp_comm_open. Collective over the processes described. limit_s: how long the
 * processes may take to come together, 0: for ever. SP_EUSAGE: the variables of one or
 * two processes do not fit each other, or this MPI makes no such world; SP_EMPI names a
 * missing process; SP_EMEM, SP_ELIMIT. */
sp_status sp_world_join(double limit_s);
/* States that this process ends as it should, and waits for rank 0's thread. Called
 * after sp_comm_close; does nothing if there was no world to make. Local, but rank 0
 * waits for the other processes. */
void sp_world_leave(void);

#endif
