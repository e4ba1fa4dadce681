#include "train/sp_test.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "api/sp_memory.h"
#include "base/sp_log.h"
#include "h5/sp_h5.h"
#include "predict/sp_scans.h"
#include "train/sp_evaluate.h"
#include "train/sp_output.h"

sp_status sp_test_check(const sp_config *config, const sp_dataset *test)
{
    sp_scans scans;
    sp_status rc = SP_OK;

    if (!test->n_shards)
        return SP_OK;
    if (!test->has_labels)
        return SP_FAIL(
            SP_EDATA,
            "%s: /labels: data.test is evaluated after the training, expected "
            "labels, found none",
            test->shard[0].path);
    if (config->eval.merge) {
        rc = sp_scans_create(&scans, test);
        sp_scans_destroy(&scans);
    }
    return rc;
}

/* Rank 0: opens best.h5 and reads the epoch and step of its weights. */
static sp_status open_best(const sp_trainer *t, sp_h5 **file, int64_t at[2])
{
    sp_checkpoint_state state = {0};
    char path[PATH_MAX];
    sp_status rc;

    snprintf(path, sizeof path, "%s/checkpoints/best.h5", t->session.run.dir);
    SP_TRY(sp_checkpoint_open(file, path, SP_FINITE));
    rc = sp_checkpoint_read_open_state(*file, &state, NULL);
    at[0] = state.step;
    at[1] = sp_position_epochs(state.at);
    sp_checkpoint_state_destroy(&state);
    return rc;
}

/* Gives the network the weights to test. at: their step and epoch. */
static sp_status load_best(sp_trainer *t, int64_t at[2])
{
    sp_session *s = &t->session;
    sp_comm *comm = s->comm;
    sp_h5 *file = NULL;
    sp_status rc;

    at[0] = t->state.step;
    at[1] = s->epoch;
    if (isnan(t->state.best)) {
        if (s->config->run.weights == SP_WEIGHTS_EMA)
            sp_learner_exchange_average(&t->learner);
        return SP_OK;
    }
    rc = sp_comm_agree(comm, comm->rank == 0 ? open_best(t, &file, at) : SP_OK);
    if (rc == SP_OK)
        rc = sp_session_load(s, &t->network, &(sp_weights_source){.file = file});
    sp_h5_close(file);
    SP_TRY(rc);
    return sp_comm_bcast(comm, at, 2 * sizeof *at, 0);
}

/* Closes the training's loaders and opens a pass over data.test, which replaces
 * data.val. */
static sp_status turn_to_test(sp_trainer *t)
{
    sp_data_sets *data = &t->data;
    const sp_dataset val = data->val;

    sp_learner_close_loader(&t->learner);
    sp_evaluator_close(&t->evaluator);
    data->val = data->test;
    data->test = val;
    SP_TRY(sp_evaluator_open(&t->evaluator, data));
    return sp_memory_bound(&t->budgets, &t->device, data, &t->learner, &t->evaluator);
}

static sp_status evaluate_test(sp_trainer *t, sp_status (*check_stop)(void *arg),
                               sp_metrics *metrics)
{
    sp_evaluator *e = &t->evaluator;
    int64_t at[2];

    SP_TRY(load_best(t, at));
    SP_TRY(turn_to_test(t));
    SP_TRY(sp_comm_agree(e->comm, sp_metrics_create(metrics, t->network.n_classes,
                                                    sp_evaluate_parts(e, &e->val))));
    SP_TRY(sp_evaluate_pass(&t->session, e, &e->val, metrics, check_stop, t, NULL));
    return sp_output_test(&t->session, e, metrics,
                          isnan(t->state.best) ? "" : "best.h5", at[0], at[1],
                          &t->state.metrics_bytes);
}

sp_status sp_test_run(sp_trainer *t, sp_status (*check_stop)(void *arg))
{
    sp_metrics metrics = {0};
    const double begin = sp_now_s();
    sp_status rc;

    if (!t->data.test.n_shards)
        return SP_OK;
    rc = evaluate_test(t, check_stop, &metrics);
    sp_metrics_destroy(&metrics);
    t->eval_s += sp_now_s() - begin;
    return rc;
}
