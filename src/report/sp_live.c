#include "report/sp_live.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "base/sp_process.h"
#include "base/sp_text.h"

/* ---- the terminal ---- */

/* The terminal on which the output of this process appears. Under mpirun a rank's
 * standard output is a pipe to the launcher, which passes the bytes on; then the
 * launcher's standard output decides. */
typedef struct terminal {
    int fd;    /* open on the terminal; -1 without one */
    int group; /* process group of the job that writes to it */
} terminal;

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
static int terminal_open_stream(int pid, int stream)
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

static void terminal_close(terminal *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

/* Finds the terminal that shows the output of stream 1 or 2. t->fd is -1 without
 * a terminal, or if TERM says that it cannot clear a line. A launcher on another host,
 * such as srun, is not seen: its ranks have no terminal. */
static void terminal_open(terminal *t, int stream)
{
    const char *kind = getenv("TERM");
    const int launcher = find_launcher();

    assert(stream == STDOUT_FILENO || stream == STDERR_FILENO);
    *t = (terminal){.fd = -1, .group = getpgrp()};
    if (!kind || !kind[0] || strcmp(kind, "dumb") == 0)
        return;
    if (launcher) {
        t->fd = terminal_open_stream(launcher, stream);
        t->group = getpgid(launcher);
    } else
        t->fd = fcntl(stream, F_DUPFD_CLOEXEC, 0);
    if (t->fd >= 0 && !isatty(t->fd))
        terminal_close(t);
}

/* The width of the terminal in characters; 0: not known. */
static int terminal_columns(const terminal *t)
{
    struct winsize size;

    return t->fd >= 0 && ioctl(t->fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* False while the job is in the background, where it should draw nothing. */
static bool terminal_is_front(const terminal *t)
{
    /* A process of another session learns nothing and counts as in front. */
    const int front = t->fd >= 0 ? tcgetpgrp(t->fd) : -1;

    return front < 0 || front == t->group;
}

enum { DEFAULT_COLUMNS = 80, LEAST_BAR = 10, MOST_BAR = 40, LINE = 2048 };

static struct {
    terminal terminal; /* of this process's standard output, if it draws */
    bool is_live;
} live = {.terminal = {.fd = -1}};

/* ---- where it is drawn ---- */

/* A terminal of unknown width, usually made by a program, gets only plain lines. */
static bool live_is_wanted(sp_progress_when when, const terminal *out)
{
    if (when != SP_PROGRESS_AUTO)
        return when == SP_PROGRESS_ALWAYS;
    return terminal_columns(out) > 0 && terminal_is_front(out);
}

/* Opens the terminals of this process; returns whether errors appear amid the line. */
static bool open_terminals(sp_progress_when when)
{
    terminal error;
    bool is_shared;

    terminal_close(&live.terminal);
    terminal_open(&live.terminal, STDOUT_FILENO);
    terminal_open(&error, STDERR_FILENO);
    live.is_live = live_is_wanted(when, &live.terminal);
    is_shared = live.is_live && error.fd >= 0;
    terminal_close(&error);
    if (!live.is_live)
        terminal_close(&live.terminal);
    return is_shared;
}

void sp_live_open_alone(sp_progress_when when)
{
    const bool is_shared = open_terminals(when);

    sp_log_open_live(live.is_live, is_shared);
}

void sp_live_open_errors(void)
{
    terminal error;

    terminal_open(&error, STDERR_FILENO);
    sp_log_open_live(false, error.fd >= 0);
    terminal_close(&error);
}

sp_status sp_live_open(sp_progress_when when, sp_comm *comm)
{
    int64_t is_shared = comm->rank == 0 && open_terminals(when);

    SP_TRY(sp_comm_bcast(comm, &is_shared, sizeof is_shared, 0));
    sp_log_open_live(comm->rank == 0 && live.is_live, is_shared);
    return SP_OK;
}

bool sp_live_is_shown(void)
{
    return live.is_live && terminal_is_front(&live.terminal);
}

/* ---- a line ---- */

void sp_live_begin(sp_live *line)
{
    line->n = 0;
    line->bar = -1;
}

void sp_live_add(sp_live *line, int weight, const char *format, ...)
{
    char text[SP_LIVE_TEXT];
    va_list args;

    assert(line->n < SP_LIVE_FIELDS);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!text[0])
        return;
    line->field[line->n].weight = weight;
    sp_text_printable(line->field[line->n++].text, SP_LIVE_TEXT, text, false);
}

void sp_live_add_bar(sp_live *line, int weight, double share)
{
    assert(line->n < SP_LIVE_FIELDS && line->bar < 0);
    line->bar = line->n++;
    line->share = fmin(1, fmax(0, share));
    line->field[line->bar].weight = weight;
    line->field[line->bar].text[0] = 0;
}

/* The bytes of the text, in whole characters, that `most` columns of a terminal hold;
 * *width: the columns that they need, at most. */
static size_t fit(const char *text, int most, int *width)
{
    size_t used = 0;

    for (*width = 0; text[used];) {
        const size_t n = sp_text_character(text + used);
        const int more = n > 1 ? 2 : 1;

        if (*width + more > most)
            break;
        *width += more;
        used += n ? n : 1;
    }
    return used;
}

static int field_width(const sp_live *line, int i)
{
    int width = LEAST_BAR + 2;

    if (i != line->bar)
        fit(line->field[i].text, INT_MAX, &width);
    return width;
}

/* Leaves out fields until the rest fits; returns the columns that it needs. */
static int live_choose(const sp_live *line, int most, bool is_shown[SP_LIVE_FIELDS])
{
    int width = -1, n = line->n;

    for (int i = 0; i < line->n; i++) {
        is_shown[i] = true;
        width += field_width(line, i) + 1;
    }
    while (width > most && n > 1) {
        int least = -1;

        for (int i = 0; i < line->n; i++)
            if (is_shown[i] &&
                (least < 0 || line->field[i].weight < line->field[least].weight))
                least = i;
        is_shown[least] = false;
        width -= field_width(line, least) + 1;
        n--;
    }
    return width;
}

static size_t write_bar(char *to, int length, double share)
{
    const int filled = (int)(share * length);

    to[0] = '[';
    for (int i = 0; i < length; i++)
        to[i + 1] = i < filled ? '#' : '.';
    to[length + 1] = ']';
    return (size_t)length + 2;
}

void sp_live_layout(const sp_live *line, int columns, char *text, size_t bytes)
{
    bool is_shown[SP_LIVE_FIELDS];
    const int most = columns > 1 ? columns - 1 : 1;
    int width = live_choose(line, most, is_shown), bar = LEAST_BAR + most - width;
    size_t used = 0;

    assert(bytes > SP_LIVE_FIELDS * (SP_LIVE_TEXT + 1) / 2);
    bar = bar > MOST_BAR ? MOST_BAR : bar;
    text[0] = 0;
    for (int i = 0; i < line->n; i++) {
        const size_t needed = strlen(line->field[i].text) + MOST_BAR + 4;

        if (!is_shown[i] || used + needed >= bytes || (i == line->bar && bar < 1))
            continue;
        if (used)
            text[used++] = ' ';
        if (i == line->bar)
            used += write_bar(text + used, bar, line->share);
        else
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s", line->field[i].text);
        text[used] = 0;
    }
    text[fit(text, most, &width)] = 0;
}

void sp_live_draw(const sp_live *line)
{
    const int columns = terminal_columns(&live.terminal);
    char text[LINE];

    if (!sp_live_is_shown())
        return;
    sp_live_layout(line, columns > 0 ? columns : DEFAULT_COLUMNS, text, sizeof text);
    sp_log_live(text);
}

void sp_live_remove(void)
{
    sp_log_live("");
}

/* ---- numbers ---- */

const char *sp_live_duration(double seconds, char text[SP_DURATION])
{
    long long s;

    if (!(seconds >= 0 && seconds < 1e12)) {
        snprintf(text, SP_DURATION, "?");
        return text;
    }
    s = (long long)(seconds + 0.5);
    if (s >= 86400)
        snprintf(text, SP_DURATION, "%lldd %02lld:%02lld", s / 86400, s / 3600 % 24,
                 s / 60 % 60);
    else if (s >= 3600)
        snprintf(text, SP_DURATION, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60,
                 s % 60);
    else
        snprintf(text, SP_DURATION, "%lld:%02lld", s / 60, s % 60);
    return text;
}

const char *sp_live_bytes(double bytes, char text[SP_DURATION])
{
    const double mib = bytes / (1 << 20);

    if (mib < 1000)
        snprintf(text, SP_DURATION, "%.0f MiB", mib);
    else
        snprintf(text, SP_DURATION, "%.1f GiB", mib / 1024);
    return text;
}
