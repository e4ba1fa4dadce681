/* Connections of the watchdogs, every rank's to rank 0, on a network that others may
 * use too. Nothing here blocks.
 *
 *     rank r                                                rank 0
 *       hello: r, a random number a                ------>
 *                       <------  a random number b, proof of (0, r, a, b)
 *       proof of (1, r, a, b)                      ------>
 *       frames: number, signs, proof of both      <----->   the same
 *
 * A proof is a keyed hash (sp_siphash.h). The key of the first two is the run's secret,
 * which rank 0 drew and MPI carried to the ranks: it never travels here. Each side has
 * chosen one of the random numbers, so that a recording proves nothing later. The key
 * of frames is derived from secret, r, a and b. Frames count from 1 in each direction;
 * one that is repeated, left out or changed ends the connection.
 *
 * Whoever is no rank of this run is told one keyed hash of a number of his own and
 * nothing else. The contents are not encrypted: host names, phases and steps can be
 * read by those who can read the network.
 */
#ifndef SP_LINK_H
#define SP_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sp_error.h"
#include "base/sp_siphash.h"

typedef enum sp_signs_kind {
    SP_SIGNS_ALIVE,
    SP_SIGNS_END,  /* the sender ends by itself with `code` */
    SP_SIGNS_LEAVE /* rank 0: everybody ends with `code`, the reason has been said */
} sp_signs_kind;

/* One frame's content, in the byte order of the job's machines (which all run this
 * program). */
typedef struct sp_signs {
    int32_t rank, kind, code, is_waiting;
    int64_t work, waits, phase, epoch, step;
    double own_s; /* seconds of own work a step, 0: not known */
    char host[64];
} sp_signs;

typedef enum sp_link_stage {
    SP_LINK_CLOSED,
    SP_LINK_CONNECTING, /* rank r */
    SP_LINK_ASKED,      /* rank r has said hello */
    SP_LINK_HELLO,      /* rank 0 waits for hello */
    SP_LINK_PROOF,      /* rank 0 has answered */
    SP_LINK_PROVEN,     /* rank r may send, and has not seen a frame of rank 0 yet */
    SP_LINK_OPEN        /* the peer is a rank of this run */
} sp_link_stage;

enum {
    SP_LINK_NONCE = 16,
    SP_LINK_FRAME = 16 + (int)sizeof(sp_signs), /* with its number and its proof */
    SP_LINK_ADDRESSES = 16,
    SP_LINK_PHASES = 11 /* as many as a rank may be in (run/sp_heartbeat.h) */
};

typedef struct sp_link {
    int fd; /* -1 where stage is SP_LINK_CLOSED */
    sp_link_stage stage;
    bool is_root;   /* this process is rank 0 */
    int rank;       /* of the side that is not rank 0; -1: not said yet */
    double since_s; /* the connection began */
    uint8_t nonce[2][SP_LINK_NONCE]; /* a, b */
    uint8_t key[SP_SIPHASH_KEY];     /* of frames, from SP_LINK_PROVEN on */
    uint64_t n_sent, n_received;     /* frames */
    size_t n_in, n_out;
    uint8_t in[SP_LINK_FRAME], out[SP_LINK_FRAME];
} sp_link;

/* The addresses at which rank 0 listens, for the ranks. */
typedef struct sp_link_address {
    uint8_t secret[SP_SIPHASH_KEY];
    char host[64];
    uint32_t n;                       /* 0: nowhere */
    uint32_t ip[SP_LINK_ADDRESSES];   /* network order */
    uint16_t port[SP_LINK_ADDRESSES]; /* network order */
} sp_link_address;

/* This host's IPv4 addresses without the loopback, network order; their number. */
int sp_link_own_addresses(uint32_t ip[SP_LINK_ADDRESSES]);
/* Rank 0: draw the secret and listen on a free port of each address by which this host
 * reaches one of the n_peers addresses of the job's other hosts, or of the loopback
 * alone where there are none. fd [SP_LINK_ADDRESSES]: address->n of them. SP_EIO. */
sp_status sp_link_listen(int *fd, sp_link_address *address, const char *host,
                         const uint32_t *peers, int n_peers);
/* Rank 0: the next connection that waits at a listener. False: there is none. */
bool sp_link_accept(sp_link *link, int listener);
/* Rank `rank`: begin to connect to the address->ip[i]. False: it failed at once. */
bool sp_link_connect(sp_link *link, const sp_link_address *address, int i, int rank);
/* Go on with connecting and proving as far as what has arrived allows. False: the other
 * side has gone or is no rank of this run (of `size` ranks), and the link is closed. */
bool sp_link_advance(sp_link *link, const sp_link_address *address, int size);
/* True from SP_LINK_PROVEN on: frames may be sent. */
bool sp_link_is_proven(const sp_link *link);
void sp_link_close(sp_link *link);

/* Send, or leave out if the other side does not take it now. */
void sp_link_send(sp_link *link, const sp_signs *signs);

typedef enum sp_link_event {
    SP_LINK_NOTHING, /* no whole frame yet */
    SP_LINK_SIGNS,   /* a frame, every field of it in its range */
    SP_LINK_GONE,    /* the other side has closed */
    SP_LINK_FOREIGN  /* what has come is not of this run */
} sp_link_event;

/* The next whole frame; opens a link that is SP_LINK_PROVEN. Closes none. */
sp_link_event sp_link_receive(sp_link *link, sp_signs *signs);

#endif
