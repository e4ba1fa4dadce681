/* heartbeat.bin may be damaged, cut off while ranks write it, or no file at all: the
 * programs name it, and no start, run or status command ends or waits because of it. */
#include "fixtures/run_folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sp_log.h"

static void made_folder(void)
{
    new_folder();
    OK(sp_file_make_folder(dir));
    in("heartbeat.bin");
    alarm(1000); /* ends a test that waits for a FIFO */
}

/* Every record but for the damage is one that a rank writes. */
static void put_record(size_t at, uint8_t value, size_t n)
{
    sp_heartbeat h = {.host = "here", .pid = 1, .counter = 1, .time = 1e9};

    memset((char *)&h + at, value, n);
    OK(sp_file_replace(path, (const char *)&h, sizeof h, 0));
}

static void assert_refused(const char *text)
{
    sp_heartbeat *records;
    int n;

    assert_int_equal(sp_heartbeat_read(path, &records, &n), SP_EDATA);
    assert_null(records);
    SAYS("heartbeat.bin: record of rank 0");
    SAYS(text);
}

TEST_AFTER(made_folder, each_field_is_checked)
{
#define DAMAGE(field, name)                                                            \
    put_record(offsetof(sp_heartbeat, field), 0xff, sizeof((sp_heartbeat *)0)->field); \
    assert_refused(name)
    sp_heartbeat *records;
    int n;

    put_record(0, 'h', 1);
    OK(sp_heartbeat_read(path, &records, &n));
    free(records);
    DAMAGE(host, "host");
    DAMAGE(pid, "pid");
    DAMAGE(step, "step");
    DAMAGE(epoch, "step");
    DAMAGE(time, "time");
    DAMAGE(phase, "phase");
    DAMAGE(lost, "lost");
    put_record(offsetof(sp_heartbeat, done), 1, 1); /* 1 of 0 samples */
    assert_refused("done");
    DAMAGE(total, "done");
    DAMAGE(counter, "count");
    DAMAGE(work, "count");
    put_record(offsetof(sp_heartbeat, time), 0x7e, sizeof(double)); /* 1e301 */
    assert_refused("time");
}

/* The start reports it and goes on; the status command ends with 3. */
TEST_AFTER(made_folder, a_damaged_file_stops_no_start)
{
    put_record(0, 0xff, sizeof(sp_heartbeat));
    words_of_status(SP_EDATA);
    OK(sp_run_open(&run, dir, &comm));
    words_of_status(SP_OK);
}

TEST_AFTER(made_folder, a_clock_ahead_gives_no_negative_age)
{
    const sp_heartbeat h = {
        .host = "here", .pid = 1, .counter = 1, .time = (double)time(NULL) + 1000};
    const char *text;

    OK(sp_run_open(&run, dir, &comm)); /* status.json */
    sp_run_close(&run);
    OK(sp_file_replace(path, (const char *)&h, sizeof h, 0));
    text = words_of_status(SP_OK);
    assert_non_null(strstr(text, " 0.0"));
    assert_null(strstr(text, " -"));
}

TEST_AFTER(made_folder, a_fifo_is_no_heartbeat)
{
    sp_heartbeat *records;
    int n;

    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sp_heartbeat_read(path, &records, &n), SP_EIO);
    words_of_status(SP_EIO);
    assert_int_equal(sp_run_open(&run, dir, &comm), SP_EIO);
}

TEST_AFTER(made_folder, a_file_cut_off_kills_nobody)
{
    sp_heartbeat record;

    OK(sp_run_open(&run, dir, &comm));
    assert_int_equal(truncate(path, 0), 0);
    assert_false(sp_heartbeat_get(run.beats, 0, &record));
    assert_int_equal(sp_heartbeat_lost(run.beats), -1);
    sp_run_beat(&run, SP_PHASE_FORWARD, 0, 5);
    sp_heartbeat_put_signs(run.beats, 0, 1, 2);
    assert_true(sp_heartbeat_get(run.beats, 0, &record)); /* the file is whole again */
    assert_int_equal(record.step, 5);
    assert_int_equal(record.waits, 2);
}

/* The three writers of a record leave each other's bytes alone. */
TEST_AFTER(made_folder, a_mark_outlives_the_beats)
{
    sp_heartbeat record;

    OK(sp_run_open(&run, dir, &comm));
    assert_false(sp_heartbeat_mark_lost(run.beats, 1, SP_LOST_DEAD)); /* one rank */
    assert_false(sp_heartbeat_mark_lost(run.beats, -1, SP_LOST_DEAD));
    sp_heartbeat_put_signs(run.beats, 0, 11, 12);
    assert_true(sp_heartbeat_mark_lost(run.beats, 0, SP_LOST_HUNG));
    assert_false(sp_heartbeat_mark_lost(run.beats, 0, SP_LOST_DEAD));
    sp_run_beat(&run, SP_PHASE_FORWARD, 0, 6);
    assert_true(sp_heartbeat_get(run.beats, 0, &record));
    assert_int_equal(record.lost, SP_LOST_HUNG);
    assert_int_equal(record.work, 11);
    assert_int_equal(record.step, 6);
    assert_int_equal(sp_heartbeat_lost(run.beats), 0);
}

/* The progress of a pass is that of the rank that has done least. Ranks that are not in
 * the pass, and those that have ended, do not count. */
TEST_AFTER(made_folder, a_pass_is_as_far_as_its_slowest_rank)
{
    sp_heartbeat h[4] = {0};
    int64_t done, total;

    assert_false(sp_heartbeat_pass(h, 4, &done, &total));
    sp_heartbeat_count(&h[0], 30, 40);
    sp_heartbeat_count(&h[1], 12, 40);
    sp_heartbeat_count(&h[2], 0, 0);
    sp_heartbeat_count(&h[3], 1, 40);
    h[3].phase = SP_PHASE_END;
    assert_true(sp_heartbeat_pass(h, 4, &done, &total));
    assert_int_equal(done, 12);
    assert_int_equal(total, 40);
    /* More samples than 32 bits count are told as a share. */
    sp_heartbeat_count(&h[0], INT64_C(3) << 40, INT64_C(4) << 40);
    assert_true(h[0].total > 0 && h[0].done == h[0].total / 4 * 3);
}

/* Versions that knew no samples wrote pid and epoch in 64 bits. */
TEST_AFTER(made_folder, records_of_older_versions_are_read)
{
    const struct {
        char host[64];
        int64_t pid, step, epoch;
        double time;
        int64_t counter;
        int32_t phase, lost;
        int64_t work, waits;
    } old = {"here", 4321, 17, 3, 1e9, 5, SP_PHASE_EVAL, 0, 6, 7};
    FREED sp_heartbeat *h;
    int n;

    OK(sp_file_replace(path, (const char *)&old, sizeof old, 0));
    OK(sp_heartbeat_read(path, &h, &n));
    assert_int_equal(n, 1);
    assert_int_equal(h->pid, 4321);
    assert_int_equal(h->epoch, 3);
    assert_int_equal(h->total, 0);
    assert_int_equal(h->waits, 7);
}

TEST_AFTER(made_folder, a_stopped_process_is_told_from_one_that_is_gone)
{
    sp_heartbeat h = {.counter = 1};
    pid_t child = fork();
    int status;

    if (child == 0)
        for (;;)
            pause();
    memcpy(h.host, comm.host, sizeof h.host);
    h.pid = child;
    assert_string_equal(sp_heartbeat_process(&h), "");
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_string_equal(sp_heartbeat_process(&h), "stopped");
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_string_equal(sp_heartbeat_process(&h), "gone");
}
