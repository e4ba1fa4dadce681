/* One process that makes and reads mutants until one of them ends it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture/fuzz/fuzz.h"
#include "torture/fuzz/mutate_h5.h"

enum { FAULT = 99, LEAK_EVERY = 400 };

/* Returns true if the sanitizer, where there is one, finds leaks. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static const fuzz_run *run;
static fuzz_slot *slot;

double fuzz_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *fuzz_seeds(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/seeds", run ? run->folder : ".");
    return path;
}

void fuzz_shell(const char *format, ...)
{
    va_list list;
    FREED char *command = NULL;

    va_start(list, format);
    mutate_check(vasprintf(&command, format, list) > 0, "out of memory");
    va_end(list);
    mutate_check(system(command) == 0, command);
}

void fuzz_must(sp_status rc)
{
    mutate_check(rc == SP_OK, sp_error_last()->message);
}

/* ---- faults ---- */

void fuzz_fault(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(slot->words, sizeof slot->words, format, list);
    va_end(list);
    _exit(FAULT);
}

void fuzz_same_bytes(const void *a, const void *b, size_t bytes, const char *what)
{
    if (bytes && memcmp(a, b, bytes) != 0)
        fuzz_fault("another %s, and nobody noticed", what);
}

bool fuzz_status_is_ok(sp_status rc, const char *path, const sp_status *allowed)
{
    const char *said = sp_error_last()->message;

    if (rc == SP_OK)
        return true;
    while (*allowed != SP_OK && *allowed != rc)
        allowed++;
    if (*allowed == SP_OK)
        fuzz_fault("%s: %s", sp_status_name(rc), said);
    if (!strstr(said, path))
        fuzz_fault("%s is not named: %s", path, said);
    return false;
}

bool fuzz_is_ok(sp_status rc, const char *path)
{
    static const sp_status allowed[] = {SP_EDATA, SP_OK};

    return fuzz_status_is_ok(rc, path, allowed);
}

/* ---- memory ---- */

static uint64_t status_bytes(int pid, const char *key)
{
    char path[64], line[256];
    uint64_t kib = 0;
    FILE *from;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    from = fopen(path, "r");
    while (from && fgets(line, sizeof line, from))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtoull(line + strlen(key), NULL, 10);
    if (from)
        fclose(from);
    return kib * 1024;
}

uint64_t fuzz_resident(int pid)
{
    return status_bytes(pid, "VmRSS:");
}

static double worked_of(const char *pid, int group)
{
    unsigned long long ticks[4] = {0};
    char path[300], line[1024] = "";
    const char *at;
    int its_group = -1;
    FILE *from;

    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    from = fopen(path, "r");
    if (from && !fgets(line, sizeof line, from))
        line[0] = 0;
    if (from)
        fclose(from);
    at = strrchr(line, ')'); /* the program's name may hold anything */
    if (!at ||
        sscanf(at + 1,
               " %*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu",
               &its_group, &ticks[0], &ticks[1], &ticks[2], &ticks[3]) != 5 ||
        its_group != group)
        return 0;
    return (double)(ticks[0] + ticks[1] + ticks[2] + ticks[3]) /
           (double)sysconf(_SC_CLK_TCK);
}

double fuzz_worked_s(int group)
{
    DIR *all = opendir("/proc");
    struct dirent *entry;
    double sum = 0;

    while (all && (entry = readdir(all)))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            sum += worked_of(entry->d_name, group);
    if (all)
        closedir(all);
    return sum;
}

static double seconds_of(int who)
{
    struct rusage use;

    getrusage(who, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* The greatest resident size is counted from here on, where the system allows it. */
static void forget_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "5", 1) != 1)
        errno = 0;
    if (fd >= 0)
        close(fd);
}

static uint64_t bound(void)
{
    return FUZZ_MEMORY_TIMES * slot->bytes + FUZZ_MEMORY_MORE;
}

static void check_memory(uint64_t peak, uint64_t before, const char *whose)
{
    if (peak > before + bound())
        fuzz_fault("memory: %s took %llu MiB for %llu bytes of input", whose,
                   (unsigned long long)(peak - before) >> 20,
                   (unsigned long long)slot->bytes);
}

/* A child is charged with its parent's pages too until it executes a program. */
static void check_children(void)
{
    struct rusage use;

    if (getrusage(RUSAGE_CHILDREN, &use) == 0)
        check_memory((uint64_t)use.ru_maxrss * 1024,
                     slot->base > 64u << 20 ? slot->base : 64u << 20, "a child");
}

void fuzz_size(uint64_t bytes)
{
    slot->bytes += bytes;
}

void fuzz_put(const char *path, blob data)
{
    blob_write(path, data);
    fuzz_size(data.n);
}

void fuzz_give(const char *path, blob data)
{
    fuzz_put(path, data);
    free(data.at);
}

void fuzz_put_seed(const char *path, blob seed, bool is_damaged, uint64_t *rng)
{
    blob b = blob_copy(seed);
    const bool is_h5 = h5_is_file(b);

    if (is_damaged && !is_h5)
        mutate_bytes(&b, rng);
    fuzz_give(path, b);
    if (is_damaged && is_h5)
        h5_damage(path, rng);
}

/* ---- commands ---- */

int fuzz_command(sp_status (*work)(void *context), void *context,
                 const sp_status *allowed)
{
    int status = 0, code;
    pid_t pid = fork();

    mutate_check(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        code = work(context);
        fflush(NULL);
        _exit(code);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        fuzz_fault("command ended by signal %d", WTERMSIG(status));
    code = WEXITSTATUS(status);
    while (*allowed != SP_OK && (int)*allowed != code)
        allowed++;
    if (code != 0 && *allowed == SP_OK)
        fuzz_fault("command ended with exit status %d", code);
    return code;
}

/* ---- one mutant after the other ---- */

int fuzz_kind_of(const fuzz_run *r, int64_t index)
{
    uint64_t rng = (uint64_t)index * 0x632be59bd9b4e019u;
    int total = 0, at;

    for (int k = 0; k < FUZZ_N_KINDS; k++) {
        if (r->kind && strcmp(r->kind, fuzz_kinds[k]->name) == 0)
            return k;
        total += fuzz_kinds[k]->weight;
    }
    /* the first mutants are one of each kind, so that short runs have all */
    if (index < FUZZ_N_KINDS && fuzz_kinds[index]->weight > 0)
        return (int)index;
    at = (int)mutate_below(&rng, (size_t)total);
    for (int k = 0; k < FUZZ_N_KINDS; k++) {
        at -= fuzz_kinds[k]->weight;
        if (at < 0)
            return k;
    }
    return FUZZ_N_KINDS - 1;
}

/* The messages of earlier mutants are of no interest. */
static void begin_words(void)
{
    fflush(NULL);
    if (lseek(STDERR_FILENO, 0, SEEK_CUR) > 0) {
        lseek(STDERR_FILENO, 0, SEEK_SET);
        if (ftruncate(STDERR_FILENO, 0) != 0)
            errno = 0;
    }
}

static void run_one(int64_t index)
{
    uint64_t rng =
        run->seed * 0x9e3779b97f4a7c15u + (uint64_t)index * 0xd1342543de82ef95u;
    int kind = fuzz_kind_of(run, index);
    bool is_taken;

    mutate_next(&rng);
    begin_words();
    slot->kind = kind;
    slot->bytes = 0;
    slot->since_s = fuzz_now_s();
    slot->worked_s = seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN);
    slot->base = fuzz_resident((int)getpid());
    slot->index = index;
    forget_peak();
    unsetenv("SP_H5_CHILD_CRASH"); /* of the mutant before this one */
    is_taken = fuzz_kinds[kind]->run(&rng);
    check_memory(status_bytes((int)getpid(), "VmHWM:"), slot->base, "the reader");
    check_children();
    (is_taken ? slot->n_taken : slot->n_refused)[kind]++;
}

static void check_leaks(void)
{
    begin_words();
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
        fuzz_fault("this mutant, or one of the %d of this worker before it, leaks",
                   LEAK_EVERY);
}

void fuzz_work(const fuzz_run *r, fuzz_slot *s, int64_t first, int64_t step)
{
    int64_t n = 0;

    run = r;
    slot = s;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int64_t i = first; i < r->n; i += step) {
        run_one(i);
        if (++n % LEAK_EVERY == 0)
            check_leaks();
    }
    check_leaks();
    slot->index = -1;
    _exit(0);
}
