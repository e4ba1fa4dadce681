/* The cores and the memory that this process may use on its machine, within the limits
 * of batch systems and containers (affinity, cgroups, resource limits). All functions
 * are local and cannot fail: a limit that cannot be read is ignored. */
#ifndef SP_MACHINE_H
#define SP_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of cores is an array of this many 64-bit words, one bit a core, wide enough for
 * any machine. */
enum { SP_CORE_WORDS = 128 };
/* The bytes of a large page. */
enum { SP_LARGE_PAGE = 2 << 20 };

/* The number of cores of a set. */
int sp_machine_count(const uint64_t set[SP_CORE_WORDS]);
/* Writes the set of cores that this process may run on and returns their number, at
 * least 1. */
int sp_machine_cores(uint64_t set[SP_CORE_WORDS]);
/* Returns the number of cores that the process which started this one may run on; 0:
 * not known. */
int sp_machine_cores_of_parent(void);
/* The least limits of the cgroups that this process is in. */
typedef struct sp_machine_group {
    double cores;  /* processor time; HUGE_VAL: no limit */
    double memory; /* bytes; HUGE_VAL: no limit */
    double peak; /* bytes that the group with that limit has used at most; 0: unknown */
    int64_t n_killed; /* processes that the out-of-memory killer has ended in them */
    char folder[512]; /* of the group that has the least limit of memory */
} sp_machine_group;

/* Reads the limits of both kinds of cgroups: in this process's folders and all above
 * them. root: "/sys/fs/cgroup"; membership: "/proc/self/cgroup"; tests have others. */
void sp_machine_read_group(const char *root, const char *membership,
                           sp_machine_group *group);
/* Numbers of processes that the kernel's out-of-memory killer has ended so far, in this
 * process's cgroups and on the machine. */
typedef struct sp_machine_kills {
    int64_t of_group, of_machine;
} sp_machine_kills;

void sp_machine_look_at_kills(sp_machine_kills *kills);
/* Writes the kills since then, as "; memory ran out: ..." with limit and peak; "" if
 * nothing. */
void sp_machine_tell_kills(const sp_machine_kills *before, char *text, size_t size);
/* Returns the processor time that the cgroup grants, in cores, rounded up; INT_MAX
 * without a limit. */
int sp_machine_core_quota(void);
/* Returns the bytes of memory: the physical memory or the cgroup's limit, whichever is
 * less. They are read at the first call: some forty files of cgroups, 0.3 ms. */
size_t sp_machine_memory(void);
/* Returns the bytes of addresses that this process has taken; 0: not known. */
size_t sp_machine_addresses(void);
/* Returns the bytes of addresses that ulimit -v and -d still allow the process;
 * SIZE_MAX without a limit. Valgrind has fewer addresses than the system; under it the
 * result is a part of them. */
size_t sp_machine_address_space(void);
/* True under valgrind (memcheck and its other tools). */
bool sp_machine_has_valgrind(void);
/* Returns the bytes of physical memory that this process occupies; 0: not known.
 * Allocates nothing. */
size_t sp_machine_resident(void);
/* Returns the processor time in seconds of the child processes that have ended. */
double sp_machine_children_s(void);
/* Zeroes private memory. Whole pages go back to the system and occupy memory again only
 * when they are touched. */
void sp_machine_zero(void *data, size_t bytes);
/* Has the pages of `from` take the place of those of `to`, which go back to the system.
 * Both are whole pages of private memory; their bytes are undefined afterwards, but `from`
 * is zero and without pages if the result is true. False: the system cannot do that, or
 * valgrind counts the pages. */
bool sp_machine_move_pages(void *from, void *to, size_t bytes);
/* Gives freed memory that malloc keeps back to the system. */
void sp_machine_trim(void);
/* Lets malloc keep little of what is freed, for a program whose threads come and go: all
 * threads started later share one heap, and blocks from 64 KiB are the system's own. By
 * default glibc has a heap for each thread, and moves that bound up as blocks are freed.
 */
void sp_machine_bound_heap(void);
/* Finds the first line of a file of the system that begins so, and writes its rest to
 * line [size]; false: no line does, and line is empty. */
bool sp_machine_line(const char *path, const char *begin, char *line, size_t size);
/* The processor's name as the system states it, or "unknown". */
const char *sp_machine_processor(void);
/* The number of the file system of /dev/shm: processes share memory by it if they have
 * the same one. Containers of a machine often have their own. 0: no /dev/shm. */
uint64_t sp_machine_shm(void);
/* A text that is the same for all processes of this machine and no other, until it is
 * started again; empty if the system states none. */
const char *sp_machine_boot(void);

#endif
