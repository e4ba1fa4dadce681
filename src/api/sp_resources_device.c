/* The device: the kind that all ranks use, and the one of each rank. */
#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "api/sp_resources.h"
#include "api/sp_selftest.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "base/sp_thread.h"
#include "comm/sp_affinity.h"
#include "cpu/cpu.h"

/* Maps every rank to a CUDA device; the status says why that is impossible. Collective,
 * agreed. */
static sp_status map_devices(sp_resources *r)
{
    const sp_config *config = r->config;
    char idle[256];

    if (!sp_backend_find("cuda"))
        return SP_FAIL(SP_EDEVICE,
                       "run.device = \"cuda\": this program was built without CUDA; "
                       "set run.device = \"cpu\", or configure it where nvcc is");
    SP_TRY(sp_placement_make(&r->placement, r->comm, &config->run.devices,
                             config->run.oversubscribe));
    sp_placement_idle(r->placement.place, config->run.devices.n ? 0 : r->placement.n,
                      idle, sizeof idle);
    if (*idle)
        sp_log_info("%s", idle);
    if (*sp_placement_advice(r->placement.place, r->placement.n))
        sp_log_warn0("%s", sp_placement_advice(r->placement.place, r->placement.n));
    return SP_OK;
}

/* Chooses the kind of device. With "auto" a missing device means the CPU, but a wrong
 * deck is still an error. */
static sp_status choose_device(sp_resources *r)
{
    const sp_device_kind want = r->config->run.device;
    sp_status rc = SP_EDEVICE;

    r->backend.ops = sp_backend_find("cpu");
    if (want != SP_DEVICE_CPU)
        rc = map_devices(r);
    if (rc != SP_OK && (rc != SP_EDEVICE || want == SP_DEVICE_CUDA))
        return rc;
    if (rc == SP_OK)
        r->backend.ops = sp_backend_find("cuda");
    else if (want == SP_DEVICE_AUTO && sp_backend_find("cuda"))
        sp_log_info("run.device = \"auto\" takes the CPU: %s",
                    sp_error_last()->message);
    if (r->backend.ops->is_host && r->config->run.devices.n > 0)
        sp_log_warn0("run.devices: no CUDA device is used, so they do not count");
    return SP_OK;
}

static sp_status resources_choose_precision(sp_resources *r)
{
    const sp_precision want = r->config->train.precision;
    const sp_wgmma_use wgmma = r->config->run.wgmma;

    r->backend.precision = want;
    if (want == SP_TF32 && r->backend.ops->is_host)
        return SP_FAIL(
            SP_EUSAGE,
            "%strain.precision = \"tf32\": the CPU computes in fp32 and bf16 "
            "only; take a CUDA device or another precision",
            sp_config_where(r->config, "train.precision"));
    r->backend.is_wgmma_optional =
        wgmma == SP_WGMMA_AUTO && want == SP_BF16 && !r->backend.ops->is_host;
    r->backend.is_wgmma = wgmma == SP_WGMMA_ON || r->backend.is_wgmma_optional;
    if (wgmma == SP_WGMMA_ON && want != SP_BF16)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.wgmma = true with train.precision = \"%s\": wgmma is for "
                       "bf16 only",
                       sp_config_where(r->config, "run.wgmma"),
                       sp_precision_word[want]);
    return SP_OK;
}

int sp_resources_threads(const sp_resources *r)
{
    const sp_comm *comm = r->comm;
    int share = comm->node_cores / comm->local_size;

    if (r->config->run.threads > 0)
        return r->config->run.threads;
    if (share > comm->cores)
        share = comm->cores;
    return share > 1 ? share : 1;
}

/* Determines the order of sums in bf16 on CPUs: the deck's, or the tiles' order if the
 * processors of all ranks have tiles, since ranks sum one gradient. Collective. */
static sp_status choose_sums(sp_resources *r)
{
    const bool has_orders = r->backend.ops->is_host && r->backend.precision == SP_BF16;
    const sp_bf16_sums want = r->config->train.bf16_sums;
    int64_t sums = want == SP_SUMS_AUTO ? sp_cpu_order() : want;

    r->backend.sums = r->resolved.bf16_sums = SP_SUMS_AUTO;
    if (!has_orders)
        return SP_OK;
    _Static_assert(SP_SUMS_PAIRS < SP_SUMS_TILES, "the least is what all ranks have");
    SP_TRY(sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, &sums, 1, SP_I64, SP_MIN));
    r->backend.sums = r->resolved.bf16_sums = (sp_bf16_sums)sums;
    return SP_OK;
}

/* Has all ranks compute in the lowest instruction set that one of them has: another one
 * sums in another order, and the ranks' weights would drift apart. Collective. */
static sp_status agree_on_processors(sp_resources *r)
{
    const sp_comm *comm = r->comm;
    const sp_cpu_level own = sp_cpu_level_of();
    /* The lowest level with the lowest rank that has it, and the highest. */
    int64_t ends[2] = {-((int64_t)own * comm->size + comm->rank), own};
    sp_cpu_level least;

    if (!r->backend.ops->is_host || comm->size == 1)
        return SP_OK;
    SP_TRY(sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, ends, 2, SP_I64, SP_MAX));
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

/* With run.wgmma = "auto", a child process tries wgmma once for each node and model of
 * device, before any rank opens its own device. If one trial fails, all ranks do
 * without wgmma. Collective. */
static sp_status resources_try_wgmma(sp_resources *r, const sp_place *place)
{
    sp_backend *backend = &r->backend;
    int64_t is_used = 1;

    if (!backend->is_wgmma_optional || !r->may.try_wgmma)
        return SP_OK;
    if (is_to_try(&r->placement, place) && r->may.try_wgmma(place->device) != SP_OK) {
        is_used = 0;
        sp_log_warn(
            "run.wgmma = \"auto\": convolutions do without wgmma: rank %d on %s "
            "had a child process try it: %s; run.wgmma=false leaves the trial "
            "out",
            place->rank, place->host, sp_error_last()->message);
    }
    SP_TRY(sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, &is_used, 1, SP_I64, SP_MIN));
    if (!is_used)
        backend->is_wgmma = backend->is_wgmma_optional = false;
    return SP_OK;
}

/* With run.wgmma = "auto", wgmma is used if all ranks have it, so that all compute the
 * same bits. Collective. */
static sp_status choose_wgmma(sp_resources *r)
{
    int64_t is_used = r->backend.is_wgmma;

    if (!r->backend.is_wgmma_optional)
        return SP_OK;
    SP_TRY(sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, &is_used, 1, SP_I64, SP_MIN));
    r->backend.is_wgmma = is_used;
    return SP_OK;
}

/* OpenMP ends the process if it cannot start a thread, and does not name the key of the
 * deck that asked for it. So a number of threads above the number of cores is tried
 * first. Far above it, threads wait for each other all the time: a step of 4096 threads
 * on two cores takes seconds instead of milliseconds. */
static sp_status check_threads(const sp_resources *r, int threads)
{
    enum { MOST_PER_CORE = 64 };
    const int cores = r->comm->node_cores;
    int started;

    if (threads <= cores)
        return SP_OK;
    if (threads > MOST_PER_CORE * cores)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.threads = %d: the ranks of this node may use %d core%s, "
                       "expected at most %d threads a rank",
                       sp_config_where(r->config, "run.threads"), threads, cores,
                       sp_plural(cores), MOST_PER_CORE * cores);
    started = sp_thread_try(threads);
    if (started < threads)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.threads = %d: the system starts %d for this rank, which "
                       "has %d cores",
                       sp_config_where(r->config, "run.threads"), threads, started,
                       r->comm->cores);
    return SP_OK;
}

/* Opens the device and has it compute a small problem with a known answer. Agreed. */
static sp_status resources_open_backend(sp_resources *r, int device, int threads)
{
    sp_backend *backend = &r->backend;
    sp_status rc;

    SP_TRY(agree_on_processors(r));
    SP_TRY(choose_sums(r));
    /* Loops outside the backend, such as in exact sums and merged predictions, use as
     * many threads as the backend. OpenMP's default is the number of cores that the
     * process had when it started, before it was bound to its share of them. So each
     * rank would start a thread for every core of the node. */
    omp_set_num_threads(threads);
    rc = check_threads(r, threads);
    if (rc == SP_OK)
        rc = backend->ops->open(backend, device, threads);
    if (rc == SP_OK && !backend->ops->is_host)
        rc = sp_selftest_device(backend);
    if (rc == SP_OK && !backend->ops->is_host)
        rc = test_wgmma(backend);
    SP_TRY(choose_wgmma(r));
    return sp_comm_agree(r->comm, rc);
}

/* With "auto" all ranks change to the CPU if the device of one rank fails. */
static sp_status fall_back(sp_resources *r, int threads)
{
    sp_backend *backend = &r->backend;

    sp_log_warn0(
        "run.device = \"auto\": ALL RANKS COMPUTE ON THE CPU, since rank %d: %s",
        r->comm->failed_rank, sp_error_last()->message);
    backend->ops->close(backend);
    backend->ops = sp_backend_find("cpu");
    SP_TRY(resources_choose_precision(r));
    return resources_open_backend(r, 0, threads);
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
static sp_status resources_measure_memory(sp_resources *r, const sp_place *place)
{
    const int64_t total = place->what.memory_bytes;
    const int n = count_sharers(&r->placement, place);
    sp_backend *backend = &r->backend;
    int64_t used = 0, memory[3];
    sp_status rc = backend->ops->memory_used(backend, &used);

    SP_TRY(sp_comm_agree(r->comm, rc));
    memory[0] = sp_budgets_memory_of(total) / n;
    memory[1] = (total - used) / n;
    memory[2] = total / n;
    SP_TRY(sp_comm_allreduce(r->comm, SP_SCOPE_WORLD, memory, 3, SP_I64, SP_MIN));
    r->memory.own = memory[0];
    r->memory.free = memory[1];
    r->memory.total = memory[2];
    return SP_OK;
}

/* Determines the bytes that a rank may use; 0: no bound. */
static int64_t choose_memory(sp_resources *r)
{
    const double mib = 1 << 20;
    const int64_t own = r->memory.own, free = r->memory.free;
    double *resolved = &r->resolved.memory_mb;
    int64_t bytes = (int64_t)(*resolved * mib);

    if (r->backend.ops->is_host)
        return bytes;
    if (bytes > free) {
        sp_log_warn0("run.memory_mb = %.10g, of the deck or the checkpoint: a device "
                     "has %.1f MiB free for a rank: steps are cut for that, and sums "
                     "are not the bits of a run that had more",
                     *resolved, (double)free / mib);
        bytes = free;
    } else if (bytes == 0 && free < own) {
        bytes = free - free / 32;
        sp_log_warn0("a device has %.1f MiB free for a rank, of %.1f: others use it. "
                     "Steps are cut for what is free; a run that is to repeat this "
                     "one's bits needs run.memory_mb=%.0f",
                     (double)free / mib, (double)own / mib, floor((double)bytes / mib));
    } else if (bytes == 0) {
        bytes = own;
    }
    if (*resolved == 0)
        bytes = (int64_t)(floor((double)bytes / mib) * mib);
    *resolved = (double)bytes / mib;
    return bytes;
}

sp_estimated_run sp_resources_estimated_run(const sp_resources *r,
                                            const sp_backend *backend)
{
    bool has_subvoxel = r->val.has_subvoxel;
    int64_t index_bytes =
        sp_dataset_index_bytes(&r->train) + sp_dataset_index_bytes(&r->val);
    int64_t unpacked_bytes = r->train.cache_bytes + r->val.cache_bytes;
    int64_t merging_bytes = r->evaluation.merging_bytes;
    sp_views views;

    for (int i = 0; i < r->n_val_sets; i++) {
        const sp_val_set *set = &r->val_set[i];

        has_subvoxel = has_subvoxel || set->data.has_subvoxel;
        index_bytes += sp_dataset_index_bytes(&set->data);
        unpacked_bytes += set->data.cache_bytes;
        merging_bytes = sp_most(merging_bytes, set->evaluation.merging_bytes);
    }
    /* `check` opens no evaluation, so the views are made anew. */
    views = sp_views_make(r->config, has_subvoxel, r->config->eval.views);
    return (sp_estimated_run){
        .config = r->config,
        .graph = &r->graph,
        .backend = backend,
        .columns = r->columns,
        .n_columns = r->n_columns,
        .index_bytes = index_bytes,
        .unpacked_bytes = unpacked_bytes,
        .n_ranks = r->comm->size,
        .n_local = r->comm->local_size,
        .is_predicting = r->is_predicting,
        .n_views = views.n,
        .has_scaled_views = sp_views_are_scaled(&views),
        .merging_bytes = merging_bytes,
        .beside_bytes = r->beside_bytes,
    };
}

/* ---- the memory of a host ---- */

/* The most bytes that the samples of a step of one sampler can take on a node: as if
 * all their voxels were on the finest level, for every node of the network the output
 * and its gradient, and a kernel map's neighbours. Augmentation adds no voxels; mixing
 * adds a partner's. */
static double most_of_step(const sp_estimated_run *what, const sp_sampler *sampler)
{
    enum { MAP_BYTES = 27 * 3 * 4 };
    double each = 0, most = 0, all, voxels;

    if (!sampler)
        return 0;
    for (int i = 0; i < what->graph->n_nodes; i++)
        each += 2 * 4.0 * what->graph->node[i].c_out + MAP_BYTES;
    for (int64_t i = 0; i < sampler->set->n_samples; i++)
        most = fmax(most, (double)sp_dataset_voxels(sampler->set, i));
    all = (double)sampler->set->n_voxels;
    voxels = fmin(all, most * sampler->effective) * (sampler->mixing ? 2 : 1);
    return 2 * voxels * each;
}

/* True if the node's ranks need so little, or the memory is so large, that it suffices
 * for certain, without planning a sample. */
static bool is_surely_enough(const sp_estimated_run *what, const sp_sampler *train,
                             const sp_sampler *eval, double there)
{
    const double weights = 2e1 * (double)what->graph->n_floats;
    const double fixed = what->n_local * (weights + (256 << 20));

    double most = 0;

    for (; eval; eval = eval->next)
        most = fmax(most, most_of_step(what, eval));
    return fixed + most_of_step(what, train) + most < there;
}

/* If the ranks of a node may need more than the node has, the kernel would end one of
 * them: each gets a part of the memory as its bound, as on a device. */
sp_status sp_resources_bound_host(sp_resources *r, const sp_estimated_run *what,
                                  sp_sampler *train, sp_sampler *eval, int64_t *bytes)
{
    const double mib = 1 << 20;
    const int64_t there = (int64_t)sp_machine_memory();
    sp_comm *comm = r->comm;
    int64_t share = there / comm->local_size, need;
    int64_t is_enough = is_surely_enough(what, train, eval, (double)there);
    sp_status rc;

    *bytes = 0;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &is_enough, 1, SP_I64, SP_MIN));
    if (is_enough)
        return SP_OK;
    rc = sp_budgets_estimate(&r->budgets, what, train, eval, comm);
    need = rc == SP_OK ? sp_budgets_need(&r->budgets) : 0;
    sp_budgets_close(&r->budgets);
    if (rc == SP_EMPI)
        return rc;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &share, 1, SP_I64, SP_MIN));
    if (rc != SP_OK || need <= share) /* the loader reports a damaged sample */
        return SP_OK;
    share = (int64_t)(floor((double)(share - share / 16) / mib) * mib);
    sp_log_warn0(
        "memory: the largest step needs about %.1f MiB of each rank, %d ranks "
        "of a node have %.1f MiB (of the machine, or its cgroup's limit): each "
        "is bounded by %.0f MiB. run.memory_mb=%.0f repeats this elsewhere",
        (double)need / mib, comm->local_size, (double)there / mib, (double)share / mib,
        (double)share / mib);
    *bytes = share;
    r->resolved.memory_mb = (double)share / mib;
    return SP_OK;
}

sp_status sp_resources_bound_memory(sp_resources *r)
{
    const sp_estimated_run what = sp_resources_estimated_run(r, &r->backend);
    sp_sampler *train = r->loader ? &r->sampler : NULL;
    sp_sampler *eval = r->evaluation.loader ? &r->evaluation.sampler : NULL;
    int64_t bytes;

    assert((train || eval) && !r->budgets.memory);
    bytes = choose_memory(r);
    if (bytes == 0 && r->backend.ops->is_host)
        SP_TRY(sp_resources_bound_host(r, &what, train, eval, &bytes));
    return sp_budgets_open(&r->budgets, &what, train, eval, r->comm, bytes);
}

sp_status sp_resources_open_device(sp_resources *r)
{
    const bool is_auto = r->config->run.device == SP_DEVICE_AUTO;
    const sp_place *place;
    const int threads = sp_resources_threads(r);
    sp_status rc;

    assert(!r->backend.ops && "the device is opened once");
    SP_TRY(choose_device(r));
    SP_TRY(resources_choose_precision(r));
    place = r->backend.ops->is_host ? NULL : &r->placement.place[r->comm->rank];
    /* Threads that start from here on inherit the binding of this rank to its share of
     * the node's cores. */
    if (r->may.binds)
        SP_TRY(sp_comm_agree(r->comm,
                             sp_affinity_bind(r->comm, place ? place->what.pci : NULL,
                                              r->cores, sizeof r->cores)));
    if (place)
        SP_TRY(resources_try_wgmma(r, place));
    rc = resources_open_backend(r, place ? place->device : 0, threads);
    if (rc == SP_EDEVICE && is_auto && place) {
        rc = fall_back(r, threads);
        place = NULL;
    }
    snprintf(r->device, sizeof r->device, "%s%s%s, %d thread%s a rank",
             r->backend.ops->name, place ? " " : "", place ? place->what.name : "",
             r->backend.threads, sp_plural(r->backend.threads));
    if (rc == SP_OK && place)
        rc = resources_measure_memory(r, place);
    return rc;
}

sp_status sp_resources_open_transport(sp_resources *r)
{
    const sp_config *config = r->config;
    const sp_transport_options options = {
        .want = config->run.transport,
        .objection = r->placement.is_shared ? "ranks share a GPU" : NULL,
        .scope = config->train.bn_scope,
        .is_bf16 = config->run.reduce_wire == SP_REDUCE_BF16,
        .is_repeatable = config->train.deterministic != SP_DET_OFF,
        .limit_s = config->run.watchdog_s,
        /* The watchdog finds a hanging rank before this limit. */
        .peer_limit_s = 10 * config->run.watchdog_s,
    };

    assert(r->backend.ops && !r->transport.ops);
    SP_TRY(sp_transport_choose(&r->transport, r->comm, &r->backend, &options));
    return SP_OK;
}
