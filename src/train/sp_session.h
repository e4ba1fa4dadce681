/* The common part of all commands of sptrain, and of spbench if it trains.
 *
 *     sp_session      the command line, the ranks, the run folder and its watchers;
 *                     how a command ends
 *       sp_device     the device of this rank, and sums over the ranks
 *       sp_data_sets  the data sets that the deck names
 *       sp_network    columns, classes, network, weights
 *       sp_learner    in a training: gradients, optimizer, loader
 *       sp_evaluator  passes over data.val and data.val_sets
 *
 *     sptrain --command--> sp_session_open, _open_device, _open_data --> the command
 *                          opens the parts that it needs, in this order, and closes
 *                          them: sp_session_report, sp_session_close
 *
 * Setup is collective and agreed: a function returns the same status on all ranks
 * unless it is marked local. Within a step ranks cannot agree, since the others wait in
 * a sum for the rank that fails. Such work is run by sp_session_run_or_abort, which
 * ends all ranks if the work fails. (sp_comm itself calls sp_comm_abort too, when the
 * watchdog ends a wait.)
 */
#ifndef SP_SESSION_H
#define SP_SESSION_H

#include "api/sp_network.h"
#include "run/sp_run.h"

struct sp_watchdog;       /* health/sp_watchdog.h */
struct sp_crash_recorder; /* health/sp_crash_recorder.h */

/* A parsed command line and the objects that it acts on. All pointers are borrowed. */
typedef struct sp_command {
    const char *name;     /* "train", ... */
    const char *deck;     /* path, for messages */
    bool is_default_deck; /* the user named no deck */
    int n_overrides;
    char **overrides; /* [n_overrides] "section.key=value" */
    const sp_config *config;
    sp_comm *comm;
} sp_command;

typedef struct sp_session {
    const sp_command *command;
    /* The command's, or sp_infer's, which has the checkpoint's network. */
    const sp_config *config;
    sp_comm *comm;                      /* the command's */
    sp_run run;                         /* zeroed, or without a folder */
    struct sp_crash_recorder *recorder; /* NULL: no run folder */
    struct sp_watchdog *watchdog;       /* NULL: not started, or run.watchdog_s is 0 */
    /* The sums over ranks that sp_session_run_or_abort abandons; borrowed or NULL. */
    struct sp_transport *transport;
    int64_t epoch, step; /* of the last step, from 1: for status and heartbeat */
} sp_session;

/* Collective: zeroes the session and, with_folder, opens the run folder with its lock,
 * the watchdog and the crash recorder. Without a folder nothing is written.
 * sp_session_close follows in any case. */
sp_status sp_session_open(sp_session *session, const sp_command *command,
                          bool with_folder);
/* Collective: opens the run folder of a session that was opened without it: for
 * commands that check their input before they write anything. */
sp_status sp_session_open_folder(sp_session *session);
/* Collective, agreed: starts the watchdog in a session that has no run folder, so that
 * ranks do not wait for ever for one that hangs. Nothing is written. */
sp_status sp_session_guard(sp_session *session);
/* Collective: opens this rank's log in the run folder if run.rank_logs asks for it. */
sp_status sp_session_open_log(sp_session *session);

/* Local: record the phase, at the session's epoch and step, and how much of it is done,
 * in the run folder (sp_run_beat, sp_run_count). Without a folder they do nothing. */
void sp_session_beat(sp_session *session, sp_phase phase);
void sp_session_count(sp_session *session, int64_t done, int64_t total);
/* Local, at the end of a training step: reports this rank's own work in each phase to
 * the watchdog (sp_watchdog_step), and checks that the crash recorder exists. */
void sp_session_watch(sp_session *session, const double own_s[SP_PHASE_COUNT]);

typedef sp_status sp_session_work(void *arg);
/* Runs work, such as a training step, that may fail on this rank without the other
 * ranks learning of it. Returns only if it has not failed: else this rank reports the
 * failure, unless another rank does, and ends all ranks. Work that fails on all ranks
 * alike is agreed on afterwards. Nothing is closed. */
void sp_session_run_or_abort(sp_session *session, sp_session_work *work, void *arg);

/* Local, the first part of the end: ends the watchdog, and reports a failure that was
 * agreed on (once: the failed rank writes one diagnosis on standard error, and
 * status.json). SP_OK and SP_ELIMIT are not failures. */
void sp_session_report(sp_session *session, sp_status rc);
/* Local, once all parts are closed: closes the run folder and ends the crash
 * recorder. */
void sp_session_close(sp_session *session);

/* ---- parts of a command ---- */

/* Opens the device of this rank (sp_device_open) with the liberties of a program. A
 * transport that is opened on it is abandoned by sp_session_run_or_abort. Collective,
 * agreed. */
sp_status sp_session_open_device(sp_session *session, sp_device *device);
/* Opens the data (sp_data_sets_open), and the network's columns and classes from
 * data.train, or without it from data.val. Makes the sample data first if the deck names
 * them and they do not exist. Collective, agreed. */
sp_status sp_session_open_data(sp_session *session, sp_data_sets *data,
                               sp_network *network, bool with_train, bool with_val);
/* Loads weights (sp_network_load), in the phase SP_PHASE_LOAD. Collective, agreed. */
sp_status sp_session_load(sp_session *session, sp_network *network,
                          const sp_weights_source *from);
/* Local, the end of a command, after the users of other ranks and threads, which are
 * loaders and sums over ranks, have ended: sp_session_report, closes the parts and the
 * session. Returns rc. */
sp_status sp_session_end(sp_session *session, sp_status rc, sp_network *network,
                         sp_data_sets *data, sp_device *device);

#endif
