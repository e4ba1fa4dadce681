/* A file for which the disk has no room, at whatever size, or any write of which fails,
 * is an error like any other, and the library ends in order afterwards. Each size and
 * each write is tried in a process of its own. */
#include "fixtures/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "h5/sp_h5.h"

/* HDF5 forgets some of what it took for a file that it cannot finish. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

enum { ROWS = 100, STEP = 137 };
static const char *path = "test_h5_full.h5";
static bool is_limited; /* the limit is on the size of files, not on the disk */

static sp_status write_all(sp_h5 *file)
{
    static float data[ROWS];
    const int64_t n = ROWS;
    char name[32];

    SP_TRY(sp_h5_attr_write_texts(file, "/", "format", -1, (char *[]){"example"}));
    for (int i = 0; i < 20; i++) { /* so many that the group's table comes last */
        snprintf(name, sizeof name, "/params/conv%d/weight", i);
        SP_TRY(sp_h5_write(file, name, SP_H5_F32, 1, &n, data));
        SP_TRY(sp_h5_attr_write(file, name, "crc32c", SP_H5_I64, -1, &n));
    }
    return SP_OK;
}

/* These functions are found before libc's and stand for the disk; only the file itself
 * is full. */
static off_t room;
static int n_good, n_bad; /* after so many writes, so many fail */
static int n_written;

static bool is_ours(int fd)
{
    struct stat about, full;

    return fstat(fd, &about) == 0 && stat(path, &full) == 0 &&
           about.st_ino == full.st_ino && about.st_dev == full.st_dev;
}

static bool is_full(off_t end)
{
    return !is_limited && end > room;
}

static int n_interrupts;    /* calls that a signal still interrupts */
static const char *link_to; /* what the file becomes a link to while it is written */

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    if (!is_ours(fd))
        return syscall(SYS_pwrite64, fd, from, n, at);
    if (link_to && (unlink(path) != 0 || symlink(link_to, path) != 0))
        abort();
    link_to = NULL;
    if (n_interrupts > 0 && n_interrupts--)
        errno = EINTR;
    else if (++n_written > n_good && n_written <= n_good + n_bad)
        errno = EIO;
    else if (is_full(at + (off_t)n))
        errno = ENOSPC;
    else
        return syscall(SYS_pwrite64, fd, from, n, at);
    return -1;
}

/* Writes a file of at most this many bytes; the process ends as a program does. */
static void try_room(off_t bytes)
{
    sp_status rc, end;
    sp_h5 *file;

    signal(SIGSEGV, SIG_DFL); /* cmocka's would end with its own status */
    room = bytes;
    if (is_limited) {
        const struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};

        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    rc = sp_h5_create(&file, path);
    if (rc != SP_OK)
        exit(rc);
    rc = write_all(file);
    end = sp_h5_close(file);
    exit(rc == SP_OK ? end : rc);
}

static int status_of(off_t bytes)
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0)
        try_room(bytes);
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        fail_msg("room for %lld bytes: signal %d", (long long)bytes, WTERMSIG(status));
    return WEXITSTATUS(status);
}

TEST(no_room_is_an_error)
{
    struct stat whole;

    assert_int_equal(status_of(1 << 20), 0);
    assert_int_equal(stat(path, &whole), 0);
    for (off_t bytes = 0; bytes < whole.st_size; bytes += STEP)
        assert_int_equal(status_of(bytes), SP_EIO);
    assert_int_equal(status_of(whole.st_size - 1), SP_EIO);
    assert_int_equal(status_of(2 * whole.st_size + (1 << 16)), 0);
}

/* A disk that is broken for a moment, or from then on. */
TEST(no_failed_write_ends_the_process)
{
    for (n_bad = 1; n_bad < 1000; n_bad += 998) {
        for (n_good = 0; status_of(1 << 20) != SP_OK; n_good++)
            ;
        assert_in_range(n_good, 20, 1000);
    }
    n_bad = 0;
}

/* On some file systems a signal ends a write. */
TEST(a_signal_is_no_lack_of_room)
{
    n_interrupts = 2;
    assert_int_equal(status_of(1 << 20), 0);
    n_interrupts = 0;
}

/* Whoever may write in the folder has put a link in the file's place. */
TEST(no_file_is_written_through_a_link)
{
    static char text[1 << 20];
    struct stat victim;
    FILE *file = fopen("test_h5_victim", "w");

    assert_true(file && fwrite(text, sizeof text, 1, file) == 1 && fclose(file) == 0);
    link_to = "test_h5_victim";
    assert_int_equal(status_of(1 << 20), SP_OK); /* into the file without a name */
    link_to = NULL;
    assert_int_equal(stat("test_h5_victim", &victim), 0);
    assert_int_equal(victim.st_size, sizeof text);
    unlink(path);
}

/* A name for memory in shared files may be too long where it is made of the path. */
TEST(a_long_path_is_no_exception)
{
    static char folder[201], file[512];
    struct stat whole;

    memset(folder, 'x', sizeof folder - 1);
    snprintf(file, sizeof file, "%s/%s", folder, folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    path = file;
    assert_int_equal(status_of(1 << 20), 0);
    assert_int_equal(stat(path, &whole), 0);
    for (off_t bytes = 0; bytes < whole.st_size; bytes += 10 * STEP)
        assert_int_equal(status_of(bytes), SP_EIO);
}

/* The limit holds for files in memory too, so the file must not come to need them. */
TEST(the_limit_of_file_sizes_is_an_error)
{
    path = "test_h5_full_limit.h5";
    is_limited = true;
    for (off_t bytes = 0; bytes < 1 << 18; bytes += 1 << 12) {
        const int code = status_of(bytes);

        if (code != SP_EIO && code != SP_OK)
            fail_msg("a limit of %lld bytes: status %d", (long long)bytes, code);
    }
    assert_int_equal(status_of(1 << 14), SP_EIO);
    assert_int_equal(status_of(1 << 20), SP_OK);
    is_limited = false;
}
