/* random_runs: draws cases and holds each against itself. README in this folder tells
 * how to use it. */
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "base/sp_word_table.h"
#include "torture/random/random.h"

enum { REFUSED_PERCENT = 10, DIVERGED_PERCENT = 2 };

/* Counted by all jobs, in shared memory. */
typedef struct totals {
    int64_t runs, faults, refused, diverged, way[N_WAYS];
} totals;

static totals *total;

static void count(int64_t *n)
{
    __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

#define WHOLE(member, limit)                                                           \
    .kind = SP_OPTION_WHOLE, .offset = offsetof(rnd_options, member), .most = limit
#define TEXT(member) .kind = SP_OPTION_TEXT, .offset = offsetof(rnd_options, member)
static const sp_option option_table[] = {
    {{"--seed", "S", "of all cases (1)"}, WHOLE(seed, INT64_MAX)},
    {{"--runs", "N", "so many cases (30)"}, WHOLE(runs, INT64_MAX)},
    {{"--first", "I", "the first case (0)"}, WHOLE(first, INT64_MAX)},
    {{"--only", "I", "one case"}, WHOLE(only, INT64_MAX)},
    {{"--ways", "abc", "only these, in each case that they suit"}, TEXT(ways)},
    {{"--take", "A,B", "only these draws; all others are plain"}, TEXT(takes)},
    {{"--jobs", "N", "cases at a time (processors)"}, WHOLE(jobs, INT64_MAX)},
    {{"--limit", "S", "seconds of one run (240)"}, WHOLE(limit_s, INT64_MAX)},
    {{"--keep", "DIR", "where failing cases stay (random-faults)"}, TEXT(keep)},
    {{"--shrink", "0", "leaves failing cases unchanged"}, WHOLE(is_shrinking, 1)},
    {{"--until", "N", "ends after so many faults (0: never)"}, WHOLE(until, INT64_MAX)},
    {{"--seconds", "N", "begins no more cases after this time (0: all)"},
     WHOLE(seconds, INT64_MAX)},
    {{"--bits", "FILE", "writes checksums of results instead of comparing"},
     TEXT(bits)},
    {{"--list", "1", "prints the decks and runs nothing"}, WHOLE(is_listing, 1)}};

/* ---- one case ---- */

/* Checksums are those of cases that every version and every processor accepts. */
static rnd_case *draw(const rnd_options *o, int64_t index)
{
    rnd_case *c = malloc(sizeof *c);

    rnd_case_draw(c, o, index, o->takes, o->bits ? "train.precision" : NULL);
    if (o->bits && c->feature_kind == VALUES_ROUNDED)
        rnd_case_draw(c, o, index, o->takes, "train.precision,feature.values");
    snprintf(c->folder, sizeof c->folder, "%.400s/%llu-%lld", o->work,
             (unsigned long long)c->seed, (long long)index);
    rnd_remove(c->folder);
    return c;
}

/* Prints the command that repeats a failing case. */
static void print_command(FILE *to, const rnd_case *c, const char *takes)
{
    fprintf(to, "tests/torture/random/random_runs --seed %llu --only %lld",
            (unsigned long long)c->seed, (long long)c->index);
    if (strchr(RANDOM_WAYS, c->way))
        fprintf(to, " --ways %c", c->way);
    if (takes)
        fprintf(to, " --take %s", *takes ? takes : "none");
    fputc('\n', to);
}

static void print_fault(FILE *to, const rnd_case *c, const char *takes)
{
    fprintf(to, "FAULT case %llu/%lld way %c: %s\n", (unsigned long long)c->seed,
            (long long)c->index, c->way, c->fault);
    fprintf(to, "  ");
    print_command(to, c, takes);
}

/* Runs the case once more, as small as it became, where it is to stay. */
static void keep(const rnd_case *failed, const char *takes)
{
    const rnd_options *o = failed->options;
    const char way[2] = {failed->way, 0};
    rnd_options alone = *o;
    FREED rnd_case *c = malloc(sizeof *c);
    FREED char *path = NULL;
    FILE *file;

    if (strchr(RANDOM_WAYS, failed->way))
        alone.ways = way;
    rnd_case_draw(c, &alone, failed->index, takes, NULL);
    rnd_make_folder(o->keep);
    snprintf(c->folder, sizeof c->folder, "%.400s/%llu-%lld", o->keep,
             (unsigned long long)c->seed, (long long)c->index);
    rnd_remove(c->folder);
    rnd_case_run(c);
    path = rnd_path(c, "fault");
    file = fopen(path, "w");
    if (file) {
        print_fault(file, c->way ? c : failed, takes);
        fclose(file);
    }
    print_fault(stdout, c->way ? c : failed, takes);
    printf("  kept in %s; its commands are in the file \"commands\"\n", c->folder);
}

/* Gives the message with which the plain run was refused. */
static void print_refusal(const rnd_case *c)
{
    FREED char *path = rnd_path(c, "a.out"), *text = rnd_read_file(path, NULL);
    const char *at = text ? strstr(text, "error: ") : NULL;

    printf("refused: case %llu/%lld: %.*s\n", (unsigned long long)c->seed,
           (long long)c->index, at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

static void run_case(const rnd_options *o, int64_t index)
{
    FREED rnd_case *c = draw(o, index);
    const bool is_good = rnd_case_run(c);
    FREED char *takes = NULL;

    count(&total->runs);
    if (c->code == 2 || c->code == 3) {
        count(&total->refused);
        print_refusal(c);
    }
    if (c->code == 8)
        count(&total->diverged);
    for (int i = 0; i < N_WAYS && c->code == 0; i++)
        if (strchr(c->ways, RANDOM_WAYS[i]))
            count(&total->way[i]);
    if (!is_good) {
        count(&total->faults);
        if (o->is_shrinking)
            rnd_shrink(c, &takes);
        keep(c, takes ? takes : o->takes);
    }
    rnd_remove(c->folder);
}

static void write_bits(const rnd_options *o, int64_t index)
{
    FREED rnd_case *c = draw(o, index);
    char line[256], path[PATH_SIZE];
    FILE *file;

    count(&total->runs);
    if (!rnd_case_bits(c, line, sizeof line)) {
        count(&total->faults);
        snprintf(line, sizeof line, "%llu/%lld FAULT %.200s",
                 (unsigned long long)c->seed, (long long)index, c->fault);
    }
    snprintf(path, sizeof path, "%.400s/bits-%lld", o->work, (long long)index);
    file = fopen(path, "w");
    if (file) {
        fprintf(file, "%s\n", line);
        fclose(file);
    }
    rnd_remove(c->folder);
}

static void list_case(const rnd_options *o, int64_t index)
{
    FREED rnd_case *c = draw(o, index);

    printf("# case %llu/%lld, ranks %d\n%s\n", (unsigned long long)c->seed,
           (long long)index, c->ranks, c->deck);
}

/* ---- all cases ---- */

/* Runs each case in a process of its own, so many at a time. */
static void run_all(const rnd_options *o, void (*run)(const rnd_options *, int64_t))
{
    const time_t begin = time(NULL);
    int64_t runs = o->runs;
    int running = 0, status;

    for (int64_t i = 0; i < runs || running > 0;) {
        pid_t pid = -1;

        if (o->until && total->faults >= o->until)
            runs = i;
        if (o->seconds && i < runs && time(NULL) - begin >= o->seconds) {
            printf("no time left: only %lld of %lld cases were begun\n", (long long)i,
                   (long long)runs);
            runs = i;
        }
        if (i < runs && running < o->jobs) {
            fflush(NULL);
            pid = fork();
            if (pid == 0) {
                H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
                run(o, o->first + i);
                fflush(NULL);
                _exit(0);
            }
            i++;
            running += pid > 0;
            continue;
        }
        if (running == 0)
            break;
        if (wait(&status) > 0)
            running--;
        if (!WIFEXITED(status)) {
            printf("FAULT: the tester itself ended by signal %d\n", WTERMSIG(status));
            count(&total->faults);
        }
    }
}

static void gather_bits(const rnd_options *o)
{
    FILE *file = fopen(o->bits, "w");

    for (int64_t i = 0; file && i < o->runs; i++) {
        char path[PATH_SIZE], *line;

        snprintf(path, sizeof path, "%.400s/bits-%lld", o->work,
                 (long long)(o->first + i));
        line = rnd_read_file(path, NULL);
        if (line)
            fputs(line, file);
        free(line);
    }
    if (!file || fclose(file) != 0) {
        printf("cannot write %s\n", o->bits);
        count(&total->faults);
    }
}

static int summarize(const rnd_options *o, double seconds)
{
    const bool is_refused =
        o->runs >= 30 && total->refused * 100 > total->runs * REFUSED_PERCENT;
    const bool is_diverged =
        o->runs >= 100 && total->diverged * 100 > total->runs * DIVERGED_PERCENT;

    printf("%lld cases of seed %llu from %lld in %.0f s: %lld faults, %lld refused, "
           "%lld diverged; ways",
           (long long)total->runs, (unsigned long long)o->seed, (long long)o->first,
           seconds, (long long)total->faults, (long long)total->refused,
           (long long)total->diverged);
    for (int i = 0; i < N_WAYS; i++)
        printf(" %c %lld", RANDOM_WAYS[i], (long long)total->way[i]);
    printf("\n");
    if (is_refused)
        printf("FAULT: more than %d %% of the cases were refused\n", REFUSED_PERCENT);
    if (is_diverged)
        printf("FAULT: more than %d %% of the cases diverged\n", DIVERGED_PERCENT);
    return total->faults > 0 || is_refused || is_diverged;
}

/* ---- command line ---- */

/* Gives the program as an absolute path; NULL: it is not there. */
static const char *program(const char *path)
{
    char *real = path ? realpath(path, NULL) : NULL;

    return real && access(real, X_OK) == 0 ? real : NULL;
}

static bool read_options(rnd_options *o, int argc, char **argv)
{
    int n_words;

    if (sp_options_read(o, SP_WORD_TABLE(option_table), "random", argc, argv,
                        &n_words) != SP_OK ||
        n_words > 0) {
        fprintf(stderr,
                "%s\noptions; environment: SPTRAIN, SPTRAIN_HOSTCUDA, MPIEXEC, "
                "TMPDIR\n",
                sp_error_last()->message);
        sp_word_table_print(SP_WORD_TABLE(option_table), stderr);
        return false;
    }
    if (o->only >= 0) {
        o->first = o->only;
        o->runs = 1;
    }
    return true;
}

static bool find_programs(rnd_options *o)
{
    o->sptrain = program(rnd_environment("SPTRAIN", "./sptrain"));
    o->emulated = program(rnd_environment("SPTRAIN_HOSTCUDA", NULL));
    o->mpiexec = rnd_environment("MPIEXEC", "mpiexec");
    if (!o->sptrain)
        fprintf(stderr, "random_runs: no program sptrain here; name it by SPTRAIN\n");
    return o->sptrain;
}

static int run_options(rnd_options *o)
{
    const double begin = sp_now_s();

    run_all(o, o->is_listing ? list_case : o->bits ? write_bits : run_case);
    if (o->bits)
        gather_bits(o);
    return o->is_listing ? 0 : summarize(o, sp_now_s() - begin);
}

int main(int argc, char **argv)
{
    rnd_options o = {.seed = 1,
                     .only = -1,
                     .runs = 30,
                     .limit_s = 240,
                     .keep = "random-faults",
                     .is_shrinking = true};
    char work[PATH_SIZE];
    int status;

    o.jobs = sysconf(_SC_NPROCESSORS_ONLN);
    if (!read_options(&o, argc, argv) || !find_programs(&o) || o.jobs < 1)
        return 2;
    snprintf(work, sizeof work, "%.400s/random.XXXXXX",
             rnd_environment("TMPDIR", "/tmp"));
    total = mmap(NULL, sizeof *total, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!mkdtemp(work) || total == MAP_FAILED) {
        fprintf(stderr, "random_runs: cannot make %s\n", work);
        return 4;
    }
    o.work = work;
    status = run_options(&o);
    rnd_remove(work);
    return status;
}
