/* Scans in parts: reading by sp_scan_limit gives the rows of the whole scan, in its
 * order, and a copy that several have written is byte for byte that of one, as LAS and
 * as LAZ. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixtures/scan_files.h"

enum { N = 120000, HEADER = 375, RECORD = 30, BEHIND = 60 + 9, MOST = 5 };

/* LAS 1.4 of format 6, with an extended record behind the points. */
static void make_las(const char *name, int64_t n)
{
    const size_t bytes = HEADER + (size_t)n * RECORD + BEHIND;
    const scan_las las = {4, 6, HEADER, 0, RECORD, n, 0.01};
    unsigned char *b = calloc(1, bytes), *p = b + HEADER;

    assert_non_null(b);
    scan_put_las(b, &las);
    scan_put(b + 235, (double)(bytes - BEHIND), 'u', 8, false);
    scan_put(b + 243, 1, 'u', 4, false);
    for (int64_t i = 0; i < n; i++, p += RECORD) {
        scan_put(p, (double)(i % 977 * 31), 'i', 4, false);
        scan_put(p + 4, (double)(i / 977), 'i', 4, false);
        scan_put(p + 8, (double)(i * i % 701), 'i', 4, false);
        scan_put(p + 12, (double)(i % 60000), 'u', 2, false);
        p[14] = 0x11;
    }
    memcpy(p + 2, "behind", 6);
    scan_put(p + 20, 9, 'u', 8, false);
    memset(p + 60, 'e', 9);
    scan_write(name, b, bytes);
    free(b);
}

static void make_text(const char *name)
{
    static char text[400 * 32];
    size_t used = (size_t)snprintf(text, sizeof text, "x y z label\n");

    for (int i = 0; i < 400; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d %d %d %d\n", i, i,
                                 i, i % 3);
    scan_write_text(name, text);
}

/* A class that follows from the row; rows are asked for by one thread. */
typedef struct asked {
    int64_t first, n; /* the rows that may be asked for: n of every n_parts * n */
    int n_parts;
} asked;

static sp_status get(const void *from, int64_t first, int64_t n, int32_t *code,
                     float *value)
{
    const asked *a = from;

    if (!a)
        return SP_FAIL(SP_EIO, "nothing is asked for while parts are joined");
    for (int64_t i = 0; i < n; i++) {
        assert_true((first + i) / a->n % a->n_parts == a->first);
        code[i] = (int32_t)((first + i) * 7 % 200);
        value[i] = (float)((first + i) % 256) / 255;
    }
    return SP_OK;
}

static const sp_scan_added field = {"confidence", "of the class", false, false};

static sp_scan_labels labels_of(const sp_scan *scan, const asked *a)
{
    return (sp_scan_labels){
        .n = sp_scan_count(scan), .n_added = 1, .added = &field, .get = get, .from = a};
}

static sp_scan *open_scan(const char *name, int n_threads)
{
    const sp_scan_options options = {.n_threads = n_threads};
    sp_scan *scan;

    OK(sp_scan_open(&scan, name, &options));
    return scan;
}

/* Writes `from` to a file of this ending by one and by n writers. */
static void check_write(const char *from, const char *ending, int n, int n_threads)
{
    char want[16], found[16], text[MOST][16], *path[MOST];
    CLOSED_BY(sp_scan_done) sp_scan *scan = open_scan(from, n_threads);
    const asked all = {.n = 1, .n_parts = 1};
    sp_scan_labels labels = labels_of(scan, &all);
    int64_t section;

    snprintf(want, sizeof want, "want%s", ending);
    snprintf(found, sizeof found, "found%s", ending);
    OK(sp_scan_write(scan, want, &labels));
    section = sp_scan_section(scan, found);
    assert_true(section > 0);
    for (int k = n - 1; k >= 0; k--) {
        const asked some = {.first = k, .n = section, .n_parts = n};

        snprintf(path[k] = text[k], sizeof text[k], "part.%d", k);
        labels.from = &some;
        OK(sp_scan_rewind(scan));
        OK(sp_scan_write_part(scan, found, &labels, k, n, path[k]));
        sp_scan_close(scan);
        scan = open_scan(from, n_threads);
    }
    labels.from = NULL;
    OK(sp_scan_join(scan, found, &labels, n, path));
    test_same_files(want, found);
}

TEST(copies_do_not_depend_on_the_writers)
{
    make_las("a.las", N);
    make_las("few.las", 7);
    for (int n = 1; n <= MOST; n++) {
        check_write("a.las", ".las", n, 1);
        check_write("a.las", ".laz", n, n);
        check_write("few.las", ".laz", n, 2); /* most have no section */
    }
}

TEST(laz_is_divided_between_chunks)
{
    const asked all = {.n = 1, .n_parts = 1};
    sp_scan *scan = open_scan("a.las", 1);
    sp_scan_labels labels = labels_of(scan, &all);

    OK(sp_scan_write(scan, "a.laz", &labels));
    sp_scan_close(scan);
    for (int n = 1; n <= MOST; n++) {
        check_write("a.laz", ".laz", n, n);
        check_write("a.laz", ".las", n, 1);
    }
}

/* Reads part by part and compares with the whole. */
static void check_read(const char *name, int n_parts, int n_threads, bool is_divided)
{
    CLOSED_BY(sp_scan_done)
    sp_scan *whole = open_scan(name, 1), *some = open_scan(name, n_threads);
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points want = {0}, got = {0};
    int64_t row = 0;

    for (int k = 0; k < n_parts; k++) {
        OK(sp_scan_limit(some, k, n_parts));
        for (int again = 0; again < 2; again++) { /* the second time from the start */
            int64_t n = 0;

            OK(sp_scan_rewind(some));
            do {
                OK(sp_scan_next(some, 7001, &got));
                if (got.n > 0 && again) {
                    assert_int_equal(got.first_row, row);
                    OK(sp_scan_next(whole, got.n, &want));
                    assert_int_equal(want.n, got.n);
                    assert_memory_equal(want.xyz, got.xyz,
                                        (size_t)(3 * got.n) * sizeof *got.xyz);
                }
                row += again ? got.n : 0;
                n += got.n;
            } while (got.n > 0);
            if (!is_divided)
                assert_true(n == 0 || k == 0);
        }
        assert_true(!is_divided || n_parts > 2 || row > 0);
    }
    OK(sp_scan_next(whole, 1, &want));
    assert_int_equal(want.n, 0);
    assert_int_equal(sp_scan_count(whole) < 0 ? row : sp_scan_count(whole), row);
}

TEST(parts_have_all_rows_once)
{
    make_text("t.txt");
    for (int n = 1; n <= MOST; n++) {
        check_read("a.las", n, 1, true);
        check_read("few.las", n, 1, true);
        check_read("a.laz", n, n, true);
        check_read("t.txt", n, 1, false);
    }
}
