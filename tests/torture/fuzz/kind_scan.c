/* Scans of every format: their heads by words and fields, their bodies by bytes. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_number.h"
#include "comm/sp_comm.h"
#include "fixtures/scan_files.h"
#include "scan/sp_scan_format.h"
#include "torture/fuzz/fuzz.h"
#include "torture/fuzz/scan_seeds.h"
#include "vox/vox.h"

enum { MOST_SEEDS = 24, MOST_ATTRIBUTES = 64 };

/* The good files of one format. A format of sp_scan_format.h has one of these of its
 * own name, filled by prepare_<format>, and a kind at the end of this file. */
typedef struct seeds {
    const char *ending;
    int n;
    blob at[MOST_SEEDS];
    vocabulary words;
    const field *fields;
    size_t n_fields;
    const char *head_ends; /* NULL: the head is n_head bytes */
    size_t n_head;
    const char *columns; /* some of the time */
    const double *window;
    const char *says; /* a refusal does; NULL: the file's path */
} seeds;

/* ---- dictionaries ---- */

/* clang-format off */
static const char *const ply_words[] = {
    "ply", "format", "ascii", "binary_little_endian", "binary_big_endian", "1.0",
    "comment", "obj_info", "element", "vertex", "face", "property", "list", "uchar",
    "int8", "char", "short", "ushort", "int", "uint", "float", "double", "float64", "x",
    "y", "z", "label", "end_header\n", "element vertex 4294967297\n",
    "element vertex 2\n", "property list uchar double x\n",
    "property list double int q\n", "property float x\n",
    "element face 4611686018427387904\n", "element none 1000000000000\n"};
static const char *const pcd_words[] = {
    "VERSION", "FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "VIEWPOINT",
    "POINTS", "DATA", "ascii\n", "binary\n", "binary_compressed\n", "x", "y", "z", "_",
    "rgb", "label", "F", "U", "I", "8", "4", "2", "COUNT 65536 1 1 1 1\n",
    "WIDTH 4294967296\n", "HEIGHT 4294967296\n", "HEIGHT 0\n", "SIZE 8 8 8 8 8\n"};
static const char *const npy_words[] = {
    "{", "}", "'descr'", "'fortran_order'", "'shape'", ":", ",", "(", ")", "[", "]",
    "True", "False", "'<f8'", "'>f8'", "'|u1'", "'<f2'", "'<U4'", "'|O'", "'<f4'",
    "'<i8'", "(4611686018427387904, 4)", "(1, 4)", "(40, 0)", "(0, 4)", "()", "(40,)",
    "(4, 40, 1)", "[('x', '<f8'), ('y', '<f8'), ('z', '<f8')]", "('x', '<f8', (3,))"};
static const char *const text_words[] = {
    ",", ";", "\t", " ", "#", "//", "x", "y", "z", "label", "X", "Y", "Z", "class",
    "scalar_label", "1e400", "1,5", "0x1p3", "1 2 3 4 5 6 7 8\n", "a b c\n"};
static const char *const ept_words[] = {
    "{", "}", "[", "]", ":", ",", "\"bounds\"", "\"points\"", "\"dataType\"", "\"laszip\"",
    "\"binary\"", "\"hierarchyType\"", "\"json\"", "\"srs\"", "\"wkt\"", "null", "true",
    "-1", "0", "1e308", "-1e308", "1e999", "4294967296", "\"0-0-0-0\"", "\"1-0-1-0\"",
    "\"1-0-2-0\"", "\"31-0-0-0\"", "\"32-0-0-0\"", "\"0-0-0-0\":-1,", "\"1-0-0-0\":0,"};
/* clang-format on */

static const field las_fields[] = {
    {24, 1, 'u'},  {25, 1, 'u'},  {94, 2, 'u'},  {96, 4, 'u'},  {96, 4, 'u'},
    {100, 4, 'u'}, {100, 4, 'u'}, {104, 1, 'u'}, {104, 1, 'u'}, {105, 2, 'u'},
    {105, 2, 'u'}, {107, 4, 'u'}, {107, 4, 'u'}, {131, 8, 'f'}, {139, 8, 'f'},
    {155, 8, 'f'}, {171, 8, 'f'}, {227, 8, 'u'}, {235, 8, 'u'}, {243, 4, 'u'},
    {247, 8, 'u'}, {247, 8, 'u'}, {245, 2, 'u'}, {247, 2, 'u'}, {393, 2, 'u'},
    {395, 2, 'u'}, {431, 1, 'u'}, {432, 1, 'u'}, {283, 1, 'u'}, {284, 1, 'u'},
};
/* The header as in LAS, the LAZ record behind headers of three lengths, the place of
 * the chunk table and the first chunk. */
static const field laz_fields[] = {
    {96, 4, 'u'},  {100, 4, 'u'}, {104, 1, 'u'}, {105, 2, 'u'}, {107, 4, 'u'},
    {247, 8, 'u'}, {281, 2, 'u'}, {283, 2, 'u'}, {293, 4, 'u'}, {313, 2, 'u'},
    {315, 2, 'u'}, {317, 2, 'u'}, {319, 2, 'u'}, {321, 8, 'u'}, {327, 8, 'u'},
    {333, 8, 'u'}, {289, 2, 'u'}, {301, 4, 'u'}, {323, 2, 'u'}, {353, 8, 'u'},
    {429, 2, 'u'}, {441, 4, 'u'}, {461, 2, 'u'}, {463, 2, 'u'}, {469, 8, 'u'},
    {475, 8, 'u'}, {481, 8, 'u'}, {499, 4, 'u'}, {503, 4, 'u'}, {507, 4, 'u'},
    {511, 4, 'u'}, {515, 4, 'u'}, {519, 4, 'u'}, {523, 4, 'u'}, {527, 4, 'u'}};
/* The place and the cube of COPC's index; prepare_copc adds its entries. */
enum { COPC_FIELDS = 8 };
static field copc_fields[COPC_FIELDS + 4 * 5] = {
    {375 + 18, 2, 'u'}, {375 + 20, 2, 'u'}, {375 + 54, 8, 'f'},  {375 + 62, 8, 'f'},
    {375 + 78, 8, 'f'}, {375 + 94, 8, 'u'}, {375 + 102, 8, 'u'}, {235, 8, 'u'}};
static const field kitti_fields[] = {{0, 4, 'f'}, {4, 4, 'f'}, {24, 4, 'f'}};
static const field npy_fields[] = {{6, 1, 'u'}, {7, 1, 'u'}, {8, 2, 'u'}, {8, 4, 'u'}};

/* ---- seeds ---- */

#define WORDS(list)  .words = {list, sizeof(list) / sizeof *(list)}
#define FIELDS(list) .fields = list, .n_fields = sizeof(list) / sizeof *(list)
static seeds las = {.ending = "las", FIELDS(las_fields), .n_head = 375};
static seeds laz = {.ending = "laz", FIELDS(laz_fields), .n_head = 600};
static const double copc_window[4] = {700000, 700000, 700001, 700001};
static seeds copc = {.ending = "laz",
                     FIELDS(copc_fields),
                     .n_head = SEED_COPC_AT + SEED_COPC_VLR,
                     .window = copc_window};
static seeds ply = {.ending = "ply", WORDS(ply_words), .head_ends = "end_header\n"};
static seeds pcd = {.ending = "pcd", WORDS(pcd_words), .head_ends = "\nDATA "};
static seeds npy = {.ending = "npy",
                    WORDS(npy_words),
                    FIELDS(npy_fields),
                    .head_ends = "}",
                    .columns = "x,y,z,label"};
static seeds text = {
    .ending = "txt", WORDS(text_words), .n_head = 1000000, .columns = "x,y,-,z,label"};
static seeds kitti = {.ending = "bin", FIELDS(kitti_fields)};
static blob labels; /* of kitti */
static seeds ept = {.ending = "ept.json", WORDS(ept_words), .n_head = 1000, .says = "ept"};
static blob ept_page, ept_node; /* its hierarchy and the file of its node */

static void add(seeds *s, blob b)
{
    s->at[s->n++] = b;
}

static void prepare_las(void)
{
    for (int format = 0; format < SEED_LAS_FORMATS; format++) {
        add(&las, seed_las(format, false));
        add(&las, seed_las(format, true));
    }
    add(&las, seed_las_records());
}

static void prepare_laz(void)
{
    for (int format = 0; format < SEED_LAS_FORMATS; format++)
        add(&laz, seed_laz(format));
}

static void prepare_copc(void)
{
    static const field entry[5] = {
        {0, 4, 'u'}, {4, 4, 'u'}, {16, 8, 'u'}, {24, 4, 'u'}, {28, 4, 'u'}};
    size_t index;

    add(&copc, seed_copc(&index));
    for (int k = 0; k < 4 * 5; k++) {
        field *f = &copc_fields[COPC_FIELDS + k];

        *f = entry[k % 5];
        f->at += (int)index + k / 5 * SEED_COPC_ENTRY;
    }
}

static void prepare_ply(void)
{
    for (int k = 0; k < 6; k++)
        add(&ply, seed_ply((seed_order)(k / 2), k % 2));
}

static void prepare_pcd(void)
{
    add(&pcd, seed_pcd(SEED_ASCII));
    add(&pcd, seed_pcd(SEED_LITTLE));
    add(&pcd, seed_pcd(SEED_COMPRESSED));
}

static void prepare_npy(void)
{
    add(&npy, seed_npy(false));
    add(&npy, seed_npy(true));
}

static void prepare_text(void)
{
    add(&text, seed_text(false));
    add(&text, seed_text(true));
}

static void prepare_kitti(void)
{
    add(&kitti, seed_kitti());
    labels = seed_kitti_labels();
}

static void prepare_ept(void)
{
    char json[256];
    uint32_t n;

    ept_node = seed_laz(0);
    n = sp_get32(ept_node.at + 107);
    snprintf(json, sizeof json, "{\"0-0-0-0\":%u}", n);
    ept_page = blob_of_text(json);
    snprintf(json, sizeof json,
             "{\"bounds\":[0,0,0,1e6,1e6,1e6],\"boundsConforming\":[0,0,0,9,9,9],"
             "\"dataType\":\"laszip\",\"hierarchyType\":\"json\",\"points\":%u,"
             "\"srs\":{}}",
             n);
    add(&ept, blob_of_text(json));
}

static void prepare_all(void)
{
#define PREPARE(format)                                                                \
    if (!format.n)                                                                     \
        prepare_##format();
    SP_SCAN_FORMATS(PREPARE)
#undef PREPARE
}

/* ---- mutants ---- */

static size_t head_of(const seeds *s, const blob *b)
{
    const char *end;

    if (!s->head_ends)
        return s->n_head < b->n ? s->n_head : b->n;
    b->at[b->n] = 0; /* there is room for it */
    end = memmem(b->at, b->n, s->head_ends, strlen(s->head_ends));
    return end ? (size_t)(end - (const char *)b->at) + strlen(s->head_ends) : b->n;
}

static void change(const seeds *s, blob *b, uint64_t *rng)
{
    size_t how = mutate_below(rng, 8), head = head_of(s, b);

    if (s->words.n && how < 5) {
        mutate_words(b, head, &s->words, rng);
    } else if (s->n_fields && how < 6) {
        mutate_field(b, s->fields, s->n_fields, rng);
    } else if (how == 6 && head > 0 && b->n > head) { /* the head's bytes alone */
        blob part = {b->at, head};
        part = blob_copy(part);
        mutate_bytes(&part, rng);
        memcpy(b->at, part.at, part.n < head ? part.n : head);
        free(part.at);
    } else {
        mutate_bytes(b, rng);
    }
}

/* Writes a mutant; returns its path. */
static const char *make(const seeds *s, uint64_t *rng)
{
    static char path[64];
    blob b = blob_copy(s->at[mutate_below(rng, (size_t)s->n)]);

    for (size_t k = 1 + mutate_below(rng, 3); k > 0; k--)
        change(s, &b, rng);
    snprintf(path, sizeof path, "scan.%s", s->ending);
    fuzz_give(path, b);
    return path;
}

/* ---- reading ---- */

/* Reads all points with all attributes; returns their number. */
static sp_status read_points(sp_scan *scan, uint64_t *rng, int64_t *n)
{
    static const int64_t portions[] = {1, 3, 1000, SP_SCAN_BLOCK};
    int64_t most = portions[mutate_below(rng, 4)];
    CLOSED_BY(sp_scan_points_destroy) sp_scan_points p = {0};
    sp_status rc = SP_OK;

    *n = 0;
    do {
        rc = sp_scan_next(scan, most, &p);
        if (rc == SP_OK && (p.n < 0 || p.n > most))
            fuzz_fault("%lld points given, at most %lld wanted", (long long)p.n,
                       (long long)most);
        *n += rc == SP_OK ? p.n : 0;
    } while (rc == SP_OK && p.n > 0);
    return rc;
}

static sp_status read_scan(sp_scan *scan, uint64_t *rng)
{
    const char *names[MOST_ATTRIBUTES];
    int64_t first, second;
    char kind;
    int n = 0, size;

    while (n < MOST_ATTRIBUTES && sp_scan_attribute(scan, n, &kind, &size))
        n++;
    n = (int)mutate_below(rng, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        names[i] = sp_scan_attribute(scan, i, &kind, &size);
    SP_TRY(sp_scan_select(scan, n, names));
    SP_TRY(read_points(scan, rng, &first));
    SP_TRY(sp_scan_rewind(scan));
    SP_TRY(read_points(scan, rng, &second));
    if (first != second)
        fuzz_fault("%lld points, and %lld after rewinding", (long long)first,
                   (long long)second);
    return SP_OK;
}

static bool use(const seeds *s, const char *path, uint64_t *rng)
{
    static const sp_status allowed[] = {SP_EDATA, SP_EUSAGE, SP_EMEM, SP_OK};
    sp_scan_options options = {0};
    CLOSED_BY(sp_scan_done) sp_scan *scan = NULL;
    sp_status rc;

    if (s->columns && mutate_below(rng, 3) == 0)
        options.columns = s->columns;
    if (mutate_below(rng, 8) == 0)
        options.label_field = "intensity";
    options.n_threads = (int)mutate_below(rng, 3);
    rc = sp_scan_open(&scan, path, &options);
    if (rc == SP_OK && s->window)
        rc = sp_scan_keep_near(scan, s->window);
    if (rc == SP_OK)
        rc = read_scan(scan, rng);
    return fuzz_status_is_ok(rc, rc == SP_EMEM ? "" : s->says ? s->says : path, allowed);
}

static bool run(const seeds *s, uint64_t *rng)
{
    return use(s, make(s, rng), rng);
}

/* Points, labels or both are wrong. */
static bool run_kitti(uint64_t *rng)
{
    size_t which = mutate_below(rng, 3);
    const char *path = "scan.bin";

    if (which != 0)
        path = make(&kitti, rng);
    else
        fuzz_put(path, kitti.at[0]);
    fuzz_put_seed("scan.label", labels, which != 1, rng);
    return use(&kitti, path, rng);
}

/* The first file, the hierarchy or the node's file is wrong. */
static bool run_ept(uint64_t *rng)
{
    size_t which = mutate_below(rng, 4);
    const char *path = "scan.ept.json";

    mkdir("ept-hierarchy", 0777);
    mkdir("ept-data", 0777);
    if (which < 2)
        path = make(&ept, rng);
    else
        fuzz_put(path, ept.at[0]);
    fuzz_put_seed("ept-hierarchy/0-0-0-0.json", ept_page, which == 2, rng);
    fuzz_put_seed("ept-data/0-0-0-0.laz", ept_node, which == 3, rng);
    return use(&ept, path, rng);
}

/* ---- the whole way to a shard ---- */

static sp_status convert(void *context)
{
    char *argv[] = {"convert",  "--out",   "converted", "--voxel-size", "0.5",
                    "--points", "--block", "4",         context,        NULL};
    CLOSED_BY(sp_comm_close) sp_comm alone;
    sp_status rc;

    sp_comm_open_self(&alone);
    rc = vox_convert((int)(sizeof argv / sizeof *argv) - 1, argv, &alone);
    return rc;
}

static bool run_convert(uint64_t *rng)
{
#define SEEDS_OF(format) &format,
    static const seeds *const all[] = {SP_SCAN_FORMATS(SEEDS_OF)};
#undef SEEDS_OF
    static const sp_status allowed[] = {SP_EDATA, SP_EUSAGE, SP_EMEM, SP_OK};
    const char *path = make(all[mutate_below(rng, sizeof all / sizeof *all)], rng);

    unlink("scan.label");
    return fuzz_command(convert, (void *)(uintptr_t)path, allowed) == 0;
}

/* The kind of a format that one file holds: its good files are prepare_<format>'s. */
#define SCAN_KIND(format, weight)                                                      \
    static bool run_##format(uint64_t *rng)                                            \
    {                                                                                  \
        return run(&format, rng);                                                      \
    }                                                                                  \
    const fuzz_kind fuzz_##format = {#format, weight, prepare_##format, run_##format};
SCAN_KIND(las, 130)
SCAN_KIND(laz, 130)
SCAN_KIND(copc, 60)
SCAN_KIND(ply, 120)
SCAN_KIND(pcd, 100)
SCAN_KIND(npy, 60)
SCAN_KIND(text, 60)
const fuzz_kind fuzz_ept = {"ept", 40, prepare_ept, run_ept};
const fuzz_kind fuzz_kitti = {"kitti", 30, prepare_kitti, run_kitti};
const fuzz_kind fuzz_convert = {"convert", 30, prepare_all, run_convert};
