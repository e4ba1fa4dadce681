/* The training of the library: what it refuses and how, what its hooks get, that it continues
 * from a checkpoint to the same bits, and that two trainings run in two threads. */
#include "fixtures/test.h"

#include <fenv.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_log.h"

#include "../examples/scene.h"

enum { TRAIN = 6, LINE = 200 };

static const char deck_text[] =
    "net: { family = \"dummy\"; width = 0.25; };\n"
    "batch: { size = 2; };\n"
    "train: { epochs = 2; warmup_steps = 0; lr = 0.02; deterministic = \"world\"; };\n"
    "run: { device = \"cpu\"; threads = 1; };\n";

typedef struct objects {
    sp_training_options options;
    sp_training *training;
    sp_deck *deck;
    char line[LINE]; /* the last warning */
    int n_steps, n_evaluations, n_lines;
    int64_t done; /* of the last progress */
    bool wants_stop;
} objects;

static void keep_line(void *arg, int level, const char *line)
{
    objects *o = arg;

    o->n_lines++;
    if (level)
        snprintf(o->line, LINE, "%s", line);
}

static void keep_progress(void *arg, const char *what, int64_t done, int64_t total)
{
    assert_string_equal(what, "evaluating");
    assert_int_equal(total, TRAIN);
    ((objects *)arg)->done = done;
}

static int should_stop(void *arg)
{
    return ((objects *)arg)->wants_stop;
}

static void count_step(void *arg, const sp_step_info *step)
{
    objects *o = arg;

    assert_int_equal(step->step, ++o->n_steps);
}

static void count_evaluation(void *arg, const sp_scores *scores)
{
    assert_int_equal(scores->n_samples, TRAIN);
    ((objects *)arg)->n_evaluations++;
}

static void open_objects(objects *o)
{
    const sp_data_about about = scene_about();
    int64_t sizes[TRAIN];

    memset(o, 0, sizeof *o);
    scene_sizes(0, TRAIN, sizes);
    OK(sp_comm_create_self(&o->options.comm));
    OK(sp_deck_create(&o->deck, deck_text));
    OK(sp_data_create_source(&o->options.train, &about, TRAIN, sizes, scene_read,
                             NULL));
    o->options.deck = o->deck;
    o->options.hooks = (sp_hooks){o,           keep_line,  keep_progress,
                                  should_stop, count_step, count_evaluation};
}

static void close_objects(objects *o)
{
    sp_training_destroy(o->training);
    if (o->options.validation != o->options.train)
        sp_data_destroy(o->options.validation);
    sp_data_destroy(o->options.train);
    sp_deck_destroy(o->deck);
    sp_comm_destroy(o->options.comm);
}

static float *copy_weights(const objects *o)
{
    float *weights =
        calloc((size_t)sp_training_n_weights(o->training), sizeof *weights);

    assert_non_null(weights);
    OK(sp_training_weights(o->training, weights));
    return weights;
}

static void same_weights(const objects *o, float *weights)
{
    float *now = copy_weights(o);

    assert_memory_equal(now, weights,
                        (size_t)sp_training_n_weights(o->training) * sizeof *now);
    free(now);
}

static void refused(objects *o, int status, const char *text)
{
    FAILS(sp_training_create(&o->training, &o->options), status, text);
    assert_null(o->training);
}

static int no_loss(void *arg, const sp_logits *l, float *g, double *loss,
                   double *weight)
{
    (void)arg, (void)l, (void)g, (void)loss, (void)weight;
    return 1;
}

static void round_all_threads(int direction)
{
#pragma omp parallel num_threads(2)
    fesetround(direction);
}

static void rounds_to_nearest(void *arg, const sp_step_info *step)
{
    assert_int_equal(fegetround(), FE_TONEAREST);
    count_step(arg, step);
}

/* Such a program could not load its own checkpoint: net.bn_eps would be another number. */
TEST(a_program_that_rounds_upwards_has_the_same_weights)
{
    float *weights = NULL;

    for (int i = 0; i < 2; i++) {
        objects o;

        open_objects(&o);
        OK(sp_deck_override(o.deck, "run.threads=2"));
        o.options.hooks.step_end = rounds_to_nearest;
        round_all_threads(i ? FE_UPWARD : FE_TONEAREST);
        OK(sp_training_create(&o.training, &o.options));
        for (int step = 0; step < 4; step++)
            OK(sp_training_step(o.training, NULL));
        OK(sp_training_save(o.training, "rounded.h5"));
        OK(sp_training_load(o.training, "rounded.h5"));
        assert_int_equal(fegetround(), i ? FE_UPWARD : FE_TONEAREST);
        round_all_threads(FE_TONEAREST);
        if (i)
            same_weights(&o, weights);
        else
            weights = copy_weights(&o);
        close_objects(&o);
    }
    free(weights);
}

TEST(wrong_options_are_refused)
{
    objects o;
    sp_comm *comm;
    sp_deck *none;

    open_objects(&o);
    comm = o.options.comm;
    o.options.comm = NULL;
    refused(&o, SP_EUSAGE, "options.comm is NULL");
    o.options.comm = comm;
    o.options.n_metrics = 1;
    refused(&o, SP_EUSAGE, "n_metrics");
    o.options.n_metrics = 0;
    OK(sp_deck_override(o.deck, "batch.accumulate=2"));
    o.options.loss = no_loss;
    refused(&o, SP_EUSAGE, "batch.accumulate = 2");
    FAILS(sp_deck_override(o.deck, "train.lrr=1"), SP_EUSAGE, "train.lr");
    OK(sp_deck_override(o.deck, "batch.accumulate=1"));
    OK(sp_training_create(&o.training, &o.options));
    FAILS(sp_training_step(o.training, NULL), SP_EUSAGE,
          "the program's loss has failed");
    assert_int_equal(sp_training_evaluate(o.training, NULL), SP_EUSAGE);
    assert_int_equal(sp_deck_create(&none, "net: {"), SP_EUSAGE);
    assert_null(none);
    assert_int_equal(sp_deck_create(&none, "@include \"a.deck\""), SP_EUSAGE);
    close_objects(&o);
}

/* The voxels of the scenes have an edge of 0.05, that of the key's default is 0.5. Keys that
 * need each other are set in any order. */
TEST(keys_are_compared_with_the_data_and_each_other)
{
    static const struct {
        const char *key, *refusal; /* NULL: accepted */
    } overrides[] = {
        {"augment.elastic=[0.05, 0.1]", NULL},
        {"augment.elastic=[0.1, 0.1, 0.04, 0.1]",
         "augment.elastic: granularity 0.04, expected at least"},
        {"augment.elastic=[]", NULL},
        {"augment.crop=sphere", "augment.crop = \"sphere\" needs augment.crop_size"},
        {"augment.crop_size=[0.4]", NULL},
        {"batch.accumulate=2", NULL},
        {"train.loss=lovasz", NULL},
        {"train.lovasz_per=step", "train.lovasz_per"}, /* it needs one micro-batch */
        {"batch.accumulate=1", NULL},
        {"data.train=[\"a.h5\"]", NULL},
        {"data.folds=1", NULL},
        {"data.folds=3", "data.folds = 3: no effect in the library"}};
    objects o;

    open_objects(&o);
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++) {
        OK(sp_deck_override(o.deck, overrides[i].key));
        if (overrides[i].refusal) {
            refused(&o, SP_EUSAGE, overrides[i].refusal);
            continue;
        }
        OK(sp_training_create(&o.training, &o.options));
        assert_string_equal(o.line, "");
        sp_training_destroy(o.training);
        o.training = NULL;
    }
    FAILS(sp_deck_override(o.deck, "augment.crop=tube"), SP_EUSAGE, "tube");
    close_objects(&o);
}

static void named(int status, const char *text)
{
    FAILS(status, SP_EUSAGE, text);
}

TEST(a_missing_pointer_is_named)
{
    objects o;

    open_objects(&o);
    named(sp_comm_create_self(NULL), "NULL");
    named(sp_comm_sum(NULL, NULL, 0), "NULL");
    named(sp_deck_create(NULL, ""), "sp_deck_create: deck is NULL");
    named(sp_deck_override(NULL, "train.lr=1"), "deck is NULL");
    named(sp_deck_override(o.deck, NULL), "assignment is NULL");
    named(sp_training_create(NULL, &o.options), "training is NULL");
    named(sp_training_create(&o.training, NULL), "options is NULL");
    named(sp_training_step(NULL, NULL), "training is NULL");
    named(sp_training_evaluate(NULL, NULL), "training is NULL");
    named(sp_training_load(NULL, "a.h5"), "training is NULL");
    named(sp_training_load_weights(NULL, "a.h5"), "training is NULL");
    assert_int_equal(sp_training_is_done(NULL), 1);
    OK(sp_training_create(&o.training, &o.options));
    named(sp_training_save(o.training, NULL), "path is NULL");
    named(sp_training_load(o.training, NULL), "NULL");
    named(sp_training_load_weights(o.training, NULL), "NULL");
    named(sp_training_weights(o.training, NULL), "weights is NULL");
    close_objects(&o);
}

/* What the confusion matrix counts too: right voxels, and all with a label. */
static void count_right(void *arg, const sp_logits *l, double *sums)
{
    (void)arg;
    assert_int_equal(l->n_samples, 1);
    assert_int_equal(l->sample_row[1], l->n);
    for (int64_t i = 0; i < l->n; i++) {
        const float *x = l->logits + i * l->n_classes;
        int best = 0;

        for (int c = 1; c < l->n_classes; c++)
            best = x[c] > x[best] ? c : best;
        sums[0] += best == l->labels[i];
        sums[1] += l->labels[i] != SP_NO_LABEL;
    }
}

TEST(hooks_and_metrics_tell_of_the_training)
{
    objects o;
    sp_step_info step;
    sp_scores scores;

    open_objects(&o);
    o.options.validation = o.options.train;
    o.options.n_metrics = 2;
    o.options.metric = count_right;
    OK(sp_training_create(&o.training, &o.options));
    OK(sp_training_step(o.training, &step));
    assert_int_equal(step.is_stopping, 0);
    o.wants_stop = true;
    OK(sp_training_step(o.training, &step));
    assert_int_equal(step.is_stopping, 1);
    assert_int_equal(step.is_epoch_end, 0);
    assert_true(isfinite(step.loss) && step.lr > 0);
    OK(sp_training_evaluate(o.training, &scores));
    assert_true(scores.metrics[0] == scores.accuracy * scores.metrics[1]);
    assert_true(scores.metrics[1] == (double)scores.n_voxels);
    assert_int_equal(scores.n_voxels, sp_data_n_voxels(o.options.train));
    assert_int_equal(o.n_steps, 2);
    assert_int_equal(o.n_evaluations, 1);
    assert_int_equal(o.done, TRAIN);
    while (!sp_training_is_done(o.training))
        OK(sp_training_step(o.training, NULL));
    assert_int_equal(o.n_steps, 2 * TRAIN / 2);
    assert_int_equal(sp_training_step(o.training, NULL), SP_EUSAGE);
    close_objects(&o);
}

static int read_unlabelled(void *arg, int64_t i, int32_t *coords, float *features,
                           int32_t *labels)
{
    const int64_t n = scene_sample(i, coords, features, labels);

    (void)arg;
    for (int64_t j = 0; j < n; j++)
        labels[j] = SP_NO_LABEL;
    return 0;
}

/* The sum of all logits. *arg is the weight. */
static int sum_logits(void *arg, const sp_logits *l, float *g, double *loss,
                      double *weight)
{
    for (int64_t i = 0; i < l->n * l->n_classes; i++) {
        g[i] = 1;
        *loss += (double)l->logits[i];
    }
    *weight = *(const double *)arg;
    return 0;
}

TEST(a_loss_of_the_caller_needs_no_labels)
{
    const sp_data_about about = scene_about();
    double weight = 1;
    int64_t sizes[TRAIN];
    sp_step_info step;
    objects o;

    open_objects(&o);
    sp_data_destroy(o.options.train);
    scene_sizes(0, TRAIN, sizes);
    OK(sp_data_create_source(&o.options.train, &about, TRAIN, sizes, read_unlabelled,
                             NULL));
    refused(&o, SP_EDATA, "no voxel of 6 samples has a label");
    o.options.loss = sum_logits;
    o.options.loss_arg = &weight;
    OK(sp_deck_override(o.deck, "train.nonfinite_limit=2"));
    OK(sp_training_create(&o.training, &o.options));
    OK(sp_training_step(o.training, &step));
    assert_true(isfinite(step.loss) && step.grad_norm > 0 && !step.is_skipped);
    weight = INFINITY;
    OK(sp_training_step(o.training, &step));
    assert_true(isnan(step.loss) && step.is_skipped);
    FAILS(sp_training_step(o.training, NULL), SP_ENUMERIC,
          "non-finite 2 steps in a row");
    close_objects(&o);
}

/* Arrays have no blocks, and no view but the stored one counts. */
TEST(an_evaluation_counts_samples_as_stored)
{
    objects o;
    sp_scores scores;
    double loss[2];

    for (int i = 0; i < 2; i++) {
        open_objects(&o);
        o.options.validation = o.options.train;
        if (i == 1) {
            OK(sp_deck_override(o.deck, "eval.views=3"));
            OK(sp_deck_override(o.deck, "eval.merge=true"));
        }
        OK(sp_training_create(&o.training, &o.options));
        assert_int_equal(strncmp(o.line, "eval.views: no effect", 21) == 0, i);
        OK(sp_training_evaluate(o.training, &scores));
        assert_int_equal(scores.n_voxels, sp_data_n_voxels(o.options.train));
        assert_int_equal(o.done, TRAIN);
        loss[i] = scores.loss;
        close_objects(&o);
    }
    assert_true(loss[0] == loss[1]);
}

/* Each would change what is trained or evaluated if `sptrain` read the deck. */
TEST(keys_that_objects_of_the_caller_replace_are_answered)
{
    static const char *const warned[][2] = {
        {"data.test=[\"t.h5\"]", "data.test: "},
        {"data.val_sets=[\"night=n.h5\"]", "data.val_sets: "},
        {"eval.merge=true", "eval.merge: "},
        {"eval.members=[\"m.spm\"]", "eval.members: "},
        {"run.init_from=w.h5", "run.init_from: "},
        {"run.init_norm=source", "run.init_norm: "}};
    objects o;

    for (size_t i = 0; i < sizeof warned / sizeof *warned; i++) {
        open_objects(&o);
        OK(sp_deck_override(o.deck, warned[i][0]));
        OK(sp_training_create(&o.training, &o.options));
        assert_int_equal(strncmp(o.line, warned[i][1], strlen(warned[i][1])), 0);
        close_objects(&o);
    }
}

TEST(a_checkpoint_continues_to_the_same_bits)
{
    objects whole, part;
    float *weights;

    open_objects(&whole);
    OK(sp_training_create(&whole.training, &whole.options));
    for (int i = 0; i < 2; i++)
        OK(sp_training_step(whole.training, NULL));
    OK(sp_training_save(whole.training, "two.h5"));
    while (!sp_training_is_done(whole.training))
        OK(sp_training_step(whole.training, NULL));
    weights = copy_weights(&whole);

    open_objects(&part);
    OK(sp_training_create(&part.training, &part.options));
    OK(sp_training_load(part.training, "two.h5"));
    part.n_steps = 2;
    while (!sp_training_is_done(part.training))
        OK(sp_training_step(part.training, NULL));
    same_weights(&part, weights);
    OK(sp_training_load_weights(part.training, "two.h5"));
    FAILS(sp_training_load(part.training, "absent.h5"), SP_EDATA, "absent.h5");
    free(weights);
    close_objects(&part);
    OK(sp_deck_override(whole.deck, "train.seed=5"));
    sp_training_destroy(whole.training);
    OK(sp_training_create(&whole.training, &whole.options));
    assert_int_equal(sp_training_load(whole.training, "two.h5"), SP_EUSAGE);
    close_objects(&whole);
}

TEST(a_checkpoint_of_another_training_is_refused)
{
    const char *const key[] = {"batch.size=3", "net.width=0.5", "train.seed=3"};

    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        objects o;

        open_objects(&o);
        OK(sp_training_create(&o.training, &o.options));
        OK(sp_training_save(o.training, "first.h5"));
        sp_training_destroy(o.training);
        OK(sp_deck_override(o.deck, key[i]));
        OK(sp_training_create(&o.training, &o.options));
        named(sp_training_load(o.training, "first.h5"), "it must stay the same");
        close_objects(&o);
    }
}

TEST(loops_of_the_caller_keep_their_threads)
{
    int n, is_dynamic;
    objects o;

    omp_set_num_threads(3);
    omp_set_dynamic(1);
    n = omp_get_max_threads();
    is_dynamic = omp_get_dynamic();
    open_objects(&o);
    OK(sp_training_create(&o.training, &o.options));
    assert_int_equal(omp_get_max_threads(), n);
    OK(sp_training_step(o.training, NULL));
    close_objects(&o);
    assert_int_equal(omp_get_max_threads(), n);
    assert_int_equal(omp_get_dynamic(), is_dynamic);
    omp_set_dynamic(0);
}

/* As Python's multiprocessing does it. */
TEST(a_forked_child_predicts)
{
    const sp_model_options two_threads = {.threads = 2};
    const int64_t n = scene_sample(0, NULL, NULL, NULL);
    int32_t *coords = calloc((size_t)n * 5, sizeof *coords);
    float *features = calloc((size_t)n * SCENE_FEATURES, sizeof *features);
    uint16_t *labels = calloc((size_t)n * 2, sizeof *labels);
    sp_model *model;
    int status = -1;
    pid_t child;
    objects o;

    open_objects(&o);
    OK(sp_deck_override(o.deck, "net.width=1"));
    OK(sp_training_create(&o.training, &o.options));
    OK(sp_training_save(o.training, "model.h5"));
    OK(sp_model_open(&model, "model.h5", &two_threads));
    scene_sample(0, coords, features, coords + 3 * n);
    OK(sp_model_predict(model, n, coords, features, NULL, labels));
    child = fork();
    if (child == 0) {
        alarm(20); /* ends a child that waits for threads that it does not have */
        status = sp_model_predict(model, n, coords, features, NULL, labels + n) ||
                 memcmp(labels, labels + n, (size_t)n * sizeof *labels) != 0 ||
                 sp_model_open(&model, "model.h5", &two_threads) ||
                 sp_model_predict(model, n, coords, features, NULL, labels + n);
        _exit(status);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    sp_model_close(model);
    free(coords), free(features), free(labels);
    close_objects(&o);
}

/* A network that differs in its last layer only, so that the others could be read. */
TEST(weights_stay_if_a_file_does_not_fit)
{
    static const char *const last[] = {"kernel = 1", "kernel = 3"};
    float *weights = NULL;
    char key[LINE];
    objects o;

    open_objects(&o);
    for (int i = 0; i < 2; i++) {
        sp_training_destroy(o.training);
        snprintf(key, sizeof key,
                 "net.layers=( { name = \"a\"; op = \"conv\"; out = 4; kernel = 3; }, "
                 "{ name = \"b\"; op = \"conv\"; out = 3; %s; } )",
                 last[i]);
        OK(sp_deck_override(o.deck, key));
        OK(sp_deck_override(o.deck, i ? "train.seed=2" : "train.seed=1"));
        OK(sp_training_create(&o.training, &o.options));
        if (i == 0)
            OK(sp_training_save(o.training, "other.h5"));
    }
    weights = copy_weights(&o);
    FAILS(sp_training_load_weights(o.training, "other.h5"), SP_EDATA,
          "/params/b/weight");
    same_weights(&o, weights);
    free(weights);
    close_objects(&o);
}

TEST(averages_of_weights_are_saved)
{
    objects o;
    float *weights;

    open_objects(&o);
    OK(sp_deck_override(o.deck, "train.ema=0.5"));
    OK(sp_training_create(&o.training, &o.options));
    OK(sp_training_step(o.training, NULL));
    OK(sp_training_save(o.training, "ema.h5"));
    weights = copy_weights(&o);
    OK(sp_training_step(o.training, NULL));
    OK(sp_training_load(o.training, "ema.h5"));
    same_weights(&o, weights);
    free(weights);
    close_objects(&o);
}

static void *train_in_thread(void *arg)
{
    objects *o = arg;

    while (!sp_training_is_done(o->training))
        if (sp_training_step(o->training, NULL) != SP_OK)
            return "failed";
    return NULL;
}

TEST(two_trainings_run_in_two_threads)
{
    objects o[2];
    pthread_t thread[2];
    float *weights;
    void *failed;

    for (int i = 0; i < 2; i++) {
        open_objects(&o[i]);
        OK(sp_training_create(&o[i].training, &o[i].options));
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, train_in_thread, &o[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
        assert_int_equal(o[i].n_steps, TRAIN);
    }
    weights = copy_weights(&o[0]);
    same_weights(&o[1], weights);
    free(weights);
    close_objects(&o[0]);
    close_objects(&o[1]);
}
