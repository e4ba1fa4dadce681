/* The lock of a run folder: the file "lock", which holds host and pid of its owner.
 *
 * flock decides where it works: on local file systems and on NFS and Lustre mounts that
 * forward it to the server. If each host locks for itself, the lock can be free
 * although a process on another host uses the folder. The file then names that host,
 * and this module watches for some seconds whether the folder's files still change.
 * Without any locks (Lustre without -o flock) it asks on the same host whether the
 * process that the file names runs, and warns, since it does not see two starts at the
 * same time.
 */
#ifndef SP_LOCK_H
#define SP_LOCK_H

#include <stdbool.h>

#include "base/sp_error.h"

/* Locks the folder for this process on this host. Local. SP_EIO names the owner of a
 * folder in use, and anything but a regular file in place of the lock. *lock is the
 * descriptor that holds the lock, -1 if it was not obtained; after a later failure
 * it still holds the lock and the caller releases it. */
sp_status sp_lock_acquire(const char *dir, const char *host, int *lock);
/* False if the file "lock" in dir is no longer the one of the descriptor: somebody
 * deleted it, and another process may have made and locked a new one. True for -1. */
bool sp_lock_is_held(const char *dir, int lock);
/* Clears the owner's name and releases the lock; *lock becomes -1, and -1 is
 * accepted. */
void sp_lock_release(int *lock);

#endif
