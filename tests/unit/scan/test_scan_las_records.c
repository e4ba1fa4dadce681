/* What LAS files of other writers have beside the points is found wherever the format
 * allows it, in extended records too, and copies keep it where it means something:
 * extra bytes of every type, numbers that stand for no value, classes above 31 of
 * LASzip's compatibility mode, short and long headers, the index of COPC. */
#include <string.h>

#include "base/sp_number.h"
#include "fixtures/scan_files.h"

enum { N = 4, VLR_HEAD = 54, EVLR_HEAD = 60, EXTRA = 192, MOST = 8192 };

/* A file that is put together from its beginning to its end. */
static unsigned char b[MOST];
static size_t size;
static uint32_t n_vlrs, n_evlrs;

static void begin(int header_bytes)
{
    memset(b, 0, sizeof b);
    size = (size_t)header_bytes;
    n_vlrs = n_evlrs = 0;
}

static void add_record(const char *user, int id, const void *data, size_t n)
{
    scan_put_vlr(b + size, user, id, (int)n);
    memcpy(b + size + VLR_HEAD, data, n);
    size += VLR_HEAD + n;
    n_vlrs++;
}

/* Adds N points of class 2 with these extra bytes after each record, and the header. */
static void add_points(int minor, int format, int header_bytes, const void *extra,
                       size_t n_extra)
{
    const int bytes = format < 6 ? 28 : 30;
    const scan_las las = {minor, format, (int64_t)size, n_vlrs, bytes + (int)n_extra,
                          N,     0.01};

    scan_put_las(b, &las);
    sp_put16(b + 94, (uint64_t)header_bytes);
    for (int i = 0; i < N; i++) {
        unsigned char *r = b + size;

        sp_put32(r, (uint64_t)(100 * i));
        r[14] = format < 6 ? 1 | 1 << 3 : 1 | 1 << 4;
        r[format < 6 ? 15 : 16] = 2;
        if (n_extra > 0)
            memcpy(r + bytes, (const char *)extra + (size_t)i * n_extra, n_extra);
        size += (size_t)bytes + n_extra;
    }
}

static void add_extended(const char *user, int id, const void *data, size_t n)
{
    if (n_evlrs++ == 0)
        sp_put64(b + 235, size);
    sp_put32(b + 243, n_evlrs);
    memcpy(b + size + 2, user, strlen(user));
    sp_put16(b + size + 18, (uint64_t)id);
    sp_put64(b + size + 20, n);
    memcpy(b + size + EVLR_HEAD, data, n);
    size += EVLR_HEAD + n;
}

static void describe(unsigned char d[EXTRA], const char *name, int type)
{
    memset(d, 0, EXTRA);
    d[2] = (unsigned char)type;
    memcpy(d + 4, name, strlen(name));
}

/* Reads one attribute of all points. */
static void read_values(const char *name, const char *attribute, double value[N])
{
    CLOSED_BY(sp_scan_done) sp_scan *scan;
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};

    OK(sp_scan_open(&scan, name, NULL));
    OK(sp_scan_select(scan, 1, &attribute));
    OK(sp_scan_next(scan, N + 1, &p));
    assert_int_equal(p.n, N);
    memcpy(value, p.attr, N * sizeof *value);
}

static void has_values(const char *name, const char *attribute, const double want[N])
{
    double value[N];

    read_values(name, attribute, value);
    for (int i = 0; i < N; i++)
        assert_float_equal(value[i], want[i], 1e-6);
}

/* ---- extra bytes ---- */

static void make_arrays(void)
{
    unsigned char d[2 * EXTRA];
    float extra[N][4];

    for (int i = 0; i < N; i++)
        for (int k = 0; k < 4; k++)
            extra[i][k] = (float)(10 * i + k);
    describe(d, "normal", 29); /* three floats */
    describe(d + EXTRA, "width", 9);
    begin(375);
    add_record("LASF_Spec", 4, d, sizeof d);
    add_points(4, 6, 375, extra, sizeof *extra);
    scan_write("arrays.las", b, size);
}

TEST(elements_of_extra_bytes_have_names)
{
    unsigned char d[EXTRA];
    uint16_t pairs[N][2] = {{0, 8}, {1, 16}, {2, 24}, {3, 32}};

    make_arrays();
    has_values("arrays.las", "normal0", (double[N]){0, 10, 20, 30});
    has_values("arrays.las", "normal2", (double[N]){2, 12, 22, 32});
    has_values("arrays.las", "width", (double[N]){3, 13, 23, 33});
    describe(d, "pair", 13);
    d[3] = 8 | 16; /* each element has its own scale and offset */
    sp_put_double(d + 112, 1);
    sp_put_double(d + 120, 0.25);
    sp_put_double(d + 144, -2);
    begin(375);
    add_record("LASF_Spec", 4, d, sizeof d);
    add_points(4, 6, 375, pairs, sizeof *pairs);
    scan_write("pairs.las", b, size);
    has_values("pairs.las", "pair0", (double[N]){0, 1, 2, 3});
    has_values("pairs.las", "pair1", (double[N]){0, 2, 4, 6});
}

/* no_data is a number as it is stored, before scale and offset. */
TEST(numbers_that_stand_for_no_value_are_not_values)
{
    const int16_t whole[N] = {100, -9999, 0, 200};
    const float real[N] = {1, -99.99F, 0, 2};
    const uint8_t small[N] = {1, 255, 0, 2};
    static const struct {
        int type, bytes;
        double no_data, scale;
        bool has_none; /* no point has the number */
    } cases[] = {{4, 2, -9999, 0.01, false}, {9, 4, -99.99, 1, false},
                 {1, 1, 255, 2, false},      {4, 2, -99.99, 0.01, true},
                 {1, 1, 511, 1, true},       {9, 4, 255, 1, true}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool is_real = cases[i].type == 9;
        const void *values = is_real               ? (const void *)real
                             : cases[i].bytes == 2 ? (const void *)whole
                                                   : (const void *)small;
        const char *const attribute = "a";
        CLOSED_BY(sp_scan_done) sp_scan *scan;
        CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
        unsigned char d[EXTRA];

        describe(d, "a", cases[i].type);
        d[3] = 1 | 8;
        if (is_real)
            sp_put_double(d + 40, cases[i].no_data);
        else
            sp_put64(d + 40, (uint64_t)(int64_t)cases[i].no_data);
        sp_put_double(d + 112, cases[i].scale);
        begin(375);
        add_record("LASF_Spec", 4, d, sizeof d);
        add_points(4, 6, 375, values, (size_t)cases[i].bytes);
        scan_write("none.las", b, size);
        OK(sp_scan_open(&scan, "none.las", NULL));
        OK(sp_scan_select(scan, 1, &attribute));
        assert_int_equal(sp_scan_next(scan, N, &p),
                         cases[i].has_none ? SP_OK : SP_EDATA);
    }
}

/* ---- extended records ---- */

static void make_extended(void)
{
    const uint16_t extra[N][2] = {{7, 1}, {14, 2}, {21, 3}, {28, 4}};
    unsigned char d[2 * EXTRA];

    begin(375);
    describe(d, "first", 3);
    add_record("LASF_Spec", 4, d, EXTRA);
    add_points(4, 6, 375, extra, sizeof *extra);
    add_extended("before", 1, "abc", 3);
    describe(d, "second", 3);
    add_extended("LASF_Spec", 4, d, EXTRA);
    add_extended("after", 2, "defg", 4);
    scan_write("extended.las", b, size);
}

static sp_status get_half(const void *from, int64_t first, int64_t n, int32_t *code,
                          float *value)
{
    const int32_t *codes = from;

    for (int64_t i = 0; i < n; i++) {
        code[i] = codes[first + i];
        value[i] = 0.5F;
    }
    return SP_OK;
}

static void write_copy(const char *from, const char *to, const int32_t code[N],
                       const char *added, bool is_float)
{
    CLOSED_BY(sp_scan_done) sp_scan *scan;
    sp_scan_added field = {.is_float = is_float};
    const sp_scan_labels labels = {.n = N,
                                   .n_added = added ? 1 : 0,
                                   .added = &field,
                                   .get = added ? get_half : scan_get_codes,
                                   .from = code};

    if (added)
        snprintf(field.name, sizeof field.name, "%s", added);
    OK(sp_scan_open(&scan, from, NULL));
    OK(sp_scan_write(scan, to, &labels));
}

static const int32_t codes[N] = {5, 6, 7, 8};

/* A copy without new fields is the same; one with them has all descriptions in one
 * record, since many readers look into VLRs only, and keeps the other records. */
TEST(extra_bytes_of_extended_records_are_found_and_kept)
{
    const unsigned char *c;
    int64_t at;
    size_t n;

    make_extended();
    has_values("extended.las", "second", (double[N]){1, 2, 3, 4});
    write_copy("extended.las", "same.las", codes, NULL, false);
    c = (const unsigned char *)test_content("same.las", &n);
    for (int i = 0; i < N; i++)
        b[375 + VLR_HEAD + EXTRA + i * 34 + 16] = (unsigned char)codes[i];
    assert_int_equal(n, size);
    assert_memory_equal(b, c, n);
    write_copy("extended.las", "more.las", codes, "confidence", false);
    has_values("more.las", "first", (double[N]){7, 14, 21, 28});
    has_values("more.las", "second", (double[N]){1, 2, 3, 4});
    assert_float_equal(scan_first_value("more.las", "confidence"), 0.5, 0.002);
    c = (const unsigned char *)test_content("more.las", &n);
    assert_int_equal(sp_get16(c + 375 + 20), 3 * EXTRA);
    assert_int_equal(sp_get32(c + 243), 2);
    at = (int64_t)sp_get64(c + 235);
    assert_int_equal((size_t)at + 2 * EVLR_HEAD + 3 + 4, n);
    assert_string_equal((const char *)c + at + 2, "before");
    assert_string_equal((const char *)c + at + EVLR_HEAD + 3 + 2, "after");
}

TEST(a_file_whose_only_extended_record_moves_has_none)
{
    const uint16_t extra[N] = {1, 2, 3, 4};
    const unsigned char *c;
    unsigned char d[EXTRA];
    size_t n;

    begin(375);
    add_points(4, 6, 375, extra, sizeof *extra);
    describe(d, "a", 3);
    add_extended("LASF_Spec", 4, d, EXTRA);
    scan_write("one.las", b, size);
    write_copy("one.las", "two.las", codes, "confidence", true);
    has_values("two.las", "a", (double[N]){1, 2, 3, 4});
    has_values("two.las", "confidence", (double[N]){0.5, 0.5, 0.5, 0.5});
    c = (const unsigned char *)test_content("two.las", &n);
    assert_int_equal(sp_get32(c + 243), 0);
    assert_int_equal(sp_get64(c + 235), 0);
    assert_int_equal(sp_get32(c + 96) + N * (30 + 2 + 4), n);
}

/* ---- fields that are there already ---- */

/* The field keeps its type and its place, and those after it keep their values. */
TEST(a_field_of_any_type_is_replaced)
{
    static const struct {
        int type, bytes;
    } types[] = {{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 4},
                 {6, 4}, {7, 8}, {8, 8}, {9, 4}, {10, 8}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        unsigned char d[2 * EXTRA], extra[N][9] = {{0}};
        const size_t bytes = (size_t)types[i].bytes + 1;

        for (int k = 0; k < N; k++)
            (&extra[0][0])[(size_t)k * bytes + bytes - 1] = (unsigned char)(k + 1);
        describe(d, "Confidence", types[i].type);
        d[3] = 1; /* no_data is 0, which no probability may become */
        describe(d + EXTRA, "tail", 1);
        begin(375);
        add_record("LASF_Spec", 4, d, sizeof d);
        add_points(4, 6, 375, extra, bytes);
        scan_write("field.las", b, size);
        write_copy("field.las", "new.las", codes, "confidence", i % 2 == 0);
        assert_int_equal(
            sp_get16((const unsigned char *)test_content("new.las", NULL) + 105),
            30 + bytes);
        assert_float_equal(scan_first_value("new.las", "confidence"), 0.5, 0.005);
        has_values("new.las", "tail", (double[N]){1, 2, 3, 4});
    }
}

/* ---- headers ---- */

TEST(headers_of_other_lengths_are_read)
{
    static const struct {
        int minor, format, bytes;
        uint32_t more_vlrs;
    } heads[] = {{3, 1, 227, 0}, {5, 6, 393, 0}, {5, 6, 375, 0},
                 {2, 1, 227, 1}, {4, 6, 375, 7}, {2, 1, 227, 4000000000}};

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        unsigned char d[EXTRA];
        const uint16_t extra[N] = {1, 2, 3, 4};

        describe(d, "a", 3);
        begin(heads[i].bytes);
        add_record("LASF_Spec", 4, d, EXTRA);
        add_points(heads[i].minor, heads[i].format, heads[i].bytes, extra,
                   sizeof *extra);
        if (heads[i].minor == 5) {
            sp_put64(b + 247, N);
            sp_put32(b + 107, 77); /* nothing has to be here */
        }
        sp_put32(b + 100, 1 + heads[i].more_vlrs);
        scan_write("head.las", b, size);
        has_values("head.las", "a", (double[N]){1, 2, 3, 4});
        for (int k = 0; k < 2; k++) {
            const char *name = k ? "copy.laz" : "copy.las";

            write_copy("head.las", name, codes, "confidence", false);
            has_values(name, "a", (double[N]){1, 2, 3, 4});
            has_values(name, "classification", (double[N]){5, 6, 7, 8});
            assert_int_equal(
                sp_get32((const unsigned char *)test_content(name, NULL) + 100), 1 + k);
        }
    }
}

TEST(a_later_version_is_refused)
{
    begin(375);
    add_points(4, 6, 375, NULL, 0);
    b[25] = 6;
    scan_refused("later.las", b, size, "LAS version 1.6, expected 1.0 to 1.5");
}

/* ---- classes above 31 in formats 0 to 5 ---- */

TEST(classes_of_the_compatibility_mode_are_read_and_written)
{
    const int32_t others[N] = {40, 6, 200, SP_SCAN_KEEP};
    const uint8_t wide[N] = {0, 40, 0, 200};
    unsigned char d[EXTRA], nothing[8] = {0};
    CLOSED_BY(sp_scan_done) sp_scan *scan;

    describe(d, "LAS 1.4 classification", 1);
    begin(227);
    add_record("LASF_Spec", 4, d, EXTRA);
    add_record("lascompatible", 22204, nothing, sizeof nothing);
    add_points(2, 1, 227, wide, 1);
    scan_write("wide.las", b, size);
    has_values("wide.las", "classification", (double[N]){2, 40, 2, 200});
    write_copy("wide.las", "other.las", others, NULL, false);
    has_values("other.las", "classification", (double[N]){40, 6, 200, 200});
    OK(sp_scan_open(&scan, "wide.las", NULL));
    FAILS(sp_scan_check_labels(scan, "x.las", &(int32_t){256}, 1, 0, NULL), SP_EDATA,
          "holds 0 to 255");
    b[227 + VLR_HEAD + EXTRA + 2] = 'L'; /* without the record these are other bytes */
    scan_write("plain.las", b, size);
    has_values("plain.las", "classification", (double[N]){2, 2, 2, 2});
}

/* ---- COPC ---- */

/* Records of COPC that a LAS file has are what some program left there. */
TEST(only_copc_has_records_of_copc)
{
    static const char *const names[] = {"no.las", "no.laz"};
    unsigned char info[160] = {0};

    begin(375);
    add_record("copc", 1, info, sizeof info);
    add_record("kept", 3, "x", 1);
    add_record("copc", 10000, "y", 1);
    add_points(4, 6, 375, NULL, 0);
    add_extended("copc", 1000, info, 32);
    add_extended("kept", 4, "z", 1);
    scan_write("left.las", b, size);
    for (int k = 0; k < 2; k++) {
        const unsigned char *c;
        uint64_t at;
        size_t n;

        write_copy("left.las", names[k], codes, NULL, false);
        has_values(names[k], "classification", (double[N]){5, 6, 7, 8});
        c = (const unsigned char *)test_content(names[k], &n);
        assert_int_equal(sp_get32(c + 100), 1 + k);
        assert_string_equal((const char *)c + 375 + 2, "kept");
        at = sp_get64(c + 235);
        assert_int_equal(sp_get32(c + 243), 1);
        assert_int_equal(at + EVLR_HEAD + 1, n);
        assert_string_equal((const char *)c + at + 2, "kept");
        assert_int_equal(c[n - 1], 'z');
    }
}

/* ---- records that are cut off ---- */

/* The last VLR claims to run into the points, or has the half of a description. New
 * records follow what is there. */
TEST(records_that_are_cut_off_are_followed_by_new_ones)
{
    static const int lengths[] = {2, EXTRA / 2, EXTRA, EXTRA + 50};

    for (size_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        const uint16_t extra[N] = {1, 2, 3, 4};
        unsigned char d[2 * EXTRA];
        const bool is_claimed = i % 2;

        describe(d, "a", 3);
        memset(d + EXTRA, 0, EXTRA);
        begin(375);
        add_record("LASF_Spec  ", 4, d, (size_t)lengths[i / 2]);
        if (is_claimed)
            sp_put16(b + 375 + 20, 60000);
        add_points(4, 6, 375, extra, sizeof *extra);
        scan_write("cut.las", b, size);
        for (int k = 0; k < 2; k++) {
            const char *name = k ? "mended.laz" : "mended.las";

            write_copy("cut.las", name, codes, "confidence", false);
            has_values(name, "classification", (double[N]){5, 6, 7, 8});
            assert_float_equal(scan_first_value(name, "confidence"), 0.5, 0.002);
            if (lengths[i / 2] >= EXTRA)
                has_values(name, "a", (double[N]){1, 2, 3, 4});
        }
    }
}
