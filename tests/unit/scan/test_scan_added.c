/* Fields that sp_scan_write adds: where they are in LAS and LAZ, that all other bytes
 * stay, that a second writing replaces their values, and what is refused. */
#include <string.h>

#include "fixtures/scan_files.h"

#include <signal.h>
#include <sys/resource.h>

enum {
    N = 5,
    HEADER = 375,
    VLR_HEAD = 54,
    TEXT = 10,
    EXTRA = 192,
    GAP = 3,
    BEHIND = 8,
    RECORD = 30 + 3, /* 2 described and 1 undocumented byte */
    AT = HEADER + VLR_HEAD + TEXT + VLR_HEAD + EXTRA + GAP,
    BYTES = AT + N * RECORD + BEHIND
};

static unsigned char b[BYTES];

/* Writes b as a.las: LAS 1.4 of format 6, every byte of which is somehow used. */
static void make_las(bool is_described)
{
    const scan_las las = {4, 6, AT, 2, RECORD, N, 0.01};
    unsigned char *vlr = b + HEADER;

    memset(b, 0, BYTES);
    scan_put_las(b, &las);
    scan_put(b + 227, BYTES - BEHIND + 2, 'u', 8, false); /* waves; records */
    scan_put(b + 235, BYTES - BEHIND, 'u', 8, false);
    scan_put_vlr(vlr, "else", 0, TEXT);
    memset(vlr + VLR_HEAD, 'e', TEXT);
    vlr += VLR_HEAD + TEXT;
    scan_put_vlr(vlr, is_described ? "LASF_Spec" : "LASF_Else", 4, EXTRA);
    vlr[VLR_HEAD + 2] = 3;
    memcpy(vlr + VLR_HEAD + 4, "deviation", 9);
    memset(b + AT - GAP, 'g', GAP);
    for (int i = 0; i < N * RECORD; i++)
        b[AT + i] = (unsigned char)(37 * i + 11);
    for (int i = 0; i < N; i++) { /* one return of one, no NaN in the time */
        b[AT + i * RECORD + 14] = 0x11;
        memset(b + AT + i * RECORD + 22, 0x3f, 8);
    }
    memset(b + BYTES - BEHIND, 'b', BEHIND);
    scan_write("a.las", b, BYTES);
}

/* The codes and values to write, which follow from `first`. */
typedef struct want {
    int first, n_added;
} want;

static float value_of(const want *w, int64_t row, int k)
{
    return (float)((row * 7 + k * 3 + w->first) % 11) / 10;
}

static sp_status get(const void *from, int64_t first, int64_t n, int32_t *code,
                     float *value)
{
    const want *w = from;

    for (int64_t i = 0; i < n; i++) {
        code[i] = first + i == 1 ? SP_SCAN_KEEP : (int32_t)(first + i) + w->first;
        for (int k = 0; k < w->n_added; k++)
            value[i * w->n_added + k] = value_of(w, first + i, k);
    }
    return SP_OK;
}

static const sp_scan_added fields[] = {{"confidence", "of the class", false, false},
                                       {"p_ground", "", true, false}};

static sp_scan_labels labels_of(const want *w)
{
    return (sp_scan_labels){.n = N,
                            .has_kept = true,
                            .n_added = w->n_added,
                            .added = fields,
                            .get = get,
                            .from = w};
}

static void write_copy(const char *from, const char *to, const want *w)
{
    const sp_scan_labels labels = labels_of(w);
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    OK(sp_scan_open(&scan, from, NULL));
    OK(sp_scan_write(scan, to, &labels));
}

/* Reads all points with two attributes. */
static void read_two(const char *name, const char *const names[2], sp_scan_points *p)
{
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    OK(sp_scan_open(&scan, name, NULL));
    OK(sp_scan_select(scan, 2, names));
    OK(sp_scan_next(scan, 100, p));
    assert_int_equal(p->n, N);
}

/* Checks codes and values through the reader. */
static void check_values(const char *name, const want *w)
{
    static const char *const names[] = {"confidence", "p_ground"};
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};

    read_two(name, names, &p);
    for (int i = 0; i < N; i++) {
        if (i != 1)
            assert_int_equal(p.label[i], i + w->first);
        assert_float_equal(p.attr[2 * i], value_of(w, i, 0), 0.51 / 255);
        assert_true((float)p.attr[2 * i + 1] == value_of(w, i, 1));
    }
}

/* The disk, here a limit, has no room. A small copy is written at its end alone, and
 * the points of a part, which nothing follows, when its file is closed. */
TEST(a_copy_without_room_fails)
{
    static const struct {
        const char *name;
        bool is_part;
    } copies[] = {{"full.las", false}, {"full.txt", false}, {"full.las", true}};
    const want w = {2, 2};
    const sp_scan_labels labels = labels_of(&w);
    struct rlimit before, small;

    make_las(true);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){64, before.rlim_max};
    for (int i = 0; i < 3; i++) {
        const char *name = copies[i].name;
        CLOSED_BY(sp_scan_done) sp_scan *scan;
        sp_status rc;

        OK(sp_scan_open(&scan, "a.las", NULL));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        rc = copies[i].is_part ? sp_scan_write_part(scan, name, &labels, 0, 1, "part")
                               : sp_scan_write(scan, name, &labels);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        FAILS(rc, SP_EIO, "File too large");
    }
}

/* The bytes of the copy are those of the source around what was added. */
TEST(other_bytes_stay)
{
    /* A description of the undocumented byte, and of two fields. */
    enum { ADDED = 3 * EXTRA, LONG = RECORD + 1 + 4 };
    const unsigned char *c;
    const want w = {2, 2};
    const size_t vlr = HEADER + VLR_HEAD + TEXT;
    size_t n;

    make_las(true);
    write_copy("a.las", "b.las", &w);
    c = (unsigned char *)test_content("b.las", &n);
    assert_int_equal(n, BYTES + ADDED + N * 5);
    scan_put(b + 96, AT + ADDED, 'u', 4, false);
    scan_put(b + 105, LONG, 'u', 2, false);
    scan_put(b + 227, BYTES - BEHIND + 2 + ADDED + N * 5, 'u', 8, false);
    scan_put(b + 235, BYTES - BEHIND + ADDED + N * 5, 'u', 8, false);
    scan_put(b + vlr + 20, EXTRA + ADDED, 'u', 2, false);
    assert_memory_equal(b, c, vlr + VLR_HEAD + EXTRA);
    assert_memory_equal(b + AT - GAP, c + AT + ADDED - GAP, GAP);
    for (int i = 0; i < N; i++) {
        unsigned char *record = b + AT + i * RECORD;

        if (i != 1)
            record[16] = (unsigned char)(i + 2);
        assert_memory_equal(record, c + AT + ADDED + i * LONG, RECORD);
    }
    assert_memory_equal(b + BYTES - BEHIND, c + AT + ADDED + N * LONG, BEHIND);
    assert_int_equal(c[vlr + VLR_HEAD + EXTRA + 2], 0); /* 1 undocumented byte */
    assert_int_equal(c[vlr + VLR_HEAD + EXTRA + 3], 1);
    assert_string_equal((char *)c + vlr + VLR_HEAD + 2 * EXTRA + 4, "confidence");
    check_values("b.las", &w);
}

/* A scan without a description of its extra bytes gets a VLR of its own. */
TEST(a_vlr_is_made)
{
    const want w = {3, 2};
    size_t n;

    make_las(false);
    write_copy("a.las", "b.las", &w);
    assert_int_equal(test_content("b.las", &n)[100], 3);
    assert_int_equal(n, BYTES + VLR_HEAD + 3 * EXTRA + N * 5);
    check_values("b.las", &w);
}

/* LAS from LAZ from LAS is the LAS that is made at once; labelled again, fields keep
 * their places. */
TEST(laz_has_the_same)
{
    const want w = {2, 2}, none = {2, 0}, other = {5, 2};
    size_t n, m;

    make_las(true);
    write_copy("a.las", "b.las", &w);
    write_copy("a.las", "b.laz", &w);
    check_values("b.laz", &w);
    write_copy("b.laz", "c.las", &none);
    test_same_files("b.las", "c.las");
    write_copy("a.las", "e.laz", &none);
    write_copy("e.laz", "f.laz", &w);
    write_copy("f.laz", "c.las", &none);
    test_same_files("b.las", "c.las");
    write_copy("b.las", "g.las", &other);
    assert_memory_equal(test_content("b.las", &n), test_content("g.las", &m),
                        AT + 3 * EXTRA);
    assert_int_equal(n, m);
    check_values("g.las", &other);
}

TEST(misfits_are_refused)
{
    const sp_scan_added own[] = {{"intensity", "", true, false}};
    const int32_t code[] = {31, 255, 256};
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    make_las(true);
    OK(sp_scan_open(&scan, "a.las", NULL));
    OK(sp_scan_check_labels(scan, "x.las", code, 2, 2, fields));
    FAILS(sp_scan_check_labels(scan, "x.laz", code, 3, 0, NULL), SP_EDATA,
          "class code 256, but LAS 1.4 format "
          "6 holds 0 to 255");
    FAILS(sp_scan_check_labels(scan, "x.las", code, 1, 1, own), SP_EDATA,
          "intensity is a field of every such file");
    FAILS(sp_scan_check_labels(scan, "x.label", code, 1, 1, fields), SP_EDATA,
          "no other field");
    assert_string_equal(sp_scan_output_ending(scan), ".las");
}

/* PLY and text have the fields as floats, and text is read back to the same numbers. */
TEST(columns_are_written)
{
    const want w = {2, 2};

    make_las(true);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "b.txt" : "b.ply";
        const char *const names[] = {"gps_time", "intensity"};
        CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0}, q = {0};

        write_copy("a.las", name, &w);
        check_values(name, &w);
        read_two(name, names, &p);
        read_two("a.las", names, &q);
        assert_memory_equal(p.xyz, q.xyz, N * 3 * sizeof *p.xyz);
        assert_memory_equal(p.attr, q.attr, N * 2 * sizeof *p.attr);
        assert_int_equal(p.label[1], q.label[1]);
    }
}

/* A name means the first field that has it; a copy has the others too. */
TEST(columns_of_one_name_keep_their_values)
{
    static const char text[] = "x y z intensity scalar_Intensity\n"
                               "0 0 0 1 10\n1 0 0 2 20\n2 0 0 3 30\n"
                               "3 0 0 4 40\n4 0 0 5 50\n";
    const want w = {0, 0};
    const char *copy;

    scan_write_text("twice.txt", text);
    write_copy("twice.txt", "copy.txt", &w);
    copy = test_content("copy.txt", NULL);
    assert_non_null(strstr(copy, " 2 20"));
    assert_non_null(strstr(copy, " 5 50"));
}

/* A copy has what no feature could be: numbers that are not finite, and integers that
 * no double holds. PLY has no integers of eight bytes. */
TEST(columns_keep_what_no_feature_holds)
{
    static const char head[] =
        "FIELDS x y z id t c rgb\nSIZE 4 4 4 8 8 4 4\nTYPE F F F U I F F\n"
        "WIDTH 5\nHEIGHT 1\nDATA binary\n";
    static const unsigned char nan[] = {0, 0, 0xc0, 0x7f}, bgr[] = {3, 2, 1, 0};
    enum { AT_ID = 12, ROW = AT_ID + 8 + 8 + 4 + 4, HEAD = sizeof head - 1 };
    const want w = {0, 0};
    unsigned char pcd[HEAD + N * ROW] = {0};
    const char *copy;

    memcpy(pcd, head, HEAD);
    for (unsigned char *row = pcd + HEAD, *end = row + N * ROW; row < end; row += ROW) {
        memset(row + AT_ID, 0xff, 16); /* 2^64 - 1 and -1 */
        row[AT_ID] = 0xfe;
        row[AT_ID + 8 + 7] = 0x7f; /* 2^63 - 1 */
        memcpy(row + AT_ID + 16, nan, sizeof nan);
        memcpy(row + AT_ID + 20, bgr, sizeof bgr);
    }
    scan_write("odd.pcd", pcd, sizeof pcd);
    write_copy("odd.pcd", "odd.txt", &w);
    assert_non_null(
        strstr(test_content("odd.txt", NULL),
               "id t c blue green red rgb label\n"
               "0 0 0 18446744073709551614 9223372036854775807 nan 3 2 1 "));
    write_copy("odd.pcd", "odd.ply", &w);
    copy = test_content("odd.ply", NULL);
    assert_non_null(strstr(copy, "double id\nproperty double t\nproperty float "
                                 "c\nproperty uchar blue\n"));
    assert_memory_equal(strstr(copy, "end_header\n") + 11 + 24 + 16, nan, sizeof nan);
}

/* Integers of ascii PCD have all their digits in a copy, also where a double rounds
 * them and where a format of few digits has an exponent; so have those of text below
 * 2^53. */
TEST(columns_of_text_keep_whole_numbers)
{
    static const char ids[] = "0 0 0 4478310 18446744073709551615 -9007199254740993\n"
                              "1 0 0 1 9007199254740993 2.0\n2 0 0 1 1e3 0\n"
                              "3 0 0 1 4 5\n4 0 0 1 4 -9223372036854775808\n";
    static const char *const bad[] = {"-1 0 0", "1.5 0 0", "1 18446744073709551616 0",
                                      "256 0 0", "1 0 9223372036854775808"};
    const want w = {0, 0};
    const sp_scan_labels labels = labels_of(&w);
    sp_scan *scan;
    char text[512];

    snprintf(text, sizeof text,
             "FIELDS x y z id u i\nSIZE 4 4 4 4 8 8\nTYPE F F F U U I\nWIDTH 5\n"
             "HEIGHT 1\nDATA ascii\n%s",
             ids);
    scan_write_text("ids.pcd", text);
    write_copy("ids.pcd", "copy.txt", &w);
    assert_string_equal(test_content("copy.txt", NULL),
                        "x y z id u i label\n"
                        "0 0 0 4478310 18446744073709551615 -9007199254740993 0\n"
                        "1 0 0 1 9007199254740993 2 -1\n2 0 0 1 1000 0 2\n"
                        "3 0 0 1 4 5 3\n4 0 0 1 4 -9223372036854775808 4\n");
    snprintf(text, sizeof text, "x y z id u i\n%s", ids);
    scan_write_text("ids.txt", text);
    OK(sp_scan_open(&scan, "ids.txt", NULL));
    FAILS(sp_scan_write(scan, "copy.txt", &labels), SP_EDATA,
          "line 2: value 5, u = 18446744073709551615, would be rounded to "
          "18446744073709551616");
    sp_scan_close(scan);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text,
                 "FIELDS x y z id u i\nSIZE 4 4 4 1 8 8\nTYPE F F F U U I\nWIDTH 1\n"
                 "HEIGHT 1\nDATA ascii\n0 0 0 %s\n",
                 bad[i]);
        scan_text_refused("bad.pcd", text, ", expected an integer of ");
    }
}

/* Text has numbers of any size; the header of a PLY tells how a copy stores them. */
TEST(columns_of_ascii_ply_keep_their_types)
{
    static const char text[] =
        "ply\nformat ascii 1.0\nelement vertex 5\nproperty float x\n"
        "property float y\nproperty float z\nproperty uchar red\n"
        "property float curvature\nproperty short id\nend_header\n"
        "0 0 0 1 0.5 -7\n1 0 0 2 nan 8\n2 0 0 3 1 9\n3 0 0 4 1 9\n"
        "4 0 0 255 1 -32768\n";
    const want w = {0, 0};
    const char *points;

    scan_write_text("types.ply", text);
    write_copy("types.ply", "copy.ply", &w);
    points = strstr(test_content("copy.ply", NULL),
                    "property uchar red\nproperty float curvature\nproperty "
                    "short id\nproperty int label\nend_header\n");
    assert_non_null(points);
    points = strstr(points, "end_header\n") + 11 + 24;
    assert_memory_equal(points, ((unsigned char[]){1, 0, 0, 0, 0x3f, 0xf9, 0xff}), 7);
}
