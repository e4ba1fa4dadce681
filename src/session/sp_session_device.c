/* The device of a session: the kind that all ranks use, and the one of each rank. */
#include <math.h>
#include <string.h>

#include "base/sp_log.h"
#include "comm/sp_affinity.h"
#include "session/sp_selftest.h"
#include "session/sp_session.h"

/* Maps every rank to a CUDA device; the status says why that is impossible. Collective,
 * agreed. */
static sp_status map_devices(sp_session *session)
{
    const sp_config *config = session->config;
    int who = 0;
    sp_status rc;

    if (!sp_backend_find("cuda"))
        return SP_FAIL(SP_EDEVICE,
                       "run.device = \"cuda\": this program was built without CUDA; "
                       "set run.device = \"cpu\", or configure it where nvcc is");
    rc = sp_mapping_make(&session->mapping, session->comm, &config->run.devices,
                         config->run.oversubscribe, &who);
    if (rc != SP_OK) {
        session->failed_rank = who;
        return rc;
    }
    if (*sp_mapping_advice(session->mapping.place, session->mapping.n))
        sp_log_warn0("%s",
                     sp_mapping_advice(session->mapping.place, session->mapping.n));
    return SP_OK;
}

/* Chooses the kind of device. With "auto" a missing device means the CPU, but a wrong
 * deck is still an error. */
static sp_status choose_device(sp_session *session, const sp_backend_ops **ops)
{
    const sp_device_kind want = session->config->run.device;
    sp_status rc = SP_EDEVICE;

    *ops = sp_backend_find("cpu");
    if (want != SP_DEVICE_CPU)
        rc = map_devices(session);
    if (rc != SP_OK && (rc != SP_EDEVICE || want == SP_DEVICE_CUDA))
        return rc;
    if (rc == SP_OK)
        *ops = sp_backend_find("cuda");
    else if (want == SP_DEVICE_AUTO && sp_backend_find("cuda"))
        sp_log_info("run.device = \"auto\" takes the CPU: %s",
                    sp_error_last()->message);
    if (*ops == sp_backend_find("cpu") && session->config->run.devices.n > 0)
        sp_log_warn0("run.devices: no CUDA device is used, so they do not count");
    return SP_OK;
}

static sp_status choose_precision(sp_session *session)
{
    const sp_precision want = session->config->train.precision;

    session->backend.precision = want;
    if (want != SP_FP32 && session->backend.ops->is_host)
        return SP_FAIL(
            SP_EUSAGE,
            "train.precision = \"%s\": the CPU computes in fp32 only; take a "
            "CUDA device or set train.precision = \"fp32\"",
            sp_precision_word[want]);
    session->backend.is_wgmma = session->config->run.wgmma;
    if (session->config->run.wgmma && want != SP_BF16)
        return SP_FAIL(SP_EUSAGE,
                       "%srun.wgmma = true with train.precision = \"%s\": wgmma is for "
                       "bf16 only",
                       sp_config_where(session->config, "run.wgmma"),
                       sp_precision_word[want]);
    return SP_OK;
}

/* The node's cores divided by its ranks, or fewer where the launcher bound this rank to
 * fewer. */
static int default_threads(const sp_comm *comm)
{
    int share = comm->node_cores / comm->local_size;

    if (share > comm->cores)
        share = comm->cores;
    return share > 1 ? share : 1;
}

/* Binds this rank to its share of the node's cores, before threads start that inherit
 * the binding. place: that of its device, or NULL. */
static sp_status bind_cores(sp_session *session, const sp_place *place)
{
    return sp_session_agree(
        session, sp_affinity_bind(session->comm, place ? place->what.pci : NULL,
                                  session->cores, sizeof session->cores));
}

/* Opens the device and has it compute a small problem with a known answer. Agreed. */
static sp_status open_backend(sp_session *session, int device, int threads)
{
    sp_backend *backend = &session->backend;
    sp_status rc = backend->ops->open(backend, device, threads);

    if (rc == SP_OK && !backend->ops->is_host)
        rc = sp_selftest_device(backend);
    if (rc == SP_OK && backend->is_wgmma)
        rc = sp_selftest_wgmma(backend);
    return sp_session_agree(session, rc);
}

/* With "auto" all ranks change to the CPU if the device of one rank fails. */
static sp_status fall_back(sp_session *session, int threads)
{
    sp_backend *backend = &session->backend;

    sp_log_warn0(
        "run.device = \"auto\": ALL RANKS COMPUTE ON THE CPU, since rank %d: %s",
        session->failed_rank, sp_error_last()->message);
    backend->ops->close(backend);
    backend->ops = sp_backend_find("cpu");
    SP_TRY(choose_precision(session));
    return open_backend(session, 0, threads);
}

/* Number of ranks that share the memory of a device. */
static int count_sharers(const sp_mapping *mapping, const sp_place *place)
{
    int n = 0;

    for (int i = 0; i < mapping->n; i++)
        n += strcmp(mapping->place[i].what.uuid, place->what.uuid) == 0;
    return n > 0 ? n : 1;
}

/* Measures the device's memory before any rank allocates. Collective. */
static sp_status measure_memory(sp_session *session, const sp_place *place)
{
    const int64_t total = place->what.memory_bytes;
    const int n = count_sharers(&session->mapping, place);
    sp_backend *backend = &session->backend;
    int64_t used = 0, memory[3];
    sp_status rc = backend->ops->memory_used(backend, &used);

    SP_TRY(sp_session_agree(session, rc));
    memory[0] = sp_cut_memory_of(total) / n;
    memory[1] = (total - used) / n;
    memory[2] = total / n;
    SP_TRY(sp_comm_allreduce(session->comm, SP_SCOPE_WORLD, memory, 3, SP_I64, SP_MIN));
    session->memory_own = memory[0];
    session->memory_free = memory[1];
    session->memory_total = memory[2];
    return SP_OK;
}

/* Settles the bytes that a rank may use; 0: no bound. */
static int64_t settle_memory(sp_session *session)
{
    const double mib = 1 << 20;
    const int64_t own = session->memory_own, free = session->memory_free;
    double *settled = &session->settled.memory_mb;
    int64_t bytes = (int64_t)(*settled * mib);

    if (session->backend.ops->is_host)
        return bytes;
    if (bytes > free) {
        sp_log_warn0("run.memory_mb = %.10g, of the deck or the checkpoint: a device "
                     "has %.1f MiB free for a rank: steps are cut for that, and sums "
                     "are not the bits of a run that had more",
                     *settled, (double)free / mib);
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
    if (*settled == 0)
        bytes = (int64_t)(floor((double)bytes / mib) * mib);
    *settled = (double)bytes / mib;
    return bytes;
}

sp_foresight sp_session_foresight(const sp_session *session, const sp_backend *backend)
{
    return (sp_foresight){
        .config = session->config,
        .graph = &session->graph,
        .backend = backend,
        .columns = session->columns,
        .n_columns = session->n_columns,
        .n_samples = session->train.n_samples + session->val.n_samples,
        .n_ranks = session->comm->size,
        .n_local = session->comm->local_size,
        .is_predicting = strcmp(session->command->name, "predict") == 0,
    };
}

sp_status sp_session_cut(sp_session *session, sp_sampler *train, sp_sampler *eval)
{
    const sp_foresight what = sp_session_foresight(session, &session->backend);

    return sp_cut_open(&session->cut, &what, train, eval, session->comm,
                       settle_memory(session), &session->failed_rank);
}

sp_status sp_session_open_device(sp_session *session)
{
    const bool is_auto = session->config->run.device == SP_DEVICE_AUTO;
    const sp_backend_ops *ops = NULL;
    const sp_place *place;
    int threads = session->config->run.threads;
    sp_status rc;

    SP_TRY(choose_device(session, &ops));
    if (threads == 0)
        threads = default_threads(session->comm);
    session->backend.ops = ops;
    SP_TRY(choose_precision(session));
    place = ops->is_host ? NULL : &session->mapping.place[session->comm->rank];
    SP_TRY(bind_cores(session, place));
    rc = open_backend(session, place ? place->device : 0, threads);
    if (rc == SP_EDEVICE && is_auto && place) {
        rc = fall_back(session, threads);
        place = NULL;
    }
    snprintf(session->device, sizeof session->device, "%s%s%s, %d thread%s a rank",
             session->backend.ops->name, place ? " " : "",
             place ? place->what.name : "", threads, threads == 1 ? "" : "s");
    if (rc == SP_OK && place)
        rc = measure_memory(session, place);
    return rc;
}

sp_status sp_session_open_transport(sp_session *session)
{
    const sp_config *config = session->config;
    const sp_transport_options options = {
        .want = config->run.transport,
        .objection = session->mapping.is_shared ? "ranks share a device" : NULL,
        .scope = config->train.bn_scope,
        .is_bf16 = config->run.reduce_wire == SP_REDUCE_BF16,
        .is_repeatable = config->train.deterministic != SP_DET_OFF,
        .limit_s = config->run.watchdog_s,
        /* The watchdog finds a hanging rank before this limit. */
        .peer_limit_s = 10 * config->run.watchdog_s,
    };

    sp_status rc = sp_transport_choose(&session->transport, session->comm,
                                       &session->backend, &options);

    if (rc != SP_OK)
        session->failed_rank = session->transport.failed_rank;
    return rc;
}
