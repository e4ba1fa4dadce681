/* The memory of a run, from its network and its data: a plan of the largest sample
 * tells voxels and pairs; what they take, and packed weights, the backend's table
 * tells. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sp_check.h"
#include "sp_exact.h"
#include "sp_log.h"
#include "sp_voxel.h"

enum { SLOTS = 3 }; /* of a loader */

/* A batch of equal samples. */
typedef struct load {
    int n_samples;
    int64_t voxels[SP_MAX_LEVELS], pairs[SP_MAX_MAPS];
} load;

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

static sp_status plan_sample(const sp_session *s, const sp_sample *sample,
                             sp_arena *arena, sp_plan *plan)
{
    const sp_backend_ops *host = sp_backend_find("cpu");
    const sp_augment none = sp_augment_none();
    const double factor = rint(s->config->data.voxel_size / s->train.voxel_size);
    int32_t row[2] = {0, 0};
    sp_voxels voxels = {0};
    sp_backend be = {.ops = host};

    if (sample->n)
        SP_TRY(sp_voxelize(sample, &none, factor, s->n_columns, NULL, NULL, arena,
                           &voxels));
    row[1] = voxels.n;
    return host->plan_build(&be, &s->graph.spec, voxels.coords, row, 1, arena, plan);
}

/* n_samples like the set's largest. */
static sp_status find_load(const sp_session *s, const sp_dataset *set, int n_samples,
                           load *l)
{
    const sp_sample_request request = {.columns = s->columns,
                                       .n_columns = s->n_columns};
    sp_sample sample = {0};
    sp_arena arena = {0};
    sp_plan plan = {0};
    sp_status rc;
    int i;

    memset(l, 0, sizeof *l);
    l->n_samples = n_samples;
    if (set->n_samples == 0)
        return SP_OK;
    rc = sp_sample_read(set, largest_sample(set), &request, &sample);
    if (rc == SP_OK)
        rc = sp_arena_create(&arena, 0, "check");
    if (rc == SP_OK)
        rc = plan_sample(s, &sample, &arena, &plan);
    for (i = 0; i < plan.n_levels; i++)
        l->voxels[i] = (int64_t)plan.level[i].n * n_samples;
    for (i = 0; i < plan.n_maps; i++)
        l->pairs[i] = plan.map[i].pairs * n_samples;
    sp_arena_destroy(&arena);
    sp_sample_destroy(&sample);
    return rc;
}

/* Samples of a rank at a time, of `step` in the world. */
static int share_of(const sp_session *s, const sp_dataset *set, int64_t step, int micro)
{
    int64_t n = (step + s->comm->size - 1) / s->comm->size;

    n = (n + micro - 1) / micro;
    return (int)(n < set->n_samples ? n : set->n_samples);
}

/* ---- what takes memory ---- */

/* Weights, gradient and moments; limbs of ordered sums. On the host also, of rank 0,
 * the copy that a checkpoint is written from. */
static double weight_bytes(const sp_session *s, bool is_host)
{
    const int n_moments = s->config->train.optimizer == SP_ADAMW ? 2 : 1;
    double each = (2 + n_moments) * (double)sizeof(float);

    if (is_host)
        each += (1 + n_moments) * (double)sizeof(float);
    if (is_host && s->config->train.deterministic == SP_DET_WORLD)
        each += SP_EXACT_LIMBS * (double)sizeof(int64_t);
    return each * (double)s->graph.n_floats;
}

/* Weights in the order of the kernels; on the host packed at each use. */
static double packed_bytes(const sp_session *s, const sp_backend *be)
{
    double bytes = 0;
    int i;

    for (i = 0; i < s->graph.n_nodes && !be->ops->is_host; i++) {
        const sp_node *node = &s->graph.node[i];
        const int K = node->kernel * node->kernel * node->kernel;
        const bool has_grad = node->in[0] >= 0 && s->graph.node[node->in[0]].needs_grad;
        if (node->op != SP_OP_CONV)
            continue;
        bytes +=
            (double)be->ops->conv_pack_floats(be, K, node->c_in, node->c_out, false);
        if (has_grad)
            bytes +=
                (double)be->ops->conv_pack_floats(be, K, node->c_in, node->c_out, true);
    }
    return bytes * (double)sizeof(float);
}

/* Largest of any layer. */
static double scratch_bytes(const sp_session *s, const sp_backend *be, const load *l)
{
    int64_t most = 0, bytes;
    int i;

    for (i = 0; i < s->graph.n_nodes; i++) {
        const sp_node *node = &s->graph.node[i];
        if (node->op != SP_OP_CONV)
            continue;
        bytes = be->ops->conv_grad_weight_bytes(
            be, node->kernel * node->kernel * node->kernel, node->c_in, node->c_out,
            l->n_samples, node->map < 0 ? l->voxels[node->level] : l->pairs[node->map]);
        most = bytes > most ? bytes : most;
    }
    return (double)most;
}

/* One slot of a loader: plan, features, labels; on the host also its order. */
static double batch_bytes(const sp_session *s, const sp_backend *be, const load *l)
{
    const double plan =
        (double)be->ops->plan_bytes(&s->graph.spec, l->n_samples, l->voxels, l->pairs);

    return plan + (double)l->voxels[0] * (4.0 * s->n_columns + 4);
}

static double eval_bytes(const sp_session *s, const sp_backend *be, const load *l,
                         int64_t step)
{
    const int64_t n = s->val.n_samples;
    const int64_t n_batches = step ? (n + step - 1) / step : 0;

    return (double)(n_batches < SLOTS ? n_batches : SLOTS) * batch_bytes(s, be, l);
}

static void print(const sp_session *s, bool is_host, const load *l, const memory *m)
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

sp_status sp_check_memory(sp_session *s, const sp_sampler *sampler)
{
    const sp_config *config = s->config;
    const char *precision = config->train.precision;
    const bool has_eval = config->run.eval_every > 0 && s->val.n_samples > 0;
    sp_backend be = {.ops = find_backend(config->run.device)};
    const bool is_host = be.ops->is_host, is_half = !strcmp(precision, "bf16");
    int elem_bytes = !is_host && is_half ? 2 : 4;
    load train, eval = {0};
    memory m;

    be.precision = is_half ? SP_BF16 : !strcmp(precision, "tf32") ? SP_TF32 : SP_FP32;
    SP_TRY(find_load(s, &s->train,
                     share_of(s, &s->train, sampler->effective, sampler->accumulate),
                     &train));
    if (has_eval)
        SP_TRY(find_load(s, &s->val, share_of(s, &s->val, config->batch.eval_size, 1),
                         &eval));
    m.activations =
        (double)sp_graph_memory_bytes(&s->graph, train.voxels, is_host, elem_bytes,
                                      is_host ? elem_bytes : 16) /
        mib;
    m.weights = weight_bytes(s, is_host) / mib;
    m.packed = packed_bytes(s, &be) / mib;
    m.scratch = scratch_bytes(s, &be, &train) / mib;
    m.batches = (SLOTS * batch_bytes(s, &be, &train) +
                 eval_bytes(s, &be, &eval, config->batch.eval_size)) /
                mib;
    print(s, is_host, &train, &m);
    return SP_OK;
}
