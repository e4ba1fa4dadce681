/* The loader yields the sampler's sequence, with the content that a direct computation
 * has, whatever the number of readers and slots; failures come in their place. */
#include "base/sp_program.h"
#include "fixtures/test.h"

#include <pthread.h>

#include "data/sp_loader.h"
#include "data/sp_mix.h"
#include "data/sp_voxel.h"
#include "fixtures/fake_shard.h"
#include "net/sp_graph.h"
#include "reference/plan_oracle.h"

enum { SAMPLES = 23 };

static bool is_filled_by_caller; /* of the loaders that are opened */
static const int columns[FAKE_FEATURES] = {0, 1};
static const double mean[FAKE_FEATURES] = {3, 50}, std[FAKE_FEATURES] = {2, 20};

/* Everything a loader needs. */
typedef struct rig {
    sp_dataset set;
    sp_config config;
    sp_comm comm;
    sp_sampler sampler, own; /* the loader's; the test's */
    sp_graph graph;
    sp_backend backend;
    sp_loader *loader;
} rig;

static void rig_open(rig *r, bool is_training, int n_slots, int n,
                     char *const *overrides)
{
    sp_loader_options o = {.set = &r->set,
                           .config = &r->config,
                           .spec = &r->graph.spec,
                           .backend = &r->backend,
                           .sampler = &r->sampler,
                           .columns = columns,
                           .n_columns = FAKE_FEATURES,
                           .mean = mean,
                           .std = std,
                           .is_training = is_training,
                           .n_slots = n_slots,
                           .is_filled_by_caller = is_filled_by_caller};

    memset(r, 0, sizeof *r);
    fake_dataset(&r->set, SAMPLES);
    OK(sp_config_read(&r->config, NULL, n, overrides));
    sp_comm_open_self(&r->comm);
    OK(sp_sampler_open(&r->sampler, &r->set, &r->comm, &r->config, is_training));
    OK(sp_sampler_open(&r->own, &r->set, &r->comm, &r->config, is_training));
    oracle_map(&r->graph.spec, 0, 0, 5, 0);
    oracle_map(&r->graph.spec, 0, 1, 2, 0);
    oracle_map(&r->graph.spec, 1, 1, 3, 0);
    r->backend.ops = sp_backend_find("cpu");
    OK(r->backend.ops->open(&r->backend, 0, 1));
    OK(sp_loader_create(&r->loader, &o));
}

static void rig_close(rig *r)
{
    sp_loader_destroy(r->loader);
    r->backend.ops->close(&r->backend);
    sp_sampler_close(&r->sampler);
    sp_sampler_close(&r->own);
    sp_config_destroy(&r->config);
}

/* The sampler's next micro-batch, as the test computes it. */
typedef struct walk {
    sp_position at;
    int micro, n_micro, n;
} walk;

static void walk_next(rig *r, walk *w, sp_assignment *assigned)
{
    if (w->micro == w->n_micro) {
        w->at.position += w->n;
        w->micro = 0;
        w->n = sp_sampler_step(&r->own, w->at, &w->n_micro);
        if (w->n == 0) {
            w->at = (sp_position){w->at.epoch + 1, 0};
            w->n = sp_sampler_step(&r->own, w->at, &w->n_micro);
        }
    }
    sp_sampler_assign(&r->own, w->at, w->micro++, assigned);
}

static void assert_place(const sp_batch *b, const walk *w,
                         const sp_assignment *assigned)
{
    assert_int_equal(b->epoch, w->at.epoch);
    assert_int_equal(b->position, w->at.position);
    assert_int_equal(b->micro, w->micro - 1);
    assert_int_equal(b->n_micro, w->n_micro);
    assert_int_equal(b->step_samples, w->n);
    assert_int_equal(b->n_samples, assigned->n_samples);
    assert_int_equal(b->cost_max, assigned->cost_max);
    assert_int_equal(b->cost_sum, assigned->cost_sum);
    assert_memory_equal(b->sample_id, assigned->sample,
                        (size_t)assigned->n_samples * 8);
}

static char *train_keys[] = {"batch.size=5", "batch.accumulate=2", "train.seed=9",
                             "data.readers=3", "data.planners=2"};

/* A loader of training samples, each of which takes up to 2 ms to read. */
static void slow_rig_open(rig *r)
{
    fake.is_slow = true;
    rig_open(r, true, 3, 5, train_keys);
}

TEST_AFTER(fake_reset, sequence_is_the_samplers)
{
    walk w = {0};
    sp_batch *b;
    sp_assignment assigned;
    CLOSED_BY(rig_close) rig r;

    slow_rig_open(&r);
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    for (int i = 0; i < 35; i++) {
        OK(sp_loader_next(r.loader, &b, NULL));
        assert_non_null(b);
        walk_next(&r, &w, &assigned);
        assert_place(b, &w, &assigned);
        OK(sp_loader_recycle(r.loader, b));
    }
    assert_true(w.at.epoch >= 3);
}

/* Reads, augments and voxelizes a sample of a batch by direct calls, with the partner
 * that is mixed into it. A sample that is bad has no voxels. */
static void voxelize(rig *r, const sp_batch *b, int s, sp_arena *arena, sp_voxels *v)
{
    const int64_t id = b->sample_id[s];
    const uint64_t epoch = (uint64_t)b->epoch;
    const sp_mix mix = sp_mix_draw(&r->config, true, SAMPLES, epoch, id);
    const sp_augment aug = sp_augment_draw(&r->config, true, 9, epoch, id);
    const sp_mixer mixer = {.config = &r->config,
                            .set = &r->set,
                            .factor = 1,
                            .n_columns = FAKE_FEATURES,
                            .mean = mean,
                            .std = std};
    CLOSED_BY(sp_sample_destroy) sp_sample own = {0};
    CLOSED_BY(sp_sample_destroy) sp_sample partner = {0};

    *v = (sp_voxels){0};
    if (id == fake.bad[0])
        return;
    OK(sp_sample_read(&r->set, id, NULL, &own));
    if (mix.partner >= 0 && mix.partner != fake.bad[0])
        OK(sp_sample_read(&r->set, mix.partner, NULL, &partner));
    if (own.n > 0 && partner.n > 0)
        OK(sp_mix_voxelize(&mixer, &mix, &own, &partner, arena, v));
    else
        OK(sp_voxelize(&own, &aug, 1, FAKE_FEATURES, mean, std, arena, v));
}

/* Reads, augments, voxelizes, plans and orders a batch by direct calls. */
static void assert_content(rig *r, const sp_batch *b, sp_arena *arena)
{
    int32_t *coords, *row;
    sp_voxels *v;
    sp_plan plan;

    sp_arena_reset(arena);
    OK(SP_ALLOC(arena, b->n_samples, &v));
    OK(SP_ALLOC(arena, b->n_samples + 1, &row));
    OK(SP_ALLOC(arena, 3 * (size_t)b->n, &coords));
    row[0] = 0;
    for (int s = 0; s < b->n_samples; s++) {
        voxelize(r, b, s, arena, &v[s]);
        row[s + 1] = row[s] + v[s].n;
        assert_true(row[s + 1] <= b->n);
        if (v[s].n > 0)
            memcpy(coords + 3 * row[s], v[s].coords, (size_t)v[s].n * 12);
    }
    assert_int_equal(b->n, row[b->n_samples]);
    OK(r->backend.ops->plan_build(&r->backend, &r->graph.spec, coords, row,
                                  b->n_samples, arena, &plan));
    oracle_same(&plan, &b->plan);
    for (int s = 0; s < b->n_samples; s++)
        for (int32_t i = row[s]; i < row[s + 1]; i++) {
            int32_t from = plan.order[i] - row[s];
            assert_memory_equal(b->features + 2 * i, v[s].features + 2 * from, 8);
            assert_int_equal(b->labels[i], v[s].labels[from]);
        }
}

/* Compares 20 micro-batches of a training with these keys; *n_partners is the number of
 * partners that they have. */
static void compare_content(int n_keys, char *const *keys, int *n_partners)
{
    CLOSED_BY(sp_arena_destroy) sp_arena arena;
    sp_batch *b;
    CLOSED_BY(rig_close) rig r;

    OK(sp_arena_create(&arena, 0, "test"));
    rig_open(&r, true, 2, n_keys, keys);
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    *n_partners = 0;
    for (int i = 0; i < 20; i++) {
        OK(sp_loader_next(r.loader, &b, NULL));
        assert_content(&r, b, &arena);
        *n_partners += b->n_reads - b->n_samples;
        OK(sp_loader_recycle(r.loader, b));
    }
}

TEST_AFTER(fake_reset, content_is_that_of_a_direct_computation)
{
    int n;

    compare_content(4, train_keys, &n);
    assert_int_equal(n, 0);
}

/* Every seventh sample has no voxels: it stays so, and as a partner it leaves the other
 * unmixed. So does one that cannot be read. */
TEST_AFTER(fake_reset, content_is_mixed_with_the_partners)
{
    char *keys[] = {"batch.size=5",     "batch.accumulate=2", "train.seed=9",
                    "data.readers=3",   "augment.mix_p=0.7",  "data.on_error=skip",
                    "augment.mix=mix3d"};
    int n;

    compare_content(7, keys, &n);
    assert_true(n > 20);
    keys[6] = "augment.mix=polarmix";
    compare_content(7, keys, &n);
    assert_true(n > 20);
    fake.bad[0] = 9;
    compare_content(7, keys, &n);
}

/* A partner that cannot be read ends the run, where its batch would have come. */
TEST_AFTER(fake_reset, bad_partner_is_named)
{
    char *keys[] = {"batch.size=1", "train.seed=9", "augment.mix=mix3d",
                    "augment.mix_p=1"};
    sp_batch *b;
    sp_status rc = SP_OK;
    int64_t id = 0;
    CLOSED_BY(rig_close) rig r;

    fake.bad[0] = 9;
    rig_open(&r, true, 3, 4, keys);
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    for (int i = 0; rc == SP_OK && i < SAMPLES; i++) {
        id = sp_sampler_at(&r.own, 0, i);
        rc = sp_loader_next(r.loader, &b, NULL);
        if (rc == SP_OK)
            OK(sp_loader_recycle(r.loader, b));
    }
    assert_int_equal(rc, SP_EDATA);
    SAYS("fake.h5:/coords: sample 9: bad");
    assert_true(id == 9 || sp_sampler_partner(&r.own, 0, id) == 9);
}

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    while (bytes--)
        h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

static uint64_t hash_batch(uint64_t h, const sp_batch *b)
{
    h = mix(h, b->sample_id, (size_t)b->n_samples * 8);
    h = mix(h, b->features, (size_t)b->n * FAKE_FEATURES * 4);
    h = mix(h, b->labels, (size_t)b->n * 4);
    h = mix(h, b->plan.map[0].in, (size_t)b->plan.map[0].pairs * 4);
    return mix(h, b->plan.map[2].out, (size_t)b->plan.map[2].pairs * 4);
}

static uint64_t hash_run(char *readers, char *planners, int n_slots, bool is_slow)
{
    char *keys[] = {"batch.size=5", "train.seed=4", readers, planners};
    uint64_t h = 0xcbf29ce484222325u;
    sp_batch *b;
    CLOSED_BY(rig_close) rig r;

    fake_reset();
    fake.is_slow = is_slow;
    rig_open(&r, true, n_slots, 4, keys);
    OK(sp_loader_seek(r.loader, (sp_position){1, 5}));
    for (int i = 0; i < 12; i++) {
        OK(sp_loader_next(r.loader, &b, NULL));
        h = hash_batch(h, b);
        OK(sp_loader_recycle(r.loader, b));
    }
    return h;
}

TEST(bits_do_not_depend_on_threads_or_slots)
{
    uint64_t h = hash_run("data.readers=1", "data.planners=1", 2, false);

    assert_true(h == hash_run("data.readers=1", "data.planners=1", 4, true));
    assert_true(h == hash_run("data.readers=5", "data.planners=1", 2, true));
    assert_true(h == hash_run("data.readers=4", "data.planners=2", 5, true));
    assert_true(h == hash_run("data.readers=2", "data.planners=4", 6, false));
    assert_true(h == hash_run("data.readers=3", "data.planners=5", 2, true));
}

/* With batches of 4 in stored order (evaluation) sample 9 stands in the third batch. */
static char *eval_keys[] = {"batch.eval_size=4", "data.readers=4", "data.planners=3"};

TEST_AFTER(fake_reset, failure_comes_in_its_place)
{
    sp_batch *b;
    CLOSED_BY(rig_close) rig r;

    fake.bad[0] = 9;
    fake.bad[1] = 10;
    fake.slow = 9; /* the later one fails first */
    rig_open(&r, false, 4, 3, eval_keys);
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    for (int i = 0; i < 2; i++) {
        OK(sp_loader_next(r.loader, &b, NULL));
        assert_int_equal(b->sample_id[0], 4 * i);
        OK(sp_loader_recycle(r.loader, b));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sp_loader_next(r.loader, &b, NULL), SP_EDATA);
        assert_null(b);
        assert_string_equal(sp_error_last()->message, "fake.h5:/coords: sample 9: bad");
        assert_non_null(strstr(sp_error_last()->trace, "sp_sample_read"));
    }
    OK(sp_loader_seek(r.loader, (sp_position){0, 12}));
    OK(sp_loader_next(r.loader, &b, NULL));
    assert_int_equal(b->sample_id[0], 12);
}

TEST_AFTER(fake_reset, skipped_sample_is_empty)
{
    char *keys[] = {"batch.eval_size=4", "data.on_error=skip"};
    sp_batch *b;
    CLOSED_BY(rig_close) rig r;

    fake.bad[0] = 1;
    rig_open(&r, false, 2, 2, keys);
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    OK(sp_loader_next(r.loader, &b, NULL));
    assert_int_equal(b->n_samples, 4);
    assert_int_equal(b->sample_id[1], 1);
    assert_int_equal(b->plan.level[0].sample_row[1], b->plan.level[0].sample_row[2]);
    assert_int_equal(b->n, 1 + 143); /* samples 0 and 2; 3 has no voxels */
}

/* Augmentation does not miss the buffers that a first read would have left if it had
 * not failed. */
TEST_AFTER(fake_reset, skipped_sample_is_empty_in_training)
{
    char *keys[] = {"batch.size=23", "data.on_error=skip"};
    int32_t rows = 0;
    sp_batch *b;
    CLOSED_BY(rig_close) rig r;

    fake.bad[0] = 1;
    rig_open(&r, true, 2, 2, keys);
    r.config.augment.drop = 0;
    for (int64_t id = 0; id < SAMPLES; id++)
        rows += id == 1 ? 0 : (int32_t)sp_dataset_voxels(&r.set, id);
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    OK(sp_loader_next(r.loader, &b, NULL));
    assert_int_equal(b->n_samples, SAMPLES);
    assert_in_range(b->n, rows / 2, rows); /* turned voxels may merge */
}

TEST_AFTER(fake_reset, seek_in_the_middle)
{
    sp_assignment assigned;
    sp_batch *b;
    rig r;

    slow_rig_open(&r);
    for (int i = 0; i < 20; i++) {
        walk w = {.at = {i % 3, i * 5 % 20}};
        OK(sp_loader_seek(r.loader, w.at));
        w.n = sp_sampler_step(&r.own, w.at, &w.n_micro);
        for (; w.micro < 2;) {
            walk_next(&r, &w, &assigned);
            OK(sp_loader_next(r.loader, &b, NULL));
            assert_place(b, &w, &assigned);
            if (i % 2) /* else the seek would take it back */
                OK(sp_loader_recycle(r.loader, b));
        }
    }
    rig_close(&r); /* while readers work */
}

/* Batches of 40 steps lie in as many memories as the estimate counts. */
TEST_AFTER(fake_reset, batches_share_memories)
{
    char *keys[] = {"batch.size=5", "data.planners=1"};

    for (int is_caller = 0; is_caller < 2; is_caller++) {
        const void *at[40];
        int n = 0;
        sp_batch *b;
        rig r;

        is_filled_by_caller = is_caller;
        rig_open(&r, true, 3, 2, keys);
        OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
        for (int i = 0, k; i < 40; i++) {
            OK(sp_loader_next(r.loader, &b, NULL));
            for (k = 0; k < n && at[k] != b->plan.order; k++)
                ;
            at[k] = b->plan.order; /* the first array of a batch */
            n += k == n;
            OK(sp_loader_recycle(r.loader, b));
        }
        assert_int_equal(n, sp_loader_memories(&r.config, true, 3));
        rig_close(&r);
    }
    is_filled_by_caller = false;
}

/* Stored voxel r of a sample is at row_of, with the same normalized features where
 * nothing merged. */
static void check_stored(const sp_batch *b, bool is_merged)
{
    for (int s = 0; s < b->n_samples; s++) {
        const sp_sample *from = &b->sample[s];
        const int32_t *row = b->plan.level[0].sample_row;
        assert_int_equal(from->id, b->sample_id[s]);
        assert_int_equal(b->row_of_at[s + 1] - b->row_of_at[s], from->n);
        for (int64_t i = 0; i < from->n; i++) {
            int32_t at = b->row_of[b->row_of_at[s] + i];
            assert_in_range(at, row[s], row[s + 1] - 1);
            for (int d = 0; d < FAKE_FEATURES && !is_merged; d++)
                assert_float_equal(b->features[2 * at + d],
                                   (from->features[2 * i + d] - mean[d]) / std[d],
                                   1e-5);
            if (!is_merged)
                assert_int_equal(b->labels[at], from->labels[i]);
        }
    }
}

static void pass_over(char *voxel_size, bool is_merged)
{
    char *keys[] = {"batch.eval_size=5", voxel_size};
    int seen[SAMPLES] = {0};
    sp_batch *b;
    CLOSED_BY(rig_close) rig r;

    fake_reset();
    rig_open(&r, false, 3, 2, keys);
    for (int pass = 1; pass <= 2; pass++) {
        OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
        for (;;) {
            OK(sp_loader_next(r.loader, &b, NULL));
            if (!b)
                break;
            for (int s = 0; s < b->n_samples; s++)
                seen[b->sample_id[s]]++;
            check_stored(b, is_merged);
            OK(sp_loader_recycle(r.loader, b));
        }
        OK(sp_loader_next(r.loader, &b, NULL)); /* the end stays the end */
        assert_null(b);
        for (int s = 0; s < SAMPLES; s++)
            assert_int_equal(seen[s], pass);
    }
    for (int s = 0; s < SAMPLES; s++)
        assert_int_equal(fake.n_reads[s], 2);
}

TEST(evaluation_covers_every_sample_once)
{
    pass_over("data.voxel_size=0.5", false);
    pass_over("data.voxel_size=1.0", true);
}

TEST(voxel_size_must_be_a_multiple)
{
    sp_loader *loader;
    sp_backend be = {.ops = sp_backend_find("cpu")};
    sp_dataset set;
    CLOSED_BY(sp_config_destroy) sp_config config;
    sp_loader_options o = {
        .set = &set, .config = &config, .backend = &be, .n_slots = 2};
    char *keys[] = {"data.voxel_size=0.7"};
    char path[] = "a.h5";
    sp_shard shard = {.path = path};

    fake_dataset(&set, 3);
    set.shard = &shard;
    OK(sp_config_read(&config, NULL, 1, keys));
    assert_int_equal(sp_loader_create(&loader, &o), SP_EDATA);
    assert_null(loader);
    SAYS("a.h5: voxel_size 0.5, data.voxel_size = 0.7");
}

TEST_AFTER(fake_reset, destroy_before_and_during_work)
{
    rig r;

    rig_open(&r, true, 2, 5, train_keys);
    rig_close(&r);
    fake.is_slow = true;
    rig_open(&r, true, 2, 5, train_keys);
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    rig_close(&r);
    sp_loader_destroy(NULL);
}

/* ---- the thread that plans ---- */

static pthread_t planning;
static int n_plans;

static sp_status plan_noted(sp_backend *be, const sp_plan_spec *spec,
                            const int32_t *coords, const int32_t *sample_row,
                            int n_samples, sp_arena *arena, sp_plan *plan)
{
    planning = pthread_self();
    n_plans++;
    return sp_backend_find("cpu")->plan_build(be, spec, coords, sample_row, n_samples,
                                              arena, plan);
}

/* The caller plans each batch when it asks for it, or none. */
TEST_AFTER(fake_reset, the_thread_that_shall_plans)
{
    sp_backend_ops ops = *sp_backend_find("cpu");
    sp_batch *b;
    rig r;

    ops.plan_build = plan_noted;
    n_plans = 0;
    rig_open(&r, true, 3, 5, train_keys);
    r.backend.ops = &ops; /* the loader plans nothing before it is asked to seek */
    OK(sp_loader_seek(r.loader, (sp_position){0, 0}));
    for (int i = 1; i <= 7; i++) {
        OK(sp_loader_next(r.loader, &b, NULL));
        if (is_filled_by_caller)
            assert_int_equal(n_plans, i);
        OK(sp_loader_recycle(r.loader, b));
    }
    rig_close(&r);
    assert_int_equal(pthread_equal(planning, pthread_self()) != 0, is_filled_by_caller);
}

/* All tests run by both of the threads that may fill slots. */
int main(void)
{
    const int n_failed = run_all_tests();

    sp_program_begin("sptrain");
    is_filled_by_caller = true;
    return n_failed + run_all_tests();
}
