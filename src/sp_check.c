/* `sptrain check`: what a run would do. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sp_exact.h"
#include "sp_log.h"
#include "sp_train.h"
#include "sp_trainer.h"

/* Voxels per level of the dearest micro-batch of one rank: the largest samples
 * together. */
static void largest_share(const sp_session *s, const sp_sampler *sampler,
                          int64_t *voxels)
{
    const sp_dataset *set = &s->train;
    int64_t share = (sampler->effective + s->comm->size - 1) / s->comm->size, i,
            largest = 0;
    int64_t at = 0;
    int l;

    share = (share + sampler->accumulate - 1) / sampler->accumulate;
    for (i = 0; i < set->n_samples; i++)
        if (sp_dataset_voxels(set, i) > largest) {
            largest = sp_dataset_voxels(set, i);
            at = i;
        }
    if (set->n_samples < share)
        share = set->n_samples;
    for (l = 0; l < SP_MAX_LEVELS; l++) {
        /* Without /cost, a surface: a quarter of the voxels a level. */
        int64_t n = set->cost && l < 5 ? set->cost[at * SP_COST_COLUMNS + l]
                                       : largest >> (2 * l);
        voxels[l] = (n > 0 ? n : largest > 0) * share;
    }
}

static void print_batch(const sp_session *s, const sp_sampler *sampler)
{
    const sp_config *config = s->config;
    double lr = config->train.lr;
    double factor = (double)sampler->effective / config->batch.size;

    if (config->train.lr_scale == SP_LR_LINEAR)
        lr *= factor;
    else if (config->train.lr_scale == SP_LR_SQRT)
        lr *= sqrt(factor);
    sp_log_info("batch: %d samples a step in the world (%.3g a node, %.3g a rank), "
                "%lld steps an epoch; effective learning rate %g",
                sampler->effective, (double)sampler->effective / s->comm->n_nodes,
                (double)sampler->effective / s->comm->size,
                (long long)sp_sampler_steps_per_epoch(sampler), lr);
}

/* As sp_session_open_net will have it; without a session's device. */
static bool is_frugal(const sp_session *s)
{
    return strcmp(s->config->run.device, "cuda") != 0;
}

/* Weights, gradient and moments; two packed copies of the weights unless they are packed
 * at each use; on rank 0 the copy that a checkpoint is written from; limbs of ordered
 * sums. */
static double weight_bytes(const sp_session *s)
{
    const int n_moments = s->config->train.optimizer == SP_ADAMW ? 2 : 1;
    const int n_packed = is_frugal(s) ? 0 : 2;
    const int n_copies = 2 + n_moments + n_packed + 1 + n_moments;
    double each = n_copies * (double)sizeof(float);

    if (s->config->train.deterministic == SP_DET_WORLD)
        each += SP_EXACT_LIMBS * (double)sizeof(int64_t);
    return each * (double)s->graph.n_floats;
}

/* Rows and kernel maps of the batches in the ring and of the one being made; a row of a
 * map is at most an int32 an offset. */
static double batch_bytes(const sp_session *s, const int64_t *voxels)
{
    const sp_plan_spec *spec = &s->graph.spec;
    double bytes = (double)voxels[0] * (12 + 12 + 4.0 * s->n_columns + 4);
    int i;

    for (i = 0; i < spec->n_maps; i++) {
        const sp_map_key *key = &spec->map[i];
        bytes += (double)voxels[key->level_out] * 4 * key->kernel * key->kernel *
                 key->kernel;
    }
    return 2 * bytes;
}

static void print_memory(const sp_session *s, const int64_t *voxels)
{
    const double mib = 1 << 20, program = 50; /* MPI, HDF5, buffers of messages */
    const bool is_half = strcmp(s->config->train.precision, "bf16") == 0;
    double activations =
        (double)sp_graph_memory_bytes(&s->graph, voxels, is_frugal(s)) /
        (is_half ? 2 : 1) / mib;
    double weights = weight_bytes(s) / mib, batches = batch_bytes(s, voxels) / mib;

    sp_log_info("memory: about %.0f MiB a rank in the dearest step (%lld voxels): %.1f "
                "MiB of activations, %.1f of weights, gradients and optimizer state, "
                "%.1f of batches and kernel maps, %.0f of the program; %s",
                activations + weights + batches + program, (long long)voxels[0],
                activations, weights, batches, program, s->config->train.precision);
}

static sp_status check(sp_session *s)
{
    sp_sampler sampler = {0};
    int64_t voxels[SP_MAX_LEVELS];

    SP_TRY(sp_session_open_data(s, true, true));
    SP_TRY(sp_graph_build(&s->graph, s->config, s->n_columns, s->n_classes));
    SP_TRY(sp_sampler_open(&sampler, &s->train, s->comm, s->config, true));
    if (s->comm->rank == 0)
        sp_graph_print(&s->graph, stdout);
    sp_log_info("train: %lld samples, %lld voxels; val: %lld samples, %lld voxels; "
                "%d classes, %d feature columns",
                (long long)s->train.n_samples, (long long)s->train.n_voxels,
                (long long)s->val.n_samples, (long long)s->val.n_voxels, s->n_classes,
                s->n_columns);
    print_batch(s, &sampler);
    largest_share(s, &sampler, voxels);
    print_memory(s, voxels);
    sp_sampler_close(&sampler);
    return SP_OK;
}

sp_status sp_check(const sp_command *command)
{
    sp_session session;
    sp_status rc = sp_session_open(&session, command, false);

    if (rc == SP_OK)
        rc = check(&session);
    return sp_session_close(&session, rc);
}
