/* The device: the kind that all ranks use, and the one of each rank. */
#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "api/memory/sp_budget.h"
#include "api/sp_device.h"
#include "api/sp_selftest.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "base/sp_thread.h"
#include "comm/sp_affinity.h"
#include "cpu/cpu.h"

/* Maps every rank to a CUDA device; the status says why that is impossible. Collective,
 * agreed. */
static sp_status map_devices(sp_device *d)
{
    const sp_config *config = d->config;
    char idle[256];

    if (!sp_backend_find("cuda"))
        return SP_FAIL(SP_EDEVICE,
                       "run.device = \"cuda\": this program was built without CUDA; "
                       "set run.device = \"cpu\", or configure it where nvcc is");
    SP_TRY(sp_placement_make(&d->placement, d->comm, &config->run.devices,
                             config->run.oversubscribe));
    sp_placement_idle(d->placement.place, config->run.devices.n ? 0 : d->placement.n,
                      idle, sizeof idle);
    if (*idle)
        sp_log_info("%s", idle);
    if (*sp_placement_advice(d->placement.place, d->placement.n))
        sp_log_warn0("%s", sp_placement_advice(d->placement.place, d->placement.n));
    return SP_OK;
}

/* Chooses the kind of device. With "auto" a missing device means the CPU, but a wrong
 * deck is still an error. */
static sp_status choose_device(sp_device *d)
{
    const sp_device_kind want = d->config->run.device;
    sp_status rc = SP_EDEVICE;

    d->backend.ops = sp_backend_find("cpu");
    if (want != SP_DEVICE_CPU)
        rc = map_devices(d);
    if (rc != SP_OK && (rc != SP_EDEVICE || want == SP_DEVICE_CUDA))
        return rc;
    if (rc == SP_OK)
        d->backend.ops = sp_backend_find("cuda");
    else if (want == SP_DEVICE_AUTO && sp_backend_find("cuda"))
        sp_log_info("run.device = \"auto\" takes the CPU: %s",
                    sp_error_last()->message);
    if (d->backend.ops->is_host && d->config->run.devices.n > 0)
        sp_log_warn0("run.devices: no CUDA device is used, so they do not count");
    return SP_OK;
}

static sp_status device_choose_precision(sp_device *d)
{
    const sp_precision want = d->config->train.precision;
    const sp_wgmma_use wgmma = d->config->run.wgmma;

    d->backend.precision = want;
    if (want == SP_TF32 && d->backend.ops->is_host)
        return SP_FAIL(
            SP_EUSAGE,
            "%strain.precision = \"tf32\": the CPU computes in fp32 and bf16 "
            "only; take a CUDA device or another precision",
            sp_config_where(d->config, "train.precision"));
    d->backend.is_wgmma_optional =
        wgmma == SP_WGMMA_AUTO && want == SP_BF16 && !d->backend.ops->is_host;
    d->backend.is_wgmma = wgmma == SP_WGMMA_ON || d->backend.is_wgmma_optional;
    if (wgmma == SP_WGMMA_ON && want != SP_BF16)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.wgmma = true with train.precision = \"%s\": wgmma is for "
                       "bf16 only",
                       sp_config_where(d->config, "run.wgmma"),
                       sp_precision_word[want]);
    return SP_OK;
}

int sp_device_threads(const sp_config *config, const sp_comm *comm)
{
    int share = comm->node_cores / comm->local_size;

    if (config->run.threads > 0)
        return config->run.threads;
    if (share > comm->cores)
        share = comm->cores;
    return share > 1 ? share : 1;
}

/* Determines the order of sums in bf16 on CPUs: the deck's, or the tiles' order if the
 * processors of all ranks have tiles, since ranks sum one gradient. Collective. */
static sp_status choose_sums(sp_device *d)
{
    const bool has_orders = d->backend.ops->is_host && d->backend.precision == SP_BF16;
    const sp_bf16_sums want = d->config->train.bf16_sums;
    int64_t sums = want == SP_SUMS_AUTO ? sp_cpu_order() : want;

    d->backend.sums = d->sums = SP_SUMS_AUTO;
    if (!has_orders)
        return SP_OK;
    _Static_assert(SP_SUMS_PAIRS < SP_SUMS_TILES, "the least is what all ranks have");
    SP_TRY(sp_comm_allreduce(d->comm, SP_SCOPE_WORLD, &sums, 1, SP_I64, SP_MIN));
    d->backend.sums = d->sums = (sp_bf16_sums)sums;
    return SP_OK;
}

/* Has all ranks compute in the lowest instruction set that one of them has: another one
 * sums in another order, and the ranks' weights would drift apart. Collective. */
static sp_status agree_on_processors(sp_device *d)
{
    const sp_comm *comm = d->comm;
    const sp_cpu_level own = sp_cpu_level_of();
    /* The lowest level with the lowest rank that has it, and the highest. */
    int64_t ends[2] = {-((int64_t)own * comm->size + comm->rank), own};
    sp_cpu_level least;

    if (!d->backend.ops->is_host || comm->size == 1)
        return SP_OK;
    SP_TRY(sp_comm_allreduce(d->comm, SP_SCOPE_WORLD, ends, 2, SP_I64, SP_MAX));
    least = (sp_cpu_level)(-ends[0] / comm->size);
    if (least == (sp_cpu_level)ends[1])
        return SP_OK;
    if (comm->rank == (int)(-ends[0] % comm->size))
        sp_log_warn("the processor of rank %d on host %s computes with %s, others with "
                    "%s: all ranks compute with %s, so that they get the same bits; "
                    "leave such hosts out for full speed",
                    comm->rank, comm->host, sp_cpu_level_name(least),
                    sp_cpu_level_name((sp_cpu_level)ends[1]), sp_cpu_level_name(least));
    if (own != least)
        sp_cpu_lower(least);
    return SP_OK;
}

/* Tests wgmma if the device has it. With run.wgmma = "auto", a device that fails goes
 * on without wgmma. Local. */
static sp_status test_wgmma(sp_backend *backend)
{
    sp_status rc = SP_OK;

    if (backend->is_wgmma)
        rc = sp_selftest_wgmma(backend);
    if (rc != SP_EDEVICE || !backend->is_wgmma_optional)
        return rc;
    sp_log_warn("run.wgmma = \"auto\": convolutions do without wgmma: %s",
                sp_error_last()->message);
    backend->is_wgmma = false;
    return SP_OK;
}

/* True if this rank is the first of its node with a device of this model. */
static bool is_to_try(const sp_placement *placement, const sp_place *own)
{
    for (int i = 0; i < own->rank; i++)
        if (placement->place[i].node == own->node &&
            strcmp(placement->place[i].what.name, own->what.name) == 0)
            return false;
    return own->what.capability == 90;
}

/* With run.wgmma = "auto", wgmma is used if all ranks have it, so that all compute the
 * same bits. Collective. */
static sp_status choose_wgmma(sp_device *d)
{
    int64_t is_used = d->backend.is_wgmma;

    if (!d->backend.is_wgmma_optional)
        return SP_OK;
    SP_TRY(sp_comm_allreduce(d->comm, SP_SCOPE_WORLD, &is_used, 1, SP_I64, SP_MIN));
    d->backend.is_wgmma = is_used;
    return SP_OK;
}

/* With run.wgmma = "auto", a child process tries wgmma once for each node and model of
 * device, before any rank opens its own device. If one trial fails, all ranks do
 * without wgmma. Collective. */
static sp_status device_try_wgmma(sp_device *d, const sp_liberties *may,
                                  const sp_place *place)
{
    sp_backend *backend = &d->backend;

    if (!backend->is_wgmma_optional || !may->try_wgmma)
        return SP_OK;
    if (is_to_try(&d->placement, place) && may->try_wgmma(place->device) != SP_OK) {
        backend->is_wgmma = false;
        sp_log_warn(
            "run.wgmma = \"auto\": convolutions do without wgmma: rank %d on %s "
            "had a child process try it: %s; run.wgmma=false leaves the trial "
            "out",
            place->rank, place->host, sp_error_last()->message);
    }
    SP_TRY(choose_wgmma(d));
    backend->is_wgmma_optional = backend->is_wgmma;
    return SP_OK;
}

/* OpenMP ends the process if it cannot start a thread, and does not name the key of the
 * deck that asked for it. So a number of threads above the number of cores is tried
 * first. Far above it, threads wait for each other all the time: a step of 4096 threads
 * on two cores takes seconds instead of milliseconds. */
static sp_status check_threads(const sp_device *d, int threads)
{
    enum { MOST_PER_CORE = 64 };
    const int cores = d->comm->node_cores;
    int started;

    if (threads <= cores)
        return SP_OK;
    if (threads > MOST_PER_CORE * cores)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.threads = %d: the ranks of this node may use %d core%s, "
                       "expected at most %d threads a rank",
                       sp_config_where(d->config, "run.threads"), threads, cores,
                       sp_plural(cores), MOST_PER_CORE * cores);
    started = sp_thread_try(threads);
    if (started < threads)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.threads = %d: the system starts %d for this rank, which "
                       "has %d cores",
                       sp_config_where(d->config, "run.threads"), threads, started,
                       d->comm->cores);
    return SP_OK;
}

/* Opens the device and has it compute a small problem with a known answer. Agreed. */
static sp_status device_open_backend(sp_device *d, int device, int threads)
{
    sp_backend *backend = &d->backend;
    sp_status rc;

    SP_TRY(agree_on_processors(d));
    SP_TRY(choose_sums(d));
    /* Loops outside the backend, such as in exact sums and merged predictions, use as
     * many threads as the backend. OpenMP's default is the number of cores that the
     * process had when it started, before it was bound to its share of them. So each
     * rank would start a thread for every core of the node. */
    omp_set_num_threads(threads);
    rc = check_threads(d, threads);
    if (rc == SP_OK)
        rc = backend->ops->open(backend, device, threads);
    if (rc == SP_OK && !backend->ops->is_host)
        rc = sp_selftest_device(backend);
    if (rc == SP_OK && !backend->ops->is_host)
        rc = test_wgmma(backend);
    SP_TRY(choose_wgmma(d));
    return sp_comm_agree(d->comm, rc);
}

/* With "auto" all ranks change to the CPU if the device of one rank fails. */
static sp_status fall_back(sp_device *d, int threads)
{
    sp_backend *backend = &d->backend;

    sp_log_warn0(
        "run.device = \"auto\": ALL RANKS COMPUTE ON THE CPU, since rank %d: %s",
        d->comm->failed_rank, sp_error_last()->message);
    backend->ops->close(backend);
    backend->ops = sp_backend_find("cpu");
    SP_TRY(device_choose_precision(d));
    return device_open_backend(d, 0, threads);
}

/* Number of ranks that share the memory of a device. */
static int count_sharers(const sp_placement *placement, const sp_place *place)
{
    int n = 0;

    for (int i = 0; i < placement->n; i++)
        n += strcmp(placement->place[i].what.uuid, place->what.uuid) == 0;
    return n > 0 ? n : 1;
}

/* Measures the device's memory before any rank allocates. Collective. */
static sp_status device_measure_memory(sp_device *d, const sp_place *place)
{
    const int64_t total = place->what.memory_bytes;
    const int n = count_sharers(&d->placement, place);
    sp_backend *backend = &d->backend;
    int64_t used = 0, memory[3];
    sp_status rc = backend->ops->memory_used(backend, &used);

    SP_TRY(sp_comm_agree(d->comm, rc));
    memory[0] = sp_budgets_memory_of(total) / n;
    memory[1] = (total - used) / n;
    memory[2] = total / n;
    SP_TRY(sp_comm_allreduce(d->comm, SP_SCOPE_WORLD, memory, 3, SP_I64, SP_MIN));
    d->memory.own = memory[0];
    d->memory.free = memory[1];
    d->memory.total = memory[2];
    return SP_OK;
}

void sp_device_begin(sp_device *d, const sp_config *config, sp_comm *comm)
{
    assert(config && comm);
    *d = (sp_device){.config = config,
                     .comm = comm,
                     .memory_mb = config->run.memory_mb,
                     .sums = SP_SUMS_AUTO};
}

sp_status sp_device_open(sp_device *d, const sp_liberties *may)
{
    const bool is_auto = d->config->run.device == SP_DEVICE_AUTO;
    const sp_place *place;
    const int threads = sp_device_threads(d->config, d->comm);
    sp_status rc;

    assert(!d->backend.ops && "the device is opened once");
    SP_TRY(choose_device(d));
    SP_TRY(device_choose_precision(d));
    place = d->backend.ops->is_host ? NULL : &d->placement.place[d->comm->rank];
    /* Threads that start from here on inherit the binding of this rank to its share of
     * the node's cores. */
    if (may->binds)
        SP_TRY(sp_comm_agree(d->comm,
                             sp_affinity_bind(d->comm, place ? place->what.pci : NULL,
                                              d->cores, sizeof d->cores)));
    if (place)
        SP_TRY(device_try_wgmma(d, may, place));
    rc = device_open_backend(d, place ? place->device : 0, threads);
    if (rc == SP_EDEVICE && is_auto && place) {
        rc = fall_back(d, threads);
        place = NULL;
    }
    snprintf(d->text, sizeof d->text, "%s%s%s, %d thread%s a rank",
             d->backend.ops->name, place ? " " : "", place ? place->what.name : "",
             d->backend.threads, sp_plural(d->backend.threads));
    if (rc == SP_OK && place)
        rc = device_measure_memory(d, place);
    return rc;
}

sp_status sp_device_open_transport(sp_device *d)
{
    const sp_config *config = d->config;
    const sp_transport_options options = {
        .want = config->run.transport,
        .objection = d->placement.is_shared ? "ranks share a GPU" : NULL,
        .scope = config->train.bn_scope,
        .is_bf16 = config->run.reduce_wire == SP_REDUCE_BF16,
        .is_repeatable = config->train.deterministic != SP_DET_OFF,
        .limit_s = config->run.watchdog_s,
        /* The watchdog finds a hanging rank before this limit. */
        .peer_limit_s = 10 * config->run.watchdog_s,
    };

    assert(d->backend.ops && !d->transport.ops);
    return sp_transport_choose(&d->transport, d->comm, &d->backend, &options);
}

sp_config sp_device_resolved(const sp_device *d)
{
    sp_config resolved = *d->config;

    resolved.run.memory_mb = d->memory_mb;
    resolved.train.bf16_sums = d->sums;
    return resolved;
}

void sp_device_close(sp_device *d)
{
    sp_transport_close(&d->transport);
    if (d->backend.ops)
        d->backend.ops->close(&d->backend);
    sp_placement_destroy(&d->placement);
}
