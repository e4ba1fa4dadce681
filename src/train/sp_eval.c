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
    sp_session *s = &infer->session;
    sp_evaluator *e = &infer->evaluator;
    const sp_network *network = &infer->network;
    const sp_dataset *val = &infer->data.val;
    double pictures_s = 0;

    if (!val->has_labels)
        return SP_FAIL(SP_EDATA,
                       "%s: /labels is absent, expected for evaluation "
                       "(sptrain predict works without)",
                       val->shard[0].path);
    SP_TRY(sp_comm_agree(s->comm, sp_metrics_create(metrics, network->n_classes,
                                                    sp_evaluate_parts(e, &e->val))));
    SP_TRY(sp_evaluate_open_sets(e, sets));
    SP_TRY(sp_evaluate_pass(s, e, &e->val, metrics, eval_check_stop, NULL,
                            s->config->run.pictures ? &pictures_s : NULL));
    SP_TRY(sp_evaluate_sets(s, e, *sets, eval_check_stop, NULL));
    SP_TRY(sp_output_eval(s, e, metrics, NULL, *sets, infer->path, NULL));
    sp_output_table(network, metrics);
    sp_output_renew(s);
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
                    sp_plural(command->comm->size), infer.device.text);
        rc = eval_evaluate(&infer, &metrics, &sets);
    }
    sp_metrics_destroy(&metrics);
    sp_evaluate_close_sets(sets, infer.data.n_val_sets);
    return sp_infer_close(&infer, rc);
}
