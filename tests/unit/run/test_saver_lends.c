/* A checkpoint holds the state of its post, although the training goes on: the arrays
 * that are lent are changed once the saver has read them, in the middle of its work. */
#include "reference/net_case.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "base/sp_fault.h"
#include "h5/sp_h5.h"
#include "run/sp_saver.h"

typedef struct rig {
    net_case c;
    sp_optim optim;
    sp_run run;
    sp_normalization norm;
    sp_saver *saver;
} rig;

static void rig_open(rig *r)
{
    sp_saved saved;

    memset(r, 0, sizeof *r);
    OK(sp_run_open(&r->run, test_folder(), alone()));
    case_new(&r->c, case_nets[0], NULL, 0);
    OK(sp_optim_create(&r->optim, &r->c.graph, &r->c.config, &r->c.backend));
    assert_non_null(r->optim.state[SP_OPTIM_STATE_M]);
    OK(sp_saver_create(&r->saver, &r->run, &r->c.net, &r->optim, &r->norm, 2));
    assert_false(sp_saver_collect(r->saver, true, &saved)); /* the thread is ready */
}

static void rig_close(rig *r)
{
    sp_saver_destroy(r->saver);
    sp_optim_destroy(&r->optim);
    case_close(&r->c);
    sp_run_close(&r->run);
}

/* Fills what a checkpoint holds with numbers that tell their step. */
static void set_arrays(rig *r, int step)
{
    for (int64_t i = 0; i < r->c.graph.n_floats; i++) {
        r->c.net.param[i] = (float)(1000 * step + i % 100);
        r->optim.state[SP_OPTIM_STATE_M][i] = -r->c.net.param[i];
    }
    for (int64_t i = 0; i < r->c.graph.n_buffer_floats; i++)
        r->c.net.running[i] = (float)(1000 * step + i % 10);
}

static void check_file(rig *r, const char *path, int step)
{
    const sp_graph *graph = &r->c.graph;
    float *param = test_alloc((size_t)graph->n_floats * sizeof *param);
    float *running = test_alloc((size_t)graph->n_buffer_floats * sizeof *running);
    sp_optim optim = r->optim;

    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        if (optim.state[i])
            optim.state[i] = test_alloc((size_t)graph->n_floats * sizeof(float));
    OK(sp_checkpoint_read(path, graph, param, running, &optim, NULL));
    for (int p = 0; p < graph->n_params; p++)
        for (int64_t i = graph->param[p].offset;
             i < graph->param[p].offset + graph->param[p].count; i++) {
            assert_true(param[i] == (float)(1000 * step + i % 100));
            assert_true(optim.state[SP_OPTIM_STATE_M][i] == -param[i]);
        }
    for (int p = 0; p < graph->n_buffers; p++)
        assert_true(running[graph->buffer[p].offset] ==
                    (float)(1000 * step + graph->buffer[p].offset % 10));
}

static void post(rig *r, int step, bool is_best)
{
    char deck[] = "";
    const sp_checkpoint_state state = {
        .step = step, .samples_seen = step, .seed = 1, .deck = deck};

    set_arrays(r, step);
    OK(sp_saver_post(r->saver, &state, is_best));
}

/* The fault has the saver wait before it writes the arrays. */
TEST(a_checkpoint_is_that_of_its_post)
{
    sp_saved saved;
    CLOSED_BY(rig_close) rig r;

    rig_open(&r);
    for (int step = 1; step <= 2; step++) {
        post(&r, step, step == 1);
        /* a forward pass moves running statistics at once */
        for (int64_t i = 0; i < r.c.graph.n_buffer_floats; i++)
            r.c.net.running[i] = -1;
        sp_saver_await(r.saver);
        assert_false(sp_saver_reads(r.saver));
        set_arrays(&r, 9);
        assert_true(sp_saver_collect(r.saver, true, &saved));
        OK(saved.rc);
        check_file(&r, saved.path, step);
    }
    check_file(&r, "checkpoints/best.h5", 1);
}

/* A writer that refuses or fails gives the arrays back too. */
TEST(a_failure_lends_no_longer)
{
    char deck[] = "";
    const sp_checkpoint_state at = {.step = 1, .samples_seen = 1, .deck = deck};
    sp_saved saved;
    CLOSED_BY(rig_close) rig r;

    rig_open(&r);
    set_arrays(&r, 1);
    r.c.net.param[r.c.graph.param[0].offset] = NAN;
    OK(sp_saver_post(r.saver, &at, false));
    sp_saver_await(r.saver);
    assert_true(sp_saver_collect(r.saver, true, &saved));
    assert_int_equal(saved.rc, SP_ENUMERIC);
    assert_false(sp_saver_reads(r.saver));
}

/* Another run that replaces its one checkpoint: when the folder has been listed, which
 * ends with this function of the C library, the file of the list is gone and a newer
 * one is there. */
static bool is_replacing;

int closedir(DIR *folder)
{
    int (*close_folder)(DIR *) = (int (*)(DIR *))dlsym(RTLD_NEXT, "closedir");

    if (is_replacing) {
        is_replacing = false;
        assert_int_equal(unlink("checkpoints/step-000000001.h5"), 0);
        assert_int_equal(rename("next", "checkpoints/step-000000002.h5"), 0);
    }
    return close_folder(folder);
}

TEST(a_file_that_a_run_replaces_meanwhile_is_not_damaged)
{
    char path[PATH_MAX];
    sp_saved saved;
    sp_h5 *file;
    CLOSED_BY(rig_close) rig r;

    rig_open(&r);
    for (int step = 1; step <= 2; step++) {
        post(&r, step, false);
        assert_true(sp_saver_collect(r.saver, true, &saved));
        OK(saved.rc);
    }
    unlink("checkpoints/best.h5"); /* of the test before */
    assert_int_equal(rename(saved.path, "next"), 0);
    is_replacing = true;
    OK(sp_checkpoint_open_run(&file, ".", "name one", path));
    assert_false(is_replacing);
    assert_non_null(file);
    sp_h5_close(file);
    check_file(&r, path, 2);
}

BEFORE_ALL(open_fault)
{
    setenv("SP_TEST_FAULT", "slow@0:saving:0", 1);
    sp_fault_open(0);
}
