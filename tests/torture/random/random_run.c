/* Starting sptrain, with a limit on its time; every command is noted in the case's
 * folder, so that a kept case can be repeated by hand. */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "torture/random/random.h"

enum { MOST_WORDS = 48, TERM_S = 5 };

typedef struct command {
    char text[4096]; /* the words, each ended by a zero byte */
    size_t used;
    char *word[MOST_WORDS];
    int n;
} command;

static void add_word(command *m, const char *word, size_t length)
{
    if (m->n + 1 >= MOST_WORDS || m->used + length + 1 > sizeof m->text)
        return;
    m->word[m->n] = m->text + m->used;
    memcpy(m->word[m->n], word, length);
    m->word[m->n++][length] = 0;
    m->word[m->n] = NULL;
    m->used += length + 1;
}

static void add(command *m, const char *word)
{
    add_word(m, word, strlen(word));
}

/* Words separated by blanks. */
static void add_all(command *m, const char *words)
{
    while (*words) {
        const size_t length = strcspn(words, " ");

        if (length)
            add_word(m, words, length);
        words += length + (words[length] == ' ');
    }
}

/* Appends the command to the file "commands" of the case, for a shell. */
static void note(const rnd_case *c, const command *m, const char *fault, int code)
{
    FREED char *path = rnd_path(c, "commands");
    FILE *file = fopen(path, "a");

    if (!file)
        return;
    if (fault)
        fprintf(file, "SP_TEST_FAULT=%s ", fault);
    for (int i = 0; i < m->n; i++)
        fprintf(file, strpbrk(m->word[i], "[]\" *;") ? "'%s' " : "%s ", m->word[i]);
    fprintf(file, " # ended with %d\n", code);
    fclose(file);
}

/* ---- the process ---- */

static void become(const rnd_case *c, const command *m, const char *dir,
                   const char *fault)
{
    char path[NAME_SIZE + 8];
    sigset_t none;
    int fd;

    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(path, sizeof path, "%s.out", dir);
    if (chdir(c->folder) != 0)
        _exit(127);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    fd = open("/dev/null", O_RDONLY);
    dup2(fd, STDIN_FILENO);
    if (fault)
        setenv("SP_TEST_FAULT", fault, 1);
    else
        unsetenv("SP_TEST_FAULT");
    /* Large pages come by accident, and each adds up to 2 MiB to the memory that way f
     * compares with the foreseen. The emulated device, whose memory nobody compares, is
     * faster with them, since it opens and closes its memory around each operation. */
    if (!c->options->emulated || strcmp(m->word[0], c->options->emulated) != 0)
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    execvp(m->word[0], m->word);
    _exit(127);
}

/* Waits for the process until `end`; false: the time is over. SIGCHLD is blocked. */
static bool wait_until(pid_t pid, double end, int *status, struct rusage *use)
{
    sigset_t set;
    struct timespec left;
    double s;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (;;) {
        if (wait4(pid, status, WNOHANG, use) == pid)
            return true;
        s = end - sp_now_s();
        if (s <= 0)
            return false;
        left.tv_sec = (time_t)s;
        left.tv_nsec = (long)(1e9 * (s - (double)left.tv_sec));
        sigtimedwait(&set, NULL, &left);
    }
}

static rnd_result start(const rnd_case *c, const command *m, const char *dir,
                        const char *fault)
{
    rnd_result r = {.code = 127};
    struct rusage use = {0};
    sigset_t set;
    int status = 0;
    pid_t pid;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        become(c, m, dir, fault);
    if (pid < 0)
        return r;
    if (!wait_until(pid, sp_now_s() + (double)c->options->limit_s, &status, &use)) {
        r.is_hung = true; /* the launcher ends its ranks where it is asked first */
        kill(-pid, SIGTERM);
        if (!wait_until(pid, sp_now_s() + TERM_S, &status, &use)) {
            kill(-pid, SIGKILL);
            wait4(pid, &status, 0, &use);
        }
    }
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    r.rss_kib = use.ru_maxrss;
    note(c, m, fault, r.code);
    return r;
}

/* MPICH's launcher forgets a status that it collects before it has seen the rank's
 * connection closed, and says 1: seldom, where it waits for a processor. */
static bool is_launchers(const rnd_case *c, const char *dir)
{
    FREED char *path = rnd_path(c, "%s.out", dir), *text = rnd_read_file(path, NULL);

    return text && strstr(text, "EXIT STRING: Hangup (signal 1)");
}

rnd_result rnd_run(const rnd_case *c, int ranks, const char *verb, const char *dir,
                   const char *fault, const char *more)
{
    const bool is_device = ranks == ON_DEVICE;
    const bool has_init =
        c->has_init && (strcmp(verb, "train") == 0 || strcmp(verb, "check") == 0);
    command m = {.n = 0};
    char words[PATH_SIZE];
    rnd_result r;

    if (ranks > 0) {
        add(&m, c->options->mpiexec);
        snprintf(words, sizeof words, "-n %d", ranks);
        add_all(&m, words);
    }
    add(&m, is_device ? c->options->emulated : c->options->sptrain);
    snprintf(words, sizeof words, "%s case.deck run.dir=%s %s %s", verb, dir,
             is_device ? "run.device=cuda" : "",
             has_init ? "run.init_from=init/checkpoints/step-000000001.h5" : "");
    add_all(&m, words);
    add_all(&m, more);
    r = start(c, &m, dir, fault);
    if (r.code == 1 && is_launchers(c, dir))
        r = start(c, &m, dir, fault);
    return r;
}

bool rnd_bank_make(rnd_case *c)
{
    const char *program = c->options->sptrain, *end = strrchr(program, '/');
    char words[PATH_SIZE];
    command m = {.n = 0};
    rnd_result r;

    if (!c->has_bank)
        return true;
    snprintf(words, sizeof words, "%.*sspvox", end ? (int)(end + 1 - program) : 0,
             program);
    add(&m, words);
    add_all(&m, "bank --out bank.h5 --classes 0,1 --min-voxels 1 --max-voxels 100");
    for (int i = 0; i < c->train.n_shards; i++) {
        FREED char *name = rnd_shard_name(c, &c->train, i);

        add(&m, name);
    }
    r = start(c, &m, "bank", NULL);
    return r.code == 0 || r.code == 3 ? true
                                      : rnd_fault(c, '-', "bank ended with %d", r.code);
}

/* ---- folders ---- */

char *rnd_path(const rnd_case *c, const char *format, ...)
{
    char below[PATH_SIZE], *path;
    va_list args;

    va_start(args, format);
    vsnprintf(below, sizeof below, format, args);
    va_end(args);
    if (asprintf(&path, "%s/%s", c->folder, below) < 0)
        abort();
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    remove(path);
    return 0;
}

void rnd_remove(const char *path)
{
    const struct timespec moment = {0, 50000000};

    /* A process that is about to end may still write a file there. */
    for (int i = 0; i < 20 && access(path, F_OK) == 0; i++) {
        if (i > 0)
            nanosleep(&moment, NULL);
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

bool rnd_make_folder(const char *path)
{
    return sp_file_make_folder(path) == SP_OK;
}
