/* The memory of a run, from its network and its data: plans of the largest sample tell
 * voxels and pairs. */
#include "base/sp_log.h"
#include "check/sp_check.h"

static const double mib = 1 << 20;

static void print(const sp_resources *r, bool is_host)
{
    const sp_cut *cut = &r->cut;
    const int64_t *train = cut->train.costliest, *eval = cut->eval.costliest;
    const double act =
        (double)(train[SP_ACTIVATIONS] > eval[SP_ACTIVATIONS] ? train[SP_ACTIVATIONS]
                                                              : eval[SP_ACTIVATIONS]) /
        mib;
    const double weights = (double)cut->fixed.weights / mib;
    const double batches = (double)(train[SP_BATCHES] + eval[SP_BATCHES]) / mib;
    const double scratch =
        (double)(sp_cut_need(cut) - cut->fixed.program - cut->fixed.weights) / mib -
        act - batches;
    const double program = (double)cut->fixed.program / mib;

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
            sp_precision_word[r->session.config->train.precision], act, weights,
            batches, scratch);
}

/* The backend that a run would have, as far as this process can tell without it. */
static const sp_backend_ops *find_backend(sp_device_kind device)
{
    const sp_backend_ops *cuda = sp_backend_find("cuda");

    if (cuda && (device == SP_DEVICE_CUDA ||
                 (device == SP_DEVICE_AUTO && sp_backend_visible_devices() > 0)))
        return cuda;
    return sp_backend_find("cpu");
}

/* Into how many micro-batches a step is cut, for run.memory_mb or the first device that
 * this process sees; nothing where neither is known. */
static sp_status check_cut(sp_resources *r, const sp_foresight *f, sp_sampler *sampler,
                           sp_sampler *val)
{
    int64_t bytes = (int64_t)(r->session.config->run.memory_mb * mib);
    sp_device device = {0};
    sp_status rc;

    if (!f->backend->ops->is_host && sp_backend_visible_devices() > 0)
        SP_TRY(sp_backend_device(0, &device));
    if (bytes == 0)
        bytes = sp_cut_memory_of(device.memory_bytes);
    rc = sp_cut_open(&r->cut, f, sampler, val, r->session.comm, bytes,
                     &r->session.failed_rank);
    if (rc == SP_OK)
        sp_cut_print(&r->cut, device.memory_bytes);
    return rc;
}

sp_status sp_check_memory(sp_resources *r, sp_sampler *sampler, sp_sampler *val)
{
    sp_backend be = {.ops = find_backend(r->session.config->run.device),
                     .precision = r->session.config->train.precision};
    const bool is_host = be.ops->is_host;
    const sp_foresight f = sp_resources_foresight(r, &be);

    SP_TRY(
        check_cut(r, &f, sampler, val)); /* first: it refuses what it need not read */
    sp_cut_close(&r->cut);
    SP_TRY(sp_cut_foresee(&r->cut, &f, sampler, val, r->session.comm,
                          &r->session.failed_rank));
    print(r, is_host);
    return SP_OK;
}
