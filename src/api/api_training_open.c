/* Opens the parts of a training, in the order that they need each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/sp_memory.h"
#include "base/sp_list.h"
#include "data/sp_voxel.h"

/* ---- hooks ---- */

static void route_line(void *arg, sp_log_kind kind, const char *line)
{
    sp_training *t = arg;
    const bool is_warning = kind == SP_LOG_WARN || kind == SP_LOG_WARN0;

    if (!t->options.hooks.log)
        return;
    pthread_mutex_lock(&t->log_lock);
    t->options.hooks.log(t->options.hooks.arg, is_warning, line);
    pthread_mutex_unlock(&t->log_lock);
}

/* The arguments of the caller's loss. sample_row [n_samples + 1] is filled. */
static sp_logits logits_of_rows(const sp_net_rows *rows, int64_t *sample_row)
{
    for (int b = 0; b <= rows->n_samples; b++)
        sample_row[b] = rows->sample_row[b];
    return (sp_logits){.n = rows->n,
                       .n_classes = rows->n_classes,
                       .logits = rows->logits,
                       .labels = rows->labels,
                       .n_samples = rows->n_samples,
                       .sample = rows->sample,
                       .sample_row = sample_row};
}

static int call_own_loss(void *arg, const sp_net_rows *rows, float *gradient,
                         double *loss_sum, double *weight_sum)
{
    const sp_training *t = arg;
    int64_t *sample_row = malloc(((size_t)rows->n_samples + 1) * sizeof *sample_row);
    sp_logits logits;
    int failed = 1;

    if (sample_row) {
        logits = logits_of_rows(rows, sample_row);
        failed = t->options.loss(t->options.loss_arg, &logits, gradient, loss_sum,
                                 weight_sum);
    }
    free(sample_row);
    return failed;
}

/* ---- opening ---- */

static sp_status training_check_options(const sp_training_options *o)
{
    if (!o->deck || !o->train)
        return SP_FAIL(SP_EUSAGE, "sp_training_create: options.%s is NULL",
                       o->deck ? "train" : "deck");
    if (o->n_metrics < 0 || (o->n_metrics > 0 && !o->metric))
        return SP_FAIL(SP_EUSAGE,
                       "sp_training_create: n_metrics is %d, and metric is %s",
                       o->n_metrics, o->metric ? "set" : "NULL");
    return SP_OK;
}

/* A loss of one's own is of a whole step. */
static sp_status training_check_loss(const sp_training *t)
{
    if (t->options.loss && t->config.batch.accumulate > 1)
        return SP_FAIL(
            SP_EUSAGE,
            "batch.accumulate = %d: a loss of the program needs steps of one "
            "micro-batch",
            t->config.batch.accumulate);
    return SP_OK;
}

/* SP_EUSAGE on all ranks if the bytes differ between them. Collective. */
static sp_status training_check_same(const sp_training *t, const void *data,
                                     size_t bytes, const char *what)
{
    bool is_same;

    SP_TRY(sp_comm_is_same(t->options.comm, data, bytes, &is_same));
    return is_same ? SP_OK
                   : SP_FAIL(SP_EUSAGE,
                             "sp_training_create: the ranks have different values of "
                             "%s, expected the same on all of them",
                             what);
}

/* What differs between the ranks would end in a deadlock or in wrong sums. Each rank has
 * its own cores and devices. Collective. */
static sp_status training_check_ranks(const sp_training *t)
{
    const uint64_t val_hash = t->validation ? t->validation->set.hash : 0;
    const int own[] = {t->options.loss != NULL, t->options.n_metrics};
    sp_status rc = SP_OK;

    for (int i = 0; i < sp_config_n_keys() && rc == SP_OK; i++) {
        const char *key = sp_config_key(i);
        char *value = sp_config_value(&t->config, key);

        if (strcmp(key, "run.threads") != 0 && strcmp(key, "run.devices") != 0)
            rc = training_check_same(t, value ? value : "", value ? strlen(value) : 0,
                                     key);
        free(value);
    }
    SP_TRY(rc);
    SP_TRY(training_check_same(t, &t->train->set.hash, sizeof t->train->set.hash,
                               "options.train"));
    SP_TRY(training_check_same(t, &val_hash, sizeof val_hash, "options.validation"));
    return training_check_same(t, own, sizeof own, "options.loss or options.n_metrics");
}

/* Has the validation data read as the training data's classes and columns, once. */
static sp_status training_match_data(sp_data *train, sp_data *validation)
{
    if (validation == train || validation->matched_to == train)
        return SP_OK;
    if (validation->matched_to)
        return SP_FAIL(SP_EUSAGE,
                       "the validation data belong to another training set already: "
                       "open them once for each");
    SP_TRY(sp_dataset_match(&train->set, &validation->set));
    validation->matched_to = train;
    return SP_OK;
}

static sp_status training_use_data(sp_training *t)
{
    sp_data_sets *data = &t->data;
    double factor;

    if (t->validation)
        SP_TRY(training_match_data(t->train, t->validation));
    data->train = t->train->set;
    SP_TRY(sp_voxel_factor(&t->config, &data->train, &factor));
    SP_TRY(sp_network_use_columns(&t->network, &t->config, &data->train));
    if (!t->validation)
        return SP_OK;
    data->val = t->validation->set;
    return sp_voxel_factor(&t->config, &data->val, &factor);
}

static sp_status alloc_results(sp_training *t)
{
    const size_t n = (size_t)t->options.n_metrics;
    api_metrics *own = &t->own;

    own->n = t->options.n_metrics;
    SP_TRY(SP_NEW(&own->exact, n * SP_EXACT_WIDE, "metrics"));
    SP_TRY(SP_NEW(&own->sample, n, "metrics"));
    SP_TRY(SP_NEW(&own->total, n, "metrics"));
    SP_TRY(SP_NEW(&t->iou, t->network.n_classes, "metrics"));
    SP_TRY(sp_metrics_create(&t->metrics, t->network.n_classes, 0));
    return sp_arena_create(&t->scratch, 0, "predictions");
}

/* Keys in whose place the caller has objects and functions. A fold among the training
 * data would be trained on, so folds are refused. Evaluations count samples as stored:
 * no views are planned, and no points of blocks are asked for, which arrays lack. */
static sp_status training_check_keys(sp_config *config)
{
    const struct {
        bool is_set;
        const char *key, *instead;
    } keys[] = {
        {config->data.test.n > 0, "data.test", "options.validation is evaluated"},
        {config->data.val_sets.n > 0, "data.val_sets",
         "options.validation is evaluated"},
        {config->eval.merge, "eval.merge", "samples are evaluated as stored"},
        {config->eval.views > 1, "eval.views", "samples are evaluated as stored"},
        {config->eval.members.n > 0, "eval.members", "one model is evaluated"},
        {*config->run.init_from != '\0', "run.init_from",
         "sp_training_load_weights reads such a file"},
        {config->run.init_norm == SP_INIT_NORM_SOURCE, "run.init_norm",
         "options.train has the statistics"},
    };

    if (config->data.folds > 1)
        return SP_FAIL(SP_EUSAGE,
                       "%sdata.folds = %d: no effect in the library, which trains on "
                       "all of options.train; pass the files of the folds as "
                       "options.train and options.validation, and set data.folds = 0",
                       sp_config_where(config, "data.folds"), config->data.folds);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].is_set)
            sp_log_warn0("%s: no effect in the library: %s", keys[i].key,
                         keys[i].instead);
    config->eval.merge = false;
    config->eval.views = 1;
    return SP_OK;
}

static sp_status training_open_evaluation(sp_training *t)
{
    if (!t->validation)
        return SP_OK;
    if (!t->validation->set.has_labels && t->options.n_metrics == 0)
        return SP_FAIL(SP_EDATA, "the validation data have no labels");
    SP_TRY(sp_evaluator_open(&t->evaluator, &t->data));
    return sp_comm_agree(t->options.comm, alloc_results(t));
}

static sp_status open_training(sp_training *t)
{
    const sp_config *config = &t->config;
    sp_comm *comm = t->options.comm;
    sp_device *device = &t->device;
    sp_network *network = &t->network;
    sp_learner *learner = &t->learner;

    sp_learner_begin(learner, config, &t->data.train, network, &t->budgets);
    learner->is_free_loss = t->options.loss != NULL;
    sp_evaluator_begin(&t->evaluator, config, comm, network, &t->budgets);
    sp_device_begin(device, config, comm);
    SP_TRY(sp_device_open(device, &(sp_liberties){0}));
    SP_TRY(sp_device_open_transport(device));
    SP_TRY(sp_comm_agree(comm, training_use_data(t)));
    SP_TRY(sp_learner_open(learner, device, &t->data, sp_loader_slots(config)));
    if (t->options.loss)
        network->net.own_loss = (sp_net_own_loss){call_own_loss, t};
    SP_TRY(training_open_evaluation(t));
    SP_TRY(sp_memory_bound(&t->budgets, device, &t->data, learner, &t->evaluator));
    t->total_samples = sp_step_total_samples(learner, &t->state);
    return sp_comm_agree(comm, sp_loader_seek(learner->loader, t->state.at));
}

int sp_training_create(sp_training **training, const sp_training_options *options)
{
    api_caller before;
    sp_training *t;
    sp_status rc;

    API_NEED(training, "training");
    *training = NULL;
    API_NEED(options, "options");
    API_NEED(options->comm, "options.comm");
    SP_TRY(sp_comm_agree(options->comm, training_check_options(options)));
    SP_TRY(SP_NEW(&t, 1, "a training"));
    t->options = *options;
    t->train = options->train;
    t->validation = options->validation;
    t->state.best = NAN;
    t->route = (sp_log_route){options->comm->rank, route_line, t};
    pthread_mutex_init(&t->log_lock, NULL);
    before = api_enter(t);
    rc = api_deck_config(options->deck, &t->config);
    if (rc == SP_OK && !sp_config_is_set(&t->config, "data.voxel_size"))
        t->config.data.voxel_size = options->train->set.voxel_size;
    if (rc == SP_OK)
        rc = training_check_loss(t);
    rc = sp_comm_agree(options->comm, rc);
    if (rc == SP_OK)
        rc = training_check_ranks(t);
    if (rc == SP_OK)
        rc = training_check_keys(&t->config);
    if (rc == SP_OK) {
        t->state.seed = t->config.train.seed;
        rc = open_training(t);
    }
    if (rc == SP_OK)
        *training = t;
    else
        sp_training_destroy(t);
    return api_leave(before, rc);
}

void sp_training_destroy(sp_training *t)
{
    api_caller before;

    if (!t)
        return;
    before = api_enter(t);
    sp_learner_close_loader(&t->learner);
    sp_evaluator_close(&t->evaluator);
    sp_learner_close(&t->learner);
    sp_network_close(&t->network);
    sp_device_close(&t->device);
    sp_metrics_destroy(&t->metrics);
    sp_checkpoint_state_destroy(&t->state);
    sp_arena_destroy(&t->scratch);
    sp_config_destroy(&t->config);
    free(t->own.exact);
    free(t->own.sample);
    free(t->own.total);
    free(t->iou);
    pthread_mutex_destroy(&t->log_lock);
    api_leave(before, SP_OK);
    free(t);
}
