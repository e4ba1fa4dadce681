/* Loss, update rules and memory of the CUDA backend agree with the plain loops:
 * gradients of the loss to 1e-6, its sums to 1e-12 relative; predictions and confusion
 * counts exactly; updates to 1e-7 relative, sums of squares to 1e-12. */
#include "fixtures/test.h"

#include "gpu/cuda_fixture.h"

static void near_double(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("%s: %.17g, expected %.17g", what, got, want);
}

/* ---- loss ---- */

typedef struct problem {
    sp_loss_args a;
    int32_t row[4], *label;
    float *weight;
} problem;

/* Labels are -1 .. C-1; sample 1 of 3 is empty. */
static problem make(int n, int C, int pad, float smoothing, bool has_weight)
{
    problem p = {.row = {0, n / 3, n / 3, n}};
    sp_rng rng = sp_rng_open(1, SP_RNG_INIT, 1, 1);

    p.label = malloc(((size_t)n + 1) * sizeof *p.label);
    for (int i = 0; i < n; i++)
        p.label[i] = (int)(sp_rng_u32(&rng) % (uint32_t)(C + 1)) - 1;
    p.weight = fx_floats((size_t)C, 2);
    for (int j = 0; j < C; j++)
        p.weight[j] += 1.5f;
    p.a = (sp_loss_args){.logits = fx_tensor(n, C, C + pad, 1),
                         .label = p.label,
                         .class_weight = has_weight ? p.weight : NULL,
                         .smoothing = smoothing,
                         .n_samples = 3,
                         .sums = calloc(6, sizeof(double)),
                         .dlogits = fx_tensor(n, C, C + 1, 3),
                         .confusion = calloc((size_t)C * (size_t)C, sizeof(int64_t)),
                         .prediction = calloc((size_t)n + 1, sizeof(int32_t))};
    for (int64_t i = 0; i < n; i += 7) /* ties, and logits that saturate */
        for (int j = 0; j < C; j++)
            p.a.logits.data[i * (C + pad) + j] = i % 2 ? 1 : 90 * (float)(j % 2);
    return p;
}

static void drop(problem *p)
{
    free(p->a.logits.data), free(p->a.sums), free(p->a.confusion);
    free(p->a.prediction), free(p->label), free(p->weight);
}

static void compare_loss(sp_backend *be, problem *p)
{
    const size_t n = (size_t)p->a.logits.n, C = (size_t)p->a.logits.c;
    sp_backend ref = fx_reference();
    sp_loss_args d = p->a, before;
    int64_t *confusion = malloc(C * C * sizeof *confusion);
    int32_t *prediction = malloc((n + 1) * sizeof *prediction);
    double sums[6];

    p->a.sample_row = d.sample_row = p->row;
    d.logits = cu_tensor(be, p->a.logits);
    d.dlogits = cu_tensor(be, p->a.dlogits);
    d.label = cu_copy(be, p->a.label, n * sizeof *d.label);
    d.class_weight = cu_copy(be, p->a.class_weight, C * sizeof(float));
    d.sums = cu_copy(be, p->a.sums, sizeof sums);
    d.confusion = cu_copy(be, p->a.confusion, C * C * sizeof *confusion);
    d.prediction = cu_copy(be, p->a.prediction, n * sizeof *prediction);
    OK(ref.ops->loss(&ref, &p->a));
    before = d;
    before.confusion = NULL;
    OK(be->ops->loss(be, &before)); /* what counts blocks begins anew for the next */
    OK(be->ops->fill(be, d.sums, 0xff, sizeof sums));
    OK(be->ops->loss(be, &d));
    OK(be->ops->download(be, sums, d.sums, sizeof sums));
    OK(be->ops->download(be, confusion, d.confusion, C * C * sizeof *confusion));
    OK(be->ops->download(be, prediction, d.prediction, n * sizeof *prediction));
    for (int i = 0; i < 6; i++)
        near_double("sum of the loss", sums[i], p->a.sums[i], 1e-12);
    assert_memory_equal(confusion, p->a.confusion, C * C * sizeof *confusion);
    assert_memory_equal(prediction, p->a.prediction, n * sizeof *prediction);
    sp_tensor got = {malloc(cu_bytes(d.dlogits)), d.dlogits.n, d.dlogits.c,
                     d.dlogits.ld, SP_ELEM_F32};
    cu_read(be, d.dlogits, got);
    cu_same("dlogits", got, p->a.dlogits, 1e-6);
    free(confusion), free(prediction);
}

/* The sums are left out, since they are not numbers where a logit is none. */
static void compare_counts(sp_backend *be, problem *p)
{
    const size_t n = (size_t)p->a.logits.n, C = (size_t)p->a.logits.c;
    sp_backend ref = fx_reference();
    sp_loss_args d = p->a;
    int64_t *confusion = malloc(C * C * sizeof *confusion);

    p->a.sample_row = d.sample_row = p->row;
    d.logits = cu_tensor(be, p->a.logits);
    d.label = cu_copy(be, p->a.label, n * sizeof *d.label);
    d.sums = cu_copy(be, p->a.sums, 6 * sizeof(double));
    d.confusion = cu_copy(be, p->a.confusion, C * C * sizeof *confusion);
    d.prediction = NULL;
    OK(ref.ops->loss(&ref, &p->a));
    OK(be->ops->loss(be, &d));
    OK(be->ops->download(be, confusion, d.confusion, C * C * sizeof *confusion));
    assert_memory_equal(confusion, p->a.confusion, C * C * sizeof *confusion);
    free(confusion);
}

TEST(loss_is_plain)
{
    static const int rows[] = {0, 1, 31, 33, 127, 400};
    static const int classes[] = {1, 2, 20, 33};

    for (int order = 0; order < cu_orders(); order++)
        for (int i = 0; i < 6; i++) {
            problem p =
                make(rows[i], classes[i % 4], i % 3, i % 2 ? 0.1f : 0, i % 3 == 0);
            sp_backend be = cu_open(order);
            compare_loss(&be, &p);
            cu_close(&be);
            drop(&p);
        }
}

/* Rows that are not finite have no predictions and no counts; their losses are not
 * numbers. */
TEST(rows_that_are_not_finite)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    problem p = make(100, 20, 1, 0, false);
    sp_backend be = cu_open(0);

    for (int i = 0; i < 20; i++) {
        p.a.logits.data[(5 * i) * p.a.logits.ld + i] = bad[i % 3];
        p.label[5 * i] = SP_IGNORE;
    }
    compare_loss(&be, &p);
    for (int i = 0; i < 100; i++)
        assert_int_equal(p.a.prediction[i] == SP_IGNORE, i % 5 == 0);
    for (int i = 0; i < 20; i++)
        p.label[5 * i] = i;
    p.a.dlogits.data = NULL;
    memset(p.a.confusion, 0, 400 * sizeof *p.a.confusion);
    compare_counts(&be, &p);
    cu_close(&be);
    drop(&p);
}

/* ---- updates ---- */

static void update(sp_backend *be, int n, bool is_adamw, bool nesterov, double momentum)
{
    sp_backend ref = fx_reference();
    float *v = fx_floats((size_t)n, 4);
    sp_tensor w = fx_tensor(1, n, n, 1), m = fx_tensor(1, n, n, 2);
    sp_tensor g = fx_tensor(1, n, n, 3);
    sp_tensor d_w = cu_tensor(be, w), d_m = cu_tensor(be, m);
    sp_optim_args a = {n,    w.data, g.data, m.data, v,        0.25, 0.1, momentum,
                       1e-2, 0.9,    0.999,  1e-8,   nesterov, 3,    NULL};
    sp_optim_args d = a;
    sp_tensor got_w = fx_tensor(1, n, n, 9), got_m = fx_tensor(1, n, n, 9);

    for (int i = 0; i < n; i++)
        v[i] = fabsf(v[i]);
    d.w = d_w.data;
    d.m = d_m.data;
    d.g = cu_tensor(be, g).data;
    d.v = cu_copy(be, v, (size_t)n * sizeof *v);
    OK((is_adamw ? ref.ops->adamw : ref.ops->sgd)(&ref, &a));
    OK((is_adamw ? be->ops->adamw : be->ops->sgd)(be, &d));
    cu_read(be, d_w, got_w);
    cu_read(be, d_m, got_m);
    cu_same("weights", got_w, w, 1e-7);
    cu_same("moments", got_m, m, 1e-7);
    free(g.data), free(v);
}

/* Updates by one call, or each run by a call of its own with weight decay 0. */
static void update_spared(sp_backend *be, bool is_adamw, const sp_optim_args *whole,
                          const uint8_t *spared, bool is_each)
{
    const int64_t each = is_each ? SP_SPARED_RUN : whole->n;

    for (int64_t at = 0; at < whole->n; at += each) {
        sp_optim_args a = *whole;

        a.n = whole->n - at < each ? whole->n - at : each;
        a.w += at, a.g += at, a.m += at, a.v += at;
        if (is_each && spared[at / SP_SPARED_RUN])
            a.weight_decay = 0;
        if (is_each)
            a.spared = NULL;
        OK((is_adamw ? be->ops->adamw : be->ops->sgd)(be, &a));
    }
}

/* Gives the weights after an update in which some runs have no weight decay, in one
 * launch or, with `each`, several. */
static float *spare(sp_backend *be, int n, bool is_adamw, bool is_each)
{
    const size_t bytes = (size_t)n * sizeof(float);
    float *w = fx_floats((size_t)n, 1), *g = fx_floats((size_t)n, 2);
    float *zero = calloc((size_t)n, sizeof *zero);
    uint8_t spared[64];
    sp_optim_args a = {n,   NULL, NULL,  NULL, NULL, 0.25, 0.1, 0.9,
                       0.3, 0.9,  0.999, 1e-8, true, 0,    NULL};
    unsigned before;

    for (int i = 0; i < 64; i++)
        spared[i] = (uint8_t)(i % 3 == 1 || i % 5 == 0);
    a.w = cu_copy(be, w, bytes);
    a.g = cu_copy(be, g, bytes);
    a.m = cu_copy(be, zero, bytes);
    a.v = cu_copy(be, zero, bytes);
    a.spared = cu_copy(be, spared, sizeof spared);
    before = hc_launches ? hc_launches() : 0;
    update_spared(be, is_adamw, &a, spared, is_each);
    if (hc_launches && !is_each)
        assert_int_equal(hc_launches() - before, 1);
    OK(be->ops->download(be, w, a.w, bytes));
    free(g), free(zero);
    return w;
}

/* Gives the same by the plain loops. */
static float *spare_plain(int n, bool is_adamw)
{
    sp_backend ref = fx_reference();
    float *w = fx_floats((size_t)n, 1), *g = fx_floats((size_t)n, 2);
    float *m = calloc((size_t)n, sizeof *m), *v = calloc((size_t)n, sizeof *v);
    uint8_t spared[64];
    sp_optim_args a = {n,   w,   g,     m,    v,    0.25, 0.1,   0.9,
                       0.3, 0.9, 0.999, 1e-8, true, 0,    spared};

    for (int i = 0; i < 64; i++)
        spared[i] = (uint8_t)(i % 3 == 1 || i % 5 == 0);
    update_spared(&ref, is_adamw, &a, spared, true);
    free(g), free(m), free(v);
    return w;
}

TEST(runs_are_spared_decay)
{
    static const int counts[] = {5, 160, 1000};

    for (int i = 0; i < 3; i++) {
        sp_backend be = cu_open(i);

        for (int is_adamw = 0; is_adamw < 2; is_adamw++) {
            float *one = spare(&be, counts[i], is_adamw, false);
            float *each = spare(&be, counts[i], is_adamw, true);
            float *plain = spare_plain(counts[i], is_adamw);

            assert_memory_equal(one, each, (size_t)counts[i] * sizeof *one);
            for (int k = 0; k < counts[i]; k++)
                near_double("weight", one[k], plain[k], 1e-7);
            free(one), free(each), free(plain);
        }
        cu_close(&be);
    }
}

TEST(updates_are_plain)
{
    static const int counts[] = {1, 31, 257, 9000};

    for (int i = 0; i < 4; i++) {
        sp_backend ref = fx_reference(), be = cu_open(i);
        sp_tensor g = fx_tensor(1, counts[i], counts[i], 5);
        double want, got;

        update(&be, counts[i], false, i % 2, 0.9);
        update(&be, counts[i], false, false, 0);
        update(&be, counts[i], true, false, 0);
        OK(ref.ops->sum_squares(&ref, g.data, counts[i], &want));
        double *sum = cu_copy(&be, &want, sizeof want);
        OK(be.ops->sum_squares(&be, cu_tensor(&be, g).data, counts[i], sum));
        OK(be.ops->download(&be, &got, sum, sizeof got));
        near_double("sum of squares", got, want, 1e-12);
        OK(be.ops->sum_squares(&be, NULL, 0, sum));
        OK(be.ops->download(&be, &got, sum, sizeof got));
        assert_true(got == 0);
        cu_close(&be);
        free(g.data);
    }
}

/* ---- memory ---- */

/* The race checker is left out, since its records take 48 bytes for each byte. */
TEST(arenas_grow_in_place)
{
    if (hc_is_checked())
        skip();
    sp_backend be = cu_open(0);
    sp_arena arena, all;
    char *first, *second, text[] = "kept", back[8];

    OK(be.ops->arena_create(&arena, 64 << 20, "test"));
    OK(sp_arena_take(&arena, 1000, (void **)&first));
    OK(be.ops->upload(&be, first, text, sizeof text));
    OK(sp_arena_take(&arena, 40 << 20, (void **)&second));
    OK(be.ops->fill(&be, second, 1, 40 << 20));
    OK(be.ops->download(&be, back, first, sizeof text));
    assert_string_equal(back, text);
    size_t committed = arena.committed;
    sp_arena_reset(&arena);
    OK(sp_arena_take(&arena, 40 << 20, (void **)&second));
    assert_true(second == first && arena.committed == committed);
    assert_int_equal(sp_arena_take(&arena, 64 << 20, (void **)&second), SP_EMEM);
    /* The emulated device has 256 MiB. */
    OK(be.ops->arena_create(&all, 0, "all"));
    FAILS(sp_arena_take(&all, 230 << 20, (void **)&second), SP_EMEM, "device memory");
    be.ops->arena_destroy(&arena);
    OK(sp_arena_take(&all, 230 << 20, (void **)&second)); /* but not an eighth more */
    be.ops->arena_destroy(&all);
    cu_close(&be);
}

TEST(absent_device_is_refused)
{
    sp_backend be = {.ops = &sp_cuda_ops};

    FAILS(be.ops->open(&be, 77, 1), SP_EDEVICE, "CUDA device 77");
    be.ops->close(&be);
}

KERNEL_TEST(test_cuda_loss)
{
    return cmocka_run_group_tests(own_tests, NULL, NULL);
}
