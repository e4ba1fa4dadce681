/* The entry points of the tests' libnccl.so.2: see nccl_double.h. */
#define _GNU_SOURCE
#include "emulator/nccl_double/nccl_double.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct id {
    char bytes[ID_BYTES];
} id;

/* The fields of ncclConfig_t that this library reads. */
typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

/* tests/emulator/hostcuda.h declares the same structure. */
typedef struct outside {
    void (*start)(void *arg);
    int (*is_done)(void *arg);
    void (*finish)(void *arg);
    void *arg;
} outside;

static int n_sums, n_grouped;
static __thread int group_depth;
static atomic_int n_open; /* groups of all threads */
static __thread char last_error[256];

static int world_rank(void)
{
    const char *text = getenv("PMI_RANK");

    if (!text)
        text = getenv("OMPI_COMM_WORLD_RANK");
    return text ? atoi(text) : 0;
}

bool is_to_fail(const char *what, int number)
{
    const char *text = getenv("NCCL_DOUBLE_FAIL");
    char kind[16];
    int rank = -1, at = 1;

    if (!text || sscanf(text, "%15[^:]:%d:%d", kind, &rank, &at) < 2 ||
        strcmp(kind, what) != 0 || rank != world_rank() || at != number)
        return false;
    note("fault: %s at %lld", what, (long long)time(NULL));
    return true;
}

void note(const char *format, ...)
{
    const char *prefix = getenv("NCCL_DOUBLE_LOG");
    char path[PATH_MAX];
    va_list args;
    FILE *file;

    if (!prefix)
        return;
    snprintf(path, sizeof path, "%s.%d", prefix, world_rank());
    file = fopen(path, "a");
    if (!file)
        return;
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    fputc('\n', file);
    fclose(file);
}

/* Finds a function of the program that is the emulator's. */
static void *of_program(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    if (!found) {
        fprintf(stderr, "libnccl of the tests: the program does not export %s\n", name);
        abort();
    }
    return found;
}

static int refuse(int code, const char *text)
{
    snprintf(last_error, sizeof last_error, "stand-in: %s", text);
    return code;
}

/* ---- start ---- */

int ncclGetVersion(int *version)
{
    const char *text = getenv("NCCL_DOUBLE_VERSION");

    *version = text ? atoi(text) : 22809;
    return SUCCESS;
}

int ncclGetUniqueId(id *out)
{
    static int n;

    memset(out, 0, sizeof *out);
    /* the time is part of the name, since shared memory outlives a killed program and
     * its number */
    snprintf(out->bytes, sizeof out->bytes, "/nccl-double-%d-%d-%lld", getpid(), n++,
             (long long)now_us());
    return SUCCESS;
}

int ncclCommInitRankConfig(comm **out, int size, id name, int rank, const config *how)
{
    if (how->magic != 0xcafebeef || how->size < sizeof *how || how->version < 21400)
        return refuse(INVALID_ARGUMENT, "not a configuration");
    if (how->blocking != 0 || size > MAX_RANKS || rank < 0 || rank >= size)
        return refuse(INVALID_ARGUMENT, "blocking, too large, or a wrong rank");
    note("init rank %d of %d", rank, size);
    *out = comm_start(name.bytes, rank, size);
    return *out ? IN_PROGRESS : SYSTEM_ERROR;
}

int ncclCommSplit(comm *c, int color, int key, comm **out, const config *how)
{
    if (how->blocking != 0)
        return refuse(INVALID_ARGUMENT, "blocking");
    if (atomic_load(&c->state) != SUCCESS || c->n_pending)
        return refuse(INVALID_USAGE, "split of a busy communicator");
    *out = comm_split(c, color, key);
    return IN_PROGRESS;
}

/* ---- sums ---- */

static void start_sum(void *arg)
{
    job *j = arg;

    memcpy(j->data, j->from, j->count * type_bytes(j->type));
    comm_push(j->comm, j);
}

static int is_sum_done(void *arg)
{
    return atomic_load(&((job *)arg)->is_done);
}

static void finish_sum(void *arg)
{
    job *j = arg;

    memcpy(j->device, j->data, j->count * type_bytes(j->type));
    free(j->data);
    free(j);
}

/* Puts sums into the streams, as NCCL's thread does some time after the call. */
static void submit(comm *c)
{
    void (*hand_over)(void *, const outside *);

    *(void **)&hand_over = of_program("hc_submit_outside");
    for (int i = 0; i < c->n_pending; i++) {
        const outside work = {start_sum, is_sum_done, finish_sum, c->pending[i]};

        hand_over(c->stream[i], &work);
    }
    c->n_pending = 0;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, comm *c,
                  void *stream)
{
    const int state = atomic_load(&c->state);
    job *j;

    if (op != 0 || c->n_pending == MAX_PENDING || !count)
        return refuse(INVALID_ARGUMENT, "only a few sums are known here");
    if (state != SUCCESS && state != IN_PROGRESS) { /* perhaps since the last call */
        snprintf(last_error, sizeof last_error, "%s", c->error);
        return state;
    }
    if (state != SUCCESS || (c->n_pending && !group_depth))
        return refuse(INVALID_USAGE, "sum on a busy communicator");
    if (group_depth && is_to_fail("refused", ++n_grouped))
        return refuse(SYSTEM_ERROR, "no room for the sum");
    j = calloc(1, sizeof *j);
    j->comm = c;
    j->number = ++n_sums;
    j->told_us = now_us();
    j->from = from;
    j->device = to;
    j->count = count;
    j->type = type;
    j->data = malloc(count * type_bytes(type));
    note("sum %d: %zu of type %d over %d", j->number, count, type, c->size);
    c->stream[c->n_pending] = stream;
    c->pending[c->n_pending++] = j;
    c->n_asked = 0;
    return group_depth ? SUCCESS : IN_PROGRESS;
}

int ncclGroupStart(void)
{
    group_depth++;
    n_open++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    group_depth--;
    n_open--;
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(comm *c, int *error)
{
    *error = atomic_load(&c->state);
    if (*error >= SYSTEM_ERROR && *error != IN_PROGRESS)
        snprintf(last_error, sizeof last_error, "%s", c->error);
    if (*error == SUCCESS && c->n_pending) {
        if (++c->n_asked > 1)
            submit(c);
        *error = IN_PROGRESS;
    }
    if (*error == SUCCESS && c->is_finalized && (atomic_load(&c->is_busy) || c->first))
        *error = IN_PROGRESS;
    return SUCCESS;
}

const char *ncclGetErrorString(int code)
{
    static const char *const text[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "in progress"};

    return code >= 0 && code <= IN_PROGRESS ? text[code] : "unknown result code";
}

const char *ncclGetLastError(comm *c)
{
    (void)c;
    return last_error;
}

/* ---- memory ---- */

int ncclMemAlloc(void **out, size_t bytes)
{
    int (*allocate)(void **, size_t);

    *(void **)&allocate = of_program("cudaMalloc");
    return allocate(out, bytes) == 0 ? SUCCESS : UNHANDLED_CUDA;
}

int ncclMemFree(void *data)
{
    int (*release)(void *);

    *(void **)&release = of_program("cudaFree");
    return release(data) == 0 ? SUCCESS : UNHANDLED_CUDA;
}

int ncclCommRegister(comm *c, void *data, size_t bytes, void **handle)
{
    note("register %zu bytes", bytes);
    *handle = data;
    return atomic_load(&c->state) == SUCCESS ? SUCCESS : INVALID_USAGE;
}

int ncclCommDeregister(comm *c, void *handle)
{
    (void)c;
    note("deregister");
    return handle ? SUCCESS : INVALID_ARGUMENT;
}

/* ---- end ---- */

int ncclCommFinalize(comm *c)
{
    note("finalize");
    c->is_finalized = true;
    return IN_PROGRESS;
}

int ncclCommDestroy(comm *c)
{
    if (!c->is_finalized)
        return refuse(INVALID_USAGE, "destroyed without ncclCommFinalize");
    note("destroy");
    comm_stop(c);
    free(c);
    return SUCCESS;
}

int ncclCommAbort(comm *c)
{
    if (n_open > 0) {
        note("abort put off: a group is open");
        return IN_PROGRESS;
    }
    note("abort");
    comm_stop(c);
    return SUCCESS; /* sums in streams still refer to it */
}
