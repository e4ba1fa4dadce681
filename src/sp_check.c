/* `sptrain check` and `sptrain preflight`: what a run would do, and on what. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sp_exact.h"
#include "sp_log.h"
#include "sp_train.h"
#include "sp_trainer.h"

/* ---- check ---- */

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

/* Weights, gradient and moments; two packed copies of the weights; on rank 0 the copy
 * that a checkpoint is written from; limbs of ordered sums. */
static double weight_bytes(const sp_session *s)
{
    const int n_moments = s->config->train.optimizer == SP_ADAMW ? 2 : 1;
    const int n_copies = 2 + n_moments + 2 + 1 + n_moments;
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
    double activations = (double)sp_graph_memory_bytes(&s->graph, voxels) / mib;
    double weights = weight_bytes(s) / mib, batches = batch_bytes(s, voxels) / mib;

    sp_log_info("memory: about %.0f MiB a rank in the dearest step (%lld voxels): %.1f "
                "MiB of activations, %.1f of weights, gradients and optimizer state, "
                "%.1f of batches and kernel maps, %.0f of the program",
                activations + weights + batches + program, (long long)voxels[0],
                activations, weights, batches, program);
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

/* ---- preflight ---- */

/* One rank's row of the table. */
typedef struct sp_flight {
    char host[64];
    int rank, node, local_rank, cores, devices;
    double reduce_mb_s, read_mb_s;
} sp_flight;

/* All-reduce of the gradient's size: best of five. Collective. */
static sp_status measure_reduce(sp_comm *comm, int64_t n_floats, double *mb_s)
{
    float *data = calloc((size_t)n_floats, sizeof *data);
    double best = INFINITY;
    sp_status rc = data ? SP_OK : SP_FAIL(SP_EMEM, "out of memory");
    int i;

    rc = sp_comm_agree(comm, rc, NULL);
    for (i = 0; i < 5 && rc == SP_OK; i++) {
        double begin;
        rc = sp_comm_barrier(comm);
        begin = sp_now_s();
        if (rc == SP_OK)
            rc = sp_comm_allreduce(comm, SP_SCOPE_WORLD, data, (size_t)n_floats, SP_F32,
                                   SP_SUM);
        if (sp_now_s() - begin < best)
            best = sp_now_s() - begin;
    }
    free(data);
    /* Of one rank nothing moves. */
    *mb_s = comm->size > 1 ? (double)n_floats * 4e-6 / best : 0;
    return rc;
}

/* Samples of this rank's share for at most a second. */
static sp_status measure_read(const sp_session *s, double *mb_s)
{
    const sp_sample_request request = {
        .columns = s->columns, .n_columns = s->n_columns, .verify = true};
    sp_sample sample = {0};
    double begin = sp_now_s(), bytes = 0;
    sp_status rc = SP_OK;
    int64_t i;

    for (i = s->comm->rank;
         i < s->train.n_samples && sp_now_s() - begin < 1 && rc == SP_OK;
         i += s->comm->size) {
        rc = sp_sample_read(&s->train, i, &request, &sample);
        bytes += (double)sample.n * (12 + 4 * s->n_columns + 1);
    }
    *mb_s = bytes * 1e-6 / (sp_now_s() - begin);
    sp_sample_destroy(&sample);
    return rc;
}

static void print_flights(const sp_comm *comm, const sp_flight *all)
{
    double slowest = INFINITY, fastest = 0;
    int r;

    sp_log_info("%5s %-20s %5s %6s %6s %6s  %-9s %14s %12s", "rank", "host", "node",
                "local", "cores", "CUDA", "transport", "all-reduce MB/s", "read MB/s");
    for (r = 0; r < comm->size; r++) {
        const sp_flight *f = &all[r];
        sp_log_info("%5d %-20s %5d %6d %6d %6d  %-9s %14.0f %12.0f", f->rank, f->host,
                    f->node, f->local_rank, f->cores, f->devices,
                    comm->size == 1 ? "none" : "MPI", f->reduce_mb_s, f->read_mb_s);
        slowest = fmin(slowest, f->read_mb_s);
        fastest = fmax(fastest, f->read_mb_s);
    }
    if (fastest > 0 && slowest < fastest / 4)
        sp_log_warn0(
            "the slowest rank reads shards at %.0f MB/s, the fastest at %.0f MB/s",
            slowest, fastest);
}

static sp_status preflight(sp_session *s)
{
    sp_comm *comm = s->comm;
    sp_flight mine = {.rank = comm->rank,
                      .node = comm->node,
                      .local_rank = comm->local_rank,
                      .cores = comm->cores,
                      .devices = sp_backend_visible_devices()};
    void *all = NULL;

    snprintf(mine.host, sizeof mine.host, "%s", comm->host);
    SP_TRY(sp_session_open_device(s));
    SP_TRY(sp_session_open_data(s, true, false));
    SP_TRY(sp_graph_build(&s->graph, s->config, s->n_columns, s->n_classes));
    SP_TRY(measure_reduce(comm, s->graph.n_floats, &mine.reduce_mb_s));
    SP_TRY(sp_session_agree(s, measure_read(s, &mine.read_mb_s)));
    SP_TRY(sp_comm_gather(comm, &mine, sizeof mine, 0, &all, NULL));
    sp_log_info("%d rank%s on %d node%s; device %s; gradient %.1f MB", comm->size,
                comm->size == 1 ? "" : "s", comm->n_nodes,
                comm->n_nodes == 1 ? "" : "s", s->device,
                (double)s->graph.n_floats * 4e-6);
    if (comm->rank == 0)
        print_flights(comm, all);
    free(all);
    return SP_OK;
}

sp_status sp_preflight(const sp_command *command)
{
    sp_session session;
    sp_status rc = sp_session_open(&session, command, false);

    if (rc == SP_OK)
        rc = preflight(&session);
    return sp_session_close(&session, rc);
}
