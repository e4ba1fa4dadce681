/* Reading a run folder: the status files, and the rank that was last heard. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "run/sp_run.h"

/* The tasks that write a status. */
static const char *const tasks[] = {"", "eval", "predict", "label", "calibrate"};
enum { N_TASKS = sizeof tasks / sizeof *tasks };

static void run_copy_text(char *to, size_t bytes, const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));

    snprintf(to, bytes, "%s", text ? text : "");
}

static int64_t run_number(const json_t *root, const char *key)
{
    return json_integer_value(json_object_get(root, key));
}

const char *sp_run_status_path(const char *dir, const char *task, char *path)
{
    snprintf(path, PATH_MAX, "%s/status%s%s.json", dir, task[0] ? "-" : "", task);
    return path;
}

sp_status sp_run_read_state(const char *dir, const char *task, sp_run_state *state)
{
    char path[PATH_MAX], *text;
    json_error_t error;
    json_t *root;

    assert(dir && task && state);
    memset(state, 0, sizeof *state);
    SP_TRY(sp_file_read(sp_run_status_path(dir, task, path), &text, NULL));
    root = json_loads(text, 0, &error);
    free(text);
    if (!json_is_object(root) || !json_is_string(json_object_get(root, "state"))) {
        json_decref(root);
        return SP_FAIL(SP_EDATA, "%s: %s", path,
                       root ? "no \"state\" in it" : error.text);
    }
    run_copy_text(state->state, sizeof state->state, root, "state");
    run_copy_text(state->phase, sizeof state->phase, root, "phase");
    run_copy_text(state->host, sizeof state->host, root, "host");
    run_copy_text(state->message, sizeof state->message, root, "message");
    state->exit_code = (int)run_number(root, "exit_code");
    state->rank = (int)run_number(root, "rank");
    state->pid = run_number(root, "pid");
    state->epoch = run_number(root, "epoch");
    state->step = run_number(root, "step");
    json_decref(root);
    return SP_OK;
}

bool sp_run_is_done(const char *dir)
{
    sp_run_state state;

    return sp_run_read_state(dir, "", &state) == SP_OK &&
           strcmp(state.state, "done") == 0;
}

bool sp_run_is_event(const char *line, const char *event)
{
    char begin[32];

    assert(line && event);
    snprintf(begin, sizeof begin, "{\"event\":\"%s\"", event);
    return strncmp(line, begin, strlen(begin)) == 0;
}

bool sp_run_has_ended(const char *dir)
{
    char path[PATH_MAX], piece[4096];
    bool has_ended = false, is_begin = true;
    FILE *lines;
    int fd;

    if (sp_file_open(sp_file_in(dir, "metrics.jsonl", path), O_RDONLY, &fd) != SP_OK)
        return false;
    lines = fdopen(fd, "r");
    /* A line longer than `piece` is read in several parts; its first part has the
     * event's name. */
    while (lines && fgets(piece, sizeof piece, lines)) {
        if (is_begin && sp_run_is_event(piece, "end"))
            has_ended = strstr(piece, "\"state\":\"done\"");
        else if (is_begin && !sp_run_is_event(piece, "eval") &&
                 !sp_run_is_event(piece, "predict"))
            /* Any other line belongs to another start. */
            has_ended = false;
        is_begin = strchr(piece, '\n');
    }
    if (lines)
        fclose(lines);
    else
        close(fd);
    return has_ended;
}

static bool is_of(const sp_run_state *state, const sp_heartbeat *records, int n)
{
    return state->rank >= 0 && state->rank < n &&
           records[state->rank].pid == state->pid &&
           strcmp(records[state->rank].host, state->host) == 0;
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* In a container, earlier starts of other tasks may have had the same host and pids;
 * their statuses are older. */
bool sp_run_find_state(const char *dir, const sp_heartbeat *records, int n,
                       sp_run_state *state, const char **task)
{
    char path[PATH_MAX];
    sp_run_state found;
    struct timespec last = {0};
    struct stat st;

    assert(n >= 0 && state && task);
    *task = NULL;
    for (int i = 0; i < N_TASKS; i++) {
        if (stat(sp_run_status_path(dir, tasks[i], path), &st) != 0 ||
            sp_run_read_state(dir, tasks[i], &found) != SP_OK ||
            !is_of(&found, records, n) || (*task && is_later(&last, &st.st_mtim)))
            continue;
        *state = found;
        *task = tasks[i];
        last = st.st_mtim;
    }
    return *task;
}

/* True unless the run's status explains its end. The status is "running" if the run
 * could not write its end, has code 6 if the run lost a rank, and is missing if the run
 * was killed early. */
static bool has_lost_somebody(const char *dir, const sp_heartbeat *records, int n)
{
    sp_run_state state;
    const char *task;

    return !sp_run_find_state(dir, records, n, &state, &task) ||
           strcmp(state.state, "running") == 0 || state.exit_code == SP_EMPI;
}

static void run_describe(const sp_heartbeat *record, int rank, int size, char *text,
                         size_t bytes)
{
    snprintf(text, bytes,
             "rank %d/%d host %s pid %d, phase %s, epoch %d, step %" PRId64, rank, size,
             record->host, record->pid, sp_phase_name((sp_phase)record->phase),
             record->epoch, record->step);
}

/* True if every rank closed its folder. (An evaluation need not write a status.) */
static bool have_all_left(const sp_heartbeat *records, int n)
{
    for (int r = 0; r < n; r++)
        if (records[r].counter && records[r].phase != SP_PHASE_END)
            return false;
    return true;
}

/* Reports the rank that another process found lost. */
static void report_marked(const char *dir, const sp_heartbeat *records, int n, int lost)
{
    const int kind = records[lost].lost;
    char text[256], when[SP_DATE];

    run_describe(&records[lost], lost, n, text, sizeof text);
    sp_log_warn0(
        "%s: the run before this one was lost with %s, which %s; last heard at %s", dir,
        text,
        kind == SP_LOST_DEAD     ? "died"
        : kind == SP_LOST_SILENT ? "fell silent"
                                 : "hung",
        sp_date(records[lost].time, when));
}

/* Reports the rank heard last and the rank silent for longest, if no process survived
 * to mark the lost one. */
static void report_ends(const char *dir, const sp_heartbeat *records, int n)
{
    char first_text[256], last_text[256], when[SP_DATE];
    int first, last;

    sp_heartbeat_ends(records, n, &first, &last);
    if (last < 0)
        return;
    run_describe(&records[first], first, n, first_text, sizeof first_text);
    run_describe(&records[last], last, n, last_text, sizeof last_text);
    sp_date(records[last].time, when);
    if (first == last)
        sp_log_warn0("%s: the run before this one was lost; last heard at %s: %s", dir,
                     when, last_text);
    else
        sp_log_warn0("%s: the run before this one was lost; last heard at %s: %s; "
                     "silent %.3f s longer than that: %s",
                     dir, when, last_text, records[last].time - records[first].time,
                     first_text);
}

void sp_run_report_lost(const char *dir)
{
    char path[PATH_MAX];
    sp_heartbeat *records;
    int n, lost;

    if (sp_heartbeat_read(sp_file_in(dir, "heartbeat.bin", path), &records, &n) !=
        SP_OK) {
        if (!sp_file_is_absent(path))
            sp_log_warn0(
                "%s; so it is not known which rank the run before this one lost",
                sp_error_last()->message);
        return;
    }
    lost = sp_heartbeat_find_lost(records, n);
    if (!have_all_left(records, n) && has_lost_somebody(dir, records, n)) {
        if (lost >= 0)
            report_marked(dir, records, n, lost);
        else
            report_ends(dir, records, n);
    }
    free(records);
}

/* Prints a part of the status. Control characters in texts from the run's files are
 * escaped, so that the terminal does not interpret them. */
static void __attribute__((format(printf, 2, 3)))
run_say(FILE *to, const char *format, ...)
{
    char text[8192], shown[4 * sizeof text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputs(sp_text_printable(shown, sizeof shown, text, true), to);
}

static void print_state(const sp_run_state *s, const char *dir, const char *task,
                        FILE *to)
{
    run_say(to, "%s: %s%s%s", dir, task, task[0] ? " " : "", s->state);
    if (strcmp(s->state, "running") != 0)
        run_say(to, ", exit code %d", s->exit_code);
    run_say(to, "\n  phase %s, epoch %" PRId64 ", step %" PRId64 "\n", s->phase,
            s->epoch, s->step);
    run_say(to, "  said by rank %d, host %s, pid %" PRId64 "\n", s->rank, s->host,
            s->pid);
    if (s->message[0])
        run_say(to, "  %s\n", s->message);
}

static void print_heartbeats(const sp_heartbeat *records, int n, FILE *to)
{
    char when[SP_DATE];

    run_say(to, "%6s  %-24s %8s  %-9s %6s %9s  %-20s %10s\n", "rank", "host", "pid",
            "phase", "epoch", "step", "last heard", "age_s");
    for (int r = 0; r < n; r++) {
        const sp_heartbeat *h = &records[r];
        const char *process = sp_heartbeat_process(h);

        if (h->counter == 0) {
            run_say(to, "%6d  never heard\n", r);
            continue;
        }
        if (h->phase == SP_PHASE_END && strcmp(process, "gone") == 0)
            process = "finished"; /* after it closed the folder, by itself */
        run_say(to, "%6d  %-24s %8d  %-9s %6d %9" PRId64 "  %-20s %10.1f%s%s", r,
                h->host, h->pid, sp_phase_name((sp_phase)h->phase), h->epoch, h->step,
                sp_date(h->time, when), fmax(0, difftime(time(NULL), (time_t)h->time)),
                h->lost      ? "  lost"
                : process[0] ? "  process "
                             : "",
                h->lost ? "" : process);
        if (h->total > 0)
            run_say(to, "  %d of %d samples", h->done, h->total);
        run_say(to, "\n");
    }
}

/* Prints the training's status, then the other tasks'; *n: number of statuses found.
 * Returns the error of the last damaged one. */
static sp_status print_states(const char *dir, FILE *to, int *n)
{
    sp_run_state state;
    sp_status damaged = SP_OK;

    *n = 0;
    for (int i = 0; i < N_TASKS; i++) {
        sp_status rc = sp_run_read_state(dir, tasks[i], &state);

        if (rc == SP_OK)
            print_state(&state, dir, tasks[i], to);
        else if (rc != SP_EIO) {
            fprintf(to, "%s\n", sp_error_last()->message);
            damaged = rc;
        }
        *n += rc != SP_EIO;
    }
    return damaged;
}

static sp_status fail_damaged(const char *dir, sp_status rc)
{
    return rc == SP_OK
               ? SP_OK
               : SP_FAIL(rc, "%s: a status file is damaged, as said above", dir);
}

sp_status sp_run_print_status(const char *dir, FILE *to)
{
    char path[PATH_MAX];
    sp_heartbeat *records = NULL;
    int n_states, n;
    const sp_status damaged = print_states(dir, to, &n_states);

    assert(dir && to);
    if (sp_file_is_absent(sp_file_in(dir, "heartbeat.bin", path)))
        return n_states ? fail_damaged(dir, damaged)
                        : SP_FAIL(SP_EIO,
                                  "%s: no run here (neither status.json nor "
                                  "heartbeat.bin)",
                                  dir);
    SP_TRY(sp_heartbeat_read(path, &records, &n));
    if (n_states == 0)
        fprintf(to, "%s: started, no status yet\n", dir);
    print_heartbeats(records, n, to);
    free(records);
    return fail_damaged(dir, damaged);
}
