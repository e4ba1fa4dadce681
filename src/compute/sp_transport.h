/* How the ranks sum what lies in a backend's memory.
 *
 *     name        memory   moved by
 *     mpi         host     MPI, where it lies
 *     mpi-staged  device   MPI, through pinned host memory, piece by piece
 *     nccl        device   NCCL, where it lies
 *
 * Beside the latter two, where the devices of a scope reach each other's memory, a few
 * values are summed through that (sp_peer_ops).
 *
 * Gradients are posted while the backward pass goes on and travel beside it; what the
 * next operation needs (batch statistics) is summed in the compute stream:
 *
 *     compute stream  --kernels--*--kernels--S--kernels----------J--update--
 *                           post |           allreduce      join |
 *     reduce stream              +------ sum over ranks ---------+
 *
 * Only mpi and mpi-staged need the host to move on; nccl needs it to find out what went
 * wrong. Sums are the same bits on all ranks, and from run to run for the same ranks on
 * the same nodes. All calls come from the training thread; collective ones come in the
 * same order on all ranks of the scope, with the same counts and types.
 */
#ifndef SP_TRANSPORT_H
#define SP_TRANSPORT_H

#include "compute/sp_backend.h"
#include "comm/sp_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SP_SUM_PARTS = 3 };

typedef struct sp_transport sp_transport;

/* data[count] in backend memory; SP_F32, SP_F64 or SP_I64. */
typedef struct sp_part {
    void *data;
    size_t count;
    sp_type type;
} sp_part;

/* What is summed over a scope at once: from[count], which stays, into part.data; from
 * may be part.data. */
typedef struct sp_small_sum {
    sp_scope scope;
    const void *from;
    sp_part part;
} sp_small_sum;

/* A posted sum: zero before the post and once it is done. */
typedef struct sp_sum {
    sp_request request[SP_SUM_PARTS]; /* of mpi */
    void *handle;                     /* of the others */
    bool is_computed; /* the host has seen that the summands are there */
} sp_sum;

typedef struct sp_transport_options {
    const char *want;      /* "auto", "nccl", "mpi" */
    const char *objection; /* why NCCL cannot be, NULL: nothing is known */
    sp_scope scope;        /* of sp_transport_allreduce */
    bool is_bf16;          /* posted floats travel as bf16: nccl only */
    bool is_repeatable;    /* the same bits from run to run */
    double limit_s;        /* patience with the start; 0: ten minutes */
    bool without_peers;    /* small sums go the transport's way too */
    double peer_limit_s;   /* of a device with its peers; 0: an hour */
} sp_transport_options;

/* Sums of a few values of 8 bytes in the compute stream, by kernels that store into
 * each other's memory: the same bits on all ranks. Beside a transport. */
typedef struct sp_peer_ops {
    /* Collective, agreed: t->peer is set where all ranks can; t->words say how it is.
     * SP_EMPI. */
    sp_status (*open)(struct sp_transport *t,
                      const struct sp_transport_options *options);
    void (*close)(struct sp_transport *t);
    void (*abandon)(struct sp_transport *t);
    bool (*takes)(const struct sp_transport *t, const sp_small_sum *sum);
    sp_status (*allreduce)(struct sp_transport *t, const sp_small_sum *sum);
    /* For who waits for the compute stream: tells the watchdog where that waits for
     * others. is_leaving: sums were left undone, since the process is to end. Local.
     * SP_EMPI: a rank did not come. */
    sp_status (*look)(struct sp_transport *t, bool *is_leaving);
} sp_peer_ops;

/* One kind of transport. What the functions do is said below, at those that call them.
 * NULL where it says so. */
typedef struct sp_transport_ops {
    const char *name;
    sp_status (*probe)(void); /* local: can this process use it? NULL: always */
    sp_status (*open)(sp_transport *t, const sp_transport_options *options);
    void (*close)(sp_transport *t);
    void (*abandon)(sp_transport *t);                             /* NULL: nothing */
    sp_status (*take)(sp_transport *t, size_t bytes, void **out); /* NULL: arena */
    sp_status (*allreduce)(sp_transport *t, const sp_small_sum *sum);
    sp_status (*post)(sp_transport *t, const sp_part *part, int n, sp_sum *sum);
    sp_status (*test)(sp_transport *t, sp_sum *sum, bool *is_done);
    sp_status (*join)(sp_transport *t, sp_sum *sum);
    sp_status (*look)(sp_transport *t); /* for what went wrong; NULL: nothing can */
    const sp_peer_ops *peer;            /* NULL: none */
} sp_transport_ops;

struct sp_transport {
    const sp_transport_ops *ops;
    sp_comm *comm;       /* borrowed */
    sp_backend *backend; /* borrowed */
    sp_arena arena;      /* of sp_transport_take */
    char *host;          /* [host_bytes] of sp_transport_through_host */
    size_t host_bytes;
    double exposed_s; /* that the host has waited for sums whose summands were there */
    char words[640];  /* for the log: what moves the sums, and why not something else */
    int failed_rank;  /* who failed where a collective function did, agreed */
    void *impl;
    void *peer; /* of ops->peer; NULL: it takes nothing */
};

/* Local: MPI for host memory, whatever the backend; it has none. */
void sp_transport_open_host(sp_transport *transport, sp_comm *comm);
/* Local: MPI for this backend's memory. After a failure too, close. */
sp_status sp_transport_open(sp_transport *transport, sp_comm *comm,
                            sp_backend *backend);
/* Collective over the world, agreed: the transport that the options ask for; auto: NCCL
 * where every rank can, else MPI, and the words say why. SP_EUSAGE, SP_EMPI. */
sp_status sp_transport_choose(sp_transport *transport, sp_comm *comm,
                              sp_backend *backend, const sp_transport_options *options);
/* Collective where nothing has failed. A zeroed transport is fine. */
void sp_transport_close(sp_transport *transport);
/* Local, in place of close, where only this rank knows that all is lost. */
void sp_transport_abandon(sp_transport *transport);

/* Backend memory for what is posted, where the transport likes it best; once, it lives
 * until close. Content undefined. Local. SP_EMEM. */
sp_status sp_transport_take(sp_transport *transport, size_t bytes, void **out);

/* Collective over scope: to[count] becomes the sum of from[count] over the ranks, behind
 * the compute stream's work so far and before its work to come. from may be `to`, else
 * they lie apart; a scope of one rank does nothing, so it wants them the same. Allocates
 * nothing once a count has been seen. SP_EMPI, SP_EDEVICE, SP_EMEM. */
sp_status sp_transport_allreduce(sp_transport *transport, sp_scope scope,
                                 const void *from, void *to, size_t count,
                                 sp_type type);

/* Collective over the world: part[n] become their sums, behind the compute stream's
 * work so far; it must not touch them until the join. */
sp_status sp_transport_post(sp_transport *transport, const sp_part *part, int n,
                            sp_sum *sum);
/* Lets posted sums move on and looks for errors; the first posted are to be tested
 * first. */
sp_status sp_transport_test(sp_transport *transport, sp_sum *sum, bool *is_done);
/* The compute stream's work to come finds the sum. The host waits where the transport
 * needs it to. */
sp_status sp_transport_join(sp_transport *transport, sp_sum *sum);
/* The host waits for the sum. */
sp_status sp_transport_wait(sp_transport *transport, sp_sum *sum);

/* For transports: sp_comm_agree that keeps who failed. */
sp_status sp_transport_agree(sp_transport *transport, sp_status rc);
/* For transports: allreduce by copies to and from the host, which waits. */
sp_status sp_transport_through_host(sp_transport *transport, const sp_small_sum *sum);
/* For transports: sp_transport_take from an arena of the backend. */
sp_status sp_transport_take_arena(sp_transport *transport, size_t bytes, void **out);
size_t sp_part_bytes(const sp_part *part);

#ifdef __cplusplus
}
#endif
#endif
