/* Fuzzing: damaged and hostile files of every kind that a program reads.
 *
 *     fuzz_main.c    options, seeds, workers that are watched and started again, report
 *     fuzz_worker.c  one mutant after the other in one process, its memory measured
 *     kind_*.c       a kind: its good files, its mutants, the code that reads them
 *     mutate*.c      how files are made wrong
 *
 * Mutant `index` of a run is a pure function of the run's seed and the index. It is a
 * fault if the process dies or a sanitizer speaks, if reading takes longer than
 * FUZZ_LIMIT_S of a core (or FUZZ_WAIT_S without working; a machine with other work may
 * be slow), if it takes more memory than FUZZ_MEMORY_TIMES its files and
 * FUZZ_MEMORY_MORE, or if a kind says so by fuzz_fault.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"
#include "fixtures/closed_by.h"
#include "torture/fuzz/mutate.h"
#include "scan/sp_scan_format.h"

enum {
    FUZZ_MEMORY_TIMES = 10,
    FUZZ_MEMORY_MORE = 256 << 20,
    FUZZ_LIMIT_S = 10,
    FUZZ_WAIT_S = 90
};

typedef struct fuzz_kind {
    const char *name;
    int weight; /* share of all kinds' sum; 0: only by name */
    /* Makes good files in the folder of seeds, before there are workers; called once,
     * though kinds may share it. NULL: there is nothing to do. */
    void (*prepare)(void);
    /* Makes one mutant in the working folder and reads it; true if it was accepted. */
    bool (*run)(uint64_t *rng);
} fuzz_kind;

/* All kinds: the row of kind `ply` is fuzz_ply, in a file kind_*.c. Each format of scans
 * is a kind, and LAZ with an index is one more. */
/* clang-format off */
#define FUZZ_KINDS(X)                                                                  \
    SP_SCAN_FORMATS(X) X(copc) X(convert) X(shard) X(shard_chunked) X(shard_values)    \
    X(shard_links) X(index) X(info) X(checkpoint) X(checkpoint_values) X(checkpoint_structure)  \
    X(weights) X(prediction) X(deck) X(check) X(eval) X(resume) X(heartbeat) X(status) \
    X(folder) X(events) X(report) X(link) X(tensors) X(packed) X(faulty)
/* clang-format on */
#define FUZZ_DECLARE(kind) extern const fuzz_kind fuzz_##kind;
FUZZ_KINDS(FUZZ_DECLARE)
#define FUZZ_COUNT(kind) +1
enum { FUZZ_N_KINDS = FUZZ_KINDS(FUZZ_COUNT) };

/* ---- for kinds ---- */

/* Reports that a wrong input was accepted, or was refused in the wrong way. The worker
 * ends. */
_Noreturn void fuzz_fault(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* A fault unless the bytes of a, which was read, are those of b; `what` names them. */
void fuzz_same_bytes(const void *a, const void *b, size_t bytes, const char *what);

/* Checks a reader's status: SP_OK, or one of the others (SP_OK ends the list) with a
 * message that names the file. Returns rc == SP_OK. */
bool fuzz_status_is_ok(sp_status rc, const char *path, const sp_status *allowed);
/* The same, where SP_EDATA alone is allowed. */
bool fuzz_is_ok(sp_status rc, const char *path);

/* Tells the bytes of the mutant for the bound on memory; called before it is read. */
void fuzz_size(uint64_t bytes);
/* Writes a file of the mutant and tells its bytes. */
void fuzz_put(const char *path, blob data);
/* The same of data that it frees then. */
void fuzz_give(const char *path, blob data);
/* Writes a seed and tells its bytes. If is_damaged it is changed by mutate_bytes, an HDF5
 * file by h5_damage. */
void fuzz_put_seed(const char *path, blob seed, bool is_damaged, uint64_t *rng);

/* Ends the process with the error's message unless the status is SP_OK: for seeds. */
void fuzz_must(sp_status rc);

/* Runs a whole command in a child of its own, since it leaves threads and state behind;
 * returns its exit status, which must be among the first n of `allowed`. */
int fuzz_command(sp_status (*work)(void *context), void *context,
                 const sp_status *allowed);

/* Runs a command line of the shell, which must succeed. */
void fuzz_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Gives the path of the folder of seeds. */
const char *fuzz_seeds(void);

/* ---- between the files of the driver ---- */

/* One worker's place in memory that it shares with the driver. */
typedef struct fuzz_slot {
    int64_t index; /* mutant in work; -1: none */
    int kind;
    double since_s;  /* time at which it began */
    double worked_s; /* seconds of a core used before it, children included */
    uint64_t bytes;  /* bytes of its files; 0: not made yet */
    uint64_t base;   /* resident bytes of the process before it */
    char words[512]; /* message of fuzz_fault */
    int64_t n_taken[FUZZ_N_KINDS], n_refused[FUZZ_N_KINDS]; /* counts by kind */
} fuzz_slot;

typedef struct fuzz_run {
    uint64_t seed;
    int64_t n;
    int64_t only;     /* the one mutant to run; -1: all */
    const char *kind; /* the one kind to run; NULL: all by weight */
    int64_t n_workers;
    double limit_s;    /* seconds of a core for one mutant */
    const char *keep;  /* folder for failing mutants */
    char folder[4000]; /* absolute */
} fuzz_run;

extern const fuzz_kind *const fuzz_kinds[FUZZ_N_KINDS];

int fuzz_kind_of(const fuzz_run *run, int64_t index);
/* Runs mutants first, first + step, ... below run->n; ends the process. */
_Noreturn void fuzz_work(const fuzz_run *run, fuzz_slot *slot, int64_t first,
                         int64_t step);
/* Returns the resident bytes of a process. */
uint64_t fuzz_resident(int pid);
/* Returns the seconds of a core that the processes of a group have used, with their
 * children that have ended. */
double fuzz_worked_s(int group);
double fuzz_now_s(void);

#endif
