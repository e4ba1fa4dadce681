/* Use of a communicator: waits, sums over the ranks, memory that ranks sum. */
#include "comm/sp_comm.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_machine.h"
#include "base/sp_number.h"
#include "comm/sp_comm_internal.h"

void (*sp_comm_on_leave)(sp_comm *comm, sp_status code);

sp_status sp_comm_mpi_fail(int error, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    MPI_Error_string(error, text, &length);
    return SP_FAIL(SP_EMPI, "%s: %s", what, text);
}

/* ---- waiting ---- */

/* The pause between two tests of a request. Spinning is fastest. If ranks share cores,
 * a sleeping rank leaves its core to the rank that it waits for, and a long wait (for a
 * checkpoint) need not occupy a core anywhere. */
static void pause_between_tests(const sp_comm *comm, int n_tests)
{
    const struct timespec nap = {0, comm->is_sleeping ? 10000 : 50000};
    int spins = comm->is_sleeping ? 2 : 2000;

    if (n_tests < spins)
        return;
    if (n_tests < 4 * spins)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* Tests the pieces one by one, which names the error of the piece that failed. MPI
 * replaces a completed request by MPI_REQUEST_NULL, which tests as done. */
static sp_status test_slot(void *arg, bool *is_done)
{
    sp_comm_slot *s = arg;

    *is_done = !s->is_shared || s->shared.is_done;
    for (int i = 0; i < s->n; i++) {
        int flag;

        SP_MPI(Test(&s->pieces[i], &flag, MPI_STATUS_IGNORE));
        *is_done = *is_done && flag;
    }
    return SP_OK;
}

/* Advances the sums in the node's memory. Every wait calls this, whatever it waits for,
 * since other ranks may need this rank's part of a sum. */
static void progress(const sp_comm *comm)
{
    if (comm->impl && comm->impl->shared)
        sp_node_progress(comm->impl->shared);
}

sp_status sp_comm_wait_for(sp_comm *comm, bool is_for_others, sp_comm_test_fn *test,
                           void *arg)
{
    bool is_done = false;
    sp_status rc = SP_OK;

    if (is_for_others)
        sp_liveness_wait_begin();
    for (int n_tests = 0; rc == SP_OK && !is_done; n_tests += n_tests < INT_MAX) {
        progress(comm);
        rc = test(arg, &is_done);
        if (rc != SP_OK || is_done)
            break;
        /* The watchdog has reported a lost rank: this wait would never end. */
        if (sp_exit_requested() && sp_comm_on_leave)
            sp_comm_on_leave(comm, (sp_status)sp_exit_requested());
        if (is_for_others)
            sp_liveness_wait_poll();
        pause_between_tests(comm, n_tests);
    }
    if (is_for_others)
        sp_liveness_wait_end();
    return rc;
}

sp_status sp_comm_wait_all(sp_comm *comm, int n, MPI_Request *requests)
{
    sp_comm_slot slot = {.pieces = requests, .n = n};

    return sp_comm_wait_for(comm, true, test_slot, &slot);
}

/* ---- begin and end ---- */

/* Operations of MPI on floats or doubles: a NaN wins against every number. */
#define ORDER(NAME, IS_BEYOND)                                                         \
    static void NAME(void *from, void *to, int *n, MPI_Datatype *type)                 \
    {                                                                                  \
        if (*type == MPI_FLOAT) {                                                      \
            float *a = to, *b = from;                                                  \
            for (int i = 0; i < *n; i++)                                               \
                a[i] = b[i] IS_BEYOND a[i] || isnan(b[i]) ? b[i] : a[i];               \
        } else {                                                                       \
            double *a = to, *b = from;                                                 \
            for (int i = 0; i < *n; i++)                                               \
                a[i] = b[i] IS_BEYOND a[i] || isnan(b[i]) ? b[i] : a[i];               \
        }                                                                              \
    }
ORDER(order_max, >)
ORDER(order_min, <)

sp_status sp_comm_begin_sums(struct sp_comm_impl *impl)
{
    SP_MPI(Op_create(order_max, 1, &impl->max));
    SP_MPI(Op_create(order_min, 1, &impl->min));
    return SP_OK;
}

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

/* Refuses what MPI itself would end the process for, or answer wrongly. */
static sp_status check_mpi(MPI_Comm of)
{
    int provided, is_main, is_inter;

    SP_MPI(Query_thread(&provided));
    if (provided < MPI_THREAD_FUNNELED)
        return SP_FAIL(SP_EUSAGE, "MPI was initialized without threads: expected "
                                  "MPI_Init_thread with MPI_THREAD_FUNNELED at least");
    SP_MPI(Is_thread_main(&is_main));
    if (provided == MPI_THREAD_FUNNELED && !is_main)
        return SP_FAIL(SP_EUSAGE,
                       "this is not the main thread, and MPI was initialized with "
                       "MPI_THREAD_FUNNELED: expected MPI_THREAD_MULTIPLE");
    if (of == MPI_COMM_NULL)
        return SP_FAIL(SP_EUSAGE, "the communicator is MPI_COMM_NULL");
    SP_MPI(Comm_test_inter(of, &is_inter));
    return is_inter ? SP_FAIL(SP_EUSAGE, "the communicator joins two groups (an "
                                         "intercommunicator), expected one group")
                    : SP_OK;
}

/* Fills comm with the ranks of a communicator of the caller. */
static sp_status attach_ranks(sp_comm *comm, MPI_Comm of)
{
    struct sp_comm_impl *impl = comm->impl;

    SP_TRY(check_mpi(of));
    SP_MPI(Comm_dup(of, &impl->world));
    SP_MPI(Comm_set_errhandler(impl->world, MPI_ERRORS_RETURN));
    SP_MPI(Comm_rank(impl->world, &comm->rank));
    SP_MPI(Comm_size(impl->world, &comm->size));
    SP_TRY(sp_comm_begin_sums(impl));
    return sp_comm_find_nodes(comm);
}

sp_status sp_comm_attach(sp_comm *comm, const void *of)
{
    struct sp_comm_impl *impl;

    sp_comm_open_self(comm);
    SP_TRY(SP_NEW(&impl, 1, "a communicator"));
    comm->impl = impl;
    impl->world = impl->node = impl->lane = MPI_COMM_NULL;
    impl->max = impl->min = MPI_OP_NULL;
    return attach_ranks(comm, *(const MPI_Comm *)of);
}

void sp_comm_end_sums(struct sp_comm_impl *impl)
{
    while (impl->free_slots) {
        sp_comm_slot *next = impl->free_slots->next;

        free(impl->free_slots->pieces);
        free(impl->free_slots);
        impl->free_slots = next;
    }
    sp_node_close(impl->shared);
    /* a barrier that follows must not use the memory that was closed */
    impl->shared = NULL;
    if (impl->node != MPI_COMM_NULL)
        MPI_Comm_free(&impl->node);
    if (impl->lane != MPI_COMM_NULL)
        MPI_Comm_free(&impl->lane);
    if (impl->max != MPI_OP_NULL)
        MPI_Op_free(&impl->max);
    if (impl->min != MPI_OP_NULL)
        MPI_Op_free(&impl->min);
}

void sp_comm_detach(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;

    if (impl) {
        sp_comm_end_sums(impl);
        if (impl->world != MPI_COMM_NULL)
            MPI_Comm_free(&impl->world);
        free(impl->node_of_rank);
        free(impl);
    }
    memset(comm, 0, sizeof *comm);
}

/* ---- all-reduce ---- */

int sp_comm_scope_size(const sp_comm *comm, sp_scope scope)
{
    return scope == SP_SCOPE_RANK   ? 1
           : scope == SP_SCOPE_NODE ? comm->local_size
                                    : comm->size;
}

static MPI_Datatype mpi_type(sp_type type)
{
    return type == SP_F32   ? MPI_FLOAT
           : type == SP_F64 ? MPI_DOUBLE
           : type == SP_I64 ? MPI_INT64_T
                            : MPI_UINT8_T;
}

/* MPI does not define MPI_MAX of a NaN, and ranks may get different results. */
static MPI_Op mpi_op(const struct sp_comm_impl *impl, sp_type type, sp_reduce_op op)
{
    const bool is_float = type == SP_F32 || type == SP_F64;

    if (op == SP_SUM)
        return MPI_SUM;
    if (op == SP_MAX)
        return is_float ? impl->max : MPI_MAX;
    return is_float ? impl->min : MPI_MIN;
}

/* Returns a slot with room for n MPI requests, from the free list or a new one. */
static sp_status sums_find_slot(struct sp_comm_impl *impl, size_t n,
                                sp_comm_slot **taken)
{
    sp_comm_slot *s = impl->free_slots;
    MPI_Request *pieces;

    if (!s) {
        SP_TRY(SP_NEW(&s, 1, "an all-reduce"));
        impl->free_slots = s;
    }
    if ((size_t)s->capacity < n) {
        pieces = realloc(s->pieces, n * sizeof *pieces);
        if (!pieces)
            return SP_FAIL(SP_EMEM, "no memory for the %zu pieces of an all-reduce", n);
        s->pieces = pieces;
        s->capacity = (int)n;
    }
    impl->free_slots = s->next;
    s->next = NULL;
    s->n = 0;
    s->is_shared = false;
    *taken = s;
    return SP_OK;
}

static void give_slot(struct sp_comm_impl *impl, sp_request *request)
{
    sp_comm_slot *s = request->handle;

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

/* True if the all-reduce stays within one node and the node's shared memory can do it.
 */
static bool takes_shared(const sp_comm *comm, sp_scope scope, const void *data,
                         size_t count, sp_type type)
{
    return comm->impl->shared && (scope == SP_SCOPE_NODE || comm->n_nodes == 1) &&
           sp_node_takes(comm->impl->shared, scope, data, count, type);
}

sp_status sp_comm_iallreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                             sp_type type, sp_reduce_op op, sp_request *request)
{
    size_t bytes = sp_type_bytes(type), most = PIECE_BYTES / bytes;
    MPI_Comm mcomm;
    sp_comm_slot *s = NULL;

    assert(sp_comm_scope_size(comm, scope) == 1 || comm->impl);
    assert(data || count == 0);
    assert(!request->handle);
    if (sp_comm_scope_size(comm, scope) == 1 || count == 0)
        return SP_OK;
    SP_TRY(sums_find_slot(comm->impl, (count + most - 1) / most, &s));
    request->handle = s;
    s->is_shared = takes_shared(comm, scope, data, count, type);
    if (s->is_shared) {
        sp_node_post(comm->impl->shared, &s->shared, scope, data, count, type, op);
        return SP_OK;
    }
    mcomm = comm_of(comm->impl, scope);
    for (size_t done = 0; done < count; done += most) {
        int n = (int)(count - done < most ? count - done : most);

        SP_MPI(Iallreduce(MPI_IN_PLACE, (char *)data + done * bytes, n, mpi_type(type),
                          mpi_op(comm->impl, type, op), mcomm, &s->pieces[s->n]));
        s->n++;
    }
    return SP_OK;
}

sp_status sp_comm_test(sp_comm *comm, sp_request *request, bool *is_done)
{
    sp_comm_slot *s = request->handle;

    assert(is_done);
    *is_done = true;
    if (!s)
        return SP_OK;
    progress(comm);
    SP_TRY(test_slot(s, is_done));
    if (*is_done)
        give_slot(comm->impl, request);
    return SP_OK;
}

sp_status sp_comm_wait(sp_comm *comm, sp_request *request)
{
    sp_comm_slot *s = request->handle;

    if (!s)
        return SP_OK;
    SP_TRY(sp_comm_wait_for(comm, true, test_slot, s));
    give_slot(comm->impl, request);
    return SP_OK;
}

sp_status sp_comm_allreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                            sp_type type, sp_reduce_op op)
{
    sp_request request = {NULL};

    assert(data || count == 0);
    SP_TRY(sp_comm_iallreduce(comm, scope, data, count, type, op, &request));
    SP_TRY(sp_comm_wait(comm, &request));
    return SP_OK;
}

/* ---- the world ---- */

sp_status sp_comm_barrier(sp_comm *comm)
{
    if (comm->size > 1)
        SP_MPI_WAIT(comm, Ibarrier(comm->impl->world, &request));
    return SP_OK;
}

sp_status sp_comm_bcast(sp_comm *comm, void *data, size_t bytes, int root)
{
    assert(0 <= root && root < comm->size && (data || bytes == 0));
    if (comm->size == 1)
        return SP_OK;
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        int n = (int)(bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);

        SP_MPI_WAIT(comm, Ibcast((char *)data + done, n, MPI_BYTE, root,
                                 comm->impl->world, &request));
    }
    return SP_OK;
}

/* ---- memory ---- */

sp_status sp_comm_alloc(sp_comm *comm, size_t bytes, void **out)
{
    assert(comm && out);
    *out = NULL;
    if (comm->impl && comm->impl->shared && comm->n_nodes == 1)
        SP_TRY(sp_node_alloc(comm->impl->shared, bytes, out));
    if (!*out) {
        const size_t whole = sp_multiple(bytes + 1, SP_LARGE_PAGE);

        *out = aligned_alloc(SP_LARGE_PAGE, whole);
        if (!*out)
            return SP_FAIL(SP_EMEM, "no memory for %zu bytes that the ranks sum",
                           bytes);
        madvise(*out, whole, MADV_HUGEPAGE);
        sp_machine_zero(*out, whole);
    }
    return SP_OK;
}

void sp_comm_free(sp_comm *comm, void *data)
{
    const struct sp_comm_impl *impl = comm->impl;

    if (!impl || !impl->shared || !sp_node_free(impl->shared, data))
        free(data);
}
