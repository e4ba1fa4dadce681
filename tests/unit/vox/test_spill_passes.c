/* A scan is cut into the same blocks whatever its header claims, in one pass over the
 * file where the header is right and in two where it is not; each block has its points
 * and those of its margin in the order of the file. */
#include "fixtures/scan_files.h"

#include <unistd.h>

#include "compute/sp_backend.h"
#include "vox/vox_cloud.h"
#include "vox/vox_spill.h"

enum { N = 30000, HEADER = 227, POINT = 20, BLOCK = 25, OVERLAP = 5, MOST_PARTS = 5 };
static const double low[3] = {1000.25, 2000.5, -3}, high[3] = {1095.25, 2060.5, 9};
static double xyz[N][3];

/* Points in no order, with a hole that leaves one block without points of its own. The
 * first two are the corners. */
BEFORE_ALL(make_points)
{
    uint32_t state = 1;

    for (int i = 0; i < N; i++)
        for (int a = 0; a < 3; a++) {
            state = state * 1664525 + 1013904223;
            xyz[i][a] =
                low[a] + 0.25 * (state >> 8) / (1 << 24) * 4 * (high[a] - low[a]);
            xyz[i][a] = floor(xyz[i][a] * 4) / 4;
            if (i < 2)
                xyz[i][a] = i ? high[a] : low[a];
        }
    for (int i = 2; i < N; i++)
        if (xyz[i][0] > 1024 && xyz[i][0] < 1051 && xyz[i][1] < 2026)
            xyz[i][0] = 1001 + 0.25 * (i % 80);
}

static void write_las(const char *name, const double *claimed_low,
                      const double *claimed_high)
{
    static unsigned char b[HEADER + N * POINT];
    const scan_las las = {2, 0, HEADER, 0, POINT, N, 0.25};

    memset(b, 0, sizeof b);
    scan_put_las(b, &las);
    for (int a = 0; a < 3; a++) {
        scan_put(b + 179 + 16 * a, claimed_high[a], 'f', 8, false);
        scan_put(b + 187 + 16 * a, claimed_low[a], 'f', 8, false);
    }
    for (int i = 0; i < N; i++) {
        unsigned char *p = b + HEADER + (size_t)i * POINT;

        for (int a = 0; a < 3; a++)
            scan_put(p + 4 * a, xyz[i][a] * 4, 'i', 4, false);
        scan_put(p + 12, i % 60000, 'u', 2, false);
        p[15] = (unsigned char)(i % 7);
    }
    scan_write(name, b, sizeof b);
}

/* The bytes that this process has read from files; -1: the system does not tell. */
static int64_t bytes_read(void)
{
    long long n = -1;
    FILE *from = fopen("/proc/self/io", "r");

    if (from && fscanf(from, "rchar: %lld", &n) != 1)
        n = -1;
    if (from)
        fclose(from);
    return n;
}

static vox_options options_for(char *input[1], const char *name)
{
    vox_options o = {.voxel_size = 0.5,
                     .block = BLOCK,
                     .overlap = OVERLAP,
                     .alignment = 16,
                     .n_features = 1,
                     .n_inputs = 1,
                     .input = input,
                     .is_quiet = true};

    input[0] = (char *)(uintptr_t)name;
    o.feature[0] = (vox_feature){.name = "intensity", .divisor = 2};
    return o;
}

static int block_of(int axis, double x)
{
    const int n = axis == 0 ? 4 : 3, b = (int)floor((x - floor(low[axis])) / BLOCK);

    return b < 0 ? 0 : b < n ? b : n - 1;
}

static bool has_point(const vox_piece *p, const double *at, double margin)
{
    return block_of(0, at[0] - margin) <= p->bx &&
           p->bx <= block_of(0, at[0] + margin) &&
           block_of(1, at[1] - margin) <= p->by && p->by <= block_of(1, at[1] + margin);
}

static void check_piece(const vox_piece *p, const vox_cloud *c)
{
    int64_t n = 0, n_own = 0;

    assert_true(c->is_block && c->corner[0] == 1000 && c->corner[2] == -3);
    for (int i = 0; i < N; i++) {
        if (!has_point(p, xyz[i], OVERLAP))
            continue;
        assert_true(n < c->n);
        assert_int_equal(c->index[n], i);
        assert_memory_equal(c->xyz + 3 * n, xyz[i], sizeof xyz[i]);
        assert_true(c->features[n] == (float)(i % 60000) / 2);
        assert_int_equal(c->is_owned[n], has_point(p, xyz[i], 0));
        assert_int_equal(c->home[n],
                         block_of(1, xyz[i][1]) * 4 + block_of(0, xyz[i][0]));
        if (c->is_owned[n])
            assert_int_equal(c->home_row[n], n_own++);
        n++;
    }
    assert_int_equal(n, c->n);
    assert_int_equal(n_own, p->n_own);
}

/* Cuts the file in parts as that many processes do. */
static void cut(const vox_options *o, int n_parts, vox_codes *codes, vox_parts *parts)
{
    char path[MOST_PARTS][64];
    vox_box found = VOX_NO_BOX;
    vox_cut part[MOST_PARTS] = {{0}};
    vox_layout layout;

    for (int p = 0; p < n_parts; p++) {
        vox_part_path("spill", p, path[p], sizeof path[p]);
        part[p] =
            (vox_cut){.options = o, .part = p, .n_parts = n_parts, .path = path[p]};
        OK(vox_cut_open(&part[p], codes));
        OK(vox_cut_run(&part[p], NULL));
        for (int a = 0; a < 3; a++) {
            found.low[a] = fmin(found.low[a], part[p].found.low[a]);
            found.high[a] = fmax(found.high[a], part[p].found.high[a]);
        }
    }
    OK(vox_cut_layout(o, 0, &found, &layout));
    for (int p = 0; p < n_parts; p++) {
        if (!vox_layout_is_same(part[p].options, &layout, &part[p].layout))
            OK(vox_cut_run(&part[p], &layout));
        vox_cut_close(&part[p]);
    }
    *parts = (vox_parts){.options = o, .path = "spill"};
    OK(vox_parts_open(parts, &layout, n_parts));
    assert_int_equal(parts->n, n_parts);
}

/* Cuts a file and compares its pieces with those of the first one. n_passes: how often
 * it should be read. */
static void check_cut(const char *name, int n_parts, int n_passes, vox_piece first[12])
{
    char *input[1];
    const vox_options o = options_for(input, name);
    FREED vox_codes *codes = calloc(1, sizeof *codes);
    FREED vox_piece *piece = NULL;
    CLOSED_BY(vox_cloud_destroy) vox_cloud cloud = {0};
    CLOSED_BY(vox_parts_close) vox_parts parts;
    int64_t n = 0, before = bytes_read(), passes;

    cut(&o, n_parts, codes, &parts);
    passes = (bytes_read() - before + N * POINT / 2) / (N * POINT);
    if (before >= 0)
        assert_int_equal(passes, n_passes);
    OK(vox_parts_list(&parts, &piece, &n));
    assert_int_equal(n, 11); /* of 12, one has no points of its own */
    for (int code = 0; code < 7; code++)
        assert_int_equal(codes->n[code], (N - code + 6) / 7);
    for (int i = 0; i < n; i++) {
        OK(vox_parts_read(&parts, &piece[i], &cloud));
        check_piece(&piece[i], &cloud);
    }
    if (first[0].n == 0)
        memcpy(first, piece, (size_t)n * sizeof *piece);
    assert_memory_equal(first, piece, (size_t)n * sizeof *piece);
}

TEST(codes_that_no_map_can_name_have_no_class)
{
    static vox_options o = {.map.n = 1}; /* all codes are of class 0 */

    assert_int_equal(vox_class_of(&o, VOX_MAX_CODE), 0);
    assert_int_equal(vox_class_of(&o, VOX_MAX_CODE + 1), SP_IGNORE);
    assert_int_equal(vox_class_of(&o, -1), SP_IGNORE);
}

TEST(blocks_do_not_depend_on_the_header)
{
    static const double zero[3] = {0}, wide[3] = {1e7, 1e7, 1e7}, nan3[3] = {NAN};
    const double other[3] = {1095.25, 2040.5, 9}, far[3] = {22000, 22000, 9};
    vox_piece first[12] = {0};

    write_las("right.las", low, high);
    write_las("zero.las", zero, zero);
    write_las("wide.las", low, wide); /* too many blocks */
    write_las("far.las", low, far);   /* so many that one part has all rows at first */
    write_las("other.las", low, other);
    write_las("nan.las", nan3, high);
    for (int n = 1; n <= MOST_PARTS; n++) {
        check_cut("right.las", n, 1, first);
        check_cut("zero.las", n, 2, first);
        check_cut("wide.las", n, 2, first);
        check_cut("far.las", n, 2, first);
        check_cut("other.las", n, 2, first);
        check_cut("nan.las", n, 2, first);
    }
}

/* A point on the upper border of a tile makes no block of its own, also where the sum
 * of offset and scaled integer is a little beyond the border. */
TEST(a_border_is_in_the_last_block)
{
    const double above = nextafter(4000020, INFINITY);
    char *input[1];
    vox_options o = options_for(input, "right.las");
    vox_layout layout;

    o.block = 10;
    OK(vox_cut_layout(&o, 0, &(vox_box){{4000000}, {above, 20}}, &layout));
    assert_true(layout.n_blocks[0] == 2 && layout.n_blocks[1] == 2);
    OK(vox_cut_layout(&o, 0, &(vox_box){{4000000}, {4000020.00001, 20.00001}},
                      &layout));
    assert_true(layout.n_blocks[0] == 3 && layout.n_blocks[1] == 3);
}

/* The shares of all parts stay below a bound, whatever blocks a header claims. */
TEST(parts_are_few_where_blocks_are_many)
{
    const vox_layout few = {.n_blocks = {50, 50}}, many = {.n_blocks = {1000, 1000}};

    assert_int_equal(vox_layout_parts(&few, 64), 64);
    assert_int_equal(vox_layout_parts(&many, 64), 1);
}

/* The name of a scan in shards: it tells scans and layouts apart. */
TEST(scans_are_told_apart)
{
    char *input[1];
    uint32_t crc[3];

    for (int k = 0; k < 3; k++) {
        vox_options o = options_for(input, "right.las");
        vox_parts parts;

        if (k == 1)
            xyz[N - 1][2] += 0.25;
        write_las("right.las", low, high);
        o.block = k == 2 ? 2 * BLOCK : BLOCK;
        cut(&o, 1, NULL, &parts);
        crc[k] = parts.crc;
        vox_parts_close(&parts);
    }
    assert_true(crc[0] != crc[1] && crc[1] != crc[2] && crc[0] != crc[2]);
}
