/* The memory of a run, from its network and its data: a plan of the largest sample
 * tells voxels and pairs; what they take, and packed weights, the backend's table
 * tells. */
#include <string.h>

#include "train/sp_check.h"
#include "memory/sp_foresee.h"
#include "data/sp_loader.h"
#include "base/sp_log.h"

/* MiB. */
typedef struct memory {
    double weights, packed, activations, batches, scratch;
} memory;

static const double mib = 1 << 20;

static int64_t largest_sample(const sp_dataset *set)
{
    int64_t at = 0, i;

    for (i = 1; i < set->n_samples; i++)
        if (sp_dataset_voxels(set, i) > sp_dataset_voxels(set, at))
            at = i;
    return at;
}

/* n_samples like the set's largest. */
static sp_status find_load(const sp_foresight *f, const sp_dataset *set, int n_samples,
                           sp_load *l)
{
    int i;

    memset(l, 0, sizeof *l);
    if (set->n_samples > 0)
        SP_TRY(sp_foresee_load(f, set, largest_sample(set), -1, l));
    l->n_samples = n_samples;
    for (i = 0; i < SP_MAX_LEVELS; i++)
        l->voxels[i] *= n_samples;
    for (i = 0; i < SP_MAX_MAPS; i++)
        l->pairs[i] *= n_samples;
    return SP_OK;
}

/* Samples of a rank at a time, of `step` in the world. */
static int share_of(const sp_session *s, const sp_dataset *set, int64_t step, int micro)
{
    int64_t n = (step + s->comm->size - 1) / s->comm->size;

    n = (n + micro - 1) / micro;
    return (int)(n < set->n_samples ? n : set->n_samples);
}

static double eval_bytes(const sp_foresight *f, const sp_dataset *val, const sp_load *l,
                         int64_t step)
{
    const int64_t n_batches = step ? (val->n_samples + step - 1) / step : 0;

    return (double)(n_batches < SP_LOADER_SLOTS ? n_batches : SP_LOADER_SLOTS) *
           sp_foresee_batch(f, l);
}

static void print(const sp_session *s, bool is_host, const sp_load *l, const memory *m)
{
    const double program = 50; /* MPI, HDF5, buffers of messages */
    const double all =
        m->weights + m->packed + m->activations + m->batches + m->scratch;

    if (is_host)
        sp_log_info("memory: about %.0f MiB a rank in the dearest step (%lld voxels): "
                    "%.1f MiB of activations, %.1f of weights, gradients and optimizer "
                    "state, %.1f of batches and kernel maps, %.0f of the program",
                    all + program, (long long)l->voxels[0], m->activations, m->weights,
                    m->batches, program);
    else
        sp_log_info("memory: about %.2f MiB of each device in the dearest step (%lld "
                    "voxels, %s): %.2f MiB of activations and their gradients, %.2f of "
                    "weights, gradients and optimizer state, %.2f of packed weights, "
                    "%.2f of batches and kernel maps, %.2f of scratch; arenas take up "
                    "to an eighth more, in pages of 2 MiB",
                    all, (long long)l->voxels[0], s->config->train.precision,
                    m->activations, m->weights, m->packed, m->batches, m->scratch);
}

/* The backend that a run would have, as far as this process can tell without it. */
static const sp_backend_ops *find_backend(const char *device)
{
    const sp_backend_ops *cuda = sp_backend_find("cuda");

    if (cuda && (!strcmp(device, "cuda") ||
                 (!strcmp(device, "auto") && sp_backend_visible_devices() > 0)))
        return cuda;
    return sp_backend_find("cpu");
}

/* Into how many micro-batches a step is cut, for run.memory_mb or the first device that
 * this process sees; nothing where neither is known. */
static sp_status check_cut(sp_session *s, const sp_foresight *f, sp_sampler *sampler,
                           sp_sampler *val)
{
    int64_t bytes = (int64_t)(s->config->run.memory_mb * mib);
    sp_device device = {0};
    sp_status rc;

    if (!f->backend->ops->is_host && sp_backend_visible_devices() > 0)
        SP_TRY(sp_backend_device(0, &device));
    if (bytes == 0)
        bytes = sp_cut_memory_of(device.memory_bytes);
    rc = sp_cut_open(&s->cut, f, sampler, val, s->comm, bytes, &s->failed_rank);
    if (rc == SP_OK)
        sp_cut_print(&s->cut, device.memory_bytes);
    return rc;
}

static sp_status foresee(const sp_session *s, const sp_foresight *f,
                         const sp_sampler *sampler, sp_sampler *val, sp_load *train,
                         memory *m)
{
    const int step = s->config->batch.eval_size;
    sp_load eval = {0};

    SP_TRY(find_load(f, &s->train,
                     share_of(s, &s->train, sampler->effective, sampler->accumulate),
                     train));
    if (val)
        SP_TRY(find_load(f, &s->val, share_of(s, &s->val, step, 1), &eval));
    m->activations = sp_foresee_activations(f, train, true) / mib;
    m->weights = sp_foresee_weights(f, true) / mib;
    m->packed = sp_foresee_packed(f, true) / mib;
    m->scratch = sp_foresee_scratch(f, train) / mib;
    m->batches = (SP_LOADER_SLOTS * sp_foresee_batch(f, train) +
                  eval_bytes(f, &s->val, &eval, step)) /
                 mib;
    return SP_OK;
}

sp_status sp_check_memory(sp_session *s, sp_sampler *sampler, sp_sampler *val)
{
    const char *precision = s->config->train.precision;
    sp_backend be = {.ops = find_backend(s->config->run.device)};
    const bool is_host = be.ops->is_host;
    const sp_foresight f = {s->config, &s->graph, &be, s->columns, s->n_columns};
    sp_load train;
    memory m = {0};

    if (!is_host)
        be.precision = !strcmp(precision, "bf16")   ? SP_BF16
                       : !strcmp(precision, "tf32") ? SP_TF32
                                                    : SP_FP32;
    SP_TRY(sp_session_agree(s, foresee(s, &f, sampler, val, &train, &m)));
    print(s, is_host, &train, &m);
    return check_cut(s, &f, sampler, val);
}
