/* IoU, mIoU and accuracy of matrices small enough to work out by hand. */
#include "fixtures/test.h"

#include "data/sp_shard.h"
#include "net/sp_metrics.h"

TEST(known_matrix)
{
    /* truth by row; class 3 occurs nowhere, class 2 only as a prediction */
    const int64_t m[16] = {5, 1, 0, 0, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};

    assert_int_equal(sp_metrics_total(m, 4), 12);
    assert_true(sp_metrics_accuracy(m, 4) == 8.0 / 12);
    assert_true(sp_metrics_iou(m, 4, 0) == 5.0 / 8);
    assert_true(sp_metrics_iou(m, 4, 1) == 3.0 / 7);
    assert_true(sp_metrics_iou(m, 4, 2) == 0);
    assert_true(isnan(sp_metrics_iou(m, 4, 3)));
    assert_true(sp_metrics_precision(m, 4, 0) == 5.0 / 7);
    assert_true(sp_metrics_recall(m, 4, 0) == 5.0 / 6);
    assert_true(sp_metrics_precision(m, 4, 2) == 0);
    assert_true(isnan(sp_metrics_recall(m, 4, 2)));
    assert_true(isnan(sp_metrics_precision(m, 4, 3)));
    assert_true(fabs(sp_metrics_miou(m, 4) - (5.0 / 8 + 3.0 / 7) / 3) < 1e-15);
}

TEST(empty_matrix)
{
    const int64_t m[4] = {0, 0, 0, 0};

    assert_int_equal(sp_metrics_total(m, 2), 0);
    assert_true(isnan(sp_metrics_accuracy(m, 2)));
    assert_true(isnan(sp_metrics_miou(m, 2)));
}

TEST(points_follow_their_voxel)
{
    uint32_t voxel[] = {0, 1, 1, 2, 2};
    int32_t label[] = {1, 0, -1, 1, 1};
    const int32_t row_of[] = {1, -1, 0}, guess[] = {0, 1};
    const sp_sample sample = {
        .n = 3, .n_points = 5, .point_voxel = voxel, .point_labels = label};
    CLOSED_BY(sp_metrics_destroy) sp_metrics m;

    OK(sp_metrics_create(&m, 2, SP_METRICS_POINTS));
    m.confusion[0] = 4;
    assert_true(sp_metrics_score(&m) == 1); /* without points, by voxels */
    sp_metrics_add_points(m.point_confusion, 2, &sample, row_of, guess);
    assert_int_equal(m.point_confusion[3], 1); /* point 0: row 1, class 1 */
    assert_int_equal(m.point_confusion[2], 2); /* points 3, 4: row 0, class 0 */
    assert_int_equal(sp_metrics_total(m.point_confusion, 2), 3);
    assert_int_equal(sp_metrics_total(m.confusion, 2), 4);
    assert_true(sp_metrics_score(&m) == 1.0 / 6);
    sp_metrics_zero(&m);
    assert_int_equal(sp_metrics_total(m.point_confusion, 2), 0);
}
