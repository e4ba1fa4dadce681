/* `sptrain check`: describes the run that a deck leads to, without training. */
#include "train/sp_check.h"

#include <limits.h>

#include "api/sp_labels.h"
#include "base/sp_log.h"
#include "h5/sp_h5.h"
#include "train/sp_init.h"
#include "train/sp_output.h"
#include "train/sp_resume.h"
#include "train/sp_test.h"
#include "weights/sp_packed.h"

static sp_status check_memory(sp_checked *c)
{
    const sp_config *config = c->session.config;
    const sp_dataset *val = &c->data.val;
    sp_evaluator *e = &c->evaluator;
    const bool has_eval = config->run.eval_every > 0 && val->n_samples > 0;
    sp_status rc = SP_OK;

    if (has_eval && val->has_labels)
        rc = sp_evaluator_measure_merging(e, &c->data);
    if (has_eval && rc == SP_OK)
        rc = sp_sampler_open(&e->val.sampler, val, e->comm, config, false);
    SP_TRY(sp_comm_agree(e->comm, rc));
    if (has_eval)
        SP_TRY(sp_evaluator_open_sets(e, &c->data));
    return sp_check_memory(c);
}

/* Rank 0 verifies a file that the deck names as the beginning of a run. */
static sp_status check_file(sp_session *s, const char *path)
{
    sp_status rc = SP_OK;

    if (path[0] && s->comm->rank == 0)
        rc = sp_checkpoint_verify_weights(path, SP_FINITE);
    return sp_comm_agree(s->comm, rc);
}

/* Rank 0 verifies what eval and predict would take. */
static sp_status check_model(sp_session *s, const char *model)
{
    char path[PATH_MAX];
    sp_weights_model packed = {0};
    sp_h5 *file = NULL;
    sp_status rc = SP_OK;

    if (model[0] && s->comm->rank == 0)
        rc = sp_packed_is(model)
                 ? sp_packed_read(&packed, model)
                 : sp_checkpoint_open_model(&file, model, SP_FINITE, path);
    sp_weights_model_close(&packed);
    sp_h5_close(file);
    return sp_comm_agree(s->comm, rc);
}

/* Fails if a training would fail before its first step. */
static sp_status check_start(sp_checked *c)
{
    const sp_config *config = c->session.config;
    sp_comm *comm = c->session.comm;

    SP_TRY(check_file(&c->session, config->run.init_from));
    SP_TRY(check_model(&c->session, config->run.checkpoint));
    SP_TRY(sp_init_check_keys(config));
    SP_TRY(sp_session_open_data(&c->session, &c->data, &c->network, true, true));
    SP_TRY(sp_labels_check(config, comm, &c->data.train));
    SP_TRY(sp_labels_check_weights(config, c->network.n_classes));
    SP_TRY(sp_learner_check_deck(config, comm));
    SP_TRY(sp_test_check(config, &c->data.test));
    return sp_learner_open_mixing(&c->learner);
}

static sp_status check_all_data(sp_checked *c)
{
    const sp_config *config = c->session.config;
    sp_comm *comm = c->session.comm;
    sp_network *n = &c->network;
    sp_graph *graph = &n->graph;
    sp_learner *learner = &c->learner;

    sp_learner_begin(learner, config, &c->data.train, n, &c->budgets);
    sp_evaluator_begin(&c->evaluator, config, comm, n, &c->budgets);
    sp_device_begin(&c->device, config, comm);
    SP_TRY(check_start(c));
    SP_TRY(sp_graph_build(graph, config, n->n_columns, n->n_classes));
    SP_TRY(sp_graph_check_tuning(graph, config));
    SP_TRY(sp_sampler_open(&learner->sampler, &c->data.train, comm, config, true));
    if (comm->rank == 0)
        sp_graph_print(graph, stdout);
    sp_output_data(learner, comm, &c->data);
    SP_TRY(sp_output_notes(learner, comm, &c->data));
    sp_init_report(config, graph);
    SP_TRY(sp_init_check(&c->session, n, &c->data.train));
    SP_TRY(check_memory(c));
    return sp_resume_check(learner, &c->device);
}

sp_status sp_check_run(const sp_command *command, sp_status (*work)(sp_checked *c))
{
    sp_checked c = {0};
    sp_status rc = sp_session_open(&c.session, command, false);

    if (rc == SP_OK)
        rc = sp_session_guard(&c.session);
    if (rc == SP_OK)
        rc = work(&c);
    if (rc == SP_OK)
        rc = sp_comm_agree(c.session.comm, sp_log_written());
    sp_evaluator_close(&c.evaluator);
    sp_learner_close(&c.learner);
    return sp_session_end(&c.session, rc, &c.network, &c.data, &c.device);
}

sp_status sp_check(const sp_command *command)
{
    return sp_check_run(command, check_all_data);
}
