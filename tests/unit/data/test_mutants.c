/* Damaged and hostile files end in the right status and a message that names them: no
 * crash, no hang, no value that a checksum covers and that changed. Each mutant is a
 * pure function of its number; SP_MUTANTS says how many there are in all (100).
 *
 * HDF5 itself crashes on some damaged headers. It does so in the limited child that
 * reads them first, and its death is the diagnosis. */
#include "fixtures/test.h"

#include <signal.h>
#include <unistd.h>

#include "fixtures/mutants.h"
#include "fixtures/shard_fixture.h"
#include "h5/sp_h5.h"
#include "run/sp_checkpoint.h"
#include "vox/vox.h"

enum { PATIENCE_S = 100 }; /* a child has 60 s of wall time, 10 s of work */

static const char *stage = "";
static volatile sig_atomic_t current;

static void say_hang(int number)
{
    char text[96];
    int n = snprintf(text, sizeof text, "%s: mutant %d hangs\n", stage, (int)current);

    (void)number;
    if (write(STDERR_FILENO, text, (size_t)n) < 0 || true)
        _exit(1);
}

/* Thousandths of the mutants, at least a few. */
static int share(const char *name, int thousandths)
{
    const char *text = getenv("SP_MUTANTS");
    int n = (text ? atoi(text) : 100) * thousandths / 1000;

    stage = name;
    return n > 3 ? n : 3;
}

static void begin_mutant(int number)
{
    current = number;
    alarm(PATIENCE_S);
}

#define BAD(...)                                                                       \
    do {                                                                               \
        fprintf(stderr, "%s: mutant %d\n", stage, (int)current);                       \
        fail_msg(__VA_ARGS__);                                                         \
    } while (0)

/* One of the two, and a failure names the file. */
static void check_status(sp_status rc, sp_status allowed, const char *path)
{
    if (rc != SP_OK && rc != allowed)
        BAD("%s: %s", sp_status_name(rc), sp_error_last()->message);
    if (rc != SP_OK && !strstr(sp_error_last()->message, path))
        BAD("does not name the file: %s", sp_error_last()->message);
}

static void check_same(const void *a, const void *b, size_t bytes, const char *what)
{
    if (bytes && memcmp(a, b, bytes) != 0)
        BAD("another %s, and nobody noticed", what);
}

/* ---- shards ---- */

static const char shard_path[] = "mutant-shard.h5";
static const int64_t sizes[] = {30, 0, 20, 1};
enum { SAMPLES = 4 };
static sp_dataset whole; /* the index of the good file */
static sp_sample samples[SAMPLES];
static const sp_sample_request all = {.verify = true, .with_points = true};

static void make_shard(void)
{
    static const fixture f = {.n_samples = SAMPLES,
                              .voxels = sizes,
                              .has_subvoxel = true,
                              .has_points = true,
                              .has_cost = true,
                              .has_moments = true,
                              .seed = 3};

    OK(fixture_write(&f, shard_path));
    OK(fixture_open(&whole, shard_path));
    for (int i = 0; i < SAMPLES; i++)
        OK(sp_sample_read(&whole, i, &all, &samples[i]));
}

static void forget_shard(void)
{
    for (int i = 0; i < SAMPLES; i++)
        sp_sample_destroy(&samples[i]);
    sp_dataset_close(&whole);
    unlink(shard_path);
}

static void compare_sample(const sp_sample *got, const sp_sample *want)
{
    size_t n = (size_t)want->n;

    if (got->n != want->n)
        BAD("%lld voxels instead of %lld", (long long)got->n, (long long)want->n);
    check_same(got->coords, want->coords, 3 * n * sizeof *got->coords, "coordinate");
    check_same(got->features, want->features,
               (size_t)whole.n_features * n * sizeof *got->features, "feature");
    check_same(got->labels, want->labels, n * sizeof *got->labels, "label");
}

/* Read all; true if all is well. With is_summed everything that a checksum of the file
 * or of HDF5's headers covers is the good file's. */
static bool use_shard(bool is_summed)
{
    sp_dataset set;
    sp_sample got = {0};
    sp_status rc = fixture_open(&set, shard_path);

    for (int64_t i = 0; rc == SP_OK && i < set.n_samples; i++) {
        rc = sp_sample_read(&set, i, &all, &got);
        if (rc == SP_OK && is_summed && i < SAMPLES)
            compare_sample(&got, &samples[i]);
    }
    check_status(rc, SP_EDATA, shard_path);
    if (rc == SP_OK && is_summed) {
        assert_int_equal(set.n_samples, SAMPLES);
        assert_int_equal(set.n_classes, whole.n_classes);
        assert_int_equal(set.ignore_label, whole.ignore_label);
        check_same(&set.voxel_size, &whole.voxel_size, sizeof set.voxel_size,
                   "voxel size");
        check_same(set.feature_mean, whole.feature_mean,
                   (size_t)whole.n_features * sizeof(double), "mean");
    }
    sp_sample_destroy(&got);
    sp_dataset_close(&set);
    return rc == SP_OK;
}

static void damaged_shards(void **state)
{
    int n = share("shard", 350), n_good = 0;
    blob good;

    (void)state;
    make_shard();
    good = blob_read(shard_path);
    assert_true(use_shard(true));
    for (int i = 0; i < n; i++) {
        blob bad = mutant_of(good, (uint64_t)i);

        begin_mutant(i);
        blob_write(shard_path, bad);
        n_good += use_shard(true);
        free(bad.at);
    }
    assert_true(n_good < n / 2 + 2);
    free(good.at);
    forget_shard();
}

/* As h5py writes them: the oldest format, whose headers have no checksums, in
 * compressed chunks. */
static void damaged_shards_of_others(void **state)
{
    int n = share("shard of others", 100);
    blob good;

    (void)state;
    make_shard();
    mutant_repack(shard_path);
    good = blob_read(shard_path);
    assert_true(use_shard(true));
    for (int i = 0; i < n; i++) {
        blob bad = mutant_of(good, (uint64_t)i);

        begin_mutant(i);
        blob_write(shard_path, bad);
        use_shard(false);
        free(bad.at);
    }
    free(good.at);
    forget_shard();
}

/* A layout message of the old format that says chunked (2), with chunks of 8 rows of 3
 * elements of 4 bytes, says compact (0) with this many bytes in the header. HDF5 reads
 * beyond them, and crashes where there are none. */
static void make_compact(blob b, int bytes)
{
    static const unsigned char chunk[] = {8, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
    int n = 0;

    for (size_t i = 0; i + 23 < b.n; i++)
        if (memcmp(b.at + i, "\3\2\3", 3) == 0 &&
            memcmp(b.at + i + 11, chunk, sizeof chunk) == 0) {
            b.at[i + 1] = 0;
            b.at[i + 2] = (unsigned char)bytes;
            b.at[i + 3] = 0;
            n++;
        }
    assert_int_equal(n, 2); /* coordinates and features */
}

static void layouts_that_lie_are_refused(void **state)
{
    (void)state;
    for (int bytes = 0; bytes < 24; bytes += 8) {
        blob b;

        make_shard();
        mutant_repack(shard_path);
        b = blob_read(shard_path);
        make_compact(b, bytes);
        blob_write(shard_path, b);
        begin_mutant(bytes);
        assert_false(use_shard(false));
        free(b.at);
        forget_shard();
    }
}

static void hostile_shards(void **state)
{
    static const char *const needed[] = {"/offsets", "/coords", "/features",
                                         "/point_voxel", "/point_labels"};
    static const char *const optional[] = {"/labels", "/origin",        "/subvoxel",
                                           "/cost",   "/point_offsets", "/point_index",
                                           "/crc32c", "/names"};
    static const char *const attribute[] = {
        "format",      "version",       "voxel_size",   "num_classes", "ignore_label",
        "class_names", "feature_names", "feature_mean", "feature_std"};
    const int n_sets = mutant_n_datasets(), n_attributes = mutant_n_attributes();
    const int total = 13 * n_sets + 9 * n_attributes;
    int n = share("hostile shard", 200);
    blob good;

    (void)state;
    make_shard();
    good = blob_read(shard_path);
    for (int i = 0; i < n; i++) {
        int which = (int)((int64_t)i * 389 % total), name = which / n_sets;
        int variant = which % n_sets;
        bool is_good;

        begin_mutant(which);
        blob_write(shard_path, good);
        if (which < 13 * n_sets) {
            mutant_dataset(shard_path, name < 5 ? needed[name] : optional[name - 5],
                           variant);
            is_good = use_shard(false);
            if (is_good && !(name >= 5 && mutant_is_absent(variant)) &&
                !(name == 12 && mutant_is_text(variant)))
                BAD("variant %d of %s was taken", variant,
                    name < 5 ? needed[name] : optional[name - 5]);
        } else {
            which -= 13 * n_sets;
            mutant_attribute(shard_path, attribute[which / n_attributes],
                             which % n_attributes);
            use_shard(false);
        }
    }
    free(good.at);
    forget_shard();
}

/* ---- checkpoints ---- */

#define FOLDER "mutant-run"
static const char step_1[] = FOLDER "/step-000000001.h5";
static const char step_2[] = FOLDER "/step-000000002.h5";
static const char network[] =
    "net : { layers = ( { name = \"conv1\"; op = \"conv\"; out = 3; kernel = 2; },\n"
    "  { name = \"bn1\"; op = \"batchnorm\"; },\n"
    "  { name = \"conv2\"; op = \"conv\"; out = 2; kernel = 1; bias = true; } ); };\n";

typedef struct weights {
    sp_graph graph;
    float *param, *running, *m;
    sp_checkpoint_state state;
    sp_normalization norm;
} weights;

static double means[] = {1, 2}, deviations[] = {3, 4};
static char *names[] = {"intensity", "height"};

static float *floats(int64_t n)
{
    float *x = calloc((size_t)n + 1, sizeof *x);

    assert_non_null(x);
    return x;
}

static void make_weights(weights *w)
{
    sp_config config;

    OK(sp_config_parse(&config, network, "network", 0, NULL));
    OK(sp_graph_build(&w->graph, &config, 2, 2));
    sp_config_destroy(&config);
    w->param = floats(w->graph.n_floats);
    w->running = floats(w->graph.n_buffer_floats);
    w->m = floats(w->graph.n_floats);
    sp_graph_init_params(&w->graph, 1, w->param);
    sp_graph_init_params(&w->graph, 2, w->m);
    sp_graph_init_buffers(&w->graph, w->running);
    w->norm = (sp_normalization){
        .n_columns = 2, .name = names, .mean = means, .std = deviations};
    w->state = (sp_checkpoint_state){.step = 2,
                                     .at = {1, 3},
                                     .samples_seen = 7,
                                     .updates = 2,
                                     .seed = 1,
                                     .metrics_bytes = 999,
                                     .data_hash = 0x123456789abcdefu,
                                     .best = 0.25,
                                     .deck = (char *)(uintptr_t)network};
}

static void write_checkpoint(const weights *w, const char *path)
{
    sp_optim optim = {.m = w->m, .t = 2};

    OK(sp_checkpoint_write(path, &w->graph, &w->state, &w->norm, w->param, w->running,
                           &optim));
}

static void free_weights(weights *w)
{
    sp_graph_destroy(&w->graph);
    free(w->param);
    free(w->running);
    free(w->m);
}

/* The arrays of a file are those of w, padding aside. */
static sp_status read_arrays(const weights *w, const char *path, bool is_same)
{
    float *param = floats(w->graph.n_floats), *m = floats(w->graph.n_floats);
    float *running = floats(w->graph.n_buffer_floats);
    sp_optim optim = {.m = m};
    sp_status rc =
        sp_checkpoint_read(path, &w->graph, param, running, is_same ? &optim : NULL);

    for (int i = 0; rc == SP_OK && is_same && i < w->graph.n_params; i++) {
        const sp_param *p = &w->graph.param[i];
        size_t size = (size_t)p->count * sizeof *param;

        check_same(param + p->offset, w->param + p->offset, size, "weight");
        if (m[p->offset] != 0) /* a file may lack them: the optimizer starts afresh */
            check_same(m + p->offset, w->m + p->offset, size, "momentum");
    }
    if (rc == SP_OK && is_same)
        check_same(running, w->running,
                   (size_t)w->graph.n_buffer_floats * sizeof *running, "buffer");
    free(param);
    free(m);
    free(running);
    return rc;
}

static sp_status read_state(const weights *w, const char *path)
{
    sp_checkpoint_state state = {0};
    sp_normalization norm = {0};
    sp_status rc = sp_checkpoint_read_state(path, &state, &norm);

    if (rc == SP_OK && state.deck) {
        check_same(state.deck, network, sizeof network, "deck");
        free(state.deck);
        state.deck = w->state.deck;
        check_same(&state, &w->state, sizeof state, "state");
        if (norm.name)
            check_same(norm.name[0], names[0], strlen(names[0]) + 1, "column");
        if (norm.mean)
            check_same(norm.mean, means, sizeof means, "mean");
    }
    if (state.deck != w->state.deck)
        free(state.deck); /* the rest was not as it should be */
    sp_normalization_destroy(&norm);
    return rc;
}

/* The newest is taken as it was written, or named and left for the one before. */
static bool use_folder(const weights *w)
{
    char path[4096];
    int n_damaged = 0;
    sp_status rc;

    OK(sp_checkpoint_find(FOLDER, NULL, path, &n_damaged));
    if (n_damaged > 0) {
        assert_string_equal(path, step_1);
        check_status(SP_EDATA, SP_EDATA, step_2);
        return false;
    }
    assert_string_equal(path, step_2);
    rc = read_state(w, path);
    if (rc == SP_OK)
        rc = read_arrays(w, path, true);
    check_status(rc, SP_EDATA, step_2);
    return rc == SP_OK;
}

static blob make_folder(weights *w)
{
    make_weights(w);
    if (system("rm -rf " FOLDER " && mkdir " FOLDER) != 0)
        fail_msg("no folder");
    write_checkpoint(w, step_1);
    write_checkpoint(w, step_2);
    assert_true(use_folder(w));
    return blob_read(step_2);
}

static void forget_folder(weights *w, blob good)
{
    free(good.at);
    free_weights(w);
    unlink(step_1);
    unlink(step_2);
    rmdir(FOLDER);
}

static void damaged_checkpoints(void **state)
{
    int n = share("checkpoint", 200), n_good = 0;
    weights w;
    blob good = make_folder(&w);

    (void)state;
    for (int i = 0; i < n; i++) {
        blob bad = mutant_of(good, (uint64_t)i);

        begin_mutant(i);
        blob_write(step_2, bad);
        n_good += use_folder(&w);
        free(bad.at);
    }
    assert_true(n_good < n / 2 + 2);
    forget_folder(&w, good);
}

static void hostile_checkpoints(void **state)
{
    static const char *const set[] = {"/params/conv1/weight",     "/params/bn1/bias",
                                      "/buffers/bn1/running_var", "/optim/m/conv2/bias",
                                      "/normalization/mean",      "/normalization/std"};
    static const char *const attribute[] = {
        "format", "version", "step", "deck", "crc32c", "best_miou", "feature_names"};
    const int n_sets = mutant_n_datasets(), n_attributes = mutant_n_attributes();
    const int total = 6 * n_sets + 7 * n_attributes;
    int n = share("hostile checkpoint", 70);
    weights w;
    blob good = make_folder(&w);

    (void)state;
    for (int i = 0; i < n; i++) {
        int which = (int)((int64_t)i * 389 % total);
        bool is_good;

        begin_mutant(which);
        blob_write(step_2, good);
        if (which < 6 * n_sets) {
            mutant_dataset(step_2, set[which / n_sets], which % n_sets);
            is_good = use_folder(&w);
            if (is_good && !mutant_is_absent(which % n_sets))
                BAD("variant %d of %s was taken", which % n_sets, set[which / n_sets]);
        } else {
            which -= 6 * n_sets;
            mutant_attribute(step_2, attribute[which / n_attributes],
                             which % n_attributes);
            use_folder(&w);
        }
    }
    forget_folder(&w, good);
}

/* Files of weights alone have no checksums, and their arrays any storage. */
static void damaged_weights(void **state)
{
    static const char path[] = "mutant-weights.h5";
    int n = share("weights", 60);
    weights w;
    blob good;
    sp_h5 *file;

    (void)state;
    make_weights(&w);
    OK(sp_h5_create(&file, path));
    for (int i = 0; i < w.graph.n_params + w.graph.n_buffers; i++) {
        bool is_param = i < w.graph.n_params;
        const sp_param *p =
            is_param ? &w.graph.param[i] : &w.graph.buffer[i - w.graph.n_params];
        int64_t dim[3];
        char name[300];

        for (int k = 0; k < p->n_dims; k++)
            dim[k] = p->dim[k];
        snprintf(name, sizeof name, "/%s/%s", is_param ? "params" : "buffers", p->name);
        OK(sp_h5_write(file, name, SP_H5_F32, p->n_dims, dim,
                       (is_param ? w.param : w.running) + p->offset));
    }
    OK(sp_h5_close(file));
    mutant_repack(path);
    OK(sp_checkpoint_verify_weights(path));
    OK(read_arrays(&w, path, false));
    good = blob_read(path);
    for (int i = 0; i < n; i++) {
        blob bad = mutant_of(good, (uint64_t)i);
        sp_status rc;

        begin_mutant(i);
        blob_write(path, bad);
        rc = sp_checkpoint_verify_weights(path);
        if (rc == SP_OK)
            rc = read_arrays(&w, path, false);
        check_status(rc, SP_EDATA, path);
        free(bad.at);
    }
    free(good.at);
    free_weights(&w);
    unlink(path);
}

/* ---- predictions ---- */

static const char prediction_path[] = "mutant-prediction.h5";
enum { POINTS = 40 };

static void make_scan(const char *path)
{
    FILE *to = fopen(path, "w");

    assert_non_null(to);
    fprintf(to, "x y z\n");
    for (int i = 0; i < POINTS; i++)
        fprintf(to, "%d %d 0\n", i, i % 7);
    assert_int_equal(fclose(to), 0);
}

/* As sptrain predict writes them, of one scan. */
static void make_prediction(void)
{
    static const int64_t offsets[] = {0, POINTS}, two = 2, n = POINTS, ignore = 255;
    char *name[] = {"mutant.txt"}, *class_name[] = {"ground", "tree"};
    uint8_t label[POINTS];
    uint64_t row[POINTS];
    sp_h5 *file;

    for (int i = 0; i < POINTS; i++) {
        label[i] = i % 2;
        row[i] = (uint64_t)i;
    }
    OK(sp_h5_create(&file, prediction_path));
    OK(sp_h5_attr_write(file, "/", "ignore_label", SP_H5_I64, -1, &ignore));
    OK(sp_h5_attr_write_texts(file, "/", "class_names", 2, class_name));
    OK(sp_h5_write_texts(file, "/names", 1, name));
    OK(sp_h5_write(file, "/point_offsets", SP_H5_I64, 1, &two, offsets));
    OK(sp_h5_write(file, "/point_labels", SP_H5_U8, 1, &n, label));
    OK(sp_h5_write(file, "/point_index", SP_H5_U64, 1, &n, row));
    OK(sp_h5_close(file));
}

static void use_prediction(void)
{
    char words[][32] = {"apply", "mutant-prediction.h5", "mutant.txt", "--out",
                        "mutant-out.label"};
    char *argv[6] = {words[0], words[1], words[2], words[3], words[4]};
    sp_comm alone;
    sp_status rc;

    sp_comm_open_self(&alone);
    rc = vox_apply(5, argv, &alone);
    check_status(rc, SP_EDATA, prediction_path);
    sp_comm_close(&alone);
}

static void damaged_predictions(void **state)
{
    static const char *const set[] = {"/names", "/point_offsets", "/point_labels",
                                      "/point_index"};
    const int n_sets = mutant_n_datasets(), n_attributes = mutant_n_attributes();
    int n = share("prediction", 60);
    blob good;

    (void)state;
    make_scan("mutant.txt");
    make_prediction();
    use_prediction();
    assert_int_equal(access("mutant-out.label", R_OK), 0);
    mutant_repack(prediction_path);
    good = blob_read(prediction_path);
    for (int i = 0; i < n; i++) {
        int which = i / 3 * 89 % (4 * n_sets);
        blob bad = mutant_of(good, (uint64_t)i);

        begin_mutant(i);
        blob_write(prediction_path, i % 3 ? bad : good);
        if (i % 6 == 0)
            mutant_dataset(prediction_path, set[which / n_sets], which % n_sets);
        else if (i % 3 == 0)
            mutant_attribute(prediction_path, "class_names", which % n_attributes);
        use_prediction();
        free(bad.at);
    }
    free(good.at);
    unlink(prediction_path);
    unlink("mutant-out.label");
    unlink("mutant.txt");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_shards),
        cmocka_unit_test(damaged_shards_of_others),
        cmocka_unit_test(layouts_that_lie_are_refused),
        cmocka_unit_test(hostile_shards),
        cmocka_unit_test(damaged_checkpoints),
        cmocka_unit_test(hostile_checkpoints),
        cmocka_unit_test(damaged_weights),
        cmocka_unit_test(damaged_predictions),
    };

    sp_h5_child_main(argc, argv);
    signal(SIGALRM, say_hang);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
