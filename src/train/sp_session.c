#include "train/sp_session.h"

#include <assert.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "compute/sp_transport.h"
#include "h5/sp_h5.h"
#include "health/sp_crash_recorder.h"
#include "health/sp_start.h"
#include "health/sp_watchdog.h"
#include "report/sp_live.h"
#include "scan/scene/sp_scene.h"
#include "train/sp_wgmma_probe.h"

enum { FIRST_WORD_S = 5 };

sp_status sp_session_open_log(sp_session *session)
{
    const sp_comm *comm = session->comm;
    const char *dir = session->config->run.log_dir;
    char path[PATH_MAX];
    sp_status rc;

    assert(session->run.dir[0] && "the run folder is open");
    if (!session->config->run.rank_logs && !dir[0])
        return SP_OK;
    if (dir[0])
        snprintf(path, sizeof path, "%s/rank-%05d.log", dir, comm->rank);
    else
        snprintf(path, sizeof path, "%s/logs/rank-%05d.log", session->run.dir,
                 comm->rank);
    rc = sp_file_make_folder_of(path);
    if (rc == SP_OK)
        rc = sp_log_open(comm->rank, comm->size, comm->host, comm->local_rank, path);
    return sp_comm_agree(session->comm, rc);
}

sp_status sp_session_open(sp_session *session, const sp_command *command,
                          bool with_folder)
{
    assert(command->config && command->comm);
    memset(session, 0, sizeof *session);
    session->command = command;
    session->config = command->config;
    session->comm = command->comm;
    sp_h5_keep_child(true);
    if (with_folder)
        return sp_session_open_folder(session);
    sp_start_together(command->comm->rank);
    return SP_OK;
}

sp_status sp_session_open_folder(sp_session *session)
{
    const char *task = session->command->name;

    assert(!session->watchdog);
    SP_TRY(sp_live_open(session->config->run.progress, session->comm));
    sp_fault_open(session->comm->rank);
    SP_TRY(sp_run_open(&session->run, session->config->run.dir, session->comm));
    session->run.task = strcmp(task, "train") == 0 ? "" : task;
    SP_TRY(sp_session_open_log(session));
    sp_signal_delay_abort();
    SP_TRY(sp_crash_recorder_start(&session->recorder, &session->run));
    SP_TRY(sp_watchdog_start(&session->watchdog, &session->run,
                             session->config->run.watchdog_s,
                             session->config->run.file_wait_s));
    sp_start_over();
    return SP_OK;
}

sp_status sp_session_guard(sp_session *session)
{
    assert(!session->run.beat && !session->watchdog);
    SP_TRY(sp_run_open(&session->run, "", session->comm));
    return sp_watchdog_start(&session->watchdog, &session->run,
                             session->config->run.watchdog_s,
                             session->config->run.file_wait_s);
}

void sp_session_beat(sp_session *session, sp_phase phase)
{
    assert(phase < SP_PHASE_COUNT);
    if (session->run.beat)
        sp_run_beat(&session->run, phase, session->epoch, session->step);
}

void sp_session_count(sp_session *session, int64_t done, int64_t total)
{
    assert(0 <= done && done <= total);
    if (session->run.beat)
        sp_run_count(&session->run, done, total);
}

void sp_session_watch(sp_session *session, const double own_s[SP_PHASE_COUNT])
{
    sp_watchdog_step(session->watchdog, own_s);
    sp_crash_recorder_check(session->recorder);
}

/* ---- end ---- */

static void session_print(sp_session *session, sp_status rc)
{
    const sp_error_record *error = sp_error_last();

    sp_log_error(error);
    sp_run_status(&session->run, "failed", rc, session->epoch, session->step,
                  error->message);
}

/* Ends all ranks: this one has failed and the others do not know. If another rank
 * failed too and claimed the diagnosis first, that rank is about to end this process as
 * well; this one waits, so that the first report and status are kept. */
static void leave_alone(sp_session *session, sp_status rc)
{
    sp_watchdog_stop(session->watchdog, rc);
    if (!sp_run_is_ours(&session->run) || sp_run_claim_diagnosis(session->run.dir))
        session_print(session, rc);
    else
        sp_sleep_s(FIRST_WORD_S);
    if (session->transport && session->transport->ops)
        sp_transport_abandon(session->transport);
    sp_comm_abort(session->comm, rc);
}

void sp_session_run_or_abort(sp_session *session, sp_session_work *work, void *arg)
{
    const sp_status rc = work(arg);

    assert(rc != SP_ELIMIT && "a stop is agreed on");
    if (rc != SP_OK)
        leave_alone(session, rc);
}

void sp_session_report(sp_session *session, sp_status rc)
{
    sp_h5_keep_child(false);
    sp_watchdog_stop(session->watchdog, rc);
    session->watchdog = NULL;
    if (rc != SP_OK && rc != SP_ELIMIT &&
        session->comm->rank == session->comm->failed_rank)
        session_print(session, rc);
}

void sp_session_close(sp_session *session)
{
    assert(!session->watchdog && "sp_session_report comes first");
    sp_run_close(&session->run);
    sp_crash_recorder_end(session->recorder);
    session->recorder = NULL;
}

/* ---- parts of a command ---- */

/* The folder that the default deck names and that the program fills itself. */
#define SAMPLE_DATA "input/sample"

static bool glob_finds(const char *pattern)
{
    glob_t found;
    bool is_found = glob(pattern, 0, NULL, &found) == 0;

    globfree(&found);
    return is_found;
}

static bool session_has_data(const sp_config *config)
{
    return glob_finds(config->data.train.at[0]) && glob_finds(config->data.val.at[0]);
}

/* Several first starts in one folder, such as those of an array of jobs, wait for the
 * one that makes the data. */
static sp_status make_missing_data(const sp_config *config)
{
    static const char set[] = SAMPLE_DATA "/all";
    sp_status rc = SP_OK;
    int lock = -1;

    SP_TRY(sp_file_make_folder_of(set));
    SP_TRY(sp_shards_lock(set, &lock));
    if (!session_has_data(config)) {
        sp_log_info("making sample data in " SAMPLE_DATA
                    " (synthetic scenes, as spvox scene makes them)");
        rc = sp_scene_make_sample_data(SAMPLE_DATA "/train", SAMPLE_DATA "/val");
    }
    sp_shards_unlock(set, &lock);
    return rc;
}

/* Makes the sample data if the deck names them and they do not exist. */
static sp_status make_sample_data(const sp_session *s)
{
    const sp_strings *train = &s->config->data.train;
    const sp_strings *val = &s->config->data.val;
    bool is_sample = train->n == 1 && val->n == 1 &&
                     strcmp(train->at[0], SAMPLE_DATA "/train-*.h5") == 0 &&
                     strcmp(val->at[0], SAMPLE_DATA "/val-*.h5") == 0;
    sp_status rc = SP_OK;

    if (!is_sample)
        return SP_OK;
    if (s->comm->rank == 0 && !session_has_data(s->config))
        rc = make_missing_data(s->config);
    return sp_comm_agree(s->comm, rc);
}

sp_status sp_session_open_device(sp_session *s, sp_device *device)
{
    const sp_liberties may = {.binds = true, .try_wgmma = sp_wgmma_probe};

    sp_device_begin(device, s->config, s->comm);
    s->transport = &device->transport;
    return sp_device_open(device, &may);
}

sp_status sp_session_open_data(sp_session *s, sp_data_sets *data, sp_network *network,
                               bool with_train, bool with_val)
{
    SP_TRY(make_sample_data(s));
    SP_TRY(sp_data_sets_open(data, s->config, s->comm, with_train, with_val));
    return sp_network_use_columns(network, s->config,
                                  with_train ? &data->train : &data->val);
}

sp_status sp_session_load(sp_session *s, sp_network *network,
                          const sp_weights_source *from)
{
    sp_session_beat(s, SP_PHASE_LOAD);
    return sp_network_load(network, s->config, from);
}

sp_status sp_session_end(sp_session *s, sp_status rc, sp_network *network,
                         sp_data_sets *data, sp_device *device)
{
    sp_session_report(s, rc);
    sp_network_close(network);
    sp_data_sets_close(data);
    sp_device_close(device);
    sp_session_close(s);
    return rc;
}
