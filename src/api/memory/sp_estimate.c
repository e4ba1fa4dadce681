#include "api/memory/sp_estimate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_exact.h"
#include "base/sp_machine.h"
#include "base/sp_number.h"
#include "data/sp_mix.h"
#include "data/sp_paste.h"
#include "data/sp_single_batch.h"
#include "net/sp_fixed.h"
#include "net/sp_net.h"
#include "net/sp_optim_state.h"

/* The memory of the program itself (MPI, HDF5, code, threads and heap, after a first
 * checkpoint), and the addition for each other rank of the node. Measured with MPICH
 * 4.0 in small runs: 21 to 31 MiB, and 20 to 35 MiB more of large pages that are in use
 * only in part, which count only in small runs. Runs of 1 to 16 ranks take the same; a
 * rank that exchanges messages with every other one takes 50 KiB more for each. */
static const int64_t PROGRAM_BYTES = 46 << 20, NEIGHBOUR_BYTES = 64 << 10;
/* PARAM_BYTES are kept for a parameter beyond its numbers, mostly HDF5's datasets of a
 * checkpoint. Measured: minkunet101 with few channels needs 5 MiB more than its
 * numbers. */
enum { PARAM_BYTES = 20 << 10 };
/* On a device up to a page at the end of each arena is reserved and not used. */
enum { ARENAS = 15, PAGE_BYTES = 2 << 20 };

sp_status sp_estimate_open(sp_estimator *f, const sp_estimated_run *what,
                           bool is_training)
{
    const sp_buffer_rules rules = sp_buffer_rules_of(
        what->backend, what->backend->ops->is_host, what->config->train.recompute,
        what->config->train.deterministic == SP_DET_WORLD);

    assert(what->graph && what->backend && what->backend->ops);
    *f = (sp_estimator){.what = *what, .is_training = is_training};
    sp_estimate_set_batches(f, INT64_MAX);
    SP_TRY(sp_lower(&f->low, what->graph, what->backend->precision == SP_BF16));
    return sp_buffer_plan_create(&f->buffers, &f->low, &rules);
}

void sp_estimate_set_batches(sp_estimator *f, int64_t n_batches)
{
    const sp_config *config = f->what.config;

    assert(n_batches > 0);
    f->n_slots = (int)sp_least(sp_loader_slots(config), n_batches);
    f->n_memories =
        sp_loader_memories(config, f->what.backend->ops->is_host, f->n_slots);
}

void sp_estimate_close(sp_estimator *f)
{
    sp_buffer_plan_destroy(&f->buffers);
    sp_lowered_destroy(&f->low);
    *f = (sp_estimator){0};
}

/* ---- without a batch ---- */

/* The bytes of gradients and of the optimizer's state; on the host also of the limbs of
 * exact sums. Ranks of one node read each other's gradients in shared memory, which
 * counts again. */
static int64_t training_bytes(const sp_estimated_run *what)
{
    const sp_config *config = what->config;
    const bool is_exact = config->train.deterministic == SP_DET_WORLD;
    int64_t each = (int64_t)sizeof(float);

    if (what->backend->ops->is_host && is_exact)
        each += SP_EXACT_LIMBS * (int64_t)sizeof(int64_t);
    if (what->backend->ops->is_host && what->n_local > 1)
        each += (int64_t)(is_exact ? SP_EXACT_LIMBS * sizeof(int64_t) : sizeof(float));
    return each * what->graph->n_floats +
           sp_optim_state_total(config, what->graph) * (int64_t)sizeof(float);
}

bool sp_estimate_is_inference(const sp_config *config, bool is_training)
{
    return !is_training && config->run.memory_mb == 0;
}

sp_status sp_estimate_fixed(sp_estimator *f, sp_fixed_estimate *fixed)
{
    const sp_estimated_run *what = &f->what;
    const bool is_host = what->backend->ops->is_host;
    const sp_fixed_rules rules = {
        .is_low_memory = is_host,
        .is_inference = sp_estimate_is_inference(what->config, f->is_training),
        .is_exact =
            f->is_training && what->config->train.deterministic == SP_DET_WORLD};

    assert(what->n_local >= 1 && what->index_bytes >= 0);
    SP_TRY(sp_fixed_size(&f->low, what->backend, &rules, &fixed->weights));
    if (f->is_training)
        fixed->weights += training_bytes(what);
    if (is_host)
        fixed->weights += (int64_t)PARAM_BYTES * what->graph->n_params;
    fixed->weights += what->beside_bytes;
    fixed->program =
        PROGRAM_BYTES + NEIGHBOUR_BYTES * (what->n_local - 1) + what->index_bytes;
    fixed->program += what->merging_bytes + what->unpacked_bytes;
    if (f->is_training)
        fixed->program += sp_bank_bytes(what->config);
    if (!is_host)
        fixed->program = ARENAS * PAGE_BYTES;
    return SP_OK;
}

sp_status sp_estimate_fit(const sp_estimated_run *what, bool is_training,
                          int64_t memory, int64_t *weights)
{
    const char *subject = is_training ? "weights, gradients and optimizer state of the "
                                        "network"
                          : what->beside_bytes ? "weights of all models"
                                               : "weights of the network";
    const char *less = what->beside_bytes ? "average fewer models"
                                          : "take a smaller network (net.width)";
    const double mib = 1 << 20;
    const int64_t machine = (int64_t)sp_machine_memory();
    const int64_t there = memory ? memory : machine;
    sp_fixed_estimate fixed = {0, 0};
    sp_estimator f;
    sp_status rc = sp_estimate_open(&f, what, is_training);

    assert(memory >= 0);
    if (rc == SP_OK)
        rc = sp_estimate_fixed(&f, &fixed);
    sp_estimate_close(&f);
    SP_TRY(rc);
    if (weights)
        *weights = fixed.weights;
    if (!what->backend->ops->is_host)
        return SP_OK;
    /* The ranks of a node share the program's pages, but not their weights. */
    if (fixed.weights + fixed.program <= there && memory == 0 &&
        fixed.weights * what->n_local + fixed.program > machine)
        return SP_FAIL(SP_EMEM,
                       "the %d ranks of this node need about %.1f MiB each for the %s "
                       "and %.1f MiB for the program, expected at most the %.1f MiB of "
                       "this machine together: start fewer ranks on a node, or %s",
                       what->n_local, (double)fixed.weights / mib, subject,
                       (double)fixed.program / mib, (double)machine / mib, less);
    if (fixed.weights + fixed.program <= there)
        return SP_OK;
    return SP_FAIL(SP_EMEM,
                   "a rank needs about %.1f MiB for the %s and %.1f MiB for the "
                   "program, expected at most the %.1f MiB %s: %s, or %s",
                   (double)fixed.weights / mib, subject, (double)fixed.program / mib,
                   (double)there / mib, memory ? "of run.memory_mb" : "of this machine",
                   memory ? "give it more" : "take another machine", less);
}

/* ---- with a batch ---- */

/* The scratch of the loss. */
static int64_t loss_operation(const sp_estimated_run *what, const sp_load *load)
{
    const sp_node *last = &what->graph->node[what->graph->n_nodes - 1];
    const sp_loss_rule rule = sp_net_loss_rule(what->config);
    const sp_backend be = {.ops = what->backend->ops,
                           .precision = what->backend->precision,
                           .threads = what->n_threads};

    return be.ops->loss_bytes(&be, &rule, sp_graph_rows(&load->plan, last->level),
                              last->c_out, load->plan.n_samples);
}

/* The scratch of the operations of a training. Only the gradient of the logits is
 * rounded. */
static int64_t operations(const sp_estimated_run *what, const sp_load *load)
{
    sp_conv_bytes most = {0, 0};

    for (int i = 0; i < what->graph->n_nodes; i++) {
        const sp_node *node = &what->graph->node[i];
        const int K = node->kernel * node->kernel * node->kernel;
        sp_conv_bytes bytes;

        if (node->op != SP_OP_CONV)
            continue;
        bytes = what->backend->ops->conv_bytes(
            what->backend, K, node->c_in, node->c_out, load->plan.n_samples,
            sp_graph_rows(&load->plan, node->level), sp_graph_pairs(&load->plan, node));
        most.sums = sp_most(most.sums, bytes.sums);
        if (i == what->graph->n_nodes - 1)
            most.rounded = bytes.rounded;
    }
    return sp_most(most.sums, loss_operation(what, load)) + most.rounded;
}

static bool is_mixing(const sp_estimator *f)
{
    const sp_config *config = f->what.config;

    return f->is_training && config->augment.mix != SP_MIX_NONE &&
           config->augment.mix_p > 0;
}

/* The bytes of a batch's predictions on their way to the file: on rank 0 all ranks'
 * predictions too. */
static int64_t result_bytes(const sp_estimated_run *what, const sp_load *load)
{
    const int64_t logits = what->config->run.logits ? 4 * what->graph->n_classes : 0;

    if (!what->is_predicting)
        return 0;
    return (load->stored * (2 + logits) + load->points * 10) * (1 + what->n_ranks);
}

/* The bytes of probabilities: the sums of the batch's voxels, and if blocks are merged
 * also sums on their way to other ranks and from them, in buffers that grow by
 * doubling. A voxel goes to its own block and to the blocks with points in it. */
static int64_t probability_bytes(const sp_estimated_run *what, const sp_load *load)
{
    const sp_config *config = what->config;
    const int64_t row = 8 * (int64_t)what->graph->n_classes;

    if (!config->eval.merge)
        return what->n_views > 1 ? load->stored * (row + 4) : 0;
    return load->stored * row + 4 * 2 * load->stored * (row + 4) +
           4 * (load->points + load->context) * 12;
}

void sp_estimate_step(sp_estimator *f, const sp_load *load, int64_t part[SP_PARTS])
{
    const sp_estimated_run *what = &f->what;
    const sp_backend_ops *ops = what->backend->ops;
    const bool may_move = f->is_training && what->has_subvoxel;
    const sp_loader_shape shape = {
        .n_columns = what->n_columns,
        .n_readers = what->config->data.readers,
        .n_planners = what->config->data.planners,
        .has_subvoxel = what->has_subvoxel,
        .is_training = f->is_training,
        .verify = what->config->data.verify,
        .is_merging = what->factor > 1 || is_mixing(f) ||
                      (f->is_training && sp_paste_is_on(what->config)) ||
                      (f->is_training ? may_move && sp_augment_merges(what->config)
                                      : what->has_scaled_views),
        .is_displacing = may_move && sp_augment_displaces(what->config),
        .is_mixing = is_mixing(f)};
    const sp_plan_bytes plan = ops->plan_bytes(&what->graph->spec, &load->plan);
    const sp_loader_bytes loader =
        sp_loader_size(&shape, load->plan.n_samples, load->stored,
                       f->is_training ? 0 : load->points + load->context,
                       load->plan.voxels[0], plan.scratch);
    const sp_buffer_bytes net =
        sp_buffer_plan_measure(&f->buffers, &load->plan, f->is_training);

    assert(f->n_slots > 0 && load->plan.n_samples >= 0);
    part[SP_ACTIVATIONS] = (int64_t)(net.matrices + net.vectors);
    part[SP_BATCHES] = f->n_memories * (loader.device + plan.arena);
    if (!ops->is_host) {
        part[SP_SCRATCH] =
            f->is_training ? operations(what, load) : loss_operation(what, load);
        return;
    }
    part[SP_BATCHES] += f->n_slots * loader.slot;
    part[SP_SCRATCH] = loader.scratch + operations(what, load);
    /* predictions as written by the loss, and as counted */
    if (!f->is_training)
        part[SP_SCRATCH] += 2 * 4 * load->plan.voxels[0] + result_bytes(what, load) +
                            probability_bytes(what, load);
}

/* ---- the plan of a sample ---- */

int64_t sp_estimate_partner(const sp_estimated_run *what, const sp_dataset *set,
                            int64_t sample, int64_t epoch)
{
    assert(0 <= sample && sample < set->n_samples);
    if (epoch < 0 || what->config->augment.mix_p == 0)
        return -1;
    return sp_mix_draw_always(what->config, set->has_subvoxel, set->n_samples,
                              (uint64_t)epoch, sample)
        .partner;
}

int64_t sp_estimate_context(const sp_estimated_run *what, const sp_dataset *set,
                            int64_t sample)
{
    return what->config->eval.merge ? sp_dataset_context(set, sample) : 0;
}

sp_status sp_estimate_load(const sp_estimated_run *what, const sp_dataset *set,
                           const sp_planned *of, int64_t room, sp_load *load)
{
    const sp_sample_request request = {.columns = what->columns,
                                       .n_columns = what->n_columns};
    sp_backend host = {.ops = sp_backend_find("cpu")};
    const sp_loader_options options = {
        .set = set,
        .config = what->config,
        .spec = &what->graph->spec,
        .backend = &host,
        .n_columns = what->n_columns,
        .is_training = of->epoch >= 0,
        .range = of->is_in_range ? &what->config->eval.range : NULL};
    sp_sample stored[2] = {{0}, {0}};
    sp_mix mix;
    sp_status rc = sp_sample_read(set, of->sample, &request, &stored[0]);

    *load = (sp_load){.points = sp_dataset_points(set, of->sample)};
    if (rc == SP_OK && of->partner >= 0) {
        mix = sp_mix_draw_always(what->config, set->has_subvoxel, set->n_samples,
                                 (uint64_t)of->epoch, of->sample);
        rc = sp_sample_read(set, of->partner, &request, &stored[1]);
    }
    load->stored = stored[0].n + stored[1].n;
    load->context = sp_estimate_context(what, set, of->sample);
    if (rc == SP_OK)
        rc = sp_single_batch_count(&options, stored, of->partner < 0 ? NULL : &mix,
                                   of->epoch, room, &load->plan);
    load->plan.n_samples = 1; /* also of a sample that was not planned */
    sp_sample_destroy(&stored[0]);
    sp_sample_destroy(&stored[1]);
    return rc;
}
