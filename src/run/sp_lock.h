/* The lock of a run folder, the file "lock" with the host and the pid of its owner.
 *
 * flock decides where it works: on local file systems and on NFS and Lustre mounts that
 * pass it on. Where each host locks for itself, the lock is free although another
 * host's process runs; then the text names that host, and we watch whether the folder's
 * files still move.
 */
#ifndef SP_LOCK_H
#define SP_LOCK_H

#include "base/sp_error.h"

/* Lock the folder for this process on this host. SP_EIO names the owner of one in use,
 * and anything but a regular file in place of the lock. *lock is the descriptor that
 * holds the lock, -1 where it was not taken; a later failure leaves it to be released.
 */
sp_status sp_lock_take(const char *dir, const char *host, int *lock);
/* Clear the owner's name and let go; *lock becomes -1, and -1 is fine. */
void sp_lock_release(int *lock);

#endif
