/* `sptrain eval`: exact evaluation of a checkpoint on data.val and data.val_sets. */
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "train/sp_evaluate.h"
#include "train/sp_infer.h"
#include "train/sp_output.h"
#include "train/sp_train.h"

static sp_status eval_check_stop(void *unused)
{
    (void)unused;
    return sp_signal_check();
}

static sp_status eval_evaluate(sp_infer *infer, sp_metrics *metrics, sp_metrics **sets)
{
    sp_resources *r = &infer->resources;
    double pictures_s = 0;

    if (!r->val.has_labels)
        return SP_FAIL(SP_EDATA,
                       "%s: /labels is absent, expected for evaluation "
                       "(sptrain predict works without)",
                       r->val.shard[0].path);
    SP_TRY(sp_comm_agree(r->comm,
                         sp_metrics_create(metrics, r->n_classes,
                                           sp_evaluate_parts(r, &r->evaluation))));
    SP_TRY(sp_evaluate_open_sets(r, sets));
    SP_TRY(sp_evaluate_pass(r, metrics, eval_check_stop, NULL,
                            r->config->run.pictures ? &pictures_s : NULL));
    SP_TRY(sp_evaluate_sets(r, *sets, eval_check_stop, NULL));
    SP_TRY(sp_output_eval(r, metrics, NULL, *sets, infer->path, NULL));
    sp_output_table(r, metrics);
    sp_output_renew(r);
    return SP_OK;
}

sp_status sp_eval(const sp_command *command)
{
    /* Whoever names other data on the command line asks for those. */
    const bool with_sets = !sp_config_is_overridden(command->config, "data.val") ||
                           sp_config_is_overridden(command->config, "data.val_sets");
    sp_infer infer;
    sp_metrics metrics = {0}, *sets = NULL;
    sp_status rc = sp_infer_open(&infer, command, with_sets);

    if (rc == SP_OK) {
        sp_log_info("evaluating %s (step %lld) on %d rank%s: %s", infer.path,
                    (long long)infer.state.step, command->comm->size,
                    sp_plural(command->comm->size), infer.resources.device);
        rc = eval_evaluate(&infer, &metrics, &sets);
    }
    sp_metrics_destroy(&metrics);
    sp_evaluate_close_sets(&infer.resources, sets);
    return sp_infer_close(&infer, rc);
}
