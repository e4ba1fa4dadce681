/* Loss, update rules and memory of the CUDA backend agree with the plain loops:
 * gradients of the loss to 1e-6, its sums to 1e-12 relative; predictions and confusion
 * counts exactly; updates to 1e-7 relative, sums of squares to 1e-12. Packings that an
 * update keeps have conv_pack's bits. */
#include "fixtures/test.h"

#include "gpu/cuda_fixture.h"

/* ---- loss ---- */

typedef struct problem {
    int n, c, pad;
    float smoothing;
    bool has_weight;
    bool has_bad; /* logits of every fifth row that are not finite, without a label */
    bool is_counted;    /* these rows have labels: their losses are not numbers */
    sp_loss_rule sum;   /* is_sum: the rule of the loss */
    bool is_unlabelled; /* no row has a label */
} problem;

/* Labels are -1 .. C-1; some logits are equal, and some saturate. */
static sp_tensor draw(const problem *p, int32_t *label)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    sp_tensor z = fx_tensor(p->n, p->c, p->c + p->pad, 1);
    sp_rng rng = sp_rng_open(1, SP_RNG_INIT, 1, 1);

    for (int i = 0; i < p->n; i++)
        label[i] = p->is_unlabelled
                       ? SP_IGNORE
                       : (int)(sp_rng_u32(&rng) % (uint32_t)(p->c + 1)) - 1;
    for (int64_t i = 0; i < p->n; i += 7)
        for (int j = 0; j < p->c; j++)
            z.data[i * z.ld + j] = i % 2 ? 1 : 90 * (float)(j % 2);
    for (int i = 0; p->has_bad && i < p->c; i++) {
        z.data[5 * i * z.ld + i] = bad[i % 3];
        label[5 * i] = p->is_counted ? i : SP_IGNORE;
    }
    return z;
}

/* Sample 1 of 3 is empty. */
static void lose(op_results *r, const void *of)
{
    const problem *p = of;
    const int32_t row[] = {0, p->n / 3, p->n / 3, p->n};
    const size_t n = (size_t)p->n, n_counts = (size_t)(p->c * p->c);
    int32_t *label = test_alloc((n + 1) * sizeof *label);
    int64_t *zero = test_alloc((n + n_counts + 6) * sizeof *zero);
    float *weight = fx_floats((size_t)p->c, 2);
    sp_loss_args a = {.logits = op_take(r, draw(p, label)),
                      .rule = {.smoothing = p->smoothing},
                      .sample_row = row,
                      .n_samples = 3,
                      .confusion = op_copy(r, zero, n_counts * sizeof *zero)};
    sp_loss_args before;

    for (int j = 0; j < p->c; j++)
        weight[j] += 1.5f;
    if (p->sum.is_sum) {
        a.rule = p->sum;
        a.rule.smoothing = p->smoothing;
        weight[p->c - 1] = p->c > 2 ? 0 : 1;
    }
    a.label = op_copy(r, label, n * sizeof *label);
    if (p->has_weight)
        a.class_weight = op_copy(r, weight, (size_t)p->c * sizeof *weight);
    if (p->is_counted) {
        a.sums = op_copy(r, zero, 6 * sizeof(double));
    } else {
        /* Lovasz-softmax sorts errors that are rounded to 1.2e-10. */
        a.sums = op_sums(r, "sums of the loss", p->sum.is_sum ? 1e-9 : 1e-12, 6);
        a.dlogits = op_result_fp32(r, "dlogits", 1e-6, p->n, p->c, p->c + 1);
        a.prediction = op_copy(r, zero, n * sizeof *a.prediction);
        before = a;
        before.confusion = NULL;
        OK(r->be->ops->loss(r->be, &before)); /* what counts blocks begins anew */
        OK(r->be->ops->fill(r->be, a.sums, 0xff, 6 * sizeof *a.sums));
    }
    OK(r->be->ops->loss(r->be, &a));
    op_keep(r, "confusion", a.confusion, n_counts, sizeof *a.confusion);
    if (a.prediction)
        op_keep(r, "prediction", a.prediction, n, sizeof *a.prediction);
}

/* The last sample of the most rows has so many chunks that a thread adds several. */
TEST(loss_is_plain)
{
    static const int rows[] = {0, 1, 31, 33, 127, 400, 10000};
    static const int classes[] = {1, 2, 20, 33};

    for (int order = 0; order < cu_orders(); order++)
        for (int i = 0; i < (order > 0 || hc_is_checked() ? 6 : 7); i++)
            cu_compare(order, false, lose,
                       &(problem){rows[i],
                                  classes[i % 4],
                                  i % 3,
                                  i % 2 ? 0.1f : 0,
                                  i % 3 == 0,
                                  false,
                                  false,
                                  {.is_sum = false},
                                  false});
}

/* Each term, and all of them, over samples of several chunks of 1024 rows. */
TEST(sums_of_terms_are_plain)
{
    static const int rows[] = {0, 1, 33, 400, 5000};
    static const int classes[] = {1, 2, 20, 5, 3};

    for (int order = 0; order < cu_orders(); order++)
        for (int i = 0; i < 5; i++)
            for (int term = 0; term <= SP_N_LOSSES; term++) {
                problem p = {
                    rows[i],
                    classes[i],
                    i % 3,
                    term % 2 ? 0.1f : 0,
                    term % 3 == 0,
                    false,
                    false,
                    {.is_sum = true, .focal_gamma = 2, .is_joint = (i + term) % 2},
                    false};

                if (i == 4 && (order > 0 || hc_is_checked()))
                    continue;
                for (int t = 0; t < SP_N_LOSSES; t++)
                    p.sum.weight[t] = t == term || term == SP_N_LOSSES;
                cu_compare(order, false, lose, &p);
            }
}

/* Without labels there is no loss, although the weights of all samples divide it. */
TEST(nothing_is_labelled)
{
    for (int is_joint = 0; is_joint < 2; is_joint++) {
        problem p = {.n = 33,
                     .c = 5,
                     .sum = {.is_sum = true, .focal_gamma = 2, .is_joint = is_joint},
                     .is_unlabelled = true};

        for (int t = 0; t < SP_N_LOSSES; t++)
            p.sum.weight[t] = 1;
        cu_compare(0, false, lose, &p);
    }
}

/* Rows that are not finite have no predictions and no counts; their losses are not
 * numbers. */
TEST(rows_that_are_not_finite)
{
    problem p = {.n = 100, .c = 20, .pad = 1, .has_bad = true};
    static op_results plain;
    sp_backend ref = fx_reference();

    cu_compare(0, false, lose, &p);
    op_run(&plain, &ref, NULL, false, false, lose, &p);
    for (int i = 0; i < 100; i++)
        assert_int_equal(plain.sums[2].at[i] == SP_IGNORE, i % 5 == 0);
    p.is_counted = true;
    cu_compare(0, false, lose, &p);
}

/* ---- updates ---- */

typedef struct update {
    int n;
    bool is_adamw, nesterov;
    double momentum, dampening;
    int64_t t;
} update;

static void update_by(op_results *r, const void *of)
{
    const update *u = of;
    const int n = u->n;
    sp_tensor w = op_result_fp32(r, "weights", 1e-7, 1, n, n);
    sp_tensor m = op_result_fp32(r, "moments", 1e-7, 1, n, n),
              v = fx_tensor(1, n, n, 4);

    for (int i = 0; i < n; i++)
        v.data[i] = fabsf(v.data[i]);
    v = op_take(r, v);
    const sp_optim_args a = {n,      w.data,      op_vector(r, (size_t)n, 3),
                             m.data, v.data,      0.25,
                             0.1,    u->momentum, u->dampening,
                             1e-2,   0.9,         0.999,
                             1e-8,   u->nesterov, u->t,
                             NULL,   {NULL, 0}};
    OK((u->is_adamw ? r->be->ops->adamw : r->be->ops->sgd)(r->be, &a));
}

static void sum(op_results *r, const void *of)
{
    const int n = *(const int *)of;

    OK(r->be->ops->sum_squares(r->be, op_vector(r, (size_t)n, 5), n,
                               op_sums(r, "sum of squares", 1e-12, 1)));
    OK(r->be->ops->sum_squares(r->be, NULL, 0, op_sums(r, "sum of none", 0, 1)));
}

TEST(updates_are_plain)
{
    static const int counts[] = {1, 31, 257, 9000};

    for (int i = 0; i < 4; i++) {
        cu_compare(i, false, update_by, &(update){counts[i], false, i % 2, 0.9, 0, 3});
        cu_compare(i, false, update_by, &(update){counts[i], false, false, 0, 0, 3});
        for (int t = 0; t < 2; t++)
            cu_compare(i, false, update_by,
                       &(update){counts[i], false, false, 0.9, 0.3, t});
        cu_compare(i, false, update_by, &(update){counts[i], true, false, 0, 0, 3});
        cu_compare(i, false, sum, &counts[i]);
    }
}

typedef struct spare {
    int n;
    bool is_adamw;
    bool is_each; /* each run by a call of its own with weight decay 0 */
} spare;

/* An update in which some runs have no weight decay, by one launch or several. */
static void update_no_decay(op_results *r, const void *of)
{
    const spare *u = of;
    const int each = u->is_each ? SP_NO_DECAY_RUN : u->n;
    const sp_tensor w = op_result_fp32(r, "weights", 1e-7, 1, u->n, u->n);
    const float *g = op_vector(r, (size_t)u->n, 2);
    float *zero = test_alloc(2 * (size_t)u->n * sizeof *zero), *m;
    uint8_t no_decay[64];
    unsigned before;

    for (int i = 0; i < 64; i++)
        no_decay[i] = (uint8_t)(i % 3 == 1 || i % 5 == 0);
    m = op_copy(r, zero, 2 * (size_t)u->n * sizeof *zero);
    const uint8_t *placed = op_copy(r, no_decay, sizeof no_decay);
    before = hc_launches ? hc_launches() : 0;
    for (int at = 0; at < u->n; at += each) {
        const bool has_no_decay = u->is_each && no_decay[at / SP_NO_DECAY_RUN];
        const sp_optim_args a = {u->n - at < each ? u->n - at : each,
                                 w.data + at,
                                 g + at,
                                 m + at,
                                 m + u->n + at,
                                 0.25,
                                 0.1,
                                 0.9,
                                 0,
                                 has_no_decay ? 0 : 0.3,
                                 0.9,
                                 0.999,
                                 1e-8,
                                 true,
                                 0,
                                 u->is_each ? NULL : placed,
                                 {NULL, 0}};

        OK((u->is_adamw ? r->be->ops->adamw : r->be->ops->sgd)(r->be, &a));
    }
    if (hc_launches && r->memory && !u->is_each)
        assert_int_equal(hc_launches() - before, 1);
}

TEST(runs_are_spared_decay)
{
    static const int counts[] = {5, 160, 1000};
    static op_results one, many;

    for (int i = 0; i < 3; i++)
        for (int is_adamw = 0; is_adamw < 2; is_adamw++) {
            const spare each = {counts[i], is_adamw, true};
            const spare all = {counts[i], is_adamw, false};
            sp_backend be = cu_open(i);

            cu_run(&one, &be, false, update_no_decay, &all);
            cu_run(&many, &be, false, update_no_decay, &each);
            cu_close(&be);
            op_same("in one launch", &one, &many);
            cu_compare(i, false, update_no_decay, &each);
        }
}

/* ---- packings that updates keep ---- */

/* A convolution in the flat weights, and what lies between it and the next one. The
 * last of the table is repeated, so that there are more than one launch has. */
typedef struct kept_conv {
    int K, c_in, c_out, gap;
    bool has_grad_input, is_mirrored;
} kept_conv;

static const kept_conv kept_convs[] = {
    {27, 4, 32, 64, false, false},  {8, 20, 33, 0, true, false},
    {27, 64, 96, 1040, true, true}, {2, 128, 128, 32, true, false},
    {3, 7, 300, 16, true, true},    {1, 3, 5, 16, true, false},
};
enum { KEPT = 70, KEPT_LEAD = 48 };

/* The packings of the weights at w; `packed` has room for all, or is NULL to count it.
 * Returns the floats of the packings; *n_weights: of the weights. */
static size_t list_kept(sp_backend *be, const float *w, float *packed,
                        sp_pack_args *list, int *n, size_t *n_weights)
{
    size_t at = KEPT_LEAD, to = 0;

    *n = 0;
    for (int i = 0; i < KEPT; i++) {
        const kept_conv *k = &kept_convs[i < 5 ? i : 5];

        for (int d = 0; d <= k->has_grad_input; d++) {
            list[(*n)++] = (sp_pack_args){w + at,
                                          k->K,
                                          k->c_in,
                                          k->c_out,
                                          d,
                                          d && k->is_mirrored,
                                          packed ? packed + to : NULL};
            to += (be->ops->conv_pack_floats(be, k->K, k->c_in, k->c_out, d) + 31) /
                  32 * 32;
        }
        at += (size_t)k->K * k->c_in * k->c_out + k->gap;
        at = (at + SP_NO_DECAY_RUN - 1) / SP_NO_DECAY_RUN * SP_NO_DECAY_RUN;
    }
    *n_weights = at;
    return to;
}

typedef struct kept {
    float *weights, *packed;
    size_t n, size;
} kept;

/* Updates the elements from `first` on with packings that it keeps, or makes them of
 * the new weights. */
static kept update_kept(sp_backend *be, bool is_adamw, size_t first, bool is_kept)
{
    sp_pack_args list[2 * KEPT];
    int n_packs;
    kept k;
    const size_t size = list_kept(be, NULL, NULL, list, &n_packs, &k.n);
    const size_t bytes = k.n * sizeof(float);
    float *w = cu_copy(be, fx_floats(k.n, 1), bytes);
    float *g = cu_copy(be, fx_floats(k.n, 4), bytes), *m = cu_room(be, bytes);
    float *v = cu_room(be, bytes), *packed = cu_room(be, size * sizeof *packed);
    sp_optim_args a = {.n = (int64_t)(k.n - first),
                       .w = w + first,
                       .g = g + first,
                       .m = m + first,
                       .v = v + first,
                       .g_scale = 0.25,
                       .lr = 0.1,
                       .momentum = 0.9,
                       .weight_decay = 0.01,
                       .beta1 = 0.9,
                       .beta2 = 0.999,
                       .eps = 1e-8};

    k.size = list_kept(be, w, packed, list, &n_packs, &k.n);
    OK(be->ops->conv_pack(be, list, n_packs));
    if (is_kept)
        a.packs = (sp_packs){list, n_packs};
    OK((is_adamw ? be->ops->adamw : be->ops->sgd)(be, &a));
    if (!is_kept)
        OK(be->ops->conv_pack(be, list, n_packs));
    k.weights = test_alloc(bytes);
    k.packed = test_alloc(size * sizeof *packed);
    OK(be->ops->download(be, k.weights, w, bytes));
    OK(be->ops->download(be, k.packed, packed, size * sizeof *packed));
    return k;
}

static void check_kept(sp_precision precision, bool is_wgmma, int order, bool is_adamw,
                       size_t first)
{
    const size_t mark = test_mark();
    sp_backend be = cu_open(order);
    kept made, own;

    be.precision = precision;
    be.is_wgmma = is_wgmma;
    made = update_kept(&be, is_adamw, first, false);
    own = update_kept(&be, is_adamw, first, true);
    assert_memory_equal(own.weights, made.weights, own.n * sizeof *own.weights);
    assert_memory_equal(own.packed, made.packed, own.size * sizeof *own.packed);
    cu_close(&be);
    test_release(mark);
}

/* An update leaves the packings of its weights as conv_pack makes them, of any widths
 * and in every order, and those of other weights alone. */
TEST(updates_keep_packings)
{
    const size_t behind_first = KEPT_LEAD + 27 * 4 * 32 + 64;

    for (int precision = SP_FP32; precision <= SP_BF16; precision++)
        for (int i = 0; i < 2; i++) {
            check_kept((sp_precision)precision, false, i, i, 0);
            check_kept((sp_precision)precision, true, i, !i, i ? behind_first : 0);
        }
}

/* ---- memory ---- */

/* The race checker is left out, since its records take 48 bytes for each byte. */
TEST(arenas_grow_in_place)
{
    if (hc_is_checked())
        skip();
    CLOSED_BY(cu_close) sp_backend be = cu_open(0);
    sp_arena arena, all;
    char *first, *second, text[] = "kept", back[8];

    OK(be.ops->arena_create(&arena, 64 << 20, "test"));
    OK(sp_arena_alloc(&arena, 1000, (void **)&first));
    OK(be.ops->upload(&be, first, text, sizeof text));
    OK(sp_arena_alloc(&arena, 40 << 20, (void **)&second));
    OK(be.ops->fill(&be, second, 1, 40 << 20));
    OK(be.ops->download(&be, back, first, sizeof text));
    assert_string_equal(back, text);
    size_t committed = arena.committed;
    sp_arena_reset(&arena);
    OK(sp_arena_alloc(&arena, 40 << 20, (void **)&second));
    assert_true(second == first && arena.committed == committed);
    assert_int_equal(sp_arena_alloc(&arena, 64 << 20, (void **)&second), SP_EMEM);
    /* The emulated device has 256 MiB. */
    OK(be.ops->arena_create(&all, 0, "all"));
    FAILS(sp_arena_alloc(&all, 230 << 20, (void **)&second), SP_EMEM, "device memory");
    be.ops->arena_destroy(&arena);
    OK(sp_arena_alloc(&all, 230 << 20, (void **)&second)); /* but not an eighth more */
    be.ops->arena_destroy(&all);
}

TEST(absent_device_is_refused)
{
    sp_backend be = {.ops = &sp_cuda_ops};

    FAILS(be.ops->open(&be, 77, 1), SP_EDEVICE, "CUDA device 77");
    be.ops->close(&be);
}

KERNEL_TESTS(test_cuda_loss)
