/* Transports: sums over ranks of values that lie in a backend's memory.
 *
 *     name        memory   moved by
 *     mpi         host     MPI, in place
 *     mpi-staged  device   MPI, through pinned host memory, piece by piece
 *     nccl        device   NCCL, in place
 *
 * In addition to the latter two, if the devices of a scope reach each other's
 * memory, small sums go through that memory (sp_peer_ops).
 *
 * Gradients are posted during the backward pass and travel concurrently with it. Batch
 * statistics, which the next operation needs, are summed in the compute stream:
 *
 *     compute stream  --kernels--*--kernels--S--kernels----------J--update--
 *                           post |           allreduce      join |
 *     reduce stream              +------ sum over ranks ---------+
 *
 * mpi and mpi-staged need the host to make progress; nccl needs it only to report
 * errors. Sums are the same bits on all ranks, and from run to run for the same ranks
 * on the same nodes. All calls come from the training thread; collective ones come in
 * the same order on all ranks of the scope, with the same counts and types. */
#ifndef SP_TRANSPORT_H
#define SP_TRANSPORT_H

#include "comm/sp_comm.h"
#include "compute/sp_backend.h"
#include "deck/sp_choice.h"

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

/* One sum over a scope: part.data becomes the sum of from[count]. `from` is unchanged,
 * unless it is part.data. */
typedef struct sp_small_sum {
    sp_scope scope;
    const void *from;
    sp_part part;
} sp_small_sum;

/* A posted sum. It is all zero before the post and after the sum is done. */
typedef struct sp_sum {
    sp_request request[SP_SUM_PARTS]; /* used by mpi */
    void *handle;                     /* used by the other transports */
    bool is_computed; /* the host has seen that the summands are there */
} sp_sum;

typedef struct sp_transport_options {
    sp_transport_kind want;
    const char *objection; /* the reason why NCCL cannot be used, or NULL */
    sp_scope scope;        /* that sp_transport_allreduce sums over */
    bool is_bf16;          /* posted floats travel as bf16: nccl only */
    bool is_repeatable;    /* the same bits from run to run */
    double limit_s;        /* time limit of the start; 0: ten minutes */
    bool without_peers;    /* small sums use the transport, not peers' memory */
    double peer_limit_s;   /* how long a device waits for a peer; 0: an hour */
} sp_transport_options;

/* Small sums (a few values of 8 bytes) in the compute stream, by kernels that store
 * into each other's memory. All ranks get the same bits. Used in addition to a
 * transport. */
typedef struct sp_peer_ops {
    /* Collective, agreed: sets t->peer if all ranks can take part, and describes the
     * outcome in t->words. SP_EMPI. */
    sp_status (*open)(struct sp_transport *t,
                      const struct sp_transport_options *options);
    void (*close)(struct sp_transport *t);
    void (*abandon)(struct sp_transport *t);
    bool (*takes)(const struct sp_transport *t, const sp_small_sum *sum);
    sp_status (*allreduce)(struct sp_transport *t, const sp_small_sum *sum);
    /* Called while the host waits for the compute stream: reports to the watchdog that
     * the stream waits for another rank. *is_leaving: sums were left undone because the
     * process is about to end. Local. SP_EMPI: a rank did not come. */
    sp_status (*look)(struct sp_transport *t, bool *is_leaving);
} sp_peer_ops;

/* One kind of transport. The functions below with the same names describe each. A
 * function may be NULL if a comment says so. */
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
    const sp_peer_ops *peer;            /* or NULL */
} sp_transport_ops;

struct sp_transport {
    const sp_transport_ops *ops;
    sp_comm *comm;       /* borrowed */
    sp_backend *backend; /* borrowed */
    sp_arena arena;      /* for sp_transport_alloc */
    char *host;          /* [host_bytes] staging memory of sp_transport_through_host */
    size_t host_bytes;
    double exposed_s; /* time that the host waited for other ranks' summands */
    char words[640];  /* for the log: the transport, and why it is not a better one */
    /* A number of the sums over the world that this rank has asked for so far, of their
     * lengths, types and order: ranks that asked for the same ones in the same order
     * have the same number. Sums that meet others by mistake would be wrong without a
     * message, or hang where devices wait for each other. */
    uint32_t sequence;
    void *impl;
    void *peer; /* private to ops->peer; NULL: small sums use the transport */
};

/* Opens MPI for host memory, without a backend. Local. */
void sp_transport_open_host(sp_transport *transport, sp_comm *comm);
/* Opens MPI for this backend's memory. Local. After a failure, too, close it. */
sp_status sp_transport_open(sp_transport *transport, sp_comm *comm,
                            sp_backend *backend);
/* Opens the transport that the options ask for; SP_TRANSPORT_AUTO uses NCCL if every
 * rank can, else MPI; transport->words give the reason. Collective over the world,
 * agreed. SP_EUSAGE, SP_EMPI. */
sp_status sp_transport_choose(sp_transport *transport, sp_comm *comm,
                              sp_backend *backend, const sp_transport_options *options);
/* Closes the transport. Collective if nothing has failed. Accepts a zeroed one. */
void sp_transport_close(sp_transport *transport);
/* Leaves the transport without the other ranks, instead of close, if only this rank
 * knows that the run has failed. Local. */
void sp_transport_abandon(sp_transport *transport);

/* Takes backend memory for values that will be posted, in the memory that the transport
 * moves best. Called once; the memory lives until close, its content is undefined.
 * Local. SP_EMEM. */
sp_status sp_transport_alloc(sp_transport *transport, size_t bytes, void **out);

/* to[count] becomes the sum of from[count] over the ranks of scope, after the compute
 * stream's work so far and before its later work. `from` may be `to`, else the two do
 * not overlap. A scope of one rank does nothing, so the two must be the same there.
 * Allocates nothing once a count has been seen. Collective over scope. SP_EMPI,
 * SP_EDEVICE, SP_EMEM. */
sp_status sp_transport_allreduce(sp_transport *transport, sp_scope scope,
                                 const void *from, void *to, size_t count,
                                 sp_type type);

/* Begins to sum part[n] over all ranks, after the compute stream's work so far, which
 * must not touch them until the join. Collective over the world. */
sp_status sp_transport_post(sp_transport *transport, const sp_part *part, int n,
                            sp_sum *sum);
/* Makes progress with posted sums and looks for errors. Sums are tested in the order of
 * their posting. */
sp_status sp_transport_test(sp_transport *transport, sp_sum *sum, bool *is_done);
/* Later work of the compute stream reads the finished sum. The host waits only if the
 * transport needs that. */
sp_status sp_transport_join(sp_transport *transport, sp_sum *sum);
/* The host waits until the sum is done. */
sp_status sp_transport_wait(sp_transport *transport, sp_sum *sum);

/* Transports call it: an all-reduce by copies to and from the host, which waits. */
sp_status sp_transport_through_host(sp_transport *transport, const sp_small_sum *sum);
/* Transports call it: sp_transport_alloc from an arena of the backend. */
sp_status sp_transport_alloc_arena(sp_transport *transport, size_t bytes, void **out);
size_t sp_part_bytes(const sp_part *part);

#ifdef __cplusplus
}
#endif
#endif
