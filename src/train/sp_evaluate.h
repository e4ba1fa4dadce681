/* Exact evaluation: every voxel (and raw point) of a set is counted once. */
#ifndef SP_EVALUATE_H
#define SP_EVALUATE_H

#include "net/sp_metrics.h"

struct sp_batch;      /* data/sp_loader.h */
struct sp_evaluation; /* api/sp_evaluator.h */
struct sp_evaluator;
struct sp_session; /* train/sp_session.h */

/* Has the phases of this rank in the evaluator's passes recorded by the session
 * (sp_session_beat). Local. */
void sp_evaluate_watch(struct sp_evaluator *evaluator, struct sp_session *session);
/* The matrices that a pass of this evaluation, which is open, fills: a sum of
 * sp_metrics_part for sp_metrics_create. Local. */
int sp_evaluate_parts(const struct sp_evaluator *evaluator,
                      const struct sp_evaluation *evaluation);
/* Runs one pass and sums the confusion matrices over the ranks. Collective; ranks do not wait for each other before the end of the pass. Then
 * all of them learn of a network that is not finite (SP_ENUMERIC). With
 * eval.merge they meet after each micro-batch. check_stop(arg), asked before each
 * batch, fails with SP_ELIMIT if this rank is to end its pass; all ranks learn of it
 * likewise. NULL: no request ends it. pictures_s: not NULL: the run folder gets
 * pictures of plain predictions (sp_sample_pictures.h), and the seconds of drawing them
 * are added. */
sp_status sp_evaluate_pass(struct sp_session *session, struct sp_evaluator *evaluator,
                           struct sp_evaluation *evaluation, sp_metrics *metrics,
                           sp_status (*check_stop)(void *arg), void *arg,
                           double *pictures_s);

/* Results of data.val_sets, whose samplers are open: *sets becomes [n_sets], NULL if
 * there are no such sets. Collective, agreed; call sp_evaluate_close_sets after a failure
 * too. */
sp_status sp_evaluate_open_sets(const struct sp_evaluator *evaluator,
                                sp_metrics **sets);
/* Runs a pass over each of data.val_sets in turn. Collective; check_stop as above. */
sp_status sp_evaluate_sets(struct sp_session *session, struct sp_evaluator *evaluator,
                           sp_metrics *sets, sp_status (*check_stop)(void *arg),
                           void *arg);
void sp_evaluate_close_sets(sp_metrics *sets, int n);

#endif
