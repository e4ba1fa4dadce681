#include "train/sp_session.h"

#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "process/sp_fault.h"
#include "process/sp_signal.h"
#include "scan/sp_scene.h"

enum { FIRST_WORD_S = 5 };

/* What the default deck names and the program makes. */
#define SAMPLE_DATA "input/sample"

sp_status sp_session_agree(sp_session *session, sp_status rc)
{
    int who = 0;

    rc = sp_comm_agree(session->comm, rc, &who);
    if (rc != SP_OK)
        session->failed_rank = who;
    return rc;
}

sp_status sp_session_open_log(sp_session *session)
{
    const sp_comm *comm = session->comm;
    char path[PATH_MAX];
    sp_status rc;

    if (!session->config->run.rank_logs)
        return SP_OK;
    snprintf(path, sizeof path, "%s/logs/rank-%05d.log", session->run.dir, comm->rank);
    rc = sp_file_make_folder_of(path);
    if (rc == SP_OK)
        rc = sp_log_open(comm->rank, comm->size, comm->host, comm->local_rank, path);
    return sp_session_agree(session, rc);
}

sp_status sp_session_open(sp_session *session, const sp_command *command,
                          bool with_folder)
{
    memset(session, 0, sizeof *session);
    session->command = command;
    session->config = command->config;
    session->comm = command->comm;
    if (!with_folder)
        return SP_OK;
    sp_fault_open(session->comm->rank);
    SP_TRY(sp_run_open(&session->run, session->config->run.dir, session->comm));
    session->run.task = strcmp(command->name, "train") == 0 ? "" : command->name;
    SP_TRY(sp_session_open_log(session));
    sp_signal_delay_abort();
    SP_TRY(sp_witness_start(&session->witness, &session->run));
    return sp_watchdog_start(&session->watchdog, &session->run,
                             session->config->run.watchdog_s);
}

/* ---- data ---- */

static bool glob_finds(const char *pattern)
{
    glob_t found;
    bool is_found = glob(pattern, 0, NULL, &found) == 0;

    globfree(&found);
    return is_found;
}

/* The deck names the sample data, none of which exists yet: make it. */
static sp_status make_sample_data(sp_session *session)
{
    const sp_strings *train = &session->config->data.train;
    const sp_strings *val = &session->config->data.val;
    bool is_sample = train->n == 1 && val->n == 1 &&
                     strcmp(train->at[0], SAMPLE_DATA "/train-*.h5") == 0 &&
                     strcmp(val->at[0], SAMPLE_DATA "/val-*.h5") == 0;
    sp_status rc = SP_OK;

    if (!is_sample)
        return SP_OK;
    if (session->comm->rank == 0 &&
        !(glob_finds(train->at[0]) && glob_finds(val->at[0]))) {
        sp_log_info("making sample data in " SAMPLE_DATA
                    " (synthetic scenes, as spvox scene makes them)");
        rc = sp_scene_make_sample_data(SAMPLE_DATA "/train", SAMPLE_DATA "/val");
    }
    return sp_session_agree(session, rc);
}

static sp_status check_voxel_size(const sp_session *session, const sp_dataset *set)
{
    double want = session->config->data.voxel_size, ratio = want / set->voxel_size;

    /* The same to 1e-6, or a multiple; coordinates have 20 bits, so that beyond them all
     * would be one voxel. */
    if (ratio < 1 - 1e-6 || ratio > 1 << 20 ||
        fabs(ratio - round(ratio)) > 1e-6 * ratio)
        return SP_FAIL(
            SP_EDATA,
            "%s%s: voxel_size %g, data.voxel_size = %g: expected the same or a "
            "multiple up to 1048576 times it",
            sp_config_where(session->config, "data.voxel_size"), set->shard[0].path,
            set->voxel_size, want);
    return SP_OK;
}

static sp_status open_columns(sp_session *session, const sp_dataset *set)
{
    SP_TRY(check_voxel_size(session, set));
    SP_TRY(sp_dataset_columns(set, &session->config->data.features,
                              sp_config_where(session->config, "data.features"),
                              &session->columns, &session->n_columns));
    session->n_classes = set->n_classes;
    session->class_name = set->class_name;
    return SP_OK;
}

sp_status sp_session_open_data(sp_session *session, bool with_train, bool with_val)
{
    const sp_config *config = session->config;

    if (with_train && config->data.train.n == 0)
        return SP_FAIL(SP_EUSAGE, "data.train is empty: name the training shards");
    if (with_val && !with_train && config->data.val.n == 0)
        return SP_FAIL(SP_EUSAGE, "data.val is empty: name the shards to evaluate");
    SP_TRY(make_sample_data(session));
    if (with_train)
        SP_TRY(sp_dataset_open(&session->train, &config->data.train, session->comm));
    if (with_val && config->data.val.n > 0)
        SP_TRY(sp_dataset_open(&session->val, &config->data.val, session->comm));
    if (with_train && session->val.n_shards)
        SP_TRY(sp_dataset_match(&session->train, &session->val));
    SP_TRY(open_columns(session, with_train ? &session->train : &session->val));
    return session->val.n_shards ? check_voxel_size(session, &session->val) : SP_OK;
}

static sp_status take_names(sp_session *session, const sp_dataset *set)
{
    sp_normalization *norm = &session->norm;
    int i;

    norm->name = calloc((size_t)session->n_columns, sizeof *norm->name);
    for (i = 0; norm->name && i < session->n_columns; i++, norm->n_names++)
        if (!(norm->name[i] = strdup(set->feature_name[session->columns[i]])))
            break;
    return norm->name && i == session->n_columns ? SP_OK
                                                 : SP_FAIL(SP_EMEM, "out of memory");
}

/* ["a", "b"], cut where the text is full. */
static void print_names(char *text, size_t size, int n, char *const *name,
                        const int *columns)
{
    size_t used = (size_t)snprintf(text, size, "[");
    int i;

    for (i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", i ? ", " : "",
                                 name[columns ? columns[i] : i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

sp_status sp_session_match_columns(const sp_session *session, const sp_dataset *set,
                                   const sp_normalization *checkpoint, const char *path,
                                   sp_status code)
{
    const int n = session->n_columns;
    char want[300], found[300];
    bool is_same = checkpoint->n_names == n || checkpoint->n_names == 0;
    int i;

    for (i = 0; is_same && i < checkpoint->n_names; i++)
        is_same =
            strcmp(checkpoint->name[i], set->feature_name[session->columns[i]]) == 0;
    if (is_same)
        return SP_OK;
    print_names(want, sizeof want, checkpoint->n_names, checkpoint->name, NULL);
    print_names(found, sizeof found, n, set->feature_name, session->columns);
    return SP_FAIL(code,
                   "%s: feature columns: checkpoint %s, %s %s; name them by "
                   "data.features in the checkpoint's order",
                   path, want, set->shard[0].path, found);
}

sp_status sp_session_normalize(sp_session *session, const sp_dataset *set)
{
    sp_normalization *norm = &session->norm;
    int i;

    SP_TRY(take_names(session, set));
    if (!session->config->data.normalize || !set->feature_mean || !set->feature_std)
        return SP_OK;
    norm->mean = calloc((size_t)session->n_columns, sizeof *norm->mean);
    norm->std = calloc((size_t)session->n_columns, sizeof *norm->std);
    if (!norm->mean || !norm->std)
        return SP_FAIL(SP_EMEM, "out of memory");
    norm->n = session->n_columns;
    for (i = 0; i < norm->n; i++) {
        double std = set->feature_std[session->columns[i]];
        norm->mean[i] = set->feature_mean[session->columns[i]];
        norm->std[i] = std > 0 ? std : 1; /* a constant column becomes 0 */
    }
    return SP_OK;
}

/* Labels of this rank's share of the training set. A sample that data.on_error = "skip"
 * leaves out is named when the loader meets it. */
static sp_status count_labels(sp_session *session, int64_t *count)
{
    const sp_sample_request request = {.verify = false};
    const bool is_skipping = strcmp(session->config->data.on_error, "skip") == 0;
    sp_sample sample = {0};
    sp_status rc = SP_OK;
    int64_t i, j;

    for (i = session->comm->rank; i < session->train.n_samples && rc == SP_OK;
         i += session->comm->size) {
        rc = sp_sample_read(&session->train, i, &request, &sample);
        for (j = 0; rc == SP_OK && j < sample.n; j++)
            if (sample.labels[j] != SP_IGNORE)
                count[sample.labels[j]]++;
        if (is_skipping && rc != SP_EMEM)
            rc = SP_OK;
    }
    sp_sample_destroy(&sample);
    return rc;
}

/* inverse: n / (classes present * n_c), so that the mean weight of a voxel is 1. */
static void weights_of_counts(const int64_t *count, int n, bool is_sqrt, float *weights)
{
    double total = 0, present = 0;
    int c;

    for (c = 0; c < n; c++) {
        total += (double)count[c];
        present += count[c] > 0;
    }
    for (c = 0; c < n; c++) {
        double w = count[c] ? total / (present * (double)count[c]) : 0;
        weights[c] = (float)(is_sqrt ? sqrt(w) : w);
    }
}

static sp_status weights_of_list(const sp_session *session, float *weights)
{
    const sp_doubles *list = &session->config->train.class_weight_list;
    int c;

    if (list->n != session->n_classes)
        return SP_FAIL(SP_EDATA,
                       "%strain.class_weights has %d numbers, the data %d classes",
                       sp_config_where(session->config, "train.class_weights"), list->n,
                       session->n_classes);
    for (c = 0; c < list->n; c++)
        weights[c] = (float)list->at[c];
    return SP_OK;
}

/* Kept in norm, which checkpoints hold. */
static sp_status keep_weights(sp_session *session, const float *weights)
{
    sp_normalization *norm = &session->norm;
    int c;

    norm->class_weight = calloc((size_t)session->n_classes, sizeof *norm->class_weight);
    if (!norm->class_weight)
        return SP_FAIL(SP_EMEM, "out of memory");
    norm->n_classes = session->n_classes;
    for (c = 0; c < norm->n_classes; c++)
        norm->class_weight[c] = (double)weights[c];
    return SP_OK;
}

sp_status sp_session_class_weights(sp_session *session, float **weights)
{
    int kind = session->config->train.class_weights;
    size_t n = (size_t)session->n_classes;
    int64_t *count;
    sp_status rc;

    *weights = NULL;
    if (kind == SP_CW_NONE)
        return SP_OK;
    *weights = calloc(n, sizeof **weights);
    count = calloc(n, sizeof *count);
    if (!*weights || !count) {
        rc = SP_FAIL(SP_EMEM, "out of memory");
    } else if (kind == SP_CW_LIST) {
        rc = weights_of_list(session, *weights);
    } else {
        rc = sp_session_agree(session, count_labels(session, count));
        if (rc == SP_OK)
            rc = sp_comm_allreduce(session->comm, SP_SCOPE_WORLD, count, n, SP_I64,
                                   SP_SUM);
        if (rc == SP_OK)
            weights_of_counts(count, (int)n, kind == SP_CW_SQRT_INVERSE, *weights);
    }
    free(count);
    SP_TRY(rc);
    return keep_weights(session, *weights);
}

sp_status sp_session_kept_class_weights(sp_session *session, bool is_named,
                                        float **weights)
{
    const sp_normalization *norm = &session->norm;
    const int kind = session->config->train.class_weights;
    size_t n = (size_t)session->n_classes;
    int c;

    *weights = NULL;
    if (is_named ? kind == SP_CW_NONE : norm->n_classes == 0)
        return SP_OK;
    *weights = calloc(n, sizeof **weights);
    if (!*weights)
        return SP_FAIL(SP_EMEM, "out of memory");
    if (is_named && kind == SP_CW_LIST)
        return weights_of_list(session, *weights);
    if (norm->n_classes != session->n_classes)
        return SP_FAIL(SP_EDATA,
                       "train.class_weights: the checkpoint has weights of %d classes, "
                       "the data %d classes",
                       norm->n_classes, session->n_classes);
    for (c = 0; c < norm->n_classes; c++)
        (*weights)[c] = (float)norm->class_weight[c];
    return SP_OK;
}

/* ---- network ---- */

/* Parameters and statistics, made on the host, to the backend. Local. */
static sp_status init_net(sp_session *session, uint64_t seed)
{
    sp_backend *backend = &session->backend;
    size_t n = (size_t)session->graph.n_floats;
    size_t n_running = (size_t)session->graph.n_buffer_floats;
    float *host = calloc(n + n_running + 1, sizeof *host);
    sp_status rc;

    if (!host)
        return SP_FAIL(SP_EMEM, "network: out of memory");
    sp_graph_init_params(&session->graph, seed, host);
    sp_graph_init_buffers(&session->graph, host + n);
    rc = backend->ops->upload(backend, session->net.param, host, n * sizeof *host);
    if (rc == SP_OK)
        rc = backend->ops->upload(backend, session->net.running, host + n,
                                  n_running * sizeof *host);
    if (rc == SP_OK)
        rc = backend->ops->wait(backend);
    free(host);
    sp_net_updated(&session->net);
    return rc;
}

sp_status sp_session_open_net(sp_session *session, const float *class_weight)
{
    const sp_config *config = session->config;
    const sp_net_options options = {
        .bn_scope = (sp_scope)config->train.bn_scope,
        .transport = session->transport.ops ? &session->transport : NULL,
        .is_exact = config->train.deterministic == SP_DET_WORLD,
        /* A device has the memory, and memory's bandwidth is what limits it. */
        .is_frugal = session->backend.ops->is_host,
        .seed = (uint64_t)config->train.seed,
        .class_weight = class_weight,
        .label_smoothing = (float)config->train.label_smoothing,
    };
    sp_status rc;

    rc =
        sp_graph_build(&session->graph, config, session->n_columns, session->n_classes);
    if (rc == SP_OK) {
        rc = sp_net_create(&session->net, &session->graph, &session->backend,
                           session->comm, &options);
        session->has_net = true;
    }
    if (rc == SP_OK)
        rc = init_net(session, options.seed);
    return sp_session_agree(session, rc);
}

/* From rank 0's host memory to the backend's of every rank. to NULL: nothing. */
static sp_status spread_floats(sp_session *session, float *host, float *to, int64_t n)
{
    sp_backend *backend = &session->backend;
    size_t bytes = (size_t)n * sizeof *host;

    if (!to || !bytes)
        return SP_OK;
    SP_TRY(sp_comm_bcast(session->comm, host, bytes, 0));
    return backend->ops->upload(backend, to, host, bytes);
}

/* Host memory for what a checkpoint holds. */
typedef struct weights {
    float *param, *running;
    sp_optim at; /* its moments */
} weights;

/* Reads on rank 0 into w; all ranks get it. */
static sp_status load(sp_session *session, const char *path, weights *w,
                      sp_optim *optim, sp_checkpoint_state *state)
{
    sp_comm *comm = session->comm;
    sp_net *net = &session->net;
    const sp_graph *graph = &session->graph;
    sp_status rc = SP_OK;

    if (comm->rank == 0) {
        if (!state) /* else it was verified when it was chosen */
            rc = sp_checkpoint_verify_weights(path);
        if (rc == SP_OK)
            rc = sp_checkpoint_read(path, graph, w->param, w->running,
                                    optim ? &w->at : NULL);
        if (rc == SP_OK && state)
            rc = sp_checkpoint_read_state(path, state, NULL);
    }
    SP_TRY(sp_session_agree(session, rc));
    SP_TRY(spread_floats(session, w->param, net->param, graph->n_floats));
    SP_TRY(spread_floats(session, w->running, net->running, graph->n_buffer_floats));
    if (!optim)
        return SP_OK;
    SP_TRY(spread_floats(session, w->at.m, optim->m, graph->n_floats));
    SP_TRY(spread_floats(session, w->at.v, optim->v, graph->n_floats));
    SP_TRY(sp_comm_bcast(comm, &w->at.t, sizeof w->at.t, 0));
    optim->t = w->at.t;
    return SP_OK;
}

sp_status sp_session_load(sp_session *session, const char *path, sp_optim *optim,
                          sp_checkpoint_state *state)
{
    size_t n = (size_t)session->graph.n_floats;
    size_t n_running = (size_t)session->graph.n_buffer_floats;
    float *host = calloc(3 * n + n_running + 1, sizeof *host);
    weights w = {.param = host, .running = host + 3 * n};
    sp_status rc = host ? SP_OK : SP_FAIL(SP_EMEM, "weights: out of memory");

    sp_run_beat(&session->run, SP_PHASE_LOAD, session->epoch, session->step);
    rc = sp_session_agree(session, rc);
    if (rc == SP_OK) {
        w.at = optim ? *optim : (sp_optim){0};
        w.at.m = w.at.m ? host + n : NULL;
        w.at.v = w.at.v ? host + 2 * n : NULL;
        rc = load(session, path, &w, optim, state);
    }
    if (rc == SP_OK)
        rc = session->backend.ops->wait(&session->backend);
    free(host);
    SP_TRY(rc);
    if (state) { /* the deck stays on rank 0 */
        char *deck = state->deck;
        SP_TRY(sp_comm_bcast(session->comm, state, sizeof *state, 0));
        state->deck = deck;
    }
    sp_net_updated(&session->net);
    return SP_OK;
}

/* ---- end ---- */

static void report(sp_session *session, sp_status rc)
{
    const sp_error_record *error = sp_error_last();

    sp_log_error(error);
    sp_run_status(&session->run, "failed", rc, session->epoch, session->step,
                  error->message);
}

/* This rank has failed and the others do not know it. One that failed too, and said so
 * first, is about to end this process as well: its word, its status. */
static void leave_alone(sp_session *session, sp_status rc)
{
    const struct timespec patience = {FIRST_WORD_S, 0};

    if (sp_run_claim_diagnosis(session->run.dir))
        report(session, rc);
    else
        nanosleep(&patience, NULL);
    sp_transport_abandon(&session->transport);
    sp_comm_abort(session->comm, rc);
}

sp_status sp_session_close(sp_session *session, sp_status rc)
{
    sp_watchdog_stop(session->watchdog, rc);
    if (rc != SP_OK && rc != SP_ELIMIT) {
        if (session->is_alone)
            leave_alone(session, rc);
        if (session->comm->rank == session->failed_rank)
            report(session, rc);
    }
    if (session->has_net)
        sp_net_destroy(&session->net);
    sp_cut_close(&session->cut);
    sp_graph_destroy(&session->graph);
    sp_dataset_close(&session->train);
    sp_dataset_close(&session->val);
    free(session->columns);
    sp_normalization_destroy(&session->norm);
    sp_transport_close(&session->transport);
    if (session->backend.ops)
        session->backend.ops->close(&session->backend);
    sp_mapping_destroy(&session->mapping);
    sp_run_close(&session->run);
    sp_witness_end(&session->witness);
    return rc;
}
