/* Device memory summed by MPI, through pinned host memory.
 *
 *     compute stream  --------- computed
 *     down stream               wait | copy piece 0 | copy piece 1 | ...
 *     MPI (host)                               | sum piece 0 | sum piece 1 | ...
 *     up stream                                             | copy piece 0 | ...
 *
 * A piece occupies one of N_ROOMS pinned buffers from its copy down to the end of its
 * copy up. The host advances the pieces when it tests. MPI gets them in the order of
 * their posting (SP_SCOPE_LANE), because the device of each rank finishes its copies in
 * its own time.
 */
#include "cuda/reduce/cuda_reduce.cuh"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum : size_t { ROOM_BYTES = (size_t)4 << 20 };
enum { N_ROOMS = 4 };

/* ---- shared with NCCL ---- */

sp_status cuda_urgent_stream(cudaStream_t *stream)
{
    int least, greatest;

    SP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    SP_CUDA(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest));
    return SP_OK;
}

sp_status cuda_sum_begin(sp_backend *be, cuda_sum **list, sp_sum *sum)
{
    cuda_sum *s = *list;

    if (!s) {
        s = (cuda_sum *)calloc(1, sizeof *s);
        if (!s)
            return SP_FAIL(SP_EMEM, "posted all-reduce: out of memory");
        *list = s;
        SP_CUDA(cudaEventCreateWithFlags(&s->computed, cudaEventDisableTiming));
        SP_CUDA(cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming));
    }
    *list = s->next;
    s->next = NULL;
    s->n_left = 0;
    sum->handle = s;
    cuda_of(be)->n_sums++;
    SP_CUDA(cudaEventRecord(s->computed, cuda_of(be)->compute));
    return SP_OK;
}

/* True if the device has passed the event. */
static sp_status test_event(cudaEvent_t event, bool *is_past)
{
    const cudaError_t device = cudaEventQuery(event);

    *is_past = device == cudaSuccess;
    if (device == cudaErrorNotReady) {
        cudaGetLastError(); /* the runtime remembers "not ready" like an error */
        return SP_OK;
    }
    SP_CUDA(device);
    return SP_OK;
}

sp_status cuda_sum_test(sp_backend *be, cuda_sum **list, sp_sum *sum, bool *is_done)
{
    cuda_sum *own = (cuda_sum *)sum->handle;

    *is_done = true;
    if (!own)
        return SP_OK;
    if (!sum->is_computed)
        SP_TRY(test_event(own->computed, &sum->is_computed));
    *is_done = own->n_left == 0;
    if (*is_done)
        SP_TRY(test_event(own->done, is_done));
    if (!*is_done)
        return SP_OK;
    assert(cuda_of(be)->n_sums > 0);
    cuda_of(be)->n_sums--;
    own->next = *list;
    *list = own;
    sum->handle = NULL;
    return SP_OK;
}

void cuda_sums_destroy(cuda_sum **list)
{
    while (*list) {
        cuda_sum *s = *list;

        *list = s->next;
        if (s->computed)
            cudaEventDestroy(s->computed);
        if (s->done)
            cudaEventDestroy(s->done);
        free(s);
    }
}

/* ---- the compute stream's end ---- */

namespace
{

struct idling {
    sp_transport *transport;
    cudaStream_t stream;
};

/* Tests whether the stream is idle. A stream that gave up a sum in the middle does not
 * count as idle, so the waiting thread ends with the process. */
sp_status test_idle(void *arg, bool *is_done)
{
    const idling *i = (const idling *)arg;
    const sp_transport_ops *ops = i->transport->ops;
    const cudaError_t device = cudaStreamQuery(i->stream);
    bool is_leaving = false;

    if (i->transport->peer)
        SP_TRY(ops->peer->look(i->transport, &is_leaving));
    *is_done = device == cudaSuccess && !is_leaving;
    if (device == cudaSuccess)
        return SP_OK;
    if (device != cudaErrorNotReady)
        SP_CUDA(device);
    cudaGetLastError();
    return ops->look ? ops->look(i->transport) : SP_OK;
}

} // namespace

sp_status cuda_wait_idle(void *transport, cudaStream_t compute)
{
    idling i = {(sp_transport *)transport, compute};

    return sp_comm_wait_for(i.transport->comm, false, test_idle, &i);
}

/* ---- staged ---- */

namespace
{

enum piece_state { QUEUED, COMING_DOWN, SUMMING, GOING_UP };

struct piece {
    piece *next;
    cuda_sum *of;
    sp_part part; /* range of device memory */
    piece_state state;
    int room;
    sp_request request;
};

struct staged {
    cudaStream_t down, up;
    char *pinned;                /* [N_ROOMS][ROOM_BYTES] */
    cudaEvent_t copied[N_ROOMS]; /* recorded after its last copy, down or up */
    bool is_taken[N_ROOMS];
    piece *first, *last, *free_pieces; /* the queue of pieces; unused ones */
    cuda_sum *free_sums;
};

staged *staged_of(sp_transport *t)
{
    return (staged *)t->impl;
}

char *reduce_room_of(staged *s, int room)
{
    return s->pinned + (size_t)room * ROOM_BYTES;
}

sp_status cuda_reduce_start(staged *s)
{
    SP_TRY(cuda_urgent_stream(&s->down));
    SP_TRY(cuda_urgent_stream(&s->up));
    for (int i = 0; i < N_ROOMS; i++)
        SP_CUDA(cudaEventCreateWithFlags(&s->copied[i], cudaEventDisableTiming));
    SP_CUDA(cudaHostAlloc((void **)&s->pinned, (size_t)N_ROOMS * ROOM_BYTES, 0));
    return SP_OK;
}

sp_status staged_open(sp_transport *t, const sp_transport_options *)
{
    if (t->comm->size == 1)
        return SP_OK;
    t->impl = calloc(1, sizeof(staged));
    if (!t->impl)
        return SP_FAIL(SP_EMEM, "transport: out of memory");
    return cuda_reduce_start(staged_of(t));
}

void free_pieces(piece *p)
{
    while (p) {
        piece *next = p->next;

        free(p);
        p = next;
    }
}

void staged_close(sp_transport *t)
{
    staged *s = staged_of(t);

    if (!s)
        return;
    if (s->down)
        cudaStreamDestroy(s->down);
    if (s->up)
        cudaStreamDestroy(s->up);
    for (int i = 0; i < N_ROOMS; i++)
        if (s->copied[i])
            cudaEventDestroy(s->copied[i]);
    if (s->pinned)
        cudaFreeHost(s->pinned);
    cuda_sums_destroy(&s->free_sums);
    free_pieces(s->first);
    free_pieces(s->free_pieces);
    free(s);
}

sp_status add_piece(staged *s, cuda_sum *of, const sp_part *part)
{
    piece *p = s->free_pieces;

    if (p)
        s->free_pieces = p->next;
    else
        p = (piece *)malloc(sizeof *p);
    if (!p)
        return SP_FAIL(SP_EMEM, "piece of an all-reduce: out of memory");
    memset(p, 0, sizeof *p);
    p->of = of;
    p->part = *part;
    if (s->first)
        s->last->next = p;
    else
        s->first = p;
    s->last = p;
    of->n_left++;
    return SP_OK;
}

sp_status reduce_cut(staged *s, cuda_sum *of, const sp_part *part)
{
    const size_t each = sp_part_bytes(part) / part->count, most = ROOM_BYTES / each;

    for (size_t done = 0; done < part->count; done += most) {
        const sp_part p = {(char *)part->data + done * each,
                           part->count - done < most ? part->count - done : most,
                           part->type};

        SP_TRY(add_piece(s, of, &p));
    }
    return SP_OK;
}

/* ---- one piece's way ---- */

sp_status come_down(staged *s, piece *p)
{
    int room = 0;

    while (room < N_ROOMS && s->is_taken[room])
        room++;
    if (room == N_ROOMS)
        return SP_OK;
    s->is_taken[room] = true;
    p->room = room;
    p->state = COMING_DOWN;
    SP_CUDA(cudaStreamWaitEvent(s->down, p->of->computed, 0));
    SP_CUDA(cudaMemcpyAsync(reduce_room_of(s, room), p->part.data,
                            sp_part_bytes(&p->part), cudaMemcpyDeviceToHost, s->down));
    SP_CUDA(cudaEventRecord(s->copied[room], s->down));
    return SP_OK;
}

sp_status give_to_mpi(sp_transport *t, piece *p)
{
    bool is_here;

    SP_TRY(test_event(staged_of(t)->copied[p->room], &is_here));
    if (!is_here)
        return SP_OK;
    p->state = SUMMING;
    return sp_comm_iallreduce(t->comm, SP_SCOPE_LANE,
                              reduce_room_of(staged_of(t), p->room), p->part.count,
                              p->part.type, SP_SUM, &p->request);
}

sp_status go_up(sp_transport *t, piece *p)
{
    staged *s = staged_of(t);
    bool is_summed;

    SP_TRY(sp_comm_test(t->comm, &p->request, &is_summed));
    if (!is_summed)
        return SP_OK;
    p->state = GOING_UP;
    SP_CUDA(cudaMemcpyAsync(p->part.data, reduce_room_of(s, p->room),
                            sp_part_bytes(&p->part), cudaMemcpyHostToDevice, s->up));
    SP_CUDA(cudaEventRecord(s->copied[p->room], s->up));
    if (--p->of->n_left == 0)
        SP_CUDA(cudaEventRecord(p->of->done, s->up));
    return SP_OK;
}

/* Frees the pinned buffer of the first piece once its copy up has ended. */
sp_status retire(staged *s)
{
    piece *p = s->first;
    bool is_there;

    SP_TRY(test_event(s->copied[p->room], &is_there));
    if (!is_there)
        return SP_OK;
    s->is_taken[p->room] = false;
    s->first = p->next;
    p->next = s->free_pieces;
    s->free_pieces = p;
    return SP_OK;
}

/* Advances every piece by one state if it can. A piece is handed to MPI after all that
 * were posted before it. */
sp_status reduce_move_on(sp_transport *t)
{
    staged *s = staged_of(t);
    piece_state before = GOING_UP;

    while (s->first && s->first->state == GOING_UP) {
        piece *p = s->first;

        SP_TRY(retire(s));
        if (s->first == p)
            break;
    }
    for (piece *p = s->first; p; p = p->next) {
        if (p->state == QUEUED)
            SP_TRY(come_down(s, p));
        if (p->state == COMING_DOWN && before >= SUMMING)
            SP_TRY(give_to_mpi(t, p));
        if (p->state == SUMMING)
            SP_TRY(go_up(t, p));
        if (p->state == QUEUED)
            break;
        before = p->state;
    }
    return SP_OK;
}

/* ---- the table's functions ---- */

sp_status staged_post(sp_transport *t, const sp_part *part, int n, sp_sum *sum)
{
    staged *s = staged_of(t);

    SP_TRY(cuda_sum_begin(t->backend, &s->free_sums, sum));
    for (int i = 0; i < n; i++)
        if (part[i].count)
            SP_TRY(reduce_cut(s, (cuda_sum *)sum->handle, &part[i]));
    return reduce_move_on(t);
}

sp_status staged_test(sp_transport *t, sp_sum *sum, bool *is_done)
{
    if (sum->handle)
        SP_TRY(reduce_move_on(t));
    return cuda_sum_test(t->backend, &staged_of(t)->free_sums, sum, is_done);
}

} // namespace

const sp_transport_ops sp_cuda_staged_ops = {"mpi-staged",
                                             NULL,
                                             staged_open,
                                             staged_close,
                                             NULL,
                                             NULL,
                                             sp_transport_through_host,
                                             staged_post,
                                             staged_test,
                                             sp_transport_wait,
                                             NULL,
                                             &sp_cuda_peer_ops};
