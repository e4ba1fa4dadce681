/* Exact evaluation: every voxel (and raw point) of a set is counted once. */
#ifndef SP_EVALUATE_H
#define SP_EVALUATE_H

#include "net/sp_metrics.h"

struct sp_batch; /* data/sp_loader.h */
struct sp_evaluation;
struct sp_resources; /* train/sp_resources.h */

/* Checks the predictions of a batch of the present evaluation. SP_ENUMERIC names the
 * shard, sample and voxel if the network's last layer gave a number that is not finite,
 * and the weight if one was loaded that is not finite: even if all outputs are finite,
 * since a ReLU makes a zero of -inf, and a variance of inf makes one of any number.
 * prediction: [batch->n], from sp_net_loss. Local. */
sp_status sp_evaluate_check(const struct sp_resources *resources,
                            const struct sp_batch *batch, const int32_t *prediction);
typedef sp_status sp_evaluate_work(void *arg, const struct sp_batch *batch);
/* Takes the next batch of the present evaluation and does the work on it; *batch NULL:
 * that was all. A batch that memory does not suffice for is explained (SP_EMEM). Local. */
sp_status sp_evaluate_next(struct sp_resources *resources, struct sp_batch **batch,
                           sp_evaluate_work *work, void *arg);
/* The matrices that a pass of this evaluation, which is open, fills: a sum of
 * sp_metrics_part for sp_metrics_create. Local. */
int sp_evaluate_parts(const struct sp_resources *resources,
                      const struct sp_evaluation *evaluation);
/* Runs one pass of the present evaluation, which is data.val's unless
 * sp_resources_exchange_evaluation was called, and sums the confusion matrices over the
 * ranks. Collective; ranks do not wait for each other before the end of the pass. Then
 * all of them learn of a network that is not finite (SP_ENUMERIC). With
 * eval.merge they meet after each micro-batch. check_stop(arg), asked before each
 * batch, fails with SP_ELIMIT if this rank is to end its pass; all ranks learn of it
 * likewise. NULL: no request ends it. pictures_s: not NULL: the run folder gets
 * pictures of plain predictions (sp_sample_pictures.h), and the seconds of drawing them
 * are added. */
sp_status sp_evaluate_pass(struct sp_resources *resources, sp_metrics *metrics,
                           sp_status (*check_stop)(void *arg), void *arg,
                           double *pictures_s);

/* Results of data.val_sets, whose samplers are open: *sets becomes [n_val_sets], NULL if
 * there are no such sets. Collective, agreed; call sp_evaluate_close_sets after a failure
 * too. */
sp_status sp_evaluate_open_sets(struct sp_resources *resources, sp_metrics **sets);
/* Runs a pass over each of data.val_sets in turn. Collective; check_stop as above. */
sp_status sp_evaluate_sets(struct sp_resources *resources, sp_metrics *sets,
                           sp_status (*check_stop)(void *arg), void *arg);
void sp_evaluate_close_sets(const struct sp_resources *resources, sp_metrics *sets);

#endif
