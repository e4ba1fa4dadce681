/* The console of a program: standard output, standard error and this rank's log file. */
#include "base/sp_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_text.h"

enum { BLOCK = 8192, LIVE = 2048 };

/* Goes to the first column and clears the line: the only commands to a terminal. They
 * leave nothing that would have to be restored if the process died. */
#define CLEAR "\r\033[K"

static struct {
    pthread_mutex_t lock;
    const char *program;
    char who[128]; /* "rank 3/8 host local 1", "" before the ranks are known */
    int rank;
    FILE *file; /* log file of this rank, or NULL */
    bool is_live, is_shared;
    char live[LIVE];   /* the live line on the terminal; "": no such line */
    const char *phase; /* phase, epoch, step: as sp_log_position states them */
    int64_t epoch, step;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .program = "sptrain"};

sp_status sp_log_open(int rank, int size, const char *host, int local_rank,
                      const char *rank_file)
{
    int fd;

    assert(0 <= rank && rank < size && host);
    sp_log_close();
    state.rank = rank;
    snprintf(state.who, sizeof state.who, "rank %d/%d %s local %d", rank, size, host,
             local_rank);
    if (!rank_file)
        return SP_OK;
    SP_TRY(sp_file_open(rank_file, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, &fd));
    state.file = fdopen(fd, "a");
    if (state.file)
        return SP_OK;
    SP_FAIL(SP_EIO, "%s: cannot open the log: %s", rank_file, strerror(errno));
    close(fd);
    return SP_EIO;
}

sp_status sp_log_written(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return SP_FAIL(SP_EIO, "cannot write to standard output");
    return SP_OK;
}

sp_status sp_log_answered(sp_status rc)
{
    if (rc != SP_OK)
        sp_log_error(sp_error_last());
    return rc;
}

/* Removes the live line. The caller holds the lock. */
static void remove_live(void)
{
    if (!state.live[0])
        return;
    fputs(CLEAR, stdout);
    fflush(stdout);
    state.live[0] = 0;
}

void sp_log_close(void)
{
    pthread_mutex_lock(&state.lock);
    remove_live();
    fflush(stdout);
    if (state.file)
        fclose(state.file);
    state.file = NULL;
    pthread_mutex_unlock(&state.lock);
}

/* The unread bytes of a pipe; 0 for everything else. */
static int unread(int fd)
{
    struct stat status;
    int n = 0;

    if (fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode) ||
        ioctl(fd, FIONREAD, &n) != 0)
        return 0;
    return n;
}

void sp_log_deliver(void)
{
    const double limit_s = sp_now_s() + 1;

    fflush(NULL);
    while (unread(STDOUT_FILENO) + unread(STDERR_FILENO) > 0 && sp_now_s() < limit_s)
        sp_sleep_s(0.001);
}

void sp_log_position(const char *phase, int64_t epoch, int64_t step)
{
    state.phase = phase;
    state.epoch = epoch;
    state.step = step;
}

/* Writes text in printable form, since names from files may be part of it, to the
 * stream and to this rank's file. A newline within the text ends a line only if
 * keeps_lines. A live line moves below the text, or ends there if is_last. The caller
 * holds the lock. */
static void console_print(FILE *stream, const char *text, bool keeps_lines,
                          bool is_last)
{
    const bool moves =
        stream && state.live[0] && (stream == stdout || state.is_shared || is_last);
    char line[BLOCK];

    sp_text_printable(line, sizeof line, text, keeps_lines);
    if (moves) {
        fputs(CLEAR, stdout);
        fflush(stdout);
    }
    if (stream) {
        fprintf(stream, "%s%s\n", stream == stderr && state.is_shared ? CLEAR : "",
                line);
        fflush(stream);
    }
    if (is_last)
        state.live[0] = 0;
    if (moves && state.live[0]) {
        fputs(state.live, stdout);
        fflush(stdout);
    }
    if (state.file) {
        fprintf(state.file, "%s\n", line);
        fflush(state.file);
    }
}

/* Writes a line to the stream; NULL: only to this rank's file. */
static void say_line(FILE *stream, const char *line)
{
    if (!stream && !state.file)
        return;
    pthread_mutex_lock(&state.lock);
    console_print(stream, line, false, false);
    pthread_mutex_unlock(&state.lock);
}

/* Appends text with every line but the first indented by two, so that a name with a
 * newline in it cannot begin a line that looks like another message. */
static void append_indented(char *block, size_t bytes, const char *text)
{
    size_t used = strlen(block);

    for (; *text && used + 4 < bytes; text++) {
        block[used++] = *text;
        if (*text == '\n' && strncmp(text + 1, "  ", 2) != 0) {
            block[used++] = ' ';
            block[used++] = ' ';
        }
    }
    block[used] = 0;
}

static void console_warn(const char *who, const char *message)
{
    char block[BLOCK];

    snprintf(block, sizeof block, "%s: %s%swarning: ", state.program, who,
             who[0] ? ": " : "");
    append_indented(block, sizeof block, message);
    pthread_mutex_lock(&state.lock);
    console_print(stderr, block, true, false);
    pthread_mutex_unlock(&state.lock);
}

static void console_say(sp_log_kind kind, const char *line)
{
    FILE *stream = state.rank == 0 ? stdout : NULL;

    if (kind == SP_LOG_PROGRESS && state.rank != 0)
        return;
    if (kind == SP_LOG_PROGRESS && state.is_live)
        stream = NULL;
    if (kind == SP_LOG_WARN)
        console_warn(state.who, line);
    else if (kind == SP_LOG_WARN0 && state.rank == 0)
        console_warn("", line);
    else if (kind != SP_LOG_WARN0)
        say_line(stream, line);
}

void sp_log_program(const char *name)
{
    assert(name);
    state.program = name;
    sp_log_to_console(console_say);
}

void sp_log_open_live(bool is_live, bool is_shared)
{
    state.is_live = is_live;
    state.is_shared = is_shared;
}

void sp_log_live(const char *text)
{
    assert(text);
    if (!state.is_live)
        return;
    pthread_mutex_lock(&state.lock);
    if (text[0]) {
        snprintf(state.live, sizeof state.live, "%s", text);
        printf("\r%s\033[K", state.live);
        fflush(stdout);
    } else
        remove_live();
    pthread_mutex_unlock(&state.lock);
}

void sp_log_error(const sp_error_record *record)
{
    const char *trace = getenv("SP_TRACE");
    char block[BLOCK], position[128], line[SP_ERROR_TRACE + 64];

    assert(record->code != SP_OK);
    snprintf(block, sizeof block, "%s: %s%s%serror: ", state.program, state.who,
             state.who[0] ? ": " : "", record->is_internal ? "internal " : "");
    append_indented(block, sizeof block, record->message);
    if (state.phase) {
        snprintf(position, sizeof position,
                 " (this rank: phase %s, epoch %" PRId64 ", step %" PRId64 ")",
                 state.phase, state.epoch, state.step);
        append_indented(block, sizeof block, position);
    }
    if (record->is_internal)
        append_indented(block, sizeof block,
                        "; this is a mistake in the program: please report this line "
                        "and the next one");
    if (record->is_internal || (trace && strcmp(trace, "1") == 0)) {
        snprintf(line, sizeof line, "\n%s at %s", sp_status_name(record->code),
                 record->trace);
        append_indented(block, sizeof block, line);
    }
    pthread_mutex_lock(&state.lock);
    console_print(stderr, block, true, true);
    pthread_mutex_unlock(&state.lock);
}
