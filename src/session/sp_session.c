#include "session/sp_session.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "process/sp_fault.h"
#include "process/sp_signal.h"
#include "process/sp_start.h"

enum { FIRST_WORD_S = 5 };

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
    session->settled.memory_mb = command->config->run.memory_mb;
    session->comm = command->comm;
    if (!with_folder) {
        sp_start_over();
        return SP_OK;
    }
    sp_fault_open(session->comm->rank);
    SP_TRY(sp_run_open(&session->run, session->config->run.dir, session->comm));
    session->run.task = strcmp(command->name, "train") == 0 ? "" : command->name;
    SP_TRY(sp_session_open_log(session));
    sp_signal_delay_abort();
    SP_TRY(sp_witness_start(&session->witness, &session->run));
    SP_TRY(sp_watchdog_start(&session->watchdog, &session->run,
                             session->config->run.watchdog_s));
    sp_start_over();
    return SP_OK;
}

sp_config sp_session_resolved(const sp_session *session)
{
    sp_config resolved = *session->config;

    resolved.run.memory_mb = session->settled.memory_mb;
    return resolved;
}

/* ---- network ---- */

/* Makes initial parameters and statistics on the host and uploads them. Local. */
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
        .bn_scope = config->train.bn_scope,
        .transport = session->transport.ops ? &session->transport : NULL,
        .is_exact = config->train.deterministic == SP_DET_WORLD,
        /* A device has enough memory, and is limited by its bandwidth. */
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

/* Copies n floats from rank 0's host memory to the backend memory of every rank; with
 * to NULL nothing. Collective. */
static sp_status spread_floats(sp_session *session, float *host, float *to, int64_t n)
{
    sp_backend *backend = &session->backend;
    size_t bytes = (size_t)n * sizeof *host;

    if (!to || !bytes)
        return SP_OK;
    SP_TRY(sp_comm_bcast(session->comm, host, bytes, 0));
    return backend->ops->upload(backend, to, host, bytes);
}

/* Host memory for the arrays of a checkpoint. */
typedef struct weights {
    float *param, *running;
    sp_optim at;
} weights;

/* Reads the file on rank 0 into w and distributes it to all ranks. Collective. */
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
    for (int i = 0; i < SP_N_KEPT; i++)
        SP_TRY(spread_floats(session, w->at.kept[i], optim->kept[i], graph->n_floats));
    SP_TRY(sp_comm_bcast(comm, &w->at.t, sizeof w->at.t, 0));
    optim->t = w->at.t;
    return SP_OK;
}

sp_status sp_session_load(sp_session *session, const char *path, sp_optim *optim,
                          sp_checkpoint_state *state)
{
    size_t n = (size_t)session->graph.n_floats;
    size_t n_running = (size_t)session->graph.n_buffer_floats;
    float *host = calloc((1 + SP_N_KEPT) * n + n_running + 1, sizeof *host);
    weights w = {.param = host, .running = host + (1 + SP_N_KEPT) * n};
    sp_status rc = host ? SP_OK : SP_FAIL(SP_EMEM, "weights: out of memory");

    sp_run_beat(&session->run, SP_PHASE_LOAD, session->epoch, session->step);
    rc = sp_session_agree(session, rc);
    if (rc == SP_OK) {
        w.at = optim ? *optim : (sp_optim){0};
        for (int i = 0; i < SP_N_KEPT; i++)
            w.at.kept[i] = w.at.kept[i] ? host + (1 + (size_t)i) * n : NULL;
        rc = load(session, path, &w, optim, state);
    }
    if (rc == SP_OK)
        rc = session->backend.ops->wait(&session->backend);
    free(host);
    SP_TRY(rc);
    if (state) { /* state->deck is a pointer and stays on rank 0 */
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

/* This rank has failed and the others do not know. Where another rank failed too and
 * claimed the diagnosis first, that rank is about to end this process as well; this one
 * waits, so that the first report and status stand. */
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
