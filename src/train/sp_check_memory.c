/* The memory of a run, from its network and its data: plans of the largest sample give
 * voxels and pairs. */
#include <assert.h>

#include "base/sp_log.h"
#include "base/sp_number.h"
#include "train/sp_check.h"

static const double mib = 1 << 20;

static void check_print(const sp_resources *r, bool is_host)
{
    const sp_budgets *budgets = &r->budgets;
    const int64_t *train = budgets->train.costliest, *eval = budgets->eval.costliest;
    const double act =
        (double)sp_most(train[SP_ACTIVATIONS], eval[SP_ACTIVATIONS]) / mib;
    const double weights = (double)budgets->fixed.weights / mib;
    const double batches = (double)(train[SP_BATCHES] + eval[SP_BATCHES]) / mib;
    const double scratch = (double)(sp_budgets_need(budgets) - budgets->fixed.program -
                                    budgets->fixed.weights) /
                               mib -
                           act - batches;
    const double program = (double)budgets->fixed.program / mib;

    if (is_host)
        sp_log_info(
            "memory: about %.0f MiB a rank in the largest steps, evaluation "
            "included: %.1f MiB of activations, %.1f of weights, gradients and "
            "optimizer state, %.1f of batches and kernel maps, %.1f of scratch, "
            "%.0f of the program",
            act + weights + batches + scratch + program, act, weights, batches, scratch,
            program);
    else
        sp_log_info(
            "memory: about %.2f MiB of each device in the largest steps (%s): "
            "%.2f MiB of activations and their gradients, %.2f of weights, "
            "gradients and optimizer state, %.2f of batches and kernel maps, "
            "%.2f of scratch; arenas take up to an eighth more, in pages of 2 MiB",
            act + weights + batches + scratch,
            sp_precision_word[r->config->train.precision], act, weights, batches,
            scratch);
}

/* The device of the memory estimate. */
typedef struct device_view {
    bool is_cuda;
    int64_t memory_bytes; /* memory of rank 0's first device; 0 if it sees no device */
} device_view;

/* Rank 0: finds the device that a run would have, as far as this process can tell
 * without opening it. */
static sp_status check_look(sp_device_kind kind, device_view *view)
{
    const bool may_be_cuda = kind != SP_DEVICE_CPU && sp_backend_find("cuda");
    const int n = may_be_cuda ? sp_backend_visible_devices() : 0;
    sp_device device = {0};

    view->is_cuda = may_be_cuda && (kind == SP_DEVICE_CUDA || n > 0);
    if (n > 0)
        SP_TRY(sp_backend_device(0, &device));
    view->memory_bytes = device.memory_bytes;
    return SP_OK;
}

static int64_t memory_of_deck(const sp_resources *r)
{
    return (int64_t)(r->config->run.memory_mb * mib);
}

/* Logs into how many micro-batches a step is cut, for run.memory_mb or device_bytes of
 * a device; nothing if neither is known. Collective. */
static sp_status check_cut(sp_resources *r, const sp_estimated_run *f,
                           sp_sampler *sampler, sp_sampler *val, int64_t device_bytes)
{
    int64_t bytes = memory_of_deck(r);
    sp_status rc;

    if (bytes == 0 && f->backend->ops->is_host)
        SP_TRY(sp_resources_bound_host(r, f, sampler, val, &bytes));
    else if (bytes == 0)
        bytes = sp_budgets_memory_of(device_bytes);
    rc = sp_budgets_open(&r->budgets, f, sampler, val, r->comm, bytes);
    if (rc == SP_OK)
        sp_budgets_print(&r->budgets, device_bytes);
    return rc;
}

sp_status sp_check_memory(sp_resources *r, sp_sampler *sampler, sp_sampler *val)
{
    sp_comm *comm = r->comm;
    const sp_config *config = r->config;
    sp_backend be = {.precision = config->train.precision,
                     .threads = sp_resources_threads(r)};
    const sp_estimated_run f = sp_resources_estimated_run(r, &be);
    device_view view = {0};
    sp_status rc = comm->rank == 0 ? check_look(config->run.device, &view) : SP_OK;

    assert(sampler);
    /* Ranks of another node may see other devices or no device, and the estimate needs
     * the same device and memory on all ranks. */
    SP_TRY(sp_comm_agree(r->comm, rc));
    SP_TRY(sp_comm_bcast(comm, &view, sizeof view, 0));
    be.ops = sp_backend_find(view.is_cuda ? "cuda" : "cpu");
    SP_TRY(sp_comm_agree(comm, sp_estimate_fit(&f, true, memory_of_deck(r), NULL)));
    /* The cut comes first, since it can refuse samples without reading them. */
    SP_TRY(check_cut(r, &f, sampler, val, view.memory_bytes));
    sp_budgets_close(&r->budgets);
    SP_TRY(sp_budgets_estimate(&r->budgets, &f, sampler, val, comm));
    check_print(r, be.ops->is_host);
    return SP_OK;
}
