/* Commands of the user that run while the training goes on (`run.after_save`): one
 * child at a time, the others queued, each within a time limit. There is no thread: the
 * queue advances when it is polled. All functions are local; called by the training
 * thread. */
#ifndef SP_CHILD_H
#define SP_CHILD_H

#include <sys/types.h>

enum { SP_CHILD_QUEUE = 4096 };

typedef struct sp_child_work {
    const char *command, *record; /* borrowed */
    char *path;                   /* owned */
} sp_child_work;

/* The queue. The caller zeroes it and sets limit_s before first use. */
typedef struct sp_child {
    /* time limit of a command, which is then killed with all it started */
    double limit_s;
    pid_t pid; /* process number of the running command, 0: not running */
    double started_s;
    int n_killed; /* number of commands that exceeded their time */
    int n_waiting;
    sp_child_work waiting[SP_CHILD_QUEUE], running;
} sp_child;

/* Queues `/bin/sh -c 'command "$1"'` with path as $1. A path that already waits is not
 * queued again; if the queue is full, its eldest entry is dropped, with a warning.
 * record: a file that gets a line "RESULT PATH", RESULT being the exit status, "signal
 * N", "killed" or "left out"; NULL: no line is written. `command` and `record` are
 * borrowed until it has run, `path` is copied. */
void sp_child_start(sp_child *child, const char *command, const char *path,
                    const char *record);
/* Collects a child that has ended (a failure is a warning), kills one that exceeds its
 * time, and starts the next. Returns at once. */
void sp_child_poll(sp_child *child);
/* Polls until the queue is empty. It stops earlier after `patience_s`, after two
 * commands that exceeded their time, or when a signal asks to end: the running command
 * is then killed and the queued ones are dropped, with a warning each. */
void sp_child_finish(sp_child *child, double patience_s);

/* Starts a program in a process group of its own, so that all processes that it starts
 * can be ended with it, with the signal settings of a fresh program, and without the
 * launcher's variables, so that it may be an MPI program of its own. Only three
 * streams are open in it: standard input is empty, standard output and standard error
 * are `out`, or this process's own if out < 0. Returns 0, or an error number (errno).
 */
int sp_child_spawn(pid_t *pid, const char *path, char *const argv[], int out);

#endif
