/* Data that are written to shards come back as they were, whatever the options. */
#include "fixtures/test.h"

#include <unistd.h>

#include "fixtures/shard_fixture.h"

static const int64_t sizes[] = {500, 0, 1, 70000};
static const fixture full = {.n_samples = 4,
                             .voxels = sizes,
                             .has_subvoxel = true,
                             .has_points = true,
                             .has_cost = true,
                             .has_moments = true,
                             .has_blocks = true,
                             .seed = 5};

static void same_sample(const fixture *f, const sp_dataset *set, int index, int64_t id,
                        sp_sample *got)
{
    sp_sample_request all = {
        .verify = true, .with_points = true, .with_context = f->has_blocks};
    size_t n, c = (size_t)set->n_features;
    CLOSED_BY(fixture_free) sp_sample want;

    fixture_sample(f, index, &want);
    OK(sp_sample_read(set, id, &all, got));
    n = (size_t)want.n;
    assert_int_equal(got->n, want.n);
    assert_int_equal(got->n_points, want.n_points);
    if (n > 0) {
        assert_memory_equal(got->coords, want.coords, 3 * n * sizeof *want.coords);
        assert_memory_equal(got->features, want.features,
                            c * n * sizeof *want.features);
        assert_memory_equal(got->labels, want.labels, n * sizeof *want.labels);
    }
    if (f->has_subvoxel && n > 0)
        assert_memory_equal(got->subvoxel, want.subvoxel, 3 * n);
    if (f->has_points && n > 0) {
        n = (size_t)want.n_points;
        assert_memory_equal(got->point_voxel, want.point_voxel, n * 4);
        assert_memory_equal(got->point_labels, want.point_labels, n * 4);
        assert_memory_equal(got->point_index, want.point_index, n * 8);
    }
    if (f->has_blocks) {
        const sp_block block = fixture_block(f, index);

        n = (size_t)want.n_context;
        assert_int_equal(got->n_context, n);
        assert_int_equal(sp_dataset_context(set, id), n);
        if (n > 0) {
            assert_memory_equal(got->context_voxel, want.context_voxel, n * 4);
            assert_memory_equal(got->context_block, want.context_block, n * 4);
            assert_memory_equal(got->context_point, want.context_point, n * 4);
        }
        assert_memory_equal(&set->block[id], &block, sizeof block);
        assert_string_equal(sp_dataset_scan(set, id), "scan");
    }
    assert_memory_equal(got->origin, want.origin, sizeof want.origin);
}

TEST(one_shard)
{
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};

    OK(fixture_write(&full, "rt.h5"));
    OK(fixture_open(&set, "rt.h5"));
    assert_int_equal(set.n_samples, 4);
    assert_int_equal(set.n_voxels, 70501);
    assert_true(set.voxel_size == 0.5);
    assert_string_equal(set.class_name[3], "class3");
    assert_string_equal(set.feature_name[2], "feature2");
    assert_string_equal(sp_dataset_name(&set, 2), "sample2");
    assert_int_equal(sp_dataset_voxels(&set, 3), 70000);
    assert_int_equal(sp_dataset_cost(&set, 0), 3500);
    for (int i = 0; i < 4; i++)
        same_sample(&full, &set, i, i, &got);
}

TEST(bare_shard)
{
    fixture bare = {
        .n_samples = 2, .voxels = sizes, .is_unlabelled = true, .n_features = 1};
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};

    OK(fixture_write(&bare, "rt.h5"));
    OK(fixture_open(&set, "rt.h5"));
    assert_false(set.has_labels || set.has_points || set.has_subvoxel || set.has_cost);
    assert_false(set.has_blocks);
    assert_int_equal(sp_dataset_cost(&set, 0), 500);
    for (int i = 0; i < 2; i++)
        same_sample(&bare, &set, i, i, &got);
}

TEST(several_shards)
{
    fixture f[3] = {full, full, full};
    char path[64];
    sp_dataset set;
    sp_sample got = {0};
    double mean = 0, square = 0;

    for (int i = 0; i < 3; i++) {
        f[i].seed = 7 + (uint64_t)i;
        f[i].n_samples = i + 1;
        snprintf(path, sizeof path, "rt-%05d-of-00003.h5", i);
        OK(fixture_write(&f[i], path));
    }
    OK(fixture_open(&set, "rt-*.h5"));
    assert_int_equal(set.n_shards, 3);
    assert_int_equal(set.n_samples, 6);
    assert_int_equal(sp_dataset_shard_of(&set, 0), 0);
    assert_int_equal(sp_dataset_shard_of(&set, 2), 1);
    assert_int_equal(sp_dataset_shard_of(&set, 5), 2);
    for (int i = 0, id = 0; i < 3; i++)
        for (int s = 0; s < f[i].n_samples; s++)
            same_sample(&f[i], &set, s, id++, &got);
    /* files hold 500, 500, 501 voxels with means 7, 8, 9 and deviation 1 of column 0 */
    mean = (500 * 7 + 500 * 8 + 501 * 9) / 1501.0;
    square = (500 * (7 - mean) * (7 - mean) + 500 * (8 - mean) * (8 - mean) +
              501 * (9 - mean) * (9 - mean)) /
             1501.0;
    assert_true(fabs(set.feature_mean[0] - mean) < 1e-12);
    assert_true(fabs(set.feature_std[0] - sqrt(1 + square)) < 1e-12);
    sp_sample_destroy(&got);
    sp_dataset_close(&set);
    unlink("rt-00001-of-00003.h5");
    FAILS(fixture_open(&set, "rt-*.h5"), SP_EDATA, "rt-00001-of-00003.h5: missing");
}

/* The costs of a part of the samples would be weighed against voxels of the others. */
TEST(costs_are_those_of_all_files_or_of_none)
{
    for (int is_mixed = 0; is_mixed < 2; is_mixed++) {
        CLOSED_BY(sp_dataset_close) sp_dataset set;
        fixture f = full;

        OK(fixture_write(&f, "cost-0.h5"));
        f.has_cost = !is_mixed;
        OK(fixture_write(&f, "cost-1.h5"));
        OK(fixture_open(&set, "cost-?.h5"));
        assert_int_equal(set.has_cost, !is_mixed);
        assert_int_equal(sp_dataset_cost(&set, 0), is_mixed ? 500 : 3500);
        assert_int_equal(sp_dataset_cost(&set, 4), is_mixed ? 500 : 3500);
    }
}

TEST(columns_by_name)
{
    char *names[] = {"feature2", "feature0"}, *wrong[] = {"featur1"};
    sp_strings two = {2, names}, one = {1, wrong};
    sp_sample_request q = {.verify = true};
    sp_sample got = {0}, want;
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    int *columns, n;

    OK(fixture_write(&full, "rt.h5"));
    OK(fixture_open(&set, "rt.h5"));
    OK(sp_dataset_columns(&set, &two, "", &columns, &n));
    assert_int_equal(n, 2);
    q.columns = columns;
    q.n_columns = n;
    OK(sp_sample_read(&set, 0, &q, &got));
    fixture_sample(&full, 0, &want);
    for (int i = 0; i < 500; i++) {
        assert_true(got.features[2 * i] == want.features[3 * i + 2]);
        assert_true(got.features[2 * i + 1] == want.features[3 * i]);
    }
    assert_null(got.point_voxel);
    free(columns);
    FAILS(sp_dataset_columns(&set, &one, "", &columns, &n), SP_EDATA, "\"feature1\"");
    fixture_free(&want);
    sp_sample_destroy(&got);
}

TEST(same_content_same_bytes)
{
    OK(fixture_write(&full, "rt-a.h5"));
    sleep(1); /* a time stamp would differ */
    OK(fixture_write(&full, "rt-b.h5"));
    test_same_files("rt-a.h5", "rt-b.h5");
}

TEST(hash_follows_content)
{
    fixture other = full;
    CLOSED_BY(sp_dataset_close) sp_dataset a, b;

    other.voxel_size = 0.25;
    OK(fixture_write(&full, "rt.h5"));
    OK(fixture_open(&a, "rt.h5"));
    OK(fixture_open(&b, "./rt.h5"));
    assert_true(a.hash == b.hash);
    OK(sp_dataset_match(&a, &b));
    sp_dataset_close(&b);
    OK(fixture_write(&other, "rt.h5"));
    OK(fixture_open(&b, "rt.h5"));
    assert_true(a.hash != b.hash);
    FAILS(sp_dataset_match(&a, &b), SP_EDATA, "voxel_size 0.25");
}
