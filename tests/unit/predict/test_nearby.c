/* Means over the surroundings of voxels against all pairs of voxels. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "predict/sp_nearby.h"

enum { VOXELS = 400, ONE = 1 << 20 };

static int32_t cell_at(int32_t x, int edge)
{
    return (int32_t)floor((double)x / edge);
}

static bool are_near(const int32_t *a, const int32_t *b, int edge)
{
    for (int k = 0; k < 3; k++)
        if (abs(cell_at(a[k], edge) - cell_at(b[k], edge)) > 1)
            return false;
    return true;
}

static void mean_of_pairs(const int32_t (*at)[3], int n, int edge, double *x)
{
    double mean[VOXELS];

    for (int i = 0; i < n; i++) {
        double sum = 0;
        int near = 0;

        for (int j = 0; j < n; j++)
            if (are_near(at[i], at[j], edge)) {
                sum += x[j];
                near++;
            }
        mean[i] = sum / near;
    }
    memcpy(x, mean, (size_t)n * sizeof *x);
}

/* A cloud from a corner on. */
static void make_cloud(int32_t (*at)[3], uint64_t *x, uint64_t seed, int32_t from)
{
    sp_rng rng = sp_rng_open(seed, SP_RNG_AUGMENT, 0, 0);

    for (int i = 0; i < VOXELS; i++) {
        for (int k = 0; k < 3; k++)
            at[i][k] = from + (int32_t)sp_rng_uniform(&rng, 0, 20);
        x[i] = (uint64_t)sp_rng_uniform(&rng, 0, 9.0 * ONE);
    }
}

static void check_cloud(sp_nearby *nearby, int32_t from, int edge)
{
    int32_t at[VOXELS][3], back[VOXELS][3];
    uint64_t x[VOXELS], x_back[VOXELS];
    double want[VOXELS];

    make_cloud(at, x, (uint64_t)edge, from);
    for (int i = 0; i < VOXELS; i++) {
        memcpy(back[VOXELS - 1 - i], at[i], sizeof at[i]);
        x_back[VOXELS - 1 - i] = x[i];
        want[i] = (double)x[i];
    }
    for (int pass = 0; pass < 2; pass++)
        mean_of_pairs((const int32_t(*)[3])at, VOXELS, edge, want);
    assert_int_equal(sp_nearby_mean(nearby, at[0], VOXELS, edge, x), SP_OK);
    assert_int_equal(sp_nearby_mean(nearby, back[0], VOXELS, edge, x_back), SP_OK);
    for (int i = 0; i < VOXELS; i++) {
        assert_true(fabs((double)x[i] - want[i]) <= 1.01); /* rounded twice */
        assert_true(x[i] == x_back[VOXELS - 1 - i]);
    }
}

TEST(means_equal_those_of_all_pairs)
{
    sp_nearby nearby = {0};

    for (int edge = 1; edge <= 4; edge++) {
        check_cloud(&nearby, -10, edge);
        check_cloud(&nearby, -(1 << 19), edge);
        check_cloud(&nearby, (1 << 19) - 20, edge);
    }
    assert_int_equal(sp_nearby_mean(&nearby, NULL, 0, 2, NULL), SP_OK);
    sp_nearby_destroy(&nearby);
}
