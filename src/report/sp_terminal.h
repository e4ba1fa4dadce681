/* The terminal on which the output of this process appears. Under mpirun a rank's
 * standard output is a pipe to the launcher, which passes the bytes on; then the
 * launcher's standard output decides. All functions are local. */
#ifndef SP_TERMINAL_H
#define SP_TERMINAL_H

#include <stdbool.h>

typedef struct sp_terminal {
    int fd;    /* open on the terminal; -1 without one */
    int group; /* process group of the job that writes to it */
} sp_terminal;

/* Finds the terminal that shows the output of stream 1 or 2. terminal->fd is -1 without
 * a terminal, or if TERM says that it cannot clear a line. A launcher on another host,
 * such as srun, is not seen: its ranks have no terminal. */
void sp_terminal_open(sp_terminal *terminal, int stream);
void sp_terminal_close(sp_terminal *terminal);
/* The width of the terminal in characters; 0: not known. */
int sp_terminal_columns(const sp_terminal *terminal);
/* False while the job is in the background, where it should draw nothing. */
bool sp_terminal_is_front(const sp_terminal *terminal);

#endif
