/* Several threads read the same shards, more of them than stay open, and each gets what
 * was written. Once buffers have grown, reading and voxelizing allocate nothing; they
 * are counted by fixtures/allocations.h. */
#include "fixtures/test.h"

#include <pthread.h>
#include <sys/resource.h>

#include "data/sp_voxel.h"
#include "fixtures/allocations.h"
#include "fixtures/shard_fixture.h"

enum { SHARDS = 300, SAMPLES = 2, THREADS = 4, READS = 1500 };

static const int64_t sizes[SAMPLES] = {50, 9};
static sp_dataset set;

static fixture fixture_of(int shard)
{
    return (fixture){.n_samples = SAMPLES,
                     .voxels = sizes,
                     .has_subvoxel = true,
                     .seed = (uint64_t)shard};
}

BEFORE_ALL(write_shards)
{
    char path[64];

    for (int i = 0; i < SHARDS; i++) {
        fixture f = fixture_of(i);

        snprintf(path, sizeof path, "many-%03d.h5", i);
        OK(fixture_write(&f, path));
    }
    OK(fixture_open(&set, "many-???.h5"));
    assert_int_equal(set.n_samples, SHARDS * SAMPLES);
}

static bool is_as_written(const sp_sample *got, int64_t sample)
{
    fixture f = fixture_of((int)(sample / SAMPLES));
    CLOSED_BY(fixture_free) sp_sample want;
    bool is_same;

    fixture_sample(&f, (int)(sample % SAMPLES), &want);
    is_same = got->n == want.n &&
              memcmp(got->coords, want.coords, (size_t)want.n * 12) == 0 &&
              memcmp(got->features, want.features, (size_t)want.n * 12) == 0 &&
              memcmp(got->labels, want.labels, (size_t)want.n * 4) == 0 &&
              memcmp(got->subvoxel, want.subvoxel, (size_t)want.n * 3) == 0;
    return is_same;
}

/* Returns the number of samples that were not as written. Half of the threads go
 * through the shards in one direction and half in the other, so that all of them
 * meet. */
static void *read_many(void *argument)
{
    int64_t thread = *(int64_t *)argument, wrong = 0, i;
    sp_sample_request all = {.verify = true};
    sp_sample got = {0};

    for (int64_t turn = 0; turn < READS; turn++) {
        i = turn * 7 % set.n_samples;
        i = thread & 1 ? set.n_samples - 1 - i : i;
        if (sp_sample_read(&set, i, &all, &got) != SP_OK || !is_as_written(&got, i))
            wrong++;
    }
    sp_sample_destroy(&got);
    *(int64_t *)argument = wrong;
    return NULL;
}

/* A process that may open few files closes those that no thread reads from. */
TEST(few_open_files_suffice)
{
    struct rlimit before, few;
    sp_dataset other;
    int64_t argument = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 24;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    other = set;
    OK(fixture_open(&set, "many-???.h5"));
    read_many(&argument);
    assert_int_equal(argument, 0);
    sp_dataset_close(&set);
    set = other;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(threads_read_what_was_written)
{
    pthread_t thread[THREADS];
    int64_t argument[THREADS];

    for (int64_t t = 0; t < THREADS; t++) {
        argument[t] = t;
        assert_int_equal(pthread_create(&thread[t], NULL, read_many, &argument[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
        assert_int_equal(argument[t], 0);
    }
}

static void pass(sp_sample *got, sp_arena *arena, uint64_t epoch)
{
    sp_sample_request all = {.verify = true};
    sp_augment aug = sp_augment_none();
    sp_voxels v;

    aug.angle = 0.3 + (double)epoch;
    aug.drop = aug.jitter = 0.1;
    aug.epoch = epoch;
    for (int64_t i = 0; i < set.n_samples; i++) {
        sp_arena_reset(arena);
        OK(sp_sample_read(&set, i, &all, got));
        OK(sp_voxelize(got, &aug, 1, 3, NULL, NULL, arena, &v));
    }
}

TEST(later_passes_allocate_nothing)
{
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};
    CLOSED_BY(sp_arena_destroy) sp_arena arena;
    long before = n_allocations;

    OK(sp_arena_create(&arena, (size_t)16 << 20, "test"));
    pass(&got, &arena, 0);
    assert_true(n_allocations > before); /* the count is alive */
    before = n_allocations;
    pass(&got, &arena, 1);
    pass(&got, &arena, 2);
    assert_int_equal(n_allocations - before, 0);
}
