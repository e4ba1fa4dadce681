/* `sptrain check`: describes the run that a deck leads to, without training. */
#include "train/sp_check.h"

#include "base/sp_log.h"
#include "train/sp_init.h"
#include "train/sp_output.h"
#include "train/sp_resume.h"
#include "train/sp_test.h"

static sp_status check_memory(sp_resources *r, sp_sampler *sampler)
{
    const bool has_eval = r->config->run.eval_every > 0 && r->val.n_samples > 0;
    sp_sampler val = {0};
    sp_status rc = SP_OK;

    if (has_eval && r->val.has_labels)
        rc = sp_resources_measure_merging(r);
    if (has_eval && rc == SP_OK)
        rc = sp_sampler_open(&val, &r->val, r->comm, r->config, false);
    rc = sp_comm_agree(r->comm, rc);
    if (has_eval && rc == SP_OK)
        rc = sp_resources_open_val_sets(r, &val);
    if (rc == SP_OK)
        rc = sp_check_memory(r, sampler, has_eval ? &val : NULL);
    sp_budgets_close(&r->budgets); /* closed before the samplers that it refers to */
    sp_sampler_close(&val);
    return rc;
}

/* Rank 0 verifies a file that the deck names as the beginning of a run. */
static sp_status check_file(sp_session *s, const char *path)
{
    sp_status rc = SP_OK;

    if (path[0] && s->comm->rank == 0)
        rc = sp_checkpoint_verify_weights(path, SP_FINITE);
    return sp_comm_agree(s->comm, rc);
}

/* Fails if a training would fail before its first step. */
static sp_status check_start(sp_resources *r)
{
    const sp_session *s = r->session;

    SP_TRY(check_file(r->session, s->config->run.init_from));
    SP_TRY(check_file(r->session, s->config->run.checkpoint));
    SP_TRY(sp_init_check_keys(r));
    SP_TRY(sp_session_open_data(r, true, true));
    SP_TRY(sp_resources_check_labels(r));
    SP_TRY(sp_resources_check_class_weights(r));
    SP_TRY(sp_resources_check_training(r));
    SP_TRY(sp_test_check(r));
    return sp_resources_check_mixing(r);
}

static sp_status check_all_data(sp_resources *r)
{
    sp_sampler sampler = {0};
    sp_status rc;

    SP_TRY(check_start(r));
    SP_TRY(sp_graph_build(&r->graph, r->config, r->n_columns, r->n_classes));
    SP_TRY(sp_graph_check_tuning(&r->graph, r->config));
    SP_TRY(sp_sampler_open(&sampler, &r->train, r->comm, r->config, true));
    if (r->comm->rank == 0)
        sp_graph_print(&r->graph, stdout);
    sp_output_data(r, &sampler);
    rc = sp_output_notes(r, &sampler);
    sp_init_report(r);
    if (rc == SP_OK)
        rc = sp_init_check(r);
    if (rc == SP_OK)
        rc = check_memory(r, &sampler);
    sp_sampler_close(&sampler);
    return rc == SP_OK ? sp_resume_check(r) : rc;
}

sp_status sp_check_run(const sp_command *command, sp_status (*work)(sp_resources *r))
{
    sp_resources r;
    sp_status rc = sp_resources_open(&r, command, false);

    if (rc == SP_OK)
        rc = sp_session_guard(r.session);
    if (rc == SP_OK)
        rc = work(&r);
    if (rc == SP_OK)
        rc = sp_comm_agree(r.comm, sp_log_written());
    return sp_resources_close(&r, rc);
}

sp_status sp_check(const sp_command *command)
{
    return sp_check_run(command, check_all_data);
}
