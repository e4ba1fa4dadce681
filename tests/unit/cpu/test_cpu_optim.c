/* Updates of every version are those of the plain loops (test_optim_rules holds the CPU's
 * against PyTorch's rules in double); sums of squares are exact to double and do not
 * depend on threads. */
#include "fixtures/test.h"

#include "fixtures/map_fixture.h"

enum { N = 9001, STEPS = 5 };

/* The weights after STEPS updates, of gradients that are the same for every backend. */
static float *train(sp_backend *be, sp_optim_args a, bool is_adamw)
{
    float *w = fx_floats(N, 1);

    a.n = N;
    a.w = w;
    a.m = !is_adamw && a.momentum == 0 ? NULL : test_alloc(N * sizeof *a.m);
    a.v = is_adamw ? test_alloc(N * sizeof *a.v) : NULL;
    for (a.t = 0; a.t < STEPS; a.t++) {
        a.g = fx_floats(N, 10 + (uint64_t)a.t);
        OK(is_adamw ? be->ops->adamw(be, &a) : be->ops->sgd(be, &a));
    }
    return w;
}

static void check(sp_backend *be, const char *name, sp_optim_args a, bool is_adamw)
{
    const size_t mark = test_mark();
    sp_backend ref = fx_reference();
    const float *found = train(be, a, is_adamw), *wanted = train(&ref, a, is_adamw);

    for (int i = 0; i < N; i++)
        if (!(fabsf(found[i] - wanted[i]) <= 1e-6F))
            fail_msg("%s %s: weight %d is %.9g, expected %.9g", name,
                     is_adamw ? "adamw" : "sgd", i, found[i], wanted[i]);
    test_release(mark);
}

static void check_rules(sp_backend *be, const char *name)
{
    sp_optim_args a = {
        .g_scale = 0.25, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};

    check(be, name, a, false);
    a.weight_decay = 0.01;
    check(be, name, a, false);
    a.dampening = 0.1; /* without momentum it has no meaning */
    check(be, name, a, false);
    a.dampening = 0;
    a.momentum = 0.9;
    check(be, name, a, false);
    a.dampening = 0.1;
    check(be, name, a, false);
    a.dampening = 0;
    a.nesterov = true;
    check(be, name, a, false);
    a.lr = 0.01;
    check(be, name, a, true);
    a.lr = 0; /* any finite lr >= 0 is allowed */
    check(be, name, a, true);
    check(be, name, a, false);
}

TEST(rules)
{
    sp_backend be = {0};

    for (int threads = 1; threads <= 3; threads++)
        for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, threads, SP_FP32);)
            check_rules(&be, fx_isas[v]);
}

TEST(squares)
{
    static const int64_t sizes[] = {0, 1, 15, 17, 4096, 4097, 100003};
    float *g = fx_floats(100003, 1);

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double plain, sum, first = -1;
        sp_backend ref = fx_reference(), be = {0};
        OK(ref.ops->sum_squares(&ref, g, sizes[s], &plain));
        for (int threads = 1; threads <= 3; threads++)
            for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, threads, SP_FP32);) {
                OK(be.ops->sum_squares(&be, g, sizes[s], &sum));
                assert_true(fabs(sum - plain) <= 1e-12 * plain);
                assert_true(first < 0 || sum == first);
                first = sum;
            }
    }
}

/* SP_CPU_ISA names a version; a wrong name is refused with the choice. */
TEST(choice_of_version)
{
    sp_backend be = {.ops = sp_backend_find("cpu")};

    assert_false(fx_open(&be, "sse9", 1));
    SAYS("SP_CPU_ISA=sse9: expected amx, avx512");
    be.ops->close(&be);
    assert_true(fx_open(&be, "portable", 1));
    be.ops->close(&be);
    assert_true(fx_open(&be, "", 0));
    assert_int_equal(be.threads, 1);
    be.ops->close(&be);
    assert_null(sp_backend_find("abacus"));
}
