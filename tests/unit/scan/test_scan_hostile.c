/* A header's numbers are used only as far as the bytes of the file can hold them: files
 * of a few bytes that claim much are refused at once and take neither memory nor time,
 * and a path that is no regular file is refused before it is read. */
#include "base/sp_program.h"
#include "fixtures/scan_files.h"

#include <sys/stat.h>
#include <unistd.h>

#define XYZ    "property float x\nproperty float y\nproperty float z\n"
#define ASCII  "ply\nformat ascii 1.0\n"
#define BINARY "ply\nformat binary_little_endian 1.0\n"

TEST(ply_that_claims_too_much_is_refused)
{
    static const struct {
        const char *text, *says;
    } files[] = {
        {ASCII "element vertex 4611686018427387904\n" XYZ "end_header\n1 2 3\n",
         "truncated: 4611686018427387904 points of 6 bytes or more"},
        {ASCII "element vertex 2\n" XYZ "end_header\n1 2 3\n", "truncated: 2 points"},
        {ASCII "element vertex 2\n" XYZ "end_header\n1.0001 2.0001\n3 4 5\n",
         "truncated: ends in vertex 0 of 2, line 8"},
        {ASCII "element vertex 1\n" XYZ "end_header\n1 2 3 4\n",
         "line 8: \"4\" follows the numbers"},
        {BINARY "element vertex 0\n" XYZ "element vertex 100000\nend_header\n",
         "two elements vertex"},
        {BINARY "element foo 4000000000000000000\nelement vertex 1\n"
                "property list uchar float q\n" XYZ "end_header\n",
         "truncated: 1 points of 13 bytes or more"},
        {BINARY "element foo 4000000000000000000\nproperty list uchar int a\n"
                "element vertex 0\n" XYZ "end_header\n",
         "truncated: 4000000000000000000 points of 1 bytes"},
        {BINARY "element foo 9223372036854775807\nproperty double a\n"
                "element vertex 0\n" XYZ "end_header\n",
         "truncated: 9223372036854775807 points of 8 bytes"},
        {BINARY "element vertex -1\n" XYZ "end_header\n",
         "expected element NAME COUNT"},
        {BINARY "element vertex 1\n" XYZ "property list char int a\n"
                "end_header\n123456789012\xff",
         "truncated: ends in vertex 0 of 1"},
        {BINARY "element vertex 1\n" XYZ "property list uint double a\n"
                "end_header\n123456789012\xff\xff\xff\x7f",
         "truncated: ends in vertex 0 of 1"},
        {"ply\nelement vertex 0\n" XYZ "end_header\n", "PLY header without format"},
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        scan_text_refused("a.ply", files[i].text, files[i].says);
    }
}

/* Elements without properties have no rows to read, however many are claimed. */
TEST(ply_without_rows_is_read)
{
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    scan_write_text("b.ply",
                    ASCII "element foo 4000000000000000000\nelement vertex 1\n" XYZ
                          "end_header\n1 2 3");
    OK(sp_scan_open(&scan, "b.ply", NULL));
    assert_int_equal(sp_scan_count(scan), 1);
}

#define PCD_XYZ "FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\n"

TEST(pcd_that_claims_too_much_is_refused)
{
    static const struct {
        const char *head, *data, *says;
    } files[] = {
        {PCD_XYZ "WIDTH 4294967296\nHEIGHT 4294967296\nPOINTS 0\n", "ascii",
         "expected WIDTH * HEIGHT"},
        {PCD_XYZ "WIDTH 9223372036854775807\nHEIGHT 2\n", "ascii",
         "expected WIDTH * HEIGHT"},
        {PCD_XYZ "WIDTH 65536\nHEIGHT 65536\nPOINTS 4294967296\n", "ascii",
         "expected WIDTH * HEIGHT"},
        {PCD_XYZ "WIDTH -1\nHEIGHT -1\nPOINTS 1\n", "ascii", "expected WIDTH * HEIGHT"},
        {PCD_XYZ "WIDTH 4000000000\nHEIGHT 1\n", "ascii",
         "truncated: 4000000000 points"},
        {PCD_XYZ "WIDTH 1\n", "ascii\n1 2 3 4", "line 8: more than 3 numbers"},
        {"FIELDS x y z a\nSIZE 4 4 4 1\nTYPE F F F U\nCOUNT 1 1 1 65536\nWIDTH 1\n",
         "binary", "header line \"COUNT 1 1 1 65536\""},
        {"FIELDS x y z a b\nSIZE 4 4 4 1 1\nTYPE F F F U U\nCOUNT 1 1 1 4000 4000\n"
         "WIDTH 1\n",
         "binary", "8003 numbers a point, expected at most"},
        {"FIELDS x y z\nSIZE 4 4 4\nTYPE F F Q\nCOUNT 1 1 1\nWIDTH 0\n", "binary",
         "header line \"TYPE F F Q\""},
        {PCD_XYZ "WIDTH 100000000\nHEIGHT 1\n",
         "binary_compressed\n\x01\x01\x01\x01\x01\x8c\x86\x47",
         "that become 1200000001"},
    };
    char text[2048];

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(text, sizeof text, "VERSION 0.7\n%sDATA %s\n", files[i].head,
                 files[i].data);
        scan_text_refused("a.pcd", text, files[i].says);
    }
}

TEST(npy_that_claims_too_much_is_refused)
{
    static const char *const shapes[] = {"(4611686018427387904, 3)", "(1, 3)",
                                         "(1, 3, 2)", "(1,)"};
    unsigned char b[128];

    for (int i = 0; i < 4; i++) {
        memset(b, ' ', sizeof b);
        memcpy(b, "\x93NUMPY\x01\x00", 8);
        scan_put(b + 8, 118, 'u', 2, false);
        snprintf((char *)b + 10, 118,
                 "{'descr': '<f8', 'fortran_order': %s, 'shape': %s}",
                 i ? "True" : "False", shapes[i]);
        scan_refused("a.npy", b, sizeof b,
                     i < 2 ? "truncated" : "expected a shape (points, columns)");
    }
}

/* Reading a pipe would wait for a writer for ever; a label file that cannot be read is
 * not treated as absent. */
TEST(pipes_and_folders_are_refused)
{
    static const unsigned char point[16];
    static const char *const names[] = {"p.las", "p.bin", "p.txt"};

    for (int i = 0; i < 3; i++) {
        assert_int_equal(mkfifo(names[i], 0600), 0);
        scan_check_refused(names[i], NULL, SP_EDATA,
                           "expected a scan, found no regular");
    }
    scan_write("k.bin", point, sizeof point);
    assert_int_equal(mkfifo("k.label", 0600), 0);
    scan_check_refused("k.bin", NULL, SP_EDATA, "k.label: expected a scan, found no");
    assert_int_equal(unlink("k.label"), 0);
    assert_int_equal(mkdir("k.label", 0700), 0);
    scan_check_refused("k.bin", NULL, SP_EDATA,
                       "k.label: expected a scan, found a fold");
    assert_int_equal(rmdir("k.label"), 0);
    assert_int_equal(symlink("k.label", "k.label"), 0);
    scan_check_refused("k.bin", NULL, SP_EIO, "k.label: cannot open");
}

/* A LAS 1.2 header without points. */
static void make_las(unsigned char b[512], uint32_t n_vlrs)
{
    const scan_las las = {2, 0, 512, n_vlrs, 20, 0, 0.01};

    memset(b, 0, 512);
    scan_put_las(b, &las);
}

TEST(las_that_claims_too_much_is_refused)
{
    static const struct {
        uint32_t n_vlrs;
        int at, size; /* of a number in the header; size 0: none is changed */
        char kind;
        double number;
        const char *says;
    } files[] = {
        {0, 107, 4, 'u', 4e9, "truncated: 4000000000 points of 20"},
        {0, 131 + 16, 8, 'f', 0, "z has scale 0 and offset 0, expected"},
        {0, 155, 8, 'f', INFINITY, "x has scale 0.01 and offset inf"},
    };
    unsigned char b[512];
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        make_las(b, files[i].n_vlrs);
        scan_put(b + files[i].at, files[i].number, files[i].kind, files[i].size, false);
        scan_refused("a.las", b, sizeof b, files[i].says);
    }
    /* A number of records costs nothing, since those are counted that are there. */
    make_las(b, UINT32_MAX);
    scan_write("a.las", b, sizeof b);
    OK(sp_scan_open(&scan, "a.las", NULL));
    sp_scan_close(scan);
    /* Extra bytes described in a record that runs into the points stay unnamed. */
    make_las(b, 1);
    scan_put_vlr(b + 227, "LASF_Spec", 4, 65472);
    b[227 + 54 + 2] = 1;
    memcpy(b + 227 + 54 + 4, "beyond", 6);
    scan_write("a.las", b, sizeof b);
    OK(sp_scan_open(&scan, "a.las", NULL));
    assert_false(sp_scan_has(scan, "beyond"));
}

/* A block of points is smaller where a point is wide. */
TEST(wide_points_take_bounded_memory)
{
    static char text[4096];
    int n = 0;
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    for (int i = 0; i < 256; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%d ", i);
    scan_write_text("w.txt", text);
    OK(sp_scan_open(&scan, "w.txt", &(sp_scan_options){.columns = "x,y,z"}));
    OK(sp_scan_select(scan, 0, NULL));
    OK(sp_scan_next(scan, INT64_MAX, &p));
    assert_int_equal(p.n, 1);
    assert_true(p.capacity * 256 * 8 <= 64 << 20);
}

int main(void)
{
    sp_program_begin("sptrain");
    alarm(1000); /* endless loops and waits end here */
    return run_all_tests();
}
