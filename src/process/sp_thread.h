/* Threads that run at the same time as the training thread. */
#ifndef SP_THREAD_H
#define SP_THREAD_H

#include <pthread.h>

/* Starts a thread. It gets no signal, since signals are for the training thread, which
 * looks at them between steps; except SIGALRM, whose handlers end the process on
 * whichever thread they run. Local. Returns the error of pthread_create; 0: none. */
int sp_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg);
/* Tries how many threads the system allows: starts up to n, which exist at the same
 * time and end before the return, and returns their number. Local. */
int sp_thread_try(int n);

#endif
