/* A loss that is a sum of terms agrees with its definition in double, value and
 * gradient, in random cases, with ties, absent classes, one class and no label; a
 * sample's share depends on this sample only. */
#include "fixtures/test.h"

#include "compute/sp_loss.h"
#include "fixtures/map_fixture.h"
#include "reference/ref_backend.h"

enum { SAMPLES = 3 };

typedef struct problem {
    sp_loss_args a;
    int32_t row[SAMPLES + 1];
} problem;

typedef struct shape {
    int n, C;
    float scale;     /* size of the logits */
    bool has_weight; /* class 1 has weight 0 */
    int n_labels;    /* classes that occur; 0: no label at all */
    sp_loss_rule rule;
} shape;

static problem make(const shape *s, uint64_t seed)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_INIT, 1, 1);
    float *weight = test_alloc((size_t)s->C * sizeof *weight);
    int32_t *label = test_alloc(((size_t)s->n + 1) * sizeof *label);
    problem p = {.a = {.logits = fx_tensor(s->n, s->C, s->C + 1, (int)seed),
                       .dlogits = fx_tensor(s->n, s->C, s->C + 2, 3),
                       .label = label,
                       .rule = s->rule,
                       .n_samples = SAMPLES}};

    for (int i = 0; i < s->n; i++) {
        label[i] = s->n_labels
                       ? (int)(sp_rng_u32(&rng) % (uint32_t)(s->n_labels + 1)) - 1
                       : SP_IGNORE;
        for (int j = 0; j < s->C; j++)
            p.a.logits.data[i * p.a.logits.ld + j] *= s->scale;
    }
    for (int c = 0; c < s->C; c++)
        weight[c] = c == 1 ? 0 : 0.5f + (float)c;
    if (s->has_weight)
        p.a.class_weight = weight;
    p.row[1] = p.row[2] = s->n / 3; /* the second sample is empty */
    p.row[3] = s->n;
    p.a.sums = test_alloc(2 * SAMPLES * sizeof(double));
    return p;
}

/* The loss by its definition; sums [SAMPLES][2]. */
static double defined(const problem *p, sp_tensor dlogits, double *sums)
{
    sp_backend ref = fx_reference();
    sp_loss_args a = p->a;
    double loss = 0;

    a.sample_row = p->row;
    a.sums = sums;
    a.dlogits = dlogits;
    OK(ref.ops->loss(&ref, &a));
    for (int b = 0; b < SAMPLES; b++)
        loss += sums[2 * b];
    return loss;
}

/* The largest difference of two gradients, as a share of the largest element. */
static double differ(sp_tensor a, sp_tensor b)
{
    double most = 0, largest = 1e-3;

    for (int64_t i = 0; i < a.n; i++)
        for (int j = 0; j < a.c; j++) {
            const double want = (double)fx_at(b, i, j);

            most = fmax(most, fabs((double)fx_at(a, i, j) - want));
            largest = fmax(largest, fabs(want));
        }
    return most / largest;
}

static void check(sp_backend *be, const problem *p, const char *what)
{
    sp_tensor want = fx_tensor(p->a.logits.n, p->a.logits.c, p->a.logits.c, 9);
    double sums[2 * SAMPLES];
    sp_loss_args a = p->a;

    defined(p, want, sums);
    a.sample_row = p->row;
    OK(be->ops->loss(be, &a));
    for (int i = 0; i < 2 * SAMPLES; i++)
        if (!(fabs(a.sums[i] - sums[i]) <= 1e-6 * fmax(1, fabs(sums[i]))))
            fail_msg("%s: sums[%d] = %.12g, expected %.12g", what, i, a.sums[i],
                     sums[i]);
    if (!(differ(a.dlogits, want) <= 1e-6))
        fail_msg("%s: the gradient differs by %.2g", what, differ(a.dlogits, want));
    fx_guards(a.dlogits);
}

static sp_loss_rule draw_rule(sp_rng *rng)
{
    sp_loss_rule rule = {.is_sum = true, .focal_gamma = (float)(sp_rng_u32(rng) % 4)};

    for (int i = 0; i < SP_N_LOSSES; i++)
        if (sp_rng_u32(rng) % 2)
            rule.weight[i] = 0.25f * (float)(1 + sp_rng_u32(rng) % 8);
    rule.smoothing = sp_rng_u32(rng) % 3 ? 0 : 0.1f;
    rule.is_joint = sp_rng_u32(rng) % 4 == 0;
    return rule;
}

TEST(random_sums_are_as_defined)
{
    static const int classes[] = {1, 2, 3, 7, 20};
    sp_rng rng = sp_rng_open(7, SP_RNG_INIT, 2, 2);
    char what[64];

    for (int k = 0; k < 500; k++) {
        sp_backend be = {0};
        int v = FX_PLAIN;
        const int C = classes[sp_rng_u32(&rng) % 5];
        const shape s = {.n = (int)(sp_rng_u32(&rng) % 120),
                         .C = C,
                         .scale = (float)(sp_rng_u32(&rng) % 12),
                         .has_weight = sp_rng_u32(&rng) % 2,
                         .n_labels = (int)(sp_rng_u32(&rng) % (uint32_t)(C + 1)),
                         .rule = draw_rule(&rng)};
        const problem p = make(&s, (uint64_t)k + 1);

        snprintf(what, sizeof what, "case %d", k);
        while (fx_next(&be, &v, FX_ISAS, 1 + k % 3, SP_FP32))
            check(&be, &p, what);
    }
}

/* The gradient of each term is the slope of its value. Lovasz-softmax has kinks at equal
 * errors, which random logits do not come near. */
TEST(gradients_are_slopes)
{
    for (int term = 0; term <= SP_N_LOSSES; term++)
        for (int is_joint = 0; is_joint < 2; is_joint++) {
            shape s = {.n = 24, .C = 4, .scale = 2, .n_labels = 3, .has_weight = true};
            sp_tensor none = {0}, slope;
            double sums[2 * SAMPLES];
            problem p;

            s.rule = (sp_loss_rule){
                .is_sum = true, .focal_gamma = 1.5f, .is_joint = is_joint};
            for (int i = 0; i < SP_N_LOSSES; i++)
                s.rule.weight[i] = term == i || term == SP_N_LOSSES;
            p = make(&s, 11);
            slope = fx_tensor(s.n, s.C, s.C, 1);
            for (int i = 0; i < s.n; i++)
                for (int j = 0; j < s.C; j++) {
                    float *z = p.a.logits.data + i * p.a.logits.ld + j, was = *z;
                    const float h = 1 / 8192.f;
                    double up, down;

                    *z = was + h, up = defined(&p, none, sums);
                    *z = was - h, down = defined(&p, none, sums);
                    *z = was;
                    slope.data[i * s.C + j] = (float)((up - down) / (2 * (double)h));
                }
            sp_backend be = {0};
            int v = FX_PLAIN;
            while (fx_next(&be, &v, FX_ISAS, 1, SP_FP32)) {
                sp_loss_args a = p.a;

                a.sample_row = p.row;
                OK(be.ops->loss(&be, &a));
                if (!(differ(a.dlogits, slope) < 3e-5))
                    fail_msg("term %d: the gradient is off by %.2g", term,
                             differ(a.dlogits, slope));
            }
        }
}

/* All logits equal: errors are ties, which are taken in the order of the rows. */
TEST(ties_are_taken_in_order)
{
    const shape s = {.n = 30,
                     .C = 3,
                     .scale = 0,
                     .n_labels = 3,
                     .rule = {.is_sum = true, .weight = {[SP_LOVASZ] = 1}}};
    const problem p = make(&s, 3);
    sp_backend be = {0};

    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 2, SP_FP32);)
        check(&be, &p, "ties");
}

/* Two voxels of two classes, p = (3/4, 1/4) and labels 0 and 1: the errors of class 0
 * are 1/4 and 3/4, those of class 1 as well. Sorted, 3/4 comes first: for class 0 it is
 * a voxel of another class, J = 1/2, then 1; for class 1 its label, J = 1, then 1. So the
 * mean is ((3/4)(1/2) + (1/4)(1/2) + 3/4) / 2 = 5/8. */
TEST(known_value_of_lovasz)
{
    float z[] = {logf(3), 0, logf(3), 0};
    int32_t label[] = {0, 1}, row[] = {0, 2};
    double sums[2];
    sp_loss_args a = {.logits = {z, 2, 2, 2},
                      .label = label,
                      .rule = {.is_sum = true, .weight = {[SP_LOVASZ] = 1}},
                      .sample_row = row,
                      .n_samples = 1,
                      .sums = sums};
    sp_backend be = {0};

    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        OK(be.ops->loss(&be, &a));
        assert_true(fabs(sums[0] - 2 * 0.625) < 1e-7 && sums[1] == 2);
    }
}

/* A sample has the same bits whatever stands beside it in the batch, and however many
 * threads there are. */
TEST(samples_do_not_see_each_other)
{
    shape s = {.n = 300, .C = 5, .scale = 2, .n_labels = 5};
    sp_tensor with;
    double sums[2];
    problem p;

    s.rule = (sp_loss_rule){
        .is_sum = true, .weight = {1, 1, 1, 1}, .focal_gamma = 2, .smoothing = 0.1f};
    p = make(&s, 5);
    with = fx_tensor(200, 5, 5, 1);
    sp_backend be = {0};
    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 3, SP_FP32);) {
        sp_loss_args a = p.a;
        int32_t row[] = {0, 200};

        a.sample_row = p.row;
        OK(be.ops->loss(&be, &a));
        a.n_samples = 1;
        a.sample_row = row;
        a.logits.data += 100 * a.logits.ld;
        a.logits.n = with.n;
        a.label += 100;
        a.dlogits = with;
        a.sums = sums;
        be.threads = 1;
        OK(be.ops->loss(&be, &a));
        assert_true(sums[0] == p.a.sums[4] && sums[1] == p.a.sums[5]);
        for (int i = 0; i < 200; i++)
            assert_memory_equal(with.data + i * with.ld,
                                p.a.dlogits.data + (i + 100) * p.a.dlogits.ld,
                                5 * sizeof(float));
    }
}

/* The loss becomes NaN, so that the trainer sees it. */
TEST(logits_that_are_not_finite_show)
{
    shape s = {.n = 30, .C = 3, .scale = 1, .n_labels = 3};
    problem p;

    s.rule = (sp_loss_rule){.is_sum = true, .weight = {[SP_LOVASZ] = 1}};
    p = make(&s, 8);
    p.a.sample_row = p.row;
    ((int32_t *)(uintptr_t)p.a.label)[20] = 0;
    p.a.logits.data[20 * p.a.logits.ld] = NAN;
    sp_backend be = {0};
    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        OK(be.ops->loss(&be, &p.a));
        assert_true(isfinite(p.a.sums[0]) && isnan(p.a.sums[4]));
    }
}
