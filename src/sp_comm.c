#include "config.h"

#include "sp_comm.h"

#include <assert.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sp_machine.h"
#include "sp_pulse.h"

/* Counts of MPI are int, and some libraries count bytes in an int: no message is
 * longer. (The test of the cutting takes a small number.) */
#ifndef PIECE_BYTES
#define PIECE_BYTES ((size_t)1 << 30)
#endif

enum { TAG_GATHER = 1 };

/* The MPI requests of one sp_request; slots are reused, so a step allocates none. */
typedef struct slot {
    struct slot *next; /* in the list of free slots */
    MPI_Request *pieces;
    int n, capacity;
} slot;

struct sp_comm_impl {
    bool has_mpi;
    MPI_Comm world, node, lane;
    slot *free_slots;
    int *node_of_rank;
};

static sp_status mpi_fail(int error, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    MPI_Error_string(error, text, &length);
    return SP_FAIL(SP_EMPI, "%s: %s", what, text);
}

#define SP_MPI(call)                                                                   \
    do {                                                                               \
        int error_ = MPI_##call;                                                       \
        if (error_ != MPI_SUCCESS)                                                     \
            return mpi_fail(error_, "MPI_" #call);                                     \
    } while (0)

/* ---- waiting ---- */

/* Between two tests. MPI spins fastest; where ranks share cores the sleeper makes room
 * for the rank that is waited for, and a long wait (a checkpoint) need not burn a core
 * anywhere. */
static void pause_between_tests(const sp_comm *comm, int n_tests)
{
    const struct timespec nap = {0, comm->is_oversubscribed ? 10000 : 50000};
    int spins = comm->is_oversubscribed ? 2 : 2000;

    if (n_tests < spins)
        return;
    if (n_tests < 4 * spins)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* Tested one by one, which names the error of the piece that failed; MPI makes those
 * that completed MPI_REQUEST_NULL, which test as done. */
static sp_status test_all(int n, MPI_Request *requests, bool *is_done)
{
    *is_done = true;
    for (int i = 0; i < n; i++) {
        int flag;

        SP_MPI(Test(&requests[i], &flag, MPI_STATUS_IGNORE));
        *is_done = *is_done && flag;
    }
    return SP_OK;
}

static sp_status test_until_done(sp_comm *comm, sp_comm_test_fn *test, void *arg)
{
    bool is_done = false;

    for (int n_tests = 0; !is_done; n_tests += n_tests < INT_MAX) {
        SP_TRY(test(arg, &is_done));
        if (is_done)
            break;
        /* The watchdog has said what is wrong; nobody will come to this meeting. */
        if (sp_pulse_leaving())
            sp_comm_abort(comm, (sp_status)sp_pulse_leaving());
        sp_pulse_wait_turn();
        pause_between_tests(comm, n_tests);
    }
    return SP_OK;
}

sp_status sp_comm_wait_for(sp_comm *comm, sp_comm_test_fn *test, void *arg)
{
    sp_status rc;

    sp_pulse_wait_begin();
    rc = test_until_done(comm, test, arg);
    sp_pulse_wait_end();
    return rc;
}

typedef struct request_list {
    int n;
    MPI_Request *request;
} request_list;

static sp_status test_list(void *arg, bool *is_done)
{
    const request_list *list = arg;

    return test_all(list->n, list->request, is_done);
}

static sp_status wait_all(sp_comm *comm, int n, MPI_Request *requests)
{
    request_list list = {n, requests};

    return sp_comm_wait_for(comm, test_list, &list);
}

/* ---- start and end ---- */

void sp_comm_open_self(sp_comm *comm)
{
    static const int only_node = 0;
    uint64_t set[SP_CORE_WORDS];
    int quota = sp_machine_core_quota();

    memset(comm, 0, sizeof *comm);
    comm->size = comm->local_size = comm->n_nodes = 1;
    comm->node_of_rank = &only_node;
    gethostname(comm->host, sizeof comm->host - 1);
    comm->cores = sp_machine_cores(set);
    if (comm->cores > quota)
        comm->cores = quota;
    comm->node_cores = comm->cores;
}

/* Several tasks of srun that each think they are alone would train the same thing side
 * by side and overwrite each other's files. Launchers that speak PMI set PMI_SIZE. A
 * program beside the tasks, started by the batch script itself, is alone by intention:
 * there the job has a number, but no step. */
static sp_status check_launcher(const sp_comm *comm)
{
    const char *tasks = getenv("SLURM_NTASKS");
    bool is_beside = getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID");

    if (comm->size > 1 || !tasks || atoi(tasks) <= 1 || is_beside || getenv("PMI_SIZE"))
        return SP_OK;
    return SP_FAIL(SP_EUSAGE,
                   "Slurm started %s tasks, but MPI sees a world of one: start with "
                   "`srun --mpi=pmi2` (or with mpirun inside the allocation)",
                   tasks);
}

/* Cores of this node: the union over its ranks, which the launcher may have bound
 * apart. Counted before SP_RANKS_PER_NODE cuts nodes up. */
static sp_status count_cores(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;
    uint64_t set[SP_CORE_WORDS];
    int quota = sp_machine_core_quota(), n = 0, ranks;
    MPI_Request request;

    sp_machine_cores(set);
    SP_MPI(Iallreduce(MPI_IN_PLACE, set, SP_CORE_WORDS, MPI_UINT64_T, MPI_BOR,
                      impl->node, &request));
    SP_TRY(wait_all(comm, 1, &request));
    for (int w = 0; w < SP_CORE_WORDS; w++)
        n += __builtin_popcountll(set[w]);
    comm->node_cores = n < quota ? n : quota;
    SP_MPI(Comm_size(impl->node, &ranks));
    comm->is_oversubscribed = ranks > comm->node_cores;
    return SP_OK;
}

/* SP_RANKS_PER_NODE: sp_comm.h. */
static sp_status cut_node(struct sp_comm_impl *impl)
{
    const char *text = getenv("SP_RANKS_PER_NODE");
    int n = text ? atoi(text) : 0, rank;
    MPI_Comm part;

    if (n <= 0)
        return SP_OK;
    SP_MPI(Comm_rank(impl->node, &rank));
    SP_MPI(Comm_split(impl->node, rank / n, rank, &part));
    SP_MPI(Comm_free(&impl->node));
    impl->node = part;
    return SP_OK;
}

/* Every rank says who leads its node; leaders in ascending order number the nodes. */
static sp_status number_nodes(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;
    int leader = comm->rank, *leaders = malloc(sizeof *leaders * (size_t)comm->size);
    MPI_Request request;

    impl->node_of_rank = leaders;
    if (!leaders)
        return SP_FAIL(SP_EMEM, "table of %d ranks", comm->size);
    SP_MPI(Ibcast(&leader, 1, MPI_INT, 0, impl->node, &request));
    SP_TRY(wait_all(comm, 1, &request));
    SP_MPI(Iallgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, impl->world, &request));
    SP_TRY(wait_all(comm, 1, &request));
    comm->n_nodes = 0;
    for (int r = 0; r < comm->size; r++) {
        /* a leader stands before its followers, whose entry it is by then */
        leaders[r] = leaders[r] == r ? comm->n_nodes++ : leaders[leaders[r]];
    }
    comm->node_of_rank = leaders;
    comm->node = leaders[comm->rank];
    return SP_OK;
}

static sp_status find_nodes(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;

    SP_MPI(Comm_split_type(impl->world, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL,
                           &impl->node));
    SP_TRY(count_cores(comm));
    SP_TRY(cut_node(impl));
    SP_MPI(Comm_set_errhandler(impl->node, MPI_ERRORS_RETURN));
    SP_MPI(Comm_dup(impl->world, &impl->lane));
    SP_MPI(Comm_rank(impl->node, &comm->local_rank));
    SP_MPI(Comm_size(impl->node, &comm->local_size));
    SP_TRY(number_nodes(comm));
    return SP_OK;
}

sp_status sp_comm_open(sp_comm *comm, int *argc, char ***argv)
{
    struct sp_comm_impl *impl;
    int provided;

    sp_comm_open_self(comm);
    impl = calloc(1, sizeof *impl);
    if (!impl)
        return SP_FAIL(SP_EMEM, "communicator");
    comm->impl = impl;
    impl->node = impl->lane = MPI_COMM_NULL;
    SP_MPI(Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    impl->has_mpi = true;
    impl->world = MPI_COMM_WORLD;
    SP_MPI(Comm_set_errhandler(impl->world, MPI_ERRORS_RETURN));
    if (provided < MPI_THREAD_FUNNELED)
        return SP_FAIL(SP_EMPI, "this MPI does not allow threads beside it");
    SP_MPI(Comm_rank(impl->world, &comm->rank));
    SP_MPI(Comm_size(impl->world, &comm->size));
    SP_TRY(check_launcher(comm));
    SP_TRY(find_nodes(comm));
    return SP_OK;
}

void sp_comm_close(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;

    if (impl) {
        while (impl->free_slots) {
            slot *next = impl->free_slots->next;

            free(impl->free_slots->pieces);
            free(impl->free_slots);
            impl->free_slots = next;
        }
        if (impl->has_mpi) {
            if (impl->node != MPI_COMM_NULL)
                MPI_Comm_free(&impl->node);
            if (impl->lane != MPI_COMM_NULL)
                MPI_Comm_free(&impl->lane);
            MPI_Finalize();
        }
        free(impl->node_of_rank);
        free(impl);
    }
    memset(comm, 0, sizeof *comm);
}

void sp_comm_abort(sp_comm *comm, sp_status code)
{
    sp_pulse_leave((int)code);
    fflush(NULL);
    if (comm && comm->impl && comm->impl->has_mpi)
        MPI_Abort(MPI_COMM_WORLD, (int)code);
    _exit((int)code);
}

/* ---- all-reduce ---- */

int sp_comm_scope_size(const sp_comm *comm, sp_scope scope)
{
    switch (scope) {
    case SP_SCOPE_WORLD:
    case SP_SCOPE_LANE:
        return comm->size;
    case SP_SCOPE_NODE:
        return comm->local_size;
    case SP_SCOPE_RANK:
        break;
    }
    return 1;
}

static MPI_Datatype mpi_type(sp_type type, size_t *bytes)
{
    switch (type) {
    case SP_F32:
        *bytes = sizeof(float);
        return MPI_FLOAT;
    case SP_F64:
        *bytes = sizeof(double);
        return MPI_DOUBLE;
    case SP_I64:
        *bytes = sizeof(int64_t);
        return MPI_INT64_T;
    case SP_U8:
        break;
    }
    *bytes = 1;
    return MPI_UINT8_T;
}

static MPI_Op mpi_op(sp_reduce_op op)
{
    return op == SP_SUM ? MPI_SUM : op == SP_MAX ? MPI_MAX : MPI_MIN;
}

/* A slot with room for n MPI requests. */
static sp_status take_slot(struct sp_comm_impl *impl, size_t n, slot **taken)
{
    slot *s = impl->free_slots;
    MPI_Request *pieces;

    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            return SP_FAIL(SP_EMEM, "request of an all-reduce");
        impl->free_slots = s;
    }
    if ((size_t)s->capacity < n) {
        pieces = realloc(s->pieces, n * sizeof *pieces);
        if (!pieces)
            return SP_FAIL(SP_EMEM, "%zu requests of an all-reduce", n);
        s->pieces = pieces;
        s->capacity = (int)n;
    }
    impl->free_slots = s->next;
    s->next = NULL;
    s->n = 0;
    *taken = s;
    return SP_OK;
}

static void give_slot(struct sp_comm_impl *impl, sp_request *request)
{
    slot *s = request->handle;

    s->next = impl->free_slots;
    impl->free_slots = s;
    request->handle = NULL;
}

static MPI_Comm comm_of(const struct sp_comm_impl *impl, sp_scope scope)
{
    return scope == SP_SCOPE_NODE   ? impl->node
           : scope == SP_SCOPE_LANE ? impl->lane
                                    : impl->world;
}

sp_status sp_comm_iallreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                             sp_type type, sp_reduce_op op, sp_request *request)
{
    size_t bytes, most, n_pieces;
    MPI_Datatype mtype = mpi_type(type, &bytes);
    MPI_Comm mcomm;
    slot *s = NULL;

    assert(!request->handle);
    if (sp_comm_scope_size(comm, scope) == 1 || count == 0)
        return SP_OK;
    mcomm = comm_of(comm->impl, scope);
    most = PIECE_BYTES / bytes;
    n_pieces = (count + most - 1) / most;
    SP_TRY(take_slot(comm->impl, n_pieces, &s));
    request->handle = s;
    for (size_t done = 0; done < count; done += most) {
        int n = (int)(count - done < most ? count - done : most);

        SP_MPI(Iallreduce(MPI_IN_PLACE, (char *)data + done * bytes, n, mtype,
                          mpi_op(op), mcomm, &s->pieces[s->n]));
        s->n++;
    }
    return SP_OK;
}

sp_status sp_comm_test(sp_comm *comm, sp_request *request, bool *is_done)
{
    slot *s = request->handle;

    *is_done = true;
    if (!s)
        return SP_OK;
    SP_TRY(test_all(s->n, s->pieces, is_done));
    if (*is_done)
        give_slot(comm->impl, request);
    return SP_OK;
}

sp_status sp_comm_wait(sp_comm *comm, sp_request *request)
{
    slot *s = request->handle;

    if (!s)
        return SP_OK;
    SP_TRY(wait_all(comm, s->n, s->pieces));
    give_slot(comm->impl, request);
    return SP_OK;
}

sp_status sp_comm_allreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                            sp_type type, sp_reduce_op op)
{
    sp_request request = {NULL};

    SP_TRY(sp_comm_iallreduce(comm, scope, data, count, type, op, &request));
    SP_TRY(sp_comm_wait(comm, &request));
    return SP_OK;
}

/* ---- the world ---- */

sp_status sp_comm_barrier(sp_comm *comm)
{
    MPI_Request request;

    if (comm->size == 1)
        return SP_OK;
    SP_MPI(Ibarrier(comm->impl->world, &request));
    SP_TRY(wait_all(comm, 1, &request));
    return SP_OK;
}

sp_status sp_comm_bcast(sp_comm *comm, void *data, size_t bytes, int root)
{
    MPI_Request request;

    if (comm->size == 1)
        return SP_OK;
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        int n = (int)(bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);

        SP_MPI(Ibcast((char *)data + done, n, MPI_BYTE, root, comm->impl->world,
                      &request));
        SP_TRY(wait_all(comm, 1, &request));
    }
    return SP_OK;
}

sp_status sp_comm_agree(sp_comm *comm, sp_status mine, int *who)
{
    int64_t lowest = mine == SP_OK ? comm->size : comm->rank;
    sp_error_record record;

    if (who)
        *who = -1;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &lowest, 1, SP_I64, SP_MIN));
    if (lowest == comm->size)
        return SP_OK;
    if (mine != SP_OK && sp_error_last()->code != mine)
        SP_FAIL(mine, "%s",
                sp_status_text(mine)); /* a status that came without a record */
    sp_error_save(&record);
    SP_TRY(sp_comm_bcast(comm, &record, sizeof record, (int)lowest));
    if (who)
        *who = (int)lowest;
    return sp_error_raise(&record);
}

sp_status sp_comm_is_same(sp_comm *comm, const void *data, size_t bytes, bool *is_same)
{
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    /* ~x falls as x rises: one minimum finds both ends */
    int64_t ends[6] = {(int64_t)hash.low64, (int64_t)hash.high64, (int64_t)bytes};

    for (int i = 0; i < 3; i++)
        ends[3 + i] = ~ends[i];
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, ends, 6, SP_I64, SP_MIN));
    *is_same = ends[0] == ~ends[3] && ends[1] == ~ends[4] && ends[2] == ~ends[5];
    return SP_OK;
}

/* ---- gather ---- */

static size_t n_pieces_of(size_t bytes)
{
    return (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* Posts the receive or send of one rank's bytes, cut up; *n counts the requests. */
static sp_status post_pieces(sp_comm *comm, bool is_receive, void *data, size_t bytes,
                             int peer, MPI_Request *requests, size_t *n)
{
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        int piece = (int)(bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);
        char *at = (char *)data + done;
        MPI_Comm world = comm->impl->world;

        if (is_receive)
            SP_MPI(
                Irecv(at, piece, MPI_BYTE, peer, TAG_GATHER, world, &requests[(*n)++]));
        else
            SP_MPI(
                Isend(at, piece, MPI_BYTE, peer, TAG_GATHER, world, &requests[(*n)++]));
    }
    return SP_OK;
}

static sp_status send_bytes(sp_comm *comm, const void *data, size_t bytes, int root)
{
    size_t n = 0;
    MPI_Request *requests = malloc(n_pieces_of(bytes) * sizeof *requests);
    sp_status rc;

    if (!requests && bytes)
        return SP_FAIL(SP_EMEM, "requests of a gather");
    rc = post_pieces(comm, false, (void *)(uintptr_t)data, bytes, root, requests, &n);
    if (rc == SP_OK)
        rc = wait_all(comm, (int)n, requests);
    free(requests);
    SP_TRY(rc);
    return SP_OK;
}

/* Root: from every other rank to its place in `all`. */
static sp_status receive_bytes(sp_comm *comm, char *all, const int64_t *sizes)
{
    size_t n = 0, n_requests = 0;
    MPI_Request *requests;
    sp_status rc = SP_OK;

    for (int r = 0; r < comm->size; r++)
        n_requests += n_pieces_of((size_t)sizes[r]);
    requests = malloc((n_requests + 1) * sizeof *requests);
    if (!requests)
        return SP_FAIL(SP_EMEM, "requests of a gather");
    for (int r = 0; r < comm->size && rc == SP_OK; all += sizes[r++])
        if (r != comm->rank)
            rc = post_pieces(comm, true, all, (size_t)sizes[r], r, requests, &n);
    if (rc == SP_OK)
        rc = wait_all(comm, (int)n, requests);
    free(requests);
    SP_TRY(rc);
    return SP_OK;
}

/* Root: allocate, own bytes in place. */
static sp_status make_room(sp_comm *comm, const void *data, const int64_t *counts,
                           void **all, size_t *sizes)
{
    size_t total = 0, own = 0;

    for (int r = 0; r < comm->size; r++) {
        own = r == comm->rank ? total : own;
        total += (size_t)counts[r];
        if (sizes)
            sizes[r] = (size_t)counts[r];
    }
    *all = malloc(total + 1); /* never NULL for nothing */
    if (!*all)
        return SP_FAIL(SP_EMEM, "%zu bytes gathered from %d ranks", total, comm->size);
    if (counts[comm->rank])
        memcpy((char *)*all + own, data, (size_t)counts[comm->rank]);
    return SP_OK;
}

sp_status sp_comm_gather(sp_comm *comm, const void *data, size_t bytes, int root,
                         void **all, size_t *sizes)
{
    int64_t *counts = calloc((size_t)comm->size, sizeof *counts);
    sp_status rc = SP_OK;

    *all = NULL;
    if (!counts)
        rc = SP_FAIL(SP_EMEM, "sizes of a gather");
    else
        counts[comm->rank] = (int64_t)bytes;
    SP_TRY_GOTO(rc, sp_comm_agree(comm, rc, NULL), end);
    SP_TRY_GOTO(rc,
                sp_comm_allreduce(comm, SP_SCOPE_WORLD, counts, (size_t)comm->size,
                                  SP_I64, SP_SUM),
                end);
    if (comm->rank == root)
        rc = make_room(comm, data, counts, all, sizes);
    /* the others would wait for a root without room */
    SP_TRY_GOTO(rc, sp_comm_agree(comm, rc, NULL), end);
    if (comm->rank == root)
        SP_TRY_GOTO(rc, receive_bytes(comm, *all, counts), end);
    else
        SP_TRY_GOTO(rc, send_bytes(comm, data, bytes, root), end);
end:
    if (rc != SP_OK) {
        free(*all);
        *all = NULL;
    }
    free(counts);
    return rc;
}

const char *sp_comm_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;

    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS)
        return "unknown MPI";
    text[strcspn(text, "\n")] = 0;
    for (char *tab; (tab = strchr(text, '\t'));) /* MPICH separates by tabs */
        *tab = ' ';
    return text;
}
