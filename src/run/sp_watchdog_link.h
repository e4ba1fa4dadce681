/* Connections of the watchdogs: every rank's to rank 0, frames of one size, nothing
 * that blocks for long. Used by sp_watchdog.c alone.
 */
#ifndef SP_WATCHDOG_LINK_H
#define SP_WATCHDOG_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

typedef enum sp_signs_kind {
    SP_SIGNS_ALIVE,
    SP_SIGNS_END,  /* the sender ends by itself with `code` */
    SP_SIGNS_LEAVE /* rank 0: everybody ends with `code`, the reason has been said */
} sp_signs_kind;

/* One frame, in the byte order of the job's machines (which all run this program). */
typedef struct sp_signs {
    uint64_t token; /* of the run */
    int32_t rank, kind, code, is_waiting;
    int64_t work, waits, phase, epoch, step;
    double own_s; /* seconds of own work a step, 0: not known */
    char host[64];
} sp_signs;

typedef struct sp_link {
    int fd; /* -1: none */
    size_t n_in, n_out;
    char in[sizeof(sp_signs)], out[sizeof(sp_signs)];
} sp_link;

enum { SP_LINK_ADDRESSES = 16 };

/* Where rank 0 listens. */
typedef struct sp_link_address {
    uint64_t token;
    char host[64];
    uint16_t port; /* network order; 0: nowhere */
    uint16_t n;
    uint32_t ip[SP_LINK_ADDRESSES]; /* network order, the loopback first */
} sp_link_address;

/* Rank 0: listen on a free port of all interfaces. SP_EIO. */
sp_status sp_link_listen(int *fd, sp_link_address *address, const char *host);
/* One connection that waits, -1: none. */
int sp_link_accept(int listener);
/* To whichever address answers within limit_s each, -1: none. Gives up as soon as
 * `wake` is readable. The loopback is tried only on the same host. */
int sp_link_connect(const sp_link_address *address, const char *host, int wake,
                    double limit_s);
void sp_link_close(sp_link *link);
/* Send, or leave out if the other side does not take it now. */
void sp_link_send(sp_link *link, const sp_signs *signs);
/* The next whole frame, if there is one; *is_closed when the other side has gone. */
bool sp_link_receive(sp_link *link, sp_signs *signs, bool *is_closed);

#endif
