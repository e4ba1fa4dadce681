/* The child's side: reads headers, unpacks rows, and answers, within limits. */
#include "h5/sp_h5_child.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sp_machine.h"
#include "h5/sp_h5_child_protocol.h"
#include "h5/sp_h5_internal.h"

/* The limits of a child, since the library never returns from some damaged headers.
 * Processor time and memory grow with the file, because large files may have large
 * indices. WORK_S is seconds of processor time for one file, MEMORY is bytes. */
enum {
    WORK_S = 3,
    MEMORY = 192 << 20,
    MEMORY_FACTOR = 8,
    UNPACK_FACTOR = 4 /* memory for each byte that is unpacked */
};
#define WORK_BYTES_S 20000000
#define MEMORY_MOST  ((int64_t)4 << 30)

bool sp_h5_child_send(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    ssize_t n;

    for (; bytes > 0; bytes -= (size_t)n, at += n) {
        n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n < 0)
            return false;
    }
    return true;
}

static void put_frame(sp_status status, const void *data, size_t bytes,
                      const sp_h5_identity *file)
{
    sp_h5_frame head = {(uint64_t)status, bytes, XXH64(data, bytes, 0), {0}};

    if (file)
        head.file = *file;
    if (!sp_h5_child_send(STDOUT_FILENO, &head, sizeof head) ||
        !sp_h5_child_send(STDOUT_FILENO, data, bytes))
        _exit(1); /* the parent has died */
}

#if defined(__SANITIZE_ADDRESS__) /* which reserves terabytes of addresses */
static void limit_addresses(int64_t bytes)
{
    (void)bytes;
}
#else
/* Allows this number of bytes of addresses more than at the first call. */
static void limit_addresses(int64_t bytes)
{
    static size_t taken;
    struct rlimit space;

    if (taken == 0)
        taken = sp_machine_addresses();
    if (getrlimit(RLIMIT_AS, &space) != 0)
        return;
    space.rlim_cur = (rlim_t)bytes + (rlim_t)taken;
    if (space.rlim_cur > space.rlim_max)
        space.rlim_cur = space.rlim_max;
    setrlimit(RLIMIT_AS, &space);
}
#endif

/* Gives the signals that end a process their default action again, forbids core files,
 * and limits memory to this number of bytes more than this process had at the first
 * call. A later call sets another limit. */
static void limit_child(int64_t bytes)
{
    static const int deadly[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGFPE, SIGILL,
                                 SIGALRM, SIGPROF, SIGTERM, SIGINT, SIGPIPE};
    const struct rlimit no_core = {0, 0};

    /* libraries that were loaded with the program may have set handlers */
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
    limit_addresses(bytes);
}

/* Sets the limits for one file, to unpack `unpacked` bytes of it. If a limit ends this
 * process, the parent names the file. Unpacking needs the rows, a chunk and the memory
 * of its filters. */
static void limit_file(const char *path, int64_t unpacked)
{
    struct stat st;
    const int64_t bytes = stat(path, &st) == 0 ? st.st_size : 0;
    const int64_t seconds = (bytes + unpacked) / WORK_BYTES_S;
    const int64_t more = seconds < SP_H5_CHILD_MORE_S ? seconds : SP_H5_CHILD_MORE_S;
    const struct itimerval work = {.it_value.tv_sec = WORK_S + more};
    int64_t memory = MEMORY_MOST;

    if (bytes < MEMORY_MOST / MEMORY_FACTOR)
        memory = bytes * MEMORY_FACTOR;
    limit_child(MEMORY + memory + UNPACK_FACTOR * unpacked);
    alarm((unsigned)(SP_H5_CHILD_WALL_S + more));
    setitimer(ITIMER_PROF, &work, NULL);
}

/* Receives all the bytes; no signal handler interrupts it. Ends the process if the
 * parent wants no more. */
static void get_all(void *data, size_t bytes)
{
    const ssize_t n = recv(STDIN_FILENO, data, bytes, MSG_WAITALL);

    if (n != (ssize_t)bytes)
        _exit(n < 0);
}

/* Serves tests of the parent: the child crashes, hangs or is killed at a file with the
 * value of one of these variables in its path. When it unpacks, the path is followed by
 * a colon and the dataset's name. */
static void misbehave(const char *path)
{
    const char *crash = getenv("SP_H5_CHILD_CRASH");
    const char *hang = getenv("SP_H5_CHILD_HANG");
    const char *killed = getenv("SP_H5_CHILD_KILL");

    if (crash && strstr(path, crash))
        raise(SIGSEGV);
    if (killed && strstr(path, killed))
        raise(SIGKILL); /* as the kernel does if memory is short */
    if (!hang || !strstr(path, hang))
        return;
    alarm(1); /* shorter than SP_H5_CHILD_WALL_S */
    for (;;)
        pause();
}

/* While an answer is sent no limit holds, since the parent may be slow to read it. */
static void end_limits(void)
{
    const struct itimerval none = {0};

    alarm(0);
    setitimer(ITIMER_PROF, &none, NULL);
}

static void put_failure(sp_status rc)
{
    const char *message = sp_error_last()->message;

    put_frame(rc, message, strlen(message), NULL);
}

/* Describes a file and sends the answer. */
static void answer(const char *path)
{
    sp_h5_catalog catalog = {0};
    sp_serial serial = {0};
    sp_status rc;

    limit_file(path, 0);
    misbehave(path);
    rc = sp_h5_describe(path, &catalog);
    if (rc == SP_OK) {
        sp_h5_catalog_serialize(&serial, &catalog);
        rc = serial.rc;
    }
    end_limits();
    if (rc == SP_OK)
        put_frame(SP_OK, serial.data, serial.size, NULL);
    else
        put_failure(rc);
    free(serial.data);
    sp_h5_catalog_free(&catalog);
}

/* Unpacks rows and sends them. */
static void answer_rows(const sp_h5_list_head *head, const char *path, const char *name)
{
    char *data, place[PATH_MAX + 1024];
    struct stat about;
    sp_h5_identity file;
    sp_status rc;

    limit_file(path, head->rows_bytes + head->chunk_bytes);
    snprintf(place, sizeof place, "%s:%s", path, name);
    misbehave(place);
    data = malloc((size_t)head->rows_bytes + 1);
    if (!data)
        _exit(SP_EMEM);
    rc = stat(path, &about) == 0 ? SP_OK : SP_FAIL(SP_EIO, "%s", strerror(errno));
    if (rc == SP_OK)
        rc =
            sp_h5_values(path, name, head->first, head->n_rows, head->rows_bytes, data);
    end_limits();
    file = (sp_h5_identity){(uint64_t)about.st_dev, (uint64_t)about.st_ino,
                            (int64_t)about.st_size};
    if (rc == SP_OK)
        put_frame(SP_OK, data, (size_t)head->rows_bytes, &file);
    else
        put_failure(rc);
    free(data);
}

/* Answers one list, or one request for rows. */
static void h5_serve(void)
{
    sp_h5_list_head head;
    char *list, *path;

    get_all(&head, sizeof head);
    list = malloc(head.bytes);
    if (!list)
        _exit(SP_EMEM);
    get_all(list, head.bytes);
    path = list;
    if (head.n_rows > 0)
        answer_rows(&head, list, list + strlen(list) + 1);
    for (uint64_t i = 0; head.n_rows == 0 && i < head.n; i++, path += strlen(path) + 1)
        answer(path);
    free(list);
}

/* Closes descriptors that the parent left open for its own use. A connection of MPI
 * that the child held would hide from the other ranks that this rank was killed. */
static void close_inherited(void)
{
    DIR *all = opendir("/proc/self/fd");
    const struct dirent *one;

    while (all && (one = readdir(all)) != NULL) {
        const int fd = atoi(one->d_name);

        if (fd > STDERR_FILENO && fd != dirfd(all))
            close(fd);
    }
    if (all)
        closedir(all);
}

void sp_h5_child_main(int argc, char **argv)
{
    static const sp_h5_reader child = {sp_h5_child_start, sp_h5_child_next,
                                       sp_h5_child_end, sp_h5_child_rows,
                                       sp_h5_child_kill};

    sp_h5_reader_child = &child;
    if (argc != 2 || strcmp(argv[1], SP_H5_CHILD_WORD) != 0)
        return;
    close_inherited();
    limit_child(MEMORY + MEMORY_MOST);
    for (;;)
        h5_serve();
}
