/* The records of .bin files are told by name and values: SemanticKITTI's four numbers
 * and nuScenes' five are read, also if the length of a file fits both; anything else is
 * refused, and --columns reads it. */
#include "fixtures/scan_files.h"

#include <sys/stat.h>
#include <unistd.h>

/* Both 20 and 16 divide the bytes of such a file of five numbers a point. */
enum { POINTS = 400 };

/* Number c of point i as a scanner of 32 rings gives it: x y z intensity ring time. The
 * intensity is 0 to `most`. */
static double number_of(int i, int c, double most)
{
    const double angle = 0.01745 * (i / 32), range = 4 + 7 * (i % 32) + i % 7;

    return c == 0   ? range * cos(angle)
           : c == 1 ? range * sin(angle)
           : c == 2 ? (i % 32) * 0.25 - 1.8
           : c == 3 ? most * ((i * 37) % 64) / 63
           : c == 4 ? i % 32
                    : 1e-4 * i;
}

/* Writes points with the numbers of `order`. */
static void write_points(const char *name, const int *order, int n, double most)
{
    static unsigned char b[POINTS * 4 * 6];

    for (int i = 0; i < POINTS; i++)
        for (int k = 0; k < n; k++)
            scan_put(b + 4 * (i * n + k), number_of(i, order[k], most), 'f', 4, false);
    scan_write(name, b, (size_t)(4 * n * POINTS));
}

static const int all[] = {0, 1, 2, 3, 4, 5}, with_time[] = {0, 1, 2, 3, 5};

/* Reads all points and fails unless this attribute is number c of each. */
static void check_attribute(const char *name, const sp_scan_options *options,
                            const char *attribute, int c, double most)
{
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    OK(sp_scan_open(&scan, name, options));
    assert_int_equal(sp_scan_count(scan), POINTS);
    OK(sp_scan_select(scan, 1, &attribute));
    OK(sp_scan_next(scan, POINTS, &p));
    assert_int_equal(p.n, POINTS);
    for (int i = 0; i < POINTS; i++) {
        for (int a = 0; a < 3; a++)
            assert_true(p.xyz[3 * i + a] == (double)(float)number_of(i, a, most));
        assert_true(p.attr[i] == (double)(float)number_of(i, c, most));
    }
}

TEST(points_of_nuscenes_have_five_numbers)
{
    static const char *const names[] = {"n015_LIDAR_TOP.pcd.bin", "renamed.bin"};

    for (int i = 0; i < 2; i++)
        for (double most = 1; most < 256; most += 254) {
            write_points(names[i], all, 5, most);
            check_attribute(names[i], NULL, "intensity", 3, most);
            check_attribute(names[i], NULL, "ring", 4, most);
        }
    scan_refused("short.pcd.bin", "0123456789abcdef", 16, "expected a multiple of 20");
}

TEST(a_remission_is_zero_to_one_or_to_255)
{
    write_points("k.bin", all, 4, 1);
    check_attribute("k.bin", NULL, "remission", 3, 1);
    write_points("k.bin", all, 4, 255);
    check_attribute("k.bin", NULL, "intensity", 3, 255);
    write_points("k.bin", all, 4, 4000);
    scan_check_refused("k.bin", NULL, SP_EDATA, "the 4th numbers are 0 to 4000");
    write_points("k.bin", all, 4, -1);
    scan_check_refused("k.bin", NULL, SP_EDATA, "the 4th numbers are -1 to -0");
    check_attribute("k.bin", &(sp_scan_options){.columns = "x,y,z,i"}, "i", 3, -1);
}

TEST(other_numbers_of_columns_are_named_by_the_option)
{
    static const struct {
        int n;
        const int *order;
        const char *says, *columns;
    } files[] = {
        {6, all, "its points seem to have 6 float32 each", "x,y,z,i,-,time"},
        {5, with_time, "its points seem to have 5 float32 each", "x,y,z,i,time"},
        {3, all, "its points seem to have 3 float32 each", NULL},
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const sp_scan_options options = {.columns = files[i].columns};

        write_points("o.bin", files[i].order, files[i].n, 200);
        scan_check_refused("o.bin", NULL, SP_EDATA, files[i].says);
        scan_check_refused("o.bin", NULL, SP_EDATA, "--columns x,y,z");
        if (files[i].columns)
            check_attribute("o.bin", &options, "time", 5, 200);
    }
    scan_check_refused("o.bin", &(sp_scan_options){.columns = "x,y,z,a,b,c,d"},
                       SP_EDATA, "expected a multiple of 28");
}

/* The list may be a model's that was trained on text. */
TEST(a_list_for_another_format_is_refused)
{
    const sp_scan_options five = {.columns = "x,y,z,intensity,label"};
    const sp_scan_options four = {.columns = "x,y,z,intensity"};

    write_points("k.bin", all, 4, 1);
    scan_check_refused("k.bin", &five, SP_EDATA,
                       "its points seem to have 4 float32 each, but --columns "
                       "x,y,z,intensity,label lists 5");
    write_points("n.pcd.bin", all, 5, 255);
    scan_check_refused("n.pcd.bin", &four, SP_EDATA, "5 float32 each, but --columns");
    check_attribute("n.pcd.bin", &five, "label", 4, 255);
}

TEST(masks_and_doubles_are_no_points)
{
    static unsigned char b[8 * POINTS];

    for (int i = 0; i < POINTS; i++)
        scan_put(b + 8 * i, i % 21 - 1, 'i', 8, false);
    scan_refused("m.bin", b, sizeof b, "integers of 8 bytes");
    for (int i = 0; i < POINTS; i++)
        scan_put(b + 4 * i, i % 20, 'i', 4, false);
    scan_refused("m.bin", b, 4 * POINTS, "not float32 coordinates");
    for (int i = 0; i < POINTS; i++)
        scan_put(b + 8 * i, number_of(i / 4, i % 4, 1) + 0.1, 'f', 8, false);
    scan_refused("m.bin", b, sizeof b, "not float32 coordinates");
}

/* Labels of one byte (lidarseg), four (SemanticKITTI) and eight (masks of NumPy). */
TEST(labels_of_any_width_join_the_points)
{
    static const struct {
        const char *points, *labels;
        int n, bytes;
    } files[] = {{"1.pcd.bin", "1_lidarseg.bin", 5, 1},
                 {"2.pcd.bin", "2.label", 5, 4},
                 {"v/3.pcd.bin", "lidarseg/3_lidarseg.bin", 5, 1},
                 {"v/4.bin", "labels/4.label", 4, 8}};
    static unsigned char b[8 * POINTS];

    assert_int_equal(mkdir("v", 0700) | mkdir("lidarseg", 0700) | mkdir("labels", 0700),
                     0);
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
        CLOSED_BY(sp_scan_done) sp_scan *scan;
        const int bytes = files[k].bytes;

        for (int i = 0; i < POINTS; i++)
            scan_put(b + bytes * i, i % 32 - (bytes == 8), 'i', bytes, false);
        write_points(files[k].points, all, files[k].n, 1);
        scan_write(files[k].labels, b, (size_t)(bytes * POINTS));
        OK(sp_scan_open(&scan, files[k].points, NULL));
        OK(sp_scan_next(scan, POINTS, &p));
        for (int i = 0; i < POINTS; i++) /* -1 of a mask: SP_SCAN_UNLABELLED */
            assert_int_equal(p.label[i], i % 32 - (bytes == 8));
        scan_write(files[k].labels, b, (size_t)(bytes * POINTS - bytes));
        scan_check_refused(files[k].points, NULL, SP_EDATA, "for the 400 points");
    }
}
