/* Connections of the watchdogs, every rank's to rank 0, on a network that others may
 * use too. No function here waits, and all are local.
 *
 *     rank r                                                rank 0
 *       hello: r, a random number a                ------>
 *                       <------  a random number b, proof of (0, r, a, b)
 *       proof of (1, r, a, b)                      ------>
 *       frames: number, status, proof of both     <----->   the same
 *
 * A proof is a keyed hash (sp_siphash). The key of the first two is the run's secret,
 * which rank 0 drew and MPI carried to the ranks: it never travels here. Each side has
 * chosen one of the random numbers, so that a recorded conversation proves nothing
 * later. The key of frames is derived from secret, r, a and b. Frames are numbered from
 * 1 in each direction; a frame that is repeated, left out or changed ends the
 * connection.
 *
 * A stranger that connects learns only one keyed hash of a number of its choice. The
 * contents are not encrypted: those who can read the network can read host names,
 * phases and steps.
 */
#ifndef SP_AUTH_SOCKET_H
#define SP_AUTH_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"

/* SipHash-2-4, a keyed hash: without the key nobody can compute the hash of a text, not
 * even after seeing the hashes of other texts (Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF", 2012). */

enum { SP_SIPHASH_KEY = 16 };

/* Returns the hash of `bytes` bytes under a key. Local. */
uint64_t sp_siphash(const uint8_t key[SP_SIPHASH_KEY], const void *data, size_t bytes);

typedef enum sp_frame_kind {
    SP_FRAME_ALIVE,
    SP_FRAME_END, /* the sender ends by its own decision with `code` */
    /* from rank 0: all ranks end with `code`; the reason has been printed */
    SP_FRAME_LEAVE
} sp_frame_kind;

/* The content of a frame, in the byte order of the job's machines (which all run this
 * program). */
typedef struct sp_status_frame {
    /* the sender; sp_frame_kind; exit status; 1 while it waits for other ranks */
    int32_t rank, kind, code, is_waiting;
    /* the counts of sp_liveness.h, and the position in the run */
    int64_t work, waits, phase, epoch, step;
    double own_s;      /* seconds of own work a step; 0: not known */
    int64_t own_phase; /* the phase with most of them */
    char host[64];
} sp_status_frame;

/* The stage of a connection, in the order of the drawing above. */
typedef enum sp_auth_socket_stage {
    SP_AUTH_CLOSED,
    SP_AUTH_CONNECTING, /* rank r: the connection is not yet established */
    SP_AUTH_ASKED,      /* rank r has sent its hello */
    SP_AUTH_HELLO,      /* rank 0 waits for the hello */
    SP_AUTH_PROOF,      /* rank 0 has answered and waits for the proof */
    SP_AUTH_PROVEN,     /* rank r may send, and has not seen a frame of rank 0 yet */
    SP_AUTH_OPEN        /* the peer is a rank of this run */
} sp_auth_socket_stage;

enum {
    SP_AUTH_NONCE = 16,
    SP_AUTH_FRAME =
        16 + (int)sizeof(sp_status_frame), /* bytes, with number and proof */
    SP_AUTH_ADDRESSES = 16,
    SP_AUTH_PHASES = 11 /* number of phases (run/sp_heartbeat.h) */
};

/* One connection, as one of its two sides sees it. */
typedef struct sp_auth_socket {
    int fd; /* -1 where stage is SP_AUTH_CLOSED */
    sp_auth_socket_stage stage;
    bool is_root;   /* this process is rank 0 */
    int rank;       /* rank of the side that is not rank 0; -1: not yet known */
    double since_s; /* when the connection began */
    uint8_t nonce[2][SP_AUTH_NONCE]; /* the random numbers a and b */
    uint8_t key[SP_SIPHASH_KEY];     /* key of frames, from SP_AUTH_PROVEN on */
    uint64_t n_sent, n_received;     /* numbers of frames so far */
    /* bytes in `in` (received so far) and in `out` (still to be sent) */
    size_t n_in, n_out;
    uint8_t in[SP_AUTH_FRAME], out[SP_AUTH_FRAME];
} sp_auth_socket;

/* Rank 0's listening addresses, which MPI sends to the ranks. */
typedef struct sp_auth_socket_address {
    uint8_t secret[SP_SIPHASH_KEY];
    char host[64];
    uint32_t n;                     /* number of addresses; 0: rank 0 does not listen */
    uint32_t ip[SP_AUTH_ADDRESSES]; /* network order */
    uint16_t port[SP_AUTH_ADDRESSES]; /* network order */
} sp_auth_socket_address;

/* Writes this host's IPv4 addresses without the loopback, in network order, and returns
 * their number. */
int sp_auth_socket_own_addresses(uint32_t ip[SP_AUTH_ADDRESSES]);
/* Called on rank 0: draws the secret and listens on a free port of each own address
 * that has a route to one of the n_peers addresses of the job's other hosts, or only of
 * the loopback if there are no other hosts. Writes address->n descriptors to fd
 * [SP_AUTH_ADDRESSES], which the caller closes. SP_EIO. */
sp_status sp_auth_socket_listen(int *fd, sp_auth_socket_address *address,
                                const char *host, const uint32_t *peers, int n_peers);
/* Called on rank 0: accepts the next connection at a listener. False without one. */
bool sp_auth_socket_accept(sp_auth_socket *link, int listener);
/* Called on rank `rank`: begins to connect to address->ip[i]. False: it failed at once.
 */
bool sp_auth_socket_connect(sp_auth_socket *link, const sp_auth_socket_address *address,
                            int i, int rank);
/* Continues connecting and proving as far as the received bytes allow. False: the other
 * side has closed the connection or is no rank of this run (of `size` ranks), and the
 * link is closed. */
bool sp_auth_socket_advance(sp_auth_socket *link, const sp_auth_socket_address *address,
                            int size);
/* True from SP_AUTH_PROVEN on, when frames may be sent. */
bool sp_auth_socket_is_proven(const sp_auth_socket *link);
/* Closes the connection. A closed link is allowed. */
void sp_auth_socket_close(sp_auth_socket *link);

/* Sends a frame, or drops it if the other side does not accept more bytes now. */
void sp_auth_socket_send(sp_auth_socket *link, const sp_status_frame *status);

/* The result of sp_auth_socket_receive. */
typedef enum sp_auth_socket_event {
    SP_AUTH_NOTHING, /* no whole frame has arrived yet */
    SP_AUTH_ARRIVED, /* a frame arrived, every field of it in its range */
    SP_AUTH_GONE,    /* the other side has closed the connection */
    SP_AUTH_FOREIGN  /* the bytes that arrived are no frame of this run */
} sp_auth_socket_event;

/* Receives the next whole frame. The first one opens a link that is SP_AUTH_PROVEN. No
 * link is closed here; the caller does that. */
sp_auth_socket_event sp_auth_socket_receive(sp_auth_socket *link,
                                            sp_status_frame *status);

#endif
