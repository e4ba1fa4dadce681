/* Each rank logs to the stream that its level and its number give it, in the form that
 * was asked for, and no bytes from outside reach a terminal as commands. */
#include "fixtures/test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"

static const char own_path[] = "own";

/* Opens the log of rank 0 on hosta or of rank 3 on hostb. */
static void begin(int rank, int size, const char *path)
{
    unlink(own_path);
    test_capture(1);
    test_capture(2);
    OK(sp_log_open(rank, size, rank ? "hostb" : "hosta", rank ? 1 : 0, path));
}

/* Closes the log, which has written this to the two streams. */
static void end(const char *to_out, const char *to_err)
{
    const char *out, *err;

    sp_log_close();
    sp_log_open_live(false, false);
    out = test_captured(1);
    err = test_captured(2);
    assert_string_equal(out, to_out);
    assert_string_equal(err, to_err);
}

TEST(rank_0_speaks_for_all)
{
    begin(0, 8, NULL);
    sp_log_info("epoch=%d", 1);
    sp_log_progress("step=1");
    sp_log_progress("step=2");
    sp_log_warn0("scaling is left out");
    sp_log_warn("slow");
    end("epoch=1\nstep=1\nstep=2\n",
        "sptrain: warning: scaling is left out\n"
        "sptrain: rank 0/8 hosta local 0: warning: slow\n");
}

TEST(other_ranks_warn_only)
{
    begin(3, 8, own_path);
    sp_log_info("epoch=%d", 1);
    sp_log_progress("step=1");
    sp_log_warn0("scaling is left out");
    sp_log_warn("slow");
    end("", "sptrain: rank 3/8 hostb local 1: warning: slow\n");
    assert_string_equal(test_content(own_path, NULL),
                        "epoch=1\nsptrain: rank 3/8 hostb local 1: warning: slow\n");
}

#define MESSAGE "a.h5:/features: 3 columns, expected 4"
#define LINE    "spvox: rank 3/8 hostb local 1: error: " MESSAGE
#define RUN     " (this rank: phase read, epoch 2, step 120)"
#define TRACE   "  SP_EDATA at src/a.c:1 f < src/b.c:2 g\n"

static const sp_error_record bad_columns = {SP_EDATA, MESSAGE,
                                            "src/a.c:1 f < src/b.c:2 g", false};

/* Checks what the program prints of an error, on the console and in the rank's file. */
static void check_error(const sp_error_record *record, bool is_running,
                        const char *expected)
{
    sp_log_program("spvox");
    begin(3, 8, own_path);
    if (is_running)
        sp_log_position("read", 2, 120);
    sp_log_error(record);
    sp_log_position(NULL, 0, 0);
    end("", expected);
    assert_string_equal(test_content(own_path, NULL), expected);
}

TEST(an_error_is_one_plain_line)
{
    unsetenv("SP_TRACE");
    check_error(&bad_columns, false, LINE "\n");
    check_error(&bad_columns, true, LINE RUN "\n");
    setenv("SP_TRACE", "0", 1);
    check_error(&bad_columns, true, LINE RUN "\n");
}

TEST(positions_come_where_they_are_asked_for)
{
    setenv("SP_TRACE", "1", 1);
    check_error(&bad_columns, true, LINE RUN "\n" TRACE);
    unsetenv("SP_TRACE");
}

TEST(a_fault_of_the_program_has_its_positions)
{
    sp_error_record record = bad_columns;

    unsetenv("SP_TRACE");
    record.is_internal = true;
    check_error(&record, false,
                "spvox: rank 3/8 hostb local 1: internal error: " MESSAGE
                "; this is a mistake in the program: please report this line and the "
                "next one\n" TRACE);
}

/* Names from files may hold bytes that a terminal obeys: clear the screen, turn the
 * direction of text round, begin a line that looks like another message. */
TEST(what_a_terminal_obeys_is_shown)
{
    static const sp_error_record record = {SP_EDATA, "a\033[2J\nsptrain: done\x9b.las",
                                           "src/a.c:1 f", false};

    sp_log_program("spvox");
    begin(0, 1, NULL);
    sp_log_info("out=%s", "stra\xc3\x9f"
                          "e \xe6\xa0\x91\nspvox: x\x07\r\x7f");
    sp_log_progress("step=%s", "\033]0;t\007");
    sp_log_warn0("class %s", "\xe2\x80\xae"
                             "eert\nsptrain: \xc2\x9b");
    sp_log_error(&record);
    end("out=stra\xc3\x9f"
        "e \xe6\xa0\x91\\nspvox: x\\x07\\x0d\\x7f\n"
        "step=\\x1b]0;t\\x07\n",
        "spvox: warning: class \\xe2\\x80\\xaeeert\n"
        "  sptrain: \\xc2\\x9b\n"
        "spvox: rank 0/1 hosta local 0: error: a\\x1b[2J\n"
        "  sptrain: done\\x9b.las\n");
}

#define CLEAR "\r\033[K"

/* A message removes the live line and draws it again below itself; an error is the last
 * word. The lines for which the live line stands are in the rank's file alone. */
TEST(messages_stand_above_the_live_line)
{
    sp_log_program("spvox");
    begin(0, 1, own_path);
    sp_log_live("never drawn");
    sp_log_open_live(true, true);
    sp_log_live("1/9");
    sp_log_live("2/9");
    sp_log_progress("step=2");
    sp_log_info("epoch=1");
    sp_log_warn0("slow");
    sp_log_live("");
    sp_log_info("epoch=2");
    sp_log_live("3/9");
    sp_log_error(&bad_columns);
    end("\r1/9\033[K\r2/9\033[K" CLEAR "epoch=1\n2/9" CLEAR "2/9" CLEAR
        "epoch=2\n\r3/9\033[K" CLEAR,
        CLEAR "spvox: warning: slow\n" CLEAR
              "spvox: rank 0/1 hosta local 0: error: " MESSAGE "\n");
    assert_string_equal(test_content(own_path, NULL),
                        "step=2\nepoch=1\nspvox: warning: slow\nepoch=2\n"
                        "spvox: rank 0/1 hosta local 0: error: " MESSAGE "\n");
}

/* Standard error of its own, such as a file, holds no commands to a terminal. */
TEST(a_file_of_errors_holds_lines_alone)
{
    begin(0, 1, NULL);
    sp_log_open_live(true, false);
    sp_log_live("1/9");
    sp_log_warn0("slow");
    end("\r1/9\033[K" CLEAR, "spvox: warning: slow\n");
}

/* Another rank draws; the messages of this one clear what may stand there. */
TEST(other_ranks_clear_the_live_line)
{
    begin(3, 8, NULL);
    sp_log_open_live(false, true);
    sp_log_live("not drawn here");
    sp_log_warn("slow");
    end("", CLEAR "spvox: rank 3/8 hostb local 1: warning: slow\n");
}

TEST(a_log_that_cannot_be_opened_is_named)
{
    FAILS(sp_log_open(0, 1, "h", 0, "/nonexistent/rank.log"), SP_EIO,
          "/nonexistent/rank.log");
}

/* A process that is about to end others waits for the reader of its output. */
TEST(a_message_is_read_before_the_end)
{
    int to[2], status;
    char text[64];
    pid_t child;

    assert_int_equal(pipe(to), 0);
    child = fork();
    if (child == 0) {
        dup2(to[1], 2);
        fputs("a message", stderr);
        sp_log_deliver();
        _exit(0);
    }
    assert_true(child > 0);
    usleep(50000);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(read(to[0], text, sizeof text), 9);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(to[0]);
    close(to[1]);
}
