#include "torture/fuzz/scan_seeds.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_number.h"
#include "fixtures/laz_points.h"
#include "fixtures/scan_files.h"

enum { N = SEED_POINTS, ROOM = 16384 };

static double coordinate(int i, int axis)
{
    return axis == 0 ? 0.75 * (i % 8) : axis == 1 ? 0.5 * (i / 8) : 0.25 * (i % 5);
}

static int code(int i)
{
    return 1 + i % 4;
}

/* A buffer that grows into a file. */
static blob empty(void)
{
    blob b = {calloc(ROOM, 1), 0};

    mutate_check(b.at, "out of memory");
    return b;
}

static void put_bytes(blob *b, const void *data, size_t n)
{
    mutate_check(b->n + n <= ROOM, "seed too large");
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_text(blob *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put_text(blob *b, const char *format, ...)
{
    char text[512];
    va_list list;
    int n;

    va_start(list, format);
    n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    put_bytes(b, text, (size_t)n);
}

static void put_number(blob *b, double x, char kind, int size, bool is_big)
{
    unsigned char bytes[8];

    scan_put(bytes, x, kind, size, is_big);
    put_bytes(b, bytes, (size_t)size);
}

static void set_number(blob *b, size_t at, double x, char kind, int size)
{
    scan_put(b->at + at, x, kind, size, false);
}

/* ---- LAS ---- */

blob seed_las(int format, bool with_extra)
{
    const int minor = format < 4 ? 2 : format < 6 ? 3 : 4;
    const int record = laz_record_bytes(format) + (with_extra ? 2 : 0);
    scan_las las = {minor, format, 0, with_extra, record, N, 0.01};
    blob b = empty();

    b.n = (size_t)scan_las_bytes(minor);
    if (with_extra) {
        scan_put_extra(b.at + b.n);
        b.n += SCAN_EXTRA_BYTES;
    }
    las.points_at = (int64_t)b.n;
    scan_put_las(b.at, &las);
    for (size_t a = 0; a < 2; a++)
        set_number(&b, 155 + 8 * a, 700000, 'f', 8);
    for (int i = 0; i < N; i++) {
        const size_t at = b.n;

        b.n += (size_t)record;
        for (int a = 0; a < 3; a++)
            set_number(&b, at + 4 * (size_t)a, 100 * coordinate(i, a), 'u', 4);
        set_number(&b, at + 12, 7 * i, 'u', 2);
        b.at[at + (format < 6 ? 15 : 16)] = (unsigned char)code(i);
    }
    return b;
}

/* Adds an extended record after the points. */
static void add_extended(blob *b, const char *user, int id, const void *data, size_t n)
{
    unsigned char *evlr = b->at + b->n;

    if (sp_get64(b->at + 235) == 0)
        set_number(b, 235, (double)b->n, 'u', 8);
    b->at[243]++;
    memcpy(evlr + 2, user, strlen(user));
    scan_put(evlr + 18, id, 'u', 2, false);
    scan_put(evlr + 20, (double)n, 'u', 8, false);
    memcpy(evlr + 60, data, n);
    b->n += 60 + n;
}

blob seed_las_records(void)
{
    static const char text[] = "COMPD_CS[\"c\",PROJCS[\"P\",GEOGCS[\"G\",UNIT["
                               "\"degree\",0.017]],UNIT[\"metre\","
                               "1]],VERT_CS[\"V\",VERT_DATUM[\"D\",2005],UNIT[\"foot\","
                               "0.3048],AXIS[\"Up\",UP]]]";
    const uint16_t keys[] = {1,    1,     0, 3, 1024, 0, 1, 1,
                             3076, 34736, 1, 0, 4099, 0, 1, 9003};
    unsigned char d[192] = {0, 0, 23, 1 | 8}; /* three uint16 */
    blob b = seed_las(6, true);

    memcpy(d + 4, "normal", 6);
    add_extended(&b, "LASF_Projection", 2112, text, sizeof text);
    add_extended(&b, "LASF_Projection", 34735, keys, sizeof keys);
    add_extended(&b, "LASF_Spec", 4, d, sizeof d);
    add_extended(&b, "copc", 1000, d, 32);
    return b;
}

/* Gives each record other bytes behind its coordinates, but for the class. */
static void vary(unsigned char *record, int bytes, int i)
{
    for (int k = 12; k < bytes; k++)
        if (k != 15 && k != 16)
            record[k] = (unsigned char)(i * k % (k % 3 ? 7 : 251));
}

/* Chunks of 16 points, which a varying size may say too. */
blob seed_laz(int format)
{
    blob las = seed_las(format, false), b;
    const int bytes = las.at[105] | las.at[106] << 8;
    unsigned char *points = las.at + (las.n - (size_t)N * (size_t)bytes);
    char path[] = "/tmp/seed_laz_XXXXXX";
    int fd = mkstemp(path);
    sp_laz_format f;
    FILE *from;

    for (int i = 0; i < N; i++)
        vary(points + i * bytes, bytes, i);
    sp_laz_format_default(&f, format, bytes);
    f.chunk_points = format % 2 ? 16 : UINT32_MAX;
    mutate_check(fd >= 0 && close(fd) == 0, path);
    mutate_check(laz_file_write(path, &f, format, points, N, 16, 1) == SP_OK, path);
    b = (blob){calloc(ROOM, 1), 0};
    from = fopen(path, "rb");
    mutate_check(b.at && from, path);
    b.n = fread(b.at, 1, ROOM, from);
    fclose(from);
    unlink(path);
    free(las.at);
    return b;
}

static void set_entry(unsigned char *at, int level, size_t byte, size_t bytes, int n)
{
    sp_put32(at, (uint64_t)level);
    sp_put64(at + 16, byte);
    sp_put32(at + 24, bytes);
    sp_put32(at + 28, (uint32_t)n);
}

blob seed_copc(size_t *index)
{
    blob b = seed_laz(6);
    const size_t points = sp_get32(b.at + 96) + SEED_COPC_VLR;
    unsigned char *vlr = b.at + SEED_COPC_AT;
    unsigned char page[4 * SEED_COPC_ENTRY] = {0};
    const double centre[4] = {700000, 700000, 0, 100}; /* and half the edge */

    memmove(vlr + SEED_COPC_VLR, vlr, b.n - SEED_COPC_AT);
    memset(vlr, 0, SEED_COPC_VLR);
    b.n += SEED_COPC_VLR;
    *index = b.n + 60;
    sp_put32(b.at + 96, points);
    sp_put32(b.at + 100, sp_get32(b.at + 100) + 1);
    sp_put64(b.at + points, sp_get64(b.at + points) + SEED_COPC_VLR);
    memcpy(vlr + 2, "copc", 4);
    sp_put16(vlr + 18, 1);
    sp_put16(vlr + 20, SEED_COPC_VLR - 54);
    memcpy(vlr + 54, centre, sizeof centre);
    sp_put64(vlr + 54 + 40, *index);
    sp_put64(vlr + 54 + 48, 2 * SEED_COPC_ENTRY);
    set_entry(page, 0, points + 8, 100, 16);
    set_entry(page + SEED_COPC_ENTRY, 1, *index + 2 * SEED_COPC_ENTRY,
              2 * SEED_COPC_ENTRY, -1);
    set_entry(page + 2 * SEED_COPC_ENTRY, 1, 0, 0, 0);
    set_entry(page + 3 * SEED_COPC_ENTRY, 2, points + 8, 100, 16);
    add_extended(&b, "copc", 1000, page, sizeof page);
    return b;
}

/* ---- PLY ---- */

static void put_ply_number(blob *b, double x, char kind, int size, seed_order order)
{
    if (order != SEED_ASCII)
        put_number(b, x, kind, size, order == SEED_BIG);
    else
        put_text(b, kind == 'f' ? "%.3f " : "%.0f ", x);
}

blob seed_ply(seed_order order, bool with_faces)
{
    static const char *const format[] = {"ascii", "binary_little_endian",
                                         "binary_big_endian"};
    blob b = empty();

    put_text(&b, "ply\nformat %s 1.0\ncomment made for tests\nelement vertex %d\n",
             format[order], N);
    put_text(&b, "property double x\nproperty double y\nproperty double z\n"
                 "property uchar red\nproperty float scalar_Intensity\n"
                 "property int label\n");
    if (with_faces)
        put_text(&b, "element face 3\nproperty list uchar int vertex_indices\n");
    put_text(&b, "end_header\n");
    for (int i = 0; i < N; i++) {
        for (int a = 0; a < 3; a++)
            put_ply_number(&b, coordinate(i, a), 'f', 8, order);
        put_ply_number(&b, i, 'u', 1, order);
        put_ply_number(&b, 0.5 * i, 'f', 4, order);
        put_ply_number(&b, code(i), 'i', 4, order);
        if (order == SEED_ASCII)
            put_text(&b, "\n");
    }
    for (int i = 0; with_faces && i < 3; i++) {
        put_ply_number(&b, 3, 'u', 1, order);
        for (int k = 0; k < 3; k++)
            put_ply_number(&b, i + k, 'i', 4, order);
        if (order == SEED_ASCII)
            put_text(&b, "\n");
    }
    return b;
}

/* ---- PCD ---- */

/* Compresses by an LZF that only copies: runs of up to 32 bytes, each after its length
 * less one. */
static void put_lzf(blob *b, const blob *data)
{
    for (size_t at = 0; at < data->n; at += 32) {
        size_t n = data->n - at < 32 ? data->n - at : 32;
        unsigned char control = (unsigned char)(n - 1);

        put_bytes(b, &control, 1);
        put_bytes(b, data->at + at, n);
    }
}

/* Points are stored column by column where compressed, else point by point. */
static blob pcd_body(bool is_by_column)
{
    blob b = empty();

    for (int k = 0; k < N * 5; k++) {
        int i = is_by_column ? k % N : k / 5, c = is_by_column ? k / N : k % 5;

        put_number(&b,
                   c < 3    ? coordinate(i, c)
                   : c == 3 ? i
                            : code(i),
                   c < 4 ? 'f' : 'u', 4, false);
    }
    return b;
}

blob seed_pcd(seed_order order)
{
    blob b = empty(), body = pcd_body(order == SEED_COMPRESSED);

    put_text(&b,
             "# .PCD v0.7\nVERSION 0.7\nFIELDS x y z intensity label\n"
             "SIZE 4 4 4 4 4\nTYPE F F F F U\nCOUNT 1 1 1 1 1\nWIDTH %d\nHEIGHT 1\n"
             "VIEWPOINT 0 0 0 1 0 0 0\nPOINTS %d\nDATA %s\n",
             N, N,
             order == SEED_ASCII        ? "ascii"
             : order == SEED_COMPRESSED ? "binary_compressed"
                                        : "binary");
    if (order == SEED_COMPRESSED) {
        blob packed = empty();

        put_lzf(&packed, &body);
        put_number(&b, (double)packed.n, 'u', 4, false);
        put_number(&b, (double)body.n, 'u', 4, false);
        put_bytes(&b, packed.at, packed.n);
        free(packed.at);
    } else if (order == SEED_LITTLE) {
        put_bytes(&b, body.at, body.n);
    }
    for (int i = 0; order == SEED_ASCII && i < N; i++)
        put_text(&b, "%g %g %g %d %d\n", coordinate(i, 0), coordinate(i, 1),
                 coordinate(i, 2), i, code(i));
    free(body.at);
    return b;
}

/* ---- NumPy ---- */

blob seed_npy(bool with_fields)
{
    blob b = empty();
    char head[256];
    int n =
        snprintf(head, sizeof head,
                 with_fields ? "{'descr': [('x', '<f8'), ('y', '<f8'), ('z', '<f4'), "
                               "('label', '<u2')], 'fortran_order': False, "
                               "'shape': (%d,), }"
                             : "{'descr': '<f8', 'fortran_order': False, 'shape': "
                               "(%d, 4), }",
                 N);

    put_bytes(&b, "\x93NUMPY\1", 8); /* and minor version 0 */
    while ((10 + n + 1) % 64 != 0)
        head[n++] = ' ';
    head[n++] = '\n';
    put_number(&b, n, 'u', 2, false);
    put_bytes(&b, head, (size_t)n);
    for (int i = 0; i < N; i++) {
        put_number(&b, coordinate(i, 0), 'f', 8, false);
        put_number(&b, coordinate(i, 1), 'f', 8, false);
        put_number(&b, coordinate(i, 2), 'f', with_fields ? 4 : 8, false);
        put_number(&b, code(i), with_fields ? 'u' : 'f', with_fields ? 2 : 8, false);
    }
    return b;
}

/* ---- text, KITTI ---- */

blob seed_text(bool with_commas)
{
    blob b = empty();
    const char c = with_commas ? ',' : ' ';

    put_text(&b, with_commas ? "x,y,z,intensity,label\n" : "//x y z intensity label\n");
    for (int i = 0; i < N; i++)
        put_text(&b, "%.3f%c%.3f%c%.3f%c%d%c%d\n", coordinate(i, 0), c,
                 coordinate(i, 1), c, coordinate(i, 2), c, i, c, code(i));
    return b;
}

blob seed_kitti(void)
{
    blob b = empty();

    for (int i = 0; i < N; i++) {
        for (int a = 0; a < 3; a++)
            put_number(&b, coordinate(i, a), 'f', 4, false);
        put_number(&b, 0.01 * i, 'f', 4, false);
    }
    return b;
}

blob seed_kitti_labels(void)
{
    blob b = empty();

    for (int i = 0; i < N; i++)
        put_number(&b, code(i) | i << 16, 'u', 4, false);
    return b;
}
