/* Communicators are asked for where MPI would end the process or answer wrongly: before
 * MPI_Init and after MPI_Finalize, from a thread that MPI does not serve, and from an
 * intercommunicator. Each is a status with a message.
 *
 *     mpiexec -n 2 ./mpi_states */
#include <mpi.h>
#include <pthread.h>
#include <sptrain.h>
#include <stdio.h>
#include <string.h>

static int failed;

static void refused(MPI_Comm of, const char *text)
{
    sp_comm *comm = (sp_comm *)8;
    const int status = sp_comm_create_mpi(&comm, of);

    if (status == SP_EUSAGE && !comm && strstr(sp_error_text(), text))
        return;
    fprintf(stderr, "mpi_states: status %d, \"%s\", expected \"%s\"\n", status,
            sp_error_text(), text);
    failed = 1;
}

static void *ask_in_thread(void *arg)
{
    (void)arg;
    refused(MPI_COMM_WORLD, "this is not the main thread");
    return NULL;
}

static void ask_for_two_groups(int rank)
{
    MPI_Comm half, both;

    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank, 1, &both);
    refused(both, "joins two groups");
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    sp_comm *comm = (sp_comm *)8;
    pthread_t thread;
    int level, rank;

    if (sp_comm_create_mpi_fortran(&comm, 0) != SP_EUSAGE || comm ||
        !strstr(sp_error_text(), "MPI is not initialized"))
        failed = 1;
    refused(MPI_COMM_WORLD, "MPI is not initialized");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    refused(MPI_COMM_NULL, "MPI_COMM_NULL");
    ask_for_two_groups(rank);
    if (level == MPI_THREAD_FUNNELED &&
        !pthread_create(&thread, NULL, ask_in_thread, NULL))
        pthread_join(thread, NULL);
    MPI_Finalize();
    refused(MPI_COMM_WORLD, "MPI is finalized");
    return failed;
}
