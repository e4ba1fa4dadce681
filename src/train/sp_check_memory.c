/* The memory of a run, from its network and its data: plans of the largest sample give
 * voxels and pairs. */
#include "api/sp_memory.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "train/sp_check.h"

static const double mib = 1 << 20;

static void check_print(const sp_budgets *budgets, sp_precision precision, bool is_host)
{
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
            act + weights + batches + scratch, sp_precision_word[precision], act,
            weights, batches, scratch);
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
    sp_device_info device = {0};

    view->is_cuda = may_be_cuda && (kind == SP_DEVICE_CUDA || n > 0);
    if (n > 0)
        SP_TRY(sp_backend_device(0, &device));
    view->memory_bytes = device.memory_bytes;
    return SP_OK;
}

static int64_t memory_of_deck(const sp_config *config)
{
    return (int64_t)(config->run.memory_mb * mib);
}

/* Logs into how many micro-batches a step is cut, for run.memory_mb or device_bytes of
 * a device; nothing if neither is known. Collective. */
static sp_status check_cut(sp_checked *c, const sp_estimated_run *f, sp_sampler *train,
                           sp_sampler *val, int64_t device_bytes)
{
    int64_t bytes = memory_of_deck(f->config);
    sp_status rc;

    if (bytes == 0 && f->backend->ops->is_host)
        SP_TRY(sp_memory_bound_host(&c->device, f, train, val, &bytes));
    else if (bytes == 0)
        bytes = sp_budgets_memory_of(device_bytes);
    rc = sp_budgets_open(&c->budgets, f, train, val, c->session.comm, bytes);
    if (rc == SP_OK)
        sp_budgets_print(&c->budgets, device_bytes);
    return rc;
}

sp_status sp_check_memory(sp_checked *c)
{
    const sp_config *config = c->session.config;
    sp_comm *comm = c->session.comm;
    sp_sampler *train = &c->learner.sampler, *val = &c->evaluator.val.sampler;
    sp_backend be = {.precision = config->train.precision,
                     .threads = sp_device_threads(config, comm)};
    sp_estimated_run f = sp_memory_run(config, comm, &be, &c->network, &c->data);
    device_view view = {0};
    sp_status rc = comm->rank == 0 ? check_look(config->run.device, &view) : SP_OK;

    val = val->set ? val : NULL;
    f.merging_bytes = c->evaluator.merging_bytes;
    /* Ranks of another node may see other devices or no device, and the estimate needs
     * the same device and memory on all ranks. */
    SP_TRY(sp_comm_agree(comm, rc));
    SP_TRY(sp_comm_bcast(comm, &view, sizeof view, 0));
    be.ops = sp_backend_find(view.is_cuda ? "cuda" : "cpu");
    SP_TRY(
        sp_comm_agree(comm, sp_estimate_fit(&f, true, memory_of_deck(config), NULL)));
    /* The cut comes first, since it can refuse samples without reading them. */
    SP_TRY(check_cut(c, &f, train, val, view.memory_bytes));
    sp_budgets_close(&c->budgets);
    SP_TRY(sp_budgets_estimate(&c->budgets, &f, train, val, comm));
    check_print(&c->budgets, config->train.precision, be.ops->is_host);
    return SP_OK;
}
