/* The loss and its gradient have known values and agree with differences in double,
 * with weights, smoothing, ignored voxels, ties and extreme logits, in plain loops and
 * in every vector version. */
#include "fixtures/test.h"

#include "fixtures/map_fixture.h"

typedef struct problem {
    sp_loss_args a;
    int32_t *label;
    float *weight;
} problem;

/* Labels are -1 .. C-1, logits have size `scale`, and sample 1 of 3 is empty. */
static problem make(int n, int C, int ld, float smoothing, bool has_weight, float scale,
                    int32_t row[4])
{
    problem p = {.label = test_alloc(((size_t)n + 1) * sizeof *p.label)};
    sp_tensor z = fx_tensor(n, C, ld, 1);
    sp_rng rng = sp_rng_open(1, SP_RNG_INIT, 1, 1);

    for (int i = 0; i < n; i++) {
        p.label[i] = (int)(sp_rng_u32(&rng) % (uint32_t)(C + 1)) - 1;
        for (int j = 0; j < C; j++)
            z.data[i * ld + j] *= scale;
    }
    p.weight = fx_floats((size_t)C, 2);
    for (int j = 0; j < C; j++)
        p.weight[j] += 1.5f;
    row[0] = 0;
    row[1] = row[2] = n / 3;
    row[3] = n;
    p.a = (sp_loss_args){.logits = z,
                         .label = p.label,
                         .rule = {.smoothing = smoothing},
                         .class_weight = has_weight ? p.weight : NULL,
                         .sample_row = row,
                         .n_samples = 3};
    p.a.sums = test_alloc(6 * sizeof(double));
    p.a.dlogits = fx_tensor(n, C, ld + 1, 3);
    p.a.confusion = test_alloc((size_t)C * C * sizeof(int64_t));
    p.a.prediction = test_alloc(((size_t)n + 1) * sizeof *p.a.prediction);
    return p;
}

/* The weighted loss of row i in double, directly by its definition. */
static double row_loss(const sp_loss_args *a, int64_t i)
{
    const int C = a->logits.c, label = a->label[i];
    double sum = 0, loss = 0, top = -1e300;

    if (label < 0)
        return 0;
    for (int j = 0; j < C; j++)
        top = fmax(top, fx_at(a->logits, i, j));
    for (int j = 0; j < C; j++)
        sum += exp(fx_at(a->logits, i, j) - top);
    for (int j = 0; j < C; j++) {
        double p = (fx_at(a->logits, i, j) - top) - log(sum);
        loss -=
            ((j == label ? 1 - a->rule.smoothing : 0) + (double)a->rule.smoothing / C) *
            p;
    }
    return loss * (a->class_weight ? a->class_weight[label] : 1);
}

static double row_grad(const sp_loss_args *a, int64_t i, int j)
{
    const float h = 1 / 1024.f;
    float *z = a->logits.data + i * a->logits.ld + j, was = *z;
    double up, down, up2, down2;

    *z = was + h, up = row_loss(a, i);
    *z = was - h, down = row_loss(a, i);
    *z = was + 2 * h, up2 = row_loss(a, i);
    *z = was - 2 * h, down2 = row_loss(a, i);
    *z = was;
    return (8 * (up - down) - (up2 - down2)) / (12 * h);
}

static void check(sp_backend *be, const char *name, const problem *p, bool has_grad)
{
    const sp_loss_args *a = &p->a;
    const int C = a->logits.c;

    memset(a->confusion, 0, (size_t)C * C * sizeof *a->confusion);
    OK(be->ops->loss(be, a));
    for (int b = 0; b < 3; b++) {
        double sum = 0, weights = 0;
        for (int i = a->sample_row[b]; i < a->sample_row[b + 1]; i++) {
            int label = a->label[i], best = 0;
            sum += row_loss(a, i);
            weights += label < 0 ? 0 : a->class_weight ? a->class_weight[label] : 1;
            for (int j = 1; j < C; j++)
                best = fx_at(a->logits, i, j) > fx_at(a->logits, i, best) ? j : best;
            assert_int_equal(a->prediction[i], best);
            if (label >= 0)
                a->confusion[label * C + best]--;
            for (int j = 0; has_grad && j < C; j++) {
                double g = fx_at(a->dlogits, i, j), want = row_grad(a, i, j);
                if (!(fabs(g - want) < 1e-5))
                    fail_msg("%s: dlogits[%d][%d] %g, expected %g", name, i, j, g,
                             want);
            }
        }
        if (!(fabs(a->sums[2 * b] - sum) <= 1e-6 * fmax(1e-3, fabs(sum))))
            fail_msg("%s: loss %.12g, expected %.12g", name, a->sums[2 * b], sum);
        assert_true(fabs(a->sums[2 * b + 1] - weights) <= 1e-9 * weights);
    }
    for (int i = 0; i < C * C; i++)
        assert_int_equal(a->confusion[i], 0);
    fx_guards(a->dlogits);
}

static void check_all(int n, int C, float smoothing, bool has_weight, float scale,
                      bool grad)
{
    int32_t row[4];
    problem p = make(n, C, C + C % 3, smoothing, has_weight, scale, row);
    sp_backend be = {0};

    for (int v = -1; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);)
        check(&be, fx_isas[v], &p, grad);
}

TEST(definition_and_gradient)
{
    static const int classes[] = {1, 2, 3, 5, 16, 20, 33, 65, 200};

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        check_all(40, classes[i], 0, false, 3, true);
        check_all(40, classes[i], 0.2f, true, 3, true);
    }
    check_all(0, 5, 0, false, 1, true);
    check_all(777, 20, 0.1f, true, 5, false);
}

/* Logits of 100 and 1e30 neither overflow nor lose a certain prediction. */
TEST(extreme_logits)
{
    check_all(50, 20, 0, false, 100, false);
    check_all(50, 20, 0.1f, false, 1e30f, false);
}

/* With 2 classes and z = (0, ln 3), p is (1/4, 3/4). */
TEST(known_values)
{
    float z[] = {0, logf(3), 0, logf(3), 2, 2}, dz[6];
    const float weight[] = {2, 1};
    int32_t label[] = {0, 1, SP_IGNORE}, row[] = {0, 3}, prediction[3];
    double sums[2];
    int64_t confusion[4] = {10};
    sp_loss_args a = {.logits = {z, 3, 2, 2},
                      .label = label,
                      .class_weight = weight,
                      .sample_row = row,
                      .n_samples = 1,
                      .sums = sums,
                      .dlogits = {dz, 3, 2, 2},
                      .confusion = confusion,
                      .prediction = prediction};
    const double want[] = {-1.5, 1.5, 0.25, -0.25, 0, 0};

    sp_backend be = {0};

    for (int v = -1; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        confusion[0] = 10, confusion[1] = confusion[2] = confusion[3] = 0;
        OK(be.ops->loss(&be, &a));
        assert_true(fabs(sums[0] - (2 * log(4) + log(4. / 3))) < 1e-6 && sums[1] == 3);
        for (int i = 0; i < 6; i++)
            assert_true(fabs(dz[i] - want[i]) < 1e-6);
        assert_true(prediction[0] == 1 && prediction[2] == 0); /* lowest of a tie */
        assert_true(confusion[0] == 10 && confusion[1] == 1 && confusion[3] == 1);
        a.label = NULL; /* a prediction without a loss */
        a.dlogits.data = NULL;
        OK(be.ops->loss(&be, &a));
        assert_true(sums[0] == 0 && sums[1] == 0 && confusion[1] == 1);
        a.label = label;
        a.dlogits.data = dz;
        z[0] = NAN; /* the loss becomes NaN, so that the trainer sees it */
        OK(be.ops->loss(&be, &a));
        assert_true(isnan(sums[0]));
        z[0] = 0;
    }
}

/* Counts need no array of predictions from the caller. */
TEST(confusion_alone)
{
    int32_t row[4];
    problem p = make(100, 4, 4, 0, false, 1, row);
    int64_t with[16], most = 0;
    sp_backend be = {0};

    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        int32_t *prediction = p.a.prediction;
        memset(p.a.confusion, 0, sizeof with);
        OK(be.ops->loss(&be, &p.a));
        memcpy(with, p.a.confusion, sizeof with);
        p.a.prediction = NULL;
        OK(be.ops->loss(&be, &p.a));
        for (int j = 0; j < 16; j++) {
            assert_int_equal(p.a.confusion[j], 2 * with[j]);
            most += with[j];
        }
        p.a.prediction = prediction;
    }
    assert_true(most > 0);
}

/* A row with NaN or infinity at any place has no prediction and is not counted; all
 * other rows have theirs. */
TEST(rows_that_are_not_finite)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    enum { N = 70, C = 19 };
    sp_backend be = {0};

    for (int v = -1; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        int32_t row[4];
        problem p = make(N, C, C + 1, 0, false, 1, row);
        int64_t counted = 0, labelled = 0;
        for (int i = 0; i < C; i++)
            p.a.logits.data[3 * i * p.a.logits.ld + i] = bad[i % 3];
        OK(be.ops->loss(&be, &p.a));
        for (int i = 0; i < N; i++) {
            const bool is_bad = i % 3 == 0 && i < 3 * C;
            assert_int_equal(p.a.prediction[i] == SP_IGNORE, is_bad);
            labelled += p.label[i] != SP_IGNORE && !is_bad;
        }
        for (int i = 0; i < C * C; i++)
            counted += p.a.confusion[i];
        assert_int_equal(counted, labelled);
    }
}
