/* Update rules agree with their formulas in double, and schedules have the right values
 * at the ends of their phases. */
#include "fixtures/test.h"

#include "net/sp_optim.h"

enum { N_STEPS = 3 };

/* A norm of 20 channels has more than one run of SP_NO_DECAY_RUN floats. */
_Static_assert(SP_NO_DECAY_RUN < 20, "the second run is exempt too");

static const char *const LAYERS =
    "net : { layers = ("
    "{ name = \"c\"; op = \"conv\"; out = 20; kernel = 3; },"
    "{ name = \"b\"; op = \"batchnorm\"; },"
    "{ name = \"f\"; op = \"conv\"; out = 2; kernel = 1; bias = true; } ); };";

typedef struct rig {
    sp_config config;
    sp_graph graph;
    sp_backend backend;
    sp_optim optim;
    float *param, *grad;
    double *w, *m, *v; /* by hand */
    double factor[3];  /* of the learning rate of layers c, b, f; 0: frozen */
} rig;

/* Overrides of a deck: how many and which. */
#define KEYS(...)                                                                      \
    (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[])                \
    {                                                                                  \
        __VA_ARGS__                                                                    \
    }

static void rig_open(rig *r, int n_overrides, char *const *overrides)
{
    int64_t n;

    memset(r, 0, sizeof *r);
    for (int64_t i = 0; i < 3; i++)
        r->factor[i] = 1;
    OK(sp_config_parse(&r->config, LAYERS, "rules", n_overrides, overrides));
    OK(sp_graph_build(&r->graph, &r->config, 1, 2));
    r->backend.ops = sp_backend_find("cpu");
    OK(r->backend.ops->open(&r->backend, 0, 2));
    OK(sp_optim_create(&r->optim, &r->graph, &r->config, &r->backend));
    n = r->graph.n_floats;
    r->param = test_alloc((size_t)n * sizeof *r->param);
    r->grad = test_alloc((size_t)n * sizeof *r->grad);
    r->w = test_alloc(3 * (size_t)n * sizeof *r->w);
    r->m = r->w + n;
    r->v = r->m + n;
    sp_graph_init_params(&r->graph, 3, r->param);
    for (int64_t i = 0; i < n; i++)
        r->w[i] = (double)r->param[i];
}

static void rig_close(rig *r)
{
    sp_optim_destroy(&r->optim);
    r->backend.ops->close(&r->backend);
    sp_graph_destroy(&r->graph);
    sp_config_destroy(&r->config);
}

/* Fills the gradient, another one in each step and 0 in the padding as everywhere;
 * gives its norm. */
static double draw_gradient(rig *r, int step)
{
    double squares = 0;

    for (int p = 0; p < r->graph.n_params; p++)
        for (int64_t i = 0; i < r->graph.param[p].count; i++) {
            int64_t at = r->graph.param[p].offset + i;

            r->grad[at] = (float)sin(1.7 * (double)at + step);
            squares += (double)r->grad[at] * (double)r->grad[at];
        }
    return sqrt(squares);
}

static double squares(rig *r)
{
    double sum;

    OK(r->optim.backend->ops->sum_squares(r->optim.backend, r->grad, r->graph.n_floats,
                                          &sum));
    return sum;
}

/* The rules of torch.optim.SGD and AdamW, for each parameter that is trained. */
static void by_hand(rig *r, int t, double g_scale, sp_rates rates)
{
    const sp_config *c = &r->config;
    const double mu = rates.momentum, beta2 = c->train.betas.at[1];
    const double share = t > 0 ? 1 - c->train.dampening : 1;

    for (int p = 0; p < r->graph.n_params; p++)
        for (int64_t i = r->graph.param[p].offset;
             i < r->graph.param[p].offset + r->graph.param[p].count; i++) {
            bool is_exempt = r->graph.param[p].is_norm && !c->train.decay_norm;
            double decay = is_exempt ? 0 : c->train.weight_decay;
            double lr = rates.lr * r->factor[r->graph.param[p].node];
            double g = (double)r->grad[i] * g_scale;

            if (lr == 0)
                continue;
            if (c->train.optimizer == SP_ADAMW) {
                r->w[i] -= lr * decay * r->w[i];
                r->m[i] = mu * r->m[i] + (1 - mu) * g;
                r->v[i] = beta2 * r->v[i] + (1 - beta2) * g * g;
                r->w[i] -=
                    lr * (r->m[i] / (1 - pow(mu, t + 1))) /
                    (sqrt(r->v[i] / (1 - pow(beta2, t + 1))) + c->train.adamw_eps);
                continue;
            }
            g += decay * r->w[i];
            r->m[i] = t > 0 ? mu * r->m[i] + share * g : g;
            r->w[i] -= lr * (mu == 0             ? g
                             : c->train.nesterov ? g + mu * r->m[i]
                                                 : r->m[i]);
        }
}

static void check_factors(int n_overrides, char *const *overrides, double c, double b,
                          double f)
{
    CLOSED_BY(rig_close) rig r;

    rig_open(&r, n_overrides, overrides);
    r.factor[0] = c;
    r.factor[1] = b;
    r.factor[2] = f;
    for (int t = 0; t < N_STEPS; t++) {
        const double weight_sum = 4;
        sp_rates rates = sp_optim_rates(&r.config, 10 * t, 10 * N_STEPS, 10);
        double norm = draw_gradient(&r, t) / weight_sum, found;
        double clip = r.config.train.grad_clip;

        clip = clip > 0 && clip < norm ? clip / (norm + 1e-6) : 1;
        rates.lr = 0.05 / (t + 1);
        by_hand(&r, t, clip / weight_sum, rates);
        OK(sp_optim_step(&r.optim, r.param, r.grad, squares(&r), weight_sum, rates,
                         &found));
        assert_true(fabs(found / norm - 1) < 1e-12);
    }
    assert_int_equal(r.optim.t, N_STEPS);
    for (int64_t i = 0; i < r.graph.n_floats; i++)
        if (!(fabs((double)r.param[i] - r.w[i]) <= 1e-6 * (1 + fabs(r.w[i]))))
            fail_msg("weight %d: %.9g, expected %.9g", (int)i, (double)r.param[i],
                     r.w[i]);
    for (int64_t i = 0; i < r.graph.n_params;
         i++) /* frozen: the same bits, no momentum */
        for (int64_t j = r.graph.param[i].offset;
             r.graph.node[r.graph.param[i].node].is_frozen &&
             j < r.graph.param[i].offset + r.graph.param[i].count;
             j++)
            assert_true(r.param[j] == (float)r.w[j] &&
                        r.optim.state[SP_OPTIM_STATE_M][j] == 0);
}

static void check_rule(int n_overrides, char *const *overrides)
{
    check_factors(n_overrides, overrides, 1, 1, 1);
}

TEST(layers_have_rates_of_their_own_or_stay)
{
    /* the longest prefix holds, wherever it stands */
    check_factors(KEYS("train.lr_layers=[\"c=0.5\",\"=9\",\"f=4\",\"b=1\"]",
                       "train.weight_decay=0.01"),
                  0.5, 1, 4);
    check_factors(KEYS("train.freeze=[\"c\"]", "train.weight_decay=0.3",
                       "train.lr_layers=[\"b=0.25\"]", "train.decay_norm=false"),
                  0, 0.25, 1);
    check_factors(KEYS("train.freeze=[\"b\"]"), 1, 0, 1); /* two layers of one rate */
    check_factors(KEYS("train.freeze=[\"b\"]", "train.weight_decay=0.3",
                       "train.optimizer=adamw", "train.lr_layers=[\"c=9\",\"f=2\"]"),
                  9, 0, 2);
}

TEST(sgd_is_pytorchs)
{
    check_rule(KEYS("train.nesterov=false", "train.weight_decay=0.01"));
    check_rule(KEYS("train.nesterov=true", "train.weight_decay=0.01"));
    check_rule(KEYS("train.momentum=0.0", "train.nesterov=false"));
    check_rule(KEYS("train.nesterov=false", "train.dampening=0.1"));
    check_rule(KEYS("train.nesterov=false", "train.dampening=0.9",
                    "train.weight_decay=0.01", "train.momentum=0.5"));
    /* dampening is of the momentum alone */
    check_rule(
        KEYS("train.momentum=0.0", "train.nesterov=false", "train.dampening=0.9"));
}

TEST(adamw_decays_apart_from_the_gradient)
{
    check_rule(KEYS("train.optimizer=adamw", "train.weight_decay=0.1"));
    check_rule(KEYS("train.optimizer=adamw", "train.betas=[0.8, 0.95]"));
    check_rule(KEYS("train.optimizer=adamw", "train.betas=[0.0, 0.5]",
                    "train.adamw_eps=0.01"));
}

/* Momentum and beta1 of each step are those of the schedule, in the bias correction
 * too, as in PyTorch, whose OneCycleLR writes them into the optimizer. */
TEST(rules_take_the_momentum_of_the_step)
{
    check_rule(KEYS("train.schedule=onecycle", "train.cycle_momentum=[0.5, 0.95]"));
    check_rule(KEYS("train.schedule=onecycle", "train.cycle_momentum=[0.5, 0.95]",
                    "train.nesterov=false", "train.momentum=0.0"));
    check_rule(KEYS("train.schedule=onecycle", "train.cycle_momentum=[0.0, 0.0]"));
    check_rule(KEYS("train.schedule=onecycle", "train.cycle_momentum=[0.5, 0.95]",
                    "train.optimizer=adamw"));
}

/* Ten steps of 10 samples; begin: the first step that enters the average, and share(t)
 * the share of step t in it. A frozen layer's average is the layer. */
static void check_average(int n_keys, char *const *keys, int begin,
                          double (*share)(int t))
{
    double want[2][200] = {{0}}, most = 0;
    float running[200], *state[2];
    int64_t n[2];
    rig r;

    rig_open(&r, n_keys, keys);
    state[0] = r.optim.state[SP_OPTIM_STATE_EMA];
    state[1] = r.optim.state[SP_OPTIM_STATE_EMA_BUFFERS];
    n[0] = r.graph.n_floats < 200 ? r.graph.n_floats : 200;
    n[1] = r.graph.n_buffer_floats;
    assert_true(n[0] > 100 && n[1] >= 40 && n[1] <= 200);
    for (int t = 0; t < 10; t++) {
        const sp_rates rates = sp_optim_rates(&r.config, 10 * t, 100, 10);

        draw_gradient(&r, t);
        for (int64_t i = 0; i < n[1]; i++)
            running[i] = (float)cos(0.3 * (double)i + t);
        OK(sp_optim_step(&r.optim, r.param, r.grad, squares(&r), 4,
                         (sp_rates){.lr = 0.3, .momentum = 0.9}, NULL));
        OK(sp_optim_average(&r.optim, r.param, running, rates.keep));
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < n[k]; i++) {
                const double value = (double)(k ? running[i] : r.param[i]);

                want[k][i] += t < begin ? 0 : share(t) * value;
            }
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n[k]; i++)
            most = fmax(most, fabs((double)state[k][i] - want[k][i]));
    assert_true(most < 1e-6);
    for (int p = 0; p < r.graph.n_params; p++)
        for (int64_t i = 0; r.graph.param[p].is_norm && i < r.graph.param[p].count; i++)
            assert_true(state[0][r.graph.param[p].offset + i] ==
                        r.param[r.graph.param[p].offset + i]);
    rig_close(&r);
}

static double ema_share(int t)
{
    return (t ? 1 - 0.9 : 1) * pow(0.9, 9 - t);
}

static double equal_share(int t)
{
    (void)t;
    return 1.0 / 4;
}

static double last_share(int t)
{
    return t == 9;
}

/* torch.optim.swa_utils.AveragedModel(model, use_buffers = True) with
 * get_ema_multi_avg_fn(0.9) and with get_swa_multi_avg_fn(), which is called in the last
 * steps only: the first call of update_parameters copies, each later one is
 * lerp(average, value, 1 - 0.9), or average + (value - average) / (calls + 1). */
TEST(averages_are_pytorchs)
{
    check_average(KEYS("train.ema=0.9", "train.freeze=b"), 0, ema_share);
    check_average(KEYS("train.average_tail=0.4", "train.freeze=b"), 6, equal_share);
    check_average(KEYS("train.average_tail=0.04", "train.freeze=b"), 9, last_share);
}

TEST(norms_may_be_exempt_from_decay)
{
    check_rule(KEYS("train.decay_norm=false", "train.weight_decay=0.3"));
    check_rule(KEYS("train.decay_norm=false", "train.weight_decay=0.3",
                    "train.optimizer=adamw"));
}

TEST(clipping_is_by_the_global_norm)
{
    check_rule(KEYS("train.grad_clip=0.1"));
    check_rule(KEYS("train.grad_clip=1000.0"));
}

TEST(nothing_moves_without_labels_or_finite_numbers)
{
    const sp_rates rates = {.lr = 0.1, .momentum = 0.9};
    CLOSED_BY(rig_close) rig r;
    FREED float *before;
    size_t bytes;
    double norm;

    rig_open(&r, 0, NULL);
    bytes = (size_t)r.graph.n_floats * sizeof *r.param;
    draw_gradient(&r, 0);
    OK(sp_optim_step(&r.optim, r.param, r.grad, squares(&r), 4, rates, &norm));
    before = malloc(2 * bytes);
    memcpy(before, r.param, bytes);
    memcpy(before + r.graph.n_floats, r.optim.state[SP_OPTIM_STATE_M], bytes);
    OK(sp_optim_step(&r.optim, r.param, r.grad, squares(&r), 0, rates, &norm));
    assert_true(norm == 0);
    r.grad[r.graph.param[1].offset] = NAN;
    OK(sp_optim_step(&r.optim, r.param, r.grad, squares(&r), 4, rates, &norm));
    assert_true(isnan(norm));
    r.grad[r.graph.param[1].offset] = -HUGE_VALF;
    OK(sp_optim_step(&r.optim, r.param, r.grad, squares(&r), 4, rates, &norm));
    assert_true(isinf(norm));
    assert_memory_equal(before, r.param, bytes);
    assert_memory_equal(before + r.graph.n_floats, r.optim.state[SP_OPTIM_STATE_M],
                        bytes);
    assert_int_equal(r.optim.t, 1);
}

static void check_lr(const char *schedule, const char *warmup, int64_t seen,
                     double expected)
{
    char of_schedule[64], of_warmup[64];
    char *overrides[] = {of_schedule, of_warmup, "train.lr=2.0", "batch.size=10"};
    CLOSED_BY(sp_config_destroy) sp_config config;
    double found;

    snprintf(of_schedule, sizeof of_schedule, "train.schedule=%s", schedule);
    snprintf(of_warmup, sizeof of_warmup, "train.warmup_steps=%s", warmup);
    OK(sp_config_parse(&config, LAYERS, "lr", 4, overrides));
    found = sp_optim_rates(&config, seen, 1000, 10).lr;
    if (!(fabs(found - expected) <= 1e-12))
        fail_msg("%s, warm-up %s, %d samples: %.17g, expected %.17g", schedule, warmup,
                 (int)seen, found, expected);
}

TEST(schedules_meet_their_landmarks)
{
    check_lr("constant", "0", 0, 2);
    check_lr("constant", "0", 999, 2);
    check_lr("step", "0", 499, 2);
    check_lr("step", "0", 500, 0.2);
    check_lr("step", "0", 749, 0.2);
    check_lr("step", "0", 750, 0.02);
    check_lr("poly", "0", 0, 2);
    check_lr("poly", "0", 500, 2 * pow(0.5, 0.9));
    check_lr("poly", "0", 1000, 0);
    check_lr("cosine", "0", 0, 2);
    check_lr("cosine", "0", 500, 1);
    check_lr("cosine", "0", 1000, 0);
    check_lr("cosine", "0", 2000, 0); /* a continued run may be past its end */
    check_lr("onecycle", "0", 0, 2.0 / 25);
    check_lr("onecycle", "0", 145, 1 + 1.0 / 25);
    check_lr("onecycle", "0", 290, 2);
    check_lr("onecycle", "0", 640, 1 + 1 / 25e4);
    check_lr("onecycle", "0", 990, 2 / 25e4);
    check_lr("onecycle", "0", 1000, 2 / 25e4);
    check_lr("onecycle", "50", 490, 2); /* step 50 is the last one of the first half */
}

TEST(warmup_is_linear_in_samples)
{
    check_lr("constant", "4", 0, 0.5);
    check_lr("constant", "4", 10, 1);
    check_lr("constant", "4", 30, 2);
    check_lr("constant", "4", 40, 2);
    check_lr("cosine", "100", 500, 1 * 0.51);
}

TEST(lr_scales_with_the_effective_batch)
{
    const char *scale[] = {"none", "linear", "sqrt"};
    const double expected[] = {0.1, 0.4, 0.2};

    for (int i = 0; i < 3; i++) {
        char text[64];
        char *overrides[] = {text, "train.lr=0.1", "batch.size=10",
                             "train.schedule=constant", "train.warmup_steps=0"};
        CLOSED_BY(sp_config_destroy) sp_config config;

        snprintf(text, sizeof text, "train.lr_scale=%s", scale[i]);
        OK(sp_config_parse(&config, LAYERS, "lr", 5, overrides));
        assert_true(fabs(sp_optim_rates(&config, 0, 100, 40).lr - expected[i]) < 1e-12);
        config.train.schedule = SP_ONECYCLE; /* at its peak */
        assert_true(fabs(sp_optim_rates(&config, 260, 1000, 40).lr - expected[i]) <
                    1e-12);
    }
}

/* ---- PyTorch's schedules, as their documentation has them ---- */

enum { LENGTH = 41 }; /* steps */

static const double PI = 3.14159265358979323846;

/* Demands the rates of the steps of a training of LENGTH steps of 10 samples, whose
 * samples are `total`. momentum NULL: that of the deck. */
static void check_schedule(const char *const *keys, int64_t total, const double *lr,
                           const double *momentum)
{
    char *overrides[16] = {"train.lr=0.7", "batch.size=10"};
    CLOSED_BY(sp_config_destroy) sp_config config;
    int n = 2;

    for (; *keys; keys++)
        overrides[n++] = (char *)(uintptr_t)*keys;
    OK(sp_config_parse(&config, LAYERS, "schedule", n, overrides));
    for (int t = 0; t < LENGTH; t++) {
        const sp_rates found = sp_optim_rates(&config, 10 * t, total, 10);
        const double want = momentum ? momentum[t] : config.train.momentum;

        if (!(fabs(found.lr - lr[t]) <= 1e-13 && fabs(found.momentum - want) <= 1e-13))
            fail_msg("step %d: %.17g, %.17g, expected %.17g, %.17g", t, found.lr,
                     found.momentum, lr[t], want);
    }
}

static double anneal(double start, double end, double pct)
{
    return end + (start - end) / 2.0 * (cos(PI * pct) + 1);
}

/* OneCycleLR with cycle_momentum: of T steps, numbered from 0, step pct_start T - 1 has
 * the maximum and step T - 1 the end. */
static void check_onecycle(double pct_start, double div, double final_div, double low,
                           double high, const char *const *more)
{
    const double T = LENGTH, first_end = pct_start * T - 1;
    const double start = 0.7 / div, end = start / final_div;
    double lr[LENGTH], momentum[LENGTH];
    char text[4][96];
    const char *keys[8] = {text[0], text[1], text[2], text[3],
                           "train.schedule=onecycle"};

    for (int i = 0; i < 2 && more[i]; i++)
        keys[5 + i] = more[i];
    snprintf(text[0], sizeof *text, "train.pct_start=%.17g", pct_start);
    snprintf(text[1], sizeof *text, "train.div_factor=%.17g", div);
    snprintf(text[2], sizeof *text, "train.final_div_factor=%.17g", final_div);
    snprintf(text[3], sizeof *text, "train.cycle_momentum=[%.17g, %.17g]", low, high);
    for (int t = 0; t < LENGTH; t++) {
        const bool is_rising = t <= first_end;
        const double pct =
            is_rising ? t / first_end : (t - first_end) / (T - 1 - first_end);

        lr[t] = is_rising ? anneal(start, 0.7, pct) : anneal(0.7, end, pct);
        momentum[t] = is_rising ? anneal(high, low, pct) : anneal(low, high, pct);
    }
    check_schedule(keys, 10 * LENGTH, lr, momentum);
}

TEST(onecycle_is_pytorchs)
{
    static const char *const none[] = {NULL}, *const adamw[] = {"train.optimizer=adamw",
                                                                NULL};

    check_onecycle(0.3, 25, 1e4, 0.85, 0.95, none);
    check_onecycle(0.3, 25, 1e4, 0.85, 0.95, adamw);
    check_onecycle(0.05, 10, 1e4, 0.85, 0.95, none); /* Pointcept, ScanNet */
    check_onecycle(0.5, 10, 100, 0.5, 0.5, adamw);
    check_onecycle(1, 2, 1, 0, 0.9, none);
    check_onecycle(0.01, 25, 1e4, 0.85, 0.95, none); /* the peak is before step 0 */
}

/* Without cycle_momentum the momentum stays, which is adamw's first beta. */
TEST(momentum_stays_without_a_cycle)
{
    static const char *const words[][2] = {
        {"train.schedule=constant", "train.momentum=0.3"},
        {"train.schedule=onecycle", "train.momentum=0.3"},
        {"train.schedule=onecycle", "train.betas=[0.7, 0.9]"}};

    for (int i = 0; i < 3; i++) {
        char *overrides[] = {(char *)(uintptr_t)words[i][0],
                             (char *)(uintptr_t)words[i][1],
                             i < 2 ? "train.optimizer=sgd" : "train.optimizer=adamw"};
        CLOSED_BY(sp_config_destroy) sp_config config;

        OK(sp_config_parse(&config, LAYERS, "momentum", 3, overrides));
        assert_true(sp_optim_rates(&config, 20, 100, 10).momentum ==
                    (i < 2 ? 0.3 : 0.7));
        assert_false(sp_optim_cycles_momentum(&config));
    }
}

/* MultiStepLR multiplies by gamma at each milestone, here steps 8, 20 and 30 of 40. */
TEST(step_is_pytorchs)
{
    static const char *const keys[] = {"train.schedule=step", "train.warmup_steps=0",
                                       "train.milestones=[0.2, 0.5, 0.75]",
                                       "train.gamma=0.3", NULL};
    static const char *const none[] = {"train.schedule=step", "train.warmup_steps=0",
                                       "train.milestones=[]", NULL};
    double lr[LENGTH];

    for (int t = 0; t < LENGTH; t++)
        lr[t] = 0.7 * pow(0.3, (t >= 8) + (t >= 20) + (t >= 30));
    check_schedule(keys, 400, lr, NULL);
    for (int t = 0; t < LENGTH; t++)
        lr[t] = 0.7;
    check_schedule(none, 400, lr, NULL);
}

/* CosineAnnealingLR: eta_min + (base - eta_min) (1 + cos(pi t / T)) / 2; PolynomialLR:
 * base (1 - t / T)^power. */
TEST(cosine_and_poly_are_pytorchs)
{
    static const char *const cosine[] = {"train.schedule=cosine",
                                         "train.warmup_steps=0",
                                         "train.cosine_floor=0.25", NULL};
    static const char *const poly[] = {"train.schedule=poly", "train.warmup_steps=0",
                                       "train.poly_power=2.5", NULL};
    const double eta_min = 0.25 * 0.7;
    double lr[LENGTH];

    for (int t = 0; t < LENGTH; t++)
        lr[t] = eta_min + (0.7 - eta_min) * (1 + cos(PI * t / 40)) / 2;
    check_schedule(cosine, 400, lr, NULL);
    for (int t = 0; t < LENGTH; t++)
        lr[t] = 0.7 * pow(1 - t / 40.0, 2.5);
    check_schedule(poly, 400, lr, NULL);
}

/* LinearLR of total_iters steps has start_factor in step 0 and 1 in step total_iters,
 * which is the last one of total_iters + 1 steps of warm-up. */
TEST(warmup_is_pytorchs)
{
    static const char *const keys[] = {"train.schedule=constant",
                                       "train.warmup_steps=11",
                                       "train.warmup_factor=0.2", NULL};
    static const char *const one[] = {"train.schedule=constant", "train.warmup_steps=1",
                                      "train.warmup_factor=0.2", NULL};
    static const char *const same[] = {"train.schedule=constant",
                                       "train.warmup_steps=10",
                                       "train.warmup_factor=0.1", NULL};
    double lr[LENGTH];

    for (int t = 0; t < LENGTH; t++)
        lr[t] = 0.7 * (0.2 + (1 - 0.2) * fmin(t, 10) / 10);
    check_schedule(keys, 400, lr, NULL);
    for (int t = 0; t < LENGTH; t++) /* 1 / warmup_steps is the default */
        lr[t] = 0.7 * fmin(1, (t + 1) / 10.0);
    check_schedule(same, 400, lr, NULL);
    for (int t = 0; t < LENGTH; t++)
        lr[t] = 0.7;
    check_schedule(one, 400, lr, NULL);
}
