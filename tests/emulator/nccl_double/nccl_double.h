/* The declarations that the files of the tests' libnccl.so.2 share: nccl_double.c (the
 * library's entry points), nccl_double_ring.c (the ranks' common work, in shared
 * memory).
 *
 * It stands for NCCL where devices are emulated (tests/emulator): ranks of one machine,
 * each comm with a thread of its own that works as a device would, beside the program.
 * Its communicators behave as NCCL's that do not block: nothing reaches a stream before
 * ncclCommGetAsyncError was asked until it said so, a communicator that is busy refuses
 * calls, all ranks must sum as many elements of one type, and ncclCommAbort is put off
 * while a group is open. Sums are formed in the order of the ranks.
 *
 *   NCCL_DOUBLE_FAIL=WHAT:RANK[:N]  at this rank (its N-th sum, from 1; default 1):
 *       init    its communicator fails to start
 *       error   the sum fails here; the others wait for ever
 *       remote  the sum fails here; the others hear of it
 *       absent  the sum never begins here, and nobody says so
 *       wrong   from this sum on, the first element is another one here
 *       refused the call that asks for the sum fails; of the sums within groups the N-th
 *   NCCL_DOUBLE_VERSION=N           what ncclGetVersion says (22809)
 *   NCCL_DOUBLE_SLOW=KIB:MS         sums of so many KiB or more take this much longer
 *   NCCL_DOUBLE_LOG=PREFIX          each call's line in PREFIX.RANK, how long each sum
 *                                   stood behind a slow one, and when it was made to fail
 */
#ifndef NCCL_DOUBLE_H
#define NCCL_DOUBLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_RANKS = 16, SLOT_BYTES = 1 << 18, MAX_PENDING = 8, ID_BYTES = 128 };

/* NCCL's numbers. */
enum {
    SUCCESS,
    UNHANDLED_CUDA,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE_ERROR,
    IN_PROGRESS
};
enum { INT64 = 4, FLOAT32 = 7, FLOAT64 = 8, BFLOAT16 = 9 };

/* The shared memory of a communicator's ranks. */
typedef struct shared {
    atomic_int n_arrived;
    atomic_int failed_rank; /* 1 + the rank that reported a failure; 0: none */
    struct {
        atomic_ullong round; /* number of the barrier that this rank has come to */
        uint64_t count;
        int type, color, key;
    } rank[MAX_RANKS];
    char data[MAX_RANKS][SLOT_BYTES];
} shared;

typedef struct job {
    struct job *next;
    struct comm *comm;
    int number; /* number of this rank's sums */
    const void *from;
    void *device; /* where the sum goes */
    char *data;   /* [count] the copy that travels */
    uint64_t count;
    int type;
    int64_t told_us;   /* time at which the program asked for it */
    atomic_bool is_done;
} job;

typedef struct comm {
    char name[ID_BYTES]; /* name of the shared memory */
    int rank, size;
    shared *all;
    uint64_t round;
    int n_splits;
    int64_t slow_until_us; /* NCCL_DOUBLE_SLOW held the thread so long */
    pthread_t thread;
    pthread_mutex_t lock;
    job *first, *last;         /* sums of the thread */
    job *pending[MAX_PENDING]; /* announced, but not in their streams yet */
    void *stream[MAX_PENDING];
    int n_pending, n_asked; /* ncclCommGetAsyncError was called since the last call */
    atomic_int state;       /* SUCCESS, IN_PROGRESS or an error */
    atomic_bool must_stop, is_busy;
    bool is_finalized;
    char error[256];
} comm;

size_t type_bytes(int type);
int64_t now_us(void);
/* The failure asked for by NCCL_DOUBLE_FAIL, for this process and number. */
bool is_to_fail(const char *what, int number);
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Makes a communicator whose thread starts and meets the others; NULL: no thread. */
comm *comm_start(const char *name, int rank, int size);
/* Makes a communicator of the ranks of this color, in the order of their keys, while
 * none of them sums; NULL: a rank has failed. */
comm *comm_split(comm *c, int color, int key);
void comm_push(comm *c, job *j);
/* Ends the thread; sums under way count as done. */
void comm_stop(comm *c);

#endif
