/* Limits of a child that reads a file which may be damaged, so that a library that
 * crashes or exhausts memory takes only the child with it (h5/sp_h5_child.c). */
#ifndef SP_LIMIT_H
#define SP_LIMIT_H

#include <stdint.h>

/* Gives the signals that end a process their default action again, forbids core files,
 * and limits memory to so many bytes beyond those that this process had at the first
 * call. A later call sets another limit. Local. */
void sp_limit_child(int64_t bytes);

#endif
