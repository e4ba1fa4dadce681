#include "compute/sp_transport.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"

size_t sp_part_bytes(const sp_part *part)
{
    return part->count * (part->type == SP_F32 ? sizeof(float) : sizeof(double));
}

/* ---- mpi: host memory ---- */

static sp_status mpi_allreduce(sp_transport *t, const sp_small_sum *sum)
{
    const sp_part *part = &sum->part;

    if (sum->from != part->data)
        memcpy(part->data, sum->from, sp_part_bytes(part));
    return sp_comm_allreduce(t->comm, sum->scope, part->data, part->count, part->type,
                             SP_SUM);
}

static sp_status mpi_post(sp_transport *t, const sp_part *part, int n, sp_sum *sum)
{
    for (int i = 0; i < n; i++)
        SP_TRY(sp_comm_iallreduce(t->comm, SP_SCOPE_WORLD, part[i].data, part[i].count,
                                  part[i].type, SP_SUM, &sum->request[i]));
    sum->is_computed = true;
    return SP_OK;
}

static sp_status mpi_test(sp_transport *t, sp_sum *sum, bool *is_done)
{
    *is_done = true;
    for (int i = 0; *is_done && i < SP_SUM_PARTS; i++)
        SP_TRY(sp_comm_test(t->comm, &sum->request[i], is_done));
    return SP_OK;
}

static const sp_transport_ops mpi_ops = {.name = "mpi",
                                         .allreduce = mpi_allreduce,
                                         .post = mpi_post,
                                         .test = mpi_test,
                                         .join = sp_transport_wait};

/* ---- the host between device and MPI ---- */

sp_status sp_transport_through_host(sp_transport *transport, const sp_small_sum *sum)
{
    sp_backend *backend = transport->backend;
    const sp_part *part = &sum->part;
    size_t bytes = sp_part_bytes(part);

    if (!sp_list_reserve(&transport->host, &transport->host_bytes, bytes))
        return SP_FAIL(SP_EMEM,
                       "no memory for %zu bytes of an all-reduce through the host",
                       bytes);
    SP_TRY(backend->ops->download(backend, transport->host, sum->from, bytes));
    SP_TRY(sp_comm_allreduce(transport->comm, sum->scope, transport->host, part->count,
                             part->type, SP_SUM));
    return backend->ops->upload(backend, part->data, transport->host, bytes);
}

/* ---- the table ---- */

/* The transports of this backend's memory, best first; the last one always works. */
static const sp_transport_ops *const *table_of(const sp_backend *backend)
{
    static const sp_transport_ops *const of_host[] = {&mpi_ops, NULL};

    return backend->ops->transports ? backend->ops->transports : of_host;
}

static const sp_transport_ops *transport_last_of(const sp_backend *backend)
{
    const sp_transport_ops *const *at = table_of(backend);

    while (at[1])
        at++;
    return *at;
}

static const sp_transport_ops *find_nccl(const sp_backend *backend)
{
    const sp_transport_ops *const *at = table_of(backend);

    while (*at && strcmp((*at)->name, "nccl") != 0)
        at++;
    return *at;
}

static sp_status transport_start(sp_transport *t, sp_comm *comm, sp_backend *backend,
                                 const sp_transport_ops *ops,
                                 const sp_transport_options *options)
{
    memset(t, 0, sizeof *t);
    t->ops = ops;
    t->comm = comm;
    t->backend = backend;
    t->sequence = 2166136261u; /* FNV's basis */
    snprintf(t->words, sizeof t->words, "%s",
             comm->size == 1            ? "not needed (one rank)"
             : strcmp(ops->name, "mpi") ? "MPI through the host"
                                        : "MPI");
    return ops->open ? ops->open(t, options) : SP_OK;
}

void sp_transport_open_host(sp_transport *transport, sp_comm *comm)
{
    transport_start(transport, comm, NULL, &mpi_ops, NULL);
}

sp_status sp_transport_open(sp_transport *transport, sp_comm *comm, sp_backend *backend)
{
    return transport_start(transport, comm, backend, transport_last_of(backend), NULL);
}

/* Returns NULL where every rank can use NCCL, else the reason of the lowest rank that
 * cannot, with its failure in *rc. Collective. */
static const char *objection(sp_transport *t, const sp_transport_ops *nccl,
                             const sp_transport_options *options, sp_status *rc)
{
    *rc = SP_OK;
    if (options->objection)
        *rc = SP_FAIL(SP_EUSAGE, "%s", options->objection);
    else if (!nccl)
        *rc = SP_FAIL(
            SP_EUSAGE,
            "NCCL only sums memory of CUDA devices, and this run computes on the CPU");
    else if (nccl->probe)
        *rc = nccl->probe();
    *rc = sp_comm_agree(t->comm, *rc);
    return *rc == SP_OK ? NULL : sp_error_last()->message;
}

sp_status sp_transport_choose(sp_transport *transport, sp_comm *comm,
                              sp_backend *backend, const sp_transport_options *options)
{
    const sp_transport_ops *nccl = find_nccl(backend),
                           *last = transport_last_of(backend);
    const bool is_wanted = options->want == SP_TRANSPORT_NCCL;
    const char *why = NULL;
    sp_status rc = SP_OK;

    memset(transport, 0, sizeof *transport);
    transport->comm = comm;
    if (is_wanted || (comm->size > 1 && nccl && options->want == SP_TRANSPORT_AUTO))
        why = objection(transport, nccl, options, &rc);
    if (is_wanted && why)
        return SP_FAIL(rc, "run.transport = \"nccl\": %s", why);
    if (!nccl || why || comm->size == 1 || options->want == SP_TRANSPORT_MPI) {
        char words[600]; /* a copy: a failure below overwrites `why` */

        snprintf(words, sizeof words, "%.599s", why ? why : "");
        rc = transport_start(transport, comm, backend, last, options);
        rc = sp_comm_agree(transport->comm, rc);
        if (rc == SP_OK && why)
            snprintf(transport->words, sizeof transport->words,
                     "MPI through the host (%s)", words);
    } else {
        rc = transport_start(transport, comm, backend, nccl, options);
    }
    if (rc == SP_OK && transport->ops->peer && comm->size > 1 &&
        !options->without_peers && options->want != SP_TRANSPORT_MPI)
        rc = sp_comm_agree(transport->comm,
                           transport->ops->peer->open(transport, options));
    if (rc == SP_OK && options->is_bf16 && transport->ops != nccl && comm->size > 1)
        sp_log_warn0("run.reduce_wire = \"bf16\" works with NCCL only: gradients are "
                     "sent in fp32");
    return rc;
}

void sp_transport_close(sp_transport *transport)
{
    if (transport->peer)
        transport->ops->peer->close(transport);
    if (transport->ops && transport->ops->close)
        transport->ops->close(transport);
    if (transport->arena.base)
        transport->backend->ops->arena_destroy(&transport->arena);
    free(transport->host);
    memset(transport, 0, sizeof *transport);
}

void sp_transport_abandon(sp_transport *transport)
{
    if (transport->peer)
        transport->ops->peer->abandon(transport);
    if (transport->ops && transport->ops->abandon)
        transport->ops->abandon(transport);
}

sp_status sp_transport_alloc(sp_transport *transport, size_t bytes, void **out)
{
    assert(!transport->arena.base && "taken once");
    if (transport->ops->take)
        return transport->ops->take(transport, bytes, out);
    return sp_transport_alloc_arena(transport, bytes, out);
}

sp_status sp_transport_alloc_arena(sp_transport *transport, size_t bytes, void **out)
{
    const sp_backend_ops *ops = transport->backend->ops;

    SP_TRY(ops->arena_create(&transport->arena, bytes + 128, "gradients"));
    return sp_arena_alloc(&transport->arena, bytes, out);
}

/* ---- sums ---- */

/* Mixes one sum into the sequence (FNV-1a over words). Sums of a narrower scope are not
 * counted, because ranks of other nodes need not have them. */
static void count_sum(sp_transport *t, sp_scope scope, const sp_part *part)
{
    const uint32_t word[] = {(uint32_t)part->count, (uint32_t)part->type};

    for (size_t i = 0; scope == SP_SCOPE_WORLD && i < sizeof word / sizeof *word; i++)
        t->sequence = (t->sequence ^ word[i]) * 16777619u;
}

sp_status sp_transport_allreduce(sp_transport *transport, sp_scope scope,
                                 const void *from, void *to, size_t count, sp_type type)
{
    const sp_small_sum sum = {scope, from, {to, count, type}};

    assert(transport->ops);
    if (sp_comm_scope_size(transport->comm, scope) == 1 || count == 0)
        return SP_OK;
    count_sum(transport, scope, &sum.part);
    if (transport->peer && transport->ops->peer->takes(transport, &sum))
        return transport->ops->peer->allreduce(transport, &sum);
    return transport->ops->allreduce(transport, &sum);
}

sp_status sp_transport_post(sp_transport *transport, const sp_part *part, int n,
                            sp_sum *sum)
{
    assert(n >= 0 && n <= SP_SUM_PARTS);
    memset(sum, 0, sizeof *sum);
    if (transport->comm->size == 1)
        return SP_OK;
    for (int i = 0; i < n; i++)
        count_sum(transport, SP_SCOPE_WORLD, &part[i]);
    return transport->ops->post(transport, part, n, sum);
}

sp_status sp_transport_test(sp_transport *transport, sp_sum *sum, bool *is_done)
{
    *is_done = true;
    if (transport->comm->size == 1)
        return SP_OK;
    return transport->ops->test(transport, sum, is_done);
}

sp_status sp_transport_join(sp_transport *transport, sp_sum *sum)
{
    if (transport->comm->size == 1)
        return SP_OK;
    return transport->ops->join(transport, sum);
}

/* ---- waiting ---- */

typedef struct waiting {
    sp_transport *transport;
    sp_sum *sum;
} waiting;

static sp_status test_computed(void *arg, bool *is_done)
{
    const waiting *w = arg;
    bool is_leaving = false;

    SP_TRY(w->transport->ops->test(w->transport, w->sum, is_done));
    if (w->transport->peer)
        SP_TRY(w->transport->ops->peer->look(w->transport, &is_leaving));
    *is_done = (*is_done || w->sum->is_computed) && !is_leaving;
    return SP_OK;
}

static sp_status test_summed(void *arg, bool *is_done)
{
    const waiting *w = arg;

    return w->transport->ops->test(w->transport, w->sum, is_done);
}

/* The host waits first for this rank's own summands, then for the other ranks: only the
 * second wait counts as exposed. */
sp_status sp_transport_wait(sp_transport *transport, sp_sum *sum)
{
    waiting w = {transport, sum};
    double begin;

    if (transport->comm->size == 1)
        return SP_OK;
    SP_TRY(sp_comm_wait_for(transport->comm, false, test_computed, &w));
    begin = sp_now_s();
    SP_TRY(sp_comm_wait_for(transport->comm, true, test_summed, &w));
    transport->exposed_s += sp_now_s() - begin;
    memset(sum, 0, sizeof *sum);
    return SP_OK;
}
