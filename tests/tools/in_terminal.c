/* in_terminal COLUMNS COMMAND...: runs a command in a terminal of its own, which is so
 * many columns wide, and prints what somebody would see there:
 *
 *     line TEXT     a line that stays
 *     live TEXT     a text that was drawn without an end of its line
 *
 * Ends with the command's status, or with 99 where a line that is still being drawn is
 * too wide, which would wrap, or where the command controls the terminal by anything
 * but a carriage return and the clearing of the rest of a line. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROW = 8192, BAD = 99, WIDEST_LIVE_GAP = 1 };

typedef struct screen {
    int columns, at, length;
    char row[ROW];
    bool is_bad;
} screen;

static void complain(screen *s, const char *what)
{
    fprintf(stderr, "in_terminal: %s: %.*s\n", what, s->length, s->row);
    s->is_bad = true;
}

/* Characters of the row: bytes that do not continue a UTF-8 character. */
static int width(const screen *s)
{
    int n = 0;

    for (int i = 0; i < s->length; i++)
        n += (s->row[i] & 0xc0) != 0x80;
    return n;
}

static void show(screen *s, const char *kind)
{
    printf("%s %.*s\n", kind, s->length, s->row);
}

static void put(screen *s, char byte)
{
    if (s->at == ROW - 1)
        return;
    s->row[s->at++] = byte;
    s->length = s->at > s->length ? s->at : s->length;
}

/* A text is drawn: nothing but a new drawing or a message may follow it. */
static void end_of_drawing(screen *s)
{
    if (s->length == 0)
        return;
    if (width(s) > s->columns - WIDEST_LIVE_GAP)
        complain(s, "wider than the terminal");
    show(s, "live");
}

/* Takes the sequence behind an escape; returns its bytes, 0: more are to come. */
static size_t take_escape(screen *s, const char *at, size_t n)
{
    static const char clear[] = "\033[K";

    if (n < 3)
        return 0;
    if (strncmp(at, clear, 3) != 0)
        complain(s, "a command to the terminal other than clearing the line");
    s->length = s->at;
    return 3;
}

static size_t take(screen *s, const char *text, size_t n)
{
    size_t i = 0, used;

    while (i < n) {
        if (text[i] == '\033') {
            used = take_escape(s, text + i, n - i);
            if (!used)
                break;
            i += used;
            continue;
        }
        if (text[i] == '\n') {
            show(s, "line");
            s->at = s->length = 0;
        } else if (text[i] == '\r') {
            if (i + 1 == n)
                break;
            if (text[i + 1] != '\n')
                end_of_drawing(s);
            s->at = 0;
        } else
            put(s, text[i]);
        i++;
    }
    return i;
}

static void watch(screen *s, int master)
{
    char text[4096];
    size_t held = 0, used;
    ssize_t n;

    for (;;) {
        n = read(master, text + held, sizeof text - held);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        held += (size_t)n;
        used = take(s, text, held);
        memmove(text, text + used, held - used);
        held -= used;
    }
    if (s->length > 0)
        show(s, "line");
}

static void become(char **command, const char *name, int columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int fd;

    setsid();
    fd = open(name, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0 || ioctl(fd, TIOCSWINSZ, &size) != 0)
        _exit(BAD);
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    close(fd);
    setenv("TERM", "xterm", 1); /* whatever the caller's is, and whether it has one */
    execvp(command[0], command);
    _exit(BAD);
}

int main(int argc, char **argv)
{
    screen s = {.columns = argc > 1 ? atoi(argv[1]) : 0};
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), status;
    pid_t child;

    if (argc < 3 || s.columns < 1 || master < 0 || grantpt(master) != 0 ||
        unlockpt(master) != 0)
        return BAD;
    setvbuf(stdout, NULL, _IOLBF, 0); /* somebody may wait for a line */
    child = fork();
    if (child == 0)
        become(argv + 2, ptsname(master), s.columns);
    watch(&s, master);
    if (waitpid(child, &status, 0) != child || s.is_bad)
        return BAD;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
