/* Watching a run from outside, from another machine too: heartbeat.bin has phase and
 * step, the end of metrics.jsonl the rest. Clocks of two machines differ, so times are
 * measured between two looks. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "report/sp_history.h"
#include "report/sp_live.h"
#include "run/sp_run.h"

enum {
    TAIL = 1 << 20, /* bytes of metrics.jsonl that are looked at */
    HEAD = 1 << 16, /* the first line, which has the length of the training */
    LOOK_MS = 500,  /* between two looks */
    SILENT_S = 30,  /* silence is mentioned from then on */
    PASS_S = 10,    /* between two printed lines of an evaluation ... */
    LONG_S = 1,     /* ... that has gone on for so long */
    GONE_LOOKS = 4  /* number of looks that find all processes gone */
};

/* The last things that the run wrote. Numbers are NAN or 0 before. */
typedef struct lines {
    int64_t step, epoch, steps, epochs;
    double loss, pace, left_s, score, memory_bytes;
} lines;

/* A pass over samples, such as an evaluation, since it was seen first. */
typedef struct pass {
    int64_t done, total;       /* total is 0 if no pass is running */
    int64_t first;             /* samples that were done then */
    double begin_s, printed_s; /* printed_s 0: not yet */
} pass;

typedef struct view {
    const char *dir;
    const char *pass_name; /* the name of a pass over samples: "eval", "predict" ... */
    char *text;            /* [TAIL + 1] */
    lines lines;
    pass pass;
    int64_t size; /* bytes of metrics.jsonl when it was read */
    int64_t counter, shown_step;
    double heard_s, logged_s; /* when counter and lines.step changed */
    int n_gone;
} view;

/* ---- metrics.jsonl ---- */

static int64_t whole(const json_t *root, const char *key)
{
    return json_integer_value(json_object_get(root, key));
}

static void watch_parse_step(lines *l, const json_t *root, int64_t samples,
                             int64_t step)
{
    l->step = whole(root, "step");
    l->epoch = whole(root, "epoch");
    l->loss = sp_history_number(root, "loss");
    l->left_s = sp_history_number(root, "left_s");
    l->memory_bytes = sp_history_number(root, "memory_bytes");
    /* The samples of a step follow from the samples between two lines. */
    if (l->step > step && step > 0)
        l->pace = (double)(whole(root, "samples") - samples) /
                  (double)(l->step - step) / sp_history_number(root, "step_s");
}

/* Keeps a line that is the last of its kind. before: the step line before it. */
static void watch_parse_line(lines *l, const char *line, size_t length,
                             const char *before)
{
    json_t *root = json_loadb(line, length, JSON_DISABLE_EOF_CHECK, NULL);
    json_t *old = before ? json_loads(before, JSON_DISABLE_EOF_CHECK, NULL) : NULL;

    if (sp_run_is_event(line, "step"))
        watch_parse_step(l, root, whole(old, "samples"), whole(old, "step"));
    else if (sp_run_is_event(line, "eval"))
        l->score = sp_history_number(root, "point_miou") >= 0
                       ? sp_history_number(root, "point_miou")
                       : sp_history_number(root, "miou");
    else {
        l->steps = whole(root, "steps");
        l->epochs = whole(root, "epochs");
    }
    json_decref(root);
    json_decref(old);
}

/* Looks through the text for the last line of each kind. */
static void watch_find_lines(lines *l, char *text, bool is_begin)
{
    const char *last[4] = {0}, *before = NULL;
    /* The line of an evaluation by `sptrain eval` has its time before the step. */
    static const char *const kinds[4] = {"start", "resume", "eval\",\"step", "step"};
    size_t length[4] = {0};
    char *line = text, *end;

    if (!is_begin) /* the text may begin within a line */
        line = (end = strchr(text, '\n')) ? end + 1 : text + strlen(text);
    for (; (end = strchr(line, '\n')); line = end + 1)
        for (int k = 0; k < 4; k++)
            if (sp_run_is_event(line, kinds[k])) {
                before = k == 3 ? last[k] : before;
                last[k] = line;
                length[k] = (size_t)(end - line);
            }
    if (last[0] && last[1] && last[0] > last[1])
        last[1] = NULL;
    for (int k = 0; k < 4; k++)
        if (last[k])
            watch_parse_line(l, last[k], length[k], k == 3 ? before : NULL);
}

static size_t run_read_part(int fd, char *text, size_t most, int64_t at)
{
    const ssize_t n = pread(fd, text, most, at);

    text[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

static void run_read_lines(view *v)
{
    const int64_t step = v->lines.step;
    char path[PATH_MAX];
    struct stat st;
    int fd;

    if (sp_file_open(sp_file_in(v->dir, "metrics.jsonl", path), O_RDONLY, &fd) != SP_OK)
        return;
    if (fstat(fd, &st) == 0 && st.st_size != v->size) {
        v->size = st.st_size;
        if (st.st_size > TAIL && v->lines.steps == 0) {
            run_read_part(fd, v->text, HEAD, 0);
            watch_find_lines(&v->lines, v->text, true);
        }
        run_read_part(fd, v->text, TAIL, st.st_size > TAIL ? st.st_size - TAIL : 0);
        watch_find_lines(&v->lines, v->text, st.st_size <= TAIL);
    }
    close(fd);
    if (v->lines.step != step)
        v->logged_s = sp_now_s();
}

/* ---- heartbeats and status ---- */

/* The record of the rank that was heard last represents the run. */
static bool find_last(view *v, const sp_heartbeat *records, int n, sp_heartbeat *last)
{
    int first, latest;
    int64_t sum = 0;

    sp_heartbeat_ends(records, n, &first, &latest);
    if (latest < 0)
        return false;
    for (int r = 0; r < n; r++)
        sum += records[r].counter;
    if (sum != v->counter)
        v->heard_s = sp_now_s();
    v->counter = sum;
    *last = records[latest];
    return true;
}

/* Follows the pass that the ranks report; a new pass resets it. */
static void follow_pass(pass *p, const sp_heartbeat *records, int n)
{
    const double now = sp_now_s();
    int64_t done, total;

    sp_heartbeat_pass(records, n, &done, &total);
    if (total != p->total || done < p->done)
        *p = (pass){.first = done, .begin_s = now};
    p->done = done;
    p->total = total;
}

/* The seconds that the pass still needs; NAN: not known yet. */
static double pass_left_s(const pass *p)
{
    const double past_s = sp_now_s() - p->begin_s;

    return p->done > p->first
               ? past_s * (double)(p->total - p->done) / (double)(p->done - p->first)
               : NAN;
}

/* True if every process of the run is known to be gone. Processes of other hosts cannot
 * be seen; they count as alive. */
static bool are_gone(const sp_heartbeat *records, int n)
{
    for (int r = 0; r < n; r++)
        if (strcmp(sp_heartbeat_process(&records[r]), "gone") != 0)
            return false;
    return n > 0;
}

/* Looks at the run folder. *is_running says whether the run continues; *last is the
 * heartbeat to be shown; its counter is 0 if there is nothing to show. A run that was
 * killed says "running" for ever. */
static sp_status run_look(view *v, sp_heartbeat *last, bool *is_running)
{
    char path[PATH_MAX];
    sp_heartbeat *records = NULL;
    sp_run_state state;
    const char *task;
    int n = 0;

    *last = (sp_heartbeat){0};
    if (sp_heartbeat_read(sp_file_in(v->dir, "heartbeat.bin", path), &records, &n) !=
        SP_OK) {
        *is_running = false;
        return sp_run_read_state(v->dir, "", &state) == SP_OK ? SP_OK : SP_EIO;
    }
    *is_running = find_last(v, records, n, last);
    follow_pass(&v->pass, records, n);
    if (sp_run_find_state(v->dir, records, n, &state, &task)) {
        *is_running = strcmp(state.state, "running") == 0;
        v->pass_name = *task ? task : "eval"; /* a training evaluates in its passes */
    }
    v->n_gone = are_gone(records, n) ? v->n_gone + 1 : 0;
    *is_running = *is_running && v->n_gone < GONE_LOOKS;
    free(records);
    return SP_OK;
}

/* ---- the line ---- */

static void add_of_total(sp_live *line, int weight, const char *name, int64_t value,
                         int64_t total)
{
    if (total >= value)
        sp_live_add(line, weight, "%s %" PRId64 "/%" PRId64, name, value, total);
    else
        sp_live_add(line, weight, "%s %" PRId64, name, value);
}

/* The phase, and the progress of a pass over samples. */
static void add_phase(sp_live *line, const view *v, const sp_heartbeat *last)
{
    const pass *p = &v->pass;
    char text[SP_DURATION];

    if (p->total == 0) {
        sp_live_add(line, 40, "%s", sp_phase_name((sp_phase)last->phase));
        return;
    }
    sp_live_add(line, 92, "%s %" PRId64 "/%" PRId64, v->pass_name, p->done, p->total);
    if (isfinite(pass_left_s(p)))
        sp_live_add(line, 85, "in %s", sp_live_duration(pass_left_s(p), text));
}

static void run_draw(const view *v, const sp_heartbeat *last)
{
    const double now = sp_now_s(), silent_s = now - v->heard_s;
    const lines *l = &v->lines;
    const double left_s = l->left_s - (now - v->logged_s);
    char text[SP_DURATION];
    sp_live line;

    sp_live_begin(&line);
    add_of_total(&line, 90, "epoch", l->epoch > 0 ? l->epoch : last->epoch, l->epochs);
    if (v->pass.total > 0)
        sp_live_add_bar(&line, 45, (double)v->pass.done / (double)v->pass.total);
    else if (l->steps > 0)
        sp_live_add_bar(&line, 45, (double)last->step / (double)l->steps);
    add_of_total(&line, 100, "step", last->step, l->steps);
    add_phase(&line, v, last);
    if (l->step > 0)
        sp_live_add(&line, 95, "loss %.4g", l->loss);
    if (!isnan(l->score))
        sp_live_add(&line, 60, "mIoU %.3f", l->score);
    if (l->pace > 0)
        sp_live_add(&line, 70, "%.3g/s", l->pace);
    if (isfinite(left_s))
        sp_live_add(&line, 80, "left %s", sp_live_duration(fmax(0, left_s), text));
    if (isfinite(l->memory_bytes))
        sp_live_add(&line, 50, "%s", sp_live_bytes(l->memory_bytes, text));
    if (silent_s >= SILENT_S)
        sp_live_add(&line, 99, "silent %s", sp_live_duration(silent_s, text));
    sp_live_draw(&line);
}

/* Prints a line if the run has logged a step since the last one. */
static void run_print_step(view *v)
{
    const lines *l = &v->lines;
    char left[SP_DURATION];

    if (l->step == v->shown_step)
        return;
    v->shown_step = l->step;
    sp_log_info("step=%" PRId64 " epoch=%" PRId64 " loss=%.5g left=%s", l->step,
                l->epoch, l->loss, sp_live_duration(l->left_s, left));
}

/* Prints how far a long pass over samples is. */
static void print_pass(view *v)
{
    pass *p = &v->pass;
    char left[SP_DURATION];
    const double now = sp_now_s();

    if (p->total == 0 || now - p->begin_s < LONG_S || now - p->printed_s < PASS_S)
        return;
    p->printed_s = now;
    sp_log_info("%s samples=%" PRId64 "/%" PRId64 " left=%s", v->pass_name, p->done,
                p->total, sp_live_duration(pass_left_s(p), left));
}

static sp_status run_watch(view *v)
{
    sp_heartbeat last;
    bool is_running;

    for (;;) {
        SP_TRY(run_look(v, &last, &is_running));
        if (!is_running || sp_signal_received())
            return SP_OK;
        run_read_lines(v);
        if (sp_live_is_shown())
            run_draw(v, &last);
        else {
            run_print_step(v);
            print_pass(v);
        }
        sp_sleep_s(LOOK_MS / 1000.0);
    }
}

sp_status sp_run_watch(const char *dir)
{
    view v = {.dir = dir,
              .pass_name = "eval",
              .lines = {.loss = NAN,
                        .pace = NAN,
                        .left_s = NAN,
                        .score = NAN,
                        .memory_bytes = NAN}};
    sp_status rc;

    assert(dir);
    v.heard_s = v.logged_s = sp_now_s();
    SP_TRY(SP_NEW(&v.text, TAIL, "metrics.jsonl"));
    sp_live_open_alone(SP_PROGRESS_AUTO);
    sp_signal_install();
    sp_signal_started();
    rc = run_watch(&v);
    free(v.text);
    sp_live_remove();
    /* Without a run this fails with its own message. */
    return rc == SP_OK || rc == SP_EIO ? sp_run_print_status(dir, stdout) : rc;
}
