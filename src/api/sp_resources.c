#include "api/sp_resources.h"
#include "base/sp_list.h"
#include "data/sp_paste.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "checkpoint/sp_replica.h"
#include "h5/sp_h5.h"
#include "predict/sp_merger.h"
#include "weights/sp_packed.h"

void sp_resources_begin(sp_resources *r, const sp_config *config, sp_comm *comm)
{
    assert(config && comm);
    *r = (sp_resources){.config = config, .comm = comm};
    r->resolved.memory_mb = config->run.memory_mb;
    r->resolved.bf16_sums = SP_SUMS_AUTO;
}

sp_config sp_resources_resolved(const sp_resources *r)
{
    sp_config resolved = *r->config;

    resolved.run.memory_mb = r->resolved.memory_mb;
    resolved.train.bf16_sums = r->resolved.bf16_sums;
    return resolved;
}

/* ---- network ---- */

static sp_status upload_floats(sp_backend *backend, float *to, const float *host,
                               int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *host;

    return bytes ? backend->ops->upload(backend, to, host, bytes) : SP_OK;
}

/* Makes initial parameters and statistics: in place if the backend computes on the
 * host, which has no memory to spare for a copy, else on the host first. Parameters that
 * the caller loads are zero until then, padding too: drawing 21 million takes 0.4 s.
 * Local. */
static sp_status init_net(sp_resources *r, uint64_t seed, bool is_loaded)
{
    const sp_graph *graph = &r->graph;
    const int64_t n = graph->n_floats, n_running = graph->n_buffer_floats;
    sp_backend *backend = &r->backend;
    sp_net *net = &r->net;
    float *host = NULL;
    sp_status rc = SP_OK;

    if (backend->ops->is_host) {
        memset(net->param, 0, (size_t)n * sizeof *net->param);
        if (n_running)
            memset(net->running, 0, (size_t)n_running * sizeof *net->running);
        if (!is_loaded)
            sp_graph_init_params(graph, seed, net->param);
        sp_graph_init_buffers(graph, net->running);
    } else {
        SP_TRY(SP_NEW(&host, n + n_running, "the network"));
        if (!is_loaded)
            sp_graph_init_params(graph, seed, host);
        sp_graph_init_buffers(graph, host + n);
        rc = upload_floats(backend, net->param, host, n);
        if (rc == SP_OK)
            rc = upload_floats(backend, net->running, host + n, n_running);
        if (rc == SP_OK)
            rc = backend->ops->wait(backend);
    }
    free(host);
    sp_net_updated(net);
    return rc;
}

static sp_status resources_check_loss(const sp_resources *r)
{
    const sp_config *config = r->config;
    const int n_ranks = r->comm->size;

    if (!sp_net_loss_rule(config).is_joint ||
        (n_ranks == 1 && config->batch.accumulate == 1))
        return SP_OK;
    return SP_FAIL(SP_EUSAGE,
                   "%strain.lovasz_per = \"step\" sorts all voxels of a step: found %d "
                   "rank%s and batch.accumulate = %d, expected one rank and 1; take "
                   "train.lovasz_per = \"sample\"",
                   sp_config_where(config, "train.lovasz_per"), n_ranks,
                   sp_plural(n_ranks), config->batch.accumulate);
}

sp_status sp_resources_check_training(const sp_resources *r)
{
    const sp_config *config = r->config;

    SP_TRY(resources_check_loss(r));
    if (config->train.ema > 0 && config->train.average_tail > 0)
        return SP_FAIL(SP_EUSAGE,
                       "%strain.average_tail = %g and train.ema = %g: expected one of "
                       "the two averages",
                       sp_config_where(config, "train.average_tail"),
                       config->train.average_tail, config->train.ema);
    if (config->run.weights == SP_WEIGHTS_EMA &&
        !sp_optim_states[SP_OPTIM_STATE_EMA].is_kept(config))
        return SP_FAIL(SP_EUSAGE,
                       "%srun.weights = \"ema\" needs averages of the weights, and "
                       "train.ema is 0, expected a share such as 0.999 (or "
                       "train.average_tail)",
                       sp_config_where(config, "run.weights"));
    return SP_OK;
}

static void exchange_pointers(float **a, float **b)
{
    float *was = *a;

    *a = *b;
    *b = was;
}

void sp_resources_exchange_average(sp_resources *r)
{
    float **state = r->optim.state;

    assert(state[SP_OPTIM_STATE_EMA] && state[SP_OPTIM_STATE_EMA_BUFFERS]);
    exchange_pointers(&r->net.param, &state[SP_OPTIM_STATE_EMA]);
    exchange_pointers(&r->net.running, &state[SP_OPTIM_STATE_EMA_BUFFERS]);
    sp_net_updated(&r->net);
}

sp_status sp_resources_open_net(sp_resources *r, const float *class_weight,
                                bool is_loaded)
{
    const sp_config *config = r->config;
    const sp_net_options options = {
        .bn_scope = config->train.bn_scope,
        .transport = r->transport.ops ? &r->transport : NULL,
        .is_exact = config->train.deterministic == SP_DET_WORLD,
        /* A device has enough memory, and is limited by its bandwidth. */
        .is_low_memory = r->backend.ops->is_host,
        .is_inference = sp_estimate_is_inference(config, r->transport.ops),
        .is_recomputed = config->train.recompute,
        .seed = (uint64_t)config->train.seed,
        .class_weight = class_weight,
        .loss = sp_net_loss_rule(config),
    };
    const sp_estimated_run what = sp_resources_estimated_run(r, &r->backend);
    sp_status rc;

    assert(r->backend.ops && r->columns && !r->net.impl);
    rc = sp_graph_build(&r->graph, config, r->n_columns, r->n_classes);
    if (rc == SP_OK)
        rc = sp_estimate_fit(&what, options.transport,
                             (int64_t)(r->resolved.memory_mb * (1 << 20)),
                             &r->weight_bytes);
    if (rc == SP_OK) {
        rc = sp_net_create(&r->net, &r->graph, &r->backend, r->comm, &options);
    }
    if (rc == SP_OK)
        rc = init_net(r, options.seed, is_loaded);
    return sp_comm_agree(r->comm, rc);
}

/* Copies n floats from rank 0's host memory to the backend memory of every rank, which
 * may be the same memory; with to NULL nothing. Collective. */
static sp_status spread_floats(sp_resources *r, float *host, float *to, int64_t n)
{
    if (!to || !n)
        return SP_OK;
    SP_TRY(sp_comm_bcast(r->comm, host, (size_t)n * sizeof *host, 0));
    return host == to ? SP_OK : upload_floats(&r->backend, to, host, n);
}

/* Host memory for the arrays of a checkpoint: the backend's own if it computes on the
 * host and nothing of them is needed after a failure. */
typedef struct host_weights {
    float *param, *running;
    sp_optim at;
} host_weights;

/* Rank 0: reads weights to begin with. Skipped layers get their initial weights again,
 * since the host memory of a device backend does not hold them. */
static sp_status read_init(const sp_resources *r, const char *path, host_weights *w)
{
    const sp_graph *graph = &r->graph;
    const sp_config *config = r->config;

    if (config->run.init_skip.n > 0) {
        sp_graph_init_params(graph, (uint64_t)config->train.seed, w->param);
        sp_graph_init_buffers(graph, w->running);
    }
    return sp_checkpoint_read_init(path, graph, &r->norm, &config->run.init_skip,
                                   w->param, w->running);
}

/* Rank 0. A file with a state was verified when it was chosen, as one that is open was.
 */
static sp_status read_source(sp_resources *r, const sp_weights_source *from,
                             host_weights *w)
{
    const sp_graph *graph = &r->graph;

    if (from->packed) {
        SP_TRY(sp_packed_load(from->packed, graph, w->param, w->running));
    } else if (!from->path) {
        SP_TRY(sp_checkpoint_read_model(from->file, graph, r->config->run.weights,
                                        w->param, w->running));
    } else if (from->state) {
        SP_TRY(sp_checkpoint_read(from->path, graph, w->param, w->running, &w->at,
                                  from->state));
    } else {
        SP_TRY(sp_checkpoint_verify_weights(from->path, SP_INTACT));
        SP_TRY(read_init(r, from->path, w));
    }
    sp_checkpoint_find_fault(graph, w->param, w->running, r->fault);
    return SP_OK;
}

/* Reads the file on rank 0 into w and distributes it to all ranks. Collective. */
static sp_status resources_load(sp_resources *r, const sp_weights_source *from,
                                host_weights *w)
{
    sp_comm *comm = r->comm;
    sp_optim *optim = &r->optim;
    sp_net *net = &r->net;
    const sp_graph *graph = &r->graph;

    SP_TRY(sp_comm_agree(r->comm, comm->rank == 0 ? read_source(r, from, w) : SP_OK));
    SP_TRY(sp_comm_bcast(comm, r->fault, sizeof r->fault, 0));
    if (from->is_all_or_nothing && r->fault[0])
        return SP_FAIL(SP_EDATA, "%s:%s, expected a finite number", from->path,
                       r->fault);
    SP_TRY(spread_floats(r, w->param, net->param, graph->n_floats));
    SP_TRY(spread_floats(r, w->running, net->running, graph->n_buffer_floats));
    if (!from->state)
        return SP_OK;
    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        SP_TRY(spread_floats(r, w->at.state[i], optim->state[i],
                             sp_optim_state_floats(graph, i)));
    SP_TRY(sp_comm_bcast(comm, &w->at.t, sizeof w->at.t, 0));
    SP_TRY(sp_comm_bcast(comm, &w->at.is_averaging, sizeof w->at.is_averaging, 0));
    optim->t = w->at.t;
    optim->is_averaging = w->at.is_averaging;
    return SP_OK;
}

/* *host: to be freed, NULL after a failure. */
static sp_status allocate_host(const sp_graph *graph, host_weights *w, float **host)
{
    const size_t n_running = (size_t)graph->n_buffer_floats,
                 n = graph->n_floats > graph->n_buffer_floats ? (size_t)graph->n_floats
                                                              : n_running;

    SP_TRY(SP_NEW(host, (1 + SP_N_OPTIM_STATES) * n + n_running, "the weights"));
    w->param = *host;
    for (size_t i = 0; i < SP_N_OPTIM_STATES; i++)
        w->at.state[i] = w->at.state[i] ? *host + (1 + i) * n : NULL;
    w->running = *host + (1 + SP_N_OPTIM_STATES) * n;
    return SP_OK;
}

sp_status sp_resources_load(sp_resources *r, const sp_weights_source *from)
{
    sp_checkpoint_state *state = from->state;
    host_weights w = {r->net.param, r->net.running, r->optim};
    float *host = NULL;
    sp_status rc = SP_OK;

    assert(r->net.impl && (!state || r->optim.impl));
    assert(from->path || !(from->file || from->packed) == (r->comm->rank != 0));
    if (!r->backend.ops->is_host || from->is_all_or_nothing)
        rc = allocate_host(&r->graph, &w, &host);
    rc = sp_comm_agree(r->comm, rc);
    if (rc == SP_OK)
        rc = resources_load(r, from, &w);
    if (rc == SP_OK)
        rc = r->backend.ops->wait(&r->backend);
    free(host);
    SP_TRY(rc);
    if (state) { /* state->deck is a pointer and stays on rank 0 */
        char *deck = state->deck;
        SP_TRY(sp_comm_bcast(r->comm, state, sizeof *state, 0));
        state->deck = deck;
    }
    sp_net_updated(&r->net);
    return SP_OK;
}

/* Gives the weights in host memory: *copy is NULL or to be freed by the caller. */
static sp_status fetch_weights(const sp_net *net, float **copy, const float **weights)
{
    size_t bytes = (size_t)net->graph->n_floats * sizeof(float);

    *copy = NULL;
    *weights = net->param;
    if (net->backend->ops->is_host)
        return SP_OK;
    *copy = malloc(bytes + 1);
    if (!*copy)
        return SP_FAIL(SP_EMEM, "copy of the weights: out of memory");
    *weights = *copy;
    return net->backend->ops->download(net->backend, *copy, net->param, bytes);
}

sp_status sp_resources_check_replicas(sp_resources *r, int64_t step)
{
    const float *weights;
    float *copy = NULL;
    sp_status rc;

    assert(r->net.impl);
    rc = sp_comm_agree(r->comm, fetch_weights(&r->net, &copy, &weights));
    if (rc == SP_OK)
        rc = sp_replica_check(r->comm, weights, r->graph.n_floats, step);
    free(copy);
    return rc;
}

/* ---- training and evaluation ---- */

/* Opens the loader of a set, whose sampler is open: of the training without end, or of
 * one pass in the set's own order. Local. */
static sp_status resources_create_loader(sp_resources *r, const sp_dataset *set,
                                         int n_slots, sp_sampler *sampler,
                                         sp_loader **loader)
{
    const bool is_training = set == &r->train;
    const sp_loader_options options = {
        .set = set,
        .config = r->config,
        .spec = &r->graph.spec,
        .backend = &r->backend,
        .sampler = sampler,
        .columns = r->columns,
        .n_columns = r->n_columns,
        .mean = r->norm.mean,
        .std = r->norm.std,
        .vectors = r->vectors,
        .bank = is_training ? r->bank : NULL,
        .is_training = is_training,
        .with_points = !is_training && set->has_points,
        .with_context = !is_training && r->config->eval.merge,
        .view = r->evaluation.views.at,
        .n_views = is_training ? 0 : r->evaluation.views.n,
        .range = r->is_predicting ? NULL : &r->config->eval.range,
        .n_slots = n_slots,
        /* Other models plan on the calling thread, and a backend plans one batch at a
         * time. */
        .is_filled_by_caller =
            (r->backend.ops->is_host && r->comm->cores == 1) || r->members,
    };

    assert(r->net.impl && set->n_shards > 0 && !*loader);
    assert(sampler->set == set);
    return sp_loader_create(loader, &options);
}

/* Opens sampler and loader of a set. Local. */
static sp_status resources_open_loader(sp_resources *r, const sp_dataset *set,
                                       int n_slots, sp_sampler *sampler,
                                       sp_loader **loader)
{
    SP_TRY(sp_sampler_open(sampler, set, r->comm, r->config, set == &r->train));
    return resources_create_loader(r, set, n_slots, sampler, loader);
}

sp_status sp_resources_open_trained_net(sp_resources *r)
{
    float *class_weight = NULL;
    sp_status rc = sp_resources_check_training(r);

    if (rc == SP_OK)
        rc = sp_resources_class_weights(r, &class_weight);
    if (rc == SP_OK)
        rc = sp_resources_open_net(r, class_weight, false);
    free(class_weight);
    SP_TRY(rc);
    return sp_graph_check_tuning(&r->graph, r->config);
}

sp_status sp_resources_open_training(sp_resources *r, int n_slots)
{
    const sp_config *config = r->config;
    sp_status rc;

    assert(r->net.impl && r->transport.ops && !r->buckets.impl && !r->optim.impl);
    rc = sp_buckets_create(&r->buckets, &r->graph, r->comm,
                           config->train.deterministic == SP_DET_WORLD,
                           (size_t)(config->run.bucket_mb * (1 << 20)));
    r->buckets.is_overlapped = config->run.overlap;
    if (rc == SP_OK)
        rc = sp_buckets_attach(&r->buckets, &r->transport);
    if (rc == SP_OK)
        rc = sp_optim_create(&r->optim, &r->graph, config, &r->backend);
    if (rc == SP_OK)
        rc = resources_open_loader(r, &r->train, n_slots, &r->sampler, &r->loader);
    return sp_comm_agree(r->comm, rc);
}

/* Warns if blocks see a point in different cells of the network's strides, since their
 * predictions of it then differ more than necessary. */
static void look_at_blocks(const sp_resources *r, const sp_dataset *set)
{
    const sp_recipe *recipe = set->recipe;
    double factor;
    int64_t need;

    if (!recipe || recipe->block <= 0 ||
        sp_voxel_factor(r->config, set, &factor) != SP_OK)
        return;
    need = sp_graph_stride(&r->graph) * (int64_t)factor;
    if (recipe->alignment == 0 || recipe->alignment % need != 0)
        sp_log_info(
            "eval.merge: the blocks of %s begin at multiples of %lld voxels (0: "
            "anywhere), the network's coarsest stride is %lld: their predictions "
            "agree less than after a conversion by this version",
            set->shard[0].path, (long long)recipe->alignment, (long long)need);
}

static sp_status measure_merging_of(const sp_resources *r, const sp_dataset *set,
                                    int64_t *bytes)
{
    sp_scans scans;
    sp_status rc;

    look_at_blocks(r, set);
    rc = sp_scans_create(&scans, set);
    if (rc == SP_OK)
        *bytes = sp_merger_bytes(&scans, r->n_classes, r->config->batch.eval_size,
                                 r->comm->size);
    sp_scans_destroy(&scans);
    return rc;
}

sp_status sp_resources_measure_merging(sp_resources *r)
{
    if (!r->config->eval.merge)
        return SP_OK;
    SP_TRY(measure_merging_of(r, &r->val, &r->evaluation.merging_bytes));
    for (int i = 0; i < r->n_val_sets; i++)
        SP_TRY(measure_merging_of(r, &r->val_set[i].data,
                                  &r->val_set[i].evaluation.merging_bytes));
    return SP_OK;
}

sp_status sp_resources_open_evaluation(sp_resources *r)
{
    assert(r->net.impl && !r->evaluation.loader);
    SP_TRY(sp_comm_agree(r->comm, sp_resources_measure_merging(r)));
    r->evaluation.set = &r->val;
    r->evaluation.views =
        sp_views_choose(r->config, r->val.has_subvoxel, r->config->eval.views);
    return sp_comm_agree(
        r->comm, resources_open_loader(r, &r->val, sp_loader_slots(r->config),
                                       &r->evaluation.sampler, &r->evaluation.loader));
}

sp_status sp_resources_open_val_sets(sp_resources *r, sp_sampler *first)
{
    sp_sampler *last = first;
    sp_status rc = SP_OK;

    assert(last->set == &r->val && !last->next);
    for (int i = 0; i < r->n_val_sets && rc == SP_OK; i++) {
        sp_val_set *set = &r->val_set[i];
        sp_evaluation *e = &set->evaluation;

        e->set = &set->data;
        e->views =
            sp_views_make(r->config, set->data.has_subvoxel, r->config->eval.views);
        rc = sp_sampler_open(&e->sampler, &set->data, r->comm, r->config, false);
        last->next = &e->sampler;
        last = last->next;
    }
    return sp_comm_agree(r->comm, rc);
}

void sp_resources_exchange_evaluation(sp_resources *r, sp_evaluation *other)
{
    const sp_evaluation was = *other;

    assert(!other->loader && r->evaluation.set && other->set);
    sp_loader_destroy(r->evaluation.loader);
    r->evaluation.loader = NULL;
    *other = r->evaluation;
    r->evaluation = was;
}

sp_status sp_resources_reopen_evaluation(sp_resources *r)
{
    sp_evaluation *e = &r->evaluation;

    if (e->loader)
        return SP_OK;
    return sp_comm_agree(r->comm,
                         resources_create_loader(r, e->set, sp_loader_slots(r->config),
                                                 &e->sampler, &e->loader));
}

static void close_loaders(sp_resources *r)
{
    /* The loaders' threads first, since they read nearly all objects below. */
    sp_loader_destroy(r->loader);
    sp_loader_destroy(r->evaluation.loader);
    r->loader = r->evaluation.loader = NULL;
    sp_budgets_close(&r->budgets);
    sp_sampler_close(&r->sampler);
    sp_sampler_close(&r->evaluation.sampler);
    for (int i = 0; i < r->n_val_sets; i++)
        sp_sampler_close(&r->val_set[i].evaluation.sampler);
}

sp_status sp_resources_turn_to_test(sp_resources *r)
{
    const sp_dataset val = r->val;

    assert(r->test.n_shards > 0);
    close_loaders(r);
    r->val = r->test;
    r->test = val;
    SP_TRY(sp_resources_open_evaluation(r));
    return sp_resources_bound_memory(r);
}

/* ---- end ---- */

void sp_resources_end_work(sp_resources *r)
{
    close_loaders(r);
    sp_optim_destroy(&r->optim);
    sp_buckets_destroy(&r->buckets);
}

void sp_resources_free(sp_resources *r)
{
    sp_net_destroy(&r->net);
    sp_graph_destroy(&r->graph);
    sp_dataset_close(&r->train);
    sp_dataset_close(&r->val);
    sp_dataset_close(&r->test);
    for (int i = 0; i < r->n_val_sets; i++) {
        free(r->val_set[i].name);
        sp_dataset_close(&r->val_set[i].data);
    }
    free(r->val_set);
    sp_bank_close(r->bank);
    free(r->columns);
    sp_normalization_destroy(&r->norm);
    sp_transport_close(&r->transport);
    if (r->backend.ops)
        r->backend.ops->close(&r->backend);
    sp_placement_destroy(&r->placement);
}
