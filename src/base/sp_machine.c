#include "base/sp_machine.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sp_env.h"
#include "base/sp_number.h"

int sp_machine_count(const uint64_t set[SP_CORE_WORDS])
{
    int n = 0;

    for (int w = 0; w < SP_CORE_WORDS; w++)
        n += __builtin_popcountll(set[w]);
    return n;
}

int sp_machine_cores(uint64_t set[SP_CORE_WORDS])
{
    size_t bytes = SP_CORE_WORDS * sizeof *set;

    memset(set, 0, bytes);
    if (sched_getaffinity(0, bytes, (cpu_set_t *)set) != 0)
        set[0] = 1;
    return sp_machine_count(set) > 0 ? sp_machine_count(set) : 1;
}

int sp_machine_cores_of_parent(void)
{
    uint64_t set[SP_CORE_WORDS] = {0};

    return sched_getaffinity(getppid(), sizeof set, (cpu_set_t *)set) == 0
               ? sp_machine_count(set)
               : 0;
}

bool sp_machine_line(const char *path, const char *begin, char *line, size_t size)
{
    const size_t n = strlen(begin);
    FILE *file = fopen(path, "re");
    bool is_found = false;

    line[0] = 0;
    while (!is_found && file && fgets(line, (int)size, file))
        is_found = strncmp(line, begin, n) == 0;
    if (file)
        fclose(file);
    line[is_found ? strcspn(line, "\n") : 0] = 0;
    memmove(line, line + (is_found ? n : 0), strlen(line + (is_found ? n : 0)) + 1);
    return is_found;
}

/* Reads the one or two numbers at the start of the file and returns their number; a
 * word such as "max" does not count. */
static int machine_read_numbers(const char *path, double *first, double *second)
{
    FILE *file = fopen(path, "r");
    int n = file ? fscanf(file, "%lf %lf", first, second) : 0;

    if (file)
        fclose(file);
    return n;
}

/* ---- cgroups ---- */

/* Finds this process's folder in the hierarchy of a controller: "cpu" or "memory" of
 * the older cgroups, "" of the unified one. The lines of /proc/self/cgroup are
 * "4:memory:/folder", "5:cpu,cpuacct:/folder" and "0::/folder". False: no folder. */
static bool group_find(const char *membership, const char *controller,
                       char folder[PATH_MAX])
{
    FILE *file = fopen(membership, "re");
    char line[PATH_MAX + 64];
    bool is_found = false;

    while (!is_found && file && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

        if (!path)
            continue;
        *path++ = 0;
        names++;
        path[strcspn(path, "\n")] = 0;
        is_found = *controller == *names && !*names;
        for (char *rest, *name = strtok_r(names, ",", &rest); name && !is_found;
             name = strtok_r(NULL, ",", &rest))
            is_found = strcmp(name, controller) == 0;
        if (is_found)
            snprintf(folder, PATH_MAX, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    if (file)
        fclose(file);
    return is_found;
}

typedef void group_visit(const char *folder, sp_machine_group *group);

/* Visits the folders of a controller below `root`, from this process's up to the
 * hierarchy's. A container sees only those from its own one on, under other names. */
static void group_climb(const char *root, const char *membership, const char *top,
                        const char *controller, group_visit *visit,
                        sp_machine_group *group)
{
    char folder[PATH_MAX] = "", path[2 * PATH_MAX + 64];
    char *slash = folder;

    if (!group_find(membership, controller, folder))
        folder[0] = 0;
    while (slash) {
        snprintf(path, sizeof path, "%s%s%s", root, top, folder);
        visit(path, group);
        slash = strrchr(folder, '/');
        if (slash)
            *slash = 0;
    }
}

static int group_read(const char *folder, const char *name, double *first,
                      double *second)
{
    char path[2 * PATH_MAX + 128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return machine_read_numbers(path, first, second);
}

/* The number after a word in a file of such lines; 0 without the word. */
static double group_word(const char *folder, const char *name, const char *word)
{
    char path[2 * PATH_MAX + 128], line[64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return sp_machine_line(path, word, line, sizeof line) ? strtod(line, NULL) : 0;
}

static void visit_cpu(const char *folder, sp_machine_group *g)
{
    double quota, period, unused;

    if (group_read(folder, "cpu.max", &quota, &period) == 2)
        g->cores = fmin(g->cores, quota / period);
    /* of the older cgroups; -1: no limit */
    if (group_read(folder, "cpu.cfs_quota_us", &quota, &unused) == 1 && quota > 0 &&
        group_read(folder, "cpu.cfs_period_us", &period, &unused) == 1)
        g->cores = fmin(g->cores, quota / period);
}

static void visit_memory(const char *folder, sp_machine_group *g)
{
    static const char *const limits[] = {"memory.max", "memory.limit_in_bytes"};
    static const char *const peaks[] = {"memory.peak", "memory.max_usage_in_bytes"};
    double limit, peak, unused;

    for (int i = 0; i < 2; i++) {
        if (group_read(folder, limits[i], &limit, &unused) != 1 || limit >= g->memory)
            continue;
        g->memory = limit;
        g->peak = group_read(folder, peaks[i], &peak, &unused) == 1 ? peak : 0;
        snprintf(g->folder, sizeof g->folder, "%s", folder);
    }
    g->n_killed =
        (int64_t)fmax((double)g->n_killed,
                      fmax(group_word(folder, "memory.events", "oom_kill "),
                           group_word(folder, "memory.oom_control", "oom_kill ")));
}

void sp_machine_read_group(const char *root, const char *membership,
                           sp_machine_group *group)
{
    *group = (sp_machine_group){.cores = HUGE_VAL, .memory = HUGE_VAL};
    group_climb(root, membership, "", "", visit_cpu, group);
    group_climb(root, membership, "/unified", "", visit_cpu, group);
    group_climb(root, membership, "/cpu", "cpu", visit_cpu, group);
    group_climb(root, membership, "", "", visit_memory, group);
    group_climb(root, membership, "/unified", "", visit_memory, group);
    group_climb(root, membership, "/memory", "memory", visit_memory, group);
}

static void read_own_group(sp_machine_group *group)
{
    sp_machine_read_group("/sys/fs/cgroup", "/proc/self/cgroup", group);
}

int sp_machine_core_quota(void)
{
    sp_machine_group group;

    read_own_group(&group);
    return group.cores < INT_MAX ? (int)fmax(1, ceil(group.cores)) : INT_MAX;
}

/* Bytes, once machine_read_memory has run. */
static size_t machine_memory;

static void machine_read_memory(void)
{
    const double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    sp_machine_group group;

    read_own_group(&group);
    machine_memory = (size_t)fmin(all, group.memory);
}

size_t sp_machine_memory(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, machine_read_memory);
    return machine_memory;
}

/* ---- the out-of-memory killer ---- */

void sp_machine_look_at_kills(sp_machine_kills *kills)
{
    sp_machine_group group;
    char line[64];

    read_own_group(&group);
    kills->of_group = group.n_killed;
    sp_machine_line("/proc/vmstat", "oom_kill ", line, sizeof line);
    kills->of_machine = strtoll(line, NULL, 10);
}

void sp_machine_tell_kills(const sp_machine_kills *before, char *text, size_t size)
{
    const double mib = 1 << 20;
    sp_machine_kills now;
    sp_machine_group group;

    assert(before && size > 0);
    *text = 0;
    sp_machine_look_at_kills(&now);
    read_own_group(&group);
    if (now.of_group > before->of_group)
        snprintf(
            text, size,
            "; memory ran out: the kernel's out-of-memory killer has ended %lld "
            "process%s of this job's cgroup (limit %.1f MiB, peak %.1f MiB, %.200s)",
            (long long)(now.of_group - before->of_group),
            now.of_group - before->of_group == 1 ? "" : "es", group.memory / mib,
            group.peak / mib, group.folder);
    else if (now.of_machine > before->of_machine)
        snprintf(text, size,
                 "; memory ran out: the kernel's out-of-memory killer has ended %lld "
                 "process%s of this machine (%.1f MiB) meanwhile",
                 (long long)(now.of_machine - before->of_machine),
                 now.of_machine - before->of_machine == 1 ? "" : "es",
                 (double)sp_machine_memory() / mib);
}

/* Memory of this process in bytes; 0 if it is not known. */
typedef struct process_size {
    size_t addresses, resident, data; /* data: addresses that it may write to */
} process_size;

static process_size read_size(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned long long all, in_memory, data;
    process_size size = {0};
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 &&
        sscanf(text, "%llu %llu %*u %*u %*u %llu", &all, &in_memory, &data) == 3)
        size = (process_size){page * all, page * in_memory, page * data};
    if (fd >= 0)
        close(fd);
    return size;
}

size_t sp_machine_resident(void)
{
    return read_size().resident;
}

static size_t left_of(int resource, size_t taken)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return taken < limit.rlim_cur ? limit.rlim_cur - taken : 0;
}

size_t sp_machine_addresses(void)
{
    return read_size().addresses;
}

size_t sp_machine_address_space(void)
{
    const process_size size = read_size();
    const size_t all = sp_machine_has_valgrind() ? (size_t)32 << 30
                                                 : left_of(RLIMIT_AS, size.addresses);
    const size_t data = left_of(RLIMIT_DATA, size.data);

    return data < all ? data : all;
}

bool sp_machine_has_valgrind(void)
{
    const char *preload = sp_env("LD_PRELOAD");

    return preload && strstr(preload, "/vgpreload");
}

const char *sp_machine_processor(void)
{
    static char name[128];
    char line[256];

    sp_machine_line("/proc/cpuinfo", "model name", line, sizeof line);
    snprintf(name, sizeof name, "%.120s",
             strstr(line, ": ") ? strstr(line, ": ") + 2 : "unknown");
    return name;
}

uint64_t sp_machine_shm(void)
{
    struct stat of;

    return stat("/dev/shm", &of) == 0 ? (uint64_t)of.st_dev : 0;
}

const char *sp_machine_boot(void)
{
    static char id[64];

    sp_machine_line("/proc/sys/kernel/random/boot_id", "", id, sizeof id);
    return id;
}

double sp_machine_children_s(void)
{
    struct rusage used;

    if (getrusage(RUSAGE_CHILDREN, &used) != 0)
        return 0;
    return (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec +
           (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec;
}

void sp_machine_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void sp_machine_bound_heap(void)
{
#ifdef __GLIBC__
    enum { LARGE = 64 << 10 };

    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, LARGE);
#endif
}

void sp_machine_zero(void *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
    uintptr_t begin = sp_multiple(at, page), end = (at + bytes) / page * page;

    assert(data || bytes == 0);
    /* memcheck would count the pages that the system zeroes as not initialized. */
    if (begin >= end || sp_machine_has_valgrind() ||
        madvise((void *)begin, end - begin, MADV_DONTNEED) != 0) {
        memset(data, 0, bytes);
        return;
    }
    memset(data, 0, begin - at);
    memset((void *)end, 0, at + bytes - end);
}

bool sp_machine_move_pages(void *from, void *to, size_t bytes)
{
#ifdef MREMAP_DONTUNMAP
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;

    if (sp_machine_has_valgrind())
        return false;
    /* UCX, which MPICH uses, replaces mremap() by a function that ignores `to`. */
    if ((void *)syscall(SYS_mremap, from, bytes, bytes, flags, to) == to)
        return true;
    /* It may fail after `to` was unmapped. */
    mmap(to, bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
#else
    (void)from, (void)to, (void)bytes;
#endif
    return false;
}
