#include "base/sp_machine.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/sp_env.h"
#include "base/sp_number.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

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

/* Reads the one or two numbers at the start of the file and returns how many there are;
 * a word such as "max" is none. */
static int read_numbers(const char *path, double *first, double *second)
{
    FILE *file = fopen(path, "r");
    int n = file ? fscanf(file, "%lf %lf", first, second) : 0;

    if (file)
        fclose(file);
    return n;
}

/* Returns the least limit that the files `name` state, from this process's folder up to
 * the root. A limit is the first number of a file, divided by the second where it has
 * two; HUGE_VAL if no file states one. */
static double cgroup_limit(const char *name)
{
    char folder[PATH_MAX], path[2 * PATH_MAX];
    double least = HUGE_VAL, value, period;
    char *slash = folder;

    /* That of the unified hierarchy; "" if there is none. */
    sp_machine_line("/proc/self/cgroup", "0::", folder, sizeof folder);
    while (slash) {
        snprintf(path, sizeof path, CGROUP_ROOT "%s/%s", folder, name);
        switch (read_numbers(path, &value, &period)) {
        case 1:
            least = fmin(least, value);
            break;
        case 2:
            least = fmin(least, value / period);
            break;
        }
        slash = strrchr(folder, '/');
        if (slash)
            *slash = 0;
    }
    return least;
}

int sp_machine_core_quota(void)
{
    double quota = cgroup_limit("cpu.max"), microseconds, period, unused;

    /* the older hierarchy of cgroups, where -1 stands for no limit */
    if (read_numbers(CGROUP_ROOT "/cpu/cpu.cfs_quota_us", &microseconds, &unused) ==
            1 &&
        microseconds > 0 &&
        read_numbers(CGROUP_ROOT "/cpu/cpu.cfs_period_us", &period, &unused) == 1)
        quota = fmin(quota, microseconds / period);
    return quota < INT_MAX ? (int)fmax(1, ceil(quota)) : INT_MAX;
}

size_t sp_machine_memory(void)
{
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double limit, unused;

    bytes = fmin(bytes, cgroup_limit("memory.max"));
    if (read_numbers(CGROUP_ROOT "/memory/memory.limit_in_bytes", &limit, &unused) == 1)
        bytes = fmin(bytes, limit);
    return (size_t)bytes;
}

/* Memory of this process in bytes; 0 where it is not known. */
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
