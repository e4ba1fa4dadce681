/* A request to stop ends the program with the status that has it started again, also
 * while MPI does not come up because its launcher has fallen silent. */
#include "config.h"

#include "fixtures/test.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Starts the program under a launcher that listens at *launcher and never answers. */
static pid_t start(int *launcher)
{
    char path[4096], fd[16];
    int ends[2];
    pid_t pid;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    snprintf(path, sizeof path, "%s/sptrain", getenv("SP_BUILDDIR"));
    snprintf(fd, sizeof fd, "%d", ends[1]);
    pid = fork();
    if (pid == 0) {
        setenv("PMI_FD", fd, 1);
        setenv("PMI_RANK", "0", 1);
        setenv("PMI_SIZE", "1", 1);
        close(ends[0]);
        execl(path, "sptrain", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *launcher = ends[0];
    return pid;
}

TEST(a_request_ends_a_start_that_hangs)
{
    char word[256];
    int launcher, status = -1;
    pid_t pid = start(&launcher);
    double begin_s;

    /* its first words to the launcher: it is inside MPI's start */
    assert_true(read(launcher, word, sizeof word) > 0);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    begin_s = now_s();
    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SP_ELIMIT);
    assert_true(now_s() - begin_s < 15);
    close(launcher);
}

TEST(a_start_that_hangs_ends_by_itself)
{
    int launcher, status = -1;
    pid_t pid;

    setenv("SP_START_S", "1", 1);
    pid = start(&launcher);
    unsetenv("SP_START_S");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SP_EMPI);
    close(launcher);
}

int main(void)
{
    if (!getenv("SP_BUILDDIR")) {
        fputs("SKIPPED: SP_BUILDDIR does not say where sptrain is\n", stderr);
        return 77;
    }
    return run_all_tests(NULL, NULL);
}
