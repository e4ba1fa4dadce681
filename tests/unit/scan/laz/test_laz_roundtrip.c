/* Points that were written are read again byte for byte: every point format and version
 * of its items, with extra bytes, of any number of points and in chunks of any size, by
 * any number of threads; and damage is refused or, rarely, gives other points. */
#include "base/sp_number.h"
#include "fixtures/laz_points.h"
#include "fixtures/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 100, MOST = 700 };

static const char path[] = "a.laz";
static unsigned char given[MOST * LAZ_MOST_BYTES], got[MOST * LAZ_MOST_BYTES];

/* Where the points of a file that laz_file_write made begin. */
static int64_t begin_of(const sp_laz_format *format, int point_format)
{
    unsigned char vlr[SP_LAZ_VLR_BYTES];

    return (point_format < 4   ? 227
            : point_format < 6 ? 235
                               : 375) +
           54 + (int64_t)sp_laz_format_write(format, vlr);
}

/* Opens that file. */
static sp_status open_file(sp_laz_reader **r, sp_laz_file *file,
                           const sp_laz_format *format, int point_format, int64_t n,
                           int n_threads)
{
    struct stat st;

    file->path = path;
    file->fd = open(path, O_RDONLY);
    assert_true(file->fd >= 0 && fstat(file->fd, &st) == 0);
    file->file_bytes = st.st_size;
    file->at = begin_of(format, point_format);
    file->n_points = n;
    return sp_laz_open(r, file, format, n_threads);
}

static sp_status read_all(sp_laz_reader *r, int64_t portion, int record_bytes,
                          int64_t *n)
{
    int64_t some;

    *n = 0;
    do {
        SP_TRY(sp_laz_next(r, *n + portion < MOST ? portion : MOST - *n,
                           got + *n * record_bytes, &some));
        *n += some;
    } while (some > 0 && *n < MOST);
    return SP_OK;
}

static void check_read(const sp_laz_format *format, int point_format, int64_t n,
                       int64_t portion, int n_threads)
{
    sp_laz_reader *r;
    sp_laz_file file;
    int64_t read;

    OK(open_file(&r, &file, format, point_format, n, n_threads));
    for (int again = 0; again < 2; again++) {
        memset(got, 0xee, sizeof got);
        OK(read_all(r, portion, format->record_bytes, &read));
        assert_int_equal(read, n);
        assert_memory_equal(given, got, (size_t)n * (size_t)format->record_bytes);
        OK(sp_laz_rewind(r));
    }
    sp_laz_close(r);
    close(file.fd);
}

static void check(const sp_laz_format *format, int point_format, int64_t n,
                  bool is_wild, int n_threads)
{
    laz_points_fill(given, n, point_format, format->record_bytes, is_wild,
                    (uint64_t)(n + point_format));
    OK(laz_file_write(path, format, point_format, given, n, 77, n_threads));
    check_read(format, point_format, n, 33 * n_threads, 1);
    check_read(format, point_format, n, 150, 3);
}

static sp_laz_format format_of(int point_format, int extra, uint32_t chunk_points)
{
    sp_laz_format f;

    sp_laz_format_default(&f, point_format, laz_record_bytes(point_format) + extra);
    f.chunk_points = chunk_points;
    return f;
}

TEST(every_format_comes_back)
{
    for (int p = 0; p < LAZ_FORMATS; p++)
        for (int k = 0; k < 4; k++) {
            sp_laz_format f = format_of(p, k % 2 ? 5 : 0, CHUNK);

            check(&f, p, 431, k / 2, 1 + k % 3);
        }
}

TEST(other_versions_come_back)
{
    for (int p = 0; p < LAZ_FORMATS; p++) {
        sp_laz_format f = format_of(p, 2, CHUNK);

        for (int i = 0; i < f.n_items; i++)
            if (f.item[i].type != SP_LAZ_WAVEPACKET13)
                f.item[i].version = p < 6 ? 1 : 4;
        check(&f, p, 431, false, 1);
        check(&f, p, 431, true, 2);
    }
}

TEST(any_number_of_points_comes_back)
{
    static const int64_t n[] = {0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK};

    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        sp_laz_format old = format_of(3, 1, CHUNK), new = format_of(10, 1, CHUNK);

        check(&old, 3, n[i], false, 2);
        check(&new, 10, n[i], false, 2);
        old.chunk_points = new.chunk_points = 1;
        check(&old, 3, n[i], false, 1);
        check(&new, 10, n[i], false, 2);
    }
}

TEST(chunks_may_differ)
{
    int64_t n;

    for (int p = 1; p < LAZ_FORMATS; p += 6) {
        sp_laz_format f = format_of(p, 0, UINT32_MAX);
        sp_laz_reader *r;
        sp_laz_file file;

        check(&f, p, 431, false, 2);
        OK(open_file(&r, &file, &f, p, 431, 1));
        assert_non_null(sp_laz_chunks(r, &n));
        assert_int_equal(n, 6);
        assert_int_equal(sp_laz_chunks(r, &n)[5].first, 385);
        OK(sp_laz_select(r, 2, 6, 1));
        OK(sp_laz_next(r, 1, got, &n));
        assert_memory_equal(got, given + 154 * f.record_bytes, (size_t)f.record_bytes);
        sp_laz_close(r);
        close(file.fd);
    }
}

/* The last chunk of a table may be empty; here a thread of its own decodes it. */
TEST(an_empty_last_chunk_is_read)
{
    for (int p = 1; p < LAZ_FORMATS; p += 6) {
        sp_laz_format f = format_of(p, 0, CHUNK);
        FILE *to = fopen(path, "wb");
        sp_laz_writer *w;

        assert_non_null(to);
        laz_points_fill(given, CHUNK, p, f.record_bytes, false, 1);
        laz_head_write(to, &f, p, CHUNK);
        OK(sp_laz_create(&w, path, to, &f, 1));
        OK(sp_laz_write(w, given, CHUNK));
        OK(sp_laz_put(w, given, 0, 0));
        OK(sp_laz_finish(w));
        sp_laz_abandon(w);
        fclose(to);
        check_read(&f, p, CHUNK, 33, 2);
    }
}

/* Points that never change, and numbers at the ends of their range. */
TEST(extremes_come_back)
{
    for (int p = 0; p < LAZ_FORMATS; p++) {
        sp_laz_format f = format_of(p, 3, CHUNK);
        size_t bytes = (size_t)f.record_bytes;

        for (int k = 0; k < 3; k++) {
            for (size_t i = 0; i < 250; i++)
                memset(given + i * bytes, k == 2 && i % 2 ? 0x80 : k ? 0x7f : 0, bytes);
            OK(laz_file_write(path, &f, p, given, 250, 250, 1));
            check_read(&f, p, 250, 250, 1);
        }
    }
}

/* Overwrites bytes of the file. */
static void poke(int64_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);

    assert_int_equal(pwrite(fd, bytes, n, at), n);
    close(fd);
}

static void poke_number(int64_t at, int64_t number)
{
    unsigned char bytes[8];

    sp_put64(bytes, (uint64_t)number);
    poke(at, bytes, sizeof bytes);
}

TEST(a_missing_table_is_done_without)
{
    for (int p = 1; p < LAZ_FORMATS; p += 6) {
        const sp_laz_format f = format_of(p, 0, CHUNK);
        const int64_t at = begin_of(&f, p);

        check(&f, p, 431, false, 1);
        poke_number(at, -1);
        check_read(&f, p, 431, 33, 2);
        poke_number(at, at);
        check_read(&f, p, 431, 700, 2);
    }
}

/* A writer that could not seek leaves -1 in the place of the table's offset, which it
 * puts behind everything. */
TEST(the_offset_of_the_table_may_stand_at_the_end)
{
    for (int p = 1; p < LAZ_FORMATS; p += 6) {
        sp_laz_format f = format_of(p, 0, UINT32_MAX);
        unsigned char offset[8], version = 1;
        int64_t size, begin, end;
        sp_laz_reader *r;
        sp_laz_file file;

        check(&f, p, 431, false, 2);
        OK(open_file(&r, &file, &f, p, 431, 1));
        size = file.file_bytes;
        assert_int_equal(pread(file.fd, offset, sizeof offset, file.at), 8);
        sp_laz_close(r);
        close(file.fd);
        poke_number(file.at, -1);
        poke(size, offset, sizeof offset);
        check_read(&f, p, 431, 33, 2);
        OK(open_file(&r, &file, &f, p, 431, 1));
        sp_laz_rest(r, &begin, &end);
        assert_int_equal(begin, size);
        assert_int_equal(end, size);
        sp_laz_close(r);
        close(file.fd);
        poke((int64_t)sp_get64(offset), &version, 1);
        FAILS(open_file(&r, &file, &f, p, 431, 1), SP_EDATA,
              "LAZ chunk table of version 1, expected 0");
        close(file.fd);
    }
}

/* Reads a file that may be damaged; true: it gave the points that were written. */
static bool is_read(const sp_laz_format *format, int point_format, int64_t n,
                    int n_threads, sp_status *rc)
{
    sp_laz_reader *r;
    sp_laz_file file;
    int64_t read = 0;

    *rc = open_file(&r, &file, format, point_format, n, n_threads);
    if (*rc == SP_OK)
        *rc = read_all(r, 50, format->record_bytes, &read);
    if (r)
        sp_laz_close(r);
    close(file.fd);
    return *rc == SP_OK && memcmp(given, got, (size_t)(n * format->record_bytes)) == 0;
}

/* The offset of a table that was never written is its own place. */
TEST(chunks_that_differ_need_a_table_or_layers)
{
    for (int p = 1; p < LAZ_FORMATS; p += 6) {
        sp_laz_format f = format_of(p, 0, UINT32_MAX);
        sp_status rc;

        check(&f, p, 431, false, 2);
        poke_number(begin_of(&f, p), begin_of(&f, p));
        assert_int_equal(is_read(&f, p, 431, 2, &rc), p == 7);
        if (p == 1)
            FAILS(rc, SP_EDATA, "chunk table with the sizes is missing");
    }
}

/* At each place in turn, one byte is changed. It is noticed in nearly all cases where
 * the streams are long; the first records have no check. */
TEST(damage_is_noticed)
{
    int n_silent = 0, n_noticed = 0;

    for (int p = 3; p < LAZ_FORMATS; p += 4) {
        sp_laz_format f = format_of(p, 1, UINT32_MAX);
        const char *whole;
        size_t bytes;

        laz_points_fill(given, 400, p, f.record_bytes, false, 5);
        OK(laz_file_write(path, &f, p, given, 400, 400, 1));
        whole = test_content(path, &bytes);
        for (int64_t at = begin_of(&f, p); at < (int64_t)bytes; at += 7) {
            const char b = whole[at] ^ 0x14;
            sp_status rc;

            poke(at, &b, 1);
            if (!is_read(&f, p, 400, 1 + (int)(at % 2), &rc)) {
                n_silent += rc == SP_OK;
                n_noticed += rc == SP_EDATA;
                assert_true(rc == SP_OK || rc == SP_EDATA);
            }
            poke(at, &whole[at], 1);
        }
    }
    print_message("%d noticed, %d silent\n", n_noticed, n_silent);
    assert_true(n_noticed > 1000);
    assert_true(n_silent * 20 < n_noticed);
}

TEST(a_message_names_file_chunk_and_point)
{
    sp_laz_format f = format_of(1, 0, CHUNK);
    sp_status rc;

    laz_points_fill(given, 300, 1, f.record_bytes, false, 5);
    OK(laz_file_write(path, &f, 1, given, 300, 300, 1));
    OK(truncate(path, 1500) == 0 ? SP_OK : SP_EIO);
    assert_false(is_read(&f, 1, 300, 1, &rc));
    FAILS(rc, SP_EDATA, "LAZ chunk table at byte");
    poke_number(begin_of(&f, 1), -1);
    assert_false(is_read(&f, 1, 300, 1, &rc));
    FAILS(rc, SP_EDATA, path);
    SAYS(": LAZ chunk ");
    SAYS(" of the file");
}

/* LASzip takes a chunk size of 0 for chunks that differ. */
TEST(chunks_of_size_0_differ)
{
    for (int p = 1; p < LAZ_FORMATS; p += 6) {
        sp_laz_format f = format_of(p, 0, UINT32_MAX), read;
        unsigned char vlr[SP_LAZ_VLR_BYTES];
        size_t n;

        check(&f, p, 431, false, 2);
        n = sp_laz_format_write(&f, vlr);
        memset(vlr + 12, 0, 4);
        OK(sp_laz_format_read(&read, path, vlr, n, p, f.record_bytes));
        assert_true(read.chunk_points == UINT32_MAX);
        check_read(&read, p, 431, 100, 2);
    }
}

/* A header that counts too few points is named as the fault, however many chunks follow
 * and with a table or without. */
TEST(a_count_too_low_is_named)
{
    static const struct {
        int format;
        uint32_t chunk_points;
        int64_t n;
    } cases[] = {{1, CHUNK, 289},      {1, CHUNK, 200},      {1, CHUNK, 150},
                 {7, CHUNK, 289},      {7, CHUNK, 200},      {7, CHUNK, 150},
                 {1, UINT32_MAX, 289}, {7, UINT32_MAX, 120}, {7, UINT32_MAX, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int p = cases[i].format;
        sp_laz_format f = format_of(p, 0, cases[i].chunk_points);
        char says[64];

        laz_points_fill(given, 300, p, f.record_bytes, false, 5);
        OK(laz_file_write(path, &f, p, given, 300, 100, 1));
        snprintf(says, sizeof says, "the header counts %d points, but ",
                 (int)cases[i].n);
        for (int threads = 1; threads <= 2; threads++) {
            sp_status rc;

            assert_false(is_read(&f, p, cases[i].n, threads, &rc));
            FAILS(rc, SP_EDATA, says);
        }
    }
}
