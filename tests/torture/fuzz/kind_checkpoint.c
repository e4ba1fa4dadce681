/* Checkpoints and files of weights, read as a run that continues reads them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "h5/sp_h5.h"
#include "net/sp_optim.h"
#include "torture/fuzz/checkpoint_seeds.h"
#include "torture/fuzz/fuzz.h"
#include "torture/fuzz/mutate_h5.h"
#include "torture/fuzz/recipe_checks.h"

/* The content of the good checkpoint. */
typedef struct content {
    sp_checkpoint_state state;
    sp_normalization norm;
    float *param, *running, *m;
} content;

static sp_graph graph;
static content good;
static blob good_file, weights_file[H5_N_STORES + 1];

static const char folder[] = "checkpoints";
static const char step_1[] = "checkpoints/step-000000001.h5";
static const char step_2[] = "checkpoints/step-000000002.h5";
static const char weights_path[] = "weights.h5";

/* ---- seeds ---- */

static float *floats(int64_t n)
{
    float *x = calloc((size_t)n + 1, sizeof *x);

    mutate_check(x, "out of memory");
    return x;
}

static void make_content(content *c)
{
    memset(c, 0, sizeof *c);
    c->param = floats(graph.n_floats);
    c->m = floats(graph.n_floats);
    c->running = floats(graph.n_buffer_floats);
}

static void free_content(content *c)
{
    sp_checkpoint_state_destroy(&c->state);
    sp_normalization_destroy(&c->norm);
    free(c->param);
    free(c->m);
    free(c->running);
}

static sp_status read_content(const char *path, content *c)
{
    sp_optim optim = {.state = {[SP_OPTIM_STATE_M] = c->m}};

    SP_TRY(sp_checkpoint_read_state(path, &c->state, &c->norm));
    return sp_checkpoint_read(path, &graph, c->param, c->running, &optim, NULL);
}

/* Writes weights as a dozen lines of h5py would: no attributes, no checksums. */
static void write_weights(void)
{
    sp_h5 *file;

    fuzz_must(sp_h5_create(&file, weights_path));
    for (int i = 0; i < graph.n_params + graph.n_buffers; i++) {
        bool is_param = i < graph.n_params;
        const sp_param *p =
            is_param ? &graph.param[i] : &graph.buffer[i - graph.n_params];
        int64_t dim[3];
        char name[300];

        for (int k = 0; k < p->n_dims; k++)
            dim[k] = p->dim[k];
        snprintf(name, sizeof name, "/%s/%s", is_param ? "params" : "buffers", p->name);
        fuzz_must(sp_h5_write(file, name, SP_H5_F32, p->n_dims, dim,
                              (is_param ? good.param : good.running) + p->offset));
    }
    fuzz_must(sp_h5_close(file));
}

static void prepare(void)
{
    seed_run();
    seed_graph(&graph);
    make_content(&good);
    fuzz_must(read_content(SEED_CHECKPOINT, &good));
    good_file = blob_read(SEED_CHECKPOINT);
    write_weights();
    h5_store_all(weights_path, weights_file);
}

/* ---- reading ---- */

static void check_texts(char **a, char **b, int n, const char *what)
{
    if (!a != !b)
        fuzz_fault("no %s, and nobody noticed", what);
    for (int i = 0; a && i < n; i++)
        if (strcmp(a[i], b[i]) != 0)
            fuzz_fault("another %s, and nobody noticed", what);
}

static void check_row(const double *a, const double *b, int n, const char *what)
{
    if (!a != !b)
        fuzz_fault("no %s, and nobody noticed", what);
    fuzz_same_bytes(a, b, a ? (size_t)n * sizeof *a : 0, what);
}

static void compare_norm(const sp_normalization *got, const sp_normalization *want)
{
    const int n = want->n_columns, classes = want->n_classes;

    if (got->n_columns != n || got->n_classes != classes)
        fuzz_fault("another number of columns or classes, and nobody noticed");
    check_texts(got->name, want->name, n, "column");
    check_row(got->mean, want->mean, n, "mean");
    check_row(got->std, want->std, n, "deviation");
    check_texts(got->class_name, want->class_name, classes, "class");
    check_texts(got->class_code, want->class_code, classes, "code");
    check_row(got->class_weight, want->class_weight, classes, "weight of a class");
    fuzz_same_recipe(got->recipe, want->recipe);
}

static void compare_state(const content *c)
{
    sp_checkpoint_state got = c->state, want = good.state;

    if (!got.deck || strcmp(got.deck, want.deck) != 0)
        fuzz_fault("another deck, and nobody noticed");
    got.deck = want.deck = NULL;
    fuzz_same_bytes(&got, &want, sizeof got, "state");
    compare_norm(&c->norm, &good.norm);
}

static void compare_arrays(const content *c)
{
    for (int i = 0; i < graph.n_params; i++) {
        const sp_param *p = &graph.param[i];
        size_t size = (size_t)p->count * sizeof *c->param;

        fuzz_same_bytes(c->param + p->offset, good.param + p->offset, size, "weight");
        if (c->m[p->offset] !=
            0) /* a file may lack them: the optimizer starts afresh */
            fuzz_same_bytes(c->m + p->offset, good.m + p->offset, size, "momentum");
    }
    fuzz_same_bytes(c->running, good.running, (size_t)graph.n_buffer_floats * 4,
                    "buffer");
}

/* Numbers that are accepted must be fit to compute with: a run that continues relies on
 * these. */
static void check_sane(const content *c)
{
    const sp_checkpoint_state *s = &c->state;
    const sp_normalization *norm = &c->norm;

    if (s->at.epoch < 0 || s->at.epoch > s->step || s->step > s->samples_seen ||
        s->at.position < 0 || s->at.position > s->samples_seen || s->updates < 0 ||
        s->updates > s->step || s->skipped < 0 || s->skipped > s->step ||
        s->metrics_bytes < 0 || s->best < 0 || s->best > 1 || !s->deck)
        fuzz_fault("a state that no run comes to was taken");
    for (int i = 0; norm->std && i < norm->n_columns; i++)
        if (!isfinite(norm->mean[i]) || !(norm->std[i] > 0) || !isfinite(norm->std[i]))
            fuzz_fault("mean %g, deviation %g: taken", norm->mean[i], norm->std[i]);
    fuzz_sane_recipe(norm->recipe);
    for (int i = 0; norm->class_weight && i < norm->n_classes; i++)
        if (!(norm->class_weight[i] >= 0) || !isfinite(norm->class_weight[i]))
            fuzz_fault("weight %g of a class was taken", norm->class_weight[i]);
}

/* The newest checkpoint is accepted as it was written, or named and left for the one
 * before. Where its checksums fit the change, the test asks only that nothing
 * crashes. */
static bool use(bool is_covered)
{
    char path[4096];
    int n_damaged = 0;
    sp_h5 *file;
    content c;
    sp_status rc;

    if (sp_checkpoint_find(&file, folder, NULL, path, &n_damaged) != SP_OK)
        fuzz_fault("no checkpoint is found: %s", sp_error_last()->message);
    sp_h5_close(file);
    if (n_damaged > 0) {
        if (strcmp(path, step_1) != 0)
            fuzz_fault("%s is taken instead of %s", path, step_1);
        return fuzz_is_ok(SP_EDATA, step_2);
    }
    make_content(&c);
    rc = read_content(step_2, &c);
    if (rc == SP_OK)
        check_sane(&c);
    if (rc == SP_OK && is_covered) {
        compare_state(&c);
        compare_arrays(&c);
    }
    free_content(&c);
    return fuzz_is_ok(rc, step_2);
}

/* ---- mutants ---- */

static void put(bool is_damaged, uint64_t *rng)
{
    mkdir(folder, 0700);
    blob_write(step_1, good_file);
    fuzz_put_seed(step_2, good_file, is_damaged, rng);
}

static bool run_bytes(uint64_t *rng)
{
    put(true, rng);
    return use(true);
}

static bool run_values(uint64_t *rng)
{
    bool is_mended = mutate_below(rng, 4) > 0;

    put(false, rng);
    for (size_t k = 1 + mutate_below(rng, 2); k > 0; k--)
        h5_change_value(step_2, rng);
    if (is_mended)
        h5_mend_checkpoint_sums(step_2);
    return use(!is_mended);
}

/* Replaces a dataset or a root attribute by one that is not as it should be. */
static bool put_impostor(const char *path, uint64_t *rng)
{
    static const char *const attribute[] = {
        "format",         "version",      "step",
        "deck",           "crc32c",       "best_miou",
        "epoch",          "data_hash",    "feature_names",
        "recipe/version", "recipe/block", "recipe/column_names",
        "recipe/formats", "recipe/unit",  "recipe/column_divisors",
        "val_hash",       "eval_due"};
    enum { N = sizeof attribute / sizeof *attribute };
    char *const *names;
    int n, variant;

    if (mutate_below(rng, 3) == 0) {
        h5_put_attribute(path, attribute[mutate_below(rng, N)], h5_any_attribute(rng));
        return false;
    }
    names = h5_list(path, &n);
    variant = h5_any_impostor(rng);
    h5_put_impostor(path, names[mutate_below(rng, (size_t)n)], variant);
    return !h5_is_absent(variant) && !h5_is_linked(variant);
}

static bool run_structure(uint64_t *rng)
{
    bool must_refuse, is_taken;

    blob_write("neighbour.h5", good_file);
    put(false, rng);
    must_refuse = put_impostor(step_2, rng);
    is_taken = use(false);
    if (is_taken && must_refuse)
        fuzz_fault("an impostor was taken");
    return is_taken;
}

/* Files of weights alone have no checksums. */
static bool run_weights(uint64_t *rng)
{
    blob b = weights_file[mutate_below(rng, H5_N_STORES)];
    size_t how = mutate_below(rng, 4);
    CLOSED_BY(free_content) content c;
    sp_status rc;

    fuzz_put_seed(weights_path, b, how < 2, rng);
    if (how == 2)
        h5_damage_chunk(weights_path, rng);
    if (how == 3)
        h5_change_dataset(weights_path, rng);
    make_content(&c);
    rc = sp_checkpoint_verify_weights(weights_path, SP_INTACT);
    if (rc == SP_OK)
        rc = sp_checkpoint_read(weights_path, &graph, c.param, c.running, NULL, NULL);
    return fuzz_is_ok(rc, weights_path);
}

const fuzz_kind fuzz_checkpoint = {"checkpoint", 40, prepare, run_bytes};
const fuzz_kind fuzz_checkpoint_values = {"checkpoint-values", 40, prepare, run_values};
const fuzz_kind fuzz_checkpoint_structure = {"checkpoint-structure", 30, prepare,
                                             run_structure};
const fuzz_kind fuzz_weights = {"weights", 30, prepare, run_weights};
