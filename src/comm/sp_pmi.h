/* A process manager for ranks that no launcher of MPI has started: the server's side of
 * PMI-1, the protocol in which MPICH, Intel MPI and MVAPICH ask for their rank's peers.
 *
 *   MPI_Init of rank r  <-- PMI_FD, lines of text -->  sp_pmi_serve(pmi, r)
 *      cmd=put, cmd=get          a table of names and values: ranks use it to find
 *                                each other's addresses
 *      cmd=barrier_in            answered by cmd=barrier_out once all ranks are in it
 *      cmd=finalize, cmd=abort   the end
 *
 * The lines are as in MPICH's src/pmi/simple (its PMI_Init, PMI_KVS_Put, ...). Spawning
 * of processes and names of services are refused: the program uses neither. All
 * functions are local and are called by one thread. */
#ifndef SP_PMI_H
#define SP_PMI_H

#include <stdbool.h>

#include "base/sp_error.h"

typedef struct sp_pmi sp_pmi;

/* Creates the server of n ranks. fds [n] are the connected sockets, one a rank; they
 * are owned by the server from now on, after a failure too. nodes [n] is the number of
 * each rank's node, in ascending order of their lowest ranks. SP_EMEM. */
sp_status sp_pmi_create(sp_pmi **pmi, int n, const int *fds, const int *nodes);
void sp_pmi_destroy(sp_pmi *pmi);
/* The socket of a rank; -1 after its end. */
int sp_pmi_fd(const sp_pmi *pmi, int rank);
/* Reads the bytes that have arrived from this rank and answers the complete lines. The
 * connection of a rank that does not speak PMI-1 is closed. */
void sp_pmi_serve(sp_pmi *pmi, int rank);
/* The exit status of a rank's call of MPI_Abort; 0: no rank has called it. */
int sp_pmi_aborted(const sp_pmi *pmi);

#endif
