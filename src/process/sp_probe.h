/* A child of this program, with limited memory and time, that reads a file which may be
 * damaged: if the library that reads it crashes, hangs or exhausts memory, only the
 * child dies.
 *
 *     parent                                   child
 *       sp_probe_start ---- starts itself ---->  main: sp_probe_main(word, work)
 *       reads standard output <---------------   work(path), its message printed
 *       sp_probe_end   <---- exit status ------  _exit(status)
 *
 * All functions are local.
 */
#ifndef SP_PROBE_H
#define SP_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sp_error.h"

/* First thing in main: does the work and exits where the program was started as such a
 * child (argv[1] is `word`, argv[2] the path). */
void sp_probe_main(int argc, char **argv, const char *word,
                   sp_status (*work)(const char *path));

/* Did main call sp_probe_main with this word? */
bool sp_probe_is_answered(const char *word);
/* Starts the child. Its standard output comes through *fd, which the caller closes.
 * SP_EIO. */
sp_status sp_probe_start(const char *word, const char *path, pid_t *pid, int *fd);
/* Waits for the child's end. Returns SP_OK, the status of work with `message`, or, for
 * a child that died, SP_EDATA. */
sp_status sp_probe_end(const char *path, pid_t pid, const char *message);

/* In a child: signals as in a fresh program, no core files, at most this much memory
 * beyond what it had at the first call. A later call sets another limit. */
void sp_probe_limit(int64_t bytes);

#endif
