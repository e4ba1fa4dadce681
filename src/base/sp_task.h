/* A piece of work that a thread does while another one computes, and its status. */
#ifndef SP_TASK_H
#define SP_TASK_H

#include <pthread.h>
#include <stdbool.h>

#include "base/sp_error.h"

/* All zero: not started. It must not be moved before it is joined. */
typedef struct sp_task {
    pthread_t thread;
    bool is_started;
    sp_status (*run)(void *arg);
    void *arg;
    sp_status rc; /* of run, with its record, once it has ended */
    sp_error_record error;
} sp_task;

/* Starts run(arg) on a thread of its own (base/sp_thread.h). SP_EMEM: no thread could
 * start. */
sp_status sp_task_start(sp_task *task, sp_status (*run)(void *arg), void *arg);
/* Waits for its end and returns its status, with its record; SP_OK if it was not
 * started. The task can be started again. */
sp_status sp_task_join(sp_task *task);
/* Waits for its end and forgets its status; the caller's record of errors stays. */
void sp_task_drop(sp_task *task);

#endif
