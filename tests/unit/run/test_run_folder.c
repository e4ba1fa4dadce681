/* A run folder keeps other programs out, its status and metrics are whole at any time,
 * and the next run learns how the last one ended. */
#include "fixtures/test.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"
#include "fixtures/run_folder.h"

/* Runs `act` in a child that is killed, and leaves what it left behind. */
static void in_killed_child(void (*act)(void))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        if (sp_run_open(&run, dir, &comm) == SP_OK)
            act();
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static bool has_no_locks;

/* Takes the place of the system's: a test can be on a file system without locks. */
int flock(int fd, int operation)
{
    if (!has_no_locks)
        return (int)syscall(SYS_flock, fd, operation);
    errno = ENOSYS;
    return -1;
}

static void refuse_second(void)
{
    char name_of_first[256];
    sp_run first, second;
    int status;
    pid_t child;

    OK(sp_run_open(&first, dir, &comm));
    snprintf(name_of_first, sizeof name_of_first,
             "%s: run folder in use by host %s pid %d; end that run, or choose another "
             "run.dir",
             dir, comm.host, (int)getpid());
    child = fork();
    if (child == 0) {
        sp_status rc = sp_run_open(&second, dir, &comm);

        if (strcmp(sp_error_last()->message, name_of_first) != 0)
            rc = SP_OK;
        sp_run_close(&second);
        _exit((int)rc);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), SP_EIO);
    sp_run_close(&first);
    OK(sp_run_open(&second, dir, &comm)); /* the refused one did not spoil it */
    sp_run_close(&second);
}

FOLDER_TEST(a_second_program_is_refused)
{
    refuse_second();
}

FOLDER_TEST(a_file_system_without_locks_is_told)
{
    has_no_locks = true;
    refuse_second();
    assert_non_null(
        strstr(words_of_open(), "has no locks (flock: Function not implemented)"));
    sp_run_close(&run);
    has_no_locks = false;
}

/* Somebody deletes the folder of a run that goes on, and begins another one there. */
FOLDER_TEST(a_run_writes_no_more_where_its_lock_was_replaced)
{
    sp_run first, second;

    OK(sp_run_open(&first, dir, &comm));
    OK(sp_run_event(&first, "{}", NULL));
    unlink(in("lock"));
    unlink(in("metrics.jsonl"));
    assert_int_equal(sp_run_sync_metrics(&first), SP_EIO);
    OK(sp_run_open(&second, dir, &comm));
    FAILS(sp_run_event(&first, "{}", NULL), SP_EIO, "/lock: deleted or replaced");
    assert_int_equal(sp_run_status(&first, "done", SP_OK, 1, 1, NULL), SP_EIO);
    OK(sp_run_event(&second, "{}", NULL));
    sp_run_close(&first);
    OK(sp_run_status(&second, "running", SP_OK, 1, 1, NULL));
    sp_run_close(&second);
    assert_content("metrics.jsonl", "{}\n");
}

static void hold_lock(void) {}

FOLDER_TEST(a_dead_owner_does_not_block)
{
    in_killed_child(hold_lock);
    assert_non_null(strstr(test_content(in("lock"), NULL), comm.host));
    OK(sp_run_open(&run, dir, &comm));
    sp_run_close(&run);
    assert_content("lock", "");
}

/* Heartbeats tell of another program where locks do not cross hosts. The child that
 * stands for it may have to wait for a processor for longer than they are looked at. */
FOLDER_TEST(a_live_owner_on_another_host_blocks)
{
    sp_status rc = SP_OK;
    pid_t child;

    OK(sp_file_make_folder(dir));
    child = fork();
    if (child == 0)
        for (int i = 0;; i++) {
            usleep(100000);
            sp_file_replace(in("metrics.jsonl"), "{}\n{}\n{}\n",
                            3 + 3 * (size_t)(i % 2), 9);
        }
    for (int i = 0; rc == SP_OK && i < 5; i++) {
        OK(sp_file_replace(in("lock"), "elsewhere 77\n", 13, 0));
        rc = sp_run_open(&run, dir, &comm);
        if (rc != SP_OK)
            FAILS(rc, SP_EIO, "in use by host elsewhere pid 77");
        sp_run_close(&run);
    }
    assert_int_equal(rc, SP_EIO);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    OK(sp_run_open(&run, dir, &comm)); /* a few seconds of silence later */
}

FOLDER_TEST(status_is_json_with_every_field)
{
    sp_run_state s;
    json_t *root;

    OK(sp_run_open(&run, dir, &comm));
    assert_int_equal(sp_run_read_state(dir, "", &s), SP_EIO);
    sp_run_beat(&run, SP_PHASE_BACKWARD, 2, 17);
    OK(sp_run_status(&run, "failed", SP_EDATA, 2, 17, "a \"b\"\n\xff"));
    OK(sp_run_read_state(dir, "", &s));
    assert_string_equal(s.state, "failed");
    assert_string_equal(s.phase, "backward");
    assert_string_equal(s.host, comm.host);
    assert_string_equal(s.message, "a \"b\"\n\\xff");
    assert_int_equal(s.exit_code, 3);
    assert_int_equal(s.rank, 0);
    assert_int_equal(s.pid, getpid());
    assert_int_equal(s.epoch, 2);
    assert_int_equal(s.step, 17);
    assert_false(sp_run_is_done(dir));
    OK(sp_run_status(&run, "done", SP_OK, 3, 18, NULL));
    assert_true(sp_run_is_done(dir));
    OK(sp_run_read_state(dir, "", &s));
    assert_int_equal(s.step, 18);
    root = json_load_file(in("status.json"), 0, NULL);
    assert_int_equal(json_object_size(root), 9);
    json_decref(root);
    assert_int_not_equal(access(in("status.json.tmp-0"), F_OK), 0);
}

/* A reader beside a busy writer never meets half a file. */
FOLDER_TEST(status_is_replaced_whole)
{
    FREED char *long_message = calloc(1, 100000);
    int n_read = 0, status;
    pid_t child;

    OK(sp_run_open(&run, dir, &comm));
    memset(long_message, 'x', 99999);
    OK(sp_run_status(&run, "running", SP_OK, 0, 0, long_message));
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            if (sp_run_status(&run, "running", SP_OK, 0, i,
                              i % 2 ? long_message : "short"))
                _exit(1);
        _exit(0);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        sp_run_state s;

        OK(sp_run_read_state(dir, "", &s));
        n_read++;
    }
    assert_int_equal(status, 0);
    assert_true(n_read > 0);
}

FOLDER_TEST(metrics_are_appended_and_cut)
{
    int64_t first, second;

    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_event(&run, "{\"step\":1}", &first));
    OK(sp_run_event(&run, "{\"step\":2}", &second));
    OK(sp_run_sync_metrics(&run));
    assert_int_equal(first, 11);
    assert_int_equal(second, 22);
    sp_run_close(&run);
    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_truncate_metrics(&run, first));
    OK(sp_run_event(&run, "{\"step\":3}", &second));
    assert_int_equal(second, 22);
    assert_content("metrics.jsonl", "{\"step\":1}\n{\"step\":3}\n");
    OK(sp_run_truncate_metrics(&run, 1000)); /* a warning */
    assert_content("metrics.jsonl", "{\"step\":1}\n{\"step\":3}\n");
}

/* A run that goes back repeats its steps, but not the starts and ends of processes. */
FOLDER_TEST(starts_and_ends_outlive_a_cut)
{
    static const char *const lines[] = {
        "{\"event\":\"step\"}",  "{\"event\":\"end\"}",  "{\"event\":\"eval\"}",
        "{\"event\":\"start\"}", "{\"event\":\"ends\"}", "{\"event\":\"resume\"}"};

    OK(sp_run_open(&run, dir, &comm));
    for (int i = 0; i < 6; i++)
        OK(sp_run_event(&run, lines[i], NULL));
    OK(sp_run_truncate_metrics(&run, 0));
    assert_content("metrics.jsonl", "{\"event\":\"end\"}\n{\"event\":\"start\"}\n"
                                    "{\"event\":\"resume\"}\n");
}

FOLDER_TEST(half_a_line_is_cut_off)
{
    OK(sp_file_make_folder(dir));
    OK(sp_file_replace(in("metrics.jsonl"), "{\"a\":1}\n{\"b\":", 13, 0));
    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_event(&run, "{}", NULL));
    assert_content("metrics.jsonl", "{\"a\":1}\n{}\n");
}

/* A run does not end without metrics because somebody deleted or moved them
 * meanwhile. */
FOLDER_TEST(metrics_that_were_deleted_begin_anew)
{
    int64_t bytes;

    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_event(&run, "{\"step\":1}", NULL));
    assert_int_equal(unlink(in("metrics.jsonl")), 0);
    OK(sp_run_event(&run, "{\"step\":2}", &bytes));
    assert_int_equal(bytes, 11);
    OK(sp_run_event(&run, "{\"step\":3}", NULL));
    assert_content("metrics.jsonl", "{\"step\":2}\n{\"step\":3}\n");
}

/* The limit on file sizes stands in for a full disk. */
FOLDER_TEST(a_full_disk_is_named_and_leaves_whole_lines)
{
    int status;
    pid_t child;

    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_event(&run, "{\"step\":1}", NULL));
    child = fork(); /* the limit cannot be lifted again */
    if (child == 0) {
        struct rlimit limit = {15, 15}; /* the first line and four bytes */
        sp_status rc = SP_OK;

        signal(SIGXFSZ, SIG_IGN);
        /* The line waits in memory: only what must be on disk fails. */
        if (setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
            sp_run_event(&run, "{\"step\":2}", NULL) == SP_OK)
            rc = sp_run_deliver(&run);
        if (!strstr(sp_error_last()->message, "/metrics.jsonl: cannot write: "))
            rc = SP_OK;
        if (sp_run_write_text(&run, "deck.resolved", "longer than the limit") != SP_EIO)
            rc = SP_OK;
        if (sp_run_status(&run, "running", SP_OK, 1, 2, NULL) != SP_EIO ||
            !strstr(sp_error_last()->message, "/status.json: cannot write: File too"))
            rc = SP_OK;
        _exit((int)rc);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), SP_EIO);
    assert_content("metrics.jsonl", "{\"step\":1}\n");
    assert_int_not_equal(access(in("deck.resolved"), F_OK), 0);
    assert_int_not_equal(access(in("deck.resolved.tmp-0"), F_OK), 0);
}

FOLDER_TEST(an_unwritable_folder_is_named)
{
    FAILS(sp_run_open(&run, "/proc/no-such/run", &comm), SP_EIO,
          "/proc/no-such/run: cannot make");
    sp_run_close(&run);
    OK(sp_file_replace("file", "x", 1, 0));
    assert_int_equal(sp_run_open(&run, "file", &comm), SP_EIO);
}

static void die_in_backward(void)
{
    sp_run_beat(&run, SP_PHASE_BACKWARD, 3, 41);
    sp_run_status(&run, "running", SP_OK, 3, 41, NULL);
}

FOLDER_TEST(the_next_start_says_who_was_lost)
{
    char *words;

    in_killed_child(die_in_backward);
    words = words_of_open();
    assert_non_null(strstr(words, "the run before this one was lost"));
    assert_non_null(strstr(words, "rank 0/1 host "));
    assert_non_null(strstr(words, "phase backward, epoch 3, step 41"));
    OK(sp_run_status(&run, "done", SP_OK, 3, 41, NULL));
    sp_run_close(&run);
    assert_string_equal(words_of_open(), ""); /* only a lost run is reported */
}

FOLDER_TEST(status_command_tells_state_and_ranks)
{
    const char *text;

    words_of_status(SP_EIO);
    in_killed_child(die_in_backward);
    text = words_of_status(SP_OK);
    assert_non_null(strstr(text, ": running"));
    assert_non_null(strstr(text, "phase backward, epoch 3, step 41"));
    assert_non_null(strstr(text, "process gone"));
}

/* The folder may belong to another user: control characters in its texts are shown, not
 * sent to the terminal. */
FOLDER_TEST(status_command_obeys_no_file)
{
    static const char json[] = "{\"state\":\"failed\",\"phase\":\"a\\u001b[2J\","
                               "\"host\":\"b\\u009b\",\"message\":\"c\\u0007\\u202e\"}";
    const char *text;

    OK(sp_file_make_folder(dir));
    OK(sp_file_replace(in("status.json"), json, strlen(json), 0));
    text = words_of_status(SP_OK);
    assert_non_null(strstr(text, "phase a\\x1b[2J, "));
    assert_non_null(strstr(text, "host b\\xc2\\x9b, "));
    assert_non_null(strstr(text, "  c\\x07\\xe2\\x80\\xae\n"));
}

FOLDER_TEST(set_aside_moves_the_run_and_nothing_else)
{
    struct stat st;

    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_set_aside(&run)); /* nothing there yet */
    assert_int_not_equal(stat(in("old-001"), &st), 0);
    for (int turn = 1; turn <= 2; turn++) {
        OK(sp_run_event(&run, turn == 1 ? "{\"turn\":1}" : "{\"turn\":2}", NULL));
        OK(sp_run_write_text(&run, "deck.resolved", "deck"));
        OK(sp_file_make_folder(in("checkpoints")));
        OK(sp_file_replace(in("checkpoints/step.h5"), "h5", 2, 0));
        OK(sp_file_replace(in("status-calibrate.json"), "{}", 2, 0));
        OK(sp_file_replace(in("notes.txt"), "mine", 4, 0));
        OK(sp_run_set_aside(&run));
    }
    assert_content("old-001/metrics.jsonl", "{\"turn\":1}\n");
    assert_content("old-002/metrics.jsonl", "{\"turn\":2}\n");
    assert_content("old-002/checkpoints/step.h5", "h5");
    assert_content("old-001/deck.resolved", "deck");
    assert_content("old-001/status-calibrate.json", "{}");
    assert_content("metrics.jsonl", "");
    assert_content("notes.txt", "mine");
    sp_run_beat(&run, SP_PHASE_READ, 1, 1);
    assert_int_equal(stat(in("heartbeat.bin"), &st), 0);
    assert_int_equal(st.st_size, sizeof(sp_heartbeat));
}

FOLDER_TEST(no_folder_writes_nothing)
{
    OK(sp_run_open(&run, "", &comm));
    sp_run_beat(&run, SP_PHASE_READ, 0, 0);
    OK(sp_run_status(&run, "done", SP_OK, 0, 0, NULL));
    OK(sp_run_event(&run, "{}", NULL));
    OK(sp_run_write_text(&run, "deck.resolved", ""));
    sp_run_after_save(&run, "false", "x");
    sp_run_close(&run);
    assert_int_not_equal(access("/lock", F_OK), 0);
}
