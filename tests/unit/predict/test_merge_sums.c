/* Weights, sums and results of merged predictions against formulas in double. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "compute/sp_backend.h"
#include "predict/sp_merge.h"

enum { ROWS = 500, CLASSES = 5 };

static double s_of(double t)
{
    return t * t * (3 - 2 * t);
}

/* One voxel at column x of a block from 0 to 10 m with a margin of 2 m. */
static uint32_t weight_at(int32_t x, double margin)
{
    const sp_block block = {.low = {0, 0}, .high = {10, 10}, .margin = margin};
    int32_t coords[3] = {x, 50, 0};
    sp_sample sample = {.n = 1, .coords = coords, .origin = {-2, 0, 0}};
    uint32_t weight;

    sp_merge_weigh(&sample, 0.1, &block, &weight);
    return weight;
}

TEST(weights_fall_to_the_edge)
{
    for (int32_t x = 0; x < 140; x++) {
        const double at = -2 + (x + 0.5) * 0.1, edge = fmin(at + 2, 12 - at);
        const double want = s_of(fmin(edge / 4, 1)) * (SP_MERGE_WEIGHT - 1) + 1;

        assert_true(fabs(weight_at(x, 2) - want) <= 0.5 + 1e-6);
    }
    assert_int_equal(weight_at(0, 2), 31); /* 1 + 65535 * s(0.05 / 4), rounded */
    assert_int_equal(weight_at(70, 2), SP_MERGE_WEIGHT);
    assert_int_equal(weight_at(0, 0), SP_MERGE_WEIGHT); /* no margin: all alike */
}

/* The weights of two blocks add up to 1 at the points that both contain. */
TEST(weights_of_neighbours_add_up)
{
    const sp_block left = {.low = {0, 0}, .high = {10, 10}, .margin = 2};
    const sp_block right = {.low = {10, 0}, .high = {20, 10}, .margin = 2};
    int32_t coords[3] = {0, 50, 0};
    uint8_t subvoxel[3] = {13, 200, 7};
    sp_sample sample = {.n = 1, .coords = coords, .subvoxel = subvoxel};
    uint32_t a, b;

    for (coords[0] = 80; coords[0] < 120; coords[0]++) {
        sp_merge_weigh(&sample, 0.1, &left, &a);
        sp_merge_weigh(&sample, 0.1, &right, &b);
        assert_true(abs((int)(a + b) - SP_MERGE_WEIGHT) <= 2);
    }
    sp_merge_weigh(&sample, 0.1, NULL, &a);
    assert_int_equal(a, SP_MERGE_WEIGHT);
}

/* Logits some of which differ by the least step that a float can make. */
static void draw_logits(float *z, int n, uint64_t seed)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_AUGMENT, 0, 0);

    for (int i = 0; i < n; i++) {
        z[i] = (float)(20 * sp_rng_unit(&rng) - 10);
        if (i > 0 && sp_rng_unit(&rng) < 0.3)
            z[i] = nextafterf(z[i - 1], sp_rng_unit(&rng) < 0.5 ? -99.0F : 99.0F);
        if (sp_rng_unit(&rng) < 0.1)
            z[i] *= 1e-30F;
    }
}

static int argmax(const float *z)
{
    int at = 0;

    for (int j = 1; j < CLASSES; j++)
        at = z[j] > z[at] ? j : at;
    return at;
}

TEST(one_view_has_the_plain_class)
{
    static float z[ROWS * CLASSES];
    static int32_t row_of[ROWS];
    static uint64_t sum[ROWS * CLASSES];
    const sp_tensor logits = {.data = z, .n = ROWS, .c = CLASSES, .ld = CLASSES};

    for (uint64_t seed = 0; seed < 20; seed++) {
        draw_logits(z, ROWS * CLASSES, seed);
        memset(sum, 0, sizeof sum);
        for (int i = 0; i < ROWS; i++)
            row_of[i] = ROWS - 1 - i;
        row_of[7] = -1;
        sp_merge_view(logits, 1, row_of, ROWS, sum);
        for (int i = 0; i < ROWS; i++)
            assert_int_equal(sp_merge_class(sum + i * CLASSES, CLASSES),
                             i == 7 ? SP_IGNORE : argmax(z + row_of[i] * CLASSES));
    }
}

/* Two views of a voxel, and two blocks with weights 3 and 1, against double. */
TEST(sums_are_means)
{
    float z[2 * CLASSES] = {1, 2, -3, 0.5F, 0, 4, -1, 0, 0, 3}, probability[CLASSES];
    const int32_t row_of[2] = {0, 1}, swapped[2] = {1, 0};
    const sp_tensor logits = {.data = z, .n = 2, .c = CLASSES, .ld = CLASSES};
    uint64_t sum[2 * CLASSES] = {0}, points[2 * CLASSES] = {0};
    const uint32_t weight[2] = {3, 1}, voxel[3] = {0, 1, 1}, to[3] = {1, 1, 0};
    double p[2][CLASSES], want[CLASSES], entropy = 0;
    sp_merged merged;

    for (int i = 0; i < 2; i++) {
        double total = 0;

        for (int j = 0; j < CLASSES; j++)
            total += p[i][j] = exp(z[i * CLASSES + j]);
        for (int j = 0; j < CLASSES; j++)
            p[i][j] /= total;
    }
    sp_merge_view(logits, 1, row_of, 2, sum);
    sp_merge_view(logits, 1, row_of, 2, sum);
    sp_merge_points(sum, CLASSES, weight, 3, voxel, to, points);
    merged = sp_merge_result(points + CLASSES, CLASSES, probability);
    for (int j = 0; j < CLASSES; j++) {
        want[j] = (3 * p[0][j] + p[1][j]) / 4;
        entropy -= want[j] * log(want[j]);
        assert_true(fabs(probability[j] - want[j]) < 1e-7);
    }
    assert_int_equal(merged.label, 0 + (want[1] > want[0]));
    assert_true(fabs(merged.confidence - fmax(want[0], want[1])) < 1e-7);
    assert_true(fabs(sp_merge_entropy(points + CLASSES, CLASSES) - entropy) < 1e-6);
    assert_int_equal(sp_merge_class(points, CLASSES), 0); /* of voxel 1 alone */

    /* Two views that see the voxels differently: the mean of both rows. */
    memset(sum, 0, sizeof sum);
    sp_merge_view(logits, 1, row_of, 2, sum);
    sp_merge_view(logits, 1, swapped, 2, sum);
    sp_merge_result(sum, CLASSES, probability);
    for (int j = 0; j < CLASSES; j++)
        assert_true(fabs(probability[j] - (p[0][j] + p[1][j]) / 2) < 1e-7);
    sp_merge_logits(sum, CLASSES, probability);
    for (int j = 0; j < CLASSES; j++)
        assert_true(fabs(exp(probability[j]) - (p[0][j] + p[1][j]) / 2) < 1e-6);
}

/* A view over the temperature 2.5: the softmax of logits that were divided by it. */
TEST(temperature_divides_logits)
{
    float z[CLASSES] = {1, 2, -3, 0.5F, 0}, probability[CLASSES];
    const int32_t row_of = 0;
    const sp_tensor logits = {.data = z, .n = 1, .c = CLASSES, .ld = CLASSES};
    uint64_t sum[CLASSES] = {0};
    double total = 0;

    for (int j = 0; j < CLASSES; j++)
        total += exp(z[j] / 2.5);
    sp_merge_view(logits, 2.5, &row_of, 1, sum);
    assert_int_equal(sp_merge_result(sum, CLASSES, probability).label, 1);
    for (int j = 0; j < CLASSES; j++)
        assert_true(fabs(probability[j] - exp(z[j] / 2.5) / total) < 1e-7);
}

/* Two sums that differ by a unit, as logits: the class is still their first maximum. */
TEST(logits_keep_the_class)
{
    const uint64_t sum[3] = {((uint64_t)1 << 50) - 1, (uint64_t)1 << 50, 0};
    float z[3];

    sp_merge_logits(sum, 3, z);
    assert_int_equal(sp_merge_class(sum, 3), 1);
    assert_true(z[1] > z[0] && z[2] < -30);
}

TEST(edges)
{
    float z = -1e30F, probability[3];
    const int32_t row = 0;
    const sp_tensor logits = {.data = &z, .n = 1, .c = 1, .ld = 1};
    uint64_t one = 0, none[3] = {0};
    sp_merged merged;

    sp_merge_view(logits, 1, &row, 1, &one); /* one class */
    merged = sp_merge_result(&one, 1, probability);
    assert_int_equal(merged.label, 0);
    assert_true(merged.confidence == 1 && probability[0] == 1);
    assert_true(sp_merge_entropy(&one, 1) == 0);
    merged = sp_merge_result(none, 3, probability); /* in no block */
    assert_int_equal(merged.label, SP_IGNORE);
    assert_true(merged.confidence == 0 && probability[2] == 0);
    assert_true(sp_merge_entropy(none, 3) == 0);
    sp_merge_view(logits, 1, &row, 0, NULL); /* an empty block */
    sp_merge_points(NULL, 3, NULL, 0, NULL, NULL, NULL);
}
