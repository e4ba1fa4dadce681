/* Fuzzing (fuzz.h): the driver. Its options are those of option_table.
 *
 * Without arguments 300 mutants of seed 1, as in `make check`. A failing mutant's
 * files, its messages and the command that repeats it are kept in DIR (fuzz-faults).
 * Exit status 1 if there was one.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_program.h"
#include "base/sp_word_table.h"
#include "h5/sp_h5.h"
#include "health/sp_crash_recorder.h"
#include "torture/fuzz/fuzz.h"

enum { MOST_WORKERS = 16, FAULTS_SHOWN = 20 };

/* Options of the sanitizers, where the environment has none: refusals of memory are
 * answered by the readers, and freed memory is not kept for long. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:quarantine_size_mb=8:handle_abort=1:"
           "print_suppressions=0";
}

/* The libraries lose some bytes of what they cannot read. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5\nleak:libconfig\n";
}

#define ROW(kind) &fuzz_##kind,
const fuzz_kind *const fuzz_kinds[FUZZ_N_KINDS] = {FUZZ_KINDS(ROW)};

typedef struct worker {
    pid_t pid; /* 0: none */
    int64_t next;
} worker;

static fuzz_run run = {.seed = 1,
                       .n = 300,
                       .only = -1,
                       .n_workers = 2,
                       .limit_s = FUZZ_LIMIT_S,
                       .keep = "fuzz-faults"};
static char self[PATH_MAX];
static fuzz_slot *slots; /* [n_workers], shared */
static worker workers[MOST_WORKERS];
static int n_faults, faults_of[FUZZ_N_KINDS];

/* ---- options ---- */

#define OPTION(type, member)                                                           \
    .kind = SP_OPTION_##type, .offset = offsetof(fuzz_run, member)
static const sp_option option_table[] = {
    {{"--runs", "N", "mutants (300)"}, OPTION(WHOLE, n), .most = INT64_MAX},
    {{"--seed", "S", "of all mutants (1)"}, OPTION(WHOLE, seed), .most = INT64_MAX},
    {{"--kind", "NAME", "only this kind"}, OPTION(TEXT, kind)},
    {{"--only", "INDEX", "one mutant"}, OPTION(WHOLE, only), .most = INT64_MAX},
    {{"--workers", "W", "processes"},
     OPTION(WHOLE, n_workers),
     .least = 1,
     .most = MOST_WORKERS},
    {{"--limit", "SECONDS", "of a core, for a mutant"}, OPTION(REAL, limit_s)},
    {{"--keep", "DIR", "gets failing mutants"}, OPTION(TEXT, keep)}};

static void read_options(int argc, char **argv)
{
    int n_words, k = 0;

    if (sp_options_read(&run, SP_WORD_TABLE(option_table), "fuzz", argc, argv,
                        &n_words) == SP_OK &&
        n_words == 0) {
        while (run.kind && k < FUZZ_N_KINDS &&
               strcmp(run.kind, fuzz_kinds[k]->name) != 0)
            k++;
        if (k < FUZZ_N_KINDS)
            return;
    }
    fprintf(stderr, "%s\noptions:\n", sp_error_last()->message);
    sp_word_table_print(SP_WORD_TABLE(option_table), stderr);
    fputs("kinds:", stderr);
    for (k = 0; k < FUZZ_N_KINDS; k++)
        fprintf(stderr, " %s", fuzz_kinds[k]->name);
    fputc('\n', stderr);
    exit(2);
}

/* ---- workers ---- */

/* Makes an empty working folder; the worker's output goes to a file beside it. */
static void enter_folder(int w)
{
    char path[PATH_MAX + 32];
    int fd, null = open("/dev/null", O_RDWR);

    snprintf(path, sizeof path, "%s/w%d.words", run.folder, w);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    mutate_check(fd >= 0 && null >= 0, path);
    snprintf(path, sizeof path, "%s/w%d", run.folder, w);
    fuzz_shell("rm -rf '%s'", path);
    mutate_check(mkdir(path, 0700) == 0 && chdir(path) == 0, path);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(null);
    close(fd);
}

static void start(int w)
{
    worker *k = &workers[w];

    if (k->next >= run.n)
        return;
    slots[w].index = -1;
    slots[w].words[0] = 0;
    fflush(NULL);
    k->pid = fork();
    mutate_check(k->pid >= 0, "fork");
    if (k->pid == 0) {
        setpgid(0, 0);
        enter_folder(w);
        fuzz_work(&run, &slots[w], k->next, run.only >= 0 ? run.n : run.n_workers);
    }
    setpgid(k->pid, k->pid);
}

/* The signal reaches its children too. */
static void end_worker(worker *k)
{
    kill(-k->pid, SIGKILL);
    kill(k->pid, SIGKILL);
}

/* ---- faults ---- */

/* Gives the line in which a sanitizer says what is wrong. */
static void show_words(const char *folder)
{
    char path[2 * PATH_MAX], line[300];
    FILE *from;

    snprintf(path, sizeof path, "%s/words", folder);
    from = fopen(path, "r");
    for (int n = 0; from && n < 3 && fgets(line, sizeof line, from);)
        if (strstr(line, "ERROR: ") || strstr(line, "runtime error: ") ||
            strstr(line, "Assertion") || strstr(line, "    #3 ") ||
            strstr(line, "fuzz: "))
            n += fprintf(stderr, "    %s", line) > 0;
    if (from)
        fclose(from);
}

static void say_fault(int w, const char *reason)
{
    const fuzz_slot *s = &slots[w];
    const char *kind = fuzz_kinds[s->kind]->name;
    char folder[PATH_MAX + 64], path[PATH_MAX + 80], command[PATH_MAX + 128];
    FILE *to;

    n_faults++;
    faults_of[s->kind]++;
    snprintf(folder, sizeof folder, "%s/%s-%llu-%lld", run.keep, kind,
             (unsigned long long)run.seed, (long long)s->index);
    snprintf(command, sizeof command, "%s --seed %llu%s%s --only %lld", self,
             (unsigned long long)run.seed, run.kind ? " --kind " : "",
             run.kind ? run.kind : "", (long long)s->index);
    fuzz_shell("rm -rf '%s' && mkdir -p '%s' && cp -r '%s/w%d' '%s/files' && "
               "cp '%s/w%d.words' '%s/words'",
               folder, folder, run.folder, w, folder, run.folder, w, folder);
    snprintf(path, sizeof path, "%s/command", folder);
    to = fopen(path, "w");
    if (to) {
        fprintf(to, "%s\n%s\n", command, reason);
        fclose(to);
    }
    if (n_faults > FAULTS_SHOWN)
        return;
    fprintf(stderr, "FAULT %s: mutant %lld: %s\n", kind, (long long)s->index, reason);
    show_words(folder);
    fprintf(stderr, "  files in %s\n  %s\n", folder, command);
}

/* ---- watching ---- */

static void reap(int w, int status)
{
    fuzz_slot *s = &slots[w];
    worker *k = &workers[w];
    char reason[600];

    end_worker(k); /* files that it left behind */
    k->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && s->index < 0) {
        k->next = run.n;
        return;
    }
    if (s->words[0])
        snprintf(reason, sizeof reason, "%s", s->words);
    else if (WIFSIGNALED(status))
        snprintf(reason, sizeof reason, "ended by signal %d", WTERMSIG(status));
    else
        snprintf(reason, sizeof reason, "ended with exit status %d",
                 WEXITSTATUS(status));
    if (s->index < 0) {
        fprintf(stderr, "fuzz: a worker failed before its first mutant: %s\n", reason);
        exit(1);
    }
    say_fault(w, reason);
    k->next = run.only >= 0 ? run.n : s->index + run.n_workers;
    start(w);
}

/* A worker that has hung or grows is killed here, and reaped later. */
static void watch(int w)
{
    fuzz_slot *s = &slots[w];
    worker *k = &workers[w];
    double passed_s;

    if (s->index < 0 || s->words[0])
        return;
    passed_s = fuzz_now_s() - s->since_s;
    if (passed_s > run.limit_s &&
        fuzz_worked_s((int)k->pid) - s->worked_s > run.limit_s)
        snprintf(s->words, sizeof s->words, "hangs: works for more than %g s",
                 run.limit_s);
    else if (passed_s > FUZZ_WAIT_S)
        snprintf(s->words, sizeof s->words, "hangs: waits for more than %d s",
                 FUZZ_WAIT_S);
    else if (s->bytes &&
             fuzz_resident((int)k->pid) > s->base + FUZZ_MEMORY_TIMES * s->bytes +
                                              2 * (uint64_t)FUZZ_MEMORY_MORE)
        snprintf(s->words, sizeof s->words, "memory: grows beyond its bound");
    if (s->words[0])
        end_worker(k);
}

static void work(void)
{
    const struct timespec pause = {0, 20000000};

    for (int w = 0; w < run.n_workers; w++) {
        workers[w].next = run.only >= 0 ? run.only : w;
        if (w == 0 || run.only < 0)
            start(w);
    }
    for (;;) {
        bool is_busy = false;

        for (int w = 0; w < run.n_workers; w++) {
            int status;

            if (!workers[w].pid)
                continue;
            is_busy = true;
            if (waitpid(workers[w].pid, &status, WNOHANG) == workers[w].pid)
                reap(w, status);
            else
                watch(w);
        }
        if (!is_busy)
            return;
        nanosleep(&pause, NULL);
    }
}

/* ---- begin and end ---- */

static bool takes_part(int k)
{
    return run.kind ? strcmp(run.kind, fuzz_kinds[k]->name) == 0
                    : fuzz_kinds[k]->weight > 0;
}

static bool was_prepared(int k)
{
    for (int i = 0; i < k; i++)
        if (takes_part(i) && fuzz_kinds[i]->prepare == fuzz_kinds[k]->prepare)
            return true;
    return !fuzz_kinds[k]->prepare;
}

static void make_folder(void)
{
    const char *top = getenv("TMPDIR");
    char seeds[PATH_MAX];

    snprintf(run.folder, sizeof run.folder, "%s/sptrain-fuzz-XXXXXX",
             top && *top == '/' ? top : "/tmp");
    mutate_check(mkdtemp(run.folder), run.folder);
    snprintf(seeds, sizeof seeds, "%s/seeds", run.folder);
    mutate_check(mkdir(seeds, 0700) == 0 && chdir(seeds) == 0, seeds);
    for (int k = 0; k < FUZZ_N_KINDS; k++)
        if (takes_part(k) && !was_prepared(k))
            fuzz_kinds[k]->prepare();
}

static void report(double seconds)
{
    int64_t all = 0;

    printf("%-22s %8s %8s %8s %6s\n", "kind", "mutants", "taken", "refused", "faults");
    for (int k = 0; k < FUZZ_N_KINDS; k++) {
        int64_t taken = 0, refused = 0;

        for (int w = 0; w < run.n_workers; w++) {
            taken += slots[w].n_taken[k];
            refused += slots[w].n_refused[k];
        }
        all += taken + refused + faults_of[k];
        if (taken + refused + faults_of[k] > 0)
            printf("%-22s %8lld %8lld %8lld %6d\n", fuzz_kinds[k]->name,
                   (long long)(taken + refused + faults_of[k]), (long long)taken,
                   (long long)refused, faults_of[k]);
    }
    printf("%lld mutants of seed %llu in %.0f s, %d faults\n", (long long)all,
           (unsigned long long)run.seed, seconds, n_faults);
}

/* The path becomes absolute, since workers have folders of their own. */
static void make_keep_absolute(void)
{
    char here[PATH_MAX], *path = NULL;

    mutate_check(getcwd(here, sizeof here), "getcwd");
    if (run.keep[0] != '/' && asprintf(&path, "%s/%s", here, run.keep) > 0)
        run.keep = path;
}

int main(int argc, char **argv)
{
    double begin = fuzz_now_s();
    ssize_t n;

    sp_program_begin("sptrain");
    sp_h5_child_main(argc, argv);
    sp_crash_recorder_main(argc, argv);
    n = readlink("/proc/self/exe", self, sizeof self - 1);
    mutate_check(n > 0, "/proc/self/exe");
    read_options(argc, argv);
    if (run.only >= 0)
        run.n = run.only + 1;
    make_keep_absolute();
    slots = mmap(NULL, sizeof *slots * MOST_WORKERS, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mutate_check(slots != MAP_FAILED, "mmap");
    make_folder();
    work();
    mutate_check(chdir("/") == 0, "/");
    fuzz_shell("rm -rf '%s'", run.folder);
    report(fuzz_now_s() - begin);
    return n_faults > 0;
}
