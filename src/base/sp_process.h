/* A process of this host as /proc shows it. Local. */
#ifndef SP_PROCESS_H
#define SP_PROCESS_H

#include <stdbool.h>

typedef struct sp_process {
    long pid, parent, session;
    char name[64]; /* of its program, cut to 15 bytes by the system */
    char state;    /* the letter of /proc: 'T' is stopped, 'Z' and 'X' have ended */
} sp_process;

/* Reads the line of process `pid`. False if it does not exist or cannot be read. */
bool sp_process_read(long pid, sp_process *process);

#endif
