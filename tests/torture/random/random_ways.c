/* The plain run of a case, and the ways in which it is repeated and compared. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "torture/random/random.h"

enum { REFUSED_DECK = 2, REFUSED_DATA = 3, DIVERGED = 8, STOPPED = 75 };

/* ---- comparing ---- */

/* Gives the first line in which two texts differ. */
static bool same_text(rnd_case *c, char way, const char *what, const char *a,
                      const char *b)
{
    size_t at = 0, line = 0;

    if (strcmp(a, b) == 0)
        return true;
    for (; a[at] && a[at] == b[at]; at++)
        line = a[at] == '\n' ? at + 1 : line;
    return rnd_fault(c, way, "%s: expected \"%.*s\", found \"%.*s\"", what,
                     (int)strcspn(a + line, "\n"), a + line,
                     (int)strcspn(b + line, "\n"), b + line);
}

static bool same_lines(rnd_case *c, char way, const char *dir)
{
    FREED char *steps = rnd_steps(c, "a"), *steps_of = rnd_steps(c, dir);
    FREED char *evals = rnd_evals(c, "a"), *evals_of = rnd_evals(c, dir);
    char what[2][64];

    snprintf(what[0], sizeof what[0], "steps of %s", dir);
    snprintf(what[1], sizeof what[1], "evaluations of %s", dir);
    return same_text(c, way, what[0], steps, steps_of) &&
           same_text(c, way, what[1], evals, evals_of);
}

static bool same_checkpoint(rnd_case *c, char way, const char *dir, long long step)
{
    uint64_t a[2] = {0}, b[2] = {0};
    const bool has_a = rnd_checkpoint_hash(c, "a", step, &a[0], &a[1]);
    const bool has_b = rnd_checkpoint_hash(c, dir, step, &b[0], &b[1]);
    char name[32] = "best.h5";

    if (step >= 0)
        snprintf(name, sizeof name, "step %lld", step);
    if (has_a != has_b)
        return rnd_fault(c, way, "checkpoint %s: only %s has it", name,
                         has_a ? "a" : dir);
    if (a[0] != b[0])
        return rnd_fault(c, way, "checkpoint %s of %s: other bits than a's", name, dir);
    return a[1] == b[1] ||
           rnd_fault(c, way, "checkpoint %s of %s: other counters", name, dir);
}

/* Compares lines, last and best checkpoint. */
static bool same_run(rnd_case *c, char way, const char *dir)
{
    const long long last = rnd_checkpoint(c, "a", 0);

    return (last >= 0 || rnd_fault(c, way, "a has no checkpoint")) &&
           same_lines(c, way, dir) && same_checkpoint(c, way, dir, last) &&
           same_checkpoint(c, way, dir, -1);
}

static bool close_to(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return fabs(a - b) <= tolerance * fmax(1e-3, fmax(fabs(a), fabs(b)));
}

static bool same_eval(rnd_case *c, char way, const rnd_eval *a, const rnd_eval *b,
                      const char *what)
{
    if (a->voxels != b->voxels || a->samples != b->samples)
        return rnd_fault(c, way, "%s: %lld samples, %lld voxels, expected %lld, %lld",
                         what, b->samples, b->voxels, a->samples, a->voxels);
    if (!close_to(a->loss, b->loss, 1e-6))
        return rnd_fault(c, way, "%s: loss %.9g, expected %.9g", what, b->loss,
                         a->loss);
    return same_text(c, way, what, a->confusion, b->confusion) &&
           same_text(c, way, what, a->points, b->points) &&
           same_text(c, way, what, a->merged, b->merged) &&
           same_text(c, way, what, a->merged_points, b->merged_points);
}

/* ---- running ---- */

/* Returns true where the run ended with this status. */
static bool expect(rnd_case *c, char way, rnd_result r, int code, const char *dir)
{
    if (r.is_hung)
        return rnd_fault(c, way, "%s: not over after %d s", dir,
                         (int)c->options->limit_s);
    return r.code == code ||
           rnd_fault(c, way, "%s: ended with %d, expected %d (%s.out)", dir, r.code,
                     code, dir);
}

static bool run(rnd_case *c, char way, int ranks, const char *verb, const char *dir,
                const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Runs a command with the keys of the format. Returns true where it succeeds. */
static bool run(rnd_case *c, char way, int ranks, const char *verb, const char *dir,
                const char *format, ...)
{
    char keys[1400];
    va_list args;

    va_start(args, format);
    vsnprintf(keys, sizeof keys, format, args);
    va_end(args);
    return expect(c, way, rnd_run(c, ranks, verb, dir, NULL, keys), 0, dir);
}

/* The last checkpoint of the plain run, as a key. */
#define LAST_CHECKPOINT "run.checkpoint=a/checkpoints/step-%09lld.h5"

static int other_ranks(rnd_case *c, const char *name, int than)
{
    int n = 1 + rnd_pick(c, 4, "%s", name);

    return n == than ? 1 + n % 4 : n;
}

/* ---- the ways ---- */

/* a: again, with other threads, readers and overlap, which must not matter. */
static bool run_again(rnd_case *c)
{
    char keys[128] = "";

    if (rnd_chance(c, 50, "a.other"))
        snprintf(keys, sizeof keys,
                 "run.threads=%d data.readers=%d data.planners=%d run.overlap=%s "
                 "run.rank_logs=true",
                 1 + rnd_pick(c, 3, "a.threads"), 1 + rnd_pick(c, 4, "a.readers"),
                 1 + rnd_pick(c, 4, "a.planners"),
                 rnd_chance(c, 50, "a.overlap") ? "true" : "false");
    return run(c, 'a', c->ranks, "train", "b", "%s", keys) && same_run(c, 'a', "b");
}

/* Draws the fault of a case: at a step in some phase a rank is killed or asked to
 * stop. */
static void draw_stop(rnd_case *c, const char *action, char *fault, size_t size)
{
    static const char *const points[] = {
        "forward", "read", "backward", "reduce",  "update", "pread", "plan",
        "save",    "eval", "verified", "renamed", "linked", "saving"};
    const int n = c->ranks ? c->ranks : 1, at = rnd_pick(c, 13, "b.point");

    snprintf(fault, size, "%s@%d:%s:%d", action, at < 7 ? rnd_pick(c, n, "b.rank") : 0,
             points[at], rnd_pick(c, 6, "b.step"));
}

/* b: killed, or stopped by a signal or by the time limit, and continued. */
static bool run_stopped(rnd_case *c)
{
    static const char *const actions[] = {"kill", "kill", "term", NULL};
    const char *action = actions[rnd_pick(c, 4, "b.action")];
    const bool is_killed = action && strcmp(action, "kill") == 0;
    const char *const keys = action ? "" : "run.time_limit_s=0.0001";
    char fault[64];
    rnd_result r = {0};

    if (action)
        draw_stop(c, action, fault, sizeof fault);
    for (int i = 0; i < (action ? 1 : 2); i++) {
        r = rnd_run(c, c->ranks, "train", "b", action ? fault : NULL, keys);
        if (r.is_hung)
            return expect(c, 'b', r, 0, "b");
        if (!is_killed && r.code != STOPPED && r.code != 0)
            return expect(c, 'b', r, STOPPED, "b");
    }
    return run(c, 'b', c->ranks, "train", "b", "%s", "") && same_run(c, 'b', "b");
}

/* c: deterministic = "world", on another number of ranks. */
static bool run_world(rnd_case *c)
{
    const int ranks = other_ranks(c, "c.ranks", c->ranks ? c->ranks : 1);

    return run(c, 'c', ranks, "train", "c", "run.threads=1") && same_run(c, 'c', "c");
}

static bool evaluate(rnd_case *c, char way, int ranks, const char *dir, int size,
                     rnd_eval *eval)
{
    *eval = (rnd_eval){0};
    return run(c, way, ranks, "eval", dir, LAST_CHECKPOINT " batch.eval_size=%d",
               rnd_checkpoint(c, "a", 0), size) &&
           (rnd_last_eval(c, dir, eval) || rnd_fault(c, way, "%s: no evaluation", dir));
}

/* d: evaluations of one checkpoint. */
static bool run_evals(rnd_case *c)
{
    rnd_eval within;
    CLOSED_BY(rnd_eval_free) rnd_eval one = {0}, more = {0};
    bool is_good = evaluate(c, 'd', rnd_pick(c, 2, "d.launcher"), "d1",
                            1 + rnd_pick(c, 9, "d.size1"), &one) &&
                   evaluate(c, 'd', 2 + rnd_pick(c, 2, "d.ranks"), "d2",
                            1 + rnd_pick(c, 9, "d.size2"), &more) &&
                   same_eval(c, 'd', &one, &more, "eval on several ranks");

    if (is_good && c->has_eval) {
        is_good = (rnd_last_eval(c, "a", &within) ||
                   rnd_fault(c, 'd', "a: no evaluation within the training")) &&
                  same_eval(c, 'd', &one, &within, "eval within the training");
        rnd_eval_free(&within);
    }
    return is_good;
}

static bool same_files(rnd_case *c, char way, const char *a, const char *b)
{
    bool is_good = true;

    for (int i = 0; is_good && i < c->val.n_shards; i++) {
        size_t n = 0, m = 0;
        FREED char *path = rnd_predictions(c, a, i), *one = rnd_read_file(path, &n);
        FREED char *of_b = rnd_predictions(c, b, i), *other = rnd_read_file(of_b, &m);

        if (!one || !other || n != m || memcmp(one, other, n) != 0)
            is_good = rnd_fault(c, way, "predictions of %s differ in %s", a, of_b);
    }
    return is_good;
}

static bool predict(rnd_case *c, char way, int ranks, const char *dir, int size)
{
    return run(c, way, ranks, "predict", dir,
               LAST_CHECKPOINT " run.logits=true batch.eval_size=%d",
               rnd_checkpoint(c, "a", 0), size);
}

/* e: predictions on one and three ranks, and what they must be. */
static bool run_predictions(rnd_case *c)
{
    FREED char *voxels = NULL, *points = NULL;
    CLOSED_BY(rnd_eval_free) rnd_eval eval = {0};
    bool is_good = predict(c, 'e', 1, "e1", 4) &&
                   predict(c, 'e', 3, "e3", 1 + rnd_pick(c, 9, "e.size")) &&
                   same_files(c, 'e', "e1", "e3") &&
                   rnd_predictions_check(c, 'e', "e1", &voxels, &points);

    if (is_good && c->val.has_labels)
        is_good = evaluate(c, 'e', 0, "e", 4, &eval);
    if (c->is_ranged) /* predictions have the voxels that are not evaluated */
        return is_good;
    if (is_good && eval.confusion && !c->is_coarse)
        is_good =
            same_text(c, 'e', "confusion counted from labels", voxels, eval.merged);
    if (is_good && eval.confusion && c->val.has_points)
        is_good = same_text(c, 'e', "point confusion counted from labels", points,
                            eval.merged_points);
    return is_good;
}

/* Returns the number that stands before `words` in the text; 0 where it is not
 * there. */
static double number_before(const char *text, const char *words)
{
    const char *at = text ? strstr(text, words) : NULL;

    while (at && at > text && strchr("0123456789. ", at[-1]))
        at--;
    return at ? strtod(at, NULL) : 0;
}

/* f: check foresees at least the memory that the run used. The estimate for the program
 * itself has room for large pages, which these runs do without: then the program takes
 * up to 34 MiB, by the pages of libraries that the kernel maps around each one used. */
static bool run_memory(rnd_case *c)
{
    enum { PROGRAM_MIB = 36 };
    FREED char *path = rnd_path(c, "f.out"), *text = NULL;
    double promised;

    if (!run(c, 'f', WITHOUT_LAUNCHER, "check", "f", "%s", ""))
        return false;
    text = rnd_read_file(path, NULL);
    promised = number_before(text, "MiB a rank in the largest steps") -
               number_before(text, "of the program") + PROGRAM_MIB;
    return promised * 1024 >= (double)c->rss_kib ||
           rnd_fault(c, 'f', "check foresees %.0f MiB, the run took %.1f", promised,
                     (double)c->rss_kib / 1024);
}

/* Compares the steps of two runs that round differently: the first one's loss agrees
 * closely. Later losses may not: where a norm has few voxels, rounding grows with every
 * step. */
static bool close_steps(rnd_case *c, char way, const char *dir, long long from,
                        long long last, double tolerance)
{
    for (long long step = from; step <= last; step++) {
        rnd_step a, b;

        if (!rnd_step_of(c, "a", step, &a) || !rnd_step_of(c, dir, step, &b))
            return rnd_fault(c, way, "%s: step %lld is not in both", dir, step);
        if (a.voxels != b.voxels || a.samples != b.samples)
            return rnd_fault(c, way, "%s: step %lld has %lld voxels, expected %lld",
                             dir, step, b.voxels, a.voxels);
        if (step == from && !close_to(a.loss, b.loss, tolerance))
            return rnd_fault(c, way, "%s: step %lld: loss %.9g, expected %.9g", dir,
                             step, b.loss, a.loss);
        if (step == from && !close_to(a.grad_norm, b.grad_norm, 1e4 * tolerance))
            return rnd_fault(c, way, "%s: step %lld: grad_norm %.9g, expected %.9g",
                             dir, step, b.grad_norm, a.grad_norm);
    }
    return true;
}

/* In bf16 the order of sums now and then turns the rounding of an activation. */
static bool is_bf16(const rnd_case *c)
{
    return strstr(c->deck, "precision = \"bf16\"") != NULL;
}

/* Evaluates the last checkpoint on the emulated device. */
static bool evaluate_emulated(rnd_case *c)
{
    CLOSED_BY(rnd_eval_free) rnd_eval host = {0}, device = {0};
    bool is_good =
        evaluate(c, 'g', WITHOUT_LAUNCHER, "g0", 4, &host) &&
        run(c, 'g', ON_DEVICE, "eval", "g1", LAST_CHECKPOINT,
            rnd_checkpoint(c, "a", 0)) &&
        (rnd_last_eval(c, "g1", &device) || rnd_fault(c, 'g', "no evaluation"));

    if (is_good && (host.voxels != device.voxels || host.samples != device.samples))
        is_good = rnd_fault(c, 'g', "eval of %lld voxels, expected %lld", device.voxels,
                            host.voxels);
    if (is_good && !close_to(host.loss, device.loss, is_bf16(c) ? 1e-3 : 1e-4))
        is_good =
            rnd_fault(c, 'g', "eval: loss %.9g, expected %.9g", device.loss, host.loss);
    return is_good;
}

/* A norm behind a global pool has one row for each sample, and one at the coarsest level
 * of a small sample has two or three. Where rows are few and alike it divides by their
 * small difference, which enlarges differences of rounding without a bound: in
 * minkunet50, of a step of 40 voxels, the losses of two instruction sets of the CPU
 * differ by 1.5e-4. Such steps are compared by their evaluation alone. */
static double g_tolerance(const rnd_case *c)
{
    rnd_step first;

    if (is_bf16(c))
        return 1e-3;
    if (rnd_step_of(c, "a", 1, &first) && first.voxels < 100)
        return 1e9;
    return strstr(c->deck, "global_") ? 1e-4 : 1e-5;
}

/* g: one step and an evaluation on the emulated device, of one rank. */
static bool run_emulated(rnd_case *c)
{
    return run(c, 'g', ON_DEVICE, "train", "g", "train.steps=1 run.eval_every=0") &&
           (!c->is_rankless || close_steps(c, 'g', "g", 1, 1, g_tolerance(c))) &&
           (!c->val.has_labels || evaluate_emulated(c));
}

/* h: continued from one of its checkpoints on another number of ranks. */
static bool run_elsewhere(rnd_case *c)
{
    const long long from = rnd_checkpoint(c, "a", 1 + rnd_pick(c, 3, "h.back"));
    const int ranks = other_ranks(c, "h.ranks", c->ranks ? c->ranks : 1);

    if (from < 1)
        return true;
    return run(c, 'h', ranks, "train", "h",
               "run.threads=1 run.resume=a/checkpoints/step-%09lld.h5", from) &&
           close_steps(c, 'h', "h", from + 1, rnd_checkpoint(c, "a", 0),
                       is_bf16(c) ? 1e-3 : 1e-6);
}

/* i: the same values in shards of other types and layouts. */
static bool run_plain_shards(rnd_case *c)
{
    char train_files[600], val_files[600];

    if (!rnd_shards_write(c, true))
        return false;
    rnd_deck_files(c, &c->train, "plain/", train_files, sizeof train_files);
    rnd_deck_files(c, &c->val, "plain/", val_files, sizeof val_files);
    return run(c, 'i', c->ranks, "train", "i", "data.train=%s data.val=%s", train_files,
               val_files) &&
           same_run(c, 'i', "i");
}

typedef struct way_entry {
    char letter;
    int percent; /* of the cases that were not drawn for it */
    bool (*run)(rnd_case *c);
} way_entry;

static const way_entry ways[N_WAYS] = {
    {'a', 20, run_again},   {'b', 15, run_stopped},     {'c', 100, run_world},
    {'d', 20, run_evals},   {'e', 20, run_predictions}, {'f', 0, run_memory},
    {'g', 0, run_emulated}, {'h', 20, run_elsewhere},   {'i', 10, run_plain_shards}};

static bool suits(const rnd_case *c, char way)
{
    switch (way) {
    case 'c':
        return c->is_world;
    case 'd':
        return c->val.has_labels;
    case 'g':
        return c->options->emulated;
    case 'h':
        return c->is_rankless && !c->is_off;
    case 'e':
    case 'f':
        return true;
    default:
        return !c->is_off;
    }
}

static void draw_ways(rnd_case *c)
{
    size_t n = 0;

    for (int i = 0; i < N_WAYS; i++) {
        const char letter = ways[i].letter;
        const bool is_drawn = letter == rnd_first_way(c) ||
                              rnd_chance(c, ways[i].percent, "way.%c", letter);
        const bool is_wanted =
            c->options->ways ? strchr(c->options->ways, letter) != NULL : is_drawn;

        if (is_wanted && suits(c, letter))
            c->ways[n++] = letter;
    }
}

/* ---- a case ---- */

static bool write_deck(rnd_case *c)
{
    FREED char *path = rnd_path(c, "case.deck");
    FILE *file = fopen(path, "w");

    if (!file)
        return rnd_fault(c, '-', "cannot write %s", path);
    fputs(c->deck, file);
    return fclose(file) == 0 || rnd_fault(c, '-', "cannot write %s", path);
}

/* A deck or data set that is refused is so on any number of ranks. */
static bool refused_alike(rnd_case *c)
{
    const int ranks = other_ranks(c, "refused.ranks", c->ranks ? c->ranks : 1);
    rnd_result r = rnd_run(c, ranks, "train", "refused", NULL, "");

    return expect(c, '=', r, c->code, "refused");
}

/* A training whose numbers leave the range of floats ends with the same status, after
 * the same steps, each time. Networks without norms can do so, and an evaluation after
 * one step of a deep one, whose running statistics are still those of its start. */
static bool diverged_alike(rnd_case *c)
{
    rnd_result r = rnd_run(c, c->ranks, "train", "b", NULL, "");

    return expect(c, '=', r, DIVERGED, "b") && (c->is_off || same_lines(c, '=', "b"));
}

static bool run_plain(rnd_case *c)
{
    const bool wants_init = c->has_init;
    rnd_result r;

    c->has_init = false; /* which itself begins with new weights */
    if (wants_init)
        c->has_init = rnd_run(c, WITHOUT_LAUNCHER, "train", "init", NULL,
                              "train.steps=1 train.seed=77")
                          .code == 0;
    r = rnd_run(c, c->ranks, "train", "a", NULL, "");
    c->code = r.code;
    c->rss_kib = c->ranks == 0 ? r.rss_kib : 0;
    if (r.is_hung)
        return expect(c, '-', r, 0, "a");
    if (r.code == REFUSED_DECK || r.code == REFUSED_DATA)
        return refused_alike(c);
    if (r.code == DIVERGED)
        return diverged_alike(c);
    return expect(c, '-', r, 0, "a");
}

bool rnd_case_run(rnd_case *c)
{
    if (!rnd_make_folder(c->folder))
        return rnd_fault(c, '-', "cannot make %s", c->folder);
    draw_ways(c);
    if (!write_deck(c) || !rnd_shards_write(c, false) || !rnd_bank_make(c) ||
        !run_plain(c))
        return false;
    for (int i = 0; i < N_WAYS && c->code == 0; i++)
        if (strchr(c->ways, ways[i].letter) && !ways[i].run(c))
            return false;
    return true;
}

bool rnd_case_bits(rnd_case *c, char *line, size_t size)
{
    uint64_t weights = 0, counters = 0, predicted = 0, told;
    const uint64_t start = 14695981039346656037u;
    FREED char *steps = NULL, *evals = NULL;

    if (!rnd_make_folder(c->folder) || !write_deck(c) || !rnd_shards_write(c, false) ||
        !rnd_bank_make(c) || !run_plain(c))
        return false;
    steps = rnd_steps(c, "a");
    evals = rnd_evals(c, "a");
    told = rnd_hash(rnd_hash(start, steps, strlen(steps)), evals, strlen(evals));
    if (c->code == 0 &&
        (!rnd_checkpoint_hash(c, "a", rnd_checkpoint(c, "a", 0), &weights, &counters) ||
         !predict(c, 'e', 1, "e1", 4) || !rnd_predictions_hash(c, "e1", &predicted)))
        return rnd_fault(c, '-', "no results to sum");
    snprintf(line, size,
             "%llu/%lld code %d weights %016llx lines %016llx predictions %016llx",
             (unsigned long long)c->seed, (long long)c->index, c->code,
             (unsigned long long)weights, (unsigned long long)told,
             (unsigned long long)predicted);
    return true;
}
