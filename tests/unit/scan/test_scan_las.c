/* LAS of every version and format gives the same points, labels and attributes; damage
 * is refused with a message that says what was expected; a copy has other classes, and
 * all other bytes of the scan. */
#include "base/sp_number.h"
#include "fixtures/laz_points.h"
#include "fixtures/scan_files.h"
#include "scan/sp_scan_las.h"

#include <unistd.h>

/* Makes a LAS 1.minor file of this format with `extra` bytes after each record; returns
 * its size. */
static size_t make_las(unsigned char *b, int minor, int format, int extra)
{
    int header = scan_las_bytes(minor), bytes = laz_record_bytes(format) + extra;
    int vlr = extra ? SCAN_EXTRA_BYTES : 0;
    const scan_las las = {minor, format,      header + vlr, extra ? 1 : 0,
                          bytes, SCAN_POINTS, 0.01};

    memset(b, 0, 4096);
    scan_put_las(b, &las);
    for (int a = 0; a < 2; a++)
        scan_put(b + 155 + 8 * a, 700000, 'f', 8, false);
    if (extra)
        scan_put_extra(b + header);
    for (int i = 0; i < SCAN_POINTS; i++) {
        unsigned char *r = b + header + vlr + i * bytes;

        for (int a = 0; a < 3; a++)
            scan_put(r + 4 * a, round((scan_xyz[i][a] - (a == 2 ? 0 : 700000)) * 100),
                     'i', 4, false);
        scan_put(r + 12, scan_intensity[i], 'u', 2, false);
        r[14] = format < 6 ? 2 | 3 << 3 | 1 << 7 : 9 | 11 << 4;
        r[15] = (unsigned char)(format < 6 ? scan_label[i] | 1 << 5 | 1 << 7
                                           : 1 << 3 | 2 << 4);
        r[16] = (unsigned char)(format < 6 ? -7 : scan_label[i]);
        r[17] = 77;
        scan_put(r + 18, format < 6 ? 1234 : -2000, 'i', 2, false);
        scan_put(r + 20, format < 6 ? 0 : 1234, 'u', 2, false);
        scan_put(r + laz_record_bytes(format), -3, 'i', extra, false);
    }
    return (size_t)(header + vlr + SCAN_POINTS * bytes);
}

TEST(las_of_every_format)
{
    unsigned char b[4096];

    for (int format = 0; format <= 10; format++) {
        int minor = format >= 6 ? 4 : 2 + format / 4;
        size_t n = make_las(b, minor, format, 0);

        scan_write("a.las", b, n);
        scan_check_points("a.las", NULL, "intensity", 1e-8);
        scan_refused("a.las", b, n - 1, "truncated: 3 points");
    }
}

TEST(las_attributes_are_unpacked)
{
    unsigned char b[4096];
    size_t n = make_las(b, 2, 3, 2);
    unsigned char *r = b + n - SCAN_POINTS * 36;

    scan_put(r + 20, 1.5e8, 'f', 8, false);
    scan_put(r + 28, 65535, 'u', 2, false);
    scan_put(r + 32, 258, 'u', 2, false);
    scan_write("b.las", b, n);
    assert_true(scan_first_value("b.las", "return_number") == 2);
    assert_true(scan_first_value("b.las", "number_of_returns") == 3);
    assert_true(scan_first_value("b.las", "edge_of_flight_line") == 1);
    assert_true(scan_first_value("b.las", "scan_direction_flag") == 0);
    assert_true(scan_first_value("b.las", "synthetic") == 1);
    assert_true(scan_first_value("b.las", "withheld") == 1);
    assert_true(scan_first_value("b.las", "scan_angle") == -7);
    assert_true(scan_first_value("b.las", "user_data") == 77);
    assert_true(scan_first_value("b.las", "point_source_id") == 1234);
    assert_true(scan_first_value("b.las", "gps_time") == 1.5e8);
    assert_true(scan_first_value("b.las", "RED") == 65535);
    assert_true(scan_first_value("b.las", "blue") == 258);
    assert_true(scan_first_value("b.las", "deviation") == -3 * 0.5 + 10);
    n = make_las(b, 4, 8, 0);
    scan_put(b + 375 + 36, 999, 'u', 2, false);
    scan_write("b.las", b, n);
    assert_true(scan_first_value("b.las", "return_number") == 9);
    assert_true(scan_first_value("b.las", "number_of_returns") == 11);
    assert_true(scan_first_value("b.las", "overlap") == 1);
    assert_true(scan_first_value("b.las", "scanner_channel") == 2);
    assert_true(fabs(scan_first_value("b.las", "scan_angle") + 12) < 1e-12);
    assert_true(scan_first_value("b.las", "point_source_id") == 1234);
    assert_true(scan_first_value("b.las", "nir") == 999);
}

TEST(damaged_las_is_refused)
{
    static const struct {
        int at, size;
        char kind;
        double number;
        const char *file, *says;
    } damages[] = {
        {104, 1, 'u', 11, "c.las", "point data format 11, expected 0 to 10"},
        {104, 1, 'u', 6 | 0x80, "c.laz", "it has no LAZ record"},
        {107, 4, 'u', SCAN_POINTS + 1, "c.las", "header counts 4 points"},
        {105, 2, 'u', 29, "c.las", "records of 29 bytes"},
        {131, 8, 'f', NAN, "c.las", "x has scale nan and offset 700000"},
        {247, 8, 'u', 1e18, "c.las", "truncated"},
    };
    unsigned char good[4096], b[4096];
    const size_t n = make_las(good, 4, 6, 0);

    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        memcpy(b, good, n);
        scan_put(b + damages[i].at, damages[i].number, damages[i].kind, damages[i].size,
                 false);
        scan_refused(damages[i].file, b, n, damages[i].says);
    }
    scan_refused("c.las", good, 100, "file ends at byte 100");
}

TEST(las_is_copied_with_other_classes)
{
    const int32_t code[SCAN_POINTS] = {31, SP_SCAN_NO_CLASS, SP_SCAN_KEEP},
                  large[SCAN_POINTS] = {32, 0, 0};
    const sp_scan_labels labels = {
        .n = SCAN_POINTS, .get = scan_get_codes, .from = code};
    const sp_scan_labels too_large = {
        .n = SCAN_POINTS, .get = scan_get_codes, .from = large};
    unsigned char b[4096];
    const char *const copy = "e.las", *written;
    size_t n = make_las(b, 2, 1, 0), n_written;
    sp_scan *scan;

    scan_write("d.las", b, n);
    OK(sp_scan_open(&scan, "d.las", NULL));
    assert_int_equal(sp_scan_write(scan, copy, &too_large), SP_EDATA);
    assert_int_equal(access(copy, F_OK), -1);
    FAILS(sp_scan_write(scan, "e.pcd", &labels), SP_EUSAGE,
          "one of .las .laz .ply .label");
    OK(sp_scan_write(scan, copy, &labels));
    sp_scan_close(scan);
    written = test_content(copy, &n_written);
    assert_int_equal(n_written, n);
    for (int i = 0; i < 2; i++) {
        unsigned char *class = b + 227 + 28 * i + 15;

        *class = (unsigned char)((*class & 0xe0) | (i == 0 ? 31 : 0));
    }
    assert_memory_equal(b, written, n);
}

/* Formats below 6 have 5 bits for the class, the others a byte. */
TEST(class_codes_have_the_bits_of_the_format)
{
    static const struct {
        int format, most;
    } row[] = {{0, 31}, {3, 31}, {5, 31}, {6, 255}, {8, 255}};
    unsigned char b[4096];

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const int32_t code[] = {0, row[i].most, row[i].most + 1};
        CLOSED_BY(sp_scan_done) sp_scan *scan;
        char text[64];

        scan_write("a.las", b, make_las(b, 4, row[i].format, 0));
        OK(sp_scan_open(&scan, "a.las", NULL));
        OK(sp_scan_check_labels(scan, "x.las", code, 2, 0, NULL));
        snprintf(text, sizeof text,
                 "class code %d, but LAS 1.4 format %d holds 0 to %d", code[2],
                 row[i].format, row[i].most);
        FAILS(sp_scan_check_labels(scan, "x.las", code, 3, 0, NULL), SP_EDATA, text);
    }
}

/* ---- COPC ---- */

enum {
    COPC_POINTS = 100,
    COPC_RECORD = 30,
    COPC_CHUNKS = 3,
    COPC_INFO = 160,
    COPC_LAZ = 375 + SCAN_VLR_HEAD + COPC_INFO, /* where the LAZ record is */
    COPC_PAGE = 60,                             /* of the extended record */
    COPC_ENTRY = 32
};

/* Writes COPC of format 6: chunks of different sizes, and an index that names them, one
 * further page and a place without points. */
static void make_copc(const char *name)
{
    static const int64_t n[COPC_CHUNKS] = {50, 20, 30};
    unsigned char head[COPC_LAZ + SCAN_VLR_HEAD + SP_LAZ_VLR_BYTES] = {0};
    unsigned char points[COPC_POINTS * COPC_RECORD], *from = points;
    unsigned char page[COPC_PAGE + 5 * COPC_ENTRY] = {0}, *entry = page + COPC_PAGE;
    FILE *to = fopen(name, "wb");
    const sp_laz_place *chunk;
    int64_t n_chunks, index_at;
    sp_laz_format f;
    sp_laz_writer *w;
    size_t bytes;

    assert_non_null(to);
    sp_laz_format_default(&f, 6, COPC_RECORD);
    f.chunk_points = UINT32_MAX;
    bytes = sp_laz_format_write(&f, head + COPC_LAZ + SCAN_VLR_HEAD);
    scan_put_vlr(head + 375, "copc", 1, COPC_INFO);
    scan_put_vlr(head + COPC_LAZ, SP_LAZ_USER_ID, SP_LAZ_RECORD_ID, (int)bytes);
    bytes += COPC_LAZ + SCAN_VLR_HEAD;
    scan_put_las(head,
                 &(scan_las){4, 6, (int64_t)bytes, 2, COPC_RECORD, COPC_POINTS, 0.01});
    head[104] |= 0x80;
    assert_int_equal(fwrite(head, 1, bytes, to), bytes);
    laz_points_fill(points, COPC_POINTS, 6, COPC_RECORD, false, 1);
    OK(sp_laz_create(&w, name, to, &f, 1));
    for (int i = 0; i < COPC_CHUNKS; from += n[i++] * COPC_RECORD) {
        OK(sp_laz_write(w, from, n[i]));
        OK(sp_laz_cut(w));
    }
    OK(sp_laz_finish(w));
    index_at = ftello(to) + COPC_PAGE;
    chunk = sp_laz_written(w, &n_chunks);
    for (int i = 0; i < COPC_CHUNKS; i++, entry += COPC_ENTRY) {
        sp_put64(entry + 16, (uint64_t)chunk[i].at);
        sp_put32(entry + 24, (uint64_t)chunk[i].bytes);
        sp_put32(entry + 28, (uint64_t)chunk[i].n);
    }
    sp_laz_abandon(w);
    sp_put64(entry + 16, (uint64_t)index_at + 4 * COPC_ENTRY);
    sp_put32(entry + 24, COPC_ENTRY);
    sp_put32(entry + 28, UINT32_MAX);
    memcpy(page + 2, "copc", 5);
    sp_put16(page + 18, 1000);
    sp_put64(page + 20, sizeof page - COPC_PAGE);
    assert_int_equal(fwrite(page, 1, sizeof page, to), sizeof page);
    sp_put64(head + 235, (uint64_t)index_at - COPC_PAGE);
    sp_put32(head + 243, 1);
    sp_put64(head + 375 + SCAN_VLR_HEAD + 40, (uint64_t)index_at);
    rewind(to);
    assert_int_equal(fwrite(head, 1, bytes, to), bytes);
    assert_int_equal(fclose(to), 0);
}

/* All points of the copy have one class, which makes its chunks smaller. */
TEST(the_index_of_copc_names_the_chunks_of_the_copy)
{
    int32_t code[COPC_POINTS];
    const sp_scan_labels labels = {
        .n = COPC_POINTS, .get = scan_get_codes, .from = code};
    const sp_laz_place *chunk, *before;
    const unsigned char *entry;
    CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;
    CLOSED_BY(sp_scan_done) sp_scan *copy = NULL;
    bool is_other = false;
    int64_t n, index_at;
    size_t n_bytes;

    for (int i = 0; i < COPC_POINTS; i++)
        code[i] = 2;
    make_copc("a.laz");
    OK(sp_scan_open(&scan, "a.laz", NULL));
    OK(sp_scan_write(scan, "b.laz", &labels));
    OK(sp_scan_open(&copy, "b.laz", NULL));
    before = sp_laz_chunks(sp_las_of(scan)->reader, &n);
    chunk = sp_laz_chunks(sp_las_of(copy)->reader, &n);
    assert_int_equal(n, COPC_CHUNKS);
    entry = (const unsigned char *)test_content("b.laz", &n_bytes);
    index_at = (int64_t)sp_get64(entry + 235) + COPC_PAGE;
    assert_int_equal(index_at + 5 * COPC_ENTRY, n_bytes);
    assert_int_equal(sp_get64(entry + 375 + SCAN_VLR_HEAD + 40), index_at);
    entry += index_at;
    for (int i = 0; i < COPC_CHUNKS; i++, entry += COPC_ENTRY) {
        assert_int_equal(sp_get64(entry + 16), chunk[i].at);
        assert_int_equal(sp_get32(entry + 24), chunk[i].bytes);
        assert_int_equal(sp_get32(entry + 28), chunk[i].n);
        is_other = is_other || chunk[i].bytes != before[i].bytes;
    }
    assert_true(is_other);
    assert_int_equal(sp_get64(entry + 16), index_at + 4 * COPC_ENTRY);
}
