/* SemanticKITTI, PLY, PCD, text and npy give the same points, labels and attributes
 * from files made by hand; a file that does not fit its format is refused with a
 * message that says what was expected. LAS has test_scan_las.c. */
#include "fixtures/scan_files.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- SemanticKITTI ---- */
TEST(kitti_takes_labels_beside_or_in_labels)
{
    /* an intensity of 40000 is no remission */
    const sp_scan_options intensity = {.columns = "x,y,z,intensity"};
    const sp_scan_options remission = {.columns = "x,y,z,remission"};
    unsigned char b[16 * SCAN_POINTS], l[4 * SCAN_POINTS];

    for (int i = 0; i < SCAN_POINTS; i++) {
        for (int a = 0; a < 3; a++)
            scan_put(b + 16 * i + 4 * a, scan_xyz[i][a], 'f', 4, false);
        scan_put(b + 16 * i + 12, scan_intensity[i], 'f', 4, false);
        scan_put(l + 4 * i, scan_label[i] + 65536.0 * 9, 'u', 4, false);
    }
    assert_int_equal(mkdir("scans", 0700), 0);
    scan_write("scans/k.bin", b, sizeof b);
    scan_write("scans/k.label", l, sizeof l);
    /* float32 of 6277600.5 */
    scan_check_points("scans/k.bin", &intensity, "intensity", 0.25);
    scan_check_refused("scans/k.bin", NULL, SP_EDATA,
                       "the 4th numbers are 7 to 4e+04, expected float32 x y z "
                       "remission");
    scan_write("scans/k.label", l, sizeof l - 4);
    scan_check_refused("scans/k.bin", &intensity, SP_EDATA,
                       "8 bytes, expected 12 for the 3 points");
    assert_int_equal(mkdir("velodyne", 0700), 0);
    assert_int_equal(mkdir("labels", 0700), 0);
    scan_write("velodyne/1.bin", b, sizeof b);
    scan_write("labels/1.label", l, sizeof l);
    scan_check_points("velodyne/1.bin", &remission, "remission", 0.25);
    scan_refused("velodyne/2.bin", b, sizeof b - 1, "expected a multiple of 16");
    for (int i = 0; i < SCAN_POINTS; i++)
        scan_put(b + 16 * i + 12, scan_intensity[i] / 65536.0, 'f', 4, false);
    scan_write("velodyne/1.bin", b, sizeof b);
    assert_true(scan_first_value("velodyne/1.bin", "instance") == 9);
    assert_true(scan_first_value("velodyne/1.bin", "remission") ==
                scan_first_value("velodyne/1.bin", "intensity"));
    scan_put(b + 16, NAN, 'f', 4,
             false); /* of a format in which each record is a point */
    scan_refused("velodyne/2.bin", b, sizeof b, "point 1: x is nan, expected a number");
}

/* Codes that are kept are those of the label file, if there is one, or those of the
 * attribute that is named; a point of no class has 0 in any case. */
TEST(kitti_keeps_codes_of_any_attribute)
{
    static const struct {
        sp_scan_options options;
        bool has_file;
        uint32_t want[SCAN_POINTS];
    } cases[] = {{{0}, true, {31, 0, 7 | 9 << 16}},
                 {{.label_field = "intensity"}, true, {31, 0, 5}},
                 {{.label_field = "intensity"}, false, {31, 0, 5}},
                 {{0}, false, {31, 0, 0}}};
    const int32_t code[SCAN_POINTS] = {31, SP_SCAN_NO_CLASS, SP_SCAN_KEEP};
    const sp_scan_labels labels = {
        .n = SCAN_POINTS, .has_kept = true, .get = scan_get_codes, .from = code};
    unsigned char b[16 * SCAN_POINTS], l[4 * SCAN_POINTS];

    for (int i = 0; i < SCAN_POINTS; i++) {
        for (int a = 0; a < 4; a++)
            scan_put(b + 16 * i + 4 * a, 3 + i, 'f', 4, false);
        scan_put(l + 4 * i, 7 + 65536.0 * 9, 'u', 4, false);
    }
    scan_write("q.bin", b, sizeof b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const copy = "copy.label";
        sp_scan *scan;
        size_t n;

        if (cases[i].has_file)
            scan_write("q.label", l, sizeof l);
        else
            unlink("q.label");
        OK(sp_scan_open(&scan, "q.bin", &cases[i].options));
        OK(sp_scan_write(scan, copy, &labels));
        sp_scan_close(scan);
        assert_memory_equal(test_content(copy, &n), cases[i].want,
                            sizeof cases[i].want);
        assert_int_equal(n, sizeof cases[i].want);
    }
}

/* ---- PLY ---- */
static size_t make_ply(unsigned char *b, const char *format, bool has_list)
{
    bool is_big = strstr(format, "big") != NULL;
    int n =
        sprintf((char *)b,
                "ply\nformat %s 1.0\ncomment x\nelement camera 2\nproperty short a\n"
                "%selement vertex %d\nproperty double x\nproperty double y\n"
                "property double z\n%sproperty ushort scalar_Intensity\n"
                "property int label\nelement face 0\nproperty list uchar int v\n"
                "end_header\n",
                format, has_list ? "property list uchar float c\n" : "", SCAN_POINTS,
                has_list ? "property list int uchar extra\n" : "");

    for (int i = 0; i < 2; i++) {
        scan_put(b + n, i, 'i', 2, is_big);
        n += 2;
        if (has_list) {
            b[n] = (unsigned char)i;
            n += 1 + 4 * i;
        }
    }
    for (int i = 0; i < SCAN_POINTS; i++) {
        for (int a = 0; a < 3; a++, n += 8)
            scan_put(b + n, scan_xyz[i][a], 'f', 8, is_big);
        if (has_list) {
            scan_put(b + n, i, 'i', 4, is_big);
            n += 4 + i;
        }
        scan_put(b + n, scan_intensity[i], 'u', 2, is_big);
        scan_put(b + n + 2, scan_label[i], 'i', 4, is_big);
        n += 6;
    }
    return (size_t)n;
}

TEST(ply_of_every_kind)
{
    static const char *const format[] = {"binary_little_endian", "binary_big_endian"};
    unsigned char b[4096];
    int n;

    for (int f = 0; f < 2; f++)
        for (int list = 0; list < 2; list++) {
            size_t bytes = make_ply(b, format[f], list);

            scan_write("a.ply", b, bytes);
            scan_check_points("a.ply", NULL, "intensity", 0);
            scan_refused("a.ply", b, bytes - 1, "truncated");
        }
    n = sprintf((char *)b,
                "ply\r\nformat ascii 1.0\r\nelement vertex %d\r\n"
                "property float x\r\nproperty float y\r\nproperty float z\r\n"
                "property list uchar int l\r\nproperty int Class\r\n"
                "property int intensity\r\nend_header\r\n",
                SCAN_POINTS);
    for (int i = 0; i < SCAN_POINTS; i++)
        n += sprintf((char *)b + n, "%.17g %.17g %.17g 2 7 8 %d %d\r\n", scan_xyz[i][0],
                     scan_xyz[i][1], scan_xyz[i][2], scan_label[i], scan_intensity[i]);
    scan_write("b.ply", b, (size_t)n);
    scan_check_points("b.ply", NULL, "intensity", 0);
    scan_check_refused("b.ply", &(sp_scan_options){.label_field = "semantics"},
                       SP_EUSAGE,
                       "no attribute semantics for the label; there are: x y z Class");
    scan_refused("b.ply", b, (size_t)n - 30, "truncated: ends in vertex 2 of 3");
    scan_text_refused("b.ply",
                      "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\n"
                      "property float y\nproperty float z\nproperty uchar red\n"
                      "end_header\n1 2 3 255\n4 5 6 256\n",
                      "line 10: \"256\", expected a number of the type that the header "
                      "gives it, uchar");
}

/* Headers as other programs write them: blanks and tabs, carriage returns, types of
 * eight bytes, an element with another name. */
TEST(ply_headers_of_other_programs)
{
    static const struct {
        const char *head, *elements, *end;
    } files[] = {
        {"ply \nformat ascii 1.0  \n", "element vertex 3\n", "\n"},
        {"ply\t\nformat\tascii\t1.0\n", "element\tvertex\t3\n", "\n"},
        {"ply\r  format ascii 1.0\r", "element vertex 3\r", "\r"},
        {"ply\nformat ascii 1.0\n", "element testing 3\n", "\n"},
        {"ply\nformat ascii 1.0\n",
         "element camera 1\nproperty int x\nproperty int y\nelement points 3\n", "\n"},
    };
    const char *types[] = {"int64", "uint64", "long", "int"};
    char text[1024];

    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        const char *end = files[k].end;
        int n = snprintf(text, sizeof text, "%s%s", files[k].head, files[k].elements);

        for (int a = 0; a < 3; a++)
            n += sprintf(text + n, "property  double %c%s", 'x' + a, end);
        n += sprintf(text + n, "property %s label%sproperty %s intensity%send_header%s",
                     types[k % 4], end, types[(k + 1) % 4], end, end);
        n += strstr(text, "camera") ? sprintf(text + n, "8 9%s", end) : 0;
        for (int i = 0; i < SCAN_POINTS; i++)
            n += sprintf(text + n, "%.17g %.17g %.17g %d %d%s", scan_xyz[i][0],
                         scan_xyz[i][1], scan_xyz[i][2], scan_label[i],
                         scan_intensity[i], end);
        scan_write_text("h.ply", text);
        scan_check_points("h.ply", NULL, "intensity", 0);
    }
    scan_text_refused("h.ply",
                      "ply\nformat ascii 1.0\nelement a 0\nproperty int x\n"
                      "property int y\nproperty int z\nelement b 0\nproperty int x\n"
                      "property int y\nproperty int z\nend_header\n",
                      "the elements a and b have coordinates");
    scan_text_refused("h.ply",
                      "ply\nformat ascii 1.0\nelement vertex 0\nproperty int128 x\n",
                      "unknown type int128, expected char, uchar");
    scan_text_refused("h.ply", "ply\nformat ascii 1.0\nelement face 0\nend_header\n",
                      "without element vertex");
}

/* Integers of eight bytes in a binary file, in lists and in a copy. */
TEST(ply_integers_of_eight_bytes)
{
    unsigned char b[1024];
    int n = sprintf((char *)b,
                    "ply\rformat binary_little_endian 1.0\r"
                    "element vertex %d\rproperty float64 x\r"
                    "property float64 y\rproperty float64 z\r"
                    "property list int64 uint64 l\rproperty int64 label\r"
                    "property uint64 intensity\rend_header\r",
                    SCAN_POINTS);

    for (int i = 0; i < SCAN_POINTS; i++) {
        for (int a = 0; a < 3; a++, n += 8)
            scan_put(b + n, scan_xyz[i][a], 'f', 8, false);
        scan_put(b + n, i, 'i', 8, false);
        memset(b + n + 8, 7, (size_t)(8 * i));
        n += 8 + 8 * i;
        scan_put(b + n, scan_label[i], 'i', 8, false);
        scan_put(b + n + 8, scan_intensity[i], 'u', 8, false);
        n += 16;
    }
    scan_write("w.ply", b, (size_t)n);
    scan_check_points("w.ply", NULL, "intensity", 0);
    memset(strstr((char *)b, "end_header\r") + 11 + 24, 0xff, 8); /* a list's length */
    scan_refused("w.ply", b, (size_t)n, "truncated: ends in vertex 0 of 3");
}

/* ---- PCD ---- */
static int pcd_header(char *b, const char *data)
{
    return sprintf(b,
                   "# .PCD v0.7\nVERSION 0.7\nFIELDS x y z intensity rgb label\n"
                   "SIZE 8 8 8 2 4 4\nTYPE F F F U F U\nCOUNT 1 1 1 1 1 1\nWIDTH %d\n"
                   "HEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS %d\nDATA %s\n",
                   SCAN_POINTS, SCAN_POINTS, data);
}

/* Headers of old versions and of other programs, which PCL takes too. */
TEST(pcd_headers_of_other_programs)
{
    static const char *const heads[] = {
        "# .PCD v.5\nVERSION .5\nCOLUMNS x y z intensity label\nSIZE 8 8 8 4 4\n"
        "TYPE F F F F I\nPOINTS 3\nDATA ascii\n",
        "FIELDS x y z intensity label\nWIDTH 3\nHEIGHT 1\nDATA ascii\n",
        "FIELDS x y z intensity label\nSIZE 8 8 8 8 4\nPOINTS 3\nDATA ascii\n",
        " VERSION .7\n \tFIELDS x y z intensity label\n SIZE 8 8 8 2 4\n"
        " TYPE F F F U U\n COUNT 1 1 1 1 1\n WIDTH 3\n HEIGHT 1\n POINTS 3\n"
        " DATA ascii\n",
        "VERSION .7\nFIELDS x y z empty intensity label\nSIZE 8 8 8 4 2 4\n"
        "TYPE F F F F U U\nCOUNT 1 1 1 0 1 1\nTIMESTAMP 5\nWIDTH 3\nPOINTS 3\n"
        "DATA ascii\n"};
    char text[1024];

    for (size_t k = 0; k < sizeof heads / sizeof *heads; k++) {
        int n = snprintf(text, sizeof text, "%s", heads[k]);

        for (int i = 0; i < SCAN_POINTS; i++)
            n += sprintf(text + n, "%.17g %.17g %.17g %d %d\n", scan_xyz[i][0],
                         scan_xyz[i][1], scan_xyz[i][2], scan_intensity[i],
                         scan_label[i]);
        scan_write_text("o.pcd", text);
        scan_check_points("o.pcd", NULL, "intensity", 0);
    }
    scan_text_refused("o.pcd", "FIELDS x y z\nWIDTH many\nDATA ascii\n",
                      "PCD header line \"WIDTH many\" does not fit");
    scan_text_refused("o.pcd", "FIELDS x y z\n3 4 5\nDATA ascii\n",
                      "PCD header line \"3 4 5\" does not fit");
}

/* What -1 becomes in an unsigned field is unlabelled too. */
TEST(the_largest_number_is_no_label)
{
    static const char *const types[] = {"uint", "uint64", "double"};

    for (int k = 0; k < 3; k++)
        for (int wide = 0; wide < (k == 1 ? 2 : 1); wide++) {
            CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
            CLOSED_BY(sp_scan_done) sp_scan *scan;
            char text[256];

            snprintf(text, sizeof text,
                     "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\n"
                     "property float y\nproperty float z\nproperty %s label\n"
                     "end_header\n1 2 3 %s\n1 2 3 7\n",
                     types[k], wide ? "18446744073709551615" : "4294967295");
            scan_write_text("u.ply", text);
            OK(sp_scan_open(&scan, "u.ply", NULL));
            OK(sp_scan_next(scan, 2, &p));
            assert_int_equal(p.label[0], SP_SCAN_UNLABELLED);
            assert_int_equal(p.label[1], 7);
        }
}

/* An attribute that is not a number names the option, which replaces it. */
TEST(missing_numbers_have_an_option)
{
    const double missing = -1;
    const char *attribute = "planarity";

    scan_write_text("m.txt", "x y z planarity\n1 2 3 0.5\n1 2 3 nan\n1 2 3 inf\n");
    for (int k = 0; k < 2; k++) {
        const sp_scan_options options = {.missing = k ? &missing : NULL};
        CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
        CLOSED_BY(sp_scan_done) sp_scan *scan;

        OK(sp_scan_open(&scan, "m.txt", &options));
        OK(sp_scan_select(scan, 1, &attribute));
        if (k == 0) {
            FAILS(sp_scan_next(scan, 3, &p), SP_EDATA,
                  "point 1: planarity is nan, expected a number; --missing 0");
            continue;
        }
        OK(sp_scan_next(scan, 3, &p));
        assert_true(p.attr[0] == 0.5 && p.attr[1] == -1 && p.attr[2] == -1);
    }
}

TEST(pcd_of_every_kind)
{
    static const int size[] = {8, 8, 8, 2, 4, 4};
    unsigned char b[4096], plain[34 * SCAN_POINTS];
    int n = pcd_header((char *)b, "ascii"), at, length;

    for (int i = 0; i < SCAN_POINTS; i++)
        n += sprintf((char *)b + n, "%.17g %.17g %.17g %d 0 %d\n", scan_xyz[i][0],
                     scan_xyz[i][1], scan_xyz[i][2], scan_intensity[i], scan_label[i]);
    scan_write("a.pcd", b, (size_t)n);
    scan_check_points("a.pcd", NULL, "intensity", 0);
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        n = pcd_header((char *)b, is_packed ? "binary_compressed" : "binary");
        at = 0;
        for (int k = 0; k < SCAN_POINTS * 6; k++) {
            int i = is_packed ? k % SCAN_POINTS : k / 6,
                f = is_packed ? k / SCAN_POINTS : k % 6;
            double x = f < 3    ? scan_xyz[i][f]
                       : f == 3 ? scan_intensity[i]
                       : f == 4 ? 0x00112233
                                : scan_label[i];

            scan_put(plain + at, x, f < 3 ? 'f' : 'u', size[f], false);
            at += size[f];
        }
        if (!is_packed) {
            memcpy(b + n, plain, sizeof plain);
            n += (int)sizeof plain;
        } else { /* runs of plain bytes; the colours, 12 bytes of period 4, as a copy */
            int begin = n + 8, rgb = 26 * SCAN_POINTS;

            scan_put(b + n + 4, sizeof plain, 'u', 4, false);
            n += 8;
            for (at = 0; at < (int)sizeof plain; at += length) {
                int end = at < rgb + 4 ? rgb + 4 : (int)sizeof plain;

                if (at == rgb + 4) { /* length 8, distance 4 */
                    b[n++] = 6 << 5;
                    b[n++] = 3;
                    length = 8;
                    continue;
                }
                length = end - at < 32 ? end - at : 32;
                b[n++] = (unsigned char)(length - 1);
                memcpy(b + n, plain + at, (size_t)length);
                n += length;
            }
            scan_put(b + begin - 8, n - begin, 'u', 4, false);
        }
        scan_write("b.pcd", b, (size_t)n);
        scan_check_points("b.pcd", NULL, "intensity", 0);
        assert_true(scan_first_value("b.pcd", "red") == 0x11);
        assert_true(scan_first_value("b.pcd", "blue") == 0x33);
        scan_refused("b.pcd", b, (size_t)n - 1,
                     is_packed ? "that become" : "truncated");
    }
}

/* A depth camera's PCD has a row for each pixel. Rows without a point keep their place,
 * whatever their label and attributes are; a point with such an attribute is refused,
 * one with such a label is unlabelled. */
TEST(rows_without_a_point_keep_their_place)
{
    static const char head[] =
        "VERSION 0.7\nFIELDS x y z a label\nSIZE 4 4 4 4 4\nTYPE F F F F F\n"
        "COUNT 1 1 1 1 1\nWIDTH 3\nHEIGHT 2\nPOINTS 6\nDATA binary\n";
    float row[6][5] = {{1, 2, 3, 4, 5}, {NAN, NAN, NAN, NAN, NAN}, {6, 7, NAN, 8, 0.5F},
                       {9, 8, 7, 6, 2}, {9, 8, 7, 6, NAN},         {9, 8, 7, 6, -3}};
    unsigned char b[sizeof head - 1 + sizeof row];
    const char *name = "a";
    CLOSED_BY(sp_scan_done) sp_scan *scan;
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};

    memcpy(b, head, sizeof head - 1);
    memcpy(b + sizeof head - 1, row, sizeof row);
    scan_write("v.pcd", b, sizeof b);
    OK(sp_scan_open(&scan, "v.pcd", NULL));
    OK(sp_scan_select(scan, 1, &name));
    OK(sp_scan_next(scan, 10, &p));
    assert_int_equal(p.n, 6);
    assert_int_equal(p.n_missing, 2);
    for (int64_t i = 0; i < p.n; i++) {
        assert_int_equal(sp_scan_is_missing(p.xyz + 3 * i), i == 1 || i == 2);
        assert_int_equal(p.label[i], i == 0 ? 5 : i == 3 ? 2 : SP_SCAN_UNLABELLED);
    }
    sp_scan_points_destroy(&p);
    row[3][3] = NAN;
    memcpy(b + sizeof head - 1, row, sizeof row);
    scan_write("v.pcd", b, sizeof b);
    OK(sp_scan_rewind(scan));
    FAILS(sp_scan_next(scan, 10, &p), SP_EDATA, "point 3: a is nan, expected a number");
}

/* ---- text ---- */
static void write_text(const char *name, const char *head, const char *divider)
{
    char b[4096];
    int n = sprintf(b, "%s", head);

    for (int i = 0; i < SCAN_POINTS; i++)
        n +=
            sprintf(b + n, "%.17g%s%.17g%s%.17g%s%d%s%d\n%s", scan_xyz[i][0], divider,
                    scan_xyz[i][1], divider, scan_xyz[i][2], divider, scan_intensity[i],
                    divider, scan_label[i], i == 0 ? "\n# a comment\n" : "");
    scan_write(name, b, (size_t)n);
}

TEST(text_in_every_dress)
{
    const sp_scan_options options = {.columns = "x,y,z,intensity,label"};

    write_text("a.txt", "", " ");
    scan_check_points("a.txt", &options, "intensity", 0);
    scan_check_refused("a.txt", NULL, SP_EUSAGE, "5 columns; say what they are");
    scan_check_refused("a.txt", &(sp_scan_options){.columns = "x,y,z,a,b,c"}, SP_EUSAGE,
                       "has 5 columns");
    scan_check_refused("a.txt", &(sp_scan_options){.columns = "x,y,a,intensity,label"},
                       SP_EUSAGE, "no coordinate z; there are: x y a intensity label");
    scan_check_points(
        "a.txt",
        &(sp_scan_options){.columns = "x, y,z , i,code", .label_field = "code"}, "i",
        0);
    write_text("a.csv", "X,Y,Z,Intensity,Classification\n", ",");
    scan_check_points("a.csv", NULL, "intensity", 0);
    write_text("a.xyz", "// made by\n//X Y Z Intensity Label\n", "\t");
    scan_check_points("a.xyz", NULL, "intensity", 0);
    write_text("a.pts", "3\n", "  ");
    scan_check_points("a.pts", &options, "intensity", 0);
    scan_text_refused("b.txt", "1 2 3\n4 inf 5\n", "point 1: y is inf");
    scan_write_text("b.txt", "1 2 3 0.5\n");
    scan_check_refused("b.txt", &(sp_scan_options){.columns = "x,y,z,label"}, SP_EDATA,
                       "label 0.5, expected an integer");
    scan_write_text("b.txt", "1 2 3\n"); /* a scan without the labels of the others */
    scan_check_refused("b.txt", &(sp_scan_options){.columns = "x,y,z,label"}, SP_EUSAGE,
                       "names more; say what this file's are: --columns x,y,z,...");
    scan_refused("b.xml", "<a/>", 4, "unknown format");
    scan_refused("b.las", "", 0, "b.las: the file is empty");
}

/* ---- npy ---- */
TEST(npy_of_every_order)
{
    static const char *const descr[] = {"'<f8'", "'>f8'", "'<f8'"};
    const sp_scan_options options = {.columns = "x,y,z,intensity,label"};
    unsigned char b[4096];
    size_t n;

    for (int kind = 0; kind < 4; kind++) {
        bool is_fortran = kind == 2, is_structured = kind == 3;

        memset(b, ' ', 128);
        memcpy(b, "\x93NUMPY\x01\x00", 8);
        scan_put(b + 8, 246, 'u', 2, false);
        memset(b + 10, ' ', 246);
        sprintf(
            (char *)b + 10,
            is_structured
                ? "{'descr': [('x', '<f8'), ('y', '<f8'), ('z', '<f8'), ('intensity', "
                  "'<u2'), ('label', '|u1')], 'fortran_order': False, 'shape': (3,), }"
                : "{'descr': %s, 'fortran_order': %s, 'shape': (3, 5), }",
            is_structured ? "" : descr[kind], is_fortran ? "True" : "False");
        n = 256;
        for (int k = 0; k < SCAN_POINTS * 5; k++) {
            int i = is_fortran ? k % SCAN_POINTS : k / 5,
                c = is_fortran ? k / SCAN_POINTS : k % 5;
            int size = is_structured && c > 2 ? 5 - c : 8;

            scan_put(b + n,
                     c < 3    ? scan_xyz[i][c]
                     : c == 3 ? scan_intensity[i]
                              : scan_label[i],
                     size == 8 ? 'f' : 'u', size, kind == 1);
            n += (size_t)size;
        }
        scan_write("a.npy", b, n);
        scan_check_points("a.npy", is_structured ? NULL : &options, "intensity", 0);
        scan_write("a.npy", b, n - 1);
        scan_check_refused("a.npy", &options, SP_EDATA, "truncated");
    }
}

/* Fields may have the names of the header's own keys, and any characters. */
TEST(npy_fields_of_any_name)
{
    static const char *const names[] = {"shape", "descr", "'fortran_order': True, }"};
    unsigned char b[512];
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points points = {0};
    sp_scan *scan;

    for (int i = 0; i < 3; i++) {
        const int begin = i == 1 ? 12 : 10; /* of the header in version 2 and 1 */

        memset(b, ' ', 256);
        memcpy(b, "\x93NUMPY\x01\x00", 8);
        b[6] = (unsigned char)(i == 1 ? 2 : 1);
        scan_put(b + 8, 256 - begin, 'u', begin - 8, false);
        sprintf(
            (char *)b + begin,
            "{'descr': [('x', '<f8'), ('y', '<f8'), ('z', '<f8'), (%c%s%c, '|u1')], "
            "'fortran_order': False, 'shape': (1,), }",
            i < 2 ? '\'' : '"', names[i], i < 2 ? '\'' : '"');
        for (int c = 0; c < 3; c++)
            scan_put(b + 256 + 8 * c, scan_xyz[0][c], 'f', 8, false);
        b[280] = 7;
        scan_write("a.npy", b, 281);
        OK(sp_scan_open(&scan, "a.npy", NULL));
        assert_int_equal(sp_scan_count(scan), 1);
        OK(sp_scan_select(scan, 1, &names[i]));
        OK(sp_scan_next(scan, 10, &points));
        assert_int_equal(points.n, 1);
        assert_true(points.xyz[2] == scan_xyz[0][2] && points.attr[0] == 7);
        sp_scan_close(scan);
    }
}
