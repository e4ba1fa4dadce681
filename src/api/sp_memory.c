/* The memory of a run, and its bound. */
#include "api/sp_memory.h"

#include <assert.h>
#include <math.h>

#include "api/sp_evaluator.h"
#include "api/sp_learner.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "base/sp_number.h"

sp_estimated_run sp_memory_run(const sp_config *config, const sp_comm *comm,
                               const sp_backend *backend, const sp_network *network,
                               const sp_data_sets *data)
{
    bool has_subvoxel = data->val.has_subvoxel;
    int64_t index_bytes =
        sp_dataset_index_bytes(&data->train) + sp_dataset_index_bytes(&data->val);
    int64_t unpacked_bytes = data->train.cache_bytes + data->val.cache_bytes;
    sp_views views;

    for (int i = 0; i < data->n_val_sets; i++) {
        const sp_dataset *set = &data->val_set[i].data;

        has_subvoxel = has_subvoxel || set->has_subvoxel;
        index_bytes += sp_dataset_index_bytes(set);
        unpacked_bytes += set->cache_bytes;
    }
    views = sp_views_make(config, has_subvoxel, config->eval.views);
    return (sp_estimated_run){
        .config = config,
        .graph = &network->graph,
        .backend = backend,
        .columns = network->columns,
        .n_columns = network->n_columns,
        .index_bytes = index_bytes,
        .unpacked_bytes = unpacked_bytes,
        .n_ranks = comm->size,
        .n_local = comm->local_size,
        .n_views = views.n,
        .has_scaled_views = sp_views_are_scaled(&views),
        .beside_bytes = network->beside_bytes,
    };
}

/* Determines the bytes that a rank may use; 0: no bound. */
static int64_t memory_choose(sp_device *d)
{
    const double mib = 1 << 20;
    const int64_t own = d->memory.own, free = d->memory.free;
    double *resolved = &d->memory_mb;
    int64_t bytes = (int64_t)(*resolved * mib);

    if (d->backend.ops->is_host)
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
sp_status sp_memory_bound_host(sp_device *device, const sp_estimated_run *what,
                               sp_sampler *train, sp_sampler *eval, int64_t *bytes)
{
    const double mib = 1 << 20;
    const int64_t there = (int64_t)sp_machine_memory();
    sp_comm *comm = device->comm;
    int64_t share = there / comm->local_size, need;
    int64_t is_enough = is_surely_enough(what, train, eval, (double)there);
    sp_budgets budgets = {0};
    sp_status rc;

    *bytes = 0;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &is_enough, 1, SP_I64, SP_MIN));
    if (is_enough)
        return SP_OK;
    rc = sp_budgets_estimate(&budgets, what, train, eval, comm);
    need = rc == SP_OK ? sp_budgets_need(&budgets) : 0;
    sp_budgets_close(&budgets);
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
    device->memory_mb = (double)share / mib;
    return SP_OK;
}

sp_status sp_memory_bound(sp_budgets *budgets, sp_device *device,
                          const sp_data_sets *data, sp_learner *learner,
                          sp_evaluator *evaluator)
{
    sp_sampler *train = learner && learner->loader ? &learner->sampler : NULL;
    sp_sampler *eval = evaluator->val.loader ? &evaluator->val.sampler : NULL;
    sp_estimated_run what = sp_memory_run(evaluator->config, device->comm,
                                          &device->backend, evaluator->network, data);
    int64_t bytes;

    assert((train || eval) && !budgets->memory);
    what.is_predicting = evaluator->is_predicting;
    what.merging_bytes = evaluator->merging_bytes;
    bytes = memory_choose(device);
    if (bytes == 0 && device->backend.ops->is_host)
        SP_TRY(sp_memory_bound_host(device, &what, train, eval, &bytes));
    return sp_budgets_open(budgets, &what, train, eval, device->comm, bytes);
}
