/* Data sets for the tests of whole programs, which thus need no Python.
 *
 *     make_shards uneven FILE             15 samples of unequal size with points,
 *                                         subvoxel and moments; one empty, one of a
 *                                         single voxel, one without any label
 *     make_shards unlabelled FILE         4 samples, all labels ignored
 *     make_shards plain FILE              6 samples without subvoxel and points
 *     make_shards points FILE             like plain, with points that have no labels
 *     make_shards classes FILE            like plain, with 5 classes instead of 4
 *     make_shards hostile FILE            like plain, with names of classes that hold
 *                                         HTML, commands to a terminal, 200 characters
 *     make_shards renamed FILE            like plain, names of the columns in reverse
 *     make_shards coded FILE              like plain, with codes of the classes
 *     make_shards rotated FILE            like coded, the same classes in another order
 *     make_shards far FILE                like plain, its means 100 times as large
 *     make_shards flat FILE               like plain, a standard deviation of 0
 *     make_shards recipe FILE             like coded, with a recipe: blocks of 50 m
 *     make_shards recipe-25 FILE          like recipe, but blocks of 25 m
 *     make_shards recipe-255 FILE         like recipe, but features over 255
 *     make_shards recipe-foot FILE        like recipe, but of scans in feet
 *     make_shards bare FILE               no more than a dozen lines of h5py would
 *                                         write: offsets, coords, features, labels
 *     make_shards bare-nameless FILE      like bare, without labels, of one class
 *     make_shards bare-large FILE         like bare, a feature of sample 2 is 3e38
 *     make_shards bare-huge FILE          like bare, all features of sample 2 are 3e38
 *     make_shards bare-chunked FILE       like bare, the features in compressed chunks
 *     make_shards isolated FILE           4 samples of 12,000 voxels that touch no other
 *     make_shards large FILE              one sample of 60,000 voxels among 7 of 3,000
 *     make_shards costly FILE             3 samples with points, subvoxel, moments and
 *                                         cost; one is empty
 *     make_shards box FILE SAMPLES VOXELS GAP COLUMNS CLASSES HAS_POINTS
 *                                         samples of so many voxels each, which fill
 *                                         half of a box, or touch no other if GAP is
 *                                         large; at most 64 columns and classes
 *     make_shards bad-label FILE SAMPLE   first label of a sample becomes 99
 *     make_shards bad-feature FILE SAMPLE first feature changes, its checksum stays
 *     make_shards sums CHECKPOINT         name and crc32c of params, buffers, optim
 *     make_shards rows SHARD              name and crc32c of what its voxels have
 *     make_shards codes FILE              class=codes of each class
 *     make_shards samples PATTERN         every sample of a data set as text
 *     make_shards weights FROM TO [LEFT_OUT [NAME [CHANGE]]]
 *                                         a file of /params and /buffers alone; NAME has
 *                                         a row less, or, with CHANGE "one" or "nan", a
 *                                         dimension of 1 in front, or no number in it
 *     make_shards craft FROM TO NAME VALUE
 *                                         a checkpoint with right checksums, whose
 *                                         attribute NAME, or last element of dataset
 *                                         NAME, is VALUE ("unsummed": NAME has no
 *                                         checksum); deck: VALUE is one line more;
 *                                         rank5: there is a dataset of 5 dimensions;
 *                                         classes: it has VALUE names of classes
 */
#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "base/sp_log.h"
#include "base/sp_program.h"
#include "checkpoint/sp_checkpoint_internal.h"
#include "fixtures/shard_fixture.h"
#include "h5/sp_h5.h"

static const int64_t sizes[] = {900, 40,  0,   300, 1,  700, 120, 60,
                                500, 250, 333, 77,  18, 410, 190};
enum { N_SIZES = sizeof sizes / sizeof *sizes, NO_LABEL = 7 };
static const int64_t isolated[] = {12000, 12000, 12000, 12000};
static const int64_t large[] = {3000, 3000, 60000, 3000, 3000, 3000, 3000, 3000};

/* Kinds of data sets; where nothing else is said they have the samples of plain. */
static const struct {
    const char *name;
    fixture f;
} kinds[] = {
    {"uneven",
     {.n_samples = N_SIZES,
      .voxels = sizes,
      .unlabelled = 1u << NO_LABEL,
      .has_points = true,
      .has_subvoxel = true}},
    {"unlabelled", {.n_samples = 4, .unlabelled = 15}},
    {"plain", {.n_samples = 6}},
    {"points", {.has_points = true, .is_unlabelled_in_points = true}},
    {"classes", {.n_classes = 5}},
    {"hostile", {.is_hostile = true}},
    {"renamed", {.is_renamed = true}},
    {"coded", {.has_codes = true}},
    {"rotated", {.has_codes = true, .n_rotated = 3}},
    {"far", {.mean_factor = 100}},
    {"flat", {.is_flat = true}},
    {"recipe", {.has_codes = true, .has_recipe = true}},
    {"recipe-25", {.has_codes = true, .has_recipe = true, .block = 25}},
    {"recipe-255", {.has_codes = true, .has_recipe = true, .divisor = 255}},
    {"recipe-foot", {.has_codes = true, .has_recipe = true, .unit = "foot"}},
    {"isolated", {.n_samples = 4, .voxels = isolated, .gap = 64}},
    {"large", {.n_samples = 8, .voxels = large}},
    {"costly",
     {.n_samples = 3,
      .voxels = sizes,
      .has_points = true,
      .has_subvoxel = true,
      .has_cost = true}},
};

static sp_status make(const char *kind, const char *path)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fixture f = kinds[i].f;

        if (strcmp(kinds[i].name, kind) != 0)
            continue;
        f.n_samples = f.n_samples ? f.n_samples : 6;
        f.voxels = f.voxels ? f.voxels : sizes + 9;
        f.seed = 5;
        f.has_moments = true;
        return fixture_write(&f, path);
    }
    return SP_FAIL(SP_EUSAGE, "no kind of data set is called %s", kind);
}

static sp_status make_box(char **argv)
{
    fixture f = {.n_samples = atoi(argv[3]),
                 .gap = atoi(argv[5]),
                 .n_features = atoi(argv[6]),
                 .n_classes = atoi(argv[7]),
                 .has_points = atoi(argv[8]) != 0,
                 .has_moments = true,
                 .seed = 7};
    int64_t *voxels = calloc((size_t)f.n_samples + 1, sizeof *voxels);
    sp_status rc;

    if (!voxels)
        return SP_FAIL(SP_EMEM, "%d samples", f.n_samples);
    for (int i = 0; i < f.n_samples; i++)
        voxels[i] = atoll(argv[4]);
    f.voxels = voxels;
    rc = fixture_write(&f, argv[2]);
    free(voxels);
    return rc;
}

/* ---- as others write them ---- */

enum { BARE_COLUMNS = 2, HUGE_SAMPLE = 2 };

/* Writes voxel after voxel of all samples. */
static int64_t fill_bare(const fixture *f, int64_t *offset, int32_t *coords,
                         float *features, uint8_t *labels)
{
    int64_t n = 0;

    for (int s = 0; s < f->n_samples; s++, offset[s] = n) {
        sp_sample one;

        fixture_sample(f, s, &one);
        memcpy(coords + 3 * n, one.coords, (size_t)one.n * 3 * sizeof *coords);
        memcpy(features + BARE_COLUMNS * n, one.features,
               (size_t)one.n * BARE_COLUMNS * sizeof *features);
        for (int64_t i = 0; i < one.n; i++)
            labels[n + i] = (uint8_t)one.labels[i]; /* SP_IGNORE becomes 255 */
        n += one.n;
        fixture_free(&one);
    }
    return n;
}

static sp_status write_bare_attributes(sp_h5 *file, int64_t n_classes)
{
    const int64_t version = 1, ignore = 255;
    const double voxel_size = 0.5;
    char *const format[] = {"sptrain-voxels"}, *const columns[] = {"a", "b"};
    char *const classes[] = {"class0", "class1", "class2", "class3"};

    SP_TRY(sp_h5_attr_write_texts(file, "/", "format", -1, format));
    SP_TRY(sp_h5_attr_write(file, "/", "version", SP_H5_I64, -1, &version));
    SP_TRY(sp_h5_attr_write(file, "/", "voxel_size", SP_H5_F64, -1, &voxel_size));
    SP_TRY(sp_h5_attr_write(file, "/", "num_classes", SP_H5_I64, -1, &n_classes));
    SP_TRY(sp_h5_attr_write(file, "/", "ignore_label", SP_H5_I64, -1, &ignore));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "class_names", (int)n_classes, classes));
    return sp_h5_attr_write_texts(file, "/", "feature_names", BARE_COLUMNS, columns);
}

/* Adds an array as sp_h5 writes none: in compressed chunks, or of five dimensions. */
static sp_status add_array(const char *path, const char *name, int rank,
                           const hsize_t *dim, const hsize_t *chunk, const float *data,
                           bool is_summed)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(rank, dim, NULL), one = H5Screate(H5S_SCALAR);
    const hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
    uint32_t crc;
    bool is_good;

    if (chunk) {
        H5Pset_chunk(layout, rank, chunk);
        H5Pset_deflate(layout, 4);
    }
    const hid_t set =
        H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, layout, H5P_DEFAULT);
    is_good = H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    crc =
        sp_crc32c(0, data, (size_t)H5Sget_simple_extent_npoints(space) * sizeof *data);
    if (is_summed) {
        const hid_t attr =
            H5Acreate2(set, "crc32c", H5T_NATIVE_UINT32, one, H5P_DEFAULT, H5P_DEFAULT);
        is_good = H5Awrite(attr, H5T_NATIVE_UINT32, &crc) >= 0 && is_good;
        H5Aclose(attr);
    }
    H5Dclose(set);
    H5Pclose(layout);
    H5Sclose(one);
    H5Sclose(space);
    return H5Fclose(file) >= 0 && is_good ? SP_OK : SP_FAIL(SP_EIO, "%s", path);
}

static sp_status make_bare(const char *kind, const char *path)
{
    enum { MOST = 4000 };
    static int32_t coords[MOST * 3];
    static float features[MOST * BARE_COLUMNS];
    static uint8_t labels[MOST];
    const fixture f = {
        .n_samples = 6, .voxels = sizes + 9, .seed = 5, .n_features = BARE_COLUMNS};
    const bool is_nameless = strcmp(kind, "bare-nameless") == 0;
    int64_t offset[8] = {0}, dim[2] = {f.n_samples + 1};
    sp_h5 *file;

    const int64_t n = fill_bare(&f, offset, coords, features, labels);
    if (strcmp(kind, "bare-large") == 0)
        features[BARE_COLUMNS * (offset[HUGE_SAMPLE] + 5)] = 3e38f;
    for (int64_t i = BARE_COLUMNS * offset[HUGE_SAMPLE];
         strcmp(kind, "bare-huge") == 0 && i < BARE_COLUMNS * offset[HUGE_SAMPLE + 1];
         i++)
        features[i] = 3e38f;
    SP_TRY(sp_h5_create(&file, path));
    SP_TRY(write_bare_attributes(file, is_nameless ? 1 : 4));
    SP_TRY(sp_h5_write(file, "/offsets", SP_H5_I64, 1, dim, offset));
    dim[0] = n;
    if (!is_nameless)
        SP_TRY(sp_h5_write(file, "/labels", SP_H5_U8, 1, dim, labels));
    dim[1] = 3;
    SP_TRY(sp_h5_write(file, "/coords", SP_H5_I32, 2, dim, coords));
    dim[1] = BARE_COLUMNS;
    if (strcmp(kind, "bare-chunked") == 0) {
        SP_TRY(sp_h5_close(file));
        return add_array(path, "features", 2, (hsize_t[]){(hsize_t)n, BARE_COLUMNS},
                         (hsize_t[]){100, BARE_COLUMNS}, features, false);
    }
    SP_TRY(sp_h5_write(file, "/features", SP_H5_F32, 2, dim, features));
    return sp_h5_close(file);
}

/* ---- damage ---- */

/* Overwrites the first row of a sample in one dataset. */
static sp_status damage(const char *path, int64_t sample, bool is_label)
{
    static const uint8_t bad[4] = {99, 99, 99, 62};
    sp_dataset set;
    const sp_extent *extent;
    FILE *file;

    SP_TRY(fixture_open(&set, path));
    extent = is_label ? &set.shard[0].labels : &set.shard[0].features;
    file = fopen(path, "r+b");
    if (!file)
        return SP_FAIL(SP_EIO, "%s: cannot open it", path);
    fseek(file,
          (long)(extent->at + sp_dataset_first_voxel(&set, sample) * extent->cols *
                                  extent->type_size),
          SEEK_SET);
    fwrite(bad, 1, (size_t)extent->type_size, file);
    sp_dataset_close(&set);
    return fclose(file) == 0 ? SP_OK : SP_FAIL(SP_EIO, "%s: cannot write it", path);
}

static sp_status print_sums(const char *path)
{
    sp_h5 *file;
    char **names;
    int n;

    SP_TRY(sp_h5_open(&file, path));
    SP_TRY(sp_h5_list(file, &names, &n));
    for (int i = 0; i < n; i++) {
        uint32_t crc;
        SP_TRY(sp_h5_attr_read(file, names[i], "crc32c", SP_H5_U32, 1, &crc));
        printf("%s %08x\n", names[i], crc);
    }
    sp_h5_list_free(names, n);
    return sp_h5_close(file);
}

static sp_status print_rows(const char *path)
{
    static const char *const names[] = {"/coords", "/features", "/labels", "/subvoxel"};
    sp_h5 *file;

    SP_TRY(sp_h5_open(&file, path));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sp_h5_shape shape;
        size_t bytes;
        char *data;

        SP_TRY(sp_h5_shape_of(file, names[i], &shape));
        bytes = (size_t)shape.type.size;
        for (int k = 0; k < shape.rank; k++)
            bytes *= (size_t)shape.dim[k];
        data = calloc(bytes + 8, 1);
        SP_TRY(sp_h5_read(file, names[i], shape.type, shape.rank, shape.dim, data));
        printf("%s %zu bytes %08x\n", names[i], bytes, sp_crc32c(0, data, bytes));
        free(data);
    }
    return sp_h5_close(file);
}

static sp_status print_codes(const char *path)
{
    sp_h5 *file;
    char **name, **code;
    int n;

    SP_TRY(sp_h5_open(&file, path));
    SP_TRY(sp_h5_attr_read_texts(file, "/", "class_names", &name, &n));
    SP_TRY(sp_h5_attr_read_texts(file, "/", "class_codes", &code, &n));
    for (int i = 0; i < n; i++)
        printf("%s=%s%c", name[i], code[i], i == n - 1 ? '\n' : ' ');
    sp_h5_list_free(name, n);
    sp_h5_list_free(code, n);
    return sp_h5_close(file);
}

static void print_sample(const sp_dataset *set, const sp_sample *s)
{
    printf("sample %" PRId64 " %s origin %.9g %.9g %.9g\n", s->id,
           set->has_names ? sp_dataset_name(set, s->id) : "-", s->origin[0],
           s->origin[1], s->origin[2]);
    for (int64_t i = 0; i < s->n; i++) {
        printf("%d %d %d %d", s->coords[3 * i], s->coords[3 * i + 1],
               s->coords[3 * i + 2], s->labels[i]);
        for (int c = 0; c < set->n_features; c++)
            printf(" %.9g", (double)s->features[i * set->n_features + c]);
        if (set->has_subvoxel)
            printf(" %d", s->subvoxel[3 * i]);
        printf("\n");
    }
    for (int64_t i = 0; i < s->n_points; i++)
        printf("point %u %d %" PRIu64 "\n", s->point_voxel[i], s->point_labels[i],
               s->point_index[i]);
}

static sp_status print_samples(const char *pattern)
{
    sp_sample_request all = {.verify = true, .with_points = true};
    sp_sample s = {0};
    sp_dataset set;

    SP_TRY(fixture_open(&set, pattern));
    for (int64_t i = 0; i < set.n_samples; i++) {
        SP_TRY(sp_sample_read(&set, i, &all, &s));
        print_sample(&set, &s);
    }
    sp_sample_destroy(&s);
    sp_dataset_close(&set);
    return SP_OK;
}

/* ---- files of weights, crafted checkpoints ---- */

/* Copies an array; `change` is "", "less", "one", "unsummed" or the last element's
 * value. A checkpoint's arrays have checksums. */
static sp_status copy_array(sp_h5 *from, sp_h5 *to, const char *name,
                            const char *change, bool is_checkpoint)
{
    sp_h5_shape shape;
    size_t bytes;
    char *data;
    uint32_t crc;
    sp_status rc;

    SP_TRY(sp_h5_shape_of(from, name, &shape));
    bytes = (size_t)shape.type.size;
    for (int i = 0; i < shape.rank; i++)
        bytes *= (size_t)shape.dim[i];
    data = calloc(bytes + 8, 1);
    rc = sp_h5_read(from, name, shape.type, shape.rank, shape.dim, data);
    if (strcmp(change, "less") == 0) {
        shape.dim[0]--;
    } else if (strcmp(change, "one") == 0) {
        memmove(shape.dim + 1, shape.dim, (size_t)shape.rank++ * sizeof *shape.dim);
        shape.dim[0] = 1;
    } else if (strcmp(change, "unsummed") == 0) {
        is_checkpoint = false;
    } else if (*change && shape.type.size == 8) {
        ((double *)data)[bytes / 8 - 1] = atof(change);
    } else if (*change && shape.type.size == 4) {
        ((float *)data)[bytes / 4 - 1] = (float)atof(change);
    }
    crc = sp_crc32c(0, data, bytes);
    if (rc == SP_OK)
        rc = sp_h5_write(to, name, shape.type, shape.rank, shape.dim, data);
    if (rc == SP_OK && is_checkpoint)
        rc = sp_h5_attr_write(to, name, "crc32c", SP_H5_U32, -1, &crc);
    free(data);
    return rc;
}

/* Copies the arrays of a file but the one that is left out, and changes one. Closes
 * both. */
static sp_status copy_arrays(const char *path, sp_h5 *to, bool is_checkpoint,
                             const char *left_out, const char *changed,
                             const char *change)
{
    sp_h5 *from;
    char **names;
    int n;

    SP_TRY(sp_h5_open(&from, path));
    SP_TRY(sp_h5_list(from, &names, &n));
    for (int i = 0; i < n; i++)
        if ((is_checkpoint || strncmp(names[i], "/params", 7) == 0 ||
             strncmp(names[i], "/buffers", 8) == 0) &&
            strcmp(names[i], left_out) != 0)
            SP_TRY(copy_array(from, to, names[i],
                              strcmp(names[i], changed) == 0 ? change : "",
                              is_checkpoint));
    sp_h5_list_free(names, n);
    sp_h5_close(from);
    return sp_h5_close(to);
}

/* Writes weights as a dozen lines of h5py would: no attributes, no checksums. */
static sp_status write_weights(int argc, char **argv)
{
    sp_h5 *to;

    SP_TRY(sp_h5_create(&to, argv[3]));
    return copy_arrays(argv[2], to, false, argc > 4 ? argv[4] : "",
                       argc > 5 ? argv[5] : "", argc > 6 ? argv[6] : "less");
}

/* Finds the field of the state that NAME names; "deck" gets VALUE as one more line. */
static void change_state(sp_checkpoint_state *s, const char *name, const char *value)
{
    const struct {
        const char *name;
        int64_t *field;
    } field[] = {
        {"step", &s->step},
        {"epoch", &s->at.epoch},
        {"position", &s->at.position},
        {"samples_seen", &s->samples_seen},
        {"updates", &s->updates},
        {"seed", &s->seed},
        {"skipped", &s->skipped},
        {"metrics_bytes", &s->metrics_bytes},
        {"val_hash", (int64_t *)&s->val_hash},
        {"eval_due", &s->eval_due},
    };
    char *deck;

    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (strcmp(field[i].name, name) == 0)
            *field[i].field = strtoll(value, NULL, 10);
    if (strcmp(name, "best_miou") == 0)
        s->best = atof(value);
    if (strcmp(name, "deck") == 0 && asprintf(&deck, "%s%s\n", s->deck, value) > 0) {
        free(s->deck);
        s->deck = deck;
    }
}

/* Other names of classes than the arrays have. */
static void change_classes(sp_normalization *norm, int n)
{
    sp_h5_list_free(norm->class_name, norm->n_classes);
    sp_h5_list_free(norm->class_code, norm->n_classes);
    norm->class_code = NULL;
    norm->class_name = calloc((size_t)n + 1, sizeof *norm->class_name);
    norm->n_classes = n;
    for (int i = 0; i < n; i++)
        if (asprintf(&norm->class_name[i], "class%d", i) < 0)
            abort();
}

/* All checksums are right, so the numbers alone cause a refusal. */
static sp_status craft(char **argv)
{
    static const hsize_t rank5[] = {1, 1, 1, 1, 2};
    const char *name = argv[4], *value = argv[5];
    sp_checkpoint_state state;
    sp_normalization norm;
    sp_h5 *to;

    SP_TRY(sp_checkpoint_read_state(argv[2], &state, &norm));
    change_state(&state, name, value);
    if (strcmp(name, "classes") == 0)
        change_classes(&norm, atoi(value));
    SP_TRY(sp_h5_create(&to, argv[3]));
    SP_TRY(sp_checkpoint_write_root(to, &state, &norm));
    SP_TRY(copy_arrays(argv[2], to, true, "", name, value));
    sp_normalization_destroy(&norm);
    sp_checkpoint_state_destroy(&state);
    return strcmp(name, "rank5") == 0
               ? add_array(argv[3], "/extra", 5, rank5, NULL, (float[]){1, 2}, true)
               : SP_OK;
}

static sp_status run(int argc, char **argv)
{
    const char *verb = argc > 2 ? argv[1] : "";

    if (argc >= 4 && strcmp(verb, "weights") == 0)
        return write_weights(argc, argv);
    if (argc == 6 && strcmp(verb, "craft") == 0)
        return craft(argv);
    if (argc == 9 && strcmp(verb, "box") == 0)
        return make_box(argv);
    if (argc == 3 && strcmp(verb, "sums") == 0)
        return print_sums(argv[2]);
    if (argc == 3 && strcmp(verb, "rows") == 0)
        return print_rows(argv[2]);
    if (argc == 3 && strcmp(verb, "codes") == 0)
        return print_codes(argv[2]);
    if (argc == 3 && strcmp(verb, "samples") == 0)
        return print_samples(argv[2]);
    if (argc == 3 && strncmp(verb, "bare", 4) == 0)
        return make_bare(verb, argv[2]);
    if (argc == 4 && strncmp(verb, "bad-", 4) == 0)
        return damage(argv[2], atoi(argv[3]), strcmp(verb, "bad-label") == 0);
    if (argc == 3)
        return make(verb, argv[2]);
    return SP_FAIL(SP_EUSAGE, "usage: make_shards KIND FILE [SAMPLE]");
}

int main(int argc, char **argv)
{
    sp_status rc;

    sp_program_begin("sptrain");
    sp_h5_child_main(argc, argv);
    rc = run(argc, argv);
    if (rc != SP_OK)
        sp_log_error(sp_error_last());
    return rc;
}
