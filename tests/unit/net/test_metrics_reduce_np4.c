/* However the samples are dealt to the ranks, every rank gets the same integers and the
 * same loss to the last bit as one process alone. */
#include "fixtures/test.h"

#include "base/sp_exact.h"
#include "base/sp_rng.h"
#include "net/sp_metrics.h"

enum { CLASSES = 5, SAMPLES = 24 };

ON_RANKS(comm)

static void add_sample(sp_metrics *m, int sample)
{
    sp_rng rng = sp_rng_open(1, SP_RNG_SCENE, (uint64_t)sample, 0);
    double sums[2] = {sp_rng_uniform(&rng, 0, 1e5), sp_rng_uniform(&rng, 1e-6, 1)};

    for (int i = 0; i < 100; i++) {
        m->confusion[sp_rng_u32(&rng) % (CLASSES * CLASSES)]++;
        m->point_confusion[sp_rng_u32(&rng) % (CLASSES * CLASSES)] += 3;
    }
    sp_exact_add_wide(m->exact, sums, 2);
    m->n_samples++;
}

/* Deals the samples to `active` of the ranks; the others hold no sample. */
static void dealt_over(int active, const sp_metrics *alone)
{
    CLOSED_BY(sp_metrics_destroy) sp_metrics m;

    OK(sp_metrics_create(&m, CLASSES, SP_METRICS_POINTS));
    for (int s = SAMPLES - 1; s >= 0; s--)
        if (s % active == comm.rank)
            add_sample(&m, s);
    OK(sp_metrics_reduce(&m, &comm));
    assert_int_equal(m.n_samples, SAMPLES);
    assert_memory_equal(m.confusion, alone->confusion,
                        CLASSES * CLASSES * sizeof *m.confusion);
    assert_memory_equal(m.point_confusion, alone->point_confusion,
                        CLASSES * CLASSES * sizeof *m.confusion);
    assert_true(m.loss_sum == alone->loss_sum);
    assert_true(m.weight_sum == alone->weight_sum);
}

TEST(same_for_any_deal)
{
    CLOSED_BY(sp_metrics_destroy) sp_metrics alone;
    sp_comm self;
    double sum = 0;

    sp_comm_open_self(&self);
    OK(sp_metrics_create(&alone, CLASSES, SP_METRICS_POINTS));
    for (int s = 0; s < SAMPLES; s++) {
        sp_rng rng = sp_rng_open(1, SP_RNG_SCENE, (uint64_t)s, 0);

        sum += sp_rng_uniform(&rng, 0, 1e5);
        add_sample(&alone, s);
    }
    OK(sp_metrics_reduce(&alone, &self));
    assert_true(fabs(alone.loss_sum - sum) < 1e-9 * sum);
    for (int s = 1; s <= comm.size; s++)
        dealt_over(s, &alone);
}

TEST(bad_number_of_one_rank_reaches_all)
{
    const double bad[2] = {NAN, 1};
    CLOSED_BY(sp_metrics_destroy) sp_metrics m;

    OK(sp_metrics_create(&m, CLASSES, 0));
    if (comm.rank == comm.size - 1)
        sp_exact_add_wide(m.exact, bad, 2);
    OK(sp_metrics_reduce(&m, &comm));
    assert_true(isnan(m.loss_sum));
    assert_true(m.weight_sum == 1);
}
