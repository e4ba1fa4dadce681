/* Commands of the user that run beside the training (`run.after_save`): one child at a
 * time, the others wait their turn, none longer than a time limit. No thread: the queue
 * moves when it is polled.
 */
#ifndef SP_CHILD_H
#define SP_CHILD_H

#include <sys/types.h>

enum { SP_CHILD_QUEUE = 16, SP_CHILD_PATH = 4096 };

/* Zero but for limit_s before first use. */
typedef struct sp_child {
    double limit_s; /* of one command; then it is killed with all it started */
    pid_t pid;      /* running child, 0: none */
    double started_s;
    int n_killed; /* over their time */
    int n_waiting;
    struct {
        const char *command; /* borrowed */
        char path[SP_CHILD_PATH];
    } waiting[SP_CHILD_QUEUE], running;
} sp_child;

/* Run `/bin/sh -c 'command "$1"'` with path as $1 when its turn comes. A path that
 * waits already is not put in twice; a queue that is full loses its eldest, with a
 * warning. */
void sp_child_start(sp_child *child, const char *command, const char *path);
/* Collect the child that ended (a failure is a warning), end one over its time, start
 * the next. Returns at once. */
void sp_child_poll(sp_child *child);
/* Poll until the queue is empty, at most `patience_s` in all, until two commands were
 * over their time or a signal asks to end; what runs then is killed and what still waits
 * is given up, with a warning each. */
void sp_child_finish(sp_child *child, double patience_s);

#endif
