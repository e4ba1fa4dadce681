/* Event files are what TensorBoard's format says, whole after any end of the writer,
 * and cut at the step from which a run goes on. */
#include "fixtures/test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "fixtures/events_read.h"
#include "run/sp_events.h"

static char dir[16];
static event_list list;

static void new_folder(void)
{
    static int number;

    snprintf(dir, sizeof dir, "%d", number++);
}

static void read_all(void)
{
    const char *wrong;

    events_free(&list);
    wrong = events_read(dir, &list);
    if (wrong)
        fail_msg("%s", wrong);
}

static void put_step(sp_events *e, int64_t step, double loss)
{
    sp_events_begin(e, step, 1700000000.25 + (double)step);
    sp_events_scalar(e, "train", "loss", loss);
    sp_events_scalar(e, "time", "step_s", 0.1);
    OK(sp_events_end(e));
}

/* The file of a start whose first record is begun, and its end, after which all of the
 * folder is read, n values. */
static sp_events *begin_one(int64_t step)
{
    sp_events *e;

    OK(sp_events_create(&e, dir, "hosta", 1));
    sp_events_begin(e, step, 0);
    return e;
}

static void end_one(sp_events *e, int n)
{
    OK(sp_events_end(e));
    sp_events_destroy(e);
    read_all();
    assert_int_equal(list.n, n);
}

/* Writes the steps first .. last as one start of a run does. */
static void write_start(int64_t first, int64_t last)
{
    sp_events *e;

    OK(sp_events_create(&e, dir, "hosta", first));
    for (int64_t step = first; step <= last; step++)
        put_step(e, step, 1.0 / (double)step);
    OK(sp_events_sync(e));
    sp_events_destroy(e);
}

/* Demands that the losses of these steps are there, each once and in order. */
static void assert_steps(int64_t first, int64_t last)
{
    int64_t next = first;

    read_all();
    for (int i = 0; i < list.n; i++) {
        const event_value *v = &list.value[i];

        if (v->kind != EVENT_SCALAR || strcmp(v->tag, "train/loss") != 0)
            continue;
        assert_int_equal(v->step, next);
        assert_true(v->scalar == (float)(1.0 / (double)next));
        assert_true(v->time_s == 1700000000.25 + (double)next);
        next++;
    }
    assert_int_equal(next, last + 1);
}

static const char *only_file(void)
{
    static char path[512];
    DIR *folder = opendir(dir);
    struct dirent *entry;

    path[0] = 0;
    while ((entry = readdir(folder)))
        if (strstr(entry->d_name, "tfevents"))
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
    closedir(folder);
    return path;
}

#define FOLDER_TEST(name) TEST_AFTER(new_folder, name)

FOLDER_TEST(scalars_are_read_back)
{
    write_start(1, 5);
    assert_steps(1, 5);
    assert_int_equal(list.n_files, 1);
    assert_int_equal(list.torn, 0);
    assert_int_equal(list.value[0].kind, EVENT_VERSION);
    assert_string_equal((char *)list.value[0].bytes, "brain.Event:2");
    assert_int_equal(list.value[1].kind, EVENT_START);
    assert_int_equal(list.value[1].step, 1);
    assert_string_equal(list.value[3].tag, "time/step_s");
    assert_true(list.value[3].scalar == 0.1f);
}

FOLDER_TEST(what_is_not_finite_is_left_out)
{
    sp_events *e;

    OK(sp_events_create(&e, dir, "hosta", 1));
    put_step(e, 1, NAN);
    put_step(e, 2, INFINITY);
    sp_events_begin(e, 3, 0);
    sp_events_scalar(e, "train", "loss", NAN);
    end_one(e, 4); /* no third record at all */
    assert_string_equal(list.value[2].tag, "time/step_s");
    assert_string_equal(list.value[3].tag, "time/step_s");
}

FOLDER_TEST(no_file_means_no_work)
{
    put_step(NULL, 1, 1);
    sp_events_text(NULL, "a", "b", "c");
    sp_events_picture(NULL, "a", "b", 1, 1, "", 0);
    OK(sp_events_sync(NULL));
    sp_events_destroy(NULL);
    OK(sp_events_cut(dir, 3)); /* there is no folder */
}

/* Class names come from data files. */
FOLDER_TEST(hostile_names_are_text)
{
    char long_name[201], tag[220];
    sp_events *e = begin_one(1);

    memset(long_name, 'x', 200);
    long_name[200] = 0;
    snprintf(tag, sizeof tag, "iou/%s", long_name);
    sp_events_scalar(e, "iou", "<script>alert(\"1\")</script>", 0.5);
    sp_events_scalar(e, "iou", "\033[2J\n\xff\xfe'", 0.5);
    sp_events_scalar(e, "iou",
                     "stra\xc3\x9f"
                     "e \xe6\xa0\x91",
                     0.5);
    sp_events_scalar(e, "iou", long_name, 0.5);
    sp_events_scalar(e, "iou", "", 0.5);
    end_one(e, 7);
    assert_string_equal(list.value[2].tag, "iou/<script>alert(\"1\")</script>");
    assert_string_equal(list.value[3].tag, "iou/\\x1b[2J\\n\\xff\\xfe'");
    assert_string_equal(list.value[4].tag, "iou/stra\xc3\x9f"
                                           "e \xe6\xa0\x91");
    assert_string_equal(list.value[5].tag, tag);
    assert_string_equal(list.value[6].tag, "iou/");
}

FOLDER_TEST(a_text_is_shown_as_it_is)
{
    sp_events *e = begin_one(1);

    sp_events_text(e, "run", "deck", "a = 1;\n# <b>\033[m\n\nend");
    end_one(e, 3);
    assert_int_equal(list.value[2].kind, EVENT_TEXT);
    assert_string_equal(list.value[2].tag, "run/deck");
    assert_string_equal((char *)list.value[2].bytes,
                        "    a = 1;\n    # <b>\\x1b[m\n    \n    end\n");
}

/* ---- going on ---- */

FOLDER_TEST(a_run_goes_on_without_gap_or_repetition)
{
    write_start(1, 10);
    OK(sp_events_cut(dir, 6));
    assert_steps(1, 6);
    write_start(7, 9);
    OK(sp_events_cut(dir, 8));
    write_start(9, 12);
    assert_steps(1, 12);
    assert_int_equal(list.n_files, 3);
    OK(sp_events_cut(dir, 12)); /* nothing is behind it */
    assert_steps(1, 12);
    OK(sp_events_cut(dir, 4)); /* back to an earlier checkpoint */
    assert_steps(1, 4);
    assert_int_equal(list.n_files, 1);
    OK(sp_events_cut(dir, 0));
    assert_steps(1, 0);
    assert_int_equal(list.n_files, 0);
}

FOLDER_TEST(a_torn_record_is_cut_off)
{
    struct stat whole, torn;

    write_start(1, 5);
    assert_int_equal(stat(only_file(), &whole), 0);
    for (off_t bytes = 1; bytes < 40; bytes += 6) {
        OK(sp_events_cut(dir, 0));
        write_start(1, 5);
        assert_int_equal(truncate(only_file(), whole.st_size - bytes), 0);
        read_all();
        assert_true(list.torn > 0);
        OK(sp_events_cut(dir, 100));
        assert_int_equal(stat(only_file(), &torn), 0);
        assert_true(torn.st_size < whole.st_size - bytes);
        assert_steps(1, 4);
        assert_int_equal(list.torn, 0);
    }
}

FOLDER_TEST(a_torn_beginning_leaves_no_file)
{
    for (off_t bytes = 0; bytes < 60; bytes += 7) {
        write_start(1, 5);
        assert_int_equal(truncate(only_file(), bytes), 0);
        OK(sp_events_cut(dir, 5));
        assert_string_equal(only_file(), "");
    }
}

/* A file system may lose what was written last before a machine fails. */
FOLDER_TEST(what_follows_a_damage_is_cut_off)
{
    struct stat whole;
    FILE *file;

    write_start(1, 5);
    assert_int_equal(stat(only_file(), &whole), 0);
    file = fopen(only_file(), "r+b");
    fseek(file, whole.st_size * 3 / 4, SEEK_SET);
    fputs("####", file);
    fclose(file);
    OK(sp_events_cut(dir, 100));
    assert_steps(1, 3);
}

static void put_u32(FILE *file, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        fputc((int)(value >> (8 * i) & 255), file);
}

FOLDER_TEST(lengths_of_any_size_are_no_danger)
{
    FILE *file;

    write_start(1, 2);
    file = fopen(only_file(), "ab");
    /* A length of 2^63 - 1 with its right checksum. */
    fwrite("\xff\xff\xff\xff\xff\xff\xff\x7f", 1, 8, file);
    put_u32(file, events_checksum("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
    fwrite("more", 1, 4, file);
    fclose(file);
    OK(sp_events_cut(dir, 100));
    assert_steps(1, 2);
}

FOLDER_TEST(other_files_stay)
{
    char path[128];

    OK(sp_file_make_folder(dir));
    snprintf(path, sizeof path, "%s/events.out.tfevents.17.other", dir);
    OK(sp_file_replace(path, "x", 1, 0));
    write_start(1, 3);
    OK(sp_events_cut(dir, 0));
    assert_int_equal(access(path, F_OK), 0);
}

FOLDER_TEST(a_link_is_not_followed)
{
    char path[160], target[128];

    OK(sp_file_make_folder(dir));
    snprintf(target, sizeof target, "%s/precious", dir);
    OK(sp_file_replace(target, "x", 1, 0));
    snprintf(path, sizeof path, "%s/events.out.tfevents.0000000001.h.sptrain", dir);
    assert_int_equal(symlink("precious", path), 0);
    assert_int_equal(sp_events_cut(dir, 0), SP_EIO);
    assert_int_equal(access(target, F_OK), 0);
}

/* The clock may have been set back since the last start. */
FOLDER_TEST(names_rise_whatever_the_clock_says)
{
    char path[160];

    OK(sp_file_make_folder(dir));
    write_start(1, 2);
    snprintf(path, sizeof path, "%s/events.out.tfevents.9999999990.h.sptrain", dir);
    assert_int_equal(rename(only_file(), path), 0);
    write_start(3, 4);
    write_start(5, 6);
    assert_steps(1, 6);
}

FOLDER_TEST(a_full_disk_leaves_whole_records)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit few = {0, RLIM_INFINITY};
    struct stat st;
    sp_events *e;

    OK(sp_events_create(&e, dir, "hosta", 1));
    put_step(e, 1, 1);
    assert_int_equal(stat(only_file(), &st), 0);
    few.rlim_cur = (rlim_t)st.st_size + 10;
    setrlimit(RLIMIT_FSIZE, &few);
    sp_events_begin(e, 2, 0);
    sp_events_scalar(e, "train", "loss", 0.5);
    assert_int_equal(sp_events_end(e), SP_EIO);
    setrlimit(RLIMIT_FSIZE, &none);
    SAYS("cannot write");
    sp_events_destroy(e);
    assert_steps(1, 1);
    assert_int_equal(list.torn, 0);
}

/* ---- pictures ---- */

FOLDER_TEST(a_picture_keeps_its_bytes)
{
    static const char png[] = "\x89PNG\r\n\x1a\n any \0 bytes";
    sp_events *e = begin_one(4);

    sp_events_picture(e, "eval", "confusion", 3, 2, png, sizeof png);
    end_one(e, 3);
    assert_int_equal(list.value[2].kind, EVENT_PICTURE);
    assert_int_equal(list.value[2].width, 3);
    assert_int_equal(list.value[2].height, 2);
    assert_int_equal(list.value[2].n_bytes, sizeof png);
    assert_memory_equal(list.value[2].bytes, png, sizeof png);
}
