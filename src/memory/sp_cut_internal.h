/* Inside sp_cut: what the samples of a data set take (sp_cut_samples.c), from which
 * sp_cut.c makes rooms. */
#ifndef SP_CUT_INTERNAL_H
#define SP_CUT_INTERNAL_H

#include "memory/sp_cut.h"

enum { SP_REST = SP_BATCHES }; /* of room and largest */

#define SP_CUT_MARGIN   1.0625 /* over the worst of the plans that are compared */
#define SP_CUT_GENEROUS 2.0 /* taken instead where even that fits: none is compared */

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline double ratio(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : 1;
}

static inline double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

int64_t sp_cut_sum(const int64_t part[SP_PARTS]);
/* Bytes that depend on no sample. */
int64_t sp_cut_fixed(const sp_cut *cut);
/* SP_EMEM with a message: the sample needs so much (0: more than could be planned). */
sp_status sp_cut_refuse(const sp_budget *b, int64_t sample, int64_t need,
                        int64_t memory);

/* sampler NULL: the budget stays zeroed. SP_EMEM. */
sp_status sp_budget_open(sp_budget *b, const sp_foresight *what, sp_sampler *sampler,
                         bool is_training);
void sp_budget_close(sp_budget *b);
bool sp_budget_is_host(const sp_budget *b);
/* As many slots hold batches as the loader has steps, 3 at most. */
void sp_budget_set_slots(sp_budget *b, int64_t n_steps);
/* Parts that a batch takes beyond one without samples. */
void sp_budget_weigh(sp_budget *b, const sp_load *load, int64_t part[SP_PARTS]);
/* The sampler asks for a sample: b->part of it, or how much of both rooms together the
 * sample fills where it fills the fuller one. */
int64_t sp_budget_of_sample(void *budget, int64_t sample);

/* Collective, agreed: rank 0 reads samples for all, by one of the three below. */
sp_status sp_budget_read(sp_budget *b, const sp_cut *cut, sp_comm *comm,
                         sp_status (*what_of)(sp_budget *b, const sp_cut *cut),
                         int *who);
/* Sets like. */
sp_status sp_budget_plan_largest(sp_budget *b, const sp_cut *cut);
/* Set excess: by the largest sample as augmentation leaves it; by others too, with a
 * margin. */
sp_status sp_budget_compare_largest(sp_budget *b, const sp_cut *cut);
sp_status sp_budget_compare_some(sp_budget *b, const sp_cut *cut);

/* Sets dearest: the most there can be as the deck cuts. */
void sp_budget_find_dearest(sp_budget *b);
/* Sets dearest: the most that the steps of the deck take, of all ranks. Collective. */
sp_status sp_budget_follow(sp_budget *b, sp_comm *comm);
/* Sets largest; *worst: the sample that takes most. An envelope of all samples does
 * where half of the room holds it: a look at each costs 0.1 ms. */
void sp_budget_find_largest(sp_budget *b, int64_t room, int64_t *worst);

#endif
