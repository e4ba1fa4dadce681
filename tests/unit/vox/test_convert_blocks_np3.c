/* The shards of spvox convert have the same bytes on any number of ranks; with blocks
 * and margins each point is evaluated exactly once; apply puts the classes back onto
 * the scan. */
#include "fixtures/test.h"

#include <dirent.h>
#include <inttypes.h>
#include <unistd.h>

#include "comm/sp_comm.h"
#include "h5/sp_h5.h"
#include "data/sp_recipe.h"
#include "vox/vox.h"

enum { ROWS = 60, N = ROWS * ROWS, ARGS = 32 };
ON_RANKS(comm)
static char scan[] = "scan.txt";

/* Points of three classes in stripes, where code 4 is ignored, half a metre apart over
 * 30 m x 30 m, twice. */
static int code_of(int i)
{
    return i % 11 == 0 ? 4 : i % ROWS / 20 + 1;
}

/* Coordinate a of point i, as the scan has it. */
static double position(int i, int a)
{
    char text[64];

    snprintf(text, sizeof text, "%.3f",
             a == 0   ? 500000 + 0.5 * (i % ROWS) + 0.001 * (i % 7)
             : a == 1 ? 6000000 + 0.5 * (i / ROWS)
                      : 10 + 0.01 * (i % 97));
    return strtod(text, NULL);
}

static void write_scan(void)
{
    FILE *to = fopen(scan, "w");

    assert_non_null(to);
    fprintf(to, "x y z intensity label\n");
    for (int i = 0; i < N; i++)
        fprintf(to, "%.3f %.3f %.3f %d %d\n", position(i, 0), position(i, 1),
                position(i, 2), i % 256, code_of(i));
    assert_int_equal(fclose(to), 0);
}

/* Runs a command given as one line. */
static sp_status command(sp_comm *on, const char *line)
{
    static char text[1024];
    char *argv[ARGS + 1] = {0}, *rest;
    int argc = 0;

    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok_r(text, " ", &rest); word && argc < ARGS;
         word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    return strcmp(argv[0], "apply") == 0 ? vox_apply(argc, argv, on)
                                         : vox_convert(argc, argv, on);
}

#define OPTIONS                                                                        \
    "--voxel-size 0.8 --block 7.5 --overlap 2 --shards 4 --points --features "         \
    "one,height/10,intensity,count --map 1=a,2:3=b scan.txt"

TEST(bytes_do_not_depend_on_ranks)
{
    OK(command(&comm, "convert --out all " OPTIONS));
    if (comm.rank == 0) {
        OK(command(alone(), "convert --out one " OPTIONS));
        for (int s = 0; s < 4; s++) {
            char a[64], b[64];

            snprintf(a, sizeof a, "all-%05d-of-00004.h5", s);
            snprintf(b, sizeof b, "one-%05d-of-00004.h5", s);
            test_same_files(a, b);
        }
    }
    OK(sp_comm_barrier(&comm));
}

/* Reads a whole dataset of a shard; its first dimension goes to *n. */
static void *read_dataset(sp_h5 *file, const char *name, sp_h5_type type, size_t bytes,
                          int64_t *n)
{
    sp_h5_shape shape;
    size_t count = 1;
    void *data;

    OK(sp_h5_shape_of(file, name, &shape));
    for (int d = 0; d < shape.rank; d++)
        count *= (size_t)shape.dim[d];
    data = test_alloc(count * bytes);
    OK(sp_h5_read(file, name, type, shape.rank, shape.dim, data));
    *n = shape.dim[0];
    return data;
}

/* Adds the samples of one shard to n_seen [N]; labels as the map says. */
static int64_t read_points(const char *path, int *n_seen)
{
    sp_h5 *file;
    sp_h5_shape samples;
    uint64_t *index;
    int32_t *label;
    int64_t n;

    OK(sp_h5_open(&file, path));
    OK(sp_h5_shape_of(file, "/names", &samples));
    index = read_dataset(file, "/point_index", SP_H5_U64, sizeof *index, &n);
    label = read_dataset(file, "/point_labels", SP_H5_I32, sizeof *label, &n);
    for (int64_t i = 0; i < n; i++) {
        int code;

        assert_true(index[i] < N);
        code = code_of((int)index[i]);
        n_seen[index[i]]++;
        assert_int_equal(label[i], code == 4 ? 255 : code > 1);
    }
    OK(sp_h5_close(file));
    return samples.dim[0];
}

/* Checks the samples of one shard: each begins a multiple of the alignment from the
 * corner of the scan, and its points have the voxels that they have in the grid of the
 * whole scan. Returns how many begin elsewhere than at the corner. */
static int check_grid(const char *path, double size)
{
    static const double corner[3] = {500000, 6000000, 10};
    sp_h5 *file;
    int64_t n, samples, *from, *points_from;
    double *origin;
    int32_t *coords;
    uint32_t *voxel;
    uint64_t *index;
    int n_shifted = 0;

    OK(sp_h5_open(&file, path));
    from = read_dataset(file, "/offsets", SP_H5_I64, sizeof *from, &n);
    points_from =
        read_dataset(file, "/point_offsets", SP_H5_I64, sizeof *points_from, &n);
    coords = read_dataset(file, "/coords", SP_H5_I32, sizeof *coords, &n);
    voxel = read_dataset(file, "/point_voxel", SP_H5_U32, sizeof *voxel, &n);
    index = read_dataset(file, "/point_index", SP_H5_U64, sizeof *index, &n);
    origin = read_dataset(file, "/origin", SP_H5_F64, sizeof *origin, &samples);
    for (int64_t s = 0; s < samples; s++)
        for (int a = 0; a < 3; a++) {
            const double cells = (origin[3 * s + a] - corner[a]) / size;
            const int64_t begin = llrint(cells);

            assert_true(fabs(cells - (double)begin) < 1e-3 && begin >= 0);
            assert_int_equal(begin % SP_RECIPE_ALIGNMENT, 0);
            n_shifted += begin > 0;
            for (int64_t p = points_from[s]; p < points_from[s + 1]; p++) {
                const double x = position((int)index[p], a);

                assert_int_equal(coords[3 * (from[s] + voxel[p]) + a] + begin,
                                 (int64_t)floor((x - corner[a]) / size));
            }
        }
    OK(sp_h5_close(file));
    return n_shifted;
}

TEST(blocks_are_on_one_grid)
{
    char path[256];
    int n_shifted = 0;

    OK(command(&comm, "convert --out grid --voxel-size 0.07 --block 7.5 --overlap 2 "
                      "--shards 3 --points --map 1=a,2:3=b scan.txt"));
    for (int s = 0; s < 3; s++) {
        snprintf(path, sizeof path, "grid-%05d-of-00003.h5", s);
        n_shifted += check_grid(path, 0.07);
    }
    assert_true(n_shifted > 4);
    OK(sp_comm_barrier(&comm)); /* rank 0 goes on to write */
}

TEST(each_point_is_evaluated_once)
{
    int *n_seen = test_alloc(N * sizeof *n_seen);
    int64_t samples = 0;

    for (int s = 0; s < 4; s++) {
        char path[256];

        snprintf(path, sizeof path, "all-%05d-of-00004.h5", s);
        samples += read_points(path, n_seen);
    }
    assert_int_equal(samples, 16);
    for (int i = 0; i < N; i++)
        assert_int_equal(n_seen[i], 1);
    OK(sp_comm_barrier(&comm)); /* rank 0 goes on to write */
}

/* The shards have the names of predictions: their labels, applied to their scan, give
 * the first code of each class. */
TEST(classes_return_to_the_scan)
{
    const unsigned char *b;
    size_t n;

    OK(command(&comm, "apply all-00000-of-00004.h5 all-00001-of-00004.h5 "
                      "all-00002-of-00004.h5 all-00003-of-00004.h5 scan.txt --out "
                      "back.label --map 1=a,2:3=b"));
    if (comm.rank == 0) {
        b = (unsigned char *)test_content("back.label", &n);
        assert_int_equal(n, 4 * N);
        for (int i = 0; i < N; i++) {
            int code = code_of(i);

            assert_int_equal(b[4 * i], code == 4 ? 0 : code == 3 ? 2 : code);
            assert_int_equal(b[4 * i + 1] | b[4 * i + 2] | b[4 * i + 3], 0);
        }
    }
    OK(command(&comm, "apply all-00003-of-00004.h5 scan.txt --out back.ply"));
    OK(command(&comm, "convert --out again back.ply --features intensity"));
    FAILS(command(&comm, "apply all-00003-of-00004.h5 scan.txt --out "
                         "back.label --map 1=a,2:3=c"),
          SP_EUSAGE, "--map has no class \"b\", but ");
    FAILS(command(&comm, "apply all-00003-of-00004.h5 back.ply --out "
                         "back.label"),
          SP_EDATA, "no sample of");
}

/* The predictions of the first two points are classes 1 and 0; with codes NULL none are
 * stored. */
static void write_prediction(char *const *codes, int n_codes)
{
    const uint8_t label[] = {1, 0};
    const uint64_t index[] = {0, 1};
    const int64_t two = 2;
    char *const names[] = {"roof", "ground"}, *const sample[] = {scan};
    sp_h5 *file;

    OK(sp_h5_create(&file, "coded.h5"));
    OK(sp_h5_attr_write_texts(file, "/", "class_names", 2, names));
    if (codes)
        OK(sp_h5_attr_write_texts(file, "/", "class_codes", n_codes, codes));
    OK(sp_h5_write_texts(file, "/names", 1, sample));
    OK(sp_h5_write(file, "/point_labels", SP_H5_U8, 1, &two, label));
    OK(sp_h5_write(file, "/point_index", SP_H5_U64, 1, &two, index));
    OK(sp_h5_close(file));
}

/* The codes that the two points are written as. */
static void check_codes(const char *map, int first, int second)
{
    char line[256];
    const char *b;
    size_t n;

    snprintf(line, sizeof line, "apply coded.h5 scan.txt --out coded.label%s", map);
    OK(command(&comm, line));
    if (comm.rank == 0) {
        b = test_content("coded.label", &n);
        assert_true(n == 4 * N && b[0] == first && b[4] == second);
    }
}

TEST(predictions_bring_their_codes)
{
    static char *const codes[] = {"6:26", "2"}, *const bad[] = {"6", "two"};
    const char *line = "apply coded.h5 scan.txt --out coded.label";

    if (comm.rank == 0)
        write_prediction(codes, 2);
    check_codes("", 2, 6);
    check_codes(" --map 9=ground,7:8=roof", 9, 7); /* by name, whatever their order */
    if (comm.rank == 0)
        write_prediction(NULL, 0); /* an older file */
    check_codes("", 1, 0);
    if (comm.rank == 0)
        write_prediction(bad, 2);
    FAILS(command(&comm, line), SP_EDATA, "\"two\" of class 1");
    if (comm.rank == 0)
        write_prediction(codes, 1);
    FAILS(command(&comm, line), SP_EDATA, "1 class_codes, expected 2");
}

TEST(failures_are_the_same_on_all_ranks)
{
    static const struct {
        const char *options;
        sp_status code;
        const char *says;
    } failures[] = {
        {"--out f --shrads 2 scan.txt", SP_EUSAGE, "nearest: --shards"},
        {"--out f --map 1=a,1=b scan.txt", SP_EUSAGE, "a class already"},
        {"--out f --map a=1 scan.txt", SP_EUSAGE, "a code from 0"},
        {"--out f --shards 2 scan.txt", SP_EUSAGE, "at most 1, the number of samples"},
        {"--out f --overlap 2 scan.txt", SP_EUSAGE, "--block"},
        {"--out f --features one,nir scan.txt", SP_EUSAGE,
         "no attribute nir; there are: x y z intensity label"},
        {"--out f --bounds 0,0,1,1 scan.txt", SP_EDATA, "no points"},
        {"--out f --voxel-size 0.00001 scan.txt", SP_EDATA, "--block"},
        {"--out f --block 5 none.las", SP_EDATA, "none.las"},
        {"--out scan.txt/f scan.txt", SP_EIO, "scan.txt"},
        {"--out f --voxel-size -1 scan.txt", SP_EUSAGE,
         "--voxel-size -1: expected a number above 0"},
        {"--out f --features intensity/0 scan.txt", SP_EUSAGE,
         "divisor 0: expected a number above 0"},
        {"scan.txt", SP_EUSAGE, "--out PREFIX is missing"}};
    char line[128];

    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        snprintf(line, sizeof line, "convert %s", failures[i].options);
        FAILS(command(&comm, line), failures[i].code, failures[i].says);
    }
}

TEST(nothing_temporary_is_left)
{
    DIR *dir;
    struct dirent *entry;

    OK(sp_comm_barrier(&comm));
    dir = opendir(".");
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, ".tmp"))
            fail_msg("%s is left", entry->d_name);
    closedir(dir);
    OK(sp_comm_barrier(&comm));
}

BEFORE_ALL(write_scan_once)
{
    if (comm.rank == 0)
        write_scan();
    OK(sp_comm_barrier(&comm));
}
