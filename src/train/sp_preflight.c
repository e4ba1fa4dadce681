/* `sptrain preflight`: the cores and device of each rank, and how fast they are.
 *
 *     each rank   place, device, measured rates  --gather-->  rank 0: table, warnings
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "train/sp_check.h"

/* The rates that preflight measures on each rank. */
typedef enum rate_kind { READ, COPY, REDUCE, N_RATES } rate_kind;

/* One rank's row of the table. */
typedef struct sp_flight {
    sp_place place; /* device -1: the rank computes on the CPU */
    int cores;
    double rate[N_RATES]; /* in MB/s; 0: nothing to measure, printed as - */
} sp_flight;

/* ---- rates ---- */

/* Times an all-reduce of the gradient's size in backend memory; best of five.
 * Collective. */
static sp_status measure_reduce(sp_device *d, size_t n, float *data, double *rate)
{
    sp_backend *backend = &d->backend;
    sp_comm *comm = d->comm;
    double best = INFINITY;
    void *shared = NULL;
    sp_status rc = SP_OK;

    if (comm->size == 1)
        return SP_OK; /* one rank moves no data */
    /* On the host the gradient lies in memory of sp_comm. */
    if (backend->ops->is_host) {
        rc = sp_comm_alloc(comm, n * sizeof *data, &shared);
        rc = sp_comm_agree(comm, rc);
        data = shared;
    }
    for (int i = 0; i < 5 && rc == SP_OK; i++) {
        double begin;
        rc = sp_comm_barrier(comm);
        begin = sp_now_s();
        if (rc == SP_OK)
            rc = sp_transport_allreduce(&d->transport, SP_SCOPE_WORLD, data, data, n,
                                        SP_F32);
        if (rc == SP_OK)
            rc = backend->ops->wait(backend);
        best = fmin(best, sp_now_s() - begin);
    }
    sp_comm_free(comm, shared);
    *rate = (double)n * 4e-6 / best;
    return rc;
}

/* Times a copy of the gradient's size from host to device, by the way that batches use;
 * best of five. */
static sp_status measure_copy(sp_backend *backend, size_t bytes, float *data,
                              double *rate)
{
    double best = INFINITY;
    SP_FREED char *host = NULL;

    if (backend->ops->is_host)
        return SP_OK;
    SP_TRY(SP_NEW(&host, bytes, "the measured copies"));
    for (int i = 0; i < 5; i++) {
        const double begin = sp_now_s();

        SP_TRY(backend->ops->upload(backend, data, host, bytes));
        SP_TRY(backend->ops->wait(backend));
        best = fmin(best, sp_now_s() - begin);
    }
    *rate = (double)bytes * 1e-6 / best;
    return SP_OK;
}

/* Reads samples of this rank's share for 0.3 s, one sample at least. A rank that has
 * read all of its share goes on with the other ranks' samples: otherwise ranks that
 * read equally fast would differ if there are few samples of unequal sizes. */
static sp_status measure_read(const sp_network *network, const sp_dataset *set,
                              const sp_comm *comm, double *rate)
{
    const sp_sample_request request = {
        .columns = network->columns, .n_columns = network->n_columns, .verify = true};
    const int64_t n = set->n_samples;
    SP_CLOSED_BY(sp_sample_destroy) sp_sample sample = {0};
    double begin = sp_now_s(), bytes = 0;
    int64_t i = comm->rank;

    if (n == 0)
        return SP_OK;
    do {
        SP_TRY(sp_sample_read(set, i % n, &request, &sample));
        bytes += (double)sample.n * (12 + 4 * network->n_columns + 1);
        i += i < n ? comm->size : 1;
    } while (sp_now_s() - begin < 0.3);
    *rate = bytes * 1e-6 / (sp_now_s() - begin);
    return SP_OK;
}

/* Measures all three rates, with a vector of the gradient's size in the backend's
 * memory. */
static sp_status preflight_measure(sp_checked *c, sp_flight *flight)
{
    sp_backend *backend = &c->device.backend;
    const sp_backend_ops *ops = backend->ops;
    const size_t n = (size_t)c->network.graph.n_floats;
    const size_t bytes = n * sizeof(float);
    sp_comm *comm = c->session.comm;
    sp_arena arena = {0};
    float *data = NULL;
    sp_status rc = ops->arena_create(&arena, bytes + 128, "preflight");

    if (rc == SP_OK)
        rc = SP_ALLOC(&arena, n, &data);
    if (rc == SP_OK)
        rc = ops->fill(backend, data, 0, bytes);
    if (rc == SP_OK)
        rc = measure_copy(backend, bytes, data, &flight->rate[COPY]);
    if (rc == SP_OK)
        rc = measure_read(&c->network, &c->data.train, comm, &flight->rate[READ]);
    rc = sp_comm_agree(comm, rc);
    sp_session_beat(&c->session, SP_PHASE_REDUCE);
    if (rc == SP_OK)
        rc = measure_reduce(&c->device, n, data, &flight->rate[REDUCE]);
    ops->arena_destroy(&arena);
    return rc;
}

/* ---- table ---- */

/* Warns of a rank at less than a quarter of the fastest rank's rate, which delays all
 * others. */
static void warn_of_slowest(const sp_flight *all, int n, rate_kind kind,
                            const char *what)
{
    const sp_flight *slowest = all;
    double fastest = 0;

    for (int r = 0; r < n; r++) {
        if (all[r].rate[kind] < slowest->rate[kind])
            slowest = &all[r];
        fastest = fmax(fastest, all[r].rate[kind]);
    }
    if (slowest->rate[kind] < fastest / 4)
        sp_log_warn0("rank %d on %s %s at %.0f MB/s, the fastest at %.0f MB/s",
                     slowest->place.rank, slowest->place.host, what,
                     slowest->rate[kind], fastest);
}

static void print_devices(const sp_flight *all, int n)
{
    sp_log_info("%5s %6s  %-41s %-13s %4s  %s", "rank", "device", "UUID", "PCI", "NUMA",
                "name");
    for (int r = 0; r < n; r++) {
        const sp_place *p = &all[r].place;
        char numa[12] = "?";
        if (p->numa_node >= 0)
            snprintf(numa, sizeof numa, "%d", p->numa_node);
        sp_log_info("%5d %6d  %-41s %-13s %4s  %s", p->rank, p->device, p->what.uuid,
                    p->what.pci, numa, p->what.name);
    }
}

/* A rate that was not measured is a dash. */
static const char *preflight_text_of(double rate, char text[16])
{
    snprintf(text, 16, rate > 0 ? "%.0f" : "-", rate);
    return text;
}

static void print_flights(const sp_device *d, const sp_flight *all)
{
    const int n = d->comm->size;
    const char *transport = n == 1 ? "none" : d->transport.ops->name;

    sp_log_info("%5s %-20s %5s %6s %6s  %-10s %15s %12s %10s", "rank", "host", "node",
                "local", "cores", "transport", "all-reduce MB/s", "to GPU MB/s",
                "read MB/s");
    for (int i = 0; i < n; i++) {
        const sp_flight *f = &all[i];
        char reduce[16], copy[16], read[16];
        sp_log_info("%5d %-20s %5d %6d %6d  %-10s %15s %12s %10s", f->place.rank,
                    f->place.host, f->place.node, f->place.local_rank, f->cores,
                    transport, preflight_text_of(f->rate[REDUCE], reduce),
                    preflight_text_of(f->rate[COPY], copy),
                    preflight_text_of(f->rate[READ], read));
    }
    if (!d->backend.ops->is_host)
        print_devices(all, n);
    warn_of_slowest(all, n, READ, "reads shards");
    warn_of_slowest(all, n, COPY, "copies to its device");
    warn_of_slowest(all, n, REDUCE, "reduces");
}

static sp_status preflight(sp_checked *c)
{
    sp_comm *comm = c->session.comm;
    sp_device *device = &c->device;
    sp_network *network = &c->network;
    sp_graph *graph = &network->graph;
    sp_flight mine = {.place = {.rank = comm->rank,
                                .node = comm->node,
                                .local_rank = comm->local_rank,
                                .device = -1}};
    void *all = NULL;

    snprintf(mine.place.host, sizeof mine.place.host, "%s", comm->host);
    SP_TRY(sp_session_open_device(&c->session, device));
    mine.cores = comm->cores;
    SP_TRY(sp_device_open_transport(device));
    if (!device->backend.ops->is_host)
        mine.place = device->placement.place[comm->rank];
    SP_TRY(sp_session_open_data(&c->session, &c->data, network, true, false));
    SP_TRY(sp_graph_build(graph, c->session.config, network->n_columns,
                          network->n_classes));
    sp_session_beat(&c->session, SP_PHASE_READ);
    SP_TRY(preflight_measure(c, &mine));
    SP_TRY(sp_comm_gather(comm, &mine, sizeof mine, &all, NULL));
    sp_log_info("%d rank%s on %d node%s; device %s; all-reduce by %s; gradient %.1f MB",
                comm->size, sp_plural(comm->size), comm->n_nodes,
                sp_plural(comm->n_nodes), device->text, device->transport.words,
                (double)graph->n_floats * 4e-6);
    if (comm->rank == 0)
        print_flights(device, all);
    free(all);
    return SP_OK;
}

sp_status sp_preflight(const sp_command *command)
{
    return sp_check_run(command, preflight);
}
