/* Threads that run at the same time as the training thread. */
#ifndef SP_THREAD_H
#define SP_THREAD_H

#include <pthread.h>

/* Starts a thread. It gets no signal, since signals are for the training thread, which
 * looks at them between steps; except SIGALRM: its handlers end the process on
 * whichever thread they run. Local. Returns the error of pthread_create; 0: success. */
int sp_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg);
/* Tries how many threads the system allows: starts up to n, which exist at the same
 * time and end before the return, and returns their number. Local. */
int sp_thread_try(int n);
/* Lets OpenMP's threads sleep while they wait for each other, on up to 16 cores, if the
 * environment does not say otherwise. By default the threads of GNU and LLVM spin, on
 * cores that the loader's threads and other programs need: on two cores a small network
 * trained 1.3 times as fast with threads that sleep, and 10 times beside 8 busy
 * processes (measured). On many cores nothing was measured, and waking many threads
 * takes longer. Both libraries read OMP_WAIT_POLICY once, when they are loaded. So the
 * program executes itself again with the same arguments; returns if it need not or
 * cannot. Local; to be called before MPI starts, with main's own arguments. */
void sp_thread_wait_asleep(char **argv);

#endif
