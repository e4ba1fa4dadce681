/* In a run folder where others may write, links and pipes in place of the run's files
 * are refused or replaced, and never followed or waited for. The next start removes the
 * remains of killed runs and nothing else. */
#include "fixtures/run_folder.h"
#include "checkpoint/sp_checkpoint.h"

static const char *const names[] = {
    "lock",        "metrics.jsonl",       "status.json",     ".diagnosed",
    "checkpoints", "heartbeat.bin",       "deck.resolved",   "predictions",
    "logs",        "status-predict.json", "status-eval.json"};
enum { N_NAMES = sizeof names / sizeof *names };

static void refuse_open(const char *name, const char *what)
{
    char text[256];

    snprintf(text, sizeof text, "%s: %s, expected a ", in(name), what);
    FAILS(sp_run_open(&run, dir, &comm), SP_EIO, text);
    sp_run_close(&run);
    assert_int_equal(remove(in(name)), 0);
}

FOLDER_TEST(links_and_pipes_are_refused_and_left_alone)
{
    char victim[160];
    struct stat st;

    OK(sp_file_make_folder(dir));
    snprintf(victim, sizeof victim, "%s/victim", test_folder());
    for (int i = 0; i < N_NAMES; i++) {
        OK(sp_file_replace(victim, "precious", 8, 0));
        assert_int_equal(symlink(victim, in(names[i])), 0);
        refuse_open(names[i], "a symbolic link");
        assert_int_equal(stat(victim, &st), 0);
        assert_int_equal(st.st_size, 8);
        assert_int_equal(symlink(test_folder(), in(names[i])), 0);
        refuse_open(names[i], "a symbolic link");
        assert_int_equal(mkfifo(in(names[i]), 0600), 0);
        refuse_open(names[i], "a device, pipe or socket");
    }
    OK(sp_file_make_folder(in("status.json")));
    refuse_open("status.json", "a folder");
    OK(sp_file_replace(in("checkpoints"), "x", 1, 0));
    refuse_open("checkpoints", "a file");
}

FOLDER_TEST(the_folder_itself_may_be_a_link)
{
    char target[128];

    snprintf(target, sizeof target, "%s/target-of-link", test_folder());
    OK(sp_file_make_folder(target));
    OK(sp_file_make_folder_of(dir));
    assert_int_equal(symlink(target, dir), 0);
    OK(sp_run_open(&run, dir, &comm));
    OK(sp_run_event(&run, "{}", NULL));
    sp_run_close(&run);
    assert_content("metrics.jsonl", "{}\n");
}

/* A link can come while the run goes on, since others may write into the folder. */
FOLDER_TEST(a_temporary_that_is_a_link_is_not_followed)
{
    char victim[160];

    snprintf(victim, sizeof victim, "%s/victim", test_folder());
    OK(sp_file_replace(victim, "precious", 8, 0));
    OK(sp_run_open(&run, dir, &comm));
    assert_int_equal(symlink(victim, in("status.json.tmp-0")), 0);
    OK(sp_run_status(&run, "running", SP_OK, 0, 0, NULL));
    assert_int_equal(symlink(victim, in("deck.resolved.tmp-0")), 0);
    OK(sp_run_write_text(&run, "deck.resolved", "deck"));
    sp_run_close(&run);
    assert_string_equal(test_content(victim, NULL), "precious");
}

FOLDER_TEST(what_kills_left_goes_at_the_next_start)
{
    static const char *const ours[] = {
        "status.json.tmp-0",          "status.json.tmp-12",
        "status-eval.json.tmp-1",     "heartbeat.bin.tmp-0",
        "deck.resolved.tmp-0",        "checkpoints/best.h5.tmp",
        "predictions/val-000.h5.tmp", "checkpoints/step-000000012.h5.tmp"};
    static const char *const others[] = {
        "status.json.tmp-",        "status.json.tmp-x",
        "status.json.tmp-1.txt",   "notes.tmp-0",
        "checkpoints/mine.h5.tmp", "checkpoints/step-1.h5.tmp2",
        "predictions/a.tmp",       "tmp-0"};

    OK(sp_file_make_folder(in("checkpoints")));
    OK(sp_file_make_folder(in("predictions")));
    OK(sp_file_make_folder(in("status.json.tmp-5")));
    for (int i = 0; i < 8; i++) {
        OK(sp_file_replace(in(ours[i]), "x", 1, 0));
        OK(sp_file_replace(in(others[i]), "x", 1, 0));
    }
    assert_int_equal(symlink("notes.tmp-0", in("status.json.tmp-7")), 0);
    OK(sp_run_open(&run, dir, &comm));
    sp_run_close(&run);
    for (int i = 0; i < 8; i++) {
        if (access(in(ours[i]), F_OK) == 0)
            fail_msg("%s stays", path);
        if (access(in(others[i]), F_OK) != 0)
            fail_msg("%s is gone", path);
    }
    assert_int_equal(access(in("status.json.tmp-5"), F_OK), 0);
    assert_int_equal(access(in("status.json.tmp-7"), F_OK), 0);
}

/* A name that the run does not give its files is not counted as one of the newest. */
FOLDER_TEST(copies_push_out_no_checkpoint)
{
    static const char *const others[] = {
        "checkpoints/step-9.h5", "checkpoints/step-+00000009.h5",
        "checkpoints/step-99999999999999999999.h5", "checkpoints/step-000000009.h5x",
        "checkpoints/step-9.h5.tmp"};
    int n;

    OK(sp_file_make_folder(in("checkpoints")));
    for (int i = 0; i < 5; i++)
        OK(sp_file_replace(in(others[i]), "x", 1, 0));
    OK(sp_file_replace(in("checkpoints/step-000000001.h5"), "x", 1, 0));
    OK(sp_file_replace(in("checkpoints/step-1000000000.h5"), "x", 1, 0));
    OK(sp_checkpoint_prune(in("checkpoints"), 1));
    assert_int_equal(access(in("checkpoints/step-1000000000.h5"), F_OK), 0);
    assert_int_not_equal(access(in("checkpoints/step-000000001.h5"), F_OK), 0);
    OK(sp_checkpoint_set_newer_aside(in("checkpoints"), 5, &n));
    assert_int_equal(n, 1);
    for (int i = 0; i < 5; i++)
        if (access(in(others[i]), F_OK) != 0)
            fail_msg("%s is gone", path);
}

FOLDER_TEST(the_root_folder_is_refused)
{
    static const char *const root[] = {"/", "//", "/..", "/tmp/.."};

    for (int i = 0; i < 4; i++) {
        FAILS(sp_run_open(&run, root[i], &comm), SP_EUSAGE,
              "the root of the file system");
        sp_run_close(&run);
    }
    assert_int_not_equal(access("/lock", F_OK), 0);
}

FOLDER_TEST(a_folder_open_to_all_is_a_warning)
{
    mode_t before = umask(0);
    char *words;

    words = words_of_open();
    umask(before);
    sp_run_close(&run);
    assert_non_null(strstr(words, "every user of this machine may write in the run "
                                  "folder (mode 777)"));
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(chmod(in("lock"), 0666), 0);
    words = words_of_open();
    sp_run_close(&run);
    assert_non_null(strstr(words, "may write to the run's files (mode 666)"));
    assert_int_equal(chmod(in("lock"), 0644), 0);
    assert_string_equal(words_of_open(), "");
}

FOLDER_TEST(reading_a_pipe_does_not_wait)
{
    OK(sp_file_make_folder(dir));
    assert_int_equal(mkfifo(in("status.json"), 0600), 0);
    assert_int_equal(mkfifo(in("heartbeat.bin"), 0600), 0);
    assert_int_equal(mkfifo(in("metrics.jsonl"), 0600), 0);
    words_of_status(SP_EIO);
    assert_false(sp_run_has_ended(dir));
}
