#include "memory/sp_foresee.h"

#include <math.h>
#include <string.h>

#include "base/sp_exact.h"
#include "data/sp_voxel.h"
#include "memory/sp_assign.h"

enum { EXACT_FLOATS = 1 << 20 }; /* as sp_net_impl.h has it */

/* Exact mode on a device: gradients of samples on their way to the host. */
static double exact_bytes(const sp_foresight *f)
{
    int64_t most = EXACT_FLOATS;

    for (int p = 0; p < f->graph->n_params; p++)
        if (f->graph->param[p].count > most)
            most = f->graph->param[p].count;
    return (double)most * (double)sizeof(float);
}

double sp_foresee_weights(const sp_foresight *f, bool is_training)
{
    const sp_config *config = f->config;
    const int n_moments = config->train.optimizer == SP_ADAMW ? 2 : 1;
    const bool is_host = f->backend->ops->is_host;
    double each = sizeof(float);

    if (is_training)
        each += (1 + n_moments) * (double)sizeof(float);
    if (is_training && is_host)
        each += (1 + n_moments) * (double)sizeof(float);
    if (is_training && is_host && config->train.deterministic == SP_DET_WORLD)
        each += SP_EXACT_LIMBS * (double)sizeof(int64_t);
    if (is_training && !is_host && config->train.deterministic == SP_DET_WORLD)
        return each * (double)f->graph->n_floats + exact_bytes(f);
    return each * (double)f->graph->n_floats;
}

double sp_foresee_packed(const sp_foresight *f, bool is_training)
{
    const sp_graph *g = f->graph;
    const sp_backend *be = f->backend;
    double floats = 0;

    for (int i = 0; i < g->n_nodes && !be->ops->is_host; i++) {
        const sp_node *node = &g->node[i];
        const int K = node->kernel * node->kernel * node->kernel;
        const bool has_grad = node->in[0] >= 0 && g->node[node->in[0]].needs_grad;

        if (node->op != SP_OP_CONV)
            continue;
        floats +=
            (double)be->ops->conv_pack_floats(be, K, node->c_in, node->c_out, false);
        if (has_grad && is_training)
            floats +=
                (double)be->ops->conv_pack_floats(be, K, node->c_in, node->c_out, true);
    }
    return floats * (double)sizeof(float);
}

double sp_foresee_activations(const sp_foresight *f, const sp_load *load,
                              bool is_training)
{
    const sp_assign_rules rules =
        sp_assign_rules_of(f->backend, f->backend->ops->is_host,
                           f->config->train.deterministic == SP_DET_WORLD);
    sp_assign_bytes bytes = {0, 0};
    sp_lowered low;

    if (sp_lower(&low, f->graph, f->backend->precision == SP_BF16) == SP_OK)
        sp_assign_size(&low, &rules, load->voxels, load->n_samples, is_training,
                       &bytes);
    sp_lowered_destroy(&low);
    return (double)(bytes.matrices + bytes.vectors);
}

double sp_foresee_batch(const sp_foresight *f, const sp_load *load)
{
    return (double)f->backend->ops->plan_bytes(&f->graph->spec, load->n_samples,
                                               load->voxels, load->pairs) +
           (double)load->voxels[0] * (4.0 * f->n_columns + 4);
}

double sp_foresee_scratch(const sp_foresight *f, const sp_load *load)
{
    const sp_graph *g = f->graph;
    int64_t most = 0;

    for (int i = 0; i < g->n_nodes; i++) {
        const sp_node *node = &g->node[i];
        const int K = node->kernel * node->kernel * node->kernel;
        int64_t bytes;

        if (node->op != SP_OP_CONV)
            continue;
        bytes = f->backend->ops->conv_grad_weight_bytes(
            f->backend, K, node->c_in, node->c_out, load->n_samples,
            node->map >= 0    ? load->pairs[node->map]
            : node->level < 0 ? load->n_samples
                              : load->voxels[node->level]);
        most = bytes > most ? bytes : most;
    }
    return (double)most;
}

/* ---- a sample's plan ---- */

static sp_status plan_sample(const sp_foresight *f, const sp_dataset *set,
                             const sp_sample *sample, int64_t epoch, sp_arena *arena,
                             sp_plan *plan)
{
    const double factor = rint(f->config->data.voxel_size / set->voxel_size);
    sp_backend host = {.ops = sp_backend_find("cpu")};
    sp_augment augment = sp_augment_none();
    int32_t row[2] = {0, 0};
    sp_voxels voxels = {0};

    if (epoch >= 0)
        augment = sp_augment_draw(f->config, set->has_subvoxel,
                                  (uint64_t)f->config->train.seed, (uint64_t)epoch,
                                  sample->id);
    if (sample->n)
        SP_TRY(sp_voxelize(sample, &augment, factor, f->n_columns, NULL, NULL, arena,
                           &voxels));
    row[1] = voxels.n;
    return host.ops->plan_build(&host, &f->graph->spec, voxels.coords, row, 1, arena,
                                plan);
}

sp_status sp_foresee_load(const sp_foresight *f, const sp_dataset *set, int64_t sample,
                          int64_t epoch, sp_load *load)
{
    const sp_sample_request request = {.columns = f->columns,
                                       .n_columns = f->n_columns};
    sp_sample stored = {0};
    sp_arena arena = {0};
    sp_plan plan = {0};
    sp_status rc;

    memset(load, 0, sizeof *load);
    load->n_samples = 1;
    rc = sp_sample_read(set, sample, &request, &stored);
    if (rc == SP_OK)
        rc = sp_arena_create(&arena, 0, "foreseen plan");
    if (rc == SP_OK)
        rc = plan_sample(f, set, &stored, epoch, &arena, &plan);
    for (int i = 0; i < plan.n_levels; i++)
        load->voxels[i] = plan.level[i].n;
    for (int i = 0; i < plan.n_maps; i++)
        load->pairs[i] = plan.map[i].pairs;
    sp_arena_destroy(&arena);
    sp_sample_destroy(&stored);
    return rc;
}
