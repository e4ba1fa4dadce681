#include "report/sp_terminal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/sp_process.h"

enum { ANCESTORS = 16 };

static bool is_launcher(const char *name)
{
    return strncmp(name, "mpirun", 6) == 0 || strncmp(name, "mpiexec", 7) == 0 ||
           strcmp(name, "orterun") == 0 || strcmp(name, "prterun") == 0;
}

/* The nearest ancestor that is a launcher of ranks; 0 if no ancestor is. */
static int find_launcher(void)
{
    sp_process p = {.parent = getppid()};

    for (int i = 0; i < ANCESTORS && p.parent > 1; i++) {
        if (!sp_process_read(p.parent, &p))
            return 0;
        if (is_launcher(p.name))
            return (int)p.pid;
    }
    return 0;
}

/* Opens the launcher's stream if it is a terminal. Anything else is not opened at all:
 * for example, an end of a pipe must not be held. */
static int open_stream_of(int pid, int stream)
{
    char path[64], target[64];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, stream);
    n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return -1;
    target[n] = 0;
    if (strncmp(target, "/dev/pts/", 9) != 0 && strncmp(target, "/dev/tty", 8) != 0)
        return -1;
    return open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

void sp_terminal_open(sp_terminal *terminal, int stream)
{
    const char *kind = getenv("TERM");
    const int launcher = find_launcher();

    assert(stream == STDOUT_FILENO || stream == STDERR_FILENO);
    *terminal = (sp_terminal){.fd = -1, .group = getpgrp()};
    if (!kind || !kind[0] || strcmp(kind, "dumb") == 0)
        return;
    if (launcher) {
        terminal->fd = open_stream_of(launcher, stream);
        terminal->group = getpgid(launcher);
    } else
        terminal->fd = fcntl(stream, F_DUPFD_CLOEXEC, 0);
    if (terminal->fd >= 0 && !isatty(terminal->fd))
        sp_terminal_close(terminal);
}

void sp_terminal_close(sp_terminal *terminal)
{
    if (terminal->fd >= 0)
        close(terminal->fd);
    terminal->fd = -1;
}

int sp_terminal_columns(const sp_terminal *terminal)
{
    struct winsize size;

    return terminal->fd >= 0 && ioctl(terminal->fd, TIOCGWINSZ, &size) == 0
               ? size.ws_col
               : 0;
}

bool sp_terminal_is_front(const sp_terminal *terminal)
{
    /* A process of another session learns nothing and counts as in front. */
    const int front = terminal->fd >= 0 ? tcgetpgrp(terminal->fd) : -1;

    return front < 0 || front == terminal->group;
}
