/* The step that sptrain and spbench share: its parts in their order, what it reports,
 * and what ends it. */
#include "fixtures/test.h"

#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/sp_learner.h"
#include "api/sp_step.h"
#include "fixtures/shard_fixture.h"
#include "train/sp_session.h"

enum { SAMPLES = 4, MOST = 64 };

static const sp_rates rates = {.lr = 0.1, .momentum = 0.9};
static const int64_t voxels[SAMPLES] = {40, 30, 20, 50};

/* A training of one rank, and what the hooks were told. */
typedef struct rig {
    sp_comm comm;
    sp_config config;
    sp_command command;
    sp_session session;
    sp_device device;
    sp_data_sets data;
    sp_network network;
    sp_learner learner;
    sp_budgets budgets;
    sp_step_part part[MOST];
    int n_parts, n_batches, n_asked;
    int fail_at; /* the part that fails; -1: none */
} rig;

static char shard[] = "step.h5";

static void open_rig_as(rig *g, uint64_t unlabelled, char *more)
{
    char *overrides[] = {
        "data.train=[\"step.h5\"]", "batch.size=4",       "batch.accumulate=2",
        "net.family=dummy",         "net.width=0.25",     "train.warmup_steps=0",
        "run.device=cpu",           "run.watchdog_s=0",   "run.threads=1",
        "augment.drop=0.0",         "augment.jitter=0.0", more};
    const fixture f = {.n_samples = SAMPLES,
                       .voxels = voxels,
                       .has_moments = true,
                       .unlabelled = unlabelled,
                       .seed = 5};

    memset(g, 0, sizeof *g);
    g->fail_at = -1;
    OK(fixture_write(&f, shard));
    sp_comm_open_self(&g->comm);
    OK(sp_config_read(&g->config, NULL, sizeof overrides / sizeof *overrides,
                      overrides));
    g->command = (sp_command){.name = "train", .config = &g->config, .comm = &g->comm};
    sp_learner_begin(&g->learner, &g->config, &g->data.train, &g->network, &g->budgets);
    OK(sp_session_open(&g->session, &g->command, false));
    OK(sp_session_open_device(&g->session, &g->device));
    OK(sp_device_open_transport(&g->device));
    OK(sp_session_open_data(&g->session, &g->data, &g->network, true, false));
    OK(sp_learner_open(&g->learner, &g->device, &g->data, 2));
    OK(sp_loader_seek(g->learner.loader, (sp_position){0, 0}));
}

static void open_rig(rig *g, uint64_t unlabelled)
{
    open_rig_as(g, unlabelled, "train.deterministic=run");
}

static void close_rig(rig *g)
{
    sp_learner_close(&g->learner);
    sp_session_end(&g->session, SP_OK, &g->network, &g->data, &g->device);
    sp_config_destroy(&g->config);
    sp_comm_close(&g->comm);
}

static sp_status note(void *arg, sp_step_part part, const sp_batch *batch)
{
    rig *g = arg;

    assert_in_range(g->n_parts, 0, MOST - 1);
    assert_true((batch != NULL) ==
                (part >= SP_STEP_FORWARD && part <= SP_STEP_RECYCLE));
    g->part[g->n_parts++] = part;
    g->n_batches += part == SP_STEP_RECYCLE;
    return (int)part == g->fail_at ? SP_FAIL(SP_ENUMERIC, "the hook fails") : SP_OK;
}

static bool ask(void *arg)
{
    rig *g = arg;

    assert_int_equal(g->part[g->n_parts - 1], SP_STEP_RECYCLE);
    return ++g->n_asked == 2;
}

static const float *weights(const rig *g)
{
    return g->network.net.param;
}

TEST(test_parts)
{
    static const sp_step_part want[] = {
        SP_STEP_READ,     SP_STEP_FORWARD, SP_STEP_LOSS,    SP_STEP_BACKWARD,
        SP_STEP_RECYCLE,  SP_STEP_READ,    SP_STEP_FORWARD, SP_STEP_LOSS,
        SP_STEP_BACKWARD, SP_STEP_RECYCLE, SP_STEP_REDUCE,  SP_STEP_UPDATE,
        SP_STEP_END};
    const sp_step_hooks hooks = {.begin = note, .is_stop_asked = ask};
    sp_step_hooks mine = hooks;
    sp_step_result result;
    float before;
    CLOSED_BY(close_rig) rig g;

    open_rig(&g, 0);
    mine.arg = &g;
    before = weights(&g)[0];
    OK(sp_step_run(&g.learner, rates, &mine, &result));
    assert_int_equal(g.n_parts, sizeof want / sizeof *want);
    assert_memory_equal(g.part, want, sizeof want);
    assert_int_equal(g.n_batches, result.n_micro);
    assert_int_equal(result.n_samples, SAMPLES);
    assert_int_equal((int)result.sum.n_voxels, 140);
    assert_true(result.cost_sum > 0 && result.cost_max == result.cost_sum); /* 1 rank */
    assert_true(isfinite(result.loss) && result.loss > 0 && result.grad_norm > 0);
    assert_true(result.is_updated && !result.is_skipped && !result.is_stopping);
    assert_int_equal(result.updates, 1);
    assert_true(weights(&g)[0] != before);
    /* The second step: of the next epoch, and somebody wants to stop. */
    OK(sp_step_run(&g.learner, rates, &mine, &result));
    assert_int_equal(result.at.epoch, 1);
    assert_true(result.is_stopping);
    assert_int_equal(result.updates, 2);
}

/* Loops that name no number of threads, such as those of exact sums, take run.threads
 * of them, whatever the process had before. */
TEST(test_threads)
{
    int n = 0;
    CLOSED_BY(close_rig) rig g;

    omp_set_num_threads(3);
    open_rig(&g, 0);
#pragma omp parallel reduction(+ : n)
    n++;
    assert_int_equal(n, 1);
}

/* Runs a step that leaves the weights as they are. */
static void run_without_update(rig *g)
{
    const sp_step_hooks hooks = {.begin = note, .arg = g};
    const float before = weights(g)[0];
    sp_step_result result;

    sp_net_updated(&g->network.net);
    OK(sp_step_run(&g->learner, rates, &hooks, &result));
    assert_true(isnan(result.loss) && !result.is_updated);
    assert_true(result.is_skipped);
    assert_int_equal(result.updates, 0);
    assert_true(weights(g)[0] == before);
    OK(sp_step_name_samples(&g->learner, 1, 0));
}

/* Neither a step without labels nor one with a loss that is not finite changes the
 * weights; only the second counts as skipped. */
TEST(test_no_update)
{
    rig g;
    const sp_step_hooks hooks = {.begin = note, .arg = &g};
    sp_step_result result;
    int n_updated = 0;

    /* One sample has labels: its step changes the weights, the others do not. */
    open_rig_as(&g, (1 << (SAMPLES - 1)) - 1, "batch.size=1");
    for (int i = 0; i < SAMPLES; i++) {
        const float before = weights(&g)[0];

        OK(sp_step_run(&g.learner, rates, &hooks, &result));
        assert_int_equal(result.is_updated, weights(&g)[0] != before);
        assert_int_equal(isnan(result.loss), !result.is_updated);
        assert_false(result.is_skipped);
        n_updated += result.is_updated;
    }
    assert_int_equal(n_updated, 1);
    assert_int_equal(result.updates, 1);
    close_rig(&g);

    open_rig(&g, 0);
    for (int64_t i = 1; i < g.network.graph.n_floats; i++)
        g.network.net.param[i] = NAN;
    run_without_update(&g);
    close_rig(&g);

    /* A large loss is a number: exact sums hold every finite one. */
    open_rig_as(&g, 0, "train.deterministic=world");
    g.network.net.param[g.network.graph.param[g.network.graph.n_params - 1].offset] =
        1e30F;
    sp_net_updated(&g.network.net);
    OK(sp_step_run(&g.learner, rates, &hooks, &result));
    assert_true(isfinite(result.loss) && result.loss > 1e20 && result.is_updated);
    close_rig(&g);
}

TEST(test_hook_fails)
{
    sp_step_hooks hooks = {.begin = note};
    sp_step_result result;
    CLOSED_BY(close_rig) rig g;

    open_rig(&g, 0);
    hooks.arg = &g;
    g.fail_at = SP_STEP_LOSS;
    assert_int_equal(sp_step_run(&g.learner, rates, &hooks, &result), SP_ENUMERIC);
    assert_int_equal(g.part[g.n_parts - 1], SP_STEP_LOSS);
}

static sp_status work(void *arg)
{
    const sp_status *rc = arg;

    return *rc == SP_OK ? SP_OK : SP_FAIL(*rc, "work that failed alone");
}

/* Work that fails on one rank ends the process with its status; other work returns. */
TEST(test_alone)
{
    static const sp_status statuses[] = {SP_OK, SP_EDATA, SP_EMEM};
    CLOSED_BY(close_rig) rig g;

    open_rig(&g, 0);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        sp_status rc = statuses[i];
        int status = -1;
        const pid_t pid = fork();

        if (pid == 0) {
            if (!freopen("alone.err", "w", stderr))
                _exit(99);
            sp_session_run_or_abort(&g.session, work, &rc);
            _exit(rc == SP_OK ? 0 : 98);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), (int)rc);
    }
}
