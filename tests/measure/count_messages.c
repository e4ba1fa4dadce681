/* Counts the calls of MPI and the messages of sockets of each rank, and their bytes.
 *
 *     mpicc -shared -fPIC -o count.so count_messages.c -ldl
 *     mpirun -n 8 env LD_PRELOAD=$PWD/count.so SP_COUNT_DIR=DIR sptrain DECK
 *
 * Each rank writes DIR/RANK: lines of name, calls, bytes. The bytes of a collective are
 * those of the vector that the rank gives or gets, whatever the library makes of it; an
 * Iallgather counts what all ranks give. sptrain uses the operations below only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

typedef enum call {
    BCAST,
    ALLREDUCE,
    ALLGATHER,
    ALLTOALL,
    BARRIER,
    SEND,
    RECEIVE,
    SOCKET_SEND,
    SOCKET_RECEIVE,
    N_CALLS
} call;

static const char *const name[N_CALLS] = {"bcast",    "allreduce",   "allgather",
                                          "alltoall", "barrier",     "send",
                                          "receive",  "socket-send", "socket-receive"};
static long n_calls[N_CALLS], n_bytes[N_CALLS];

static void add(call which, long count, MPI_Datatype type)
{
    int bytes;

    PMPI_Type_size(type, &bytes);
    n_calls[which]++;
    n_bytes[which] += count * bytes;
}

int MPI_Ibcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *request)
{
    add(BCAST, n, type);
    return PMPI_Ibcast(data, n, type, root, comm, request);
}

int MPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    add(ALLREDUCE, n, type);
    return PMPI_Iallreduce(from, to, n, type, op, comm, request);
}

int MPI_Iallgather(const void *from, int n, MPI_Datatype type, void *to, int n_to,
                   MPI_Datatype to_type, MPI_Comm comm, MPI_Request *request)
{
    int size;

    PMPI_Comm_size(comm, &size);
    add(ALLGATHER, (long)n_to * size, to_type);
    return PMPI_Iallgather(from, n, type, to, n_to, to_type, comm, request);
}

int MPI_Ialltoall(const void *from, int n, MPI_Datatype type, void *to, int n_to,
                  MPI_Datatype to_type, MPI_Comm comm, MPI_Request *request)
{
    int size;

    PMPI_Comm_size(comm, &size);
    add(ALLTOALL, (long)n * size, type);
    return PMPI_Ialltoall(from, n, type, to, n_to, to_type, comm, request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    add(BARRIER, 0, MPI_BYTE);
    return PMPI_Ibarrier(comm, request);
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    add(SEND, n, type);
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    add(RECEIVE, n, type);
    return PMPI_Irecv(data, n, type, from, tag, comm, request);
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    ssize_t (*next)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
    const ssize_t n = next(fd, data, bytes, flags);

    n_calls[SOCKET_SEND] += n > 0;
    n_bytes[SOCKET_SEND] += n > 0 ? n : 0;
    return n;
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    ssize_t (*next)(int, void *, size_t, int) = dlsym(RTLD_NEXT, "recv");
    const ssize_t n = next(fd, data, bytes, flags);

    n_calls[SOCKET_RECEIVE] += n > 0;
    n_bytes[SOCKET_RECEIVE] += n > 0 ? n : 0;
    return n;
}

int MPI_Finalize(void)
{
    const char *dir = getenv("SP_COUNT_DIR");
    char path[4096];
    FILE *out;
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s/%d", dir ? dir : ".", rank);
    out = fopen(path, "w");
    for (int i = 0; out && i < N_CALLS; i++)
        fprintf(out, "%s %ld %ld\n", name[i], n_calls[i], n_bytes[i]);
    if (out)
        fclose(out);
    return PMPI_Finalize();
}
