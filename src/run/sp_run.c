#include "run/sp_run_internal.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_child.h"
#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_json.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "checkpoint/sp_checkpoint.h"
#include "run/sp_events.h"
#include "run/sp_lock.h"

#define AFTER_SAVE_LIMIT_S    60.0
#define PATIENCE_OF_FAILURE_S 5.0
enum { PATIENT_COMMANDS = 65 }; /* as many may take all of their time at the end */

/* Files, then folders, that a run writes and sp_run_set_aside moves. */
static const char *const run_files[] = {"status.json",
                                        "status-eval.json",
                                        "status-predict.json",
                                        "status-label.json",
                                        "status-calibrate.json",
                                        "heartbeat.bin",
                                        "metrics.jsonl",
                                        "evaluations.jsonl",
                                        "deck.resolved",
                                        "report.html",
                                        "report.csv",
                                        "after_save.log",
                                        "checkpoints",
                                        "predictions",
                                        "pictures",
                                        "logs",
                                        "tensorboard"};
enum { N_RUN_FILES = sizeof run_files / sizeof *run_files, N_PLAIN_FILES = 12 };

bool sp_run_is_owner(const sp_run *run)
{
    return run->dir && run->dir[0] && run->comm->rank == 0;
}

bool sp_run_is_ours(const sp_run *run)
{
    return !run->impl || sp_lock_is_held(run->dir, run->impl->lock);
}

sp_status sp_run_check_ours(const sp_run *run)
{
    if (sp_run_is_ours(run))
        return SP_OK;
    return SP_FAIL(SP_EIO,
                   "%s/lock: deleted or replaced while this run used the folder, which "
                   "may be another run's by now: nothing more is written there",
                   run->dir);
}

/* ---- open, set aside, close ---- */

/* Opens this rank's record in the file. If the folder is not shared between nodes the
 * record stays in memory: less is known after an accident, but the run goes on. */
static void open_heartbeat(sp_run *run)
{
    struct sp_run_impl *impl = run->impl;
    char path[PATH_MAX];

    run->beat = &impl->own;
    run->beats = &impl->beats;
    if (run->dir[0]) {
        sp_file_in(run->dir, "heartbeat.bin", path);
        if (sp_heartbeat_open(&impl->beats, path, run->comm->size) != SP_OK &&
            run->comm->local_rank == 0)
            sp_log_warn("%s; the ranks of this node write no heartbeats",
                        sp_error_last()->message);
    }
    memcpy(run->beat->host, run->comm->host, sizeof run->beat->host);
    run->beat->pid = getpid();
    sp_run_beat(run, SP_PHASE_START, 0, 0);
}

static sp_status run_check_entry(const char *dir, const char *name, bool is_folder)
{
    char path[PATH_MAX];
    struct stat st;

    if (lstat(sp_file_in(dir, name, path), &st) != 0 ||
        (is_folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)))
        return SP_OK;
    return SP_FAIL(SP_EIO, "%s: %s, expected a %s%s", path,
                   S_ISLNK(st.st_mode)   ? "a symbolic link"
                   : S_ISDIR(st.st_mode) ? "a folder"
                   : S_ISREG(st.st_mode) ? "a file"
                                         : "a device, pipe or socket",
                   is_folder ? "folder" : "regular file",
                   S_ISLNK(st.st_mode)
                       ? "; the run folder itself may be a link, what is in it may not"
                       : "");
}

/* Refuses links in place of the run's files. A run would overwrite, append to or delete
 * the file that a link leads to, so a user with write access to the folder could reach
 * every file that the run's user may write. */
static sp_status check_entries(const char *dir)
{
    for (int i = 0; i < N_RUN_FILES; i++)
        SP_TRY(run_check_entry(dir, run_files[i], i >= N_PLAIN_FILES));
    SP_TRY(run_check_entry(dir, "lock", false));
    return run_check_entry(dir, ".diagnosed", false);
}

/* Warns if other users may write. A umask of 000 shows in the mode of the lock file,
 * which this process has just made. */
static void run_warn_of_others(const char *dir, int lock)
{
    struct stat folder, file;

    if (stat(dir, &folder) != 0 || fstat(lock, &file) != 0)
        return;
    if (folder.st_mode & S_IWOTH)
        sp_log_warn0("%s: every user of this machine may write in the run folder "
                     "(mode %03o): chmod o-w, and set a umask such as 022",
                     dir, (unsigned)folder.st_mode & 0777);
    else if (file.st_mode & S_IWOTH)
        sp_log_warn0("%s: every user of this machine may write to the run's files "
                     "(mode %03o): set a umask such as 022",
                     dir, (unsigned)file.st_mode & 0777);
}

/* True for names like "status.json.tmp-0": sp_file_replace was killed before it renamed
 * the file. */
static bool is_temporary(const char *name)
{
    for (int i = 0; i < N_PLAIN_FILES; i++) {
        size_t n = strlen(run_files[i]), m = strlen(SP_FILE_TEMPORARY);

        if (strncmp(name, run_files[i], n) == 0 &&
            strncmp(name + n, SP_FILE_TEMPORARY, m) == 0 && name[n + m] &&
            !name[n + m + strspn(name + n + m, "0123456789")])
            return true;
    }
    return false;
}

static bool is_temporary_prediction(const char *name)
{
    return sp_file_ends_in(name, ".h5" SP_FILE_UNFINISHED);
}

static bool is_temporary_picture(const char *name)
{
    return strstr(name, ".png" SP_FILE_TEMPORARY) ||
           strstr(name, ".json" SP_FILE_TEMPORARY);
}

/* Rank 0, which holds the lock, so that no other process writes here. */
static sp_status remove_leftovers(const char *dir)
{
    char path[PATH_MAX];

    SP_TRY(sp_file_remove_if(dir, is_temporary));
    SP_TRY(sp_file_remove_if(sp_file_in(dir, "pictures", path), is_temporary_picture));
    SP_TRY(sp_file_remove_if(sp_file_in(dir, "predictions", path),
                             is_temporary_prediction));
    return sp_checkpoint_remove_unfinished(sp_file_in(dir, "checkpoints", path));
}

static bool is_root(const char *dir)
{
    struct stat st, root;

    return stat(dir, &st) == 0 && stat("/", &root) == 0 && st.st_dev == root.st_dev &&
           st.st_ino == root.st_ino;
}

/* Rank 0: creates and locks the folder, removes leftovers and makes its files. */
static sp_status run_open_folder(sp_run *run)
{
    char path[PATH_MAX];

    if (strlen(run->dir) > PATH_MAX - 128)
        return SP_FAIL(SP_EIO, "%.100s...: path too long", run->dir);
    if (is_root(run->dir))
        return SP_FAIL(SP_EUSAGE,
                       "run.dir = \"%s\" is the root of the file system: name a folder "
                       "for the run",
                       run->dir);
    SP_TRY(sp_file_make_folder(run->dir));
    SP_TRY(check_entries(run->dir));
    SP_TRY(sp_lock_acquire(run->dir, run->comm->host, &run->impl->lock));
    run_warn_of_others(run->dir, run->impl->lock);
    sp_run_report_lost(run->dir);
    SP_TRY(remove_leftovers(run->dir));
    unlink(sp_file_in(run->dir, ".diagnosed", path));
    SP_TRY(sp_run_open_metrics(run));
    return sp_heartbeat_create(sp_file_in(run->dir, "heartbeat.bin", path),
                               run->comm->size);
}

sp_status sp_run_open(sp_run *run, const char *dir, sp_comm *comm)
{
    sp_status rc = SP_OK;

    assert(dir && comm);
    memset(run, 0, sizeof *run);
    run->comm = comm;
    run->after_save_limit_s = AFTER_SAVE_LIMIT_S;
    run->task = "";
    run->dir = strdup(dir);
    run->impl = calloc(1, sizeof *run->impl);
    if (!run->dir || !run->impl)
        rc = SP_FAIL(SP_EMEM, "no memory for the run folder's names");
    else
        run->impl->lock = run->impl->metrics = run->impl->beats.fd = -1;
    if (rc == SP_OK && sp_run_is_owner(run))
        rc = run_open_folder(run);
    SP_TRY(sp_comm_agree(comm, rc));
    open_heartbeat(run);
    return SP_OK;
}

static bool exists(const char *dir, const char *name, struct stat *st)
{
    char path[PATH_MAX];

    return lstat(sp_file_in(dir, name, path), st) == 0;
}

/* True if the folder has more than the files that open has just made. */
static bool run_is_used(const char *dir)
{
    struct stat st;

    for (int i = 0; i < N_RUN_FILES; i++) {
        if (strcmp(run_files[i], "heartbeat.bin") == 0 ||
            !exists(dir, run_files[i], &st))
            continue;
        if (strcmp(run_files[i], "metrics.jsonl") != 0 || st.st_size > 0)
            return true;
    }
    return false;
}

/* Finds the first free number, one more than the highest old-NNN. */
static sp_status next_old(const char *dir, int *next)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;
    int number;

    if (!folder)
        return SP_FAIL(SP_EIO, "%s: cannot list: %s", dir, strerror(errno));
    *next = 1;
    while ((entry = readdir(folder)))
        if (sscanf(entry->d_name, "old-%d", &number) == 1 && number >= *next)
            *next = number + 1;
    closedir(folder);
    return SP_OK;
}

/* Rank 0: moves the files of an earlier run to the next old-NNN. */
static sp_status move_to_old(sp_run *run)
{
    char name[32], old[PATH_MAX], from[PATH_MAX], to[PATH_MAX + 32];
    struct stat st;
    int number = 0;

    if (!run_is_used(run->dir))
        return SP_OK;
    SP_TRY(next_old(run->dir, &number));
    snprintf(name, sizeof name, "old-%03d", number);
    sp_file_in(run->dir, name, old);
    if (mkdir(old, 0777) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot make the folder: %s", old, strerror(errno));
    for (int i = 0; i < N_RUN_FILES; i++) {
        if (!exists(run->dir, run_files[i], &st))
            continue;
        snprintf(to, sizeof to, "%s/%s", old, run_files[i]);
        if (rename(sp_file_in(run->dir, run_files[i], from), to) != 0)
            return SP_FAIL(SP_EIO, "%s: cannot move to %s: %s", from, to,
                           strerror(errno));
    }
    sp_log_info("%s: earlier content moved to %s", run->dir, old);
    SP_TRY(sp_run_open_metrics(run));
    return sp_heartbeat_create(sp_file_in(run->dir, "heartbeat.bin", from),
                               run->comm->size);
}

sp_status sp_run_set_aside(sp_run *run)
{
    SP_TRY(sp_comm_agree(run->comm, sp_run_is_owner(run) ? move_to_old(run) : SP_OK));
    open_heartbeat(run);
    return SP_OK;
}

/* Seconds for the commands that are left. A batch system ends a job soon after it has
 * asked it to stop, so there is then the time of one command for all of them. */
static double patience_s(const sp_run *run)
{
    const double one_s = run->after_save_limit_s;

    if (run->impl->has_failed)
        return PATIENCE_OF_FAILURE_S;
    return run->impl->is_stopped ? one_s : one_s * PATIENT_COMMANDS;
}

void sp_run_close(sp_run *run)
{
    struct sp_run_impl *impl = run->impl;

    if (impl) {
        if (run->beat) /* this rank ends by itself and is not lost */
            sp_run_beat(run, SP_PHASE_END, run->beat->epoch, run->beat->step);
        sp_child_finish(&impl->child, patience_s(run));
        sp_heartbeat_close(&impl->beats);
        if (impl->n_kept > 0) /* of a run that fails */
            sp_run_deliver(run);
        if (impl->metrics >= 0)
            close(impl->metrics);
        sp_lock_release(&impl->lock);
    }
    sp_events_destroy(run->events);
    if (impl)
        free(impl->kept);
    free(impl);
    free(run->dir);
    memset(run, 0, sizeof *run);
}

/* ---- while it runs ---- */

int sp_run_lock(const sp_run *run)
{
    assert(run->impl);
    return run->impl->lock;
}

void sp_run_beat(sp_run *run, sp_phase phase, int64_t epoch, int64_t step)
{
    assert(run->beat && run->beats);
    sp_heartbeat_beat(run->beat, phase, epoch, step);
    sp_heartbeat_put(run->beats, run->comm->rank, run->beat);
    sp_liveness_count();
    /* Before the first step an error has no place in the run. */
    sp_log_position(phase == SP_PHASE_START ? NULL : sp_phase_name(phase), epoch, step);
    sp_fault_at(sp_phase_name(phase), step);
}

void sp_run_count(sp_run *run, int64_t done, int64_t total)
{
    assert(run->beat);
    sp_heartbeat_count(run->beat, done, total);
}

sp_status sp_run_write_status(const char *dir, const char *task, int rank,
                              const sp_heartbeat *who, const char *state,
                              sp_status code, const char *message)
{
    char path[PATH_MAX];
    /* On the stack, since the watchdog's thread may be the caller. */
    sp_json own = {0}, *json = &own;
    sp_error_record first;
    const char *text;
    sp_status rc;

    assert(dir && task && who && state);
    sp_json_begin(json);
    sp_json_text(json, "state", state);
    sp_json_int(json, "exit_code", (int)code);
    sp_json_int(json, "rank", rank);
    sp_json_text(json, "host", who->host);
    sp_json_int(json, "pid", who->pid);
    sp_json_text(json, "phase", sp_phase_name((sp_phase)who->phase));
    sp_json_int(json, "epoch", who->epoch);
    sp_json_int(json, "step", who->step);
    sp_json_text(json, "message", message ? message : code ? sp_status_text(code) : "");
    rc = sp_json_end(json, &text);
    if (rc == SP_OK)
        rc = sp_file_replace(sp_run_status_path(dir, task, path), text, strlen(text),
                             rank);
    /* A full disk has no room for a second file, only for the bytes of the first, which
     * may not exist yet. */
    if (rc == SP_EIO) {
        sp_error_save(&first);
        rc = sp_file_overwrite(path, text, strlen(text));
        if (rc != SP_OK)
            rc = sp_error_raise(&first);
    }
    sp_json_destroy(json);
    return rc;
}

sp_status sp_run_status(sp_run *run, const char *state, sp_status code, int64_t epoch,
                        int64_t step, const char *message)
{
    sp_heartbeat who;

    assert(run && state);
    /* Without a heartbeat the folder was not opened and may be another run's. */
    if (!run->dir || !run->dir[0] || !run->beat)
        return SP_OK;
    SP_TRY(sp_run_check_ours(run));
    run->impl->has_failed = strcmp(state, "failed") == 0;
    run->impl->is_stopped = code == SP_ELIMIT;
    who = *run->beat;
    who.epoch = (int32_t)(epoch < INT32_MAX ? epoch : INT32_MAX);
    who.step = step;
    return sp_run_write_status(run->dir, run->task, run->comm->rank, &who, state, code,
                               message);
}

/* O_EXCL lets only one process create the file, on NFS too. */
bool sp_run_claim_diagnosis(const char *dir)
{
    char path[PATH_MAX];
    int fd;

    if (!dir || !dir[0])
        return true;
    fd = open(sp_file_in(dir, ".diagnosed", path),
              O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        /* If the file cannot be made, two reports are better than no report. */
        return errno != EEXIST;
    close(fd);
    return true;
}

sp_status sp_run_write_text(sp_run *run, const char *name, const char *text)
{
    char path[PATH_MAX];

    assert(name && !strchr(name, '/'));
    assert(text);
    if (sp_run_is_owner(run))
        SP_TRY(
            sp_file_replace(sp_file_in(run->dir, name, path), text, strlen(text), 0));
    return SP_OK;
}

/* Starts a command on rank 0, if there is one. */
static void run_start_command(sp_run *run, const char *command, const char *path,
                              const char *record)
{
    assert(path);
    if (!sp_run_is_owner(run) || !command || !command[0])
        return;
    run->impl->child.limit_s = run->after_save_limit_s;
    sp_child_start(&run->impl->child, command, path, record);
}

void sp_run_after_save(sp_run *run, const char *command, const char *path)
{
    if (sp_run_is_owner(run))
        sp_file_in(run->dir, "after_save.log", run->impl->record);
    run_start_command(run, command, path,
                      sp_run_is_owner(run) ? run->impl->record : NULL);
}

void sp_run_command(sp_run *run, const char *command, const char *path)
{
    run_start_command(run, command, path, NULL);
}

static int is_given_at_end(const struct dirent *entry)
{
    const char *name = entry->d_name;

    return strncmp(name, "events.out.tfevents.", 20) == 0 ||
           strcmp(name, "deck.resolved") == 0 || strcmp(name, "metrics.jsonl") == 0 ||
           strcmp(name, "status.json") == 0 || sp_file_ends_in(name, ".png") ||
           strcmp(name, "pictures.json") == 0;
}

void sp_run_give_files(sp_run *run, const char *command)
{
    static const char *const folders[] = {".", "tensorboard", "pictures"};
    char folder[PATH_MAX], path[PATH_MAX];

    if (!sp_run_is_owner(run) || !command || !command[0])
        return;
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
        struct dirent **entry = NULL;
        int n;

        snprintf(folder, sizeof folder, "%s", run->dir);
        if (k > 0)
            sp_file_in(run->dir, folders[k], folder);
        n = scandir(folder, &entry, is_given_at_end, alphasort);
        for (int i = 0; i < n; i++) {
            sp_run_after_save(run, command, sp_file_in(folder, entry[i]->d_name, path));
            free(entry[i]);
        }
        if (n >= 0)
            free(entry);
    }
}
