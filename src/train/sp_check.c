/* `sptrain check`: describes the run that a deck leads to, without training. */
#include "train/sp_check.h"

#include "base/sp_log.h"
#include "train/sp_train.h"
#include "train/sp_trainer.h"

static void print_batch(const sp_session *s, const sp_sampler *sampler)
{
    sp_log_info("batch: %d samples a step in the world (%.3g a node, %.3g a rank), "
                "%lld steps an epoch; effective learning rate %g",
                sampler->effective, (double)sampler->effective / s->comm->n_nodes,
                (double)sampler->effective / s->comm->size,
                (long long)sp_sampler_steps_per_epoch(sampler),
                sp_optim_base_lr(s->config, sampler->effective));
    sp_report_idle(s, sampler);
}

static sp_status check_memory(sp_session *s, sp_sampler *sampler)
{
    const bool has_eval = s->config->run.eval_every > 0 && s->val.n_samples > 0;
    sp_sampler val = {0};
    sp_status rc = SP_OK;

    if (has_eval)
        rc = sp_sampler_open(&val, &s->val, s->comm, s->config, false);
    rc = sp_session_agree(s, rc);
    if (rc == SP_OK)
        rc = sp_check_memory(s, sampler, has_eval ? &val : NULL);
    sp_cut_close(&s->cut); /* closed before the samplers that it refers to */
    sp_sampler_close(&val);
    return rc;
}

static sp_status check(sp_session *s)
{
    sp_sampler sampler = {0};
    sp_status rc;

    SP_TRY(sp_session_open_data(s, true, true));
    SP_TRY(sp_graph_build(&s->graph, s->config, s->n_columns, s->n_classes));
    SP_TRY(sp_sampler_open(&sampler, &s->train, s->comm, s->config, true));
    if (s->comm->rank == 0)
        sp_graph_print(&s->graph, stdout);
    sp_log_info("train: %lld samples, %lld voxels; val: %lld samples, %lld voxels; "
                "%d classes, %d feature columns",
                (long long)s->train.n_samples, (long long)s->train.n_voxels,
                (long long)s->val.n_samples, (long long)s->val.n_voxels, s->n_classes,
                s->n_columns);
    print_batch(s, &sampler);
    rc = check_memory(s, &sampler);
    sp_sampler_close(&sampler);
    return rc;
}

sp_status sp_check(const sp_command *command)
{
    sp_session session;
    sp_status rc = sp_session_open(&session, command, false);

    if (rc == SP_OK)
        rc = check(&session);
    if (rc == SP_OK)
        rc = sp_session_agree(&session, sp_log_written());
    return sp_session_close(&session, rc);
}
